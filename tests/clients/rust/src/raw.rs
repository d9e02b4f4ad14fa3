//! Locks that people write themselves with the `redis` crate: SET NX and DEL with the value 1, no owner token.
//! Here the worlds must differ where the idiom does damage. A party sets a client name, and has one connection.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::Connection;

use crate::checks::{self, Answer, Check, LONG, SHORT, Server};

static PARTIES: AtomicUsize = AtomicUsize::new(1);

pub struct Party {
    connection: Mutex<Connection>,
}

impl checks::Party for Party {
    const NAME: &'static str = "SET NX, DEL (redis)";
    const CRATE: &'static str = "redis";
    const OWN: &'static [Check] = &[("expiry", late), ("thief", thief)];

    type Lock = String;

    fn new(server: &Server) -> Party {
        let mut connection = server.connection();
        let name = format!("worker-{}", PARTIES.fetch_add(1, Ordering::Relaxed));
        redis::cmd("CLIENT").arg(&["SETNAME", &name]).exec(&mut connection).expect("CLIENT SETNAME");
        Party { connection: Mutex::new(connection) }
    }

    fn take(&self, name: &str, ttl: Duration, _: bool) -> Option<String> {
        let mut connection = self.connection.lock().expect("one thread");
        let set: Option<String> = redis::cmd("SET")
            .arg(&[name, "1", "NX", "PX"])
            .arg(ttl.as_millis().to_string())
            .query(&mut *connection)
            .expect("SET");
        set.map(|_| name.to_owned())
    }

    fn release(&self, lock: &String) -> Answer {
        self.answer(redis::cmd("DEL").arg(lock))
    }

    fn extend(&self, lock: &String, ttl: Duration) -> Answer {
        let ttl = ttl.as_millis().to_string();
        self.answer(redis::cmd("PEXPIRE").arg(lock).arg(ttl))
    }

    fn stranger(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl Party {
    fn answer(&self, command: &redis::Cmd) -> Answer {
        let mut connection = self.connection.lock().expect("one thread");
        match command.query(&mut *connection) {
            Ok(1) => Answer::Done,
            Ok(_) => Answer::Refused,
            Err(error) => panic!("{error}"),
        }
    }
}

fn late(server: &Server, name: &str) {
    let (one, other): (Party, Party) = (checks::Party::new(server), checks::Party::new(server));
    let late = checks::taken(&one, name, SHORT);
    server.wait_until_free(name);
    let successor = checks::taken(&other, name, LONG);
    let lease = server.lease(name);
    checks::Party::release(&one, &late);
    server.survives(name, &lease);
    checks::Party::release(&other, &successor);
    assert!(server.is_free(name));
}

fn thief(server: &Server, name: &str) {
    let (one, other): (Party, Party) = (checks::Party::new(server), checks::Party::new(server));
    let lock = checks::taken(&one, name, LONG);
    let lease = server.lease(name);
    checks::Party::release(&other, &lock);
    server.survives(name, &lease);
    checks::Party::release(&one, &lock);
    assert!(server.is_free(name));
}

//! Locks that people write themselves with the cluster client of the `redis` crate, which asks which node has
//! which slots: SET NX PX with a random owner token, and scripts.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Script, ToRedisArgs};

use crate::checks::{self, Answer, LONG, PAUSE, Server};

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const EXTEND: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

static TOKENS: AtomicU64 = AtomicU64::new(1);

pub struct Party {
    connection: Mutex<ClusterConnection>,
}

pub struct Lock {
    name: String,
    token: String,
}

impl Lock {
    fn of(name: &str) -> Lock {
        let number = TOKENS.fetch_add(1, Ordering::Relaxed);
        Lock { name: name.to_owned(), token: format!("{:08x}-4f1c-{number:08x}", std::process::id()) }
    }
}

impl checks::Party for Party {
    const NAME: &'static str = "SET NX, scripts (redis ClusterClient)";
    const CRATE: &'static str = "redis";

    type Lock = Lock;

    fn new(_: &Server) -> Party {
        let address = std::env::var("LOCK_CLUSTER").expect("LOCK_CLUSTER is set");
        let client = ClusterClient::new(vec![format!("redis://{address}")]).expect("the address of a node");
        Party { connection: Mutex::new(client.get_connection().expect("a connection")) }
    }

    fn take(&self, name: &str, ttl: Duration, wait: bool) -> Option<Lock> {
        let lock = Lock::of(name);
        let deadline = Instant::now() + LONG;
        loop {
            let mut connection = self.connection.lock().expect("one thread");
            let set: Option<String> = redis::cmd("SET")
                .arg(&[name, &lock.token, "NX", "PX"])
                .arg(ttl.as_millis().to_string())
                .query(&mut *connection)
                .expect("SET");
            if set.is_some() {
                return Some(lock);
            }
            if !wait || Instant::now() > deadline {
                return None;
            }
            drop(connection);
            thread::sleep(PAUSE);
        }
    }

    fn release(&self, lock: &Lock) -> Answer {
        self.runs(RELEASE, lock, &[] as &[&str])
    }

    fn extend(&self, lock: &Lock, ttl: Duration) -> Answer {
        self.runs(EXTEND, lock, &[ttl.as_millis().to_string()])
    }

    fn stranger(&self, name: &str) -> Lock {
        Lock::of(name)
    }
}

impl Party {
    fn runs<T: ToRedisArgs>(&self, text: &str, lock: &Lock, more: &[T]) -> Answer {
        let mut connection = self.connection.lock().expect("one thread");
        let script = Script::new(text);
        let mut call = script.prepare_invoke();
        call.key(&lock.name).arg(&lock.token).arg(more);
        match call.invoke::<i64>(&mut *connection) {
            Ok(1) => Answer::Done,
            Ok(_) => Answer::Refused,
            Err(error) => panic!("{error}"),
        }
    }
}

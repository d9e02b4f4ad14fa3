//! What every lock library must do. A [`Party`] is one user of a library, with connections of its own. Checks
//! look at the server over separate connections ([`Server`]) and panic where something is wrong.

use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Commands, Connection};

const PARTIES: usize = 8;
const ROUNDS: usize = 5;
/// How long eight parties may take together.
const CONTEND_WITHIN: Duration = Duration::from_secs(60);
pub const SHORT: Duration = Duration::from_millis(800);
pub const LONG: Duration = Duration::from_secs(10);
pub const PAUSE: Duration = Duration::from_millis(20);

/// A check of a library's own, of a lock's name.
pub type Check = (&'static str, fn(&Server, &str));

/// Whether a release or an extension was done.
#[derive(Debug, PartialEq)]
pub enum Answer {
    Done,
    Refused,
    /// The library does not report it.
    Untold,
}

/// One user of a library.
pub trait Party: Send + Sized {
    const NAME: &'static str;
    /// The crate that is tried.
    const CRATE: &'static str;
    /// Whether it can extend.
    const EXTENDS: bool = true;
    /// Checks of its own; they replace those of the same name.
    const OWN: &'static [Check] = &[];

    type Lock;

    fn new(server: &Server) -> Self;
    /// The lock that was taken, or none where another party holds it.
    fn take(&self, name: &str, ttl: Duration, wait: bool) -> Option<Self::Lock>;
    fn release(&self, lock: &Self::Lock) -> Answer;
    /// So that the TTL is this again.
    fn extend(&self, lock: &Self::Lock, ttl: Duration) -> Answer;
    /// A lock with another owner token that this party believes it holds.
    fn stranger(&self, name: &str) -> Self::Lock;
}

/// The server as a bystander sees it.
pub struct Server {
    pub url: String,
}

/// The state of a lock, which must stay the same when another party tries something.
#[derive(Debug, PartialEq)]
pub struct Lease {
    pub value: Option<Vec<u8>>,
    /// When it ends, in milliseconds of Unix time; -2 where there is no lock.
    pub end: i64,
}

impl Server {
    pub fn at(host: &str, port: &str) -> Server {
        Server { url: format!("redis://{host}:{port}/") }
    }

    pub fn client(&self) -> Client {
        Client::open(self.url.as_str()).expect("the address of a server")
    }

    pub fn connection(&self) -> Connection {
        self.client().get_connection().expect("a connection")
    }

    pub fn lease(&self, key: &str) -> Lease {
        let mut connection = self.connection();
        Lease { value: connection.get(key).expect("GET"), end: connection.pexpire_time(key).expect("PEXPIRETIME") }
    }

    pub fn is_free(&self, key: &str) -> bool {
        !self.connection().exists::<_, bool>(key).expect("EXISTS")
    }

    pub fn wait_until_free(&self, key: &str) {
        let deadline = Instant::now() + LONG;
        while !self.is_free(key) {
            assert!(Instant::now() < deadline, "the lock did not end by its TTL");
            thread::sleep(PAUSE);
        }
    }

    pub fn unchanged(&self, key: &str, lease: &Lease) {
        assert_eq!(&self.lease(key), lease, "the lock changed");
    }

    /// Asserts that the lock is as it was; only where no proxy protects it, it must be gone.
    pub fn survives(&self, key: &str, lease: &Lease) {
        let gone = Lease { value: None, end: -2 };
        let damaged = env::var("LOCK_WORLD").is_ok_and(|world| world == "direct");
        self.unchanged(key, if damaged { &gone } else { lease });
    }
}

pub fn run<P: Party>(server: &Server, prefix: &str) {
    panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let common: [Check; 6] = [
        ("acquire", acquire::<P>),
        ("contend", contend::<P>),
        ("extend", extend::<P>),
        ("release", release::<P>),
        ("expiry", expiry::<P>),
        ("thief", thief::<P>),
    ];
    let replaced = |name| P::OWN.iter().any(|(own, _)| *own == name);
    let common = common.iter().filter(|(name, _)| !replaced(*name));
    let wanted = env::var("LOCK_CHECKS").ok();
    let wanted: Option<Vec<&str>> = wanted.as_deref().map(|wanted| wanted.split(';').collect());
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.contains(&name));
    for (name, check) in common.chain(P::OWN).filter(|(name, _)| is_wanted(name)) {
        let key = format!("{prefix}{}", name.replace(' ', "-"));
        let (result, detail) = if *name == "extend" && !P::EXTENDS {
            ("n/a", "it has none".to_owned())
        } else {
            match panic::catch_unwind(AssertUnwindSafe(|| check(server, &key))) {
                Ok(()) => ("ok", String::new()),
                Err(reason) => ("failed", text(&*reason)),
            }
        };
        let line = serde_json::json!({
            "client": P::NAME, "version": version(P::CRATE), "check": name, "result": result, "detail": detail,
        });
        println!("{line}");
    }
}

fn text(reason: &(dyn std::any::Any + Send)) -> String {
    let text = reason.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| reason.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}

/// The version that is built in; of several the newest, which is the last.
fn version(name: &str) -> &'static str {
    let (_, after) = include_str!("../Cargo.lock")
        .rsplit_once(&format!("name = \"{name}\"\nversion = \""))
        .expect("a crate that is locked");
    after.split('"').next().unwrap_or("unknown")
}

/// A lock that had to be free.
pub fn taken<P: Party>(party: &P, name: &str, ttl: Duration) -> P::Lock {
    let lock = party.take(name, ttl, false);
    lock.expect("a free lock was not to be had")
}

pub fn released<P: Party>(server: &Server, party: &P, lock: &P::Lock, name: &str) {
    assert_ne!(party.release(lock), Answer::Refused, "the holder's release");
    assert!(server.is_free(name), "still held after the release");
}

fn acquire<P: Party>(server: &Server, name: &str) {
    let (one, other) = (P::new(server), P::new(server));
    let lock = taken(&one, name, LONG);
    let lease = server.lease(name);
    assert!(lease.value.is_some() && lease.end > 0, "{lease:?}");
    let second = other.take(name, LONG, false);
    assert!(second.is_none(), "a second party got it too");
    server.unchanged(name, &lease);
    released(server, &one, &lock, name);
}

fn contend<P: Party>(server: &Server, name: &str) {
    let inside = format!("plain:{name}:inside");
    let entries = format!("plain:{name}:entries");
    let deadline = Instant::now() + CONTEND_WITHIN;
    let broken = AtomicBool::new(false);
    let one = || {
        let party = P::new(server);
        let mut bystander = server.connection();
        for _ in 0..ROUNDS {
            let lock = loop {
                if let Some(lock) = party.take(name, LONG, true) {
                    break lock;
                }
                assert!(!broken.load(Ordering::Relaxed), "another party failed");
                assert!(Instant::now() < deadline, "not let in in time");
                thread::sleep(Duration::from_millis(1));
            };
            let together: i64 = bystander.incr(&inside, 1).expect("INCR");
            assert_eq!(together, 1, "parties at a time");
            thread::sleep(Duration::from_millis(2));
            let _: i64 = bystander.incr(&entries, 1).expect("INCR");
            let _: i64 = bystander.decr(&inside, 1).expect("DECR");
            assert_ne!(party.release(&lock), Answer::Refused, "a holder's release");
        }
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let guarded = || {
            let end = panic::catch_unwind(AssertUnwindSafe(one));
            broken.fetch_or(end.is_err(), Ordering::Relaxed);
            end
        };
        let threads: Vec<_> = (0..PARTIES).map(|_| scope.spawn(guarded)).collect();
        let ends = threads.into_iter().map(|thread| thread.join().flatten());
        ends.filter_map(|end| end.err().map(|reason| text(&*reason))).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("; "));
    let came: usize = server.connection().get(&entries).expect("GET");
    assert_eq!(came, PARTIES * ROUNDS, "so many came in");
    assert!(server.is_free(name), "still held after the last release");
}

fn extend<P: Party>(server: &Server, name: &str) {
    let party = P::new(server);
    let lock = taken(&party, name, LONG);
    let before = server.lease(name);
    // So that the same TTL from now on ends later.
    thread::sleep(PAUSE);
    assert_ne!(party.extend(&lock, LONG), Answer::Refused, "the holder's extension");
    let after = server.lease(name);
    assert!(after.end > before.end, "the TTL did not grow: {after:?} after {before:?}");
    assert_eq!(after.value, before.value);
    released(server, &party, &lock, name);
}

fn release<P: Party>(server: &Server, name: &str) {
    let (one, other) = (P::new(server), P::new(server));
    for party in [&one, &other, &one] {
        released(server, party, &taken(party, name, LONG), name);
    }
}

fn expiry<P: Party>(server: &Server, name: &str) {
    let (one, other) = (P::new(server), P::new(server));
    let late = taken(&one, name, SHORT);
    server.wait_until_free(name);
    let successor = taken(&other, name, LONG);
    let lease = server.lease(name);
    if P::EXTENDS {
        assert_ne!(one.extend(&late, 2 * LONG), Answer::Done, "a late extension");
    }
    assert_ne!(one.release(&late), Answer::Done, "a late release");
    server.unchanged(name, &lease);
    released(server, &other, &successor, name);
}

fn thief<P: Party>(server: &Server, name: &str) {
    let (one, other) = (P::new(server), P::new(server));
    let lock = taken(&one, name, LONG);
    let lease = server.lease(name);
    let stranger = other.stranger(name);
    if P::EXTENDS {
        assert_ne!(other.extend(&stranger, 2 * LONG), Answer::Done, "a thief's extension");
    }
    assert_ne!(other.release(&stranger), Answer::Done, "a thief's release");
    server.unchanged(name, &lease);
    released(server, &one, &lock, name);
}

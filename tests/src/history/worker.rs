//! A client of a run, in its own process, so that it can be killed and stopped. It takes locks in every idiom,
//! works for a while, gives them back or not, and writes down its requests and their replies. It also makes the
//! mistakes of applications: it goes on after its lease has ended, and deletes locks that it did not get.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::client::{Client, encode};
use crate::machines::Machine;
use crate::process::Process;
use crate::random::Random;
use crate::reply::Reply;

use super::clock::At;
use super::idioms::{self, Idiom};
use super::line::Scribe;
use super::operation::{Action, Answer};

/// The variable by which a worker is told what to do.
const TOLD_BY: &str = "LOCKWARDEN_HISTORY_WORKER";
/// A client gives up on a reply after this, and closes.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(1);
/// Once in so many requests a client closes without having read the answer.
const RARELY: usize = 80;

/// The list that a lock guards.
pub(super) fn guarded_by(lock: &str) -> String {
    lock.replacen("lock:", "data:", 1)
}

/// The program that runs as a client.
#[derive(Clone, Debug)]
pub enum Worker {
    /// This program once more, with the one test of this name.
    Test(&'static str),
    /// A Python and a script, which finds Redis by the sentinels.
    Python(PathBuf, PathBuf),
}

/// The orders to a worker.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub client: u32,
    pub seed: u64,
    pub source: Ipv4Addr,
    pub servers: Vec<SocketAddr>,
    pub locks: Vec<String>,
    /// The lock whose value is the time at which it ends.
    pub deadline_lock: String,
    pub file: PathBuf,
    pub until: At,
    /// Whether it makes the mistakes of applications.
    pub misbehaves: bool,
    /// Some leases are held for so long, extended or kept alive, with writes of what they guard.
    pub holds: Option<(Duration, Duration)>,
    /// How wrong its clock is.
    pub clock_ahead: Duration,
}

impl Orders {
    /// Starts the worker, on this machine where one is named.
    pub(super) fn start(&self, worker: &Worker, machine: Option<&Machine>) -> Process {
        let mut command = match worker {
            Worker::Test(name) => {
                let program = std::env::current_exe();
                let mut command = Command::new(program.expect("the system knows this program's path"));
                command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
                command
            }
            Worker::Python(python, script) => {
                let mut command = Command::new(python);
                command.arg(script);
                command
            }
        };
        command.env(TOLD_BY, self.to_json().to_string()).stdout(Stdio::null()).stderr(Stdio::inherit());
        if let Some(machine) = machine {
            machine.runs(&mut command);
        }
        Process::spawn(&mut command).unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
    }

    fn to_json(&self) -> Value {
        json!({
            "client": self.client,
            "seed": self.seed,
            "source": self.source.to_string(),
            "servers": self.servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "locks": self.locks,
            "deadline_lock": self.deadline_lock,
            "file": self.file,
            "until": self.until.0,
            "misbehaves": self.misbehaves,
            "clock_ahead": self.clock_ahead.as_secs(),
            "holds": self.holds.map(|(least, most)| [least, most].map(|time| time.as_millis() as u64)),
        })
    }

    fn parse(text: &str) -> Orders {
        let told: Value = serde_json::from_str(text).expect("the rig writes JSON");
        let texts = |name: &str| -> Vec<String> {
            let list = told[name].as_array().into_iter().flatten();
            list.filter_map(|one| Some(one.as_str()?.to_owned())).collect()
        };
        let number = |name: &str| told[name].as_u64().expect("the rig writes numbers");
        let text = |name: &str| told[name].as_str().expect("the rig writes texts");
        Orders {
            client: u32::try_from(number("client")).expect("few clients"),
            seed: number("seed"),
            source: text("source").parse().expect("an address"),
            servers: texts("servers").iter().map(|address| address.parse().expect("an address")).collect(),
            locks: texts("locks"),
            deadline_lock: text("deadline_lock").to_owned(),
            file: Path::new(text("file")).to_owned(),
            until: At(number("until")),
            misbehaves: told["misbehaves"] == true,
            clock_ahead: Duration::from_secs(number("clock_ahead")),
            holds: told["holds"].as_array().map(|times| {
                let time = |at: usize| Duration::from_millis(times[at].as_u64().expect("the rig writes numbers"));
                (time(0), time(1))
            }),
        }
    }
}

/// Works as the rig has told this process to; does nothing in one that was not started by a rig.
pub fn run() {
    let Ok(told) = std::env::var(TOLD_BY) else {
        return;
    };
    let orders = Orders::parse(&told);
    let mut worker = Applications {
        random: Random::from_seed(orders.seed),
        scribe: Scribe::new(&orders.file),
        connection: None,
        connections: 0,
        tries: 0,
        orders,
    };
    while At::now() < worker.orders.until {
        worker.takes_a_lock();
    }
}

struct Applications {
    orders: Orders,
    random: Random,
    scribe: Scribe,
    connection: Option<Client>,
    /// How many it has opened; the number of the one that is open.
    connections: u64,
    tries: u64,
}

/// A lock that the client believes to have.
struct Lease<'a> {
    lock: &'a str,
    idiom: Idiom,
    ttl: Duration,
    /// The connection that it was granted to.
    connection: u64,
}

/// How an application works under a lock.
enum Work {
    /// Well within the TTL.
    Short,
    /// Longer, with extensions.
    Extending,
    /// Longer than the TTL, without a look at the time.
    TooLong,
    /// For this long, with extensions where the proxy does not keep the lock alive.
    Long(Duration),
    /// It ends in the middle, as far as the lock is concerned.
    Abandoned,
}

impl Applications {
    fn takes_a_lock(&mut self) {
        let ttl = Duration::from_millis(self.random.between(200, 1_000) as u64);
        if self.random.one_in(4) {
            // A lock of its own: a client that reads a value of another idiom and deletes is believed to have
            // compared it.
            let lock = self.orders.deadline_lock.clone();
            return self.takes_by_deadline(&lock, ttl.min(idioms::DEFAULT_TTL));
        }
        let lock = self.random.among(&self.orders.locks).clone();
        let idiom = Idiom::drawn(&mut self.random);
        let value = self.value(idiom);
        let (words, claims) = idiom.acquire(&lock, &value, ttl);
        let mut answer = self.operates(&lock, Action::Acquire(claims), true, &words);
        if answer.is_none() && idiom.is_distinctive() && self.random.one_in(2) {
            // As a library does that tries again.
            answer = self.operates(&lock, Action::Acquire(claims), true, &words);
        }
        match answer {
            Some(Answer::Yes) => self.holds(&lock, &value, idiom, ttl),
            Some(Answer::No) => {
                if self.orders.misbehaves && self.random.one_in(4) {
                    // The `finally` of a client that did not get it.
                    self.operates(&lock, Action::Release, false, &["DEL".to_owned(), lock.clone()]);
                }
                self.pauses(5, 25);
            }
            None => self.pauses(5, 25),
        }
    }

    /// The value is the time at which the lock ends; a client that reads a time that has passed takes over by GETSET.
    /// Its clock may be wrong.
    fn takes_by_deadline(&mut self, lock: &str, ttl: Duration) {
        let (from, deadline) = (At::now(), self.clock().saturating_add(ttl.as_millis()));
        let deadline = deadline.to_string();
        let (words, _) = Idiom::Bare.acquire(lock, &deadline, ttl);
        let mut answer = self.operates_from(from, lock, Action::Acquire(ttl), true, &words, idioms::answer);
        if answer == Some(Answer::No) {
            let read = match self.asks(&["GET".to_owned(), lock.to_owned()]) {
                Some(Reply::Bulk(value)) => String::from_utf8_lossy(&value).into_owned(),
                _ => return self.pauses(5, 25),
            };
            let has_passed = read.parse().is_ok_and(|at: u128| at > 1_000_000_000_000 && at < self.clock());
            if !has_passed {
                return self.pauses(5, 25);
            }
            let (from, deadline) = (At::now(), self.clock().saturating_add(ttl.as_millis()));
            let words = ["GETSET".to_owned(), lock.to_owned(), deadline.to_string()];
            let reads = |reply: &Reply| match reply {
                Reply::Nil => Some(Answer::Yes),
                Reply::Bulk(value) if value == read.as_bytes() => Some(Answer::Yes),
                Reply::Bulk(_) => Some(Answer::No),
                _ => None,
            };
            answer = self.operates_from(from, lock, Action::Acquire(ttl), true, &words, reads);
        }
        if answer != Some(Answer::Yes) {
            return self.pauses(5, 25);
        }
        self.asks_for_fence(lock);
        self.pauses(1, ttl.as_millis() as usize / 2);
        let lease = Lease { lock, idiom: Idiom::Bare, ttl, connection: self.connections };
        let proves = self.proves(&lease);
        let words = Idiom::Bare.release(lock, &deadline);
        self.operates(lock, Action::Release, proves, &words);
        self.pauses(1, 15);
    }

    /// The time by the client's own clock, in Unix milliseconds.
    fn clock(&self) -> u128 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("the clock is past 1970").as_millis();
        now + self.orders.clock_ahead.as_millis()
    }

    fn holds(&mut self, lock: &str, value: &str, idiom: Idiom, ttl: Duration) {
        let mut lease = Lease { lock, idiom, ttl, connection: self.connections };
        let fence = self.asks_for_fence(lock);
        if idiom == Idiom::Bare {
            lease.ttl = idioms::DEFAULT_TTL;
        }
        if let Some(words) = idiom.sets_ttl(lock, ttl)
            && !self.extends(&lease, &words)
        {
            return;
        }
        let ttl = lease.ttl.as_millis() as usize;
        let work = match self.random.below(20) {
            2..8 if self.orders.holds.is_some() => Work::Long(self.holding_time()),
            0 if self.orders.misbehaves => Work::TooLong,
            1 => Work::Abandoned,
            2..6 => Work::Extending,
            _ => Work::Short,
        };
        match work {
            Work::Short => {
                self.pauses(1, 60);
                self.writes(lock, fence);
            }
            Work::Extending => {
                for _ in 0..self.random.between(1, 4) {
                    self.pauses(ttl / 4, ttl / 2);
                    let words = idiom.extend(lock, value, lease.ttl);
                    if !self.extends(&lease, &words) {
                        return;
                    }
                }
            }
            Work::Long(time) => {
                let until = At::now().plus(time);
                while At::now() < until {
                    self.pauses(ttl / 4, ttl / 2);
                    let is_kept = idiom == Idiom::Bare;
                    // It does not learn that its lock is gone, only that its connection is.
                    if is_kept && !self.proves(&lease) {
                        return;
                    }
                    if !is_kept && !self.extends(&lease, &idiom.extend(lock, value, lease.ttl)) {
                        return;
                    }
                    self.writes(lock, fence);
                }
            }
            Work::TooLong => {
                self.pauses(ttl, ttl * 3 / 2);
                self.writes(lock, fence);
            }
            Work::Abandoned => {
                // The proxy keeps a lock alive whose TTL it chose itself, while its client is connected.
                if !idiom.is_distinctive() {
                    self.connection = None;
                }
                return;
            }
        }
        let words = idiom.release(lock, value);
        let proves = self.proves(&lease);
        self.operates(lock, Action::Release, proves, &words);
        self.pauses(1, 15);
    }

    /// Whether the client still has the lock afterwards, as far as it knows.
    fn extends(&mut self, lease: &Lease<'_>, words: &[String]) -> bool {
        let proves = self.proves(lease);
        let answer = self.operates(lease.lock, Action::Extend(lease.ttl), proves, words);
        answer != Some(Answer::No)
    }

    fn proves(&self, lease: &Lease<'_>) -> bool {
        lease.idiom.compares() || (lease.connection == self.connections && self.connection.is_some())
    }

    /// Sends a request about a lock and writes down the result.
    fn operates(&mut self, lock: &str, action: Action, proves: bool, words: &[String]) -> Option<Answer> {
        let from = At::now();
        self.operates_from(from, lock, action, proves, words, idioms::answer)
    }

    /// The same, where the reply is read in another way, and the requested TTL counts from the given time.
    fn operates_from(
        &mut self,
        from: At,
        lock: &str,
        action: Action,
        proves: bool,
        words: &[String],
        reads: impl Fn(&Reply) -> Option<Answer>,
    ) -> Option<Answer> {
        if !self.connects() {
            self.pauses(20, 60);
            return None;
        }
        self.scribe.invokes(from, lock, action, proves, &words.join(" "));
        let reply = self.asks(words)?;
        let answer = reads(&reply);
        match (answer, reply) {
            (Some(answer), _) => self.scribe.hears(answer),
            (None, Reply::Error(error)) => self.scribe.hears_error(&error),
            (None, other) => panic!("{words:?} was answered with {other}"),
        }
        answer
    }

    /// Returns `None` where no reply came: then the connection is closed.
    fn asks(&mut self, words: &[String]) -> Option<Reply> {
        let connection = self.connection.take()?;
        connection.write(&encode(words));
        if self.random.one_in(RARELY) {
            return None;
        }
        let reply = connection.reply_if_any(SOCKET_TIMEOUT)?;
        self.connection = Some(connection);
        Some(reply)
    }

    fn asks_for_fence(&mut self, lock: &str) -> Option<u64> {
        let words = ["LOCKWARDEN", "FENCE", lock].map(str::to_owned);
        let Some(Reply::Integer(fence)) = self.asks(&words) else {
            return None;
        };
        let fence = u64::try_from(fence).expect("fencing tokens are not negative");
        self.scribe.learns_fence(fence);
        Some(fence)
    }

    /// Writes to the data that the lock guards, with the number of the lease under which it does, late or not.
    fn writes(&mut self, lock: &str, fence: Option<u64>) {
        if let (Some(fence), true) = (fence, self.connects()) {
            let words = ["RPUSH".to_owned(), guarded_by(lock), fence.to_string()];
            let sent = At::now();
            if let Some(Reply::Integer(_)) = self.asks(&words) {
                self.scribe.wrote(lock, fence, sent);
            }
        }
    }

    fn holding_time(&mut self) -> Duration {
        let (least, most) = self.orders.holds.unwrap_or_default();
        let ms = self.random.between(least.as_millis() as usize, most.as_millis() as usize);
        Duration::from_millis(ms as u64)
    }

    fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether there is a connection now.
    fn connects(&mut self) -> bool {
        if self.is_connected() {
            return true;
        }
        let server = *self.random.among(&self.orders.servers);
        self.connection = Client::try_plain_from(self.orders.source, server).ok();
        self.connections += 1;
        self.is_connected()
    }

    fn value(&mut self, idiom: Idiom) -> String {
        self.tries += 1;
        match idiom.is_distinctive() {
            true => {
                let drawn = self.random.number() as u32;
                format!("c{:03}-{:06}-{drawn:08x}", self.orders.client, self.tries)
            }
            false => "1".to_owned(),
        }
    }

    fn pauses(&mut self, least_ms: usize, most_ms: usize) {
        let ms = self.random.between(least_ms, most_ms.max(least_ms));
        sleep(Duration::from_millis(ms as u64));
    }
}

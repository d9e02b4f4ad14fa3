//! The loads: which commands are sent, and which replies must come back. Each client has the script of one
//! load, which writes the next commands and knows every byte of their replies. Does no I/O and reads no
//! clock.

use std::collections::VecDeque;
use std::io::Write as _;

use crate::replies::Expected;

/// Locks a client goes round, so that neither memory nor records grow with the run.
const LOCKS_A_CLIENT: u64 = 200;
/// Of so many commands of the mixed load, two are a lock's: the first takes it, and another,
/// [`RELEASED_AFTER`] commands later, releases it.
const MIXED: u64 = 40;
const RELEASED_AFTER: u64 = 5;
/// The compare-and-delete of most libraries, in its usual spelling, and the SHA-1 that names it.
pub(crate) const RELEASE: &str =
    "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end";
pub(crate) const RELEASE_SHA: &str = "b70c2384248f88e6b75b9f89241a180f856ad852";

/// What the clients of a load do, over and over.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// SET and GET in turns, of values of so many bytes, so many commands in one write.
    Plain { value: usize, depth: usize },
    /// PING.
    Ping,
    /// SETNX, EXPIRE, DEL.
    Legacy(Keys),
    /// SET NX PX, and the compare-and-delete script by its SHA-1.
    Good(Keys),
    /// SET and GET of 64 bytes, and one good cycle among forty commands.
    Mixed,
}

/// The keys of a lock's commands.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Keys {
    /// Locks, some for each client.
    Many,
    /// One lock for all clients.
    Hot,
    /// Names of no lock, some for each client: the same commands, passed through.
    Free,
}

/// What names begin with that are no lock's in any configuration of a way.
const FREE: &str = "free:";

/// Something to compare the ways with.
#[derive(Clone)]
pub(crate) struct Load {
    /// What `--only` calls it.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) clients: usize,
    /// Connections that stay silent beside them.
    pub(crate) idle: usize,
    pub(crate) kind: Kind,
    /// Every cycle has a connection of its own; how many of them are measured.
    pub(crate) connections: Option<u64>,
}

const SMALL: Kind = Kind::Plain { value: 64, depth: 1 };

/// In the order of the tables.
pub(crate) fn all() -> Vec<Load> {
    let load = |name, title: &str, clients, kind| Load {
        name,
        title: title.to_owned(),
        clients,
        idle: 0,
        kind,
        connections: None,
    };
    let pipelined = Kind::Plain { value: 64, depth: 16 };
    let big = Kind::Plain { value: 16 * 1024, depth: 1 };
    vec![
        load("plain", "50 clients, SET/GET 64 B", 50, SMALL),
        load("pipeline", "50 clients, SET/GET 64 B, 16 in a pipeline", 50, pipelined),
        load("single", "1 client, SET/GET 64 B", 1, SMALL),
        Load { idle: 1000, ..load("idle", "50 clients, SET/GET 64 B, beside 1,000 idle ones", 50, SMALL) },
        load("big", "50 clients, SET/GET 16 KiB", 50, big),
        Load {
            connections: Some(2000),
            ..load("connect", "connect, PING, close: 2,000 connections, 20 at a time, per connection", 20, Kind::Ping)
        },
        Load {
            connections: Some(2000),
            ..load(
                "churn",
                "connect, SET NX PX, EVALSHA, close: 2,000 connections, 20 at a time, per connection",
                20,
                Kind::Good(Keys::Many),
            )
        },
        load("legacy", "50 clients, SETNX, EXPIRE, DEL, many keys", 50, Kind::Legacy(Keys::Many)),
        load("legacy-hot", "50 clients, SETNX, EXPIRE, DEL, one key", 50, Kind::Legacy(Keys::Hot)),
        load("good", "50 clients, SET NX PX, EVALSHA compare-and-delete, many keys", 50, Kind::Good(Keys::Many)),
        load("good-hot", "50 clients, SET NX PX, EVALSHA compare-and-delete, one key", 50, Kind::Good(Keys::Hot)),
        load("legacy-free", "50 clients, SETNX, EXPIRE, DEL, keys of no lock", 50, Kind::Legacy(Keys::Free)),
        load(
            "good-free",
            "50 clients, SET NX PX, EVALSHA compare-and-delete, keys of no lock",
            50,
            Kind::Good(Keys::Free),
        ),
        load("mix", "50 clients, 95 % SET/GET 64 B, 5 % SET NX PX and EVALSHA", 50, Kind::Mixed),
    ]
}

impl Kind {
    /// The size of the ordinary values that must be there before.
    pub(crate) fn value(self) -> Option<usize> {
        match self {
            Kind::Plain { value, .. } => Some(value),
            Kind::Mixed => Some(64),
            Kind::Ping | Kind::Legacy(_) | Kind::Good(_) => None,
        }
    }

    pub(crate) fn has_locks(self) -> bool {
        match self {
            Kind::Plain { .. } | Kind::Ping => false,
            Kind::Legacy(keys) | Kind::Good(keys) => keys != Keys::Free,
            Kind::Mixed => true,
        }
    }
}

/// How many ordinary keys there are; of big values fewer, so that Redis's memory stays small.
pub(crate) fn keys(value: usize) -> u64 {
    (16 * 1024 * 1024 / value as u64).clamp(100, 10_000)
}

/// Sets an ordinary key; the reply is `+OK`.
pub(crate) fn put_set(value: &[u8], number: u64, output: &mut Vec<u8>) {
    let mut key = Vec::with_capacity(16);
    ordinary(value.len(), number, &mut key);
    put(output, &[b"SET", &key, value]);
}

fn ordinary(value: usize, number: u64, key: &mut Vec<u8>) {
    key.clear();
    // Writing into memory cannot fail.
    let _ = write!(key, "plain:{value}:{number:05}");
}

/// What all scripts of a run share.
pub(crate) struct Texts {
    value: Vec<u8>,
    pub(crate) value_reply: Vec<u8>,
    /// What names of locks begin with.
    locks: String,
}

impl Texts {
    pub(crate) fn of(kind: Kind, locks: &str) -> Texts {
        let value = vec![b'x'; kind.value().unwrap_or(0)];
        let mut value_reply = Vec::with_capacity(value.len() + 16);
        put_bulk(&mut value_reply, &value);
        Texts { value, value_reply, locks: locks.to_owned() }
    }
}

/// Whose locks they are.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    /// Every way has locks of its own, so that a lock taken around the proxy is never one that it governs.
    pub(crate) way: usize,
    /// Every run has owner tokens of its own, as applications have.
    pub(crate) run: u64,
}

/// One client's way through its load.
pub(crate) struct Script {
    kind: Kind,
    lane: Lane,
    client: usize,
    /// Times that commands were put so far.
    put: u64,
    /// Ordinary commands so far.
    ordinary: u64,
    /// Cycles of a lock begun so far.
    cycles: u64,
    /// Of a cycle; 0 is its first command.
    step: u8,
    random: u64,
    key: Vec<u8>,
    owner_token: Vec<u8>,
}

impl Script {
    pub(crate) fn new(kind: Kind, lane: Lane, client: usize) -> Script {
        Script {
            kind,
            lane,
            client,
            put: 0,
            ordinary: 0,
            cycles: 0,
            step: 0,
            // Any number but 0.
            random: 0x9E37_79B9_7F4A_7C15 ^ (client as u64 + 1),
            key: Vec::new(),
            owner_token: Vec::new(),
        }
    }

    /// Whether no lock is held, and the next command begins another cycle.
    pub(crate) fn at_rest(&self) -> bool {
        self.step == 0
    }

    /// Writes the next commands, and which replies they get.
    pub(crate) fn put(&mut self, texts: &Texts, output: &mut Vec<u8>, awaited: &mut VecDeque<Expected>) {
        let (depth, expected) = match self.kind {
            Kind::Plain { depth, .. } => (depth, None),
            Kind::Ping => {
                put(output, &[b"PING"]);
                (0, Some(Expected::Pong))
            }
            Kind::Legacy(keys) => (0, Some(self.legacy(keys, texts, output))),
            Kind::Good(keys) => (0, Some(self.good(keys, texts, output))),
            Kind::Mixed => match (self.put % MIXED, self.step) {
                (0, 0) | (RELEASED_AFTER, _) => (0, Some(self.good(Keys::Many, texts, output))),
                _ => (1, None),
            },
        };
        awaited.extend(expected);
        for _ in 0..depth {
            awaited.push_back(self.plain(texts, output));
        }
        self.put += 1;
    }

    /// A reply came; `granted` is whether it granted the request.
    pub(crate) fn heard(&mut self, granted: bool) {
        if !granted {
            // Another client holds it: the next try.
            self.step = 0;
        }
    }

    fn plain(&mut self, texts: &Texts, output: &mut Vec<u8>) -> Expected {
        // xorshift: quick, and random enough to spread keys.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let value = texts.value.len();
        ordinary(value, self.random % keys(value), &mut self.key);
        self.ordinary += 1;
        if self.ordinary % 2 == 1 {
            put(output, &[b"SET", &self.key, &texts.value]);
            Expected::Ok
        } else {
            put(output, &[b"GET", &self.key]);
            Expected::Value
        }
    }

    fn legacy(&mut self, keys: Keys, texts: &Texts, output: &mut Vec<u8>) -> Expected {
        let expected = match self.step {
            0 => {
                self.next_lock(keys, texts);
                put(output, &[b"SETNX", &self.key, &self.owner_token]);
                if keys == Keys::Hot { Expected::OneOrZero } else { Expected::One }
            }
            1 => {
                put(output, &[b"EXPIRE", &self.key, b"30"]);
                Expected::One
            }
            _ => {
                put(output, &[b"DEL", &self.key]);
                Expected::One
            }
        };
        self.step = (self.step + 1) % 3;
        expected
    }

    fn good(&mut self, keys: Keys, texts: &Texts, output: &mut Vec<u8>) -> Expected {
        if self.step == 0 {
            self.next_lock(keys, texts);
            let words: [&[u8]; 6] = [b"SET", &self.key, &self.owner_token, b"NX", b"PX", b"30000"];
            put(output, &words);
            self.step = 1;
            return if keys == Keys::Hot { Expected::OkOrNil } else { Expected::Ok };
        }
        // An ordinary command of the mixed load may have named another key since.
        self.name_lock(keys, texts);
        let sha = RELEASE_SHA.as_bytes();
        put(output, &[b"EVALSHA", sha, b"1", &self.key, &self.owner_token]);
        self.step = 0;
        Expected::One
    }

    fn next_lock(&mut self, keys: Keys, texts: &Texts) {
        self.cycles += 1;
        self.owner_token.clear();
        // As long as a UUID without dashes, and unique.
        let (Lane { way, run }, client, cycle) = (self.lane, self.client, self.cycles);
        let _ = write!(self.owner_token, "{way:02x}{run:08x}{client:06x}{cycle:016x}");
        self.name_lock(keys, texts);
    }

    fn name_lock(&mut self, keys: Keys, texts: &Texts) {
        let (client, number) = (self.client, self.cycles % LOCKS_A_CLIENT);
        let (begin, heat, client, number) = match keys {
            Keys::Many => (texts.locks.as_str(), "many", client, number),
            Keys::Hot => (texts.locks.as_str(), "hot", 0, 0),
            Keys::Free => (FREE, "many", client, number),
        };
        self.key.clear();
        let kind = match self.kind {
            Kind::Legacy(_) => "legacy",
            _ => "good",
        };
        let way = self.lane.way;
        let _ = write!(self.key, "{begin}{kind}:{heat}:{way:02}:{client:03}:{number:03}");
    }
}

fn put(output: &mut Vec<u8>, words: &[&[u8]]) {
    output.push(b'*');
    put_number(output, words.len());
    for word in words {
        put_bulk(output, word);
    }
}

fn put_bulk(output: &mut Vec<u8>, word: &[u8]) {
    output.push(b'$');
    put_number(output, word.len());
    output.extend_from_slice(word);
    output.extend_from_slice(b"\r\n");
}

/// By hand, for it is done for every word, and the generator shares a core with what it measures.
fn put_number(output: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    output.extend_from_slice(&digits[at..]);
    output.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Lane = Lane { way: 3, run: 9 };

    /// The lines that a script sends while it is granted everything.
    fn says(kind: Kind, lines: usize) -> Vec<String> {
        let texts = Texts::of(kind, "lock:");
        let mut script = Script::new(kind, LANE, 7);
        let mut said = Vec::new();
        for _ in 0..lines {
            let (mut output, mut awaited) = (Vec::new(), VecDeque::new());
            script.put(&texts, &mut output, &mut awaited);
            let words: Vec<_> = output
                .split(|&byte| byte == b'\n')
                .map(|line| String::from_utf8_lossy(line).trim().to_owned())
                .filter(|word| !word.starts_with(['*', '$']) && !word.is_empty())
                .collect();
            said.push(format!("{} {awaited:?}", words.join(" ")));
            awaited.iter().for_each(|_| script.heard(true));
        }
        said
    }

    #[test]
    fn a_legacy_cycle_is_three_commands_on_one_key() {
        let token = "03000000090000070000000000000001";
        let key = "lock:legacy:many:03:007:001";
        assert_eq!(
            says(Kind::Legacy(Keys::Many), 3),
            [format!("SETNX {key} {token} [One]"), format!("EXPIRE {key} 30 [One]"), format!("DEL {key} [One]"),]
        );
    }

    #[test]
    fn a_client_that_loses_tries_again_and_releases_only_what_it_got() {
        let kind = Kind::Good(Keys::Hot);
        let texts = Texts::of(kind, "lock:");
        let mut script = Script::new(kind, LANE, 7);
        let (mut output, mut awaited) = (Vec::new(), VecDeque::new());
        for granted in [false, false, true] {
            assert!(script.at_rest());
            script.put(&texts, &mut output, &mut awaited);
            assert_eq!(awaited.pop_back(), Some(Expected::OkOrNil));
            script.heard(granted);
        }
        assert!(!script.at_rest());
        script.put(&texts, &mut output, &mut awaited);
        assert_eq!(awaited.pop_back(), Some(Expected::One));
        assert!(script.at_rest());
    }

    #[test]
    fn the_mixed_load_has_one_cycle_among_forty_commands() {
        let said = says(Kind::Mixed, 80);
        let locks: Vec<_> = (0..80).filter(|&at| said[at].contains(" lock:") || said[at].contains("EVALSHA")).collect();
        assert_eq!(locks, [0, 5, 40, 45]);
        let key = |at: usize| said[at].split(' ').find(|word| word.starts_with("lock:"));
        assert_eq!(key(0), key(5));
        assert_ne!(key(0), key(40));
    }
}

//! How applications take, extend and give back locks. It builds requests and reads replies, without a connection.

use std::time::Duration;

use crate::random::Random;
use crate::reply::Reply;

use super::operation::Answer;

/// The TTL that the proxies of a run give to a lock without one.
pub(super) const DEFAULT_TTL: Duration = Duration::from_millis(600);

const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const COMPARE_AND_EXTEND: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
/// As redis-py's Lock words it.
const REDIS_PY_RELEASE: &str = "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    ";

/// A way to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idiom {
    /// `SET NX PX` with a value of its own, and scripts that compare it.
    Compared,
    /// The same in the words of redis-py.
    RedisPy,
    /// `SET NX PX` with a value of its own, extended and deleted without comparing.
    Deleted,
    /// `SETNX` with the same value for all clients, then `EXPIRE`, and `DEL`.
    Legacy,
    /// `SETNX` alone, and `DEL`.
    Bare,
}

impl Idiom {
    pub(super) fn drawn(random: &mut Random) -> Idiom {
        *random.among(&[Idiom::Compared, Idiom::RedisPy, Idiom::Deleted, Idiom::Legacy, Idiom::Bare])
    }

    /// Whether the value distinguishes this try from all others.
    pub(super) fn is_distinctive(self) -> bool {
        match self {
            Idiom::Compared | Idiom::RedisPy | Idiom::Deleted => true,
            Idiom::Legacy | Idiom::Bare => false,
        }
    }

    /// Whether a release or an extension names the value.
    pub(super) fn compares(self) -> bool {
        match self {
            Idiom::Compared | Idiom::RedisPy => true,
            Idiom::Deleted | Idiom::Legacy | Idiom::Bare => false,
        }
    }

    /// The request for the lock, and how long the client has it then.
    pub(super) fn acquire(self, lock: &str, value: &str, ttl: Duration) -> (Vec<String>, Duration) {
        let ms = ttl.as_millis().to_string();
        match self {
            Idiom::Compared | Idiom::RedisPy | Idiom::Deleted => (words(&["SET", lock, value, "NX", "PX", &ms]), ttl),
            Idiom::Legacy | Idiom::Bare => (words(&["SETNX", lock, value]), DEFAULT_TTL),
        }
    }

    /// What sets the TTL behind the acquire, where the acquire does not.
    pub(super) fn sets_ttl(self, lock: &str, ttl: Duration) -> Option<Vec<String>> {
        let ms = ttl.as_millis().to_string();
        (self == Idiom::Legacy).then(|| words(&["PEXPIRE", lock, &ms]))
    }

    pub(super) fn extend(self, lock: &str, value: &str, ttl: Duration) -> Vec<String> {
        let ms = ttl.as_millis().to_string();
        match self.compares() {
            true => words(&["EVAL", COMPARE_AND_EXTEND, "1", lock, value, &ms]),
            false => words(&["PEXPIRE", lock, &ms]),
        }
    }

    pub(super) fn release(self, lock: &str, value: &str) -> Vec<String> {
        match self {
            Idiom::Compared => words(&["EVAL", COMPARE_AND_DELETE, "1", lock, value]),
            Idiom::RedisPy => words(&["EVAL", REDIS_PY_RELEASE, "1", lock, value]),
            Idiom::Deleted | Idiom::Legacy | Idiom::Bare => words(&["DEL", lock]),
        }
    }
}

/// What a reply to any of these says; `None`: nothing, it is an error.
pub(super) fn answer(reply: &Reply) -> Option<Answer> {
    match reply {
        Reply::Status(status) if status == "OK" => Some(Answer::Yes),
        Reply::Integer(1) => Some(Answer::Yes),
        Reply::Integer(0) | Reply::Nil | Reply::Null => Some(Answer::No),
        _ => None,
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

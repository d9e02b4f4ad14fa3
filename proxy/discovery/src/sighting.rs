//! One observation of a key that no namespace covers: a command that may be about a lock, with its reply where that is
//! known.

use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lock::op::{
    AcquireReply, AskedTtl, LockCommand, LockOp, ReleaseSpelling, ScriptedAcquire, ScriptedTake,
};
use lockwarden_lock::script_facts::ScriptFacts;
use lockwarden_lock::time::ProxyTime;
use lockwarden_lock::token::{DISTINCTIVE_BYTES, looks_like_deadline};
use lockwarden_lua::{Act, Reply};
use memchr::memmem;
use smallvec::SmallVec;
use twox_hash::XxHash3_64;

use crate::libraries;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// When its reply came, or the command itself where the reply is unknown: Unix time, ms.
    pub at_ms: u64,
    /// The logical database.
    pub db: u32,
    /// The key as sent.
    pub key: Bytes,
    /// The connection.
    pub session: u64,
    /// The name of the application.
    pub application: Arc<str>,
    /// A hash that identifies its process, where known.
    pub process: Option<u64>,
    /// What was done.
    pub did: Did,
}

/// How an acquire is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spelling {
    /// `SETNX`.
    SetNx,
    /// `SET … NX`.
    SetWithNx,
    /// `MSETNX`, or `MSETEX … NX`.
    MSetNx,
    /// `INCR` of a counter that was not there.
    Incr,
    /// A script that does the same.
    Script,
    /// Redisson's script, which counts in a hash how often its holder took the lock.
    Redisson,
    /// A value stored inside `MULTI`, for a key that was watched and did not exist.
    Watched,
    /// `HSETNX`: each field of the hash is a lock of its own.
    HSetNx,
}

impl Spelling {
    /// The usual spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Spelling::SetNx => "SETNX",
            Spelling::SetWithNx => "SET NX",
            Spelling::MSetNx => "MSETNX",
            Spelling::Incr => "INCR",
            Spelling::Script => "a script",
            Spelling::Redisson => "Redisson",
            Spelling::Watched => "WATCH, MULTI",
            Spelling::HSetNx => "HSETNX",
        }
    }
}

/// What is known of a stored value. The value itself is not kept: it may be an owner token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Equal for equal values.
    pub digest: u64,
    /// Bytes.
    pub length: usize,
    /// It begins like a document (JSON, XML), unlike a name or a number.
    pub is_document: bool,
    /// The value may say who holds a lock, or until when: a distinctive text without blanks, or a deadline. A client
    /// that reads another client's value wants to know what it is.
    pub names_holder: bool,
}

impl Stored {
    /// Describes a value.
    pub fn of(value: &[u8]) -> Stored {
        let is_document = matches!(value.first(), Some(b'{' | b'[' | b'<'));
        let is_name = value.len() >= DISTINCTIVE_BYTES && !is_document && !value.contains(&b' ');
        Stored {
            digest: XxHash3_64::oneshot(value),
            length: value.len(),
            is_document,
            names_holder: is_name || looks_like_deadline(value),
        }
    }
}

/// What a command did to a key. `None` means unknown: the reply was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It stored a value if the key did not exist.
    Acquire {
        /// How it is spelled.
        spelling: Spelling,
        /// What it stored.
        value: Stored,
        /// The TTL it set, ms.
        ttl_ms: Option<u64>,
        /// Whether the key did not exist.
        granted: Option<bool>,
    },
    /// It incremented the key to this number.
    Counted(Option<i64>),
    /// It stored a value unconditionally.
    Store {
        /// What it stored.
        value: Stored,
        /// The TTL, ms.
        ttl_ms: Option<u64>,
        /// It read the old value at the same time (GETSET).
        takes_over: bool,
    },
    /// It gave the key another TTL.
    Extend {
        /// The new TTL, ms; `None` for none.
        ttl_ms: Option<u64>,
        /// Whether the key existed.
        done: Option<bool>,
    },
    /// It deleted the key.
    Release {
        /// Whether it compared the value first.
        compares: Compares,
        /// Whether it deleted the key.
        done: Option<bool>,
    },
    /// It read the value. If there are too many reads, only some of them are reported.
    Read,
    /// Unknown: a script whose text was not seen, or that is no known lock script.
    Unclear,
}

/// What a deletion compares the value with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// Nothing.
    No,
    /// This value, by its digest.
    With(u64),
    /// Something that was not seen.
    Unseen,
    /// The script that deletes the key now had compared the value before.
    Before,
}

impl Compares {
    /// A comparison with this value.
    pub fn with(value: &[u8]) -> Compares {
        Compares::With(XxHash3_64::oneshot(value))
    }
}

/// The keys of a command and what it does to each, as far as that is known before its reply.
pub type Doings = SmallVec<[(Bytes, Did); 1]>;

/// What a command does to its keys; `now_ms` is Unix time.
pub fn doings(command: &LockCommand, now_ms: u64) -> Doings {
    let one = |key: &Bytes, did| SmallVec::from_iter([(key.clone(), did)]);
    let left = |ttl: &AskedTtl| left_ms(*ttl, now_ms);
    match &command.op {
        LockOp::Acquire { target, value, ttl, reply } => {
            let spelling = match reply {
                AcquireReply::Counter => return one(&target.key, Did::Counted(None)),
                AcquireReply::Integer => Spelling::SetNx,
                AcquireReply::OkOrNil | AcquireReply::OldValue => Spelling::SetWithNx,
                AcquireReply::Scripted(_) => Spelling::Script,
            };
            one(&target.key, acquire(spelling, value, left(ttl)))
        }
        LockOp::Take { target, value, ttl, .. } => one(&target.key, acquire(Spelling::Script, value, left(ttl))),
        LockOp::AcquireAll { locks, ttl } => locks
            .iter()
            .map(|(target, value)| (target.key.clone(), acquire(Spelling::MSetNx, value, left(ttl))))
            .collect(),
        LockOp::Store { target, value, ttl, wants_old, .. } => {
            let did = Did::Store { value: Stored::of(value), ttl_ms: left(ttl), takes_over: *wants_old };
            one(&target.key, did)
        }
        LockOp::Extend { target, ttl, .. } if ttl.is_over(ProxyTime(now_ms)) => one(&target.key, release(Compares::No)),
        LockOp::Extend { target, ttl, .. } => {
            let did = Did::Extend { ttl_ms: left(ttl), done: None };
            one(&target.key, did)
        }
        LockOp::Release { target, comparison, .. } => {
            let compares = comparison.as_ref().map_or(Compares::No, |comparison| match comparison.names() {
                Some(token) => Compares::with(token.expose()),
                None => Compares::Unseen,
            });
            one(&target.key, release(compares))
        }
        LockOp::ReleaseMany { locks, .. } => {
            locks.iter().map(|target| (target.key.clone(), release(Compares::No))).collect()
        }
        LockOp::Wrapped { .. } if let Some(doings) = libraries::doings(command) => doings,
        LockOp::Wrapped { locks, script, keys, .. } => match (redisson(&script.text), locks.first()) {
            (Some(step), Some((target, _))) => one(&target.key, step.did(command)),
            _ => by_text(script, command.argv.get(3..).unwrap_or_default(), *keys, now_ms),
        },
    }
}

/// What a script that is no recipe does, derived from its text.
fn by_text(script: &ScriptFacts, words: &[Bytes], keys: usize, now_ms: u64) -> Doings {
    let Some((keys, arguments)) = words.split_at_checked(keys) else {
        return Doings::new();
    };
    let acts = script.analysis.deeds(keys, arguments).into_iter();
    acts.map(|(key, act)| {
        let did = match act {
            Act::Takes(words) => taken_by_text(&words, now_ms),
            Act::GivesBack(claim) => release(claim.map_or(Compares::Unseen, |claim| Compares::with(&claim))),
        };
        (key, did)
    })
    .collect()
}

/// `SET key value NX …` in a script.
fn taken_by_text(words: &[Option<Bytes>], now_ms: u64) -> Did {
    let word = |at: usize| words.get(at).and_then(Option::as_ref);
    let ttl_ms = (3..words.len()).find_map(|at| {
        let option = word(at)?.to_ascii_lowercase();
        let number = std::str::from_utf8(word(at + 1)?).ok()?;
        let number: u64 = number.parse().ok()?;
        match &option[..] {
            b"ex" => Some(number.saturating_mul(1_000)),
            b"px" => Some(number),
            b"exat" => Some(number.saturating_mul(1_000).saturating_sub(now_ms)),
            b"pxat" => Some(number.saturating_sub(now_ms)),
            _ => None,
        }
    });
    acquire(Spelling::Script, word(2).map(|value| &value[..]).unwrap_or_default(), ttl_ms)
}

/// `HSETNX key field value`.
pub fn field_taken(key: &[u8], value: &[u8]) -> Doings {
    let key = Bytes::copy_from_slice(key);
    SmallVec::from_iter([(key, acquire(Spelling::HSetNx, value, None))])
}

/// What a store does inside `MULTI` if the client watches keys: it takes the key if that is free, since otherwise the
/// transaction does nothing.
pub fn watched(mut doings: Doings) -> Doings {
    for (_, did) in &mut doings {
        if let Did::Store { value, ttl_ms, .. } = *did {
            *did = Did::Acquire { spelling: Spelling::Watched, value, ttl_ms, granted: None };
        }
    }
    doings
}

fn acquire(spelling: Spelling, value: &[u8], ttl_ms: Option<u64>) -> Did {
    Did::Acquire { spelling, value: Stored::of(value), ttl_ms, granted: None }
}

fn release(compares: Compares) -> Did {
    Did::Release { compares, done: None }
}

fn left_ms(ttl: AskedTtl, now_ms: u64) -> Option<u64> {
    match ttl {
        AskedTtl::None | AskedTtl::Keep => None,
        AskedTtl::For(ms) | AskedTtl::Further(ms) => u64::try_from(ms).ok(),
        AskedTtl::Until(at) => u64::try_from(at).ok().map(|at| at.saturating_sub(now_ms)),
    }
}

/// Adds what the reply shows; `reply` is a whole frame.
pub fn answered(command: &LockCommand, mut doings: Doings, reply: &[u8]) -> Doings {
    if reply.first() == Some(&b'+') && reply.starts_with(b"+QUEUED") {
        return doings;
    }
    let integer = || -> Option<i64> {
        let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    // A DEL of several keys does not say which of them were there.
    let all = doings.len() as i64;
    let deleted = || match integer() {
        Some(0) => Some(false),
        Some(count) if count == all => Some(true),
        _ => None,
    };
    for (_, did) in &mut doings {
        match did {
            Did::Acquire { granted, .. } => {
                *granted = libraries::is_done(command, reply).unwrap_or_else(|| is_granted(&command.op, reply));
            }
            Did::Counted(to) => *to = integer(),
            Did::Extend { done, .. } => {
                *done = match &command.op {
                    LockOp::Extend { comparison: Some(comparison), .. } => says(&comparison.replies.done, reply),
                    _ => libraries::is_done(command, reply).unwrap_or_else(|| integer().map(|count| count > 0)),
                };
            }
            Did::Release { done, .. } => {
                *done = match &command.op {
                    LockOp::Release { spelling: ReleaseSpelling::GetDel, .. } => Some(!is_nil(reply)),
                    LockOp::Release { comparison: Some(comparison), .. } => says(&comparison.replies.done, reply),
                    LockOp::Wrapped { .. } if let Some(done) = libraries::is_done(command, reply) => done,
                    LockOp::Wrapped { script, .. } if redisson(&script.text).is_some() => match is_nil(reply) {
                        true => Some(false),
                        false => deleted(),
                    },
                    // The script's reply has a meaning of its own.
                    LockOp::Wrapped { .. } => None,
                    _ => deleted(),
                };
            }
            Did::Store { .. } | Did::Read | Did::Unclear => {}
        }
    }
    doings
}

fn is_granted(op: &LockOp, reply: &[u8]) -> Option<bool> {
    if reply.first() == Some(&b'-') {
        return None;
    }
    match op {
        LockOp::Acquire { reply: form, .. } => match form {
            AcquireReply::Integer | AcquireReply::Counter => Some(reply == b":1\r\n"),
            AcquireReply::OkOrNil => Some(!is_nil(reply)),
            AcquireReply::OldValue => Some(is_nil(reply)),
            AcquireReply::Scripted(script) => {
                let ScriptedAcquire { replies, .. } = &**script;
                says(&replies.granted, reply)
            }
        },
        LockOp::Take { script, .. } => {
            let ScriptedTake { replies, .. } = &**script;
            says(&replies.granted, reply)
        }
        LockOp::AcquireAll { .. } => Some(reply == b":1\r\n"),
        LockOp::Wrapped { script, .. } if redisson(&script.text).is_some() => Some(is_nil(reply)),
        // Many scripts reply like SET, others in their own way.
        LockOp::Wrapped { .. } if is_nil(reply) => Some(false),
        LockOp::Wrapped { .. } if reply == b"+OK\r\n" => Some(true),
        LockOp::Wrapped { .. } => None,
        LockOp::Store { .. } | LockOp::Extend { .. } | LockOp::Release { .. } | LockOp::ReleaseMany { .. } => None,
    }
}

fn is_nil(reply: &[u8]) -> bool {
    reply.starts_with(b"$-1") || reply.starts_with(b"*-1") || reply.starts_with(b"_")
}

/// Whether a script's reply is the expected one; `None` where that depends on the stored value.
fn says(expected: &Reply, reply: &[u8]) -> Option<bool> {
    let is_line = |mark: u8, text: &[u8]| {
        let body = reply.strip_prefix(&[mark]);
        body.and_then(|body| body.strip_suffix(b"\r\n")) == Some(text)
    };
    match expected {
        Reply::Integer(number) => Some(is_line(b':', number.to_string().as_bytes())),
        Reply::Nil => Some(is_nil(reply)),
        Reply::Bulk(text) => Some(lockwarden_resp::bulk_text(reply) == Some(text)),
        Reply::Status(text) => Some(is_line(b'+', text)),
        Reply::Error(text) => Some(is_line(b'-', text)),
        Reply::CommandResult => Some(reply == b":1\r\n"),
        Reply::Stored | Reply::Left(_) => None,
    }
}

/// A step of Redisson's locks, which no recipe describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedissonStep {
    Lock,
    Unlock,
    Renew,
}

/// Recognises a step by commands that only its text combines.
fn redisson(text: &[u8]) -> Option<RedissonStep> {
    let has = |word: &str| memmem::find(text, word.as_bytes()).is_some();
    match (has("hincrby"), has("pexpire")) {
        (true, true) if has("publish") || has("'del'") => Some(RedissonStep::Unlock),
        (true, true) => Some(RedissonStep::Lock),
        (false, true) if has("hexists") && !has("'del'") => Some(RedissonStep::Renew),
        _ => None,
    }
}

impl RedissonStep {
    fn did(self, command: &LockCommand) -> Did {
        // The first argument is the TTL in milliseconds, the second the holder; the unlock script has one more before
        // them.
        let LockOp::Wrapped { keys, .. } = &command.op else {
            return Did::Read;
        };
        let argument = |at: usize| command.argv.get(3 + keys + at).map(|word| &word[..]);
        let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
        match self {
            RedissonStep::Lock => Did::Acquire {
                spelling: Spelling::Redisson,
                value: Stored::of(argument(1).unwrap_or_default()),
                ttl_ms: argument(0).and_then(number),
                granted: None,
            },
            RedissonStep::Renew => Did::Extend { ttl_ms: argument(0).and_then(number), done: None },
            RedissonStep::Unlock => release(Compares::Unseen),
        }
    }
}

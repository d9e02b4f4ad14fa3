//! Application scripts that release or extend a lock, recognised by what they mean rather than by
//! how they are spelled: a small part of Lua is read and followed once for each state the lock can
//! be in. Nothing here runs a script or guesses; a text that is not understood to the last token is
//! no recipe. Read `lexer` and `syntax` for the part of Lua, `meaning` and `value` for how a
//! text is followed, and `facts` for what is remembered about a text.

mod facts;
mod lexer;
mod literals;
mod meaning;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

pub use facts::{ScriptFacts, ScriptSha, Wrapped};
pub use literals::NamedKey;

use bytes::Bytes;

use meaning::{Effect, Scenario};

/// Longest text looked at, in bytes. The longest lock script of a library known to us has 3 KiB.
pub const MAX_TEXT_LEN: usize = 64 * 1024;

/// What Lua's `tostring` makes of the `false` that GET answers for an absent key.
const ABSENT_AS_TEXT: &[u8] = b"false";

/// Largest TTL whose value no spelling changes: Lua holds numbers as doubles, exact up to 2^53.
const MAX_EXACT: i64 = 1 << 53;

/// What a recognised script does to one lock key, and nothing else.
///
/// A recipe speaks of a lock key that holds a string or nothing. On any other type Redis answers
/// the script's GET with WRONGTYPE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Deletes the key if its value equals an argument.
    CompareAndDelete {
        /// Index of the lock key in KEYS, from 0.
        key: usize,
        /// Index of the owner token in ARGV, from 0.
        token: usize,
        /// What the owner token is compared with.
        compared: Compared,
        /// The command that deletes.
        command: DeleteCommand,
        /// What the script answers.
        replies: Replies,
    },
    /// Gives the key a new TTL if its value equals an argument.
    CompareAndExpire {
        /// Index of the lock key in KEYS, from 0.
        key: usize,
        /// Index of the owner token in ARGV, from 0.
        token: usize,
        /// What the owner token is compared with.
        compared: Compared,
        /// Where the new TTL comes from.
        ttl: TtlSource,
        /// The unit of the new TTL.
        unit: TtlUnit,
        /// What the script answers.
        replies: Replies,
    },
}

/// What a script compares the owner token with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// GET's answer as it is. For an absent key that is `false`, which equals no argument.
    Answer,
    /// What `tostring` makes of GET's answer. For an absent key that is the text "false", which a
    /// client may have chosen as its owner token.
    AnswerAsText,
}

/// The command that a releasing script deletes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteCommand {
    /// `DEL`.
    Del,
    /// `UNLINK`.
    Unlink,
}

/// Where an extending script finds its TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlSource {
    /// The argument with this index in ARGV, from 0, as it is or through Lua's `tonumber`.
    Argument(usize),
    /// A number in the text.
    Literal(i64),
}

/// The unit of a TTL: that of the command that sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlUnit {
    /// `EXPIRE`.
    Seconds,
    /// `PEXPIRE`.
    Milliseconds,
}

/// What a script answers in each state of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replies {
    /// The value was equal and the command was done.
    pub done: Reply,
    /// The key holds another value.
    pub different: Reply,
    /// There is no such key.
    pub absent: Reply,
}

/// One answer of a script, as the client sees it on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An integer; Lua's `true` is 1.
    Integer(i64),
    /// Nil: Lua's `nil` or `false`, or no `return` at all.
    Nil,
    /// A bulk string.
    Bulk(Bytes),
    /// A simple string, without its `+`.
    Status(Bytes),
    /// An error as Redis 7 words it, without its `-`.
    Error(Bytes),
    /// The integer that DEL, UNLINK, EXPIRE or PEXPIRE returned. Only in [`Replies::done`].
    CommandResult,
    /// The value that the script read from the key, as a bulk string. Never in
    /// [`Replies::absent`].
    Stored,
}

impl Recipe {
    /// Index of the lock key in KEYS, from 0.
    pub fn key(&self) -> usize {
        match self {
            Recipe::CompareAndDelete { key, .. } | Recipe::CompareAndExpire { key, .. } => *key,
        }
    }

    /// Index of the owner token in ARGV, from 0.
    pub fn token(&self) -> usize {
        match self {
            Recipe::CompareAndDelete { token, .. } | Recipe::CompareAndExpire { token, .. } => {
                *token
            }
        }
    }

    fn compared(&self) -> Compared {
        match self {
            Recipe::CompareAndDelete { compared, .. }
            | Recipe::CompareAndExpire { compared, .. } => *compared,
        }
    }

    /// What the script answers.
    pub fn replies(&self) -> &Replies {
        match self {
            Recipe::CompareAndDelete { replies, .. } | Recipe::CompareAndExpire { replies, .. } => {
                replies
            }
        }
    }

    /// Whether the recipe tells the truth about a call with so many keys and these arguments. A
    /// call for which this is false is to be treated like one of an unknown script: a missing
    /// argument is `nil` in Lua and compares otherwise, a TTL that is not written canonically
    /// means different things to Redis and to `tonumber`, and the owner token "false" equals an
    /// absent key's value in a script that compares with `tostring`.
    pub fn fits<A: AsRef<[u8]>>(&self, keys: usize, arguments: &[A]) -> bool {
        let Some(token) = arguments.get(self.token()) else {
            return false;
        };
        let tells_absent_apart = match self.compared() {
            Compared::Answer => true,
            Compared::AnswerAsText => token.as_ref() != ABSENT_AS_TEXT,
        };
        let has_ttl = match self {
            Recipe::CompareAndDelete { .. } => true,
            Recipe::CompareAndExpire { ttl, .. } => ttl.value(arguments).is_some(),
        };
        self.key() < keys && tells_absent_apart && has_ttl
    }
}

impl TtlSource {
    /// The TTL of a call with these arguments, in the unit of the recipe. It may be zero or
    /// negative, which deletes the key. `None` if it is not an integer as Redis reads one, or is
    /// beyond ±2^53, where `tonumber` would change it.
    pub fn value<A: AsRef<[u8]>>(self, arguments: &[A]) -> Option<i64> {
        match self {
            TtlSource::Argument(index) => canonical_integer(arguments.get(index)?.as_ref()),
            TtlSource::Literal(value) => Some(value),
        }
    }
}

/// The meaning of a script, if it is understood completely and is one of the recipes.
///
/// Bounded by the length of the text: time is linear in it, nesting is limited, and a text over
/// [`MAX_TEXT_LEN`] is not looked at.
pub fn recognise(text: &[u8]) -> Option<Recipe> {
    if text.len() > MAX_TEXT_LEN {
        return None;
    }
    let script = syntax::parse(lexer::tokens(text)?)?;
    let equal = meaning::follow(&script, Scenario::Equal)?;
    let different = meaning::follow(&script, Scenario::Different)?;
    let absent = meaning::follow(&script, Scenario::Absent)?;

    let (key, token, effect) = (equal.key?, equal.token?, equal.effect?);
    for other in [&different, &absent] {
        let same_key = other.key == Some(key);
        let same_token = other.token.is_none_or(|compared| compared == token);
        if other.effect.is_some() || !same_key || !same_token {
            return None;
        }
    }

    let compared = absent.compared;
    let replies = Replies {
        done: equal.reply,
        different: different.reply,
        absent: absent.reply,
    };
    Some(match effect {
        Effect::Delete(command) => Recipe::CompareAndDelete {
            key,
            token,
            compared,
            command,
            replies,
        },
        Effect::Expire(unit, ttl) => Recipe::CompareAndExpire {
            key,
            token,
            compared,
            ttl,
            unit,
            replies,
        },
    })
}

/// An integer in the only spelling that Redis's strict reading and Lua's `tonumber` agree on.
fn canonical_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical {
        return None;
    }
    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (-MAX_EXACT..=MAX_EXACT).contains(&value).then_some(value)
}

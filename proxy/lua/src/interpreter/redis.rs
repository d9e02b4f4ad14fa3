//! What Redis replies to the commands of a lock script in each state of the lock, what they change, and what reply it
//! makes of the value that the script returns. Commands that only read may name any key. One that writes may name only
//! the lock, and only once; nothing is read after the change, because the lock is no longer in the state that is
//! followed.

use bytes::Bytes;

use super::{Run, Stop};
use crate::recipe::{DeleteCommand, Reply, TtlUnit};
use crate::trace::{Claim, Effect, End, State};
use crate::value::{MAX_EXACT, Value, canonical_integer};

/// Commands that read one key and change nothing; `on_the_lock` and `elsewhere` have more of them.
const READS: [&[u8]; 19] = [
    b"hmget",
    b"hgetall",
    b"hkeys",
    b"hlen",
    b"hvals",
    b"lindex",
    b"llen",
    b"lrange",
    b"mget",
    b"scard",
    b"smembers",
    b"strlen",
    b"zcard",
    b"zcount",
    b"zrange",
    b"zrangebyscore",
    b"zrank",
    b"zrevrange",
    b"zrevrank",
];

/// Commands that look for one member of a collection, and their reply if there is none.
const MEMBERSHIPS: [(&[u8], Value); 4] = [
    (b"hexists", Value::Number(0)),
    (b"hget", Value::Bool(false)),
    (b"sismember", Value::Number(0)),
    (b"zscore", Value::Bool(false)),
];

type Answer = Result<Value, Stop>;

impl Run<'_> {
    /// One Redis command.
    pub(super) fn command(&mut self, name: &[u8], arguments: &[Value]) -> Answer {
        let name = name.to_ascii_lowercase();
        if self.call.any {
            return match (&name[..], arguments) {
                (b"get" | b"del" | b"unlink", [Value::Lock]) => self.on_the_lock(&name, &[]),
                _ => Err(Stop::NotUnderstood),
            };
        }
        let Some((key, rest)) = arguments.split_first() else {
            let clock = name == b"time";
            return clock.then_some(Value::Unknown).ok_or(Stop::NotUnderstood);
        };
        let key = match key {
            Value::Unknown => None,
            key => Some(key.word().ok_or(Stop::NotUnderstood)?),
        };
        let foreign = self.state == State::Foreign;
        match key {
            Some(key) if key == self.call.lock => self.on_the_lock(&name, rest),
            Some(key) if foreign && (self.call.is_lock)(&key) => self.on_the_lock(&name, rest),
            Some(_) if foreign => self.elsewhere_nothing(&name, rest),
            Some(_) | None => self.elsewhere(&name),
        }
    }

    fn on_the_lock(&mut self, name: &[u8], rest: &[Value]) -> Answer {
        if self.effect.is_some() {
            return self.after_the_change(name, rest);
        }
        match (name, rest) {
            (b"get", []) => self.read(Value::Bool(false), Value::Stored),
            (b"getrange" | b"substr", [Value::Number(0), Value::Number(end @ 0..)]) => {
                let length = usize::try_from(end + 1).map_err(|_| Stop::NotUnderstood)?;
                self.read(Value::Text(Bytes::new()), Value::StoredPrefix(length))
            }
            (b"exists", []) => Ok(Value::Number(i64::from(self.state != State::Absent))),
            (b"ttl", []) => Ok(self.left(TtlUnit::Seconds)),
            (b"pttl", []) => Ok(self.left(TtlUnit::Milliseconds)),
            (b"type", []) => Ok(match self.state {
                State::Absent => Value::Status(Bytes::from_static(b"none")),
                State::Held { .. } => Value::Status(Bytes::from_static(b"string")),
                State::OtherType | State::Foreign => Value::Unknown,
            }),
            (b"del", []) => self.change(Effect::Delete(DeleteCommand::Del)),
            (b"unlink", []) => self.change(Effect::Delete(DeleteCommand::Unlink)),
            (b"expire", [ttl]) => self.expire(TtlUnit::Seconds, ttl),
            (b"pexpire", [ttl]) => self.expire(TtlUnit::Milliseconds, ttl),
            (b"persist", []) => match self.has_ttl() {
                Some(false) => Ok(Value::Number(0)),
                Some(true) | None => self.change(Effect::Persist),
            },
            (b"setnx", [value]) => self.set_if_free(value, None, Value::Done, Value::Number(0)),
            (b"set", [value, options @ ..]) => self.set(value, options),
            (b"setex", [ttl, value]) => {
                let ttl = milliseconds(TtlUnit::Seconds, ttl)?;
                self.put(value, Some(ttl))
            }
            (b"psetex", [ttl, value]) => {
                let ttl = milliseconds(TtlUnit::Milliseconds, ttl)?;
                self.put(value, Some(ttl))
            }
            (name, rest) => self.collection(name, rest),
        }
    }

    /// The reply of a command that reads a string.
    fn read(&self, absent: Value, held: Value) -> Answer {
        match self.state {
            State::Absent => Ok(absent),
            State::Held { .. } | State::Foreign => Ok(held),
            State::OtherType => Err(Stop::WrongType),
        }
    }

    fn left(&self, unit: TtlUnit) -> Value {
        match self.state {
            State::Absent => Value::Number(-2),
            State::Held { .. } | State::Foreign | State::OtherType => Value::Left(unit),
        }
    }

    /// A read whose reply is not known, and which Redis may refuse because of the key's type.
    fn unknown(&mut self) -> Answer {
        self.uncertain = true;
        Ok(Value::Unknown)
    }

    /// A command on another key than the lock, or on a key that is not known. It may only read.
    fn elsewhere(&mut self, name: &[u8]) -> Answer {
        let reads = READS.contains(&name)
            || MEMBERSHIPS.iter().any(|(command, _)| *command == name)
            || matches!(name, b"get" | b"getrange" | b"exists" | b"ttl" | b"pttl" | b"type");
        if !reads {
            return Err(Stop::NotUnderstood);
        }
        self.unknown()
    }

    /// The same on a key that counts as absent.
    fn elsewhere_nothing(&mut self, name: &[u8], rest: &[Value]) -> Answer {
        if let Some((_, no)) = MEMBERSHIPS.iter().find(|(command, _)| *command == name) {
            return Ok(no.clone());
        }
        match (name, rest) {
            (b"get", []) => Ok(Value::Bool(false)),
            (b"exists", []) => Ok(Value::Number(0)),
            (b"ttl" | b"pttl", []) => Ok(Value::Number(-2)),
            _ => self.elsewhere(name),
        }
    }

    /// A change that returns 1 if there is a key and 0 if there is none.
    fn change(&mut self, effect: Effect) -> Answer {
        match self.state {
            State::Absent => Ok(Value::Number(0)),
            State::Held { .. } | State::OtherType => {
                self.effect = Some(effect);
                Ok(Value::Done)
            }
            State::Foreign => Err(Stop::NotUnderstood),
        }
    }

    fn expire(&mut self, unit: TtlUnit, ttl: &Value) -> Answer {
        let effect = match (unit, ttl) {
            (TtlUnit::Milliseconds, Value::LeftAnd(more)) => Effect::Prolong(*more),
            (unit, ttl) => Effect::Expire(unit, time(ttl)?),
        };
        self.change(effect)
    }

    fn set(&mut self, value: &Value, options: &[Value]) -> Answer {
        let (mut if_free, mut if_there, mut ttl) = (false, false, None);
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let option = option.word().ok_or(Stop::NotUnderstood)?;
            let unit = match option.to_ascii_lowercase().as_slice() {
                b"nx" => {
                    if_free = true;
                    continue;
                }
                b"xx" => {
                    if_there = true;
                    continue;
                }
                b"ex" => TtlUnit::Seconds,
                b"px" => TtlUnit::Milliseconds,
                _ => return Err(Stop::NotUnderstood),
            };
            let number = options.next().ok_or(Stop::NotUnderstood)?;
            // Redis refuses a second TTL.
            if ttl.replace(milliseconds(unit, number)?).is_some() {
                return Err(Stop::NotUnderstood);
            }
        }
        match (if_free, if_there) {
            (true, true) => Err(Stop::NotUnderstood),
            (true, false) => {
                let ok = Value::Status(Bytes::from_static(b"OK"));
                self.set_if_free(value, ttl, ok, Value::Bool(false))
            }
            (false, true) if self.state == State::Absent => Ok(Value::Bool(false)),
            (false, _) => self.put(value, ttl),
        }
    }

    fn set_if_free(&mut self, value: &Value, ttl: Option<i64>, yes: Value, no: Value) -> Answer {
        if self.state != State::Absent {
            return Ok(no);
        }
        self.put(value, ttl)?;
        Ok(match yes {
            Value::Done => Value::Number(1),
            other => other,
        })
    }

    fn put(&mut self, value: &Value, ttl: Option<i64>) -> Answer {
        if self.state == State::Foreign {
            return Err(Stop::NotUnderstood);
        }
        let value = value.word().ok_or(Stop::NotUnderstood)?;
        self.effect = Some(Effect::Put(value, ttl));
        Ok(Value::Status(Bytes::from_static(b"OK")))
    }

    /// EXPIRE after a SETNX is part of the same change. No other change has two parts.
    fn after_the_change(&mut self, name: &[u8], rest: &[Value]) -> Answer {
        let unit = match name {
            b"expire" => TtlUnit::Seconds,
            b"pexpire" => TtlUnit::Milliseconds,
            _ => return Err(Stop::NotUnderstood),
        };
        match (&mut self.effect, rest) {
            (Some(Effect::Put(_, none @ None)), [ttl]) => {
                *none = Some(milliseconds(unit, ttl)?);
                Ok(Value::Number(1))
            }
            _ => Err(Stop::NotUnderstood),
        }
    }

    /// Commands for other types than strings.
    fn collection(&mut self, name: &[u8], rest: &[Value]) -> Answer {
        let membership = MEMBERSHIPS.iter().find(|(command, _)| *command == name);
        let Some((_, no)) = membership else {
            return self.elsewhere(name);
        };
        match self.state {
            State::Absent => Ok(no.clone()),
            State::Held { .. } => Err(Stop::WrongType),
            State::OtherType => self.unknown(),
            State::Foreign => {
                // The caller's own name is no member of a lock that another client holds. Of other members
                // nothing is known.
                let own = matches!(rest, [Value::Text(member)] if self.call.arguments.contains(member));
                Ok(if own { no.clone() } else { Value::Unknown })
            }
        }
    }

    /// How the run ends if the script returns this value.
    pub(super) fn end(&self, value: Value) -> End {
        let reply = match value {
            Value::Nil | Value::Bool(false) => Reply::Nil,
            Value::Bool(true) => Reply::Integer(1),
            Value::Number(value) => Reply::Integer(value),
            Value::Text(text) => Reply::Bulk(text),
            Value::Stored => match (self.state, &self.claim) {
                (State::Held { own: true, .. }, Some(Claim::Whole(text))) => Reply::Bulk(text.clone()),
                (State::Held { own: false, .. }, _) | (State::Held { .. }, None) => Reply::Stored,
                _ => return End::Unknown,
            },
            Value::Left(unit) => Reply::Left(unit),
            Value::Done => Reply::CommandResult,
            Value::Status(text) => Reply::Status(text),
            Value::Error(text) => Reply::Error(text),
            Value::Caught => return End::WrongType,
            Value::StoredPrefix(_) | Value::LeftAnd(_) | Value::Unknown => return End::Unknown,
            Value::Lock | Value::Argument(_) => return End::Unknown,
            Value::Keys | Value::Arguments | Value::Redis | Value::String => return End::Unknown,
            Value::Function(_) => return End::Unknown,
        };
        End::Replied(reply)
    }
}

/// The TTL of an EXPIRE, which Redis reads strictly.
fn time(value: &Value) -> Result<i64, Stop> {
    let text = value.word().ok_or(Stop::NotUnderstood)?;
    canonical_integer(&text).ok_or(Stop::NotUnderstood)
}

/// A TTL that a new value can have: above zero, in milliseconds.
fn milliseconds(unit: TtlUnit, value: &Value) -> Result<i64, Stop> {
    let time = time(value)?;
    let time = match unit {
        TtlUnit::Seconds => time.checked_mul(1000),
        TtlUnit::Milliseconds => Some(time),
    };
    time.filter(|ms| (1..=MAX_EXACT).contains(ms)).ok_or(Stop::NotUnderstood)
}

//! Scripts with a known meaning, as operations on a lock. A script counts only if exactly one lock is among its keys,
//! and only for the keys and arguments of this call.

use bytes::Bytes;
use lockwarden_lua::{Analysis, DeleteCommand, Extension, Meaning, Recipe, Replies, TtlUnit};

use crate::op::{
    AcquireReply, Arguments, AskedTtl, ComparedBy, Comparison, ExpireCondition, ExtendSpelling, LockOp,
    ReleaseSpelling, ScriptedAcquire, ScriptedTake, Target, Test,
};
use crate::table::parse_integer;
use crate::token::OwnerToken;

use super::MAX_VALUE_BYTES;

/// The longest TTL of a recipe, in milliseconds, 250 years: its end still fits into a record's digits.
const MAX_RECIPE_TTL_MS: i64 = 8_000_000_000_000;

/// What a call of a script does.
pub(super) enum Script {
    /// This operation.
    Operation(LockOp),
    /// It changes nothing.
    Reads,
    /// Unknown.
    Unknown,
}

/// Reads `EVAL text numkeys key … arg …`, a call that names this one lock.
pub(super) fn read(script: &Analysis, argv: &Arguments, target: &Target) -> Script {
    let Some((keys, arguments)) = keys_and_arguments(argv) else {
        return Script::Unknown;
    };
    match script.meaning(keys, arguments, &target.key) {
        Meaning::Reads => Script::Reads,
        Meaning::Unknown => Script::Unknown,
        Meaning::Recipe(recipe) => match operation(recipe, target) {
            Some(op) if !is_too_long(&op) => Script::Operation(op),
            Some(_) | None => Script::Unknown,
        },
    }
}

fn is_too_long(op: &LockOp) -> bool {
    match op.asked_ttl() {
        AskedTtl::For(ms) | AskedTtl::Further(ms) => ms > MAX_RECIPE_TTL_MS,
        AskedTtl::None | AskedTtl::Until(_) | AskedTtl::Keep => false,
    }
}

fn keys_and_arguments(argv: &Arguments) -> Option<(&[Bytes], &[Bytes])> {
    let count = usize::try_from(parse_integer(argv.get(2)?).ok()?).ok()?;
    argv.get(3..)?.split_at_checked(count)
}

fn operation(recipe: Recipe, target: &Target) -> Option<LockOp> {
    let target = target.clone();
    match recipe {
        Recipe::CompareAndDelete { token, command, replies } => {
            let (name, spelling) = match command {
                DeleteCommand::Del => ("DEL", ReleaseSpelling::Del),
                DeleteCommand::Unlink => ("UNLINK", ReleaseSpelling::Unlink),
            };
            let then = words(name, &target.key, []);
            Some(LockOp::Release { target, spelling, comparison: Some(comparison(token, replies, then)?) })
        }
        Recipe::CompareAndExtend { token, extension, replies } => extend(target, token, extension, replies),
        Recipe::Acquire { value, ttl_ms, replies } => {
            let mut then = words("SET", &target.key, [value.clone(), word_of("NX")]);
            if let Some(ms) = ttl_ms {
                then.extend([word_of("PX"), number(ms)]);
            }
            (value.len() <= MAX_VALUE_BYTES).then(|| LockOp::Acquire {
                target,
                value,
                ttl: ttl_ms.map_or(AskedTtl::None, AskedTtl::For),
                reply: AcquireReply::Scripted(Box::new(ScriptedAcquire { replies, then })),
            })
        }
        Recipe::AcquireOrExtend { value, owner, ttl_ms, by_expire, replies } => {
            (value.len() <= MAX_VALUE_BYTES).then(|| LockOp::Take {
                target,
                value,
                ttl: AskedTtl::For(ttl_ms),
                script: Box::new(ScriptedTake { owner, by_expire, replies }),
            })
        }
    }
}

fn extend(target: Target, token: Bytes, extension: Extension, replies: Replies) -> Option<LockOp> {
    let condition = match replies.no_ttl {
        Some(_) => ExpireCondition::Xx,
        None => ExpireCondition::Always,
    };
    let key = &target.key;
    let (ttl, then) = match extension {
        Extension::Expire(TtlUnit::Seconds, seconds) => {
            (AskedTtl::For(seconds.checked_mul(1000)?), words("EXPIRE", key, [number(seconds)]))
        }
        Extension::Expire(TtlUnit::Milliseconds, ms) => (AskedTtl::For(ms), words("PEXPIRE", key, [number(ms)])),
        Extension::Prolong(ms) => (AskedTtl::Further(ms), words("PEXPIRE", key, [number(ms)])),
        Extension::Persist => (AskedTtl::None, words("PERSIST", key, [])),
        Extension::Store(ms) => (AskedTtl::For(ms), words("SET", key, [token.clone(), word_of("PX"), number(ms)])),
    };
    Some(LockOp::Extend {
        target,
        ttl,
        condition,
        spelling: ExtendSpelling::Expire,
        comparison: Some(comparison(token, replies, then)?),
    })
}

fn comparison(token: Bytes, replies: Replies, then: Arguments) -> Option<Box<Comparison>> {
    let is_short = token.len() <= MAX_VALUE_BYTES;
    let claim = OwnerToken::new(token);
    is_short.then(|| Box::new(Comparison { claim, test: Test::Equal, by: ComparedBy::Script, replies, then }))
}

/// A command about the lock.
fn words<const N: usize>(name: &'static str, key: &Bytes, more: [Bytes; N]) -> Arguments {
    let front = [word_of(name), key.clone()];
    front.into_iter().chain(more).collect()
}

fn word_of(word: &'static str) -> Bytes {
    Bytes::from_static(word.as_bytes())
}

fn number(number: i64) -> Bytes {
    Bytes::from(number.to_string())
}

//! Scripts whose meaning is known, as operations on a lock. A script counts only if its recipe
//! speaks of the one lock key among its keys and fits the arguments of this call.

use bytes::Bytes;

use crate::op::{
    Arguments, AskedTtl, ComparedBy, Comparison, ExpireCondition, ExtendSpelling, LockOp,
    ReleaseSpelling, Target, Test,
};
use crate::recipe::{DeleteCommand, Recipe, ScriptFacts, TtlUnit};
use crate::table::parse_integer;
use crate::token::OwnerToken;

use super::LONGEST_VALUE;

/// Reads `EVAL text numkeys key … arg …`; `None` if the script is not a recipe for this call.
pub(super) fn read(
    facts: &ScriptFacts,
    argv: &Arguments,
    target: &Target,
    is_lock: &dyn Fn(&[u8]) -> bool,
) -> Option<LockOp> {
    let recipe = facts.recipe.as_ref()?;
    let count = usize::try_from(parse_integer(argv.get(2)?).ok()?).ok()?;
    let keys = argv.get(3..3 + count)?;
    let arguments = &argv[3 + count..];
    let other_locks = keys
        .iter()
        .enumerate()
        .any(|(index, key)| index != recipe.key() && is_lock(key));
    if other_locks || !recipe.fits(count, arguments) || keys[recipe.key()] != target.key {
        return None;
    }
    let claim = &arguments[recipe.token()];
    if claim.len() > LONGEST_VALUE {
        return None;
    }
    let comparison = |then: [Bytes; 3], words: usize| Comparison {
        claim: OwnerToken::new(claim.clone()),
        test: Test::Equal,
        by: ComparedBy::Script,
        replies: recipe.replies().clone(),
        then: then.into_iter().take(words).collect(),
    };
    match recipe {
        Recipe::CompareAndDelete { command, .. } => {
            let (word, spelling) = match command {
                DeleteCommand::Del => ("DEL", ReleaseSpelling::Del),
                DeleteCommand::Unlink => ("UNLINK", ReleaseSpelling::Unlink),
            };
            let then = [
                Bytes::from_static(word.as_bytes()),
                target.key.clone(),
                Bytes::new(),
            ];
            Some(LockOp::Release {
                target: target.clone(),
                spelling,
                comparison: Some(comparison(then, 2)),
            })
        }
        Recipe::CompareAndExpire { ttl, unit, .. } => {
            let value = ttl.value(arguments)?;
            let (word, ms) = match unit {
                TtlUnit::Seconds => ("EXPIRE", value.checked_mul(1000)?),
                TtlUnit::Milliseconds => ("PEXPIRE", value),
            };
            let text = Bytes::from(value.to_string());
            let then = [
                Bytes::from_static(word.as_bytes()),
                target.key.clone(),
                text,
            ];
            Some(LockOp::Extend {
                target: target.clone(),
                ttl: AskedTtl::For(ms),
                condition: ExpireCondition::Always,
                spelling: ExtendSpelling::Expire,
                comparison: Some(comparison(then, 3)),
            })
        }
    }
}

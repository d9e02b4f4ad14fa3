//! The commands that compare the stored value before they act: DELEX and `SET … IFEQ` of Redis 8.4, DELIFEQ of Valkey
//! 9, CAS and CAD of Tair. On a lock they work with any server, so each is translated into commands that every server
//! has.

use bytes::Bytes;
use lockwarden_lua::{Replies, Reply};
use smallvec::smallvec;

use super::{ArgumentError, TtlOption, TtlWord};
use crate::op::{Arguments, ComparedBy, Comparison, LockOp, ReleaseSpelling, Target, Test};
use crate::token::{OwnerToken, ValueDigest};

/// The replies of `SET … IFEQ`. With GET the value replaces all three.
pub(super) const SET: Replies =
    Replies { done: Reply::CommandResult, different: Reply::Nil, absent: Reply::Nil, no_ttl: None, other_type: None };

/// The replies of CAS.
const CAS: Replies = Replies {
    done: Reply::Integer(1),
    different: Reply::Integer(0),
    absent: Reply::Integer(-1),
    no_ttl: None,
    other_type: None,
};

#[derive(Clone, Copy)]
pub(super) enum ConditionWord {
    Equal,
    Differs,
    Digest,
    OtherDigest,
}

impl ConditionWord {
    /// `word` is in upper case.
    pub(super) fn of(word: &[u8]) -> Option<ConditionWord> {
        Some(match word {
            b"IFEQ" => ConditionWord::Equal,
            b"IFNE" => ConditionWord::Differs,
            b"IFDEQ" => ConditionWord::Digest,
            b"IFDNE" => ConditionWord::OtherDigest,
            _ => return None,
        })
    }

    /// When the command acts, and the value that it names; a digest names none.
    fn test(self, operand: &Bytes) -> Result<(Test, OwnerToken), ArgumentError> {
        let digest = || ValueDigest::parse(operand).ok_or(ArgumentError::NotADigest);
        let nothing = OwnerToken::new(Bytes::new());
        let claim = OwnerToken::new(operand.clone());
        Ok(match self {
            ConditionWord::Equal => (Test::Equal, claim),
            ConditionWord::Differs => (Test::Differs, claim),
            ConditionWord::Digest => (Test::Digest(digest()?), nothing),
            ConditionWord::OtherDigest => {
                digest()?;
                (Test::OtherDigest, nothing)
            }
        })
    }
}

/// The comparison of a command that stores a value.
pub(super) fn stores(
    word: ConditionWord,
    operand: &Bytes,
    replies: Replies,
    then: Arguments,
) -> Result<Box<Comparison>, ArgumentError> {
    let (test, claim) = word.test(operand)?;
    Ok(Box::new(Comparison { claim, test, by: ComparedBy::Command, replies, then }))
}

/// The SET that is run once the comparison holds.
pub(super) fn plain_set(target: &Target, value: &Bytes, get: bool, ttl: Option<(TtlWord, &Bytes)>) -> Arguments {
    let mut words: Arguments = smallvec![Bytes::from_static(b"SET"), target.key.clone(), value.clone()];
    if get {
        words.push(Bytes::from_static(b"GET"));
    }
    if let Some((word, number)) = ttl {
        words.push(Bytes::from_static(word.text().as_bytes()));
        if word != TtlWord::Keep {
            words.push(number.clone());
        }
    }
    words
}

/// `DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]`.
pub(super) fn delex(argv: &Arguments, target: Target) -> Result<LockOp, ArgumentError> {
    let comparison = match argv.len() {
        2 => None,
        4 => {
            let word = ConditionWord::of(&argv[2].to_ascii_uppercase()).ok_or(ArgumentError::UnknownCondition)?;
            let (test, claim) = word.test(&argv[3])?;
            Some(deletes(&target, claim, test, ComparedBy::DelEx, 0))
        }
        _ => return Err(ArgumentError::Arity("delex")),
    };
    Ok(LockOp::Release { target, spelling: ReleaseSpelling::Del, comparison })
}

/// `DELIFEQ key value` and `CAD key value`, which differ in their reply if there is no key.
pub(super) fn delete_if_equal(argv: &Arguments, target: Target, absent: i64) -> LockOp {
    let claim = OwnerToken::new(argv[2].clone());
    let comparison = deletes(&target, claim, Test::Equal, ComparedBy::Command, absent);
    LockOp::Release { target, spelling: ReleaseSpelling::Del, comparison: Some(comparison) }
}

fn deletes(target: &Target, claim: OwnerToken, test: Test, by: ComparedBy, absent: i64) -> Box<Comparison> {
    Box::new(Comparison {
        claim,
        test,
        by,
        replies: Replies {
            done: Reply::CommandResult,
            different: Reply::Integer(0),
            absent: Reply::Integer(absent),
            no_ttl: None,
            other_type: None,
        },
        then: smallvec![Bytes::from_static(b"DEL"), target.key.clone()],
    })
}

/// `CAS key old new [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`. Tair accepts one TTL and reports any error in it as a
/// syntax error. Here an invalid number is named, because clients take a syntax error for a server without the command.
pub(super) fn cas(argv: &Arguments, target: Target) -> Result<LockOp, ArgumentError> {
    let mut options = argv[4..].iter();
    let mut ttl = TtlOption::default();
    if let Some(option) = options.next() {
        ttl.takes(option, &mut options)?;
    }
    if options.next().is_some() || matches!(ttl.0, Some((TtlWord::Persist, _))) {
        return Err(ArgumentError::Syntax);
    }
    let asked = ttl.read("cas")?;
    let value = argv[3].clone();
    let then = plain_set(&target, &value, false, ttl.0);
    let comparison = stores(ConditionWord::Equal, &argv[2], CAS, then)?;
    Ok(LockOp::Store {
        target,
        value,
        ttl: asked,
        only_if_exists: true,
        wants_old: false,
        comparison: Some(comparison),
    })
}

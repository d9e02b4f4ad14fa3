//! Reads the lock verbs' arguments, strictly and to the end, with the errors of Redis 7. The commands that compare
//! before they act are read in `compare`.

mod compare;

use bytes::Bytes;
use lockwarden_resp::Request;
use smallvec::SmallVec;

use crate::op::{
    AcquireReply, Arguments, AskedTtl, Comparison, ExpireCondition, ExtendSpelling, LockOp, ReleaseSpelling, Target,
    Test,
};
use crate::table::{NotAnInteger, Verb, parse_integer};

use compare::ConditionWord;

/// Arguments that Redis would refuse; prints as Redis's error.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ArgumentError {
    #[error("ERR syntax error")]
    Syntax,
    #[error(transparent)]
    NotAnInteger(#[from] NotAnInteger),
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpire(&'static str),
    #[error("ERR Unsupported option {0}")]
    UnsupportedOption(String),
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    NxWithOthers,
    #[error("ERR GT and LT options at the same time are not compatible")]
    GtWithLt,
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(&'static str),
    #[error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")]
    UnknownCondition,
    #[error("ERR must be exactly 16 hexadecimal characters")]
    NotADigest,
}

impl ArgumentError {
    /// Whether all words were understood, but a number is invalid or out of range.
    pub(super) fn is_about_a_number(&self) -> bool {
        matches!(self, ArgumentError::NotAnInteger(_) | ArgumentError::InvalidExpire(_))
    }
}

/// The most bytes of an EXPIRE's last option that an error repeats.
const OPTION_IN_ERROR: usize = 64;

/// Reads a verb with a lock among its keys. `locks` are all lock keys with their positions, at least one.
pub(super) fn read(
    verb: Verb,
    name: &'static str,
    argv: &Arguments,
    mut locks: SmallVec<[(usize, Target); 2]>,
) -> Result<LockOp, ArgumentError> {
    match verb {
        Verb::MSetNx if argv.len().is_multiple_of(2) => {
            return Err(ArgumentError::Arity(name));
        }
        Verb::MSetNx => return Ok(set_all(argv, locks, AskedTtl::None)),
        Verb::MSetEx => return set_all_with_ttl(argv, locks),
        _ => {}
    }
    if matches!(verb, Verb::Del | Verb::Unlink) && argv.len() > 2 {
        return Ok(delete_many(argv, verb == Verb::Unlink, locks));
    }
    let (_, target) = locks.swap_remove(0);
    let value = |at: usize| argv[at].clone();
    Ok(match verb {
        Verb::SetNx => LockOp::Acquire { target, value: value(2), ttl: AskedTtl::None, reply: AcquireReply::Integer },
        Verb::Set => return set(argv, target),
        Verb::SetEx => return set_ex(argv, target, name, 1000),
        Verb::PSetEx => return set_ex(argv, target, name, 1),
        Verb::GetSet => LockOp::Store {
            target,
            value: value(2),
            ttl: AskedTtl::None,
            only_if_exists: false,
            wants_old: true,
            comparison: None,
        },
        Verb::GetDel => LockOp::Release { target, spelling: ReleaseSpelling::GetDel, comparison: None },
        Verb::GetEx => return get_ex(argv, target),
        Verb::Del | Verb::Unlink => LockOp::Release {
            target,
            spelling: if verb == Verb::Unlink { ReleaseSpelling::Unlink } else { ReleaseSpelling::Del },
            comparison: None,
        },
        Verb::Expire => return expire(argv, target, name, 1000, false),
        Verb::PExpire => return expire(argv, target, name, 1, false),
        Verb::ExpireAt => return expire(argv, target, name, 1000, true),
        Verb::PExpireAt => return expire(argv, target, name, 1, true),
        // KeyDB accepts a set member after the key; a lock has no members.
        Verb::Persist if argv.len() > 2 => return Err(ArgumentError::Arity(name)),
        Verb::Persist => LockOp::Extend {
            target,
            ttl: AskedTtl::None,
            condition: ExpireCondition::Always,
            spelling: ExtendSpelling::Persist,
            comparison: None,
        },
        Verb::Incr => LockOp::Acquire {
            target,
            value: Bytes::from_static(b"1"),
            ttl: AskedTtl::None,
            reply: AcquireReply::Counter,
        },
        Verb::DelEx => return compare::delex(argv, target),
        Verb::DelIfEq => compare::delete_if_equal(argv, target, 0),
        Verb::Cad => compare::delete_if_equal(argv, target, -1),
        Verb::Cas => return compare::cas(argv, target),
        Verb::Get | Verb::MGet | Verb::MSetNx | Verb::MSetEx => {
            return Err(ArgumentError::Syntax);
        }
    })
}

fn set_ex(argv: &Arguments, target: Target, command: &'static str, unit: i64) -> Result<LockOp, ArgumentError> {
    Ok(LockOp::Store {
        target,
        value: argv[3].clone(),
        ttl: AskedTtl::For(positive(&argv[2], unit, command)?),
        only_if_exists: false,
        wants_old: false,
        comparison: None,
    })
}

/// `SET key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET]
/// [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`, in any order; of the same option given twice the
/// last counts, but a value is compared once.
fn set(argv: &Arguments, target: Target) -> Result<LockOp, ArgumentError> {
    let (mut nx, mut xx, mut get) = (false, false, false);
    let mut condition: Option<(ConditionWord, &Bytes)> = None;
    let mut ttl = TtlOption::default();
    let mut options = argv[3..].iter();
    while let Some(option) = options.next() {
        let word = option.to_ascii_uppercase();
        match word.as_slice() {
            b"NX" if !xx && condition.is_none() => nx = true,
            b"XX" if !nx && condition.is_none() => xx = true,
            b"GET" => get = true,
            word if ConditionWord::of(word).is_some() && !nx && !xx && condition.is_none() => {
                let operand = options.next().ok_or(ArgumentError::Syntax)?;
                condition = ConditionWord::of(word).map(|word| (word, operand));
            }
            b"PERSIST" => return Err(ArgumentError::Syntax),
            _ => ttl.takes(option, &mut options)?,
        }
    }
    let asked = ttl.read("set")?;
    let value = argv[2].clone();
    if nx {
        let reply = if get { AcquireReply::OldValue } else { AcquireReply::OkOrNil };
        // A key that does not exist has no TTL to keep.
        let ttl = if asked == AskedTtl::Keep { AskedTtl::None } else { asked };
        return Ok(LockOp::Acquire { target, value, ttl, reply });
    }
    let comparison = match condition {
        Some((word, operand)) => {
            let then = compare::plain_set(&target, &value, get, ttl.0);
            Some(compare::stores(word, operand, compare::SET, then)?)
        }
        None => None,
    };
    // If a value must match, the key must exist; if a value must only differ, it need not.
    let has_to_exist = |comparison: &Comparison| !matches!(comparison.test, Test::Differs | Test::OtherDigest);
    Ok(LockOp::Store {
        target,
        value,
        ttl: asked,
        only_if_exists: xx || comparison.as_deref().is_some_and(has_to_exist),
        wants_old: get,
        comparison,
    })
}

/// The TTL among the options of a command. Redis reads all options before it looks at a number, and of an option that
/// is given twice it reads only the last one: `GETEX lock PX nonsense PX 100000` sets 100 s.
#[derive(Clone, Copy, Default)]
struct TtlOption<'a>(Option<(TtlWord, &'a Bytes)>);

impl<'a> TtlOption<'a> {
    /// Takes an option and the number behind it.
    ///
    /// # Errors
    ///
    /// A word that is no TTL's, a TTL of another kind than the one before, or no number behind it.
    fn takes(&mut self, option: &'a Bytes, rest: &mut impl Iterator<Item = &'a Bytes>) -> Result<(), ArgumentError> {
        let kind = TtlWord::of(&option.to_ascii_uppercase()).ok_or(ArgumentError::Syntax)?;
        if self.0.is_some_and(|(other, _)| other != kind) {
            return Err(ArgumentError::Syntax);
        }
        self.0 = Some((kind, kind.operand(option, rest)?));
        Ok(())
    }

    /// The requested TTL, once all options are read.
    ///
    /// # Errors
    ///
    /// A number that is none or is out of range, in the words that Redis has for this command.
    fn read(self, command: &'static str) -> Result<AskedTtl, ArgumentError> {
        self.0.map_or(Ok(AskedTtl::None), |(kind, number)| kind.read(number, command))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TtlWord {
    Ex,
    Px,
    ExAt,
    PxAt,
    Keep,
    Persist,
}

impl TtlWord {
    /// `word` is in upper case.
    fn of(word: &[u8]) -> Option<TtlWord> {
        Some(match word {
            b"EX" => TtlWord::Ex,
            b"PX" => TtlWord::Px,
            b"EXAT" => TtlWord::ExAt,
            b"PXAT" => TtlWord::PxAt,
            b"KEEPTTL" => TtlWord::Keep,
            b"PERSIST" => TtlWord::Persist,
            _ => return None,
        })
    }

    /// The argument after the word, or the word itself if it takes none.
    fn operand<'a>(
        self,
        word: &'a Bytes,
        rest: &mut impl Iterator<Item = &'a Bytes>,
    ) -> Result<&'a Bytes, ArgumentError> {
        match self {
            TtlWord::Keep | TtlWord::Persist => Ok(word),
            TtlWord::Ex | TtlWord::Px | TtlWord::ExAt | TtlWord::PxAt => rest.next().ok_or(ArgumentError::Syntax),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            TtlWord::Ex => "EX",
            TtlWord::Px => "PX",
            TtlWord::ExAt => "EXAT",
            TtlWord::PxAt => "PXAT",
            TtlWord::Keep => "KEEPTTL",
            TtlWord::Persist => "PERSIST",
        }
    }

    fn read(self, number: &[u8], command: &'static str) -> Result<AskedTtl, ArgumentError> {
        Ok(match self {
            TtlWord::Ex => AskedTtl::For(positive(number, 1000, command)?),
            TtlWord::Px => AskedTtl::For(positive(number, 1, command)?),
            TtlWord::ExAt => AskedTtl::Until(positive(number, 1000, command)?),
            TtlWord::PxAt => AskedTtl::Until(positive(number, 1, command)?),
            TtlWord::Keep => AskedTtl::Keep,
            TtlWord::Persist => AskedTtl::None,
        })
    }
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`.
fn get_ex(argv: &Arguments, target: Target) -> Result<LockOp, ArgumentError> {
    let mut ttl = TtlOption::default();
    let mut options = argv[2..].iter();
    while let Some(option) = options.next() {
        ttl.takes(option, &mut options)?;
    }
    let spelling = match ttl.0 {
        None | Some((TtlWord::Keep, _)) => return Err(ArgumentError::Syntax),
        Some((TtlWord::Persist, _)) => ExtendSpelling::GetExPersist,
        Some(_) => ExtendSpelling::GetEx,
    };
    let ttl = ttl.read("getex")?;
    Ok(LockOp::Extend { target, ttl, condition: ExpireCondition::Always, spelling, comparison: None })
}

/// `EXPIRE key time [NX | XX | GT | LT …]` and its family.
fn expire(
    argv: &Arguments,
    target: Target,
    command: &'static str,
    unit: i64,
    absolute: bool,
) -> Result<LockOp, ArgumentError> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in &argv[3..] {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => nx = true,
            b"XX" => xx = true,
            b"GT" => gt = true,
            b"LT" => lt = true,
            _ => {
                let shown = &option[..option.len().min(OPTION_IN_ERROR)];
                let shown = String::from_utf8_lossy(shown).into_owned();
                return Err(ArgumentError::UnsupportedOption(shown));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err(ArgumentError::NxWithOthers);
    }
    if gt && lt {
        return Err(ArgumentError::GtWithLt);
    }
    let invalid = ArgumentError::InvalidExpire(command);
    let time = parse_integer(&argv[2])?.checked_mul(unit).ok_or(invalid)?;
    // Redis adds its clock to a relative time and refuses a sum that overflows.
    if !absolute && time.checked_add(LATEST_CLOCK).is_none() {
        return Err(ArgumentError::InvalidExpire(command));
    }
    Ok(LockOp::Extend {
        target,
        ttl: if absolute { AskedTtl::Until(time) } else { AskedTtl::For(time) },
        condition: match (nx, xx, gt, lt) {
            (true, ..) => ExpireCondition::Nx,
            (_, _, true, _) => ExpireCondition::Gt,
            (_, true, _, true) => ExpireCondition::XxLt,
            (_, _, _, true) => ExpireCondition::Lt,
            (_, true, ..) => ExpireCondition::Xx,
            (false, false, false, false) => ExpireCondition::Always,
        },
        spelling: ExtendSpelling::Expire,
        comparison: None,
    })
}

/// The year 2286 in Unix milliseconds, a time that no server's clock has reached: what overflows with a real clock also
/// overflows with this one.
const LATEST_CLOCK: i64 = 10_000_000_000_000;

/// A TTL above zero in milliseconds.
fn positive(text: &[u8], unit: i64, command: &'static str) -> Result<i64, ArgumentError> {
    let invalid = || ArgumentError::InvalidExpire(command);
    let value = parse_integer(text)?;
    let ms = value.checked_mul(unit).ok_or_else(invalid)?;
    if ms <= 0 || ms.checked_add(LATEST_CLOCK).is_none() {
        return Err(invalid());
    }
    Ok(ms)
}

fn delete_many(argv: &Arguments, unlink: bool, locks: SmallVec<[(usize, Target); 2]>) -> LockOp {
    let is_lock = |position: usize| locks.iter().any(|(at, _)| *at == position);
    let others =
        (1..argv.len()).filter(|position| !is_lock(*position)).map(|position| argv[position].clone()).collect();
    let mut once: Vec<Target> = Vec::with_capacity(locks.len());
    let mut names = std::collections::HashSet::with_capacity(locks.len());
    for (_, lock) in &locks {
        if names.insert(lock.key.clone()) {
            once.push(lock.clone());
        }
    }
    LockOp::ReleaseMany { locks: once, others, unlink }
}

/// All keys are locks, each followed by a value. If a key occurs twice, the last one counts.
fn set_all(argv: &Arguments, locks: SmallVec<[(usize, Target); 2]>, ttl: AskedTtl) -> LockOp {
    let mut last = std::collections::HashMap::with_capacity(locks.len());
    for (position, lock) in &locks {
        last.insert(lock.key.clone(), *position);
    }
    let pairs = locks
        .iter()
        .filter(|(position, lock)| last.get(&lock.key) == Some(position))
        .map(|(position, lock)| (lock.clone(), argv[position + 1].clone()))
        .collect();
    LockOp::AcquireAll { locks: pairs, ttl }
}

/// Where the options of an `MSETEX` begin, if its number of keys is valid.
fn options_of_msetex(number: &[u8]) -> Option<usize> {
    let keys = usize::try_from(parse_integer(number).ok()?).ok()?;
    keys.checked_mul(2)?.checked_add(2)
}

/// Whether an `MSETEX` acquires free keys only, all of which are locks.
pub(super) fn takes_all(request: &Request<'_>, locks: usize) -> bool {
    let begin = request.get(1).and_then(options_of_msetex);
    let Some(begin) = begin.filter(|begin| *begin == 2 + 2 * locks) else {
        return false;
    };
    let mut options = request.args().skip(begin);
    options.any(|word| word.eq_ignore_ascii_case(b"NX"))
}

/// `MSETEX numkeys key value … [NX | XX] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`, of which [`takes_all`] is true.
fn set_all_with_ttl(argv: &Arguments, locks: SmallVec<[(usize, Target); 2]>) -> Result<LockOp, ArgumentError> {
    let begin = options_of_msetex(&argv[1]).ok_or(ArgumentError::Syntax)?;
    let mut ttl = TtlOption::default();
    let mut options = argv.get(begin..).unwrap_or_default().iter();
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => {}
            // This command refuses a second TTL option.
            b"PERSIST" => return Err(ArgumentError::Syntax),
            _ if ttl.0.is_some() => return Err(ArgumentError::Syntax),
            _ => ttl.takes(option, &mut options)?,
        }
    }
    let asked = ttl.read("msetex")?;
    // A key that does not exist has no TTL to keep.
    let asked = if asked == AskedTtl::Keep { AskedTtl::None } else { asked };
    Ok(set_all(argv, locks, asked))
}

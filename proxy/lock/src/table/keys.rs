//! The positions of a request's keys, computed from its row alone. An invalid number of keys is reported here, in
//! Redis's words; a request that Redis will refuse for its number of arguments is not. Options that may be followed by
//! keys are walked in `grammar`.

use super::grammar::{bitfield_only_reads, each_georadius_key, each_sort_key};
use super::grammar::{migrated_keys, streams_begin};
use super::integer::{NotAnInteger, parse_integer};
use super::{Access, Arguments, CommandSpec, CountRule, KeySpec, arity_ok};

/// Why the keys of a request cannot be determined. Prints as Redis's error reply, without the `-` before and the line
/// end after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The number of keys is no integer.
    #[error(transparent)]
    NotAnInteger(#[from] NotAnInteger),
    /// `FCALL` with a number of keys that is no integer.
    #[error("ERR Bad number of keys provided")]
    BadCount,
    /// A number of keys below 0.
    #[error("ERR Number of keys can't be negative")]
    NegativeCount,
    /// More keys announced than there are arguments.
    #[error("ERR Number of keys can't be greater than number of args")]
    CountBeyondArguments,
    /// No integer, or below 1, for which Redis has one text.
    #[error("ERR numkeys should be greater than 0")]
    CountNotPositive,
    /// A sorted-set command with a number of keys below 1.
    #[error("ERR at least 1 input key is needed for '{command}' command")]
    NoInputKey {
        /// The command in lower case.
        command: &'static str,
    },
    /// `MSETEX` with a number of pairs that is no integer or below 1.
    #[error("ERR invalid numkeys value")]
    BadPairCount,
    /// `MSETEX` with more pairs announced than there are.
    #[error("ERR wrong number of key-value pairs")]
    MissingPairs,
    /// Redis's syntax error.
    #[error("ERR syntax error")]
    Syntax,
    /// Pairs of which the last is incomplete.
    #[error("ERR wrong number of arguments for '{command}' command")]
    OddPairs {
        /// The command in lower case.
        command: &'static str,
    },
    /// Streams and their ids differ in number. Redis names `XREAD` for both commands.
    #[error("ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.")]
    UnbalancedStreams,
}

/// Calls `each` with the position and the bytes of every key and what the command may do to it. If options cannot be
/// read to their end, every remaining argument is passed as a written key. For a command with too few arguments, which
/// Redis itself refuses, the keys that are there are passed.
///
/// # Errors
/// The request must be answered with the error and not be sent. Keys that were passed before must be ignored.
pub fn for_each_key<'a, A: Arguments + ?Sized>(
    spec: &CommandSpec,
    args: &'a A,
    each: &mut impl FnMut(usize, &'a [u8], Access),
) -> Result<(), KeyError> {
    let access = spec.effect.access();
    let end = args.len();
    let mut keys = Offer { args, each };
    match spec.keys {
        KeySpec::None | KeySpec::Subcommands => {}
        KeySpec::Range { first, last, step } => {
            keys.every(step, usize::from(first), range_end(last, end), access);
        }
        KeySpec::Pairs => {
            if end.is_multiple_of(2) && arity_ok(spec, end) {
                return Err(KeyError::OddPairs { command: spec.name });
            }
            keys.every(2, 1, end, access);
        }
        KeySpec::SourceDest => {
            keys.one(1, Access::Read);
            keys.one(2, Access::Write);
        }
        KeySpec::DestSource => {
            keys.one(1, Access::Write);
            keys.one(2, Access::Read);
        }
        KeySpec::DestSources { dest } => {
            let dest = usize::from(dest);
            keys.one(dest, Access::Write);
            keys.every(1, dest + 1, end, Access::Read);
        }
        KeySpec::Numkeys { at, step, count } => {
            let (first, end) = counted(spec, args, at, step, count)?;
            keys.every(step, first, end, access);
        }
        KeySpec::DestNumkeys { dest, at } => {
            let (first, end) = counted(spec, args, at, 1, CountRule::Sets)?;
            keys.one(usize::from(dest), Access::Write);
            keys.every(1, first, end, Access::Read);
        }
        KeySpec::Bitfield => {
            let reads = bitfield_only_reads(args);
            keys.one(1, if reads { Access::Read } else { access });
        }
        KeySpec::Sort => {
            keys.one(1, Access::Read);
            each_sort_key(args, |position| keys.one(position, Access::Write));
        }
        KeySpec::GeoRadius { options } => {
            keys.one(1, Access::Read);
            each_georadius_key(args, options.into(), |key| keys.one(key, Access::Write));
        }
        KeySpec::Streams { group } => match streams_begin(args, group) {
            Ok(first) if arity_ok(spec, end) && !(end - first).is_multiple_of(2) => {
                return Err(KeyError::UnbalancedStreams);
            }
            Ok(first) => keys.every(1, first, first + (end - first) / 2, access),
            Err(unread) => keys.every(1, unread, end, access),
        },
        KeySpec::Migrate => {
            let (first, end) = migrated_keys(args);
            keys.every(1, first, end, access);
        }
    }
    Ok(())
}

/// Passes on keys whose positions exist.
struct Offer<'a, 'f, A: ?Sized, F> {
    args: &'a A,
    each: &'f mut F,
}

impl<'a, A: Arguments + ?Sized, F: FnMut(usize, &'a [u8], Access)> Offer<'a, '_, A, F> {
    fn one(&mut self, position: usize, access: Access) {
        if position < self.args.len() {
            (self.each)(position, self.args.arg(position), access);
        }
    }

    fn every(&mut self, step: u8, first: usize, end: usize, access: Access) {
        let end = end.min(self.args.len());
        for position in (first..end).step_by(usize::from(step)) {
            (self.each)(position, self.args.arg(position), access);
        }
    }
}

/// The position after the last key of a range.
pub(super) fn range_end(last: i8, argc: usize) -> usize {
    if last < 0 {
        (argc + 1).saturating_sub(usize::from(last.unsigned_abs()))
    } else {
        usize::from(last.unsigned_abs()) + 1
    }
}

/// The range of the counted keys. Too few arguments are no error here: Redis notices them before it reads the number.
fn counted(
    spec: &CommandSpec,
    args: &(impl Arguments + ?Sized),
    at: u8,
    step: u8,
    rule: CountRule,
) -> Result<(usize, usize), KeyError> {
    let at = usize::from(at);
    if at >= args.len() {
        return Ok((at, at));
    }
    let first = at + 1;
    let room = args.len() - first;
    let count = match checked_count(spec.name, args.arg(at), room, rule) {
        Ok(count) => count,
        Err(_) if !arity_ok(spec, args.len()) => 0,
        Err(error) => return Err(error),
    };
    Ok((first, first + count * usize::from(step)))
}

/// The number of keys, by the rules and with the errors of the command. `room` is the number of arguments after the
/// number; the result times its step is at most that.
fn checked_count(command: &'static str, number: &[u8], room: usize, rule: CountRule) -> Result<usize, KeyError> {
    let count = parse_integer(number);
    let (count, most, too_many) = match rule {
        CountRule::Script => (count?, room, KeyError::CountBeyondArguments),
        CountRule::Function => {
            let count = count.map_err(|NotAnInteger| KeyError::BadCount)?;
            (count, room, KeyError::CountBeyondArguments)
        }
        CountRule::Pop => (positive(count, KeyError::CountNotPositive)?, room.saturating_sub(1), KeyError::Syntax),
        CountRule::Cardinality => (positive(count, KeyError::CountNotPositive)?, room, KeyError::CountBeyondArguments),
        CountRule::Sets => {
            let count = positive(Ok(count?), KeyError::NoInputKey { command })?;
            (count, room, KeyError::Syntax)
        }
        CountRule::Pairs => (positive(count, KeyError::BadPairCount)?, room / 2, KeyError::MissingPairs),
    };
    let count = usize::try_from(count).map_err(|_| KeyError::NegativeCount)?;
    if count > most { Err(too_many) } else { Ok(count) }
}

fn positive(count: Result<i64, NotAnInteger>, otherwise: KeyError) -> Result<i64, KeyError> {
    count.ok().filter(|&count| count > 0).ok_or(otherwise)
}

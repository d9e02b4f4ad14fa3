//! The answers of most calls, each as one string, because an array costs Redis more. A letter, then fields of fixed
//! width, as in the scripts' contracts.

use bytes::Bytes;
use lockwarden_resp::Value;

use super::{Answer, Answers, Ended, Granted, NotAnAnswer, Outcome, Refused, StandsFor};
use crate::reason::Reason;
use crate::record::{DISTINCTIVE, FENCE, INDEBTED, KEPT, MS, NO_FLAGS, UNDELIVERED, UNWITNESSED, WANTED};
use crate::time::{AskedMs, RedisTime, TtlMs};
use crate::token::FencingToken;

/// All flag bits that a record may have.
const FLAGS: u8 = UNDELIVERED | KEPT | INDEBTED | DISTINCTIVE | WANTED | UNWITNESSED;

/// Parses such a string.
pub(super) fn read(answer: &Bytes) -> Result<Answers, NotAnAnswer> {
    let (code, rest) = answer.split_first().ok_or(NotAnAnswer)?;
    let mut fields = Digits(rest);
    let outcome = match code {
        b'G' => granted(&mut fields)?,
        b'B' => Outcome::Busy {
            governed: fields.yes()?,
            adopted: fields.yes()?,
            perhaps_own: fields.yes()?,
            own: fields.yes()?,
        },
        b'X' => extended(&mut fields)?,
        b'R' => Outcome::Released {
            fence: FencingToken(fields.number(FENCE)?),
            since: fields.number(MS).map(RedisTime)?,
            value: None,
            taken_over: false,
        },
        b'N' => Outcome::Refused(Refused {
            reason: Reason::NotOwner,
            fence: FencingToken(fields.number(FENCE)?),
            since: fields.number(MS).map(RedisTime)?,
            now: fields.time()?,
            late: false,
            keep_alive_ended: false,
            stands_for: StandsFor::Nothing,
            current: None,
        }),
        _ => return Err(NotAnAnswer),
    };
    fields.end()?;
    Ok(Answers::One(Answer {
        outcome,
        native: Some(match code {
            b'R' => Value::Integer(1),
            _ => Value::Null,
        }),
        would: None,
        deed: None,
        unrecorded: None,
        later: None,
    }))
}

/// Flags, shared owner token, fencing token, now, requested TTL, `TTL:`, what was ended and since when that was held.
fn granted(fields: &mut Digits<'_>) -> Result<Outcome, NotAnAnswer> {
    let kept = fields.kept()?;
    let shared_token = fields.yes()?;
    let fence = FencingToken(fields.number(FENCE)?);
    let now = fields.number(MS).map(RedisTime)?;
    let asked_ms = fields.number(MS).map(AskedMs)?;
    let ttl_ms = fields.up_to_colon().map(TtlMs)?;
    let ended = match fields.0 {
        b"0" => Ended::Nothing,
        b"-0" => Ended::Unrecorded,
        [b'L', since @ ..] => Ended::RanOut(number(since).map(RedisTime)?),
        _ => return Err(NotAnAnswer),
    };
    fields.0 = b"";
    Ok(Outcome::Granted(Granted { fence, now, ttl_ms, ended, kept, old: None, again: None, shared_token, asked_ms }))
}

/// Flags, fencing token, since, requested TTL, `TTL:seconds:microseconds`. Proven by the session.
fn extended(fields: &mut Digits<'_>) -> Result<Outcome, NotAnAnswer> {
    let kept = fields.kept()?;
    let fence = FencingToken(fields.number(FENCE)?);
    let since = fields.number(MS).map(RedisTime)?;
    let asked_ms = fields.number(MS).map(AskedMs)?;
    let ttl_ms = fields.up_to_colon().map(TtlMs)?;
    let now = fields.time()?;
    Ok(Outcome::Extended { ttl_ms, fence, since, now, kept, old: None, own: true, asked_ms: Some(asked_ms) })
}

/// The rest of such a string.
struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    /// A number of `width` digits.
    fn number(&mut self, width: usize) -> Result<u64, NotAnAnswer> {
        let (digits, rest) = self.0.split_at_checked(width).ok_or(NotAnAnswer)?;
        self.0 = rest;
        number(digits)
    }

    /// A number of any length, followed by a colon.
    fn up_to_colon(&mut self) -> Result<u64, NotAnAnswer> {
        let at = memchr::memchr(b':', self.0).ok_or(NotAnAnswer)?;
        let digits = self.number(at)?;
        self.0 = &self.0[1..];
        Ok(digits)
    }

    /// 1 or 0.
    fn yes(&mut self) -> Result<bool, NotAnAnswer> {
        match self.byte()? {
            b'1' => Ok(true),
            b'0' => Ok(false),
            _ => Err(NotAnAnswer),
        }
    }

    /// Whether the flags of a record say that it is kept alive.
    fn kept(&mut self) -> Result<bool, NotAnAnswer> {
        match self.byte()? {
            flags if flags & !FLAGS == NO_FLAGS => Ok(flags & KEPT != 0),
            _ => Err(NotAnAnswer),
        }
    }

    /// Seconds and microseconds, up to the end.
    fn time(&mut self) -> Result<RedisTime, NotAnAnswer> {
        let seconds = self.up_to_colon()?;
        let microseconds = number(std::mem::take(&mut self.0))?;
        let ms = seconds.saturating_mul(1000);
        Ok(RedisTime(ms.saturating_add(microseconds / 1000)))
    }

    fn byte(&mut self) -> Result<u8, NotAnAnswer> {
        let (byte, rest) = self.0.split_first().ok_or(NotAnAnswer)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn end(&self) -> Result<(), NotAnAnswer> {
        if self.0.is_empty() { Ok(()) } else { Err(NotAnAnswer) }
    }
}

/// Only digits, at most as many as a `u64` can always hold.
fn number(digits: &[u8]) -> Result<u64, NotAnAnswer> {
    if digits.is_empty() || digits.len() > 19 {
        return Err(NotAnAnswer);
    }
    digits.iter().try_fold(0, |number, digit| {
        if digit.is_ascii_digit() { Ok(number * 10 + u64::from(digit - b'0')) } else { Err(NotAnAnswer) }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome(text: &'static str) -> Option<Outcome> {
        match read(&Bytes::from_static(text.as_bytes())) {
            Ok(Answers::One(answer)) => Some(answer.outcome),
            Ok(other) => panic!("{other:?}"),
            Err(NotAnAnswer) => None,
        }
    }

    #[test]
    fn a_grant_tells_its_terms_and_what_it_ended() {
        let granted = Granted {
            fence: FencingToken(1_795_261_959_031_331),
            now: RedisTime(1_795_261_959_031),
            ttl_ms: TtlMs(30_000),
            ended: Ended::Nothing,
            kept: true,
            old: None,
            again: None,
            shared_token: false,
            asked_ms: AskedMs(0),
        };
        assert_eq!(
            outcome("GB017952619590313311795261959031000000000000030000:0"),
            Some(Outcome::Granted(granted.clone()))
        );
        let second = Granted {
            ended: Ended::RanOut(RedisTime(1_795_261_000_000)),
            kept: false,
            shared_token: true,
            asked_ms: AskedMs(30_000),
            ..granted
        };
        assert_eq!(
            outcome("GH117952619590313311795261959031000000003000030000:L1795261000000"),
            Some(Outcome::Granted(second))
        );
    }

    #[test]
    fn an_extension_tells_the_time_as_redis_said_it() {
        let extended = Outcome::Extended {
            ttl_ms: TtlMs(20_000),
            fence: FencingToken(7),
            since: RedisTime(1_795_261_959_031),
            now: RedisTime(1_795_261_960_004),
            kept: true,
            old: None,
            own: true,
            asked_ms: Some(AskedMs(90_000)),
        };
        assert_eq!(outcome("XB00000000000000071795261959031000000009000020000:1795261960:4321"), Some(extended));
    }

    #[test]
    fn a_refused_acquire_says_whose_lease_it_met() {
        let busy = |own| Some(Outcome::Busy { governed: true, adopted: false, perhaps_own: false, own });
        assert_eq!(outcome("B1000"), busy(false));
        assert_eq!(outcome("B1001"), busy(true));
    }

    #[test]
    fn a_release_names_the_lease_that_ended() {
        let released =
            Outcome::Released { fence: FencingToken(7), since: RedisTime(5), value: None, taken_over: false };
        assert_eq!(outcome("R00000000000000070000000000005"), Some(released));
    }

    #[test]
    fn a_refused_release_names_the_lease_that_goes_on() {
        let refused = Outcome::Refused(Refused {
            reason: Reason::NotOwner,
            since: RedisTime(1_795_261_959_031),
            now: RedisTime(1_795_261_960_999),
            fence: FencingToken(7),
            late: false,
            keep_alive_ended: false,
            stands_for: StandsFor::Nothing,
            current: None,
        });
        assert_eq!(outcome("N000000000000000717952619590311795261960:999999"), Some(refused));
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_none_of_ours() {
        for whole in [
            "GB01795261959031331179526195903100000000000003:0",
            "XB00000000000000071795261959031000000009000020:1795261960:4",
            "B1000",
            "R00000000000000070000000000005",
            "N000000000000000717952619590311795261960:9",
        ] {
            assert!(outcome(whole).is_some(), "{whole}");
            for end in 0..whole.len() {
                assert!(outcome(&whole[..end]).is_none(), "{whole} {end}");
            }
            let longer: &'static str = format!("{whole} ").leak();
            assert!(outcome(longer).is_none(), "{longer}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd_to_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&Bytes::from(bytes));
        }
    }
}

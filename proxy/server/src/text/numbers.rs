//! How numbers, moments and parts of addresses are written wherever people or other programs read them:
//! on the board, in the audit trail, on the command line.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What a part of a path or query keeps as it is.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A number with its thousands apart: `12,400`.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 lock`, `2 locks`.
pub(crate) fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { more })
}

/// A moment as RFC 3339 writes it, in UTC with milliseconds: `2026-11-21T10:02:11.204Z`.
pub(crate) fn utc(unix_ms: u64) -> String {
    // The calendar repeats every 400 years of 146,097 days. Counted from a 1 March, the leap day is
    // the last of its year.
    let since = unix_ms / 86_400_000 + 719_468;
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{}Z", time_of_day(unix_ms))
}

/// The time of the day of a moment, UTC: `10:02:11.204`.
pub(crate) fn time_of_day(unix_ms: u64) -> String {
    let ms = unix_ms % 86_400_000;
    let (hours, minutes) = (ms / 3_600_000, ms / 60_000 % 60);
    let (seconds, rest) = (ms / 1_000 % 60, ms % 1_000);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{rest:03}")
}

/// A value within an address: whatever could end it or mean something is written as `%XX`.
pub(crate) fn percent(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_795_260_990_627, "2026-11-21T11:36:30.627Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }

    #[test]
    fn moments_are_written_as_rfc_3339() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_795_261_959_231, "2026-11-21T11:52:39.231Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(unix_ms), text);
        }
    }

    #[test]
    fn a_time_of_the_day_is_cut_out_of_its_moment() {
        assert_eq!(time_of_day(1_790_000_000_123), "14:13:20.123");
    }

    #[test]
    fn a_text_within_an_address_does_not_end_it() {
        assert_eq!(
            percent("lock:a/b?c&d='ü"),
            "lock%3Aa%2Fb%3Fc%26d%3D%27%C3%BC"
        );
    }

    #[test]
    fn numbers_have_thousands() {
        assert_eq!(number(0), "0");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(counted(1, "lock", "locks"), "1 lock");
        assert_eq!(counted(1200, "lock", "locks"), "1,200 locks");
    }
}

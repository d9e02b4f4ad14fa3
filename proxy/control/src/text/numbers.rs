//! How numbers, moments and parts of addresses are written for people and other programs: on the board, in the audit
//! trail, on the command line.

use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that stay unchanged in a part of a path or query.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A number with its thousands apart: `12,400`.
pub fn number(number: u64) -> String {
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
pub fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { more })
}

/// The last moment of the calendar, which ends with the year 9999.
const LAST_MOMENT_MS: u64 = 253_402_300_799_999;

/// A moment as RFC 3339 writes it, in UTC with milliseconds: `2026-11-21T10:02:11.204Z`.
pub fn utc(unix_ms: u64) -> String {
    // Beyond the calendar's end a moment has no text, and such a number is no real moment anyway.
    let since_1970 = Duration::from_millis(unix_ms.min(LAST_MOMENT_MS));
    humantime::format_rfc3339_millis(UNIX_EPOCH + since_1970).to_string()
}

/// The time of the day of a moment, UTC: `10:02:11.204`.
pub fn time_of_day(unix_ms: u64) -> String {
    utc(unix_ms)["2026-11-21T".len()..].trim_end_matches('Z').to_owned()
}

/// A value within an address: characters that could end it or have a meaning become `%XX`.
pub fn percent(text: &str) -> String {
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
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
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
        assert_eq!(percent("lock:a/b?c&d='ü"), "lock%3Aa%2Fb%3Fc%26d%3D%27%C3%BC");
    }

    #[test]
    fn numbers_have_thousands() {
        assert_eq!(number(0), "0");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(counted(1, "lock", "locks"), "1 lock");
        assert_eq!(counted(1200, "lock", "locks"), "1,200 locks");
    }
}

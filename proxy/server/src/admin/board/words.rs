//! How the board words numbers, times and addresses, so that people and screen readers take them in
//! at a glance.

use std::fmt::Write as _;

/// A duration, as exact as somebody needs it who has to decide: `0.8 s`, `4 min 05 s`, `3 h 12 min`.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A duration that went by, where milliseconds count: `8 ms`.
pub(super) fn exact(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => duration(ms),
    }
}

/// A number with its thousands apart: `12,400`.
pub(super) fn number(number: u64) -> String {
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
pub(super) fn count(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { more })
}

/// A moment in UTC, as logs have it: `2026-11-21T10:02:11.204Z`.
pub(super) fn moment(unix_ms: u64) -> String {
    let (year, month, day) = date(unix_ms / 86_400_000);
    format!("{year:04}-{month:02}-{day:02}T{}Z", clock(unix_ms))
}

/// The time of the day of a moment, UTC: `10:02:11.204`.
pub(super) fn clock(unix_ms: u64) -> String {
    let ms = unix_ms % 86_400_000;
    let (hours, minutes) = (ms / 3_600_000, ms / 60_000 % 60);
    let (seconds, rest) = (ms / 1_000 % 60, ms % 1_000);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{rest:03}")
}

/// The date of a day, counted from 1970-01-01, by the calendar that begins its years in March, where
/// the leap day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// A value within an address: whatever could end it or mean something is written as `%XX`.
pub(super) fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// A word of a command line that a shell passes on as it stands.
pub(super) fn shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_exact_as_somebody_needs_them() {
        for (ms, text) in [
            (0, "0.0 s"),
            (850, "0.8 s"),
            (12_449, "12.4 s"),
            (59_999, "59.9 s"),
            (245_000, "4 min 05 s"),
            (11_520_000, "3 h 12 min"),
            (183_600_000, "2 d 3 h"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }

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
            assert_eq!(moment(ms), text);
        }
    }

    #[test]
    fn a_text_within_an_address_or_a_command_line_ends_neither() {
        assert_eq!(
            percent("lock:a/b?c&d='ü"),
            "lock%3Aa%2Fb%3Fc%26d%3D%27%C3%BC"
        );
        assert_eq!(shell("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(number(0), "0");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(count(1, "lock", "locks"), "1 lock");
    }
}

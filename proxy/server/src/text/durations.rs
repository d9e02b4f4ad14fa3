//! Numbers and durations as people say them.

use super::numbers::counted;

/// `40 ms`, `5.8 s`, `12 s`, `3 min`, `2.5 h`, `4 days`.
pub(crate) fn duration(ms: u64) -> String {
    const SECOND: u64 = 1_000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    // The last digit is cut, not rounded: 59.96 s are not yet 60.
    let tenths = |unit: u64, name: &str| match ms / unit {
        whole @ 0..10 => format!("{whole}.{} {name}", ms % unit * 10 / unit),
        whole => format!("{whole} {name}"),
    };
    match ms {
        0..SECOND => format!("{ms} ms"),
        SECOND..MINUTE => tenths(SECOND, "s"),
        MINUTE..HOUR => format!("{} min", ms / MINUTE),
        HOUR..DAY => tenths(HOUR, "h"),
        _ => tenths(DAY, "days"),
    }
}

/// `250ms`, `30s`, `2m`, `25h`, `7d`: as the configuration says it.
pub(crate) fn toml_duration(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit));
    match whole {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
    }
}

/// `1 call`, `53,000 calls`.
pub(crate) fn times(count: u64, thing: &str) -> String {
    counted(count, thing, &format!("{thing}s"))
}

/// `0.4 %`; what is more than nothing is never 0.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let Some(tenths) = (u128::from(part) * 1_000).checked_div(u128::from(whole)) else {
        return "0 %".to_owned();
    };
    match tenths {
        0 if part > 0 => "under 0.1 %".to_owned(),
        _ => format!("{}.{} %", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_the_configuration_reads_them() {
        for (ms, text) in [
            (0, "0ms"),
            (250, "250ms"),
            (1_500, "1500ms"),
            (30_000, "30s"),
            (90_000, "90s"),
            (120_000, "2m"),
            (90_000_000, "25h"),
            (604_800_000, "7d"),
        ] {
            assert_eq!(toml_duration(ms), text);
            assert_eq!(humantime::parse_duration(text).unwrap().as_millis(), u128::from(ms));
        }
    }

    #[test]
    fn durations_read_as_people_say_them() {
        for (ms, text) in [
            (0, "0 ms"),
            (40, "40 ms"),
            (5_812, "5.8 s"),
            (59_960, "59 s"),
            (60_000, "1 min"),
            (5_400_000, "1.5 h"),
            (345_600_000, "4.0 days"),
            (3_456_000_000, "40 days"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn counts_have_thousands_and_shares_are_never_less_than_they_are() {
        assert_eq!(times(1, "call"), "1 call");
        assert_eq!(times(53_000, "call"), "53,000 calls");
        assert_eq!(share(212, 53_000), "0.4 %");
        assert_eq!(share(1, 53_000), "under 0.1 %");
        assert_eq!(share(0, 0), "0 %");
    }
}

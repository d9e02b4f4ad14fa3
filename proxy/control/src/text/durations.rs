//! Numbers and durations in readable form.

pub use lockwarden_lock::time::in_words as duration;

use super::numbers::counted;

/// `250ms`, `30s`, `2m`, `25h`, `7d`: as in the configuration.
pub fn toml_duration(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit));
    match whole {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
    }
}

/// `1 call`, `53,000 calls`.
pub fn times(count: u64, thing: &str) -> String {
    counted(count, thing, &format!("{thing}s"))
}

/// `0.4 %`; a value above zero is never shown as 0.
pub fn share(part: u64, whole: u64) -> String {
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
    fn counts_have_thousands_and_shares_are_never_less_than_they_are() {
        assert_eq!(times(1, "call"), "1 call");
        assert_eq!(times(53_000, "call"), "53,000 calls");
        assert_eq!(share(212, 53_000), "0.4 %");
        assert_eq!(share(1, 53_000), "under 0.1 %");
        assert_eq!(share(0, 0), "0 %");
    }
}

//! How the board words durations and commands, so that people and screen readers take them in
//! at a glance.

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
    fn a_text_within_a_command_line_does_not_end_it() {
        assert_eq!(shell("it's $HOME"), r"'it'\''s $HOME'");
    }
}

//! How the board words what is to be typed.

/// A word of a command line that a shell passes on as it stands.
pub(super) fn shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_within_a_command_line_does_not_end_it() {
        assert_eq!(shell("it's $HOME"), r"'it'\''s $HOME'");
    }
}

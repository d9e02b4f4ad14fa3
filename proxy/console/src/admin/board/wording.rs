//! How the board words commands to type.

/// One word of a command line, quoted so that a shell passes it on unchanged.
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

//! Makes text that clients have chosen safe to use in a configuration.

use std::fmt::Write;

/// The longest name of a namespace or a guard, bytes.
const MAX_NAME: usize = 40;

/// Whether this character may occur in a name.
pub(crate) fn is_name_byte(byte: char) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, '_' | '.' | '-')
}

/// This name (or `otherwise` if it is empty), cut to a readable length. If it is in use, the next free one like it.
pub fn free_name(mut name: String, otherwise: &str, used: &[String]) -> String {
    name.truncate(MAX_NAME);
    if name.is_empty() {
        name.push_str(otherwise);
    }
    let numbered = |number: usize| format!("{name}-{number}");
    let mut names = std::iter::once(name.clone()).chain((2..).map(numbered));
    let free = names.find(|name| !used.contains(name));
    free.expect("there are more numbers than names")
}

/// A TOML string. Clients choose the names of keys, so no part of them may end the string.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for one in text.chars() {
        match one {
            '"' | '\\' => quoted.extend(['\\', one]),
            one if one.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(one));
            }
            one => quoted.push(one),
        }
    }
    quoted.push('"');
    quoted
}

/// Text for a comment of one line.
pub(crate) fn line(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '?' } else { one }).collect()
}

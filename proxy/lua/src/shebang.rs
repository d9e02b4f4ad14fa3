//! The shebang line of a script, `#!lua …`: Redis 7 reads it, and Lua never sees it.

/// Splits a text after its first line if that begins with `#!`; otherwise the first part is empty. The line keeps its
/// line end.
pub fn shebang_and_chunk(text: &[u8]) -> (&[u8], &[u8]) {
    if !text.starts_with(b"#!") {
        return (b"", text);
    }
    let end = text.iter().position(|byte| *byte == b'\n');
    text.split_at(end.map_or(text.len(), |end| end + 1))
}

/// Whether the first line is `#!lua flags=no-writes,…`. A line with anything unusual in it does not count: a control
/// character such as NUL, where the server may stop reading, quotes, which it interprets, or an unknown option.
pub(super) fn says_no_writes(text: &[u8]) -> bool {
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
        return false;
    };
    let Some(options) = text[..end].strip_prefix(b"#!lua ") else {
        return false;
    };
    let plain = |byte: &u8| matches!(byte, b' ' | b'a'..=b'z' | b'-' | b'=' | b',');
    if !options.iter().all(plain) {
        return false;
    }
    let mut no_writes = false;
    for option in options.split(|byte| *byte == b' ') {
        if option.is_empty() {
            continue;
        }
        let Some(flags) = option.strip_prefix(b"flags=") else {
            return false;
        };
        no_writes |= flags.split(|byte| *byte == b',').any(|flag| flag == b"no-writes");
    }
    no_writes
}

//! Splits a transcript's line into arguments: blanks separate, `"…"` with `\n \r \t \" \\ \xHH` and `'…'`
//! hold together. Panics on an unbalanced quote, which is a mistake of the test.

/// The arguments of one command line.
#[track_caller]
pub fn split(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.bytes().peekable();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        let Some(first) = rest.peek().copied() else {
            return words;
        };
        let mut word = Vec::new();
        if first == b'"' || first == b'\'' {
            rest.next();
            loop {
                match rest.next() {
                    None => panic!("unbalanced quote in {line:?}"),
                    Some(byte) if byte == first => break,
                    Some(b'\\') if first == b'"' => word.push(escaped(&mut rest, line)),
                    Some(byte) => word.push(byte),
                }
            }
        } else {
            while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace()) {
                word.push(byte);
            }
        }
        words.push(word);
    }
}

#[track_caller]
fn escaped(rest: &mut impl Iterator<Item = u8>, line: &str) -> u8 {
    match rest.next() {
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'x') => {
            let digits: String = rest.by_ref().take(2).map(char::from).collect();
            u8::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("\\x{digits} is no byte in {line:?}"))
        }
        Some(byte) => byte,
        None => panic!("a backslash ends {line:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_together_and_escapes_name_bytes() {
        assert_eq!(split(r#"SET  "a b" '\x41' "\x41\r\n" """#), [&b"SET"[..], b"a b", b"\\x41", b"A\r\n", b""]);
    }
}

//! Which records may be judged. A record begins with the oldest version of the layout whose readers may judge it, so
//! that two versions of lockwarden before one Redis never misinterpret each other's records: see `docs/lock-record.md`.

/// The version that is written, and the highest that is judged.
pub const VERSION: u8 = b'1';

/// The version that a record requires of its readers, if it is above ours: a digit, followed by a state.
pub fn later_version(record: &[u8]) -> Option<u8> {
    match record {
        [version @ b'2'..=b'9', state, ..] if state.is_ascii_uppercase() => Some(*version),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_later_version_has_a_digit_and_a_state() {
        assert_eq!(later_version(b"2L@"), Some(b'2'));
        assert_eq!(later_version(b"9R"), Some(b'9'));
        for other in [&b"1L@"[..], b"2", b"2l", b"20", b"xL", b"", b":L"] {
            assert_eq!(later_version(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}

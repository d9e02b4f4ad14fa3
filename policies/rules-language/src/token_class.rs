//! The form of an owner token. Only the form is revealed, never the content.

use alloc::vec;
use alloc::vec::Vec;

/// Every class; `none` if a command carries no owner token.
pub(crate) const CLASSES: [&str; 6] = ["none", "uuid", "hex", "number", "deadline", "other"];

/// The longest owner token whose bytes are examined: a longer one can only have the forms `hex` and `number` below,
/// which reveal nothing about such a long token.
const MAX_LOOKED_AT: usize = 128;

/// The class of an owner token.
#[must_use]
pub fn class(token: Option<&[u8]>) -> &'static str {
    let Some(token) = token else {
        return "none";
    };
    if token.is_empty() || token.len() > MAX_LOOKED_AT {
        return "other";
    }
    if is_uuid(token) {
        "uuid"
    } else if is_deadline(token) {
        "deadline"
    } else if token.strip_prefix(b"-").unwrap_or(token).iter().all(u8::is_ascii_digit) && token != b"-" {
        "number"
    } else if token.iter().all(u8::is_ascii_hexdigit) {
        "hex"
    } else {
        "other"
    }
}

/// Two owner tokens of this class and length that have nothing else in common: a decision that differs between them
/// depends on a token's content. `None` if the class has none of this length.
#[must_use]
pub fn stand_ins(class: &str, length: usize) -> Option<[Vec<u8>; 2]> {
    let of = |digit: u8| {
        let mut token = vec![digit; length];
        match (class, length) {
            ("uuid", 36) => [8, 13, 18, 23].into_iter().for_each(|place| token[place] = b'-'),
            ("deadline", 12..) if length != 13 => token[10] = b'.',
            // Only digits would make it a deadline.
            ("number", 10 | 13) => token[0] = b'-',
            _ => {}
        }
        token
    };
    let digits = match class {
        "number" | "deadline" => [b'1', b'2'],
        "uuid" | "hex" => [b'a', b'b'],
        _ => [b'x', b'y'],
    };
    let both = digits.map(of);
    both.iter().all(|token| self::class(Some(token)) == class).then_some(both)
}

/// The most bytes that finding the class examines.
pub(crate) const CLASS_STEPS: u64 = 4 * MAX_LOOKED_AT as u64;

/// 32 hex digits, plain or as 8-4-4-4-12. Any version: libraries produce all of them.
fn is_uuid(token: &[u8]) -> bool {
    match token.len() {
        32 => token.iter().all(u8::is_ascii_hexdigit),
        36 => token.iter().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        }),
        _ => false,
    }
}

/// A Unix time in seconds or milliseconds, with or without a fraction: like `looks_like_deadline` of the domain.
fn is_deadline(token: &[u8]) -> bool {
    let mut parts = token.splitn(2, |byte| *byte == b'.');
    let whole = parts.next().unwrap_or_default();
    let fraction_fits =
        parts.next().is_none_or(|fraction| !fraction.is_empty() && fraction.iter().all(u8::is_ascii_digit));
    matches!(whole.len(), 10 | 13) && whole.iter().all(u8::is_ascii_digit) && fraction_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_are_of_the_class() {
        for token in [
            &b"1"[..],
            b"-1",
            b"-123456789",
            b"12345678901234567890",
            b"1764154800",
            b"1764154800123",
            b"1764154800.25",
            b"1764154800.2512345",
            b"1764154800123.2512345",
            b"6f9619ff-8b86-d011-b42d-00c04fc964ff",
            b"6F9619FF8B86D011B42D00C04FC964FF",
            b"6f9619ff8b86d011",
            b"worker-1",
            &[b'a'; 129],
        ] {
            let [one, other] = stand_ins(class(Some(token)), token.len()).expect("there is one");
            assert_eq!((one.len(), class(Some(&one))), (token.len(), class(Some(token))), "{token:?}");
            assert_ne!(one, other);
        }
        assert_eq!(stand_ins("other", 0), Some([vec![], vec![]]));
        assert_eq!(stand_ins("uuid", 7), None);
        assert_eq!(stand_ins("deadline", 3), None);
        assert_eq!(stand_ins("none", 3), None);
    }

    #[test]
    fn an_owner_token_is_told_by_its_form() {
        for (token, want) in [
            (None, "none"),
            (Some(&b""[..]), "other"),
            (Some(b"1"), "number"),
            (Some(b"-1"), "number"),
            (Some(b"-"), "other"),
            (Some(b"1764154800"), "deadline"),
            (Some(b"1764154800123"), "deadline"),
            (Some(b"1764154800.25"), "deadline"),
            (Some(b"1764154800."), "other"),
            (Some(b"17641548001"), "number"),
            (Some(b"6f9619ff-8b86-d011-b42d-00c04fc964ff"), "uuid"),
            (Some(b"6F9619FF8B86D011B42D00C04FC964FF"), "uuid"),
            (Some(b"6f9619ff-8b86-d011-b42d_00c04fc964ff"), "other"),
            (Some(b"6f9619ff8b86d011"), "hex"),
            (Some(b"worker-1"), "other"),
            (Some(&[b'a'; 129]), "other"),
            (Some(&[0xff; 36]), "other"),
        ] {
            assert_eq!(class(token), want, "{token:?}");
            assert!(CLASSES.contains(&want));
        }
    }
}

//! What an owner token looks like. Only its form is told, never what it says.

/// Every class, `none` where a command carries no owner token.
pub(crate) const CLASSES: [&str; 6] = ["none", "uuid", "hex", "number", "deadline", "other"];

/// The longest owner token whose bytes are looked at: a longer one is none of the forms below but `hex` and `number`,
/// which say nothing of such a long one.
const MAX_LOOKED_AT: usize = 128;

/// The class of an owner token.
pub(crate) fn class(token: Option<&[u8]>) -> &'static str {
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

/// The most bytes that finding out the class looks at.
pub(crate) const CLASS_STEPS: u64 = 4 * MAX_LOOKED_AT as u64;

/// 32 hex digits, as they stand or as 8-4-4-4-12. Any version: libraries write all of them.
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

/// A Unix time in seconds or milliseconds, with a fraction or without: as `looks_like_deadline` of the domain has it.
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

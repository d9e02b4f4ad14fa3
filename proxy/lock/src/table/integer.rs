//! Numbers as Redis reads them from arguments. Nothing here is lenient: this code and Redis accept exactly the same
//! strings.

/// Not an integer in Redis's spelling, or not within 64 bits. Prints as Redis's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERR value is not an integer or out of range")]
pub struct NotAnInteger;

/// The longest integer, `-9223372036854775808`.
const MAX_INTEGER_BYTES: usize = 20;

/// Reads a decimal integer: an optional `-`, no `+`, no leading zero, no blanks, no `-0`.
///
/// # Errors
/// Anything else, or a value outside of 64 bits with sign.
pub fn parse_integer(bytes: &[u8]) -> Result<i64, NotAnInteger> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Ok(0),
        [b'1'..=b'9', ..] if bytes.len() <= MAX_INTEGER_BYTES => {}
        _ => return Err(NotAnInteger),
    }
    // Counted downwards, because the smallest integer has no positive counterpart.
    let value = digits.iter().try_fold(0_i64, |value, &digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_sub(i64::from(digit - b'0')),
        _ => None,
    });
    let value = value.ok_or(NotAnInteger)?;
    if negative { Ok(value) } else { value.checked_neg().ok_or(NotAnInteger) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{NotAnInteger, parse_integer};

    #[test]
    fn only_canonical_decimals_within_64_bits_are_integers() {
        for (text, value) in
            [("0", 0), ("7", 7), ("-7", -7), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(parse_integer(text.as_bytes()), Ok(value), "{text}");
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            "00",
            " 1",
            "1 ",
            "1\0",
            "1.0",
            "1e3",
            "0x1",
            "--1",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
            "100000000000000000000",
            "\u{661}",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), Err(NotAnInteger), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(value in any::<i64>()) {
            prop_assert_eq!(parse_integer(value.to_string().as_bytes()), Ok(value));
        }

        #[test]
        fn what_is_read_is_canonical(text in "[-+0-9 ]{0,21}") {
            if let Ok(value) = parse_integer(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}

//! The spellings of single values: addresses, durations, sizes, names. Pure functions from text to a
//! checked value or to a sentence that says what a valid one looks like; where the text stood is
//! known to `reader` and `overrides`, which call these.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;

use super::suggest::quoted;

/// Longest glob, in bytes.
const MAX_GLOB: usize = 1024;

/// `127.0.0.1:6380`, `[::1]:6380`, `0.0.0.0:6380`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let shown = quoted(text);
    let host_and_port = text.rsplit_once(':');
    let port = host_and_port.and_then(|(_, port)| port.parse::<u16>().ok());
    Err(match (host_and_port, port) {
        _ if text.parse::<IpAddr>().is_ok() => {
            format!("{shown} has no port; write one behind it, as in \"127.0.0.1:6380\"")
        }
        _ if text.parse::<u16>().is_ok() => {
            format!("{shown} is only a port; write \"127.0.0.1:{text}\"")
        }
        (Some(("", _)), Some(port)) => format!(
            "{shown} has no IP address; write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for \
             every interface"
        ),
        (Some(("localhost", _)), Some(port)) => {
            format!("{shown} is a host name; write \"127.0.0.1:{port}\"")
        }
        _ => format!("{shown} is not an IP address and a port; write e.g. \"127.0.0.1:6380\""),
    })
}

/// An address, or `off`.
pub(super) fn address_or_off(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        _ => address(text)
            .map(Some)
            .map_err(|error| format!("{error}, or \"off\"")),
    }
}

/// `true` or `false` where only text is possible.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("{} is not true or false", quoted(text))),
    }
}

/// A whole number and its unit: `250ms`, `30s`, `5m`, `24h`, `7d`.
pub(super) fn duration(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    let millis_of_one = |unit| {
        Some(match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000_u64,
            _ => return None,
        })
    };
    let (number, unit) = number_and_unit(text);
    let millis = millis_of_one(unit)
        .and_then(|one| number.parse::<u64>().ok()?.checked_mul(one))
        .ok_or_else(|| {
            let like = shown_duration(*range.end());
            format!(
                "{} is not a duration; write a whole number and ms, s, m, h or d, as in \"{like}\"",
                quoted(text)
            )
        })?;
    let duration = Duration::from_millis(millis);
    if range.contains(&duration) {
        Ok(duration)
    } else {
        let (least, most) = (shown_duration(*range.start()), shown_duration(*range.end()));
        Err(format!("{} is outside {least} to {most}", quoted(text)))
    }
}

/// A duration that a policy has checked, in milliseconds.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let duration = duration(text.trim(), Duration::ZERO..=Duration::MAX).ok()?;
    u64::try_from(duration.as_millis()).ok()
}

/// A whole number and its binary unit: `512KiB`, `8MiB`.
pub(super) fn size(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let (number, unit) = number_and_unit(text);
    let shift = match unit {
        "B" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    let bytes = shift.and_then(|shift| number.parse::<usize>().ok()?.checked_mul(1 << shift));
    let Some(bytes) = bytes else {
        return Err(format!(
            "{} is not a size; write a whole number and B, KiB, MiB or GiB, as in \"8MiB\"",
            quoted(text)
        ));
    };
    if range.contains(&bytes) {
        Ok(bytes)
    } else {
        let (least, most) = (shown_size(*range.start()), shown_size(*range.end()));
        Err(format!("{} is outside {least} to {most}", quoted(text)))
    }
}

/// A name for namespaces and policies: it appears in metric labels, flags and records.
pub(super) fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{} is not a name; use 1 to 64 of A-Z a-z 0-9 _ . -",
            quoted(text)
        ))
    }
}

/// A SHA-256 in hexadecimal.
pub(super) fn sha256(text: &str) -> Result<[u8; 32], String> {
    let wrong = || {
        format!(
            "{} is not a SHA-256; write the 64 hex digits that `sha256sum` prints",
            quoted(text)
        )
    };
    let mut sum = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (byte, digits) in sum.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(sum)
}

/// The prefix of companion keys. Braces would be read as a hash tag in front of our own.
pub(super) fn companion_prefix(text: &str) -> Result<Bytes, String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
    if (1..=32).contains(&text.len()) && text.bytes().all(plain) {
        Ok(Bytes::copy_from_slice(text.as_bytes()))
    } else {
        Err(format!(
            "{} cannot be a prefix; use 1 to 32 printable ASCII characters without spaces and \
             braces, as in \"lw:\"",
            quoted(text)
        ))
    }
}

/// Every byte string is a valid Redis glob; only its length is bounded.
pub(super) fn glob(text: &str) -> Result<Bytes, String> {
    match text.len() <= MAX_GLOB {
        true => Ok(Bytes::copy_from_slice(text.as_bytes())),
        false => Err(format!("{} is longer than {MAX_GLOB} bytes", quoted(text))),
    }
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start_matches(' '))
}

fn shown_duration(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis % 60_000 == 0 && millis > 0 => format!("{}m", millis / 60_000),
        millis if millis % 1000 == 0 => format!("{}s", millis / 1000),
        millis => format!("{millis}ms"),
    }
}

fn shown_size(bytes: usize) -> String {
    match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{}MiB", bytes >> 20),
        bytes => format!("{}KiB", bytes >> 10),
    }
}

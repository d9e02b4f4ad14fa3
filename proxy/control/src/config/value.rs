//! Parses single values: addresses, durations, sizes, names. Pure functions from text to a checked value, or to an
//! error that prints as a sentence describing a valid value. `reader` and `overrides`, which call these, know the
//! position of the text.

use lockwarden_lock::rules::HolderLost;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;

use super::suggest::quoted;

/// Longest glob, in bytes.
const MAX_GLOB: usize = 1024;

/// Why a text is not an IP address and a port.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddressError {
    #[error("{} has no port; write one behind it, as in \"127.0.0.1:6380\"", quoted(.0))]
    NoPort(String),
    #[error("{} is only a port; write \"127.0.0.1:{text}\"", quoted(text))]
    OnlyPort { text: String },
    #[error(
        "{} has no IP address; write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for every interface",
        quoted(text)
    )]
    NoHost { text: String, port: u16 },
    #[error("{} is a host name; write \"127.0.0.1:{port}\"", quoted(text))]
    HostName { text: String, port: u16 },
    #[error("{} is not an IP address and a port; write e.g. \"127.0.0.1:6380\"", quoted(.0))]
    Other(String),
}

/// Why a text is neither an address nor `off`.
#[derive(Debug, thiserror::Error)]
#[error("{0}, or \"off\"")]
pub(super) struct AddressOrOffError(AddressError);

/// Why a text is not a valid value for a key.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    #[error("{} is not true or false", quoted(.0))]
    Boolean(String),
    #[error(
        "{} is not a duration; write a whole number and ms, s, m, h or d, as in \"{}\"",
        quoted(text),
        shown_duration(*like)
    )]
    Duration { text: String, like: Duration },
    #[error("{} is not a size; write a whole number and B, KiB, MiB or GiB, as in \"8MiB\"", quoted(.0))]
    Size(String),
    #[error("{} is outside {least} to {most}", quoted(text))]
    OutOfRange { text: String, least: String, most: String },
    #[error("{} is not a name; use 1 to 64 of A-Z a-z 0-9 _ . -", quoted(.0))]
    Name(String),
    #[error("{} is not a SHA-256; write the 64 hex digits that `sha256sum` prints", quoted(.0))]
    Sha256(String),
    #[error(
        "{} cannot be a prefix; use 1 to 32 printable ASCII characters without spaces and braces, as in \"lw:\"",
        quoted(.0)
    )]
    CompanionPrefix(String),
    #[error("{} is neither \"keep\" nor as \"shorten:2s\"", quoted(.0))]
    HolderLost(String),
    #[error("{} is longer than {MAX_GLOB} bytes", quoted(.0))]
    Glob(String),
}

/// `127.0.0.1:6380`, `[::1]:6380`, `0.0.0.0:6380`.
pub(super) fn address(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let host_and_port = text.rsplit_once(':');
    let port = host_and_port.and_then(|(_, port)| port.parse::<u16>().ok());
    let is_only_ip = text.parse::<IpAddr>().is_ok();
    let is_only_port = text.parse::<u16>().is_ok();
    let text = text.to_owned();
    Err(match (host_and_port, port) {
        _ if is_only_ip => AddressError::NoPort(text),
        _ if is_only_port => AddressError::OnlyPort { text },
        (Some(("", _)), Some(port)) => AddressError::NoHost { text, port },
        (Some(("localhost", _)), Some(port)) => AddressError::HostName { text, port },
        _ => AddressError::Other(text),
    })
}

/// An address, or `off`.
pub(super) fn address_or_off(text: &str) -> Result<Option<SocketAddr>, AddressOrOffError> {
    match text {
        "off" => Ok(None),
        _ => address(text).map(Some).map_err(AddressOrOffError),
    }
}

/// `true` or `false`, where only text is possible.
pub(super) fn boolean(text: &str) -> Result<bool, ValueError> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(ValueError::Boolean(text.to_owned())),
    }
}

/// A whole number and its unit: `250ms`, `30s`, `5m`, `24h`, `7d`.
pub(super) fn duration(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, ValueError> {
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
        .ok_or_else(|| ValueError::Duration { text: text.to_owned(), like: *range.end() })?;
    in_range(Duration::from_millis(millis), text, range, shown_duration)
}

/// The same, or `off`.
pub(super) fn duration_or_off(text: &str, range: RangeInclusive<Duration>) -> Result<Option<Duration>, ValueError> {
    match text {
        "off" => Ok(None),
        _ => duration(text, range).map(Some),
    }
}

/// What happens to a lease whose holder is gone: `keep`, or `shorten:2s`.
pub(super) fn holder_lost(text: &str) -> Result<HolderLost, ValueError> {
    let Some(time) = text.strip_prefix("shorten:") else {
        return match text {
            "keep" => Ok(HolderLost::Keep),
            _ => Err(ValueError::HolderLost(text.to_owned())),
        };
    };
    // A client with a short network failure needs that time to reconnect, and no client waits for a lock for longer
    // than a day.
    let time = duration(time, Duration::from_secs(1)..=Duration::from_secs(86_400))?;
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(HolderLost::Shorten { ms })
}

/// A duration that a policy has already checked, in milliseconds.
pub fn milliseconds(text: &str) -> Option<u64> {
    let duration = duration(text.trim(), Duration::ZERO..=Duration::MAX).ok()?;
    u64::try_from(duration.as_millis()).ok()
}

/// A whole number and its binary unit: `512KiB`, `8MiB`.
pub(super) fn size(text: &str, range: RangeInclusive<usize>) -> Result<usize, ValueError> {
    let (number, unit) = number_and_unit(text);
    let shift = match unit {
        "B" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    let bytes = shift
        .and_then(|shift| number.parse::<usize>().ok()?.checked_mul(1 << shift))
        .ok_or_else(|| ValueError::Size(text.to_owned()))?;
    in_range(bytes, text, range, shown_size)
}

fn in_range<T: PartialOrd + Copy>(
    value: T,
    text: &str,
    range: RangeInclusive<T>,
    shown: fn(T) -> String,
) -> Result<T, ValueError> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(ValueError::OutOfRange {
            text: text.to_owned(),
            least: shown(*range.start()),
            most: shown(*range.end()),
        }),
    }
}

/// A name for namespaces and policies: it appears in metric labels, flags and records.
pub(super) fn name(text: &str) -> Result<String, ValueError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(ValueError::Name(text.to_owned()))
    }
}

/// A SHA-256 in hexadecimal.
pub(super) fn sha256(text: &str) -> Result<[u8; 32], ValueError> {
    let wrong = || ValueError::Sha256(text.to_owned());
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

/// The prefix of companion keys. Braces in it would be taken for a hash tag before our own.
pub(super) fn companion_prefix(text: &str) -> Result<Bytes, ValueError> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
    if (1..=32).contains(&text.len()) && text.bytes().all(plain) {
        Ok(Bytes::copy_from_slice(text.as_bytes()))
    } else {
        Err(ValueError::CompanionPrefix(text.to_owned()))
    }
}

/// Every byte string is a valid Redis glob; only its length is bounded.
pub(super) fn glob(text: &str) -> Result<Bytes, ValueError> {
    match text.len() <= MAX_GLOB {
        true => Ok(Bytes::copy_from_slice(text.as_bytes())),
        false => Err(ValueError::Glob(text.to_owned())),
    }
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
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

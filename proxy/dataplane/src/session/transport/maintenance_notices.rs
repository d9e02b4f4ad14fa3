//! Notices of maintenance (`CLIENT MAINT_NOTIFICATIONS`), by which a managed Redis tells a client where to connect: a
//! client that follows one leaves the proxy, and its locks are not governed any more. So the server is asked for
//! notices without addresses; on these a client connects again to the address that it used before. A notice with an
//! address is not passed to the client, which then connects again when the server closes the connection.

use bytes::Bytes;
use lockwarden_resp::{Elements, bulk_text};

/// The option that says which kind of address a client wants to be told.
const ENDPOINT_TYPE: &[u8] = b"moving-endpoint-type";

/// The request with these words after `CLIENT`, changed to ask for no addresses; `None` if it asks for no notices.
pub(crate) fn without_addresses(words: &[Bytes]) -> Option<Vec<&[u8]>> {
    let [_, switch, options @ ..] = words else {
        return None;
    };
    if !switch.eq_ignore_ascii_case(b"ON") {
        return None;
    }
    let mut asked: Vec<&[u8]> = vec![&words[0], switch];
    let mut is_named = false;
    for option in options.chunks(2) {
        match option {
            [name, _] if name.eq_ignore_ascii_case(ENDPOINT_TYPE) => {
                asked.extend([&name[..], b"none"]);
                is_named = true;
            }
            // Redis gives the error for an option without a value.
            _ => asked.extend(option.iter().map(|word| &word[..])),
        }
    }
    if !is_named && options.len().is_multiple_of(2) {
        asked.extend([ENDPOINT_TYPE, b"none"]);
    }
    Some(asked)
}

/// Whether a frame that was not asked for would send its client to another server.
pub(super) fn names_another_server(frame: &[u8]) -> bool {
    // Only RESP3 has such notices; messages of RESP2 are arrays.
    let places = frame.starts_with(b">").then(|| Elements::of(frame));
    let Some(mut places) = places.flatten() else {
        return false;
    };
    let mut next = || places.next().map(|place| &frame[place]);
    let Some(kind) = next() else { return false };
    match text(kind) {
        // MOVING sequence seconds address
        Some(b"MOVING") => {
            let address = (next(), next(), next()).2;
            address.is_some_and(|address| text(address).is_some_and(|text| !text.is_empty()))
        }
        // SMIGRATED sequence moves, each with its two addresses
        Some(b"SMIGRATED") => true,
        Some(_) | None => false,
    }
}

/// The text of a string in either form.
fn text(element: &[u8]) -> Option<&[u8]> {
    match element.strip_prefix(b"+") {
        Some(line) => line.strip_suffix(b"\r\n"),
        None => bulk_text(element),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_notices_asks_for_no_addresses() {
        for (asked, expected) in [
            (
                "MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip",
                Some("MAINT_NOTIFICATIONS ON moving-endpoint-type none"),
            ),
            (
                "maint_notifications on x y MOVING-ENDPOINT-TYPE external-fqdn z 1",
                Some("maint_notifications on x y MOVING-ENDPOINT-TYPE none z 1"),
            ),
            ("MAINT_NOTIFICATIONS ON", Some("MAINT_NOTIFICATIONS ON moving-endpoint-type none")),
            ("MAINT_NOTIFICATIONS ON moving-endpoint-type", Some("MAINT_NOTIFICATIONS ON moving-endpoint-type")),
            ("MAINT_NOTIFICATIONS OFF", None),
            ("MAINT_NOTIFICATIONS", None),
        ] {
            let words: Vec<_> = asked.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
            let expected = expected.map(|line| line.split(' ').map(str::as_bytes).collect());
            assert_eq!(without_addresses(&words), expected, "{asked}");
        }
    }

    #[test]
    fn only_notices_with_an_address_lead_away() {
        for (frame, expected) in [
            (">4\r\n$6\r\nMOVING\r\n:15\r\n:30\r\n$9\r\n10.0.0.1:\r\n", true),
            (">4\r\n+MOVING\r\n:15\r\n:30\r\n+a:1\r\n", true),
            (">4\r\n$6\r\nMOVING\r\n:15\r\n:30\r\n_\r\n", false),
            (">4\r\n$6\r\nMOVING\r\n:15\r\n:30\r\n$-1\r\n", false),
            (">4\r\n$6\r\nMOVING\r\n:15\r\n:30\r\n$0\r\n\r\n", false),
            (">3\r\n$6\r\nMOVING\r\n:15\r\n:30\r\n", false),
            (">3\r\n$9\r\nSMIGRATED\r\n:15\r\n*0\r\n", true),
            (">4\r\n$9\r\nMIGRATING\r\n:15\r\n:30\r\n$1\r\n3\r\n", false),
            (">3\r\n$7\r\nmessage\r\n$6\r\nMOVING\r\n$3\r\na:1\r\n", false),
            (">2\r\n$10\r\ninvalidate\r\n_\r\n", false),
            ("+MOVING\r\n", false),
            ("*4\r\n$6\r\nMOVING\r\n:15\r\n:30\r\n+a:1\r\n", false),
            (">0\r\n", false),
        ] {
            let found = names_another_server(frame.as_bytes());
            assert_eq!(found, expected, "{frame:?}");
        }
    }
}

//! A cluster node's reply to a request whose keys it does not have, or only in part.

/// The kind of reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect<'a> {
    /// `-MOVED`: another node has the slot; its host and port.
    Moved(&'a [u8], u16),
    /// `-ASK`: the slot is moving, and these keys are on another node, or nowhere; that node's host and port. The host
    /// is empty if this node does not know it.
    Ask(&'a [u8], u16),
    /// `-TRYAGAIN`: the slot is moving, and some of the keys are here.
    TryAgain,
    /// `-CLUSTERDOWN`: for now no node serves the slot.
    Down,
}

impl Redirect<'_> {
    /// Reads an error frame; `None` for any other frame.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Redirect<'_>> {
        if frame.first() != Some(&b'-') {
            return None;
        }
        if frame.starts_with(b"-TRYAGAIN") {
            return Some(Redirect::TryAgain);
        }
        if frame.starts_with(b"-CLUSTERDOWN") {
            return Some(Redirect::Down);
        }
        if let Some(rest) = frame.strip_prefix(b"-MOVED ") {
            return place(rest).map(|(host, port)| Redirect::Moved(host, port));
        }
        place(frame.strip_prefix(b"-ASK ")?).map(|(host, port)| Redirect::Ask(host, port))
    }
}

/// Host and port in `3999 127.0.0.1:6381`.
fn place(rest: &[u8]) -> Option<(&[u8], u16)> {
    let rest = rest.strip_suffix(b"\r\n").unwrap_or(rest);
    let place = &rest[rest.iter().position(|&byte| byte == b' ')? + 1..];
    // The last colon: an IPv6 address has more of them.
    let colon = place.iter().rposition(|&byte| byte == b':')?;
    let port = std::str::from_utf8(&place[colon + 1..]).ok()?.parse().ok()?;
    Some((&place[..colon], port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_slots_are_read() {
        for (frame, expected) in [
            ("-ASK 3999 127.0.0.1:6381\r\n", Some(Redirect::Ask(b"127.0.0.1", 6381))),
            ("-ASK 3999 ::1:6381", Some(Redirect::Ask(b"::1", 6381))),
            ("-ASK 3999 node-1.corp:7000\r\n", Some(Redirect::Ask(b"node-1.corp", 7000))),
            ("-ASK 3999 :7000\r\n", Some(Redirect::Ask(b"", 7000))),
            ("-TRYAGAIN Multiple keys request during rehashing of slot\r\n", Some(Redirect::TryAgain)),
            ("-ASK 3999 127.0.0.1:66666\r\n", None),
            ("-ASK 3999 127.0.0.1\r\n", None),
            ("-ASK \r\n", None),
            ("-ASKING\r\n", None),
            ("-MOVED 3999 127.0.0.1:6381\r\n", Some(Redirect::Moved(b"127.0.0.1", 6381))),
            ("-MOVED 3999 :6381\r\n", Some(Redirect::Moved(b"", 6381))),
            ("-MOVED 3999\r\n", None),
            ("-CLUSTERDOWN Hash slot not served\r\n", Some(Redirect::Down)),
            ("$4\r\n-ASK\r\n", None),
            ("", None),
        ] {
            assert_eq!(Redirect::of(frame.as_bytes()), expected, "{frame}");
        }
    }
}

//! Clients that look for replicas and read from them (Lettuce's `MasterReplica`): they do so past the proxy, which
//! can only count that replicas were named to them. The reply is not changed.

use lockwarden_resp::{Elements, Request, bulk_text};
use memchr::memmem;

/// Whether a request asks for the replicas: `ROLE`, `INFO replication`. A request for all of `INFO` comes from a
/// monitoring program, and does not count.
pub(crate) fn asks_for_them(request: &Request<'_>) -> bool {
    let name = request.name();
    if name.len() != 4 {
        return false;
    }
    let says = |at, word: &[u8]| {
        let said = request.get(at);
        said.is_some_and(|said| said.eq_ignore_ascii_case(word))
    };
    (request.len() == 1 && says(0, b"ROLE")) || (request.len() == 2 && says(0, b"INFO") && says(1, b"replication"))
}

/// Whether an answer names any.
pub(crate) fn names_any(frame: &[u8]) -> bool {
    if let Some(info) = bulk_text(frame) {
        return memmem::find(info, b"\nslave0:").is_some();
    }
    // master offset replicas
    let replicas = Elements::of(frame).and_then(|mut all| all.nth(2));
    replicas.and_then(|place| Elements::of(&frame[place])).is_some_and(|mut all| all.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_name_replicas_are_told_from_those_that_do_not() {
        let one = "*3\r\n$6\r\nmaster\r\n:9\r\n*1\r\n*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n9\r\n";
        for (frame, expected) in [
            (one, true),
            ("*3\r\n$6\r\nmaster\r\n:9\r\n*0\r\n", false),
            ("*5\r\n$5\r\nslave\r\n$1\r\na\r\n:1\r\n$1\r\nx\r\n:9\r\n", false),
            ("$29\r\n# Replication\r\nslave0:ip=a\r\n\r\n", true),
            ("$27\r\n# Replication\r\nrole:master\r\n", false),
            ("-NOPERM no\r\n", false),
            ("$-1\r\n", false),
        ] {
            assert_eq!(names_any(frame.as_bytes()), expected, "{frame:?}");
        }
    }
}

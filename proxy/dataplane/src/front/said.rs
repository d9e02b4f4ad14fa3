//! What a client has said of its connection, which sessions opened later have to be told.

use bytes::Bytes;

/// Bytes that a client may have set at most; more is not repeated to sessions opened later.
const MAX_SAID: usize = 16 * 1024;
/// The kind of `CLIENT TRACKING`.
pub(super) const TRACKING: &[u8] = b"TRACKING";

/// `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    On,
    Off,
    /// Not to the next request.
    SkipNext,
}

impl Reply {
    /// Whether the next request is answered.
    pub(super) fn next(&mut self) -> bool {
        match *self {
            Reply::On => true,
            Reply::Off => false,
            Reply::SkipNext => {
                *self = Reply::On;
                false
            }
        }
    }
}

/// What the client has said of itself, one request for each kind, in the order in which they were last said.
#[derive(Default)]
pub(super) struct Said {
    frames: Vec<(Vec<u8>, Bytes)>,
    /// Servers want a login, and the client has not logged in yet.
    pub(super) must_log_in: bool,
}

impl Said {
    pub(super) fn frames(&self) -> impl Iterator<Item = &Bytes> {
        self.frames.iter().map(|(_, frame)| frame)
    }

    /// A server has accepted this; it replaces what was said of the same kind.
    pub(super) fn note(&mut self, kind: &[u8], frame: &Bytes) {
        self.frames.retain(|(other, _)| other != kind);
        let so_far: usize = self.frames().map(Bytes::len).sum();
        if so_far + frame.len() <= MAX_SAID {
            self.frames.push((kind.to_owned(), frame.clone()));
        }
    }

    /// Whether servers report changes of keys that the client has read.
    pub(super) fn tracks(&self) -> bool {
        self.frames.iter().any(|(kind, _)| kind == TRACKING)
    }

    pub(super) fn clear(&mut self) {
        self.frames.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_kind_what_was_said_last_counts() {
        let mut said = Said::default();
        for (kind, frame) in [("HELLO AUTH", "1"), ("SETNAME", "2"), ("HELLO", "3"), ("SETNAME", "4")] {
            said.note(kind.as_bytes(), &Bytes::from_static(frame.as_bytes()));
        }
        said.note(b"LONG", &Bytes::from(vec![b'x'; MAX_SAID]));
        assert_eq!(said.frames().collect::<Vec<_>>(), ["1", "3", "4"]);
    }
}

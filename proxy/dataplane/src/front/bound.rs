//! What binds a client to one of its legs for a while: a block, subscriptions.

use bytes::Bytes;
use lockwarden_resp::{Protocol, Value, parse_reply};

/// A block that is being queued.
#[derive(Default)]
pub(super) struct Block {
    /// The leg on which it is queued, once that is known.
    pub(super) leg: Option<usize>,
    /// The slot of its keys.
    pub(super) slot: Option<u16>,
    /// The client was told an error that the server does not know of.
    pub(super) is_broken: bool,
}

impl Block {
    pub(super) fn is_on(&self, leg: usize) -> bool {
        self.leg == Some(leg)
    }
}

/// A client that listens on a leg.
#[derive(Default)]
pub(super) struct Listening {
    pub(super) at: usize,
    pub(super) channels: i64,
    pub(super) patterns: i64,
    /// Number of sharded channels: those in slots that the leg's server has.
    pub(super) sharded: i64,
    /// Confirmations that must come before it is known whether the client still listens.
    pub(super) awaited: i64,
}

impl Listening {
    pub(super) fn is_on(&self, leg: usize) -> bool {
        self.at == leg
    }

    /// Handles a confirmation, another reply, or an error in place of all confirmations that are due; a published
    /// message is none of these. Returns whether it is a confirmation about sharded channels.
    pub(super) fn hears(&mut self, frame: &Bytes) -> bool {
        if frame[0] == b'-' {
            self.awaited = 0;
            return false;
        }
        let mut is_sharded = false;
        let value = parse_reply(frame, Protocol::Resp3).unwrap_or(Value::Null);
        match value.as_items() {
            Some([Value::Bulk(kind), _, Value::Integer(count)]) if kind.ends_with(b"subscribe") => match &kind[..] {
                b"psubscribe" | b"punsubscribe" => self.patterns = count - self.channels,
                b"ssubscribe" => (self.sharded, is_sharded) = (*count, true),
                b"sunsubscribe" => {
                    (self.sharded, is_sharded) = (*count, true);
                    // There may have been fewer subscriptions than were known: a slot that moves ends subscriptions
                    // unasked.
                    self.awaited = if *count == 0 { 0 } else { self.awaited };
                }
                _ => self.channels = count - self.patterns,
            },
            Some([Value::Bulk(kind), ..]) if kind.ends_with(b"message") => return false,
            Some(_) | None => {}
        }
        self.awaited = (self.awaited - 1).max(0);
        is_sharded
    }

    /// Whether the client hears nothing on this leg, and will not.
    pub(super) fn is_over(&self) -> bool {
        self.awaited == 0 && self.channels + self.patterns + self.sharded == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_listens_until_the_last_subscription_is_confirmed_to_be_over() {
        let mut listening = Listening { awaited: 2, ..Listening::default() };
        for (kind, count, awaited, all) in [
            ("subscribe", 1, 1, 1),
            ("psubscribe", 2, 0, 2),
            ("message", 2, 0, 2),
            ("ssubscribe", 1, 0, 3),
            ("sunsubscribe", 0, 0, 2),
            ("unsubscribe", 1, 0, 1),
            ("punsubscribe", 0, 0, 0),
        ] {
            let frame = format!("*3\r\n${}\r\n{kind}\r\n$1\r\nc\r\n:{count}\r\n", kind.len());
            listening.hears(&Bytes::from(frame));
            let heard = listening.channels + listening.patterns + listening.sharded;
            assert_eq!((listening.awaited, heard), (awaited, all), "{kind}");
        }
        listening.awaited = 3;
        listening.hears(&Bytes::from_static(b"-NOPERM no\r\n"));
        assert_eq!(listening.awaited, 0);
    }
}

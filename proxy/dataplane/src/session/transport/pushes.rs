//! Frames that no request asked for: messages of subscriptions, invalidations, the feed of MONITOR; and the
//! confirmations of SUBSCRIBE and its family, of which one request has several. This module tells them apart from
//! replies. It keeps counts, no channel names.

use bytes::Bytes;
use lockwarden_lock::table::Channel;

/// A `SUBSCRIBE` or `UNSUBSCRIBE` whose confirmations are due.
#[derive(Debug)]
pub(crate) struct Channels {
    kind: Channel,
    subscribe: bool,
    /// Confirmations that are due; `None`: as many as there are subscriptions, counted when the first one comes.
    left: Option<u64>,
}

impl Channels {
    /// For a request that names this many channels.
    pub(crate) fn new(kind: Channel, subscribe: bool, named: usize) -> Channels {
        let left = (named > 0).then_some(named as u64);
        Channels { kind, subscribe, left }
    }

    fn word(&self) -> &'static [u8] {
        match (self.kind, self.subscribe) {
            (Channel::Channel, true) => b"subscribe",
            (Channel::Channel, false) => b"unsubscribe",
            (Channel::Pattern, true) => b"psubscribe",
            (Channel::Pattern, false) => b"punsubscribe",
            (Channel::Shard, true) => b"ssubscribe",
            (Channel::Shard, false) => b"sunsubscribe",
        }
    }
}

/// What a frame is to a request that waits for confirmations.
pub(crate) enum Confirmation {
    /// One of several.
    More,
    /// The last one, or an error in its place.
    Last,
    /// Not for it.
    Other,
}

/// What the connection may get without asking.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    resp3: bool,
    monitoring: bool,
    /// Subscriptions whose confirmations are due.
    confirming: u64,
    channels: u64,
    patterns: u64,
    shards: u64,
    /// Subscribed inside a transaction: the number of subscriptions is not known.
    unknown: bool,
}

impl Pushes {
    pub(crate) fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    pub(crate) fn set_monitoring(&mut self) {
        self.monitoring = true;
    }

    pub(crate) fn is_monitoring(&self) -> bool {
        self.monitoring
    }

    /// Whether the server takes hardly any command on this connection.
    pub(crate) fn takes_no_commands(&self) -> bool {
        self.monitoring || (!self.resp3 && (self.confirming > 0 || self.is_subscribed()))
    }

    /// A transaction may subscribe the connection to anything.
    pub(crate) fn set_unknown(&mut self) {
        self.unknown = true;
    }

    /// `RESET`: everything is over, and RESP2 is spoken.
    pub(crate) fn reset(&mut self) {
        *self = Pushes::default();
    }

    pub(crate) fn expect_confirmation(&mut self) {
        self.confirming += 1;
    }

    /// Whether such frames may come at all.
    pub(crate) fn are_possible(&self) -> bool {
        self.resp3 || self.is_listening()
    }

    /// Whether the connection is subscribed, or about to be, or monitors.
    pub(crate) fn is_listening(&self) -> bool {
        self.confirming > 0 || self.is_subscribed()
    }

    /// Whether a frame that begins with this byte may be one.
    pub(crate) fn may_be_push(&self, first: u8) -> bool {
        match first {
            b'>' => true,
            b'*' => !self.resp3 && self.is_subscribed(),
            b'+' => self.monitoring,
            _ => false,
        }
    }

    /// Whether a complete frame is one.
    pub(crate) fn is_push(&self, frame: &Bytes) -> bool {
        match frame.first() {
            Some(b'>') => true,
            Some(b'*') if !self.resp3 && self.is_subscribed() => match first_word(frame) {
                Some(b"message" | b"pmessage" | b"smessage" | b"sunsubscribe") => true,
                // A subscription inside a transaction takes one place there, however many confirmations it has: the
                // rest comes after the transaction.
                Some(b"subscribe" | b"psubscribe" | b"ssubscribe" | b"unsubscribe" | b"punsubscribe") => self.unknown,
                _ => false,
            },
            // The feed's lines begin with a time; replies to the few commands that may be sent
            // meanwhile do not.
            Some(b'+') if self.monitoring => frame.get(1).is_some_and(u8::is_ascii_digit),
            _ => false,
        }
    }

    /// Takes a frame for the request that waits for confirmations.
    pub(crate) fn confirm(&mut self, waiting: &mut Channels, frame: &Bytes) -> Confirmation {
        if frame.first() == Some(&b'-') {
            self.confirming = self.confirming.saturating_sub(1);
            return Confirmation::Last;
        }
        if !matches!(frame.first(), Some(b'>' | b'*')) || first_word(frame) != Some(waiting.word()) {
            return Confirmation::Other;
        }
        let total = match waiting.kind {
            Channel::Shard => self.shards,
            Channel::Channel | Channel::Pattern => self.channels + self.patterns,
        };
        let count = match waiting.kind {
            Channel::Channel => &mut self.channels,
            Channel::Pattern => &mut self.patterns,
            Channel::Shard => &mut self.shards,
        };
        let left = waiting.left.get_or_insert((*count).max(1));
        *left = left.saturating_sub(1);
        // Redis also confirms channels that were subscribed before, and unsubscribes that changed nothing: only the
        // number of subscriptions shows whether there is one more or less.
        let now = subscriptions(frame).unwrap_or(total);
        if waiting.subscribe && now > total {
            *count += 1;
        } else if !waiting.subscribe && now < total {
            *count = count.saturating_sub(1);
        }
        if now == 0 {
            self.none_left(waiting.kind);
        }
        if *left == 0 {
            self.confirming = self.confirming.saturating_sub(1);
            return Confirmation::Last;
        }
        Confirmation::More
    }

    fn is_subscribed(&self) -> bool {
        self.unknown || self.monitoring || self.channels + self.patterns + self.shards > 0
    }

    fn none_left(&mut self, kind: Channel) {
        match kind {
            Channel::Shard => self.shards = 0,
            Channel::Channel | Channel::Pattern => (self.channels, self.patterns) = (0, 0),
        }
    }
}

/// The present number of subscriptions: it is the last element of a confirmation. Channels and patterns are counted
/// together, those of shards separately.
fn subscriptions(frame: &[u8]) -> Option<u64> {
    let line = frame.strip_suffix(b"\r\n")?;
    let start = line.iter().rposition(|&byte| byte == b':')?;
    std::str::from_utf8(&line[start + 1..]).ok()?.parse().ok()
}

/// The first element of an array or push of bulk strings.
fn first_word(frame: &[u8]) -> Option<&[u8]> {
    let mut lines = frame.splitn(4, |&byte| byte == b'\n');
    lines.next()?;
    lines.next()?.strip_prefix(b"$")?;
    lines.next()?.strip_suffix(b"\r")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn a_request_with_two_channels_is_confirmed_twice() {
        let mut pushes = Pushes::default();
        let mut waiting = Channels::new(Channel::Channel, true, 2);
        let first = frame("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
        assert!(matches!(pushes.confirm(&mut waiting, &first), Confirmation::More));
        let message = frame("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
        assert!(matches!(pushes.confirm(&mut waiting, &message), Confirmation::Other));
        assert!(pushes.is_push(&message));
        let second = frame("*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n");
        assert!(matches!(pushes.confirm(&mut waiting, &second), Confirmation::Last));
    }

    #[test]
    fn leaving_every_channel_takes_as_many_confirmations_as_there_are() {
        let mut pushes = Pushes { channels: 2, ..Pushes::default() };
        let mut waiting = Channels::new(Channel::Channel, false, 0);
        let first = frame("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n");
        assert!(matches!(pushes.confirm(&mut waiting, &first), Confirmation::More));
        let last = frame("*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n");
        assert!(matches!(pushes.confirm(&mut waiting, &last), Confirmation::Last));
        assert!(!pushes.are_possible());
        let array = frame("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
        assert!(!pushes.is_push(&array), "an ordinary reply once nothing is subscribed");
    }

    #[test]
    fn a_channel_named_twice_is_one_and_another_one_left_is_none_less() {
        let mut pushes = Pushes::default();
        let mut twice = Channels::new(Channel::Channel, true, 2);
        let one = frame("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
        pushes.confirm(&mut twice, &one);
        pushes.confirm(&mut twice, &one);
        let mut other = Channels::new(Channel::Channel, false, 1);
        let still = frame("*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n");
        assert!(matches!(pushes.confirm(&mut other, &still), Confirmation::Last));
        assert!(pushes.is_listening(), "a is subscribed");
        let mut all = Channels::new(Channel::Channel, false, 0);
        let none = frame("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n");
        assert!(matches!(pushes.confirm(&mut all, &none), Confirmation::Last));
        assert!(!pushes.is_listening());
    }

    #[test]
    fn an_error_ends_the_wait() {
        let mut pushes = Pushes::default();
        let mut waiting = Channels::new(Channel::Pattern, true, 3);
        let error = frame("-NOPERM no\r\n");
        assert!(matches!(pushes.confirm(&mut waiting, &error), Confirmation::Last));
    }

    #[test]
    fn the_feed_of_monitor_is_told_from_replies() {
        let mut pushes = Pushes::default();
        pushes.set_monitoring();
        assert!(pushes.is_push(&frame("+1700000000.1 [0 127.0.0.1:1] \"PING\"\r\n")));
        assert!(!pushes.is_push(&frame("+RESET\r\n")));
    }
}

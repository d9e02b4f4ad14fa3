//! How many requests of one session may be under way on a shared connection. The replies to other sessions queue
//! behind theirs, and a request that was sent cannot be called back, so the replies under way are bounded in bytes.
//! But the length of a reply is unknown before it comes. So a session begins with one request at a time and gets more
//! as its replies prove to be short.

use std::mem;

/// Requests that may be under way for a session whose replies are short: with [`MAX_SHORT`], 4 MiB of replies.
const MAX_DUE: u64 = 64;
/// A reply with more bytes is a long one: the next request is sent only when it has come.
const MAX_SHORT: usize = 64 * 1024;
/// A reply with more bytes keeps the replies behind it waiting. A session that had one uses a connection of its own
/// for as many requests as its bytes divided by [`BYTES_A_SHORT_ONE`].
const MAX_TRAVELLING: usize = 1024 * 1024;
/// After a long reply the session continues with one request at a time, for as many short replies as the long one's
/// bytes divided by this.
const BYTES_A_SHORT_ONE: usize = 1024;

/// See the module.
pub(super) struct Window {
    /// The number of requests that may be under way.
    most: u64,
    /// The session had more to send.
    is_wanting: bool,
    /// Short replies that must come before it gets more again.
    careful: u64,
    /// Requests that use a connection of its own before it shares one again.
    alone: u64,
    /// Bytes that have come of an incomplete reply.
    unfinished: usize,
}

impl Default for Window {
    fn default() -> Window {
        Window { most: 1, is_wanting: false, careful: 0, alone: 0, unfinished: 0 }
    }
}

impl Window {
    /// Whether one more may be sent while `due` are due.
    pub(super) fn has_room(&self, due: u64) -> bool {
        due < self.most
    }

    /// The session has more to send.
    pub(super) fn wants_more(&mut self) {
        self.is_wanting = true;
    }

    /// Whether the next request uses a connection of its own, because a reply was so long that others waited for it.
    pub(super) fn goes_alone(&mut self) -> bool {
        let goes_alone = self.alone > 0;
        self.alone = self.alone.saturating_sub(1);
        goes_alone
    }

    /// This many replies were completed, and this many bytes came of them and of the next. Returns whether a long one
    /// was among them.
    pub(super) fn came(&mut self, replies: u64, bytes: usize) -> bool {
        self.unfinished += bytes;
        if replies == 0 {
            return false;
        }
        let length = mem::take(&mut self.unfinished) / usize::try_from(replies).unwrap_or(usize::MAX);
        if length > MAX_SHORT {
            self.most = 1;
            self.careful = (length / BYTES_A_SHORT_ONE) as u64;
            if length > MAX_TRAVELLING {
                self.alone = self.careful;
            }
            return true;
        }
        if self.careful > 0 {
            self.careful = self.careful.saturating_sub(replies);
        } else if mem::take(&mut self.is_wanting) {
            self.most = (self.most + replies).min(MAX_DUE);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a session does that always has more to send; returns the most that were under way.
    fn sends_all(window: &mut Window, replies: u64, bytes: usize) -> u64 {
        let mut most = 0;
        for _ in 0..replies {
            let mut due = 0;
            while window.has_room(due) {
                due += 1;
            }
            window.wants_more();
            most = most.max(due);
            window.came(1, bytes);
        }
        most
    }

    #[test]
    fn a_session_with_short_replies_gets_more_and_more_and_no_more_than_so_many() {
        let mut window = Window::default();
        assert_eq!(sends_all(&mut window, 1, 5), 1);
        assert_eq!(sends_all(&mut window, 1000, 5), MAX_DUE);
    }

    #[test]
    fn one_that_wants_no_more_gets_no_more() {
        let mut window = Window::default();
        for _ in 0..1000 {
            window.came(1, 5);
        }
        assert!(!window.has_room(1));
    }

    #[test]
    fn behind_a_long_reply_it_is_one_at_a_time_for_a_while() {
        let mut window = Window::default();
        sends_all(&mut window, 1000, 5);
        // In pieces, and with the beginning of the next.
        assert!(!window.came(0, MAX_SHORT));
        assert!(window.came(1, 1 << 20));
        assert_eq!(sends_all(&mut window, 1000, 5), 1);
        assert_eq!(sends_all(&mut window, 300, 5), MAX_DUE);
    }

    #[test]
    fn long_replies_are_always_asked_for_one_by_one() {
        let mut window = Window::default();
        assert_eq!(sends_all(&mut window, 1000, MAX_SHORT + 1), 1);
    }

    #[test]
    fn many_short_replies_that_come_together_are_no_long_one() {
        let mut window = Window::default();
        window.wants_more();
        assert!(!window.came(20, 20 * MAX_SHORT));
        assert!(window.has_room(20));
    }

    #[test]
    fn a_session_that_had_a_very_long_reply_goes_alone_for_a_while() {
        let mut window = Window::default();
        window.came(1, MAX_TRAVELLING);
        assert!(!window.goes_alone());
        window.came(1, 4 * MAX_TRAVELLING);
        assert!((0..4096).all(|_| window.goes_alone()));
        assert!(!window.goes_alone());
    }
}

//! How a session uses connections that it shares with others: what ties it to one of its own, and which of the two shared
//! ones its next request goes to. Pure: the session changes the connections.

use crate::backend::profile::Traffic;

/// What commands have left behind on their connection. Each variant forbids all that the variants before it forbid,
/// and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trace {
    /// Nothing that is not tracked, once they were answered.
    #[default]
    None,
    /// Its number was shown, or another property that is only visible: no other client gets this connection.
    Personal,
    /// A property that only commands about the connection show: its name, its number. It is kept as long as the
    /// session.
    Mark,
    /// A property that later commands depend on, until `RESET`: all of them use this connection.
    Pin,
}

/// Which shared connection a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The one in use.
    Stay,
    /// This one, at once.
    Now(Traffic),
    /// This one, once everything sent over the one in use is answered.
    OnceAnswered(Traffic),
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sharing {
    trace: Trace,
    has_shared: bool,
    /// It mixed reads and writes in one pipeline when it last wrote. Then a read that more requests follow is sent where
    /// writes go, or those requests would have to wait for it.
    mixes: bool,
    /// It has written since it last began with a read.
    has_written: bool,
}

impl Sharing {
    /// One more command leaves this behind on the session's own connection.
    pub(crate) fn leave(&mut self, trace: Trace) {
        self.trace = self.trace.max(trace);
    }

    /// What was left behind on the session's own connection.
    pub(crate) fn trace(&self) -> Trace {
        self.trace
    }

    /// The session gave its own connection up.
    pub(crate) fn gave_up_own(&mut self) {
        self.trace = Trace::None;
    }

    /// `RESET` was answered: not everything that was set on the connection ends with it.
    pub(crate) fn reset(self) -> Sharing {
        Sharing { trace: self.trace.min(Trace::Mark), has_shared: self.has_shared, ..Sharing::default() }
    }

    /// Requests were sent over a shared connection, so `WAIT` on the session's own connection does not cover their
    /// writes.
    pub(crate) fn has_shared(&self) -> bool {
        self.has_shared
    }

    /// The next request may go over a shared connection.
    pub(crate) fn shares(&mut self) {
        self.has_shared = true;
    }

    /// The session's own connection covers all its writes again.
    pub(crate) fn caught_up(&mut self) {
        self.has_shared = false;
    }

    /// Which connection a request with this traffic goes to. Reads and writes use different ones, but a session never
    /// uses two at a time: it may change only while nothing is under way (`may_change`).
    pub(crate) fn turn(&mut self, traffic: Traffic, in_use: Traffic, may_change: bool, more_follow: bool) -> Turn {
        let wanted = match traffic {
            Traffic::Writes => {
                self.has_written = true;
                if in_use == Traffic::Reads && !may_change {
                    self.mixes = true;
                    return Turn::OnceAnswered(Traffic::Writes);
                }
                Traffic::Writes
            }
            // In its order, after what is under way.
            Traffic::Reads if !may_change => return Turn::Stay,
            Traffic::Reads => {
                self.mixes &= self.has_written;
                self.has_written = false;
                if self.mixes && more_follow { Traffic::Writes } else { Traffic::Reads }
            }
        };
        if wanted == in_use { Turn::Stay } else { Turn::Now(wanted) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Traffic::{Reads, Writes};

    #[test]
    fn what_was_left_behind_only_grows_until_the_connection_is_given_up() {
        let mut sharing = Sharing::default();
        sharing.leave(Trace::Pin);
        sharing.leave(Trace::Personal);
        assert_eq!(sharing.trace(), Trace::Pin);
        assert_eq!(sharing.reset().trace(), Trace::Mark);
        sharing.gave_up_own();
        assert_eq!(sharing.trace(), Trace::None);
    }

    #[test]
    fn a_write_waits_for_reads_under_way_and_a_read_follows_a_write() {
        let mut sharing = Sharing::default();
        assert_eq!(sharing.turn(Writes, Reads, false, false), Turn::OnceAnswered(Writes));
        assert_eq!(sharing.turn(Reads, Writes, false, false), Turn::Stay);
        assert_eq!(sharing.turn(Reads, Writes, true, false), Turn::Now(Reads));
    }

    #[test]
    fn a_session_that_mixes_both_in_a_pipeline_reads_where_it_writes_until_it_only_reads() {
        let mut sharing = Sharing::default();
        sharing.turn(Writes, Reads, false, false);
        assert_eq!(sharing.turn(Reads, Writes, true, true), Turn::Stay);
        // No write since: it does not mix any more.
        assert_eq!(sharing.turn(Reads, Writes, true, true), Turn::Now(Reads));
    }
}

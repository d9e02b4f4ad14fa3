//! How the two connections end: what is still handed over, and how the other end learns of it.

use std::io;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use lockwarden_resp::{ReplyLimits, ReplyScanner};
use tokio::io::Interest;

use super::{End, Expect, Farewell, Transport};

/// After its client has closed its end, a session waits this long for a sign that a reply was not received. That sign
/// takes one round trip; the client is told at once that no more comes.
const LAST_WORD: Duration = Duration::from_millis(200);
/// The same while the client's machine has not acknowledged all replies, which takes one round trip, too.
const SLOW_LAST_WORD: Duration = Duration::from_secs(2);
/// How long a client gets to take some of its last replies before the connection is closed all the same.
const LAST_REPLIES: Duration = Duration::from_secs(5);

impl<L> Transport<L> {
    /// Tells the backend, once everything was sent, that no more will come: it sees what it would have seen without a
    /// proxy.
    pub(crate) fn half_close(&mut self) {
        if self.farewell == Farewell::None {
            self.farewell = Farewell::WhenSent;
        }
    }

    pub(super) fn half_close_when_sent(&mut self) {
        if self.farewell != Farewell::WhenSent || !self.to_backend.is_empty() {
            return;
        }
        // A connection at rest beside a shared one is told when it is in use again.
        if let Some(own) = self.backend_link.in_use() {
            self.farewell = Farewell::Said;
            // An error means that the connection is gone already; reading will show that.
            let _ = own.stream.shutdown_write();
        }
    }

    /// Ends a session whose client wants no more, where nothing is under way.
    pub(super) async fn end_if_closing(&mut self) -> Result<(), End> {
        // On a connection of the session's own, the backend closes its end itself.
        let is_closing = self.farewell != Farewell::None && self.to_backend.is_empty();
        if is_closing && self.backend_link.is_shared() {
            return Err(self.finish(End::Done).await);
        }
        Ok(())
    }

    /// A shared connection has ended on which only notes of the proxy's own were under way: that does not concern the
    /// client. Returns whether it was so.
    pub(super) fn goes_on_without_notes(&mut self) -> bool {
        let is_note = |expect: &Expect<L>| matches!(expect, Expect::Note(_));
        if !self.expected.iter().all(is_note) || !self.backend_link.mend() {
            return false;
        }
        self.backend_closed = false;
        self.expected.clear();
        self.to_backend.clear();
        self.unsent = 0;
        self.from_backend.clear();
        self.scanned = 0;
        self.scanner = ReplyScanner::new(ReplyLimits::default());
        true
    }

    /// Hands over everything that is due to the client, then ends.
    pub(crate) async fn finish(&mut self, end: End) -> End {
        if let End::Evicted = end {
            // The session is closed to free these bytes.
            self.to_client = BytesMut::new();
        }
        while !self.to_client.is_empty() {
            match self.client.try_write(&self.to_client) {
                Ok(written) => {
                    self.sent += written as u64;
                    self.to_client.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = tokio::time::timeout(LAST_REPLIES, self.client.ready(Interest::WRITABLE));
                    if !matches!(ready.await, Ok(Ok(_))) {
                        return End::Client;
                    }
                }
                Err(_) => return End::Client,
            }
        }
        end
    }

    /// Whether a client that sends no more did not read its last replies either. A client that is gone answers them
    /// with a reset, which shows as an error of the socket although reading returned only "end"; a client that has
    /// merely half-closed causes no error.
    pub(crate) async fn was_turned_down(&mut self) -> bool {
        if let End::Client = self.finish(End::Done).await {
            return true;
        }
        // A client that still reads learns at once that this was all; one that is gone gets one more packet to reset.
        self.say_goodbye();
        let until = Instant::now() + SLOW_LAST_WORD;
        loop {
            let error = self.client.ready(Interest::ERROR);
            if matches!(tokio::time::timeout(LAST_WORD, error).await, Ok(Ok(_))) {
                return true;
            }
            if self.client.unacknowledged() == 0 || Instant::now() > until {
                return !matches!(self.client.take_error(), Ok(None));
            }
        }
    }

    /// Tells the client that no more comes.
    pub(crate) fn say_goodbye(&mut self) {
        let _ = self.client.shutdown_write();
        self.said_goodbye = true;
    }

    /// Waits until a client that was told so closes its end or sends something.
    pub(crate) async fn client_stirs(&self) {
        // An error, too, means that it is gone.
        let _ = self.client.ready(Interest::READABLE).await;
    }
}

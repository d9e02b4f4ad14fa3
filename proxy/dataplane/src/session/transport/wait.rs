//! Waiting: for the next thing that the session has to do, and for the sockets.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use lockwarden_control::net::buffer_pool::{READ_CHUNK, give_back, put};
use lockwarden_control::net::stream::poll_read;

use super::request_buffer::RequestBuffer;
use super::{End, Event, Farewell, MAX_UNREAD, Reply, Transport};

/// Requests read ahead while an earlier one has to be answered first, in bytes.
const READ_AHEAD: usize = 64 * 1024;
/// Bytes of requests that wait for the backend to take them; beyond this limit no more are read.
const MAX_UNSENT: usize = 1024 * 1024;
/// Bytes of replies that may wait for the client to take them while half of the memory for all clients is in use:
/// further replies stay with the backend, as they would without a proxy.
const MAX_UNREAD_WHEN_SHORT: usize = READ_CHUNK;
/// The same while there is enough memory, and the client is read.
const MAX_UNREAD_OWN: usize = 1024 * 1024;
/// The same while replies of other clients queue behind them: beyond this limit the client's requests wait. If it
/// goes on sending, they use a connection of its own: the client may be one that reads nothing before it has sent
/// everything.
const MAX_UNREAD_SHARED: usize = 1024 * 1024;
/// How long a client that sends no more waits for the reply to an unknown command.
const UNKNOWN_AT_MOST: Duration = Duration::from_secs(2);

impl<L> Transport<L> {
    /// Waits for the next thing that the session has to do: a request, a reply that is looked at, or what other tasks
    /// want of it.
    pub(crate) async fn next_event(&mut self, inbox: &mut RequestBuffer) -> Result<Event<L>, End> {
        loop {
            // Replies before requests: a reply may change how the next request is judged.
            if let Some(reply) = self.take_reply().await? {
                return Ok(Event::Reply(reply));
            }
            let takes = self.may_take_more(inbox);
            if takes {
                match inbox.decode() {
                    Ok(true) => return Ok(Event::Request),
                    Ok(false) if inbox.long_argument().is_some() => return Ok(Event::LongArgument),
                    Ok(false) => {}
                    Err(error) => return Ok(Event::Malformed(error)),
                }
                if inbox.done && !inbox.reported {
                    inbox.reported = true;
                    return Ok(Event::ClientDone);
                }
            } else if !inbox.is_empty() {
                self.backend_link.wants_more();
            }
            if self.expected.is_empty() {
                if self.nudged {
                    self.nudged = false;
                    return Ok(Event::Wakeup);
                }
                let tells = self.tells_when_idle || self.scanner.has_replica_error();
                if tells && inbox.is_empty() {
                    self.tells_when_idle = false;
                    return Ok(Event::Idle);
                }
                if self.draining && inbox.is_empty() {
                    self.draining = false;
                    return Ok(Event::Drain);
                }
                if self.aged && inbox.is_empty() {
                    self.aged = false;
                    return Ok(Event::Aged);
                }
                self.end_if_closing().await?;
            }
            self.flush()?;
            // Requests that have come already wake no task.
            if takes || !self.may_take_more(inbox) {
                let reads_client = takes || inbox.waiting() < READ_AHEAD;
                self.wait(inbox, reads_client).await?;
            }
        }
    }

    /// Waits for the next reply that is looked at, while a request is being handled: no other request is taken.
    pub(crate) async fn next_reply(&mut self, inbox: &mut RequestBuffer) -> Result<Reply<L>, End> {
        loop {
            if let Some(reply) = self.take_reply().await? {
                return Ok(reply);
            }
            if self.expected.is_empty() {
                self.end_if_closing().await?;
            }
            self.flush()?;
            self.wait_for_backend(inbox).await?;
        }
    }

    /// The same, until every request has been answered: then `None`.
    pub(crate) async fn next_reply_due(&mut self, inbox: &mut RequestBuffer) -> Result<Option<Reply<L>>, End> {
        loop {
            if let Some(reply) = self.take_reply().await? {
                return Ok(Some(reply));
            }
            if self.expected.is_empty() {
                return Ok(None);
            }
            self.flush()?;
            self.wait_for_backend(inbox).await?;
        }
    }

    /// Hands over what the backend has sent, up to the next reply that is looked at.
    async fn take_reply(&mut self) -> Result<Option<Reply<L>>, End> {
        loop {
            if let Some(reply) = self.replies()? {
                return Ok(Some(reply));
            }
            if self.backend_link.has_spoken() && self.is_shared() && self.may_change_uplink() {
                // With two connections, replies and invalidations would come in an order that Redis did not give them.
                self.backend_link.use_own(None);
            }
            if !self.backend_closed {
                return Ok(None);
            }
            if !self.goes_on_without_notes() {
                if let Some(error) = self.backend_link.refusal() {
                    put(&mut self.to_client, &error);
                }
                return Err(self.finish(End::Backend).await);
            }
        }
    }

    /// Waits while no request is taken. The client is still read, so that a closed connection is noticed.
    async fn wait_for_backend(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let reads_client = inbox.waiting() < READ_AHEAD;
        self.wait(inbox, reads_client).await
    }

    /// Whether a further request may be taken from the client.
    fn may_take_more(&self, inbox: &RequestBuffer) -> bool {
        self.to_backend.len() < MAX_UNSENT
            && self.local < MAX_UNSENT
            && !(self.is_shared() && self.has_much_unread() && inbox.waiting() < READ_AHEAD)
            && self.backend_link.may_take(self.unsent)
    }

    /// Whether the client leaves so much unread that others should not wait for it.
    pub(crate) fn has_much_unread(&self) -> bool {
        self.to_client.len() >= MAX_UNREAD_SHARED
    }

    fn flush(&mut self) -> Result<(), End> {
        if self.client_gone {
            self.to_client.clear();
        }
        while !self.to_client.is_empty() {
            match self.client.give(&mut self.to_client) {
                Ok(written) => {
                    self.tally.sent(written);
                    self.sent += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.client_vanished = is_of_silence(error.kind());
                    return Err(End::Client);
                }
            }
        }
        if !self.to_backend.is_empty() && !self.backend_link.send(&mut self.to_backend, &mut self.unsent) {
            // What the backend still had to send may be read; then reading shows that it is gone.
            self.to_backend.clear();
            self.farewell = Farewell::Said;
        }
        give_back(&mut self.to_client);
        give_back(&mut self.to_backend);
        Ok(())
    }

    /// Sleeps until a socket can be used or has something to read, and reads what there is.
    async fn wait(&mut self, inbox: &mut RequestBuffer, reads_client: bool) -> Result<(), End> {
        let patience = self.patience();
        if patience == Some(Duration::ZERO) {
            self.half_close();
        }
        self.half_close_when_sent();
        let read_client = reads_client && !inbox.done;
        let unread = self.to_client.len();
        // A client that is not read may not read either before it has sent everything. On a shared connection others
        // wait.
        let most = match reads_client && !self.is_shared() {
            true => MAX_UNREAD_OWN,
            false => MAX_UNREAD,
        };
        let read_backend =
            unread <= MAX_UNREAD_WHEN_SHORT || (unread <= most && (self.is_shared() || !self.account.is_short()));
        let held = unread + inbox.bytes.len() + self.to_backend.len() + self.from_backend.len();
        self.account.holds(held + self.local + self.backend_link.waiting());
        let sockets = poll_fn(|cx| self.poll_sockets(inbox, (read_client, read_backend), cx));
        match patience {
            Some(left) if !left.is_zero() => {
                if let Ok(used) = tokio::time::timeout(left, sockets).await {
                    used?;
                }
            }
            Some(_) | None => sockets.await?,
        }
        if self.evicted {
            return Err(End::Evicted);
        }
        Ok(())
    }

    /// How long a client that sends no more waits for a command that may wait for ever; `None` if there is no such
    /// command. The commands after it get no reply then, as on Redis itself. An unknown command is most likely
    /// answered at once.
    fn patience(&self) -> Option<Duration> {
        let done = self.client_done.filter(|_| self.blocking > 0)?;
        Some(match self.waiting {
            0 => UNKNOWN_AT_MOST.saturating_sub(done.elapsed()),
            1.. => Duration::ZERO,
        })
    }

    /// A read buffer has memory only while it is read into, or while it holds bytes.
    fn poll_sockets(
        &mut self,
        inbox: &mut RequestBuffer,
        (read_client, read_backend): (bool, bool),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), End>> {
        let mut woken = false;
        if read_backend && let Poll::Ready(goes_on) = self.backend_link.poll_replies(&mut self.from_backend, cx) {
            self.backend_closed = !goes_on;
            woken = true;
        }
        // The backend's bytes come first: a client that is gone may have been answered by them.
        if read_client && !woken {
            match poll_read(&mut self.client, &mut inbox.bytes, cx) {
                Poll::Ready(Ok(0)) => {
                    inbox.done = true;
                    self.client_done = Some(Instant::now());
                    woken = true;
                }
                Poll::Ready(Ok(bytes)) => {
                    self.tally.received(bytes);
                    self.sent_when_spoken = self.sent;
                    woken = true;
                }
                Poll::Ready(Err(error)) => {
                    self.client_vanished = is_of_silence(error.kind());
                    return Poll::Ready(Err(End::Client));
                }
                Poll::Pending => {}
            }
        }
        if !self.to_client.is_empty()
            && let Poll::Ready(ready) = self.client.poll_write_ready(cx)
        {
            ready.map_err(|_| End::Client)?;
            woken = true;
        }
        if !self.to_backend.is_empty() && self.backend_link.poll_room(cx).is_ready() {
            woken = true;
        }
        if let Some(said) = self.wakeup.look(cx) {
            self.nudged |= said.work;
            self.draining |= said.drain;
            self.evicted |= said.evict;
            self.aged |= said.aged;
            woken = true;
        }
        if woken { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// Whether an error of a socket means that the other end no longer answers. The other errors were sent by the other
/// end, or by a machine on the way.
fn is_of_silence(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    !matches!(kind, ConnectionReset | BrokenPipe | ConnectionAborted)
}

//! The two sockets of one client: bytes in, bytes out, and which reply belongs to which request.
//! It pairs replies with requests in order, hands over those that somebody wants to look at, and
//! leaves the proxy's own keys out of what names keys; it does not know what a lock is. The session
//! reads `next`, the spine writes with `forward` and `execute`.

mod backend_link;
mod event;
pub(crate) mod maintenance_notices;
pub(crate) mod pushes;
mod receive;
pub(crate) mod request_buffer;
#[cfg(test)]
mod tests;

pub(crate) use backend_link::BackendLink;
pub(crate) use event::{End, Event, Muted, Reply};

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Cache};
use bytes::{Buf, Bytes, BytesMut};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::pass_through::{PassThrough, WholeBuffer};
use lockwarden_lock::plan::{Form, Guard, Plan};
use lockwarden_lock::table::Listing;
use lockwarden_resp::{Redirects, ReplyLimits, ReplyScanner};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::net::buffer_pool::{READ_CHUNK, give_back, move_front, open, poll_read, put};
use crate::net::listener::unacknowledged;
use crate::net::wakeup::Wakeup;
use crate::registry::buffer_memory::Account;
use crate::registry::undelivered::Delivery;
use crate::ruleset::Active;
use crate::telemetry::metrics::Tally;
use pushes::{Channels, Pushes};
use request_buffer::RequestBuffer;

/// Requests read ahead while an earlier one has to be answered first, in bytes.
const READ_AHEAD: usize = 64 * 1024;
/// Requests that wait for the backend to take them, in bytes; above that no more are read.
const MAX_UNSENT: usize = 1024 * 1024;
/// Replies that wait for the client to take them, in bytes; above that the backend waits.
const MAX_UNREAD: usize = 64 * 1024 * 1024;
/// The same where half of the memory for all clients is in use: further replies stay with the backend, as they would without
/// a proxy.
const MAX_UNREAD_WHEN_SHORT: usize = READ_CHUNK;
/// The same where replies of other clients come behind them: above that its requests wait.
const MAX_UNREAD_SHARED: usize = 1024 * 1024;
/// A reply that has to be looked at may be as long as this. A listing above it is relayed as it
/// comes, the proxy's own keys in it: that harms nobody, and a closed connection would.
const MAX_COLLECTED: usize = 512 * 1024 * 1024 + 1024;
/// After its client has hung up, a session waits so long for word that a reply was turned down. The
/// word takes one round trip; the client hears at once that no more comes.
const LAST_WORD: Duration = Duration::from_millis(200);
/// The same while the client's machine has not acknowledged all replies, which takes one round trip, too.
const SLOW_LAST_WORD: Duration = Duration::from_secs(2);

enum Expect<L> {
    Relay {
        frames: u64,
        muted: Muted,
    },
    /// One reply that may be long in coming.
    Late(Muted),
    Local(Bytes),
    Look(L, Muted),
    /// An answer that nobody waits for, neither the client nor what it does next.
    Note(L),
    /// Names of keys.
    Listing(Listing, Muted),
    Confirm(Channels),
}

/// The sockets, and the replies that are due.
pub(crate) struct Transport<L> {
    client: TcpStream,
    backend_link: BackendLink,
    to_client: BytesMut,
    to_backend: BytesMut,
    /// Requests in there that will be answered.
    unsent: u64,
    from_backend: BytesMut,
    /// How much of `from_backend` belongs to the frame being collected and was scanned.
    scanned: usize,
    scanner: ReplyScanner,
    expected: VecDeque<Expect<L>>,
    blocking: u64,
    /// Frames that no request asked for.
    pub(crate) pushes: Pushes,
    /// Says which keys are the proxy's own.
    active: Cache<Arc<ArcSwap<Active>>, Arc<Active>>,
    longest_collected: usize,
    wakeup: Arc<Wakeup>,
    nudged: bool,
    draining: bool,
    tells_when_idle: bool,
    backend_closed: bool,
    closing: bool,
    half_closed: bool,
    /// What would be written to the client is dropped.
    client_gone: bool,
    /// The client's machine did not answer any more.
    client_vanished: bool,
    /// Bytes written to the client in all, and how many of them had been when it spoke last.
    sent: u64,
    sent_when_spoken: u64,
    /// The client was told that no more comes.
    said_goodbye: bool,
    /// Counts bytes from and to clients.
    tally: Arc<Tally>,
    /// Bytes of answers that wait for the replies before them.
    local: usize,
    account: Account,
    evicted: bool,
}

impl<L> Transport<L> {
    pub(crate) fn new(
        client: TcpStream,
        backend_link: BackendLink,
        active: Arc<ArcSwap<Active>>,
        tally: Arc<Tally>,
        wakeup: Arc<Wakeup>,
        account: Account,
    ) -> Self {
        Transport {
            client,
            backend_link,
            to_client: BytesMut::new(),
            to_backend: BytesMut::new(),
            unsent: 0,
            from_backend: BytesMut::new(),
            scanned: 0,
            scanner: ReplyScanner::new(ReplyLimits::default()),
            expected: VecDeque::new(),
            blocking: 0,
            pushes: Pushes::default(),
            active: Cache::new(active),
            longest_collected: MAX_COLLECTED,
            wakeup,
            nudged: false,
            draining: false,
            tells_when_idle: false,
            backend_closed: false,
            closing: false,
            half_closed: false,
            client_gone: false,
            client_vanished: false,
            sent: 0,
            sent_when_spoken: 0,
            said_goodbye: false,
            tally,
            local: 0,
            account,
            evicted: false,
        }
    }

    /// Sends the client's own bytes; their reply is relayed.
    pub(crate) fn forward(&mut self, pass: PassThrough<'_>, muted: Muted) {
        self.send(pass.frame());
        if pass.is_blocking() {
            self.blocking += 1;
            self.expected.push_back(Expect::Late(muted));
        } else {
            self.expect_relay(muted);
        }
    }

    /// The same for a request that is all that its buffer holds, which is emptied. A long one goes where
    /// it is.
    pub(crate) fn forward_whole(
        &mut self,
        leave: WholeBuffer,
        buffer: &mut BytesMut,
        muted: Muted,
    ) -> Result<(), End> {
        let Some(request) = leave.redeem(buffer) else {
            return Err(End::OutOfStep("another buffer than was let through".into()));
        };
        move_front(request, request.len(), &mut self.to_backend);
        self.unsent += 1;
        self.expect_relay(muted);
        Ok(())
    }

    /// Sends a step in place of a command of a MULTI block; Redis's word on it is handed over. Its text
    /// goes along: a name that the server does not know would surface too late.
    pub(crate) fn execute_queued(&mut self, plan: &Plan, look: L, muted: Muted) {
        self.execute(plan, Form::Text, look, muted);
    }

    /// Sends what stands ahead of such a step; Redis's word on it is handed over.
    pub(crate) fn guard(
        &mut self,
        guard: Guard,
        lock: &[u8],
        companion_prefix: &[u8],
        look: L,
        muted: Muted,
    ) {
        guard.put(self.request(), lock, companion_prefix);
        self.expected.push_back(Expect::Look(look, muted));
    }

    /// Takes a place in a MULTI block for a command that would only fail there: `HELLO` changes
    /// nothing and is allowed to every user.
    pub(crate) fn hold_place(&mut self, muted: Muted) {
        self.relay_own(&OwnRequest::Hello, muted);
    }

    /// Sends a request of the proxy's own in place of the client's; its reply is relayed.
    pub(crate) fn relay_own(&mut self, request: &OwnRequest<'_>, muted: Muted) {
        request.put(self.request());
        self.expect_relay(muted);
    }

    fn expect_relay(&mut self, muted: Muted) {
        match self.expected.back_mut() {
            Some(Expect::Relay {
                frames,
                muted: before,
            }) if *before == muted => *frames += 1,
            _ => self.expected.push_back(Expect::Relay { frames: 1, muted }),
        }
    }

    /// Sends the client's own bytes, to which Redis says nothing.
    pub(crate) fn forward_unanswered(&mut self, pass: PassThrough<'_>) {
        put(&mut self.to_backend, pass.frame());
    }

    fn send(&mut self, request: &[u8]) {
        put(&mut self.to_backend, request);
        self.unsent += 1;
    }

    /// Where a request of the proxy's own is written.
    fn request(&mut self) -> &mut BytesMut {
        open(&mut self.to_backend);
        self.unsent += 1;
        &mut self.to_backend
    }

    /// Sends the client's own bytes; their reply is handed over.
    pub(crate) fn forward_and_look(&mut self, pass: PassThrough<'_>, look: L, muted: Muted) {
        self.send(pass.frame());
        self.expected.push_back(Expect::Look(look, muted));
    }

    /// Sends the client's own bytes; their reply is relayed without the proxy's own keys.
    pub(crate) fn forward_listing(&mut self, pass: PassThrough<'_>, kind: Listing, muted: Muted) {
        self.send(pass.frame());
        self.expected.push_back(Expect::Listing(kind, muted));
    }

    /// Sends a subscription; its confirmations are relayed as they come.
    pub(crate) fn forward_channels(&mut self, pass: PassThrough<'_>, channels: Channels) {
        self.send(pass.frame());
        self.pushes.expect_confirmation();
        self.expected.push_back(Expect::Confirm(channels));
    }

    /// Sends a step; its answer is handed over.
    pub(crate) fn execute(&mut self, plan: &Plan, form: Form, look: L, muted: Muted) {
        plan.put(self.request(), form);
        self.expected.push_back(Expect::Look(look, muted));
    }

    /// Sends a step whose answer, if one comes, is handed over: what came of it changes nothing for the client.
    pub(crate) fn note(&mut self, plan: &Plan, look: L) {
        plan.put(self.request(), Form::Text);
        self.expected.push_back(Expect::Note(look));
    }

    /// Sends a request of the proxy's own; its answer is handed over.
    pub(crate) fn inquire(&mut self, request: &OwnRequest<'_>, look: L) {
        request.put(self.request());
        self.expected.push_back(Expect::Look(look, Muted::Yes));
    }

    /// Answers the client when it is this answer's turn.
    pub(crate) fn answer(&mut self, reply: Bytes) {
        if self.expected.is_empty() {
            put(&mut self.to_client, &reply);
        } else {
            self.local += reply.len() + size_of::<Expect<L>>();
            self.expected.push_back(Expect::Local(reply));
        }
    }

    /// Answers the client now: for a reply that was just handed over, whose turn it is.
    pub(crate) fn reply(&mut self, frame: &[u8]) {
        put(&mut self.to_client, frame);
    }

    /// Where the replies that were handed over so far end, in bytes of all that go to the client.
    pub(crate) fn position(&self) -> u64 {
        self.sent + self.to_client.len() as u64
    }

    /// How many bytes had been written to the client when it spoke last. What it said may have
    /// crossed them on the way, but what was written later it has not answered for sure.
    pub(crate) fn spoken_after(&self) -> u64 {
        self.sent_when_spoken
    }

    /// How far the client has taken its replies.
    pub(crate) fn delivery(&self, noticed: Instant) -> Delivery {
        // Having said that no more comes counts as a byte.
        let last_word = u64::from(self.said_goodbye);
        let unacknowledged = unacknowledged(&self.client).saturating_sub(last_word);
        Delivery {
            heard: self.sent_when_spoken,
            acknowledged: self.sent.saturating_sub(unacknowledged),
            noticed,
        }
    }

    /// The redirections to other nodes that the backend gave since this was asked last.
    pub(crate) fn take_redirects(&mut self) -> Redirects {
        self.scanner.take_redirects()
    }

    /// Whether the backend gave an error since this was asked last that only a replica gives.
    pub(crate) fn take_replica_error(&mut self) -> bool {
        self.scanner.take_replica_error()
    }

    /// Says so once, when nothing is under way.
    pub(crate) fn tell_when_idle(&mut self) {
        self.tells_when_idle = true;
    }

    /// The way to the backend, to be changed only where nothing is under way.
    pub(crate) fn backend_link(&mut self) -> &mut BackendLink {
        &mut self.backend_link
    }

    /// Whether the way to the backend may be changed now.
    pub(crate) fn may_change_uplink(&self) -> bool {
        self.expected.is_empty() && self.to_backend.is_empty() && self.from_backend.is_empty()
    }

    /// Whether requests travel with those of others.
    pub(crate) fn is_shared(&self) -> bool {
        self.backend_link.is_shared()
    }

    /// Whether the connection of its own has said something while it was at rest.
    pub(crate) fn has_spoken(&self) -> bool {
        self.backend_link.has_spoken()
    }

    /// Whether no reply is due.
    pub(crate) fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    /// Whether the backend would still answer a request of the proxy's own before long.
    pub(crate) fn may_still_ask(&self) -> bool {
        !self.backend_closed && !self.closing && !self.half_closed && self.blocking == 0
    }

    /// Nothing more is written to the client.
    pub(crate) fn client_is_gone(&mut self) {
        self.client_gone = true;
    }

    /// Whether a client that sends no more did not read its last replies either. A client that is
    /// gone answers them with a reset, which shows as an error of the socket though reading said
    /// only "end"; one that has merely half-closed shows none.
    pub(crate) async fn was_turned_down(&mut self) -> bool {
        if let End::Client = self.finish(End::Done).await {
            return true;
        }
        // A client that reads on learns at once that this was all; one that is gone has one more
        // packet to turn down.
        self.say_goodbye();
        let until = Instant::now() + SLOW_LAST_WORD;
        loop {
            let error = self.client.ready(Interest::ERROR);
            if matches!(tokio::time::timeout(LAST_WORD, error).await, Ok(Ok(_))) {
                return true;
            }
            if unacknowledged(&self.client) == 0 || Instant::now() > until {
                return !matches!(self.client.take_error(), Ok(None));
            }
        }
    }

    /// Tells the client that no more comes.
    pub(crate) fn say_goodbye(&mut self) {
        let _ = socket2::SockRef::from(&self.client).shutdown(std::net::Shutdown::Write);
        self.said_goodbye = true;
    }

    /// Waits until a client that was told so closes its end, or says something.
    pub(crate) async fn client_stirs(&self) {
        // An error says as well that it is gone.
        let _ = self.client.ready(Interest::READABLE).await;
    }

    /// Whether the client's machine was found not to answer any more, which takes a while.
    pub(crate) fn client_vanished(&self) -> bool {
        self.client_vanished
    }

    /// Says once more that the proxy is about to stop, when nothing is under way.
    pub(crate) fn keep_draining(&mut self) {
        self.draining = true;
    }

    /// Waits for the next thing that the session has to do: a request, a reply that somebody looks at, or what
    /// others want of it.
    pub(crate) async fn next_event(&mut self, inbox: &mut RequestBuffer) -> Result<Event<L>, End> {
        loop {
            if let Some(reply) = self.take_reply().await? {
                return Ok(Event::Reply(reply));
            }
            let takes = self.may_take_more();
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
                self.end_if_closing().await?;
            }
            self.flush()?;
            // Requests that have come already wake nobody.
            if takes || !self.may_take_more() {
                let reads_client = self.may_take_more();
                self.wait(inbox, reads_client).await?;
            }
        }
    }

    /// Waits for the next reply that somebody looks at, while a request is being dealt with: no other is taken.
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

    /// The same, until every request has been answered: then nothing.
    pub(crate) async fn next_reply_due(
        &mut self,
        inbox: &mut RequestBuffer,
    ) -> Result<Option<Reply<L>>, End> {
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

    /// Hands over what the backend has sent, up to the next reply that somebody looks at.
    async fn take_reply(&mut self) -> Result<Option<Reply<L>>, End> {
        loop {
            if let Some(reply) = self.replies()? {
                return Ok(Some(reply));
            }
            if self.backend_link.has_spoken() && self.is_shared() && self.may_change_uplink() {
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

    /// Ends a session whose client wants no more, where nothing is under way.
    async fn end_if_closing(&mut self) -> Result<(), End> {
        // On a connection of its own the backend hangs up in its turn.
        if self.closing && self.backend_link.is_shared() && self.to_backend.is_empty() {
            return Err(self.finish(End::Done).await);
        }
        Ok(())
    }

    /// Waits while no request is taken. The client is read all the same: one that hangs up is noticed.
    async fn wait_for_backend(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let reads_client = inbox.waiting() < READ_AHEAD;
        self.wait(inbox, reads_client).await
    }

    /// Where a shared connection has ended on which only notes of the proxy's own were under way, that is no
    /// matter of the client's; answers whether it was so.
    fn goes_on_without_notes(&mut self) -> bool {
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

    /// Whether a further request may be taken from the client. One that shares a connection must not
    /// leave many replies unread, since others' come behind them.
    fn may_take_more(&self) -> bool {
        self.to_backend.len() < MAX_UNSENT
            && self.local < MAX_UNSENT
            && (!self.backend_link.is_shared() || self.to_client.len() < MAX_UNREAD_SHARED)
            && self.backend_link.may_take(self.unsent)
    }

    /// Lets the backend know, once everything was sent, that no more will come: it sees what it
    /// would have seen without a proxy.
    pub(crate) fn half_close(&mut self) {
        self.closing = true;
    }

    fn half_close_when_sent(&mut self) {
        if !self.closing || self.half_closed || !self.to_backend.is_empty() {
            return;
        }
        self.half_closed = true;
        if let Some(own) = self.backend_link.in_use() {
            let socket = socket2::SockRef::from(&own.stream);
            // An error means that the connection is gone already; reading will tell.
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
    }

    /// Hands over everything that is due to the client, then ends.
    pub(crate) async fn finish(&mut self, end: End) -> End {
        if let End::Evicted = end {
            self.to_client = BytesMut::new();
        }
        while !self.to_client.is_empty() {
            match self.client.try_write(&self.to_client) {
                Ok(written) => {
                    self.sent += written as u64;
                    self.to_client.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let patience = Duration::from_secs(5);
                    let ready = tokio::time::timeout(patience, self.client.writable());
                    if !matches!(ready.await, Ok(Ok(()))) {
                        return End::Client;
                    }
                }
                Err(_) => return End::Client,
            }
        }
        end
    }

    fn flush(&mut self) -> Result<(), End> {
        if self.client_gone {
            self.to_client.clear();
        }
        while !self.to_client.is_empty() {
            match self.client.try_write(&self.to_client) {
                Ok(written) => {
                    self.tally.sent(written);
                    self.sent += written as u64;
                    self.to_client.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.client_vanished = is_of_silence(error.kind());
                    return Err(End::Client);
                }
            }
        }
        if !self.to_backend.is_empty()
            && !self
                .backend_link
                .send(&mut self.to_backend, &mut self.unsent)
        {
            // What it still had to say may be read; then reading says that it is gone.
            self.to_backend.clear();
            self.half_closed = true;
        }
        give_back(&mut self.to_client);
        give_back(&mut self.to_backend);
        Ok(())
    }

    /// Sleeps until a socket can be used or somebody speaks, and reads what there is.
    async fn wait(&mut self, inbox: &mut RequestBuffer, reads_client: bool) -> Result<(), End> {
        // A client that hung up does not wait for a command that may wait for ever.
        if inbox.done && self.blocking > 0 {
            self.half_close();
        }
        self.half_close_when_sent();
        let read_client = reads_client && !inbox.done;
        let unread = self.to_client.len();
        let read_backend = unread <= MAX_UNREAD_WHEN_SHORT
            || (unread <= MAX_UNREAD && (self.is_shared() || !self.account.is_short()));
        let held = unread + inbox.bytes.len() + self.to_backend.len() + self.from_backend.len();
        self.account
            .holds(held + self.local + self.backend_link.waiting());
        poll_fn(|cx| self.poll_sockets(inbox, (read_client, read_backend), cx)).await?;
        if self.evicted {
            return Err(End::Evicted);
        }
        Ok(())
    }

    /// Whoever reads has memory only while it does, or while bytes are in it.
    fn poll_sockets(
        &mut self,
        inbox: &mut RequestBuffer,
        (read_client, read_backend): (bool, bool),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), End>> {
        let mut woken = false;
        if read_backend
            && let Poll::Ready(goes_on) = self.backend_link.poll_replies(&mut self.from_backend, cx)
        {
            self.backend_closed = !goes_on;
            woken = true;
        }
        // What the backend said comes first: a client that is gone may have been answered by it.
        if read_client && !woken {
            match poll_read(&mut self.client, &mut inbox.bytes, cx) {
                Poll::Ready(Ok(0)) => {
                    inbox.done = true;
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
            woken = true;
        }
        if woken {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

/// Whether an error of a socket says that nobody answers any more. Others are word of the other end, or of
/// somebody on the way.
fn is_of_silence(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    !matches!(kind, ConnectionReset | BrokenPipe | ConnectionAborted)
}

//! One client: its connection, its state, what it has proven so far, and the loop that serves it. `intercept` shows
//! the way of a command, and the folders follow it: `understand` (what it means, and which connection and user it is
//! sent with), `judge` (whether it is allowed), `step` (Redis is asked, the reply is read), `account` (what is
//! remembered and logged). `commands` has the commands that concern no lock, `guarded_writes` has writes of data that
//! a lock guards.

// In the order of a command's way.
pub mod transport;

pub mod client;
pub mod enter;
mod intercept;

mod understand;

mod judge;

mod step;

mod account;

mod close;
pub mod commands;
mod guarded_writes;
mod servers;

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockwarden_control::config::Sessions;
use lockwarden_control::net::arrival::Arrival;
use lockwarden_control::net::entrance::Entrance;
use lockwarden_control::net::stream::Stream;
use lockwarden_control::telemetry::metrics::Tally;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult, ProtocolErrorKind, Side};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::plan::{self, Form};
use lockwarden_lock::token::SessionId;
use lockwarden_resp::{Redirects, RequestError, RequestLimits};

use crate::holders::handover::Ended;
use crate::holders::{handover, jobs};
use crate::registry::clients::{ClientConnection, Holder};
use crate::state::ProxyState;
use crate::state::quarantine::longest_ms;
use client::Client;
use client::block::Place;
use client::connection_state::ConnectionState;
use client::entry::Entry;
use client::login::Acting;
use lockwarden_lock::pass_through::PassThrough;
use step::awaited::{InFlight, Look};
use transport::request_buffer::RequestBuffer;
use transport::{BackendLink, End, Event, Muted, Transport};

/// One client and its connections.
pub struct Session {
    pub transport: Transport<Look>,
    /// What is known of the client.
    pub client: Client,
    /// Connections to the backend are shared.
    pub(crate) multiplexed: bool,
    /// In which second since the process began this session's own connection was last used for a step that could have
    /// been sent in a group.
    pub(crate) alone_in: u32,
    /// The step whose reply had not come when the session ended.
    pub(crate) orphan: Option<Box<InFlight>>,
    /// The client said that it is about to close its connection.
    pub took_leave: bool,
    draining: bool,
    /// The connection is as old as it may become.
    aged: bool,
}

/// One in this many passed-through commands is timed.
const SAMPLED_ONE_IN: u64 = 64;

/// A client that vanished in silence is noticed within this time: see `net::listener`.
const SILENT_AT_MOST: Duration = Duration::from_secs(60);

thread_local! {
    /// The counters of this thread.
    static TALLY: OnceCell<Arc<Tally>> = const { OnceCell::new() };
}

impl Session {
    pub fn new(
        shared: Arc<ProxyState>,
        client: Stream,
        backend_link: BackendLink,
        arrival: Arrival,
        entry: Entry,
        id: SessionId,
    ) -> Session {
        let holder = Holder::new();
        let number = holder.session;
        let local = client.local_ip();
        let entrance = Entrance::of(&client);
        let peer = arrival.peer;
        let client_peer = Arc::new(ClientConnection::new(id, holder.clone(), arrival, local, shared.naming.clone()));
        client_peer.known_by.came_in(entrance);
        let was_let_in = !shared.backend.server.may_want_password();
        let mut connection = ConnectionState::new(client_peer, was_let_in);
        let has_user = matches!(entry, Entry::User { .. });
        // A connection that was opened for this login is shared from the first request on that allows it.
        let multiplexed = backend_link.is_shared() || (has_user && shared.sessions == Sessions::Multiplexed);
        if entry.is_strict() {
            connection.login.demand(has_user);
        }
        let tally = TALLY.with(|tally| tally.get_or_init(|| shared.metrics.tally()).clone());
        let transport = Transport::new(
            client,
            backend_link,
            shared.active.clone(),
            tally.clone(),
            holder.wakeup.clone(),
            shared.memory.account(number, holder.wakeup.clone()),
        );
        let mut session = Session {
            transport,
            client: Client::new(shared, holder, peer, connection, tally),
            multiplexed,
            alone_in: 0,
            orphan: None,
            took_leave: false,
            draining: false,
            aged: false,
        };
        match entry {
            Entry::User { login, .. } => session.client.logged_in(login),
            Entry::Default | Entry::Nobody => session.client.introduce(),
        }
        // From here on an order to drain wakes this session; one that came before is seen here.
        if *session.client.shared.drain.borrow() {
            session.transport.keep_draining();
        }
        session
    }

    /// Serves the client until one side is gone. `said` is what the client has sent already.
    pub async fn serve(&mut self, said: BytesMut) -> End {
        let mut inbox = RequestBuffer::with(said);
        let connection = &self.client.connection;
        let wants_password = self.client.shared.backend.server.wants_password();
        if connection.login.is_demanded() || (wants_password && !connection.login.is_done()) {
            inbox.set_limits(RequestLimits::before_auth());
        }
        loop {
            if let Err(end) = self.turn(&mut inbox).await {
                self.note_how_it_ended(&end);
                let end = Box::pin(self.transport.finish(end)).await;
                // The memory is needed now, and marking its leases may take seconds.
                if let End::Evicted = end {
                    inbox = RequestBuffer::with(BytesMut::new());
                }
                Box::pin(self.mark_undelivered(&end, &mut inbox)).await;
                if matches!(end, End::Backend) && inbox.is_empty() && !inbox.done {
                    Box::pin(self.wait_for_holder()).await;
                }
                return end;
            }
        }
    }

    /// Serves the client until one side is gone, and logs why the session ended.
    pub async fn serve_to_end(mut self: Box<Self>, said: BytesMut) {
        let (peer, shared) = (self.client.peer, self.client.shared.clone());
        let end = self.serve(said).await;
        if self.took_leave {
            self.client.report_outlived();
        }
        drop(self);
        match end {
            End::Client | End::Done | End::Backend | End::Evicted => {
                tracing::debug!(%peer, %end, "a client's session ended");
            }
            End::OutOfStep(_) | End::Framing(_) => {
                let kind = match &end {
                    End::Framing(error) => error.kind().into(),
                    _ => ProtocolErrorKind::Unexpected,
                };
                shared.metrics.protocol_errors.at(Side::Backend).at(kind).inc();
                tracing::error!(%peer, %end, "a client's connections were closed");
            }
        }
    }

    /// Notes whether the client closed its connection itself, and since when it may be gone.
    fn note_how_it_ended(&mut self, end: &End) {
        let now = Instant::now();
        match end {
            End::Client if self.transport.client_vanished() => {
                let spoke = now.checked_sub(SILENT_AT_MOST).unwrap_or(now);
                self.client.ended = Ended::ByClient(spoke);
            }
            End::Client if !self.took_leave => self.client.ended = Ended::ByClient(now),
            // A client that said it would close has been noted already.
            End::Client | End::Backend | End::Evicted | End::Done | End::OutOfStep(_) | End::Framing(_) => {}
        }
    }

    async fn turn(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        match self.transport.next_event(inbox).await? {
            Event::Request => self.intercept(inbox).await?,
            Event::Wakeup if self.client.has_twin() => Box::pin(self.nudged_as_twin(inbox)).await?,
            Event::LongArgument => self.client.look_at_long_argument(inbox),
            Event::Reply(reply) => self.learn(reply, inbox)?,
            Event::Malformed(error) => return Err(Box::pin(self.malformed(error, inbox)).await),
            Event::ClientDone => {
                self.took_leave = true;
                self.client.ended = Ended::ByClient(Instant::now());
                Box::pin(self.client_done()).await?;
            }
            Event::Drain if self.may_go() && self.transport.client_is_quiet() => {
                return Err(End::Done);
            }
            // The order is repeated only after the next request: a request that is still unread has not been accepted
            // yet.
            Event::Drain => {
                self.draining = true;
                return Ok(());
            }
            Event::Aged if self.is_too_old() && self.transport.client_is_quiet() => {
                self.client.shared.metrics.clients_aged.inc();
                return Err(End::Done);
            }
            Event::Aged => {
                self.aged = true;
                return Ok(());
            }
            Event::Wakeup => self.nudged(),
            Event::Idle => {}
        }
        if self.client.connection.login.acting() == Acting::Stuck {
            return Err(End::Done);
        }
        if self.draining && self.client.requests > 0 && self.may_go() {
            self.transport.keep_draining();
        }
        if self.aged && self.is_too_old() {
            self.transport.keep_aged();
        }
        // After a whole pipeline, not after each of its commands.
        if inbox.is_empty() {
            self.count_redirects();
            self.look_for_replica()?;
        }
        Ok(())
    }

    /// Whether a stopping proxy may close this connection. A transaction that was begun, by MULTI or by WATCH, is not
    /// cut in half. A holder keeps its connection, because its lock is kept alive for it and its release is proven by
    /// it. A new client may send its first request.
    fn may_go(&self) -> bool {
        let was_served = self.client.requests > 0 || self.draining;
        was_served
            && self.client.connection.block.is_none()
            && !self.client.connection.watch.is_any()
            && !self.client.holds_a_lease(Instant::now())
    }

    /// Whether this connection may be closed because of its age. A connection that listens, or that a lock or a
    /// transaction is bound to, is closed when that is over. If the configuration has dropped the limit meanwhile,
    /// none is closed.
    fn is_too_old(&mut self) -> bool {
        let is_free = self.client.connection.block.is_none()
            && !self.client.connection.watch.is_any()
            && !self.transport.pushes.is_listening()
            && !self.transport.pushes.is_monitoring()
            && !self.client.holds_a_lease(Instant::now());
        let age = self.client.connection.peer().opened.elapsed();
        let most = self.client.active().max_connection_age;
        // Each connection has its own limit, down to nine tenths of the configured one; that its limit has been
        // reached was signalled before.
        is_free && most.is_some_and(|most| age >= most.mul_f64(0.9))
    }

    /// Waits for the reply to what was just sent; replies before it go where they belong.
    pub(crate) async fn answer(&mut self, inbox: &mut RequestBuffer) -> Result<Bytes, End> {
        loop {
            let reply = self.transport.next_reply(inbox).await?;
            if let Look::Answer = reply.look {
                return Ok(reply.frame);
            }
            self.learn(reply, inbox)?;
        }
    }

    /// Waits until the connection state in which the next command will be judged is known.
    pub(crate) async fn settled(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        while !self.client.connection.is_settled() {
            let reply = self.transport.next_reply(inbox).await?;
            self.learn(reply, inbox)?;
        }
        Ok(())
    }

    /// Waits until everything that was sent has been answered.
    pub(crate) async fn all_answered(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        while let Some(reply) = self.transport.next_reply_due(inbox).await? {
            self.learn(reply, inbox)?;
        }
        Ok(())
    }

    /// The same where the twin of the client's user touches the locks.
    async fn nudged_as_twin(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let is_idle = self.client.connection.block.is_none()
            && !self.transport.pushes.takes_no_commands()
            && self.transport.is_idle();
        // What is under way ends first; the task that woke this session wakes it again.
        if !is_idle {
            return Ok(());
        }
        self.own_again(inbox).await?;
        if self.become_twin(inbox, Muted::Yes).await? {
            self.nudged();
        }
        self.rest(inbox).await
    }

    /// Does what other tasks want done over this connection. In a transaction, or while the client listens, that
    /// waits for the next wake-up.
    fn nudged(&mut self) {
        if self.client.connection.block.is_some() || self.transport.pushes.takes_no_commands() {
            return;
        }
        let prefix = self.client.active().companion_prefix.clone();
        self.turn_to_writes();
        let waiting = self.client.connection.peer().take_unidentified();
        if waiting.is_empty() && self.client.shared.renewals.are_renewed_over_holders() {
            self.renew_own(&prefix);
            return;
        }
        if waiting.is_empty() {
            // So that Redis does not close the connection as idle.
            self.transport.inquire(&OwnRequest::Ping, Look::Own);
            return;
        }
        let process = self.client.connection.peer().process();
        for (key, grant) in waiting {
            // The proxy sends no SELECT over a client's connection.
            if key.db() == self.client.connection.selected {
                let step = plan::identify(key.bytes(), grant, process, &prefix);
                self.transport.note(&step, Look::Own);
            }
        }
    }

    /// Renews this session's leases over its own connection, where the proxy's own connection may not.
    fn renew_own(&mut self, prefix: &[u8]) {
        for lease in self.client.shared.renewals.of_session(self.client.number) {
            let key = lease.lock();
            // A renewal is a write, and would make the client's transaction on this key fail.
            let watched = self.client.connection.watch.has_lock(key);
            let longest = longest_ms(&self.client.shared, key, Instant::now());
            if key.db() == self.client.connection.selected && !watched && longest != Some(0) {
                let renewal = (&lease.renewal, longest, true);
                let step = plan::renew(std::iter::once(renewal), prefix);
                self.transport.execute(&step, Form::Text, Look::Renewed(Box::new(lease)), Muted::Yes);
            }
        }
    }

    /// Forwards a command as it came, in its turn, and counts it.
    pub(crate) fn forward(&mut self, class: CommandClass, pass: PassThrough<'_>, muted: Muted) {
        self.client.count(class, CommandResult::Ok);
        self.transport.forward(pass, muted);
        self.client.queued();
    }

    /// Replies to the client now, unless it asked for no reply.
    pub(crate) fn reply(&mut self, reply: &BytesMut, muted: Muted) {
        if muted == Muted::No {
            self.transport.reply(reply);
        }
    }

    /// Replies to the client in its turn, unless it asked for no reply.
    pub(crate) fn answer_locally(&mut self, reply: BytesMut, muted: Muted) {
        if muted == Muted::No {
            self.transport.answer(reply.freeze());
        }
    }

    /// An error line in its turn. Inside a block it also spoils the block, as an error at queue
    /// time does on Redis.
    pub fn error(&mut self, text: &str, muted: Muted) {
        if let Some(block) = &mut self.client.connection.block {
            block.spoil(text);
        }
        self.answer_locally(error_frame(text), muted);
    }

    /// An error that Redis would give. Inside a block it is given when the block is executed, in the place of its
    /// command, and the rest is executed.
    pub(crate) fn redis_error(&mut self, text: String, muted: Muted) {
        let Some(block) = &mut self.client.connection.block else {
            self.answer_locally(error_frame(&text), muted);
            return;
        };
        block.hold(Place::Error(text));
        self.transport.hold_place(muted);
    }

    async fn malformed(&mut self, error: RequestError, inbox: &mut RequestBuffer) -> End {
        let errors = self.client.shared.metrics.protocol_errors.at(Side::Client);
        let kind = match error {
            RequestError::Tls => ProtocolErrorKind::Tls,
            _ => error.kind().into(),
        };
        errors.at(kind).inc();
        tracing::info!(client = %self.client.peer, %error, "closing a connection: not a request");
        let Some(line) = error.reply() else {
            return End::Done;
        };
        self.transport.answer(error_frame(&line).freeze());
        self.last_replies(inbox).await
    }

    /// Hands over what is still due; nothing more is read.
    pub(crate) async fn last_replies(&mut self, inbox: &mut RequestBuffer) -> End {
        match self.all_answered(inbox).await {
            Ok(()) => End::Done,
            Err(end) => end,
        }
    }

    /// The time, for one request in `SAMPLED_ONE_IN`: passed-through requests are not all timed.
    pub(crate) fn sample(&mut self) -> Option<Instant> {
        self.client.requests += 1;
        self.client.requests.is_multiple_of(SAMPLED_ONE_IN).then(Instant::now)
    }

    fn count_redirects(&mut self) {
        let redirects = self.transport.take_redirects();
        if redirects != Redirects::default() {
            let metrics = &self.client.shared.metrics;
            match self.client.shared.backend.server.in_cluster() {
                true => metrics.sent_on(redirects),
                false => metrics.redirected(redirects),
            }
        }
    }
}

/// An encoded `OK`.
pub(crate) const OK: &[u8] = b"+OK\r\n";

/// An encoded error line.
pub(crate) fn error_frame(text: &str) -> BytesMut {
    let mut frame = BytesMut::new();
    lockwarden_resp::put_error(&mut frame, text);
    frame
}

impl Drop for Session {
    fn drop(&mut self) {
        self.count_redirects();
        self.client.unwatch();
        // First, so that this connection is not found as the one that carries on its own leases.
        let session = self.client.connection.who().session;
        let left = self.client.ended.at();
        self.client.shared.clients.remove((session, self.client.number), left);
        // Before the leases are handed over: a job that carries on a lease comes before other connections.
        if let Some((key, grant)) = self.client.first_lock.take() {
            jobs::client_left(&self.client.shared, key, grant, self.client.ended);
        }
        self.client.leaves_leases();
        handover::end_session(&self.client.shared, self.client.number, self.client.ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most of the memory of an idle connection is its session and the future that serves it. What is awaited seldom
    /// is boxed while it runs. If this test fails, a future that is awaited for every command was not boxed.
    #[test]
    fn an_idle_session_takes_little() {
        fn serving(session: &mut Session) -> impl Future<Output = End> {
            session.serve(BytesMut::new())
        }
        fn size_of_future<'a, F>(_: impl FnOnce(&'a mut Session) -> F) -> usize {
            size_of::<F>()
        }
        let taken = size_of::<Session>() + size_of_future(serving);
        assert!(taken <= 3_072, "{taken} bytes");
    }
}

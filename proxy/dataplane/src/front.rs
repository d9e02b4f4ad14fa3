//! One client of a cluster that knows nothing of it. A front reads its requests, finds the shard that each is for,
//! and hands it to a session with that shard: a *leg*, which is an ordinary session behind a pipe in memory. Replies
//! are returned to the client in the order of its requests. Redirects that a node gives for moved slots are followed
//! here (`follow`); no client sees them.
//!
//! Requests to one shard are handed on as they come. Every other request waits until all before it are answered: the
//! state of the connection (`connection`), blocks (`block`), subscriptions (`listen`), and requests to several shards
//! (`spread`).

mod block;
mod bound;
mod connection;
mod face;
mod farewell;
mod follow;
mod leg;
mod legs;
mod listen;
mod route;
mod said;
mod spread;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use lockwarden_control::config::Advertise;
use lockwarden_control::net::arrival::Arrival;
use lockwarden_control::net::buffer_pool::{give_back, put};
use lockwarden_control::net::peer::PeerAddress;
use lockwarden_control::net::pipe::ClientSocket;
use lockwarden_control::net::stream::{Stream, poll_read};
use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_control::random;
use lockwarden_control::telemetry::vocabulary::{ProtocolErrorKind, Side};
use lockwarden_lock::classify::names_lock;
use lockwarden_lock::table::{Lookup, lookup};
use lockwarden_lock::token::SessionId;
use lockwarden_resp::{Protocol, ReplyError, Request, RequestDecoder, RequestError, RequestLimits, Step};

use crate::backend::BackendError;
use crate::registry::buffer_memory::Account;
use crate::registry::clients::Holder;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::{OK, error_frame};
use crate::state::ProxyState;
use bound::{Block, Listening};
use face::Face;
use leg::{Came, Leg};
use route::{Route, route};
use said::{Reply, Said};

/// Bytes of replies that may wait for the client to take them; beyond this limit no more are taken from legs.
const MAX_UNREAD: usize = 256 * 1024;
/// Requests read ahead of those that are under way, in bytes.
const READ_AHEAD: usize = 64 * 1024;
/// Most requests under way.
const MAX_DUE: usize = 1024 * 1024;
/// Bytes of requests that may wait for one leg to take them; beyond this limit no more are read.
const MAX_UNSENT: usize = 1024 * 1024;
/// Bytes of requests under way that are kept, in case they have to be sent to another server. Beyond this limit requests wait.
const MAX_KEPT: usize = 256 * 1024;
/// Bytes of memory for them that are kept at rest; more is freed.
const KEPT_AT_REST: usize = 512;
/// How often to check whether a shard is served.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Redis's error for a slot that no node serves.
const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";
const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// See the module.
pub struct Front {
    /// The first shard, and all state that exists once for the process.
    shared: Arc<ProxyState>,
    /// The id of all its sessions.
    id: SessionId,
    arrival: Arrival,
    peer: PeerAddress,
    /// What the client sees if it is shown the proxy as the only node of a cluster.
    face: Option<Face>,
    socket: Arc<ClientSocket<Stream>>,
    inbox: RequestBuffer,
    /// The request at the front of the inbox waits until others are answered.
    is_held: bool,
    to_client: BytesMut,
    /// Bytes written to the client.
    sent: u64,
    legs: Vec<Option<Leg>>,
    /// The leg for requests that name no key.
    home: Option<usize>,
    /// Pipes to sessions whose server is gone, and that are kept because of the client's leases.
    left: Vec<Leg>,
    due: VecDeque<Due>,
    /// The requests whose replies are due, one after the other, as far as they are kept.
    kept: BytesMut,
    /// A request was sent to another server: until all are answered no more are taken, so that none overtakes it.
    is_settling: bool,
    /// The present request may keep the client waiting.
    waits: bool,
    reply: Reply,
    protocol: Protocol,
    said: Said,
    /// A request that is sent to the session that gets the next one, ahead of that.
    ahead: Option<Bytes>,
    block: Option<Block>,
    /// The leg on which keys are watched.
    watching: Option<usize>,
    /// Where it listens: on the first leg to all channels, on each leg to the sharded ones that its server has.
    listening: Vec<Listening>,
    account: Account,
    wakeup: Arc<Wakeup>,
}

/// What the client gets next.
enum Due {
    /// The reply of a leg.
    Leg {
        at: usize,
        /// Whether the client wants it.
        shown: bool,
        /// Bytes of the request, where it is kept; 0 where not.
        kept: usize,
        /// Whether a redirect is looked for: the front sends requests of its own that get none.
        looks: bool,
        /// It belongs to a block, which is sent to no other server.
        in_block: bool,
    },
    /// A reply of the front's own.
    Local(Bytes),
}

/// Why a client is not served any more.
#[derive(Debug)]
enum Over {
    /// It is gone, or its connection broke.
    Client(Option<io::ErrorKind>),
    /// A server that the client waits for is gone.
    Backend,
    /// It held more memory than others when memory was short.
    Evicted,
    /// All is sent.
    Done,
}

impl Front {
    /// Opens a front with a leg to some shard, which shows whether clients are served at all.
    pub async fn open(
        shared: &Arc<ProxyState>,
        stream: Stream,
        arrival: Arrival,
        advertise: Option<&Advertise>,
    ) -> Result<Front, BackendError> {
        let own = Holder::new();
        let face = advertise.map(|advertise| Face::of(advertise, stream.local_ip()));
        let mut front = Front {
            shared: shared.clone(),
            id: SessionId(random::sixteen()),
            peer: arrival.peer,
            arrival,
            face,
            socket: ClientSocket::new(stream),
            inbox: RequestBuffer::with(BytesMut::new()),
            is_held: false,
            to_client: BytesMut::new(),
            sent: 0,
            legs: Vec::new(),
            home: None,
            left: Vec::new(),
            due: VecDeque::new(),
            kept: BytesMut::new(),
            is_settling: false,
            waits: false,
            reply: Reply::On,
            protocol: Protocol::Resp2,
            said: Said::default(),
            ahead: None,
            block: None,
            watching: None,
            listening: Vec::new(),
            account: shared.memory.account(own.session, own.wakeup.clone()),
            wakeup: own.wakeup,
        };
        front.open_home().await?;
        Ok(front)
    }

    /// Serves the client until one side is gone. `said` is what the client has sent already.
    pub async fn run(mut self: Box<Self>, said: BytesMut) {
        self.inbox = RequestBuffer::with(said);
        if self.said.must_log_in {
            self.inbox.set_limits(RequestLimits::before_auth());
        }
        let over = loop {
            if let Err(over) = self.turn().await {
                break over;
            }
        };
        tracing::debug!(peer = %self.peer, ?over, "a client of the cluster is not served any more");
        Box::pin(self.finish(over)).await;
    }

    /// Hands on what has come, and waits for more.
    async fn turn(&mut self) -> Result<(), Over> {
        while let Some(redirect) = self.deliver()? {
            Box::pin(self.follow_head(redirect)).await?;
        }
        self.is_settling &= !self.due.is_empty();
        let mut is_drained = false;
        while self.takes_more() {
            if !self.is_held {
                match self.inbox.decode() {
                    Ok(true) => {}
                    Ok(false) => {
                        is_drained = true;
                        break;
                    }
                    Err(error) => return Err(Box::pin(self.malformed(error)).await),
                }
            }
            self.is_held = !self.take().await?;
            if self.is_held {
                break;
            }
        }
        self.socket.leaves_waiting(self.inbox.waiting());
        // Requests after a command that waits get no reply if the client is gone, as on Redis itself.
        if self.inbox.done && (is_drained || self.is_held && self.head_waits()) {
            self.client_done();
        }
        if self.due.is_empty() && self.legs.iter().all(Option::is_none) {
            // There is no session any more.
            match self.left.is_empty() {
                true if self.is_old() && self.is_amid() && !*self.shared.drain.borrow() => {
                    Box::pin(self.home()).await?;
                }
                true => return Err(Over::Done),
                false => return Err(Over::Backend),
            }
        }
        let was_full = self.to_client.len() >= MAX_UNREAD;
        let is_news = self.flush()?;
        if is_news || self.may_deliver() || (was_full && self.to_client.len() < MAX_UNREAD) {
            return Ok(());
        }
        self.wait().await
    }

    /// Takes the request at the front of the inbox. Returns true if it was taken, false if it waits until others are
    /// answered.
    async fn take(&mut self) -> Result<bool, Over> {
        if self.listens_alone() {
            return Box::pin(self.take_as_listener()).await;
        }
        if self.block.is_some() {
            return Box::pin(self.take_in_block()).await.map(|()| true);
        }
        let route = self.route();
        let at = match route {
            Route::Slot(slot) => match self.leg_of(slot) {
                Some(at) => Ok(at),
                // It may take a while, and replies must not wait for it.
                None if !self.due.is_empty() => return Ok(false),
                None => Box::pin(self.reach(slot)).await?,
            },
            Route::Any => Ok(self.home().await?),
            _ if !self.due.is_empty() => return Ok(false),
            _ => return Box::pin(self.take_alone(route)).await.map(|()| true),
        };
        match at {
            // In a pipeline the release of a lock comes after the writes that it guards, on whatever shard those are.
            Ok(at) if self.waits_for_others(at) || self.waits_for_room() => return Ok(false),
            Ok(at) => self.send(at),
            Err(error) => self.answer(error_frame(error)),
        }
        Ok(true)
    }

    /// Takes a request for which all before it were answered.
    async fn take_alone(&mut self, route: Route) -> Result<(), Over> {
        // CLIENT CACHING is for the next command, or for all of a block.
        let keeps_ahead = matches!(route, Route::Caching | Route::Session(_));
        match route {
            Route::Slot(_) | Route::Any => {}
            Route::AnyInfo => self.show_info().await?,
            Route::Split(parts) => self.split(parts).await?,
            Route::Cross => {
                let error = self.cross_slot();
                self.answer(error_frame(error));
            }
            Route::Every(joined) => self.ask_every(joined).await?,
            Route::Flush => self.flush_every().await?,
            Route::Scan => self.scan().await?,
            Route::Draw => self.draw().await?,
            Route::Wait => self.wait_for_replicas().await?,
            Route::Session(verb) => self.session_verb(verb).await?,
            Route::Caching => self.caching().await?,
            Route::Flag => self.set_flag().await?,
            Route::Refused(error) => self.answer(error_frame(error)),
            Route::Okay => self.answer(OK),
            Route::Face => {
                let said = self.face.as_ref().map(|face| face.answer(&self.inbox.request(), self.protocol));
                self.answer(said.unwrap_or_default());
            }
        }
        if !keeps_ahead {
            self.ahead = None;
        }
        Ok(())
    }

    fn route(&self) -> Route {
        let request = self.inbox.request();
        let presented = self.face.as_ref().and_then(|_| face::route(&request));
        presented.unwrap_or_else(|| self.route_of(&request))
    }

    fn route_of(&self, request: &Request<'_>) -> Route {
        route(request, || self.shared.backend.server.commands().clone())
    }

    /// Whether the present request is about a lock while other requests of this client are under way on other shards.
    fn waits_for_others(&self, at: usize) -> bool {
        let is_other = |(other, leg): (usize, &Option<Leg>)| other != at && leg.as_ref().is_some_and(|leg| leg.due > 0);
        self.legs.iter().enumerate().any(is_other)
            && names_lock(&self.shared.active.load().namespaces, &self.inbox.request())
    }

    /// Whether the present request is to be kept and has no room yet. A client that does not take its replies is not held up: it may read
    /// none before it has sent all its requests.
    fn waits_for_room(&self) -> bool {
        let bytes = self.kept.len() + self.inbox.request().frame().len();
        bytes > MAX_KEPT && !self.kept.is_empty() && self.to_client.len() < MAX_UNREAD
    }

    /// Hands the request at the front of the inbox to a leg.
    fn send(&mut self, at: usize) {
        self.send_ahead(at);
        let shown = self.reply.next();
        let request = self.inbox.request();
        let frame = request.frame();
        let is_kept = self.block.is_none() && self.kept.len() + frame.len() <= MAX_KEPT;
        let kept = if is_kept { frame.len() } else { 0 };
        if is_kept {
            self.kept.extend_from_slice(frame);
        }
        if let Some(leg) = &mut self.legs[at] {
            leg.send(frame);
            leg.due += 1;
        }
        self.due.push_back(Due::Leg { at, shown, kept, looks: true, in_block: self.block.is_some() });
    }

    /// Sends what comes ahead of the next request, if anything does.
    fn send_ahead(&mut self, at: usize) {
        if let Some(ahead) = self.ahead.take() {
            self.send_hidden(at, &ahead);
        }
    }

    /// Has a leg execute a request for which the client gets no reply.
    fn send_hidden(&mut self, at: usize, request: &[u8]) {
        if let Some(leg) = &mut self.legs[at] {
            leg.send(request);
            leg.due += 1;
        }
        self.due.push_back(Due::Leg { at, shown: false, kept: 0, looks: false, in_block: false });
    }

    /// Gives the client this reply in its turn, unless it asked for no reply.
    fn answer(&mut self, reply: impl Into<Bytes>) {
        if self.reply.next() {
            self.due.push_back(Due::Local(reply.into()));
        }
    }

    /// Hands replies to the client in their turn. Returns a redirect to another server, if one is next.
    fn deliver(&mut self) -> Result<Option<Bytes>, Over> {
        while self.to_client.len() < MAX_UNREAD {
            match self.due.front() {
                None => break,
                Some(Due::Local(reply)) => {
                    put(&mut self.to_client, reply);
                    self.due.pop_front();
                }
                Some(&Due::Leg { at, shown, looks, .. }) => {
                    let Some(leg) = &mut self.legs[at] else {
                        return Err(Over::Backend);
                    };
                    let came = leg.relay(&mut self.to_client, self.sent, (shown, looks));
                    match came.map_err(out_of_step)? {
                        Came::Whole => self.is_answered(),
                        Came::Redirect(frame) => return Ok(Some(frame)),
                        Came::Refused => return Err(self.is_unlike(at)),
                        Came::Part if leg.ended => return Err(Over::Backend),
                        Came::Part => break,
                    }
                }
            }
        }
        self.deliver_pushes()?;
        self.drop_ended()?;
        Ok(None)
    }

    /// A session has refused what the client's other sessions have accepted, a login for example: later requests
    /// would be executed differently there.
    fn is_unlike(&self, at: usize) -> Over {
        let shard = self.legs[at].as_ref().map(|leg| leg.shard.backend.address.to_string());
        tracing::warn!(
            client = %self.peer,
            shard = shard.as_deref().unwrap_or_default(),
            "a client is closed: a node of the cluster refuses what others have taken from it; give all nodes the same users"
        );
        Over::Backend
    }

    /// The request at the head has its reply.
    fn is_answered(&mut self) {
        let Some(Due::Leg { at, kept, .. }) = self.due.pop_front() else {
            return;
        };
        self.kept.advance(kept);
        // A little memory is kept for the next one.
        if self.kept.is_empty() && self.kept.try_reclaim(KEPT_AT_REST) {
            self.kept = BytesMut::new();
        }
        if let Some(leg) = &mut self.legs[at] {
            leg.due -= 1;
        }
    }

    /// Hands on pushes, unless a reply is being handed on in parts.
    fn deliver_pushes(&mut self) -> Result<(), Over> {
        if self.listens_alone() {
            return self.deliver_as_listener();
        }
        if self.legs.iter().flatten().any(|leg| !leg.is_between_frames()) {
            return Ok(());
        }
        for leg in self.legs.iter_mut().flatten() {
            while self.to_client.len() < MAX_UNREAD
                && let Some(frame) = leg.take_push().map_err(out_of_step)?
            {
                leg.hand_on(&frame, &mut self.to_client, self.sent);
            }
            if leg.due == 0 && !leg.from.is_empty() && leg.from[0] != b'>' && leg.from[0] != b'-' {
                return Err(out_of_step(ReplyError::TooBig));
            }
        }
        Ok(())
    }

    /// Whether more can be handed on at once.
    fn may_deliver(&self) -> bool {
        self.to_client.len() < MAX_UNREAD && matches!(self.due.front(), Some(Due::Local(_)))
    }

    /// Drops legs whose sessions have ended with nothing due, if nothing was bound to them. Those that hold leases
    /// are kept as long as the client stays.
    fn drop_ended(&mut self) -> Result<(), Over> {
        let mut has_ended = false;
        for at in 0..self.legs.len() {
            let is_over = |leg: &Leg| leg.ended && leg.due == 0 && leg.from.is_empty();
            if !self.legs[at].as_ref().is_some_and(is_over) {
                continue;
            }
            let is_bound = self.watching == Some(at)
                || self.block.as_ref().is_some_and(|block| block.is_on(at))
                || self.listening.iter().any(|listening| listening.is_on(at))
                // Invalidations would be missed.
                || self.said.tracks();
            if is_bound {
                return Err(Over::Backend);
            }
            has_ended = true;
            if let Some(leg) = self.legs[at].take()
                && !leg.pipe.is_alone()
            {
                self.left.push(leg);
            }
        }
        self.left.retain(|leg| !leg.pipe.is_alone());
        // If a session ended because of its age, the client's connection is closed as soon as all sessions can end.
        if has_ended && self.is_old() {
            self.legs.iter().flatten().for_each(|leg| leg.session.wakeup.aged());
        }
        Ok(())
    }

    /// Whether the connection has reached `max_connection_age`, or up to a tenth less.
    fn is_old(&self) -> bool {
        let most = self.shared.active.load().max_connection_age;
        most.is_some_and(|most| self.arrival.at.elapsed() >= most.mul_f64(0.9))
    }

    /// Whether the client has begun something that no session knows of.
    fn is_amid(&self) -> bool {
        self.block.is_some() || self.inbox.waiting() > 0
    }

    /// Whether a further request may be taken from the client, even if it does not take its replies yet: replies that
    /// it has no room for wait at their servers, as without a proxy.
    fn takes_more(&self) -> bool {
        !self.is_settling && self.due.len() < MAX_DUE && self.legs.iter().flatten().all(|leg| leg.to.len() < MAX_UNSENT)
    }

    /// Writes as much as can be written now. Returns whether a session is gone that something was to be sent to.
    fn flush(&mut self) -> Result<bool, Over> {
        while !self.to_client.is_empty() {
            let written = self.socket.stream().give(&mut self.to_client);
            match written {
                Ok(written) => {
                    self.sent += written as u64;
                    self.socket.was_sent(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Over::Client(Some(error.kind()))),
            }
        }
        give_back(&mut self.to_client);
        let mut is_news = false;
        for leg in self.legs.iter_mut().flatten().filter(|leg| !leg.to.is_empty() && !leg.ended) {
            match leg.pipe.give(&mut leg.to) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    leg.to = BytesMut::new();
                    leg.ended = true;
                    is_news = true;
                }
                Ok(_) | Err(_) => give_back(&mut leg.to),
            }
        }
        Ok(is_news)
    }

    /// The client sends no more; each session is told so once it has all that is for it.
    fn client_done(&mut self) {
        for leg in self.legs.iter_mut().flatten().filter(|leg| leg.to.is_empty()) {
            leg.pipe.close(None);
        }
        for leg in &self.left {
            leg.pipe.close(None);
        }
    }

    /// Whether the request whose reply is due next may keep its client waiting.
    fn head_waits(&self) -> bool {
        let Some(&Due::Leg { kept, .. }) = self.due.front() else {
            return false;
        };
        decoded(&self.kept[..kept], |request| matches!(lookup(request), Lookup::Known(spec) if spec.blocking))
            .unwrap_or(false)
    }

    /// Waits for this long, or until something happens.
    async fn rest(&mut self, most: Duration) -> Result<(), Over> {
        self.flush()?;
        match tokio::time::timeout(most, self.wait()).await {
            Ok(happened) => happened,
            Err(_) => Ok(()),
        }
    }

    /// Sleeps until the client or a leg can be written to or has something to read, and reads what there is.
    async fn wait(&mut self) -> Result<(), Over> {
        let of_legs: usize = self.legs.iter().flatten().map(Leg::holds_bytes).sum();
        let due = self.due.len() * size_of::<Due>();
        self.account.holds(self.inbox.bytes.len() + self.to_client.len() + self.kept.len() + due + of_legs);
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        let mut woken = false;
        for leg in self.legs.iter_mut().flatten().filter(|leg| !leg.ended) {
            if leg.from.len() < MAX_UNREAD || leg.is_collecting {
                match leg.pipe.poll_take(&mut leg.from, cx) {
                    Poll::Ready(Ok(1..)) => woken = true,
                    Poll::Ready(Ok(0) | Err(_)) => (leg.ended, woken) = (true, true),
                    Poll::Pending => {}
                }
            }
            woken |= !leg.to.is_empty() && leg.pipe.poll_write_ready(cx).is_ready();
        }
        if !self.left.is_empty() {
            self.left.retain(|leg| leg.pipe.poll_alone(cx).is_pending());
        }
        // An incomplete request may be as long as it announces.
        let reads = self.inbox.waiting() < READ_AHEAD || (self.takes_more() && !self.is_held);
        if !self.inbox.done && reads {
            match poll_read(&mut self.socket.stream(), &mut self.inbox.bytes, cx) {
                Poll::Ready(Ok(0)) => (self.inbox.done, woken) = (true, true),
                Poll::Ready(Ok(_)) => {
                    self.socket.has_spoken();
                    woken = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Over::Client(Some(error.kind())))),
                Poll::Pending => {}
            }
        }
        if !self.to_client.is_empty() {
            match self.socket.stream().poll_write_ready(cx) {
                Poll::Ready(Ok(())) => woken = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Over::Client(Some(error.kind())))),
                Poll::Pending => {}
            }
        }
        if let Some(said) = self.wakeup.look(cx) {
            if said.evict {
                return Poll::Ready(Err(Over::Evicted));
            }
            woken = true;
        }
        if woken { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    async fn malformed(&mut self, error: RequestError) -> Over {
        let kind = match error {
            RequestError::Tls => ProtocolErrorKind::Tls,
            _ => error.kind().into(),
        };
        self.shared.metrics.protocol_errors.at(Side::Client).at(kind).inc();
        tracing::info!(client = %self.peer, %error, "closing a connection: not a request");
        if let Some(line) = error.reply() {
            self.due.push_back(Due::Local(error_frame(&line).freeze()));
            if let Err(over) = self.settle().await {
                return over;
            }
        }
        Over::Done
    }

    /// Waits until everything that was sent has been answered.
    async fn settle(&mut self) -> Result<(), Over> {
        loop {
            while let Some(redirect) = self.deliver()? {
                Box::pin(self.follow_head(redirect)).await?;
            }
            if self.due.is_empty() {
                return Ok(());
            }
            self.flush()?;
            self.wait().await?;
        }
    }

    /// Asks a leg on which nothing is under way, and returns its reply. Pushes that come meanwhile are handed on.
    async fn ask(&mut self, at: usize, request: &[u8]) -> Result<Bytes, Over> {
        if let Some(leg) = &mut self.legs[at] {
            leg.send(request);
        }
        self.taken_frame(at).await
    }

    /// The same for a request whose reply is not for the client.
    async fn ask_aside(&mut self, at: usize, request: &[u8]) -> Result<Bytes, Over> {
        if let Some(leg) = &mut self.legs[at] {
            leg.send(request);
        }
        self.dropped_frame(at).await
    }

    /// The next reply of a leg, of which nothing is passed to the client.
    async fn dropped_frame(&mut self, at: usize) -> Result<Bytes, Over> {
        let frame = self.next_frame(at).await?;
        if let Some(leg) = &self.legs[at] {
            leg.pipe.drops(frame.len());
        }
        Ok(frame)
    }

    /// The next reply of a leg, which is passed to the client as a whole.
    async fn taken_frame(&mut self, at: usize) -> Result<Bytes, Over> {
        let frame = self.next_frame(at).await?;
        if let Some(leg) = &self.legs[at] {
            let end = self.sent + (self.to_client.len() + frame.len()) as u64;
            leg.pipe.goes_on(frame.len(), end, false);
        }
        Ok(frame)
    }

    async fn next_frame(&mut self, at: usize) -> Result<Bytes, Over> {
        loop {
            let Some(leg) = &mut self.legs[at] else {
                return Err(Over::Backend);
            };
            while let Some(frame) = leg.take_frame().map_err(out_of_step)? {
                if frame[0] != b'>' {
                    return Ok(frame);
                }
                leg.hand_on(&frame, &mut self.to_client, self.sent);
            }
            if leg.ended {
                return Err(Over::Backend);
            }
            if self.waits && self.inbox.done {
                self.client_done();
            }
            self.flush()?;
            self.wait().await?;
        }
    }

    /// The error for keys in several slots, or on several shards. Counted.
    fn cross_slot(&self) -> &'static str {
        self.shared.metrics.cluster_cross_slot.inc();
        CROSS_SLOT
    }

    fn want_map(&self) {
        if let Some(map) = self.shared.shards.map() {
            map.want();
        }
    }
}

/// Applies `look` to a request that was sent before.
fn decoded<T>(frame: &[u8], look: impl FnOnce(&Request<'_>) -> T) -> Option<T> {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    match decoder.decode(frame) {
        Ok(Step::Request { .. }) => Some(look(&decoder.request(frame))),
        Ok(_) | Err(_) => None,
    }
}

fn out_of_step(error: ReplyError) -> Over {
    tracing::error!(%error, "a session has answered what no Redis answers: its client is closed");
    Over::Backend
}

//! Connections to the backend that clients of one thread share (`sessions = "multiplexed"`). A trunk
//! carries whole requests in the order in which they were put on it, many in one write, and hands each
//! reply to the session whose request it answers. It knows nothing of what they say: which request may
//! travel so is decided in `session::sharing`.
//!
//! One task for each trunk writes and reads. Whoever puts a request on it wakes that task, which runs
//! when all clients that had something to say have said it; so the requests of a turn leave together,
//! and no timer is needed.

mod lane;
mod yard;

pub(crate) use lane::{Lane, Login};
pub(crate) use yard::{keep_spare, spare};

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use lockwarden_resp::{ReplyError, ReplyLimits, ReplyScanner};
use tokio::io::AsyncWrite;

use crate::backend::Link;
use crate::buffers::{give_back, move_front};
use crate::metrics::{ProtocolErrorKind, Side};
use crate::shared::Shared;
use crate::wires::poll_read;

/// Requests that wait for the backend to take them, in bytes; above that no more are taken.
const MOST_UNSENT: usize = 1024 * 1024;
/// Replies that wait for one session, in bytes; above that everybody's wait, on a trunk that gets no
/// more requests.
const MOST_UNREAD: usize = 64 * 1024 * 1024;
/// A client that takes none of those replies for so long, while others wait, is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client may say that a shared connection leads to a replica; one that was opened just now is not
/// opened again for it.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

/// One shared connection.
struct Trunk {
    inner: RefCell<Inner>,
    /// In which the backend's name was looked up for it.
    era: u64,
    opened: Instant,
}

#[derive(Default)]
struct Inner {
    /// Requests on their way.
    out: BytesMut,
    /// Whose replies come next.
    due: VecDeque<Due>,
    /// The task that writes and reads.
    pump: Option<Waker>,
    /// Sessions that wait until there is room for more requests.
    waiting: Vec<Waker>,
    /// Gets no more requests; what is due still comes.
    retired: bool,
    /// Sessions that have a place on it.
    ports: usize,
    /// It had none when somebody looked last.
    was_unused: bool,
}

struct Due {
    place: Rc<RefCell<Place>>,
    frames: u64,
}

/// Where the replies to one session are put.
#[derive(Default)]
struct Place {
    replies: BytesMut,
    /// Replies still to come.
    due: u64,
    /// How many bytes were taken in all.
    taken: u64,
    sleeper: Option<Waker>,
    /// The trunk waits until this session has taken its replies.
    drained: Option<Waker>,
    /// No more replies come, and which requests were carried out is not known.
    broken: bool,
    /// Nobody wants the replies any more.
    gone: bool,
}

/// A session's end of a trunk.
pub(crate) struct Port {
    lane: Lane,
    shared: Arc<Shared>,
    trunk: Rc<Trunk>,
    place: Rc<RefCell<Place>>,
}

/// Requests were sent whose replies do not come any more.
#[derive(Debug)]
pub(crate) struct Broken;

impl Port {
    /// A place on the trunk of this kind; `None` where there are too many kinds.
    pub(crate) fn new(lane: &Lane, shared: &Arc<Shared>) -> Option<Port> {
        let trunk = yard::trunk(lane, shared)?;
        trunk.take_place();
        Some(Port {
            lane: lane.clone(),
            shared: shared.clone(),
            trunk,
            place: Rc::default(),
        })
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// How many replies are still to come.
    pub(crate) fn due(&self) -> u64 {
        self.place.borrow().due
    }

    /// Puts whole requests on the trunk, to which so many replies will come. Takes nothing where there
    /// is no room; then [`Port::poll_room`] says when.
    pub(crate) fn send(&mut self, requests: &mut BytesMut, replies: u64) {
        if self.trunk.era != self.shared.server.era() {
            self.trunk.retire(&self.lane);
        }
        if self.trunk.inner.borrow().retired {
            // What was sent before has to be answered before: order is kept on one connection only.
            if self.place.borrow().due > 0 {
                return;
            }
            match yard::trunk(&self.lane, &self.shared) {
                Some(trunk) => {
                    self.trunk.inner.borrow_mut().ports -= 1;
                    trunk.take_place();
                    self.trunk = trunk;
                }
                None => {
                    self.place.borrow_mut().broken = true;
                    return;
                }
            }
        }
        let mut inner = self.trunk.inner.borrow_mut();
        if inner.out.len() >= MOST_UNSENT {
            return;
        }
        move_front(requests, requests.len(), &mut inner.out);
        self.place.borrow_mut().due += replies;
        match inner.due.back_mut() {
            Some(last) if Rc::ptr_eq(&last.place, &self.place) => last.frames += replies,
            _ => inner.due.push_back(Due {
                place: self.place.clone(),
                frames: replies,
            }),
        }
        if let Some(pump) = inner.pump.take() {
            pump.wake();
        }
    }

    /// This connection leads to a server that takes no writes any more: who has a request goes by
    /// another one.
    pub(crate) fn leave_replica(&self) {
        if self.trunk.opened.elapsed() >= SHORTEST_LIFE {
            self.trunk.retire(&self.lane);
        }
    }

    /// Ready when requests may be taken again.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut inner = self.trunk.inner.borrow_mut();
        let place = self.place.borrow();
        let has_room = match inner.retired {
            true => place.due == 0,
            false => inner.out.len() < MOST_UNSENT,
        };
        if has_room || place.broken {
            return Poll::Ready(());
        }
        // Where it is retired, the last reply wakes this session anyway.
        let is_known = |waiting: &Waker| waiting.will_wake(cx.waker());
        if !inner.retired && !inner.waiting.iter().any(is_known) {
            inner.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Moves the replies that have come behind what is there already.
    pub(crate) fn poll_replies(
        &self,
        into: &mut BytesMut,
        cx: &Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        let mut place = self.place.borrow_mut();
        if place.replies.is_empty() {
            if place.broken {
                return Poll::Ready(Err(Broken));
            }
            register(&mut place.sleeper, cx);
            return Poll::Pending;
        }
        place.taken += place.replies.len() as u64;
        if into.is_empty() {
            give_back(into);
            mem::swap(&mut place.replies, into);
        } else {
            into.extend_from_slice(&place.replies);
            place.replies.clear();
            give_back(&mut place.replies);
        }
        if let Some(pump) = place.drained.take() {
            pump.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.trunk.inner.borrow_mut().ports -= 1;
        let mut place = self.place.borrow_mut();
        place.gone = true;
        place.replies = BytesMut::new();
        if let Some(pump) = place.drained.take() {
            pump.wake();
        }
    }
}

impl Trunk {
    fn new(era: u64) -> Trunk {
        Trunk {
            inner: RefCell::default(),
            era,
            opened: Instant::now(),
        }
    }

    fn take_place(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.ports += 1;
        inner.was_unused = false;
    }

    /// Whether no session has a place on it, and nobody's reply is due.
    fn is_free(&self) -> bool {
        let inner = self.inner.borrow();
        inner.ports == 0 && inner.due.is_empty()
    }

    /// Closes it if it was free the last time as well; answers whether it did.
    fn close_if_unused(&self) -> bool {
        let is_free = self.is_free();
        let was_unused = mem::replace(&mut self.inner.borrow_mut().was_unused, is_free);
        if is_free && was_unused {
            self.close();
        }
        is_free && was_unused
    }

    /// Ends it as soon as nothing is due any more.
    fn close(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.retired = true;
        wake(&mut inner.pump);
    }

    /// No more requests come this way.
    fn retire(self: &Rc<Trunk>, lane: &Lane) {
        self.close();
        yard::remove(lane, self);
        for waiting in mem::take(&mut self.inner.borrow_mut().waiting) {
            waiting.wake();
        }
    }

    /// No more replies come.
    fn break_off(self: &Rc<Trunk>, lane: &Lane) {
        self.retire(lane);
        let due = mem::take(&mut self.inner.borrow_mut().due);
        for Due { place, .. } in due {
            let mut place = place.borrow_mut();
            place.broken = true;
            wake(&mut place.sleeper);
        }
    }
}

/// The life of a trunk.
async fn run(trunk: Rc<Trunk>, lane: Lane, shared: Arc<Shared>) {
    match shared.backend.open(&lane, &shared).await {
        Ok(link) => {
            let mut pump = Pump {
                trunk: trunk.clone(),
                link,
                from_backend: BytesMut::new(),
                scanner: ReplyScanner::new(ReplyLimits::default()),
            };
            match pump.run(&lane).await {
                Ok(()) => {}
                Err(why @ (Ended::Gone(_) | Ended::HungUp)) => {
                    tracing::debug!(%why, "a shared connection to the backend ended");
                }
                Err(why @ (Ended::Unasked | Ended::Framing(_))) => {
                    let kind = match &why {
                        Ended::Framing(error) => error.kind().into(),
                        _ => ProtocolErrorKind::Unexpected,
                    };
                    let errors = shared.metrics.protocol_errors.at(Side::Backend);
                    errors.at(kind).inc();
                    tracing::error!(%why, "a shared connection to the backend was closed");
                }
            }
        }
        // The upkeep connection says once that the backend is down.
        Err(error) => tracing::debug!(%error, "no shared connection to the backend"),
    }
    trunk.break_off(&lane);
}

/// Writes and reads.
struct Pump {
    trunk: Rc<Trunk>,
    link: Link,
    from_backend: BytesMut,
    scanner: ReplyScanner,
}

/// Why a trunk ends.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the backend is gone: {0}")]
    Gone(#[from] io::Error),
    #[error("the backend hung up")]
    HungUp,
    #[error("the backend is out of step: a reply that nobody asked for")]
    Unasked,
    #[error("the backend is out of step: {0}")]
    Framing(#[from] ReplyError),
}

impl Pump {
    async fn run(&mut self, lane: &Lane) -> Result<(), Ended> {
        loop {
            poll_fn(|cx| self.poll(lane, cx)).await?;
            while let Some(slow) = self.route()? {
                self.wait_for(&slow, lane).await;
            }
            let inner = self.trunk.inner.borrow();
            if inner.retired && inner.due.is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes what there is, and reads once.
    fn poll(&mut self, lane: &Lane, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let mut inner = self.trunk.inner.borrow_mut();
        let mut failed = false;
        let had_no_room = inner.out.len() >= MOST_UNSENT;
        while !inner.out.is_empty() {
            match Pin::new(&mut self.link.stream).poll_write(cx, &inner.out) {
                Poll::Ready(Ok(written)) => inner.out.advance(written),
                // Replies to what was sent before may still be read.
                Poll::Ready(Err(_)) => {
                    failed = true;
                    inner.out.clear();
                }
                Poll::Pending => break,
            }
        }
        give_back(&mut inner.out);
        if had_no_room && inner.out.len() < MOST_UNSENT {
            for waiting in inner.waiting.drain(..) {
                waiting.wake();
            }
        }
        register(&mut inner.pump, cx);
        if inner.retired && inner.due.is_empty() {
            return Poll::Ready(Ok(()));
        }
        drop(inner);
        if failed {
            self.trunk.retire(lane);
        }
        match poll_read(&mut self.link.stream, &mut self.from_backend, cx) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(Ended::HungUp)),
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Hands out what was read; answers whose place is too full for more.
    fn route(&mut self) -> Result<Option<Rc<RefCell<Place>>>, Ended> {
        while !self.from_backend.is_empty() {
            let mut inner = self.trunk.inner.borrow_mut();
            let Some(due) = inner.due.front_mut() else {
                // Redis says an error of its own accord when it is about to hang up.
                return Err(match self.from_backend[0] {
                    b'-' => Ended::HungUp,
                    _ => Ended::Unasked,
                });
            };
            let skipped = self.scanner.skip_frames(&self.from_backend, due.frames)?;
            let mut place = due.place.borrow_mut();
            if place.gone {
                self.from_backend.advance(skipped.bytes);
            } else {
                move_front(&mut self.from_backend, skipped.bytes, &mut place.replies);
            }
            place.due -= skipped.frames;
            wake(&mut place.sleeper);
            let is_slow = place.replies.len() > MOST_UNREAD;
            drop(place);
            due.frames -= skipped.frames;
            let slow = is_slow.then(|| due.place.clone());
            if due.frames == 0 {
                inner.due.pop_front();
            }
            if slow.is_some() {
                return Ok(slow);
            }
        }
        give_back(&mut self.from_backend);
        Ok(None)
    }

    /// Waits until a session has taken its replies. Nobody else is to wait for it, except for what was
    /// asked already; where nobody does, it may take its time.
    async fn wait_for(&mut self, slow: &Rc<RefCell<Place>>, lane: &Lane) {
        self.trunk.retire(lane);
        loop {
            let before = slow.borrow().taken;
            let drained = poll_fn(|cx| {
                let mut place = slow.borrow_mut();
                if place.gone || place.replies.len() <= MOST_UNREAD {
                    return Poll::Ready(());
                }
                register(&mut place.drained, cx);
                Poll::Pending
            });
            if tokio::time::timeout(PATIENCE, drained).await.is_ok() {
                return;
            }
            let others_wait = self.trunk.inner.borrow().due.iter().any(|due| {
                let is_slow = Rc::ptr_eq(&due.place, slow);
                !is_slow && !due.place.borrow().gone
            });
            let mut place = slow.borrow_mut();
            if place.taken == before && others_wait {
                tracing::info!(
                    "giving up a client that does not take its replies: others wait behind them"
                );
                place.broken = true;
                place.gone = true;
                place.replies = BytesMut::new();
                wake(&mut place.sleeper);
                return;
            }
        }
    }
}

fn register(sleeper: &mut Option<Waker>, cx: &Context<'_>) {
    match sleeper {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *sleeper = Some(cx.waker().clone()),
    }
}

fn wake(sleeper: &mut Option<Waker>) {
    if let Some(waker) = sleeper.take() {
        waker.wake();
    }
}

//! The task behind a shared connection: it writes the requests of sessions, and hands out the replies.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use lockwarden_control::net::buffer_pool::{give_back, move_front, put};
use lockwarden_control::net::stream::poll_read;
use lockwarden_control::telemetry::vocabulary::{ProtocolErrorKind, Side};
use lockwarden_resp::{ReplyError, ReplyLimits, ReplyScanner};
use tokio::io::AsyncWrite;

use super::stall::{End, Watch};
use super::{Due, MAX_UNSENT, Mailbox, SharedConnection, register, wake};
use crate::backend::{Backend, Link, pool};

/// Bytes of replies that may wait for one session; beyond this limit the replies of all sessions wait, and the
/// connection gets no more requests.
const MAX_UNREAD: usize = 64 * 1024 * 1024;
/// A client that takes none of those replies for this long, while others wait, is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer to a group has at most this many bytes.
const MAX_OF_GROUP: usize = 64 * 1024;

/// The life of a shared connection. It connects only when it has something to carry: many clients first log in or
/// send `HELLO`, and then need a connection of another kind.
pub(super) async fn run(connection: Rc<SharedConnection>, backend: Arc<Backend>) {
    let is_needed = poll_fn(|cx| {
        let mut inner = connection.inner.borrow_mut();
        let is_needed = !inner.out.is_empty() || !inner.steps.is_empty() || inner.is_wanted;
        if inner.retired || is_needed {
            return Poll::Ready(is_needed);
        }
        register(&mut inner.pump, cx);
        Poll::Pending
    });
    let mut refusal = None;
    if is_needed.await {
        refusal = carry(&connection, &backend).await;
    }
    connection.break_off(refusal.as_ref());
    pool::ended(&connection);
}

/// Serves until the connection ends. If it was refused, each session that had a request gets an error.
async fn carry(connection: &Rc<SharedConnection>, backend: &Arc<Backend>) -> Option<Bytes> {
    match backend.open(&connection.profile).await {
        Ok(link) => {
            connection.is_open.set(true);
            let mut pump = Pump {
                connection: connection.clone(),
                link,
                from_backend: BytesMut::new(),
                of_group: BytesMut::new(),
                scanner: ReplyScanner::new(ReplyLimits::default()),
                watch: Watch::new(connection.clone(), backend.clone()),
            };
            match pump.run().await {
                Ok(()) => {}
                Err(why @ (Ended::Gone(_) | Ended::HungUp | Ended::Forsaken)) => {
                    if let (Some(login), false) = (&connection.profile.login, matches!(why, Ended::Forsaken)) {
                        backend.passwords.hung_up(login);
                    }
                    tracing::debug!(%why, "a shared connection to the backend ended");
                }
                Err(why @ (Ended::Unasked | Ended::Framing(_))) => {
                    let kind = match &why {
                        Ended::Framing(error) => error.kind().into(),
                        _ => ProtocolErrorKind::Unexpected,
                    };
                    let errors = backend.metrics.protocol_errors.at(Side::Backend);
                    errors.at(kind).inc();
                    tracing::error!(%why, "a shared connection to the backend was closed");
                }
                Err(Ended::Frozen) => {
                    let traffic = connection.traffic;
                    let waiting = connection.inner.borrow().due.len();
                    tracing::warn!(
                        ?traffic,
                        waiting,
                        "a shared connection to the backend was given up: nothing comes on it, \
                         though the backend answers others"
                    );
                }
            }
            None
        }
        // The upkeep connection logs once that the backend is down.
        Err(error) => {
            pool::could_not_be_opened(connection);
            tracing::debug!(%error, "no shared connection to the backend");
            error.for_client()
        }
    }
}

/// Writes and reads.
struct Pump {
    connection: Rc<SharedConnection>,
    link: Link,
    from_backend: BytesMut,
    /// What has come of the answer to a group.
    of_group: BytesMut,
    scanner: ReplyScanner,
    watch: Watch,
}

/// Why a shared connection ends.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the backend is gone: {0}")]
    Gone(#[from] io::Error),
    #[error("the backend hung up")]
    HungUp,
    #[error("nothing comes, though the backend answers others")]
    Frozen,
    #[error("nothing comes, and nobody waits for it any more")]
    Forsaken,
    #[error("the backend is out of step: a reply that nobody asked for")]
    Unasked,
    #[error("the backend is out of step: {0}")]
    Framing(#[from] ReplyError),
}

impl Pump {
    async fn run(&mut self) -> Result<(), Ended> {
        loop {
            poll_fn(|cx| self.poll(cx)).await?;
            while let Some(slow) = self.route()? {
                self.wait_for(&slow).await;
            }
            let inner = self.connection.inner.borrow();
            if inner.retired && inner.is_settled() {
                return Ok(());
            }
        }
    }

    /// Writes what there is, and reads once.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let mut inner = self.connection.inner.borrow_mut();
        let mut failed = false;
        inner.put_steps();
        let had_no_room = inner.out.len() >= MAX_UNSENT;
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
        if had_no_room && inner.out.len() < MAX_UNSENT {
            for waiting in inner.waiting.drain(..) {
                waiting.wake();
            }
        }
        register(&mut inner.pump, cx);
        if inner.retired && inner.due.is_empty() {
            return Poll::Ready(Ok(()));
        }
        drop(inner);
        // Only here: retiring borrows what was borrowed above.
        if failed {
            self.connection.retire();
        }
        match poll_read(&mut self.link.stream, &mut self.from_backend, cx) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(Ended::HungUp)),
            Poll::Ready(Ok(_)) => {
                self.watch.something_came();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => match self.watch.poll(cx) {
                Poll::Ready(End::Frozen) => Poll::Ready(Err(Ended::Frozen)),
                Poll::Ready(End::Forsaken) => Poll::Ready(Err(Ended::Forsaken)),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    /// Hands out what was read; returns the session whose mailbox is too full for more.
    fn route(&mut self) -> Result<Option<Rc<RefCell<Mailbox>>>, Ended> {
        while !self.from_backend.is_empty() {
            let mut inner = self.connection.inner.borrow_mut();
            let Some(due) = inner.due.front_mut() else {
                // Redis sends an error unasked when it is about to close the connection.
                return Err(match self.from_backend[0] {
                    b'-' => Ended::HungUp,
                    _ => Ended::Unasked,
                });
            };
            let Due::Frames { place: of, frames } = due else {
                drop(inner);
                self.collect_answers()?;
                continue;
            };
            // The length of a reply is known only if the scan ends with that reply alone.
            let most = match self.scanner.at_frame_start() {
                true => *frames,
                false => 1,
            };
            let skipped = self.scanner.skip_frames(&self.from_backend, most)?;
            let mut place = of.borrow_mut();
            let is_long = place.window.came(skipped.frames, skipped.bytes);
            if place.gone {
                self.from_backend.advance(skipped.bytes);
            } else {
                move_front(&mut self.from_backend, skipped.bytes, &mut place.replies);
            }
            place.due -= skipped.frames;
            wake(&mut place.sleeper);
            let is_slow = place.replies.len() > MAX_UNREAD;
            drop(place);
            *frames -= skipped.frames;
            let slow = is_slow.then(|| of.clone());
            // They may be long, so no other session should queue behind them.
            let is_in_the_way = is_long && *frames > 0;
            if *frames == 0 {
                inner.due.pop_front();
            }
            drop(inner);
            if is_in_the_way {
                self.connection.retire();
            }
            if slow.is_some() {
                return Ok(slow);
            }
        }
        give_back(&mut self.from_backend);
        Ok(None)
    }

    /// Takes what has come of the answer to a group, and hands it out once it is whole.
    fn collect_answers(&mut self) -> Result<(), Ended> {
        let skipped = self.scanner.skip_frames(&self.from_backend, 1)?;
        put(&mut self.of_group, &self.from_backend[..skipped.bytes]);
        self.from_backend.advance(skipped.bytes);
        if self.of_group.len() > MAX_OF_GROUP {
            return Err(Ended::Unasked);
        }
        if skipped.frames == 0 {
            return Ok(());
        }
        let mut inner = self.connection.inner.borrow_mut();
        let Some(Due::Group(places)) = inner.due.pop_front() else {
            return Err(Ended::Unasked);
        };
        let fits = inner.hand_out(&places, &self.of_group);
        if !fits {
            // It is not known what was done: these sessions end as all others do.
            inner.due.push_front(Due::Group(places));
            return Err(Ended::Unasked);
        }
        self.of_group.clear();
        give_back(&mut self.of_group);
        Ok(())
    }

    /// Waits until a session has taken its replies. The connection is retired, so that other sessions wait only for
    /// requests that they have sent already. If no other session waits, this one may take its time.
    async fn wait_for(&mut self, slow: &Rc<RefCell<Mailbox>>) {
        self.connection.retire();
        loop {
            let before = slow.borrow().taken;
            let drained = poll_fn(|cx| {
                let mut place = slow.borrow_mut();
                if place.gone || place.replies.len() <= MAX_UNREAD {
                    return Poll::Ready(());
                }
                register(&mut place.drained, cx);
                Poll::Pending
            });
            if tokio::time::timeout(PATIENCE, drained).await.is_ok() {
                return;
            }
            let others_wait = self.connection.inner.borrow().due.iter().flat_map(Due::places).any(|place| {
                let is_slow = Rc::ptr_eq(place, slow);
                !is_slow && !place.borrow().gone
            });
            let mut place = slow.borrow_mut();
            if place.taken == before && others_wait {
                tracing::info!("giving up a client that does not take its replies: others wait behind them");
                // `broken` ends its session; `gone` lets the rest of its replies be read and dropped.
                place.broken = true;
                place.gone = true;
                place.replies = BytesMut::new();
                wake(&mut place.sleeper);
                return;
            }
        }
    }
}

//! A session's end of the shared connections of its kind: one for reads, one for writes. All that is under way for a
//! session is on one of them, so that its order is kept.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockwarden_control::net::buffer_pool::{give_back, move_front};
use lockwarden_lock::plan::Plan;

use super::{Due, MAX_UNSENT, Mailbox, SharedConnection, register, wake};
use crate::backend::profile::{Profile, Traffic};
use crate::backend::server_info::Standing;
use crate::backend::{Backend, pool};

/// A client may report that a shared connection leads to a replica; a connection that was opened less than this ago
/// is not replaced for that.
const MIN_LIFE: Duration = Duration::from_secs(1);

/// The most steps of a session that are sent by themselves before a group is tried again.
const MOST_ALONE: u8 = 64;

/// A session's end of a shared connection.
pub struct Attachment {
    profile: Profile,
    backend: Arc<Backend>,
    /// The one in use.
    connection: Rc<SharedConnection>,
    /// The one for the other traffic, once that was needed.
    other: Option<Rc<SharedConnection>>,
    place: Rc<RefCell<Mailbox>>,
    /// This many further steps are sent by themselves, because groups did not do the last ones.
    alone: u8,
    most_alone: u8,
}

/// Requests were sent whose replies will not come.
#[derive(Debug)]
pub(crate) struct Broken;

impl Attachment {
    /// A place on the shared connection of this kind; `None` if there are too many kinds.
    pub fn new(profile: &Profile, traffic: Traffic, backend: &Arc<Backend>) -> Option<Attachment> {
        let connection = pool::connection(profile, traffic, backend)?;
        Some(Attachment {
            profile: profile.clone(),
            backend: backend.clone(),
            connection,
            other: None,
            place: Rc::default(),
            alone: 0,
            most_alone: 0,
        })
    }

    /// The traffic of the connection in use.
    pub(crate) fn traffic(&self) -> Traffic {
        self.connection.traffic
    }

    /// The era in which the backend's name was looked up for it.
    pub(crate) fn era(&self) -> u64 {
        self.connection.era
    }

    /// Requests use the connection for this traffic from now on. Only if no reply is due: order is kept on one
    /// connection only. If there are too many kinds, the one in use stays.
    pub(crate) fn turn_to(&mut self, traffic: Traffic) {
        if self.connection.traffic == traffic || self.due() > 0 {
            return;
        }
        let next = self.other.take();
        let Some(next) = next.or_else(|| pool::connection(&self.profile, traffic, &self.backend)) else {
            return;
        };
        self.other = Some(mem::replace(&mut self.connection, next));
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Why the requests that were sent last were not executed, if that is known.
    pub(crate) fn refusal(&self) -> Option<Bytes> {
        self.place.borrow().refusal.clone()
    }

    /// Moves to another connection if this one is broken; returns whether it was. Replies that were due do not come.
    pub(crate) fn mend(&mut self) -> bool {
        let is_broken = self.place.borrow().broken;
        if is_broken {
            self.place = Rc::default();
        }
        is_broken
    }

    /// Whether one more request may be sent, besides `unsent` that were taken and not sent yet.
    pub(crate) fn may_take(&self, unsent: u64) -> bool {
        let place = self.place.borrow();
        place.window.has_room(place.due + unsent)
    }

    /// There are more requests than may be sent now.
    pub(crate) fn wants_more(&self) {
        self.place.borrow_mut().window.wants_more();
    }

    /// Whether the next request uses a connection of the session's own.
    pub(crate) fn goes_alone(&self) -> bool {
        self.place.borrow_mut().window.goes_alone()
    }

    /// How many replies are still to come.
    fn due(&self) -> u64 {
        self.place.borrow().due
    }

    /// Bytes of replies that were not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.place.borrow().replies.len()
    }

    /// Whether what is sent now goes directly to the server that the backend's name leads to. If not, the next call
    /// may find that it does.
    pub(crate) fn is_ready(&mut self) -> bool {
        let is_had = self.connection.is_open() || pool::may_be_opened(&self.connection);
        is_had && self.follow_era() && self.connection.is_ready()
    }

    /// Puts whole requests on the connection, which will get `replies` replies. Takes nothing if there is no room;
    /// then `Attachment::poll_room` says when there is.
    pub fn send(&mut self, requests: &mut BytesMut, replies: u64) {
        if !self.follow_era() {
            return;
        }
        let mut inner = self.connection.inner.borrow_mut();
        if inner.out.len() >= MAX_UNSENT {
            return;
        }
        // After this session's own step, which is sent now.
        if self.place.borrow().has_step {
            inner.put_steps();
        }
        move_front(requests, requests.len(), &mut inner.out);
        self.place.borrow_mut().due += replies;
        match inner.due.back_mut() {
            Some(Due::Frames { place, frames }) if Rc::ptr_eq(place, &self.place) => *frames += replies,
            _ => inner.due.push_back(Due::Frames { place: self.place.clone(), frames: replies }),
        }
        wake(&mut inner.pump);
    }

    /// Sends one step, together with those of others if there are some. Takes it only if nothing of this session is
    /// due and there is room.
    pub(crate) fn send_step(&mut self, step: &Plan) -> bool {
        if self.alone > 0 {
            self.alone -= 1;
            return false;
        }
        if self.due() > 0 || self.backend.server.in_cluster() || !self.follow_era() {
            return false;
        }
        let mut inner = self.connection.inner.borrow_mut();
        if inner.out.len() >= MAX_UNSENT {
            return false;
        }
        inner.add_step(&self.place, step.clone());
        wake(&mut inner.pump);
        true
    }

    /// Notes whether a group has done a step of this session. If not, more and more of its next steps are sent by
    /// themselves.
    pub(crate) fn was_in_group(&mut self, is_done: bool) {
        self.most_alone = if is_done { 0 } else { self.most_alone.saturating_mul(2).clamp(1, MOST_ALONE) };
        self.alone = self.most_alone;
    }

    /// Whether the backend's name leads to another server by now, and that is served.
    pub(crate) fn may_follow(&self) -> bool {
        let server = &self.backend.server;
        self.connection.era != server.era() && *server.standing() == Standing::Serving
    }

    /// Moves to a connection to the server that the backend's name leads to now. Returns whether requests may be sent
    /// on it: those that were sent before must be answered first, as order is kept on one connection only.
    pub(crate) fn follow_era(&mut self) -> bool {
        if self.connection.era != self.backend.server.era() {
            self.connection.retire();
        }
        if !self.connection.inner.borrow().retired {
            return true;
        }
        if self.due() > 0 {
            return false;
        }
        let next = pool::connection(&self.profile, self.connection.traffic, &self.backend);
        let is_had = next.is_some();
        match next {
            Some(connection) => mem::replace(&mut self.connection, connection).give_place_up(),
            None => self.place.borrow_mut().broken = true,
        }
        is_had
    }

    /// This connection leads to a server that takes no writes any more: sessions send their requests over another
    /// one.
    pub(crate) fn leave_replica(&self) {
        if self.connection.opened.elapsed() >= MIN_LIFE {
            self.connection.retire();
        }
    }

    /// Ready when requests may be taken again.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut inner = self.connection.inner.borrow_mut();
        let place = self.place.borrow();
        let has_room = match inner.retired {
            true => place.due == 0,
            false => inner.out.len() < MAX_UNSENT,
        };
        if has_room || place.broken {
            return Poll::Ready(());
        }
        // If it is retired, the last reply wakes this session anyway.
        let is_known = |waiting: &Waker| waiting.will_wake(cx.waker());
        if !inner.retired && !inner.waiting.iter().any(is_known) {
            inner.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Moves the replies that have come to the end of `into`.
    pub(crate) fn poll_replies(&self, into: &mut BytesMut, cx: &Context<'_>) -> Poll<Result<(), Broken>> {
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
            // The buffers are swapped, so that no byte is copied.
            mem::swap(&mut place.replies, into);
        } else {
            into.extend_from_slice(&place.replies);
            place.replies.clear();
            give_back(&mut place.replies);
        }
        wake(&mut place.drained);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.connection.give_place_up();
        if let Some(other) = &self.other {
            other.give_place_up();
        }
        let mut place = self.place.borrow_mut();
        // Replies that are due still come, because only their order shows which session each is for; the task drops
        // them.
        place.gone = true;
        place.replies = BytesMut::new();
        wake(&mut place.drained);
    }
}

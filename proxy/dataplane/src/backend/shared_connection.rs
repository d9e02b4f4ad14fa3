//! Connections to the backend that clients of one thread share (`sessions = "multiplexed"`). A shared connection
//! carries whole requests in the order in which they were put on it, many in one write, and hands each reply to the
//! session whose request it answers. It knows nothing of their meaning: `session::understand::multiplexing` decides
//! which request may be sent this way, and whether over a connection for reads or one for writes. A session's end is
//! in `port`, the task behind it in `pump`.
//!
//! One task for each connection writes and reads. A session that puts a request on it wakes that task, which runs
//! when all clients that had something to send have sent it; so the requests of a turn leave together, and no timer
//! is needed. Steps about locks become one step for all of them then (`grouping`).

mod grouping;
mod port;
mod pump;
mod stall;
mod window;

pub use port::Attachment;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::net::sleeper::{register, wake};

use super::cluster::ShardId;
use super::profile::{Profile, Traffic};
use super::{Backend, pool};
use grouping::Steps;
use window::Window;

/// Bytes of requests that wait for the backend to take them; beyond this limit no more are taken.
const MAX_UNSENT: usize = 1024 * 1024;

/// One shared connection.
pub(super) struct SharedConnection {
    inner: RefCell<Inner>,
    shard: ShardId,
    pub(super) profile: Profile,
    pub(super) traffic: Traffic,
    /// The era in which the backend's name was looked up for it.
    pub(super) era: u64,
    opened: Instant,
    /// It is connected to the backend.
    is_open: Cell<bool>,
}

#[derive(Default)]
struct Inner {
    /// Steps of this turn.
    steps: Steps,
    /// Requests to be written.
    out: BytesMut,
    /// It is to be opened although there is nothing to carry yet.
    is_wanted: bool,
    /// The sessions whose replies come next, in order.
    due: VecDeque<Due>,
    /// The task that writes and reads.
    pump: Option<Waker>,
    /// Sessions that wait until there is room for more requests.
    waiting: Vec<Waker>,
    /// It gets no more requests; replies that are due still come.
    retired: bool,
    /// Retired because nothing comes on it.
    is_aside: bool,
    /// Sessions that have a place on it.
    ports: usize,
    /// No session had a place on it at the last check.
    was_unused: bool,
}

enum Due {
    /// Replies to one session.
    Frames { place: Place, frames: u64 },
    /// One frame with the answers to the steps of these sessions, one each.
    Group(Vec<Place>),
}

type Place = Rc<RefCell<Mailbox>>;

impl Due {
    fn places(&self) -> &[Place] {
        match self {
            Due::Frames { place, .. } => std::slice::from_ref(place),
            Due::Group(places) => places,
        }
    }
}

/// Where the replies for one session are put.
#[derive(Default)]
struct Mailbox {
    replies: BytesMut,
    /// Replies still to come.
    due: u64,
    /// One of them is the reply to a step that was not sent yet.
    has_step: bool,
    /// How many may be due.
    window: Window,
    /// How many bytes of replies the session has taken in all.
    taken: u64,
    sleeper: Option<Waker>,
    /// The connection waits until this session has taken its replies.
    drained: Option<Waker>,
    /// No more replies come, and it is not known which requests were executed.
    broken: bool,
    /// No request was executed: the connection was refused, and this says why.
    refusal: Option<Bytes>,
    /// The replies are not wanted any more.
    gone: bool,
}

impl Inner {
    /// Whether no reply is due.
    fn is_settled(&self) -> bool {
        self.due.is_empty() && self.steps.is_empty()
    }
}

impl SharedConnection {
    /// A connection that a task of this thread opens and serves.
    pub(super) fn open(profile: &Profile, traffic: Traffic, era: u64, backend: &Arc<Backend>) -> Rc<SharedConnection> {
        let connection = Rc::new(SharedConnection {
            inner: RefCell::default(),
            shard: backend.shard,
            profile: profile.clone(),
            traffic,
            era,
            opened: Instant::now(),
            is_open: Cell::new(false),
        });
        tokio::task::spawn_local(pump::run(connection.clone(), backend.clone()));
        connection
    }

    /// The key by which the pool finds it.
    pub(super) fn key(&self) -> (ShardId, Profile) {
        (self.shard, self.profile.clone())
    }

    /// Whether it is connected to the backend.
    fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// The same; if it is not connected yet, this has it opened.
    pub(super) fn is_ready(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        if !self.is_open() {
            inner.is_wanted = true;
            wake(&mut inner.pump);
        }
        self.is_open() && !inner.retired
    }

    /// Marks it as a connection on which nothing comes. Returns whether it was in use until now.
    pub(super) fn set_aside(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.is_aside |= !inner.retired;
        !inner.retired
    }

    /// Whether it was given up because nothing comes on it.
    pub(super) fn is_aside(&self) -> bool {
        self.inner.borrow().is_aside
    }

    pub(super) fn take_place(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.ports += 1;
        inner.was_unused = false;
    }

    fn give_place_up(&self) {
        self.inner.borrow_mut().ports -= 1;
    }

    /// Whether no session has a place on it, and no reply is due.
    pub(super) fn is_free(&self) -> bool {
        let inner = self.inner.borrow();
        inner.ports == 0 && inner.is_settled()
    }

    /// Whether all sessions that wait for a reply are gone.
    fn is_forsaken(&self) -> bool {
        let inner = self.inner.borrow();
        inner.due.iter().flat_map(Due::places).all(|place| place.borrow().gone)
    }

    /// Closes it if it was free at the last check as well; returns whether it did.
    pub(super) fn close_if_unused(&self) -> bool {
        let is_free = self.is_free();
        let was_unused = mem::replace(&mut self.inner.borrow_mut().was_unused, is_free);
        if is_free && was_unused {
            self.close();
        }
        is_free && was_unused
    }

    /// Ends it as soon as no reply is due any more.
    pub(super) fn close(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.retired = true;
        wake(&mut inner.pump);
        for waiting in inner.waiting.drain(..) {
            waiting.wake();
        }
    }

    /// It gets no more requests.
    pub(super) fn retire(self: &Rc<SharedConnection>) {
        self.close();
        pool::remove(self);
    }

    /// No more replies come; `refusal` says why none of the requests was sent.
    fn break_off(self: &Rc<SharedConnection>, refusal: Option<&Bytes>) {
        self.is_open.set(false);
        self.retire();
        let mut inner = self.inner.borrow_mut();
        inner.put_steps();
        let due = mem::take(&mut inner.due);
        drop(inner);
        for place in due.iter().flat_map(Due::places) {
            let mut place = place.borrow_mut();
            place.broken = true;
            place.refusal = refusal.cloned();
            wake(&mut place.sleeper);
        }
    }
}

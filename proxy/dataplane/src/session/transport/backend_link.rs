//! The way to the backend: a connection of the session's own, a place on one that it shares, or both, of which one is
//! in use.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use lockwarden_control::net::stream::{Stream, poll_read};
use lockwarden_lock::plan::Plan;

use crate::backend::Link;
use crate::backend::profile::Traffic;
use crate::backend::shared_connection::Attachment;

/// See the module.
pub struct BackendLink {
    own: Option<Link>,
    port: Option<Attachment>,
    /// Requests are sent over the port.
    shared: bool,
    /// The backend sent something on the session's own connection while that was at rest. Such messages
    /// (invalidations that others redirect to it) go on, so requests are sent over that connection from now on.
    has_spoken: bool,
}

impl BackendLink {
    /// A connection of the session's own, for good.
    pub fn own(link: Link) -> BackendLink {
        BackendLink { own: Some(link), port: None, shared: false, has_spoken: false }
    }

    /// A place on a shared one, until something needs more.
    pub fn shared(port: Attachment) -> BackendLink {
        BackendLink { own: None, port: Some(port), shared: true, has_spoken: false }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(crate) fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// Whether requests are sent over a connection of the session's own that is known to lead to the right server.
    pub(crate) fn is_verified(&self) -> bool {
        !self.shared && self.own.as_ref().is_some_and(|own| own.verified)
    }

    /// The era in which the backend's name was looked up for the connection in use.
    pub(crate) fn era(&self) -> Option<u64> {
        match (&self.port, &self.own) {
            (Some(port), _) if self.shared => Some(port.era()),
            (_, own) => own.as_ref().map(|own| own.era),
        }
    }

    /// What is sent next uses a shared connection to the server that the backend's name leads to now, if that is open
    /// and no reply is due on the one in use.
    pub(crate) fn follow_era(&mut self) {
        if let Some(port) = self.port.as_mut().filter(|port| self.shared && port.may_follow()) {
            port.follow_era();
        }
    }

    /// It is now known which server the session's own connection leads to.
    pub(crate) fn is_known_to_lead(&mut self) {
        if let Some(own) = &mut self.own {
            own.verified = true;
        }
    }

    /// Whether the backend has sent something unasked on the session's own connection.
    pub(crate) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// Moves to another shared connection if the one in use is gone; returns whether it did.
    pub(super) fn mend(&mut self) -> bool {
        let port = self.port.as_mut().filter(|_| self.shared);
        port.is_some_and(Attachment::mend)
    }

    /// What the client is told before its session ends because a connection was refused.
    pub(super) fn refusal(&self) -> Option<Bytes> {
        let port = self.port.as_ref().filter(|_| self.shared);
        port.and_then(Attachment::refusal)
    }

    /// The place on a shared connection, in use or not.
    pub fn port(&self) -> Option<&Attachment> {
        self.port.as_ref()
    }

    /// The kind of traffic of the shared connection in use, if one is.
    pub(crate) fn traffic(&self) -> Option<Traffic> {
        let port = self.port.as_ref().filter(|_| self.shared);
        port.map(Attachment::traffic)
    }

    /// Requests use the shared connection for this traffic from now on.
    pub(crate) fn turn_to(&mut self, traffic: Traffic) {
        if let Some(port) = &mut self.port {
            port.turn_to(traffic);
        }
    }

    /// Requests use a connection of the session's own from now on: this one, if it has none.
    pub(crate) fn use_own(&mut self, link: Option<Link>) {
        if self.own.is_none() {
            self.own = link;
        }
        self.shared = self.own.is_none();
    }

    /// Requests use the port from now on: this one, if one is given.
    pub(crate) fn use_port(&mut self, port: Option<Attachment>) {
        if port.is_some() {
            self.port = port;
        }
        self.shared = self.port.is_some();
    }

    /// Requests use a shared connection for a while, beside the session's own: this one, if one is given. Returns
    /// whether they do.
    pub(crate) fn lend(&mut self, port: Option<Attachment>) -> bool {
        if port.is_some() {
            self.port = port;
        }
        let own = self.own.as_ref().map(|own| own.era);
        self.shared = self.port.as_mut().is_some_and(|port| {
            port.mend();
            port.is_ready() && own == Some(port.era())
        });
        self.shared
    }

    /// Gives the session's own connection away.
    pub(crate) fn give_up_own(&mut self) -> Option<Link> {
        self.own.take()
    }

    /// Whether one more request may be sent this way, besides `unsent` others.
    pub(super) fn may_take(&self, unsent: u64) -> bool {
        match &self.port {
            Some(port) if self.shared => port.may_take(unsent),
            Some(_) | None => true,
        }
    }

    /// There are more requests than may be sent this way now.
    pub(super) fn wants_more(&self) {
        if let Some(port) = self.port.as_ref().filter(|_| self.shared) {
            port.wants_more();
        }
    }

    /// The session's own connection, if it is in use.
    pub(super) fn in_use(&mut self) -> Option<&mut Link> {
        self.own.as_mut().filter(|_| !self.shared)
    }

    /// Sends as much of these requests as can be sent now; `unsent` of them will be answered. Returns whether more
    /// may be sent at all.
    pub(super) fn send(&mut self, requests: &mut BytesMut, unsent: &mut u64) -> bool {
        if self.shared {
            if let Some(port) = &mut self.port {
                port.send(requests, *unsent);
            }
            if requests.is_empty() {
                *unsent = 0;
            }
            return true;
        }
        let Some(own) = &mut self.own else {
            return false;
        };
        // Replies are counted only on a shared connection: all that come here are this session's.
        *unsent = 0;
        while !requests.is_empty() {
            match own.stream.try_write(requests) {
                Ok(written) => requests.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Sends one step over the shared connection, if that is in use and takes one; together with steps of others, if
    /// there are some.
    pub(super) fn send_step(&mut self, step: &Plan) -> bool {
        let port = self.port.as_mut().filter(|_| self.shared);
        port.is_some_and(|port| port.send_step(step))
    }

    /// Such a step was done in a group, or was not.
    pub(crate) fn was_in_group(&mut self, is_done: bool) {
        if let Some(port) = &mut self.port {
            port.was_in_group(is_done);
        }
    }

    /// Bytes of replies that wait on a shared connection.
    pub(super) fn waiting(&self) -> usize {
        match &self.port {
            Some(port) if self.shared => port.waiting(),
            Some(_) | None => 0,
        }
    }

    /// Ready when more can be sent, or when reading will show why not.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        match (&self.port, &self.own) {
            (Some(port), _) if self.shared => port.poll_room(cx),
            (_, Some(own)) => own.stream.poll_write_ready(cx).map(|_| ()),
            (_, None) => Poll::Pending,
        }
    }

    /// Reads what has come; returns whether more may come.
    pub(super) fn poll_replies(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<bool> {
        match (&self.port, &mut self.own) {
            (Some(port), own) if self.shared => {
                if let Poll::Ready(replies) = port.poll_replies(into, cx) {
                    return Poll::Ready(replies.is_ok());
                }
                match own {
                    Some(own) if !self.has_spoken => {
                        let goes_on = ready!(poll_push(&mut own.stream, cx));
                        self.has_spoken = goes_on;
                        Poll::Ready(goes_on)
                    }
                    Some(_) | None => Poll::Pending,
                }
            }
            (_, Some(own)) => {
                let read = poll_read(&mut own.stream, into, cx);
                read.map(|read| matches!(read, Ok(bytes) if bytes > 0))
            }
            (_, None) => Poll::Ready(false),
        }
    }
}

/// Ready when something comes on a connection at rest; returns whether it is a push. Anything else ends the
/// connection, and the session with it, as it would without the other connection.
fn poll_push(own: &mut Stream, cx: &mut Context<'_>) -> Poll<bool> {
    let first = ready!(own.poll_peek(cx));
    Poll::Ready(matches!(first, Ok(Some(b'>'))))
}

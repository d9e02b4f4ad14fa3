//! One leg of a client: the pipe to its session with one shard, and the replies that come over it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use lockwarden_control::net::buffer_pool::{give_back, move_front, put};
use lockwarden_control::net::pipe::Pipe;
use lockwarden_control::net::stream::Stream;
use lockwarden_resp::{Redirect, ReplyError, ReplyLimits, ReplyScanner, Scan};

use crate::registry::clients::Holder;
use crate::state::ProxyState;

/// See the module.
pub(super) struct Leg {
    pub(super) shard: Arc<ProxyState>,
    /// Of its session.
    pub(super) session: Holder,
    pub(super) pipe: Pipe<Stream>,
    /// Requests that the pipe had no room for.
    pub(super) to: BytesMut,
    /// What has come over the pipe.
    pub(super) from: BytesMut,
    /// How much of that belongs to a frame that is collected and was scanned.
    scanned: usize,
    scanner: ReplyScanner,
    /// The frame at the front is a push.
    in_push: bool,
    /// A frame is taken as a whole, however long it is.
    pub(super) is_collecting: bool,
    /// Replies that were taken before it was their turn.
    early: VecDeque<Bytes>,
    /// Requests under way.
    pub(super) due: usize,
    /// No more comes.
    pub(super) ended: bool,
}

/// How much has come of the reply that is due.
pub(super) enum Came {
    /// All of it; it was handed on.
    Whole,
    /// All of it: it is this redirect, so the request is to be sent to another server.
    Redirect(Bytes),
    /// It was not for the client, and is an error: this session's state differs from that of the client's others.
    Refused,
    /// Not all of it yet.
    Part,
}

impl Leg {
    pub(super) fn new(shard: Arc<ProxyState>, session: Holder, pipe: Pipe<Stream>) -> Leg {
        Leg {
            shard,
            session,
            pipe,
            to: BytesMut::new(),
            from: BytesMut::new(),
            scanned: 0,
            scanner: ReplyScanner::new(ReplyLimits::default()),
            in_push: false,
            is_collecting: false,
            early: VecDeque::new(),
            due: 0,
            ended: false,
        }
    }

    /// Sends a request.
    pub(super) fn send(&mut self, request: &[u8]) {
        // If the session is gone, that shows when the rest is sent.
        let sent = if self.to.is_empty() { self.pipe.try_write(request).unwrap_or(0) } else { 0 };
        if sent < request.len() {
            put(&mut self.to, &request[sent..]);
        }
    }

    /// Whether no frame has been handed on in part only.
    pub(super) fn is_between_frames(&self) -> bool {
        self.scanner.at_frame_start() && self.scanned == 0
    }

    /// Hands on what has come of the reply that is due, and of pushes before it, to a client that has had `sent`
    /// bytes. A reply that is not `shown` is dropped; with `looks`, a redirect is not handed on.
    pub(super) fn relay(
        &mut self,
        to_client: &mut BytesMut,
        sent: u64,
        (shown, looks): (bool, bool),
    ) -> Result<Came, ReplyError> {
        if let Some(frame) = self.early.pop_front() {
            if looks && Redirect::of(&frame).is_some() {
                self.pipe.drops(frame.len());
                return Ok(Came::Redirect(frame));
            }
            if !shown && !looks && frame[0] == b'-' {
                return Ok(Came::Refused);
            }
            match shown {
                true => self.hand_on(&frame, to_client, sent),
                false => self.pipe.drops(frame.len()),
            }
            return Ok(Came::Whole);
        }
        while !self.from.is_empty() {
            if self.scanner.at_frame_start() {
                self.in_push = self.from[0] == b'>';
                if !shown && !looks && self.from[0] == b'-' {
                    return Ok(Came::Refused);
                }
                if looks && self.from[0] == b'-' {
                    // An error is one line, and is scanned as a whole.
                    let Some(end) = memchr::memchr(b'\n', &self.from) else {
                        return Ok(Came::Part);
                    };
                    if Redirect::of(&self.from[..=end]).is_some() {
                        let frame = Bytes::copy_from_slice(&self.from[..=end]);
                        self.from.advance(frame.len());
                        give_back(&mut self.from);
                        self.pipe.drops(frame.len());
                        return Ok(Came::Redirect(frame));
                    }
                }
            }
            let skipped = self.scanner.skip_frames(&self.from, 1)?;
            if shown || self.in_push {
                move_front(&mut self.from, skipped.bytes, to_client);
                self.pipe.goes_on(skipped.bytes, sent + to_client.len() as u64, true);
            } else {
                self.from.advance(skipped.bytes);
                self.pipe.drops(skipped.bytes);
            }
            give_back(&mut self.from);
            if skipped.frames > 0 && !self.in_push {
                return Ok(Came::Whole);
            }
        }
        Ok(Came::Part)
    }

    /// Hands on a frame that was taken, to a client that has had `sent` bytes.
    pub(super) fn hand_on(&self, frame: &[u8], to_client: &mut BytesMut, sent: u64) {
        put(to_client, frame);
        self.pipe.goes_on(frame.len(), sent + to_client.len() as u64, true);
    }

    /// Takes a whole frame, if one has come; pushes as well.
    pub(super) fn take_frame(&mut self) -> Result<Option<Bytes>, ReplyError> {
        self.is_collecting = true;
        if self.scanned >= self.from.len() {
            return Ok(None);
        }
        match self.scanner.scan(&self.from[self.scanned..])? {
            Scan::Partial => {
                self.scanned = self.from.len();
                Ok(None)
            }
            Scan::Complete { consumed } => {
                let end = self.scanned + consumed;
                (self.scanned, self.is_collecting) = (0, false);
                Ok(Some(self.from.split_to(end).freeze()))
            }
        }
    }

    /// Takes a frame that no request asked for, if one has come whole: a push, or the error that Redis sends before
    /// it closes the connection. Not while a frame is handed on in parts.
    pub(super) fn take_push(&mut self) -> Result<Option<Bytes>, ReplyError> {
        let is_push = |first: u8| first == b'>' || first == b'-' && self.due == 0;
        if !self.scanner.at_frame_start() || !self.from.first().copied().is_some_and(is_push) {
            return Ok(None);
        }
        // Scanned from its beginning each time: pushes are short.
        match ReplyScanner::new(ReplyLimits::default()).scan(&self.from)? {
            Scan::Partial => {
                self.is_collecting = true;
                Ok(None)
            }
            Scan::Complete { consumed } => {
                self.is_collecting = false;
                Ok(Some(self.from.split_to(consumed).freeze()))
            }
        }
    }

    /// Bytes that wait here.
    pub(super) fn holds_bytes(&self) -> usize {
        self.from.len() + self.to.len() + self.early.iter().map(Bytes::len).sum::<usize>()
    }

    /// Keeps a reply until its turn.
    pub(super) fn keep_early(&mut self, frame: Bytes) {
        self.early.push_back(frame);
    }

    /// Replies that were taken early.
    pub(super) fn early(&self) -> usize {
        self.early.len()
    }

    /// Whether its session is kept as long as the client stays, because it holds a lease that is kept alive.
    pub(super) fn holds(&self) -> bool {
        self.shard.keeps_leases_of(self.session.session)
    }
}

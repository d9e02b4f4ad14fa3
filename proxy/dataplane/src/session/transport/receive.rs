//! Passes what the backend sends to the client, or to the part of the session that asked to look at it: replies are
//! counted off in order against what is expected.

use bytes::{Buf, Bytes, BytesMut};
use lockwarden_control::net::buffer_pool::{WORTH_A_SWAP, give_back, move_front, put};
use lockwarden_lock::hidden::{self, Shown};
use lockwarden_resp::{Protocol, ReplyError, Scan};

use super::pushes::Confirmation;
use super::{End, Expect, Late, MAX_UNREAD, Muted, Reply, Transport, maintenance_notices};

impl<L> Transport<L> {
    /// Passes on what the backend sent: to the client, or to the part that looks at it.
    pub(super) fn replies(&mut self) -> Result<Option<Reply<L>>, End> {
        loop {
            while let Some(Expect::Local(reply)) = self.expected.front() {
                self.local -= reply.len() + size_of::<Expect<L>>();
                put(&mut self.to_client, reply);
                self.expected.pop_front();
            }
            if self.scanned >= self.from_backend.len() || self.to_client.len() > MAX_UNREAD {
                return Ok(None);
            }
            if self.relay_plain()? {
                continue;
            }
            let scan = self.scanner.scan(&self.from_backend[self.scanned..]);
            let frame = match scan? {
                Scan::Partial => {
                    self.scanned = self.from_backend.len();
                    if self.scanned > self.longest_collected {
                        self.stop_collecting()?;
                    }
                    return Ok(None);
                }
                Scan::Complete { consumed } => {
                    let end = self.scanned + consumed;
                    self.scanned = 0;
                    self.cut(end)
                }
            };
            if let Some(reply) = self.route(frame)? {
                return Ok(Some(reply));
            }
        }
    }

    /// The frame at the front. A short one is copied, so that its memory stays with this thread.
    fn cut(&mut self, end: usize) -> Bytes {
        if end >= WORTH_A_SWAP {
            return self.from_backend.split_to(end).freeze();
        }
        let frame = Bytes::copy_from_slice(&self.from_backend[..end]);
        self.from_backend.advance(end);
        give_back(&mut self.from_backend);
        frame
    }

    /// The usual case: as many replies as there are that are not looked at are passed on as they come.
    fn relay_plain(&mut self) -> Result<bool, End> {
        if self.scanned > 0 {
            return Ok(false);
        }
        let inside = !self.scanner.at_frame_start();
        let may_be_push = !inside && self.pushes.may_be_push(self.from_backend[0]);
        let (most, muted) = match self.expected.front() {
            Some(Expect::Relay { frames, muted }) if !may_be_push => (
                // A push may stand between any two replies.
                if self.pushes.are_possible() { 1 } else { *frames },
                *muted,
            ),
            _ => return Ok(false),
        };
        let skipped = self.scanner.skip_frames(&self.from_backend, most)?;
        match muted {
            Muted::No => move_front(&mut self.from_backend, skipped.bytes, &mut self.to_client),
            Muted::Yes => self.from_backend.advance(skipped.bytes),
        }
        give_back(&mut self.from_backend);
        self.relayed(skipped.frames);
        Ok(true)
    }

    fn relayed(&mut self, count: u64) {
        match self.expected.front_mut() {
            Some(Expect::Relay { frames, .. }) => {
                *frames -= count;
                if *frames == 0 {
                    self.expected.pop_front();
                }
            }
            Some(&mut Expect::Late(late)) if count > 0 => {
                self.came(late);
                self.expected.pop_front();
            }
            Some(
                Expect::Late(_)
                | Expect::Local(_)
                | Expect::Look(..)
                | Expect::Note(_)
                | Expect::Listing(..)
                | Expect::Confirm(_),
            )
            | None => {}
        }
    }

    fn came(&mut self, late: Late) {
        self.blocking -= 1;
        self.waiting -= u64::from(late.waits);
    }

    fn route(&mut self, frame: Bytes) -> Result<Option<Reply<L>>, End> {
        // Under RESP3 a confirmation is a push itself, so this comes first.
        if let Some(Expect::Confirm(channels)) = self.expected.front_mut() {
            match self.pushes.confirm(channels, &frame) {
                Confirmation::Last => {
                    self.expected.pop_front();
                    put(&mut self.to_client, &frame);
                    return Ok(None);
                }
                Confirmation::More => {
                    put(&mut self.to_client, &frame);
                    return Ok(None);
                }
                Confirmation::Other => {}
            }
        }
        if self.pushes.is_push(&frame) {
            if maintenance_notices::names_another_server(&frame) {
                self.tally.notice_kept();
                return Ok(None);
            }
            let shown = hidden::push(&frame, self.active.load().own_keys());
            self.show(&frame, shown);
            return Ok(None);
        }
        match self.expected.pop_front() {
            Some(Expect::Look(look, muted)) => Ok(Some(Reply { look, frame, muted })),
            Some(Expect::Note(look)) => Ok(Some(Reply { look, frame, muted: Muted::Yes })),
            Some(Expect::Relay { frames, muted }) => {
                if muted == Muted::No {
                    put(&mut self.to_client, &frame);
                }
                if frames > 1 {
                    self.expected.push_front(Expect::Relay { frames: frames - 1, muted });
                }
                Ok(None)
            }
            Some(Expect::Late(late)) => {
                self.came(late);
                if late.muted == Muted::No {
                    put(&mut self.to_client, &frame);
                }
                Ok(None)
            }
            Some(Expect::Listing(kind, muted)) => {
                if muted == Muted::No {
                    let own = self.active.load().own_keys();
                    // No single key name comes this way, so no null is written.
                    let shown = hidden::listing(kind, &frame, own, Protocol::Resp2);
                    self.show(&frame, shown);
                }
                Ok(None)
            }
            // Redis sends an error unasked when it is about to close the connection.
            None if frame.first() == Some(&b'-') => {
                put(&mut self.to_client, &frame);
                Ok(None)
            }
            Some(Expect::Confirm(_) | Expect::Local(_)) | None => {
                Err(End::OutOfStep("a reply that nobody asked for".into()))
            }
        }
    }

    fn show(&mut self, frame: &[u8], shown: Shown) {
        match shown {
            Shown::Whole => put(&mut self.to_client, frame),
            Shown::Instead(other) => put(&mut self.to_client, &other),
            Shown::Nothing => {}
        }
    }

    /// The present frame is longer than any that is looked at: a listing is relayed as it comes.
    fn stop_collecting(&mut self) -> Result<(), End> {
        let is_push = self.pushes.may_be_push(self.from_backend[0]);
        match self.expected.front() {
            Some(&Expect::Listing(_, muted)) if !is_push => {
                tracing::info!("a list of keys is too long to look through: relayed as it is");
                if muted == Muted::No {
                    put(&mut self.to_client, &self.from_backend);
                }
                self.from_backend = BytesMut::new();
                self.scanned = 0;
                self.expected.pop_front();
                self.expected.push_front(Expect::Relay { frames: 1, muted });
                Ok(())
            }
            _ => Err(End::Framing(ReplyError::TooBig)),
        }
    }
}

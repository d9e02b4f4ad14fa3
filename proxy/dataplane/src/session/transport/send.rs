//! What is sent to the backend and to the client, and how the reply to each request is handled.

use bytes::{Bytes, BytesMut};
use lockwarden_control::net::buffer_pool::{move_front, open, put};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::pass_through::{PassThrough, WholeBuffer};
use lockwarden_lock::plan::{Form, Guard, Plan};
use lockwarden_lock::table::Listing;

use super::pushes::Channels;
use super::{End, Expect, Late, MAX_QUEUED, Muted, Queued, QueuedRequests, Transport};

impl<L> Transport<L> {
    /// Sends the client's own bytes; their reply is relayed.
    pub(crate) fn forward(&mut self, pass: PassThrough<'_>, muted: Muted) {
        self.send(pass.frame());
        if pass.is_blocking() {
            // Counted, because a client that closes its end does not wait for it.
            let waits = !pass.is_unknown();
            self.blocking += 1;
            self.waiting += u64::from(waits);
            self.expected.push_back(Expect::Late(Late { muted, waits }));
        } else {
            self.expect_relay(muted);
        }
    }

    /// The same for a request that is all that its buffer holds; the buffer is emptied. A long request is not copied.
    pub(crate) fn forward_whole(&mut self, leave: WholeBuffer, buffer: &mut BytesMut, muted: Muted) -> Result<(), End> {
        let Some(request) = leave.redeem(buffer) else {
            return Err(End::OutOfStep("another buffer than was let through".into()));
        };
        if self.asks {
            self.say_asking();
        }
        keep(&mut self.queued, request);
        move_front(request, request.len(), &mut self.to_backend);
        self.unsent += 1;
        self.expect_relay(muted);
        Ok(())
    }

    /// Sends a step in place of a command of a MULTI block; Redis's reply to it is handed over. The script's text is
    /// sent along: an error for an unknown script name would come too late.
    pub(crate) fn execute_queued(&mut self, plan: &Plan, look: L, muted: Muted) {
        self.execute(plan, Form::Text, look, muted);
    }

    /// Sends the guard ahead of such a step; Redis's reply to it is handed over.
    pub fn guard(&mut self, guard: Guard, lock: &[u8], companion_prefix: &[u8], look: L, muted: Muted) {
        self.write(|out| guard.put(out, lock, companion_prefix));
        self.expected.push_back(Expect::Look(look, muted));
    }

    /// Takes a place in a MULTI block for a command that would only fail there: `HELLO` changes
    /// nothing and is allowed to every user.
    pub(crate) fn hold_place(&mut self, muted: Muted) {
        self.relay_own(&OwnRequest::Hello, muted);
    }

    /// Sends a request of the proxy's own in place of the client's; its reply is relayed.
    pub(crate) fn relay_own(&mut self, request: &OwnRequest<'_>, muted: Muted) {
        self.write(|out| request.put(out));
        self.expect_relay(muted);
    }

    /// Notes whether the client has said `ASKING` for the requests that follow: a node applies it to one request, and
    /// the proxy may send more than one for a command.
    pub(crate) fn ask(&mut self, asks: bool) {
        (self.asks, self.in_own_block) = (asks, false);
    }

    /// The same.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    /// Sends `ASKING` again ahead of a request. In a block it would be queued.
    fn say_asking(&mut self) {
        if self.in_own_block {
            return;
        }
        self.unsent += 1;
        OwnRequest::Asking.put(&mut self.to_backend);
        self.expect_relay(Muted::Yes);
    }

    fn expect_relay(&mut self, muted: Muted) {
        match self.expected.back_mut() {
            Some(Expect::Relay { frames, muted: before }) if *before == muted => *frames += 1,
            _ => self.expected.push_back(Expect::Relay { frames: 1, muted }),
        }
    }

    /// Sends the client's own bytes, to which Redis does not reply.
    pub(crate) fn forward_unanswered(&mut self, pass: PassThrough<'_>) {
        // Not by `send`: it would count as a request to be answered.
        put(&mut self.to_backend, pass.frame());
    }

    fn send(&mut self, request: &[u8]) {
        if self.asks {
            self.say_asking();
        }
        keep(&mut self.queued, request);
        put(&mut self.to_backend, request);
        self.unsent += 1;
    }

    /// Writes a request of the proxy's own.
    fn write(&mut self, request: impl FnOnce(&mut BytesMut)) {
        open(&mut self.to_backend);
        if self.asks {
            self.say_asking();
        }
        self.unsent += 1;
        let start = self.to_backend.len();
        request(&mut self.to_backend);
        keep(&mut self.queued, &self.to_backend[start..]);
    }

    /// All that is sent from here on belongs to a block that may have to be begun again.
    pub(crate) fn keep_queued(&mut self) {
        self.queued = Queued::Kept(QueuedRequests::default());
    }

    /// The requests that were sent since then; `None` if they were too much to be kept. Nothing more is kept.
    pub(crate) fn take_queued(&mut self) -> Option<QueuedRequests> {
        match std::mem::replace(&mut self.queued, Queued::None) {
            Queued::None => Some(QueuedRequests::default()),
            Queued::Kept(queued) => Some(queued),
            Queued::TooMuch => None,
        }
    }

    /// Sends them again. The client has had the replies.
    pub(crate) fn queue_again(&mut self, queued: QueuedRequests) {
        if let Queued::Kept(kept) = &mut self.queued {
            *kept = queued.clone();
        }
        if queued.count > 0 {
            put(&mut self.to_backend, &queued.bytes);
            self.unsent += queued.count;
            self.expected.push_back(Expect::Relay { frames: queued.count, muted: Muted::Yes });
        }
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
        self.write(|out| plan.put(out, form));
        self.expected.push_back(Expect::Look(look, muted));
    }

    /// Sends a step together with those of others, if it may be; its answer is handed over, or [`SENT_ALONE`] in its
    /// place.
    pub(crate) fn execute_together(&mut self, plan: &Plan, look: L) -> bool {
        let is_at_rest = self.expected.is_empty() && self.to_backend.is_empty() && !self.asks;
        let is_sent = is_at_rest && matches!(self.queued, Queued::None) && self.backend_link.send_step(plan);
        if is_sent {
            self.expected.push_back(Expect::Look(look, Muted::Yes));
        }
        is_sent
    }

    /// Sends a step whose answer, if one comes, is handed over: its outcome changes nothing for the client.
    pub(crate) fn note(&mut self, plan: &Plan, look: L) {
        self.write(|out| plan.put(out, Form::Text));
        self.expected.push_back(Expect::Note(look));
    }

    /// Sends a request of the proxy's own; its answer is handed over.
    pub(crate) fn inquire(&mut self, request: &OwnRequest<'_>, look: L) {
        self.write(|out| request.put(out));
        match request {
            OwnRequest::Multi => self.in_own_block = true,
            OwnRequest::Exec | OwnRequest::Discard => self.in_own_block = false,
            _ => {}
        }
        self.expected.push_back(Expect::Look(look, Muted::Yes));
    }

    /// Gives the client this reply in its turn.
    pub(crate) fn answer(&mut self, reply: Bytes) {
        if self.expected.is_empty() {
            put(&mut self.to_client, &reply);
        } else {
            self.local += reply.len() + size_of::<Expect<L>>();
            self.expected.push_back(Expect::Local(reply));
        }
    }

    /// Gives the client this reply now: it is for a request whose reply was just handed over, and whose turn it is.
    pub(crate) fn reply(&mut self, frame: &[u8]) {
        put(&mut self.to_client, frame);
    }
}

fn keep(queued: &mut Queued, request: &[u8]) {
    match queued {
        Queued::None | Queued::TooMuch => {}
        Queued::Kept(kept) if kept.bytes.len() + request.len() > MAX_QUEUED => {
            *queued = Queued::TooMuch;
        }
        Queued::Kept(kept) => {
            kept.bytes.extend_from_slice(request);
            kept.count += 1;
        }
    }
}

//! The two sockets of one client: bytes in, bytes out, and which reply belongs to which request. It pairs replies
//! with requests in order, hands over those that are to be looked at, and leaves the proxy's own keys out of replies
//! that list keys; it does not know what a lock is. The code that handles a command sends with `forward` and
//! `execute` (`send`). The session waits in `next_event` (`wait`), where replies are counted off (`receive`). How the
//! two ends learn that no more comes is in `close`.

mod backend_link;
mod close;
mod event;
pub(crate) mod maintenance_notices;
pub(crate) mod pushes;
mod receive;
pub(crate) mod request_buffer;
mod send;
#[cfg(test)]
mod tests;
mod wait;

pub use backend_link::BackendLink;
pub use event::{End, Event, Muted, Reply};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, Cache};
use bytes::{Bytes, BytesMut};
use lockwarden_control::net::stream::Stream;
use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::metrics::Tally;
use lockwarden_lock::table::Listing;
use lockwarden_resp::{Redirects, ReplyLimits, ReplyScanner};

use crate::registry::buffer_memory::Account;
use crate::registry::undelivered::Delivery;
use pushes::{Channels, Pushes};

/// Bytes of replies that may wait for the client to take them; beyond this limit the backend is not read.
const MAX_UNREAD: usize = 64 * 1024 * 1024;
/// A reply that has to be looked at may have this many bytes. A longer listing is relayed as it comes, with the
/// proxy's own keys in it: that does no harm, and a closed connection would.
const MAX_COLLECTED: usize = 512 * 1024 * 1024 + 1024;
enum Expect<L> {
    Relay {
        frames: u64,
        muted: Muted,
    },
    /// One reply that may take long to come.
    Late(Late),
    Local(Bytes),
    Look(L, Muted),
    /// A reply that neither the client nor its next command waits for.
    Note(L),
    /// Names of keys.
    Listing(Listing, Muted),
    Confirm(Channels),
}

/// What is known of a reply that may take long to come.
#[derive(Clone, Copy)]
struct Late {
    muted: Muted,
    /// Redis itself may keep the client waiting with this command. Otherwise the command is unknown, and most such
    /// commands are answered at once.
    waits: bool,
}

/// The requests that were sent since a block began.
enum Queued {
    /// It is not kept.
    None,
    Kept(QueuedRequests),
    /// They were more than is kept.
    TooMuch,
}

/// Requests of a block, to be sent again.
#[derive(Clone, Default)]
pub(crate) struct QueuedRequests {
    bytes: BytesMut,
    count: u64,
}

impl QueuedRequests {
    /// How many they are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// Bytes of a block that are kept at most.
const MAX_QUEUED: usize = 1024 * 1024;

/// Whether the backend was told that no more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    None,
    /// It will be, once everything was sent.
    WhenSent,
    /// It was, or it takes no more.
    Said,
}

/// The sockets, and the replies that are due.
pub struct Transport<L> {
    client: Stream,
    backend_link: BackendLink,
    to_client: BytesMut,
    to_backend: BytesMut,
    /// Requests in `to_backend` that will be answered.
    unsent: u64,
    /// The client has said `ASKING` for the request that is under way.
    asks: bool,
    /// A block of the proxy's own is open; one `ASKING` counts for all of it.
    in_own_block: bool,
    /// What was sent since a block began, where it may have to be sent again.
    queued: Queued,
    from_backend: BytesMut,
    /// How much of `from_backend` belongs to the frame being collected and was scanned.
    scanned: usize,
    scanner: ReplyScanner,
    expected: VecDeque<Expect<L>>,
    /// How many of those are late, and how many of the late ones are of commands that are known to wait.
    blocking: u64,
    waiting: u64,
    /// When the client was found to send no more.
    client_done: Option<Instant>,
    /// Frames that no request asked for.
    pub(crate) pushes: Pushes,
    /// Knows which keys are the proxy's own.
    active: Cache<Arc<ArcSwap<Active>>, Arc<Active>>,
    longest_collected: usize,
    wakeup: Arc<Wakeup>,
    nudged: bool,
    draining: bool,
    aged: bool,
    tells_when_idle: bool,
    backend_closed: bool,
    farewell: Farewell,
    /// What would be written to the client is dropped.
    client_gone: bool,
    /// The client's machine stopped answering.
    client_vanished: bool,
    /// Bytes written to the client in all, and how many of them had been written when the client last sent something.
    sent: u64,
    sent_when_spoken: u64,
    /// The client was told that no more comes.
    said_goodbye: bool,
    /// Counts bytes from and to clients.
    tally: Arc<Tally>,
    /// Bytes of the proxy's own replies that wait for the replies before them.
    local: usize,
    account: Account,
    evicted: bool,
}

impl<L> Transport<L> {
    pub fn new(
        client: Stream,
        backend_link: BackendLink,
        active: Arc<ArcSwap<Active>>,
        tally: Arc<Tally>,
        wakeup: Arc<Wakeup>,
        account: Account,
    ) -> Self {
        Transport {
            client,
            backend_link,
            to_client: BytesMut::new(),
            to_backend: BytesMut::new(),
            unsent: 0,
            asks: false,
            in_own_block: false,
            queued: Queued::None,
            from_backend: BytesMut::new(),
            scanned: 0,
            scanner: ReplyScanner::new(ReplyLimits::default()),
            expected: VecDeque::new(),
            blocking: 0,
            waiting: 0,
            client_done: None,
            pushes: Pushes::default(),
            active: Cache::new(active),
            longest_collected: MAX_COLLECTED,
            wakeup,
            nudged: false,
            draining: false,
            aged: false,
            tells_when_idle: false,
            backend_closed: false,
            farewell: Farewell::None,
            client_gone: false,
            client_vanished: false,
            sent: 0,
            sent_when_spoken: 0,
            said_goodbye: false,
            tally,
            local: 0,
            account,
            evicted: false,
        }
    }

    /// The position in the stream to the client, in bytes, where the replies handed over so far end.
    pub(crate) fn position(&self) -> u64 {
        self.sent + self.to_client.len() as u64
    }

    /// How many bytes had been written to the client when it last sent something. That may have crossed these bytes
    /// on the way, but it is certainly no response to bytes written later.
    pub(crate) fn spoken_after(&self) -> u64 {
        self.client.heard(self.sent_when_spoken)
    }

    /// How far the client has taken its replies.
    pub(crate) fn delivery(&self, noticed: Instant) -> Delivery {
        // The end of the stream counts as one byte.
        let last_word = u64::from(self.said_goodbye);
        let unacknowledged = self.client.unacknowledged().saturating_sub(last_word);
        Delivery { heard: self.spoken_after(), acknowledged: self.sent.saturating_sub(unacknowledged), noticed }
    }

    /// The redirections to other nodes that the backend gave since the last call.
    pub(crate) fn take_redirects(&mut self) -> Redirects {
        self.scanner.take_redirects()
    }

    /// Whether, since the last call, the backend gave an error that only a replica gives.
    pub(crate) fn take_replica_error(&mut self) -> bool {
        self.scanner.take_replica_error()
    }

    /// Reports `Event::Idle` once, when nothing is under way.
    pub(crate) fn tell_when_idle(&mut self) {
        self.tells_when_idle = true;
    }

    /// The way to the backend, to be changed only where nothing is under way.
    pub fn backend_link(&mut self) -> &mut BackendLink {
        &mut self.backend_link
    }

    /// Whether the way to the backend may be changed now.
    pub(crate) fn may_change_uplink(&self) -> bool {
        self.expected.is_empty() && self.to_backend.is_empty() && self.from_backend.is_empty()
    }

    /// Whether requests travel with those of others.
    pub(crate) fn is_shared(&self) -> bool {
        self.backend_link.is_shared()
    }

    /// Whether the backend has sent something on the session's own connection while that was at rest.
    pub(crate) fn has_spoken(&self) -> bool {
        self.backend_link.has_spoken()
    }

    /// Whether no reply is due.
    pub(crate) fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    /// Whether the backend would still answer a request of the proxy's own before long.
    pub(crate) fn may_still_ask(&self) -> bool {
        !self.backend_closed && self.farewell == Farewell::None && self.blocking == 0
    }

    /// Nothing more is written to the client.
    pub(crate) fn client_is_gone(&mut self) {
        self.client_gone = true;
    }

    /// Whether the client's machine was found not to answer any more, which takes a while.
    pub(crate) fn client_vanished(&self) -> bool {
        self.client_vanished
    }

    /// Whether all that has come from the client was read. What it has sent meanwhile is answered first.
    pub(crate) fn client_is_quiet(&self) -> bool {
        self.client.unread() == 0
    }

    /// Whether requests of this client are to be answered as if they were done, and not to be done.
    pub(crate) fn is_trying(&self) -> bool {
        self.client.is_trying()
    }

    /// Reports once more that the connection is old, when nothing is under way.
    pub(crate) fn keep_aged(&mut self) {
        self.aged = true;
    }

    /// Reports once more that the proxy is about to stop, when nothing is under way.
    pub fn keep_draining(&mut self) {
        self.draining = true;
    }
}

//! A lease that is kept alive, and its places in the queues and in the index.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_control::telemetry::events::SessionNumber;
use lockwarden_lock::plan::Renewal;
use lockwarden_lock::token::Identity;

use crate::registry::clients::{ClientConnection, Holder};

/// A renewal that was sent and not answered, or that failed, is due again after this part of its TTL.
pub(super) const AGAIN_AFTER: u32 = 12;

/// Which other connections keep a lease alive once the one that took it has ended.
#[derive(Clone, Debug)]
pub enum SameClient {
    /// None: another connection from the same place may be another client's.
    Nobody,
    /// Those with this identity, which distinguishes the client from others.
    Identity(Identity),
    /// Those with this identity whose process on this machine is also that of this connection; and whether the
    /// identity distinguishes the client from others if no process can be found.
    Process(Identity, Arc<ClientConnection>, bool),
}

/// One lease to keep alive.
#[derive(Clone, Debug)]
pub struct KeptLease {
    pub(crate) session: SessionNumber,
    pub(crate) same_client: SameClient,
    pub(crate) renewal: Renewal,
    /// When it was granted.
    pub(crate) since: Instant,
    /// When it ends unless it is renewed.
    pub(crate) ends: Instant,
    /// When its next renewal is due.
    pub(crate) due: Instant,
    /// Until when its record lasts long enough without being renewed itself.
    pub(crate) record_until: Instant,
    /// Wakes the session, if the proxy's own connection cannot renew the lease.
    pub(crate) wakeup: Arc<Wakeup>,
    pub(super) turn: Turn,
    pub(super) listed: Listed,
    /// Its place among its session's leases.
    pub(super) place: u64,
}

impl KeptLease {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.renewal.ttl_ms.0)
    }

    /// A lease that was granted now and is not kept alive yet.
    pub fn new(holder: &Holder, same_client: SameClient, renewal: Renewal, now: Instant) -> KeptLease {
        let ttl = Duration::from_millis(renewal.ttl_ms.0);
        let listed = Listed::new(&same_client);
        KeptLease {
            session: holder.session,
            same_client,
            since: now,
            ends: now + ttl,
            due: now,
            record_until: now,
            wakeup: holder.wakeup.clone(),
            turn: Turn::Waiting((now, 0)),
            listed,
            place: 0,
            renewal,
        }
    }
}

/// What is to be done to the index.
#[derive(Debug, Default)]
pub struct IndexWork {
    /// Entries, each with the number of ms after which it is overdue; that may be in the past.
    pub(crate) written: Vec<(i64, Bytes)>,
    pub(crate) removed: Vec<Bytes>,
}

/// The place of a lease in the queues.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// Among those that wait.
    Waiting((Instant, u64)),
    /// Among those that are due.
    Due((Instant, u64)),
}

/// What is known of a lease's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// Another connection could keep the lease alive, so it is worth an entry.
    pub(super) worthwhile: bool,
    /// There may be an entry.
    pub(super) written: bool,
    /// Its place among those that are to be written.
    pub(super) turn: Option<(Instant, u64)>,
}

impl Listed {
    pub(super) fn is_worthwhile(&self) -> bool {
        self.worthwhile
    }

    fn new(same_client: &SameClient) -> Listed {
        Listed { worthwhile: !matches!(same_client, SameClient::Nobody), written: false, turn: None }
    }
}

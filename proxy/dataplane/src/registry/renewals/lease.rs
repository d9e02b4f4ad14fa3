//! A lease that is kept alive, and its places in the queues and in the index.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_control::telemetry::events::SessionNumber;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::plan::Renewal;
use lockwarden_lock::time::Tick;
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
    pub(crate) since: Tick,
    /// When it ends unless it is renewed.
    pub(crate) ends: Tick,
    /// When its next renewal is due.
    pub(crate) due: Tick,
    /// Until when its record lasts long enough without being renewed itself.
    pub(crate) record_until: Tick,
    /// Wakes the session, if the proxy's own connection cannot renew the lease.
    pub(crate) wakeup: Arc<Wakeup>,
    pub(super) turn: Turn,
    pub(super) listed: Listed,
}

impl KeptLease {
    /// The lock.
    pub(crate) fn lock(&self) -> &DbKey {
        &self.renewal.lock
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.renewal.ttl_ms.0)
    }

    /// A lease that was granted now and is not kept alive yet.
    pub fn new(holder: &Holder, same_client: SameClient, renewal: Renewal, now: Instant) -> KeptLease {
        let ttl = Duration::from_millis(renewal.ttl_ms.0);
        let listed = Listed::new(&same_client);
        let at = Tick::from(now);
        KeptLease {
            session: holder.session,
            same_client,
            since: at,
            ends: at + ttl,
            due: at,
            record_until: at,
            wakeup: holder.wakeup.clone(),
            turn: Turn::Waiting(at),
            listed,
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

/// The place of a lease in the queues: in which of them, and the time that orders it there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// Among those that wait.
    Waiting(Tick),
    /// Among those that are due.
    Due(Tick),
}

/// What is known of a lease's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// Another connection could keep the lease alive, so it is worth an entry.
    pub(super) worthwhile: bool,
    /// There may be an entry.
    pub(super) written: bool,
    /// When it is to be written, if it is.
    pub(super) turn: Option<Tick>,
}

impl Listed {
    fn new(same_client: &SameClient) -> Listed {
        Listed { worthwhile: !matches!(same_client, SameClient::Nobody), written: false, turn: None }
    }
}

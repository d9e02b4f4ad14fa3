//! Finds out that the holder of a lease is gone, counts it, and has the lease shortened if its namespace says so
//! (`holder_lost`). Only what is known exactly counts: a process of this machine that has ended, or an address that
//! is one process and has no connection any more. The end of a connection alone proves nothing; it only starts the
//! checks.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::plan::Who;
use lockwarden_lock::rules::{HolderLost, Mode, Rules, TrustAddress};
use lockwarden_lock::token::Grant;
use tokio::runtime::Handle;

use super::handover::Ended;
use crate::registry::clients::{ClientConnection, Host};
use crate::registry::lost_holders::{KnownAs, Lost, Watched};
use crate::registry::processes::Running;
use crate::state::{ProxyState, effects};

/// Between two checks.
const PAUSE: Duration = Duration::from_millis(250);
/// How soon an address without connections may have one again, if no setting says it.
const COMES_BACK: Duration = Duration::from_secs(5);
/// The checks take at most one part in this many of the time.
const LOOKS_ONE_IN: u32 = 50;

/// A connection has ended.
pub(crate) fn connection_ended(shared: &ProxyState, peer: &ClientConnection, ended: Ended) {
    if let Some(host) = peer.host() {
        let by_client = matches!(ended, Ended::ByClient(_));
        shared.lost_holders.ended(&host, by_client, Instant::now());
    }
}

/// A connection has left this lease, under these rules: its holder is watched, if it can be known whether the holder
/// lives.
pub(crate) fn left(
    shared: &Arc<ProxyState>,
    peer: &ClientConnection,
    who: &Who,
    (key, grant): (&DbKey, Grant),
    rules: &Rules,
    ended: Ended,
) {
    let within = match rules.holder_lost {
        HolderLost::Shorten { ms } if rules.mode == Mode::Enforce => Some(Duration::from_millis(ms)),
        HolderLost::Shorten { .. } | HolderLost::Keep => None,
    };
    let is_current = shared.mirror.current(key) == Some((grant, Some(who.session)));
    // A client that hands a lock over is done with it.
    if rules.hand_over || !is_current {
        return;
    }
    let took_leave = matches!(ended, Ended::ByClient(_));
    let holder = match who.trust(rules) {
        TrustAddress::Process => peer.host().map(|host| KnownAs::Address { host, took_leave }),
        TrustAddress::Auto | TrustAddress::No => peer.running().cloned().map(KnownAs::Process),
    };
    let Some(holder) = holder else {
        return;
    };
    let lease = Watched { session: who.session, grant, within, holder, seen: Instant::now() };
    let begins = shared.lost_holders.watch(key.clone(), lease);
    if let (true, Ok(runtime)) = (begins, Handle::try_current()) {
        runtime.spawn(look_after(Arc::downgrade(shared)));
    }
}

/// Checks whether the holders are there, as long as a lease is watched.
async fn look_after(shared: Weak<ProxyState>) {
    let mut pause = PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        // A sleeping task must not keep the state of a proxy that stops.
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let watched = shared.lost_holders.all();
        if watched.is_empty() {
            return;
        }
        let began = Instant::now();
        let mut look = Look { shared: &shared, dead: HashSet::new(), hosts: None, now: began };
        for (key, lease) in watched {
            let grant = lease.grant;
            match look.at(&key, &lease) {
                Holder::There => shared.lost_holders.seen(&key, grant, began),
                Holder::Away => {}
                Holder::Done => shared.lost_holders.remove(&key, grant),
                Holder::Gone => {
                    shared.lost_holders.remove(&key, grant);
                    match lease.within {
                        // A lease for which there is no room expires by its TTL.
                        Some(within) => drop(shared.lost.add(Lost { key, lease, within })),
                        None => effects::holder_is_gone(&shared, &key, &shared.active.load()),
                    }
                }
            }
        }
        pause = PAUSE.max(began.elapsed() * LOOKS_ONE_IN);
    }
}

/// What is known of a lease's holder.
enum Holder {
    /// It lives, or another process carries the lease on.
    There,
    /// It has no connection, and it is too early to say more.
    Away,
    /// It is gone.
    Gone,
    /// The lease is over.
    Done,
}

/// One check of all of them.
struct Look<'a> {
    shared: &'a ProxyState,
    /// Processes that are known to have ended.
    dead: HashSet<Running>,
    /// The hosts of the connected clients.
    hosts: Option<HashSet<Host>>,
    now: Instant,
}

impl Look<'_> {
    fn at(&mut self, key: &DbKey, lease: &Watched) -> Holder {
        if self.shared.mirror.current(key) != Some((lease.grant, Some(lease.session))) {
            return Holder::Done;
        }
        // A job of a shell still holds it, or may: a job on another machine cannot be seen.
        if self.shared.jobs.of(key, lease.grant).is_some() || self.is_carried_on(key, lease) {
            return Holder::There;
        }
        match &lease.holder {
            KnownAs::Process(process) if self.lives(process) => Holder::There,
            KnownAs::Process(_) => Holder::Gone,
            KnownAs::Address { host, .. } if self.is_connected(host) => Holder::There,
            KnownAs::Address { took_leave, .. } => {
                let away = self.now.saturating_duration_since(lease.seen);
                match *took_leave && away >= lease.within.unwrap_or(COMES_BACK) {
                    true => Holder::Gone,
                    false => Holder::Away,
                }
            }
        }
    }

    /// Whether a process that the holder started, or another client, has extended the lease and may live.
    fn is_carried_on(&mut self, key: &DbKey, lease: &Watched) -> bool {
        let Some(by) = self.shared.lost_holders.extended_by(key, lease.grant) else {
            return false;
        };
        let is_holder = match &lease.holder {
            KnownAs::Process(process) => by.running() == Some(process),
            KnownAs::Address { host, .. } => by.host().as_ref() == Some(host),
        };
        !is_holder && by.running().is_none_or(|process| self.lives(process))
    }

    fn lives(&mut self, process: &Running) -> bool {
        if self.dead.contains(process) {
            return false;
        }
        let lives = process.is_alive();
        if !lives {
            self.dead.insert(process.clone());
        }
        lives
    }

    fn is_connected(&mut self, host: &Host) -> bool {
        let clients = &self.shared.clients;
        self.hosts.get_or_insert_with(|| clients.hosts()).contains(host)
    }
}

//! Which connection keeps a lease alive when the one that took it ends: pools close idle connections while their
//! process works on, proxies restart, one process may use several connections. Another connection of the same client
//! takes over, at this proxy or at another one; without one the lease expires by its TTL.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lockwarden_control::telemetry::events::SessionNumber;
use lockwarden_lock::lease::LeaseEvent;
use lockwarden_lock::plan::{IndexEntry, RecordedLease};
use lockwarden_lock::rules::{KeepAliveBy, Mode, Rules, TrustAddress};
use lockwarden_lock::time::TtlMs;
use lockwarden_lock::token::{Identity, Process};
use tokio::runtime::Handle;

use crate::registry::clients::ClientConnection;
use crate::registry::renewals::{KeptLease, SameClient};
use crate::state::ProxyState;

/// After this time it has been decided which process a job is: longer than the subshells and wrappers around it live.
const DECIDED_AFTER: Duration = Duration::from_millis(1_500);

/// Most connections of one identity that are looked at for one lease.
const MAX_NAMESAKES: usize = 64;
/// Between two looks for another connection: a pool may close one before it opens another.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A connection that was opened less than this before another ended may belong to the next process.
const ALREADY_THERE: Duration = Duration::from_millis(100);

/// How a connection ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// By its client, which was there until then. A process that starts later from the same address is another
    /// client. So only a connection that was there before can take over, unless both are known to belong to one
    /// process.
    ByClient(Instant),
    /// By the proxy or by Redis, so the client may come back.
    ByUs,
}

impl Ended {
    /// When its client closed it, if the client did.
    pub(crate) fn at(self) -> Option<Instant> {
        match self {
            Ended::ByClient(at) => Some(at),
            Ended::ByUs => None,
        }
    }
}

/// The client that is looked for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    identity: Identity,
    /// The identity distinguishes the client from others even without a process.
    distinctive: bool,
    rules: Rules,
    /// When the lease was granted.
    since: Instant,
    /// When the client closed its connection, if it did. Unless the client is known by its process, only a connection
    /// that was there before that counts. `None` also for a lock that is handed over: it outlives the process that
    /// took it.
    ended: Option<Instant>,
}

/// A session is gone: another connection of its client keeps its leases alive from now on, or they are
/// left to other proxies. In a cluster their slots may have moved since it took them.
pub(crate) fn end_session(shared: &Arc<ProxyState>, session: SessionNumber, ended: Ended) {
    end_session_on(shared, session, ended);
    if shared.shards.map().is_some() {
        for other in shared.shards.each().iter().filter(|other| !Arc::ptr_eq(other, shared)) {
            end_session_on(other, session, ended);
        }
    }
}

fn end_session_on(shared: &Arc<ProxyState>, session: SessionNumber, ended: Ended) {
    let mut left = Vec::new();
    for lease in shared.renewals.end_session(session) {
        if let Some(job) = shared.jobs.holder(&lease) {
            let now = Instant::now();
            // It will soon be known whether there is a job: until then no holder exists for which the lease would be
            // renewed.
            let latest = lease.ends.instant().checked_sub(lease.ttl() / 4).unwrap_or(now);
            let known = lease.due.max((now + DECIDED_AFTER).into());
            let due = known.min(latest.into());
            shared.renewals.adopt_later(&job, lease, (now, due));
            continue;
        }
        match wanted(shared, &lease, ended) {
            Some(wanted) => left.push(Left { lease, wanted }),
            None => shared.renewals.leave(&lease),
        }
    }
    if let (false, Ok(runtime)) = (left.is_empty(), Handle::try_current()) {
        runtime.spawn(search(Arc::downgrade(shared), left));
    }
}

/// A lease whose connection has ended.
struct Left {
    lease: KeptLease,
    wanted: Wanted,
}

/// Which connections may keep this lease alive after its connection has ended so; `None` if none may.
fn wanted(shared: &ProxyState, lease: &KeptLease, ended: Ended) -> Option<Wanted> {
    let active = shared.active.load();
    let rules = active.of_lock(lease.lock().bytes())?.rules;
    let (identity, distinctive) = match &lease.same_client {
        SameClient::Nobody => return None,
        SameClient::Identity(client) => (*client, true),
        SameClient::Process(client, peer, distinctive) => (client.with_process(peer.process()), *distinctive),
    };
    let ended = ended.at().filter(|_| !rules.hand_over);
    let wanted = Wanted { identity, distinctive, rules, since: lease.since.instant(), ended };
    wanted.may_be_found().then_some(wanted)
}

impl Wanted {
    fn may_be_found(&self) -> bool {
        match self.identity.process() {
            Process::Known(_) => true,
            // A process that was not looked up while the connection lasted cannot be looked up any more.
            Process::Pending => false,
            Process::None => {
                let one_process = self.rules.trust_address == TrustAddress::Process;
                let by_identity = self.rules.keep_alive_by == KeepAliveBy::Identity;
                self.distinctive && (one_process || by_identity || self.rules.hand_over)
            }
        }
    }

    /// A connection of this client, if there is one now.
    async fn find(&self, shared: &ProxyState) -> Option<Arc<ClientConnection>> {
        let client = self.identity.with_process(Process::None);
        let process = self.identity.process();
        for peer in shared.clients.namesakes(client, MAX_NAMESAKES) {
            let by_address = !peer.is_local()
                || peer.trust().unwrap_or(self.rules.trust_address) == TrustAddress::Process
                || self.rules.hand_over;
            let was_there = self.was_there(peer.opened);
            let is_it = match process {
                Process::None if by_address => was_there,
                Process::None => was_there && shared.processes.of(&peer).await == process,
                Process::Pending => false,
                Process::Known(_) => shared.processes.of(&peer).await == process,
            };
            if is_it {
                return Some(peer);
            }
        }
        None
    }

    /// Whether a connection that was opened then does not belong to a client that came later.
    fn was_there(&self, opened: Instant) -> bool {
        let before = |ended| opened <= self.since || opened + ALREADY_THERE <= ended;
        self.ended.is_none_or(before)
    }

    /// Whether a connection that is opened later may take over.
    fn may_come_later(&self) -> bool {
        self.ended.is_none() || matches!(self.identity.process(), Process::Known(_))
    }
}

/// Looks for another connection of the client of each lease, at this proxy for as long as the lease lasts without a
/// renewal. Leases for which none is found at once are also left to other proxies.
async fn search(shared: Weak<ProxyState>, mut left: Vec<Left>) {
    let mut is_offered = false;
    while let Some(shared) = shared.upgrade() {
        let mut alone = Vec::new();
        for left in left {
            match left.wanted.find(&shared).await {
                Some(peer) => hand_over(&shared, &peer, left.lease),
                None => alone.push(left),
            }
        }
        if !is_offered {
            for Left { lease, wanted } in &alone {
                shared.renewals.offer(lease, wanted.ended);
            }
            is_offered = true;
        }
        alone.retain(|left| left.wanted.may_come_later());
        let pause = |left: &Left| (left.lease.ttl() / 10).clamp(MIN_PAUSE, MAX_PAUSE);
        let Some(pause) = alone.iter().map(pause).min() else {
            return;
        };
        let now = Instant::now();
        alone.retain(|left| left.lease.ends > now + pause);
        left = alone;
        // A sleeping task must not keep the state of a proxy that stops.
        drop(shared);
        tokio::time::sleep(pause).await;
    }
}

fn hand_over(shared: &Arc<ProxyState>, to: &ClientConnection, lease: KeptLease) {
    shared.renewals.adopt(&to.holder, lease, Instant::now());
    // If the connection ended before the lease was adopted, no other code would look after the lease.
    if shared.clients.of_session(to.session).is_none() {
        end_session(shared, to.holder.session, Ended::ByUs);
    }
}

/// A lease that no proxy keeps alive any more, according to the index and its record.
pub(crate) struct Found {
    pub(crate) entry: IndexEntry,
    /// When the record was asked for, so that no time in it seems more recent than it is.
    pub(crate) asked: Instant,
    /// Since when the entry is overdue; for an offered entry, since its connection ended.
    pub(crate) overdue: Instant,
    pub(crate) lease: RecordedLease,
    /// What is left of its TTL.
    pub(crate) ttl: Duration,
}

/// Keeps such a lease alive if its client has a connection to this proxy. Returns whether it has.
pub(crate) async fn take_over(shared: &Arc<ProxyState>, found: &Found) -> bool {
    let Found { entry, asked, overdue, lease: left, ttl } = found;
    let now = Instant::now();
    let active = shared.active.load_full();
    let Some(details) = active.of_lock(entry.lock.bytes()) else {
        return false;
    };
    let rules = details.rules;
    // In monitor mode a proxy touches no lock.
    if rules.mode == Mode::Monitor && details.rollout.is_none() {
        return false;
    }
    let wanted = Wanted {
        identity: left.identity,
        distinctive: left.distinctive,
        rules,
        since: asked.checked_sub(left.held).unwrap_or(*asked),
        ended: (entry.offered && !rules.hand_over).then_some(*overdue),
    };
    let key = &entry.lock;
    let client = left.identity.with_process(Process::None);
    let job = || {
        let job = shared.jobs.of(key, left.grant)?;
        // The process itself lives, so its other connections have to take over.
        if job.taker_lives() { None } else { job.holder }
    };
    let peer = match (shared.clients.of_session(left.session), job()) {
        (Some((_, peer)), _) => Some(peer),
        (None, Some(_)) => None,
        (None, None) if wanted.may_be_found() => wanted.find(shared).await,
        (None, None) => None,
    };
    let holder = match &peer {
        Some(peer) => Some(peer.holder.clone()),
        None => job(),
    };
    let Some(holder) = holder else {
        return false;
    };
    let same_client = match (left.identity.process(), &peer) {
        (Process::None, _) if left.distinctive => SameClient::Identity(client),
        (Process::Pending | Process::Known(_), Some(peer)) => {
            SameClient::Process(client, peer.clone(), left.distinctive)
        }
        (Process::None | Process::Pending | Process::Known(_), _) => SameClient::Nobody,
    };
    let mut renewal = entry.renewal(left.grant, &rules);
    // The proxy that granted it may have another ceiling.
    let ceiling = details.ceiling_ms().unwrap_or(u64::MAX);
    let ceiling = TtlMs(ceiling.saturating_add(rules.grace_ms));
    renewal.ttl_ms = renewal.ttl_ms.min(ceiling);
    let mut lease = KeptLease::new(&holder, same_client, renewal, now);
    (lease.since, lease.ends) = (wanted.since.into(), (now + *ttl).into());
    if let Some(peer) = peer.as_ref().filter(|peer| peer.session != left.session) {
        tracing::info!(
            namespace = %details.name,
            key = %String::from_utf8_lossy(key.bytes()),
            fence = left.fence.0,
            client = %peer.client,
            "another connection of its client keeps this lock alive from now on"
        );
    }
    let event = LeaseEvent::Found { grant: left.grant, fence: left.fence, since: wanted.since, ttl: Some(*ttl) };
    shared.mirror.apply(key, event, now);
    shared.renewals.is_stale(entry.encoded());
    match peer {
        Some(peer) => hand_over(shared, &peer, lease),
        None => {
            shared.renewals.adopt(&holder, lease, Instant::now());
            // If the job ended before the lease was adopted, no other code would notice that.
            if job().is_none() {
                end_session(shared, holder.session, Ended::ByUs);
            }
        }
    }
    true
}

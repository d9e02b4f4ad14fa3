//! The held locks, and one lock with its history: the mirror knows which locks are held, the view by whom and why. It takes the
//! view's lock first and then, shard by shard, the mirror's; no code takes them in the other order.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::{Duration, Instant};

use lockwarden_control::clock::ms;
use lockwarden_control::clock::now_ms;
use lockwarden_control::ruleset::Active;
use lockwarden_control::text::escape::{spell, unspell};
use lockwarden_dataplane::state::ProxyState;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::lease::Lease;
use memchr::memmem;

use super::api;
use super::api::{After, DecisionsQuery, LocksQuery, Since};
use super::decisions::lost_of;
use super::lock_history::{LockSeen, Wait};
use super::remarks::remarks;
use super::service::ViewService;
use super::store::Seen;
use super::{losses, topology};

/// The most locks in a reply.
const MAX_LOCKS: usize = 10_000;

/// For how long lost leases are shown beside the locks.
const LATELY: Duration = Duration::from_secs(3_600);

/// A lease that may be in the reply; the first ones are the greatest.
#[derive(PartialEq, Eq)]
struct Candidate {
    state: api::LockState,
    /// Gives equal leases the same order in every reply.
    key: DbKey,
    lease: Box<Lease>,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> std::cmp::Ordering {
        (self.state, self.lease.since, &self.key).cmp(&(other.state, other.lease.since, &other.key))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// `GET /api/v1/locks`.
pub(super) fn locks(service: &ViewService, query: &LocksQuery) -> api::Locks {
    let active = service.shared.active.load_full();
    let (now, now_ms) = (Instant::now(), now_ms());
    let limit = query.limit.unwrap_or(api::USUAL_LIMIT).min(MAX_LOCKS);
    let contains = query.contains.as_deref().unwrap_or_default();
    let contains = unspell(contains).unwrap_or_else(|| contains.into());
    let contains = memmem::Finder::new(&contains);
    let pattern = query.pattern.as_ref();
    let is_named = |key: &[u8]| contains.find(key).is_some() && pattern.is_none_or(|pattern| pattern.0.matches(key));
    let seen = service.view.seen();
    let troubled = troubled(&seen);
    let (mut matching, mut unknown) = (0, 0);
    // The last of the reply is on top, so that a better one can replace it.
    let mut best: BinaryHeap<Candidate> = BinaryHeap::new();
    service.shared.shards.visit(|key, lease| {
        let Some(details) = active.of_lock(key.bytes()) else {
            return;
        };
        let asked_for = query.namespace.as_deref().is_none_or(|name| name == &*details.name);
        let lives = lease.ends.is_none_or(|ends| ends > now);
        if !asked_for || !lives || !is_named(key.bytes()) {
            return;
        }
        if let Some(name) = &query.application
            && !holds(&seen, key, lease, name)
        {
            return;
        }
        let state = state(troubled.get(key), lease);
        if query.problems && state == api::LockState::Held {
            return;
        }
        matching += 1;
        unknown += u64::from(state == api::LockState::Unknown);
        if best.len() >= limit {
            let is_better = best.peek().is_some_and(|last| (state, lease.since) < (last.state, last.lease.since));
            if !is_better {
                return;
            }
            best.pop();
        }
        best.push(Candidate { state, key: key.clone(), lease: Box::new(lease.clone()) });
    });
    let best = best.into_sorted_vec().into_iter();
    let look = Look { shared: &service.shared, active: &active, seen: &seen, now, now_ms };
    let locks = best.map(|one| look.lock(&one.key, &one.lease, one.state));
    let lost = lost_lately(&seen, query);
    let namespace = query.namespace.as_deref();
    api::Locks {
        now: now_ms,
        matching,
        locks: locks.collect(),
        notices: topology::notices(&service.shared, &active, namespace, unknown, lost),
    }
}

/// A sentence for each application that has lost some of the locks that were asked for.
fn lost_lately(seen: &Seen, query: &LocksQuery) -> impl Iterator<Item = String> + use<> {
    let lost = DecisionsQuery {
        since: Some(After(Since::Ago(LATELY))),
        namespace: query.namespace.clone(),
        application: query.application.clone(),
        contains: query.contains.clone(),
        pattern: query.pattern.clone(),
        ..DecisionsQuery::default()
    };
    let lost = losses::incidents(seen, &lost_of(seen, &lost, usize::MAX));
    let lost = lost.into_iter().take(topology::MAX_TOLD);
    lost.map(|incident| incident.sentence)
}

/// Whether an application holds this lease, as far as its grant was seen.
fn holds(seen: &Seen, key: &DbKey, lease: &Lease, application: &str) -> bool {
    let holding = seen.lock(key).and_then(|lock| lock.holding.as_ref());
    let holding = holding.filter(|holding| holding.fence == lease.fence.0);
    let caller = holding.and_then(|holding| holding.caller.as_ref());
    caller.is_some_and(|caller| caller.application() == application)
}

/// Locks with a state that the mirror does not know, each with the fencing token of the lease concerned.
fn troubled(seen: &Seen) -> HashMap<DbKey, (u64, api::LockState)> {
    let circles = seen.circles.iter().flat_map(|circle| &circle.edges);
    let deadlocked: HashSet<&DbKey> = circles.map(|edge| &edge.key).collect();
    let troubled = seen.locks.iter().filter_map(|(key, lock)| {
        let holding = lock.holding.as_ref()?;
        let state = match holding.overlapped {
            true => api::LockState::Overlap,
            false if deadlocked.contains(key) => api::LockState::Deadlock,
            false => return None,
        };
        Some((key.clone(), (holding.fence, state)))
    });
    troubled.collect()
}

fn state(trouble: Option<&(u64, api::LockState)>, lease: &Lease) -> api::LockState {
    match trouble {
        Some((fence, state)) if *fence == lease.fence.0 => *state,
        Some(_) | None if lease.unknown => api::LockState::Unknown,
        Some(_) | None if lease.ends.is_none() => api::LockState::NoTtl,
        Some(_) | None => api::LockState::Held,
    }
}

/// The data of one request, and its time.
struct Look<'a> {
    shared: &'a ProxyState,
    active: &'a Active,
    seen: &'a Seen,
    now: Instant,
    now_ms: u64,
}

impl Look<'_> {
    fn lock(&self, key: &DbKey, lease: &Lease, state: api::LockState) -> api::Lock {
        let known = self.seen.lock(key);
        let holding = known.and_then(|known| known.holding.as_ref()).filter(|holding| holding.fence == lease.fence.0);
        let age = self.now.saturating_duration_since(lease.since.instant());
        let told = holding.and_then(|holding| holding.caller.clone());
        let caller = told.or_else(|| self.shared.clients.caller(lease.session?));
        let left = lease.ends.map(|ends| ends.saturating_duration_since(self.now));
        let details = self.active.of_lock(key.bytes());
        api::Lock {
            key: spell(key.bytes()),
            db: key.db(),
            namespace: details.map_or_else(String::new, |details| details.name.to_string()),
            state,
            holder: caller.as_deref().map(api::Client::of),
            token: holding.and_then(|holding| Some(holding.token?.to_string())),
            fence: lease.fence.0,
            since: self.now_ms.saturating_sub(ms(age)),
            age_ms: ms(age),
            ttl_left_ms: left.map(ms),
            ttl_ms: holding.map(|holding| holding.ttl_ms).filter(|ttl| *ttl > 0),
            // The holder's connection may be gone, and then the lease is not renewed.
            kept_alive: self
                .shared
                .shards
                .of_key(key.bytes())
                .is_some_and(|shard| shard.renewals.keeps(key, lease.grant)),
            waiters: known.map_or(0, |known| known.waiting(self.now).count() as u64),
            seen: if lease.session.is_some() { "acquire" } else { "scan" }.to_owned(),
        }
    }
}

/// `GET /api/v1/locks/{key}`: the key as it is, not spelled.
pub(super) fn lock(service: &ViewService, key: &[u8], db: u32) -> Option<api::LockDetail> {
    let active = service.shared.active.load_full();
    let (now, now_ms) = (Instant::now(), now_ms());
    let key = DbKey::new(db, key);
    let seen = service.view.seen();
    let lease = service.shared.shards.lease(&key);
    let lease = lease.filter(|lease| lease.ends.is_none_or(|ends| ends > now));
    let known = seen.lock(&key);
    if lease.is_none() && known.is_none() {
        return None;
    }
    let look = Look { shared: &service.shared, active: &active, seen: &seen, now, now_ms };
    let lock = lease.map(|lease| {
        let troubled = troubled(&seen);
        look.lock(&key, &lease, state(troubled.get(&key), &lease))
    });
    let namespace = match (&lock, known) {
        (Some(lock), _) => lock.namespace.clone(),
        (None, Some(known)) => known.namespace.to_string(),
        (None, None) => String::new(),
    };
    let timeline = |known: &LockSeen| known.timeline.iter().map(|entry| api::Moment::of(entry)).collect();
    let waiters = |known: &LockSeen| known.waiting(now).map(waiter).collect();
    let told = known.map(|known| remarks(known, lock.as_ref(), &seen.circles, now));
    Some(api::LockDetail {
        key: spell(key.bytes()),
        db,
        namespace,
        timeline: known.map(timeline).unwrap_or_default(),
        waiters: known.map(waiters).unwrap_or_default(),
        holds: known.map_or_else(Default::default, |known| known.holds.summary()),
        remarks: told.unwrap_or_default(),
        lock,
    })
}

fn waiter(wait: &Wait) -> api::Waiter {
    api::Waiter { client: api::Client::of(&wait.caller), since: wait.since_ms, tries: wait.tries }
}

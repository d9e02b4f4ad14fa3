//! The sweeper: a slow walk over the keys of the server that finds the locks which nobody has shown
//! to this proxy, because they are older than it or went around it. It counts them, shows governed
//! ones in the view, and gives those without TTL one where their namespace says `adopt = "cap"`.
//! It walks on the upkeep connection, a page at a time, so that it is never in anybody's way.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockwarden_lock::evidence::{DbKey, SURELY_BEFORE_END};
use lockwarden_lock::lease::{Lease, LeaseEvent};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::plan::{Swept, sweep, swept, swept_ttl};
use lockwarden_resp::Value;

use crate::backend::{BackendError, Conversation};
use crate::registry::ungoverned::Equal;
use crate::ruleset::Active;
use crate::state::ProxyState;
use crate::telemetry::events::EventKind;
use crate::telemetry::metrics::SweepCounts;

/// Keys asked for at once. Redis looks at them in a fraction of a millisecond.
const PAGE: &str = "500";
/// Between two pages, so that a walk over many keys costs the server next to nothing.
const BREATH: Duration = Duration::from_millis(20);
/// Locks looked at in one step.
const BATCH: usize = 100;

/// A walk, and what it has found so far.
pub(crate) struct Sweeper {
    interval: Option<Duration>,
    due: Instant,
    /// Databases that are still to be walked, the current one first.
    databases: VecDeque<u32>,
    cursor: Bytes,
    found: Vec<SweepCounts>,
    endless: Vec<(NamespaceId, Bytes)>,
    /// The values of its locks.
    values: Values,
    /// The walks that came to their end.
    walks: u64,
}

impl Sweeper {
    /// Walks at once, and again so long after each walk; `None` never.
    pub(crate) fn new(interval: Option<Duration>) -> Sweeper {
        Sweeper {
            interval,
            due: Instant::now(),
            databases: VecDeque::new(),
            cursor: START,
            found: Vec::new(),
            endless: Vec::new(),
            values: HashMap::new(),
            walks: 0,
        }
    }

    /// When the next page is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.interval.map(|_| self.due)
    }

    /// Looks at one page. The conversation is left in the database that it answers.
    pub(crate) async fn step(
        &mut self,
        shared: &ProxyState,
        conversation: &mut Conversation,
    ) -> Result<Option<u32>, BackendError> {
        let Some(interval) = self.interval else {
            return Ok(None);
        };
        let active = shared.active.load_full();
        if self.databases.is_empty() {
            self.databases = databases(conversation).await?;
            self.cursor = START;
            self.found = vec![SweepCounts::default(); active.details.len()];
        }
        let Some(&db) = self.databases.front() else {
            self.finish(shared, interval);
            return Ok(None);
        };
        let keys = self.page(db, conversation, &active).await?;
        for batch in keys.chunks(BATCH) {
            self.look(shared, &active, db, batch, conversation).await?;
        }
        if self.cursor == START {
            self.databases.pop_front();
        }
        if self.databases.is_empty() {
            self.finish(shared, interval);
        } else {
            self.due = Instant::now() + BREATH;
        }
        Ok(Some(db))
    }

    /// The locks of the next page.
    async fn page(
        &mut self,
        db: u32,
        conversation: &mut Conversation,
        active: &Active,
    ) -> Result<Vec<(NamespaceId, Bytes)>, BackendError> {
        let mut requests = BytesMut::new();
        let number = db.to_string();
        lockwarden_resp::put_request(&mut requests, &[b"SELECT", number.as_bytes()]);
        let scan: [&[u8]; 4] = [b"SCAN", &self.cursor, b"COUNT", PAGE.as_bytes()];
        lockwarden_resp::put_request(&mut requests, &scan);
        conversation.send(&requests).await?;
        conversation.read().await?;
        let reply = conversation.read().await?;
        // Where this user may not scan, a walk ends as if nothing was there.
        let (cursor, keys) = match reply.as_items() {
            Some([cursor, keys]) => (cursor.as_bytes().cloned(), keys.as_items()),
            _ => (None, None),
        };
        self.cursor = cursor.unwrap_or(START);
        Ok(keys
            .unwrap_or_default()
            .iter()
            .filter_map(Value::as_bytes)
            .filter_map(|key| Some((active.namespaces.find(key)?, key.clone())))
            .collect())
    }

    async fn look(
        &mut self,
        shared: &ProxyState,
        active: &Active,
        db: u32,
        locks: &[(NamespaceId, Bytes)],
        conversation: &mut Conversation,
    ) -> Result<(), BackendError> {
        let asked: Vec<(&[u8], u64)> = locks
            .iter()
            .map(|(namespace, key)| {
                let details = active.namespace(*namespace);
                (&key[..], swept_ttl(details.rules, details.ceiling_ms))
            })
            .collect();
        let believed: Vec<Option<Lease>> = locks
            .iter()
            .map(|(_, key)| shared.mirror.lease(&in_database(db, key)))
            .collect();
        let step = sweep(&asked, &active.companion_prefix);
        let answer = conversation.execute(&step).await?;
        let now = Instant::now();
        let swept = swept(&answer).unwrap_or_default();
        for (((namespace, key), believed), swept) in locks.iter().zip(believed).zip(swept) {
            let (Some(swept), Some(found)) = (swept, self.found.get_mut(usize::from(namespace.0)))
            else {
                continue;
            };
            found.add(&swept);
            if let Some(value) = swept.value.clone() {
                saw(&mut self.values, *namespace, value, key);
            }
            let Some(lease) = swept.lease else {
                if swept.ttl.is_none() && !swept.adopted && self.endless.len() < MAX_STRAYS {
                    self.endless.push((*namespace, key.clone()));
                }
                if let Some(believed) = believed {
                    bypassed(shared, active, &in_database(db, key), &believed, now);
                }
                continue;
            };
            let event = LeaseEvent::Found {
                namespace: *namespace,
                grant: lease.grant,
                fence: lease.fence,
                since: now.checked_sub(lease.held).unwrap_or(now),
                ttl: swept.ttl,
            };
            shared.mirror.apply(&in_database(db, key), event, now);
        }
        Ok(())
    }

    fn finish(&mut self, shared: &ProxyState, interval: Duration) {
        self.due = Instant::now() + interval;
        self.walks += 1;
        let equal = std::mem::take(&mut self.values).into_iter();
        let equal = equal.filter(|(_, keys)| keys.count > 1);
        let shared_values = equal.map(|((namespace, _), keys)| (namespace, keys));
        let endless = std::mem::take(&mut self.endless);
        shared.ungoverned.found(endless, shared_values.collect());
        let active = shared.active.load();
        for (found, details) in self.found.iter().zip(&active.details) {
            details.metrics.swept(found);
            let ungoverned = found.ungoverned_finite + found.ungoverned_endless;
            // The first walk tells an operator what is there; later ones tell only of what they have changed.
            if found.adopted > 0 || (self.walks == 1 && ungoverned + found.governed > 0) {
                tracing::info!(
                    namespace = %details.name,
                    governed = found.governed,
                    ungoverned,
                    without_ttl = found.ungoverned_endless,
                    adopted = found.adopted,
                    "locks on the server"
                );
            }
        }
    }
}

/// Locks that are named of those that hold the same value.
const MAX_NAMED: usize = 3;
/// Values that one walk tells apart; further ones are not looked for.
const MAX_SWEPT: usize = 65_536;

/// What a walk has seen of values, by what stands for them.
type Values = HashMap<(NamespaceId, Bytes), Equal>;

fn saw(values: &mut Values, namespace: NamespaceId, value: Bytes, key: &Bytes) {
    let known = values.len();
    let place = values.entry((namespace, value));
    if known >= MAX_SWEPT && matches!(place, Entry::Vacant(_)) {
        return;
    }
    let equal = place.or_default();
    equal.count += 1;
    if equal.keys.len() < MAX_NAMED {
        equal.keys.push(key.clone());
    }
}

/// Strays that are remembered.
const MAX_STRAYS: usize = 1_000;

/// Where a walk begins, and what says that it is at its end.
const START: Bytes = Bytes::from_static(b"0");

fn in_database(db: u32, key: &Bytes) -> DbKey {
    DbKey::new(db, key.clone())
}

/// A lock is there without a record, where there was a lease before the walk looked that still is the
/// last that this proxy knows of: if its time was not over, somebody has changed it around all
/// proxies.
fn bypassed(shared: &ProxyState, active: &Active, key: &DbKey, believed: &Lease, now: Instant) {
    let lives = |lease: &Lease| lease.ends.is_none_or(|ends| ends > now + SURELY_BEFORE_END);
    let same = |lease: &Lease| lease.grant == believed.grant && lives(lease);
    if !shared.mirror.lease(key).is_some_and(|lease| same(&lease)) {
        return;
    }
    shared.mirror.apply(key, LeaseEvent::Released, now);
    let Some(details) = active.details.get(usize::from(believed.namespace.0)) else {
        return;
    };
    details.metrics.bypass.inc();
    let held = now.saturating_duration_since(believed.since).as_millis();
    let mut entry = details.event(EventKind::Ungoverned, key.clone());
    entry.fence = Some(believed.fence.0);
    entry.held_ms = u64::try_from(held).ok();
    shared.events.leave(entry);
}

impl SweepCounts {
    fn add(&mut self, swept: &Swept) {
        self.adopted += u64::from(swept.adopted);
        match (&swept.lease, swept.ttl) {
            (Some(_), _) => self.governed += 1,
            (None, Some(_)) => self.ungoverned_finite += 1,
            (None, None) => self.ungoverned_endless += 1,
        }
    }
}

/// The databases that have keys.
async fn databases(conversation: &mut Conversation) -> Result<VecDeque<u32>, BackendError> {
    let info = conversation.ask(&["INFO", "keyspace"]).await?;
    let text = info.as_bytes().cloned().unwrap_or_default();
    Ok(String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| line.strip_prefix("db")?.split(':').next()?.parse().ok())
        .collect())
}

//! The sweeper: a slow walk over the keys of the server. It finds the locks that no client has shown to this proxy,
//! because they are older than it or went around it. It counts them, shows governed ones in the view, and gives those
//! without a TTL one if their namespace says `adopt = "cap"`. A lease without a TTL that was granted while its
//! namespace was only watched gets one as soon as the namespace is enforced, and is kept alive from then on. The
//! sweeper walks on the connection for chores, a page at a time, so that it delays no other work.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockwarden_control::clock;
use lockwarden_control::ruleset::{Active, NamespaceDetails};
use lockwarden_control::telemetry::events::EventKind;
use lockwarden_control::telemetry::metrics::SweepCounts;
use lockwarden_control::text::durations::duration;
use lockwarden_control::text::escape::spell;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::evidence::SURELY_BEFORE_END;
use lockwarden_lock::lease::{Lease, LeaseEvent};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::plan::{IndexEntry, RecordedLease, SweepTerms, Swept, sweep, swept};
use lockwarden_resp::Value;

use crate::backend::{BackendError, Conversation};
use crate::holders::handover;
use crate::registry::ungoverned::Equal;
use crate::state::{ProxyState, effects};

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
    /// The configuration in force when the walk began.
    active: Option<Arc<Active>>,
    /// The terms that it gives to locks without a TTL, by namespace.
    terms: Vec<SweepTerms>,
    /// Databases that are still to be walked, the current one first.
    databases: VecDeque<u32>,
    cursor: Bytes,
    found: Vec<Found>,
    endless: Vec<Bytes>,
    /// The values of its locks.
    values: Values,
    /// Leases without a TTL that the last walk has logged by name.
    named: HashSet<DbKey>,
    /// The walks that were completed.
    walks: u64,
}

/// What a walk has found of one namespace.
#[derive(Clone, Default)]
struct Found {
    counts: SweepCounts,
    /// Leases that were given a TTL.
    given: Longest,
    /// Leases without a TTL that are older than a lease without a holder would become in enforce mode.
    endless: Longest,
}

/// Leases; those that have been held for longest are named.
#[derive(Clone, Default)]
struct Longest {
    count: u64,
    named: Vec<(Duration, DbKey)>,
}

impl Longest {
    fn add(&mut self, key: DbKey, held: Duration) {
        self.count += 1;
        let place = self.named.partition_point(|(longer, _)| *longer >= held);
        self.named.insert(place, (held, key));
        self.named.truncate(MAX_NAMED);
    }

    fn in_words(&self) -> String {
        let words = self.named.iter().map(|(held, key)| {
            let held = duration(clock::ms(*held));
            let key = spell(key.bytes());
            format!("{key} (held for {held})")
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

impl Sweeper {
    /// Walks at once, and again this long after each walk; `None`: never.
    pub(crate) fn new(interval: Option<Duration>) -> Sweeper {
        Sweeper {
            interval,
            due: Instant::now(),
            active: None,
            terms: Vec::new(),
            databases: VecDeque::new(),
            cursor: START,
            found: Vec::new(),
            endless: Vec::new(),
            values: HashMap::new(),
            named: HashSet::new(),
            walks: 0,
        }
    }

    /// When the next page is due: at once if the configuration has changed since the walk began.
    pub(crate) fn due(&mut self, active: &Arc<Active>) -> Option<Instant> {
        if !self.walks_under(active) {
            self.due = self.due.min(Instant::now());
        }
        self.interval.map(|_| self.due)
    }

    fn walks_under(&self, active: &Arc<Active>) -> bool {
        let same = |walked: &Arc<Active>| Arc::ptr_eq(walked, active);
        self.active.as_ref().is_none_or(same)
    }

    /// Looks at one page. The conversation is left in the database that is returned.
    pub(crate) async fn step(
        &mut self,
        shared: &Arc<ProxyState>,
        conversation: &mut Conversation,
    ) -> Result<Option<u32>, BackendError> {
        let Some(interval) = self.interval else {
            return Ok(None);
        };
        let active = shared.active.load_full();
        // Namespaces are known by their place, which a reload may have changed; and the mode matters.
        if self.databases.is_empty() || !self.walks_under(&active) {
            self.databases = databases(conversation).await?;
            self.cursor = START;
            self.found = vec![Found::default(); active.details.len()];
            let details = active.details.iter();
            self.terms = details.map(|details| SweepTerms::new(details.without_ttl(), &details.rules)).collect();
            (self.endless, self.values) = Default::default();
            self.active = Some(active.clone());
        }
        let Some(&db) = self.databases.front() else {
            self.finish(shared, &active, interval);
            return Ok(None);
        };
        let keys = self.page(db, conversation, &active).await?;
        for batch in keys.chunks(shared.backend.server.locks_a_call(BATCH)) {
            if self.look(shared, &active, db, batch, conversation).await? {
                continue;
            }
            // One lock that this user may not touch must not affect the others.
            for one in batch.chunks(1).filter(|_| batch.len() > 1) {
                self.look(shared, &active, db, one, conversation).await?;
            }
        }
        if self.cursor == START {
            self.databases.pop_front();
        }
        if self.databases.is_empty() {
            self.finish(shared, &active, interval);
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
        // If this user may not scan, a walk ends as if there were no keys.
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

    /// Looks at some locks in one step. Returns whether that was answered: if not, nothing was done.
    async fn look(
        &mut self,
        shared: &Arc<ProxyState>,
        active: &Active,
        db: u32,
        locks: &[(NamespaceId, Bytes)],
        conversation: &mut Conversation,
    ) -> Result<bool, BackendError> {
        let asked = locks.iter().filter_map(|(namespace, key)| {
            let terms = self.terms.get(usize::from(namespace.0))?;
            Some((&key[..], terms))
        });
        let asked: Vec<(&[u8], &SweepTerms)> = asked.collect();
        let believed: Vec<Option<Lease>> =
            locks.iter().map(|(_, key)| shared.mirror.lease(&in_database(db, key))).collect();
        let step = sweep(&asked, &active.companion_prefix);
        let sent = Instant::now();
        let answer = conversation.execute(&step).await?;
        let now = Instant::now();
        let Some(swept) = swept(&answer) else {
            return Ok(false);
        };
        let mut kept = Vec::new();
        for (((namespace, key), believed), swept) in locks.iter().zip(believed).zip(swept) {
            let (Some(swept), Some(found)) = (swept, self.found.get_mut(usize::from(namespace.0))) else {
                continue;
            };
            count(&mut found.counts, &swept);
            if let Some(value) = swept.value.clone() {
                saw(&mut self.values, *namespace, value, key);
            }
            let Some(lease) = swept.lease else {
                if swept.ttl.is_none() && !swept.given && self.endless.len() < MAX_STRAYS {
                    self.endless.push(key.clone());
                }
                if let Some(believed) = believed {
                    bypassed(shared, active, &in_database(db, key), &believed, now);
                }
                continue;
            };
            let (key, details) = (in_database(db, key), active.namespace(*namespace));
            let event = LeaseEvent::Found {
                grant: lease.grant,
                fence: lease.fence,
                since: now.checked_sub(lease.held).unwrap_or(now),
                ttl: swept.ttl,
            };
            shared.mirror.apply(&key, event, now);
            match swept.ttl {
                Some(ttl) if swept.given => {
                    found.given.add(key.clone(), lease.held);
                    let terms = self.terms.get(usize::from(namespace.0));
                    let entry = terms.and_then(|terms| terms.kept(key.clone(), &lease));
                    got_ttl(shared, details, key, &lease, ttl, entry.is_some());
                    kept.extend(entry.map(|entry| (entry, lease, ttl)));
                }
                Some(_) => {}
                None => {
                    let default_ms = details.without_ttl().ttl_default_ms.unwrap_or(0);
                    if lease.held >= Duration::from_millis(default_ms) {
                        found.endless.add(key, lease.held);
                    }
                }
            }
        }
        keep_alive(shared, kept, sent);
        Ok(true)
    }

    fn finish(&mut self, shared: &ProxyState, active: &Active, interval: Duration) {
        self.due = Instant::now() + interval;
        self.walks += 1;
        let equal = std::mem::take(&mut self.values).into_iter();
        let equal = equal.filter(|(_, keys)| keys.count > 1);
        let name = |namespace| active.namespace(namespace).name.clone();
        let shared_values = equal.map(|((namespace, _), keys)| (name(namespace), keys));
        let endless = std::mem::take(&mut self.endless);
        shared.ungoverned.found(endless, shared_values.collect());
        let told = std::mem::take(&mut self.named);
        for (found, details) in self.found.iter().zip(&active.details) {
            let Found { counts: found, given, endless } = found;
            details.metrics.swept(found);
            if given.count > 0 {
                tracing::info!(
                    namespace = %details.name,
                    count = given.count,
                    oldest = given.in_words(),
                    "locks that were taken without a TTL have the default TTL from now on"
                );
            }
            let mut named = endless.named.iter().map(|(_, key)| key);
            if named.any(|key| !told.contains(key)) {
                tracing::info!(
                    namespace = %details.name,
                    count = endless.count,
                    oldest = endless.in_words(),
                    "locks are held without a TTL: should their holders be gone, nothing frees them"
                );
            }
            let named = endless.named.iter().map(|(_, key)| key.clone());
            self.named.extend(named);
            let ungoverned = found.ungoverned_finite + found.ungoverned_endless;
            // The first walk tells an operator what is there; later ones only report what they have changed.
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

/// A lease without a TTL has got one.
fn got_ttl(
    shared: &ProxyState,
    details: &NamespaceDetails,
    key: DbKey,
    lease: &RecordedLease,
    ttl: Duration,
    kept: bool,
) {
    details.metrics.late_ttls.inc();
    let mut entry = details.event(EventKind::Extended { kept }, key);
    let ms = |time: Duration| u64::try_from(time.as_millis()).ok();
    entry.fence = Some(lease.fence.0);
    (entry.ttl_ms, entry.held_ms) = (ms(ttl), ms(lease.held));
    shared.events.leave(entry);
}

/// Keeps these leases alive where their clients have a connection to this proxy, and lets others know of the rest.
fn keep_alive(shared: &Arc<ProxyState>, kept: Vec<(IndexEntry, RecordedLease, Duration)>, asked: Instant) {
    if kept.is_empty() {
        return;
    }
    let shared = shared.clone();
    // Looking for clients takes time, for which nothing else should wait.
    tokio::spawn(async move {
        for (entry, lease, ttl) in kept {
            // The lease is not given to a connection that was opened after its holder left.
            let left = shared.clients.left(lease.session);
            let entry = if left.is_some() { entry.offer() } else { entry };
            let found = handover::Found { entry, asked, overdue: left.unwrap_or(asked), lease, ttl };
            if !handover::take_over(&shared, &found).await {
                let entry = found.entry.encoded();
                shared.renewals.announce(entry, found.overdue);
            }
        }
    });
}

/// Locks that are named in the log: of those that hold the same value, and of those without a TTL.
const MAX_NAMED: usize = 3;
/// Values that one walk tells apart; further ones are not looked for.
const MAX_SWEPT: usize = 65_536;

/// How often a walk has seen each value, by a name that stands for the value.
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

/// The cursor with which a walk begins, and which marks its end.
const START: Bytes = Bytes::from_static(b"0");

fn in_database(db: u32, key: &Bytes) -> DbKey {
    DbKey::new(db, key)
}

/// A lock is there without a record, although before the walk looked there was a lease that still is the last that
/// this proxy knows of. If the time of that lease was not over, the lock was changed on the server, around all
/// proxies.
fn bypassed(shared: &ProxyState, active: &Active, key: &DbKey, believed: &Lease, now: Instant) {
    let lives = |lease: &Lease| lease.ends.is_none_or(|ends| ends > now + SURELY_BEFORE_END);
    let same = |lease: &Lease| lease.grant == believed.grant && lives(lease);
    if !shared.mirror.lease(key).is_some_and(|lease| same(&lease)) {
        return;
    }
    shared.mirror.apply(key, LeaseEvent::Released, now);
    effects::bypassed(shared, active, key, believed, now);
}

/// Counts a lock by what the sweep found at it.
fn count(counts: &mut SweepCounts, swept: &Swept) {
    counts.adopted += u64::from(swept.given && swept.lease.is_none());
    match (&swept.lease, swept.ttl) {
        (Some(_), _) => counts.governed += 1,
        (None, Some(_)) => counts.ungoverned_finite += 1,
        (None, None) => counts.ungoverned_endless += 1,
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

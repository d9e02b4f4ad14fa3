//! What was seen, how it is filled, and what may be asked of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lockwarden_control::clock::Moment;
use lockwarden_control::clock::ms;
use lockwarden_control::telemetry::events::LockEvent;
use lockwarden_dataplane::state::ProxyState;
use lockwarden_lock::rules::Mode;

use super::aftermath::{Extent, Harmed};
use super::api;
use super::api::{ConnectionsQuery, DecisionsQuery, LocksQuery, PatternsQuery, ReportQuery};
use super::store::{Mark, Measure, Seen};

/// Entries are folded so many at a time, so that whoever asks does not wait for all of them.
const FOLDED_AT_ONCE: usize = 1_024;

/// What was seen. The event log's thread writes it, those of the admin address read it.
#[derive(Default)]
pub struct View {
    seen: Mutex<Seen>,
}

/// What can be asked about locks; each answer is what `GET /api/v1/*` says. None of it changes
/// anything.
pub trait Views: Send + Sync {
    /// The head of the board.
    fn overview(&self) -> api::Overview;

    /// The locks that are held.
    fn locks(&self, query: &LocksQuery) -> api::Locks;

    /// One lock, by its bytes; `None` where nothing is known of it.
    fn lock(&self, key: &[u8], db: u32) -> Option<api::LockDetail>;

    /// Who is connected.
    fn connections(&self, query: &ConnectionsQuery) -> api::Connections;

    /// What was refused, or would have been, the newest first.
    fn decisions(&self, query: &DecisionsQuery) -> Vec<api::Moment>;

    /// Leases that failovers have lost, the newest first.
    fn lost(&self, query: &DecisionsQuery) -> Vec<api::Moment>;

    /// Both, put together by who lost locks and who did what to whom.
    fn incidents(&self, query: &DecisionsQuery) -> Vec<api::Incident>;

    /// The refusals with this id, in words.
    fn why(&self, id: &str) -> Vec<api::Why>;

    /// What each application did.
    fn applications(&self) -> Vec<api::Application>;

    /// The guards over data.
    fn guards(&self) -> Vec<api::Guard>;

    /// The loaded policies.
    fn policies(&self) -> Vec<api::Policy>;

    /// What was built, and which policies are in force.
    fn version(&self) -> api::Version;

    /// What the configuration in force means for locks.
    fn meaning(&self) -> api::ConfigMeaning;

    /// The locks that are asked for most, and circles of waiters.
    fn hot(&self) -> api::Hot;

    /// A verdict per namespace and application.
    fn report(&self, query: &ReportQuery) -> api::Report;

    /// How long locks are held, by what their keys have in common.
    fn patterns(&self, query: &PatternsQuery) -> api::LockPatterns;

    /// The namespaces in force.
    fn namespaces(&self) -> Vec<api::Namespace>;

    /// What was seen of keys that no namespace has.
    fn discovery(&self) -> api::Discovery;
}

impl View {
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The view beside what else is asked for: leases, clients and the configuration in force.
#[derive(Clone)]
pub struct ViewService {
    pub(super) shared: Arc<ProxyState>,
    pub(super) view: Arc<View>,
}

impl ViewService {
    /// A view of which nothing is seen yet; [`ViewService::fold`] fills it.
    pub fn new(shared: Arc<ProxyState>) -> ViewService {
        let service = ViewService { shared, view: Arc::default() };
        service.view.seen().follow(&service.in_force(), None);
        service
    }

    /// Takes in what happened. What follows from it for metrics and leases goes to `measured`, with its namespace.
    pub fn fold(&self, entries: &[LockEvent], now: Instant, mut measured: impl FnMut(&str, Measure)) {
        let mut measures = Vec::new();
        for some in entries.chunks(FOLDED_AT_ONCE) {
            let mut seen = self.view.seen();
            for entry in some {
                seen.fold(entry, &mut measures);
            }
            drop(seen);
            for (namespace, measure) in measures.drain(..) {
                measured(&namespace, measure);
            }
        }
        self.view.seen().tick(now);
    }

    /// When the process started.
    pub(super) fn started(&self, now: Moment) -> Moment {
        let at = self.shared.started;
        let passed = now.at.saturating_duration_since(at);
        Moment { at, unix_ms: now.unix_ms.saturating_sub(ms(passed)) }
    }

    /// From now on a report may count. Returns the moment, Unix ms.
    pub fn mark(&self, mark: Mark) -> u64 {
        let (now, in_force) = (Moment::now(), self.in_force());
        let mut seen = self.view.seen();
        seen.follow(&in_force, Some(now));
        seen.mark(mark, now);
        now.unix_ms
    }

    /// Looks where enforcing harms since a namespace was switched, and returns what is new of it.
    pub fn look_for_harm(&self) -> Vec<Harmed> {
        self.view.seen().look_for_harm(Moment::now())
    }

    /// The proxy has set a namespace back to monitor mode because of this.
    pub fn was_taken_back(&self, harmed: Harmed) {
        let aftermath = &mut self.view.seen().aftermath;
        aftermath.was_taken_back(harmed, Instant::now());
    }

    /// The namespaces in force, and for how many clients each is enforced.
    fn in_force(&self) -> Vec<(Arc<str>, Extent)> {
        let active = self.shared.active.load();
        let extents = active.details.iter().map(|details| {
            let extent = match (details.rules.mode, &details.rollout) {
                (Mode::Enforce, _) => Extent::All,
                (Mode::Monitor, Some(_)) => Extent::Some,
                (Mode::Monitor, None) => Extent::Nobody,
            };
            (details.name.clone(), extent)
        });
        extents.collect()
    }

    /// What was seen.
    pub fn view(&self) -> Arc<View> {
        self.view.clone()
    }
}

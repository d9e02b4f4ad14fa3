//! The view, how it is filled, and the queries on it.

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

/// Entries folded at a time, so that a query does not wait for all of them.
const FOLDED_AT_ONCE: usize = 1_024;

/// The folded events. The event log's thread writes them, the threads of the admin address read them.
#[derive(Default)]
pub struct View {
    seen: Mutex<Seen>,
}

/// The queries about locks; each returns the body of one `GET /api/v1/*`. None of them changes anything.
pub trait Views: Send + Sync {
    /// The figures at the head of the board.
    fn overview(&self) -> api::Overview;

    /// The locks that are held.
    fn locks(&self, query: &LocksQuery) -> api::Locks;

    /// One lock, by its bytes; `None` if it is unknown.
    fn lock(&self, key: &[u8], db: u32) -> Option<api::LockDetail>;

    /// The connected clients.
    fn connections(&self, query: &ConnectionsQuery) -> api::Connections;

    /// Refusals, also those that enforce mode would have made, the newest first.
    fn decisions(&self, query: &DecisionsQuery) -> Vec<api::Moment>;

    /// Leases that failovers have lost, the newest first.
    fn lost(&self, query: &DecisionsQuery) -> Vec<api::Moment>;

    /// Both, grouped by who lost locks and by who did what to whom.
    fn incidents(&self, query: &DecisionsQuery) -> Vec<api::Incident>;

    /// The refusals with this id, in words.
    fn why(&self, id: &str) -> Vec<api::Why>;

    /// What each application did.
    fn applications(&self) -> Vec<api::Application>;

    /// The guards over data.
    fn guards(&self) -> Vec<api::Guard>;

    /// The loaded policies.
    fn policies(&self) -> Vec<api::Policy>;

    /// The build, and the policies in force.
    fn version(&self) -> api::Version;

    /// The meaning of the configuration in force for locks.
    fn meaning(&self) -> api::ConfigMeaning;

    /// The most requested locks, and circles of waiters.
    fn hot(&self) -> api::Hot;

    /// A verdict per namespace and application.
    fn report(&self, query: &ReportQuery) -> api::Report;

    /// How long locks are held, by key pattern.
    fn patterns(&self, query: &PatternsQuery) -> api::LockPatterns;

    /// The namespaces in force.
    fn namespaces(&self) -> Vec<api::Namespace>;

    /// Keys that belong to no namespace.
    fn discovery(&self) -> api::Discovery;
}

impl View {
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The view with the other data that queries need: leases, clients and the configuration in force.
#[derive(Clone)]
pub struct ViewService {
    pub(super) shared: Arc<ProxyState>,
    pub(super) view: Arc<View>,
}

impl ViewService {
    /// An empty view; [`ViewService::fold`] fills it.
    pub fn new(shared: Arc<ProxyState>) -> ViewService {
        let service = ViewService { shared, view: Arc::default() };
        service.view.seen().follow(&service.in_force(), None);
        service
    }

    /// Folds in entries. Passes each measure for metrics and leases to `measured`, with its namespace.
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

    /// A report may count from now on. Returns the moment, Unix ms.
    pub fn mark(&self, mark: Mark) -> u64 {
        let (now, in_force) = (Moment::now(), self.in_force());
        let mut seen = self.view.seen();
        seen.follow(&in_force, Some(now));
        seen.mark(mark, now);
        now.unix_ms
    }

    /// Looks for harm by enforcing since a namespace was switched, and returns what is new.
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

    /// The view.
    pub fn view(&self) -> Arc<View> {
        self.view.clone()
    }
}

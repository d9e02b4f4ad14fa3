//! Everything that is counted, and the page `GET /metrics` answers. It is told what happened and is
//! never asked by the data path: counting is an addition to a handle that was found beforehand.
//! Each is declared once, with its name and help, in the file of what it is about; label values are in `vocabulary.rs`.

mod applications;
mod decisions;
mod declaration;
mod guards;
mod namespaces;
mod policies;
mod runtime;
mod tally;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use lockwarden_resp::Redirects;
use prometheus::proto::MetricFamily;
use prometheus::{
    Encoder as _, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, Result, TextEncoder,
};

use crate::telemetry::vocabulary::{
    AuditSink, ClusterRedirect, CommandClass, CommandResult, ConnectionState, DecisionKind, Direction, LatencyPath,
    LoginRefresh, ModeLabel, OverflowLabel, ProtocolErrorKind, ReconnectReason, RedirectKind, SentAfter, Side,
    TwinLogin,
};
pub use guards::GuardMetrics;
pub use namespaces::{NamespaceMetrics, NamespaceMirror, SweepCounts};
pub use policies::{PolicyInfo, PolicyMetrics, PolicyUse};
pub use tally::Tally;

use applications::{ApplicationCounts, CountsApplications};
use declaration::{ByLabel, Registrar, metrics};
use guards::Guards;
use namespaces::Namespaces;
use policies::Policies;
use runtime::RuntimeMetrics;
use tls::TlsMetrics;

/// A passed-through command costs less than the first; a proxy that needs the last is broken.
const ADDED_SECONDS: [f64; 15] =
    [10e-6, 25e-6, 50e-6, 75e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 0.1, 0.5, 1.0];

/// A round trip over loopback is near the first; after the last, clients have given up.
const BACKEND_SECONDS: [f64; 14] =
    [50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.5, 1.0, 5.0];

/// Within the first a renewal is on time; after the last, few leases are left.
const LATENESS_SECONDS: [f64; 8] = [5e-3, 20e-3, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0];

/// A replica on the same machine is near the first; the last is as long as a namespace may wait.
const WAIT_SECONDS: [f64; 10] = [100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 20e-3, 50e-3, 0.2, 1.0];

/// What is running, for `lockwarden_build_info`.
#[derive(Clone, Copy, Debug)]
pub struct BuildInfo<'a> {
    /// Of the proxy.
    pub version: &'a str,
    /// Of the source, `unknown` outside a checkout.
    pub revision: &'a str,
    /// Version of wasmtime.
    pub wasmtime: &'a str,
    /// The newest WIT version that policies may use.
    pub policy_abi: &'a str,
}

/// What this binary was built of.
pub const BUILD: BuildInfo<'static> = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    // build.rs finds it out.
    revision: env!("LOCKWARDEN_REVISION"),
    wasmtime: "48",
    policy_abi: lockwarden_policy::ABI,
};

type Mirror = Box<dyn Fn() -> Vec<NamespaceMirror> + Send + Sync>;

metrics! {
    /// What is counted for the whole process.
    pub struct ProcessMetrics {
        /// Always 1; the labels say what is running.
        build_info: IntGaugeVec = "lockwarden_build_info" {
            "version": "of the proxy",
            "revision": "of the source",
            "wasmtime": "version",
            "policy_abi": "the newest WIT version that policies may use"
        };
        /// Commands of clients, by the way they went and how they ended.
        pub(crate) commands: ByLabel<CommandClass, ByLabel<CommandResult, IntCounter>> = "lockwarden_commands_total" {
            "class",
            "result"
        };
        /// Operations on locks, by application and what was decided about them.
        application_decisions: IntCounterVec = "lockwarden_application_decisions_total" {
            "application": "a `name` of an `[[application]]`, or `__other__`",
            "decision" of DecisionKind
        };
        /// From when a renewal was due, a third of its TTL after the one before, until Redis had confirmed it.
        pub renewal_lateness: Histogram = "lockwarden_keep_alive_lateness_seconds" in LATENESS_SECONDS {};
        /// Leases that ran out before they could be renewed, although their holder lived, or whose record was evicted
        /// or deleted.
        pub lapsed: IntCounter = "lockwarden_keep_alive_lapsed_total" {};
        /// How long clients waited for replicas (`durability`) once Redis had answered their lock command.
        pub wait_seconds: Histogram = "lockwarden_wait_seconds" in WAIT_SECONDS {};
        /// The proxy's own time for a command, without waiting for the backend.
        pub added_latency: ByLabel<LatencyPath, Histogram> = "lockwarden_added_latency_seconds" in ADDED_SECONDS {
            "path"
        };
        /// From sending a command to the backend until its answer began.
        pub backend_latency: Histogram = "lockwarden_backend_latency_seconds" in BACKEND_SECONDS {
            "backend" = "default"
        };
        /// Open connections of clients.
        pub client_connections: IntGauge = "lockwarden_client_connections" { "listener" = "default" };
        /// How many connections of clients there may be: `max_clients`, or what the limit of open files leaves room
        /// for.
        pub client_connections_max: IntGauge = "lockwarden_client_connections_max" { "listener" = "default" };
        /// New clients that were told `max number of clients reached`.
        pub clients_refused: IntCounter = "lockwarden_client_connections_refused_total" {};
        /// Unread replies and unfinished requests of all clients that hold 16 KiB or more of them.
        pub client_buffers: IntGauge = "lockwarden_client_buffers_bytes" { "listener" = "default" };
        /// What they may take together: `max_memory`.
        pub client_buffers_max: IntGauge = "lockwarden_client_buffers_max_bytes" { "listener" = "default" };
        /// Clients that were closed because they held most when `max_memory` was reached.
        pub clients_evicted: IntCounter = "lockwarden_clients_evicted_total" {};
        /// Clients that were closed because their connections were as old as `max_connection_age` says.
        pub clients_aged: IntCounter = "lockwarden_clients_aged_total" {};
        /// Bytes from clients and to them.
        pub(crate) client_bytes: ByLabel<Direction, IntCounter> = "lockwarden_client_bytes_total" { "direction" };
        /// Patterns of keys that are used as locks and that no namespace has. `lockwarden discover` names them.
        pub unclaimed_lock_patterns: IntGauge = "lockwarden_unclaimed_lock_patterns" {};
        /// Connections to the backend.
        pub backend_connections: ByLabel<ConnectionState, IntGauge> = "lockwarden_backend_connections" {
            "backend" = "default",
            "state"
        };
        /// 1 while the backend, or any shard of a cluster, answers the proxy, else 0.
        pub backend_up: IntGauge = "lockwarden_backend_up" { "backend" = "default" };
        /// Sentinels that answered within the last 5 s; 0 where the backend's URL names none.
        pub sentinels_heard: IntGauge = "lockwarden_sentinels_heard" {};
        /// Sentinels that are asked: those of the backend's URL and those that they name; 0 where the URL names none. A name
        /// and its address count once.
        pub sentinels_known: IntGauge = "lockwarden_sentinels_known" {};
        /// Sentinels that name another server as the primary than the one that is followed; 0 until they have done so for 5 s,
        /// which no failover takes.
        pub sentinels_dissenting: IntGauge = "lockwarden_sentinels_dissenting" {};
        /// Times another server became the primary, or the same one was started again; the first one that is found is
        /// not counted.
        pub backend_eras: IntCounter = "lockwarden_backend_era_changes_total" { "backend" = "default" };
        /// 1 where the backend's `maxmemory-policy` (`allkeys-*`, `volatile-*`) drops locks that are held when its
        /// memory is full, else 0; asked once a minute.
        pub backend_evicts_locks: IntGauge = "lockwarden_backend_evicts_locks" { "backend" = "default" };
        /// Proxies that serve the same Redis with another version of lockwarden or other rules about locks; asked every ten
        /// seconds.
        pub proxies_unlike: IntGauge = "lockwarden_proxies_unlike" {};
        /// Times the proxy's own connection to the backend had to be made again.
        pub backend_reconnects: ByLabel<ReconnectReason, IntCounter> = "lockwarden_backend_reconnects_total" {
            "backend" = "default",
            "reason"
        };
        /// Times the password of `[backend_login]` was read again for open connections.
        pub login_refreshes: ByLabel<LoginRefresh, IntCounter> = "lockwarden_login_refreshes_total" { "result" };
        /// Logins as the twin of a client's user (`[[user_map]]`), each before something that touches a lock.
        pub twin_logins: ByLabel<TwinLogin, IntCounter> = "lockwarden_twin_logins_total" { "result" };
        /// Replies by which a node of a cluster sends a client to another one. One lockwarden before the whole cluster follows them, one
        /// before each node hands them on.
        cluster_redirects: ByLabel<ClusterRedirect, IntCounter> = "lockwarden_cluster_redirects_total" { "kind" };
        /// Slots of the cluster that no primary has which clients are served by; 0 where the backend's URL names no cluster.
        pub cluster_slots_unserved: IntGauge = "lockwarden_cluster_slots_unserved" {};
        /// Leases that are kept alive and whose slot has moved: they are renewed where it is now.
        pub cluster_leases_rehomed: IntCounter = "lockwarden_cluster_leases_rehomed_total" {};
        /// Requests of clients before a cluster whose keys are in several slots, which no server carries out.
        pub cluster_cross_slot: IntCounter = "lockwarden_cluster_cross_slot_total" {};
        /// Locks that a node had in part when their slot moved, and that lockwarden had it send after the rest.
        pub cluster_locks_sent_after: ByLabel<SentAfter, IntCounter> = "lockwarden_cluster_locks_sent_after_total" { "result" };
        /// Replies that lead a client to another server, and so past the proxy.
        backend_redirects: ByLabel<RedirectKind, IntCounter> = "lockwarden_backend_redirects_total" { "kind" };
        /// Connections closed because of bytes that are not the protocol.
        pub protocol_errors: ByLabel<Side, ByLabel<ProtocolErrorKind, IntCounter>> = "lockwarden_protocol_errors_total" {
            "side",
            "kind"
        };
        /// Lines of the audit trail that were written.
        pub(crate) audit_records: ByLabel<AuditSink, IntCounter> = "lockwarden_audit_records_total" { "sink" };
        /// Lines of the audit trail that were lost, because writing failed or fell behind.
        pub(crate) audit_dropped: ByLabel<AuditSink, IntCounter> = "lockwarden_audit_records_dropped_total" { "sink" };
        /// Times something was counted under __other__ because a label had no room left.
        label_overflow: ByLabel<OverflowLabel, IntCounter> = "lockwarden_label_overflow_total" { "label" };
        /// Always 1; proxies with the same hash judge every command alike.
        config_info: IntGaugeVec = "lockwarden_config_info" {
            "hash": "the first 12 hex digits of a SHA-256 over what the configuration means for locks (docs/operations.md)"
        };
        /// 1 if the last attempt to load the configuration succeeded, else 0.
        reload_successful: IntGauge = "lockwarden_config_last_reload_successful" {};
        /// When the configuration was last loaded with success, Unix time.
        reload_timestamp: Gauge = "lockwarden_config_last_reload_success_timestamp_seconds" {};
    } with {}
}

/// All metrics of the process; those of the process as a whole are read as if they stood here.
pub struct Metrics {
    registry: Registry,
    process: ProcessMetrics,
    /// Handshakes and certificates.
    pub tls: TlsMetrics,
    /// Those of each thread.
    tallies: Mutex<Vec<Arc<Tally>>>,
    runtime: RuntimeMetrics,
    applications: Arc<ApplicationCounts>,
    namespaces: ArcSwap<Namespaces>,
    max_namespaces: usize,
    policies: ArcSwap<Policies>,
    guards: ArcSwap<Guards>,
    /// Also makes sure that two pages are not put together at the same time.
    mirror: Mutex<Option<Mirror>>,
}

impl Deref for Metrics {
    type Target = ProcessMetrics;

    fn deref(&self) -> &ProcessMetrics {
        &self.process
    }
}

impl Metrics {
    /// All metrics, at 0, for these namespaces in the order of their `NamespaceId`. It fails only
    /// if the catalogue contradicts itself.
    pub fn new(build: BuildInfo<'_>, namespaces: &[(&str, ModeLabel)], max_namespaces: usize) -> Result<Arc<Metrics>> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let make = Registrar::new(&registry);
        let process = ProcessMetrics::declare(&make)?;
        let labels = [build.version, build.revision, build.wasmtime, build.policy_abi];
        process.build_info.with_label_values(&labels).set(1);
        let decisions_full = process.label_overflow.at(OverflowLabel::Decision);
        let namespaces_full = process.label_overflow.at(OverflowLabel::Namespace);
        let metrics = Metrics {
            tls: TlsMetrics::new(&make)?,
            tallies: Mutex::default(),
            runtime: RuntimeMetrics::new(&make)?,
            applications: Arc::new(ApplicationCounts::new(process.application_decisions.clone())),
            namespaces: ArcSwap::from_pointee(Namespaces::none(decisions_full, namespaces_full)?),
            max_namespaces,
            policies: ArcSwap::from_pointee(Policies::none()?),
            guards: ArcSwap::default(),
            mirror: Mutex::new(None),
            process,
            registry,
        };
        metrics.set_namespaces(namespaces)?;
        Ok(Arc::new(metrics))
    }

    /// Follows a reload. Names that stay keep their numbers, names that went
    /// leave the page.
    pub(crate) fn set_namespaces(&self, namespaces: &[(&str, ModeLabel)]) -> Result<()> {
        let decisions_full = self.label_overflow.at(OverflowLabel::Decision);
        let now = self.namespaces.load();
        let next = now.with(namespaces, self.max_namespaces, decisions_full)?;
        self.namespaces.store(Arc::new(next));
        Ok(())
    }

    /// Follows a reload of what applications are called.
    pub(crate) fn set_applications<'a>(&self, names: impl Iterator<Item = &'a Arc<str>>) {
        self.applications.set(names);
    }

    /// Counts what is decided about applications, from the event log.
    pub fn counts_applications(&self) -> CountsApplications {
        CountsApplications::new(self.applications.clone())
    }

    /// Follows a change of modes; namespaces and policies are those that were set.
    pub fn show_modes(&self, namespaces: &[(&str, ModeLabel)], policies: &[PolicyInfo<'_>]) {
        for (index, (_, mode)) in namespaces.iter().enumerate() {
            self.namespace(index).expect_mode(*mode);
        }
        self.policies.load().describe(policies);
    }

    /// Follows a (re)load of policies.
    pub(crate) fn set_policies(&self, policies: &[PolicyInfo<'_>]) -> Result<()> {
        let (next, without_room) = self.policies.load().with(policies)?;
        self.label_overflow.at(OverflowLabel::Policy).inc_by(without_room as u64);
        self.policies.store(Arc::new(next));
        Ok(())
    }

    /// Follows a (re)load of guards.
    pub(crate) fn set_guards<'a>(&self, guards: impl Iterator<Item = &'a str>) -> Result<()> {
        let next = self.guards.load().with(guards)?;
        self.guards.store(Arc::new(next));
        Ok(())
    }

    /// The metrics of a guard.
    pub fn guard(&self, name: &str) -> Option<Arc<GuardMetrics>> {
        self.guards.load().get(name)
    }

    /// The metrics of the namespace at this place of the configuration.
    pub fn namespace(&self, index: usize) -> Arc<NamespaceMetrics> {
        self.namespaces.load().get(index).clone()
    }

    /// The metrics of a policy, to be kept by whoever calls it.
    pub fn policy(&self, name: &str) -> Arc<PolicyMetrics> {
        self.policies.load().get(name).clone()
    }

    /// Notes a configuration that was loaded, at this Unix time.
    pub fn config_loaded(&self, unix_seconds: f64) {
        self.reload_successful.set(1);
        self.reload_timestamp.set(unix_seconds);
    }

    /// What the configuration in force means for locks, as its hash.
    pub fn set_config_hash(&self, hash: &str) {
        // No page is put together between the two steps.
        let _no_page = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
        self.config_info.reset();
        self.config_info.with_label_values(&[hash]).set(1);
    }

    /// Notes a configuration that could not be loaded.
    pub fn config_rejected(&self) {
        self.reload_successful.set(0);
    }

    /// Notes replies that sent clients to other nodes.
    pub fn redirected(&self, redirects: Redirects) {
        let kinds = &self.backend_redirects;
        kinds.at(RedirectKind::Moved).inc_by(redirects.moved);
        kinds.at(RedirectKind::Ask).inc_by(redirects.ask);
    }

    /// Notes the same of a node of a cluster.
    pub fn sent_on(&self, redirects: Redirects) {
        let kinds = &self.cluster_redirects;
        kinds.at(ClusterRedirect::Moved).inc_by(redirects.moved);
        kinds.at(ClusterRedirect::Ask).inc_by(redirects.ask);
    }

    /// Notes an answer that names replicas.
    pub fn replicas_told(&self) {
        self.backend_redirects.at(RedirectKind::Replicas).inc();
    }

    /// Notes what the policies have used so far.
    pub fn policies_used(&self, uses: &[(Arc<str>, PolicyUse)]) {
        self.policies.load().show(uses);
    }

    /// Counters for one more thread.
    pub fn tally(&self) -> Arc<Tally> {
        let tally = Arc::new(Tally::default());
        self.tallies().push(tally.clone());
        tally
    }

    fn tallies(&self) -> MutexGuard<'_, Vec<Arc<Tally>>> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which runtimes serve the clients.
    pub fn set_runtimes(&self, handles: Vec<tokio::runtime::Handle>) {
        self.runtime.follow(handles);
    }

    /// Where the gauges of held locks come from, asked each time the page is made.
    pub fn set_mirror(&self, mirror: Mirror) {
        *self.mirror.lock().unwrap_or_else(PoisonError::into_inner) = Some(mirror);
    }

    /// The page, in the Prometheus text format 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        let mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mirror) = mirror.as_ref() {
            self.namespaces.load().show(&mirror());
        }
        self.runtime.show();
        let notices_kept = self.backend_redirects.at(RedirectKind::Moving);
        tally::show(&self.tallies(), &self.commands, notices_kept, &self.client_bytes);
        let mut page = Vec::with_capacity(64 * 1024);
        if let Err(error) = TextEncoder::new().encode(&self.gather(), &mut page) {
            tracing::error!(%error, "the metrics page is incomplete");
        }
        page
    }

    /// One family per name: those of the namespaces and policies come from registries of their own.
    fn gather(&self) -> Vec<MetricFamily> {
        let namespaces = self.namespaces.load();
        let policies = self.policies.load();
        let guards = self.guards.load();
        let registries = std::iter::once(&self.registry)
            .chain(namespaces.registries())
            .chain(policies.registries())
            .chain(guards.registries());
        let mut families: BTreeMap<String, MetricFamily> = BTreeMap::new();
        for mut family in registries.flat_map(Registry::gather) {
            match families.get_mut(family.name()) {
                Some(same) => same.mut_metric().append(&mut family.take_metric()),
                None => {
                    families.insert(family.name().to_owned(), family);
                }
            }
        }
        families.into_values().collect()
    }
}

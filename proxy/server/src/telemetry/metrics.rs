//! Everything that is counted, and the page `GET /metrics` answers. It is told what happened and is
//! never asked by the data path: counting is an addition to a handle that was found beforehand.
//! Names and help stand in `metrics/catalogue.rs`, label values in `vocabulary.rs`.

mod applications;
mod catalogue;
mod decisions;
mod guards;
mod namespaces;
mod policies;
mod register;
mod runtime;
mod tally;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use lockwarden_resp::Redirects;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder as _, Gauge, Histogram, IntCounter, IntGauge, IntGaugeVec, Registry, Result, TextEncoder};

use crate::telemetry::vocabulary::{
    AuditSink, CommandClass, CommandResult, ConnectionState, Direction, LatencyPath, LoginRefresh, ModeLabel,
    ProtocolErrorKind, ReconnectReason, RedirectKind, Side, TwinLogin,
};
pub(crate) use guards::GuardMetrics;
pub(crate) use namespaces::{NamespaceMetrics, NamespaceMirror, SweepCounts};
pub(crate) use policies::{PolicyInfo, PolicyMetrics, PolicyUse};
pub(crate) use tally::Tally;

use crate::telemetry::vocabulary::{Only, OverflowLabel};
use applications::{ApplicationCounts, CountsApplications};
use catalogue as names;
use guards::Guards;
use namespaces::Namespaces;
use policies::Policies;
use register::{ByLabel, Registrar};
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
pub(crate) struct BuildInfo<'a> {
    /// Of the proxy.
    pub(crate) version: &'a str,
    /// Of the source, `unknown` outside a checkout.
    pub(crate) revision: &'a str,
    /// Version of wasmtime.
    pub(crate) wasmtime: &'a str,
    /// The newest WIT version that policies may use.
    pub(crate) policy_abi: &'a str,
}

/// What this binary was built of.
pub(crate) const BUILD: BuildInfo<'static> = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    // build.rs finds it out.
    revision: env!("LOCKWARDEN_REVISION"),
    wasmtime: "48",
    policy_abi: "1.1",
};

type Mirror = Box<dyn Fn() -> Vec<NamespaceMirror> + Send + Sync>;

/// All metrics of the process.
pub(crate) struct Metrics {
    registry: Registry,
    /// Commands by class and result; sessions count into a [`Tally`].
    pub(crate) commands: ByLabel<CommandClass, ByLabel<CommandResult, IntCounter>>,
    /// Open connections of clients.
    pub(crate) client_connections: IntGauge,
    /// What their buffers hold, bytes.
    pub(crate) client_buffers: IntGauge,
    /// What those may hold.
    pub(crate) client_buffers_max: IntGauge,
    /// Clients that were closed because of it.
    pub(crate) clients_evicted: IntCounter,
    /// Clients that were closed because of their age.
    pub(crate) clients_aged: IntCounter,
    /// How many there may be.
    pub(crate) client_connections_max: IntGauge,
    /// Clients that found no room.
    pub(crate) clients_refused: IntCounter,
    /// Bytes from and to clients.
    pub(crate) client_bytes: ByLabel<Direction, IntCounter>,
    /// Patterns of locks that are in no namespace.
    pub(crate) unclaimed_lock_patterns: IntGauge,
    /// Connections to the backend.
    pub(crate) backend_connections: ByLabel<ConnectionState, IntGauge>,
    /// 1 while the backend answers.
    pub(crate) backend_up: IntGauge,
    /// Sentinels that answer.
    pub(crate) sentinels_heard: IntGauge,
    /// Sentinels that are asked.
    pub(crate) sentinels_known: IntGauge,
    /// Sentinels that have named another server than the one that is followed for a while.
    pub(crate) sentinels_dissenting: IntGauge,
    /// Times the primary was another one, or was started again.
    pub(crate) backend_eras: IntCounter,
    /// 1 where the backend's eviction takes locks.
    pub(crate) backend_evicts_locks: IntGauge,
    /// Times the own connection was made again.
    pub(crate) backend_reconnects: ByLabel<ReconnectReason, IntCounter>,
    /// Times the password of the own connections was read again.
    pub(crate) login_refreshes: ByLabel<LoginRefresh, IntCounter>,
    pub(crate) twin_logins: ByLabel<TwinLogin, IntCounter>,
    backend_redirects: ByLabel<RedirectKind, IntCounter>,
    /// Connections closed because of what was on them.
    pub(crate) protocol_errors: ByLabel<Side, ByLabel<ProtocolErrorKind, IntCounter>>,
    /// Handshakes and certificates.
    pub(crate) tls: TlsMetrics,
    /// Own time per command, seconds.
    pub(crate) added_latency: ByLabel<LatencyPath, Histogram>,
    /// The backend's time per command, seconds.
    pub(crate) backend_latency: Histogram,
    /// How late renewals are, seconds.
    pub(crate) renewal_lateness: Histogram,
    /// From the answer of a step until replicas had confirmed it, or not.
    pub(crate) wait_seconds: Histogram,
    /// Leases that ran out before they could be renewed.
    pub(crate) lapsed: IntCounter,
    /// Audit records that were written.
    pub(crate) audit_records: ByLabel<AuditSink, IntCounter>,
    /// Audit records that were lost.
    pub(crate) audit_dropped: ByLabel<AuditSink, IntCounter>,
    /// Those of each thread.
    tallies: Mutex<Vec<Arc<Tally>>>,
    runtime: RuntimeMetrics,
    config_info: IntGaugeVec,
    reload_successful: IntGauge,
    reload_timestamp: Gauge,
    label_overflow: ByLabel<OverflowLabel, IntCounter>,
    applications: Arc<ApplicationCounts>,
    namespaces: ArcSwap<Namespaces>,
    max_namespaces: usize,
    policies: ArcSwap<Policies>,
    guards: ArcSwap<Guards>,
    /// Also makes sure that two pages are not put together at the same time.
    mirror: Mutex<Option<Mirror>>,
}

impl Metrics {
    /// All metrics, at 0, for these namespaces in the order of their `NamespaceId`. It fails only
    /// if the catalogue contradicts itself.
    pub(crate) fn new(
        build: BuildInfo<'_>,
        namespaces: &[(&str, ModeLabel)],
        max_namespaces: usize,
    ) -> Result<Arc<Metrics>> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let make = Registrar::new(&registry);
        make.gauge_vec(&names::BUILD_INFO)?
            .with_label_values(&[build.version, build.revision, build.wasmtime, build.policy_abi])
            .set(1);
        let label_overflow: ByLabel<OverflowLabel, IntCounter> = make.counters(&names::LABEL_OVERFLOW)?;
        let decisions_full = label_overflow.at(OverflowLabel::Decision);
        let namespaces_full = label_overflow.at(OverflowLabel::Namespace);
        let first = Namespaces::none(decisions_full, namespaces_full)?;
        let metrics = Metrics {
            commands: make.counters_by(&names::COMMANDS)?,
            client_connections: make.only_gauge(&names::CLIENT_CONNECTIONS)?,
            client_buffers: make.only_gauge(&names::CLIENT_BUFFERS)?,
            client_buffers_max: make.only_gauge(&names::CLIENT_BUFFERS_MAX)?,
            clients_evicted: make.counter(&names::CLIENTS_EVICTED)?,
            clients_aged: make.counter(&names::CLIENTS_AGED)?,
            client_connections_max: make.only_gauge(&names::CLIENT_CONNECTIONS_MAX)?,
            clients_refused: make.counter(&names::CLIENTS_REFUSED)?,
            client_bytes: make.counters(&names::CLIENT_BYTES)?,
            unclaimed_lock_patterns: make.gauge(&names::UNCLAIMED_LOCK_PATTERNS)?,
            backend_connections: make.gauges_of(&names::BACKEND_CONNECTIONS, Only::Default)?,
            backend_up: make.only_gauge(&names::BACKEND_UP)?,
            sentinels_heard: make.gauge(&names::SENTINELS_HEARD)?,
            sentinels_known: make.gauge(&names::SENTINELS_KNOWN)?,
            sentinels_dissenting: make.gauge(&names::SENTINELS_DISSENTING)?,
            backend_eras: make.counters(&names::BACKEND_ERAS)?.at(Only::Default).clone(),
            backend_evicts_locks: make.only_gauge(&names::BACKEND_EVICTS_LOCKS)?,
            login_refreshes: make.counters(&names::LOGIN_REFRESHES)?,
            twin_logins: make.counters(&names::TWIN_LOGINS)?,
            backend_reconnects: make.counters_of(&names::BACKEND_RECONNECTS, Only::Default)?,
            backend_redirects: make.counters(&names::BACKEND_REDIRECTS)?,
            protocol_errors: make.counters_by(&names::PROTOCOL_ERRORS)?,
            tls: TlsMetrics::new(&make)?,
            added_latency: make.histograms(&names::ADDED_LATENCY, &ADDED_SECONDS)?,
            backend_latency: make.histograms(&names::BACKEND_LATENCY, &BACKEND_SECONDS)?.at(Only::Default).clone(),
            renewal_lateness: make.histogram(&names::RENEWAL_LATENESS, &LATENESS_SECONDS)?,
            wait_seconds: make.histogram(&names::WAIT_SECONDS, &WAIT_SECONDS)?,
            lapsed: make.counter(&names::LAPSED)?,
            audit_records: make.counters(&names::AUDIT_RECORDS)?,
            audit_dropped: make.counters(&names::AUDIT_DROPPED)?,
            tallies: Mutex::default(),
            runtime: RuntimeMetrics::new(&make)?,
            config_info: make.gauge_vec(&names::CONFIG_INFO)?,
            reload_successful: make.gauge(&names::RELOAD_SUCCESSFUL)?,
            reload_timestamp: make.float_gauge(&names::RELOAD_TIMESTAMP)?,
            label_overflow,
            applications: Arc::new(ApplicationCounts::new(make.counter_vec(&names::APPLICATION_DECISIONS)?)),
            namespaces: ArcSwap::from_pointee(first),
            max_namespaces,
            policies: ArcSwap::from_pointee(Policies::none()?),
            guards: ArcSwap::default(),
            mirror: Mutex::new(None),
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
    pub(crate) fn counts_applications(&self) -> CountsApplications {
        CountsApplications::new(self.applications.clone())
    }

    /// Follows a change of modes; namespaces and policies are those that were set.
    pub(crate) fn show_modes(&self, namespaces: &[(&str, ModeLabel)], policies: &[PolicyInfo<'_>]) {
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
    pub(crate) fn guard(&self, name: &str) -> Option<Arc<GuardMetrics>> {
        self.guards.load().get(name)
    }

    /// The metrics of the namespace at this place of the configuration.
    pub(crate) fn namespace(&self, index: usize) -> Arc<NamespaceMetrics> {
        self.namespaces.load().get(index).clone()
    }

    /// The metrics of a policy, to be kept by whoever calls it.
    pub(crate) fn policy(&self, name: &str) -> Arc<PolicyMetrics> {
        self.policies.load().get(name).clone()
    }

    /// Notes a configuration that was loaded, at this Unix time.
    pub(crate) fn config_loaded(&self, unix_seconds: f64) {
        self.reload_successful.set(1);
        self.reload_timestamp.set(unix_seconds);
    }

    /// What the configuration in force means for locks, as its hash.
    pub(crate) fn set_config_hash(&self, hash: &str) {
        // No page is put together between the two steps.
        let _no_page = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
        self.config_info.reset();
        self.config_info.with_label_values(&[hash]).set(1);
    }

    /// Notes a configuration that could not be loaded.
    pub(crate) fn config_rejected(&self) {
        self.reload_successful.set(0);
    }

    /// Notes replies that sent clients to other nodes.
    pub(crate) fn redirected(&self, redirects: Redirects) {
        let kinds = &self.backend_redirects;
        kinds.at(RedirectKind::Moved).inc_by(redirects.moved);
        kinds.at(RedirectKind::Ask).inc_by(redirects.ask);
    }

    /// Notes an answer that names replicas.
    pub(crate) fn replicas_told(&self) {
        self.backend_redirects.at(RedirectKind::Replicas).inc();
    }

    /// Notes what the policies have used so far.
    pub(crate) fn policies_used(&self, uses: &[(Arc<str>, PolicyUse)]) {
        self.policies.load().show(uses);
    }

    /// Counters for one more thread.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        let tally = Arc::new(Tally::default());
        self.tallies().push(tally.clone());
        tally
    }

    fn tallies(&self) -> MutexGuard<'_, Vec<Arc<Tally>>> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which runtimes serve the clients.
    pub(crate) fn set_runtimes(&self, handles: Vec<tokio::runtime::Handle>) {
        self.runtime.follow(handles);
    }

    /// Where the gauges of held locks come from, asked each time the page is made.
    pub(crate) fn set_mirror(&self, mirror: Mirror) {
        *self.mirror.lock().unwrap_or_else(PoisonError::into_inner) = Some(mirror);
    }

    /// The page, in the Prometheus text format 0.0.4.
    pub(crate) fn render(&self) -> Vec<u8> {
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

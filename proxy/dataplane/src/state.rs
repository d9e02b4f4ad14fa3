//! What all sessions of a process share: the configuration in force, counters, what is known of the server, and the
//! registers that outlive one command. Sessions read it; only `app::control` changes the configuration in force.

pub mod certificates;
pub mod effects;
pub mod operator;
pub mod prefix_mark;
pub mod quarantine;
pub mod standstill;

use std::io;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use lockwarden_control::config::{
    self, {Config, Network, Sessions},
};
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::applications::Naming;
use lockwarden_control::telemetry::audit::Audit;
use lockwarden_control::telemetry::discovery::Discovery;
use lockwarden_control::telemetry::events::{EventLog, SessionNumber};
use lockwarden_control::telemetry::logging::{ObservationFolder, RepeatFolder};
use lockwarden_control::telemetry::metrics::{Metrics, NamespaceMirror};
use lockwarden_lock::companion::{SLOTS, slot};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::lease::Lease;
use lockwarden_lock::library_scripts;
use lockwarden_lock::promise::Heard;
use lockwarden_lock::script_facts::ScriptSha;
use tokio::sync::{Notify, watch};

use crate::backend::cluster::{ClusterMap, ShardId};
use crate::backend::functions::Functions;
use crate::backend::rights::Rights;
use crate::backend::server_info::Standing;
use crate::backend::{Address, Backend};
use crate::registry::buffer_memory::{self, Memory};
use crate::registry::clients::{ClientRegistry, Identified};
use crate::registry::handed_over::HandOvers;
use crate::registry::holdings::ApplicationHoldings;
use crate::registry::jobs::Jobs;
use crate::registry::later_records::LaterRecords;
use crate::registry::lease_mirror::LeaseMirror;
use crate::registry::lost_holders::{Lost, LostHolders};
use crate::registry::owner_tokens::OwnerTokens;
use crate::registry::prefix_mark::PrefixMark;
use crate::registry::processes::Processes;
use crate::registry::renewals::Renewals;
use crate::registry::script_cache::ScriptCache;
use crate::registry::undelivered::{Reports, Undelivered};
use crate::registry::ungoverned::Ungoverned;
use crate::registry::watched_keys::WatchedKeys;
use certificates::Certificates;
use operator::Operator;
use standstill::Standstill;

/// The state that does not depend on a server: it exists once, however many servers the process has behind it.
pub struct ProcessState {
    /// The servers behind the process.
    pub shards: Shards,
    pub active: Arc<ArcSwap<Active>>,
    pub metrics: Arc<Metrics>,
    /// The names of applications.
    pub naming: Arc<Naming>,
    /// How clients get connections to the backend.
    pub sessions: Sessions,
    /// The memory that clients' buffers may take.
    pub(crate) memory: Arc<Memory>,
    /// How many clients there may be, if the configuration limits that.
    pub max_clients: Option<u64>,
    pub(crate) script_cache: Arc<ScriptCache>,
    pub(crate) watched_keys: WatchedKeys,
    pub(crate) holdings: ApplicationHoldings,
    /// Records that a later version of lockwarden has written.
    pub(crate) later_records: LaterRecords,
    pub clients: ClientRegistry,
    pub(crate) jobs: Jobs,
    pub processes: Processes,
    pub(crate) owner_tokens: OwnerTokens,
    pub(crate) hand_overs: HandOvers,
    pub(crate) refusals: RepeatFolder,
    pub(crate) observations: ObservationFolder,
    pub events: Arc<EventLog>,
    pub discovery: Arc<Discovery>,
    /// Load balancers that must send a PROXY header, and whose header is trusted.
    pub proxy_protocol_from: Vec<Network>,
    /// The common name of a client's certificate, as these load balancers report it, counts as the name in the
    /// certificate.
    pub takes_common_names: bool,
    /// A client that connects over TLS needs a certificate.
    pub needs_certificates: bool,
    /// The certificates that listeners with TLS present.
    pub certificates: Certificates,
    pub audit: Arc<Audit>,
    /// The backend is a node of a cluster: it may be a replica.
    pub(crate) cluster_node: bool,
    /// How long a request to a cluster waits for a slot that is being moved or that no node serves.
    pub(crate) moving_patience: Duration,
    /// The pause between two walks over the server's keys; `None`: no walks.
    pub(crate) sweep: Option<Duration>,
    pub ungoverned: Ungoverned,
    /// Turns true when the proxy is about to stop. From then on it is sent again and again, so that sessions that
    /// went on check again whether they may close.
    pub drain: watch::Sender<bool>,
    /// A request to stop came at the admin address.
    pub stop_asked: Notify,
    /// What an operator asks over RESP.
    pub operator: Operator,
    pub started: Instant,
}

/// What a session sees: the process, and what belongs to the one server behind it.
pub struct ProxyState {
    process: Arc<ProcessState>,
    pub backend: Arc<Backend>,
    /// Whether this process stood still and has not asked since which server is the primary.
    pub standstill: Arc<Standstill>,
    pub(crate) rights: Rights,
    pub(crate) functions: Arc<Functions>,
    /// Which prefix the proxies in front of the server have in use.
    pub(crate) prefix_mark: PrefixMark,
    pub mirror: LeaseMirror,
    /// Leases whose connections have ended, and what is known of their holders.
    pub(crate) lost_holders: LostHolders,
    pub renewals: Renewals,
    pub(crate) undelivered: Reports<Undelivered>,
    /// Processes of holders that are to be added to records.
    pub(crate) identified: Reports<Identified>,
    /// Leases whose holders are gone.
    pub(crate) lost: Reports<Lost>,
}

/// The servers behind a process: one, or the primaries of a cluster.
#[derive(Default)]
pub struct Shards {
    map: Option<Arc<ClusterMap>>,
    all: ArcSwap<Vec<(ShardId, Weak<ProxyState>)>>,
}

impl Shards {
    /// The map of the cluster, if there is one.
    pub fn map(&self) -> Option<&Arc<ClusterMap>> {
        self.map.as_ref()
    }

    /// All of them, in the order in which they were met.
    pub fn each(&self) -> Vec<Arc<ProxyState>> {
        self.all.load().iter().filter_map(|(_, shard)| shard.upgrade()).collect()
    }

    /// One of them.
    pub fn get(&self, wanted: ShardId) -> Option<Arc<ProxyState>> {
        let all = self.all.load();
        all.iter().find(|(id, _)| *id == wanted).and_then(|(_, shard)| shard.upgrade())
    }

    /// The shard that has this key; `None` if no server of the cluster has it.
    pub fn of_key(&self, key: &[u8]) -> Option<Arc<ProxyState>> {
        self.get(match &self.map {
            Some(map) => map.home(slot(key))?,
            None => ShardId::FIRST,
        })
    }

    /// What is known of the lease of a lock.
    pub fn lease(&self, key: &DbKey) -> Option<Lease> {
        self.of_key(key.bytes())?.mirror.lease(key)
    }

    /// Calls `look` for every lease that this proxy knows of, some of them under one lock. `look` must be quick:
    /// sessions may wait for it.
    pub fn visit(&self, mut look: impl FnMut(&DbKey, &Lease)) {
        for shard in self.each() {
            shard.mirror.visit(&mut look);
        }
    }

    /// What each namespace holds, on all servers together.
    pub fn held(&self, active: &Active) -> Vec<NamespaceMirror> {
        let mut all = self.each().into_iter().map(|shard| shard.mirror.held(active));
        let first = all.next().unwrap_or_default();
        all.fold(first, |sum, held| sum.into_iter().zip(&held).map(|(sum, held)| sum.and(held)).collect())
    }

    pub(crate) fn enter(&self, shard: &Arc<ProxyState>) {
        let entry = (shard.backend.shard, Arc::downgrade(shard));
        self.all.rcu(|all| all.iter().cloned().chain([entry.clone()]).collect::<Vec<_>>());
    }

    pub(crate) fn leave(&self, shard: ShardId) {
        self.all.rcu(|all| all.iter().filter(|(id, _)| *id != shard).cloned().collect::<Vec<_>>());
    }
}

impl Deref for ProxyState {
    type Target = ProcessState;

    fn deref(&self) -> &ProcessState {
        &self.process
    }
}

impl ProxyState {
    /// Whether anything is known of a script: its text was seen, or it belongs to a library.
    pub fn knows_script(&self, sha: &ScriptSha) -> bool {
        library_scripts::find(sha).is_some() || self.script_cache.get(sha).is_some()
    }

    /// The state with empty registers. Fails if the thread that looks processes up cannot be started.
    pub fn new(
        config: &Config,
        active: Active,
        metrics: Arc<Metrics>,
        (address, certificates): (Address, Certificates),
        events: Arc<EventLog>,
        audit: Arc<Audit>,
    ) -> io::Result<Arc<ProxyState>> {
        let max_memory = config.max_memory.unwrap_or_else(buffer_memory::usual_limit);
        let process = Arc::new(ProcessState {
            shards: Shards { map: address.authority.map().map(|(map, _)| map.clone()), all: ArcSwap::default() },
            naming: Arc::new(Naming::new(active.applications.clone())),
            active: Arc::new(ArcSwap::from_pointee(active)),
            memory: Arc::new(Memory::new(max_memory, metrics.clone())),
            metrics,
            sessions: config.sessions,
            max_clients: config.max_clients,
            script_cache: Arc::default(),
            watched_keys: WatchedKeys::default(),
            holdings: ApplicationHoldings::default(),
            later_records: LaterRecords::default(),
            clients: ClientRegistry::default(),
            jobs: Jobs::default(),
            processes: Processes::start()?,
            owner_tokens: OwnerTokens::new(),
            hand_overs: HandOvers::default(),
            refusals: RepeatFolder::default(),
            observations: ObservationFolder::default(),
            events,
            discovery: Arc::default(),
            proxy_protocol_from: config.proxy_protocol_from.clone(),
            takes_common_names: config::takes_common_names(config.tls.as_ref()),
            needs_certificates: config::needs_certificates(config.tls.as_ref()),
            certificates,
            audit,
            cluster_node: config.cluster_node,
            moving_patience: config.moving_patience,
            sweep: config.sweep,
            ungoverned: Ungoverned::default(),
            drain: watch::Sender::new(false),
            stop_asked: Notify::new(),
            operator: Operator::default(),
            started: Instant::now(),
        });
        Ok(ProxyState::enter(process, address, Arc::default()))
    }

    /// The state of another shard of the cluster. After a standstill all servers of a process are asked together.
    pub(crate) fn of_shard(&self, shard: ShardId) -> Arc<ProxyState> {
        ProxyState::enter(self.process.clone(), self.backend.address.of_shard(shard), self.standstill.clone())
    }

    fn enter(process: Arc<ProcessState>, address: Address, standstill: Arc<Standstill>) -> Arc<ProxyState> {
        let mirror = match address.authority.heard() {
            Heard::ByMost(_) => LeaseMirror::that_remembers(),
            Heard::Needless => LeaseMirror::default(),
        };
        let state = Arc::new(ProxyState {
            backend: Arc::new(Backend::new(address, process.metrics.clone())),
            process,
            standstill,
            rights: Rights::default(),
            functions: Arc::default(),
            prefix_mark: PrefixMark::default(),
            mirror,
            lost_holders: LostHolders::default(),
            renewals: Renewals::default(),
            undelivered: Reports::default(),
            identified: Reports::default(),
            lost: Reports::default(),
        });
        state.process.shards.enter(&state);
        state
    }

    /// Why no client is served, in one line; with several servers, one that is served is enough.
    pub fn readiness(&self) -> Result<(), String> {
        let mut why = None;
        for shard in self.shards.each() {
            match &*shard.backend.server.standing() {
                Standing::Serving | Standing::Reconnecting(_) => return Ok(()),
                Standing::NotServing(this) => why = why.or_else(|| Some(this.clone())),
            }
        }
        Err(why.unwrap_or_else(|| "no server is known".to_owned()))
    }

    /// Whether new clients are served; waits while the proxy's own connection is being made again. With several
    /// servers one is enough.
    pub async fn settles_to_serve(&self) -> bool {
        for shard in self.shards.each() {
            match &*shard.backend.server.settled_standing().await {
                Standing::Serving | Standing::Reconnecting(_) => return true,
                Standing::NotServing(_) => {}
            }
        }
        false
    }

    /// Whether a lease of this session is kept alive. In a cluster its slot may have moved since it was taken.
    pub(crate) fn keeps_leases_of(&self, session: SessionNumber) -> bool {
        let elsewhere = || self.shards.each().iter().any(|shard| shard.renewals.has(session));
        self.renewals.has(session) || (self.shards.map().is_some() && elsewhere())
    }

    /// Whether clients of this server are served.
    pub(crate) fn is_served(&self) -> bool {
        matches!(*self.backend.server.standing(), Standing::Serving)
    }

    /// Sets the metric for whether the server answers: with several servers one is enough, as clients are served
    /// then.
    pub(crate) fn shows_up(&self, is_up: bool) {
        self.backend.is_up.store(is_up, Ordering::Relaxed);
        let any = self.shards.each().iter().any(|shard| shard.backend.is_up.load(Ordering::Relaxed));
        self.metrics.backend_up.set(any.into());
    }

    /// Sets the metric for the number of a cluster's slots that have no served primary.
    pub(crate) fn shows_served_slots(&self) {
        let Some(map) = self.shards.map() else {
            return;
        };
        let slots = map.slots();
        let served = slots.shards().filter(|(id, _)| self.shards.get(*id).is_some_and(|shard| shard.is_served()));
        let served: i64 = served.map(|(_, shard)| i64::from(shard.slots)).sum();
        self.metrics.cluster_slots_unserved.set(i64::from(SLOTS) - served);
    }

    /// Sets the metric for whether the server drops locks that are held when its memory is full: one server is
    /// enough. Returns whether it did before.
    pub(crate) fn shows_eviction(&self, evicts: bool) -> bool {
        let before = self.backend.evicts_locks.swap(evicts, Ordering::Relaxed);
        let any = self.shards.each().iter().any(|shard| shard.backend.evicts_locks.load(Ordering::Relaxed));
        self.metrics.backend_evicts_locks.set(any.into());
        before
    }

    /// From here on no new client is served, and clients that have just connected are told so; `app` tells the
    /// others.
    pub fn begin_to_drain(&self) {
        self.drain.send_replace(true);
    }

    /// Tells all clients again that the proxy is about to stop.
    pub fn keep_draining(&self) {
        self.drain.send_replace(true);
        self.clients.drain();
    }
}

/// The state of a proxy with this configuration, which serves no client.
#[cfg(test)]
pub(crate) fn for_tests(configuration: &str) -> Arc<ProxyState> {
    use lockwarden_control::ruleset::{activate, load_policies};
    use lockwarden_control::telemetry::events::Fingerprints;
    use lockwarden_control::telemetry::metrics::BUILD;
    use lockwarden_policy::PolicyHost;

    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), configuration).expect("it is ours");
    let nothing = std::iter::empty();
    let loaded = config::load(Some(file.path()), &Default::default(), nothing);
    let config = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    let labels = activate::labels(&config);
    let metrics = Metrics::new(BUILD, &labels, config.metrics_max_namespaces).expect("metrics");
    let host = PolicyHost::new().expect("an engine");
    let generation = load_policies::load(&host, &config).expect("the built-in policies");
    let active = activate::activate(&config, generation, &metrics).expect("metrics");
    let events = Arc::new(EventLog::new(Fingerprints::random()));
    let (audit, _) = Audit::open(&config.audit, &events, &metrics).expect("no file");
    let address = Address::private(([127, 0, 0, 1], 1).into());
    let certificates = Certificates::new(&config, &address, &metrics).expect("there are none");
    let backend = (address, certificates);
    ProxyState::new(&config, active, metrics, backend, events, audit).expect("a thread")
}

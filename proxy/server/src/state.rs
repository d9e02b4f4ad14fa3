//! What all sessions of a process share: the configuration in force, counters, what is known of the
//! server, and the registers that outlive one command. Sessions read it; only `app::control` changes
//! what is in force.

pub(crate) mod effects;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use crate::backend::Backend;
use crate::backend::functions::Functions;
use crate::backend::rights::Rights;
use crate::config::{Network, Sessions};
use crate::registry::buffer_memory::Memory;
use crate::registry::clients::{ClientRegistry, Identified};
use crate::registry::handed_over::HandOvers;
use crate::registry::jobs::Jobs;
use crate::registry::lease_mirror::LeaseMirror;
use crate::registry::owner_tokens::OwnerTokens;
use crate::registry::processes::Processes;
use crate::registry::renewals::Renewals;
use crate::registry::script_cache::ScriptCache;
use crate::registry::undelivered::{Reports, Undelivered};
use crate::registry::ungoverned::Ungoverned;
use crate::registry::watched_keys::WatchedKeys;
use crate::ruleset::Active;
use crate::telemetry::audit::Audit;
use crate::telemetry::events::EventLog;
use crate::telemetry::logging::{ObservationFolder, RepeatFolder};
use crate::telemetry::metrics::Metrics;

/// See the module.
pub(crate) struct ProxyState {
    pub(crate) active: Arc<ArcSwap<Active>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) backend: Arc<Backend>,
    /// How clients come by connections to it.
    pub(crate) sessions: Sessions,
    /// What clients' buffers may take.
    pub(crate) memory: Arc<Memory>,
    /// How many clients there may be, where the configuration says so.
    pub(crate) max_clients: Option<u64>,
    pub(crate) rights: Rights,
    pub(crate) script_cache: ScriptCache,
    pub(crate) functions: Arc<Functions>,
    pub(crate) watched_keys: WatchedKeys,
    pub(crate) mirror: LeaseMirror,
    pub(crate) renewals: Renewals,
    pub(crate) undelivered: Reports<Undelivered>,
    /// Processes of holders that are to be added to records.
    pub(crate) identified: Reports<Identified>,
    pub(crate) clients: ClientRegistry,
    pub(crate) jobs: Jobs,
    pub(crate) processes: Processes,
    pub(crate) owner_tokens: OwnerTokens,
    pub(crate) hand_overs: HandOvers,
    pub(crate) refusals: RepeatFolder,
    pub(crate) observations: ObservationFolder,
    pub(crate) events: Arc<EventLog>,
    /// Balancers whose word on where a client comes from is taken, and wanted.
    pub(crate) proxy_protocol_from: Vec<Network>,
    pub(crate) audit: Arc<Audit>,
    /// Between two walks over the server's keys; `None`: never.
    pub(crate) sweep: Option<Duration>,
    pub(crate) ungoverned: Ungoverned,
    /// Turns true when the proxy is about to stop; from then on said again and again, so that
    /// sessions that went on look again whether they may go.
    pub(crate) drain: watch::Sender<bool>,
    /// Somebody asked at the admin address to stop.
    pub(crate) stop_asked: Notify,
    pub(crate) started: Instant,
}

impl ProxyState {
    /// Tells everybody that the proxy is about to stop, or that it still is.
    pub(crate) fn start_draining(&self) {
        self.drain.send_replace(true);
        self.clients.drain();
    }
}

//! What all sessions of a process share: the configuration in force, counters, what is known of the
//! server, and the registers that outlive one command. Sessions read it; only `control` changes
//! what is in force.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use lockwarden_lock::administration::ServerCommands;
use lockwarden_lock::classify::ComputedNames;
use lockwarden_lock::hidden::OwnKeys;
use lockwarden_lock::namespace::{NamespaceId, Namespaces};
use lockwarden_lock::scripts::guard::Guard;
use lockwarden_lock::settle::{Mode, Rules};
use lockwarden_policy::Generation;
use tokio::sync::{Notify, watch};

use crate::audit::Audit;
use crate::backend::Address;
use crate::chores::Identified;
use crate::cohort::{Cohorts, Partly};
use crate::config::{self, Network, Sessions};
use crate::facts::Server;
use crate::functions::Functions;
use crate::handed_over::HandOvers;
use crate::jobs::Jobs;
use crate::keep_alive::kept::Kept;
use crate::logging::{ObservationFolder, RepeatFolder};
use crate::memory::Memory;
use crate::metrics::{Metrics, ModeLabel, NamespaceMetrics};
use crate::mirror::Mirror;
use crate::owner_tokens::OwnerTokens;
use crate::peers::Peers;
use crate::processes::Processes;
use crate::rights::Rights;
use crate::sweep::Strays;
use crate::texts::Texts;
use crate::trail::Trail;
use crate::unheard::{Reports, Undelivered};
use crate::view::View;
use crate::watches::Watches;

/// The configuration in force. Never changed, only replaced as a whole.
pub(crate) struct Active {
    pub(crate) namespaces: Arc<Namespaces>,
    pub(crate) details: Vec<NamespaceDetails>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) companion_prefix: Bytes,
    pub(crate) administration: Arc<Administration>,
    /// What is done with scripts that compute names of keys.
    pub(crate) computed_names: ComputedNames,
    /// Where it depends on the client which mode a namespace has: the same as such clients see it.
    pub(crate) cohorts: Option<Arc<Cohorts>>,
}

/// Who may administer the server, and which functions are trusted with locks.
pub(crate) struct Administration {
    pub(crate) server_commands: ServerCommands,
    /// Client names and ACL users.
    pub(crate) identities: HashSet<Bytes>,
    /// What is done with scripts that compute names of keys, where something is enforced.
    pub(crate) computed_names: config::ComputedNames,
    /// In lower case: to Redis the case of a function's name does not matter.
    pub(crate) trusted_functions: HashSet<Vec<u8>>,
}

impl Administration {
    /// Whether the operator answers for this function.
    pub(crate) fn trusts(&self, function: &[u8]) -> bool {
        !self.trusted_functions.is_empty()
            && self
                .trusted_functions
                .contains(&function.to_ascii_lowercase())
    }
}

/// One namespace in force.
#[derive(Clone)]
pub(crate) struct NamespaceDetails {
    pub(crate) name: Arc<str>,
    /// For whoever looks: the namespace's own, or those of a client in `partly`.
    pub(crate) rules: Rules,
    /// Where it is enforced for some only.
    pub(crate) partly: Option<Arc<Partly>>,
    /// The longest TTL that its policies allow, ms; for the words of a refusal.
    pub(crate) ceiling_ms: Option<u64>,
    pub(crate) metrics: Arc<NamespaceMetrics>,
}

impl Active {
    /// The namespace with this place in the configuration.
    pub(crate) fn namespace(&self, id: NamespaceId) -> &NamespaceDetails {
        &self.details[usize::from(id.0)]
    }

    pub(crate) fn rules(&self, id: NamespaceId) -> Rules {
        self.namespace(id).rules
    }

    /// Which keys are the proxy's own.
    pub(crate) fn own_keys(&self) -> OwnKeys<'_> {
        OwnKeys {
            prefix: &self.companion_prefix,
            namespaces: &self.namespaces,
        }
    }

    /// Whether every namespace is only watched.
    pub(crate) fn enforces_nothing(&self) -> bool {
        let monitors = |details: &NamespaceDetails| details.rules.mode == Mode::Monitor;
        self.details.iter().all(monitors)
    }

    /// Whether any namespace enforces, for some client.
    pub(crate) fn enforces_any(&self) -> bool {
        self.details
            .iter()
            .any(|details| details.rules.mode == Mode::Enforce || details.partly.is_some())
    }

    /// The same with other rules.
    pub(crate) fn with_details(&self, details: Vec<NamespaceDetails>) -> Active {
        Active {
            namespaces: self.namespaces.clone(),
            computed_names: self.computed_names(&details),
            details,
            generation: self.generation.clone(),
            companion_prefix: self.companion_prefix.clone(),
            administration: self.administration.clone(),
            cohorts: self.cohorts.clone(),
        }
    }
}

impl Active {
    fn computed_names(&self, details: &[NamespaceDetails]) -> ComputedNames {
        let mode = |namespace: NamespaceId| details[usize::from(namespace.0)].rules.mode;
        let guard = Guard::new(&self.namespaces, &mode, &self.companion_prefix);
        match (guard, self.administration.computed_names) {
            (None, _) | (_, config::ComputedNames::Forward) => ComputedNames::Forward,
            (Some(guard), config::ComputedNames::Watch) => ComputedNames::Watch(Arc::new(guard)),
            (Some(_), config::ComputedNames::Deny) => ComputedNames::Deny,
        }
    }
}

/// The label of a mode.
pub(crate) fn mode_label(mode: Mode) -> ModeLabel {
    match mode {
        Mode::Enforce => ModeLabel::Enforce,
        Mode::Monitor => ModeLabel::Monitor,
    }
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) active: Arc<ArcSwap<Active>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) backend: Address,
    /// How clients come by connections to it.
    pub(crate) sessions: Sessions,
    /// What clients' buffers may take.
    pub(crate) memory: Arc<Memory>,
    /// How many clients there may be, where the configuration says so.
    pub(crate) max_clients: Option<u64>,
    pub(crate) server: Server,
    pub(crate) rights: Rights,
    pub(crate) texts: Texts,
    pub(crate) functions: Functions,
    pub(crate) watches: Watches,
    pub(crate) mirror: Mirror,
    pub(crate) kept: Kept,
    pub(crate) undelivered: Reports<Undelivered>,
    /// Processes of holders that are to be added to records.
    pub(crate) identified: Reports<Identified>,
    pub(crate) peers: Peers,
    pub(crate) jobs: Jobs,
    pub(crate) processes: Processes,
    pub(crate) owner_tokens: OwnerTokens,
    pub(crate) hand_overs: HandOvers,
    pub(crate) refusals: RepeatFolder,
    pub(crate) observations: ObservationFolder,
    pub(crate) trail: Arc<Trail>,
    pub(crate) view: View,
    /// Balancers whose word on where a client comes from is taken, and wanted.
    pub(crate) proxy_protocol_from: Vec<Network>,
    pub(crate) audit: Arc<Audit>,
    /// Between two walks over the server's keys; `None`: never.
    pub(crate) sweep: Option<Duration>,
    pub(crate) strays: Strays,
    /// Turns true when the proxy is about to stop; from then on said again and again, so that
    /// sessions that went on look again whether they may go.
    pub(crate) drain: watch::Sender<bool>,
    /// Somebody asked at the admin address to stop.
    pub(crate) stop_asked: Notify,
    pub(crate) started: Instant,
}

impl Shared {
    /// Tells everybody that the proxy is about to stop, or that it still is.
    pub(crate) fn start_draining(&self) {
        self.drain.send_replace(true);
        self.peers.drain();
    }
}

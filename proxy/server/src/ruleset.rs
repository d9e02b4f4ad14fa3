//! What is in force: namespaces with their rules, the policies that judge them, and who may administer
//! the server. A configuration in force is never changed, only replaced as a whole; `app::control`
//! does that. Reads no file.

pub(crate) mod activate;
pub(crate) mod load_policies;
pub(crate) mod rollout;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lock::administration::ServerCommands;
use lockwarden_lock::classify::ComputedNames;
use lockwarden_lock::evidence::DbKey;
use lockwarden_lock::hidden::OwnKeys;
use lockwarden_lock::namespace::{NamespaceId, Namespaces};
use lockwarden_lock::rules::{Mode, Rules};
use lockwarden_lock::scripts::guard::Guard;
use lockwarden_policy::Generation;

use crate::clock::Moment;
use crate::config;
use crate::telemetry::audit::{InForce, Policy};
use crate::telemetry::events::{EventKind, LockEvent};
use crate::telemetry::metrics::NamespaceMetrics;
use crate::telemetry::vocabulary::ModeLabel;
use rollout::{Rollout, Rollouts};

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
    pub(crate) rollouts: Option<Arc<Rollouts>>,
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
    pub(crate) rollout: Option<Arc<Rollout>>,
    /// The longest TTL that its policies allow, ms; for the words of a refusal.
    pub(crate) ceiling_ms: Option<u64>,
    pub(crate) metrics: Arc<NamespaceMetrics>,
}

impl NamespaceDetails {
    /// An entry for the event log: this happened to a lock just now, by nobody's command.
    pub(crate) fn event(&self, happened: EventKind, key: DbKey) -> LockEvent {
        self.event_at(Moment::now(), happened, key)
    }

    /// The same, at a moment that is known.
    pub(crate) fn event_at(&self, now: Moment, happened: EventKind, key: DbKey) -> LockEvent {
        LockEvent::new(now, happened, (self.name.clone(), self.rules.mode), key)
    }
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
            .any(|details| details.rules.mode == Mode::Enforce || details.rollout.is_some())
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
            rollouts: self.rollouts.clone(),
        }
    }

    /// What is in force, for the audit trail.
    pub(crate) fn in_force(&self) -> Vec<InForce> {
        let generation = &self.generation;
        let policy = |name: &str| {
            let info = generation
                .policies()
                .iter()
                .find(|info| &*info.name == name)?;
            Some(Policy {
                name: name.to_owned(),
                version: info.version.map(str::to_owned),
                digest: info.digest().to_owned(),
            })
        };
        let namespaces = (0..).map(NamespaceId).zip(&self.details);
        namespaces
            .map(|(id, details)| InForce {
                name: details.name.to_string(),
                mode: details.rules.mode.word().to_owned(),
                policies: generation
                    .chain(id)
                    .filter_map(|name| policy(name))
                    .collect(),
            })
            .collect()
    }

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

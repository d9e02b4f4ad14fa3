//! The configuration in force: namespaces with their rules, the policies that judge them, and who may administer the
//! server. It is never changed, only replaced as a whole; `app::control` does that. Reads no file.

pub mod activate;
pub mod certificate_logins;
pub mod guards;
pub mod load_policies;
pub mod next;
pub mod rollout;
mod without_ttl;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use lockwarden_lock::administration::ServerCommands;
use lockwarden_lock::classify::{ComputedNames, OperatorSays};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::Obligations;
use lockwarden_lock::hidden::OwnKeys;
use lockwarden_lock::namespace::{NamespaceId, Namespaces};
use lockwarden_lock::promise::Terms;
use lockwarden_lock::rules::{Mode, Rules};
use lockwarden_lock::script_facts::ScriptSha;
use lockwarden_lock::scripts::guard::Guard;
use lockwarden_policy::Generation;
use smallvec::SmallVec;

use crate::clock::Moment;
use crate::config;
use crate::config::{Listed, Meaning, Secret};
use crate::telemetry::applications::{ApplicationMap, Looks};
use crate::telemetry::audit::{InForce, Policy};
use crate::telemetry::events::{EventKind, LockEvent};
use crate::telemetry::metrics::NamespaceMetrics;
use crate::telemetry::vocabulary::ModeLabel;
use certificate_logins::CertificateLogins;
use guards::Guards;
use next::Next;
use rollout::{Application, Rollout};

/// Views of the configuration that are shared between sessions; beyond this, a session gets its own. There is one for
/// each set of namespaces in which some client is enforced, and those are few.
const MAX_COHORTS: usize = 256;

/// The configuration in force. Never changed, only replaced as a whole.
pub struct Active {
    pub namespaces: Arc<Namespaces>,
    pub details: Vec<NamespaceDetails>,
    /// Whether any namespace has a quarantine.
    pub quarantines: bool,
    pub generation: Arc<Generation>,
    pub companion_prefix: Bytes,
    /// The longest age of a client's connection.
    pub max_connection_age: Option<Duration>,
    /// What the configuration means for locks, to be compared with other proxies.
    pub meaning: Arc<Meaning>,
    pub administration: Arc<Administration>,
    /// Which data only holders of locks may write.
    pub guards: Arc<Guards>,
    /// The names of applications.
    pub applications: Arc<ApplicationMap>,
    /// Clients that need no password.
    pub certificate_logins: Arc<CertificateLogins>,
    /// The users that touch locks in place of others.
    pub twins: Arc<Twins>,
    /// How scripts that compute key names are treated.
    pub computed_names: ComputedNames,
    /// If a namespace's mode depends on the client: the configuration as such clients see it.
    pub rollouts: Option<Arc<Rollouts>>,
}

/// Users who may not touch locks themselves, by name.
pub(crate) type Twins = HashMap<Bytes, Arc<Twin>>;

/// The user that touches locks in the place of another one.
pub struct Twin {
    pub user: Bytes,
    /// `None` if its file contains none.
    pub password: Option<Secret>,
    /// The server refuses its login, and the log has already said so.
    pub is_shut_out: AtomicBool,
}

/// The configuration as seen by clients that are enforced in some namespaces. Shared, and dropped with the last session
/// that uses it.
#[derive(Default)]
pub struct Rollouts(Mutex<HashMap<Cohort, Weak<Active>>>);

/// What differs for some clients: places of namespaces.
#[derive(PartialEq, Eq, Hash)]
struct Cohort {
    /// The namespaces in which they are enforced.
    enforced: Box<[usize]>,
    /// The namespaces in which the `next` chain answers them.
    next: Box<[usize]>,
}

/// The authority may be silent for this long without any notice, so leases may end this much later on a server that
/// takes another one's place. Sentinel tells a server after ten seconds that another one is the primary.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

/// Who may administer the server, and which functions are trusted with locks.
pub struct Administration {
    pub server_commands: ServerCommands,
    pub identities: Listed,
    /// How scripts that compute key names are treated, where anything is enforced.
    pub computed_names: config::ComputedNames,
    /// In lower case: to Redis the case of a function's name does not matter.
    pub trusted_functions: HashSet<Vec<u8>>,
    /// How commands that are not in the table are treated, by their names in lower case.
    pub unknown_commands: HashMap<Vec<u8>, OperatorSays>,
}

impl Administration {
    /// How the operator wants a command treated that is not in the table.
    pub fn says_of(&self, command: &[u8]) -> Option<OperatorSays> {
        let said = self.unknown_commands.get(&command.to_ascii_lowercase());
        said.copied()
    }

    /// Whether the operator has declared this function trusted.
    pub fn trusts(&self, function: &[u8]) -> bool {
        !self.trusted_functions.is_empty() && self.trusted_functions.contains(&function.to_ascii_lowercase())
    }
}

/// One namespace in force.
#[derive(Clone)]
pub struct NamespaceDetails {
    pub name: Arc<str>,
    /// It is the built-in one, because no file names a namespace.
    pub is_implied: bool,
    /// The namespace's own rules; in a client's view of the configuration, those for that client.
    pub rules: Rules,
    /// Set if it is enforced for some clients only.
    pub rollout: Option<Arc<Rollout>>,
    /// The obligations of its policies for an acquire without a TTL.
    without_ttl: Obligations,
    /// The longest TTL that any of its chains allows, ms.
    longest_ms: Option<u64>,
    /// The `next` chain, which is asked beside its own.
    pub next: Option<Next>,
    /// How long no free lock is granted after a change of the primary.
    pub quarantine: Option<Duration>,
    /// Scripts that may touch its locks without declaring them.
    pub(crate) trusted_scripts: Arc<HashSet<ScriptSha>>,
    pub metrics: Arc<NamespaceMetrics>,
}

impl NamespaceDetails {
    /// The obligations of the answering policies for an acquire without a TTL.
    pub fn without_ttl(&self) -> &Obligations {
        let next = self.next.as_ref().filter(|next| next.answers);
        next.map_or(&self.without_ttl, |next| &next.without_ttl)
    }

    /// The longest TTL that these policies allow, ms.
    pub fn ceiling_ms(&self) -> Option<u64> {
        self.without_ttl().ttl_cap_ms
    }

    /// The effect of its quarantine on promised leases; `None` if it has no quarantine.
    pub fn terms<'a>(&self, active: &'a Active) -> Option<Terms<'a>> {
        let quarantine = self.quarantine?;
        let longest = self.longest_ms.map(|ceiling| Duration::from_millis(ceiling.saturating_add(self.rules.grace_ms)));
        Some(Terms {
            quarantine,
            longest,
            // A quarantine that the operator set shorter than leases does not limit them.
            reach: longest.map(|longest| quarantine.max(longest + SILENCE)),
            rules: active.meaning.hash(),
        })
    }

    /// If its `durability` is strict: the number of replicas that the server must have.
    pub fn strict(&self) -> Option<u16> {
        let durability = self.rules.durability;
        let strict = durability.filter(|durability| durability.is_strict);
        strict.map(|durability| durability.replicas)
    }

    /// Whether refusals are carried out here, for some client at least.
    pub fn is_enforced(&self) -> bool {
        self.rules.mode == Mode::Enforce || self.rollout.is_some()
    }

    /// An entry for the event log: this happened to a lock just now, without a client's command.
    pub fn event(&self, happened: EventKind, key: DbKey) -> LockEvent {
        self.event_at(Moment::now(), happened, key)
    }

    /// The same, at a given moment.
    pub fn event_at(&self, now: Moment, happened: EventKind, key: DbKey) -> LockEvent {
        LockEvent::new(now, happened, (self.name.clone(), self.rules.mode), key)
    }
}

impl fmt::Debug for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Active({})", self.meaning.hash())
    }
}

impl Active {
    /// The namespace at this place in the configuration.
    pub fn namespace(&self, id: NamespaceId) -> &NamespaceDetails {
        &self.details[usize::from(id.0)]
    }

    pub fn rules(&self, id: NamespaceId) -> Rules {
        self.namespace(id).rules
    }

    /// The namespace to which a lock belongs now. Data that outlives a reload refers to the key or to a name: another
    /// configuration may have another namespace at the same place.
    pub fn of_lock(&self, key: &[u8]) -> Option<&NamespaceDetails> {
        Some(self.namespace(self.namespaces.find(key)?))
    }

    /// The namespace with this name.
    pub fn named(&self, name: &str) -> Option<&NamespaceDetails> {
        self.details.iter().find(|details| *details.name == *name)
    }

    /// The namespaces whose locks this script may touch without declaring them.
    pub fn trusting(&self, sha: &ScriptSha) -> SmallVec<[NamespaceId; 1]> {
        let all = (0..).map(NamespaceId).zip(&self.details);
        all.filter(|(_, details)| details.trusted_scripts.contains(sha)).map(|(id, _)| id).collect()
    }

    /// Which keys are the proxy's own.
    pub fn own_keys(&self) -> OwnKeys<'_> {
        OwnKeys { prefix: &self.companion_prefix, namespaces: &self.namespaces }
    }

    /// Whether every namespace is in monitor mode for all clients.
    pub fn enforces_nothing(&self) -> bool {
        let monitors = |details: &NamespaceDetails| details.rules.mode == Mode::Monitor;
        self.details.iter().all(monitors)
    }

    /// Whether any namespace enforces, for some client at least.
    pub fn enforces_any(&self) -> bool {
        self.details.iter().any(NamespaceDetails::is_enforced)
    }

    /// The same with other rules.
    pub fn with_details(&self, details: Vec<NamespaceDetails>) -> Active {
        Active {
            namespaces: self.namespaces.clone(),
            computed_names: self.computed_names(&details),
            quarantines: details.iter().any(|details| details.quarantine.is_some()),
            details,
            generation: self.generation.clone(),
            companion_prefix: self.companion_prefix.clone(),
            max_connection_age: self.max_connection_age,
            meaning: self.meaning.clone(),
            administration: self.administration.clone(),
            guards: self.guards.clone(),
            applications: self.applications.clone(),
            certificate_logins: self.certificate_logins.clone(),
            twins: self.twins.clone(),
            rollouts: self.rollouts.clone(),
        }
    }

    /// What is in force, for the audit trail.
    pub fn in_force(&self) -> Vec<InForce> {
        let generation = &self.generation;
        let policy = |name: &str| {
            let info = generation.policies().iter().find(|info| &*info.name == name)?;
            Some(Policy {
                name: name.to_owned(),
                version: info.version.as_deref().map(str::to_owned),
                digest: info.digest().to_owned(),
            })
        };
        let namespaces = (0..).map(NamespaceId).zip(&self.details);
        namespaces
            .map(|(id, details)| InForce {
                name: details.name.to_string(),
                mode: details.rules.mode.word().to_owned(),
                policies: generation.chain(id).filter_map(|name| policy(name)).collect(),
            })
            .collect()
    }

    /// The configuration as this application sees it. May also be called on a view of the configuration.
    pub fn seen_by(self: &Arc<Active>, application: &Application<'_>) -> Arc<Active> {
        let Some(rollouts) = &self.rollouts else {
            return self.clone();
        };
        let named = self.applications.find_at_once(&Looks {
            name: application.name,
            user: application.user,
            address: application.address,
            certificate: application.certificate,
            entrance: application.entrance,
        });
        let enforced_in = |(_, details): &(usize, &NamespaceDetails)| {
            let rollout = details.rollout.as_deref();
            rollout.is_some_and(|rollout| rollout.chooses(application, named))
        };
        let answered_in = |(_, details): &(usize, &NamespaceDetails)| {
            let next = details.next.as_ref();
            next.is_some_and(|next| application.is_among(named, next.stage.percent))
        };
        let namespaces = || self.details.iter().enumerate();
        rollouts.get(
            self,
            Cohort {
                enforced: namespaces().filter(enforced_in).map(|(index, _)| index).collect(),
                next: namespaces().filter(answered_in).map(|(index, _)| index).collect(),
            },
        )
    }

    /// Keeps the comparisons of chains that are the same as before.
    pub fn go_on(&mut self, before: &Active) {
        for details in &mut self.details {
            let was = before.named(&details.name).and_then(|details| details.next.as_ref());
            if let (Some(next), Some(was)) = (&mut details.next, was) {
                next.go_on(was);
            }
        }
    }

    fn computed_names(&self, details: &[NamespaceDetails]) -> ComputedNames {
        let mode = |namespace: NamespaceId| details[usize::from(namespace.0)].rules.mode;
        let guard = Guard::new(&self.namespaces, &mode, &self.companion_prefix);
        match (guard, self.administration.computed_names) {
            (None, _) | (_, config::ComputedNames::Forward) => ComputedNames::Forward,
            (Some(guard), config::ComputedNames::Watch) => ComputedNames::Watch(Arc::new(guard)),
            (Some(guard), config::ComputedNames::Deny) => ComputedNames::Deny { enforces: guard.enforces() },
        }
    }
}

impl Rollouts {
    /// `None` if nothing differs between clients: then no session has to ask.
    pub fn of(details: &[NamespaceDetails]) -> Option<Arc<Rollouts>> {
        let answers = |next: &Next| next.stage.percent > 0;
        let any = |details: &NamespaceDetails| details.rollout.is_some() || details.next.as_ref().is_some_and(answers);
        details.iter().any(any).then(Arc::default)
    }

    fn get(&self, active: &Active, set: Cohort) -> Arc<Active> {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = views.get(&set).and_then(Weak::upgrade) {
            return known;
        }
        if views.len() >= MAX_COHORTS {
            views.retain(|_, view| view.strong_count() > 0);
        }
        let mut details = active.details.clone();
        for (index, details) in details.iter_mut().enumerate() {
            if let Some(rollout) = &details.rollout {
                details.rules = rollout.rules(set.enforced.binary_search(&index).is_ok());
            }
            if let Some(next) = &mut details.next {
                next.answers = set.next.binary_search(&index).is_ok();
            }
        }
        let view = Arc::new(active.with_details(details));
        if views.len() < MAX_COHORTS {
            views.insert(set, Arc::downgrade(&view));
        }
        view
    }
}

/// The label of a mode.
pub fn mode_label(mode: Mode) -> ModeLabel {
    match mode {
        Mode::Enforce => ModeLabel::Enforce,
        Mode::Monitor => ModeLabel::Monitor,
    }
}

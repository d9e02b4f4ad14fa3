//! `[[namespace]]`: which keys are locks, and their settings. Reads and checks each table, and its name against the
//! others. Whether its globs are ever reached is checked by `reach`; what a setting means is up to the policy.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use lockwarden_lock::glob::Glob;
use lockwarden_lock::job_scripts;
use lockwarden_lock::rules::{
    Adopt, Durability, HolderLost, Mode, OnFault, OnRepeat, OnViolation, OpaqueScripts, Released,
};
use lockwarden_policy::{DEFAULT_CHAIN, RULES};
use toml::de::DeTable;

use super::administration::{self, MAX_NAMES};
use super::application::ApplicationRule;
use super::chain::entries;
use super::enforce_for::EnforceFor;
use super::finding::Position;
use super::keys::belongs_on_top;
use super::next::{InForce, NextChain};
use super::policy::BUILT_IN_POLICIES;
use super::reader::{Found, Reader, Section, key_table};
use super::rule::{self, RuleConfig};
use super::settings::Settings;
use super::suggest::quoted;
use super::{chain, durability, enforce_for, next, reach, settings, value};

/// Namespaces in one file.
const MAX_NAMESPACES: usize = 1000;

/// Globs in one namespace.
const MAX_GLOBS: usize = 1000;

key_table! { pub(super) KEYS =
    name: "\"orders\"",
    keys: "[\"lock:*\"]" = "[\"lock:*\"]",
    mode: "\"monitor\"" = "\"monitor\"",
    enforce_for: "{ clients = [\"billing*\"] }" = "(nobody)",
    auto_back: "true" = "false",
    policies: "[\"owner-token\", \"fencing\", \"ttl-ceiling\"]" = "[\"owner-token\", \"fencing\", \"ttl-ceiling\"]",
    on_violation: "\"native\"" = "\"native\"",
    on_fault: "\"deny\"" = "\"deny\"",
    adopt: "\"report\"" = "\"report\"",
    opaque_scripts: "\"wrap\"" = "\"wrap\"",
    trusted_scripts: "[\"bullmq@6.7.0\"]" = "[]",
    counter_locks: "true" = "false",
    on_repeat: "\"refuse\"" = "\"refuse\"",
    hand_over: "true" = "false",
    release: "\"forget\"" = "\"record\"",
    quarantine: "\"auto\"" = "\"off\"",
    durability: "\"wait:1:50ms\"" = "\"none\"",
    holder_lost: "\"shorten:2s\"" = "\"keep\"",
    settings: "{ ttl-ceiling = { ceiling = \"60s\" } }",
    rule: "[{ name = \"ttl\", deny = 'ttl > 5s' }]",
    next: "{ stage = \"shadow\", policies = [\"fencing\"] }",
}

pub(super) const MODES: [(&str, Mode); 2] = [("monitor", Mode::Monitor), ("enforce", Mode::Enforce)];
pub(super) const ON_VIOLATION: [(&str, OnViolation); 2] =
    [("native", OnViolation::Native), ("error", OnViolation::Error)];
pub(super) const ON_FAULT: [(&str, OnFault); 2] = [("deny", OnFault::Deny), ("allow", OnFault::Allow)];
pub(super) const ADOPT: [(&str, Adopt); 2] = [("report", Adopt::Report), ("cap", Adopt::Cap)];
pub(super) const RELEASE: [(&str, Released); 2] = [("record", Released::Record), ("forget", Released::Forget)];
pub(super) const ON_REPEAT: [(&str, OnRepeat); 2] = [("refuse", OnRepeat::Refuse), ("grant", OnRepeat::Grant)];

pub(super) const OPAQUE_SCRIPTS: [(&str, OpaqueScripts); 3] =
    [("wrap", OpaqueScripts::Wrap), ("deny", OpaqueScripts::Deny), ("forward", OpaqueScripts::Forward)];

/// The longest quarantine: no client waits for a lock for longer.
const MAX_QUARANTINE: Duration = Duration::from_secs(86_400);

/// How long after a change of the primary no free lock is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quarantine {
    #[default]
    Off,
    /// Until every lease that the former primary may have granted has ended.
    Auto,
    For(Duration),
}

/// Which keys are locks of which namespace.
pub fn index(namespaces: &[NamespaceConfig], companion_prefix: &Bytes) -> lockwarden_lock::namespace::Namespaces {
    let globs = |namespace: &NamespaceConfig| namespace.keys.iter().cloned().map(Glob::new).collect();
    lockwarden_lock::namespace::Namespaces::new(namespaces.iter().map(globs).collect())
        .without_own_keys(companion_prefix.clone())
}

/// One checked `[[namespace]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// 1 to 64 of `A-Z a-z 0-9 _ . -`; unique.
    pub name: String,
    /// Redis globs of the lock keys. Empty only where the file says so (with a warning).
    pub keys: Vec<Bytes>,
    /// Whether refusals are carried out, after overrides by environment and flags.
    pub mode: Mode,
    /// The clients whose refusals are carried out in monitor mode. `None` if the environment or a flag sets the mode:
    /// that applies to all clients.
    pub enforce_for: Option<EnforceFor>,
    /// Whether the proxy sets the namespace back to monitor mode if enforcing does harm.
    pub auto_back: bool,
    /// The chain: names of built-in policies or of [`super::PolicyModule`]s, each at most once.
    pub policies: Vec<String>,
    /// Settings by policy, each a list of key and value sorted by key. Only policies of the chain
    /// appear. Lists of the file are joined with commas.
    pub settings: BTreeMap<String, Vec<(String, String)>>,
    /// Its rules in their order; they are also settings of the policy `rules`.
    pub rules: Vec<RuleConfig>,
    /// The `next` chain, which is asked beside the chain in force.
    pub next: Option<Box<NextChain>>,
    /// The reply to a client whose release or extension was refused.
    pub on_violation: OnViolation,
    /// What happens if a policy fails.
    pub on_fault: OnFault,
    /// What happens to locks that were taken without the proxy.
    pub adopt: Adopt,
    /// What happens to a script on lock keys whose effect is unknown.
    pub opaque_scripts: OpaqueScripts,
    /// Scripts that may touch its locks without declaring them: by the names of reviewed libraries, and by SHA-1.
    pub trusted_scripts: Vec<String>,
    /// Whether `INCR` takes a lock. Otherwise it is a write like any other.
    pub counter_locks: bool,
    /// The reply to a holder that acquires the lock again.
    pub on_repeat: OnRepeat,
    /// Whether its locks are taken by one process of an application and given back by another.
    pub hand_over: bool,
    /// What happens to the records of released locks.
    pub released: Released,
    /// How long after a change of the primary no free lock is granted.
    pub quarantine: Quarantine,
    /// What replicas must confirm before a client gets the reply that it holds a lock.
    pub durability: Option<Durability>,
    /// What happens to a lease whose holder is known to be gone.
    pub(crate) holder_lost: HolderLost,
    /// The line of its `[[namespace]]`; `None` for the built-in one.
    pub line: Option<usize>,
    pub(super) policy_positions: HashMap<String, Position>,
    pub(super) setting_positions: HashMap<(String, String), Position>,
}

impl NamespaceConfig {
    /// Whether its `durability` is strict.
    pub fn is_strict(&self) -> bool {
        self.durability.is_some_and(|durability| durability.is_strict)
    }

    /// The built-in namespace for when there is no file: `lock:*`, observed and not enforced.
    pub(super) fn built_in() -> NamespaceConfig {
        NamespaceConfig {
            name: "default".to_owned(),
            keys: vec![Bytes::from_static(b"lock:*")],
            mode: Mode::default(),
            enforce_for: None,
            auto_back: false,
            policies: DEFAULT_CHAIN.map(str::to_owned).to_vec(),
            settings: BTreeMap::new(),
            rules: Vec::new(),
            next: None,
            on_violation: OnViolation::default(),
            on_fault: OnFault::default(),
            adopt: Adopt::default(),
            opaque_scripts: OpaqueScripts::default(),
            trusted_scripts: Vec::new(),
            counter_locks: false,
            on_repeat: OnRepeat::default(),
            hand_over: false,
            released: Released::default(),
            holder_lost: HolderLost::default(),
            quarantine: Quarantine::Off,
            durability: None,
            line: None,
            policy_positions: HashMap::new(),
            setting_positions: HashMap::new(),
        }
    }

    /// This namespace with its `next` chain in place of its own chain, if it has one.
    pub(crate) fn with_next(&self) -> Option<NamespaceConfig> {
        let NextChain { stage: _, policies, settings, rules, policy_positions, setting_positions } =
            self.next.as_deref()?.clone();
        let next = None;
        Some(NamespaceConfig { policies, settings, rules, policy_positions, setting_positions, next, ..self.clone() })
    }

    /// Sets one mode for all clients.
    pub fn switch(&mut self, mode: Mode) {
        self.mode = mode;
        self.enforce_for = None;
    }

    /// The setting `key` of `policy`, if set.
    pub fn setting(&self, policy: &str, key: &str) -> Option<&str> {
        let settings = self.settings.get(policy)?;
        let found = settings.iter().find(|(name, _)| name == key)?;
        Some(&found.1)
    }

    /// All settings of `policy`.
    pub(crate) fn settings_of(&self, policy: &str) -> impl Iterator<Item = (&str, &str)> {
        let settings = self.settings.get(policy).into_iter().flatten();
        settings.map(|(key, value)| (&**key, &**value))
    }

    /// Where the file sets `key` for `policy`.
    pub(crate) fn setting_position(&self, policy: &str, key: &str) -> Option<Position> {
        self.setting_positions.get(&(policy.to_owned(), key.to_owned())).copied()
    }

    /// Where the file is about `policy` in this namespace: at its settings, otherwise at its name in the chain,
    /// otherwise at the namespace itself.
    pub(crate) fn policy_position(&self, policy: &str) -> Option<Position> {
        let namespace = self.line.map(|line| Position { line, column: 1 });
        self.policy_positions.get(policy).copied().or(namespace)
    }
}

/// The namespaces of a file.
pub(super) struct Namespaces {
    /// Those that could be read, in the order of the file.
    pub(super) list: Vec<NamespaceConfig>,
    /// Whether every namespace has a name, so that an unknown name is certainly wrong.
    pub(super) all_named: bool,
}

/// Reads every `[[namespace]]` of the file; `None` if there is none. `module_names` are the policies that the file
/// defines, `applications` its names for clients.
pub(super) fn read(
    reader: &mut Reader<'_>,
    top: &Section<'_, '_>,
    module_names: &[String],
    applications: &[ApplicationRule],
) -> Option<Namespaces> {
    if !top.table.contains_key("namespace") {
        return None;
    }
    let Some(tables) = reader.tables(top, "namespace", MAX_NAMESPACES) else {
        return Some(Namespaces { list: Vec::new(), all_named: false });
    };
    if tables.is_empty() {
        let span = top.table.get("namespace").map_or(0..0, |value| value.span());
        reader.warning(span, "namespace: there is none, so every command passes through".to_owned());
    }
    let mut read = Namespaces { list: Vec::new(), all_named: true };
    let mut lines_of_names = HashMap::new();
    let mut reach = reach::Reach::default();
    for (index, table) in tables.iter().enumerate() {
        let (name, scope) = name_and_scope(reader, table, index);
        let known = BUILT_IN_POLICIES.into_iter().chain(module_names.iter().map(String::as_str));
        let section = Section { table: table.value, span: table.span.clone(), known: KEYS, scope };
        let (namespace, globs) =
            one(reader, &section, name.as_ref().map(|name| &*name.value), &known.collect::<Vec<_>>(), applications);
        match &name {
            None => read.all_named = false,
            Some(name) => {
                let line = reader.position(&name.span).line;
                if let Some(first) = lines_of_names.insert(name.value.clone(), line) {
                    lines_of_names.insert(name.value.clone(), first);
                    reader.error(name.span.clone(), || {
                        format!(
                            "{}name: line {first} has a namespace of this name already; \
                                 choose another",
                            section.scope
                        )
                    });
                }
                reach.check(reader, &section, &globs);
            }
        }
        read.list.push(namespace);
    }
    Some(read)
}

/// The name, and the prefix of messages about this namespace.
fn name_and_scope(
    reader: &mut Reader<'_>,
    table: &Found<&DeTable<'_>>,
    index: usize,
) -> (Option<Found<String>>, String) {
    let numbered = format!("namespace #{}: ", index + 1);
    let nameless = Section { table: table.value, span: table.span.clone(), known: KEYS, scope: numbered };
    let name = reader.parsed(&nameless, "name", value::name);
    let name = reader.required(&nameless, "name", name);
    let scope = match &name {
        Some(name) => format!("namespace {}: ", quoted(&name.value)),
        None => nameless.scope,
    };
    (name, scope)
}

fn one(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    name: Option<&str>,
    known_policies: &[&str],
    applications: &[ApplicationRule],
) -> (NamespaceConfig, Vec<Found<Bytes>>) {
    let built_in = NamespaceConfig::built_in();
    let globs = reader.strings(section, "keys", MAX_GLOBS, value::glob);
    let globs = reader.required(section, "keys", globs);
    if let Some(globs) = &globs
        && entries(section, "keys") == 0
    {
        let message = format!("{}keys: the list is empty, so no key is a lock here", section.scope);
        reader.warning(globs.span.clone(), message);
    }
    let mode = reader.choice(section, "mode", &MODES).unwrap_or_default();
    let enforce_for = enforce_for::read(reader, section, mode == Mode::Enforce, applications);
    let auto_back = reader.boolean(section, "auto_back");
    let mut policy_positions = HashMap::new();
    let unsaid = DEFAULT_CHAIN.map(str::to_owned);
    let mut chain = chain::read(reader, section, known_policies, &unsaid, &mut policy_positions);
    let on_violation = reader.choice(section, "on_violation", &ON_VIOLATION).unwrap_or_default();
    let on_fault = reader.choice(section, "on_fault", &ON_FAULT).unwrap_or_default();
    let adopt = reader.choice(section, "adopt", &ADOPT).unwrap_or_default();
    let opaque_scripts = reader.choice(section, "opaque_scripts", &OPAQUE_SCRIPTS).unwrap_or_default();
    let trusted_scripts = reader.strings(section, "trusted_scripts", MAX_NAMES, trusted_script);
    let counter_locks = reader.boolean(section, "counter_locks");
    let on_repeat = reader.choice(section, "on_repeat", &ON_REPEAT).unwrap_or_default();
    let hand_over = reader.boolean(section, "hand_over");
    let released = reader.choice(section, "release", &RELEASE).unwrap_or_default();
    let holder_lost = reader.parsed(section, "holder_lost", value::holder_lost);
    let outlives = hand_over.as_ref().is_some_and(|found| found.value);
    if let (true, Some(found)) = (outlives, &holder_lost)
        && found.value != HolderLost::Keep
    {
        reader.error(found.span.clone(), || {
            format!(
                "{}holder_lost: with hand_over = true a lock outlives the process that took it, so its end \
                 says nothing; leave one of them out",
                section.scope
            )
        });
    }
    let quarantine = reader.parsed(section, "quarantine", |text| match text {
        "off" => Ok(Quarantine::Off),
        "auto" => Ok(Quarantine::Auto),
        _ => value::duration(text, Duration::from_secs(1)..=MAX_QUARANTINE).map(Quarantine::For),
    });
    let durability = reader.parsed(section, "durability", durability::durability);
    let durability = durability.and_then(|found| found.value);
    let is_strict = durability.is_some_and(|durability| durability.is_strict);
    if let (true, Some(found)) = (is_strict, &quarantine)
        && found.value == Quarantine::Off
    {
        reader.error(found.span.clone(), || {
            format!(
                "{}quarantine: \"off\" lets a second client have a lock that a failover has lost, which durability = \"strict:…\" \
                 promises not to happen; leave it out, or write wait in place of strict",
                section.scope
            )
        });
    }
    let unsaid = match is_strict {
        true => Quarantine::Auto,
        false => Quarantine::Off,
    };
    let rules = rule::read(reader, section);
    rule::in_chain(reader, section, &rules, chain.as_mut());
    let Settings { mut values, positions: setting_positions } =
        settings::read(reader, section, chain.as_deref(), known_policies, &mut policy_positions);
    if !rules.is_empty() {
        values.insert(RULES.to_owned(), rule::settings(&rules));
    }
    let in_force = InForce { chain: chain.as_deref(), settings: &values, rules: &rules };
    let next = next::read(reader, section, &in_force, known_policies);
    reader.unknown_keys(section, |key| elsewhere(key, known_policies));

    let globs = globs.map_or(Vec::new(), |globs| globs.value);
    let namespace = NamespaceConfig {
        name: name.unwrap_or_default().to_owned(),
        keys: globs.iter().map(|glob| glob.value.clone()).collect(),
        mode,
        enforce_for,
        auto_back: auto_back.is_some_and(|found| found.value),
        policies: chain.unwrap_or(built_in.policies),
        settings: values,
        rules,
        next: next.map(Box::new),
        on_violation,
        on_fault,
        adopt,
        opaque_scripts,
        trusted_scripts: trusted_scripts.map_or_else(Vec::new, administration::values),
        counter_locks: counter_locks.is_some_and(|found| found.value),
        on_repeat,
        released,
        hand_over: hand_over.is_some_and(|found| found.value),
        quarantine: quarantine.map_or(unsaid, |found| found.value),
        durability,
        holder_lost: holder_lost.map_or(HolderLost::default(), |found| found.value),
        line: Some(reader.position(&section.span).line),
        policy_positions,
        setting_positions,
    };
    (namespace, globs)
}

/// Neither a library that was looked at nor the name of a script.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is neither the SHA-1 of a script nor a library that was looked at: {}",
    quoted(.0),
    job_scripts::names()
)]
struct ScriptError(String);

fn trusted_script(text: &str) -> Result<String, ScriptError> {
    match job_scripts::named(text).is_empty() {
        true => Err(ScriptError(text.to_owned())),
        false => Ok(text.to_owned()),
    }
}

/// A suggestion for a key that no namespace has.
fn elsewhere(key: &str, known_policies: &[&str]) -> Option<String> {
    if key == RULES {
        return Some("write each rule as [[namespace.rule]]".to_owned());
    }
    if known_policies.contains(&key) {
        return Some(format!("a policy's settings stand under [namespace.settings.{key}]"));
    }
    belongs_on_top(key)
}

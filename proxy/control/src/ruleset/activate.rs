//! Turns a checked configuration and its policies into what is in force.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lockwarden_lock::classify::ComputedNames;
use lockwarden_lock::decision::Obligations;
use lockwarden_lock::job_scripts;
use lockwarden_lock::namespace::{NamespaceId, Namespaces};
use lockwarden_lock::rules::{Doubt, KeepAliveBy, KeepAliveTtl, Mode, Rules, RulesTag, TrustAddress};
use lockwarden_policy::Generation;

use super::certificate_logins::CertificateLogins;
use super::guards::Guards;
use super::next::Next;
use super::rollout::Rollout;
use super::without_ttl::without_ttl;
use super::{Active, Administration, NamespaceDetails, Rollouts, SILENCE, Twin, Twins, mode_label};
use crate::config::{
    self, AdministrationConfig, Config, Listed, Meaning, NEXT, NamespaceConfig, NextChain, Quarantine, UserMapping,
    unknown_command,
};
use crate::telemetry::applications::ApplicationMap;
use crate::telemetry::metrics::{Metrics, PolicyInfo};
use crate::telemetry::vocabulary::{ModeLabel, PolicyMode};

/// Combines a checked configuration with its policies.
pub fn activate(config: &Config, generation: Arc<Generation>, metrics: &Arc<Metrics>) -> prometheus::Result<Active> {
    metrics.set_namespaces(&labels(config))?;
    for (index, namespace) in config.namespaces.iter().enumerate() {
        if namespace.enforce_for.is_some() {
            metrics.namespace(index).expect_mode(ModeLabel::Enforce);
        }
    }
    for (index, namespace) in config.namespaces.iter().enumerate() {
        let next = namespace.next.as_deref();
        let rules = namespace.rules.iter().chain(next.into_iter().flat_map(|next| &next.rules));
        metrics.namespace(index).set_rules(rules.map(|rule| &*rule.name));
        if next.is_some() {
            metrics.namespace(index).expect_next();
        }
    }
    for (index, namespace) in config.namespaces.iter().enumerate() {
        if namespace.durability.is_some() {
            metrics.namespace(index).expect_replicas();
        }
    }
    metrics.set_policies(&policy_infos(config, &generation))?;
    let applications = ApplicationMap::new(&config.applications);
    metrics.set_applications(applications.names());
    let details = (0..)
        .map(NamespaceId)
        .zip(&config.namespaces)
        .map(|(id, namespace)| {
            let (rules, without_ttl) = (rules(namespace), without_ttl(id, &namespace.rules, &generation));
            let next = Next::of(config, id, &generation);
            let longest_ms = longest_ms(&without_ttl, next.as_ref());
            NamespaceDetails {
                name: namespace.name.as_str().into(),
                is_implied: namespace.line.is_none(),
                rules,
                rollout: namespace.enforce_for.as_ref().map(|for_whom| Arc::new(Rollout::new(for_whom, rules))),
                without_ttl,
                longest_ms,
                quarantine: quarantine(namespace.quarantine, longest_ms, rules.grace_ms),
                next,
                trusted_scripts: Arc::new(
                    (namespace.trusted_scripts.iter()).flat_map(|name| job_scripts::named(name)).collect(),
                ),
                metrics: metrics.namespace(usize::from(id.0)),
            }
        })
        .collect::<Vec<_>>();
    let meaning = meaning(config, &generation);
    let active = Active {
        namespaces: Arc::new(namespaces(config)),
        generation,
        companion_prefix: config.companion_prefix.clone(),
        max_connection_age: config.max_connection_age,
        meaning: Arc::new(meaning),
        administration: Arc::new(administration(&config.administration)),
        guards: Arc::new(Guards::new(&config.guards, metrics)?),
        applications: Arc::new(applications),
        certificate_logins: Arc::new(CertificateLogins::new(&config.certificate_logins)),
        twins: Arc::new(twins(config)),
        computed_names: ComputedNames::Forward,
        rollouts: Rollouts::of(&details),
        details: Vec::new(),
        quarantines: false,
    };
    Ok(active.with_details(details))
}

/// The longest lease that either chain of a namespace allows, ms, whichever answers: an order may change that.
fn longest_ms(without_ttl: &Obligations, next: Option<&Next>) -> Option<u64> {
    let ceiling = |wants: &Obligations| wants.ttl_cap_ms.filter(|ms| *ms > 0);
    match next {
        None => ceiling(without_ttl),
        Some(next) => Some(ceiling(without_ttl)?.max(ceiling(&next.without_ttl)?)),
    }
}

/// The meaning of a configuration with these policies for locks.
pub fn meaning(config: &Config, generation: &Generation) -> Meaning {
    Meaning::of(config, |name| {
        let mut policies = generation.policies().iter();
        let info = policies.find(|info| &*info.name == name)?;
        Some(&info.sha256)
    })
}

/// Which users touch locks in place of which others.
fn twins(config: &Config) -> Twins {
    let twin = |mapping: &UserMapping| {
        let twin = Twin {
            user: mapping.twin.clone().into(),
            password: mapping.password.clone(),
            is_shut_out: AtomicBool::new(false),
        };
        (mapping.user.clone().into(), Arc::new(twin))
    };
    config.user_map.iter().map(twin).collect()
}

/// Which keys are locks of which namespace.
pub fn namespaces(config: &Config) -> Namespaces {
    config::namespace_index(&config.namespaces, &config.companion_prefix)
}

fn administration(config: &AdministrationConfig) -> Administration {
    let functions = config.trusted_functions.iter();
    let unknown = config.unknown_commands.iter();
    Administration {
        server_commands: config.server_commands,
        computed_names: config.computed_names,
        identities: Listed::of(&config.admin_identities),
        trusted_functions: functions.map(|name| name.to_ascii_lowercase().into_bytes()).collect(),
        unknown_commands: unknown.filter_map(|said| unknown_command(said).ok()).collect(),
    }
}

/// The length of a quarantine. If leases have no limit, `auto` would never end, which `check` refuses.
fn quarantine(quarantine: Quarantine, ceiling_ms: Option<u64>, grace_ms: u64) -> Option<Duration> {
    match quarantine {
        Quarantine::Off => None,
        Quarantine::For(time) => Some(time),
        Quarantine::Auto => Some(match ceiling_ms {
            Some(ceiling) => Duration::from_millis(ceiling.saturating_add(grace_ms)) + SILENCE,
            None => Duration::MAX,
        }),
    }
}

/// The namespaces of a configuration, as labels in metrics.
pub fn labels(config: &Config) -> Vec<(&str, ModeLabel)> {
    config.namespaces.iter().map(|namespace| (namespace.name.as_str(), mode_label(namespace.mode))).collect()
}

/// The loaded policies, as labels in metrics.
pub fn policy_infos<'a>(config: &Config, generation: &'a Generation) -> Vec<PolicyInfo<'a>> {
    let policies = generation.policies().iter();
    policies
        .map(|policy| PolicyInfo {
            name: &policy.name,
            version: policy.version.as_deref().unwrap_or_default(),
            digest: policy.digest(),
            mode: policy_mode(config, &policy.name),
        })
        .collect()
}

fn policy_mode(config: &Config, policy: &str) -> PolicyMode {
    let serves = |namespace: &&NamespaceConfig| namespace.policies.iter().any(|name| name == policy);
    let is_next = |next: &NextChain| policy.ends_with(NEXT) && next.policies.iter().any(|name| name == policy);
    let rollout = |namespace: &NamespaceConfig| namespace.enforce_for.is_some();
    if config.namespaces.iter().filter(serves).any(rollout) {
        return PolicyMode::Mixed;
    }
    if config.namespaces.iter().filter_map(|namespace| namespace.next.as_deref()).any(is_next) {
        return PolicyMode::Next;
    }
    let served = config.namespaces.iter().filter(serves);
    let mut modes = served.map(|namespace| namespace.mode);
    let Some(first) = modes.next() else {
        return PolicyMode::Unused;
    };
    match (first, modes.all(|mode| mode == first)) {
        (Mode::Enforce, true) => PolicyMode::Enforce,
        (Mode::Monitor, true) => PolicyMode::Monitor,
        (_, false) => PolicyMode::Mixed,
    }
}

fn rules(namespace: &NamespaceConfig) -> Rules {
    Rules {
        mode: namespace.mode,
        on_violation: namespace.on_violation,
        on_fault: namespace.on_fault,
        adopt: namespace.adopt,
        scripts: namespace.opaque_scripts,
        counter_locks: namespace.counter_locks,
        on_repeat: namespace.on_repeat,
        hand_over: namespace.hand_over,
        quarantined: false,
        longest_ms: None,
        tokens_ahead_ms: 0,
        durability: namespace.durability,
        trust_address: match namespace.setting("owner-token", "trust_address") {
            Some("process") => TrustAddress::Process,
            Some("no") => TrustAddress::No,
            // The policy has refused any other word.
            Some(_) | None => TrustAddress::Auto,
        },
        doubt: match namespace.setting("owner-token", "doubt") {
            Some("refuse") => Doubt::Refuse,
            Some(_) | None => Doubt::Believe,
        },
        tag: RulesTag::of(&namespace.name, namespace.settings_of("owner-token")),
        keep_alive_by: match namespace.setting("ttl-ceiling", "keep_alive_by") {
            Some("connection") => KeepAliveBy::Connection,
            Some(_) | None => KeepAliveBy::Identity,
        },
        holder_lost: namespace.holder_lost,
        released: namespace.released,
        keep_alive_ttl: match namespace.setting("ttl-ceiling", "keep_alive.ttl") {
            Some("all") => KeepAliveTtl::All,
            Some(_) | None => KeepAliveTtl::Proxy,
        },
        grace_ms: namespace.setting("ttl-ceiling", "grace").and_then(config::milliseconds).unwrap_or(0),
        debt_max_age_ms: namespace.setting("owner-token", "debt_max_age").and_then(config::milliseconds),
    }
}

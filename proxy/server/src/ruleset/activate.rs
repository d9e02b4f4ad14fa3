//! A checked configuration and its policies become what is in force.

use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lock::classify::ComputedNames;
use lockwarden_lock::decision::{Decide, Operation, Proofs, Question, Traits};
use lockwarden_lock::glob::Glob;
use lockwarden_lock::namespace::{NamespaceId, Namespaces};
use lockwarden_lock::rules::{KeepAliveBy, Mode, Rules, TrustAddress};
use lockwarden_lock::time::ProxyTime;
use lockwarden_lock::token::FencingToken;
use lockwarden_policy::{Chains, Generation};

use super::rollout::Rollout;
use super::{Active, Administration, NamespaceDetails, Rollouts, mode_label};
use crate::config::{self, AdministrationConfig, Config, NamespaceConfig};
use crate::telemetry::applications::ApplicationMap;
use crate::telemetry::metrics::{Metrics, PolicyInfo};
use crate::telemetry::vocabulary::{ModeLabel, PolicyMode};

/// Puts a checked configuration and its policies together.
pub(crate) fn activate(
    config: &Config,
    generation: Arc<Generation>,
    metrics: &Arc<Metrics>,
) -> prometheus::Result<Active> {
    metrics.set_namespaces(&labels(config))?;
    for (index, namespace) in config.namespaces.iter().enumerate() {
        if namespace.enforce_for.is_some() {
            metrics.namespace(index).expect_mode(ModeLabel::Enforce);
        }
    }
    metrics.set_policies(&policy_infos(config, &generation))?;
    let applications = ApplicationMap::new(&config.applications);
    metrics.set_applications(applications.names());
    let details = config
        .namespaces
        .iter()
        .enumerate()
        .map(|(index, namespace)| NamespaceDetails {
            name: namespace.name.as_str().into(),
            rules: rules(namespace),
            rollout: namespace
                .enforce_for
                .as_ref()
                .map(|for_whom| Arc::new(Rollout::new(for_whom, rules(namespace)))),
            ceiling_ms: ceiling_ms(index, &generation),
            metrics: metrics.namespace(index),
        })
        .collect::<Vec<_>>();
    let active = Active {
        namespaces: Arc::new(namespaces(config)),
        generation,
        companion_prefix: config.companion_prefix.clone(),
        administration: Arc::new(administration(&config.administration)),
        applications: Arc::new(applications),
        computed_names: ComputedNames::Forward,
        rollouts: Rollouts::of(&details),
        details: Vec::new(),
    };
    Ok(active.with_details(details))
}

/// Which keys are locks of which namespace.
pub(crate) fn namespaces(config: &Config) -> Namespaces {
    let globs =
        |namespace: &NamespaceConfig| namespace.keys.iter().cloned().map(Glob::new).collect();
    Namespaces::new(config.namespaces.iter().map(globs).collect())
        .without_own_keys(config.companion_prefix.clone())
}

fn administration(config: &AdministrationConfig) -> Administration {
    let names = config.admin_identities.iter();
    let functions = config.trusted_functions.iter();
    Administration {
        server_commands: config.server_commands,
        computed_names: config.computed_names,
        identities: names.map(|name| Bytes::from(name.clone())).collect(),
        trusted_functions: functions
            .map(|name| name.to_ascii_lowercase().into_bytes())
            .collect(),
    }
}

/// What a namespace's policies say to an acquire that names no TTL.
fn ceiling_ms(index: usize, generation: &Arc<Generation>) -> Option<u64> {
    let mut chains = Chains::new();
    chains.follow(generation);
    let question = Question {
        operation: Operation::Acquire,
        db: 0,
        key: b"lockwarden",
        owner_token: Some(b"lockwarden"),
        ttl_ms: None,
        proofs: Proofs::NONE,
        traits: Traits::CONDITIONAL,
        fencing_token: FencingToken(0),
        remaining_ms: 0,
        attempts: 1,
        client: 0,
        now: ProxyTime(0),
    };
    let id = NamespaceId(u16::try_from(index).ok()?);
    chains
        .decide(id, &question, &|_| None)
        .obligations
        .ttl_cap_ms
}

/// The namespaces of a configuration as the metrics name them.
pub(crate) fn labels(config: &Config) -> Vec<(&str, ModeLabel)> {
    config
        .namespaces
        .iter()
        .map(|namespace| (namespace.name.as_str(), mode_label(namespace.mode)))
        .collect()
}

/// The loaded policies as the metrics name them.
pub(crate) fn policy_infos<'a>(config: &Config, generation: &'a Generation) -> Vec<PolicyInfo<'a>> {
    let policies = generation.policies().iter();
    policies
        .map(|policy| PolicyInfo {
            name: &policy.name,
            version: policy.version.unwrap_or(""),
            digest: policy.digest(),
            mode: policy_mode(config, &policy.name),
        })
        .collect()
}

fn policy_mode(config: &Config, policy: &str) -> PolicyMode {
    let serves =
        |namespace: &&NamespaceConfig| namespace.policies.iter().any(|name| name == policy);
    let rollout = |namespace: &NamespaceConfig| namespace.enforce_for.is_some();
    if config.namespaces.iter().filter(serves).any(rollout) {
        return PolicyMode::Mixed;
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
        trust_address: match namespace.setting("owner-token", "trust_address") {
            Some("process") => TrustAddress::Process,
            Some("no") => TrustAddress::No,
            // The policy has refused any other word.
            Some(_) | None => TrustAddress::Auto,
        },
        keep_alive_by: match namespace.setting("ttl-ceiling", "keep_alive_by") {
            Some("connection") => KeepAliveBy::Connection,
            Some(_) | None => KeepAliveBy::Identity,
        },
        debt_max_age_ms: namespace
            .setting("owner-token", "debt_max_age")
            .and_then(config::milliseconds),
    }
}

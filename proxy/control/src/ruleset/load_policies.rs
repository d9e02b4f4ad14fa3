//! Loads a configuration's policies: the modules, the chains, and the settings. Every error gets its place in the file.

use std::borrow::Cow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use lockwarden_lock::namespace::NamespaceId;
use lockwarden_policy::{ChainSpec, Generation, Limits, LoadError, ModuleSource, PolicyHost, PolicySource};

use super::without_ttl::without_ttl;
use crate::config::{Config, Finding, NEXT, NamespaceConfig, NextChain, PolicyModule, Position, Quarantine};
use crate::delivery::deliver;

/// Compiles and configures all policies of the configuration.
///
/// # Errors
/// All errors; nothing is partly loaded.
pub fn load(host: &PolicyHost, config: &Config) -> Result<Arc<Generation>, Vec<Finding>> {
    let sources = sources(config)?;
    let nexts = config.namespaces.iter().filter_map(next_chain);
    let chains: Vec<ChainSpec> = config.namespaces.iter().map(chain).chain(nexts).collect();
    let loaded = host.load(&sources, &chains).map(Arc::new);
    let generation = loaded.map_err(|errors| -> Vec<Finding> {
        let each = errors.iter().flat_map(|error| findings(config, error));
        each.collect()
    })?;
    let endless = (0..).map(NamespaceId).zip(&config.namespaces).filter(|(id, namespace)| {
        // The policies are asked for it.
        let has_ceiling =
            |id, rules| without_ttl(id, rules, &generation).ttl_cap_ms.is_some_and(|ceiling_ms| ceiling_ms > 0);
        let next = || next_of(config, *id).is_none_or(|(id, next)| has_ceiling(id, &next.rules));
        namespace.quarantine == Quarantine::Auto && !(has_ceiling(*id, &namespace.rules) && next())
    });
    let endless: Vec<Finding> = endless.map(|(_, namespace)| without_end(config, namespace)).collect();
    match endless.is_empty() {
        true => Ok(generation),
        false => Err(endless),
    }
}

/// The error that nothing limits the leases which the former primary granted.
fn without_end(config: &Config, namespace: &NamespaceConfig) -> Finding {
    let position = namespace.line.map(|line| Position { line, column: 1 });
    let message = format!(
        "namespace \"{}\": quarantine = \"auto\"{} lasts as long as the longest lease, and no policy says how long that \
         is: let ttl-ceiling be one of its policies, or write a time",
        namespace.name,
        match namespace.is_strict() {
            true => ", which is part of durability = \"strict:…\",",
            false => "",
        }
    );
    Finding::error_in(config.source.as_deref(), position, message)
}

/// The modules of a configuration; remote ones are fetched in parallel.
fn sources(config: &Config) -> Result<Vec<PolicySource>, Vec<Finding>> {
    let delivered: Vec<_> = thread::scope(|threads| {
        let coming = config.policies.iter().map(|module| threads.spawn(|| deliver(module, &config.delivery)));
        let coming: Vec<_> = coming.collect();
        coming.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let (mut sources, mut errors) = (Vec::new(), Vec::new());
    for (module, delivered) in config.policies.iter().zip(delivered) {
        match delivered {
            Ok(delivered) => sources.push(source(module, delivered)),
            Err(error) => {
                let message = format!("policy {}: {error}", module.name);
                errors.push(Finding::error_in(config.source.as_deref(), module.position, message));
            }
        }
    }
    if errors.is_empty() { Ok(sources) } else { Err(errors) }
}

fn source(module: &PolicyModule, delivered: ModuleSource) -> PolicySource {
    let usual = Limits::default();
    PolicySource {
        name: module.name.clone(),
        module: delivered,
        sha256: module.sha256,
        limits: Limits {
            deadline: module.deadline,
            memory_bytes: module.memory_bytes,
            fuel: module.fuel.unwrap_or(usual.fuel),
            output_bytes: usual.output_bytes,
        },
    }
}

fn chain(namespace: &NamespaceConfig) -> ChainSpec {
    let settings = |policy: &String| namespace.settings.get(policy).cloned().unwrap_or_default();
    ChainSpec {
        namespace: namespace.name.clone(),
        policies: namespace.policies.iter().map(|policy| (policy.clone(), settings(policy))).collect(),
    }
}

/// The name of a namespace's `next` chain, in errors.
fn next_chain(namespace: &NamespaceConfig) -> Option<ChainSpec> {
    let next = namespace.next.as_deref()?;
    let policies = next.policies.iter().map(|policy| (policy.clone(), next.settings_of(policy).to_vec()));
    Some(ChainSpec { namespace: format!("{}{NEXT}", namespace.name), policies: policies.collect() })
}

/// The names of all chains of a configuration, in the order of their places.
pub fn chain_names(config: &Config) -> impl Iterator<Item = (NamespaceId, String)> {
    let nexts = config.namespaces.iter().filter(|namespace| namespace.next.is_some());
    let nexts = nexts.map(|namespace| format!("{}{NEXT}", namespace.name));
    (0..).map(NamespaceId).zip(config.namespaces.iter().map(|namespace| namespace.name.clone()).chain(nexts))
}

/// The `next` chain of a namespace, and its place: these chains come after those of all namespaces, in the same order.
pub fn next_of(config: &Config, namespace: NamespaceId) -> Option<(NamespaceId, &NextChain)> {
    let place = usize::from(namespace.0);
    let next = config.namespaces.get(place)?.next.as_deref()?;
    let before = config.namespaces[..place].iter().filter(|one| one.next.is_some()).count();
    let id = u16::try_from(config.namespaces.len() + before).ok()?;
    Some((NamespaceId(id), next))
}

/// The findings of an error: for settings that a policy rejects, each at its own place.
fn findings(config: &Config, error: &LoadError) -> Vec<Finding> {
    let LoadError::Rejected { namespace, policy, message } = error else {
        return vec![finding(config, error)];
    };
    let given = named(config, namespace);
    let given = given.as_deref();
    let problems: Vec<&str> = message.split("; ").collect();
    let names_one = |problem: &&str| given.is_some_and(|given| named_setting(given, policy, problem).is_some());
    // A policy's own message may have any form: it is split only if each part is about a setting.
    if problems.len() < 2 || !problems.iter().all(names_one) {
        return vec![finding(config, error)];
    }
    let one = |problem: &&str| {
        let rejected = LoadError::Rejected {
            namespace: namespace.clone(),
            policy: policy.clone(),
            message: (*problem).to_owned(),
        };
        finding(config, &rejected)
    };
    problems.iter().map(one).collect()
}

fn finding(config: &Config, error: &LoadError) -> Finding {
    let (namespace, policy) = about(error);
    let namespace = namespace.and_then(|name| named(config, name));
    let module = policy.and_then(|policy| config.policies.iter().find(|module| module.name == policy));
    let message = error.to_string();
    let words = match error {
        LoadError::Rejected { message, .. } => message,
        _ => &message,
    };
    let position = match (namespace.as_deref(), policy) {
        (Some(namespace), Some(policy)) => named_setting(namespace, policy, words)
            .and_then(|setting| namespace.setting_position(in_file(policy), setting))
            .or_else(|| namespace.policy_position(in_file(policy))),
        (_, _) => module.and_then(|module| module.position),
    };
    Finding::error_in(config.source.as_deref(), position, message)
}

/// The namespace of this name. For the name of a `next` chain, its namespace with that chain.
fn named<'a>(config: &'a Config, name: &str) -> Option<Cow<'a, NamespaceConfig>> {
    let namespace = |name| config.namespaces.iter().find(|namespace| namespace.name == name);
    let next = || namespace(name.strip_suffix(NEXT)?)?.with_next().map(Cow::Owned);
    namespace(name).map(Cow::Borrowed).or_else(next)
}

/// A policy's name in the file, without the suffix of a next version.
fn in_file(policy: &str) -> &str {
    policy.strip_suffix(NEXT).unwrap_or(policy)
}

/// The first setting that a policy's own message names, if any.
fn named_setting<'a>(namespace: &'a NamespaceConfig, policy: &str, message: &str) -> Option<&'a str> {
    let settings = namespace.settings.get(in_file(policy))?;
    settings
        .iter()
        .filter_map(|(name, _)| Some((message.find(name.as_str())?, name.as_str())))
        .min_by_key(|(place, name)| (*place, std::cmp::Reverse(name.len())))
        .map(|(_, name)| name)
}

/// The namespace and the policy that an error is about.
fn about(error: &LoadError) -> (Option<&str>, Option<&str>) {
    match error {
        LoadError::Unknown { namespace, policy, .. }
        | LoadError::TwiceInChain { namespace, policy }
        | LoadError::Rejected { namespace, policy, .. }
        | LoadError::Faulty { namespace, policy, .. }
        | LoadError::NoProofCounts { namespace, policy, .. }
        | LoadError::Contradiction { namespace, first: policy, .. } => (Some(namespace), Some(policy)),
        LoadError::Read { policy, .. }
        | LoadError::TooLarge { policy, .. }
        | LoadError::Pin { policy, .. }
        | LoadError::NotWasm { policy, .. }
        | LoadError::ForeignImports { policy, .. }
        | LoadError::ForDebugging { policy, .. }
        | LoadError::Version { policy, .. }
        | LoadError::NotAPolicy { policy, .. }
        | LoadError::Limits { policy, .. }
        | LoadError::DefinedTwice { policy } => (None, Some(policy)),
        LoadError::TooMany { .. } => (None, None),
    }
}

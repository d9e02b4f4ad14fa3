//! The effect of a configuration change on refusals: reads the file with the change, as a reload would, and translates each key
//! into a rule that the view can apply to the remembered refusals.

use std::path::Path;
use std::sync::Arc;

use lockwarden_console::view::what_if::{Change, of_mode};
use lockwarden_control::config;
use lockwarden_control::config::{Config, NamespaceConfig, Quarantine, TypedChange, Unusable};
use lockwarden_control::ruleset::activate::namespaces;

/// Keys of a namespace that decide how a refusal is reported, what follows from a lease, or what happens without a decision.
const NOT_ABOUT_REFUSALS: [&str; 5] = ["on_violation", "adopt", "holder_lost", "on_repeat", "release"];
/// Keys at the top of the file that affect refusals.
const ABOUT_REFUSALS: [&str; 12] = [
    "server_commands",
    "admin_identities",
    "computed_names",
    "trusted_functions",
    "unknown_commands",
    "audit_required",
    "companion_prefix",
    "backend",
    "sentinel",
    "proxy_protocol_from",
    "sessions",
    "user_map",
];

/// All errors of the changed file, in words.
pub(super) fn wrong(unusable: &Unusable) -> String {
    let errors = unusable.0.iter();
    let errors = errors.filter(|finding| finding.severity == config::Severity::Error);
    let words: Vec<&str> = errors.map(|finding| &*finding.message).collect();
    format!("{}; nothing was changed or reckoned: `lockwarden config` lists the keys", words.join("; "))
}

/// The file with the changes.
pub(super) fn changed_text(file: Option<&Path>, changes: &[&str]) -> Result<(String, Vec<TypedChange>), String> {
    let file = file.ok_or("this proxy was started without a configuration file")?;
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("the configuration file cannot be read: {error}"))?;
    config::with_typed_changes(&text, changes)
}

/// The effect of a change on refusals, in the configuration that contains it.
pub(super) fn rule(change: &TypedChange, new: &Config) -> Change {
    let Some((kind, name)) = &change.table else {
        return at_the_top(&change.key, new);
    };
    let mut all = new.namespaces.iter();
    let namespace = all.find(|one| kind == "namespace" && one.name == *name);
    match (namespace, change.policy.as_deref()) {
        (Some(namespace), Some(policy)) => of_policy(namespace, policy, &change.key),
        (Some(namespace), None) => of_namespace(namespace, &change.key, new),
        // Guards, names of applications.
        (None, _) => Change::Open { namespace: None },
    }
}

fn at_the_top(key: &str, new: &Config) -> Change {
    match key {
        "admin_identities" => Change::Administrators(new.administration.admin_identities.clone()),
        key if ABOUT_REFUSALS.contains(&key) => Change::Open { namespace: None },
        _ => Change::Nothing,
    }
}

fn of_namespace(namespace: &NamespaceConfig, key: &str, new: &Config) -> Change {
    let name = namespace.name.clone();
    match key {
        "mode" => of_mode(name, namespace.mode),
        "hand_over" if namespace.hand_over => Change::HandOver(name),
        "counter_locks" if namespace.counter_locks => Change::Counters(name),
        "quarantine" if namespace.quarantine == Quarantine::Off && !namespace.is_strict() => Change::NoQuarantine(name),
        "keys" => {
            let names = new.namespaces.iter().map(|one| one.name.clone());
            Change::Keys(Arc::new(namespaces(new)), names.collect())
        }
        key if NOT_ABOUT_REFUSALS.contains(&key) => Change::Nothing,
        _ => Change::Open { namespace: Some(name) },
    }
}

fn of_policy(namespace: &NamespaceConfig, policy: &str, key: &str) -> Change {
    let name = namespace.name.clone();
    let says = |key: &str, word: &str| {
        let list = namespace.setting("owner-token", key);
        list.map(|list| list.split(',').any(|one| one.trim() == word))
    };
    match (policy, key) {
        ("owner-token", "void_after_refusal" | "proofs" | "doubt") => {
            // The policy's default if the file does not set it.
            let is_void = namespace.setting("owner-token", "doubt") == Some("refuse");
            Change::Identity {
                namespace: name,
                counts: says("proofs", "identity").unwrap_or(true)
                    && !says("void_after_refusal", "identity").unwrap_or(is_void),
            }
        }
        ("owner-token", "shared_tokens") if says(key, "report") == Some(true) => Change::SharedTokens(name),
        _ => Change::Open { namespace: Some(name) },
    }
}

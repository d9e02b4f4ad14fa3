//! The changes of a reload, in a few words for the log: those in force from now on, and those that take a restart. Values of
//! settings are named only for the policies that ship with the proxy: the settings of other policies are their authors'
//! concern.

use lockwarden_control::config::{BUILT_IN_POLICIES, Config, NamespaceConfig};
use lockwarden_policy::{Generation, PolicyInfo, RULES};

/// Changes in force at once.
pub(super) fn changes(old: &Config, new: &Config) -> Vec<String> {
    let mut changes = Vec::new();
    let named = |config: &'_ Config, name: &str| {
        let mut namespaces = config.namespaces.iter();
        namespaces.position(|namespace| namespace.name == name)
    };
    for namespace in &new.namespaces {
        match named(old, &namespace.name) {
            Some(at) => of_namespace(&old.namespaces[at], namespace, &mut changes),
            None => changes.push(format!("namespace {} is new", namespace.name)),
        }
    }
    for gone in &old.namespaces {
        if named(new, &gone.name).is_none() {
            changes.push(format!("namespace {} is gone", gone.name));
        }
    }
    let (was, is) = (&old.administration, &new.administration);
    for (same, key) in [
        (was.server_commands == is.server_commands, "server_commands"),
        (was.admin_identities == is.admin_identities, "admin_identities"),
        (was.computed_names == is.computed_names, "computed_names"),
        (was.trusted_functions == is.trusted_functions, "trusted_functions"),
        (was.unknown_commands == is.unknown_commands, "unknown_commands"),
        (old.companion_prefix == new.companion_prefix, "companion_prefix"),
        (old.applications == new.applications, "application"),
        (old.certificate_logins == new.certificate_logins, "certificate_login"),
        (old.guards == new.guards, "guard"),
        (old.user_map == new.user_map, "user_map"),
        (old.max_connection_age == new.max_connection_age, "max_connection_age"),
        (old.audit == new.audit, "audit"),
    ] {
        if !same {
            changes.push(key.to_owned());
        }
    }
    changes
}

fn of_namespace(old: &NamespaceConfig, new: &NamespaceConfig, changes: &mut Vec<String>) {
    for (same, key) in [
        (old.keys == new.keys, "keys"),
        (old.mode == new.mode, "mode"),
        (old.enforce_for == new.enforce_for, "enforce_for"),
        (old.auto_back == new.auto_back, "auto_back"),
        (old.policies == new.policies, "policies"),
        (old.next == new.next, "next"),
        (old.on_violation == new.on_violation, "on_violation"),
        (old.on_fault == new.on_fault, "on_fault"),
        (old.adopt == new.adopt, "adopt"),
        (old.opaque_scripts == new.opaque_scripts, "opaque_scripts"),
        (old.trusted_scripts == new.trusted_scripts, "trusted_scripts"),
        (old.counter_locks == new.counter_locks, "counter_locks"),
        (old.on_repeat == new.on_repeat, "on_repeat"),
        (old.hand_over == new.hand_over, "hand_over"),
        (old.released == new.released, "release"),
    ] {
        if !same {
            changes.push(format!("{} {key}", new.name));
        }
    }
    rules(old, new, changes);
    for policy in new.policies.iter().filter(|policy| *policy != RULES) {
        let settings = |namespace: &NamespaceConfig| {
            let settings = namespace.settings.get(policy);
            settings.cloned().unwrap_or_default()
        };
        let (before, after) = (settings(old), settings(new));
        let all = before.iter().chain(&after).map(|(setting, _)| setting);
        let all: std::collections::BTreeSet<_> = all.collect();
        for setting in all {
            let (was, is) = (old.setting(policy, setting), new.setting(policy, setting));
            if was == is {
                continue;
            }
            let place = format!("{} {policy}.{setting}", new.name);
            changes.push(match BUILT_IN_POLICIES.contains(&policy.as_str()) {
                true => format!("{place} {} -> {}", was.unwrap_or("(built in)"), is.unwrap_or("(built in)")),
                false => place,
            });
        }
    }
}

/// The rules that differ now. Their content is in the file.
fn rules(old: &NamespaceConfig, new: &NamespaceConfig, changes: &mut Vec<String>) {
    let named = |namespace: &'_ NamespaceConfig, name: &str| {
        let mut rules = namespace.rules.iter();
        rules.position(|rule| rule.name == name)
    };
    for rule in &new.rules {
        match named(old, &rule.name) {
            Some(at) if old.rules[at] == *rule => {}
            Some(_) => changes.push(format!("{} rule {}", new.name, rule.name)),
            None => changes.push(format!("{} rule {} is new", new.name, rule.name)),
        }
    }
    for gone in &old.rules {
        if named(new, &gone.name).is_none() {
            changes.push(format!("{} rule {} is gone", new.name, gone.name));
        }
    }
    let stay = |one: &'_ NamespaceConfig, other: &'_ NamespaceConfig| -> Vec<String> {
        let rules = one.rules.iter().filter(|rule| named(other, &rule.name).is_some());
        rules.map(|rule| rule.name.clone()).collect()
    };
    if stay(old, new) != stay(new, old) {
        changes.push(format!("{} order of rules", new.name));
    }
}

/// Policies whose code differs now.
pub(super) fn modules(old: &Generation, new: &Generation) -> Vec<String> {
    let before = old.policies();
    let is_other = |policy: &&PolicyInfo| {
        let was = before.iter().find(|was| was.name == policy.name);
        was.is_some_and(|was| was.sha256 != policy.sha256)
    };
    let others = new.policies().iter().filter(is_other);
    others.map(|policy| format!("module of {}", policy.name)).collect()
}

/// The keys that [`unchangeable`] checks, and other keys for the same settings.
pub(super) const KEYS_OF_A_RESTART: [&str; 24] = [
    "backend_login",
    "backend_tls",
    "tls",
    "listen",
    "listener",
    "backend",
    "backend_password_file",
    "admin",
    "admin_token",
    "admin_token_file",
    "metrics",
    "allow_open",
    "cluster_node",
    "metrics_max_namespaces",
    "proxy_protocol_from",
    "sessions",
    "log_format",
    "drain",
    "sweep",
    "moving_patience",
    "max_clients",
    "max_memory",
    "audit_file",
    "audit_key_file",
];

/// Keys of the configuration that only a restart changes.
pub(super) fn unchangeable(old: &Config, new: &Config) -> Vec<&'static str> {
    let mut changed = Vec::new();
    let mut compare = |same: bool, key: &'static str| {
        if !same {
            changed.push(key);
        }
    };
    let [(listen, others), (new_listen, new_others)] =
        [old, new].map(|config| config.listeners.split_at(1.min(config.listeners.len())));
    compare(listen == new_listen, "listen");
    compare(others == new_others, "listener");
    compare(old.backend == new.backend, "backend");
    compare(old.backend_login == new.backend_login, "backend_login");
    compare(old.backend_tls == new.backend_tls, "backend_tls");
    compare(old.tls == new.tls, "tls");
    compare(old.admin == new.admin, "admin");
    compare(old.admin_token == new.admin_token, "admin_token");
    compare(old.metrics == new.metrics, "metrics");
    compare(old.allow_open == new.allow_open, "allow_open");
    compare(old.cluster_node == new.cluster_node, "cluster_node");
    compare(old.metrics_max_namespaces == new.metrics_max_namespaces, "metrics_max_namespaces");
    compare(old.proxy_protocol_from == new.proxy_protocol_from, "proxy_protocol_from");
    compare(old.sessions == new.sessions, "sessions");
    compare(old.log_format == new.log_format, "log_format");
    compare(old.drain == new.drain, "drain");
    compare(old.sweep == new.sweep, "sweep");
    compare(old.moving_patience == new.moving_patience, "moving_patience");
    compare(old.max_clients == new.max_clients, "max_clients");
    compare(old.max_memory == new.max_memory, "max_memory");
    compare(old.audit.target == new.audit.target, "audit_file");
    compare(old.audit.key == new.audit.key, "audit_key_file");
    changed
}

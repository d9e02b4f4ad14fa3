//! What a configuration means for locks, in one canonical form, and the hash of that form. Two proxies with the same
//! hash judge every command alike. Addresses, listeners, logins, limits, logs and times that only concern the process
//! are left out; `docs/operations.md` lists both kinds. [`Meaning::of`] names every field of [`Config`], so a new field
//! does not compile until it is assigned to one of the kinds.
//!
//! A key that is added in a later version adds nothing here while its value keeps the earlier behaviour: otherwise each
//! new version would have another hash for the same rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use lockwarden_lock::key_sets::KeyRange;
use lockwarden_lock::rules::{Durability, HolderLost, Released};
use lockwarden_policy::RULES;
use sha2::{Digest, Sha256};

use super::administration::{AdministrationConfig, COMPUTED_NAMES, SERVER_COMMANDS};
use super::application::ApplicationRule;
use super::audit::AuditConfig;
use super::certificate_login::CertificateLogin;
use super::enforce_for::EnforceFor;
use super::guard::GuardConfig;
use super::listener::ListenAddress;
use super::namespace::{
    ADOPT, MODES, NamespaceConfig, ON_FAULT, ON_REPEAT, ON_VIOLATION, OPAQUE_SCRIPTS, Quarantine, RELEASE,
};
use super::next::NextChain;
use super::policy::{BUILT_IN_POLICIES, PolicyModule};
use super::types::Config;
use super::user_map::UserMapping;
use super::value::milliseconds;

/// The number of hex digits that people compare.
const DIGITS: usize = 12;
/// The most pairs of globs that are compared to find out where the order of namespaces matters; a comparison takes less
/// than a microsecond. With more pairs, the whole order counts.
const MAX_PAIRS: usize = 250_000;

/// One statement of a configuration about locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Says {
    /// The table, such as `namespace orders`; `None`: the top of the file.
    pub table: Option<String>,
    pub key: String,
    /// In one canonical spelling, however the file writes it.
    pub value: String,
    /// The value may be secret.
    pub is_hidden: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meaning {
    says: Vec<Says>,
    hash: String,
}

impl Meaning {
    /// The meaning of a configuration whose policy modules have these digests.
    pub fn of<'a>(config: &Config, digest: impl Fn(&str) -> Option<&'a str>) -> Meaning {
        let Config {
            listeners: _,
            backend: _,
            backend_login: _,
            backend_tls: _,
            tls: _,
            admin: _,
            admin_token: _,
            metrics: _,
            metrics_max_namespaces: _,
            allow_open: _,
            cluster_node: _,
            companion_prefix,
            proxy_protocol_from: _,
            sessions: _,
            log_format: _,
            drain: _,
            sweep: _,
            moving_patience: _,
            max_memory: _,
            max_clients: _,
            max_connection_age: _,
            namespaces,
            guards,
            user_map,
            applications,
            certificate_logins,
            administration,
            audit,
            delivery: _,
            policies,
            said: _,
            source: _,
        } = config;
        let AuditConfig { level: _, target: _, limits: _, required, questions: _, key: _ } = audit;
        let mut says = List::default();
        says.on_top("companion_prefix", bytes(companion_prefix));
        administered(administration, &mut says);
        says.on_top("audit_required", required);
        says.on_top("guard", list(sorted(guards.iter().map(guard))));
        says.on_top("user_map", list(sorted(user_map.iter().map(twin))));
        // Their order counts: the first that matches a client wins.
        says.on_top("application", list(applications.iter().map(application)));
        let logins = certificate_logins.iter().map(certificate_login);
        says.on_top("certificate_login", list(logins));
        let mut by_name: Vec<_> = namespaces.iter().collect();
        by_name.sort_by_key(|namespace| &namespace.name);
        for namespace in by_name {
            of_namespace(namespace, &mut says);
        }
        order(namespaces, &mut says);
        let used = namespaces.iter().flat_map(|namespace| {
            let next = answering(namespace.next.as_deref()).map(|next| &next.policies);
            namespace.policies.iter().chain(next.into_iter().flatten())
        });
        for name in used.collect::<BTreeSet<_>>() {
            let module = policies.iter().find(|module| module.name == *name);
            of_policy(name, module, digest(name), &mut says);
        }
        says.finish()
    }

    /// Everything that it says, in a fixed order.
    pub fn says(&self) -> &[Says] {
        &self.says
    }

    /// The first twelve hex digits of its SHA-256.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// The first hex digits of the SHA-256 of a text.
pub fn short_digest(text: &str) -> String {
    short(Sha256::digest(text))
}

fn short(digest: impl AsRef<[u8]>) -> String {
    let bytes = digest.as_ref().iter().take(DIGITS / 2);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// The statements, in the order in which they are hashed.
#[derive(Default)]
struct List {
    says: Vec<Says>,
}

impl List {
    fn on_top(&mut self, key: &str, value: impl Display) {
        self.put(None, key, value, false);
    }

    fn put(&mut self, table: Option<&str>, key: &str, value: impl Display, is_hidden: bool) {
        self.says.push(Says {
            table: table.map(str::to_owned),
            key: key.to_owned(),
            value: value.to_string(),
            is_hidden,
        });
    }

    fn finish(self) -> Meaning {
        let mut hash = Sha256::new();
        for Says { table, key, value, .. } in &self.says {
            // No part contains a NUL or a line end: text chosen by people is escaped.
            hash.update(format!("{}\0{key}\0{value}\n", table.as_deref().unwrap_or("")));
        }
        Meaning { says: self.says, hash: short(hash.finalize()) }
    }
}

fn administered(administration: &AdministrationConfig, says: &mut List) {
    let AdministrationConfig { server_commands, admin_identities, computed_names, trusted_functions, unknown_commands } =
        administration;
    says.on_top("server_commands", word(server_commands, &SERVER_COMMANDS));
    // A client that knows one can take its name.
    let names = list(sorted(admin_identities.iter().map(quoted)));
    says.put(None, "admin_identities", names, true);
    says.on_top("computed_names", word(computed_names, &COMPUTED_NAMES));
    let lower = trusted_functions.iter().map(|name| name.to_ascii_lowercase());
    says.on_top("trusted_functions", list(sorted(lower.map(quoted))));
    let lower = unknown_commands.iter().map(|said| said.to_ascii_lowercase());
    says.on_top("unknown_commands", list(sorted(lower.map(quoted))));
}

fn of_namespace(namespace: &NamespaceConfig, says: &mut List) {
    let NamespaceConfig {
        name,
        keys,
        mode,
        enforce_for,
        auto_back,
        policies,
        settings,
        // They are part of the settings.
        rules: _,
        next,
        on_violation,
        on_fault,
        adopt,
        opaque_scripts,
        trusted_scripts,
        counter_locks,
        on_repeat,
        hand_over,
        released,
        quarantine,
        durability,
        holder_lost,
        line: _,
        policy_positions: _,
        setting_positions: _,
    } = namespace;
    let table = format!("namespace {name}");
    let mut put = |key: &str, value: String| says.put(Some(&table), key, value, false);
    put("keys", list(sorted(keys.iter().map(bytes))));
    put("mode", word(mode, &MODES).to_owned());
    if let Some(whom) = enforce_for {
        put("enforce_for", for_whom(whom));
    }
    if *auto_back {
        put("auto_back", auto_back.to_string());
    }
    put("policies", list(policies.iter().map(quoted)));
    put("on_violation", word(on_violation, &ON_VIOLATION).to_owned());
    put("on_fault", word(on_fault, &ON_FAULT).to_owned());
    put("adopt", word(adopt, &ADOPT).to_owned());
    put("opaque_scripts", word(opaque_scripts, &OPAQUE_SCRIPTS).to_owned());
    if !trusted_scripts.is_empty() {
        put("trusted_scripts", list(sorted(trusted_scripts.iter().map(quoted))));
    }
    put("counter_locks", counter_locks.to_string());
    put("on_repeat", word(on_repeat, &ON_REPEAT).to_owned());
    put("hand_over", hand_over.to_string());
    if *released == Released::Forget {
        put("release", word(released, &RELEASE).to_owned());
    }
    match quarantine {
        Quarantine::Off => {}
        Quarantine::Auto => put("quarantine", "auto".to_owned()),
        Quarantine::For(time) => put("quarantine", format!("{}ms", time.as_millis())),
    }
    if let Some(Durability { replicas, within_ms, is_strict }) = durability {
        let kind = if *is_strict { "strict" } else { "wait" };
        put("durability", format!("{kind}:{replicas}:{within_ms}ms"));
    }
    match holder_lost {
        HolderLost::Keep => {}
        HolderLost::Shorten { ms } => put("holder_lost", format!("shorten:{ms}ms")),
    }
    of_settings(&table, "", settings, says);
    if let Some(NextChain { stage, policies, settings, rules: _, policy_positions: _, setting_positions: _ }) =
        answering(next.as_deref())
    {
        says.put(Some(&table), "next.stage", stage, false);
        says.put(Some(&table), "next.policies", list(policies.iter().map(quoted)), false);
        of_settings(&table, "next.", settings, says);
    }
}

/// A `next` chain is part of the meaning only where it answers clients.
fn answering(next: Option<&NextChain>) -> Option<&NextChain> {
    next.filter(|next| next.stage.percent > 0)
}

fn of_settings(table: &str, before: &str, settings: &BTreeMap<String, Vec<(String, String)>>, says: &mut List) {
    for (policy, settings) in settings {
        let is_built_in = BUILT_IN_POLICIES.contains(&policy.as_str());
        for (setting, value) in settings {
            let key = format!("{before}settings.{policy}.{}", setting.escape_debug());
            let value = match milliseconds(value).filter(|_| is_built_in) {
                Some(time) => format!("{time}ms"),
                // A zone's value is the list of its changes over fifty years.
                None if policy == RULES && setting.starts_with("zone.") => short_digest(value),
                None => quoted(value),
            };
            // Settings of policies that do not ship with the proxy may be secret.
            says.put(Some(table), &key, value, !is_built_in);
        }
    }
}

fn for_whom(whom: &EnforceFor) -> String {
    let EnforceFor { clients, applications, certificates, percent } = whom;
    let clients = list(sorted(clients.iter().map(bytes)));
    let applications = list(sorted(applications.iter().map(quoted)));
    let certificates = list(sorted(certificates.iter().map(bytes)));
    format!("clients {clients} applications {applications} certificates {certificates} percent {percent}")
}

/// For each namespace, the earlier ones that share keys with it: only for these does the order matter.
fn order(namespaces: &[NamespaceConfig], says: &mut List) {
    let number: usize = namespaces.iter().map(|namespace| namespace.keys.len()).sum();
    if number.saturating_mul(number) / 2 > MAX_PAIRS {
        let names = namespaces.iter().map(|namespace| quoted(&namespace.name));
        says.on_top("order of namespaces", list(names));
        return;
    }
    let ranges = |namespace: &NamespaceConfig| -> Vec<KeyRange> {
        namespace.keys.iter().map(|glob| KeyRange::of(glob)).collect()
    };
    let ranges: Vec<Vec<KeyRange>> = namespaces.iter().map(ranges).collect();
    let share = |one: &[KeyRange], two: &[KeyRange]| one.iter().any(|a| two.iter().any(|b| a.may_share_a_key_with(b)));
    let mut all = Vec::new();
    for (place, namespace) in namespaces.iter().enumerate() {
        let earlier = namespaces[..place].iter().zip(&ranges);
        let sharing = earlier.filter(|(_, earlier)| share(earlier, &ranges[place]));
        let names = sorted(sharing.map(|(earlier, _)| quoted(&earlier.name)));
        if !names.is_empty() {
            all.push((format!("namespace {}", namespace.name), list(names)));
        }
    }
    all.sort();
    for (table, before) in all {
        says.put(Some(&table), "comes after", before, false);
    }
}

fn of_policy(name: &str, module: Option<&PolicyModule>, digest: Option<&str>, says: &mut List) {
    let table = format!("policy {name}");
    let mut put = |key: &str, value: String| says.put(Some(&table), key, value, false);
    put("module", digest.unwrap_or("unknown").to_owned());
    let Some(module) = module else {
        return;
    };
    let PolicyModule {
        name: _,
        place: _,
        // The digest of the module itself is more precise.
        sha256: _,
        keys: _,
        min_version: _,
        deadline,
        memory_bytes,
        fuel,
        stage: _,
        position: _,
    } = module;
    put("deadline", format!("{}ms", deadline.as_millis()));
    put("memory", memory_bytes.to_string());
    let fuel = fuel.map(|fuel| fuel.to_string());
    put("fuel", fuel.unwrap_or("(the host's)".to_owned()));
}

fn twin(mapping: &UserMapping) -> String {
    let UserMapping { user, twin, password_file: _, password: _ } = mapping;
    format!("{} by {}", quoted(user), quoted(twin))
}

fn application(rule: &ApplicationRule) -> String {
    let ApplicationRule { name, from, process, user, client, certificate, listener } = rule;
    let mut text = quoted(name);
    if !from.is_empty() {
        text.push_str(&format!(" from {}", list(sorted(from))));
    }
    for (word, glob) in [("process", process), ("user", user), ("client", client), ("certificate", certificate)] {
        if let Some(glob) = glob {
            text.push_str(&format!(" {word} {}", bytes(glob)));
        }
    }
    match listener {
        // Each proxy has its own address; only the port is common.
        Some(ListenAddress::Tcp(address)) => {
            text.push_str(&format!(" listener port {}", address.port()));
        }
        Some(ListenAddress::Unix(path)) => {
            text.push_str(&format!(" listener {}", quoted(path.to_string_lossy())));
        }
        None => {}
    }
    text
}

fn guard(guard: &GuardConfig) -> String {
    let GuardConfig { name, keys, locks, mode, unlocked, by_identity, exempt } = guard;
    format!("{name} keys {keys:?} lock {locks:?} {} {unlocked:?} {by_identity} exempt {exempt:?}", word(mode, &MODES))
}

fn certificate_login(login: &CertificateLogin) -> String {
    let CertificateLogin { name, user, password_file: _ } = login;
    format!("{} as {}", bytes(name), quoted(user))
}

/// The file's word for one of the values that a key may have.
fn word<T: PartialEq>(value: &T, words: &[(&'static str, T)]) -> &'static str {
    let found = words.iter().find(|(_, one)| one == value);
    found.map_or("?", |(word, _)| word)
}

fn quoted(text: impl AsRef<str>) -> String {
    format!("\"{}\"", text.as_ref().escape_debug())
}

fn bytes(text: impl AsRef<[u8]>) -> String {
    format!("\"{}\"", text.as_ref().escape_ascii())
}

fn sorted(entries: impl IntoIterator<Item: ToString>) -> BTreeSet<String> {
    entries.into_iter().map(|entry| entry.to_string()).collect()
}

fn list(entries: impl IntoIterator<Item = String>) -> String {
    let entries: Vec<String> = entries.into_iter().collect();
    format!("[{}]", entries.join(", "))
}

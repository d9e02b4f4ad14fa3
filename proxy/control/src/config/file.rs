//! The top of the file: addresses, backend, secrets. Reads the whole file into the draft, including namespaces and
//! policies. The environment and the flags are read by `overrides`; conflicts are found by `draft`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;

use super::document::Document;
use super::draft::{Draft, Layered};
use super::finding::{Findings, Place};
use super::keys::TOP_KEYS;
use super::logging::LOG_FORMATS;
use super::policy::PolicyModule;
use super::reader::{Key, Reader, Section, one_of};
use super::secret::{Secret, SecretError, SecretFileError};
use super::suggest::quoted;
use super::types::{Config, Sessions};
use super::{
    administration, application, audit, backend, backend_login, certificate_login, delivery, document, guard, listener,
    namespace, network, next_version, policy, secret, sentinel, tls, user_map, value,
};

/// The longest wait for clients when the proxy stops. Holders of locks may need long; a service manager must be
/// configured to wait as long (`TimeoutStopSec`).
const MAX_DRAIN: Duration = Duration::from_secs(3600);
const MAX_MOVING_PATIENCE: Duration = Duration::from_secs(60);

/// The shortest time between two walks over the server's keys: a single walk takes 20 ms for 500 keys.
const MIN_SWEEP: Duration = Duration::from_millis(100);
const MAX_SWEEP: Duration = Duration::from_secs(86_400);

const SESSIONS: [(&str, Sessions); 2] = [("dedicated", Sessions::Dedicated), ("multiplexed", Sessions::Multiplexed)];

/// The most networks of load balancers; every new connection is compared with all of them.
const MAX_NETWORKS: usize = 100;

/// On Linux, no process may have more file descriptors unless the kernel's own limit is changed.
const MAX_CLIENTS: u64 = 1_000_000;

/// The memory limit for clients' buffers, bytes.
const MEMORY: RangeInclusive<usize> = 1 << 20..=1 << 40;

/// The longest age of a client's connection. Below the minimum, clients would spend their time on connecting.
const CONNECTION_AGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);

/// Most namespaces with metric series of their own.
const MAX_METRIC_NAMESPACES: u64 = 1000;

/// Reads the file at `path` into the draft.
pub(super) fn read(path: &Path, draft: &mut Draft, findings: &mut Findings) {
    // Until the names are read, a mode override for an unknown namespace is not known to be wrong.
    draft.all_named = false;
    if let Some(text) = document::read(path, findings) {
        read_text((path, &text), draft, findings);
    }
}

/// Reads the text of the file at `path` into the draft.
pub(super) fn read_text((path, text): (&Path, &str), draft: &mut Draft, findings: &mut Findings) {
    draft.all_named = false;
    let document = Document::new(path, text);
    let Some(tree) = document.parse(findings) else {
        return;
    };
    draft.config.said.in_file(&document, tree.get_ref());
    let mut reader = Reader { document: &document, findings };
    read_top(&mut reader, tree.get_ref(), draft);
}

fn read_top(reader: &mut Reader<'_>, table: &DeTable<'_>, draft: &mut Draft) {
    let top = Section { table, span: 0..0, known: TOP_KEYS, scope: String::new() };

    read_addresses(reader, &top, draft);
    read_running(reader, &top, &mut draft.config);

    draft.config.administration = administration::read(reader, &top);
    draft.config.audit = audit::read(reader, &top);
    let key = secret_file(reader.document, secret::password);
    let key = reader.parsed(&top, "audit_key_file", key);
    draft.config.audit.key = key.and_then(|found| found.value);

    draft.guards = guard::read(reader, &top);
    draft.config.user_map = user_map::read(reader, &top);
    draft.config.applications = application::read(reader, &top);
    draft.certificate_logins = certificate_login::read(reader, &top);
    draft.config.delivery = delivery::read(reader, &top);
    let (modules, module_names) = policy::read(reader, &top, draft.config.delivery.require_signed);
    draft.all_named = true;
    if let Some(namespaces) = namespace::read(reader, &top, &module_names, &draft.config.applications) {
        draft.all_named = namespaces.all_named;
        draft.config.namespaces = namespaces.list;
        next_version::follow_policies(reader, &mut draft.config.namespaces, &modules);
    }
    unused_modules(reader, &modules, draft);
    draft.config.policies = modules;
    reader.unknown_keys(&top, elsewhere);
}

/// The addresses, who may come in by them, and the backend.
fn read_addresses(reader: &mut Reader<'_>, top: &Section<'_, '_>, draft: &mut Draft) {
    layer(reader, top, "listen", listener::listen_or_off, &mut draft.listen);
    draft.listeners = listener::read(reader, top);
    draft.backend_login = backend_login::read(reader, top);
    draft.sentinel = sentinel::read(reader, top);
    draft.backend_tls = tls::read_backend(reader, top);
    draft.tls = tls::read(reader, top);
    layer(reader, top, "backend", backend::backend, &mut draft.backend);
    let password = secret_file(reader.document, secret::password);
    let target = &mut draft.backend_password;
    layer(reader, top, "backend_password_file", password, target);
    layer(reader, top, "admin", value::address_or_off, &mut draft.admin);
    layer(reader, top, "metrics", value::address_or_off, &mut draft.metrics);
    read_admin_token(reader, top, draft);
    if let Some(allow_open) = reader.boolean(top, "allow_open") {
        draft.config.allow_open = allow_open.value;
    }
    if let Some(node) = reader.boolean(top, "cluster_node") {
        draft.cluster_node.set(Some(node.value), reader.document.place(node.span));
    }
    let balancers = reader.strings(top, "proxy_protocol_from", MAX_NETWORKS, network::network);
    if let Some(balancers) = balancers {
        let networks = balancers.value.into_iter().map(|network| network.value);
        draft.config.proxy_protocol_from = networks.collect();
    }
}

/// How the proxy runs: what it keeps and logs, how long it waits, and its limits.
fn read_running(reader: &mut Reader<'_>, top: &Section<'_, '_>, config: &mut Config) {
    if let Some(most) = reader.integer(top, "metrics_max_namespaces", 1..=MAX_METRIC_NAMESPACES) {
        config.metrics_max_namespaces = most.value as usize;
    }
    reader.put(top, "companion_prefix", value::companion_prefix, &mut config.companion_prefix);
    reader.put(top, "sessions", |text| one_of(text, &SESSIONS), &mut config.sessions);
    reader.put(top, "log_format", |text| one_of(text, &LOG_FORMATS), &mut config.log_format);
    let drain = |text: &str| value::duration(text, Duration::ZERO..=MAX_DRAIN);
    reader.put(top, "drain", drain, &mut config.drain);
    let sweep = |text: &str| value::duration_or_off(text, MIN_SWEEP..=MAX_SWEEP);
    reader.put(top, "sweep", sweep, &mut config.sweep);
    let patience = |text: &str| value::duration(text, Duration::ZERO..=MAX_MOVING_PATIENCE);
    reader.put(top, "moving_patience", patience, &mut config.moving_patience);
    if let Some(most) = reader.integer(top, "max_clients", 1..=MAX_CLIENTS) {
        config.max_clients = Some(most.value);
    }
    let age = |text: &str| value::duration_or_off(text, CONNECTION_AGE);
    reader.put(top, "max_connection_age", age, &mut config.max_connection_age);
    let most = |text: &str| value::size(text, MEMORY).map(Some);
    reader.put(top, "max_memory", most, &mut config.max_memory);
}

/// Puts the file's value over the built-in one. An unusable value leaves its place, so that it is not also reported as
/// missing.
fn layer<T, E: Display>(
    reader: &mut Reader<'_>,
    top: &Section<'_, '_>,
    key: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
    target: &mut Layered<T>,
) {
    let found = reader.parsed(top, key, parse).map(|found| found.value);
    if let Some(value) = top.table.get(key) {
        target.set(found, reader.document.place(value.span()));
    }
}

fn read_admin_token(reader: &mut Reader<'_>, top: &Section<'_, '_>, draft: &mut Draft) {
    let target = &mut draft.admin_token;
    let inline = |text: &str| secret::admin_token(text).map(Some);
    layer(reader, top, "admin_token", inline, target);
    let from_file = secret_file(reader.document, secret::admin_token);
    layer(reader, top, "admin_token_file", from_file, target);
    if let (Some(_), Some(second)) = (top.table.get("admin_token"), top.table.get("admin_token_file")) {
        reader.error(second.span(), || "admin_token_file: admin_token is there too; keep one of them".to_owned());
    }
}

/// Reads a secret from the file that the configuration names.
fn secret_file(
    document: &Document<'_>,
    check: fn(&str) -> Result<Secret, SecretError>,
) -> impl FnOnce(&str) -> Result<Option<Secret>, SecretFileError> {
    move |named| secret::in_file(&document.beside(Path::new(named)), check).map(Some)
}

fn unused_modules(reader: &mut Reader<'_>, modules: &[PolicyModule], draft: &Draft) {
    let used = |name| {
        let mut namespaces = draft.config.namespaces.iter();
        namespaces
            .any(|one| one.policies.contains(name) || one.next.as_ref().is_some_and(|it| it.policies.contains(name)))
    };
    for module in modules.iter().filter(|module| module.stage.is_none() && !used(&module.name)) {
        let path = reader.document.path.to_owned();
        let place = Place::File { path, position: module.position };
        let name = quoted(&module.name);
        let message = format!("policy {name} is in no namespace's chain, so it is never asked");
        reader.findings.warning(place, message);
    }
}

/// A suggestion for a key that is unknown at the top.
fn elsewhere(key: &str) -> Option<String> {
    let is_in = |keys: &[Key]| keys.iter().any(|known| known.name == key);
    if is_in(namespace::KEYS) {
        Some("it belongs under a [[namespace]]".to_owned())
    } else if is_in(application::KEYS) {
        Some("it belongs under an [[application]]".to_owned())
    } else if is_in(guard::KEYS) {
        Some("it belongs under a [[guard]]".to_owned())
    } else if is_in(user_map::KEYS) {
        Some("it belongs under a [[user_map]]".to_owned())
    } else if is_in(policy::KEYS) {
        Some("it belongs under a [[policy]]".to_owned())
    } else {
        None
    }
}

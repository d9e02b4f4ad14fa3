//! `lockwarden check`: finds problems before they occur.

mod barrier;
mod certificate_logins;
mod cluster_node;
mod commands;
mod direct_clients;
mod fleet;
mod replication;
mod rights;
mod sentinels;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use lockwarden_console::view::api::{Connections, ConnectionsQuery};
use lockwarden_control::config::{
    Advertise, Backend, Config, Finding, Listener, Loaded, Meaning, Present, Report, SentinelFace, Summary,
    advertised_listener,
};
use lockwarden_control::net::tls::Unobserved;
use lockwarden_control::ruleset::{activate, load_policies};
use lockwarden_control::text::durations::share;
use lockwarden_control::text::numbers::{counted, number};
use lockwarden_dataplane::backend::server_info::WithoutLogin;
use lockwarden_dataplane::backend::{Address, BackendError, Conversation, server_info};
use lockwarden_dataplane::state::prefix_mark::Marks;
use lockwarden_lock::companion::{OwnKey, SLOTS};
use lockwarden_lock::namespace::{NamespaceId, Namespaces};
use lockwarden_lock::record_version::{VERSION, later_version};
use lockwarden_policy::PolicyHost;
use lockwarden_resp::Value;
use lockwarden_rules::MAX_STEPS;
use tokio::time::timeout;

use super::api_client::{ApiArgs, ApiClient, path};
use super::fleet::FleetArgs;
use super::output::{Format, Output};
use crate::app;
use crate::app::control::Source;
use crate::app::exit_code;
use crate::terminal::{complain, say};
use replication::Replication;

/// Pages of a thousand keys that are scanned for names in use.
const MAX_PAGES: usize = 200;

/// What `check` is asked beside the configuration.
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Also ask the backend
    #[arg(long)]
    backend: bool,
    /// Why the primary may go on without replicas (`min-replicas-to-write` is 0) though sentinels choose another one then
    #[arg(long, value_name = "WHY", requires = "backend")]
    without_min_replicas: Option<String>,
    /// Compare the rules of running proxies with each other, and with the configuration where one is named: their
    /// admin addresses, with commas between them or the flag repeated
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with = "backend")]
    fleet: Vec<String>,
    /// The form of what is said about a fleet
    #[arg(short, long, value_enum, default_value_t = Format::Text, requires = "fleet")]
    output: Format,
}

/// Checks the configuration and its policies and, on request, the backend or the proxies of a fleet.
pub(super) fn check(source: &Source, args: &CheckArgs) -> ExitCode {
    let of_fleet = !args.fleet.is_empty();
    let output = Output { output: args.output };
    if of_fleet && source.file.is_none() {
        return fleet::check(&FleetArgs::of(&args.fleet, None), output, None);
    }
    let Checked { config, meaning, findings } = Checked::of(source.load());
    match args.output {
        Format::Text if !findings.is_empty() => say!("{}", Report(&findings)),
        // Standard output has to be JSON.
        Format::Json if !findings.is_empty() => complain!("{}", Report(&findings)),
        Format::Text | Format::Json => {}
    }
    let (Some(config), Some(meaning)) = (config, meaning) else {
        return exit_code::configuration();
    };
    if of_fleet {
        let asked = FleetArgs::of(&args.fleet, source.file.as_deref());
        return fleet::check(&asked, output, Some(&meaning));
    }
    if let Some(hidden) = hidden_processes(source, &config) {
        say!("{hidden}");
    }
    describe(&config, &meaning);
    let without_min_replicas = args.without_min_replicas.as_deref();
    if args.backend { ask_backend(&config, &meaning, without_min_replicas) } else { ExitCode::SUCCESS }
}

/// The loaded configuration, and all its errors, including those that policies report about their settings.
struct Checked {
    config: Option<Config>,
    /// Only if there are no errors.
    meaning: Option<Meaning>,
    findings: Vec<Finding>,
}

impl Checked {
    fn of(loaded: Loaded) -> Checked {
        let mut checked = Checked { config: loaded.config, meaning: None, findings: loaded.findings };
        let Some(config) = &checked.config else {
            return checked;
        };
        match PolicyHost::new() {
            Ok(host) => match load_policies::load(&host, config) {
                Ok(generation) => checked.meaning = Some(activate::meaning(config, &generation)),
                Err(findings) => checked.findings.extend(findings),
            },
            Err(error) => {
                let finding = Finding::error_in(None, None, error.to_string());
                checked.findings.push(finding);
            }
        }
        checked
    }
}

/// The report of a proxy that runs on this machine with this configuration about the processes of its clients: it has its own
/// user, so this command may see other processes than the proxy does.
fn hidden_processes(source: &Source, config: &Config) -> Option<String> {
    config.admin.filter(|admin| admin.ip().is_loopback())?;
    let client = ApiClient::new(&ApiArgs::of(None, source.file.as_deref())).ok()?;
    let one = ConnectionsQuery { limit: Some(1), ..ConnectionsQuery::default() };
    let answer: Connections = client.get(&path(&["connections"], &one)).ok()?;
    answer.hidden_processes
}

/// The meaning and the cost of the configuration.
fn describe(config: &Config, meaning: &Meaning) {
    for namespace in &config.namespaces {
        let Summary { keys, mode, enforced_for, policies } = Summary::of(namespace);
        let name = &namespace.name;
        let some = enforced_for.map_or(String::new(), |whom| format!(" (enforced for {whom})"));
        say!("namespace {name}: {keys} in {mode} mode{some}, policies {policies}");
        if !namespace.rules.is_empty() {
            let names: Vec<&str> = namespace.rules.iter().map(|rule| &*rule.name).collect();
            let steps: u64 = namespace.rules.iter().map(|rule| rule.steps).sum();
            let (steps, most) = (number(steps), number(MAX_STEPS));
            say!("namespace {name}: rules {}; they take at most {steps} of {most} steps a question", names.join(" "));
        }
    }
    for (namespace, next) in config.namespaces.iter().filter_map(|one| Some((&one.name, one.next.as_deref()?))) {
        let (stage, policies) = (next.stage, next.policies.join(" "));
        say!("namespace {namespace}: asked beside that ({stage}): policies {policies}");
    }
    for guard in &config.guards {
        say!("guard {}: {}", guard.name, guard.summary());
    }
    for listener in &config.listeners {
        match &listener.present {
            Present::Sentinel(face) => say!("{}", sentinel(config, listener, face)),
            Present::Cluster(Advertise::Auto) => {
                say!(
                    "listener {}: the only node of a cluster, at the address that each client came to",
                    listener.address
                );
            }
            Present::Cluster(Advertise::Address(address)) => {
                say!("listener {}: the only node of a cluster, at {address}", listener.address);
            }
            Present::Standalone => {}
        }
    }
    for application in &config.applications {
        say!("application {}: {}", application.name, application.conditions());
    }
    say!("config hash: {}", meaning.hash());
    // docs/operations.md derives these numbers from the figures of docs/performance.md.
    say!(
        "memory: about 280 bytes on Redis for each lock that is held, was released in the last ten minutes, \
         or ran out in the last ten ceilings"
    );
}

/// The address to which a sentinel sends its clients.
fn sentinel(config: &Config, listener: &Listener, face: &SentinelFace) -> String {
    let target = advertised_listener(config.listeners.iter(), listener.tls);
    let place = match (&face.advertise, target) {
        (Advertise::Address(address), _) => address.to_string(),
        (Advertise::Auto, Some((_, target))) if target.ip().is_unspecified() => {
            format!("port {} of the address that it was asked at", target.port())
        }
        (Advertise::Auto, Some((_, target))) => target.to_string(),
        (Advertise::Auto, None) => "?".to_owned(),
    };
    let peers: Vec<String> = face.peers.iter().map(ToString::to_string).collect();
    let peers = match peers.is_empty() {
        true => "none (Redisson wants one)".to_owned(),
        false => peers.join(" "),
    };
    let tls = if listener.tls { " with TLS" } else { "" };
    format!(
        "listener {}: a sentinel{tls}; {} is at {place}; other sentinels: {peers}",
        listener.address,
        face.names.join(" ")
    )
}

fn ask_backend(config: &Config, meaning: &Meaning, without_min_replicas: Option<&str>) -> ExitCode {
    let Backend::Redis(url) = &config.backend else {
        say!("backend: private; it is started with the proxy");
        return ExitCode::SUCCESS;
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain!("lockwarden: {error}");
            return exit_code::configuration();
        }
    };
    let (login, files) = (config.backend_login.clone(), config.backend_tls.as_ref());
    let address = match Address::new(url.clone(), login, files, Arc::new(Unobserved)) {
        Ok(address) => address,
        Err(error) => {
            say!("backend_tls: {error}");
            return exit_code::configuration();
        }
    };
    let primaries = match runtime.block_on(async { timeout(WITHIN, address.primaries()).await }) {
        Ok(Ok(primaries)) => primaries,
        Ok(Err(error)) => {
            say!("backend: {error}");
            return exit_code::unreachable();
        }
        Err(_) => {
            say!("backend: it does not answer");
            return exit_code::unreachable();
        }
    };
    let mut worst = Outcome::Fine;
    if let Some((map, _)) = address.authority.map() {
        let served = map.slots().served();
        say!("backend: a cluster of {}, with {served} slots", counted(primaries.len() as u64, "primary", "primaries"));
        if served < usize::from(SLOTS) {
            say!("backend: {} slots have no primary, and no lock in them can be taken", usize::from(SLOTS) - served);
            worst = Outcome::Doubtful;
        }
    }
    for primary in &primaries {
        // With several servers each line names its server.
        let of = match primaries.len() {
            1 => "backend".to_owned(),
            _ => format!("backend {}", primary.place()),
        };
        let about = (&*of, config, meaning, without_min_replicas);
        worst = worst.max(runtime.block_on(tell(primary, about)));
    }
    match worst {
        Outcome::Fine => ExitCode::SUCCESS,
        Outcome::Doubtful => exit_code::findings(),
        Outcome::Unreachable => exit_code::unreachable(),
    }
}

/// How long all questions to one server may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The result of asking a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Fine,
    Doubtful,
    Unreachable,
}

/// Prints what one server is, and its problems.
async fn tell(
    address: &Address,
    (of, config, meaning, without_min_replicas): (&str, &Config, &Meaning, Option<&str>),
) -> Outcome {
    let namespaces = activate::namespaces(config);
    let asked = timeout(WITHIN, ask(address, config, meaning, (&namespaces, without_min_replicas))).await;
    let asked = asked.unwrap_or_else(|_| Err(BackendError::OutOfStep("it does not answer".into())));
    let Asked { unfit, report, clients, keys, lacking, barrier, marks, cannot_log_in, absent, sentinels, replication } =
        match asked {
            Ok(asked) => asked,
            Err(error) => {
                say!("{of}: {error}{}", error.hint(&address.url));
                return Outcome::Unreachable;
            }
        };
    let version = if report.version.is_empty() { "unknown" } else { &report.version };
    match of {
        "backend" => say!("{of}: {address} answers, {version}"),
        _ => say!("{of}: answers, {version}"),
    }
    for line in &sentinels.stands {
        say!("{of}: {line}");
    }
    if let Some(clients) = clients {
        say!("{of}: {clients}");
    }
    for line in barrier.stands.iter().chain(&marks.stands) {
        say!("{of}: {line}");
    }
    if let Some(seconds @ 1..) = report.timeout {
        say!(
            "{of}: timeout is {seconds}: Redis closes connections that nobody uses for {seconds} s; those of clients whose locks are kept alive are kept in use"
        );
    }
    for note in absent.notes.iter().chain(&replication.notes) {
        say!("{of}: {note}");
    }
    let mut doubts = absent.doubts;
    doubts.extend(unfit);
    doubts.extend(sentinels.doubts);
    let listeners = config.data_listeners();
    doubts.extend(app::refusal(&report, &listeners, app::Wanted::of(config)));
    if !report.may_ask {
        doubts.push("the proxy's own connection may not log in: keep-alive needs a user in the backend URL".into());
    }
    if let Some(policy) = &report.eviction {
        doubts.push(format!("maxmemory-policy is {policy}: {}", server_info::EVICTION_TAKES_LOCKS));
    }
    doubts.extend(keys.doubt());
    doubts.extend(keys.later());
    doubts.extend(keys.wide(config));
    doubts.extend(lacking);
    doubts.extend(barrier.doubts);
    doubts.extend(marks.doubts);
    doubts.extend(cannot_log_in);
    doubts.extend(replication.doubts);
    for doubt in &doubts {
        say!("{of}: {doubt}");
    }
    if doubts.is_empty() { Outcome::Fine } else { Outcome::Doubtful }
}

/// Keys with names that belong to the proxy.
#[derive(Default)]
struct OwnKeys {
    /// Keys that the proxy has written.
    ours: u64,
    /// A key that the proxy has not written: an application uses one of our names.
    foreign: Option<Bytes>,
    /// A record with a later version than ours, and that version, a digit.
    later: Option<(u8, Bytes)>,
    /// Keys that were scanned.
    looked_at: u64,
    /// How many of them belong to each namespace.
    claimed: Vec<u64>,
}

impl OwnKeys {
    /// Notes a key with one of our names, and the beginning of its value. A key that is gone by now is ignored.
    fn note(&mut self, kind: OwnKey, key: &Bytes, beginning: Option<&[u8]>) {
        if !kind.may_hold(beginning) && beginning != Some(b"") {
            self.foreign.get_or_insert_with(|| key.clone());
            return;
        }
        self.ours += 1;
        if let (OwnKey::Record, Some(version)) = (kind, beginning.and_then(later_version)) {
            self.later.get_or_insert_with(|| (version, key.clone()));
        }
    }

    /// The advice on a foreign key. Where there are records, another prefix would lose them.
    fn doubt(&self) -> Option<String> {
        let name = String::from_utf8_lossy(self.foreign.as_ref()?);
        let advice = match self.ours {
            0 => "set another companion_prefix before locks are taken",
            _ => {
                "let its application give it another name (another companion_prefix would lose the records of all locks)"
            }
        };
        Some(format!(
            "the key {name} has the name of a key of lockwarden's own, but lockwarden did not write it and would \
             replace it: {advice}"
        ))
    }
}

/// With fewer keys the share of locks among them says nothing.
const ENOUGH_KEYS: u64 = 1_000;

impl OwnKeys {
    /// What it means that a later version keeps records here.
    fn later(&self) -> Option<String> {
        let (version, key) = self.later.as_ref()?;
        Some(format!(
            "the record {} asks for readers of version {} or later, and this lockwarden reads version {}: a later lockwarden \
             governs that lock, and a proxy of this version leaves it to Redis until the record is gone",
            String::from_utf8_lossy(key),
            char::from(*version),
            char::from(VERSION),
        ))
    }

    /// Namespaces that contain most keys of the server: that is hardly ever true of locks.
    fn wide<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = String> + 'a {
        let namespaces = config.namespaces.iter().zip(&self.claimed);
        let wide = namespaces.filter(|(_, claimed)| **claimed * 2 > self.looked_at);
        wide.filter(|_| self.looked_at >= ENOUGH_KEYS)
            .map(|(namespace, claimed)| {
                format!(
                    "namespace {}: its keys match {} of the {} keys that were looked at ({}); a lock is seldom most of what a \
                     server holds: `lockwarden discover --from-keys` shows which keys there are",
                    namespace.name,
                    number(*claimed),
                    number(self.looked_at),
                    share(*claimed, self.looked_at)
                )
            })
    }
}

/// The replies of a server.
struct Asked {
    /// Why it is unfit as the authority over locks, if it says so itself.
    unfit: Option<String>,
    report: server_info::Report,
    /// The other clients connected to it.
    clients: Option<String>,
    /// Whether names of our own keys are used for something else.
    keys: OwnKeys,
    /// The users that lack rights.
    lacking: Vec<String>,
    /// Whether users and their twins have the required rights.
    barrier: barrier::Found,
    /// The prefix in use, and the proxies that use it.
    marks: Marks,
    /// The certificate users that cannot log in.
    cannot_log_in: Vec<String>,
    /// Commands that it does not have.
    absent: commands::Lacking,
    /// The reports of the sentinels.
    sentinels: sentinels::Sentinels,
    /// Its replicas.
    replication: Replication,
}

async fn ask(
    address: &Address,
    config: &Config,
    meaning: &Meaning,
    (namespaces, without_min_replicas): (&Namespaces, Option<&str>),
) -> Result<Asked, BackendError> {
    let prefix = &config.companion_prefix;
    let (mut own, unfit) = match address.converse_with_primary().await {
        Ok((own, _)) => (own, None),
        // In a cluster a replica can be read.
        Err(BackendError::Replica) if config.cluster_node => (address.converse().await?, None),
        Err(error @ (BackendError::Replica | BackendError::WritableReplica)) => {
            (address.converse().await?, Some(error.to_string()))
        }
        // The report about the sentinels covers the server that they name.
        Err(BackendError::NoPrimary) => (address.converse().await?, None),
        Err(error) => return Err(error),
    };
    let clients = direct_clients::ask(&mut own).await?;
    let without_login = WithoutLogin::ask(address).await;
    let (report, _) = server_info::ask(&mut own, without_login).await?;
    let absent = match report.may_ask {
        true => commands::ask(&mut own, config.waits_for_replicas()).await?,
        false => commands::Lacking::default(),
    };
    let marks = cluster_node::ask(&mut own, (address, config), &report, meaning.hash()).await?;
    Ok(Asked {
        unfit,
        sentinels: sentinels::ask(&mut own, address).await?,
        report,
        clients,
        keys: own_keys(&mut own, prefix, namespaces).await?,
        lacking: rights::ask(&mut own, address, config, namespaces, &absent.names).await?,
        absent,
        barrier: barrier::ask(&mut own, address, config, namespaces).await?,
        marks,
        cannot_log_in: certificate_logins::ask(address, config).await?,
        replication: replication::ask(
            &mut own,
            config,
            (address.authority.sentinels().is_some(), without_min_replicas),
        )
        .await?,
    })
}

/// Checks whether names of our own keys are used for something else. Scans a bounded part of a large database.
async fn own_keys(own: &mut Conversation, prefix: &[u8], namespaces: &Namespaces) -> Result<OwnKeys, BackendError> {
    let places = namespaces.globs().map(|(NamespaceId(place), _)| usize::from(place) + 1);
    let mut found = OwnKeys { claimed: vec![0; places.max().unwrap_or(0)], ..OwnKeys::default() };
    let mut cursor = Bytes::from_static(b"0");
    for _ in 0..MAX_PAGES {
        let page = own.ask(&[b"SCAN", &cursor[..], b"COUNT", b"1000"]).await?;
        let Some([Value::Bulk(next), Value::Array(keys)]) = page.as_items() else {
            break;
        };
        for key in keys.iter().filter_map(Value::as_bytes) {
            found.looked_at += 1;
            if let Some(NamespaceId(place)) = namespaces.find(key) {
                found.claimed[usize::from(place)] += 1;
            }
            match OwnKey::of(prefix, key, namespaces) {
                None => {}
                Some(kind) => found.note(kind, key, beginning(own, key).await?.as_deref()),
            }
        }
        cursor = next.clone();
        if cursor == "0" {
            break;
        }
    }
    Ok(found)
}

/// The beginning of a key's value, if it is a string; empty where the key is gone by now.
async fn beginning(own: &mut Conversation, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
    let last = (OwnKey::TELLING - 1).to_string();
    let begins = own.ask(&[b"GETRANGE", key, b"0", last.as_bytes()]).await?;
    Ok(begins.as_bytes().cloned())
}

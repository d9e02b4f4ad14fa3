//! `lockwarden check`: what would go wrong, before it does.

mod direct_clients;
mod rights;

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use lockwarden_lock::companion::OwnKey;
use lockwarden_lock::namespace::{NamespaceId, Namespaces};
use lockwarden_policy::PolicyHost;
use lockwarden_resp::Value;

use crate::app;
use crate::app::control::Source;
use crate::app::exit_code;
use crate::backend::server_info::WithoutLogin;
use crate::backend::{Address, BackendError, Conversation, server_info};
use crate::config::{Backend, Config, Finding, Loaded, Report, Severity, Summary};
use crate::maintenance::prefix_mark;
use crate::ruleset::{activate, load_policies};
use crate::text::durations::share;
use crate::text::numbers::number;

/// Pages of a thousand keys that are looked at for names that are in use.
const MAX_PAGES: usize = 200;

/// Checks the configuration and its policies, and where asked to the backend.
pub(crate) fn check(source: &Source, backend: bool) -> ExitCode {
    let (loaded, findings) = with_policies(source.load());
    if !findings.is_empty() {
        println!("{}", Report(&findings));
    }
    let broken = findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    let config = match loaded {
        Some(config) if !broken => config,
        Some(_) | None => return exit_code::configuration(),
    };
    describe(&config);
    if backend {
        ask_backend(&config)
    } else {
        ExitCode::SUCCESS
    }
}

/// What was loaded, and everything that is wrong with it, the policies' opinion of their settings included.
pub(super) fn with_policies(loaded: Loaded) -> (Option<Config>, Vec<Finding>) {
    let mut findings = loaded.findings;
    if let Some(config) = &loaded.config {
        match PolicyHost::new() {
            Ok(host) => {
                findings.extend(load_policies::load(&host, config).err().unwrap_or_default())
            }
            Err(error) => findings.push(Finding::error_in(None, None, error.to_string())),
        }
    }
    (loaded.config, findings)
}

/// What is in force, and what it will cost.
fn describe(config: &Config) {
    for namespace in &config.namespaces {
        let Summary {
            keys,
            mode,
            enforced_for,
            policies,
        } = Summary::of(namespace);
        let name = &namespace.name;
        let some = enforced_for.map_or(String::new(), |whom| format!(" (enforced for {whom})"));
        println!("namespace {name}: {keys} in {mode} mode{some}, policies {policies}");
    }
    for application in &config.applications {
        println!(
            "application {}: {}",
            application.name,
            application.conditions()
        );
    }
    // What it comes to is reckoned in docs/operations.md, by the figures of docs/performance.md.
    println!(
        "memory: about 280 bytes on Redis for each lock that is held, was released in the last ten minutes, \
         or ran out in the last ten ceilings"
    );
}

fn ask_backend(config: &Config) -> ExitCode {
    let Backend::Redis(url) = &config.backend else {
        println!("backend: private; it is started with the proxy");
        return ExitCode::SUCCESS;
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("lockwarden: {error}");
            return exit_code::configuration();
        }
    };
    let address = Address::new(url.clone(), config.backend_login.clone());
    let namespaces = activate::namespaces(config);
    let asked = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(10), ask(&address, config, &namespaces))
            .await
            .unwrap_or_else(|_| Err(BackendError::OutOfStep("it does not answer".into())))
    });
    let Asked {
        report,
        clients,
        keys,
        lacking,
        other_prefix,
    } = match asked {
        Ok(asked) => asked,
        Err(error) => {
            println!("backend: {error}");
            return exit_code::unreachable();
        }
    };
    let version = if report.version.is_empty() {
        "unknown"
    } else {
        &report.version
    };
    println!("backend: {address} answers, {version}");
    if let Some(clients) = clients {
        println!("backend: {clients}");
    }
    if let Some(seconds @ 1..) = report.timeout {
        println!(
            "backend: timeout is {seconds}: Redis closes connections that nobody uses for {seconds} s; those of clients whose locks are kept alive are kept in use"
        );
    }
    let mut doubts = Vec::new();
    doubts.extend(app::refusal(&report, &config.listeners, config.allow_open));
    if !report.may_ask {
        doubts.push(
            "the proxy's own connection may not log in: keep-alive needs a user in the backend URL"
                .into(),
        );
    }
    if let Some(policy) = &report.eviction {
        doubts.push(format!(
            "maxmemory-policy is {policy}: {}",
            server_info::EVICTION_TAKES_LOCKS
        ));
    }
    doubts.extend(keys.doubt());
    doubts.extend(keys.wide(config));
    doubts.extend(lacking);
    doubts.extend(other_prefix);
    for doubt in &doubts {
        println!("backend: {doubt}");
    }
    if doubts.is_empty() {
        ExitCode::SUCCESS
    } else {
        exit_code::findings()
    }
}

/// What was found under names of the proxy's own.
#[derive(Default)]
struct OwnKeys {
    /// Keys that the proxy has written.
    ours: u64,
    /// One that it has not: an application has given it a name of ours.
    foreign: Option<Bytes>,
    /// Keys that were looked at.
    looked_at: u64,
    /// How many of them each namespace has.
    claimed: Vec<u64>,
}

impl OwnKeys {
    /// What to do about a key that is not ours. Where there are records, another prefix would lose them.
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

/// Fewer keys say nothing about which share of them are locks.
const ENOUGH_KEYS: u64 = 1_000;

impl OwnKeys {
    /// Namespaces that have most keys of the server: locks hardly ever are.
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

/// What a server was asked.
struct Asked {
    report: server_info::Report,
    /// Who else is connected to it.
    clients: Option<String>,
    /// Whether names of our own keys are in use for something else.
    keys: OwnKeys,
    /// Which users lack which rights.
    lacking: Vec<String>,
    /// That another prefix is in use.
    other_prefix: Option<String>,
}

async fn ask(
    address: &Address,
    config: &Config,
    namespaces: &Namespaces,
) -> Result<Asked, BackendError> {
    let prefix = &config.companion_prefix;
    let mut own = address.converse().await?;
    let clients = direct_clients::ask(&mut own).await?;
    let without_login = WithoutLogin::ask(address).await;
    let (report, _) = server_info::ask(&mut own, without_login).await?;
    Ok(Asked {
        report,
        clients,
        keys: own_keys(&mut own, prefix, namespaces).await?,
        lacking: rights::ask(&mut own, address, config, namespaces).await?,
        other_prefix: prefix_mark::doubt(&mut own, address, prefix).await?,
    })
}

/// Whether names of our own keys are in use for something else. Looks at a bounded part of a large database.
async fn own_keys(
    own: &mut Conversation,
    prefix: &[u8],
    namespaces: &Namespaces,
) -> Result<OwnKeys, BackendError> {
    let places = namespaces
        .globs()
        .map(|(NamespaceId(place), _)| usize::from(place) + 1);
    let mut found = OwnKeys {
        claimed: vec![0; places.max().unwrap_or(0)],
        ..OwnKeys::default()
    };
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
                Some(kind) if is_ours(own, kind, key).await? => found.ours += 1,
                Some(_) => found.foreign = found.foreign.or_else(|| Some(key.clone())),
            }
        }
        cursor = next.clone();
        if cursor == "0" {
            break;
        }
    }
    Ok(found)
}

/// Whether the proxy may have written it; one that is gone by now, nobody misses.
async fn is_ours(own: &mut Conversation, kind: OwnKey, key: &[u8]) -> Result<bool, BackendError> {
    let last = (OwnKey::TELLING - 1).to_string();
    let begins = own.ask(&[b"GETRANGE", key, b"0", last.as_bytes()]).await?;
    let beginning = begins.as_bytes().map(|bytes| &bytes[..]);
    Ok(kind.may_hold(beginning) || beginning.is_some_and(<[u8]>::is_empty))
}

//! `lockwarden check`: what would go wrong, before it does.

mod peers;

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use lockwarden_lock::companion::{is_index, names_companion};
use lockwarden_lock::namespace::Namespaces;
use lockwarden_policy::PolicyHost;
use lockwarden_resp::Value;

use crate::backend::{Address, BackendError, Conversation};
use crate::config::{Backend, Config, Finding, Report, Severity, Summary};
use crate::control::{self, Source};
use crate::facts::{self, WithoutLogin};
use crate::{exit, policies, run};

/// Pages of a thousand keys that are looked at for names that are in use.
const MOST_PAGES: usize = 200;

/// Checks the configuration and its policies, and where asked to the backend.
pub(crate) fn check(source: &Source, backend: bool) -> ExitCode {
    let loaded = source.load();
    let mut findings = loaded.findings;
    if let Some(config) = &loaded.config {
        match PolicyHost::new() {
            Ok(host) => findings.extend(policies::load(&host, config).err().unwrap_or_default()),
            Err(error) => findings.push(Finding::error_in(None, None, error.to_string())),
        }
    }
    if !findings.is_empty() {
        println!("{}", Report(&findings));
    }
    let broken = findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    let config = match loaded.config {
        Some(config) if !broken => config,
        Some(_) | None => return exit::configuration(),
    };
    describe(&config);
    if backend {
        ask_backend(&config)
    } else {
        ExitCode::SUCCESS
    }
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
    println!(
        "memory: about 200 bytes on Redis for each lock used in the last ten ceilings (at least ten minutes)"
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
            return exit::configuration();
        }
    };
    let address = Address::new(url.clone());
    let namespaces = control::namespaces(config);
    let asked = runtime.block_on(async {
        tokio::time::timeout(
            Duration::from_secs(10),
            ask(&address, &config.companion_prefix, &namespaces),
        )
        .await
        .unwrap_or_else(|_| Err(BackendError::OutOfStep("it does not answer".into())))
    });
    let (report, peers, taken) = match asked {
        Ok(asked) => asked,
        Err(error) => {
            println!("backend: {error}");
            return exit::unreachable();
        }
    };
    let version = if report.version.is_empty() {
        "unknown"
    } else {
        &report.version
    };
    println!("backend: {address} answers, {version}");
    if let Some(peers) = peers {
        println!("backend: {peers}");
    }
    let mut doubts = Vec::new();
    doubts.extend(run::refusal(&report, config.listen, config.allow_open));
    if !report.may_ask {
        doubts.push(
            "the proxy's own connection may not log in: keep-alive needs a user in the backend URL"
                .into(),
        );
    }
    if report.evicts_all {
        doubts.push("maxmemory-policy is allkeys-*: an eviction may take a lock's record".into());
    }
    if let Some(name) = taken {
        doubts.push(format!(
            "the key {name} has the name of a lock's record and is none: set another companion_prefix"
        ));
    }
    for doubt in &doubts {
        println!("backend: {doubt}");
    }
    if doubts.is_empty() {
        ExitCode::SUCCESS
    } else {
        exit::findings()
    }
}

/// Asks the server what it is, who else is connected to it, and whether one of the names of our own keys is in use for something
/// else. Looks at a bounded part of a large database.
async fn ask(
    address: &Address,
    prefix: &[u8],
    namespaces: &Namespaces,
) -> Result<(facts::Report, Option<String>, Option<String>), BackendError> {
    let mut own = address.converse().await?;
    let peers = peers::ask(&mut own).await?;
    let without_login = WithoutLogin::ask(address).await;
    let (report, _) = facts::ask(&mut own, without_login).await?;
    let mut cursor = Bytes::from_static(b"0");
    for _ in 0..MOST_PAGES {
        let page = own.ask(&[b"SCAN", &cursor[..], b"COUNT", b"1000"]).await?;
        let Some([Value::Bulk(next), Value::Array(keys)]) = page.as_items() else {
            break;
        };
        for key in keys.iter().filter_map(Value::as_bytes) {
            let is_ours = is_index(prefix, key);
            if !is_ours
                && names_companion(prefix, key, namespaces)
                && !is_record(&mut own, key).await?
            {
                let name = String::from_utf8_lossy(key).into_owned();
                return Ok((report, peers, Some(name)));
            }
        }
        cursor = next.clone();
        if cursor == "0" {
            break;
        }
    }
    Ok((report, peers, None))
}

async fn is_record(own: &mut Conversation, key: &[u8]) -> Result<bool, BackendError> {
    let begins = own.ask(&[b"GETRANGE", key, b"0", b"0"]).await?;
    Ok(begins.as_bytes().is_some_and(|version| version == "1"))
}

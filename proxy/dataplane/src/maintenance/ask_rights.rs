//! Asks the server, on connections of the proxy's own, for the rights of those users who need no password or whose
//! password the proxy has: then their first commands are judged, even in a block. It also asks whether the proxy's
//! own connection has the rights that it needs, and whether the server has scripts at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::config::Config;
use lockwarden_control::telemetry::events::DEFAULT_USER;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::outcome::{self, Answers, Missing, Why};
use lockwarden_lock::plan::{Plan, all_rights, own_rights};
use lockwarden_lock::scripts::{self, Purpose};
use lockwarden_resp::Value;

use crate::backend::server_info::{Scripts, WithoutLogin};
use crate::backend::{BackendError, Conversation};
use crate::state::ProxyState;

/// How long the first clients wait for these replies; those that come later are still used.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks for the rights of the user that clients have without a login, and of the proxy's own.
pub async fn ask(shared: &Arc<ProxyState>, without_login: WithoutLogin) {
    let shared = shared.clone();
    let asking = tokio::spawn(async move {
        if let Err(error) = ask_all(&shared, without_login).await {
            tracing::debug!(%error, "the rights of users are not known yet");
        }
    });
    // After this time it continues in the background.
    let _ = tokio::time::timeout(PATIENCE, asking).await;
}

async fn ask_all(shared: &ProxyState, without_login: WithoutLogin) -> Result<(), BackendError> {
    let is_open = matches!(without_login, WithoutLogin::Everything | WithoutLogin::Restricted);
    if is_open {
        let mut stranger = Conversation::new(shared.backend.address.connect().await?);
        ask_one(shared, &mut stranger, DEFAULT_USER).await?;
    }
    let mut own = shared.backend.address.converse().await?;
    if let Some(user) = shared.backend.address.user() {
        ask_one(shared, &mut own, user.as_bytes()).await?;
    }
    let active = shared.active.load_full();
    let flags = shared.backend.server.reads_script_flags();
    let prefix = &active.companion_prefix;
    if let Some(missing) = lacking_to_own(&mut own, &active.namespaces, prefix, flags).await? {
        let user = shared.backend.address.user().unwrap_or("default");
        if let Some(then) = light(&missing) {
            tracing::warn!(
                user,
                lacks = missing.rules(prefix),
                then,
                "the proxy's own connection lacks rights that it can do without"
            );
            return Ok(());
        }
        let absent = absent(&mut own, &missing).await?;
        shared.backend.server.set_absent(absent);
        let (absent, missing) = shared.backend.server.without_absent(missing);
        if !absent.is_empty() {
            let commands = absent.join(" ").to_ascii_uppercase();
            let then = consequences(&Missing::commands(absent));
            tracing::error!(
                commands,
                then,
                "the server lacks commands that lockwarden takes, or has them under other names"
            );
        }
        if missing.is_empty() {
            return Ok(());
        }
        let lacks = missing.rules(prefix);
        let then = consequences(&missing);
        tracing::error!(user, lacks, then, "the proxy's own connection lacks rights");
    }
    Ok(())
}

/// Those of these commands that the server does not have at all. Each is sent without arguments, which changes
/// nothing.
async fn absent(own: &mut Conversation, missing: &Missing) -> Result<Vec<String>, BackendError> {
    let mut absent = Vec::new();
    for command in missing.names_of_commands() {
        // A subcommand cannot be asked for alone, and a command that answers without arguments is there.
        if !command.contains('|') && is_unknown(&own.ask(&[command.as_str()]).await?) {
            absent.push(command.clone());
        }
    }
    Ok(absent)
}

/// Whether the server says that it has no such command.
pub fn is_unknown(answer: &Value) -> bool {
    let text = answer.as_error();
    text.is_some_and(|text| text.starts_with(b"ERR unknown command"))
}

/// The consequences if the proxy's own connection lacks these rights, by the scripts that need them.
pub fn consequences(missing: &Missing) -> String {
    let is_needed = |command: &str| missing.only_commands().is_none() || missing.names(command);
    let scripts = scripts::all().into_iter();
    let stopped = scripts
        .filter(|script| script.purpose() == Purpose::Own)
        .filter(|script| script.needs().chain(["eval", "evalsha"]).any(is_needed))
        .filter_map(|script| purpose_of(script.name()));
    let mut said: Vec<&str> = stopped.collect();
    let commands = missing.names_of_commands().iter();
    said.extend(commands.filter_map(|command| without(command)));
    // Several scripts, one after the other, may serve the same purpose.
    said.dedup();
    match said.is_empty() {
        true => "some of its upkeep is not done".to_owned(),
        false => said.join("; "),
    }
}

/// What is not done if a script of the proxy's own cannot run; `None` if that has no visible effect.
fn purpose_of(script: &str) -> Option<&'static str> {
    Some(match script {
        "renew" => "leases whose TTL the proxy chose are not renewed",
        "index" | "orphans" => "leases that are kept alive cannot be found by other proxies",
        "notice" => "leases that ran out are noticed only when a client meets them",
        "sweep" => "locks that nobody has shown to this proxy are not listed",
        "break" => "locks cannot be broken",
        "shorten" => "leases of holders that are gone are not shortened",
        "undelivered" => "a grant that its client did not read is not told from one that it did",
        "unwitnessed" => "what became of a lock that an unjudged call named is not looked up",
        "identify" | "let_go" => "records do not name the processes of holders",
        "era" => "a namespace with a quarantine grants no free lock and extends none",
        "survey" => "which leases were lost in a failover is not known",
        _ => return None,
    })
}

/// The consequence if the proxy's own connections may not send a command, or the server does not have it; `None` if
/// it is more serious than a notice.
pub fn without(command: &str) -> Option<&'static str> {
    match command {
        "command" => Some("a command that lockwarden does not know counts as a write of each lock among its arguments"),
        "info" => Some(
            "nobody is told its version or maxmemory-policy, nor that it was started again, a server that takes the primary's place is followed only once most sentinels name it, and a namespace with a quarantine grants no free lock",
        ),
        "cluster|nodes" => Some(
            "leases that are kept alive cannot be found by other proxies, and a namespace with a quarantine grants no free lock",
        ),
        "migrate" => Some("a lock whose slot moves key by key may be had only once it has moved"),
        "ping" => Some("nothing is lost"),
        "scan" => Some("leases from before the proxy, and locks without a TTL, are not looked for"),
        _ => None,
    }
}

/// The consequences of lacking these rights, if they are worth no more than a notice.
pub fn light(missing: &Missing) -> Option<String> {
    let commands = missing.only_commands()?.iter();
    let thens: Option<Vec<_>> = commands.map(|command| without(command)).collect();
    thens.map(|thens| thens.join("; "))
}

/// The rights that the proxy's own connection needs and lacks, as far as the server says so. That a connection may
/// not log in is reported elsewhere.
pub async fn lacking_to_own(
    own: &mut Conversation,
    namespaces: &Namespaces,
    prefix: &[u8],
    reads_flags: bool,
) -> Result<Option<Missing>, BackendError> {
    let Some(lock) = namespaces.globs().find_map(|(_, glob)| glob.example()) else {
        return Ok(None);
    };
    let proof = question(own, &own_rights(&lock, prefix).flagged(reads_flags)).await?;
    let proof = proof.and_then(|answers| answers.nothing_run());
    Ok(proof.and_then(|proof| match proof.why() {
        // Any reply to a heartbeat will do, even that it is forbidden.
        Why::NoRights(missing) => Some(missing.clone().but(&["ping"])).filter(|rest| !rest.is_empty()),
        Why::NoScripts => None,
    }))
}

/// What a connection of the proxy's own lacks besides what it was found to lack: `WAIT`, by which renewals ask for replicas, and
/// which is answered at once with 0 of them; `INFO`, which tells which server is the primary; and what a proxy before a
/// cluster, or a node of one, takes.
pub async fn and_besides(
    own: &mut Conversation,
    config: &Config,
    mut missing: Option<Missing>,
) -> Result<Option<Missing>, BackendError> {
    let in_cluster = config.cluster_node || config.backend.is_cluster();
    let questions: [(bool, &str, &[&str]); 4] = [
        (config.waits_for_replicas(), "wait", &["WAIT", "0", "1"]),
        (config.has_quarantine(), "info", &["INFO", "server"]),
        (in_cluster, "cluster|nodes", &["CLUSTER", "NODES"]),
        // There is no such key, so nothing is sent anywhere.
        (in_cluster, "migrate", &["MIGRATE", "127.0.0.1", "1", "lockwarden:rights", "0", "1"]),
    ];
    for (is_taken, command, question) in questions {
        let is_forbidden = |answer: &Value| {
            let text = answer.as_error();
            text.is_some_and(|text| text.starts_with(b"NOPERM"))
        };
        if is_taken && is_forbidden(&own.ask(question).await?) {
            missing = Some(missing.unwrap_or_default().and(command));
        }
    }
    Ok(missing)
}

async fn question(conversation: &mut Conversation, question: &Plan) -> Result<Option<Answers>, BackendError> {
    let value = conversation.execute(question).await?;
    Ok(outcome::read(&value).ok())
}

async fn ask_one(shared: &ProxyState, conversation: &mut Conversation, user: &[u8]) -> Result<(), BackendError> {
    let prefix = shared.active.load().companion_prefix.clone();
    let asked = all_rights(&prefix).flagged(shared.backend.server.reads_script_flags());
    let Some(answers) = question(conversation, &asked).await? else {
        return Ok(());
    };
    let proof = answers.nothing_run();
    let why = proof.as_ref().map(|proof| proof.why());
    if why == Some(&Why::NoScripts) {
        shared.backend.server.set_scripts(Scripts::Unknown);
    } else if let Answers::Error(text) = &answers
        && text.starts_with(b"ERR ")
    {
        // The question cannot fail: this is about scripts as such.
        shared.backend.server.set_scripts(Scripts::Refused);
    }
    if let (None, Answers::Lacking(_)) = (why, answers) {
        let user = Bytes::copy_from_slice(user);
        shared.rights.has_everything(&user, Instant::now());
    }
    Ok(())
}

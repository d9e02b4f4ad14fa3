//! The users of the server that lack rights which the proxy's scripts need. The proxy's own user is tested directly; for the
//! others the server is asked (`ACL DRYRUN`, from Redis 7.0 on), if the proxy's own user may ask.

use lockwarden_control::config::{Config, Quarantine};
use lockwarden_dataplane::backend::{Address, BackendError, Conversation};
use lockwarden_dataplane::maintenance::ask_rights::{and_besides, consequences, lacking_to_own, light};
use lockwarden_lock::companion::companion_key;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::outcome::Missing;
use lockwarden_lock::scripts::{Purpose, trial};
use lockwarden_resp::Value;

/// Users that are checked.
const MAX_USERS: usize = 200;

/// One line for each user that lacks rights; where the server does not have a command, no right helps.
pub(super) async fn ask(
    own: &mut Conversation,
    address: &Address,
    config: &Config,
    namespaces: &Namespaces,
    absent: &[&str],
) -> Result<Vec<String>, BackendError> {
    let prefix = &config.companion_prefix;
    let mut lines = Vec::new();
    let own_name = address.user().unwrap_or("default");
    let missing = lacking_to_own(own, namespaces, prefix, false).await?;
    let missing = match missing {
        // Before 7.0 a script cannot find out.
        None if may_not_send_evalsha(own).await? => Some(Missing::commands(["evalsha".to_owned()])),
        other => other,
    };
    let missing = missing.map(|missing| missing.but(absent));
    let missing = and_besides(own, config, missing).await?;
    if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
        let rules = missing.rules(prefix);
        let then = light(&missing).unwrap_or_else(|| consequences(&missing));
        lines.push(format!("the proxy's own user {own_name} lacks {rules}: {then}"));
    }
    let users = own.ask(&["ACL", "USERS"]).await?;
    for user in users.as_items().unwrap_or_default().iter().take(MAX_USERS) {
        let Some(user) = user.as_bytes() else {
            continue;
        };
        for (namespace, glob) in namespaces.globs() {
            let Some(lock) = glob.example() else {
                continue;
            };
            let namespace_config = &config.namespaces[usize::from(namespace.0)];
            let waits = namespace_config.durability.is_some();
            let asked = lacking(own, user, &lock, prefix, waits).await?;
            if asked.is_some()
                && namespace_config.quarantine != Quarantine::Off
                && dry_run(own, user, &[b"INFO", b"server"]).await? == DryRun::NoCommand
            {
                lines.push(format!(
                    "user {} may take locks of namespace {} and lacks +info: with a quarantine it is granted none, because \
                     nothing tells which server it is connected to",
                    String::from_utf8_lossy(user),
                    namespace_config.name
                ));
            }
            let asked = asked.map(|missing| missing.but(absent));
            let Some(missing) = asked.filter(|missing| !missing.is_empty()) else {
                continue;
            };
            lines.push(format!(
                "user {} may take locks of namespace {} and lacks {}",
                String::from_utf8_lossy(user),
                namespace_config.name,
                missing.rules(prefix)
            ));
            break;
        }
    }
    Ok(lines)
}

/// Asks for a script that does not exist.
async fn may_not_send_evalsha(own: &mut Conversation) -> Result<bool, BackendError> {
    let nobodys = "0".repeat(40);
    let answer = own.ask(&["EVALSHA", &nobodys, "1", "lockwarden"]).await?;
    let text = answer.as_error();
    Ok(text.is_some_and(|text| text.starts_with(b"NOPERM")))
}

/// The missing rights of a user; `None` where it cannot take such a lock at all, or where the server does not say.
async fn lacking(
    own: &mut Conversation,
    user: &[u8],
    lock: &[u8],
    prefix: &[u8],
    waits: bool,
) -> Result<Option<Missing>, BackendError> {
    let acquires: [&[&[u8]]; 2] = [&[b"SET", lock, b"", b"NX", b"PX", b"1"], &[b"SETNX", lock, b""]];
    let mut takes = false;
    for words in acquires {
        takes = takes || dry_run(own, user, words).await? == DryRun::Passes;
    }
    if !takes {
        return Ok(None);
    }
    let companion = companion_key(prefix, lock);
    let mut commands = Vec::new();
    let mut keys = false;
    for command in Purpose::Locks.commands() {
        let alone = [command.as_bytes(), b"", b"0"];
        let words = trial(command, &companion).unwrap_or(alone.to_vec());
        match dry_run(own, user, &words).await? {
            DryRun::NoCommand => commands.push(command.to_owned()),
            DryRun::NoKey => keys = true,
            DryRun::Passes | DryRun::Unknown => {}
        }
    }
    let question: [&[u8]; 3] = [b"WAIT", b"0", b"1"];
    if waits && dry_run(own, user, &question).await? == DryRun::NoCommand {
        commands.push("wait".to_owned());
    }
    Ok(Some(Missing::new(commands, keys)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DryRun {
    Passes,
    NoCommand,
    NoKey,
    /// The server does not know the question, or does not answer it to this user.
    Unknown,
}

async fn dry_run(own: &mut Conversation, user: &[u8], words: &[&[u8]]) -> Result<DryRun, BackendError> {
    let mut question: Vec<&[u8]> = vec![b"ACL", b"DRYRUN", user];
    question.extend(words);
    Ok(match own.ask(&question).await? {
        Value::Error(_) => DryRun::Unknown,
        answer => match answer.as_bytes() {
            Some(text) if text == "OK" => DryRun::Passes,
            // `User bob has no permissions to access the 'lw:x' key`, or `… to run the 'time' command`.
            Some(text) if text.ends_with(b"command") => DryRun::NoCommand,
            Some(_) => DryRun::NoKey,
            None => DryRun::Unknown,
        },
    })
}

//! Which users of the server lack rights that the proxy's scripts take. The proxy's own user is asked for what it may do;
//! of the others the server says so itself (`ACL DRYRUN`, from Redis 7.0 on), if the proxy's own user may ask.

use lockwarden_lock::companion::companion_key;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::outcome::Missing;
use lockwarden_lock::scripts::{Purpose, trial};
use lockwarden_resp::Value;

use crate::backend::{Address, BackendError, Conversation};
use crate::config::Config;
use crate::maintenance::ask_rights::lacking_to_own;

/// Users that are looked at.
const MAX_USERS: usize = 200;

/// One line for each user who lacks something.
pub(super) async fn ask(
    own: &mut Conversation,
    address: &Address,
    config: &Config,
    namespaces: &Namespaces,
) -> Result<Vec<String>, BackendError> {
    let prefix = &config.companion_prefix;
    let mut lines = Vec::new();
    let own_name = address.user().unwrap_or("default");
    if let Some(missing) = lacking_to_own(own, namespaces, prefix, false).await? {
        lines.push(format!(
            "the proxy's own user {own_name} lacks {}",
            missing.rules(prefix)
        ));
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
            let asked = lacking(own, user, &lock, prefix).await?;
            let Some(missing) = asked.filter(|missing| !missing.is_empty()) else {
                continue;
            };
            lines.push(format!(
                "user {} may take locks of namespace {} and lacks {}",
                String::from_utf8_lossy(user),
                config.namespaces[usize::from(namespace.0)].name,
                missing.rules(prefix)
            ));
            break;
        }
    }
    Ok(lines)
}

/// What a user lacks; `None` where it cannot take such a lock at all, or where the server does not say.
async fn lacking(
    own: &mut Conversation,
    user: &[u8],
    lock: &[u8],
    prefix: &[u8],
) -> Result<Option<Missing>, BackendError> {
    let acquires: [&[&[u8]]; 2] = [
        &[b"SET", lock, b"", b"NX", b"PX", b"1"],
        &[b"SETNX", lock, b""],
    ];
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
    Ok(Some(Missing::new(commands, keys)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DryRun {
    Passes,
    NoCommand,
    NoKey,
    /// The server knows no such question, or does not answer it to this user.
    Unknown,
}

async fn dry_run(
    own: &mut Conversation,
    user: &[u8],
    words: &[&[u8]],
) -> Result<DryRun, BackendError> {
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

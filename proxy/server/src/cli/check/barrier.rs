//! Checks the second barrier, where a configuration has one (`[[user_map]]`): users are refused lock keys and records, and
//! their twins are allowed. The server is asked for the rights of a user (`ACL DRYRUN`, from Redis 7.0 on; before, its rules
//! are read); the twin, whose password is known, is tested by logging in.

use bytes::Bytes;
use lockwarden_control::config::{Config, UserMapping};
use lockwarden_dataplane::backend::profile::{Login, Profile};
use lockwarden_dataplane::backend::{Address, BackendError, Conversation};
use lockwarden_lock::companion::companion_key;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_resp::{Protocol, Value};

use super::super::acl::barrier::Barrier;
use super::super::acl::users::User;
use super::super::acl::{Listed, barrier, list};

/// The result.
#[derive(Default)]
pub(super) struct Found {
    /// What works.
    pub(super) stands: Vec<String>,
    /// What does not work.
    pub(super) doubts: Vec<String>,
}

/// The test data.
struct Trial {
    lock: Vec<u8>,
    record: Vec<u8>,
}

/// Tests the barrier. Without one the result is empty.
pub(super) async fn ask(
    own: &mut Conversation,
    address: &Address,
    config: &Config,
    namespaces: &Namespaces,
) -> Result<Found, BackendError> {
    let mut found = Found::default();
    let example = namespaces.globs().find_map(|(_, glob)| glob.example());
    let Some(lock) = example.filter(|_| !config.user_map.is_empty()) else {
        return Ok(found);
    };
    let trial = Trial { record: companion_key(&config.companion_prefix, &lock), lock };
    let users = match list(own).await? {
        Listed::Users(users) => users,
        Listed::Refused(_) => {
            found.doubts.push(
                "barrier: it was not looked at, because lockwarden's own user may not ask; give it +acl|list +acl|dryrun".to_owned(),
            );
            return Ok(found);
        }
    };
    let barrier = match barrier(config, own).await {
        Ok(barrier) => barrier,
        Err(error) => {
            found.doubts.push(format!("barrier: {error}"));
            return Ok(found);
        }
    };
    for mapping in &config.user_map {
        one(own, address, (mapping, &barrier, &users), &trial, &mut found).await?;
    }
    let own_name = address.user().unwrap_or("default");
    for user in &users {
        let is = |name: &str| user.name == name;
        let is_named = |mapping: &UserMapping| is(&mapping.user) || is(&mapping.twin);
        if is(own_name) || config.user_map.iter().any(is_named) || !user.is_on {
            continue;
        }
        if barrier.is_open_to(user) || !barrier.holes(user).is_empty() {
            found.doubts.push(format!(
                "barrier: user {} may touch lock keys around lockwarden; `lockwarden acl` says how to end that",
                user.shown()
            ));
        }
    }
    Ok(found)
}

async fn one(
    own: &mut Conversation,
    address: &Address,
    (mapping, barrier, users): (&UserMapping, &Barrier, &[User]),
    trial: &Trial,
    found: &mut Found,
) -> Result<(), BackendError> {
    let (name, twin_name) = (&mapping.user, &mapping.twin);
    let find = |name: &str| users.iter().find(|user| user.name == name);
    let Some(user) = find(name) else {
        found.doubts.push(format!("barrier: there is no user {name}"));
        return Ok(());
    };
    let is_refused = match barrier.is_open_to(user) {
        true => false,
        false => is_refused(own, name, &trial.lock).await? && is_refused(own, name, &trial.record).await?,
    };
    if !is_refused {
        found.doubts.push(format!(
            "barrier: user {name} may touch lock keys or records around lockwarden; `lockwarden acl --apply` ends that"
        ));
    }
    let holes = barrier.holes(user);
    if !holes.is_empty() {
        found.doubts.push(format!(
            "barrier: user {name} may use {}, which go around it; `lockwarden acl --apply` ends that",
            holes.join(" ")
        ));
    }
    let before = found.doubts.len();
    match find(twin_name) {
        None => found
            .doubts
            .push(format!("barrier: there is no twin {twin_name} of {name}; `lockwarden acl --apply` makes it")),
        Some(twin) => {
            let differences = barrier.differences(user, twin);
            if !differences.is_empty() {
                found
                    .doubts
                    .push(format!("barrier: twin {twin_name} of {name} was changed: {}", differences.join("; ")));
            }
        }
    }
    match as_twin(address, mapping, trial).await {
        Ok(None) if is_refused && holes.is_empty() && found.doubts.len() == before => found
            .stands
            .push(format!("barrier: user {name} is refused lock keys and records, and its twin {twin_name} is let in")),
        Ok(None) => {}
        Ok(Some(text)) => found.doubts.push(format!("barrier: twin {twin_name} of {name} is refused: {text}")),
        Err(error) => found.doubts.push(format!("barrier: twin {twin_name} of {name} cannot log in: {error}")),
    }
    Ok(())
}

/// Whether the server says that this user may not read the key. If it cannot say so, the user is trusted: its rules were read.
async fn is_refused(own: &mut Conversation, user: &str, key: &[u8]) -> Result<bool, BackendError> {
    let question: [&[u8]; 5] = [b"ACL", b"DRYRUN", user.as_bytes(), b"EXISTS", key];
    let answer = own.ask(&question).await?;
    Ok(answer.as_bytes() != Some(&Bytes::from_static(b"OK")))
}

/// Tests as the twin; returns the error of a refusal, if any.
async fn as_twin(address: &Address, mapping: &UserMapping, trial: &Trial) -> Result<Option<String>, BackendError> {
    let Some(password) = &mapping.password else {
        return Ok(Some(format!("there is no password in {}", mapping.password_file.display())));
    };
    let profile = Profile {
        login: Some(Login { user: mapping.twin.clone().into(), password: password.expose().to_owned().into() }),
        db: 0,
        protocol: Protocol::Resp2,
    };
    let mut twin = address.converse_as(&profile).await?;
    for key in [&trial.lock, &trial.record] {
        if let Value::Error(text) = twin.ask(&[b"EXISTS", &key[..]]).await? {
            return Ok(Some(lockwarden_control::text::escape::spell(&text)));
        }
    }
    Ok(None)
}

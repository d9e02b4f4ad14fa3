//! `[[user_map]]`: ACL users of the backend that may not touch lock keys, and their twins that may. Reads and checks
//! those tables; [`lockwarden_dataplane::session`] uses the twins, and `lockwarden acl` creates them.

use std::collections::HashSet;
use std::path::PathBuf;

use super::keys::belongs_on_top;
use super::reader::{Reader, Section, key_table};
use super::secret::{self, Secret};
use super::suggest::quoted;

/// Tables in one file.
const MAX_USERS: usize = 1_000;

key_table! { pub(super) KEYS =
    user: "\"shop\"",
    twin: "\"shop-lw\"",
    twin_password_file: "\"/etc/lockwarden/shop-lw.password\"",
}

/// One checked `[[user_map]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMapping {
    /// The client's ACL user; `default` without a login.
    pub user: String,
    /// The user that touches locks in its place.
    pub twin: String,
    /// The file with the twin's password.
    pub password_file: PathBuf,
    /// The password when the configuration was read; `None` if it could not be used.
    pub password: Option<Secret>,
}

/// Reads every `[[user_map]]` of the file; those with errors are left out.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Vec<UserMapping> {
    let mut seen = HashSet::new();
    reader.each_table(top, ("user_map", KEYS), MAX_USERS, |reader, section| one(reader, section, &mut seen))
}

fn one(reader: &mut Reader<'_>, section: Section<'_, '_>, seen: &mut HashSet<String>) -> Option<UserMapping> {
    let user = reader.parsed(&section, "user", acl_user);
    let user = reader.required(&section, "user", user);
    let twin = reader.parsed(&section, "twin", acl_user);
    let twin = reader.required(&section, "twin", twin);
    let file = reader.file(&section, "twin_password_file");
    let file = reader.required(&section, "twin_password_file", file);
    reader.unknown_keys(&section, belongs_on_top);
    let (user, twin, file) = (user?, twin?, file?);
    let scope = &section.scope;
    if twin.value == "default" {
        reader.error(twin.span, || {
            format!("{scope}twin: default is everybody who does not log in, so it cannot be a twin")
        });
        return None;
    }
    for name in [&user, &twin] {
        if !seen.insert(name.value.clone()) {
            let again = quoted(&name.value);
            reader.error(name.span.clone(), || {
                format!("{scope}the user {again} is named twice in [[user_map]]; each is one user or one twin")
            });
            return None;
        }
    }
    let password = match secret::password_in(&file.value) {
        Ok(password) => Some(password),
        Err(error) => {
            let message = format!(
                "{scope}twin_password_file: {error}; locks are refused to {} until there is one \
                 (`lockwarden acl --apply` makes it)",
                quoted(&user.value)
            );
            reader.warning(file.span, message);
            None
        }
    };
    Some(UserMapping { user: user.value, twin: twin.value, password_file: file.value, password })
}

/// Why a text is no user name.
#[derive(Debug, thiserror::Error)]
#[error("an ACL user has no blanks and no NUL, and 1 to {MAX_USER_BYTES} bytes")]
pub(super) struct UserError;

/// Redis has no limit; this one keeps log lines short.
const MAX_USER_BYTES: usize = 256;

fn acl_user(text: &str) -> Result<String, UserError> {
    let is_bad = |c: char| c.is_whitespace() || c == '\0';
    match text.is_empty() || text.len() > MAX_USER_BYTES || text.contains(is_bad) {
        true => Err(UserError),
        false => Ok(text.to_owned()),
    }
}

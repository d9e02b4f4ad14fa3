//! `[backend_login]`: how the proxy's own connections log in if the password changes over time. Reads and checks the
//! table; the password itself is read when a connection is made ([`lockwarden_dataplane::backend`]).

use std::path::PathBuf;
use std::time::Duration;

use super::finding::Place;
use super::keys::belongs_on_top;
use super::reader::{Reader, Section, key_table};
use super::value;

/// Words of a command.
const MAX_WORDS: usize = 64;
/// The shortest time between two logins on an open connection. Tokens of cloud services are valid for 15 minutes or
/// more.
const MIN_REFRESH: Duration = Duration::from_secs(1);
const MAX_REFRESH: Duration = Duration::from_secs(86_400);

key_table! { pub(super) KEYS =
    user: "\"warden\"",
    password_file: "\"/run/secrets/redis\"",
    password_command: "[\"/usr/local/bin/redis-token\"]",
    refresh: "\"10m\"",
}

/// The user of the proxy's own connections, and the source of their password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendLogin {
    /// The ACL user.
    pub user: String,
    pub source: PasswordSource,
    /// How often open connections log in again; `None`: never.
    pub refresh: Option<Duration>,
}

/// The source from which the password is read each time it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    File(PathBuf),
    /// The output of this program.
    Command(Vec<String>),
}

/// Reads the table with its place, if the file has one.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<(BackendLogin, Place)> {
    let section = reader.section(top, "backend_login", KEYS)?;
    let user = reader.parsed(&section, "user", user);
    let file = reader.file(&section, "password_file");
    let command = reader.strings(&section, "password_command", MAX_WORDS, word);
    let refresh = reader.parsed(&section, "refresh", |text| value::duration_or_off(text, MIN_REFRESH..=MAX_REFRESH));
    reader.unknown_keys(&section, belongs_on_top);
    let has = |key: &str| section.table.contains_key(key);
    let scope = &section.scope;
    let source = match (has("password_file"), has("password_command")) {
        (true, true) => {
            reader.error(section.span.clone(), || {
                format!("{scope}password_file and password_command are both there; keep one of them")
            });
            None
        }
        (false, false) => {
            reader.error(section.span.clone(), || {
                format!("{scope}nothing says the password; write password_file or password_command")
            });
            None
        }
        (true, false) => file.map(|file| PasswordSource::File(file.value)),
        (false, true) => {
            let command = command?;
            let words: Vec<String> = command.value.into_iter().map(|word| word.value).collect();
            if words.is_empty() {
                reader.error(command.span, || {
                    format!("{scope}password_command: the list is empty; write the program and its arguments")
                });
                return None;
            }
            Some(PasswordSource::Command(words))
        }
    };
    let login = BackendLogin {
        user: user.map_or_else(|| "default".to_owned(), |user| user.value),
        source: source?,
        refresh: refresh.and_then(|refresh| refresh.value),
    };
    Some((login, reader.document.place(section.span)))
}

/// Why a text is no user name.
#[derive(Debug, thiserror::Error)]
#[error("an ACL user has no blanks and at least one character")]
pub(super) struct UserError;

pub(super) fn user(text: &str) -> Result<String, UserError> {
    match text.is_empty() || text.contains(char::is_whitespace) {
        true => Err(UserError),
        false => Ok(text.to_owned()),
    }
}

/// Why a text is no word of a command.
#[derive(Debug, thiserror::Error)]
#[error("a word of a command is not empty and has no NUL")]
struct WordError;

fn word(text: &str) -> Result<String, WordError> {
    match text.is_empty() || text.contains('\0') {
        true => Err(WordError),
        false => Ok(text.to_owned()),
    }
}

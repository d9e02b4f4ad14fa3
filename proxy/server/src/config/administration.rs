//! Who may administer the server behind the proxy, and which functions are trusted with locks. Reads
//! and checks those keys on top of the file; what they mean to a command is the domain's business.

use lockwarden_lock::administration::ServerCommands;

use super::reader::{Found, Reader, Section};
use super::suggest::quoted;

/// Client names and ACL users, or functions, in one list.
const MAX_NAMES: usize = 1000;

/// Longest client name, ACL user or function name, in bytes.
const MAX_NAME: usize = 256;

pub(super) const SERVER_COMMANDS: [(&str, ServerCommands); 2] = [
    ("forward", ServerCommands::Forward),
    ("refuse", ServerCommands::Refuse),
];

pub(super) const COMPUTED_NAMES: [(&str, ComputedNames); 3] = [
    ("watch", ComputedNames::Watch),
    ("forward", ComputedNames::Forward),
    ("deny", ComputedNames::Deny),
];

/// What happens to scripts that compute names of keys, where something is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ComputedNames {
    /// They run behind a guard.
    #[default]
    Watch,
    /// They run unjudged.
    Forward,
    /// They are refused.
    Deny,
}

/// Who may administer the server, and which functions are trusted with locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdministrationConfig {
    /// Who may administer the server.
    pub(crate) server_commands: ServerCommands,
    /// Client names and ACL users that may, and may erase locks.
    pub(crate) admin_identities: Vec<String>,
    /// What happens to scripts that compute names of keys.
    pub(crate) computed_names: ComputedNames,
    /// Functions that may name lock keys.
    pub(crate) trusted_functions: Vec<String>,
}

/// Reads the keys on top of the file.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> AdministrationConfig {
    let server_commands = reader.choice(top, "server_commands", &SERVER_COMMANDS);
    let identities = reader.strings(top, "admin_identities", MAX_NAMES, name);
    for identity in identities.iter().flat_map(|found| &found.value) {
        if identity.value == "default" {
            let message = "admin_identities: whoever does not log in is the user \"default\", so \
                           this lists everybody where Redis has no other users";
            reader.warning(identity.span.clone(), message.to_owned());
        }
    }
    let computed_names = reader.choice(top, "computed_names", &COMPUTED_NAMES);
    let functions = reader.strings(top, "trusted_functions", MAX_NAMES, name);
    AdministrationConfig {
        server_commands: server_commands.unwrap_or_default(),
        admin_identities: identities.map_or_else(Vec::new, values),
        computed_names: computed_names.unwrap_or_default(),
        trusted_functions: functions.map_or_else(Vec::new, values),
    }
}

fn values(found: Found<Vec<Found<String>>>) -> Vec<String> {
    found.value.into_iter().map(|entry| entry.value).collect()
}

/// A text that is not the name of a client, a user or a function.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} cannot be a name; use 1 to {MAX_NAME} printable ASCII characters without spaces",
    quoted(.0)
)]
struct NameError(String);

/// A name as Redis takes it: neither a client nor a function can have an empty one.
fn name(text: &str) -> Result<String, NameError> {
    let plain = |byte: u8| (b'!'..=b'~').contains(&byte);
    if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(NameError(text.to_owned()))
    }
}

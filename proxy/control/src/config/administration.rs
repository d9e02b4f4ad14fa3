//! Who may administer the server behind the proxy, and which functions are trusted with locks. Reads and checks those
//! keys at the top of the file. What they mean for a command is decided by the domain.

use lockwarden_lock::administration::ServerCommands;
use lockwarden_lock::classify::OperatorSays;
use lockwarden_lock::table::{Lookup, lookup};

use super::listed::{Who, name};
use super::reader::{Found, Reader, Section};
use super::suggest::quoted;

/// Entries in one list of clients or functions.
pub(super) const MAX_NAMES: usize = 1000;

pub(super) const SERVER_COMMANDS: [(&str, ServerCommands); 2] =
    [("forward", ServerCommands::Forward), ("refuse", ServerCommands::Refuse)];

pub(super) const COMPUTED_NAMES: [(&str, ComputedNames); 3] =
    [("watch", ComputedNames::Watch), ("forward", ComputedNames::Forward), ("deny", ComputedNames::Deny)];

/// How scripts that compute key names are treated, where anything is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComputedNames {
    /// They run behind a guard.
    #[default]
    Watch,
    /// They run without being judged.
    Forward,
    /// They are refused.
    Deny,
}

/// Who may administer the server, and which functions are trusted with locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdministrationConfig {
    /// Who may administer the server.
    pub server_commands: ServerCommands,
    /// Who may administer it and also erase locks: checked entries of a [`Listed`](super::Listed).
    pub admin_identities: Vec<String>,
    /// How scripts that compute key names are treated.
    pub computed_names: ComputedNames,
    /// Functions that may name lock keys.
    pub trusted_functions: Vec<String>,
    /// Commands that lockwarden does not know: checked entries, `pass:NAME` or `refuse:NAME`.
    pub unknown_commands: Vec<String>,
}

/// Reads the keys at the top of the file.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> AdministrationConfig {
    let server_commands = reader.choice(top, "server_commands", &SERVER_COMMANDS);
    let proven = |text: &str| Who::read_proven(text).map(|_| text.to_owned());
    let identities = reader.strings(top, "admin_identities", MAX_NAMES, proven);
    for identity in identities.iter().flat_map(|found| &found.value) {
        if matches!(&*identity.value, "default" | "user:default") {
            let message = "admin_identities: whoever does not log in is the user \"default\", so \
                           this lists everybody where Redis has no other users";
            reader.warning(identity.span.clone(), message.to_owned());
        }
    }
    let computed_names = reader.choice(top, "computed_names", &COMPUTED_NAMES);
    let functions = reader.strings(top, "trusted_functions", MAX_NAMES, name);
    let said = |text: &str| unknown_command(text).map(|_| text.to_owned());
    let unknown = reader.strings(top, "unknown_commands", MAX_NAMES, said);
    AdministrationConfig {
        server_commands: server_commands.unwrap_or_default(),
        admin_identities: identities.map_or_else(Vec::new, values),
        computed_names: computed_names.unwrap_or_default(),
        trusted_functions: functions.map_or_else(Vec::new, values),
        unknown_commands: unknown.map_or_else(Vec::new, values),
    }
}

/// Why a text is no entry of `unknown_commands`.
#[derive(Debug, thiserror::Error)]
pub enum UnknownCommandError {
    #[error("{} does not say what becomes of a command; write \"pass:NAME\" or \"refuse:NAME\"", quoted(.0))]
    Word(String),
    #[error("{} is a command that lockwarden knows, and judges by its own table", quoted(.0))]
    Known(String),
}

/// An entry of `unknown_commands`: a name in lower case, and how that command is treated.
pub fn unknown_command(text: &str) -> Result<(Vec<u8>, OperatorSays), UnknownCommandError> {
    let wrong = || UnknownCommandError::Word(text.to_owned());
    let (word, command) = text.split_once(':').ok_or_else(wrong)?;
    let says = match word {
        "pass" => OperatorSays::Pass,
        "refuse" => OperatorSays::Refuse,
        _ => return Err(wrong()),
    };
    let command = name(command).map_err(|_| wrong())?.to_ascii_lowercase();
    match lookup(&[command.as_bytes()][..]) {
        Lookup::Unknown => Ok((command.into_bytes(), says)),
        Lookup::Known(_) | Lookup::UnknownSubcommand => Err(UnknownCommandError::Known(text.to_owned())),
    }
}

pub(super) fn values(found: Found<Vec<Found<String>>>) -> Vec<String> {
    found.value.into_iter().map(|entry| entry.value).collect()
}

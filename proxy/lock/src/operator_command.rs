//! The commands by which an operator asks the proxy itself, over its Redis connection: `LOCKWARDEN LOCKS`, `WHY`,
//! `MODE`, `CLIENTS`, `HELP`. Reads them; `administration` knows who may send them, and the replies are built where all
//! knowledge of locks is available.

use bytes::Bytes;
use lockwarden_resp::Request;

use crate::rules::Mode;

/// The longest pattern, ID or name that is accepted, bytes.
const MAX_WORD_BYTES: usize = 1024;
/// The most bytes of an unknown word that its error shows: as many as Redis shows.
const MAX_TOLD_BYTES: usize = 128;

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    /// List the held locks.
    Locks {
        /// A glob for their keys; `None`: all keys.
        pattern: Option<Bytes>,
    },
    /// Explain one decision.
    Why {
        /// The ID that its error reply carries.
        id: Bytes,
    },
    /// Change a mode.
    Mode {
        /// The namespace; `None`: all namespaces.
        namespace: Option<Bytes>,
        /// See the variant.
        mode: Mode,
        /// Even if the report advises against it.
        anyway: bool,
    },
    /// List the connected clients.
    Clients,
    /// List the commands.
    Help,
    /// One of these commands with invalid arguments.
    Mistaken {
        /// The command, in upper case.
        command: &'static str,
        /// Its valid form.
        usage: &'static str,
    },
    /// An unknown command.
    Unknown {
        /// The word, if there is one, cut to its first bytes.
        word: Bytes,
    },
}

impl OperatorCommand {
    /// Reads the command of a request. `None` for every other name than `LOCKWARDEN`, which is no server's command.
    pub fn read(request: &Request<'_>) -> Option<OperatorCommand> {
        let mut words = request.args();
        if !words.next()?.eq_ignore_ascii_case(b"lockwarden") {
            return None;
        }
        let word = words.next().unwrap_or_default();
        let Some((command, usage)) =
            COMMANDS.into_iter().find(|(command, _)| word.eq_ignore_ascii_case(command.as_bytes()))
        else {
            let word = Bytes::copy_from_slice(&word[..word.len().min(MAX_TOLD_BYTES)]);
            return Some(OperatorCommand::Unknown { word });
        };
        // One more than any command has.
        let words: Vec<&[u8]> = words.take(4).collect();
        let is_long = words.iter().any(|word| word.len() > MAX_WORD_BYTES);
        let read = (!is_long).then(|| understood(command, &words)).flatten();
        Some(read.unwrap_or(OperatorCommand::Mistaken { command, usage }))
    }

    /// Whether every client may send it: `HELP`, and commands that lead to it.
    pub fn is_for_everybody(&self) -> bool {
        match self {
            OperatorCommand::Help | OperatorCommand::Unknown { .. } => true,
            OperatorCommand::Mistaken { command, .. } => ["FENCE", "HELP"].contains(command),
            OperatorCommand::Locks { .. }
            | OperatorCommand::Why { .. }
            | OperatorCommand::Mode { .. }
            | OperatorCommand::Clients => false,
        }
    }

    /// Its name after `LOCKWARDEN`.
    pub fn word(&self) -> &'static str {
        match self {
            OperatorCommand::Locks { .. } => "LOCKS",
            OperatorCommand::Why { .. } => "WHY",
            OperatorCommand::Mode { .. } => "MODE",
            OperatorCommand::Clients => "CLIENTS",
            OperatorCommand::Help | OperatorCommand::Unknown { .. } => "HELP",
            OperatorCommand::Mistaken { command, .. } => command,
        }
    }
}

/// Each command, and its usage.
const COMMANDS: [(&str, &str); 6] = [
    // The question itself is read by `classify`, which accepts one more argument.
    ("FENCE", "LOCKWARDEN FENCE key"),
    ("LOCKS", "LOCKWARDEN LOCKS [pattern]"),
    ("WHY", "LOCKWARDEN WHY id"),
    ("MODE", "LOCKWARDEN MODE [namespace] enforce|monitor [ANYWAY]"),
    ("CLIENTS", "LOCKWARDEN CLIENTS"),
    ("HELP", "LOCKWARDEN HELP"),
];

fn understood(command: &str, words: &[&[u8]]) -> Option<OperatorCommand> {
    let copied = |word: &[u8]| Bytes::copy_from_slice(word);
    match (command, words) {
        ("LOCKS", []) => Some(OperatorCommand::Locks { pattern: None }),
        ("LOCKS", [pattern]) => Some(OperatorCommand::Locks { pattern: Some(copied(pattern)) }),
        ("WHY", [id]) => Some(OperatorCommand::Why { id: copied(id) }),
        ("MODE", words) => {
            let (words, anyway) = match words {
                [words @ .., last] if last.eq_ignore_ascii_case(b"anyway") => (words, true),
                words => (words, false),
            };
            let (namespace, mode) = match words {
                [mode] => (None, mode),
                [namespace, mode] => (Some(copied(namespace)), mode),
                _ => return None,
            };
            Some(OperatorCommand::Mode { namespace, mode: mode_of(mode)?, anyway })
        }
        ("CLIENTS", []) => Some(OperatorCommand::Clients),
        ("HELP", []) => Some(OperatorCommand::Help),
        _ => None,
    }
}

fn mode_of(word: &[u8]) -> Option<Mode> {
    let modes = [Mode::Enforce, Mode::Monitor];
    modes.into_iter().find(|mode| word.eq_ignore_ascii_case(mode.word().as_bytes()))
}

#[cfg(test)]
mod tests {
    use lockwarden_resp::OwnedRequest;

    use super::*;

    fn read(line: &str) -> Option<OperatorCommand> {
        let words = line.split(' ').map(str::as_bytes);
        OperatorCommand::read(&OwnedRequest::new(words).request())
    }

    #[test]
    fn a_command_is_read_in_any_spelling() {
        let mode = |namespace: Option<&'static str>, mode| OperatorCommand::Mode {
            namespace: namespace.map(|name| Bytes::from_static(name.as_bytes())),
            mode,
            anyway: false,
        };
        let anyway =
            OperatorCommand::Mode { namespace: Some(Bytes::from_static(b"orders")), mode: Mode::Enforce, anyway: true };
        for (line, expected) in [
            ("LOCKWARDEN HELP", OperatorCommand::Help),
            ("lockwarden Clients", OperatorCommand::Clients),
            ("LOCKWARDEN LOCKS", OperatorCommand::Locks { pattern: None }),
            ("LOCKWARDEN LOCKS lock:*", OperatorCommand::Locks { pattern: Some(Bytes::from_static(b"lock:*")) }),
            ("LOCKWARDEN WHY 7F3K2A", OperatorCommand::Why { id: Bytes::from_static(b"7F3K2A") }),
            ("LOCKWARDEN MODE orders Enforce", mode(Some("orders"), Mode::Enforce)),
            ("LOCKWARDEN MODE monitor", mode(None, Mode::Monitor)),
            ("LOCKWARDEN MODE orders enforce anyway", anyway),
        ] {
            assert_eq!(read(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn a_command_with_the_wrong_words_is_told_from_one_that_is_unknown() {
        let long = format!("LOCKWARDEN LOCKS {}", "*".repeat(MAX_WORD_BYTES + 1));
        for (line, command) in [
            ("LOCKWARDEN LOCKS a b", "LOCKS"),
            ("LOCKWARDEN WHY", "WHY"),
            ("LOCKWARDEN MODE", "MODE"),
            ("LOCKWARDEN MODE orders loud", "MODE"),
            ("LOCKWARDEN MODE anyway", "MODE"),
            ("LOCKWARDEN MODE a b enforce anyway", "MODE"),
            ("LOCKWARDEN MODE orders enforce now", "MODE"),
            ("LOCKWARDEN FENCE", "FENCE"),
            ("LOCKWARDEN CLIENTS all", "CLIENTS"),
            ("LOCKWARDEN HELP me", "HELP"),
            (&long, "LOCKS"),
        ] {
            let read = read(line).expect(line);
            assert!(matches!(read, OperatorCommand::Mistaken { .. }), "{line}: {read:?}");
            assert_eq!(read.word(), command);
        }
        for (line, word) in [("LOCKWARDEN", &b""[..]), ("lockwarden Status now", b"Status")] {
            let word = Bytes::from_static(word);
            let read = read(line).expect(line);
            assert!(read.is_for_everybody());
            assert_eq!(read, OperatorCommand::Unknown { word });
        }
        assert_eq!(read("GET a"), None);
    }
}

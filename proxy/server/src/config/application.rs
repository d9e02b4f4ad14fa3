//! `[[application]]`: what the operator calls the applications whose clients do not say it themselves. Reads and checks
//! those tables; which client one of them means is [`crate::telemetry::applications`].

use bytes::Bytes;

use super::keys::belongs_on_top;
use super::network::{self, Network};
use super::reader::{Key, Reader, Section};
use super::suggest::quoted;
use super::value;
use super::value::ValueError;

/// Tables in one file. Clients are compared with all of them.
const MAX_APPLICATIONS: usize = 1_000;
/// Networks of one of them.
const MAX_NETWORKS: usize = 100;

/// In metrics it stands for every application without a name here.
const OTHERS: &str = "__other__";

pub(super) const KEYS: &[Key] = &[
    Key {
        name: "name",
        example: "\"billing\"",
    },
    Key {
        name: "from",
        example: "[\"10.0.3.0/24\"]",
    },
    Key {
        name: "process",
        example: "\"php-fpm*\"",
    },
    Key {
        name: "user",
        example: "\"billing\"",
    },
    Key {
        name: "client",
        example: "\"worker-*\"",
    },
];

/// One checked `[[application]]`: what holds of a client that belongs to it. At least one condition is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApplicationRule {
    /// Several may share it.
    pub(crate) name: String,
    /// It comes from one of these; empty: from anywhere.
    pub(crate) from: Vec<Network>,
    /// A glob of its program, service unit or container.
    pub(crate) process: Option<Bytes>,
    /// A glob of its ACL user.
    pub(crate) user: Option<Bytes>,
    /// A glob of the name that it takes by `CLIENT SETNAME`.
    pub(crate) client: Option<Bytes>,
}

impl ApplicationRule {
    /// The conditions as the file writes them.
    pub(crate) fn conditions(&self) -> String {
        let mut all = Vec::new();
        if !self.from.is_empty() {
            let from: Vec<String> = self.from.iter().map(ToString::to_string).collect();
            all.push(format!("from {}", from.join(" ")));
        }
        for (word, glob) in [
            ("process", &self.process),
            ("user", &self.user),
            ("client", &self.client),
        ] {
            if let Some(glob) = glob {
                all.push(format!("{word} {}", String::from_utf8_lossy(glob)));
            }
        }
        all.join(", ")
    }
}

/// Reads every `[[application]]` of the file; those with errors are left out.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Vec<ApplicationRule> {
    reader.each_table(top, ("application", KEYS), MAX_APPLICATIONS, one)
}

fn one(reader: &mut Reader<'_>, mut section: Section<'_, '_>) -> Option<ApplicationRule> {
    let name = reader.parsed(&section, "name", application_name);
    let name = reader.required(&section, "name", name);
    if let Some(name) = &name {
        section.scope = format!("application {}: ", quoted(&name.value));
    }
    let from = reader.strings(&section, "from", MAX_NETWORKS, network::network);
    let [process, user, client] =
        ["process", "user", "client"].map(|key| reader.parsed(&section, key, value::glob));
    reader.unknown_keys(&section, belongs_on_top);
    let scope = &section.scope;
    if let Some(from) = from.as_ref().filter(|from| from.value.is_empty()) {
        // An entry that could not be used was reported.
        let list = section
            .table
            .get("from")
            .and_then(|list| list.get_ref().as_array());
        if list.is_some_and(|list| list.is_empty()) {
            reader.error(from.span.clone(), || {
                format!("{scope}from: the list is empty, so it names nobody")
            });
        }
        return None;
    }
    let has_condition = |key: &&Key| key.name != "name" && section.table.contains_key(key.name);
    if !KEYS.iter().any(|key| has_condition(&key)) {
        reader.error(section.span.clone(), || {
            format!(
                "{scope}says of no client that it belongs to it; add at least one of from, process, user and client"
            )
        });
        return None;
    }
    let from = from.map_or(Vec::new(), |from| from.value);
    Some(ApplicationRule {
        name: name?.value,
        from: from.into_iter().map(|from| from.value).collect(),
        process: process.map(|glob| glob.value),
        user: user.map(|glob| glob.value),
        client: client.map(|glob| glob.value),
    })
}

/// Why a text is not the name of an application.
#[derive(Debug, thiserror::Error)]
enum NameError {
    #[error(transparent)]
    Spelling(#[from] ValueError),
    #[error(
        "{} stands for all other applications in metrics; choose another name",
        quoted(OTHERS)
    )]
    Others,
}

fn application_name(text: &str) -> Result<String, NameError> {
    match text {
        OTHERS => Err(NameError::Others),
        _ => Ok(value::name(text)?),
    }
}

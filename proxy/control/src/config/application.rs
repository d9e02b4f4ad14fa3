//! `[[application]]`: the operator's names for applications whose clients do not send one. Reads and checks those
//! tables; [`crate::telemetry::applications`] finds the table that matches a client.

use bytes::Bytes;

use super::keys::belongs_on_top;
use super::listener::{ListenAddress, ListenError, listen};
use super::network::{self, Network};
use super::reader::{Key, Reader, Section, key_table};
use super::suggest::quoted;
use super::value;
use super::value::ValueError;
use crate::net::entrance::Entrance;

/// Tables in one file. Clients are compared with all of them.
const MAX_APPLICATIONS: usize = 1_000;
/// Networks of one table.
const MAX_NETWORKS: usize = 100;

/// In metrics this label stands for all applications without a name here.
const OTHERS: &str = "__other__";

key_table! { pub(super) KEYS =
    name: "\"billing\"",
    from: "[\"10.0.3.0/24\"]",
    process: "\"php-fpm*\"",
    user: "\"billing\"",
    client: "\"worker-*\"",
    certificate: "\"spiffe://corp/ns/shop/*\"",
    listener: "\"unix:/run/lockwarden/redis.sock\"",
}

/// One checked `[[application]]`: the conditions that a client must meet to belong to it. At least one condition is
/// set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationRule {
    /// Several tables may share a name.
    pub name: String,
    /// The client comes from one of these networks; empty: from anywhere.
    pub(crate) from: Vec<Network>,
    /// A glob of its program, its service unit or its container.
    pub process: Option<Bytes>,
    /// A glob of its ACL user.
    pub(crate) user: Option<Bytes>,
    /// A glob of the name that it sets with `CLIENT SETNAME`.
    pub(crate) client: Option<Bytes>,
    /// A glob of the name in its certificate.
    pub(crate) certificate: Option<Bytes>,
    /// It connected to this address of the proxy.
    pub(crate) listener: Option<ListenAddress>,
}

impl ListenAddress {
    /// Whether a connection with this entrance was accepted at this address.
    pub(crate) fn is_reached_by(&self, entrance: &Entrance) -> bool {
        match (self, entrance) {
            (ListenAddress::Tcp(own), Entrance::Tcp(local)) => {
                let is_it = own.ip().to_canonical() == local.ip().to_canonical();
                own.port() == local.port() && (is_it || own.ip().is_unspecified())
            }
            (ListenAddress::Unix(own), Entrance::Unix(local)) => own == local,
            (ListenAddress::Tcp(_), Entrance::Unix(_)) | (ListenAddress::Unix(_), Entrance::Tcp(_)) => false,
        }
    }
}

impl ApplicationRule {
    /// The conditions as the file writes them.
    pub fn conditions(&self) -> String {
        let mut all = Vec::new();
        if !self.from.is_empty() {
            let from: Vec<String> = self.from.iter().map(ToString::to_string).collect();
            all.push(format!("from {}", from.join(" ")));
        }
        for (word, glob) in [
            ("process", &self.process),
            ("user", &self.user),
            ("client", &self.client),
            ("certificate", &self.certificate),
        ] {
            if let Some(glob) = glob {
                all.push(format!("{word} {}", String::from_utf8_lossy(glob)));
            }
        }
        if let Some(listener) = &self.listener {
            all.push(format!("listener {listener}"));
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
    let [process, user, client, certificate] =
        ["process", "user", "client", "certificate"].map(|key| reader.parsed(&section, key, value::glob));
    let listener = reader.parsed(&section, "listener", named_listener);
    reader.unknown_keys(&section, belongs_on_top);
    let scope = &section.scope;
    if let Some(from) = from.as_ref().filter(|from| from.value.is_empty()) {
        // Unusable entries were already reported.
        let list = section.table.get("from").and_then(|list| list.get_ref().as_array());
        if list.is_some_and(|list| list.is_empty()) {
            reader.error(from.span.clone(), || format!("{scope}from: the list is empty, so it names nobody"));
        }
        return None;
    }
    let has_condition = |key: &&Key| key.name != "name" && section.table.contains_key(key.name);
    if !KEYS.iter().any(|key| has_condition(&key)) {
        reader.error(section.span.clone(), || {
            format!(
                "{scope}says of no client that it belongs to it; add at least one of from, process, user, client, certificate and listener"
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
        certificate: certificate.map(|glob| glob.value),
        listener: listener.map(|listener| listener.value),
    })
}

/// Why a text is no listener's address.
#[derive(Debug, thiserror::Error)]
enum ListenerError {
    #[error(transparent)]
    Address(#[from] ListenError),
    #[error("port 0 is any free port, by which no client can be told from another; write the port of the listener")]
    AnyPort,
}

/// An address as written in `listen` and `[[listener]]`.
fn named_listener(text: &str) -> Result<ListenAddress, ListenerError> {
    match listen(text)? {
        ListenAddress::Tcp(address) if address.port() == 0 => Err(ListenerError::AnyPort),
        address => Ok(address),
    }
}

/// Why a text is not the name of an application.
#[derive(Debug, thiserror::Error)]
enum NameError {
    #[error(transparent)]
    Spelling(#[from] ValueError),
    #[error("{} stands for all other applications in metrics; choose another name", quoted(OTHERS))]
    Others,
}

fn application_name(text: &str) -> Result<String, NameError> {
    match text {
        OTHERS => Err(NameError::Others),
        _ => Ok(value::name(text)?),
    }
}

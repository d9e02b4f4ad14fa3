//! `enforce_for`: the clients whose refusals a namespace in monitor mode already carries out. Reads and checks that one
//! table; [`crate::ruleset::rollout`] decides whether a client belongs to it.

use bytes::Bytes;
use toml::de::DeValue;

use super::application::ApplicationRule;
use super::reader::{Found, Reader, Section, described, key_table};
use super::suggest::{did_you_mean, listed, quoted};
use super::value;

/// The most client globs in one namespace. Every client is compared with all of them once.
const MAX_CLIENTS: usize = 100;
/// Applications in one namespace.
const MAX_APPLICATIONS: usize = 100;
/// The most globs of certificate names in one namespace.
const MAX_CERTIFICATES: usize = 100;

key_table! { pub(super) KEYS =
    clients: "[\"billing*\"]",
    applications: "[\"billing\"]",
    certificates: "[\"spiffe://corp/ns/shop/*\"]",
    percent: "10",
}

/// The clients whose refusals are carried out although the namespace is in monitor mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnforceFor {
    /// Globs of client names, ACL users and addresses. `*` means all clients; empty only if applications or
    /// certificates are named.
    pub clients: Vec<Bytes>,
    /// Names of `[[application]]` tables, none of which has a condition on the process.
    pub applications: Vec<String>,
    /// Globs of the names in certificates.
    pub certificates: Vec<Bytes>,
    /// The percentage of the matching applications, 1 to 100.
    pub percent: u8,
}

/// The table of one namespace, if it has one that can be used.
pub(super) fn read(
    reader: &mut Reader<'_>,
    namespace: &Section<'_, '_>,
    enforces: bool,
    known: &[ApplicationRule],
) -> Option<EnforceFor> {
    let value = namespace.table.get("enforce_for")?;
    let scope = format!("{}enforce_for", namespace.scope);
    let DeValue::Table(table) = value.get_ref() else {
        let is = described(value.get_ref());
        reader.error(value.span(), || {
            format!("{scope}: must be a table, not {is}; write enforce_for = {{ clients = [\"billing*\"] }}")
        });
        return None;
    };
    let section = Section { table, span: value.span(), known: KEYS, scope: format!("{scope}: ") };
    reader.unknown_keys(&section, |_| None);
    let named = reader.strings(&section, "clients", MAX_CLIENTS, value::glob);
    let applications = reader.strings(&section, "applications", MAX_APPLICATIONS, |name| known_at_once(name, known));
    let certificates = reader.strings(&section, "certificates", MAX_CERTIFICATES, value::glob);
    let percent = reader.integer(&section, "percent", 1..=100);
    if table.is_empty() {
        reader.error(value.span(), || {
            format!("{scope}: names nobody; say clients = [\"billing*\"], percent = 10, or both")
        });
        return None;
    }
    if enforces {
        reader.error(value.span(), || {
            format!(
                "{scope}: mode = \"enforce\" refuses for everybody; keep mode = \"monitor\" to refuse \
                 for these clients only, or remove enforce_for"
            )
        });
        return None;
    }
    let clients = entries(reader, &section, "clients", named)?;
    let applications = entries(reader, &section, "applications", applications)?;
    let certificates = entries(reader, &section, "certificates", certificates)?;
    let clients = match (clients, &applications, &certificates) {
        (None, None, None) => vec![Bytes::from_static(b"*")],
        (clients, _, _) => clients.unwrap_or_default(),
    };
    let percent = match percent {
        Some(percent) => u8::try_from(percent.value).ok()?,
        None if table.contains_key("percent") => return None,
        None => 100,
    };
    Some(EnforceFor {
        clients,
        applications: applications.unwrap_or_default(),
        certificates: certificates.unwrap_or_default(),
        percent,
    })
}

/// The entries of a list. The outer `None` means that the list cannot be used.
fn entries<T>(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
    read: Option<Found<Vec<Found<T>>>>,
) -> Option<Option<Vec<T>>> {
    let Some(read) = read else {
        return (!section.table.contains_key(key)).then_some(None);
    };
    if read.value.is_empty() {
        let list = section.table.get(key);
        let list = list.and_then(|list| list.get_ref().as_array());
        // Unusable entries were already reported.
        if list.is_some_and(|list| list.is_empty()) {
            reader.error(read.span, || format!("{}{key}: the list is empty, so it names nobody", section.scope));
        }
        return None;
    }
    Some(Some(read.value.into_iter().map(|entry| entry.value).collect()))
}

/// Why an application cannot be enforced by its name.
#[derive(Debug, thiserror::Error)]
enum ApplicationError {
    #[error("no [[application]] is called {}; {advice}", quoted(text))]
    Unknown { text: String, advice: String },
    #[error(
        "{} is told by its process, which is found out after its first command; tell it by from, user or client",
        quoted(.0)
    )]
    ByProcess(String),
}

/// An application that can be identified before its clients' first command is judged.
fn known_at_once(name: &str, known: &[ApplicationRule]) -> Result<String, ApplicationError> {
    let mut rules = known.iter().filter(|rule| rule.name == name).peekable();
    if rules.peek().is_none() {
        let names = || known.iter().map(|rule| rule.name.as_str());
        let advice = did_you_mean(name, names()).unwrap_or_else(|| match known {
            [] => "there is none in this file".to_owned(),
            _ => format!("there is {}", listed(names(), "and")),
        });
        let text = name.to_owned();
        return Err(ApplicationError::Unknown { text, advice });
    }
    match rules.any(|rule| rule.process.is_some()) {
        true => Err(ApplicationError::ByProcess(name.to_owned())),
        false => Ok(name.to_owned()),
    }
}

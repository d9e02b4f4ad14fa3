//! `enforce_for`: a namespace in monitor mode carries refusals out for these clients already. Reads
//! and checks that one table; which client it means is [`crate::ruleset::rollout`].

use bytes::Bytes;
use toml::de::DeValue;

use super::reader::{Key, Reader, Section, described};
use super::value;

/// Globs of clients in one namespace. Every client is compared with all of them, once.
const MAX_CLIENTS: usize = 100;

const KEYS: &[Key] = &[
    Key {
        name: "clients",
        example: "[\"billing*\"]",
    },
    Key {
        name: "percent",
        example: "10",
    },
];

/// Whose refusals are carried out although the namespace is in monitor mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnforceFor {
    /// Globs of client names, ACL users and addresses. Never empty: everybody is `*`.
    pub(crate) clients: Vec<Bytes>,
    /// How many in a hundred of the applications among them, 1 to 100.
    pub(crate) percent: u8,
}

/// The table of one namespace, if it has one that can be used.
pub(super) fn read(
    reader: &mut Reader<'_>,
    namespace: &Section<'_, '_>,
    enforces: bool,
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
    let section = Section {
        table,
        span: value.span(),
        known: KEYS,
        scope: format!("{scope}: "),
    };
    reader.unknown_keys(&section, |_| None);
    let named = reader.strings(&section, "clients", MAX_CLIENTS, value::glob);
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
    let clients = match named {
        Some(named) if named.value.is_empty() => {
            reader.error(named.span, || {
                format!("{scope}: clients: the list is empty, so it names nobody")
            });
            return None;
        }
        Some(named) => named.value.into_iter().map(|glob| glob.value).collect(),
        None if table.contains_key("clients") => return None,
        None => vec![Bytes::from_static(b"*")],
    };
    let percent = match percent {
        Some(percent) => u8::try_from(percent.value).ok()?,
        None if table.contains_key("percent") => return None,
        None => 100,
    };
    Some(EnforceFor { clients, percent })
}

//! `[namespace.settings.<policy>]`: the settings of a chain's policies. Flattens TOML values to text and remembers
//! their positions; the policy itself decides whether it knows a key and accepts its value.

use std::collections::{BTreeMap, HashMap};

use lockwarden_policy::RULES;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::finding::Position;
use super::policy::UnknownPolicy;
use super::reader::{Reader, Section, described, number};
use super::suggest::quoted;

/// The settings of one namespace.
#[derive(Default)]
pub(super) struct Settings {
    /// By policy, sorted by key.
    pub(super) values: BTreeMap<String, Vec<(String, String)>>,
    /// Where each value stands, by policy and key.
    pub(super) positions: HashMap<(String, String), Position>,
}

/// Reads `settings` of one namespace. `chain` is `None` where it could not be read; then policies that are not in it
/// are not reported.
pub(super) fn read(
    reader: &mut Reader<'_>,
    namespace: &Section<'_, '_>,
    chain: Option<&[String]>,
    known_policies: &[&str],
    policy_positions: &mut HashMap<String, Position>,
) -> Settings {
    let mut settings = Settings::default();
    let scope = &namespace.scope;
    let Some(value) = namespace.table.get("settings") else {
        return settings;
    };
    let DeValue::Table(policies) = value.get_ref() else {
        let is = described(value.get_ref());
        reader.error(value.span(), || {
            format!(
                "{scope}settings: must be tables by policy, not {is}; write \
                     [namespace.settings.ttl-ceiling]"
            )
        });
        return settings;
    };
    for (policy, values) in policies {
        let name: &str = policy.get_ref();
        if !known_policies.contains(&name) {
            let wrong = UnknownPolicy::new(name, known_policies);
            reader.error(policy.span(), || format!("{scope}settings: {wrong}"));
            continue;
        }
        if name == RULES {
            reader.error(policy.span(), || {
                format!("{scope}settings.{name}: what this policy is told is written as [[namespace.rule]]")
            });
            continue;
        }
        let DeValue::Table(values) = values.get_ref() else {
            let is = described(values.get_ref());
            reader.error(values.span(), || {
                format!(
                    "{scope}settings.{name}: must be a table, not {is}; write \
                         [namespace.settings.{name}]"
                )
            });
            continue;
        };
        if chain.is_some_and(|chain| !chain.iter().any(|in_chain| in_chain == name)) {
            reader.error(policy.span(), || {
                format!(
                    "{scope}settings.{name}: {} is not in this namespace's chain; add it to \
                         policies or remove its settings",
                    quoted(name)
                )
            });
        }
        policy_positions.insert(name.to_owned(), reader.position(&policy.span()));
        let flat = one_policy(reader, scope, name, values, &mut settings.positions);
        settings.values.insert(name.to_owned(), flat);
    }
    settings
}

fn one_policy(
    reader: &mut Reader<'_>,
    scope: &str,
    policy: &str,
    values: &DeTable<'_>,
    positions: &mut HashMap<(String, String), Position>,
) -> Vec<(String, String)> {
    let mut flat_values = Vec::new();
    for (key, value) in values {
        let key: &str = key.get_ref();
        for (name, value) in parts(key, value) {
            match flat(value.get_ref()) {
                Ok(text) => {
                    let position = reader.position(&value.span());
                    positions.insert((policy.to_owned(), name.clone()), position);
                    flat_values.push((name, text));
                }
                Err(wrong) => {
                    let name = name.escape_debug();
                    reader.error(value.span(), || format!("{scope}settings.{policy}.{name}: {wrong}"));
                }
            }
        }
    }
    // The tree keeps keys sorted, but does not promise to.
    flat_values.sort();
    flat_values
}

/// A setting and its parts. A setting that has several parts is a table, with its main value as `for`: `keep_alive = {
/// for = "1h", ttl = "all" }` is `keep_alive` and `keep_alive.ttl`.
fn parts<'a>(key: &str, value: &'a Spanned<DeValue<'a>>) -> Vec<(String, &'a Spanned<DeValue<'a>>)> {
    let table = match value.get_ref() {
        DeValue::Table(table) if !table.is_empty() => table,
        _ => return vec![(key.to_owned(), value)],
    };
    let mut parts = Vec::with_capacity(table.len());
    for (name, value) in table {
        let name: &str = name.get_ref();
        parts.push(match name {
            "for" => (key.to_owned(), value),
            name => (format!("{key}.{name}"), value),
        });
    }
    parts
}

/// Why a value cannot be a setting.
#[derive(Debug, thiserror::Error)]
enum SettingError {
    #[error("{0} does not fit in 64 bits")]
    OutOfRange(String),
    #[error("{0} is not a finite number")]
    NotFinite(String),
    #[error("an entry of a list may not hold a comma, which separates entries")]
    Comma,
    #[error("a list may hold only strings, not {0}")]
    Entry(&'static str),
    #[error("must be a string, a number, true, false or a list of strings, not {0}")]
    Type(&'static str),
}

/// A setting as the text that policies get.
fn flat(value: &DeValue<'_>) -> Result<String, SettingError> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        DeValue::Boolean(boolean) => Ok(boolean.to_string()),
        DeValue::Integer(integer) => match number(integer) {
            Some(number) if i64::try_from(number).is_ok() => Ok(number.to_string()),
            _ => Err(SettingError::OutOfRange(integer.to_string())),
        },
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number.to_string()),
            _ => Err(SettingError::NotFinite(float.to_string())),
        },
        DeValue::Array(items) => {
            let entries = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) if text.contains(',') => Err(SettingError::Comma),
                DeValue::String(text) => Ok(text.as_ref()),
                other => Err(SettingError::Entry(described(other))),
            });
            Ok(entries.collect::<Result<Vec<_>, _>>()?.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => Err(SettingError::Type(described(value))),
    }
}

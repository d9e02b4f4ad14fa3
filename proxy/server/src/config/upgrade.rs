//! Compares a file that was written for an older version with this one: keys that are not known any more, and defaults
//! that hold where the file says nothing and were others. It reads the file by itself, because a file that this version
//! would refuse has to be told about, too; whether it is refused, [`super::load`] says.

use std::path::Path;

use lockwarden_lock::rules::Mode;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{self, Document};
use super::finding::{Findings, Position, Unusable};
use super::history::{Change, Effect, History, What, WrittenFor};
use super::policy::BUILT_IN_POLICIES;

/// One change that concerns a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) change: Change,
    /// Where the file has the key; `None`: nowhere, and its default changed.
    pub(crate) at: Option<Position>,
    /// The tables of the file whose key it is, by name; empty for a key on top.
    pub(crate) tables: Vec<String>,
}

impl Difference {
    /// What it does to namespaces that enforce; `None` where the file itself has to be changed.
    pub(crate) fn effect(&self) -> Option<Effect> {
        match &self.change.what {
            What::Default { effect, .. } => Some(*effect),
            What::Renamed { .. } | What::Gone { .. } => None,
        }
    }
}

/// What a file says to this version, compared with the one that it was written for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upgrade {
    /// In the order of the history.
    pub(crate) differences: Vec<Difference>,
    /// The namespaces of the file, or the built-in one, each with the mode that the file names.
    pub(crate) namespaces: Vec<(String, String)>,
}

/// Compares the file at `path`.
///
/// # Errors
/// The file cannot be read, or is no TOML.
pub(crate) fn compare(path: &Path, history: &History, from: Option<&WrittenFor>) -> Result<Upgrade, Unusable> {
    let mut findings = Findings::default();
    let text = document::read(path, &mut findings);
    let Some(text) = text else {
        return Err(Unusable(findings.into_sorted(Some(path))));
    };
    let document = Document::new(path, &text);
    let Some(tree) = document.parse(&mut findings) else {
        return Err(Unusable(findings.into_sorted(Some(path))));
    };
    let tree = tree.get_ref();
    let changes = history.since(from);
    Ok(Upgrade {
        differences: changes.flat_map(|change| concerns(change, &document, tree)).collect(),
        namespaces: places(Some(NAMESPACE), tree).into_iter().map(|place| (place.name.clone(), place.mode())).collect(),
    })
}

/// The tables with a mode.
const NAMESPACE: &str = "namespace";

/// A table that a key may be in.
struct Place<'a, 'i> {
    name: String,
    /// `None`: the file does not have it, and it is built in.
    table: Option<&'a DeTable<'i>>,
}

impl Place<'_, '_> {
    fn mode(&self) -> String {
        let said = self.table.and_then(|table| table.get("mode"));
        let said = said.and_then(|mode| mode.get_ref().as_str());
        said.unwrap_or(Mode::default().word()).to_owned()
    }
}

fn concerns(change: &Change, document: &Document<'_>, tree: &DeTable<'_>) -> Vec<Difference> {
    let places = places(change.table.as_deref(), tree);
    let path: Vec<&str> = change.key.split('.').collect();
    let said = |place: &Place<'_, '_>| place.table.and_then(|table| key_at(table, &path));
    let named = |place: &Place<'_, '_>| change.table.is_some().then(|| place.name.clone());
    match &change.what {
        What::Default { .. } => {
            let silent = places.iter().filter(|place| said(place).is_none());
            let silent: Vec<_> = silent.filter(|place| asks(place, &path)).collect();
            let different = Difference {
                change: change.clone(),
                at: None,
                tables: silent.iter().filter_map(|place| named(place)).collect(),
            };
            (!silent.is_empty()).then_some(different).into_iter().collect()
        }
        What::Renamed { .. } | What::Gone { .. } => {
            let found = places.iter().filter_map(|place| Some((place, said(place)?)));
            let different = found.map(|(place, start)| Difference {
                change: change.clone(),
                at: Some(document.position(start)),
                tables: named(place).into_iter().collect(),
            });
            different.collect()
        }
    }
}

/// The tables of this kind, in the order of the file.
fn places<'a, 'i>(kind: Option<&str>, tree: &'a DeTable<'i>) -> Vec<Place<'a, 'i>> {
    let Some(kind) = kind else {
        return vec![Place { name: String::new(), table: Some(tree) }];
    };
    let tables = match tree.get(kind).map(Spanned::get_ref) {
        Some(DeValue::Array(items)) => items.iter().filter_map(|item| item.get_ref().as_table()),
        // The built-in namespace governs where no file names one.
        None if kind == NAMESPACE => {
            return vec![Place { name: "default".to_owned(), table: None }];
        }
        Some(_) | None => return Vec::new(),
    };
    let place = |(number, table): (usize, &'a DeTable<'i>)| {
        let name = table.get("name").and_then(|name| name.get_ref().as_str());
        let name = name.map_or_else(|| format!("#{}", number + 1), str::to_owned);
        Place { name, table: Some(table) }
    };
    tables.enumerate().map(place).collect()
}

/// Where the key begins that this path leads to, if it is there.
fn key_at(table: &DeTable<'_>, path: &[&str]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let (key, value) = table.get_key_value(*first)?;
    match rest {
        [] => Some(key.span().start),
        rest => key_at(value.get_ref().as_table()?, rest),
    }
}

/// Whether the key of a policy concerns this namespace: its chain has the policy.
fn asks(place: &Place<'_, '_>, path: &[&str]) -> bool {
    let ["settings", policy, _] = path else {
        return true;
    };
    let chain = place.table.and_then(|table| table.get("policies"));
    match chain.map(Spanned::get_ref) {
        Some(DeValue::Array(names)) => names.iter().any(|name| name.get_ref().as_str() == Some(*policy)),
        Some(_) => false,
        None => BUILT_IN_POLICIES.contains(policy),
    }
}

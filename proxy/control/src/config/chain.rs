//! `policies`: the names of a chain, in order. The caller knows which policies exist.

use std::collections::{HashMap, HashSet};

use super::finding::Position;
use super::policy::UnknownPolicy;
use super::reader::{Reader, Section};
use super::suggest::quoted;

/// The most policies in one chain.
const MAX_CHAIN: usize = 32;

/// Why a name cannot stand in a chain.
#[derive(Debug, thiserror::Error)]
enum ChainError {
    #[error(transparent)]
    Unknown(UnknownPolicy),
    #[error("{} is in the chain already; name it once", quoted(.0))]
    Twice(String),
}

/// The chain as far as its names are known; `unsaid` if the table does not set it. `None` if a part of it could not be
/// read: then nothing is reported as missing from it.
pub(super) fn read(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    known: &[&str],
    unsaid: &[String],
    positions: &mut HashMap<String, Position>,
) -> Option<Vec<String>> {
    if !section.table.contains_key("policies") {
        return Some(unsaid.to_vec());
    }
    let mut seen = HashSet::new();
    let chain = reader.strings(section, "policies", MAX_CHAIN, |text| {
        if !known.contains(&text) {
            return Err(ChainError::Unknown(UnknownPolicy::new(text, known)));
        }
        match seen.insert(text.to_owned()) {
            true => Ok(text.to_owned()),
            false => Err(ChainError::Twice(text.to_owned())),
        }
    })?;
    for policy in &chain.value {
        positions.insert(policy.value.clone(), reader.position(&policy.span));
    }
    (chain.value.len() == entries(section, "policies"))
        .then(|| chain.value.into_iter().map(|policy| policy.value).collect())
}

/// The number of entries of a list, including those with errors.
pub(super) fn entries(section: &Section<'_, '_>, key: &str) -> usize {
    let list = section.table.get(key).and_then(|value| value.get_ref().as_array());
    list.map_or(0, |items| items.len())
}

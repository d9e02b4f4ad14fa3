//! `[[guard]]`: which data may be written only by the holder of a lock. Reads and checks those tables;
//! [`lockwarden_lock::data_guard`] decides who may write.

use std::collections::{BTreeSet, HashSet};

use lockwarden_lock::data_guard::{
    DataGuard, KeyPattern, LockTemplate, MAX_GUARDS, MAX_PATTERNS, PatternError, Unlocked,
};
use lockwarden_lock::rules::{Mode, Released};

use super::finding::{Findings, Place};
use super::keys::belongs_on_top;
use super::listed::Who;
use super::namespace::{self, MODES, NamespaceConfig};
use super::policy::BUILT_IN_POLICIES;
use super::reader::{Found, Reader, Section, key_table};
use super::suggest::quoted;
use super::value;

/// The prefix of a guard's name where a namespace's name is also possible.
pub const GUARD: &str = "guard:";

/// The most names and users that one guard exempts.
const MAX_EXEMPT: usize = 256;

key_table! { pub(super) KEYS =
    name: "\"stock\"",
    keys: "[\"stock:{id}\", \"order:{id}:*\"]",
    lock: "\"lock:sale:{id}\"",
    mode: "\"monitor\"",
    unlocked: "\"refuse\"",
    proofs: "[\"session\", \"identity\"]",
    exempt: "[\"stock-import\"]",
}

/// One checked `[[guard]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// Its name in metrics and errors.
    pub name: String,
    /// The patterns of the guarded keys, as written.
    pub keys: Vec<String>,
    /// The locks, with the names of the patterns; any one of them is enough.
    pub locks: Vec<String>,
    pub mode: Mode,
    pub unlocked: Unlocked,
    /// Another connection of the same client counts as the holder.
    pub by_identity: bool,
    /// Client names and ACL users that are not judged.
    pub exempt: Vec<String>,
}

impl GuardConfig {
    /// A short description for people: `lockwarden check` prints it, and the log starts with it.
    pub fn summary(&self) -> String {
        format!("{} are for holders of {}, in {} mode", self.keys.join(" "), self.locks.join(" or "), self.mode.word())
    }

    /// What proves that a writer is the holder.
    pub fn proofs(&self) -> impl Iterator<Item = &'static str> {
        let counts = |(_, proof): &&(&str, Proof)| *proof == Proof::Session || self.by_identity;
        PROOFS.iter().filter(counts).map(|(word, _)| *word)
    }

    /// Who may write without the lock.
    pub fn unlocked(&self) -> &'static str {
        match self.unlocked {
            Unlocked::Refuse => "refuse",
            Unlocked::Allow => "allow",
        }
    }

    /// The form that the lock crate takes. Invalid patterns were refused when the file was read.
    pub fn guard(&self) -> DataGuard {
        let keys = self.keys.iter();
        let locks = self.locks.iter();
        DataGuard {
            mode: self.mode,
            unlocked: self.unlocked,
            by_identity: self.by_identity,
            keys: keys.filter_map(|text| KeyPattern::new(text).ok()).collect(),
            locks: locks.filter_map(|text| LockTemplate::new(text).ok()).collect(),
        }
    }
}

/// Reads every `[[guard]]` of the file, with its place; those with errors are left out.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Vec<(GuardConfig, Place)> {
    let mut names = HashSet::new();
    reader.each_table(top, ("guard", KEYS), MAX_GUARDS, |reader, section| one(reader, section, &mut names))
}

fn one(
    reader: &mut Reader<'_>,
    mut section: Section<'_, '_>,
    names: &mut HashSet<String>,
) -> Option<(GuardConfig, Place)> {
    let name = reader.parsed(&section, "name", value::name);
    let name = reader.required(&section, "name", name);
    if let Some(name) = &name {
        section.scope = format!("guard {}: ", quoted(&name.value));
        if !names.insert(name.value.clone()) {
            let scope = &section.scope;
            reader.error(name.span.clone(), || format!("{scope}there is another guard of this name"));
        }
    }
    let pattern = |text: &str| KeyPattern::new(text).map(|_| text.to_owned());
    let keys = reader.strings(&section, "keys", MAX_PATTERNS, pattern);
    let keys = reader.required(&section, "keys", keys);
    let locks = locks(reader, &section);
    let mode = reader.choice(&section, "mode", &MODES);
    let unlocked = reader.choice(&section, "unlocked", &UNLOCKED);
    let proofs = reader.strings(&section, "proofs", PROOFS.len(), proof);
    let who = |text: &str| Who::read(text).map(|_| text.to_owned());
    let exempt = reader.strings(&section, "exempt", MAX_EXEMPT, who);
    for entry in exempt.iter().flat_map(|found| &found.value) {
        if let Ok(Who::Name(_)) = Who::read(&entry.value) {
            let message = format!(
                "exempt: {} is what any client may call itself, and then nothing is guarded from it; \"user:…\" and \"certificate:…\" cannot be claimed",
                quoted(&entry.value)
            );
            reader.warning(entry.span.clone(), message);
        }
    }
    reader.unknown_keys(&section, belongs_on_top);
    let (name, keys, locks) = (name?, keys?, locks?);
    for (list, key) in [(&keys, "keys"), (&locks, "lock")] {
        if list.value.is_empty() {
            let scope = &section.scope;
            reader.error(list.span.clone(), || format!("{scope}{key}: the list is empty"));
        }
    }
    names_fit(reader, &section, &keys.value, &locks.value);
    if let Some(proofs) = &proofs
        && !proofs.value.iter().any(|proof| proof.value == Proof::Session)
    {
        let scope = &section.scope;
        reader.error(proofs.span.clone(), || {
            format!("{scope}proofs: without \"session\" a holder could not write over its own connection")
        });
    }
    let has_identity = |proofs: Found<Vec<Found<Proof>>>| {
        let mut proofs = proofs.value.iter();
        proofs.any(|proof| proof.value == Proof::Identity)
    };
    let texts = |found: Vec<Found<String>>| found.into_iter().map(|one| one.value).collect();
    let config = GuardConfig {
        name: name.value,
        keys: texts(keys.value),
        locks: texts(locks.value),
        mode: mode.unwrap_or(Mode::Monitor),
        unlocked: unlocked.unwrap_or_default(),
        by_identity: proofs.is_none_or(has_identity),
        exempt: exempt.map_or(Vec::new(), |exempt| texts(exempt.value)),
    };
    let place = reader.document.place(section.span.clone());
    Some((config, place))
}

const UNLOCKED: [(&str, Unlocked); 2] = [("refuse", Unlocked::Refuse), ("allow", Unlocked::Allow)];

/// What proves that a writer is the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Session,
    Identity,
}

const PROOFS: [(&str, Proof); 2] = [("session", Proof::Session), ("identity", Proof::Identity)];

fn proof(text: &str) -> Result<Proof, super::reader::ChoiceError> {
    super::reader::one_of(text, &PROOFS)
}

/// One name, or a list of them.
fn locks(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<Found<Vec<Found<String>>>> {
    let template = |text: &str| -> Result<String, PatternError> { LockTemplate::new(text).map(|_| text.to_owned()) };
    let is_list = section.table.get("lock").is_some_and(|lock| lock.get_ref().as_array().is_some());
    let locks = match is_list {
        true => reader.strings(section, "lock", MAX_PATTERNS, template),
        false => {
            reader.parsed(section, "lock", template).map(|lock| Found { span: lock.span.clone(), value: vec![lock] })
        }
    };
    reader.required(section, "lock", locks)
}

/// Checks that each name in a lock occurs in every pattern: otherwise some keys would have no lock.
fn names_fit(reader: &mut Reader<'_>, section: &Section<'_, '_>, keys: &[Found<String>], locks: &[Found<String>]) {
    for lock in locks {
        let Ok(template) = LockTemplate::new(&lock.value) else {
            continue;
        };
        let wanted: BTreeSet<&str> = template.names().collect();
        for key in keys {
            let Ok(pattern) = KeyPattern::new(&key.value) else {
                continue;
            };
            let captured: BTreeSet<&str> = pattern.names().collect();
            for name in wanted.difference(&captured) {
                let scope = &section.scope;
                reader.error(key.span.clone(), || {
                    format!(
                        "{scope}{} captures no {{{name}}}, which lock {} needs",
                        quoted(&key.value),
                        quoted(&lock.value)
                    )
                });
            }
        }
    }
}

/// Checks guards against the namespaces: their locks must be locks with fencing tokens; their keys must not be locks.
pub(super) fn check(
    guards: &[(GuardConfig, Place)],
    namespaces: &[NamespaceConfig],
    companion_prefix: &bytes::Bytes,
    findings: &mut Findings,
) {
    if guards.is_empty() {
        return;
    }
    let index = namespace::index(namespaces, companion_prefix);
    for (guard, place) in guards {
        let mut wrong = |what: String| {
            findings.error(place.clone(), format!("guard {}: {what}", quoted(&guard.name)));
        };
        for lock in &guard.locks {
            let Ok(template) = LockTemplate::new(lock) else {
                continue;
            };
            let Some(found) = index.find(&template.example()) else {
                wrong(format!("lock {} is in no namespace", quoted(lock)));
                continue;
            };
            let namespace = &namespaces[usize::from(found.0)];
            // A custom policy may number grants, too.
            let numbers = |policy: &String| policy == "fencing" || !BUILT_IN_POLICIES.contains(&policy.as_str());
            if !namespace.policies.iter().any(numbers) {
                wrong(format!("namespace {} numbers no grants; add the policy \"fencing\"", quoted(&namespace.name)));
            }
            if namespace.released == Released::Forget {
                wrong(format!(
                    "namespace {} has release = \"forget\", but the record of a released lock says whose late writes are \
                     refused; leave one of them out",
                    quoted(&namespace.name)
                ));
            }
        }
        for key in &guard.keys {
            let Ok(example) = KeyPattern::new(key).map(|pattern| pattern.example()) else {
                continue;
            };
            if let Some(found) = index.find(&example) {
                let namespace = &namespaces[usize::from(found.0)];
                wrong(format!("{} is a lock key itself, in namespace {}", quoted(key), quoted(&namespace.name)));
            }
        }
    }
}

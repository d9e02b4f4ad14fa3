//! `[[policy]]`: WebAssembly policies that do not ship with the proxy, and their limits. Opens no module; the policy
//! host checks modules when it loads them.

use std::path::Path;
use std::time::Duration;

use lockwarden_policy::MAX_MEMORY_BYTES;
use semver::Version;

use super::finding::Position;
use super::keys::belongs_on_top;
use super::module_place::{ModulePlace, RegistryPlace, module_place};
use super::reader::{Reader, Section, key_table};
use super::stage::{NEXT, Stage, stage};
use super::suggest::{did_you_mean, listed, quoted};
use super::value;
use super::value::ValueError;

/// The policies that ship with the proxy.
pub use lockwarden_policy::BUILT_IN_NAMES as BUILT_IN_POLICIES;

/// The most modules in one file.
const MAX_MODULES: usize = 100;

/// The most keys of which one must have signed a module.
const MAX_KEYS: usize = 16;

const DEFAULT_DEADLINE: Duration = Duration::from_millis(2);
/// With a longer deadline, a command would wait longer for its policy than most clients wait for Redis.
const MAX_DEADLINE: Duration = Duration::from_millis(100);

const DEFAULT_MEMORY: usize = 8 << 20;
/// One page of WebAssembly memory.
const LEAST_MEMORY: usize = 64 << 10;

key_table! { pub(super) KEYS =
    name: "\"team-a-naming\"",
    module: "\"policies/team_a_naming.wasm\"",
    sha256: "\"<64 hex digits>\"" = "(any)",
    keys: "[\"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"]" = "[]",
    min_version: "\"1.2.0\"" = "(any)",
    deadline: "\"2ms\"" = "\"2ms\"",
    memory: "\"8MiB\"" = "\"8MiB\"",
    fuel: "1000000" = "(the host's)",
    next: "{ module = \"policies/team_a_naming-1.1.wasm\" }",
}

key_table! { pub(super) NEXT_KEYS =
    stage: "\"shadow\"" = "\"shadow\"",
    module: "\"policies/team_a_naming-1.1.wasm\"",
    sha256: "\"<64 hex digits>\"" = "(any)",
    min_version: "\"1.2.0\"" = "(as now)",
    deadline: "\"2ms\"" = "(as now)",
    memory: "\"8MiB\"" = "(as now)",
    fuel: "1000000" = "(as now)",
}

/// One checked `[[policy]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyModule {
    /// Its name in chains; unique and not one of [`BUILT_IN_POLICIES`].
    pub(crate) name: String,
    /// The place of the component.
    pub(crate) place: ModulePlace,
    /// The file's pinned SHA-256, if the operator set one.
    pub(crate) sha256: Option<[u8; 32]>,
    /// Minisign keys of which one must have signed it, in base64.
    pub(crate) keys: Vec<String>,
    /// The oldest accepted version.
    pub(crate) min_version: Option<Version>,
    /// The longest wall time of one decision, 1 to 100 ms.
    pub(crate) deadline: Duration,
    /// The most linear memory in bytes, 64 KiB to 64 MiB.
    pub(crate) memory_bytes: usize,
    /// Fuel for one decision; `None` leaves it to the host.
    pub(crate) fuel: Option<u64>,
    /// For the next version of a policy: which clients it answers.
    pub(crate) stage: Option<Stage>,
    /// The module's position in the file.
    pub(crate) position: Option<Position>,
}

/// Reads every `[[policy]]` of the file, each followed by its next version. Policies with errors are left out, but
/// their names are kept.
pub(super) fn read(
    reader: &mut Reader<'_>,
    top: &Section<'_, '_>,
    require_signed: bool,
) -> (Vec<PolicyModule>, Vec<String>) {
    let (mut modules, mut names, mut nexts) = (Vec::new(), Vec::new(), Vec::new());
    for (index, table) in reader.tables(top, "policy", MAX_MODULES).unwrap_or_default().into_iter().enumerate() {
        let scope = format!("policy #{}: ", index + 1);
        let mut section = Section { table: table.value, span: table.span, known: KEYS, scope };
        let name = reader.parsed(&section, "name", |text| unused_name(text, &names, &nexts));
        let name = reader.required(&section, "name", name).map(|name| name.value);
        if let Some(name) = &name {
            section.scope = format!("policy {}: ", quoted(name));
            names.push(name.clone());
        }
        let is = one(reader, &section, name.as_deref(), (require_signed, None));
        modules.extend(is.clone());
        let Some(table) = reader.table(&section, "next") else {
            continue;
        };
        let scope = format!("{}next: ", section.scope);
        let section = Section { table: table.value, span: table.span, known: NEXT_KEYS, scope };
        let name = name.map(|name| format!("{name}{NEXT}"));
        if let Some(taken) = name.as_ref().filter(|name| names.contains(name)) {
            let error = NameError::Taken(taken.clone());
            reader.error(section.span.clone(), || format!("{}{error}", section.scope));
        }
        modules.extend(one(reader, &section, name.as_deref(), (require_signed, is.as_ref())));
        nexts.extend(name);
    }
    (modules, names)
}

/// One table, which may be the next version of a policy: keys that it does not set are as in `now`.
fn one(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    name: Option<&str>,
    (require_signed, now): (bool, Option<&PolicyModule>),
) -> Option<PolicyModule> {
    let document = reader.document;
    let module = reader.parsed(section, "module", |text| module_place(text, |path| document.beside(Path::new(path))));
    let module = reader.required(section, "module", module);
    let sha256 = reader.parsed(section, "sha256", value::sha256);
    let min_version = reader.parsed(section, "min_version", version);
    let is_next = section.known.iter().any(|key| key.name == "stage");
    let keys = match is_next {
        // The keys of a policy may also sign its next version.
        true => now.map_or_else(Vec::new, |now| now.keys.clone()),
        false => {
            let keys = reader.strings(section, "keys", MAX_KEYS, key);
            keys.map_or_else(Vec::new, |found| found.value.into_iter().map(|key| key.value).collect())
        }
    };
    if let Some(found) = module.as_ref().filter(|_| require_signed && keys.is_empty() && sha256.is_none()) {
        let is_pinned = matches!(&found.value, ModulePlace::Registry(RegistryPlace { manifest: Some(_), .. }));
        if !is_pinned && !section.table.contains_key("keys") {
            let scope = &section.scope;
            let message = "with require_signed = true a module is pinned by sha256, or signed by one of keys";
            reader.error(found.span.clone(), || format!("{scope}module: {message}"));
        }
    }
    let deadline = reader.parsed(section, "deadline", policy_deadline);
    let memory = reader.parsed(section, "memory", policy_memory);
    let fuel = reader.integer(section, "fuel", 1..=i64::MAX as u64);
    let stage = reader.parsed(section, "stage", stage).map_or(Stage::default(), |found| found.value);
    reader.unknown_keys(section, belongs_on_top);

    let module = module?;
    let unsaid = now.map_or((DEFAULT_DEADLINE, DEFAULT_MEMORY, None), |now| (now.deadline, now.memory_bytes, now.fuel));
    Some(PolicyModule {
        name: name?.to_owned(),
        position: Some(reader.position(&module.span)),
        place: module.value,
        sha256: sha256.map(|found| found.value),
        keys,
        min_version: min_version.map(|found| found.value).or_else(|| now.and_then(|now| now.min_version.clone())),
        deadline: deadline.map_or(unsaid.0, |found| found.value),
        memory_bytes: memory.map_or(unsaid.1, |found| found.value),
        fuel: fuel.map(|found| found.value).or(unsaid.2),
        stage: is_next.then_some(stage),
    })
}

/// Why a text is no public key.
#[derive(Debug, thiserror::Error)]
#[error("{} is no public key of minisign; write the second line of its file, such as \"RWQf6LRC…\"", quoted(.0))]
struct KeyError(String);

fn key(text: &str) -> Result<String, KeyError> {
    match minisign_verify::PublicKey::from_base64(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(KeyError(text.to_owned())),
    }
}

/// Why a text is no version.
#[derive(Debug, thiserror::Error)]
#[error("{} is no version; write three numbers, such as \"1.2.0\"", quoted(.0))]
struct VersionError(String);

fn version(text: &str) -> Result<Version, VersionError> {
    Version::parse(text).map_err(|_| VersionError(text.to_owned()))
}

/// The longest time of one decision.
pub fn policy_deadline(text: &str) -> Result<Duration, ValueError> {
    value::duration(text, Duration::from_millis(1)..=MAX_DEADLINE)
}

/// The most linear memory of an instance, in bytes.
pub fn policy_memory(text: &str) -> Result<usize, ValueError> {
    value::size(text, LEAST_MEMORY..=MAX_MEMORY_BYTES)
}

/// A name for a custom policy.
pub fn policy_name(text: &str) -> Result<String, NameError> {
    unused_name(text, &[], &[])
}

/// Why a text is not the name of a new policy.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    #[error(transparent)]
    Spelling(#[from] ValueError),
    #[error("{} ships with the proxy; choose another name", quoted(.0))]
    BuiltIn(String),
    #[error("{} is another policy's name already; choose another", quoted(.0))]
    Taken(String),
}

fn unused_name(text: &str, names: &[String], nexts: &[String]) -> Result<String, NameError> {
    let name = value::name(text)?;
    if BUILT_IN_POLICIES.contains(&text) {
        return Err(NameError::BuiltIn(name));
    }
    match names.contains(&name) || nexts.contains(&name) {
        true => Err(NameError::Taken(name)),
        false => Ok(name),
    }
}

/// A policy name that is neither built in nor in a `[[policy]]`.
#[derive(Debug, thiserror::Error)]
#[error("no policy is called {}; {advice}", quoted(text))]
pub(super) struct UnknownPolicy {
    text: String,
    advice: String,
}

impl UnknownPolicy {
    pub(super) fn new(text: &str, known: &[&str]) -> UnknownPolicy {
        let known = known.iter().copied();
        let advice = did_you_mean(text, known.clone()).unwrap_or_else(|| {
            let known = listed(known, "and");
            format!("known are {known}; others need a [[policy]]")
        });
        UnknownPolicy { text: text.to_owned(), advice }
    }
}

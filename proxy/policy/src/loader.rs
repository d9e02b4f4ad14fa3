//! From a file to something that can be instantiated: read, compare with the pin, make a component of a core module,
//! check its imports, compile, link. It runs no guest code. Next: `host.rs`, which configures and tests the result.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Engine, Module};

use crate::ahead;
use crate::bindings::v1;
use crate::digest::{hex, sha256 as digest_of};
use crate::encoding::{component_of, is_component, is_module};
use crate::engine::MAX_MEMORY_BYTES;
use crate::error::{LoadError, one_line};
use crate::metadata::{Metadata, NeededLimits};
use crate::said::{self, Said};
use crate::source::{BuiltIn, Limits, ModuleSource, PolicySource};
use crate::store::State;

/// The largest file that is read: guests in interpreted languages have about 20 MB.
pub const MAX_MODULE_BYTES: u64 = 64 << 20;

/// A policy that is compiled and linked, for any number of instances.
pub(crate) struct Compiled {
    pub(crate) policy: v1::PolicyPre<State>,
    /// Whether it may ask for the client's identity.
    pub(crate) asks_clients: bool,
    /// Whether it may ask for clients' recent actions.
    pub(crate) asks_history: bool,
    pub(crate) sha256: [u8; 32],
    /// Whether it may output text.
    pub(crate) is_for_debugging: bool,
    /// Its author's description, if that can be read.
    pub(crate) metadata: Option<Metadata>,
}

/// Compiles a policy, unless its module was `kept`. One built for debugging is accepted only if its output is read.
pub(crate) fn compile(
    engine: &Engine,
    source: &PolicySource,
    said: Option<&Arc<Said>>,
    kept: &impl Fn(&[u8; 32]) -> Option<Arc<Compiled>>,
) -> Result<Arc<Compiled>, LoadError> {
    check_limits(source)?;
    let about = About::of(source);
    let bytes = &*about.bytes(source)?;
    let sha256: [u8; 32] = digest_of(bytes);
    if let Some(wanted) = source.sha256.filter(|wanted| *wanted != sha256) {
        return Err(LoadError::Pin {
            policy: source.name.clone(),
            place: about.place,
            wanted: hex(&wanted),
            found: hex(&sha256),
        });
    }
    if let Some(compiled) = kept(&sha256) {
        return Ok(compiled);
    }
    let compile = || about.component(engine, bytes);
    let component = match source.module {
        ModuleSource::BuiltIn(_) => ahead::or_compile(engine, &sha256, compile)?,
        _ => compile()?,
    };
    let Imports { asks_clients, asks_history, is_for_debugging } = about.imports(engine, &component, said.is_some())?;
    let policy = link(engine, &component, said).map_err(|error| about.misfit(&error))?;
    let metadata = Metadata::read(bytes).unwrap_or_default();
    Ok(Arc::new(Compiled { policy, asks_clients, asks_history, sha256, is_for_debugging, metadata }))
}

/// The machine code of a policy that ships with the proxy.
pub(crate) fn built_in_code(engine: &Engine, policy: &'static BuiltIn) -> Result<Vec<u8>, LoadError> {
    let source = PolicySource::built_in(policy);
    let about = About::of(&source);
    about.component(engine, policy.module)?.serialize().map_err(|error| about.misfit(&error))
}

/// What a module contains about itself, read without running any of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The SHA-256 of its bytes, in hex: what `sha256` of a `[[policy]]` pins.
    pub sha256: String,
    /// Its size.
    pub bytes: usize,
    /// Whether it is a component, rather than a module that is made into one.
    pub is_component: bool,
    /// The version of the contract for which it was built; `None` if it uses no part that has a version.
    pub contract: Option<String>,
    /// The functions of the proxy that it may call, as `clients.describe`.
    pub calls: Vec<String>,
    /// Whether it was built for debugging, so that no proxy loads it.
    pub is_for_debugging: bool,
    /// Its author's description, or why that cannot be read.
    pub metadata: Result<Option<Metadata>, String>,
}

/// Reads, compiles and examines a module as for a chain.
pub(crate) fn inspect(engine: &Engine, source: &PolicySource) -> Result<ModuleInfo, LoadError> {
    let about = About::of(source);
    let bytes = &*about.bytes(source)?;
    let component = about.component(engine, bytes)?;
    let Imports { is_for_debugging, .. } = about.imports(engine, &component, true)?;
    link(engine, &component, Some(&Arc::default())).map_err(|error| about.misfit(&error))?;
    let asked = asked(engine, &component);
    let contract = asked.first().map(|asked| one_line(&asked.version));
    let functions =
        asked.iter().flat_map(|asked| asked.functions.iter().map(move |function| (&asked.interface, function)));
    let calls = functions.map(|(interface, function)| one_line(&format!("{interface}.{function}"))).collect();
    Ok(ModuleInfo {
        sha256: hex(&digest_of(bytes)),
        bytes: bytes.len(),
        is_component: is_component(bytes),
        contract,
        calls,
        is_for_debugging,
        metadata: Metadata::read(bytes),
    })
}

impl PolicySource {
    /// The same with the limits that its author declares, if any. An unreadable declaration is ignored.
    #[must_use]
    pub fn with_needed_limits(mut self) -> PolicySource {
        let about = About::of(&self);
        let metadata = about.bytes(&self).ok().and_then(|bytes| Metadata::read(&bytes).ok().flatten());
        let NeededLimits { memory_bytes, fuel, deadline_ms } =
            metadata.map(|metadata| metadata.limits).unwrap_or_default();
        let usual = self.limits;
        self.limits = Limits {
            memory_bytes: memory_bytes.unwrap_or(usual.memory_bytes),
            fuel: fuel.unwrap_or(usual.fuel),
            deadline: deadline_ms.map_or(usual.deadline, Duration::from_millis),
            output_bytes: usual.output_bytes,
        };
        self
    }
}

fn check_limits(source: &PolicySource) -> Result<(), LoadError> {
    let limits = &source.limits;
    let detail = if limits.memory_bytes > MAX_MEMORY_BYTES {
        format!("memory may be at most {} MiB", MAX_MEMORY_BYTES >> 20)
    } else if limits.memory_bytes == 0 || limits.fuel == 0 || limits.deadline.is_zero() {
        "deadline, memory and fuel must be above zero".to_owned()
    } else {
        return Ok(());
    };
    Err(LoadError::Limits { policy: source.name.clone(), detail })
}

fn link(engine: &Engine, component: &Component, said: Option<&Arc<Said>>) -> wasmtime::Result<v1::PolicyPre<State>> {
    let mut linker: Linker<State> = Linker::new(engine);
    if let Some(said) = said {
        said::add_to_linker(&mut linker, said)?;
    }
    v1::clients::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    v1::history::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    v1::PolicyPre::new(linker.instantiate_pre(component)?)
}

/// What a policy's imports show about it.
struct Imports {
    asks_clients: bool,
    asks_history: bool,
    is_for_debugging: bool,
}

/// The beginning of every error about a policy.
struct About<'a> {
    policy: &'a str,
    place: String,
}

impl<'s> About<'s> {
    fn of(source: &'s PolicySource) -> About<'s> {
        let place = match &source.module {
            ModuleSource::BuiltIn(_) => "the built-in module".to_owned(),
            ModuleSource::File(path) => path.display().to_string(),
            ModuleSource::Bytes(_) => "the module".to_owned(),
            ModuleSource::Fetched { from, .. } => from.clone(),
        };
        About { policy: &source.name, place }
    }

    fn bytes(&self, source: &'s PolicySource) -> Result<Cow<'s, [u8]>, LoadError> {
        match &source.module {
            ModuleSource::BuiltIn(policy) => Ok(Cow::Borrowed(policy.module)),
            ModuleSource::Bytes(bytes) | ModuleSource::Fetched { bytes, .. } => Ok(Cow::Borrowed(bytes)),
            ModuleSource::File(path) => self.read(path).map(Cow::Owned),
        }
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, LoadError> {
        let failed = |source| LoadError::Read { policy: self.policy.to_owned(), file: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(MAX_MODULE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_MODULE_BYTES {
            return Err(LoadError::TooLarge {
                policy: self.policy.to_owned(),
                place: self.place.clone(),
                limit_bytes: MAX_MODULE_BYTES,
            });
        }
        Ok(bytes)
    }

    fn component(&self, engine: &Engine, bytes: &[u8]) -> Result<Component, LoadError> {
        let component = match bytes {
            _ if is_module(bytes) => &self.encode(engine, bytes)?,
            _ if is_component(bytes) => bytes,
            _ => {
                return Err(LoadError::NotWasm { policy: self.policy.to_owned(), place: self.place.clone() });
            }
        };
        Component::from_binary(engine, component).map_err(|error| self.misfit(&error))
    }

    /// Makes a component of a core module.
    fn encode(&self, engine: &Engine, module: &[u8]) -> Result<Vec<u8>, LoadError> {
        Module::validate(engine, module).map_err(|error| self.misfit(&error))?;
        let detail = match component_of(module, &[]) {
            Ok(component) => return Ok(component),
            Err(detail) => detail,
        };
        // The encoder names one import at a time; the module has the whole list.
        let foreign: Vec<String> = match Module::from_binary(engine, module) {
            Ok(module) => {
                let modules = module.imports().map(|import| import.module().to_owned());
                dedup(modules.filter(|name| !is_ours(name)).collect())
            }
            Err(_) => Vec::new(),
        };
        if foreign.is_empty() { Err(self.not_a_policy(&detail)) } else { Err(self.foreign(foreign)) }
    }

    /// Refuses foreign imports, and those of a policy for debugging unless `may_say`.
    fn imports(&self, engine: &Engine, component: &Component, may_say: bool) -> Result<Imports, LoadError> {
        let component_type = component.component_type();
        let imports = component_type.imports(engine).map(|(name, _)| name.to_owned());
        let (debugging, imports): (Vec<String>, Vec<String>) = imports.partition(|name| is_debugging(name));
        let is_for_debugging = !debugging.is_empty();
        if is_for_debugging && !may_say {
            return Err(LoadError::ForDebugging { policy: self.policy.to_owned(), place: self.place.clone() });
        }
        let foreign: Vec<String> = imports.iter().filter(|name| !is_ours(name)).cloned().collect();
        if !foreign.is_empty() {
            return Err(self.foreign(dedup(foreign)));
        }
        let known = |name: &str| v1::INTERFACES.iter().find(|(ours, _)| name.starts_with(ours));
        let unknown = imports.iter().find(|name| known(name).is_none()).cloned();
        let unknown = unknown.or_else(|| {
            let mut asked = asked(engine, component).into_iter();
            asked.find_map(|Asked { name, interface, version, functions }| {
                let (_, ours) = known(&name)?;
                let lacks = functions.iter().find(|function| !ours.contains(&&***function))?;
                Some(format!("lockwarden:policy {version}: it asks {interface}.{lacks}"))
            })
        });
        if let Some(found) = unknown {
            let (policy, place) = (self.policy.to_owned(), self.place.clone());
            return Err(LoadError::Version { policy, place, found: one_line(&found) });
        }
        let asks_clients = imports.iter().any(|name| name.starts_with(v1::CLIENTS));
        let asks_history = imports.iter().any(|name| name.starts_with(v1::HISTORY));
        Ok(Imports { asks_clients, asks_history, is_for_debugging })
    }

    fn foreign(&self, imports: Vec<String>) -> LoadError {
        LoadError::ForeignImports { policy: self.policy.to_owned(), place: self.place.clone(), imports }
    }

    fn misfit(&self, error: &wasmtime::Error) -> LoadError {
        self.not_a_policy(&format!("{error:#}"))
    }

    fn not_a_policy(&self, detail: &str) -> LoadError {
        LoadError::NotAPolicy { policy: self.policy.to_owned(), place: self.place.clone(), detail: one_line(detail) }
    }
}

/// An interface of the contract that a component imports.
struct Asked {
    /// `lockwarden:policy/clients@1.2.0`.
    name: String,
    interface: String,
    version: String,
    functions: Vec<String>,
}

/// The functions of the proxy that a component imports.
fn asked(engine: &Engine, component: &Component) -> Vec<Asked> {
    let component_type = component.component_type();
    let imports = component_type.imports(engine).filter_map(|(name, import)| {
        let (interface, version) = name.strip_prefix(OURS)?.split_once('@')?;
        let functions = match import.ty {
            ComponentItem::ComponentInstance(instance) => {
                let functions =
                    instance.exports(engine).filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)));
                functions.map(|(function, _)| function.to_owned()).collect()
            }
            _ => Vec::new(),
        };
        Some(Asked { name: name.to_owned(), interface: interface.to_owned(), version: version.to_owned(), functions })
    });
    imports.collect()
}

/// The prefix of the names of all interfaces of the contract.
const OURS: &str = "lockwarden:policy/";

fn is_ours(import: &str) -> bool {
    import.starts_with(OURS)
}

/// Whether only policies built for debugging import this.
fn is_debugging(import: &str) -> bool {
    import == said::INTERFACE
}

/// Each name once, as one line, in order of appearance; a dozen is enough.
fn dedup(names: Vec<String>) -> Vec<String> {
    const SHOWN: usize = 12;
    let mut once: Vec<String> = Vec::new();
    for name in names.iter().map(|name| one_line(name)) {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    if once.len() > SHOWN {
        let more = once.len() - SHOWN;
        once.truncate(SHOWN);
        once.push(format!("and {more} more"));
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{BUILT_IN_NAMES, builtin};

    /// With more parameters they would go through memory: an argument block and one more allocation for each list.
    #[test]
    fn a_request_fits_into_sixteen_core_parameters() {
        let engine = Engine::default();
        for name in BUILT_IN_NAMES {
            let module = Module::from_binary(&engine, builtin(name).unwrap().module).unwrap();
            let decide = module.get_export("decide").unwrap();
            assert_eq!(decide.unwrap_func().params().len(), 16, "{name}");
        }
    }

    #[test]
    fn names_are_listed_once_and_not_without_end() {
        let names = |range: std::ops::Range<u32>| range.map(|n| format!("m{}\n", n / 2)).collect();
        assert_eq!(dedup(names(0..4)), ["m0 ", "m1 "]);
        let many = dedup(names(0..1_000));
        assert_eq!(many.len(), 13);
        assert_eq!(many[12], "and 488 more");
    }
}

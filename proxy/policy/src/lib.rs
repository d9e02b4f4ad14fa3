//! The Wasm host: it loads policies, keeps them within their limits and merges the answers of a chain into one
//! [`Decision`](lockwarden_lock::decision::Decision). It never talks to a backend or a client. Next:
//! [`PolicyHost::load`] for loading a policy, then [`Chains`] for the path of one question; `wit/policy.wit` is the
//! contract.

mod ahead;
mod bindings;
mod breaker;
mod chains;
mod check;
mod deadline;
mod digest;
mod encoding;
mod engine;
mod error;
mod generation;
mod history;
mod host;
mod instance;
#[cfg(debug_assertions)]
mod kept;
mod kept_answers;
mod loader;
mod metadata;
mod meter;
mod packaging;
mod said;
mod source;
mod store;
mod sync;
mod ticker;

pub use ahead::{are_compiled_ahead, compile_ahead};
pub use bindings::v1::ABI;
pub use chains::Chains;
pub use engine::MAX_MEMORY_BYTES;
pub use error::{AheadError, HostError, LoadError};
pub use generation::{Generation, PolicyInfo, TriedPolicy};
pub use history::Pretended;
pub use host::{ChainSpec, PolicyHost};
pub use loader::{MAX_MODULE_BYTES, ModuleInfo};
pub use metadata::{Metadata, NeededLimits, SettingInfo, SettingKind};
pub use meter::{Observer, PolicyCounters};
pub use packaging::{CONTRACT, DEBUGGING, package};
pub use said::Said;
pub use source::{
    BUILT_IN_NAMES, BuiltIn, DEFAULT_CHAIN, Limits, ModuleSource, PolicySource, RULES, builtin, builtins,
};

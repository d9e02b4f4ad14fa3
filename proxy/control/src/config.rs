//! Configuration: here the text of a file, the environment and the command line becomes checked types, once. All errors
//! are reported at once, each with its place. This code opens no socket and loads no policy; whether a policy accepts
//! its settings is checked by the policy host. Start reading with [`load`]; `docs/configuration.md` describes the same
//! for operators.

use std::path::Path;

mod administration;
mod advertise;
mod application;
mod audit;
mod backend;
mod backend_login;
mod certificate_login;
mod chain;
mod delivery;
mod document;
mod draft;
mod durability;
mod effective;
mod enforce_for;
mod file;
mod finding;
mod guard;
mod keys;
mod listed;
mod listener;
mod logging;
mod meaning;
mod module_place;
mod namespace;
mod network;
mod next;
mod next_version;
mod overrides;
mod policy;
mod present;
mod reach;
mod reader;
mod rule;
mod secret;
mod sentinel;
mod settings;
mod stage;
mod suggest;
mod summary;
mod tls;
mod typed_change;
mod types;
mod user_map;
mod value;
mod zone;

#[cfg(test)]
mod tests;

pub use administration::{AdministrationConfig, ComputedNames, unknown_command};
pub use advertise::target as advertised_listener;
pub use application::ApplicationRule;
pub use audit::{AuditConfig, AuditLevel, AuditTarget, Limits};
pub use backend::{
    Backend, BackendUrl, BackendUrlError, HostAndPort, SentinelTarget, Target, backend as parse_backend,
};
pub use backend_login::{BackendLogin, PasswordSource};
pub use certificate_login::{CertificateLogin, needs_certificates, takes_common_names};
pub use delivery::DeliveryConfig;
pub use effective::Setting;
pub use enforce_for::EnforceFor;
pub use finding::{Finding, Position, Report, Severity, Unusable};
pub use guard::{GUARD, GuardConfig};
pub use listed::Listed;
pub use listener::{Group, ListenAddress, Listener};
pub use logging::LogFormat;
pub use meaning::{Meaning, Says, short_digest};
pub use module_place::{ModulePlace, RegistryPlace, module_place};
pub use namespace::{NamespaceConfig, Quarantine, index as namespace_index};
pub use network::Network;
#[cfg(test)]
pub(crate) use network::network as parse_network;
pub use next::NextChain;
pub use overrides::Overrides;
pub use policy::{BUILT_IN_POLICIES, PolicyModule, policy_deadline, policy_memory, policy_name};
pub use present::{Advertise, HostPort, Present, SentinelFace};
pub use rule::RuleConfig;
pub use secret::{
    MAX_SECRET_BYTES, Secret, SecretError, SecretFileError, admin_token, admin_token_in, password, password_in,
    without_line_end,
};
pub use stage::{NEXT, Stage, stage};
pub use summary::Summary;
pub use typed_change::{TypedChange, changed as with_typed_changes};
pub use types::{Config, Sessions};
pub use user_map::UserMapping;
pub use value::milliseconds;

use draft::Draft;
use finding::Findings;

/// The result of loading.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration; `None` if a finding is an error.
    pub config: Option<Config>,
    /// Everything that is wrong or doubtful: first findings of the file in its own order, then of the environment, then
    /// of the flags. Print them with [`Report`].
    pub findings: Vec<Finding>,
}

impl Loaded {
    /// The configuration, without the warnings; or all findings if one is an error.
    pub fn usable(self) -> Result<Config, Unusable> {
        self.config.ok_or(Unusable(self.findings))
    }
}

/// Puts the layers on one another, each over the one before: built-in, the file at `path`, the
/// environment `env` (variables that do not begin with `LOCKWARDEN_` are ignored), `overrides`.
pub fn load(path: Option<&Path>, overrides: &Overrides, env: impl Iterator<Item = (String, String)>) -> Loaded {
    let read = |draft: &mut Draft, findings: &mut Findings| {
        if let Some(path) = path {
            file::read(path, draft, findings);
        }
    };
    layered(path, read, overrides, env)
}

/// The same, with this text instead of the file's content.
pub fn load_text(
    (path, text): (&Path, &str),
    overrides: &Overrides,
    env: impl Iterator<Item = (String, String)>,
) -> Loaded {
    let read = |draft: &mut Draft, findings: &mut Findings| {
        file::read_text((path, text), draft, findings);
    };
    layered(Some(path), read, overrides, env)
}

fn layered(
    path: Option<&Path>,
    read: impl FnOnce(&mut Draft, &mut Findings),
    overrides: &Overrides,
    env: impl Iterator<Item = (String, String)>,
) -> Loaded {
    let mut findings = Findings::default();
    let mut draft = Draft::built_in();
    read(&mut draft, &mut findings);
    overrides::environment(&mut draft, env, &mut findings);
    overrides::flags(&mut draft, overrides, &mut findings);
    let config = draft.finish(path, &mut findings);
    let config = (!findings.any_error()).then_some(config);
    Loaded { config, findings: findings.into_sorted(path) }
}

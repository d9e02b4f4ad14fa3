//! From the configuration to policies in force: which modules, which chains, which settings. Every
//! error gets its place in the file.

use lockwarden_policy::{
    ChainSpec, Generation, Limits, LoadError, ModuleSource, PolicyHost, PolicySource,
};

use crate::config::{Config, Finding, NamespaceConfig, PolicyModule};

/// Compiles and configures everything that the configuration names.
///
/// # Errors
/// Everything that is wrong; nothing is half loaded.
pub(crate) fn load(host: &PolicyHost, config: &Config) -> Result<Generation, Vec<Finding>> {
    let sources: Vec<PolicySource> = config.policies.iter().map(source).collect();
    let chains: Vec<ChainSpec> = config.namespaces.iter().map(chain).collect();
    host.load(&sources, &chains)
        .map_err(|errors| errors.iter().map(|error| finding(config, error)).collect())
}

fn source(module: &PolicyModule) -> PolicySource {
    let usual = Limits::default();
    PolicySource {
        name: module.name.clone(),
        module: ModuleSource::File(module.module.clone()),
        sha256: module.sha256,
        limits: Limits {
            deadline: module.deadline,
            memory_bytes: module.memory_bytes,
            fuel: module.fuel.unwrap_or(usual.fuel),
            output_bytes: usual.output_bytes,
        },
    }
}

fn chain(namespace: &NamespaceConfig) -> ChainSpec {
    let settings = |policy: &String| namespace.settings.get(policy).cloned().unwrap_or_default();
    ChainSpec {
        namespace: namespace.name.clone(),
        policies: namespace
            .policies
            .iter()
            .map(|policy| (policy.clone(), settings(policy)))
            .collect(),
    }
}

fn finding(config: &Config, error: &LoadError) -> Finding {
    let (namespace, policy) = about(error);
    let namespace = namespace.and_then(|name| {
        config
            .namespaces
            .iter()
            .find(|namespace| namespace.name == name)
    });
    let module =
        policy.and_then(|policy| config.policies.iter().find(|module| module.name == policy));
    let message = error.to_string();
    let position = match (namespace, policy) {
        (Some(namespace), Some(policy)) => named_setting(namespace, policy, &message)
            .and_then(|setting| namespace.setting_position(policy, setting))
            .or_else(|| namespace.policy_position(policy)),
        (_, _) => module.and_then(|module| module.position),
    };
    Finding::error_in(config.source.as_deref(), position, message)
}

/// The setting that a policy's own words are about, if they name one.
fn named_setting<'a>(
    namespace: &'a NamespaceConfig,
    policy: &str,
    message: &str,
) -> Option<&'a str> {
    let settings = namespace.settings.get(policy)?;
    settings
        .iter()
        .map(|(name, _)| name.as_str())
        .find(|name| message.contains(name))
}

/// The namespace and the policy that an error is about.
fn about(error: &LoadError) -> (Option<&str>, Option<&str>) {
    match error {
        LoadError::Unknown {
            namespace, policy, ..
        }
        | LoadError::TwiceInChain { namespace, policy }
        | LoadError::Rejected {
            namespace, policy, ..
        }
        | LoadError::Faulty {
            namespace, policy, ..
        }
        | LoadError::NoProofCounts {
            namespace, policy, ..
        }
        | LoadError::Contradiction {
            namespace,
            first: policy,
            ..
        } => (Some(namespace), Some(policy)),
        LoadError::Read { policy, .. }
        | LoadError::TooLarge { policy, .. }
        | LoadError::Pin { policy, .. }
        | LoadError::NotWasm { policy, .. }
        | LoadError::ForeignImports { policy, .. }
        | LoadError::Version { policy, .. }
        | LoadError::NotAPolicy { policy, .. }
        | LoadError::Limits { policy, .. }
        | LoadError::DefinedTwice { policy } => (None, Some(policy)),
        LoadError::TooMany { .. } => (None, None),
    }
}

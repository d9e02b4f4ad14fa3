//! Configuration: text from a file, the environment and the command line becomes checked types
//! here, once, and everything that is wrong is reported at once with its place. It opens no socket
//! and loads no policy; whether a policy likes its settings is found out by the policy host. Go on
//! with [`load`]; `docs/configuration.md` is the same for operators.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

mod administration;
mod audit;
mod backend;
mod document;
mod draft;
mod enforce_for;
mod file;
mod finding;
mod logging;
mod namespace;
mod network;
#[cfg(feature = "otel")]
mod otel;
mod overrides;
mod policy;
mod reach;
mod reader;
mod secret;
mod settings;
mod suggest;
mod summary;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use administration::{ComputedNames, ServerCommands};
pub(crate) use audit::{AuditConfig, AuditLevel, AuditTarget, Limits};
pub(crate) use backend::{Backend, BackendUrl, backend as parse_backend};
pub(crate) use enforce_for::EnforceFor;
pub(crate) use finding::{Finding, Report, Severity};
pub(crate) use logging::LogFormat;
pub(crate) use namespace::{
    Adopt, Mode, NamespaceConfig, OnFault, OnRepeat, OnViolation, OpaqueScripts,
};
pub(crate) use network::Network;
#[cfg(feature = "otel")]
pub(crate) use otel::{Endpoint, OtelConfig};
pub(crate) use overrides::Overrides;
pub(crate) use policy::{BUILT_IN_POLICIES, PolicyModule};
pub(crate) use secret::{Secret, admin_token, admin_token_in};
pub(crate) use summary::Summary;
pub(crate) use value::milliseconds;

use draft::Draft;
use finding::Findings;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6380);
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);
const DEFAULT_BACKEND: (&str, u16) = ("127.0.0.1", 6379);
const DEFAULT_DRAIN: Duration = Duration::from_secs(5);
const DEFAULT_SWEEP: Duration = Duration::from_secs(60);

/// How clients come by connections to the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sessions {
    /// One each.
    #[default]
    Dedicated,
    /// Those of a thread share one, except for what needs a connection of its own.
    Multiplexed,
}

/// A configuration that was checked as far as that is possible without the network and without
/// loading policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Where clients connect. Port 0 asks the system for a free one.
    pub(crate) listen: SocketAddr,
    /// The Redis or Valkey behind the proxy.
    pub(crate) backend: Backend,
    /// Where the admin interface listens; `None` if it is off. Not loopback only with a token.
    pub(crate) admin: Option<SocketAddr>,
    /// What a request that changes something must bring; the server makes one up if there is none.
    pub(crate) admin_token: Option<Secret>,
    /// A second address that serves only metrics and health.
    pub(crate) metrics: Option<SocketAddr>,
    /// Namespaces with metric series of their own, 1 to 1000; the rest share one.
    pub(crate) metrics_max_namespaces: usize,
    /// Serve an unprotected backend on an address that is not loopback.
    pub(crate) allow_open: bool,
    /// What companion keys begin with: 1 to 32 printable bytes without spaces and braces.
    pub(crate) companion_prefix: Bytes,
    /// Balancers whose word on where a client comes from is taken, and wanted.
    pub(crate) proxy_protocol_from: Vec<Network>,
    /// Whether each client has a connection to the backend of its own.
    pub(crate) sessions: Sessions,
    /// How lines of the log look.
    pub(crate) log_format: LogFormat,
    /// How long a stopping proxy waits for its clients, at most 10 minutes.
    pub(crate) drain: Duration,
    /// Between two walks over the server's keys; `None`: never.
    pub(crate) sweep: Option<Duration>,
    /// What clients' buffers may take, bytes; `None`: a quarter of what there is.
    pub(crate) max_memory: Option<usize>,
    /// How many clients there may be; `None`: as many as the limit of open files leaves room for.
    pub(crate) max_clients: Option<u64>,
    /// In the order of the file; the first that matches a key wins. Empty only where the file says
    /// so (with a warning).
    pub(crate) namespaces: Vec<NamespaceConfig>,
    /// Who may administer the server.
    pub(crate) server_commands: ServerCommands,
    /// Client names and ACL users that may, and may erase locks.
    pub(crate) admin_identities: Vec<String>,
    /// What happens to scripts that compute names of keys.
    pub(crate) computed_names: ComputedNames,
    /// Functions that may name lock keys.
    pub(crate) trusted_functions: Vec<String>,
    /// The audit trail.
    pub(crate) audit: AuditConfig,
    /// Spans of refused and slow decisions.
    #[cfg(feature = "otel")]
    pub(crate) otel: OtelConfig,
    /// Policies that do not ship with the proxy.
    pub(crate) policies: Vec<PolicyModule>,
    /// The file that was read, as the caller named it.
    pub(crate) source: Option<PathBuf>,
}

/// What came out of loading.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The configuration; `None` if a finding is an error.
    pub(crate) config: Option<Config>,
    /// Everything that is wrong or doubtful: the file's in its own order, then the environment's,
    /// then the flags'. Print them with [`Report`].
    pub(crate) findings: Vec<Finding>,
}

/// Puts the layers on one another, each over the one before: built-in, the file at `path`, the
/// environment `env` (variables that do not begin with `LOCKWARDEN_` are ignored), `overrides`.
pub(crate) fn load(
    path: Option<&Path>,
    overrides: &Overrides,
    env: impl Iterator<Item = (String, String)>,
) -> Loaded {
    let mut findings = Findings::default();
    let mut draft = Draft::built_in();
    if let Some(path) = path {
        file::read(path, &mut draft, &mut findings);
    }
    overrides::environment(&mut draft, env, &mut findings);
    overrides::flags(&mut draft, overrides, &mut findings);
    let config = draft.finish(path, &mut findings);
    let config = (!findings.any_error()).then_some(config);
    Loaded {
        config,
        findings: findings.into_sorted(path),
    }
}

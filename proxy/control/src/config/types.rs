//! The configuration as the rest of the proxy gets it: assembled by `draft`, checked, and never changed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use super::administration::AdministrationConfig;
use super::application::ApplicationRule;
use super::audit::AuditConfig;
use super::backend::Backend;
use super::backend_login::BackendLogin;
use super::certificate_login::CertificateLogin;
use super::delivery::DeliveryConfig;
use super::effective::{Sayings, Setting};
use super::guard::GuardConfig;
use super::listener::Listener;
use super::logging::LogFormat;
use super::namespace::{NamespaceConfig, Quarantine};
use super::network::Network;
use super::policy::PolicyModule;
use super::secret::Secret;
use super::user_map::UserMapping;
use crate::net::tls::{BackendFiles, ListenerFiles};

/// How clients get connections to the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sessions {
    /// Each client has its own.
    #[default]
    Dedicated,
    /// The clients of a thread share one, except for commands that need their own.
    Multiplexed,
}

/// A configuration that was checked as far as possible without the network and without loading policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect: `listen` first, unless it is off. At least one.
    pub listeners: Vec<Listener>,
    /// The Redis or Valkey behind the proxy.
    pub backend: Backend,
    /// The login of the proxy's own connections, if the password changes over time.
    pub backend_login: Option<BackendLogin>,
    /// How the backend's certificate is checked, if its URL uses TLS and this differs from the URL's defaults.
    pub backend_tls: Option<BackendFiles>,
    /// The certificates of TLS listeners; set if any listener uses TLS.
    pub tls: Option<ListenerFiles>,
    /// The address of the admin interface; `None` if it is off. A non-loopback address requires a token.
    pub admin: Option<SocketAddr>,
    /// The token that a changing request must carry; the server generates one if there is none.
    pub admin_token: Option<Secret>,
    /// A second address that serves only metrics and health.
    pub metrics: Option<SocketAddr>,
    /// Namespaces with metric series of their own, 1 to 1000; the rest share one.
    pub metrics_max_namespaces: usize,
    /// Serve an unprotected backend on a non-loopback address.
    pub allow_open: bool,
    /// The backend is a node of a cluster, with one proxy in front of each node.
    pub cluster_node: bool,
    /// The prefix of companion keys: 1 to 32 printable bytes without spaces and braces.
    pub companion_prefix: Bytes,
    /// Load balancers that must send a PROXY header, and whose header is trusted.
    pub proxy_protocol_from: Vec<Network>,
    /// Whether each client has its own connection to the backend.
    pub sessions: Sessions,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// How long a stopping proxy waits for its clients, at most 10 minutes.
    pub drain: Duration,
    /// The time between two walks over the server's keys; `None`: never.
    pub sweep: Option<Duration>,
    /// How long a request to a cluster waits for a slot that moves or that no node serves, at most a minute.
    pub moving_patience: Duration,
    /// The memory for clients' buffers, bytes; `None`: a quarter of the available memory.
    pub max_memory: Option<usize>,
    /// The most clients; `None`: as many as the limit of open files allows.
    pub max_clients: Option<u64>,
    /// The longest age of a client's connection; `None`: unlimited.
    pub max_connection_age: Option<Duration>,
    /// In the order of the file; the first that matches a key wins. Empty only where the file says
    /// so (with a warning).
    pub namespaces: Vec<NamespaceConfig>,
    /// Data that only the holder of its lock may write.
    pub guards: Vec<GuardConfig>,
    /// Which users of the backend have a twin that touches locks for them.
    pub user_map: Vec<UserMapping>,
    /// The names of applications, in the order of the file; the first that matches a client wins.
    pub applications: Vec<ApplicationRule>,
    /// Clients that log in by certificate: the name in it selects the ACL user.
    pub certificate_logins: Vec<CertificateLogin>,
    /// Who may administer the server, and which functions are trusted with locks.
    pub administration: AdministrationConfig,
    /// The audit trail.
    pub audit: AuditConfig,
    /// How modules of policies come from elsewhere.
    pub(crate) delivery: DeliveryConfig,
    /// Policies that do not ship with the proxy.
    pub(crate) policies: Vec<PolicyModule>,
    /// The source of each value, for people.
    pub said: Sayings,
    /// The file that was read, as the caller named it.
    pub source: Option<PathBuf>,
}

impl Config {
    /// The defaults, except the addresses, which `draft` knows.
    pub(super) fn built_in() -> Config {
        Config {
            metrics_max_namespaces: 30,
            companion_prefix: Bytes::from_static(b"lw:"),
            drain: Duration::from_secs(5),
            sweep: Some(Duration::from_secs(60)),
            moving_patience: Duration::from_secs(2),
            namespaces: vec![NamespaceConfig::built_in()],
            ..Config::default()
        }
    }

    /// The listeners that lead to the backend.
    pub fn data_listeners(&self) -> Vec<Listener> {
        let listeners = self.listeners.iter();
        listeners.filter(|listener| listener.present.has_data()).cloned().collect()
    }

    /// Whether grants of any namespace wait for replicas.
    pub fn waits_for_replicas(&self) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|namespace| namespace.durability.is_some())
    }

    /// Whether any namespace needs to know which server it is connected to.
    pub fn has_quarantine(&self) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|namespace| namespace.quarantine != Quarantine::Off)
    }

    /// Every key, its value, and the value's source.
    pub fn settings(&self) -> Vec<Setting> {
        let names = self.namespaces.iter();
        self.said.settings(names.map(|namespace| &*namespace.name))
    }
}

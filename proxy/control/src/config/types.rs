//! The configuration as the rest of the proxy gets it: put together by `draft`, checked, and never changed.

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

/// How clients come by connections to the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sessions {
    /// One each.
    #[default]
    Dedicated,
    /// Those of a thread share one, except for what needs a connection of its own.
    Multiplexed,
}

/// A configuration that was checked as far as that is possible without the network and without
/// loading policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect: `listen` first, unless that is off. There is at least one.
    pub listeners: Vec<Listener>,
    /// The Redis or Valkey behind the proxy.
    pub backend: Backend,
    /// How the proxy's own connections log in, where their password changes.
    pub backend_login: Option<BackendLogin>,
    /// How the backend is made sure of, where its URL says TLS and this is not what a URL alone says.
    pub backend_tls: Option<BackendFiles>,
    /// What listeners with TLS show and want; there where one of them has it.
    pub tls: Option<ListenerFiles>,
    /// Where the admin interface listens; `None` if it is off. Not loopback only with a token.
    pub admin: Option<SocketAddr>,
    /// What a request that changes something must bring; the server makes one up if there is none.
    pub admin_token: Option<Secret>,
    /// A second address that serves only metrics and health.
    pub metrics: Option<SocketAddr>,
    /// Namespaces with metric series of their own, 1 to 1000; the rest share one.
    pub metrics_max_namespaces: usize,
    /// Serve an unprotected backend on an address that is not loopback.
    pub allow_open: bool,
    /// The backend is a node of a cluster, and one proxy stands before each.
    pub cluster_node: bool,
    /// What companion keys begin with: 1 to 32 printable bytes without spaces and braces.
    pub companion_prefix: Bytes,
    /// Load balancers that must send a PROXY header, and whose header is trusted.
    pub proxy_protocol_from: Vec<Network>,
    /// Whether each client has a connection to the backend of its own.
    pub sessions: Sessions,
    /// How lines of the log look.
    pub log_format: LogFormat,
    /// How long a stopping proxy waits for its clients, at most 10 minutes.
    pub drain: Duration,
    /// Between two walks over the server's keys; `None`: never.
    pub sweep: Option<Duration>,
    /// How long a request to a cluster waits for a slot that moves or that no node serves, at most a minute.
    pub moving_patience: Duration,
    /// What clients' buffers may take, bytes; `None`: a quarter of what there is.
    pub max_memory: Option<usize>,
    /// How many clients there may be; `None`: as many as the limit of open files leaves room for.
    pub max_clients: Option<u64>,
    /// How old a client's connection may become; `None`: as old as it likes.
    pub max_connection_age: Option<Duration>,
    /// In the order of the file; the first that matches a key wins. Empty only where the file says
    /// so (with a warning).
    pub namespaces: Vec<NamespaceConfig>,
    /// Data that only the holder of its lock may write.
    pub guards: Vec<GuardConfig>,
    /// Which users of the backend have a twin that touches locks for them.
    pub user_map: Vec<UserMapping>,
    /// What applications are called, in the order of the file; the first that a client matches wins.
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
    /// Who said what, for people.
    pub said: Sayings,
    /// The file that was read, as the caller named it.
    pub source: Option<PathBuf>,
}

impl Config {
    /// What holds where nobody says otherwise, beside the addresses that `draft` knows.
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

    /// Whether any namespace asks which server it is connected to.
    pub fn has_quarantine(&self) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|namespace| namespace.quarantine != Quarantine::Off)
    }

    /// Every key, what holds for it, and who said so.
    pub fn settings(&self) -> Vec<Setting> {
        let names = self.namespaces.iter();
        self.said.settings(names.map(|namespace| &*namespace.name))
    }
}

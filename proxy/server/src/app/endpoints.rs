//! The addresses that the proxy serves. They are reserved first, so that an address in use is one clear error and nothing is
//! half started, and opened when there is something to serve. `net::listener` hands them from one process to the next.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use lockwarden_console::admin;
use lockwarden_console::admin::token_file::TokenFile;
use lockwarden_console::admin::{AdminHandle, AdminOptions, Control};
use lockwarden_control::config::{
    Advertise, Config, Group, HostPort, ListenAddress, Listener, Present, advertised_listener,
};
use lockwarden_control::net::listener::{Arrival, Endpoint};
use lockwarden_control::net::unix_listener::{Access, SocketFile, UnixEndpoint};
use lockwarden_dataplane::presented::{Primary, Sentinel};
use lockwarden_dataplane::state::ProxyState;

use crate::terminal::say;

/// The addresses, reserved and not open yet.
pub(crate) struct Endpoints {
    clients: Vec<ClientEndpoint>,
    admin: Option<Endpoint>,
    metrics: Option<Endpoint>,
}

/// An address for clients.
enum ClientEndpoint {
    Tcp(Endpoint, Gate),
    Unix(UnixEndpoint),
}

/// The role of an IP address and port for clients.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) security: Security,
    /// Set where the address acts as a Sentinel and does not lead to the backend.
    pub(crate) sentinel: Option<Arc<Sentinel>>,
    /// Set where the address acts as the only node of a cluster: the address that it announces.
    pub(crate) cluster: Option<Arc<Advertise>>,
}

impl Gate {
    /// A gate to the backend.
    pub(crate) fn plain() -> Gate {
        Gate { security: Security::Plain, sentinel: None, cluster: None }
    }

    fn is_plain_and_has_data(&self) -> bool {
        self.security == Security::Plain && self.sentinel.is_none()
    }
}

/// The layer below Redis's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    Plain,
    Tls,
}

/// The same, once it is open.
pub(crate) enum Listening {
    Tcp(TcpListener, Gate),
    Unix(UnixListener, SocketFile),
}

/// The open endpoints.
pub(crate) struct Opened {
    /// At least one listener.
    pub(crate) listeners: Vec<Listening>,
    pub(crate) admin: Option<AdminHandle>,
    pub(crate) metrics: Option<AdminHandle>,
}

/// Why an address is not served: the address, its configuration key, and the cause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("cannot listen on {0} ({1}): {2}")]
    Reserve(ListenAddress, &'static str, io::Error),
    /// Another process listens there; it may be a proxy that can hand the address over.
    #[error("cannot listen on {0} ({1}): {2}; to take it over from a proxy of the same user, start with --takeover")]
    InUse(ListenAddress, &'static str, io::Error),
    #[error("cannot listen on {0}: there is no group {1} on this system")]
    NoGroup(ListenAddress, Group),
    #[error("cannot listen ({0}): {1}")]
    Open(&'static str, io::Error),
    #[error("cannot serve ({0}): {1}")]
    Serve(&'static str, io::Error),
}

impl Endpoints {
    /// Reserves all addresses, before anything is started.
    pub(crate) fn reserve(config: &Config, arrival: Arrival) -> Result<Endpoints, EndpointError> {
        let failed = |what, address, error: io::Error| match (error.kind(), arrival) {
            (io::ErrorKind::AddrInUse, Arrival::Alone) => EndpointError::InUse(address, what, error),
            _ => EndpointError::Reserve(address, what, error),
        };
        let reserve = |what, address| {
            Endpoint::reserve(address, arrival).map_err(|error| failed(what, ListenAddress::Tcp(address), error))
        };
        let client = |listener: &Listener| match &listener.address {
            ListenAddress::Tcp(address) => {
                let security = match listener.tls {
                    true => Security::Tls,
                    false => Security::Plain,
                };
                let cluster = match &listener.present {
                    Present::Cluster(advertise) => Some(Arc::new(advertise.clone())),
                    Present::Standalone | Present::Sentinel(_) => None,
                };
                let gate = Gate { security, sentinel: None, cluster };
                let endpoint = reserve("listen", *address)?;
                Ok(ClientEndpoint::Tcp(endpoint, gate))
            }
            ListenAddress::Unix(path) => {
                let access = Access { mode: listener.mode, group: group_number(listener)? };
                UnixEndpoint::reserve(path, access, arrival)
                    .map(ClientEndpoint::Unix)
                    .map_err(|error| failed("listen", listener.address.clone(), error))
            }
        };
        let reserve_any = |what, address: Option<SocketAddr>| address.map(|address| reserve(what, address)).transpose();
        let listeners = config.listeners.iter();
        let mut clients = listeners.map(client).collect::<Result<Vec<_>, _>>()?;
        appoint_sentinels(config, &mut clients);
        Ok(Endpoints {
            clients,
            admin: reserve_any("admin", config.admin)?,
            metrics: reserve_any("metrics", config.metrics)?,
        })
    }

    /// The port for clients, if there is one: the real port where 0 was configured.
    pub(crate) fn port(&self) -> Option<u16> {
        self.clients.iter().find_map(|endpoint| match endpoint {
            ClientEndpoint::Tcp(endpoint, gate) if gate.is_plain_and_has_data() => endpoint.port(),
            ClientEndpoint::Tcp(..) | ClientEndpoint::Unix(_) => None,
        })
    }

    /// Whether an address for clients is still held by another process.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.clients.iter().any(|endpoint| match endpoint {
            ClientEndpoint::Tcp(endpoint, _) => endpoint.is_taken_over(),
            ClientEndpoint::Unix(endpoint) => endpoint.is_taken_over(),
        })
    }

    /// Opens the addresses: from here on clients and operators can connect.
    pub(crate) fn open(self, options: AdminOptions, control: Arc<dyn Control>) -> Result<Opened, EndpointError> {
        let open = |what, endpoint: Endpoint| endpoint.open().map_err(|error| EndpointError::Open(what, error));
        let admin = |what, endpoint: Option<Endpoint>, options: AdminOptions| {
            let Some(endpoint) = endpoint else {
                return Ok(None);
            };
            admin::serve(open(what, endpoint)?, options, control.clone())
                .map(Some)
                .map_err(|error| EndpointError::Serve(what, error))
        };
        Ok(Opened {
            admin: admin("admin", self.admin, options)?,
            metrics: admin("metrics", self.metrics, AdminOptions::MetricsOnly)?,
            listeners: self
                .clients
                .into_iter()
                .map(ClientEndpoint::open)
                .collect::<io::Result<_>>()
                .map_err(|error| EndpointError::Open("listen", error))?,
        })
    }
}

impl ClientEndpoint {
    fn open(self) -> io::Result<Listening> {
        match self {
            ClientEndpoint::Tcp(endpoint, gate) => endpoint.open().map(|listener| Listening::Tcp(listener, gate)),
            ClientEndpoint::Unix(endpoint) => endpoint.open().map(|(listener, file)| Listening::Unix(listener, file)),
        }
    }
}

impl Listening {
    fn port(&self) -> Option<u16> {
        match self {
            Listening::Tcp(listener, gate) if gate.is_plain_and_has_data() => {
                listener.local_addr().ok().map(|local| local.port())
            }
            Listening::Tcp(..) | Listening::Unix(..) => None,
        }
    }
}

/// As the configuration writes it, with the real port.
impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listening::Tcp(listener, gate) => {
                let Ok(local) = listener.local_addr() else {
                    return f.write_str("?");
                };
                local.fmt(f)?;
                let what = match (&gate.sentinel, &gate.cluster) {
                    (Some(_), _) => "sentinel",
                    (None, Some(_)) => "cluster",
                    (None, None) => "",
                };
                match (gate.security, what) {
                    (Security::Plain, "") => Ok(()),
                    (Security::Tls, "") => f.write_str(" (TLS)"),
                    (Security::Plain, what) => write!(f, " ({what})"),
                    (Security::Tls, what) => write!(f, " ({what} with TLS)"),
                }
            }
            Listening::Unix(_, file) => write!(f, "unix:{}", file.path().display()),
        }
    }
}

/// Makes sentinels of the listeners that are configured so, now that every port is known.
fn appoint_sentinels(config: &Config, clients: &mut [ClientEndpoint]) {
    let port_of = |clients: &[ClientEndpoint], index: usize| match clients.get(index) {
        Some(ClientEndpoint::Tcp(endpoint, _)) => endpoint.port(),
        Some(ClientEndpoint::Unix(_)) | None => None,
    };
    for (index, listener) in config.listeners.iter().enumerate() {
        let Present::Sentinel(face) = &listener.present else {
            continue;
        };
        let target = advertised_listener(config.listeners.iter(), listener.tls);
        let primary = match (&face.advertise, target) {
            (Advertise::Address(address), _) => Primary::At(address.clone()),
            (Advertise::Auto, Some((place, target))) => {
                let port = port_of(clients, place).unwrap_or(target.port());
                match target.ip().is_unspecified() {
                    true => Primary::Port(port),
                    false => Primary::At(HostPort { host: target.ip().to_string(), port }),
                }
            }
            // A configuration with this has an error.
            (Advertise::Auto, None) => continue,
        };
        let port = port_of(clients, index).unwrap_or(0);
        if let Some(ClientEndpoint::Tcp(_, gate)) = clients.get_mut(index) {
            gate.sentinel = Some(Arc::new(Sentinel::new(face, primary, port)));
        }
    }
}

/// The number of the group that a unix socket belongs to.
fn group_number(listener: &Listener) -> Result<Option<u32>, EndpointError> {
    match &listener.group {
        None => Ok(None),
        Some(Group::Number(number)) => Ok(Some(*number)),
        Some(Group::Name(name)) => match uzers::get_group_by_name(name) {
            Some(group) => Ok(Some(group.gid())),
            None => Err(EndpointError::NoGroup(listener.address.clone(), Group::Name(name.clone()))),
        },
    }
}

impl Opened {
    /// Prints the line with all addresses and, for people at a terminal, commands to try.
    pub(crate) fn announce(&self, shared: &ProxyState, is_demonstration: bool, token: Option<&TokenFile>) {
        let addresses: Vec<String> = self.listeners.iter().map(ToString::to_string).collect();
        let (listen, further) = addresses.split_first().unzip();
        let admin = self.admin.as_ref().map(|admin| admin.address().to_string());
        let metrics = self.metrics.as_ref().map(|metrics| metrics.address().to_string());
        tracing::info!(
            listen = listen.map_or("", String::as_str),
            listeners = further.filter(|further| !further.is_empty()).map(|further| further.join(", ")),
            admin = admin.as_deref().unwrap_or("off"),
            metrics = metrics.as_deref().unwrap_or("off"),
            backend = %shared.backend.address,
            "serving"
        );
        for listening in &self.listeners {
            if let Listening::Tcp(_, gate) = listening
                && gate.sentinel.as_ref().is_some_and(|sentinel| sentinel.is_alone())
            {
                tracing::warn!(
                    listener = %listening,
                    "a sentinel without peers: Redisson does not start with one alone; name the other proxies' in peers, or \
                     tell Redisson checkSentinelsList = false"
                );
            }
        }
        if let Some(token) = token {
            let file = token.path().display();
            tracing::info!(%file, "orders need the admin token, which is in this file");
        }
        let port = self.listeners.iter().find_map(Listening::port);
        let (Some(port), true) = (port, is_demonstration) else {
            return;
        };
        if shared.audit.is_on_stdout() {
            return;
        }
        say!("lockwarden is in front of a private Redis. In another terminal, try:");
        say!("  redis-cli -p {port} SETNX lock:a 1      # 1: taken; it has a TTL though nobody asked for one");
        say!("  redis-cli -p {port} PTTL lock:a         # below 30000: the holder is gone, so the lock will be");
        say!("  redis-cli -p {port} DEL lock:a          # 0: another connection deletes nothing");
        if let Some(admin) = &admin {
            say!("See who holds what:  http://{admin}/");
            say!("Metrics:             http://{admin}/metrics");
            say!("Orders:              lockwarden mode monitor --admin {admin}");
        }
    }
}

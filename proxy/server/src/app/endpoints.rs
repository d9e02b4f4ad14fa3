//! The addresses that the proxy serves: reserved first, so that one that is in use is one clear line
//! and nothing is half started, and opened when there is something to serve. How one process hands
//! them to the next is `net::listener`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use crate::admin;
use crate::admin::token_file::TokenFile;
use crate::admin::{AdminHandle, AdminOptions, Control};
use crate::config::{Config, Group, ListenAddress, Listener};
use crate::net::listener::{Arrival, Endpoint};
use crate::net::unix_listener::{Access, SocketFile, UnixEndpoint};
use crate::state::ProxyState;

/// The addresses, reserved and not open yet.
pub(crate) struct Endpoints {
    clients: Vec<ClientEndpoint>,
    admin: Option<Endpoint>,
    metrics: Option<Endpoint>,
}

/// One that clients come in by.
enum ClientEndpoint {
    Tcp(Endpoint),
    Unix(UnixEndpoint),
}

/// The same, once it is open.
pub(crate) enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// What serves, once it is open.
pub(crate) struct Opened {
    /// At least one.
    pub(crate) listeners: Vec<Listening>,
    pub(crate) admin: Option<AdminHandle>,
    pub(crate) metrics: Option<AdminHandle>,
}

/// Why an address is not served: which, the key that names it, and the cause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("cannot listen on {0} ({1}): {2}")]
    Reserve(ListenAddress, &'static str, io::Error),
    /// Another process listens there, which may be a proxy that would hand it over.
    #[error(
        "cannot listen on {0} ({1}): {2}; to take it over from a proxy of the same user, start with --takeover"
    )]
    InUse(ListenAddress, &'static str, io::Error),
    #[error("cannot listen on {0}: there is no group {1} on this system")]
    NoGroup(ListenAddress, Group),
    #[error("cannot listen ({0}): {1}")]
    Open(&'static str, io::Error),
    #[error("cannot serve ({0}): {1}")]
    Serve(&'static str, io::Error),
}

impl Endpoints {
    /// Reserves all of them, before anything has started.
    pub(crate) fn reserve(config: &Config, arrival: Arrival) -> Result<Endpoints, EndpointError> {
        let failed = |what, address, error: io::Error| match (error.kind(), arrival) {
            (io::ErrorKind::AddrInUse, Arrival::Alone) => {
                EndpointError::InUse(address, what, error)
            }
            _ => EndpointError::Reserve(address, what, error),
        };
        let reserve = |what, address| {
            Endpoint::reserve(address, arrival)
                .map_err(|error| failed(what, ListenAddress::Tcp(address), error))
        };
        let client = |listener: &Listener| match &listener.address {
            ListenAddress::Tcp(address) => reserve("listen", *address).map(ClientEndpoint::Tcp),
            ListenAddress::Unix(path) => {
                let access = Access {
                    mode: listener.mode,
                    group: group_number(listener)?,
                };
                UnixEndpoint::reserve(path, access, arrival)
                    .map(ClientEndpoint::Unix)
                    .map_err(|error| failed("listen", listener.address.clone(), error))
            }
        };
        let reserve_any = |what, address: Option<SocketAddr>| {
            address.map(|address| reserve(what, address)).transpose()
        };
        Ok(Endpoints {
            clients: config
                .listeners
                .iter()
                .map(client)
                .collect::<Result<_, _>>()?,
            admin: reserve_any("admin", config.admin)?,
            metrics: reserve_any("metrics", config.metrics)?,
        })
    }

    /// The port that clients come in by, if they do by one: the real one where 0 was asked for.
    pub(crate) fn port(&self) -> Option<u16> {
        self.clients.iter().find_map(|endpoint| match endpoint {
            ClientEndpoint::Tcp(endpoint) => endpoint.port(),
            ClientEndpoint::Unix(_) => None,
        })
    }

    /// Whether another process has an address of clients still.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.clients.iter().any(|endpoint| match endpoint {
            ClientEndpoint::Tcp(endpoint) => endpoint.is_taken_over(),
            ClientEndpoint::Unix(endpoint) => endpoint.is_taken_over(),
        })
    }

    /// From here on clients and operators come in.
    pub(crate) fn open(
        self,
        options: AdminOptions,
        control: Arc<dyn Control>,
    ) -> Result<Opened, EndpointError> {
        let open = |what, endpoint: Endpoint| {
            endpoint
                .open()
                .map_err(|error| EndpointError::Open(what, error))
        };
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
            ClientEndpoint::Tcp(endpoint) => endpoint.open().map(Listening::Tcp),
            ClientEndpoint::Unix(endpoint) => endpoint
                .open()
                .map(|(listener, file)| Listening::Unix(listener, file)),
        }
    }
}

impl Listening {
    fn port(&self) -> Option<u16> {
        match self {
            Listening::Tcp(listener) => listener.local_addr().ok().map(|local| local.port()),
            Listening::Unix(..) => None,
        }
    }
}

/// As the configuration writes it, with the real port.
impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listening::Tcp(listener) => match listener.local_addr() {
                Ok(local) => local.fmt(f),
                Err(_) => f.write_str("?"),
            },
            Listening::Unix(_, file) => write!(f, "unix:{}", file.path().display()),
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
            None => Err(EndpointError::NoGroup(
                listener.address.clone(),
                Group::Name(name.clone()),
            )),
        },
    }
}

impl Opened {
    /// The line that says where everything is, and for people at a terminal what to try.
    pub(crate) fn announce(
        &self,
        shared: &ProxyState,
        is_demonstration: bool,
        token: Option<&TokenFile>,
    ) {
        let addresses: Vec<String> = self.listeners.iter().map(ToString::to_string).collect();
        let (listen, further) = addresses.split_first().unzip();
        let admin = self.admin.as_ref().map(|admin| admin.address().to_string());
        let metrics = self
            .metrics
            .as_ref()
            .map(|metrics| metrics.address().to_string());
        tracing::info!(
            listen = listen.map_or("", String::as_str),
            listeners = further.filter(|further| !further.is_empty()).map(|further| further.join(", ")),
            admin = admin.as_deref().unwrap_or("off"),
            metrics = metrics.as_deref().unwrap_or("off"),
            backend = %shared.backend.address,
            "serving"
        );
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
        println!("lockwarden is in front of a private Redis. In another terminal, try:");
        println!(
            "  redis-cli -p {port} SETNX lock:a 1      # 1: taken; it has a TTL though nobody asked for one"
        );
        println!(
            "  redis-cli -p {port} PTTL lock:a         # below 30000: the holder is gone, so the lock will be"
        );
        println!(
            "  redis-cli -p {port} DEL lock:a          # 0: another connection deletes nothing"
        );
        if let Some(admin) = &admin {
            println!("See who holds what:  http://{admin}/");
            println!("Metrics:             http://{admin}/metrics");
            println!("Orders:              lockwarden mode monitor --admin {admin}");
        }
    }
}

//! The addresses that the proxy serves: reserved first, so that one that is in use is one clear line
//! and nothing is half started, and opened when there is something to serve. How one process hands
//! them to the next is `net::listener`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crate::admin;
use crate::admin::token_file::TokenFile;
use crate::admin::{AdminHandle, AdminOptions, Control};
use crate::config::Config;
use crate::net::listener::{Arrival, Endpoint};
use crate::state::ProxyState;

/// The addresses, reserved and not open yet.
pub(crate) struct Endpoints {
    pub(crate) listen: Endpoint,
    pub(crate) admin: Option<Endpoint>,
    pub(crate) metrics: Option<Endpoint>,
}

/// What serves, once it is open.
pub(crate) struct Opened {
    pub(crate) listener: TcpListener,
    pub(crate) admin: Option<AdminHandle>,
    pub(crate) metrics: Option<AdminHandle>,
}

/// Why an address is not served: which, the key that names it, and the cause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("cannot listen on {0} ({1}): {2}")]
    Reserve(SocketAddr, &'static str, io::Error),
    /// Another process listens there, which may be a proxy that would hand it over.
    #[error(
        "cannot listen on {0} ({1}): {2}; to take it over from a proxy of the same user, start with --takeover"
    )]
    InUse(SocketAddr, &'static str, io::Error),
    #[error("cannot listen ({0}): {1}")]
    Open(&'static str, io::Error),
    #[error("cannot serve ({0}): {1}")]
    Serve(&'static str, io::Error),
}

impl Endpoints {
    /// Reserves all of them, before anything has started.
    pub(crate) fn reserve(config: &Config, arrival: Arrival) -> Result<Endpoints, EndpointError> {
        let reserve = |what, address| {
            Endpoint::reserve(address, arrival).map_err(|error| match (error.kind(), arrival) {
                (io::ErrorKind::AddrInUse, Arrival::Alone) => {
                    EndpointError::InUse(address, what, error)
                }
                _ => EndpointError::Reserve(address, what, error),
            })
        };
        let reserve_any = |what, address: Option<SocketAddr>| {
            address.map(|address| reserve(what, address)).transpose()
        };
        Ok(Endpoints {
            listen: reserve("listen", config.listen)?,
            admin: reserve_any("admin", config.admin)?,
            metrics: reserve_any("metrics", config.metrics)?,
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
            listener: open("listen", self.listen)?,
        })
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
        let local = self.listener.local_addr();
        let listen = local
            .as_ref()
            .map_or_else(|_| String::from("?"), ToString::to_string);
        let admin = self.admin.as_ref().map(|admin| admin.address().to_string());
        let metrics = self
            .metrics
            .as_ref()
            .map(|metrics| metrics.address().to_string());
        tracing::info!(
            listen,
            admin = admin.as_deref().unwrap_or("off"),
            metrics = metrics.as_deref().unwrap_or("off"),
            backend = %shared.backend.address,
            "serving"
        );
        if let Some(token) = token {
            let file = token.path().display();
            tracing::info!(%file, "orders need the admin token, which is in this file");
        }
        let (Ok(local), true) = (local, is_demonstration) else {
            return;
        };
        if shared.audit.is_on_stdout() {
            return;
        }
        let port = local.port();
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

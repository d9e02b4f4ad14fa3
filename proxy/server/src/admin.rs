//! The HTTP side for operators: metrics, health, the lock board, and what may be ordered while the
//! proxy runs. It has a thread and a small runtime of its own, so nothing that is asked here can
//! delay a command, and it knows the proxy only as [`Control`]. `admin/routes.rs` says what is
//! answered and to whom, `admin/connection_limits.rs` what a peer may take up.

mod api_routes;
mod board;
mod commands;
mod connection_limits;
mod routes;
#[cfg(test)]
mod tests;
pub(crate) mod token_file;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::view::Views;
use crate::view::api::{Break, Broken};
use connection_limits::Limited;
use routes::Peer;

/// How long requests under way may still take when the proxy stops.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

/// What the admin side may ask of the proxy. The calls come from the admin thread or its helpers,
/// never from the data path, and none of them may wait for a client.
pub(crate) trait Control: Send + Sync + 'static {
    /// The metrics page.
    fn metrics(&self) -> Vec<u8>;

    /// Whether clients are being served; if not, why, in one line.
    fn readiness(&self) -> Result<(), String>;

    /// Switches one namespace, or all, to a mode, and says which modes are in force in those
    /// that were asked for. It changes all of them or none.
    fn set_mode(
        &self,
        namespace: Option<&str>,
        mode: &str,
    ) -> Result<Vec<(String, String)>, ControlError>;

    /// Takes no new clients, lets those that are there finish, and ends the process; says what it
    /// waits for. Asked a second time, it waits no longer.
    fn drain(&self) -> String;

    /// Reads the configuration again, and says in one line what was done. An error has changed
    /// nothing. It may take as long as compiling the policies.
    fn reload(&self, weaker: Weaker) -> Result<String, String>;

    /// Ends the lease of this lock with that fencing token, and no other. It waits for the backend.
    fn break_lock(&self, key: &[u8], order: &Break) -> Result<Broken, ControlError>;

    /// What is known of locks.
    fn views(&self) -> &dyn Views;
}

/// Whether a reload may take away what is governed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weaker {
    /// It is refused, and says what would be lost: half a file is often a valid one.
    Refused,
    /// Somebody has said that it is meant.
    Allowed,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ControlError {
    /// No such namespace.
    #[error("{0}")]
    NotFound(String),
    /// No such mode.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be done now; nothing was.
    #[error("{0}")]
    Unavailable(String),
    /// It was sent, and what came of it is not known.
    #[error("{0}")]
    Unknown(String),
}

/// The secret that orders are signed with. It is never printed by accident.
#[derive(Clone)]
pub(crate) struct AdminToken {
    secret: String,
    origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Configured,
    Generated,
}

impl AdminToken {
    /// One that the operator chose. It works from wherever the admin address can be reached.
    pub(crate) fn configured(secret: String) -> AdminToken {
        AdminToken {
            secret,
            origin: Origin::Configured,
        }
    }

    /// A new one of 128 random bits. It works from this machine only, where it stands in a file
    /// (`token_file.rs`).
    pub(crate) fn generate() -> Result<AdminToken, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(AdminToken {
            secret: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            origin: Origin::Generated,
        })
    }

    /// The secret itself, for its file.
    pub(crate) fn reveal(&self) -> &str {
        &self.secret
    }

    /// Compares in a time that depends on the length only.
    fn matches(&self, given: &[u8]) -> bool {
        let secret = self.secret.as_bytes();
        let difference = secret
            .iter()
            .zip(given)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        !secret.is_empty() && secret.len() == given.len() && std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminToken({} bytes)", self.secret.len())
    }
}

/// What one address serves.
#[derive(Clone, Debug)]
pub(crate) enum AdminOptions {
    /// The admin address: everything.
    Full {
        /// Orders must carry it.
        token: AdminToken,
        /// The host name of the configured address, accepted in `Host` beside `localhost` and
        /// addresses. Other names are refused: a web page elsewhere could point its own name at
        /// this address (DNS rebinding).
        host: Option<String>,
        /// Where clients connect, for the example on an empty board.
        port: Option<u16>,
    },
    /// The `metrics` address: only `/metrics`, `/live` and `/ready`, by whatever name.
    MetricsOnly,
}

/// Serves until the handle is stopped or dropped.
pub(crate) fn serve(
    listener: TcpListener,
    options: AdminOptions,
    control: Arc<dyn Control>,
) -> io::Result<AdminHandle> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = {
        let _inside = runtime.enter();
        Limited::new(tokio::net::TcpListener::from_std(listener)?)
    };
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || run(runtime, listener, routes::router(options, control), stopped))?;
    Ok(AdminHandle {
        address,
        stop: Some(stop),
        thread: Some(thread),
    })
}

fn run(runtime: Runtime, listener: Limited, router: axum::Router, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async move {
        let (closing, closed) = oneshot::channel();
        let service = router.into_make_service_with_connect_info::<Peer>();
        let server = axum::serve(listener, service).with_graceful_shutdown(async move {
            // A dropped handle means the same as a stopped one.
            let _ = stopped.await;
            let _ = closing.send(());
        });
        let too_long = async {
            let _ = closed.await;
            tokio::time::sleep(LAST_REQUESTS).await;
        };
        tokio::select! {
            result = server => {
                if let Err(error) = result {
                    tracing::error!(%error, "the admin address is not served any more");
                }
            }
            () = too_long => {}
        }
    });
    // A reload that still runs does not hold up the end of the process.
    runtime.shutdown_background();
}

/// A served address.
#[derive(Debug)]
pub(crate) struct AdminHandle {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// Where it listens, with the real port where 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops serving. Blocks until requests under way are answered, about a second at most.
    pub(crate) fn stop(mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the admin thread panicked");
        }
    }
}

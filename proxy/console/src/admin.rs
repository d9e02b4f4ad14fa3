//! The HTTP side for operators: metrics, health, the lock board, and orders to the running proxy. It has its own thread and a
//! small runtime, so no request here can delay a command, and it knows the proxy only as [`Control`]. `admin/routes.rs` lists
//! the routes and who may use them, `admin/connection_limits.rs` limits what a peer may use.

mod api_routes;
mod board;
mod commands;
mod connection_limits;
mod control;
mod reply;
mod routes;
#[cfg(test)]
mod tests;
mod token;
pub mod token_file;

pub use control::{Control, ControlError, Harm, Leap, NotReady, ReloadError, Weaker};
pub use routes::AdminOptions;
pub use token::AdminToken;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use connection_limits::Limited;
use reply::Peer;

/// How long requests under way may still take when the proxy stops.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

/// Serves until the handle is stopped or dropped.
pub fn serve(listener: TcpListener, options: AdminOptions, control: Arc<dyn Control>) -> io::Result<AdminHandle> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        Limited::new(tokio::net::TcpListener::from_std(listener)?)
    };
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || run(runtime, listener, routes::router(options, control), stopped))?;
    Ok(AdminHandle { address, stop: Some(stop), thread: Some(thread) })
}

fn run(runtime: Runtime, listener: Limited, router: axum::Router, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async move {
        let (closing, closed) = oneshot::channel();
        let service = router.into_make_service_with_connect_info::<Peer>();
        let server = axum::serve(listener, service).with_graceful_shutdown(async move {
            // Dropping the handle also stops the server.
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
    // A reload that still runs does not delay the end of the process.
    runtime.shutdown_background();
}

/// A running admin server.
#[derive(Debug)]
pub struct AdminHandle {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// The address that it listens on, with the real port where 0 was configured.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops serving. Blocks until requests under way are answered, about a second at most.
    pub fn stop(mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the admin thread panicked");
        }
    }
}

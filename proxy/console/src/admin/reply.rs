//! Parts of every reply: the peer, background work, and errors in one line of JSON.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::connect_info::Connected;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;

use super::connection_limits::{Limited, Place};

/// Where a request came from.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) peer: SocketAddr,
    pub(super) place: Arc<Place>,
}

impl Connected<IncomingStream<'_, Limited>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Peer {
        Peer { peer: *stream.remote_addr(), place: stream.io().place().clone() }
    }
}

/// Runs an order that may take a while; pages are served meanwhile.
pub(super) async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "an admin order failed");
        problem(StatusCode::INTERNAL_SERVER_ERROR, "the order failed, see the log")
    })
}

/// An error as JSON.
pub(super) fn problem(status: StatusCode, text: &str) -> Response {
    (status, Json(serde_json::json!({ "error": text }))).into_response()
}

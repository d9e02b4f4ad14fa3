//! The orders to break a lock, and to log more or less. They need the admin token like every order (`routes.rs`). A break names
//! the lease by its fencing token and gives a reason; the reply contains the result, and its status says whether that is what
//! was ordered.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lockwarden_control::telemetry::audit;
use lockwarden_control::text::escape::{spell, unspell};

use super::control::{Control, ControlError};
use super::reply::{Peer, in_background, problem};
use crate::view::api::{Break, Broken, Counting, LogLevel, StageOrder};

/// Characters of a reason; it is a sentence for later readers of the log.
const MAX_REASON: usize = 500;

pub(super) async fn break_lock(
    State(control): State<Arc<dyn Control>>,
    ConnectInfo(Peer { peer, .. }): ConnectInfo<Peer>,
    Path(key): Path<String>,
    body: Bytes,
) -> Response {
    let (key, order) = match read(&key, &body) {
        Ok(order) => order,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    tracing::info!(
        %peer,
        key = spell(&key),
        db = order.db,
        fence = order.fence,
        reason = order.reason,
        "break asked for"
    );
    match in_background(move || control.break_lock(&key, &order)).await {
        Ok(Ok(broken)) => (status(&broken), Json(broken)).into_response(),
        Ok(Err(error)) => problem(status_of(&error), &error.to_string()),
        Err(response) => response,
    }
}

/// Makes the report count from now on.
pub(super) async fn reset_report(
    State(control): State<Arc<dyn Control>>,
    ConnectInfo(Peer { peer, .. }): ConnectInfo<Peer>,
) -> Response {
    tracing::info!(%peer, "report counts anew");
    match in_background(move || control.reset_report()).await {
        Ok(since) => Json(Counting { since }).into_response(),
        Err(response) => response,
    }
}

/// Why a request to break a lock is invalid.
#[derive(Debug, thiserror::Error)]
enum BreakOrderError {
    #[error(r"a backslash in a key is spelled \\, and a byte \xNN")]
    Key,
    #[error("{0}: say {{\"fence\":NUMBER,\"reason\":\"WHY\"}}")]
    Body(#[from] serde_json::Error),
    #[error("say why: the reason is empty")]
    NoReason,
    #[error("the reason has more than {MAX_REASON} characters")]
    LongReason,
}

fn read(key: &str, body: &[u8]) -> Result<(Vec<u8>, Break), BreakOrderError> {
    let key = unspell(key).ok_or(BreakOrderError::Key)?;
    let mut order: Break = serde_json::from_slice(body)?;
    // Keeps any input on one line of the log.
    order.reason = spell(order.reason.trim().as_bytes());
    match order.reason.chars().count() {
        0 => Err(BreakOrderError::NoReason),
        1..=MAX_REASON => Ok((key, order)),
        _ => Err(BreakOrderError::LongReason),
    }
}

/// Any result but the ordered one is a conflict with the current state.
fn status(broken: &Broken) -> StatusCode {
    match broken {
        Broken::Done { .. } => StatusCode::OK,
        Broken::Absent | Broken::Newer { .. } | Broken::Ungoverned => StatusCode::CONFLICT,
    }
}

/// The status of an order that was not carried out.
pub(super) fn status_of(error: &ControlError) -> StatusCode {
    match error {
        ControlError::NotFound(_) => StatusCode::NOT_FOUND,
        ControlError::Invalid(_) => StatusCode::BAD_REQUEST,
        ControlError::Harmful(_) => StatusCode::CONFLICT,
        ControlError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        ControlError::Unknown(_) => StatusCode::GATEWAY_TIMEOUT,
    }
}

/// The chains that are evaluated beside those in force, and the differing answers.
pub(super) async fn next(State(control): State<Arc<dyn Control>>) -> Response {
    match in_background(move || control.next()).await {
        Ok(nexts) => Json(nexts).into_response(),
        Err(response) => response,
    }
}

/// Sets the stage of such a chain: the clients that its answers apply to.
pub(super) async fn set_stage(
    State(control): State<Arc<dyn Control>>,
    ConnectInfo(Peer { peer, .. }): ConnectInfo<Peer>,
    body: Bytes,
) -> Response {
    let order: StageOrder = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => {
            let text = format!("{error}: say {{\"namespace\":\"NAME\",\"stage\":\"10%\"}}, or only the stage for all");
            return problem(StatusCode::BAD_REQUEST, &text);
        }
    };
    let by = audit::Client { address: peer.to_string(), ..audit::Client::default() };
    match in_background(move || control.set_stage(order.namespace.as_deref(), &order.stage, by)).await {
        Ok(Ok(nexts)) => Json(nexts).into_response(),
        Ok(Err(error)) => problem(status_of(&error), &error.to_string()),
        Err(response) => response,
    }
}

/// The log filter.
pub(super) async fn log_level(State(control): State<Arc<dyn Control>>) -> Response {
    let filter = control.log_filter();
    Json(LogLevel { filter }).into_response()
}

/// Sets the log filter.
pub(super) async fn set_log_level(
    State(control): State<Arc<dyn Control>>,
    ConnectInfo(Peer { peer, .. }): ConnectInfo<Peer>,
    body: Bytes,
) -> Response {
    let order: LogLevel = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => {
            let text = format!("{error}: say {{\"filter\":\"debug\"}}");
            return problem(StatusCode::BAD_REQUEST, &text);
        }
    };
    match in_background(move || control.set_log_filter(&order.filter)).await {
        Ok(Ok(changed)) => {
            tracing::info!(%peer, filter = changed.filter, "log filter set");
            Json(changed).into_response()
        }
        Ok(Err(error)) => problem(status_of(&error), &error.to_string()),
        Err(response) => response,
    }
}

//! The routes of the admin address. Reading is open to every client that reaches the address, changing needs the admin token,
//! and no GET changes anything. Every request goes through `guard` first.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lockwarden_control::telemetry::audit;
use serde::{Deserialize, Serialize};

use super::commands::status_of;
use super::connection_limits::Place;
use super::control::{Control, Leap, Weaker};
use super::reply::{Peer, in_background, problem};
use super::token::{AdminToken, Origin};
use super::{api_routes, board, commands};

/// The longest body, in bytes: an order is a namespace's name and a mode.
const BODY: usize = 16 * 1024;

/// Every request gets a reply within this time; work that it started may continue.
const ANSWER: Duration = Duration::from_secs(20);

/// A browser must not store, frame, sniff or embed any reply, and a connection serves one request (`connection_limits.rs`).
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (header::CONNECTION, "close"),
];

/// Needed when things go wrong, and served however many connections there are.
const HEALTH: [&str; 3] = ["/live", "/ready", "/metrics"];

/// The routes of one address.
#[derive(Clone, Debug)]
pub enum AdminOptions {
    /// The admin address: everything.
    Full {
        /// Orders must carry it.
        token: AdminToken,
        /// The host name of the configured address, accepted in `Host` beside `localhost` and
        /// addresses. Other names are refused: a web page elsewhere could point its own name at
        /// this address (DNS rebinding).
        host: Option<String>,
        /// The port for clients, for the example on an empty board.
        port: Option<u16>,
    },
    /// The `metrics` address: only `/metrics`, `/live` and `/ready`, under any host name.
    MetricsOnly,
}

type Shared = State<Arc<dyn Control>>;

pub(super) fn router(options: AdminOptions, control: Arc<dyn Control>) -> Router {
    let readable = Router::new().route("/metrics", get(metrics)).route("/live", get(live)).route("/ready", get(ready));
    let routes = match &options {
        AdminOptions::Full { port, .. } => readable
            .route("/mode", post(mode))
            .route("/reload", post(reload))
            .route("/drain", post(drain))
            .route("/api/v1/mode", post(mode))
            .route("/api/v1/reload", post(reload))
            .route("/api/v1/drain", post(drain))
            .route("/api/v1/next", get(commands::next).post(commands::set_stage))
            .route("/api/v1/log", get(commands::log_level).post(commands::set_log_level))
            .route("/api/v1/report/reset", post(commands::reset_report))
            .route("/api/v1/locks/{key}/break", post(commands::break_lock))
            .merge(api_routes::routes())
            .merge(board::routes(*port)),
        AdminOptions::MetricsOnly => readable,
    };
    routes
        .fallback(async || problem(StatusCode::NOT_FOUND, "no such page"))
        .with_state(control)
        .layer(from_fn_with_state(Arc::new(options), guard))
}

/// Refuses requests that are not allowed, and adds the headers to every reply.
async fn guard(
    State(options): State<Arc<AdminOptions>>,
    ConnectInfo(Peer { peer, place }): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match admit(&options, peer, &request) {
        Ok(()) if !HEALTH.contains(&request.uri().path()) && !place.may_ask() => busy(),
        Ok(()) => match tokio::time::timeout(ANSWER, answer(request, next, &place)).await {
            Ok(response) => response,
            Err(_) => problem(StatusCode::GATEWAY_TIMEOUT, "still under way, see the log"),
        },
        Err(refusal) => {
            let status = refusal.status().as_u16();
            tracing::warn!(%peer, status, method = %request.method(), "admin request refused");
            refusal
        }
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        // The board sets its own policy for the files of its page.
        if name == header::CONTENT_SECURITY_POLICY && headers.contains_key(&name) {
            continue;
        }
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// All places but those for health are taken.
fn busy() -> Response {
    let text = "too many requests are under way; try again in a second";
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, text);
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(header::RETRY_AFTER, second);
    response
}

/// Reads the body, up to its limit, before a handler sees the request.
async fn answer(request: Request, next: Next, place: &Place) -> Response {
    let (parts, body) = request.into_parts();
    match to_bytes(body, BODY).await {
        Ok(body) => {
            place.spoke();
            next.run(Request::from_parts(parts, Body::from(body))).await
        }
        Err(_) => problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 16 KiB"),
    }
}

#[expect(clippy::result_large_err, reason = "the error is the answer, and it is made once")]
fn admit(options: &AdminOptions, peer: SocketAddr, request: &Request) -> Result<(), Response> {
    let AdminOptions::Full { token, host, .. } = options else {
        return Ok(());
    };
    if !host_is_ours(request, host.as_deref()) {
        let text = "use an address, localhost or the configured name as Host";
        return Err(problem(StatusCode::FORBIDDEN, text));
    }
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        // Every other method needs the token, so that a new method is not open by mistake.
        _ => has_token(token, peer, request.headers()),
    }
}

/// A page on another site can point its own name at this address, but cannot make a browser send
/// another name than that as `Host`.
fn host_is_ours(request: &Request, configured: Option<&str>) -> bool {
    let named = request.headers().get_all(header::HOST).iter().map(|value| value.to_str().ok());
    let in_target = request.uri().authority().map(|authority| Some(authority.as_str()));
    let mut hosts = named.chain(in_target).peekable();
    hosts.peek().is_some() && hosts.all(|host| host.is_some_and(|host| is_our_name(without_port(host), configured)))
}

fn is_our_name(host: &str, configured: Option<&str>) -> bool {
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    literal.parse::<std::net::IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || configured.is_some_and(|name| host.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        Some(_) | None => host,
    }
}

#[expect(clippy::result_large_err, reason = "the error is the answer, and it is made once")]
fn has_token(token: &AdminToken, peer: SocketAddr, headers: &HeaderMap) -> Result<(), Response> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if !given.is_some_and(|given| token.matches(given)) {
        let text = "this needs the header Authorization: Bearer ADMIN-TOKEN";
        let mut response = problem(StatusCode::UNAUTHORIZED, text);
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        return Err(response);
    }
    match token.origin {
        Origin::Configured => Ok(()),
        Origin::Generated if lockwarden_control::net::listener::is_loopback(peer) => Ok(()),
        Origin::Generated => {
            let text = "a generated admin token works on this machine only; configure one";
            Err(problem(StatusCode::FORBIDDEN, text))
        }
    }
}

async fn metrics(State(control): Shared) -> Response {
    let format = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, format)], control.metrics()).into_response()
}

async fn live() -> &'static str {
    "live\n"
}

async fn ready(State(control): Shared) -> Response {
    match control.readiness() {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => {
            let line = reason.to_string().replace(['\r', '\n'], " ");
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {line}\n")).into_response()
        }
    }
}

/// The parameters of `POST /mode`, in its body or its query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModeOrder {
    /// `None`: all namespaces.
    namespace: Option<String>,
    mode: String,
    /// Also where the report speaks against it.
    #[serde(default)]
    anyway: bool,
}

#[derive(Serialize)]
struct ModeAnswer {
    modes: Vec<NamespaceMode>,
}

#[derive(Serialize)]
struct NamespaceMode {
    namespace: String,
    mode: String,
}

async fn mode(State(control): Shared, ConnectInfo(Peer { peer, .. }): ConnectInfo<Peer>, request: Request) -> Response {
    let order = match read_order(request).await {
        Ok(order) => order,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let done = in_background(move || {
        let by = audit::Client { address: peer.to_string(), ..audit::Client::default() };
        let leap = Leap::from(order.anyway);
        let modes = control.set_mode(order.namespace.as_deref(), &order.mode, leap, by);
        (order, modes)
    });
    match done.await {
        Ok((order, Ok(modes))) => {
            let namespace = order.namespace.as_deref().unwrap_or("(all)");
            tracing::info!(%peer, namespace, mode = order.mode, "mode set");
            let modes = modes.into_iter().map(|(namespace, mode)| NamespaceMode { namespace, mode }).collect();
            Json(ModeAnswer { modes }).into_response()
        }
        Ok((_, Err(error))) => problem(status_of(&error), &error.to_string()),
        Err(response) => response,
    }
}

const MODE_USAGE: &str = "say {\"namespace\":\"NAME\",\"mode\":\"monitor\"}, or only the mode for all";

/// Why a request to change the mode is invalid.
#[derive(Debug, thiserror::Error)]
enum ModeOrderError {
    #[error(transparent)]
    Unread(#[from] axum::Error),
    #[error("{}: {MODE_USAGE}", .0.body_text())]
    Query(#[from] QueryRejection),
    #[error("{0}: {MODE_USAGE}")]
    Body(#[from] serde_json::Error),
}

async fn read_order(request: Request) -> Result<ModeOrder, ModeOrderError> {
    let (parts, body) = request.into_parts();
    let body: Bytes = to_bytes(body, BODY).await?;
    if body.is_empty() {
        let Query(order) = Query::<ModeOrder>::try_from_uri(&parts.uri)?;
        return Ok(order);
    }
    Ok(serde_json::from_slice(&body)?)
}

/// The query of `POST /reload`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReloadOrder {
    allow: Option<Allowed>,
    #[serde(default)]
    anyway: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Allowed {
    Weaker,
}

async fn reload(
    State(control): Shared,
    ConnectInfo(Peer { peer, .. }): ConnectInfo<Peer>,
    order: Result<Query<ReloadOrder>, QueryRejection>,
) -> Response {
    let order = match order {
        Ok(Query(order)) => order,
        Err(error) => {
            let text = format!("{}: say nothing, ?allow=weaker or ?anyway=true", error.body_text());
            return problem(StatusCode::BAD_REQUEST, &text);
        }
    };
    let weaker = match order.allow {
        None => Weaker::Refused,
        Some(Allowed::Weaker) => Weaker::Allowed,
    };
    let leap = Leap::from(order.anyway);
    tracing::info!(%peer, ?weaker, ?leap, "reload asked for");
    match in_background(move || control.reload(weaker, leap)).await {
        Ok(Ok(result)) => Json(serde_json::json!({ "result": result })).into_response(),
        Ok(Err(error)) => problem(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        Err(response) => response,
    }
}

async fn drain(State(control): Shared, ConnectInfo(Peer { peer, .. }): ConnectInfo<Peer>) -> Response {
    tracing::info!(%peer, "drain asked for");
    Json(serde_json::json!({ "result": control.drain() })).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(token: &AdminToken, peer: &str) -> Option<StatusCode> {
        let mut headers = HeaderMap::new();
        let value = format!("Bearer {}", token.reveal()).parse().unwrap();
        headers.insert(header::AUTHORIZATION, value);
        let answer = has_token(token, peer.parse().unwrap(), &headers);
        answer.err().map(|refusal| refusal.status())
    }

    #[test]
    fn a_generated_admin_token_is_of_no_use_elsewhere() {
        let generated = AdminToken::generate().unwrap();
        let configured = AdminToken::configured("s3cret".to_owned());
        assert_eq!(status(&generated, "127.0.0.1:5000"), None);
        assert_eq!(status(&generated, "[::1]:5000"), None);
        assert_eq!(status(&generated, "10.0.0.7:5000"), Some(StatusCode::FORBIDDEN));
        assert_eq!(status(&configured, "10.0.0.7:5000"), None);
    }
}

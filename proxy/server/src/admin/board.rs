//! The lock board: one page for people, at `/`. It is made on the server and complete without script;
//! with one, its parts are replaced while something happens (`events.rs`). It shows what the view
//! knows ([`crate::view`]) and can change nothing: orders are commands that it shows for copying.
//!
//! What is on it was chosen by clients, who may be hostile. Keys and names arrive spelled (nothing in
//! them is invisible or turns the direction of writing), every text is escaped by the template
//! language, and the page's Content-Security-Policy runs no script but its own file.

mod csv;
mod detail;
mod events;
mod lists;
mod locks;
mod page;
#[cfg(test)]
mod tests;
mod wording;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use super::Control;
use super::routes::{in_background, problem};
use crate::text::escape::unspell;
use crate::text::numbers::percent;
use crate::view::api::{Hot, Lock, LockDetail, Locks, Moment, Overview, Report};
use crate::view::{DecisionsQuery, LocksQuery};
use events::Listeners;

/// Locks on the page, and on the page of somebody who asks for more. Above that nobody reads; the JSON has all.
const LIST: u64 = 200;
const LARGE_LIST: u64 = 1_000;
/// Refusals on the page.
const REFUSALS: usize = 50;

/// Nothing but the board's own files; no inline script or style, no form that leads elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const STYLE: &str = include_str!("board/board.css");
const SCRIPT: &str = include_str!("board/board.js");
const ICON: &str = include_str!("board/icon.svg");

/// `port` is where clients connect, for the example on an empty board.
pub(super) fn routes(port: Option<u16>) -> Router<Arc<dyn Control>> {
    let listeners = Listeners::default();
    Router::new()
        .route(
            "/",
            get(move |control, uri, headers| board(control, uri, headers, port)),
        )
        .route(
            "/events",
            get(move |control, uri, headers| {
                events::listen(control, uri, headers, port, listeners.clone())
            }),
        )
        .route("/board/board.css", get(async || file("text/css", STYLE)))
        .route(
            "/board/board.js",
            get(async || file("text/javascript", SCRIPT)),
        )
        .route("/board/icon.svg", get(async || file("image/svg+xml", ICON)))
}

/// Held locks as a file.
pub(super) fn locks_csv(locks: &[Lock]) -> Response {
    download("locks.csv", csv::locks(locks))
}

/// Decisions as a file.
pub(super) fn decisions_csv(moments: &[Moment]) -> Response {
    download("decisions.csv", csv::decisions(moments))
}

fn download(name: &str, text: String) -> Response {
    let kind = "text/csv; charset=utf-8; header=present".to_owned();
    let disposition = format!("attachment; filename=\"{name}\"");
    let headers: [(HeaderName, String); 2] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    (headers, text).into_response()
}

fn file(kind: &str, text: &'static str) -> Response {
    let kind = format!("{kind}; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn board(
    State(control): State<Arc<dyn Control>>,
    uri: Uri,
    headers: HeaderMap,
    port: Option<u16>,
) -> Response {
    let asked = match Asked::of(&uri) {
        Ok(asked) => asked,
        Err(response) => return response,
    };
    let site = site(&headers);
    let made = in_background(move || {
        let shown = Shown::look(&*control, &asked, port);
        page::page(&shown, &asked, &site).into_string()
    });
    match made.await {
        Ok(text) => {
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CONTENT_SECURITY_POLICY, POLICY),
            ];
            (headers, text).into_response()
        }
        Err(response) => response,
    }
}

/// How the reader's browser names this address; the guard has let it pass.
fn site(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST);
    host.and_then(|host| host.to_str().ok())
        .unwrap_or("localhost")
        .to_owned()
}

/// What the reader asked for, in the query of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    namespace: Option<String>,
    contains: Option<String>,
    problems: bool,
    limit: u64,
    /// The lock whose details are shown, spelled.
    lock: Option<String>,
    db: u32,
}

/// The query as the form writes it: an empty field is one that was left empty.
#[derive(Deserialize)]
struct Words {
    namespace: Option<String>,
    contains: Option<String>,
    problems: Option<String>,
    limit: Option<u64>,
    lock: Option<String>,
    db: Option<u32>,
}

impl Asked {
    #[expect(
        clippy::result_large_err,
        reason = "the error is the answer, and it is made once"
    )]
    fn of(uri: &Uri) -> Result<Asked, Response> {
        let Query(words) = Query::<Words>::try_from_uri(uri)
            .map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))?;
        let filled = |word: Option<String>| word.filter(|word| !word.is_empty());
        Ok(Asked {
            namespace: filled(words.namespace),
            contains: filled(words.contains),
            problems: words
                .problems
                .is_some_and(|word| word == "1" || word == "true"),
            limit: words.limit.unwrap_or(LIST).clamp(1, LARGE_LIST),
            lock: filled(words.lock),
            db: words.db.unwrap_or(0),
        })
    }

    /// Whether locks are left out on purpose.
    fn narrows(&self) -> bool {
        self.namespace.is_some() || self.contains.is_some() || self.problems
    }

    /// The query of a page with the same list; `?` included, empty for the plain page.
    fn query(&self) -> String {
        let mut parts = self.list_parts();
        if self.limit != LIST {
            parts.push(format!("limit={}", self.limit));
        }
        if let Some(lock) = &self.lock {
            parts.push(format!("lock={}&db={}", percent(lock), self.db));
        }
        joined(&parts)
    }

    fn list_parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if let Some(namespace) = &self.namespace {
            parts.push(format!("namespace={}", percent(namespace)));
        }
        if let Some(contains) = &self.contains {
            parts.push(format!("contains={}", percent(contains)));
        }
        if self.problems {
            parts.push("problems=true".to_owned());
        }
        parts
    }

    /// The query that asks the API for all of the same list.
    fn list_query(&self, format: Option<&str>) -> String {
        let mut parts = self.list_parts();
        parts.push("limit=10000".to_owned());
        parts.extend(format.map(|format| format!("format={format}")));
        joined(&parts)
    }

    fn address(&self) -> String {
        format!("/{}", self.query())
    }

    /// The same list with the details of a lock.
    fn detail(&self, key: &str, db: u32) -> String {
        Asked {
            lock: Some(key.to_owned()),
            db,
            ..self.clone()
        }
        .address()
    }

    fn without_lock(&self) -> String {
        Asked {
            lock: None,
            ..self.clone()
        }
        .address()
    }

    fn larger(&self) -> String {
        let larger = Asked {
            limit: LARGE_LIST,
            ..self.clone()
        };
        format!("{}#locks", larger.address())
    }
}

fn joined(parts: &[String]) -> String {
    if parts.is_empty() {
        return String::new();
    }
    format!("?{}", parts.join("&"))
}

/// Everything that one page shows, as it was at one moment.
pub(super) struct Shown {
    overview: Overview,
    locks: Locks,
    /// Of the lock that was asked for, if anything is known of it.
    detail: Option<LockDetail>,
    refusals: Vec<Moment>,
    report: Report,
    hot: Hot,
    port: Option<u16>,
}

impl Shown {
    /// Looks at everything. It may take some milliseconds where there are very many locks.
    fn look(control: &dyn Control, asked: &Asked, port: Option<u16>) -> Shown {
        let views = control.views();
        let query = LocksQuery {
            namespace: asked.namespace.clone(),
            contains: asked.contains.clone(),
            problems: asked.problems,
            limit: usize::try_from(asked.limit).ok(),
            ..LocksQuery::default()
        };
        let refusals = DecisionsQuery {
            limit: Some(REFUSALS),
            ..DecisionsQuery::default()
        };
        let key = asked.lock.as_deref().and_then(unspell);
        Shown {
            overview: views.overview(),
            locks: views.locks(&query),
            detail: key.and_then(|key| views.lock(&key, asked.db)),
            refusals: views.decisions(&refusals),
            report: views.report(),
            hot: views.hot(),
            port,
        }
    }
}

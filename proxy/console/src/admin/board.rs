//! The lock board: one page for people, at `/`. It is rendered on the server and complete without script; with script, its
//! parts are replaced when something happens (`events.rs`). It shows the data of the view ([`crate::view`]) and can change
//! nothing: orders appear as commands to copy.
//!
//! The texts on it were chosen by clients, which may be hostile. Keys and names arrive spelled (no character in them is
//! invisible or turns the direction of writing), the template language escapes every text, and the page's
//! Content-Security-Policy allows no script but its own file.

mod application;
mod asked;
mod csv;
mod detail;
mod discovery;
mod events;
mod frame;
mod guards;
mod lists;
mod locks;
mod page;
mod parts;
mod pattern;
mod reasons;
mod report;
mod shown;
mod table;
#[cfg(test)]
mod tests;
mod timeline;
mod why;
mod wording;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lockwarden_control::clock::now_ms;
use lockwarden_control::text::escape::readable_lines;
use maud::Markup;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::control::Control;
use super::reply::{in_background, problem};
use crate::view::ReportQuery;
use crate::view::api::{KeyGlob, Lock, Moment, NoTime, PatternsQuery, Since};
use asked::{Asked, site};
use events::Listeners;
use shown::Shown;

/// Allows only the board's own files; no inline script or style, no form to another site.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const STYLE: &str = include_str!("board/board.css");
const SCRIPT: &str = include_str!("board/board.js");
const ICON: &str = include_str!("board/icon.svg");

/// `port` is the port for clients, for the example on an empty board.
pub(super) fn routes(port: Option<u16>) -> Router<Arc<dyn Control>> {
    let listeners = Listeners::default();
    Router::new()
        .route("/", get(move |control, uri, headers| board(control, uri, headers, port)))
        .route("/discovery", get(discovered))
        .route("/why", get(told))
        .route("/application", get(one_application))
        .route("/patterns", get(all_patterns))
        .route("/pattern", get(one_pattern))
        .route("/report", get(reported))
        .route("/reasons", get(async || html(reasons::page(now_ms()).into_string())))
        .route(
            "/events",
            get(move |control, uri, headers| events::listen(control, uri, headers, port, listeners.clone())),
        )
        .route("/board/board.css", get(async || file("text/css", STYLE)))
        .route("/board/board.js", get(async || file("text/javascript", SCRIPT)))
        .route("/board/icon.svg", get(async || file("image/svg+xml", ICON)))
}

/// Held locks as a file.
pub(super) fn locks_csv(locks: &[Lock]) -> Response {
    download("locks.csv", csv::locks(locks))
}

/// Decisions, or lost leases, as a file of this name.
pub(super) fn moments_csv(name: &str, moments: &[Moment]) -> Response {
    download(name, csv::decisions(moments))
}

fn download(name: &str, text: String) -> Response {
    let kind = "text/csv; charset=utf-8; header=present".to_owned();
    let disposition = format!("attachment; filename=\"{name}\"");
    let headers: [(HeaderName, String); 2] = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, disposition)];
    (headers, text).into_response()
}

fn file(kind: &str, text: &'static str) -> Response {
    let kind = format!("{kind}; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn board(State(control): State<Arc<dyn Control>>, uri: Uri, headers: HeaderMap, port: Option<u16>) -> Response {
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
        Ok(text) => html(text),
        Err(response) => response,
    }
}

async fn discovered(State(control): State<Arc<dyn Control>>) -> Response {
    page_of(move || (true, discovery::page(&control.views().discovery()))).await
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

/// A forgotten refusal also has a page: it says where to look.
async fn told(State(control): State<Arc<dyn Control>>, uri: Uri) -> Response {
    let Id { id } = match words(&uri) {
        Ok(words) => words,
        Err(response) => return response,
    };
    page_of(move || {
        let remembered = control.views().why(&id);
        (!remembered.is_empty(), why::page(&id, &remembered, now_ms()))
    })
    .await
}

#[derive(Deserialize)]
struct ApplicationWords {
    name: String,
    since: Option<String>,
}

async fn one_application(State(control): State<Arc<dyn Control>>, uri: Uri) -> Response {
    let ApplicationWords { name, since } = match words(&uri) {
        Ok(words) => words,
        Err(response) => return response,
    };
    let (since, from) = match time_of(since) {
        Ok(times) => times,
        Err(response) => return response,
    };
    page_of(move || {
        let known = application::Known::look(&*control, &name, from);
        let text = application::page(&known, &name, since.as_deref());
        (known.is_known(), text)
    })
    .await
}

async fn all_patterns(State(control): State<Arc<dyn Control>>) -> Response {
    page_of(move || {
        let all = control.views().patterns(&PatternsQuery::default());
        (true, pattern::list(&all))
    })
    .await
}

#[derive(Deserialize)]
struct PatternWords {
    glob: String,
    namespace: Option<String>,
}

async fn one_pattern(State(control): State<Arc<dyn Control>>, uri: Uri) -> Response {
    let PatternWords { glob, namespace } = match words(&uri) {
        Ok(words) => words,
        Err(response) => return response,
    };
    if let Err(mistake) = KeyGlob::try_from(glob.clone()) {
        return problem(StatusCode::BAD_REQUEST, &mistake.to_string());
    }
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    page_of(move || {
        let known = pattern::Known::look(&*control, &glob, namespace.as_deref());
        let text = pattern::page(&known, &glob, namespace.as_deref());
        (known.is_known(), text)
    })
    .await
}

#[derive(Deserialize)]
struct ReportWords {
    since: Option<String>,
}

async fn reported(State(control): State<Arc<dyn Control>>, uri: Uri) -> Response {
    let ReportWords { since } = match words(&uri) {
        Ok(words) => words,
        Err(response) => return response,
    };
    let (since, from) = match time_of(since) {
        Ok(times) => times,
        Err(response) => return response,
    };
    page_of(move || {
        let report = control.views().report(&ReportQuery { since: from, enough: None });
        (true, report::page(&report, since.as_deref()))
    })
    .await
}

/// Parses the query of a page.
#[expect(clippy::result_large_err, reason = "the error is the answer, and it is made once")]
fn words<W: DeserializeOwned>(uri: &Uri) -> Result<W, Response> {
    let words = Query::<W>::try_from_uri(uri);
    let words = words.map(|Query(words)| words);
    words.map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))
}

/// The begin of the counts, as it was written and as a time; an empty field means none.
#[expect(clippy::result_large_err, reason = "the error is the answer, and it is made once")]
fn time_of(since: Option<String>) -> Result<(Option<String>, Option<Since>), Response> {
    let since = since.filter(|since| !since.is_empty());
    let from = since.as_deref().map(str::parse).transpose();
    let from = from.map_err(|no: NoTime| problem(StatusCode::BAD_REQUEST, &no.to_string()))?;
    Ok((since, from))
}

/// Makes a page; a page about something unknown says so and has status 404.
async fn page_of(make: impl FnOnce() -> (bool, Markup) + Send + 'static) -> Response {
    let made = in_background(move || {
        let (is_known, page) = make();
        (is_known, page.into_string())
    });
    match made.await {
        Ok((true, text)) => html(text),
        Ok((false, text)) => (StatusCode::NOT_FOUND, html(text)).into_response(),
        Err(response) => response,
    }
}

fn html(text: String) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    // Keys and names were spelled before; this covers every other text of a page.
    (headers, readable_lines(&text).into_owned()).into_response()
}

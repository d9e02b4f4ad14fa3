//! `GET /api/v1/*`: the known state of locks, as JSON. The types are those of `view/api.rs`; the view answers, this module only
//! parses the query.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use lockwarden_control::text::escape::unspell;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::board;
use super::control::Control;
use super::reply::{in_background, problem};
use crate::view::api::{Moment, WhatIfQuery};
use crate::view::{ConnectionsQuery, DecisionsQuery, Format, LocksQuery, PatternsQuery, ReportQuery};

const NOT_REMEMBERED: &str = "this proxy does not remember a refusal with this id; what is older, or was decided by another proxy, \
     stands in the audit trail";

type Shared = State<Arc<dyn Control>>;

pub(super) fn routes() -> Router<Arc<dyn Control>> {
    Router::new()
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/locks", get(locks))
        .route("/api/v1/locks/{key}", get(lock))
        .route("/api/v1/decisions", get(decisions))
        .route("/api/v1/lost", get(lost))
        .route("/api/v1/incidents", get(incidents))
        .route("/api/v1/why/{id}", get(why))
        .route("/api/v1/connections", get(connections))
        .route("/api/v1/clients", get(clients))
        .route("/api/v1/guards", get(guards))
        .route("/api/v1/policies", get(policies))
        .route("/api/v1/version", get(version))
        .route("/api/v1/meaning", get(meaning))
        .route("/api/v1/hot", get(hot))
        .route("/api/v1/report", get(report))
        .route("/api/v1/what-if", get(what_if))
        .route("/api/v1/patterns", get(patterns))
        .route("/api/v1/config", get(config))
        .route("/api/v1/settings", get(settings))
        .route("/api/v1/discovery", get(discovery))
}

/// Parses the query. An unknown word is an error, so that the mistake is seen.
#[expect(clippy::result_large_err, reason = "the error is the answer, and it is made once")]
fn asked<Q: DeserializeOwned>(uri: &Uri) -> Result<Q, Response> {
    match Query::<Q>::try_from_uri(uri) {
        Ok(Query(query)) => Ok(query),
        Err(error) => Err(problem(StatusCode::BAD_REQUEST, &error.body_text())),
    }
}

/// A query may take some milliseconds with very many locks; other requests are served meanwhile.
async fn answer<T: serde::Serialize + Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Response {
    match in_background(look).await {
        Ok(answer) => Json(answer).into_response(),
        Err(response) => response,
    }
}

async fn overview(State(control): Shared) -> Response {
    answer(move || control.views().overview()).await
}

async fn locks(State(control): Shared, uri: Uri) -> Response {
    let query: LocksQuery = match asked(&uri) {
        Ok(query) => query,
        Err(response) => return response,
    };
    let format = query.format;
    match in_background(move || control.views().locks(&query)).await {
        Ok(locks) => match format {
            Format::Json => Json(locks).into_response(),
            Format::Csv => board::locks_csv(&locks.locks),
        },
        Err(response) => response,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Database {
    #[serde(default)]
    db: u32,
}

async fn lock(State(control): Shared, Path(key): Path<String>, uri: Uri) -> Response {
    let Database { db } = match asked(&uri) {
        Ok(database) => database,
        Err(response) => return response,
    };
    let Some(key) = unspell(&key) else {
        let text = r"a backslash in a key is spelled \\, and a byte \xNN";
        return problem(StatusCode::BAD_REQUEST, text);
    };
    match in_background(move || control.views().lock(&key, db)).await {
        Ok(Some(detail)) => Json(detail).into_response(),
        Ok(None) => problem(StatusCode::NOT_FOUND, "nothing is known of this lock"),
        Err(response) => response,
    }
}

async fn decisions(State(control): Shared, uri: Uri) -> Response {
    moments(&uri, "decisions.csv", move |query| control.views().decisions(query)).await
}

async fn lost(State(control): Shared, uri: Uri) -> Response {
    moments(&uri, "lost.csv", move |query| control.views().lost(query)).await
}

/// Events as JSON or, on request, as a CSV file with this name.
async fn moments(
    uri: &Uri,
    file: &'static str,
    look: impl FnOnce(&DecisionsQuery) -> Vec<Moment> + Send + 'static,
) -> Response {
    let query: DecisionsQuery = match asked(uri) {
        Ok(query) => query,
        Err(response) => return response,
    };
    let format = query.format;
    match in_background(move || look(&query)).await {
        Ok(moments) => match format {
            Format::Json => Json(moments).into_response(),
            Format::Csv => board::moments_csv(file, &moments),
        },
        Err(response) => response,
    }
}

async fn incidents(State(control): Shared, uri: Uri) -> Response {
    match asked::<DecisionsQuery>(&uri) {
        Ok(query) => answer(move || control.views().incidents(&query)).await,
        Err(response) => response,
    }
}

async fn why(State(control): Shared, Path(id): Path<String>) -> Response {
    match in_background(move || control.views().why(&id)).await {
        Ok(told) if told.is_empty() => problem(StatusCode::NOT_FOUND, NOT_REMEMBERED),
        Ok(told) => Json(told).into_response(),
        Err(response) => response,
    }
}

async fn connections(State(control): Shared, uri: Uri) -> Response {
    match asked::<ConnectionsQuery>(&uri) {
        Ok(query) => answer(move || control.views().connections(&query)).await,
        Err(response) => response,
    }
}

async fn clients(State(control): Shared) -> Response {
    answer(move || control.views().applications()).await
}

async fn guards(State(control): Shared) -> Response {
    answer(move || control.views().guards()).await
}

async fn policies(State(control): Shared) -> Response {
    answer(move || control.views().policies()).await
}

async fn version(State(control): Shared) -> Response {
    answer(move || control.views().version()).await
}

async fn meaning(State(control): Shared) -> Response {
    answer(move || control.views().meaning()).await
}

async fn hot(State(control): Shared) -> Response {
    answer(move || control.views().hot()).await
}

async fn report(State(control): Shared, uri: Uri) -> Response {
    let query: ReportQuery = match asked(&uri) {
        Ok(query) => query,
        Err(response) => return response,
    };
    answer(move || control.views().report(&query)).await
}

async fn what_if(State(control): Shared, uri: Uri) -> Response {
    let query: WhatIfQuery = match asked(&uri) {
        Ok(query) => query,
        Err(response) => return response,
    };
    let told = in_background(move || {
        let changes: Vec<&str> = query.changes.lines().collect();
        control.what_if(&changes)
    });
    match told.await {
        Ok(Ok(answer)) => Json(answer).into_response(),
        // The request was understood; the configuration with the changes would be invalid.
        Ok(Err(error)) => problem(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        Err(response) => response,
    }
}

async fn patterns(State(control): Shared, uri: Uri) -> Response {
    match asked::<PatternsQuery>(&uri) {
        Ok(query) => answer(move || control.views().patterns(&query)).await,
        Err(response) => response,
    }
}

async fn config(State(control): Shared) -> Response {
    answer(move || control.views().namespaces()).await
}

async fn settings(State(control): Shared) -> Response {
    answer(move || control.settings()).await
}

async fn discovery(State(control): Shared) -> Response {
    answer(move || control.views().discovery()).await
}

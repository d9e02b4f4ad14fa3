//! What a reader of the board asks for, and the addresses that ask for the same or for a little more.

use axum::extract::Query;
use axum::http::header::{self, HeaderMap};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Deserialize;

use crate::admin::reply::problem;
use crate::text::numbers::percent;

/// Locks on the page, and on the page of somebody who asks for more. Above that nobody reads; the JSON has all.
pub(super) const LIST: u64 = 200;
pub(super) const LARGE_LIST: u64 = 1_000;

/// How the reader's browser names this address; the guard has let it pass.
pub(super) fn site(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST);
    host.and_then(|host| host.to_str().ok())
        .unwrap_or("localhost")
        .to_owned()
}

/// What the reader asked for, in the query of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) namespace: Option<String>,
    pub(super) contains: Option<String>,
    pub(super) problems: bool,
    pub(super) limit: u64,
    /// The lock whose details are shown, spelled.
    pub(super) lock: Option<String>,
    pub(super) db: u32,
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
    pub(super) fn of(uri: &Uri) -> Result<Asked, Response> {
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
    pub(super) fn narrows(&self) -> bool {
        self.namespace.is_some() || self.contains.is_some() || self.problems
    }

    /// The query of a page with the same list; `?` included, empty for the plain page.
    pub(super) fn query(&self) -> String {
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
    pub(super) fn list_query(&self, format: Option<&str>) -> String {
        let mut parts = self.list_parts();
        parts.push("limit=10000".to_owned());
        parts.extend(format.map(|format| format!("format={format}")));
        joined(&parts)
    }

    pub(super) fn address(&self) -> String {
        format!("/{}", self.query())
    }

    /// The same list with the details of a lock.
    pub(super) fn detail(&self, key: &str, db: u32) -> String {
        Asked {
            lock: Some(key.to_owned()),
            db,
            ..self.clone()
        }
        .address()
    }

    pub(super) fn without_lock(&self) -> String {
        Asked {
            lock: None,
            ..self.clone()
        }
        .address()
    }

    pub(super) fn larger(&self) -> String {
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

//! The query of a board page, and the addresses with the same or a slightly larger query.

use axum::extract::Query;
use axum::http::header::{self, HeaderMap};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use lockwarden_control::text::numbers::percent;
use serde::Deserialize;

use crate::admin::reply::problem;
use crate::view::api::{After, KeyGlob, ReasonWord};
use crate::view::{DecisionsQuery, LocksQuery};

/// Locks on the page, and on the page of a reader who wants more. A longer list is not readable; the JSON has all.
pub(super) const LIST: u64 = 200;
pub(super) const LARGE_LIST: u64 = 1_000;

/// The address as the reader's browser names it; the guard has accepted it.
pub(super) fn site(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST);
    host.and_then(|host| host.to_str().ok()).unwrap_or("localhost").to_owned()
}

/// The query of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) namespace: Option<String>,
    pub(super) contains: Option<String>,
    /// A glob over keys, spelled.
    pub(super) pattern: Option<String>,
    pub(super) application: Option<String>,
    /// Filters refusals.
    pub(super) reason: Option<String>,
    /// Filters refusals: the earliest time.
    pub(super) since: Option<String>,
    pub(super) problems: bool,
    pub(super) limit: u64,
    /// The lock whose details are shown, spelled.
    pub(super) lock: Option<String>,
    pub(super) db: u32,
}

/// The query as the form writes it: an empty field means no filter.
#[derive(Deserialize)]
struct Words {
    namespace: Option<String>,
    contains: Option<String>,
    pattern: Option<String>,
    application: Option<String>,
    reason: Option<String>,
    since: Option<String>,
    problems: Option<String>,
    limit: Option<u64>,
    lock: Option<String>,
    db: Option<u32>,
}

impl Asked {
    #[expect(clippy::result_large_err, reason = "the error is the answer, and it is made once")]
    pub(super) fn of(uri: &Uri) -> Result<Asked, Response> {
        let Query(words) =
            Query::<Words>::try_from_uri(uri).map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))?;
        let filled = |word: Option<String>| word.filter(|word| !word.is_empty());
        let asked = Asked {
            namespace: filled(words.namespace),
            contains: filled(words.contains),
            pattern: filled(words.pattern),
            application: filled(words.application),
            reason: filled(words.reason),
            since: filled(words.since),
            problems: words.problems.is_some_and(|word| word == "1" || word == "true"),
            limit: words.limit.unwrap_or(LIST).clamp(1, LARGE_LIST),
            lock: filled(words.lock),
            db: words.db.unwrap_or(0),
        };
        match asked.mistake() {
            None => Ok(asked),
            Some(mistake) => Err(problem(StatusCode::BAD_REQUEST, &mistake)),
        }
    }

    /// The error for an invalid word, which would otherwise look like an empty list.
    fn mistake(&self) -> Option<String> {
        let pattern = parsed::<KeyGlob>(self.pattern.as_deref()).err();
        let reason = || parsed::<ReasonWord>(self.reason.as_deref()).err();
        let since = || parsed::<After>(self.since.as_deref()).err();
        pattern.or_else(reason).or_else(since)
    }

    /// The query of the refusals.
    pub(super) fn refusals(&self, limit: usize) -> DecisionsQuery {
        DecisionsQuery {
            since: parsed(self.since.as_deref()).ok().flatten(),
            namespace: self.namespace.clone(),
            application: self.application.clone(),
            reason: parsed(self.reason.as_deref()).ok().flatten(),
            pattern: parsed(self.pattern.as_deref()).ok().flatten(),
            contains: self.contains.clone(),
            limit: Some(limit),
            ..DecisionsQuery::default()
        }
    }

    /// The query of the held locks.
    pub(super) fn locks(&self) -> LocksQuery {
        LocksQuery {
            namespace: self.namespace.clone(),
            contains: self.contains.clone(),
            pattern: parsed(self.pattern.as_deref()).ok().flatten(),
            application: self.application.clone(),
            problems: self.problems,
            limit: usize::try_from(self.limit).ok(),
            ..LocksQuery::default()
        }
    }

    /// Whether the filter may hide locks.
    pub(super) fn narrows(&self) -> bool {
        !self.key_parts().is_empty() || self.problems
    }

    /// Whether the filter may hide refusals.
    pub(super) fn narrows_refusals(&self) -> bool {
        !self.key_parts().is_empty() || !self.refusal_parts().is_empty()
    }

    /// The query of a page with the same list; `?` included, empty for the plain page.
    pub(super) fn query(&self) -> String {
        let mut parts = self.list_parts();
        parts.extend(self.refusal_parts());
        if self.limit != LIST {
            parts.push(format!("limit={}", self.limit));
        }
        if let Some(lock) = &self.lock {
            parts.push(format!("lock={}&db={}", percent(lock), self.db));
        }
        joined(&parts)
    }

    /// The filters for both locks and refusals.
    fn key_parts(&self) -> Vec<String> {
        written(&[
            ("namespace", &self.namespace),
            ("contains", &self.contains),
            ("pattern", &self.pattern),
            ("application", &self.application),
        ])
    }

    fn refusal_parts(&self) -> Vec<String> {
        written(&[("reason", &self.reason), ("since", &self.since)])
    }

    fn list_parts(&self) -> Vec<String> {
        let mut parts = self.key_parts();
        if self.problems {
            parts.push("problems=true".to_owned());
        }
        parts
    }

    /// The API query for the same list in full.
    pub(super) fn list_query(&self, format: Option<&str>) -> String {
        let mut parts = self.list_parts();
        parts.push("limit=10000".to_owned());
        parts.extend(format.map(|format| format!("format={format}")));
        joined(&parts)
    }

    /// The API query for the same refusals in full.
    pub(super) fn refusals_query(&self, format: Option<&str>) -> String {
        let mut parts = self.key_parts();
        parts.extend(self.refusal_parts());
        parts.push("limit=10000".to_owned());
        parts.extend(format.map(|format| format!("format={format}")));
        joined(&parts)
    }

    pub(super) fn address(&self) -> String {
        format!("/{}", self.query())
    }

    /// The address of the same list with the details of a lock.
    pub(super) fn detail(&self, key: &str, db: u32) -> String {
        Asked { lock: Some(key.to_owned()), db, ..self.clone() }.address()
    }

    pub(super) fn without_lock(&self) -> String {
        Asked { lock: None, ..self.clone() }.address()
    }

    pub(super) fn larger(&self) -> String {
        let larger = Asked { limit: LARGE_LIST, ..self.clone() };
        format!("{}#locks", larger.address())
    }
}

/// A word of the query, parsed.
fn parsed<T: TryFrom<String>>(word: Option<&str>) -> Result<Option<T>, String>
where
    T::Error: std::fmt::Display,
{
    let parsed = word.map(|word| T::try_from(word.to_owned())).transpose();
    parsed.map_err(|error| error.to_string())
}

/// The parts that are set, as written in an address.
fn written(parts: &[(&str, &Option<String>)]) -> Vec<String> {
    let filled = parts.iter().filter_map(|(name, value)| {
        let value = value.as_deref()?;
        Some(format!("{name}={}", percent(value)))
    });
    filled.collect()
}

fn joined(parts: &[String]) -> String {
    if parts.is_empty() {
        return String::new();
    }
    format!("?{}", parts.join("&"))
}

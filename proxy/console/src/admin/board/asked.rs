//! The query of a board page, and the addresses with the same or a slightly larger query.

use axum::extract::Query;
use axum::http::header::{self, HeaderMap};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Deserializer, Serialize};

use crate::admin::reply::problem;
use crate::view::api::{After, KeyGlob, ReasonWord, USUAL_LIMIT, in_address, is_default};
use crate::view::{DecisionsQuery, Format, LocksQuery};

/// Locks on the page of a reader who wants more than [`USUAL_LIMIT`]. A longer list is not readable; the JSON has all.
pub(super) const LARGE_LIST: usize = 1_000;

/// The address as the reader's browser names it; the guard has accepted it.
pub(super) fn site(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST);
    host.and_then(|host| host.to_str().ok()).unwrap_or("localhost").to_owned()
}

/// Elements of a list in full.
const ALL: usize = 10_000;

/// The query of the page, as its form writes it: an empty field means no filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    #[serde(deserialize_with = "filled")]
    pub(super) namespace: Option<String>,
    #[serde(deserialize_with = "filled")]
    pub(super) contains: Option<String>,
    /// A glob over keys, spelled.
    #[serde(deserialize_with = "filled")]
    pub(super) pattern: Option<String>,
    #[serde(deserialize_with = "filled")]
    pub(super) application: Option<String>,
    #[serde(deserialize_with = "ticked", skip_serializing_if = "is_default")]
    pub(super) problems: bool,
    /// Filters refusals.
    #[serde(deserialize_with = "filled")]
    pub(super) reason: Option<String>,
    /// Filters refusals: the earliest time.
    #[serde(deserialize_with = "filled")]
    pub(super) since: Option<String>,
    /// Up to [`LARGE_LIST`]; `None`: [`USUAL_LIMIT`].
    pub(super) limit: Option<usize>,
    /// The lock whose details are shown, spelled.
    #[serde(deserialize_with = "filled")]
    pub(super) lock: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) db: u32,
}

fn filled<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    Ok(Option::deserialize(field)?.filter(|text: &String| !text.is_empty()))
}

/// A browser sends `1`, a link of the page has `true`.
fn ticked<'de, D: Deserializer<'de>>(field: D) -> Result<bool, D::Error> {
    String::deserialize(field).map(|text| text == "1" || text == "true")
}

impl Asked {
    #[expect(clippy::result_large_err, reason = "the error is the answer, and it is made once")]
    pub(super) fn of(uri: &Uri) -> Result<Asked, Response> {
        let asked = Query::<Asked>::try_from_uri(uri);
        let Query(mut asked) = asked.map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))?;
        asked.limit = asked.limit.map(|limit| limit.clamp(1, LARGE_LIST)).filter(|limit| *limit != USUAL_LIMIT);
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
            limit: Some(self.limit.unwrap_or(USUAL_LIMIT)),
            ..LocksQuery::default()
        }
    }

    /// Whether the filter may hide locks.
    pub(super) fn narrows(&self) -> bool {
        !in_address(&LocksQuery { limit: None, ..self.locks() }).is_empty()
    }

    /// Whether the filter may hide refusals.
    pub(super) fn narrows_refusals(&self) -> bool {
        !in_address(&DecisionsQuery { limit: None, ..self.refusals(ALL) }).is_empty()
    }

    /// The query of a page with the same list; `?` included, empty for the plain page.
    pub(super) fn query(&self) -> String {
        in_address(self)
    }

    /// The API query for the same list in full.
    pub(super) fn list_query(&self, format: Format) -> String {
        in_address(&LocksQuery { limit: Some(ALL), format, ..self.locks() })
    }

    /// The API query for the same refusals in full.
    pub(super) fn refusals_query(&self, format: Format) -> String {
        in_address(&DecisionsQuery { format, ..self.refusals(ALL) })
    }

    pub(super) fn address(&self) -> String {
        format!("/{}", self.query())
    }

    /// The address of the same list with the details of a lock.
    pub(super) fn detail(&self, key: &str, db: u32) -> String {
        Asked { lock: Some(key.to_owned()), db, ..self.clone() }.address()
    }

    pub(super) fn without_lock(&self) -> String {
        Asked { lock: None, db: 0, ..self.clone() }.address()
    }

    pub(super) fn larger(&self) -> String {
        let larger = Asked { limit: Some(LARGE_LIST), ..self.clone() };
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

//! The queries of the API, which are also the flags of the command line and the filters of the board; and their values.

use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use lockwarden_control::text::escape::{spell, unspell};
use lockwarden_control::text::numbers::utc;
use lockwarden_lock::glob::Glob;
use lockwarden_lock::reason::Reason;
use serde::{Deserialize, Serialize};

/// The rows of a list, unless the query sets a limit; the flags `--limit` say the same.
pub(crate) const USUAL_LIMIT: usize = 200;

/// The format of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON, as in the rest of the API.
    #[default]
    Json,
    /// For spreadsheets.
    Csv,
}

/// The query of the decisions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionsQuery {
    pub(crate) namespace: Option<String>,
    /// A part of their keys, spelled as keys are shown.
    pub(crate) contains: Option<String>,
    pub(crate) pattern: Option<KeyGlob>,
    /// The application of the client, as it is shown.
    pub(crate) application: Option<String>,
    pub(crate) reason: Option<ReasonWord>,
    /// Only later ones.
    pub(crate) since: Option<After>,
    pub(crate) id: Option<String>,
    pub(crate) limit: Option<usize>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) format: Format,
}

/// The query of the held locks: flags of the command line, and fields of the API.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocksQuery {
    /// Only the locks of this namespace
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Only the locks whose key contains this
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Only the locks whose key matches this pattern, a Redis glob
    #[arg(long, value_name = "GLOB")]
    pub pattern: Option<KeyGlob>,
    /// Only the locks that this application holds, as the list names it
    #[arg(long, value_name = "NAME")]
    pub application: Option<String>,
    /// Only the locks with something wrong: overlaps, deadlocks, unknown since a failover, no TTL
    #[arg(long)]
    #[serde(default, skip_serializing_if = "is_default")]
    pub problems: bool,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value = "200")]
    pub limit: Option<usize>,
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "is_default")]
    pub format: Format,
}

/// A query as it stands in an address, `?` included; empty if it has no field.
pub fn in_address(query: &impl Serialize) -> String {
    // Queries are flat, so they can always be written.
    match serde_urlencoded::to_string(query).unwrap_or_default() {
        none if none.is_empty() => none,
        query => format!("?{query}"),
    }
}

/// Whether a field of a query is as without it.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A Redis glob over keys, spelled as keys are shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyGlob(pub Glob);

impl FromStr for KeyGlob {
    type Err = NoGlob;

    fn from_str(text: &str) -> Result<KeyGlob, NoGlob> {
        text.to_owned().try_into()
    }
}

impl From<KeyGlob> for String {
    fn from(KeyGlob(glob): KeyGlob) -> String {
        spell(glob.pattern())
    }
}

/// The longest glob, in bytes; matching takes at most its length times that of a key.
const MAX_GLOB: usize = 1_024;

/// Not a glob.
#[derive(Debug, thiserror::Error)]
#[error(
    "a pattern is a Redis glob of at most {MAX_GLOB} bytes, in which a backslash is spelled \\\\, and a byte \\xNN"
)]
pub struct NoGlob;

impl TryFrom<String> for KeyGlob {
    type Error = NoGlob;

    fn try_from(text: String) -> Result<KeyGlob, NoGlob> {
        let bytes = unspell(&text).filter(|bytes| bytes.len() <= MAX_GLOB);
        Ok(KeyGlob(Glob::new(bytes.ok_or(NoGlob)?.into())))
    }
}

/// A reason, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ReasonWord(pub(crate) Reason);

impl From<ReasonWord> for String {
    fn from(ReasonWord(reason): ReasonWord) -> String {
        reason.word().to_owned()
    }
}

/// Not a reason.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no reason of a refusal")]
pub(crate) struct NoReason(String);

impl TryFrom<String> for ReasonWord {
    type Error = NoReason;

    fn try_from(word: String) -> Result<ReasonWord, NoReason> {
        let reason = Reason::from_word(word.as_bytes());
        reason.map(ReasonWord).ok_or(NoReason(word))
    }
}

/// The moment to start after: Unix ms, or any [`Since`] that a report accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct After(pub(crate) Since);

impl TryFrom<String> for After {
    type Error = NoTime;

    fn try_from(text: String) -> Result<After, NoTime> {
        match text.parse() {
            Ok(unix_ms) => Ok(After(Since::Time(unix_ms))),
            Err(_) => text.parse().map(After),
        }
    }
}

impl From<After> for String {
    fn from(After(since): After) -> String {
        since.into()
    }
}

/// The query of the client connections: flags of the command line, and fields of the API.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsQuery {
    /// Only the connections of this application, as the list names it
    #[arg(long, value_name = "NAME")]
    pub application: Option<String>,
    /// Only the connections that hold a lock
    #[arg(long)]
    #[serde(default, skip_serializing_if = "is_default")]
    pub holding: bool,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value = "200")]
    pub limit: Option<usize>,
}

/// The query of `GET /api/v1/report`, and the flags of `lockwarden audit` for it.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportQuery {
    /// Only what happened since then: a span (1h), a moment (2026-11-22T18:00:00Z), last-change (of a mode or of the
    /// configuration) or reload
    // Without it: since the process start, or the last order to count anew.
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<Since>,
    /// Calls that a namespace needs to be ready [default: 1,000, or those of a week]
    #[arg(long, value_name = "CALLS")]
    pub(crate) enough: Option<u64>,
}

/// The query of `GET /api/v1/what-if`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhatIfQuery {
    /// Configuration changes, `KEY=VALUE`, one per line.
    pub(crate) changes: String,
}

/// The query of `GET /api/v1/patterns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternsQuery {
    pub(crate) namespace: Option<String>,
    /// One pattern, as it is shown.
    pub(crate) pattern: Option<String>,
    /// Leases that ended earlier do not count.
    pub(crate) since: Option<Since>,
    /// Includes the last leases of each pattern.
    #[serde(default)]
    pub(crate) history: bool,
}

/// The start of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Since {
    /// This time ago.
    Ago(Duration),
    /// Unix ms.
    Time(u64),
    /// Since a mode was switched or a reload changed what is in force.
    LastChange,
    /// Since the configuration was loaded again.
    Reload,
}

/// Not a time.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no time to count from: say a span such as 1h, a moment such as 2026-11-22T18:00:00Z, last-change or reload"
)]
pub struct NoTime(String);

impl FromStr for Since {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Since, NoTime> {
        match text {
            "last-change" => return Ok(Since::LastChange),
            "reload" => return Ok(Since::Reload),
            _ => {}
        }
        if let Ok(span) = humantime::parse_duration(text) {
            return Ok(Since::Ago(span));
        }
        let moment = humantime::parse_rfc3339_weak(text).ok();
        let since_1970 = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
        let ms = since_1970.and_then(|span| u64::try_from(span.as_millis()).ok());
        ms.map(Since::Time).ok_or_else(|| NoTime(text.to_owned()))
    }
}

impl From<Since> for String {
    fn from(since: Since) -> String {
        match since {
            Since::Ago(span) => humantime::format_duration(span).to_string(),
            Since::Time(unix_ms) => utc(unix_ms),
            Since::LastChange => "last-change".to_owned(),
            Since::Reload => "reload".to_owned(),
        }
    }
}

impl TryFrom<String> for Since {
    type Error = NoTime;

    fn try_from(text: String) -> Result<Since, NoTime> {
        text.parse()
    }
}

//! What became of keys and defaults since the first version: the table `changes.toml`, read. It is for people who upgrade;
//! the proxy itself never asks it. Next: `upgrade`, which compares a file with it.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// The table that is built in.
const CHANGES: &str = include_str!("changes.toml");

/// One change, as `changes.toml` has it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Change {
    /// The first release that has it.
    pub(crate) version: Version,
    /// The day on which it was made.
    pub(crate) on: Day,
    /// The kind of table that the key is in; `None`: the top of the file.
    pub(crate) table: Option<String>,
    /// The key; that of a policy as `settings.<policy>.<key>`.
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) what: What,
}

/// What became of a key.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum What {
    /// Another value holds where the file says nothing.
    Default {
        was: String,
        now: String,
        effect: Effect,
        means: String,
        /// The line that keeps what was.
        keep: Option<String>,
    },
    /// It has another name.
    Renamed { now: String },
    /// There is no such key any more.
    Gone { instead: String },
}

/// What a changed default does to a namespace that enforces.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effect {
    /// It refuses less.
    Weaker,
    /// It refuses more.
    Stricter,
    /// It refuses what it did.
    Different,
}

impl Effect {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Effect::Weaker => "weaker",
            Effect::Stricter => "stricter",
            Effect::Different => "different",
        }
    }
}

/// The number of a release.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub(crate) struct Version([u64; 3]);

/// A day of the calendar. Its text sorts as the days do.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub(crate) struct Day(String);

/// Neither a version nor a day.
#[derive(Debug, thiserror::Error)]
#[error("neither a version, as 0.1.0, nor a day, as 2026-11-21")]
pub(crate) struct NoVersion;

impl Version {
    /// The one that is built.
    pub(crate) fn this() -> Version {
        let number = env!("CARGO_PKG_VERSION");
        number.parse().expect("cargo takes no other version")
    }
}

impl FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Version, NoVersion> {
        let digits = |part: &str| match part.bytes().all(|byte| byte.is_ascii_digit()) {
            true => part.parse().map_err(|_| NoVersion),
            false => Err(NoVersion),
        };
        let parts: Vec<u64> = text.split('.').map(digits).collect::<Result<_, _>>()?;
        parts.try_into().map(Version).map_err(|_| NoVersion)
    }
}

impl FromStr for Day {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Day, NoVersion> {
        let is_day = humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).is_ok();
        match is_day {
            true => Ok(Day(text.to_owned())),
            false => Err(NoVersion),
        }
    }
}

impl TryFrom<String> for Version {
    type Error = NoVersion;

    fn try_from(text: String) -> Result<Version, NoVersion> {
        text.parse()
    }
}

impl TryFrom<String> for Day {
    type Error = NoVersion;

    fn try_from(text: String) -> Result<Day, NoVersion> {
        text.parse()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// For which lockwarden a file was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WrittenFor {
    /// This release.
    Version(Version),
    /// A build of this day.
    Day(Day),
}

impl FromStr for WrittenFor {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<WrittenFor, NoVersion> {
        let version = text.parse().map(WrittenFor::Version);
        version.or_else(|_| text.parse().map(WrittenFor::Day))
    }
}

/// Every change, the oldest first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct History {
    #[serde(rename = "change")]
    changes: Vec<Change>,
}

impl History {
    /// That of this build.
    pub(crate) fn built_in() -> History {
        History::parse(CHANGES).expect("the table of this build was read by its tests")
    }

    pub(super) fn parse(text: &str) -> Result<History, toml::de::Error> {
        toml::from_str(text)
    }

    /// The changes that were made since; without `from` all. A build of a day may lack what was made on that day.
    pub(crate) fn since(&self, from: Option<&WrittenFor>) -> impl Iterator<Item = &Change> {
        let is_later = move |change: &&Change| match from {
            None => true,
            Some(WrittenFor::Version(version)) => change.version > *version,
            Some(WrittenFor::Day(day)) => change.on >= *day,
        };
        self.changes.iter().filter(is_later)
    }
}

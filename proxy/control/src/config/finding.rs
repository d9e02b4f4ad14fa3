//! What is wrong with a configuration, where, and how severe it is. Owns the exact text that people read, but never
//! decides what is wrong. Positions come from `document` (file) and `overrides`.

use std::fmt;
use std::path::{Path, PathBuf};

/// The most findings kept per severity. A large file could contain a million errors; more than this limit
/// is not readable, and memory stays bounded.
const KEPT_OF_EACH_SEVERITY: usize = 200;

/// Whether the proxy may start despite the finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can be used, but it is likely not what was meant.
    Warning,
}

/// A place in the configuration file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub(crate) line: usize,
    /// The column, in characters.
    pub(crate) column: usize,
}

/// Where a finding can be fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the configuration file.
    File {
        /// The file, as the caller named it.
        path: PathBuf,
        /// The position in it; `None` for the file as a whole.
        position: Option<Position>,
    },
    /// In this environment variable.
    Environment(String),
    /// In this command line flag, with its dashes.
    Flag(&'static str),
}

impl Place {
    /// The layer of the configuration that it belongs to; later layers override earlier ones.
    pub(super) fn layer(&self) -> u8 {
        match self {
            Place::File { .. } => 1,
            Place::Environment(_) => 2,
            Place::Flag(_) => 3,
        }
    }

    /// File first, in its own order, then the environment, then the flags.
    fn order(&self) -> (u8, Option<Position>) {
        match self {
            Place::File { position, .. } => (self.layer(), *position),
            Place::Environment(_) | Place::Flag(_) => (self.layer(), None),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, position: None } => write!(f, "{}", path.display()),
            Place::File { path, position: Some(Position { line, column }) } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Place::Environment(name) => f.write_str(name),
            Place::Flag(name) => f.write_str(name),
        }
    }
}

/// One problem, described for people. Prints as `bad.toml:14:12 error: …`, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the proxy may start despite it.
    pub severity: Severity,
    /// Where it can be fixed.
    pub(crate) place: Place,
    /// The path of the key, what is wrong with it, and what to do.
    pub message: String,
}

impl Finding {
    /// An error that was found after loading, for example by a policy in its settings. Without a
    /// file it names the built-in configuration.
    pub fn error_in(source: Option<&Path>, position: Option<Position>, message: String) -> Finding {
        let path = source.unwrap_or(Path::new("built-in configuration")).to_owned();
        Finding { severity: Severity::Error, place: Place::File { path, position }, message }
    }

    fn severity_word(&self) -> &'static str {
        match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.place, self.severity_word(), self.message)
    }
}

/// Prints findings as `lockwarden check` does: one per line, with the severities aligned, and the count on the last
/// line.
pub struct Report<'a>(pub &'a [Finding]);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|finding| finding.place.to_string().chars().count()).max();
        let width = width.unwrap_or(0);
        for finding in self.0 {
            let place = finding.place.to_string();
            writeln!(f, "{place:width$} {}: {}", finding.severity_word(), finding.message)?;
        }
        let errors = self.0.iter().filter(|finding| finding.severity == Severity::Error).count();
        let warnings = self.0.len() - errors;
        write!(f, "{}, {}", counted(errors, "error"), counted(warnings, "warning"))
    }
}

/// A configuration that cannot be used. Prints as its [`Report`].
#[derive(Debug, thiserror::Error)]
#[error("{}", Report(.0))]
pub struct Unusable(pub Vec<Finding>);

fn counted(number: usize, word: &str) -> String {
    match number {
        1 => format!("1 {word}"),
        _ => format!("{number} {word}s"),
    }
}

/// Collects findings while a configuration is read, up to a limit.
#[derive(Default)]
pub(super) struct Findings {
    kept: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Findings {
    pub(super) fn error(&mut self, place: Place, message: String) {
        self.errors += 1;
        if self.errors <= KEPT_OF_EACH_SEVERITY {
            self.kept.push(Finding { severity: Severity::Error, place, message });
        }
    }

    pub(super) fn warning(&mut self, place: Place, message: String) {
        self.warnings += 1;
        if self.warnings <= KEPT_OF_EACH_SEVERITY {
            self.kept.push(Finding { severity: Severity::Warning, place, message });
        }
    }

    pub(super) fn any_error(&self) -> bool {
        self.errors > 0
    }

    /// Whether further errors are only counted, so that their text need not be built.
    pub(super) fn full(&self) -> bool {
        self.errors >= KEPT_OF_EACH_SEVERITY
    }

    /// All findings, in the order of their places. Those beyond the limit are counted in one last finding at `rest`.
    pub(super) fn into_sorted(self, rest: Option<&Path>) -> Vec<Finding> {
        let mut sorted = self.kept;
        sorted.sort_by_key(|finding| finding.place.order());
        let left_out = self.errors.saturating_sub(KEPT_OF_EACH_SEVERITY);
        if left_out > 0 {
            let message = format!("and {}; mend these first", counted(left_out, "more error"));
            sorted.push(Finding::error_in(rest, None, message));
        }
        sorted
    }
}

//! `lockwarden upgrade-check`: what this version makes of a configuration that was written for an older one. Looks at the
//! file alone, not at the environment of whoever asks.

use std::fmt::Write as _;
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::check;
use super::output;
use super::output::{Column, Format, Output, Paint, Screen, Table, cell, plain};
use crate::app::exit_code;
use crate::config;
use crate::config::{
    Difference, Effect, Finding, History, Overrides, Place, Severity, Upgrade, Version, What, WrittenFor,
};
use crate::text::numbers::counted;
use crate::text::terminal::complain;

/// Names of tables that a line has.
const MAX_NAMES: usize = 8;
/// Namespaces that the table at the end has.
const MAX_NAMESPACES: usize = 50;

#[derive(Args, Debug)]
pub(super) struct UpgradeCheckArgs {
    /// The configuration of the older version
    #[arg(value_name = "OLD.toml")]
    file: PathBuf,
    /// The version that it was written for, or the day of a build from before a release: only what changed since is told
    #[arg(long, value_name = "VERSION|DAY")]
    from: Option<WrittenFor>,
    #[command(flatten)]
    output: Output,
}

/// Tells what is different; ends with 1 where there is something to look at.
pub(super) fn upgrade_check(args: &UpgradeCheckArgs) -> ExitCode {
    if let Some(WrittenFor::Version(from)) = &args.from
        && *from > Version::this()
    {
        let this = Version::this();
        complain!("lockwarden: this is {this}, which does not know what {from} changed; ask a newer one");
        return exit_code::configuration();
    }
    let upgrade = match config::compare_upgrade(&args.file, &History::built_in(), args.from.as_ref()) {
        Ok(upgrade) => upgrade,
        Err(unusable) => {
            complain!("{unusable}");
            return exit_code::configuration();
        }
    };
    let told = Told::of(args, &upgrade, errors(args));
    let text = match args.output.output {
        Format::Json => output::json(&told),
        Format::Text => told.words(Screen::there_is()),
    };
    if let Err(error) = output::print(&text) {
        complain!("lockwarden: {error}");
        return exit_code::configuration();
    }
    match told.starts && told.changes.is_empty() {
        true => ExitCode::SUCCESS,
        false => exit_code::findings(),
    }
}

/// Why this version would not start with it.
fn errors(args: &UpgradeCheckArgs) -> Vec<Finding> {
    let loaded = config::load(Some(&args.file), &Overrides::default(), iter::empty());
    let mut findings = check::Checked::of(loaded).findings;
    findings.retain(|finding| finding.severity == Severity::Error);
    findings
}

/// What is told; also the JSON.
#[derive(Serialize)]
struct Told {
    file: String,
    /// That of this lockwarden.
    version: String,
    /// Whether this version starts with the file.
    starts: bool,
    errors: Vec<Error>,
    changes: Vec<Changed>,
    namespaces: Vec<Namespace>,
}

/// Something that has to be mended, and that no change explains.
#[derive(Serialize)]
struct Error {
    line: Option<usize>,
    column: Option<usize>,
    message: String,
}

#[derive(Serialize)]
struct Changed {
    /// `default`, `renamed` or `gone`.
    kind: &'static str,
    /// The kind of table that the key is in; none: the top of the file.
    table: Option<String>,
    /// The tables that it concerns.
    names: Vec<String>,
    key: String,
    /// The first release that has the change, and the day on which it was made.
    since: String,
    on: String,
    #[serde(flatten)]
    what: Words,
}

/// What became of a key.
#[derive(Serialize)]
#[serde(untagged)]
enum Words {
    Default {
        was: String,
        now: String,
        effect: &'static str,
        means: String,
        keep: Option<String>,
    },
    Name {
        line: Option<usize>,
        column: Option<usize>,
        /// What to write, or to do, instead.
        instead: String,
    },
}

/// What becomes of what a namespace refuses, where it enforces.
#[derive(Serialize)]
struct Namespace {
    name: String,
    mode: String,
    /// The keys by whose defaults it refuses less, and more.
    weaker: Vec<String>,
    stricter: Vec<String>,
}

impl Told {
    fn of(args: &UpgradeCheckArgs, upgrade: &Upgrade, errors: Vec<Finding>) -> Told {
        let starts = errors.is_empty();
        // A key that has another name now is an unknown one, too.
        let explained = |place: &Place| {
            let Place::File { position: position @ Some(_), .. } = place else {
                return false;
            };
            upgrade.differences.iter().any(|one| one.at == *position)
        };
        let errors = errors.into_iter();
        Told {
            file: args.file.display().to_string(),
            version: Version::this().to_string(),
            starts,
            errors: errors.filter(|finding| !explained(&finding.place)).map(error).collect(),
            changes: upgrade.differences.iter().map(changed).collect(),
            namespaces: upgrade
                .namespaces
                .iter()
                .map(|(name, mode)| Namespace {
                    name: name.clone(),
                    mode: mode.clone(),
                    weaker: keys_with(upgrade, Effect::Weaker, name),
                    stricter: keys_with(upgrade, Effect::Stricter, name),
                })
                .collect(),
        }
    }

    fn words(&self, screen: Screen) -> String {
        let file = plain(&self.file);
        if self.starts && self.changes.is_empty() {
            return format!("{file}: nothing is different with lockwarden {}\n", self.version);
        }
        let mut text = format!("{file}, as lockwarden {} reads it:\n\n", self.version);
        for error in &self.errors {
            let place = place(&self.file, error.line, error.column);
            let message = plain(&error.message);
            put(&mut text, screen, ("error", Paint::Bad), &place, &[&message]);
        }
        for changed in &self.changes {
            changed.put(&mut text, screen, &self.file);
        }
        let touched: Vec<&Namespace> = self.namespaces.iter().filter(|one| one.changes()).collect();
        if !touched.is_empty() {
            text.push_str(&table(&touched, screen));
            text.push('\n');
        }
        let errors = counted(self.errors.len() as u64, "error", "errors");
        let changes = counted(self.changes.len() as u64, "change", "changes");
        let _ = writeln!(text, "{errors}, {changes}");
        text
    }
}

impl Namespace {
    fn changes(&self) -> bool {
        !self.weaker.is_empty() || !self.stricter.is_empty()
    }
}

impl Changed {
    fn put(&self, text: &mut String, screen: Screen, file: &str) {
        let key = &self.key;
        let of_what = match &self.table {
            Some(table) => format!(" of {}", names(table, &self.names)),
            None => String::new(),
        };
        let since = format!("since {} ({})", self.since, self.on);
        match &self.what {
            Words::Default { was, now, effect, means, keep } => {
                let paint = match *effect {
                    "weaker" => Paint::Bad,
                    _ => Paint::Doubtful,
                };
                let head = plain(&format!("{key}{of_what}")).into_owned();
                let became = format!("was {was}, is {now} {since}: {means}");
                let kept = keep.as_ref().map(|keep| format!("to keep what was: {keep}"));
                let lines: Vec<&str> = iter::once(&*became).chain(kept.as_deref()).collect();
                put(text, screen, (effect, paint), &head, &lines);
            }
            Words::Name { line, column, instead } => {
                let place = place(file, *line, *column);
                let became = plain(&format!("{key}{of_what}: {instead} ({since})")).into_owned();
                put(text, screen, (self.kind, Paint::Bad), &place, &[&became]);
            }
        }
    }
}

/// One thing to look at: what it is, where or of which key, and a line for each thing to say of it.
fn put(text: &mut String, screen: Screen, (word, paint): (&str, Paint), head: &str, lines: &[&str]) {
    let word = format!("{word:9}");
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "{} {head}", screen.paint(&word, paint));
    for line in lines {
        let _ = writeln!(text, "{:9} {line}", "");
    }
    text.push('\n');
}

fn table(namespaces: &[&Namespace], screen: Screen) -> String {
    let mut table = Table::new(&[
        ("NAMESPACE", Column::Left),
        ("MODE", Column::Left),
        ("WEAKER BY", Column::Cut),
        ("STRICTER BY", Column::Cut),
    ]);
    for one in namespaces.iter().take(MAX_NAMESPACES) {
        table.row([cell(&*one.name), cell(&*one.mode), cell(one.weaker.join(", ")), cell(one.stricter.join(", "))]);
    }
    let mut text = table.show(screen);
    if let Some(more) = namespaces.len().checked_sub(MAX_NAMESPACES + 1) {
        let _ = writeln!(text, "and {} more", more + 1);
    }
    text
}

fn error(finding: Finding) -> Error {
    let position = match finding.place {
        Place::File { position, .. } => position,
        Place::Environment(_) | Place::Flag(_) => None,
    };
    Error {
        line: position.map(|position| position.line),
        column: position.map(|position| position.column),
        message: finding.message,
    }
}

fn changed(difference: &Difference) -> Changed {
    let change = &difference.change;
    let name = |instead: String| Words::Name {
        line: difference.at.map(|position| position.line),
        column: difference.at.map(|position| position.column),
        instead,
    };
    let (kind, what) = match &change.what {
        What::Default { was, now, effect, means, keep } => {
            let words = Words::Default {
                was: was.clone(),
                now: now.clone(),
                effect: effect.word(),
                means: means.clone(),
                keep: keep.clone(),
            };
            ("default", words)
        }
        What::Renamed { now } => ("renamed", name(format!("write {now}"))),
        What::Gone { instead } => ("gone", name(instead.clone())),
    };
    Changed {
        kind,
        table: change.table.clone(),
        names: difference.tables.clone(),
        key: change.key.clone(),
        since: change.version.to_string(),
        on: change.on.to_string(),
        what,
    }
}

/// The keys by which what a namespace refuses becomes weaker, or stricter.
fn keys_with(upgrade: &Upgrade, effect: Effect, namespace: &str) -> Vec<String> {
    let concerned = upgrade.differences.iter().filter(|difference| {
        difference.effect() == Some(effect)
            && match difference.change.table.as_deref() {
                None => true,
                Some(_) => difference.tables.iter().any(|name| name == namespace),
            }
    });
    concerned.map(|difference| difference.change.key.clone()).collect()
}

/// `namespace orders`, `namespaces orders, stock and 12 more`.
fn names(table: &str, names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).map(|name| &**name).collect();
    let more = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{table}{plural} {}{more}", shown.join(", "))
}

fn place(file: &str, line: Option<usize>, column: Option<usize>) -> String {
    let file = plain(file);
    match (line, column) {
        (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
        (_, _) => file.into_owned(),
    }
}

//! `lockwarden check --fleet`: whether several proxies have the same rules, and where they differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use lockwarden_console::view::api::{ConfigMeaning, Overview, Version};
use lockwarden_control::config::Meaning;
use lockwarden_control::telemetry::metrics::BUILD;
use lockwarden_control::text::numbers::counted;
use serde::Serialize;
use serde_json::json;

use super::super::api_client::{ApiClient, ApiError, finish, path};
use super::super::fleet::{Answer, Answers, FleetArgs};
use super::super::output::{Output, Paint, Screen, Table, plain};
use crate::app::exit_code;

/// Differences shown.
const MAX_SHOWN: usize = 50;
/// The name of a checked configuration that no proxy has loaded yet.
const THIS: &str = "this configuration";
/// The value shown for a key that a proxy's configuration does not have.
const ABSENT: &str = "(not there)";

/// The replies of one proxy.
#[derive(Serialize)]
struct Asked {
    version: Version,
    meaning: ConfigMeaning,
    overview: Overview,
}

/// A difference between the proxies.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    /// Such as `namespace orders: mode`.
    what: String,
    /// The values, each with the proxies that have it.
    said: BTreeMap<String, Vec<String>>,
}

/// Asks all proxies; `configuration` is a checked one to compare with them.
pub(super) fn check(fleet: &FleetArgs, output: Output, configuration: Option<&Meaning>) -> ExitCode {
    finish(compare(fleet, output, configuration))
}

fn compare(fleet: &FleetArgs, output: Output, configuration: Option<&Meaning>) -> Result<ExitCode, ApiError> {
    let answers = fleet.ask(ask)?;
    let configuration = configuration.map(ConfigMeaning::from);
    let differences = differences(&answers, configuration.as_ref());
    let hashes: BTreeSet<&str> =
        sides(&answers, configuration.as_ref()).into_iter().map(|(_, meaning)| meaning.hash.as_str()).collect();
    let told = json!({
        "merged": {
            "same": differences.is_empty(),
            "configuration": configuration,
            "differences": differences,
        },
        "proxies": answers.proxies(),
    });
    output.print(&told, |screen| match answers.answers.is_empty() {
        true => String::new(),
        false => {
            let mut text = table(&answers, configuration.as_ref(), &hashes, screen);
            text.push_str(&words(&answers, &differences, &hashes));
            text
        }
    })?;
    let end = answers.end();
    Ok(match differences.is_empty() || answers.answers.is_empty() {
        true => end,
        false => exit_code::findings(),
    })
}

fn ask(client: &ApiClient) -> Result<Asked, ApiError> {
    let version: Version = client.get(&path(&["version"], &()))?;
    let lacks = |error| match error {
        ApiError::NotFound(_) | ApiError::Foreign { .. } => ApiError::Declined(format!(
            "it is lockwarden {}, and this command of {} cannot read its rules: compare with the command of that version, \
             or upgrade the proxy",
            built(&version.version, &version.revision),
            built(BUILD.version, BUILD.revision),
        )),
        other => other,
    };
    let meaning = client.get(&path(&["meaning"], &())).map_err(lacks)?;
    let overview = client.get(&path(&["overview"], &())).map_err(lacks)?;
    Ok(Asked { version, meaning, overview })
}

/// The meanings to compare: the configuration first, then each proxy.
fn sides<'a>(
    answers: &'a Answers<Asked>,
    configuration: Option<&'a ConfigMeaning>,
) -> Vec<(&'a str, &'a ConfigMeaning)> {
    let proxies = answers.answers.iter();
    let proxies = proxies.map(|one| (one.proxy.as_deref().unwrap_or("?"), &one.answer.meaning));
    configuration.map(|meaning| (THIS, meaning)).into_iter().chain(proxies).collect()
}

fn differences(answers: &Answers<Asked>, configuration: Option<&ConfigMeaning>) -> Vec<Difference> {
    let of_each = |of: fn(&Version) -> &str| {
        let proxies = answers.answers.iter();
        proxies.map(move |one| (one.proxy.as_deref().unwrap_or("?"), of(&one.answer.version)))
    };
    let version = differs("version", of_each(|version| &version.version));
    let revision = differs("revision", of_each(|version| &version.revision));
    let mut all: Vec<Difference> = version.into_iter().chain(revision).collect();
    let sides = sides(answers, configuration);
    let tables = |meaning: &ConfigMeaning| -> BTreeSet<String> {
        let tables = meaning.says.iter().filter_map(|says| says.table.clone());
        tables.collect()
    };
    let tables: Vec<BTreeSet<String>> = sides.iter().map(|(_, meaning)| tables(meaning)).collect();
    // A table that one of them does not have counts as one difference, not one for each key.
    for table in tables.iter().flatten().collect::<BTreeSet<_>>() {
        let said = sides.iter().zip(&tables).map(|((who, _), tables)| {
            let is_there = tables.contains(table);
            (*who, if is_there { "(there)" } else { ABSENT })
        });
        all.extend(differs(table, said));
    }
    let everywhere = |table: &Option<String>| match table {
        Some(table) => tables.iter().all(|tables| tables.contains(table)),
        None => true,
    };
    let keys = sides.iter().flat_map(|(_, meaning)| &meaning.says);
    let keys = keys.filter(|says| everywhere(&says.table));
    for (table, key) in keys.map(|says| (&says.table, &says.key)).collect::<BTreeSet<_>>() {
        let said = sides.iter().map(|(who, meaning)| {
            let mut says = meaning.says.iter();
            let found = says.find(|says| says.table == *table && says.key == *key);
            (*who, found.map_or(ABSENT, |says| says.value.as_str()))
        });
        let what = match table {
            Some(table) => format!("{table}: {key}"),
            None => key.clone(),
        };
        all.extend(differs(&what, said));
    }
    all
}

/// The difference, if not all values are equal.
fn differs<'a>(what: &str, said: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Difference> {
    let mut by_value: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (who, value) in said {
        by_value.entry(value.to_owned()).or_default().push(who.to_owned());
    }
    (by_value.len() > 1).then(|| Difference { what: what.to_owned(), said: by_value })
}

fn table(
    answers: &Answers<Asked>,
    configuration: Option<&ConfigMeaning>,
    hashes: &BTreeSet<&str>,
    screen: Screen,
) -> String {
    let paint = match hashes.len() {
        0 | 1 => Paint::Plain,
        _ => Paint::Doubtful,
    };
    let rows: Vec<Row<'_>> =
        configuration.map(Row::Configuration).into_iter().chain(answers.answers.iter().map(Row::Proxy)).collect();
    let hash = |row: &Row<'_>| match row {
        Row::Configuration(meaning) => (meaning.hash.clone(), paint),
        Row::Proxy(one) => (one.answer.meaning.hash.clone(), paint),
    };
    Table::of(&rows)
        .left("PROXY", |row| row.proxy().map_or(THIS, |one| one.proxy.as_deref().unwrap_or("?")))
        .left("VERSION", |row| {
            let version = row.proxy().map(|one| &one.answer.version);
            version.map_or_else(|| built(BUILD.version, BUILD.revision), |one| built(&one.version, &one.revision))
        })
        .left("CONFIG HASH", hash)
        .left("MODE", |row| row.proxy().map(|one| modes(&one.answer.overview)))
        .cut("BACKEND", |row| row.proxy().map(|one| backend(&one.answer.overview)))
        .show(screen)
}

/// The owner of rules: the configuration, or a proxy.
enum Row<'a> {
    Configuration(&'a ConfigMeaning),
    Proxy(&'a Answer<Asked>),
}

impl<'a> Row<'a> {
    fn proxy(&self) -> Option<&'a Answer<Asked>> {
        match self {
            Row::Configuration(_) => None,
            Row::Proxy(one) => Some(one),
        }
    }
}

fn backend(overview: &Overview) -> String {
    match &overview.backend.problem {
        Some(problem) => format!("{}: {problem}", overview.backend.address),
        None => format!("{}, up", overview.backend.address),
    }
}

/// The build of a proxy: the version, and the beginning of the revision where it is known.
fn built(version: &str, revision: &str) -> String {
    match revision {
        "unknown" => version.to_owned(),
        known => format!("{version} {}", known.chars().take(12).collect::<String>()),
    }
}

/// The modes of a proxy's namespaces.
fn modes(overview: &Overview) -> String {
    let all = overview.namespaces.len();
    let of = |enforced: &str| {
        let namespaces = overview.namespaces.iter();
        namespaces.filter(|one| one.mode == enforced).count()
    };
    let some = overview.namespaces.iter().any(|one| one.enforced_for_some);
    match (of("enforce"), some) {
        (0, true) => "monitor, enforced for some".to_owned(),
        (0, false) => "monitor".to_owned(),
        (enforced, _) if enforced == all => "enforce".to_owned(),
        (enforced, _) => format!("enforce in {enforced} of {all}"),
    }
}

fn words(answers: &Answers<Asked>, differences: &[Difference], hashes: &BTreeSet<&str>) -> String {
    let number = counted(answers.answers.len() as u64, "proxy", "proxies");
    if differences.is_empty() && hashes.len() == 1 {
        return format!("\n{number}, the same rules and version everywhere\n");
    }
    // Writing to a String cannot fail, here and below.
    let mut text = format!("\n{}:\n", counted(differences.len() as u64, "difference", "differences"));
    for difference in differences.iter().take(MAX_SHOWN) {
        let _ = writeln!(text, "{}", plain(&difference.what));
        for (value, who) in &difference.said {
            let _ = writeln!(text, "  {} at {}", plain(value), plain(&who.join(", ")));
        }
    }
    if let Some(more) = differences.len().checked_sub(MAX_SHOWN + 1) {
        let _ = writeln!(text, "and {} more; -o json tells all", more + 1);
    }
    text
}

//! `lockwarden discover`: which locks no namespace has, and the configuration that would govern them. Asks a running
//! proxy for what it has seen, or looks at a Redis itself.

mod arguments;
mod keys;
mod monitor;
mod server;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use super::api_client::{ApiError, finish, path};
use super::fleet::Answers;
use super::output;
use super::output::{Column, Paint, Screen, Table, cell, duration, plain};
use crate::text::numbers::number;
use crate::view::api::{Discovery, KeyPattern};
pub(super) use arguments::DiscoverArgs;
use arguments::Form;

/// Tells what was found; ends with 1 where locks are in no namespace.
pub(super) fn discover(args: &DiscoverArgs) -> ExitCode {
    finish(found(args))
}

fn found(args: &DiscoverArgs) -> Result<ExitCode, ApiError> {
    if args.from_keys {
        return keys::look(args);
    }
    let answers = match args.from_monitor {
        Some(seconds) => Answers::of_one(monitor::watch(args, Duration::from_secs(seconds))?),
        None => args
            .fleet
            .ask(|client| client.get::<Discovery>(&path(&["discovery"], &[])))?,
    };
    let screen = Screen::there_is();
    output::print(&match args.output {
        Form::Json => answers.json(),
        Form::Toml => answers.parts(|found| found.toml.clone(), "# "),
        Form::Text => answers.parts(|found| words(found, screen), ""),
    })?;
    let found = answers.answers.iter().any(|one| one.answer.unclaimed > 0);
    Ok(answers.end_with_findings(found))
}

fn words(found: &Discovery, screen: Screen) -> String {
    let mut text = String::new();
    let watched = duration(found.now.saturating_sub(found.since));
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "What was seen in the last {watched} of keys that no namespace has:\n"
    );
    if found.patterns.is_empty() {
        text.push_str("nothing that takes a key as a lock is taken.\n");
        return text;
    }
    text.push_str(&table(&found.patterns, screen));
    let _ = writeln!(text, "\n{}", screen.paint("Why:", Paint::Head));
    for one in &found.patterns {
        let _ = writeln!(
            text,
            "  {}: {}, {}; {}",
            plain(&one.pattern),
            one.kind,
            one.confidence,
            plain(&one.why)
        );
    }
    for (count, what) in [
        (
            found.unseen,
            "commands were not looked at, because there were too many at once: the counts are of the others",
        ),
        (
            found.beyond,
            "commands were on keys of further patterns, for which there was no room",
        ),
    ] {
        if count > 0 {
            let _ = writeln!(text, "\n{} {what}", number(count));
        }
    }
    let _ = match found.unclaimed {
        0 => writeln!(text, "\nNo pattern looks like locks that nobody governs."),
        1 => writeln!(
            text,
            "\n1 pattern of locks is in no namespace. `lockwarden discover -o toml` proposes one."
        ),
        more => writeln!(
            text,
            "\n{more} patterns of locks are in no namespace. `lockwarden discover -o toml` proposes some."
        ),
    };
    text
}

fn table(patterns: &[KeyPattern], screen: Screen) -> String {
    let mut table = Table::new(&[
        ("PATTERN", Column::Cut),
        ("LOOKS LIKE", Column::Left),
        ("TAKEN BY", Column::Left),
        ("KEYS", Column::Right),
        ("TRIES", Column::Right),
        ("TAKEN", Column::Right),
        ("GIVEN BACK", Column::Right),
        ("FOREIGN", Column::Right),
        ("RAN OUT", Column::Right),
        ("NO TTL", Column::Right),
        ("HELD p50", Column::Right),
        ("p99", Column::Right),
        ("LONGEST TTL", Column::Right),
        ("APPLICATIONS", Column::Cut),
    ]);
    for one in patterns {
        let time = |ms: Option<u64>| ms.map_or("-".to_owned(), duration);
        let paint = match (one.kind.as_str(), one.confidence.as_str()) {
            ("lock" | "timed lock", "a guess") => Paint::Plain,
            ("lock" | "timed lock", _) => Paint::Doubtful,
            _ => Paint::Plain,
        };
        let applications = one.applications.iter().map(|by| by.application.as_str());
        let bad = |count: u64| match count {
            0 => cell("0"),
            some => (number(some), Paint::Bad),
        };
        table.row([
            cell(&one.pattern),
            (one.kind.clone(), paint),
            cell(one.taken_by.join(", ")),
            cell(number(one.keys)),
            cell(number(one.tries)),
            cell(number(one.granted)),
            cell(number(
                one.released + one.handed_over + one.foreign_releases + one.swept,
            )),
            bad(one.foreign_releases),
            cell(number(one.ran_out)),
            cell(number(one.without_ttl)),
            cell(time(one.hold_p50_ms)),
            cell(time(one.hold_p99_ms)),
            cell(time(one.longest_ttl_ms)),
            cell(applications.collect::<Vec<_>>().join(", ")),
        ]);
    }
    table.show(screen)
}

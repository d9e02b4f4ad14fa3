//! `lockwarden discover`: which locks no namespace has, and the configuration that would govern them. Asks a running
//! proxy for what it has seen, or looks at a Redis itself.

mod arguments;
mod guards;
mod keys;
mod merge;
mod monitor;
mod server;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use super::api_client::{ApiClient, ApiError, finish, path};
use super::fleet::Answers;
use super::output;
use super::output::{Column, Paint, Screen, Table, cell, duration, plain};
use crate::text::numbers::{counted, number};
use crate::view::api::{Discovery, KeyPattern, Namespace};
pub(super) use arguments::DiscoverArgs;
use arguments::Form;
use merge::Seen;

/// Tells what was found; ends with 1 where locks are in no namespace.
pub(super) fn discover(args: &DiscoverArgs) -> ExitCode {
    finish(found(args))
}

fn found(args: &DiscoverArgs) -> Result<ExitCode, ApiError> {
    if args.from_keys {
        return keys::look(args);
    }
    let answers = match args.from_monitor {
        Some(seconds) => Answers::of_one(Seen {
            found: monitor::watch(args, Duration::from_secs(seconds))?,
            names: Vec::new(),
        }),
        None => args.fleet.ask(|client| ask(client, args))?,
    };
    let of_fleet = answers.are_of_fleet();
    // What one proxy says stays as it says it.
    let found = match &answers.answers[..] {
        [one] if !of_fleet => one.answer.found.clone(),
        _ => merge::merged(&answers),
    };
    let text = match args.output {
        Form::Json => answers.json_with(&found),
        // Nobody has answered, which is said below.
        Form::Toml | Form::Text if answers.answers.is_empty() => String::new(),
        Form::Toml => found.toml.clone(),
        Form::Text => {
            let proxies = of_fleet.then_some(answers.answers.len() as u64);
            words(&found, proxies, Screen::there_is())
        }
    };
    output::print(&text)?;
    Ok(answers.end_with_findings(found.unclaimed > 0))
}

fn ask(client: &ApiClient, args: &DiscoverArgs) -> Result<Seen, ApiError> {
    let found = client.get(&path(&["discovery"], &[]))?;
    let names = match args.fleet.is_fleet() {
        true => client.get::<Vec<Namespace>>(&path(&["config"], &[]))?,
        false => Vec::new(),
    };
    let names = names.into_iter().map(|namespace| namespace.name).collect();
    Ok(Seen { found, names })
}

/// `proxies` is how many have answered, where several were asked.
fn words(found: &Discovery, proxies: Option<u64>, screen: Screen) -> String {
    let mut text = String::new();
    let watched = duration(found.now.saturating_sub(found.since));
    // Writing to a String cannot fail, here and below.
    let _ = match proxies {
        None => writeln!(
            text,
            "What was seen in the last {watched} of keys that no namespace has:\n"
        ),
        Some(proxies) => writeln!(
            text,
            "What {} saw of keys that no namespace has, in the last {watched} or less:\n",
            counted(proxies, "proxy", "proxies")
        ),
    };
    if found.patterns.is_empty() {
        text.push_str("nothing that takes a key as a lock is taken.\n");
        text.push_str(&guards::words(&found.guards, screen));
        return text;
    }
    text.push_str(&table(&found.patterns, screen));
    if proxies.is_some() {
        text.push_str(
            "\nCounts are of all proxies together; KEYS, HELD and LONGEST TTL are the largest that one of them has seen.\n",
        );
    }
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
    text.push_str(&guards::words(&found.guards, screen));
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

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
    let (answers, is_whole) = match args.from_monitor {
        Some(seconds) => {
            let (found, is_whole) = monitor::watch(args, Duration::from_secs(seconds))?;
            let names = Vec::new();
            (Answers::of_one(Seen { found, names }), is_whole)
        }
        None => (args.fleet.ask(|client| ask(client, args))?, true),
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
    // What was not seen may have been locks.
    let missed = found.unseen + found.beyond + found.unreadable > 0 || !is_whole;
    Ok(answers.end_with_findings(found.unclaimed > 0 || missed))
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
        None => writeln!(text, "What was seen in the last {watched} of keys that no namespace has:\n"),
        Some(proxies) => writeln!(
            text,
            "What {} saw of keys that no namespace has, in the last {watched} or less:\n",
            counted(proxies, "proxy", "proxies")
        ),
    };
    if found.patterns.is_empty() {
        text.push_str("nothing that takes a key as a lock is taken.\n");
        missed(&mut text, found, screen);
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
        let _ = writeln!(text, "  {}: {}, {}; {}", plain(&one.pattern), one.kind, one.confidence, plain(&one.why));
    }
    missed(&mut text, found, screen);
    text.push_str(&guards::words(&found.guards, screen));
    let _ = match found.implied {
        0 => Ok(()),
        some => writeln!(
            text,
            "\n{} of locks {} in the namespace that is there without a file: a file that names namespaces replaces it. \
             `lockwarden discover -o toml` proposes {} as well.",
            counted(some, "pattern", "patterns"),
            if some == 1 { "is" } else { "are" },
            if some == 1 { "it" } else { "them" },
        ),
    };
    let _ = match found.unclaimed {
        0 => writeln!(text, "\nNo pattern looks like locks that nobody governs."),
        1 => writeln!(text, "\n1 pattern of locks is in no namespace. `lockwarden discover -o toml` proposes one."),
        more => writeln!(
            text,
            "\n{more} patterns of locks are in no namespace. `lockwarden discover -o toml` proposes some."
        ),
    };
    text
}

/// What was not seen, and what to do about it.
fn missed(text: &mut String, found: &Discovery, screen: Screen) {
    let unknown = &found.unknown_scripts;
    let calls: u64 = unknown.iter().map(|one| one.calls).sum();
    for (count, what) in [
        (
            found.unseen.saturating_sub(calls),
            "commands were not looked at, because there were too many at once: the counts are of the others",
        ),
        (found.beyond, "commands were on keys of further patterns, for which there was no room"),
        (
            found.unreadable,
            "lines or patterns could not be read: the server or a proxy is of a version that this one does not know",
        ),
    ] {
        if count > 0 {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "\n{} {what}", number(count));
        }
    }
    if unknown.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", screen.paint("Not seen:", Paint::Head));
    for one in unknown {
        let _ = writeln!(
            text,
            "  {}: {} of a script that is not known here ({})",
            plain(&one.pattern),
            counted(one.calls, "call", "calls"),
            plain(&one.scripts.join(", "))
        );
    }
    text.push_str(
        "Clients name such a script by its digest, and may take and give back locks by it. `SCRIPT FLUSH` on the server, once, makes \
         them send the text; `lockwarden discover --from-monitor 60` sees what it does without that.\n",
    );
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
            cell(number(one.released + one.handed_over + one.foreign_releases + one.swept)),
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

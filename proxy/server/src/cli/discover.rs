//! `lockwarden discover`: shows the locks that belong to no namespace, and the configuration that would govern them. Asks a
//! running proxy for its observations, or inspects a Redis itself.

mod arguments;
mod guards;
mod keys;
mod monitor;
mod server;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use lockwarden_console::view::api::{Discovery, KeyPattern};
use lockwarden_control::text::numbers::{counted, number};

use super::api_client::{ApiError, finish, path};
use super::fleet::Answers;
use super::output;
use super::output::{Paint, Screen, Table, duration, plain};
pub(super) use arguments::DiscoverArgs;
use arguments::Form;

/// Prints the findings; exits with 1 if locks belong to no namespace.
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
            (Answers::of_one(found), is_whole)
        }
        None => (args.fleet.ask(|client| client.get::<Discovery>(&path(&["discovery"], &())))?, true),
    };
    output::print(&match args.output {
        Form::Json => output::json(&answers),
        Form::Toml => answers.parts(|found| found.toml.clone(), "# "),
        Form::Text => {
            answers.parts(|found| words(found, Screen::there_is()), "") + &answers.verdict(|| verdict(&answers))
        }
    })?;
    // The missed commands may have been about locks.
    let missed = |found: &Discovery| found.unseen + found.beyond + found.unreadable > 0;
    let mut all = answers.answers.iter().map(|one| &one.answer);
    let is_finding = all.any(|found| found.unclaimed > 0 || missed(found)) || !is_whole;
    Ok(answers.end_with_findings(is_finding))
}

fn verdict(answers: &Answers<Discovery>) -> String {
    let saw = answers.answers.iter().filter(|one| one.answer.unclaimed > 0);
    let saw: Vec<&str> = saw.filter_map(|one| one.proxy.as_deref()).collect();
    match saw.is_empty() {
        true => "none has seen locks that are in no namespace".to_owned(),
        false => format!("locks that are in no namespace were seen by {}", saw.join(", ")),
    }
}

fn words(found: &Discovery, screen: Screen) -> String {
    let watched = duration(found.now.saturating_sub(found.since));
    let mut text = format!("What was seen in the last {watched} of keys that no namespace has:\n\n");
    if found.patterns.is_empty() {
        text.push_str("nothing that takes a key as a lock is taken.\n");
        missed(&mut text, found, screen);
        text.push_str(&guards::words(&found.guards, screen));
        return text;
    }
    text.push_str(&table(&found.patterns, screen));
    // Writing to a String cannot fail, here and below.
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

/// The missed observations, and what to do about them.
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
    let kind = |one: &KeyPattern| {
        let paint = match (one.kind.as_str(), one.confidence.as_str()) {
            ("lock" | "timed lock", "a guess") => Paint::Plain,
            ("lock" | "timed lock", _) => Paint::Doubtful,
            _ => Paint::Plain,
        };
        (one.kind.clone(), paint)
    };
    let given_back = |one: &KeyPattern| one.released + one.handed_over + one.foreign_releases + one.swept;
    let foreign = |one: &KeyPattern| match one.foreign_releases {
        0 => (number(0), Paint::Plain),
        some => (number(some), Paint::Bad),
    };
    let applications =
        |one: &KeyPattern| one.applications.iter().map(|by| by.application.as_str()).collect::<Vec<_>>().join(", ");
    Table::of(patterns)
        .cut("PATTERN", |one| one.pattern.as_str())
        .left("LOOKS LIKE", kind)
        .left("TAKEN BY", |one| one.taken_by.join(", "))
        .right("KEYS", |one| one.keys)
        .right("TRIES", |one| one.tries)
        .right("TAKEN", |one| one.granted)
        .right("GIVEN BACK", given_back)
        .right("FOREIGN", foreign)
        .right("RAN OUT", |one| one.ran_out)
        .right("NO TTL", |one| one.without_ttl)
        .right("HELD p50", |one| one.hold_p50_ms.map(duration))
        .right("p99", |one| one.hold_p99_ms.map(duration))
        .right("LONGEST TTL", |one| one.longest_ttl_ms.map(duration))
        .cut("APPLICATIONS", applications)
        .show(screen)
}

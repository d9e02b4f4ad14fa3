//! `docs/clients.md`: a fixed text around one section for each language, which has a table of what ran and
//! the language's notes. A run of some languages leaves the other sections as they are.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use crate::language::Language;
use crate::report::{Client, Outcome, Report};

const FRAME: &str = include_str!("page.md");

/// What one run of a language found: the worlds of each of its programs; none where something did not hold.
pub(crate) struct Run {
    pub(crate) language: Language,
    pub(crate) clients: Vec<Report>,
    pub(crate) pools: Vec<Report>,
    pub(crate) shop: Vec<Report>,
}

/// The kinds of section, each with its place in the frame.
const KINDS: [(&str, &str); 3] = [("clients ", "{clients}\n"), ("pools ", "{pools}\n"), ("shop ", "{shop}\n")];

/// The page with the sections of what was run, and of what it knew already.
pub(crate) fn written(known: &str, done: &[Run]) -> Result<String, Box<dyn Error>> {
    let mut sections = sections(known);
    for run in done {
        let (name, notes) = (run.language.name(), run.language.notes()?);
        if let [direct, ..] = run.clients.as_slice() {
            let text = section(&notes, &direct.clients());
            sections.insert(format!("clients {name}"), text);
        }
        for (kind, worlds) in [("pools", &run.pools), ("shop", &run.shop)] {
            if !worlds.is_empty() {
                sections.insert(format!("{kind} {name}"), comparison(worlds));
            }
        }
    }
    let mut page = FRAME.to_owned();
    for (kind, place) in KINDS {
        let mut all = String::new();
        for (name, text) in sections.iter().filter(|(name, _)| name.starts_with(kind)) {
            let _ = writeln!(all, "<!-- {name} -->\n{text}<!-- end of {name} -->\n");
        }
        page = page.replace(place, &all);
    }
    Ok(page)
}

/// The sections of a page that was written before.
fn sections(page: &str) -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("<!-- end of ") {
        let Some((name, next)) = after.split_once(" -->\n") else {
            break;
        };
        if let Some((_, text)) = before.split_once(&format!("<!-- {name} -->\n")) {
            sections.insert(name.to_owned(), text.to_owned());
        }
        rest = next;
    }
    sections
}

fn section(notes: &str, clients: &[Client<'_>]) -> String {
    let (title, notes) = notes.split_once('\n').unwrap_or((notes, ""));
    let mut text = format!(
        "### {}\n\n| client | version | held | the client has no |\n|---|---|---|---|\n",
        title.trim_start_matches('#').trim()
    );
    for client in clients {
        let absent = client.names(Outcome::NotThere);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            client.name,
            client.version,
            client.names(Outcome::Ok).join(", "),
            if absent.is_empty() { "–".to_owned() } else { absent.join(", ") },
        );
    }
    let notes = notes.trim();
    if !notes.is_empty() {
        let _ = write!(text, "\n{notes}\n");
    }
    text
}

/// What each check told in each world.
fn comparison(worlds: &[Report]) -> String {
    let mut text = String::new();
    let Some(first) = worlds.first() else {
        return text;
    };
    for client in first.clients() {
        let _ = write!(text, "| {} {} |", client.name, client.version);
        for report in worlds {
            let _ = write!(text, " {} |", report.world);
        }
        let _ = writeln!(text, "\n|---|{}", "---|".repeat(worlds.len()));
        for check in client.checks {
            let _ = write!(text, "| {} |", check.name);
            for report in worlds {
                let twin = report.find(check);
                let _ = write!(text, " {} |", twin.map_or("", |twin| &twin.detail));
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_survives_the_writing_of_others() {
        let mut page = FRAME
            .replace(KINDS[0].1, "<!-- clients go -->\n## Go\n\ntext\n<!-- end of clients go -->\n\n")
            .replace(KINDS[1].1, "<!-- pools go -->\n| a |\n<!-- end of pools go -->\n\n");
        for _ in 0..2 {
            let known = sections(&page);
            assert_eq!(known["clients go"], "## Go\n\ntext\n");
            assert_eq!(known["pools go"], "| a |\n");
            page = written(&page, &[]).expect("nothing is read");
        }
    }

    #[test]
    fn a_section_names_what_held_and_what_a_client_lacks() {
        let mut report = Report::of("direct");
        for (check, result) in [("acquire", "ok"), ("thief", "ok"), ("extend", "n/a")] {
            report.read(&format!(r#"{{"client":"c","version":"1.2","check":"{check}","result":"{result}"}}"#));
        }
        let text = section("# Forth\n\nBeware.\n", &report.clients());
        assert!(text.starts_with("### Forth\n"), "{text}");
        assert!(text.contains("| c | 1.2 | acquire, thief | extend |\n"), "{text}");
        assert!(text.ends_with("\nBeware.\n"), "{text}");
    }

    #[test]
    fn a_comparison_has_a_column_a_world() {
        let worlds = ["direct", "[]"].map(|world| {
            let mut report = Report::of(world);
            report
                .read(&format!(r#"{{"client":"c","version":"1","check":"pool","result":"ok","detail":"in {world}"}}"#));
            report
        });
        assert_eq!(comparison(&worlds), "| c 1 | direct | [] |\n|---|---|---|\n| pool | in direct | in [] |\n");
    }
}

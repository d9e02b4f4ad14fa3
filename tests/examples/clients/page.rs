//! `docs/clients.md`: a text of its own around one section a language, each with a table of what ran and
//! the language's notes. A run of some languages leaves the other sections as they are.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use crate::language::Language;
use crate::report::{Client, Outcome, Report};

const FRAME: &str = include_str!("page.md");
const PLACE: &str = "{languages}\n";

/// The page with the sections of what was run, and of what it knew already.
pub(crate) fn written(known: &str, done: &[(Language, Report)]) -> Result<String, Box<dyn Error>> {
    let mut sections = sections(known);
    for (language, report) in done {
        let text = section(&language.notes()?, &report.clients());
        sections.insert(language.name().to_owned(), text);
    }
    let mut all = String::new();
    for (name, text) in &sections {
        let _ = writeln!(all, "<!-- {name} -->\n{text}<!-- end of {name} -->\n");
    }
    Ok(FRAME.replace(PLACE, &all))
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
        "## {}\n\n| client | version | as without the proxy | the client has no |\n|---|---|---|---|\n",
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
            if absent.is_empty() {
                "–".to_owned()
            } else {
                absent.join(", ")
            },
        );
    }
    let notes = notes.trim();
    if !notes.is_empty() {
        let _ = write!(text, "\n{notes}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_survives_the_writing_of_others() {
        let mut page = FRAME.replace(
            PLACE,
            "<!-- go -->\n## Go\n\ntext\n<!-- end of go -->\n\n<!-- java -->\n## Java\n<!-- end of java -->\n\n",
        );
        for _ in 0..2 {
            let known = sections(&page);
            assert_eq!(known["go"], "## Go\n\ntext\n");
            assert_eq!(known["java"], "## Java\n");
            page = written(&page, &[]).expect("nothing is read");
        }
    }

    #[test]
    fn a_section_names_what_held_and_what_a_client_lacks() {
        let mut report = Report::default();
        for (check, result) in [("acquire", "ok"), ("thief", "ok"), ("extend", "n/a")] {
            report.read(&format!(
                r#"{{"client":"c","version":"1.2","check":"{check}","result":"{result}"}}"#
            ));
        }
        let text = section("# Forth\n\nBeware.\n", &report.clients());
        assert!(text.starts_with("## Forth\n"), "{text}");
        assert!(
            text.contains("| c | 1.2 | acquire, thief | extend |\n"),
            "{text}"
        );
        assert!(text.ends_with("\nBeware.\n"), "{text}");
    }
}

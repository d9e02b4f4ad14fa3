//! The pages fit together: every link has a target, the index of decisions is complete, and the glossary names what exists.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::documentation::{page, repository};

/// All pages below a folder.
fn pages_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("there are pages") {
        let path = entry.expect("there are pages").path();
        match path.extension() {
            Some(end) if end == "md" => found.push(path),
            _ if path.is_dir() => pages_below(&path, found),
            _ => {}
        }
    }
}

/// The lines of a page that are no code.
fn prose(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("a page is text");
    let (mut code, mut lines) = (false, Vec::new());
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        if !code && !fence {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The names by which links mean the headings of a page.
fn anchors(page: &Path) -> Vec<String> {
    let lines = prose(page).into_iter();
    let headings = lines.filter(|line| line.starts_with('#'));
    let words = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    words
        .map(|words| {
            let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
            words.chars().filter(kept).collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_between_pages_leads_to_a_file_and_a_heading() {
    let mut pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "grafana/README.md"]
        .map(|name| repository().join(name))
        .to_vec();
    pages_below(&repository().join("docs"), &mut pages);
    let (mut followed, mut wrong) = (0, Vec::new());
    for page in &pages {
        for line in prose(page) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for link in targets.filter(|link| !link.starts_with("http")) {
                followed += 1;
                let (file, heading) = link.split_once('#').unwrap_or((link, ""));
                let target = match file {
                    "" => page.clone(),
                    _ => page.parent().expect("a page is in a folder").join(file),
                };
                let leads = match heading {
                    "" => target.exists(),
                    _ => target.exists() && anchors(&target).contains(&heading.to_owned()),
                };
                if !leads {
                    wrong.push(format!("{}: {link}", page.display()));
                }
            }
        }
    }
    assert!(followed > 100, "{followed} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The files of this repository to which a page links.
fn linked_from(page: &Path) -> Vec<PathBuf> {
    let text = prose(page).join("\n");
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split([')', '#']).next());
    let folder = page.parent().expect("a page is in a folder");
    targets
        .filter(|link| link.ends_with(".md") && !link.starts_with("http"))
        .filter_map(|link| folder.join(link).canonicalize().ok())
        .collect()
}

#[test]
fn the_readme_is_short_and_every_page_is_at_most_two_links_away_from_it() {
    let readme = repository().join("README.md");
    let lines = page("README.md").lines().count();
    assert!(lines <= 150, "the README has {lines} lines");
    let first = linked_from(&readme);
    let second = first.iter().flat_map(|page| linked_from(page));
    let reached: Vec<PathBuf> = second.chain(first.iter().cloned()).collect();
    let mut pages = Vec::new();
    pages_below(&repository().join("docs"), &mut pages);
    let lost: Vec<PathBuf> =
        pages.into_iter().filter(|page| !reached.contains(&page.canonicalize().expect("it is there"))).collect();
    assert!(lost.is_empty(), "nobody finds {lost:?}");
}

#[test]
fn every_decision_stands_in_the_index_and_tells_context_decision_and_consequences() {
    let (index, mut records) = (page("docs/decisions/README.md"), Vec::new());
    pages_below(&repository().join("docs/decisions"), &mut records);
    records.retain(|path| !path.ends_with("README.md"));
    assert!(records.len() >= 40, "{} records", records.len());
    for record in records {
        let name = record.file_name().expect("a file").to_string_lossy();
        assert!(index.contains(&format!("]({name})")), "{name} is not in the index");
        for heading in ["## Context", "## Decision", "## Consequences"] {
            let lines = prose(&record);
            assert!(lines.iter().any(|line| line == heading), "{name} has no {heading}");
        }
    }
}

/// The names that the Rust files below a folder declare: items behind their keyword, variants at the beginning of a line.
fn declared_below(folder: &Path, found: &mut HashSet<String>) {
    for entry in std::fs::read_dir(folder).expect("there are sources") {
        let path = entry.expect("there are sources").path();
        match path.extension() {
            Some(end) if end == "rs" => declared_in(&std::fs::read_to_string(&path).expect("text"), found),
            _ if path.is_dir() => declared_below(&path, found),
            _ => {}
        }
    }
}

fn declared_in(text: &str, found: &mut HashSet<String>) {
    let name_of = |text: &str| {
        let ends = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
        text[..ends].to_owned()
    };
    for line in text.lines() {
        let mut words = line.split(' ');
        while let Some(word) = words.next() {
            if ["fn", "struct", "enum", "trait", "const", "static", "mod"].contains(&word) {
                found.extend(words.next().map(name_of));
            }
        }
        if let Some(variant) = line.strip_prefix("    ").filter(|rest| rest.starts_with(char::is_uppercase)) {
            let name = name_of(variant);
            let behind = &variant[name.len()..];
            if ["(", " {", ","].iter().any(|end| behind.starts_with(end)) {
                found.insert(name);
            }
        }
    }
}

/// All of the product.
static DECLARED: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let mut found = HashSet::new();
    sources_of_crates().iter().for_each(|path| declared_below(path, &mut found));
    found
});

/// Where the sources of the crates in `proxy` are.
fn sources_of_crates() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(repository().join("proxy")).expect("the folder of the crates");
    let sources = folders.map(|folder| folder.expect("an entry").path().join("src"));
    sources.filter(|path| path.is_dir()).collect()
}

#[test]
fn the_glossary_is_in_order_and_names_types_and_files_that_exist() {
    let crates = sources_of_crates();
    let page = page("docs/glossary.md");
    let rows = page.lines().filter(|row| row.starts_with("| **"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').collect()).collect();
    assert!(rows.len() > 80, "{} entries", rows.len());
    assert!(
        rows.is_sorted_by_key(|row| row[1].trim_matches([' ', '*']).to_lowercase()),
        "the glossary is not in order"
    );
    let mut wrong = Vec::new();
    for row in &rows {
        for name in row[3].split('`').skip(1).step_by(2).filter(|name| !name.contains('-')) {
            let first = name.split("::").next().unwrap_or_default();
            let exists = match first.starts_with(char::is_uppercase) {
                true => DECLARED.contains(first),
                false => {
                    crates.iter().any(|path| path.join(name).is_dir() || path.join(format!("{name}.rs")).is_file())
                }
            };
            if !exists {
                wrong.push(format!("{}: {name}", row[1]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a name of `docs/life-of-a-command.md` exists: a file by its path or beside the spine, a function or a variant
/// by its last word, wherever its first is known.
fn exists(name: &str) -> bool {
    if name.ends_with(".rs") || name.ends_with(".lua") {
        let folders = ["", "proxy/dataplane/src/session", "proxy/lock/src/scripts"];
        return folders.iter().any(|folder| repository().join(folder).join(name).is_file());
    }
    name.split("::").all(|word| DECLARED.contains(word))
}

#[test]
fn every_name_on_the_way_of_a_command_exists() {
    let page = prose(&repository().join("docs/life-of-a-command.md")).join("\n");
    let named = page.split('`').skip(1).step_by(2);
    let is_name = |word: &&str| {
        let is_path = |letter: char| letter.is_ascii_alphanumeric() || "_:/.-".contains(letter);
        let tells = word.contains("::") || word.ends_with(".rs") || word.ends_with(".lua");
        word.chars().all(is_path) && tells
    };
    let named: Vec<&str> = named.filter(is_name).collect();
    assert!(named.len() > 60, "{} names", named.len());
    let wrong: Vec<&&str> = named.iter().filter(|name| !exists(name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(!exists("Session::nothing_of_the_kind"));
    assert!(!exists("nothing.rs"));
}

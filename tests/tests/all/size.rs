//! The amount of code: tokens by folder, limited by a table in CONTRIBUTING.md, so that growth is a decision.
//! Formatting changes no token; tests, examples, comments and documentation are not counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use crate::documentation::repository;

/// How far a folder may be from its line, in hundredths of the line.
const MAX_OFF: usize = 2;
/// A difference, in tokens, that is too small to matter for a folder of a few files.
const LITTLE: usize = 60;

/// The tokens of code, a pair of brackets being two.
fn tokens(code: TokenStream) -> usize {
    let code: Vec<TokenTree> = code.into_iter().collect();
    let (mut at, mut count) = (0, 0);
    while at < code.len() {
        match &code[at..] {
            [TokenTree::Punct(hash), TokenTree::Group(attribute), ..]
                if hash.as_char() == '#' && begins_with(attribute.stream(), "doc") =>
            {
                at += 2;
            }
            [TokenTree::Punct(hash), TokenTree::Punct(_), TokenTree::Group(attribute), ..]
                if hash.as_char() == '#' && begins_with(attribute.stream(), "doc") =>
            {
                at += 3;
            }
            [TokenTree::Ident(module), TokenTree::Ident(name), _, ..] if module == "mod" && name == "tests" => at += 3,
            [TokenTree::Group(group), ..] => {
                count += 2 + tokens(group.stream());
                at += 1;
            }
            _ => {
                count += 1;
                at += 1;
            }
        }
    }
    count
}

fn begins_with(code: TokenStream, word: &str) -> bool {
    matches!(code.into_iter().next(), Some(TokenTree::Ident(first)) if first == word)
}

/// The crates whose layers have lines of their own.
const LAYERED: [&str; 4] = ["control", "dataplane", "console", "server"];

/// The folder of the table that a file counts for: a crate, or a layer of one.
fn folder(path: &str) -> String {
    let (crate_of, within) = path.split_once('/').unwrap_or((path, ""));
    match within.strip_prefix("src/").filter(|_| LAYERED.contains(&crate_of)) {
        Some(within) => {
            let layer = within.split('/').next().unwrap_or(within);
            format!("{crate_of}/{}", layer.trim_end_matches(".rs"))
        }
        None => crate_of.to_owned(),
    }
}

fn weigh(root: &Path, within: &Path, found: &mut BTreeMap<String, usize>) {
    for entry in fs::read_dir(within).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("our names are text");
        if path.is_dir() {
            if !["tests", "examples", "fuzz", "benches", "target"].contains(&name) {
                weigh(root, &path, found);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" && !name.ends_with("_tests.rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let code = text.parse().unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
            let relative = path.strip_prefix(root).expect("it is in there").to_string_lossy();
            *found.entry(folder(&relative)).or_default() += tokens(code);
        }
    }
}

#[test]
fn comments_tests_and_formatting_do_not_count() {
    let plain: TokenStream = "fn a(b: u8) -> u8 { b + 1 }".parse().expect("it is Rust");
    let wordy = "//! Of a module.\n/// Of a function.\n#[doc = \"more\"]\nfn a(\n    b: u8, // Behind it.\n) -> u8 {\n b + 1 }\nmod tests { fn c() {} }";
    let wordy: TokenStream = wordy.parse().expect("it is Rust");
    assert_eq!(tokens(plain), 15);
    // The comma behind the last argument is the formatter's.
    assert_eq!(tokens(wordy), 16);
}

#[test]
fn no_folder_grows_without_a_line_that_says_what_it_buys() {
    let root = repository().join("proxy");
    let mut found = BTreeMap::new();
    weigh(&root, &root, &mut found);
    let page = fs::read_to_string(repository().join("CONTRIBUTING.md")).expect("the page is there");
    let (_, table) = page.split_once("| folder | tokens | what the last growth bought |\n").expect("a table of sizes");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let mut said: BTreeMap<String, usize> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let tokens = cells[2].replace(',', "").parse().unwrap_or_else(|_| panic!("no number of tokens: {row}"));
            assert!(!cells[3].is_empty(), "what did it buy? {row}");
            (cells[1].trim_matches('`').to_owned(), tokens)
        })
        .collect();
    let mut wrong = Vec::new();
    for (folder, now) in &found {
        let line = said.remove(folder).unwrap_or_default();
        if now.abs_diff(line) > (line * MAX_OFF / 100).max(LITTLE) {
            wrong.push(format!("{folder}: {now} tokens, CONTRIBUTING.md says {line}"));
        }
    }
    wrong.extend(said.keys().map(|folder| format!("{folder}: gone, and still in CONTRIBUTING.md")));
    assert!(wrong.is_empty(), "write the new number, and where it grew what that buys:\n{}", wrong.join("\n"));
}

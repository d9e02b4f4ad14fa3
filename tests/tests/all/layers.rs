//! How `proxy/server` is put together: its folders are layers, and an import leads only to a lower one. The table below
//! is the plan; the sources are read and compared with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The folders and files at the top of `proxy/server/src`, the lowest first. Those of one line do not import one another.
const LAYERS: &[&[&str]] = &[
    &["clock", "net", "random", "text"],
    &["config"],
    &["telemetry"],
    &["ruleset"],
    &["backend"],
    &["registry"],
    &["state"],
    &["holders"],
    &["maintenance", "session", "view"],
    &["admin"],
    &["app"],
    &["cli"],
];

/// The same inside of a folder. Parts of it that are not named stand above those that are, and may import one another.
const INSIDE: &[(&str, &[&[&str]])] = &[
    (
        "telemetry",
        &[
            &["vocabulary"],
            &["events"],
            &["metrics", "logging"],
            &["audit"],
            &["otel"],
        ],
    ),
    ("session", &[&["transport"]]),
];

/// The binary itself, which only declares the layers and calls the highest.
const ROOT: &str = "main";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxy/server/src")
}

/// The module of each source file, as the names on the way to it, and its text.
fn modules() -> Vec<(Vec<String>, String)> {
    let (root, mut folders, mut found) = (sources(), vec![sources()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let within = path.strip_prefix(&root).expect("it is in there");
            let names = within.with_extension("");
            let names = names.iter().map(|name| name.to_string_lossy().into_owned());
            let text = fs::read_to_string(&path).expect("a source file");
            found.push((names.collect(), text));
        }
    }
    found.sort();
    found
}

/// An import: its line, and the names on the way to what it names, from the top of the crate.
type Import = (usize, Vec<String>);

/// Every path of a module that begins with `crate`, `self` or `super`: in `use`, in code, in the arguments of macros.
fn imports(module: &[String], text: &str) -> Vec<Import> {
    let tokens: TokenStream = text
        .parse()
        .unwrap_or_else(|error| panic!("{module:?}: {error:?}"));
    let mut found = Vec::new();
    let module = match module {
        [root] if root == ROOT => Vec::new(),
        _ => module.to_vec(),
    };
    read(tokens, &module, &mut found);
    found
}

fn read(tokens: TokenStream, module: &[String], found: &mut Vec<Import>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        match &tokens[at] {
            TokenTree::Group(group) => {
                let mut inner = module.to_vec();
                // `mod tests { … }`: what is in there is one level deeper.
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Ident(word))) =
                    (before, at.checked_sub(2).map(|before| &tokens[before]))
                    && word == "mod"
                {
                    inner.push(name.to_string());
                }
                read(group.stream(), &inner, found);
                at += 1;
            }
            TokenTree::Ident(word) if is_start(word) && !follows_path(before) => {
                let mut base = module.to_vec();
                if word == "crate" {
                    base.clear();
                } else if word == "super" {
                    base.pop();
                }
                at = follow(&tokens, at + 1, base, found);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
        }
    }
}

fn is_start(word: &proc_macro2::Ident) -> bool {
    word == "crate" || word == "super" || word == "self"
}

fn follows_path(before: Option<&TokenTree>) -> bool {
    matches!(before, Some(TokenTree::Punct(colon)) if colon.as_char() == ':')
}

/// Follows a path from behind its first word, and what is in braces at its end. Returns where it ends.
fn follow(
    tokens: &[TokenTree],
    mut at: usize,
    mut path: Vec<String>,
    found: &mut Vec<Import>,
) -> usize {
    let mut line = None;
    while let [TokenTree::Punct(one), TokenTree::Punct(two), next, ..] = &tokens[at..]
        && one.as_char() == ':'
        && two.as_char() == ':'
    {
        at += 3;
        line.get_or_insert(one.span().start().line);
        match next {
            TokenTree::Ident(word) if word == "super" => {
                path.pop();
            }
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let within: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in within.split(is_comma) {
                    branch_of(branch, &path, found);
                }
                return at;
            }
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => break,
        }
    }
    if let Some(line) = line {
        found.push((line, path));
    }
    at
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',')
}

/// One of the paths in braces.
fn branch_of(branch: &[TokenTree], base: &[String], found: &mut Vec<Import>) {
    let Some(TokenTree::Ident(first)) = branch.first() else {
        return;
    };
    let mut path = base.to_vec();
    if first != "self" {
        path.push(first.to_string());
    }
    let known = found.len();
    follow(branch, 1, path.clone(), found);
    if found.len() == known {
        found.push((first.span().start().line, path));
    }
}

/// In which line of a table this name stands.
fn height(table: &[&[&str]], name: &str) -> usize {
    let line = table.iter().position(|line| line.contains(&name));
    line.unwrap_or(table.len())
}

/// What is wrong with the imports of a module.
fn complaints(module: &[String], text: &str) -> Vec<String> {
    let file = format!("proxy/server/src/{}.rs", module.join("/"));
    let mut wrong = Vec::new();
    for (line, path) in imports(module, text) {
        let mut tables = vec![(0, LAYERS)];
        let inside = INSIDE.iter().find(|(folder, _)| *folder == module[0]);
        tables.extend(inside.map(|(_, table)| (1, *table)));
        for (depth, table) in tables {
            let (Some(here), Some(there)) = (module.get(depth), path.get(depth)) else {
                continue;
            };
            let same_folder = module[..depth] == path[..depth.min(path.len())];
            let (from, to) = (height(table, here), height(table, there));
            if same_folder && here != there && to >= from && from < table.len() {
                let path = path.join("::");
                wrong.push(format!("{file}:{line} imports {path}, which is no lower"));
            }
        }
    }
    wrong
}

#[test]
fn every_import_leads_to_a_lower_layer() {
    let modules = modules();
    let wrong: Vec<String> = modules
        .iter()
        .filter(|(module, _)| module[0] != ROOT)
        .flat_map(|(module, text)| complaints(module, text))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // So that it is known to have read something.
    let all = modules
        .iter()
        .map(|(module, text)| imports(module, text).len());
    assert!(all.sum::<usize>() > 1_000);
}

#[test]
fn every_folder_has_its_layer() {
    let planned: BTreeSet<String> = LAYERS.concat().into_iter().map(str::to_owned).collect();
    let there = modules().into_iter().map(|(module, _)| module[0].clone());
    let there: BTreeSet<String> = there.filter(|name| name != ROOT).collect();
    assert_eq!(there, planned);
}

#[test]
fn an_import_that_goes_up_is_seen_however_it_is_spelled() {
    let module = ["registry".to_owned(), "clients".to_owned()];
    for (text, seen) in [
        ("use crate::state::ProxyState;", 1),
        ("use crate::{net::wakeup, state::{effects, ProxyState}};", 2),
        ("use crate::net::{self, wakeup};\nuse crate::session;", 1),
        ("pub(crate) use super::super::session as other;", 1),
        (
            "fn f() { tracing::info!(at = %crate::view::spell(key)); }",
            1,
        ),
        (
            "mod tests { use super::super::super::state::ProxyState; }",
            1,
        ),
        ("fn f(state: &crate::state::ProxyState) {}", 1),
    ] {
        assert_eq!(complaints(&module, text).len(), seen, "{text}");
    }
    for text in [
        "use crate::net::wakeup;",
        "use super::renewals::Renewals;",
        "use crate::{net::{wakeup, buffer_pool}, telemetry};",
        "mod tests { use super::super::renewals; }",
        "/// See `crate::state`.\nfn f() { let state = 1; }",
        "fn f() { println!(\"use crate::state;\"); }",
    ] {
        assert_eq!(complaints(&module, text), Vec::<String>::new(), "{text}");
    }
}

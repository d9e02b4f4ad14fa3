//! The inner structure of the proxy's crates: their folders are layers, and an import leads only to a lower one; and no files
//! import each other in a circle, so that each can be read and tested when those below it are known. The tables below are the
//! plan, with which the sources are compared. The manifests say which crate may use which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A crate of `proxy`, and the folders and files at the top of its sources, the lowest first. Those of one line do not import one
/// another.
type Layers = (&'static str, &'static [&'static [&'static str]]);

/// The crates that have layers.
const CRATES: &[Layers] = &[
    (
        "control",
        &[&["sync"], &["clock", "net", "random", "text"], &["config"], &["delivery", "telemetry"], &["ruleset"]],
    ),
    (
        "dataplane",
        &[&["backend"], &["registry"], &["state"], &["holders"], &["maintenance", "presented", "session"], &["front"]],
    ),
    ("console", &[&["view"], &["admin"]]),
    ("server", &[&["terminal"], &["app"], &["cli"]]),
];

/// The same inside of a folder. Parts of it that are not named stand above those that are, and may import one another.
const INSIDE: &[(&str, &[&[&str]])] = &[
    ("telemetry", &[&["applications", "fold", "vocabulary"], &["events"], &["metrics", "logging"], &["audit"]]),
    ("session", &[&["transport"]]),
];

/// Files that may import each other in a circle: those whose modules begin with one of the names of a line.
const CIRCLES: &[&[&str]] = &[
    // The pool opens shared connections, and a shared connection takes itself out of the pool when it ends: two files of
    // one idea.
    &["backend::pool", "backend::shared_connection"],
];

/// The files that only declare the layers, and that of the binary calls the highest.
const ROOTS: [&str; 2] = ["lib", "main"];

/// A source file: the names on the way to its module, and its text.
type Module = (Vec<String>, String);

/// The source files of a crate.
fn modules((name, _): &Layers) -> Vec<Module> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxy").join(name).join("src");
    let (mut folders, mut found) = (vec![root.clone()], Vec::new());
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

fn is_root(name: &str) -> bool {
    ROOTS.contains(&name)
}

/// An import: its line, and the names on the way to what it names, from the top of the crate.
type Import = (usize, Vec<String>);

/// Every path of a module that begins with `crate`, `self` or `super`: in `use`, in code, in the arguments of macros. And
/// every other path as if it began with a module of this module, as that of another crate or of a type does not.
fn imports(module: &[String], text: &str) -> Vec<Import> {
    let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{module:?}: {error:?}"));
    let mut found = Vec::new();
    let module = match module {
        [root] if is_root(root) => Vec::new(),
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
            // A visibility is no import: `pub(in crate::session)`.
            TokenTree::Group(_) if matches!(before, Some(TokenTree::Ident(word)) if word == "pub") => at += 1,
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
            TokenTree::Ident(word) if !follows_path(before) => {
                let mut base = module.to_vec();
                if word == "crate" {
                    base.clear();
                } else if word == "super" {
                    base.pop();
                } else if word != "self" {
                    base.push(word.to_string());
                }
                at = follow(&tokens, at + 1, base, found);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
        }
    }
}

fn follows_path(before: Option<&TokenTree>) -> bool {
    matches!(before, Some(TokenTree::Punct(colon)) if colon.as_char() == ':')
}

/// Follows a path from behind its first word, and what is in braces at its end. Returns where it ends.
fn follow(tokens: &[TokenTree], mut at: usize, mut path: Vec<String>, found: &mut Vec<Import>) -> usize {
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

/// The errors in the imports of a module.
fn complaints((name, layers): &Layers, module: &[String], text: &str) -> Vec<String> {
    let file = format!("proxy/{name}/src/{}.rs", module.join("/"));
    let mut wrong = Vec::new();
    for (line, path) in imports(module, text) {
        let mut tables = vec![(0, *layers)];
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

/// Which files each file imports; files of tests as if they imported none.
fn graph(modules: &[Module]) -> BTreeMap<String, BTreeSet<String>> {
    let files: BTreeMap<&[String], &str> = modules
        .iter()
        .filter(|(module, _)| !is_root(&module[0]))
        .map(|(module, text)| (&module[..], &text[..]))
        .collect();
    let file_of = |path: &[String]| {
        let mut within = (1..=path.len()).rev().map(|end| &path[..end]);
        within.find(|within| files.contains_key(within)).map(<[String]>::to_vec)
    };
    let imported = |module: &[String], text: &str| {
        if module.iter().any(|name| name == "tests") {
            return BTreeSet::new();
        }
        let paths = imports(module, text).into_iter();
        let others = paths.filter_map(|(_, path)| file_of(&path));
        others.filter(|other| other != module).map(|other| other.join("::")).collect()
    };
    files.iter().map(|(module, text)| (module.join("::"), imported(module, text))).collect()
}

/// The files that import each other in a circle, one set for each circle.
fn circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<&str>> {
    let reached = |from: &str| {
        let (mut next, mut reached) = (vec![from.to_owned()], BTreeSet::new());
        while let Some(file) = next.pop() {
            let unseen = graph[&file].iter().filter(|file| reached.insert(*file));
            next.extend(unseen.cloned());
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&String>> = graph.keys().map(|file| (file.as_str(), reached(file))).collect();
    let leads = |from: &str, to: &str| reached[from].iter().any(|file| *file == to);
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for &file in reached.keys() {
        if leads(file, file) && !circles.iter().any(|circle| circle.contains(file)) {
            let back = reached.keys().filter(|other| leads(file, other) && leads(other, file));
            circles.push(back.copied().collect());
        }
    }
    circles
}

/// Whether a circle is one of those that may be.
fn is_known(circle: &BTreeSet<&str>, names: &[&str]) -> bool {
    let is_named = |file: &&str| names.iter().any(|name| file.starts_with(name));
    circle.iter().all(is_named)
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let graph = CRATES.iter().flat_map(|one| graph(&modules(one))).collect();
    let found = circles(&graph);
    let is_new = |circle: &&BTreeSet<&str>| !CIRCLES.iter().any(|names| is_known(circle, names));
    let new: Vec<_> = found.iter().filter(is_new).collect();
    assert!(new.is_empty(), "{new:#?}");
    for names in CIRCLES {
        let is_there = found.iter().any(|circle| is_known(circle, names));
        assert!(is_there, "{names:?} need not be in the list any more");
    }
}

#[test]
fn a_circle_is_seen_however_its_imports_are_spelled() {
    let module = |name: &str, text: &str| {
        let names = name.split("::").map(str::to_owned);
        (names.collect(), text.to_owned())
    };
    for (lower, upper) in [
        ("use super::upper::Type;", "use super::lower::Type;"),
        ("use crate::layer::{Type, inner};", "use lower::Type;"),
        ("use super::super::layer;", "fn f() { lower::f(); }"),
        ("fn f() { super::f() }", "pub(crate) use lower::{self, Type};"),
        ("use crate::layer;", "use self::lower::Type;"),
    ] {
        let upper_name = if upper.contains("super") { "layer::upper" } else { "layer" };
        let modules = [module("layer::lower", lower), module(upper_name, upper)];
        let graph = graph(&modules);
        assert_eq!(circles(&graph), [["layer::lower", upper_name].into()], "{lower} {upper}");
    }
    let modules = [
        module("layer", "mod lower; mod upper; use upper::Type; use std::lower::Type;"),
        module("layer::upper", "use super::lower::{Type, tests::f}; use crate::layer::upper::f;"),
        module("layer::lower", "use std::fmt; fn f() { upper() } mod tests { use super::*; }"),
        module("layer::lower::tests", "use crate::layer;"),
    ];
    assert!(circles(&graph(&modules)).is_empty());
}

#[test]
fn every_import_leads_to_a_lower_layer() {
    let mut read = 0;
    for one in CRATES {
        let modules = modules(one);
        let below = modules.iter().filter(|(module, _)| !is_root(&module[0]));
        let wrong: Vec<String> = below.flat_map(|(module, text)| complaints(one, module, text)).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        read += modules.iter().map(|(module, text)| imports(module, text).len()).sum::<usize>();
    }
    assert!(read > 1_000, "only {read} imports were found");
}

#[test]
fn every_folder_has_its_layer() {
    for one in CRATES {
        let planned: BTreeSet<String> = one.1.concat().into_iter().map(str::to_owned).collect();
        let there = modules(one).into_iter().map(|(module, _)| module[0].clone());
        let there: BTreeSet<String> = there.filter(|name| !is_root(name)).collect();
        assert_eq!(there, planned, "{}", one.0);
    }
}

#[test]
fn an_import_that_goes_up_is_seen_however_it_is_spelled() {
    const LAYERS: &Layers = &("a crate", &[&["net", "telemetry"], &["registry"], &["state"], &["session", "view"]]);
    let module = ["registry".to_owned(), "clients".to_owned()];
    for (text, seen) in [
        ("use crate::state::ProxyState;", 1),
        ("use crate::{net::wakeup, state::{effects, ProxyState}};", 2),
        ("use crate::net::{self, wakeup};\nuse crate::session;", 1),
        ("pub(crate) use super::super::session as other;", 1),
        ("fn f() { tracing::info!(at = %crate::view::spell(key)); }", 1),
        ("mod tests { use super::super::super::state::ProxyState; }", 1),
        ("fn f(state: &crate::state::ProxyState) {}", 1),
    ] {
        assert_eq!(complaints(LAYERS, &module, text).len(), seen, "{text}");
    }
    for text in [
        "use crate::net::wakeup;",
        "use super::renewals::Renewals;",
        "use crate::{net::{wakeup, buffer_pool}, telemetry};",
        "mod tests { use super::super::renewals; }",
        "/// See `crate::state`.\nfn f() { let state = 1; }",
        "fn f() { println!(\"use crate::state;\"); }",
    ] {
        assert_eq!(complaints(LAYERS, &module, text), Vec::<String>::new(), "{text}");
    }
}

//! What the pages say of this repository is so.

use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    let path = repository().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The file that `docs/guarantees.md` means by the part before the last `::`.
fn source_of(file: &str) -> PathBuf {
    let path = match file.ends_with(".rs") {
        true => file.to_owned(),
        false => format!("tests/tests/all/{}.rs", file.replace("::", "/")),
    };
    repository().join(path)
}

/// Whether this file has a test of that name.
fn has_test(source: &str, name: &str) -> bool {
    let scenario = format!("in_every_world!({name}");
    source.contains(&format!("{scenario})"))
        || source.contains(&format!("{scenario},"))
        || source.contains(&format!("in_every_world!(\n    {name},"))
        || source.split("#[test]").skip(1).any(|rest| {
            let function = rest.split("fn ").nth(1);
            function.is_some_and(|rest| rest.split(['(', '<']).next() == Some(name))
        })
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let page = page("docs/guarantees.md");
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let promises: Vec<&str> = rows
        .filter(|row| row.split('|').count() == 5 && !row.starts_with("| promise"))
        .collect();
    assert!(promises.len() > 20, "{} promises", promises.len());
    let mut wrong = Vec::new();
    for promise in promises {
        let tests = promise.split('|').nth(3).unwrap_or_default();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            wrong.push(format!("no test holds it: {promise}"));
        }
        for name in names {
            let (file, test) = name.rsplit_once("::").unwrap_or(("", name));
            let source = std::fs::read_to_string(source_of(file)).unwrap_or_default();
            if !has_test(&source, test) {
                wrong.push(format!("there is no test {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

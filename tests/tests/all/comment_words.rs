//! Words by which a comment reads as if it were translated: each has a ceiling, which only falls.

use std::fs;
use std::path::Path;

use crate::documentation::repository;

/// A word in lower case, and in how many lines of comments it may stand.
const CEILINGS: [(&str, usize); 5] = [("anybody", 2), ("nobody", 13), ("somebody", 6), ("whoever", 3), ("whyever", 0)];

/// How many lines of comments below this folder have the word.
fn lines_with(word: &str, folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let of_entry = |path: &Path| {
        if path.is_dir() {
            return match path.file_name().is_some_and(|name| name == "target") {
                true => 0,
                false => lines_with(word, path),
            };
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            return 0;
        }
        let text = fs::read_to_string(path).expect("a source file").to_lowercase();
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//"));
        comments.filter(|line| line.split(|at: char| !at.is_alphabetic()).any(|one| one == word)).count()
    };
    entries.map(|entry| of_entry(&entry.expect("an entry").path())).sum()
}

#[test]
fn comments_are_no_more_roundabout_than_they_were() {
    let mut wrong = Vec::new();
    for (word, ceiling) in CEILINGS {
        let folders = ["proxy", "policies", "tests"].map(|folder| repository().join(folder));
        let found: usize = folders.iter().map(|folder| lines_with(word, folder)).sum();
        if found > ceiling {
            wrong.push(format!("{word:?} in {found} lines of comments, at most {ceiling}: name who or what it is"));
        } else if found < ceiling {
            wrong.push(format!("{word:?} in {found} lines of comments: lower its ceiling of {ceiling}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Scripts of job systems that build the names of locks from data, and that were reviewed: each takes a lock for a job
//! that it moves, releases one whose owner token it was given, or only reads it. An operator names them in
//! `trusted_scripts`, by library and version or, for one that is not listed here, by its SHA-1. `tests/clients/node`
//! and `tests/clients/go` run the libraries with these.

use std::collections::BTreeSet;

use crate::library_scripts;
use crate::script_facts::ScriptSha;

/// The scripts that this name stands for: those of a library, or the one with this SHA-1; none if it is neither.
pub fn named(text: &str) -> Vec<ScriptSha> {
    let sha = |hex: &str| ScriptSha::from_hex(hex.as_bytes());
    let of_library = library_scripts::of_jobs().filter(|(library, _)| library == text);
    let scripts: Vec<ScriptSha> = of_library.filter_map(|(_, hex)| sha(hex)).collect();
    match scripts.is_empty() {
        true => sha(text).into_iter().collect(),
        false => scripts,
    }
}

/// The text in a refusal before the name for `trusted_scripts`.
const TRUST: &str = ", or have trusted_scripts name ";

/// The end of a refusal's text: how the operator can allow this script.
pub fn may_be_trusted(sha: &ScriptSha) -> String {
    format!("{TRUST}{}", name_of(sha))
}

/// The name for `trusted_scripts` in the text of a refusal.
pub fn asked_for(words: &str) -> Option<&str> {
    let (_, name) = words.split_once(TRUST)?;
    name.split(';').next()
}

/// How `trusted_scripts` names a script: by its library, if known, otherwise by its SHA-1.
fn name_of(sha: &ScriptSha) -> String {
    let hex = sha.to_string();
    let library = library_scripts::of_jobs().find(|(_, one)| *one == hex);
    library.map_or(hex, |(name, _)| name)
}

/// The libraries, for people to read.
pub fn names() -> String {
    let names: BTreeSet<String> = library_scripts::of_jobs().map(|(name, _)| name).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_stands_for_each_of_its_scripts_and_a_sha_for_itself() {
        for (name, scripts) in [("asynq@0.26.0", 2), ("bull@4.16.5", 9), ("bullmq@6.7.0", 12)] {
            assert_eq!(named(name).len(), scripts, "{name}");
        }
        assert_eq!(names(), "asynq@0.26.0, bull@4.16.5, bullmq@6.7.0");
        let one = named("5bf9083c794d9aca062606b3c5431e4050262cf1");
        assert_eq!((one.len(), name_of(&one[0]).as_str()), (1, "bull@4.16.5"));
        let other = may_be_trusted(&ScriptSha::of(b"return 1"));
        let words = format!("hand them over in KEYS{other}; what the script had done before stands");
        assert_eq!(asked_for(&words), Some("e0e1f9fabfc9d4800c877a703b823ac0578ff8db"));
        assert!(named("bull").is_empty() && named("e0e1").is_empty());
    }
}

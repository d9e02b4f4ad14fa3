use std::fs;
use std::path::Path;

use lockwarden_lock::administration::ServerCommands;
use lockwarden_lock::rules::Mode;

use super::*;

mod defaults;
mod effective;
mod files;
mod findings;
mod layers;
mod meaning;
mod rules;
mod sentinels;
mod tables;

/// Loads `text` as a file called `c.toml`, with no environment and no flags. The directory is cut
/// off the findings, so that they read as they would for a person who stands in it.
fn loaded(text: &str) -> (Option<Config>, Vec<String>) {
    loaded_with(Some(text), &Overrides::default(), &[])
}

fn loaded_with(text: Option<&str>, overrides: &Overrides, env: &[(&str, &str)]) -> (Option<Config>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    if let Some(text) = text {
        fs::write(&path, text).unwrap();
    }
    let env = env.iter().map(|(name, text)| (name.to_string(), text.to_string()));
    let loaded = load(text.map(|_| path.as_path()), overrides, env);
    (loaded.config, lines(directory.path(), &loaded.findings))
}

fn lines(directory: &Path, findings: &[Finding]) -> Vec<String> {
    let directory = format!("{}/", directory.display());
    findings.iter().map(|finding| finding.to_string().replace(&directory, "")).collect()
}

/// Every case shows a file and exactly what is said about it.
fn expect_findings(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let (config, found) = loaded(text);
        assert_eq!(&found, expected, "for {text}");
        let any_error = found.iter().any(|line| line.contains(" error: "));
        assert_eq!(config.is_none(), any_error, "for {text}");
    }
}

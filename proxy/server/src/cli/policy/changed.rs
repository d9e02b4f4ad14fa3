//! Changed answers, as a table.

use std::collections::BTreeMap;

use lockwarden_control::telemetry::changes::{Change, Example};
use lockwarden_control::text::numbers::number;

use crate::cli::output::{Screen, Table, plain};

/// Applications shown per change.
const SHOWN_APPLICATIONS: usize = 3;

pub(super) fn changes_in_words(changes: &[Change]) -> String {
    Table::of(changes)
        .right("QUESTIONS", |change| number(change.questions))
        .left("CHANGE", |change| plain(&change.change).into_owned())
        .cut("APPLICATIONS", |change| applications(&change.applications))
        .cut("FOR EXAMPLE", |change| {
            let Example { command, key, seq, .. } = &change.example;
            let line = if *seq > 0 { format!(", seq {seq}") } else { String::new() };
            format!("{} {}{line}", plain(command), plain(key))
        })
        .show(Screen::there_is())
}

/// The busiest of them.
fn applications(by_name: &BTreeMap<String, u64>) -> String {
    let mut all: Vec<(&String, &u64)> = by_name.iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown = all.iter().take(SHOWN_APPLICATIONS).map(|(name, count)| format!("{} {}", plain(name), number(**count)));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN_APPLICATIONS {
        text.push_str(&format!(", {} more", all.len() - SHOWN_APPLICATIONS));
    }
    text
}

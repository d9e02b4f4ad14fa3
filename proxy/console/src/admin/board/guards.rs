//! Data that only holders of locks may write: the verdicts on writes to it.

use std::collections::BTreeMap;

use lockwarden_control::text::numbers::number;
use maud::{Markup, html};

use crate::view::api::Guard;

/// Guards on the page.
const GUARDS: usize = 20;
/// The verdicts on a write by a client without the lock.
const REFUSALS: [&str; 2] = ["stale-fence", "not-owner"];

/// All guards, if there are any.
pub(super) fn section(guards: &[Guard]) -> Markup {
    html! {
        @if !guards.is_empty() {
            h2 {
                "Guarded data "
                span.as-file { a href="/api/v1/guards" { "JSON" } }
            }
            p.hint { "Counted since the proxy was started, in the mode that is in force." }
            div.scroll role="region" aria-label="Guarded data" tabindex="0" {
                table.stack role="table" {
                    thead role="rowgroup" {
                        tr role="row" {
                            th role="columnheader" scope="col" { "Guard" }
                            th role="columnheader" scope="col" { "Mode" }
                            th role="columnheader" scope="col" { "Data" }
                            th role="columnheader" scope="col" { "Lock" }
                            th.right role="columnheader" scope="col" { "Let through" }
                            th.right role="columnheader" scope="col" { "Without the lock" }
                            th.right role="columnheader" scope="col" { abbr title="Writes that nobody could check: they may wait, or rights are lacking" { "Not checked" } }
                        }
                    }
                    tbody role="rowgroup" {
                        @for guard in guards.iter().take(GUARDS) { (row(guard)) }
                    }
                }
            }
            @if guards.len() > GUARDS {
                p.cut { "And " (number((guards.len() - GUARDS) as u64)) " more: " a href="/api/v1/guards" { "JSON" } }
            }
        }
    }
}

fn row(guard: &Guard) -> Markup {
    let is_refusal = |(word, _): &(&str, u64)| REFUSALS.contains(word);
    let (refused, passed): (Vec<_>, Vec<_>) = counts(&guard.writes).partition(is_refusal);
    let unchecked: Vec<_> = counts(&guard.unchecked).collect();
    let is_stale = refused.iter().any(|(word, _)| *word == "stale-fence");
    // In monitor mode such a write was executed.
    let has_damaged = is_stale && guard.mode == "monitor";
    html! {
        tr role="row" class=(if has_damaged { "bad" } else { "" }) {
            th role="rowheader" scope="row" { bdi { (guard.name) } }
            td role="cell" data-label="Mode" { span class=(format!("mode {}", guard.mode)) { (guard.mode) } }
            td.globs role="cell" data-label="Data" { @for keys in &guard.keys { code dir="ltr" { (keys) } " " } }
            td.globs role="cell" data-label="Lock" { @for lock in &guard.lock { code dir="ltr" { (lock) } " " } }
            td.right role="cell" data-label="Let through" { (figure(&passed, "")) }
            td.right role="cell" data-label="Without the lock" {
                (figure(&refused, if has_damaged { "bad" } else { "warn" }))
                @if !refused.is_empty() {
                    br; small { @if guard.mode == "enforce" { "refused" } @else { "let through, as in monitor mode" } }
                }
            }
            td.right role="cell" data-label="Not checked" { (figure(&unchecked, "warn")) }
        }
    }
}

/// The counts that are not zero.
fn counts(by_word: &BTreeMap<String, u64>) -> impl Iterator<Item = (&str, u64)> {
    let all = by_word.iter().map(|(word, count)| (word.as_str(), *count));
    all.filter(|(_, count)| *count > 0)
}

/// The total, with its kinds.
fn figure(counts: &[(&str, u64)], tone: &str) -> Markup {
    let all = counts.iter().map(|(_, count)| count).sum();
    let kinds: Vec<String> = counts.iter().map(|(word, count)| format!("{word} {}", number(*count))).collect();
    html! {
        @if counts.is_empty() {
            span.none { "0" }
        } @else {
            span class=(tone) { (number(all)) }
            br; small { (kinds.join(", ")) }
        }
    }
}

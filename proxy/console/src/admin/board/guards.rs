//! Data that only holders of locks may write: the verdicts on writes to it.

use std::collections::BTreeMap;

use lockwarden_control::text::numbers::number;
use maud::{Markup, html};

use super::parts::mode;
use super::table::Table;
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
            (table(guards.iter().take(GUARDS)))
            @if guards.len() > GUARDS {
                p.cut { "And " (number((guards.len() - GUARDS) as u64)) " more: " a href="/api/v1/guards" { "JSON" } }
            }
        }
    }
}

fn table<'a>(guards: impl Iterator<Item = &'a Guard>) -> Table<'a, Guard> {
    Table::of("Guarded data", guards)
        .tone(|guard| if has_damaged(guard) { "bad" } else { "" })
        .name("Guard", |guard| html! { bdi { (guard.name) } })
        .text("Mode", |guard| mode(&guard.mode))
        .globs("Data", |guard| &guard.keys)
        .globs("Lock", |guard| &guard.lock)
        .number("Let through", |guard| figure(counts(&guard.writes).filter(|one| !is_refusal(one)), ""))
        .number("Without the lock", without_the_lock)
        .number("Not checked", |guard| figure(counts(&guard.unchecked), "warn"))
        .meaning("Writes that nobody could check: they may wait, or rights are lacking")
}

fn is_refusal((word, _): &(&str, u64)) -> bool {
    REFUSALS.contains(word)
}

/// In monitor mode a late write was executed.
fn has_damaged(guard: &Guard) -> bool {
    guard.mode == "monitor" && counts(&guard.writes).any(|(word, _)| word == "stale-fence")
}

fn without_the_lock(guard: &Guard) -> Markup {
    let refused: Vec<_> = counts(&guard.writes).filter(is_refusal).collect();
    let is_any = !refused.is_empty();
    html! {
        (figure(refused.into_iter(), if has_damaged(guard) { "bad" } else { "warn" }))
        @if is_any {
            br; small { @if guard.mode == "enforce" { "refused" } @else { "let through, as in monitor mode" } }
        }
    }
}

/// The counts that are not zero.
fn counts(by_word: &BTreeMap<String, u64>) -> impl Iterator<Item = (&str, u64)> {
    let all = by_word.iter().map(|(word, count)| (word.as_str(), *count));
    all.filter(|(_, count)| *count > 0)
}

/// The total, with its kinds.
fn figure<'a>(counts: impl Iterator<Item = (&'a str, u64)>, tone: &str) -> Markup {
    let counts: Vec<_> = counts.collect();
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

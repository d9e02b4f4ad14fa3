//! Moments, and links from the names of things, in the form common to all parts of the board.

use lockwarden_control::text::numbers::{number, percent, time_of_day, utc};
use maud::{Markup, Render, html};

/// How ages and remaining TTLs are kept up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Not at all: their current values are written.
    Still,
    /// By the script of the page: only the start and the end are written, so that a part changes only when something happened.
    Script,
}

/// A moment that is equal in two queries, though each counts back from its own clock.
pub(super) fn steady(at: u64) -> u64 {
    at.next_multiple_of(200)
}

/// The time of day; the tooltip has the date.
pub(super) fn time(at: u64) -> Markup {
    html! { time datetime=(utc(at)) title=(utc(at)) { (time_of_day(at)) } }
}

/// The id of a refusal, linked to its explanation.
pub(super) fn record(id: &str) -> Markup {
    html! { a href=(format!("/why?id={}", percent(id))) title="Why, and what to do" { "id " (id) } }
}

/// A key, linked to its lock.
pub(super) fn lock_link(key: &str, db: u32) -> Markup {
    html! {
        a href=(format!("/?lock={}&db={db}", percent(key))) { code dir="ltr" { (key) } }
        @if db != 0 { " " small { "db " (db) } }
    }
}

/// An application, linked to its page.
pub(super) fn application_link(name: Option<&str>) -> Markup {
    html! {
        @match name {
            Some(name) => a href=(format!("/application?name={}", percent(name))) { bdi { b { (name) } } },
            None => "a client",
        }
    }
}

/// A key pattern, linked to its leases.
pub(super) fn pattern_link(glob: &str, namespace: &str) -> Markup {
    let address = format!("/pattern?glob={}&namespace={}", percent(glob), percent(namespace));
    html! { a href=(address) { code dir="ltr" { (glob) } } }
}

/// The reason of a refusal, linked to its meaning.
pub(super) fn reason_link(reason: &str) -> Markup {
    html! { a href=(format!("/reasons#{}", percent(reason))) { (reason) } }
}

/// The mode of a namespace, a guard or a policy.
pub(super) fn mode(mode: &str) -> Markup {
    html! { span class=(format!("mode {mode}")) { (mode) } }
}

/// A count, faint if it is 0.
pub(super) fn count(count: u64) -> Markup {
    html! { @if count > 0 { (number(count)) } @else { span.none { "0" } } }
}

/// A value, or this faint word if there is none.
pub(super) fn or(value: Option<impl Render>, word: &str) -> Markup {
    html! { @match value { Some(value) => (value), None => span.none { (word) } } }
}

/// A value, or a dash.
pub(super) fn or_dash(value: Option<impl Render>) -> Markup {
    or(value, "–")
}

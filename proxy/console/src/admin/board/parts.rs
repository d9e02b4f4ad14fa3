//! How every part of the board writes moments, and where it leads from the names of things.

use lockwarden_control::text::numbers::{percent, time_of_day, utc};
use maud::{Markup, html};

/// Who keeps ages and remaining TTLs going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Nobody: they are written as they are now.
    Still,
    /// The script of the page: only since when and until when is written, so that a part changes only
    /// when something happened.
    Script,
}

/// A moment that two looks agree upon, though each counts back from its own clock.
pub(super) fn steady(at: u64) -> u64 {
    at.next_multiple_of(200)
}

/// The time of a day, with the date behind it.
pub(super) fn time(at: u64) -> Markup {
    html! { time datetime=(utc(at)) title=(utc(at)) { (time_of_day(at)) } }
}

/// A refusal, which leads to what it means.
pub(super) fn record(id: &str) -> Markup {
    html! { a href=(format!("/why?id={}", percent(id))) title="Why, and what to do" { "id " (id) } }
}

/// A key, which leads to its lock.
pub(super) fn lock_link(key: &str, db: u32) -> Markup {
    html! {
        a href=(format!("/?lock={}&db={db}", percent(key))) { code dir="ltr" { (key) } }
        @if db != 0 { " " small { "db " (db) } }
    }
}

/// An application, which leads to what is known of it.
pub(super) fn application_link(name: Option<&str>) -> Markup {
    html! {
        @match name {
            Some(name) => a href=(format!("/application?name={}", percent(name))) { bdi { b { (name) } } },
            None => "a client",
        }
    }
}

/// A pattern of keys, which leads to its leases.
pub(super) fn pattern_link(glob: &str, namespace: &str) -> Markup {
    let address = format!("/pattern?glob={}&namespace={}", percent(glob), percent(namespace));
    html! { a href=(address) { code dir="ltr" { (glob) } } }
}

/// The reason of a refusal, which leads to what it means.
pub(super) fn reason_link(reason: &str) -> Markup {
    html! { a href=(format!("/reasons#{}", percent(reason))) { (reason) } }
}

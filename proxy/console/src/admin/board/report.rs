//! What would break in enforce mode, counted from a chosen time: the same as `lockwarden audit --since`.

use lockwarden_control::text::numbers::{percent, utc};
use maud::{Markup, html};

use super::frame::Frame;
use super::lists::clients;
use crate::view::api::Report;

/// The usual times to count from.
const SINCE: [(&str, &str); 5] = [
    ("15m", "the last 15 min"),
    ("1h", "the last hour"),
    ("1d", "the last day"),
    ("last-change", "the last change"),
    ("reload", "the last reload"),
];

/// The whole page. `since` is as typed.
pub(super) fn page(report: &Report, since: Option<&str>) -> Markup {
    let query = since.map(|since| format!("?since={}", percent(since)));
    let query = query.unwrap_or_default();
    let command = since.filter(|since| SINCE.iter().any(|(usual, _)| usual == since));
    let command = command.map(|since| format!("lockwarden audit --since {since}"));
    let frame = Frame {
        title: "Report",
        skip: ("clients", "the verdicts"),
        now: report.now,
        address: &format!("/report{query}"),
        json: Some(&format!("/api/v1/report{query}")),
        command: Some(command.as_deref().unwrap_or("lockwarden audit")),
    };
    frame.around(&html! {
        h1 { "Who would break" }
        (times("/report", None, since))
        p.hint { "Counted since " (utc(report.since)) "." }
        div.part #clients { (clients(report)) }
    })
}

/// The form to choose the start of the counts. `kept` is another parameter of the address to keep.
pub(super) fn times(action: &str, kept: Option<(&str, &str)>, since: Option<&str>) -> Markup {
    let is_usual = since.is_some_and(|since| SINCE.iter().any(|(usual, _)| *usual == since));
    let other = since.filter(|_| !is_usual);
    html! {
        form.filter method="get" action=(action) aria-label="From when on" {
            @if let Some((name, value)) = kept { input type="hidden" name=(name) value=(value); }
            label {
                "Since "
                select name="since" {
                    option value="" { "the start, or the last reset" }
                    @for (span, words) in SINCE {
                        option value=(span) selected[since == Some(span)] { (words) }
                    }
                    @if let Some(other) = other { option value=(other) selected { (other) } }
                }
            }
            button type="submit" { "Show" }
        }
    }
}

//! A drawing of the last leases of a pattern: a lane for each application, a bar for each lease. The table below says in words
//! everything that a bar shows by place, height and colour.

use std::collections::BTreeMap;

use lockwarden_control::text::durations::duration;
use lockwarden_control::text::numbers::{counted, number, utc};
use maud::{Markup, html};

use super::locks::client_name;
use super::parts::{application_link, lock_link, or, or_dash, time};
use super::table::Table;
use crate::view::api::PastLease;

/// Lanes in the drawing; the table has every lease.
const MAX_LANES: usize = 16;
/// Rows of bars in a lane, for simultaneous leases of several locks; leases without a row are in the last one.
const MAX_ROWS: usize = 6;
/// The width of a drawing, in its own units, and the least width of a bar.
const WIDTH: u64 = 1_000;
const MIN_BAR: u64 = 4;
/// The height of a row, and of a bar that ended well.
const ROW: usize = 16;
const BAR: usize = 8;

/// The drawing, its legend and the table. Leases that are still held end at `now`.
pub(super) fn timeline(history: &[PastLease], now: u64) -> Markup {
    let Some(begin) = history.iter().map(|lease| lease.since).min() else {
        return html! { p.empty { "No lease of such a lock was seen yet." } };
    };
    let end = history.iter().map(|lease| worked_until(lease, now)).max();
    let span = Span { begin, length: end.unwrap_or(now).saturating_sub(begin).max(1), now };
    let mut lanes: BTreeMap<&str, Vec<&PastLease>> = BTreeMap::new();
    for lease in history {
        lanes.entry(application(lease)).or_default().push(lease);
    }
    let mut lanes: Vec<_> = lanes.into_iter().collect();
    lanes.sort_by_key(|(_, leases)| std::cmp::Reverse(leases.len()));
    let more = lanes.len().saturating_sub(MAX_LANES);
    html! {
        div.lanes {
            @for (name, leases) in lanes.iter().take(MAX_LANES) { (lane(name, leases, &span)) }
            p.axis {
                span { (time(span.begin)) }
                span { (time(span.begin + span.length / 2)) }
                span { (time(span.begin + span.length)) }
            }
        }
        @if more > 0 { p.cut { "And " (counted(more as u64, "application", "applications")) " more, in the table." } }
        ul.legend {
            @for (class, words) in LEGEND {
                li {
                    svg width="18" height="16" aria-hidden="true" { (bar(class, 0, 18, 0)) }
                    " " (words)
                }
            }
        }
        details data-keep="leases" {
            summary { "The same as a table" }
            (table(history))
        }
    }
}

/// The kinds of bars, by height and colour.
const LEGEND: [(&str, &str); 4] = [
    ("well", "given back"),
    ("held", "held now"),
    ("bad", "ran out before it was given back, or lost in a failover"),
    ("warn", "ended by another client"),
];

struct Span {
    begin: u64,
    length: u64,
    now: u64,
}

impl Span {
    /// The place of a moment in the drawing.
    fn place(&self, at: u64) -> u64 {
        let passed = u128::from(at.saturating_sub(self.begin));
        let place = passed * u128::from(WIDTH) / u128::from(self.length);
        u64::try_from(place).unwrap_or(WIDTH).min(WIDTH)
    }
}

fn application(lease: &PastLease) -> &str {
    let client = lease.client.as_ref();
    client.map_or("unknown", |client| &client.application)
}

/// When the lock became free for others.
fn ended(lease: &PastLease, now: u64) -> u64 {
    lease.until.unwrap_or(now).max(lease.since)
}

/// When its holder stopped working, which may be later.
fn worked_until(lease: &PastLease, now: u64) -> u64 {
    let worked = lease.held_ms.map(|held| lease.since.saturating_add(held));
    worked.unwrap_or(0).max(ended(lease, now))
}

fn class(lease: &PastLease) -> &'static str {
    match lease.end.as_str() {
        "released" => "well",
        "held" => "held",
        "ran-out" | "lost" => "bad",
        _ => "warn",
    }
}

/// The end in words.
fn end_words(end: &str) -> &str {
    match end {
        "released" => "given back",
        "held" => "held now",
        "ran-out" => "ran out",
        "lost" => "lost in a failover",
        "deleted-by-another" => "deleted by another client",
        "replaced" => "replaced by another client",
        "taken-over" => "taken over",
        "broken" => "broken by an operator",
        "holder-lost" => "shortened: its holder is gone",
        "unseen" => "ended unseen",
        other => other,
    }
}

fn lane(name: &str, leases: &[&PastLease], span: &Span) -> Markup {
    // The row of each lease, and the end of the last bar in each row.
    let mut rows: Vec<u64> = Vec::new();
    let placed: Vec<(usize, &PastLease)> = leases
        .iter()
        .map(|lease| {
            // By time, so that only simultaneous leases are below each other.
            let free = rows.iter().position(|end| *end <= lease.since);
            let row = match free {
                Some(row) => row,
                None if rows.len() < MAX_ROWS => {
                    rows.push(0);
                    rows.len() - 1
                }
                None => rows.len() - 1,
            };
            rows[row] = rows[row].max(ended(lease, span.now));
            (row, *lease)
        })
        .collect();
    let height = rows.len().max(1) * ROW;
    let ended = |end: &str, words: &str| match leases.iter().filter(|lease| lease.end == end).count() {
        0 => String::new(),
        count => format!(", {} {words}", number(count as u64)),
    };
    let words = format!(
        "{name}: {}{}{}",
        counted(leases.len() as u64, "lease", "leases"),
        ended("ran-out", "ran out"),
        ended("lost", "lost in failovers"),
    );
    html! {
        div.lane {
            span.lane-name {
                @if name == "unknown" { "unknown" } @else { (application_link(Some(name))) }
            }
            svg role="img" aria-label=(words) viewBox=(format!("0 0 {WIDTH} {height}")) height=(height) preserveAspectRatio="none" {
                @for (row, lease) in &placed { (drawn(lease, *row, span)) }
            }
        }
    }
}

/// The end of a bar in the drawing; every bar is wide enough to be seen.
fn bar_end(lease: &PastLease, span: &Span) -> u64 {
    let from = span.place(lease.since);
    span.place(worked_until(lease, span.now)).max(from + MIN_BAR)
}

fn drawn(lease: &PastLease, row: usize, span: &Span) -> Markup {
    let from = span.place(lease.since);
    let to = span.place(ended(lease, span.now)).max(from + MIN_BAR);
    let worked = bar_end(lease, span);
    html! {
        g {
            title {
                (lease.key) ": " (end_words(&lease.end)) ", " (utc(lease.since))
                @if let Some(held) = lease.held_ms { ", held for " (duration(held)) }
            }
            (bar(class(lease), from, to - from, row))
            @if worked > to {
                rect.after x=(to) y=(row * ROW + ROW / 2 - 1) width=(worked - to) height="2" {}
            }
        }
    }
}

fn bar(class: &str, x: u64, width: u64, row: usize) -> Markup {
    // A lease that ended otherwise than its holder wanted is as high as its row.
    let height = if matches!(class, "bad" | "warn") { ROW - 2 } else { BAR };
    html! { rect class=(class) x=(x) y=(row * ROW + (ROW - height) / 2) width=(width) height=(height) {} }
}

/// The newest first.
fn table(history: &[PastLease]) -> Table<'_, PastLease> {
    Table::of("The last leases", history.iter().rev())
        .tone(|lease| if class(lease) == "bad" { "bad" } else { "" })
        .text("Taken", |lease| time(lease.since))
        .key_name("Key", |lease| lock_link(&lease.key, lease.db))
        .text("Holder", |lease| or(lease.client.as_ref().map(client_name), "unknown"))
        .number("Held for", |lease| or_dash(lease.held_ms.map(duration)))
        .number("TTL", |lease| or(lease.ttl_ms.map(duration), "none"))
        .text("End", |lease| end_words(&lease.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(key: &str, since: u64, until: Option<u64>, end: &str) -> PastLease {
        PastLease {
            key: key.to_owned(),
            db: 0,
            fence: 1,
            client: None,
            since,
            until,
            end: end.to_owned(),
            held_ms: until.map(|until| until - since),
            ttl_ms: Some(5_000),
        }
    }

    #[test]
    fn each_lease_has_a_bar_where_and_as_long_as_it_was() {
        let history = [
            lease("lock:a", 1_000, Some(2_000), "released"),
            lease("lock:a", 2_000, Some(6_000), "ran-out"),
            lease("lock:b", 10_000, None, "held"),
        ];
        let text = timeline(&history, 11_000).into_string();
        for bar in [
            "<rect class=\"well\" x=\"0\" y=\"4\" width=\"100\" height=\"8\">",
            "<rect class=\"bad\" x=\"100\" y=\"1\" width=\"400\" height=\"14\">",
            "<rect class=\"held\" x=\"900\" y=\"4\" width=\"100\" height=\"8\">",
            "aria-label=\"unknown: 3 leases, 1 ran out\"",
        ] {
            assert!(text.contains(bar), "{bar}: {text}");
        }
    }

    #[test]
    fn work_that_went_on_after_the_end_is_drawn_and_leases_at_one_time_are_below_each_other() {
        let mut late = lease("lock:a", 0, Some(5_000), "ran-out");
        late.held_ms = Some(10_000);
        let history = [late, lease("lock:b", 1_000, Some(2_000), "released")];
        let text = timeline(&history, 10_000).into_string();
        assert!(text.contains("<rect class=\"after\" x=\"500\" y=\"7\" width=\"500\" height=\"2\">"), "{text}");
        assert!(text.contains("<rect class=\"well\" x=\"100\" y=\"20\" width=\"100\" height=\"8\">"), "{text}");
    }

    #[test]
    fn odd_times_and_very_many_leases_are_drawn_within_bounds() {
        let mut history = vec![lease("lock:a", u64::MAX, Some(u64::MAX), "released")];
        history.push(lease("lock:a", 0, None, "held"));
        history.extend((0..500).map(|_| lease("lock:a", 5, Some(9), "new-word")));
        let text = timeline(&history, 7).into_string();
        let lane = format!("height=\"{}\" preserveAspectRatio", MAX_ROWS * ROW);
        assert!(text.contains(&lane), "a lane is not higher than {lane}");
        assert!(timeline(&[], 1).into_string().contains("No lease"));
    }
}

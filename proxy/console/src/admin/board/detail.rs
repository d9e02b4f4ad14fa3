//! One lock: its lease, its last events, its waiters, and how to break it. Breaking is a command to copy and not a button: this
//! page never holds the admin token, so injected content can order nothing, and an operator who breaks a lock sees which lease
//! is meant.

use lockwarden_control::text::durations::duration;
use lockwarden_control::text::numbers::{counted, number, percent};
use maud::{Markup, html};

use super::asked::Asked;
use super::locks::{age, client_name, fingerprint, holder, state, ttl};
use super::parts::{Pace, record, steady, time};
use super::shown::Shown;
use super::wording::shell;
use crate::view::api::{Holds, Lock, LockDetail, Moment};

pub(super) fn section(shown: &Shown, asked: &Asked, site: &str, pace: Pace) -> Markup {
    let Some(key) = &asked.lock else {
        return html! {};
    };
    html! {
        section.detail aria-labelledby="detail-head" {
            div.detail-head {
                h2 #detail-head { code dir="ltr" { (key) } }
                @if asked.db != 0 { span.fact { "database " (asked.db) } }
                a.close href=(asked.without_lock()) { "Close" }
            }
            @match &shown.detail {
                Some(detail) => (known(detail, shown.overview.now, site, pace)),
                None => {
                    p.empty { "Nothing is known of this lock: it is not held, and nothing happened to it lately that this proxy saw." }
                }
            }
        }
    }
}

fn known(detail: &LockDetail, now: u64, site: &str, pace: Pace) -> Markup {
    html! {
        @match &detail.lock {
            Some(lock) => (lease(lock, now, pace)),
            None => { p.lease { "Free now. Namespace " b { (detail.namespace) } "." } }
        }
        @if !detail.remarks.is_empty() {
            ul.remarks {
                @for remark in &detail.remarks { li { bdi { (remark) } } }
            }
        }
        h3 { "What happened lately" }
        @if detail.timeline.is_empty() {
            p.hint { "Nothing since this proxy started." }
        } @else {
            ol.timeline {
                @for line in lines(&detail.timeline) {
                    li class=(tone(line.first)) { (time(line.first.at)) " " (happened(&line)) }
                }
            }
        }
        @if !detail.waiters.is_empty() {
            h3 { "Waiting" }
            ul.waiters {
                @for waiter in &detail.waiters {
                    li {
                        (client_name(&waiter.client))
                        " · for "
                        span data-since=(steady(waiter.since)) {
                            @if pace == Pace::Still { (duration(now.saturating_sub(waiter.since))) }
                        }
                        " · " (counted(waiter.tries, "try", "tries"))
                    }
                }
            }
        }
        @if detail.holds.count > 0 { p.hint { (holds(&detail.holds)) "." } }
        @if let Some(lock) = &detail.lock { (breaking(lock, site)) }
    }
}

fn lease(lock: &Lock, now: u64, pace: Pace) -> Markup {
    html! {
        dl.lease {
            div { dt { "State" } dd { (state(lock)) } }
            div { dt { "Holder" } dd { (holder(lock)) } }
            div { dt { "Held for" } dd { (age(lock, pace)) } }
            div { dt { "TTL left" } dd { (ttl(lock, now, pace)) } }
            div { dt { "Fencing token" } dd { @if lock.fence > 0 { (lock.fence) } @else { "none" } } }
            div { dt { "Namespace" } dd { (lock.namespace) } }
        }
    }
}

/// How long leases last, in one phrase.
pub(super) fn holds(holds: &Holds) -> String {
    let mut text = format!(
        "Of the last {}, half took {} or less and 99 % took {} or less; the longest {}",
        counted(holds.count, "lease", "leases"),
        duration(holds.p50_ms),
        duration(holds.p99_ms),
        duration(holds.max_ms),
    );
    if holds.ran_out > 0 {
        text.push_str(&format!("; {} ran out before being given back", number(holds.ran_out)));
    }
    text
}

/// The colour of an event.
pub(super) fn tone(moment: &Moment) -> &'static str {
    match moment.event.as_str() {
        _ if moment.overlap => "bad",
        "lease-lost" => "bad",
        "refused" | "ran-out" | "ungoverned" | "unconfirmed" | "failed" | "observed" | "broken" | "holder-lost" => {
            "warn"
        }
        _ if moment.reason.is_some() => "warn",
        "acquired" => "good",
        _ => "",
    }
}

/// One line of the time line: an event, or several tries of one client that met the same lease.
struct Line<'a> {
    first: &'a Moment,
    tries: u64,
    last: u64,
}

fn lines(timeline: &[Moment]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for moment in timeline {
        match lines.last_mut() {
            Some(line) if is_same_try(line.first, moment) => {
                line.tries += 1;
                line.last = moment.at;
            }
            Some(_) | None => lines.push(Line { first: moment, tries: 1, last: moment.at }),
        }
    }
    lines
}

fn is_same_try(first: &Moment, moment: &Moment) -> bool {
    moment.event == "contended"
        && first.event == "contended"
        && first.reason.is_none()
        && moment.reason.is_none()
        && (&first.client, &first.command) == (&moment.client, &moment.command)
}

/// An event in one line: what happened, the client, and useful details.
fn happened(line: &Line<'_>) -> Markup {
    let moment = line.first;
    html! {
        b { (event(moment)) }
        @if let Some(command) = &moment.command { " " code { (command) } }
        @if let Some(client) = &moment.client { " by " (client_name(client)) }
        @if let Some(token) = &moment.token { " " (fingerprint(token)) }
        @if line.tries > 1 {
            span.bit { (number(line.tries)) " times in " (duration(line.last.saturating_sub(moment.at))) }
        }
        @if let Some(fence) = moment.fence.filter(|fence| *fence > 0) { span.bit { "fence " (fence) } }
        @if let Some(ttl) = moment.ttl_ms {
            span.bit { @if ttl > 0 { "TTL " (duration(ttl)) } @else { "no TTL" } }
        }
        @if let (Some(asked), Some(ttl)) = (moment.asked_ms, moment.ttl_ms) {
            @if asked != ttl {
                span.bit { @if asked > 0 { "asked for " (duration(asked)) } @else { "asked for none" } }
            }
        }
        @if let Some(held) = moment.held_ms {
            span.bit {
                @if matches!(moment.event.as_str(), "refused" | "different") { "by then held for " } @else { "held for " }
                (duration(held))
            }
        }
        @if let Some(reason) = &moment.reason { span.bit { (reason) } }
        @if moment.overlap { span.bit { "a former holder acted while another held the lock" } }
        @if let Some(kind) = &moment.kind { span.bit { (kind) } }
        @if let Some(detail) = &moment.detail { span.bit { "“" bdi { (detail) } "”" } }
        @if let Some(id) = &moment.id { span.bit { (record(id)) } }
    }
}

/// The event in a word or two.
pub(super) fn event(moment: &Moment) -> &str {
    match moment.event.as_str() {
        "ran-out" => "ran out while held",
        "lease-lost" => "lost in the failover",
        "contended" => "asked, was held",
        "absent" => "nothing to release",
        "different" => "compared, was another’s",
        "unchanged" => "left as it was",
        "ungoverned" => "held without a record",
        "unjudged" => "forwarded unjudged",
        "broken" => "broken by an operator",
        "unconfirmed" => "given back: too few replicas",
        "holder-lost" => "its holder is gone: shortened",
        "forwarded" if moment.reason.is_some() => "would be refused",
        other if moment.decision.as_deref() == Some("would-deny") && other != "observed" => "would be refused",
        other => other,
    }
}

fn breaking(lock: &Lock, site: &str) -> Markup {
    let line = format!(
        "lockwarden locks break --admin {site} --db {} --fence {} --reason 'why' -- {}",
        lock.db,
        lock.fence,
        shell(&lock.key)
    );
    let order = serde_json::json!({ "db": lock.db, "fence": lock.fence, "reason": "why" });
    let curl = format!(
        "curl -X POST -H \"Authorization: Bearer $LOCKWARDEN_ADMIN_TOKEN\" 'http://{site}/api/v1/locks/{}/break' -d {}",
        percent(&lock.key),
        shell(&order.to_string())
    );
    html! {
        details.break data-keep="break" {
            summary { "Break this lock…" }
            p {
                @if lock.fence > 0 {
                    "Ends the lease that you see here, with fencing token " b { (lock.fence) } ", and leaves a newer one alone. "
                } @else {
                    "Ends whichever lease holds the lock when the order arrives, because leases of this namespace are not numbered. "
                }
                "Its holder is not told and may still be at work, which nobody but you can stop. "
                "The order is logged with your reason."
            }
            (copyable(&line))
            (copyable(&curl))
        }
    }
}

/// A command line, with a copy button where the script runs.
pub(super) fn copyable(line: &str) -> Markup {
    html! {
        div.copyable {
            pre { code { (line) } }
            button.copy type="button" hidden { "Copy" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::board::tests::{lock, moment};

    #[test]
    fn the_command_that_breaks_a_lock_is_one_word_a_word_whatever_its_key() {
        let mut lock = lock("lock:it's $(touch /tmp/x) <b>");
        lock.fence = 43;
        let text = breaking(&lock, "localhost:9180").into_string();
        assert!(text.contains(r"--fence 43 --reason 'why' -- 'lock:it'\''s $(touch /tmp/x) &lt;b&gt;'"), "{text}");
        assert!(
            text.contains(
                "'http://localhost:9180/api/v1/locks/lock%3Ait%27s%20%24%28touch%20%2Ftmp%2Fx%29%20%3Cb%3E/break'"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_moment_is_told_in_one_line() {
        let mut refused = moment("refused", "lock:order:42");
        refused.reason = Some("not-owner".to_owned());
        refused.id = Some("7F3K2A".to_owned());
        refused.held_ms = Some(5_800);
        assert_eq!(tone(&refused), "warn");
        let line = &lines(std::slice::from_ref(&refused))[0];
        let text = happened(line).into_string();
        for part in ["<b>refused</b>", "not-owner", "by then held for 5.8 s", "/why?id=7F3K2A"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut watched = moment("released", "lock:order:42");
        watched.decision = Some("would-deny".to_owned());
        watched.reason = Some("not-owner".to_owned());
        assert_eq!(event(&watched), "would be refused");
    }

    #[test]
    fn tries_of_one_client_that_met_the_same_lease_are_one_line() {
        let mut other = moment("contended", "lock:a");
        other.client = None;
        let mut late = moment("contended", "lock:a");
        late.at += 1_400;
        let timeline = [
            moment("acquired", "lock:a"),
            moment("contended", "lock:a"),
            moment("contended", "lock:a"),
            late,
            other,
            moment("contended", "lock:a"),
        ];
        let lines = lines(&timeline);
        assert_eq!(lines.iter().map(|line| line.tries).collect::<Vec<_>>(), [1, 3, 1, 1]);
        let text = happened(&lines[1]).into_string();
        assert!(text.contains("3 times in 1.4 s"), "{text}");
    }
}

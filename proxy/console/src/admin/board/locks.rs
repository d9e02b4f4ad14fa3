//! The list of held locks, and its filter form.

use lockwarden_control::text::durations::duration;
use lockwarden_control::text::numbers::{number, percent};
use lockwarden_lock::reason::Reason;
use maud::{Markup, html};

use super::asked::{Asked, LARGE_LIST};
use super::parts::{Pace, application_link, or_dash, steady};
use super::shown::Shown;
use super::table::Table;
use super::wording::shell;
use crate::view::Format;
use crate::view::api::{Client, Lock, LockState, Locks, USUAL_LIMIT};

/// Applications suggested in the form.
const MAX_SUGGESTED: usize = 256;
/// The usual time spans.
const SPANS: [(&str, &str); 5] = [
    ("15m", "in the last 15 min"),
    ("1h", "in the last hour"),
    ("1d", "in the last day"),
    ("last-change", "since the last change"),
    ("reload", "since the last reload"),
];

/// The filter form is outside the parts that are replaced, so that an update does not delete typed text.
pub(super) fn filter(shown: &Shown, asked: &Asked) -> Markup {
    html! {
        form.filter method="get" action="/" role="search" aria-label="Locks and refusals" {
            label {
                "Namespace "
                select name="namespace" {
                    option value="" { "all" }
                    @for namespace in &shown.overview.namespaces {
                        option value=(namespace.name) selected[asked.namespace.as_deref() == Some(&*namespace.name)] { (namespace.name) }
                    }
                }
            }
            label {
                "Key contains "
                input type="search" name="contains" value=[asked.contains.as_deref()] autocomplete="off" spellcheck="false";
            }
            label {
                "Key pattern "
                input.short type="search" name="pattern" value=[asked.pattern.as_deref()] placeholder="lock:order:*" autocomplete="off" spellcheck="false";
            }
            label {
                "Application "
                input.short type="search" name="application" value=[asked.application.as_deref()] list="applications" autocomplete="off" spellcheck="false";
            }
            datalist #applications {
                @for application in shown.report.applications.iter().take(MAX_SUGGESTED) { option value=(application.application) {} }
            }
            label {
                "Reason "
                select name="reason" {
                    option value="" { "any" }
                    @for reason in Reason::ALL {
                        option value=(reason) selected[asked.reason.as_deref() == Some(reason.word())] { (reason) }
                    }
                }
            }
            label {
                "Refused "
                select name="since" {
                    option value="" { "at any time" }
                    @for (span, name) in SPANS {
                        option value=(span) selected[asked.since.as_deref() == Some(span)] { (name) }
                    }
                    @if let Some(other) = other_time(asked) { option value=(other) selected { "since " (other) } }
                }
            }
            label {
                input type="checkbox" name="problems" value="1" checked[asked.problems];
                " Only problems"
            }
            button type="submit" { "Show" }
            @if asked.narrows() || asked.narrows_refusals() { a href="/" { "Show all" } }
            span.as-file {
                a href=(format!("/api/v1/locks{}", asked.list_query(Format::Json))) { "JSON" }
                " · "
                a href=(format!("/api/v1/locks{}", asked.list_query(Format::Csv))) { "CSV" }
            }
        }
    }
}

/// A requested time that is not a usual one.
fn other_time(asked: &Asked) -> Option<&str> {
    let since = asked.since.as_deref();
    since.filter(|since| SPANS.iter().all(|(span, _)| span != since))
}

pub(super) fn section(shown: &Shown, asked: &Asked, pace: Pace) -> Markup {
    let locks = &shown.locks;
    html! {
        h2 { "Held locks " span.many { (number(locks.matching)) } }
        @if locks.locks.is_empty() {
            (empty(shown, asked))
        } @else {
            (table(locks, asked, pace))
            @if locks.matching > locks.locks.len() as u64 { (cut(shown, asked)) }
        }
    }
}

fn table<'a>(locks: &'a Locks, asked: &'a Asked, pace: Pace) -> Table<'a, Lock> {
    Table::of("Held locks", &locks.locks)
        .class("locks stack")
        .tone(|lock| tone(lock.state))
        .current(|lock| asked.lock.as_deref() == Some(&*lock.key) && asked.db == lock.db)
        .key_name("Key", |lock| {
            html! {
                a href=(asked.detail(&lock.key, lock.db)) { code dir="ltr" { (lock.key) } }
                @if lock.db != 0 { " " small { "db " (lock.db) } }
            }
        })
        .text("State", state)
        .text("Holder", holder)
        .number("Held for", move |lock| age(lock, pace))
        .text("TTL left", move |lock| ttl(lock, locks.now, pace))
        .number("Fence", |lock| or_dash((lock.fence > 0).then_some(lock.fence)))
        .meaning("Fencing token: grows with every grant of the lock")
        .number(
            "Waiting",
            |lock| html! { @if lock.waiters > 0 { b { (number(lock.waiters)) } } @else { span.none { "0" } } },
        )
        .text("Namespace", |lock| &lock.namespace)
}

fn tone(state: LockState) -> &'static str {
    match state {
        LockState::Overlap | LockState::Deadlock => "bad",
        LockState::Unknown | LockState::NoTtl => "warn",
        LockState::Held => "",
    }
}

/// The state as a sign and a word, so that it does not depend on colour.
pub(super) fn state(lock: &Lock) -> Markup {
    let (sign, word, why) = match lock.state {
        LockState::Overlap => ("▲", "overlap", "a former holder acted while this one held it"),
        LockState::Deadlock => ("▲", "deadlock", "its holder waits for what waits for it"),
        LockState::Unknown => {
            ("?", "unknown since the failover", "nobody has looked yet whether the new primary has it")
        }
        LockState::NoTtl => ("●", "no TTL", "if its holder dies, it stays"),
        LockState::Held => ("●", "held", "nothing is wrong"),
    };
    html! {
        span class=(format!("state {}", tone(lock.state))) title=(why) {
            span aria-hidden="true" { (sign) } " " (word)
        }
        @if lock.kept_alive {
            " " small title="The proxy chose this TTL and renews it while the holder lives" { "kept alive" }
        }
    }
}

pub(super) fn holder(lock: &Lock) -> Markup {
    html! {
        @match &lock.holder {
            Some(client) => (client_name(client)),
            None => span.none title="It was there before this proxy, or was taken through another" { "found by scan" },
        }
        @if let Some(token) = &lock.token { " " (fingerprint(token)) }
    }
}

/// The client, with its address.
pub(super) fn client_name(client: &Client) -> Markup {
    html! {
        @if client.address.starts_with(&client.application) {
            a href=(format!("/application?name={}", percent(&client.application))) { b { (client.address) } }
        } @else {
            (application_link(Some(&client.application))) " " small { (client.address) }
        }
        @if let Some(library) = &client.library { " " small { "· " bdi { (library) } } }
        @if let Some(certificate) = shown_certificate(client) {
            " " small title="The name in its certificate" { "· " bdi { (certificate) } }
        }
    }
}

/// The name in its certificate, unless the application has the same name.
fn shown_certificate(client: &Client) -> Option<&str> {
    let certificate = client.certificate.as_deref();
    certificate.filter(|certificate| *certificate != client.application)
}

/// The fingerprint of an owner token, shortened but still distinguishable.
pub(super) fn fingerprint(token: &str) -> Markup {
    let short: String = token.chars().take(4).collect();
    html! { small.token title=(format!("stands for the owner token: {token}")) { "tok#" (short) } }
}

pub(super) fn age(lock: &Lock, pace: Pace) -> Markup {
    html! {
        span data-since=(steady(lock.since)) {
            @if pace == Pace::Still { (duration(lock.age_ms)) }
        }
    }
}

pub(super) fn ttl(lock: &Lock, now: u64, pace: Pace) -> Markup {
    html! {
        @match lock.ttl_left_ms {
            None => span.warn { "none" },
            Some(left) => {
                @let whole = lock.ttl_ms.unwrap_or(left).max(1);
                span.ttl data-ends=(steady(now.saturating_add(left))) {
                    progress max=(whole) value=[(pace == Pace::Still).then_some(left.min(whole))] aria-hidden="true" {}
                    span { @if pace == Pace::Still { (duration(left)) } }
                }
            }
        }
    }
}

fn cut(shown: &Shown, asked: &Asked) -> Markup {
    let shown_now = shown.locks.locks.len() as u64;
    html! {
        p.cut {
            "These are " (number(shown_now)) " of " (number(shown.locks.matching))
            ", problems first, then the oldest. Narrow them by namespace or key"
            @if asked.limit != Some(LARGE_LIST) && shown.locks.matching > USUAL_LIMIT as u64 {
                ", or " a href=(asked.larger()) { "show up to " (number(LARGE_LIST as u64)) }
            }
            "; JSON and CSV have more."
        }
    }
}

/// The text for an empty list, and what to do about it.
fn empty(shown: &Shown, asked: &Asked) -> Markup {
    let example = shown.overview.namespaces.iter().find_map(|namespace| {
        let glob = namespace.keys.first()?;
        let plain = !glob.contains(['[', '?', '\\']);
        plain.then(|| glob.replace('*', "try"))
    });
    html! {
        @if asked.narrows() {
            p.empty { "No held lock matches. " a href="/" { "Show all" } }
        } @else {
            div.empty {
                p { "Nobody holds a lock." }
                @if let (Some(key), Some(port)) = (example, shown.port) {
                    p { "Try it:" }
                    pre { code { "redis-cli -p " (port) " SET " (shell(&key)) " me NX PX 30000" } }
                }
                p.hint {
                    "Expected some? An application has to be connected to the proxy, and its keys have to match a namespace: "
                    a href="#namespaces" { "see which do" } "."
                }
            }
        }
    }
}

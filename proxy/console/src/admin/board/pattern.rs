//! Locks by key pattern: the list of all patterns, and one pattern with its last leases, its applications, its refusals and
//! findings, and the TTL to ask for.

use lockwarden_control::text::durations::duration;
use lockwarden_control::text::escape::unspell;
use lockwarden_control::text::numbers::{counted, number, percent};
use lockwarden_lock::glob::Glob;
use maud::{Markup, html};

use super::asked::Asked;
use super::detail::holds;
use super::frame::Frame;
use super::lists::{found_in, hold_times, incidents, refusals};
use super::parts::{application_link, or, pattern_link, time};
use super::table::Table;
use super::timeline::timeline;
use crate::admin::control::Control;
use crate::view::ReportQuery;
use crate::view::api::{Application, Incident, LockPattern, LockPatterns, Moment, PatternsQuery};

/// Patterns on the page; the JSON has all.
const MAX_PATTERNS: usize = 300;
/// Refusals on the page of one pattern.
const REFUSALS: usize = 30;
const INCIDENTS: usize = 10;

/// The data of one pattern.
pub(super) struct Known {
    pub(super) now: u64,
    pub(super) patterns: Vec<LockPattern>,
    pub(super) applications: Vec<Application>,
    pub(super) incidents: Vec<Incident>,
    pub(super) refusals: Vec<Moment>,
}

impl Known {
    /// The pattern with this glob, as it is shown, in one namespace or in any.
    pub(super) fn look(control: &dyn Control, glob: &str, namespace: Option<&str>) -> Known {
        let views = control.views();
        let found = views.patterns(&PatternsQuery {
            namespace: namespace.map(str::to_owned),
            pattern: Some(glob.to_owned()),
            since: None,
            history: true,
        });
        let asked = asked(glob, namespace);
        Known {
            now: found.now,
            patterns: found.patterns,
            applications: views.report(&ReportQuery::default()).applications,
            incidents: views.incidents(&asked.refusals(INCIDENTS)),
            refusals: views.decisions(&asked.refusals(REFUSALS)),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        !self.patterns.is_empty() || !self.refusals.is_empty()
    }
}

fn asked(glob: &str, namespace: Option<&str>) -> Asked {
    Asked { pattern: Some(glob.to_owned()), namespace: namespace.map(str::to_owned), ..Asked::default() }
}

/// The page of one pattern.
pub(super) fn page(known: &Known, glob: &str, namespace: Option<&str>) -> Markup {
    let query = match namespace {
        Some(namespace) => format!("glob={}&namespace={}", percent(glob), percent(namespace)),
        None => format!("glob={}", percent(glob)),
    };
    let json = match namespace {
        Some(namespace) => format!("&namespace={}", percent(namespace)),
        None => String::new(),
    };
    let frame = Frame {
        title: glob,
        skip: ("leases", "the leases"),
        now: known.now,
        address: &format!("/pattern?{query}"),
        json: Some(&format!("/api/v1/patterns?history=true&pattern={}{json}", percent(glob))),
        command: None,
    };
    let bytes = unspell(glob).unwrap_or_else(|| glob.into());
    let pattern = Glob::new(bytes.into());
    let is_of_it = |moment: &Moment| {
        let key = unspell(&moment.key);
        key.is_some_and(|key| pattern.matches(&key)) && namespace.is_none_or(|namespace| *namespace == moment.namespace)
    };
    frame.around(&html! {
        h1 { "Locks like " code dir="ltr" { (glob) } }
        @if !known.is_known() {
            div.part #leases {
                p.empty { "No such lock was seen by this proxy. " a href="/patterns" { "All patterns" } }
            }
        } @else {
            @if !known.incidents.is_empty() { (incidents(&known.incidents)) }
            @for (place, one) in known.patterns.iter().enumerate() {
                div.part id=[(place == 0).then_some("leases")] { (told(one, known.now)) }
            }
            @if known.patterns.is_empty() {
                div.part #leases { p.empty { "No lease of such a lock was seen yet." } }
            }
            div.part #found { (found_in(&known.applications, &is_of_it)) }
            div.part #refusals { (refusals(&known.refusals, &asked(glob, namespace))) }
            p { a href="/patterns" { "All patterns" } }
        }
    })
}

fn told(one: &LockPattern, now: u64) -> Markup {
    html! {
        h2 { "In the namespace " a href=(format!("/?namespace={}#locks", percent(&one.namespace))) { bdi { (one.namespace) } } }
        dl.lease {
            div { dt { "Held now" } dd { a href=(format!("/?pattern={}#locks", percent(&one.pattern))) { (number(one.held)) } } }
            div { dt { "Operations" } dd { (number(one.operations)) } }
            div { dt { "Taken" } dd { (number(one.acquired)) } }
            div { dt { "Asked, was held" } dd { (number(one.contended)) } }
            div { dt { "Usual TTL" } dd { (or(one.ttl_ms.map(duration), "none")) } }
            @if one.kept_alive > 0 { div { dt { "Renewed by the proxy" } dd { (counted(one.kept_alive, "lease", "leases")) } } }
            div { dt { "Last seen" } dd { (time(one.last_seen)) } }
        }
        @if one.holds.count > 0 { p { (holds(&one.holds)) "." } }
        @if let Some(advice) = &one.advice { p.remark { bdi { (advice) } "." } }
        @if !one.applications.is_empty() {
            p {
                "Taken lately by "
                @for (place, user) in one.applications.iter().enumerate() {
                    @if place > 0 { ", " }
                    (application_link(Some(&user.application))) " (" (counted(user.leases, "lease", "leases")) ")"
                }
                "."
            }
        }
        h3 { "The last leases" }
        (timeline(&one.history, now))
    }
}

/// The list of all patterns.
pub(super) fn list(all: &LockPatterns) -> Markup {
    let frame = Frame {
        title: "Patterns",
        skip: ("patterns", "the patterns"),
        now: all.now,
        address: "/patterns",
        json: Some("/api/v1/patterns"),
        command: None,
    };
    frame.around(&html! {
        h1 { "Locks by what their keys have in common" }
        div.part #patterns { (table(&all.patterns, None)) }
        @if all.patterns.len() > MAX_PATTERNS {
            p.cut { "And " (number((all.patterns.len() - MAX_PATTERNS) as u64)) " more: " a href="/api/v1/patterns" { "JSON" } }
        }
        p.hint { "Keys that no namespace has are on a page of their own: " a href="/discovery" { "discovery" } "." }
    })
}

/// One row per pattern; those of one application show its leases.
pub(super) fn table(patterns: &[LockPattern], application: Option<&str>) -> Markup {
    html! {
        @if patterns.is_empty() {
            p.empty { "No lock was taken yet." }
        } @else {
            (rows(patterns, application))
        }
    }
}

fn rows<'a>(patterns: &'a [LockPattern], application: Option<&'a str>) -> Table<'a, LockPattern> {
    let mut table = Table::of("Patterns of keys", patterns.iter().take(MAX_PATTERNS))
        .tone(|one| if one.holds.ran_out > 0 { "warn" } else { "" })
        .key_name("Pattern", |one| pattern_link(&one.pattern, &one.namespace))
        .text("Namespace", |one| html! { bdi { (one.namespace) } });
    if let Some(name) = application {
        table = table.number("Its leases of the last 100", move |one| {
            let user = one.applications.iter().find(|user| user.application == name);
            number(user.map_or(0, |user| user.leases))
        });
    }
    table
        .number("Operations", |one| number(one.operations))
        .number("Held now", |one| number(one.held))
        .text("Holds: half, 99 %, longest", |one| hold_times(&one.holds, one.advice.as_deref()))
        .number("Usual TTL", |one| or(one.ttl_ms.map(duration), "none"))
}

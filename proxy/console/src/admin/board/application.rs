//! The page of one application: the locks that it holds and waits for, its forbidden actions on locks, the findings about it,
//! and the locks that it takes.

use lockwarden_control::text::numbers::{counted, number, percent, utc};
use maud::{Markup, html};

use super::asked::Asked;
use super::frame::Frame;
use super::lists::{incidents, lost, refusals, trouble};
use super::parts::{lock_link, or_dash, time};
use super::pattern;
use super::report::times;
use super::table::Table;
use crate::admin::control::Control;
use crate::view::ReportQuery;
use crate::view::api::{
    Application, Connection, Connections, ConnectionsQuery, Incident, LockPattern, Moment, NamedLock, PatternsQuery,
    Since,
};

/// Connections on the page; the JSON has all.
const CONNECTIONS: usize = 50;
const REFUSALS: usize = 30;
const INCIDENTS: usize = 10;

/// The data of one application.
pub(super) struct Known {
    pub(super) now: u64,
    /// The start of the counts of its calls, refusals and findings.
    pub(super) since: u64,
    pub(super) application: Option<Application>,
    pub(super) connections: Connections,
    pub(super) patterns: Vec<LockPattern>,
    pub(super) incidents: Vec<Incident>,
    pub(super) refusals: Vec<Moment>,
    pub(super) lost: Vec<Moment>,
}

impl Known {
    /// The application with this name, as it is shown.
    pub(super) fn look(control: &dyn Control, name: &str, since: Option<Since>) -> Known {
        let views = control.views();
        let report = views.report(&ReportQuery { since, enough: None });
        let mut applications = report.applications.into_iter();
        let asked = asked(name, None);
        let mut patterns = views.patterns(&PatternsQuery::default()).patterns;
        patterns.retain(|one| one.applications.iter().any(|user| user.application == name));
        Known {
            now: report.now,
            since: report.since,
            application: applications.find(|one| one.application == name),
            connections: views.connections(&ConnectionsQuery {
                application: Some(name.to_owned()),
                limit: Some(CONNECTIONS),
                ..ConnectionsQuery::default()
            }),
            patterns,
            incidents: views.incidents(&asked.refusals(INCIDENTS)),
            refusals: views.decisions(&asked.refusals(REFUSALS)),
            lost: views.lost(&asked.refusals(REFUSALS)),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.application.is_some()
            || !self.connections.connections.is_empty()
            || !self.refusals.is_empty()
            || !self.lost.is_empty()
    }
}

fn asked(name: &str, since: Option<&str>) -> Asked {
    Asked { application: Some(name.to_owned()), since: since.map(str::to_owned), ..Asked::default() }
}

/// The whole page. `since` is as typed.
pub(super) fn page(known: &Known, name: &str, since: Option<&str>) -> Markup {
    let own = format!("/application?name={}", percent(name));
    let frame = Frame {
        title: name,
        skip: ("found", "what was found"),
        now: known.now,
        address: &match since {
            Some(since) => format!("{own}&since={}", percent(since)),
            None => own,
        },
        json: Some("/api/v1/clients"),
        command: None,
    };
    frame.around(&html! {
        h1 { "Application " bdi { (name) } }
        @if !known.is_known() {
            div.part #found {
                p.empty { "This proxy has seen no application of this name. " a href="/report" { "All applications" } }
            }
        } @else {
            @if !known.incidents.is_empty() { (incidents(&known.incidents)) }
            div.part #found { (found(known, name, since)) }
            div.part #connections { (connections(&known.connections)) }
            div.part #patterns {
                h2 { "Locks that it takes" }
                (pattern::table(&known.patterns, Some(name)))
            }
            div.part #lost { (lost(&known.lost, &asked(name, None))) }
            div.part #refusals { (refusals(&known.refusals, &asked(name, None))) }
            p { a href="/report" { "All applications" } }
        }
    })
}

fn found(known: &Known, name: &str, since: Option<&str>) -> Markup {
    html! {
        h2 { "What enforce mode would break" }
        (times("/application", Some(("name", name)), since))
        p.hint { "Counted since " (utc(known.since)) "." }
        @match &known.application {
            Some(application) => {
                (trouble(application))
                ul.usages {
                    @for usage in &application.namespaces {
                        li {
                            "In " a href=(format!("/?namespace={}#locks", percent(&usage.namespace))) { bdi { (usage.namespace) } }
                            " (" (usage.mode) "): " (counted(usage.operations, "call", "calls"))
                            ", " (number(usage.acquired)) " took a lock, " (number(usage.contended)) " met a holder"
                        }
                    }
                }
            }
            None => { p.empty { "It has touched no lock since then." } }
        }
    }
}

fn connections(all: &Connections) -> Markup {
    html! {
        h2 { "Connections " span.many { (number(all.matching)) } }
        @if all.connections.is_empty() {
            p.empty { "It is not connected now." }
        } @else {
            (table_of_connections(&all.connections))
            @if all.matching > all.connections.len() as u64 {
                p.cut { "These are " (number(all.connections.len() as u64)) " of " (number(all.matching)) ", who holds most first." }
            }
        }
    }
}

fn table_of_connections(all: &[Connection]) -> Table<'_, Connection> {
    Table::of("Connections", all)
        .name("Address", |one| {
            html! {
                (one.client.address)
                @if let Some(certificate) = &one.client.certificate {
                    " " small title="The name in its certificate" { bdi { (certificate) } }
                }
            }
        })
        .text("Since", |one| time(one.since))
        .text("Library", |one| html! { bdi { (one.client.library.as_deref().unwrap_or("–")) } })
        .text("Process", |one| {
            let process = one.process.as_ref();
            or_dash(process.map(|process| {
                html! { bdi { (process.program.as_deref().unwrap_or("gone")) } " " small { (process.id) } }
            }))
        })
        .keys("Holds", |one| locks(&one.holds, one.holding))
        .keys("Waits for", |one| locks(&one.waits_for, one.waiting))
}

fn locks(some: &[NamedLock], all: u64) -> Markup {
    let more = all.saturating_sub(some.len() as u64);
    html! {
        @if all == 0 { span.none { "–" } }
        @for (place, lock) in some.iter().enumerate() {
            @if place > 0 { ", " }
            (lock_link(&lock.key, lock.db))
        }
        @if more > 0 { " and " (number(more)) " more" }
    }
}

//! The lists below the locks: refusals, clients, namespaces, hot locks, circles of waiters, policies.

use lockwarden_control::text::durations::duration;
use lockwarden_control::text::numbers::{counted, number, percent};
use maud::{Markup, html};

use super::asked::Asked;
use super::detail::{copyable, event, tone};
use super::locks::client_name;
use super::parts::{application_link, lock_link, reason_link, record, time};
use crate::view::api::{Application, Client, Hot, Incident, Misuse, Moment, Namespace, Policy, Report, Usage};

/// Applications shown; the JSON has all.
const APPLICATIONS: usize = 50;
/// Key patterns shown with the line that repairs a misuse of them.
const MENDED: usize = 3;
/// Namespaces shown; the JSON has all.
const NAMESPACES: usize = 100;

/// Clients that wait for each other.
pub(super) fn cycles(hot: &Hot) -> Markup {
    html! {
        @if !hot.cycles.is_empty() {
            h2 { "Waiting for each other" }
            p.hint { "Nobody in such a circle can go on. Break one of the locks, or let one TTL run out." }
            @for cycle in &hot.cycles {
                ul.cycle {
                    @for member in &cycle.members {
                        li {
                            (client_name(&member.client))
                            " holds " (lock_link(&member.holds, 0))
                            " and waits for " (lock_link(&member.waits_for, 0))
                        }
                    }
                    li.hint { "since " (time(cycle.since)) }
                }
            }
        }
    }
}

/// One sentence about an incident, with links to its meaning.
pub(super) fn incident(incident: &Incident) -> Markup {
    html! {
        span.names {
            (application_link(incident.application.as_deref()))
            " " (incident.did) " "
            @if incident.key.is_empty() { "locks" } @else { (lock_link(&incident.key, incident.db)) }
            bdi { (incident.then) } ". "
            @match &incident.id {
                Some(id) => {
                    a href=(format!("/why?id={}", percent(id))) aria-label=(format!("Why, and what to do: {}", incident.sentence)) { "Why, and what to do" }
                }
                None => a href=(format!("/reasons#{}", percent(&incident.reason))) { "What " (incident.reason) " means" },
            }
        }
    }
}

/// The severity of an incident.
pub(super) fn tone_of(incident: &Incident) -> &'static str {
    let is_lost = incident.decision == "lost";
    if incident.overlap || is_lost { "bad" } else { "warn" }
}

/// Several of them, in the order of the API.
pub(super) fn incidents(incidents: &[Incident]) -> Markup {
    html! {
        ul.notices {
            @for one in incidents { li class=(tone_of(one)) { (incident(one)) } }
        }
    }
}

/// Leases that failovers have lost, if any.
pub(super) fn lost(moments: &[Moment], asked: &Asked) -> Markup {
    html! {
        @if !moments.is_empty() {
            h2 {
                "Lost in failovers "
                span.as-file {
                    a href=(format!("/api/v1/lost{}", asked.refusals_query(None))) { "JSON" } " · "
                    a href=(format!("/api/v1/lost{}", asked.refusals_query(Some("csv")))) { "CSV" }
                }
            }
            p.hint { "The server that became the primary does not have these leases. Their holders were not told." }
            div.scroll role="region" aria-label="Lost in failovers" tabindex="0" {
                table.stack role="table" {
                    thead role="rowgroup" {
                        tr role="row" {
                            th role="columnheader" scope="col" { "Time" }
                            th role="columnheader" scope="col" { "Record" }
                            th role="columnheader" scope="col" { "Key" }
                            th role="columnheader" scope="col" { "Holder then" }
                            th.right role="columnheader" scope="col" { "Held for" }
                            th.right role="columnheader" scope="col" { "Fence" }
                            th role="columnheader" scope="col" { "Namespace" }
                        }
                    }
                    tbody role="rowgroup" {
                        @for moment in moments { (lost_lease(moment)) }
                    }
                }
            }
        }
    }
}

fn lost_lease(moment: &Moment) -> Markup {
    html! {
        tr.bad role="row" {
            td role="cell" data-label="Time" { (time(moment.at)) }
            td role="cell" data-label="Record" { @if let Some(id) = &moment.id { (record(id)) } }
            th.key role="rowheader" scope="row" { (lock_link(&moment.key, moment.db)) }
            td role="cell" data-label="Holder then" { (who(moment.client.as_ref())) }
            td.right role="cell" data-label="Held for" {
                @match moment.held_ms { Some(held) => (duration(held)), None => span.none { "–" } }
            }
            td.right role="cell" data-label="Fence" { @match moment.fence { Some(fence) => (fence), None => span.none { "–" } } }
            td role="cell" data-label="Namespace" { (moment.namespace) }
        }
    }
}

/// Refusals, also those that enforce mode would have made.
pub(super) fn refusals(moments: &[Moment], asked: &Asked) -> Markup {
    html! {
        h2 {
            "Last refusals "
            span.as-file {
                a href=(format!("/api/v1/decisions{}", asked.refusals_query(None))) { "JSON" } " · "
                a href=(format!("/api/v1/decisions{}", asked.refusals_query(Some("csv")))) { "CSV" }
            }
        }
        @if moments.is_empty() {
            @if asked.narrows_refusals() {
                p.empty { "No refusal matches. " a href="/#refusals" { "Show all" } }
            } @else {
                p.empty { "Nothing was refused, and nothing would have been." }
            }
        } @else {
            div.scroll role="region" aria-label="Last refusals" tabindex="0" {
                table.stack role="table" {
                    thead role="rowgroup" {
                        tr role="row" {
                            th role="columnheader" scope="col" { "Time" }
                            th role="columnheader" scope="col" { "Record" }
                            th role="columnheader" scope="col" { "Key" }
                            th role="columnheader" scope="col" { "Command" }
                            th role="columnheader" scope="col" { "Client" }
                            th role="columnheader" scope="col" { "Reason" }
                            th role="columnheader" scope="col" { "Policy" }
                            th role="columnheader" scope="col" { "Outcome" }
                        }
                    }
                    tbody role="rowgroup" {
                        @for moment in moments { (refusal(moment)) }
                    }
                }
            }
        }
    }
}

fn refusal(moment: &Moment) -> Markup {
    html! {
        tr role="row" class=(if moment.overlap { "bad" } else { "" }) {
            td role="cell" data-label="Time" { (time(moment.at)) }
            td role="cell" data-label="Record" { @if let Some(id) = &moment.id { (record(id)) } }
            th.key role="rowheader" scope="row" {
                (lock_link(&moment.key, moment.db))
                @if let (Some(wrote), Some(guard)) = (&moment.wrote, &moment.guard) {
                    br; small { "guards " code dir="ltr" { (wrote) } " (" bdi { (guard) } ")" }
                }
            }
            td role="cell" data-label="Command" { @if let Some(command) = &moment.command { code { (command) } } }
            td role="cell" data-label="Client" { (who(moment.client.as_ref())) }
            td role="cell" data-label="Reason" {
                @if let Some(reason) = &moment.reason { (reason_link(reason)) }
                @if let Some(detail) = &moment.detail { br; small { bdi { (detail) } } }
                @if moment.overlap { br; small.bad { "overlap" } }
            }
            td role="cell" data-label="Policy" { (moment.policy.as_deref().unwrap_or_default()) }
            td role="cell" data-label="Outcome" { span class=(format!("state {}", tone(moment))) { (event(moment)) } }
        }
    }
}

fn who(client: Option<&Client>) -> Markup {
    html! {
        @match client {
            Some(client) => (client_name(client)),
            None => span.none { "–" },
        }
    }
}

/// What would break in enforce mode: the verdicts, then the applications that are not ready, then those that are ready but have
/// findings.
pub(super) fn clients(report: &Report) -> Markup {
    let has_trouble = |application: &&Application| {
        let mut usages = application.namespaces.iter();
        usages.any(|usage| !usage.refusals.is_empty() || !usage.findings.is_empty())
    };
    let applications = report.applications.iter().filter(has_trouble);
    let (ready, breaking): (Vec<_>, Vec<_>) = applications.partition(|one| one.ready);
    html! {
        h2 { "Clients that would break in enforce mode" }
        @if report.applications.is_empty() {
            p.empty { "No client has used a lock yet." }
        } @else {
            ul.verdicts {
                @for namespace in report.namespaces.iter().filter(|one| one.operations > 0).take(NAMESPACES) {
                    li {
                        b { (namespace.namespace) } " "
                        span class=(format!("mode {}", namespace.mode)) { (namespace.mode) } " "
                        bdi { (namespace.verdict) }
                        @for family in &namespace.mixed {
                            p.advice {
                                "A namespace of their own for "
                                @for keys in &family.patterns { code dir="ltr" { (keys) } " " }
                                ", above the one that has them now:"
                            }
                            (copyable(&family.toml))
                        }
                    }
                }
            }
            @for application in breaking.iter().take(APPLICATIONS) { (trouble(application)) }
            @if breaking.len() > APPLICATIONS {
                p.cut { "And " (number((breaking.len() - APPLICATIONS) as u64)) " more: " a href="/api/v1/clients" { "JSON" } }
            }
            @if !ready.is_empty() {
                details data-keep="ready" {
                    summary { (counted(ready.len() as u64, "application is ready and has", "applications are ready and have")) " something to look at" }
                    @for application in ready.iter().take(APPLICATIONS) { (trouble(application)) }
                }
            }
        }
    }
}

/// Refusals and findings about some locks, by application: those whose example is one of the locks.
pub(super) fn found_in(applications: &[Application], is_of_them: &dyn Fn(&Moment) -> bool) -> Markup {
    let found = |application: &Application| {
        let usages = application.namespaces.iter();
        let narrowed = usages.filter_map(|usage| {
            let mut usage = usage.clone();
            usage.refusals.retain(|one| is_of_them(&one.example));
            usage.findings.retain(|one| is_of_them(&one.example));
            let is_any = !usage.refusals.is_empty() || !usage.findings.is_empty();
            is_any.then_some(usage)
        });
        let narrowed: Vec<Usage> = narrowed.collect();
        (application.application.clone(), narrowed)
    };
    let found: Vec<(String, Vec<Usage>)> =
        applications.iter().map(found).filter(|(_, usages)| !usages.is_empty()).collect();
    html! {
        h2 { "Findings" }
        @if found.is_empty() {
            p.empty { "Nothing was found about such locks lately." }
        }
        @for (name, usages) in found.iter().take(APPLICATIONS) {
            section.client {
                h3 { (application_link(Some(name))) }
                @for usage in usages { (troubles(usage)) }
            }
        }
    }
}

/// One application: the verdict, and the problems.
pub(super) fn trouble(application: &Application) -> Markup {
    html! {
        section.client {
            h3 { (application_link(Some(&application.application))) }
            p.hint {
                bdi { (application.verdict) }
                @if !application.libraries.is_empty() { " · " bdi { (application.libraries.join(", ")) } }
                " · " (counted(application.connections, "connection", "connections")) " now"
            }
            @for usage in &application.namespaces { (troubles(usage)) }
        }
    }
}

fn troubles(usage: &Usage) -> Markup {
    let verb = if usage.mode == "enforce" { "refused" } else { "would be refused" };
    html! {
        ul.misuses {
            @for misuse in &usage.refusals { li { (misuse_of(misuse, verb, &usage.namespace)) } }
            @for misuse in &usage.findings { li { (misuse_of(misuse, "found", &usage.namespace)) } }
        }
    }
}

fn misuse_of(misuse: &Misuse, verb: &str, namespace: &str) -> Markup {
    let example = &misuse.example;
    html! {
        b { (misuse.what) } " · " (verb) " " (counted(misuse.count, "time", "times"))
        " in " (namespace) " · last " (time(misuse.last))
        @if !misuse.advice.is_empty() { p.advice { bdi { (misuse.advice) } } }
        @for one in misuse.patterns.iter().take(MENDED) {
            @if let Some(mends) = one.mends() {
                p.hint { code dir="ltr" { (one.pattern) } " · " code dir="ltr" { (mends) } }
            }
        }
        p.hint {
            "For example "
            @if let Some(command) = &example.command { code { (command) } " " }
            @if let Some(wrote) = &example.wrote { code dir="ltr" { (wrote) } ", which is for holders of " }
            (lock_link(&example.key, example.db))
            @if let Some(id) = &example.id { " · " (record(id)) }
        }
    }
}

/// The namespaces: their keys, their rules, and how long their locks are held.
pub(super) fn namespaces(namespaces: &[Namespace], site: &str) -> Markup {
    html! {
        h2 { "Namespaces" }
        div.scroll role="region" aria-label="Namespaces" tabindex="0" {
            table.stack role="table" {
                thead role="rowgroup" {
                    tr role="row" {
                        th role="columnheader" scope="col" { "Namespace" }
                        th role="columnheader" scope="col" { "Mode" }
                        th role="columnheader" scope="col" { "Keys" }
                        th.right role="columnheader" scope="col" { "Held" }
                        th.right role="columnheader" scope="col" { "No TTL" }
                        th.right role="columnheader" scope="col" { abbr title="Locks that the last walk over the server found without a record" { "No record" } }
                        th.right role="columnheader" scope="col" { "TTL ceiling" }
                        th role="columnheader" scope="col" { "Holds: half, 99 %, longest" }
                        th role="columnheader" scope="col" { "Policies" }
                    }
                }
                tbody role="rowgroup" {
                    @for namespace in namespaces.iter().take(NAMESPACES) { (namespace_row(namespace)) }
                }
            }
        }
        @if namespaces.len() > NAMESPACES {
            p.cut { "And " (number((namespaces.len() - NAMESPACES) as u64)) " more: " a href="/api/v1/config" { "JSON" } }
        }
        details data-keep="mode" {
            summary { "Switch a mode…" }
            p { "Works at once, for one namespace or, without a name, for all. Going back to monitor is always safe: from then on Redis alone answers." }
            @let first = namespaces.first().map_or("NAME", |namespace| namespace.name.as_str());
            (copyable(&order(site, &format!("namespace={}&mode=monitor", percent(first)))))
            (copyable(&order(site, "mode=monitor")))
        }
    }
}

fn order(site: &str, query: &str) -> String {
    format!("curl -X POST -H \"Authorization: Bearer $LOCKWARDEN_ADMIN_TOKEN\" 'http://{site}/api/v1/mode?{query}'")
}

fn namespace_row(namespace: &Namespace) -> Markup {
    let few = |number_of: u64| {
        html! { @if number_of > 0 { (number(number_of)) } @else { span.none { "0" } } }
    };
    html! {
        tr role="row" {
            th role="rowheader" scope="row" { a href=(format!("/?namespace={}#locks", percent(&namespace.name))) { (namespace.name) } }
            td role="cell" data-label="Mode" {
                span class=(format!("mode {}", namespace.mode)) { (namespace.mode) }
                @if let Some(quarantine) = &namespace.quarantine {
                    br; small.warn title=(quarantine.why) { (quarantine.words()) }
                }
                @if namespace.enforced_for_some { br; small title="enforce_for: some clients are refused already" { "enforced for some" } }
            }
            td.globs role="cell" data-label="Keys" { @for glob in &namespace.keys { code dir="ltr" { (glob) } " " } }
            td.right role="cell" data-label="Held" { (few(namespace.held)) }
            td.right role="cell" data-label="No TTL" { (few(namespace.without_ttl)) }
            td.right role="cell" data-label="No record" { (few(namespace.ungoverned)) }
            td.right role="cell" data-label="TTL ceiling" { @match namespace.ceiling_ms { Some(ms) => (duration(ms)), None => span.none { "–" } } }
            td role="cell" data-label="Holds: half, 99 %, longest" {
                @if namespace.holds.count > 0 {
                    (duration(namespace.holds.p50_ms)) " · " (duration(namespace.holds.p99_ms)) " · " (duration(namespace.holds.max_ms))
                    @if namespace.holds.ran_out > 0 { br; small.warn { (number(namespace.holds.ran_out)) " ran out while held" } }
                } @else { span.none { "–" } }
                @if let Some(advice) = &namespace.advice { br; small.advice { (advice) } }
            }
            td role="cell" data-label="Policies" { (namespace.policies.join(", ")) }
        }
    }
}

/// The most requested locks.
pub(super) fn hot(hot: &Hot) -> Markup {
    html! {
        h2 { "Hot locks" }
        @if hot.locks.is_empty() {
            p.empty { "No lock was asked for yet." }
        } @else {
            div.scroll role="region" aria-label="Hot locks" tabindex="0" {
                table.stack role="table" {
                    thead role="rowgroup" {
                        tr role="row" {
                            th role="columnheader" scope="col" { "Key" }
                            th.right role="columnheader" scope="col" { "Tries" }
                            th.right role="columnheader" scope="col" { "Met a holder" }
                            th role="columnheader" scope="col" { "Namespace" }
                        }
                    }
                    tbody role="rowgroup" {
                        @for lock in hot.locks.iter().take(10) {
                            tr role="row" {
                                th.key role="rowheader" scope="row" { (lock_link(&lock.key, lock.db)) }
                                td.right role="cell" data-label="Tries" { @if lock.error > 0 { "at most " } (number(lock.tries)) }
                                td.right role="cell" data-label="Met a holder" { (number(lock.contended)) }
                                td role="cell" data-label="Namespace" { (lock.namespace) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The policies in force, and whether they work.
pub(super) fn policies(policies: &[Policy]) -> Markup {
    html! {
        h2 { "Policies" }
        div.scroll role="region" aria-label="Policies" tabindex="0" {
            table.stack role="table" {
                thead role="rowgroup" {
                    tr role="row" {
                        th role="columnheader" scope="col" { "Policy" }
                        th role="columnheader" scope="col" { "Version" }
                        th role="columnheader" scope="col" { "Mode" }
                        th.right role="columnheader" scope="col" { "Decisions" }
                        th.right role="columnheader" scope="col" { "Failures" }
                        th role="columnheader" scope="col" { "SHA-256" }
                    }
                }
                tbody role="rowgroup" {
                    @for policy in policies {
                        tr role="row" class=(if policy.failures > 0 { "bad" } else { "" }) {
                            th role="rowheader" scope="row" { (policy.name) }
                            td role="cell" data-label="Version" { (policy.version) }
                            td role="cell" data-label="Mode" { span class=(format!("mode {}", policy.mode)) { (policy.mode) } }
                            td.right role="cell" data-label="Decisions" { (number(policy.evaluations)) }
                            td.right role="cell" data-label="Failures" {
                                @if policy.failures > 0 { b.bad { "▲ " (number(policy.failures)) } } @else { span.none { "0" } }
                            }
                            td role="cell" data-label="SHA-256" { code { (policy.digest) } }
                        }
                    }
                }
            }
        }
    }
}

//! The lists below the locks: refusals, clients, namespaces, hot locks, circles of waiters, policies.

use lockwarden_control::text::durations::duration;
use lockwarden_control::text::numbers::{counted, number, percent};
use maud::{Markup, html};

use super::asked::Asked;
use super::detail::{copyable, event, tone};
use super::locks::client_name;
use super::parts::{application_link, count, lock_link, mode, or_dash, reason_link, record, time};
use super::table::Table;
use crate::view::Format;
use crate::view::api::{Application, Client, Holds, Hot, Incident, Misuse, Moment, Namespace, Policy, Report, Usage};

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
                    a href=(format!("/api/v1/lost{}", asked.refusals_query(Format::Json))) { "JSON" } " · "
                    a href=(format!("/api/v1/lost{}", asked.refusals_query(Format::Csv))) { "CSV" }
                }
            }
            p.hint { "The server that became the primary does not have these leases. Their holders were not told." }
            (lost_leases(moments))
        }
    }
}

fn lost_leases(moments: &[Moment]) -> Table<'_, Moment> {
    Table::of("Lost in failovers", moments)
        .tone(|_| "bad")
        .text("Time", |moment| time(moment.at))
        .text("Record", |moment| html! { @if let Some(id) = &moment.id { (record(id)) } })
        .key_name("Key", |moment| lock_link(&moment.key, moment.db))
        .text("Holder then", |moment| who(moment.client.as_ref()))
        .number("Held for", |moment| or_dash(moment.held_ms.map(duration)))
        .number("Fence", |moment| or_dash(moment.fence))
        .text("Namespace", |moment| &moment.namespace)
}

/// Refusals, also those that enforce mode would have made.
pub(super) fn refusals(moments: &[Moment], asked: &Asked) -> Markup {
    html! {
        h2 {
            "Last refusals "
            span.as-file {
                a href=(format!("/api/v1/decisions{}", asked.refusals_query(Format::Json))) { "JSON" } " · "
                a href=(format!("/api/v1/decisions{}", asked.refusals_query(Format::Csv))) { "CSV" }
            }
        }
        @if moments.is_empty() {
            @if asked.narrows_refusals() {
                p.empty { "No refusal matches. " a href="/#refusals" { "Show all" } }
            } @else {
                p.empty { "Nothing was refused, and nothing would have been." }
            }
        } @else {
            (table_of_refusals(moments))
        }
    }
}

fn table_of_refusals(moments: &[Moment]) -> Table<'_, Moment> {
    Table::of("Last refusals", moments)
        .tone(|moment| if moment.overlap { "bad" } else { "" })
        .text("Time", |moment| time(moment.at))
        .text("Record", |moment| html! { @if let Some(id) = &moment.id { (record(id)) } })
        .key_name("Key", |moment| {
            html! {
                (lock_link(&moment.key, moment.db))
                @if let (Some(wrote), Some(guard)) = (&moment.wrote, &moment.guard) {
                    br; small { "guards " code dir="ltr" { (wrote) } " (" bdi { (guard) } ")" }
                }
            }
        })
        .text("Command", |moment| html! { @if let Some(command) = &moment.command { code { (command) } } })
        .text("Client", |moment| who(moment.client.as_ref()))
        .text("Reason", |moment| {
            html! {
                @if let Some(reason) = &moment.reason { (reason_link(reason)) }
                @if let Some(detail) = &moment.detail { br; small { bdi { (detail) } } }
                @if moment.overlap { br; small.bad { "overlap" } }
            }
        })
        .text("Policy", |moment| moment.policy.as_deref().unwrap_or_default())
        .text("Outcome", |moment| html! { span class=(format!("state {}", tone(moment))) { (event(moment)) } })
}

fn who(client: Option<&Client>) -> Markup {
    or_dash(client.map(client_name))
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
                        (mode(&namespace.mode)) " "
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
        (table_of_namespaces(namespaces.iter().take(NAMESPACES)))
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

fn table_of_namespaces<'a>(namespaces: impl Iterator<Item = &'a Namespace>) -> Table<'a, Namespace> {
    Table::of("Namespaces", namespaces)
        .name("Namespace", |one| html! { a href=(format!("/?namespace={}#locks", percent(&one.name))) { (one.name) } })
        .text("Mode", |one| html! {
            (mode(&one.mode))
            @if let Some(quarantine) = &one.quarantine {
                br; small.warn title=(quarantine.why) { (quarantine.words()) }
            }
            @if one.enforced_for_some { br; small title="enforce_for: some clients are refused already" { "enforced for some" } }
        })
        .globs("Keys", |one| &one.keys)
        .number("Held", |one| count(one.held))
        .number("No TTL", |one| count(one.without_ttl))
        .number("No record", |one| count(one.ungoverned))
        .meaning("Locks that the last walk over the server found without a record")
        .number("TTL ceiling", |one| or_dash(one.ceiling_ms.map(duration)))
        .text("Holds: half, 99 %, longest", |one| hold_times(&one.holds, one.advice.as_deref()))
        .text("Policies", |one| one.policies.join(", "))
}

/// How long locks are held: half of them, 99 %, the longest; and what to do about it.
pub(super) fn hold_times(holds: &Holds, advice: Option<&str>) -> Markup {
    html! {
        @if holds.count > 0 {
            (duration(holds.p50_ms)) " · " (duration(holds.p99_ms)) " · " (duration(holds.max_ms))
            @if holds.ran_out > 0 { br; small.warn { (number(holds.ran_out)) " ran out while held" } }
        } @else { span.none { "–" } }
        @if let Some(advice) = advice { br; small.advice { bdi { (advice) } } }
    }
}

/// The most requested locks.
pub(super) fn hot(hot: &Hot) -> Markup {
    html! {
        h2 { "Hot locks" }
        @if hot.locks.is_empty() {
            p.empty { "No lock was asked for yet." }
        } @else {
            (Table::of("Hot locks", hot.locks.iter().take(10))
                .key_name("Key", |lock| lock_link(&lock.key, lock.db))
                .number("Tries", |lock| html! { @if lock.error > 0 { "at most " } (number(lock.tries)) })
                .number("Met a holder", |lock| number(lock.contended))
                .text("Namespace", |lock| &lock.namespace))
        }
    }
}

/// The policies in force, and whether they work.
pub(super) fn policies(policies: &[Policy]) -> Markup {
    html! {
        h2 { "Policies" }
        (Table::of("Policies", policies)
            .tone(|policy| if policy.failures > 0 { "bad" } else { "" })
            .name("Policy", |policy| &policy.name)
            .text("Version", |policy| &policy.version)
            .text("Mode", |policy| mode(&policy.mode))
            .number("Decisions", |policy| number(policy.evaluations))
            .number("Failures", |policy| html! {
                @if policy.failures > 0 { b.bad { "▲ " (number(policy.failures)) } } @else { span.none { "0" } }
            })
            .text("SHA-256", |policy| html! { code { (policy.digest) } }))
    }
}

//! The main page: its frame, its top, and the list of its parts. Each part has an id, by which the page's script replaces it
//! with a newer one.

use lockwarden_control::text::durations::duration;
use lockwarden_control::text::numbers::{counted, number, time_of_day};
use maud::{DOCTYPE, Markup, html};

use super::asked::Asked;
use super::frame::{brand, head};
use super::parts::{Pace, application_link, lock_link, steady};
use super::shown::Shown;
use super::{detail, guards, lists, locks};
use crate::view::api::{Cycle, Guard, Incident, LockState, Namespace, Overview, Sentinels, Shard, Totals};

/// Circles of waiters at the head of the page, and members named in each.
const CYCLES: usize = 2;
const MEMBERS: usize = 4;
/// A certificate that ends within this time, in ms, is urgent; the alert has the same limit.
const URGENT_MS: u64 = 2 * 86_400_000;

/// The whole page. `site` is the address as the reader's browser names it.
pub(super) fn page(shown: &Shown, asked: &Asked, site: &str) -> Markup {
    let title = match &asked.lock {
        Some(lock) => format!("{lock} · lockwarden"),
        None => "lockwarden".to_owned(),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&title))
            body data-now=(shown.overview.now) data-events=(format!("/events{}", asked.query())) {
                a.skip href="#locks" { "Skip to the locks" }
                header.top {
                    (brand())
                    p.live role="status" {
                        span #live-state { "as of " (time_of_day(shown.overview.now)) " UTC" }
                        button #pause type="button" hidden { "Pause" }
                        a href=(asked.address()) { "Refresh" }
                    }
                }
                main {
                    h1.only-read { "Locks" }
                    @for (id, part) in parts(shown, asked, site, Pace::Still) {
                        div.part id=(id) { (part) }
                        @if id == "detail" { (locks::filter(shown, asked)) }
                    }
                }
                footer {
                    p {
                        "Times are UTC. The same as JSON: "
                        @for (place, path) in ["overview", "locks", "decisions", "lost", "incidents", "clients", "guards", "policies", "hot", "patterns", "report", "discovery"].iter().enumerate() {
                            @if place > 0 { " · " }
                            a href=(format!("/api/v1/{path}")) { (path) }
                        }
                        ". For scripts of your own: " a href="/metrics" { "metrics" } "."
                    }
                    p {
                        a href="/patterns" { "Locks by what their keys have in common" } ". "
                        a href="/report" { "Who would break, since when" } ". "
                        a href="/discovery" { "Keys that no namespace has" } ", and which of them are locks. "
                        a href="/reasons" { "What each reason of a refusal means" } "."
                    }
                    p { "Owner tokens are never shown. What stands for one (tok#…) tells equal ones, and means nothing outside this process." }
                }
            }
        }
    }
}

/// The parts, in the order of the page.
pub(super) fn parts(shown: &Shown, asked: &Asked, site: &str, pace: Pace) -> Vec<(&'static str, Markup)> {
    vec![
        ("status", status(&shown.overview, pace)),
        ("figures", figures(&shown.overview.totals)),
        ("notices", notices(shown)),
        ("detail", detail::section(shown, asked, site, pace)),
        ("locks", locks::section(shown, asked, pace)),
        ("cycles", lists::cycles(&shown.hot)),
        ("lost", lists::lost(&shown.lost, asked)),
        ("refusals", lists::refusals(&shown.refusals, asked)),
        ("guards", guards::section(&shown.guards)),
        ("clients", lists::clients(&shown.report)),
        ("namespaces", lists::namespaces(&shown.overview.namespaces, site)),
        ("hot", lists::hot(&shown.hot)),
        ("policies", lists::policies(&shown.overview.policies)),
    ]
}

/// The version, and whether the backend is reachable.
fn status(overview: &Overview, pace: Pace) -> Markup {
    let backend = &overview.backend;
    html! {
        p.status-line {
            span.fact { "version " b { (overview.version) } }
            span.fact {
                "up "
                b data-since=(steady(overview.started_at)) {
                    @if pace == Pace::Still { (duration(overview.now.saturating_sub(overview.started_at))) }
                }
            }
            span.fact {
                "backend " b { (backend.address) }
                @if let Some(version) = &backend.version { " (" (version) ")" }
                " "
                @if backend.up { span.good { "● up" } } @else { span.bad { "▲ down" } }
            }
            @if let Some(sentinels) = &backend.sentinels { (followed(sentinels)) }
            @if let Some(since) = backend.primary_since {
                span.fact {
                    "primary for "
                    b data-since=(steady(since)) {
                        @if pace == Pace::Still { (duration(overview.now.saturating_sub(since))) }
                    }
                }
            }
            @for (mode, names) in by_mode(overview) {
                span.fact {
                    (super::parts::mode(mode))
                    " " (names)
                }
            }
        }
        @if let Some(sentinels) = &backend.sentinels { (each_sentinel(sentinels)) }
        @if !backend.shards.is_empty() { (each_shard(&backend.shards, overview.now, pace)) }
        @if let Some(problem) = &backend.problem {
            div.notice.bad role="alert" {
                @if backend.up {
                    p { b { "A part of the cluster is not served. " } (problem) }
                    p.hint { "Commands on its keys are answered with CLUSTERDOWN. Those of the other shards go on." }
                } @else {
                    p { b { "No client is served. " } (problem) }
                    p.hint { "Below is what was known before. Clients are served again as soon as the backend is." }
                }
            }
        }
    }
}

/// The primary in use, and how many sentinels reply.
fn followed(sentinels: &Sentinels) -> Markup {
    let heard = format!("{} of {}", number(sentinels.heard), counted(sentinels.known, "sentinel", "sentinels"));
    html! {
        span.fact {
            "primary "
            @match &sentinels.primary {
                Some(primary) => b { (primary) },
                None => span.bad { "▲ none named" },
            }
        }
        span.fact {
            "heard " b { (heard) } " "
            @if sentinels.heard * 2 <= sentinels.known { span.bad { "▲ a failover might not be noticed" } }
        }
    }
}

/// The answer of each sentinel.
fn each_sentinel(sentinels: &Sentinels) -> Markup {
    html! {
        details.sentinels data-keep="sentinels" {
            summary { "What the sentinels of " bdi { (sentinels.name) } " say" }
            ul {
                @for one in &sentinels.each {
                    li {
                        (one.address) ": "
                        @match (&one.primary, &one.problem) {
                            (Some(primary), _) => {
                                "the primary is " b { (primary) }
                                @if let Some(epoch) = one.epoch { " (epoch " (epoch) ")" }
                                @if sentinels.primary.as_ref() != Some(primary) { " " span.warn { "not followed" } }
                            }
                            (None, Some(problem)) => span.warn { "not heard: " bdi { (problem) } },
                            (None, None) => span.warn { "not heard" },
                        }
                    }
                }
            }
        }
    }
}

/// The primaries of a cluster.
fn each_shard(shards: &[Shard], now: u64, pace: Pace) -> Markup {
    let down = shards.iter().filter(|shard| !shard.up).count() as u64;
    html! {
        details.sentinels data-keep="shards" {
            summary {
                (counted(shards.len() as u64, "shard", "shards"))
                @if down > 0 { " " span.bad { "▲ " (number(down)) " not served" } }
            }
            ul {
                @for one in shards {
                    li {
                        b { (one.primary) } ": " (counted(one.slots, "slot", "slots"))
                        @if let Some(version) = &one.version { ", " (version) }
                        @if let Some(since) = one.primary_since {
                            ", primary for "
                            b data-since=(steady(since)) {
                                @if pace == Pace::Still { (duration(now.saturating_sub(since))) }
                            }
                        }
                        @if let Some(problem) = &one.problem { " " span.bad { "▲ not served: " bdi { (problem) } } }
                    }
                }
            }
        }
    }
}

/// The modes with their namespaces, a few by name.
fn by_mode(overview: &Overview) -> Vec<(&'static str, String)> {
    const NAMED: usize = 4;
    ["enforce", "monitor"]
        .into_iter()
        .filter_map(|mode| {
            let names: Vec<&str> = overview
                .namespaces
                .iter()
                .filter(|namespace| namespace.mode == mode)
                .map(|namespace| namespace.name.as_str())
                .collect();
            let rest = names.len().saturating_sub(NAMED);
            let mut text = names[..names.len() - rest].join(", ");
            if rest > 0 {
                text.push_str(&format!(" and {rest} more"));
            }
            (!names.is_empty()).then_some((mode, text))
        })
        .collect()
}

fn figures(totals: &Totals) -> Markup {
    let tone = |number: u64, tone: &'static str| if number > 0 { tone } else { "" };
    let mut figures = vec![
        ("held", "", totals.held, "", "#locks"),
        ("waiting", "", totals.waiting, "", "#locks"),
        ("refused", "1 h", totals.refused_last_hour, "warn", "#refusals"),
        ("would be refused", "1 h", totals.would_refuse_last_hour, "warn", "#clients"),
        ("overlaps", "24 h", totals.overlaps_last_day, "bad", "#refusals"),
        ("without TTL", "", totals.without_ttl, "warn", "#locks"),
    ];
    // Figures about failovers are shown only if they are not zero.
    let of_failovers = [
        ("unknown", "", totals.unknown, "warn", "#locks"),
        ("lost in failovers", "24 h", totals.lost_last_day, "bad", "#lost"),
    ];
    let found = of_failovers.into_iter();
    figures.extend(found.filter(|(_, _, figure, _, _)| *figure > 0));
    html! {
        ul.figures {
            @for (name, when, figure, bad, href) in figures {
                li class=(tone(figure, bad)) {
                    a href=(href) {
                        b { (number(figure)) }
                        span { (name) @if !when.is_empty() { " " small { (when) } } }
                    }
                }
            }
        }
    }
}

/// A sentence at the head of the page, with its severity.
type Notice = (&'static str, Markup);

/// What a person on call should read first: the incidents, then other notable facts.
fn notices(shown: &Shown) -> Markup {
    let totals = &shown.overview.totals;
    let namespaces = shown.overview.namespaces.iter();
    let mut found: Vec<Notice> = namespaces.filter_map(harm).collect();
    if shown.overview.unseen > 0 {
        let entries = counted(shown.overview.unseen, "entry", "entries");
        let text = html! {
            a href="/metrics" {
                "This page is incomplete: " (entries) " came faster than they could be taken in. Metrics and answers to clients are not affected."
            }
        };
        found.push(("warn", text));
    }
    let namespaces = shown.overview.namespaces.iter();
    found.extend(namespaces.filter_map(in_quarantine));
    let ends = &shown.overview.certificates_end;
    found.extend(ends.iter().map(|end| ends_soon(end, shown.overview.now)));
    found.extend(shown.incidents.iter().map(|one| (lists::tone_of(one), lists::incident(one))));
    found.extend(shown.guards.iter().filter_map(unchecked));
    found.extend(shown.hot.cycles.iter().take(CYCLES).map(cycle));
    let mut find = |is: bool, tone, href: &str, text: &dyn Fn() -> String| {
        if is {
            found.push((tone, html! { a href=(href) { (text()) } }));
        }
    };
    let is_late = |incident: &Incident| incident.overlap && incident.decision != "lost";
    let is_named = shown.incidents.iter().any(is_late);
    find(totals.overlaps_last_day > 0 && !is_named, "bad", "/?since=1d#refusals", &|| {
        let times = match totals.overlaps_last_day {
            1 => "Once".to_owned(),
            more => format!("{} times", number(more)),
        };
        format!(
            "{times} in the last 24 h somebody acted on a lock that another held by then: what it guards may be wrong."
        )
    });
    find(totals.without_ttl > 0, "warn", "/?problems=1#locks", &|| without_ttl(shown));
    find(totals.unclaimed_patterns > 0, "note", "/discovery", &|| {
        let patterns = counted(totals.unclaimed_patterns, "pattern", "patterns");
        let verb = if totals.unclaimed_patterns == 1 { "is" } else { "are" };
        format!("{patterns} of locks {verb} in no namespace: nothing governs them.")
    });
    // Refusals in a sentence above are not repeated as a number.
    let (refused, would) = match shown.incidents.iter().all(|one| one.decision == "lost") {
        true => (totals.refused_last_hour, totals.would_refuse_last_hour),
        false => (0, 0),
    };
    find(refused + would > 0, "note", "/?since=1h#refusals", &|| {
        let refused_text = counted(refused, "call was refused", "calls were refused");
        let would_text = counted(would, "call", "calls");
        let would_text = format!("{would_text} would be refused in enforce mode");
        match (refused, would) {
            (0, _) => format!("In the last hour {would_text}."),
            (_, 0) => format!("In the last hour {refused_text}."),
            _ => format!("In the last hour {refused_text}, and {would_text}."),
        }
    });
    let idle = shown.overview.backend.up && shown.overview.backend.problem.is_none();
    html! {
        @if found.is_empty() {
            @if idle { p.calm { "Nothing needs attention." } }
        } @else {
            ul.notices {
                @for (tone, text) in &found { li class=(tone) { (text) } }
            }
        }
    }
}

/// The harm of enforcing a namespace, and how to undo it.
fn harm(namespace: &Namespace) -> Option<Notice> {
    let harm = namespace.harm.as_ref()?;
    let text = html! {
        a href="/report" { "Namespace " bdi { (namespace.name) } ": " (harm) "." }
        @if namespace.mode == "enforce" || namespace.enforced_for_some {
            " " code { "lockwarden mode " (namespace.name) "=monitor" } " takes it back."
        }
    };
    Some(("bad", text))
}

/// The quarantine of a namespace: its end and its reason.
fn in_quarantine(namespace: &Namespace) -> Option<Notice> {
    let quarantine = namespace.quarantine.as_ref()?;
    let text = html! {
        a href="#namespaces" {
            "Namespace " bdi { (namespace.name) } " is in " (quarantine.words()) ": no free lock is granted, because "
            (quarantine.why) "."
        }
    };
    Some(("warn", text))
}

/// A certificate that has to be renewed.
fn ends_soon((name, at): (&String, &u64), now: u64) -> Notice {
    let text = html! {
        a href="/metrics" {
            "The certificate of " code { (name) } " "
            @if *at > now { "ends in " (duration(at - now)) ": renew it." } @else { "has ended: renew it." }
        }
    };
    (if at.saturating_sub(now) < URGENT_MS { "bad" } else { "warn" }, text)
}

/// Writes of guarded data that could not be checked.
fn unchecked(guard: &Guard) -> Option<Notice> {
    let times: u64 = guard.unchecked.values().sum();
    let then = match guard.mode.as_str() {
        "enforce" => "they were refused",
        _ => "they were let through",
    };
    let text = html! {
        a href="#guards" {
            "Of the data of guard " bdi { (guard.name) } " " (counted(times, "write", "writes"))
            " could not be checked since the proxy was started: " (then) "."
        }
    };
    (times > 0).then_some(("warn", text))
}

/// A circle of waiters in one sentence; the list below has all.
fn cycle(cycle: &Cycle) -> Notice {
    let text = html! {
        span.names {
            @for (place, member) in cycle.members.iter().take(MEMBERS).enumerate() {
                @if place > 0 { "; " }
                (application_link(Some(&member.client.application)))
                " holds " (lock_link(&member.holds, 0))
                " and waits for " (lock_link(&member.waits_for, 0))
            }
            @if cycle.members.len() > MEMBERS { "; and so on" }
            ". " a href="#cycles" { "None of them can go on." }
        }
    };
    ("bad", text)
}

fn without_ttl(shown: &Shown) -> String {
    let namespaces = shown.report.namespaces.iter();
    let mut examples = namespaces.flat_map(|namespace| &namespace.without_ttl_examples);
    let example = examples.next();
    let holder = |key: &str| {
        let mut locks = shown.locks.locks.iter();
        let lock = locks.find(|lock| lock.state == LockState::NoTtl && lock.key == key)?;
        Some(lock.holder.as_ref()?.application.clone())
    };
    let named = example.map(|key| match holder(key) {
        Some(name) => format!("{key}, which {name} holds,"),
        None => key.clone(),
    });
    match (shown.overview.totals.without_ttl, named) {
        (1, Some(key)) => format!("{key} has no TTL: if its holder dies, it stays."),
        (1, None) => "1 lock has no TTL: if its holder dies, it stays.".to_owned(),
        (more, Some(key)) => format!(
            "{} locks have no TTL, such as {}: if their holders die, they stay.",
            number(more),
            key.trim_end_matches(',')
        ),
        (more, None) => format!("{} locks have no TTL: if their holders die, they stay.", number(more)),
    }
}

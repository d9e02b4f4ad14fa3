//! The reports of several proxies put together: counts are added, what is told of the server itself, which each proxy sees, is
//! the largest, and a namespace or an application is ready where it is so at every proxy that has seen something of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cli::fleet::{Answer, Answers};
use crate::cli::output::duration;
use crate::text::numbers::counted;
use crate::view::api::{Application, LockPattern, Locks, Misuse, NamespaceReport, Report, Usage};

/// Proxies whose verdict is told; where more stand in the way, how many.
const MAX_VERDICTS: usize = 4;
/// Locks that are named as examples.
const MAX_EXAMPLES: usize = 20;

/// The mode of a namespace that the proxies have in different ones.
const MIXED: &str = "mixed";

/// One part of a report, and the proxy that says it.
type Of<'a, T> = (&'a str, &'a T);

/// The report of the proxy, and of the locks that are held now those with something wrong.
#[derive(Debug, Serialize)]
pub(super) struct Audit {
    #[serde(flatten)]
    pub(super) report: Report,
    /// At most so many as are worth an example; `matching` says how many there are.
    pub(super) held_with_problems: Locks,
}

/// The first line: since when each of them counts.
pub(super) fn head(answers: &Answers<Audit>) -> String {
    let reports = answers.answers.iter().map(|one| &one.answer.report);
    let spans = reports.map(|report| report.now.saturating_sub(report.since));
    let (shortest, longest) =
        spans.fold((u64::MAX, 0), |(shortest, longest), span| (shortest.min(span), longest.max(span)));
    let proxies = counted(answers.answers.len() as u64, "proxy", "proxies");
    match (duration(shortest), duration(longest)) {
        (shortest, longest) if shortest == longest => {
            format!("What {proxies} saw in the last {longest}:")
        }
        (shortest, longest) => {
            format!("What {proxies} saw, one in the last {longest}, one only in the last {shortest}:")
        }
    }
}

/// What they say together.
pub(super) fn merged(answers: &Answers<Audit>) -> Report {
    let reports = || answers.answers.iter().map(|one| &one.answer.report);
    let now = reports().map(|report| report.now).max().unwrap_or(0);
    let spans = reports().map(|report| report.now.saturating_sub(report.since));
    let namespaces = each(answers, |report| &report.namespaces, |one| &one.namespace);
    let applications = each(answers, |report| &report.applications, |one| &one.application);
    let mut applications: Vec<Application> = applications.values().filter_map(|all| application(all)).collect();
    // The worst first, as of one proxy.
    applications.sort_by_key(|one| (one.ready, Reverse(refused(one))));
    Report {
        since: now.saturating_sub(spans.max().unwrap_or(0)),
        now,
        namespaces: in_order(answers, &namespaces),
        applications,
        // Most of them have seen the same.
        unclaimed_patterns: reports().map(|report| report.unclaimed_patterns).max().unwrap_or(0),
        hidden_processes: reports().find_map(|report| report.hidden_processes.clone()),
        patterns: patterns(reports()),
    }
}

/// How long locks are held, by keys, as the proxy says it that has seen the most leases of each: shares cannot be added.
fn patterns<'a>(reports: impl Iterator<Item = &'a Report>) -> Vec<LockPattern> {
    let mut all: Vec<LockPattern> = Vec::new();
    for one in reports.flat_map(|report| &report.patterns) {
        let is_it = |known: &&mut LockPattern| known.namespace == one.namespace && known.pattern == one.pattern;
        match all.iter_mut().find(is_it) {
            Some(known) if known.holds.count < one.holds.count => *known = one.clone(),
            Some(_) => {}
            None => all.push(one.clone()),
        }
    }
    all.sort_by_key(|one| Reverse(one.operations));
    all
}

/// The parts of all reports by their names.
fn each<'a, T>(
    answers: &'a Answers<Audit>,
    parts: fn(&Report) -> &Vec<T>,
    name: fn(&T) -> &String,
) -> BTreeMap<&'a str, Vec<Of<'a, T>>> {
    let mut all: BTreeMap<&str, Vec<Of<'_, T>>> = BTreeMap::new();
    for Answer { proxy, answer } in &answers.answers {
        let proxy = proxy.as_deref().unwrap_or_default();
        for part in parts(&answer.report) {
            all.entry(name(part)).or_default().push((proxy, part));
        }
    }
    all
}

/// In the order of the configuration, as far as the proxies have the same.
fn in_order(answers: &Answers<Audit>, all: &BTreeMap<&str, Vec<Of<'_, NamespaceReport>>>) -> Vec<NamespaceReport> {
    let reports = answers.answers.iter().map(|one| &one.answer.report);
    let mut names: Vec<&str> = Vec::new();
    for one in reports.flat_map(|report| &report.namespaces) {
        if !names.contains(&&*one.namespace) {
            names.push(&one.namespace);
        }
    }
    let reports = names.iter().filter_map(|name| namespace(all.get(name)?));
    reports.collect()
}

fn namespace(all: &[Of<'_, NamespaceReport>]) -> Option<NamespaceReport> {
    let (_, first) = all.first()?;
    let sum = |count: fn(&NamespaceReport) -> u64| all.iter().map(|(_, one)| count(one)).sum();
    // Each of them walks over the same server.
    let most = |count: fn(&NamespaceReport) -> u64| all.iter().max_by_key(|(_, one)| count(one));
    let without_ttl = most(|one| one.without_ttl)?.1;
    let equal_values = most(|one| one.equal_values)?.1;
    let verdicts = all.iter().map(|(proxy, one)| (*proxy, one.operations, one.ready, &*one.verdict));
    let (ready, verdict) = together(verdicts.collect());
    Some(NamespaceReport {
        namespace: first.namespace.clone(),
        mode: same(all.iter().map(|(_, one)| &*one.mode)).unwrap_or(MIXED).to_owned(),
        operations: sum(|one| one.operations),
        refused: sum(|one| one.refused),
        would_refuse: sum(|one| one.would_refuse),
        would_modify: sum(|one| one.would_modify),
        overlaps: sum(|one| one.overlaps),
        ran_out: sum(|one| one.ran_out),
        kept_alive: sum(|one| one.kept_alive),
        ungoverned: sum(|one| one.ungoverned),
        tokenless_releases: sum(|one| one.tokenless_releases),
        foretold: all.iter().map(|(_, one)| one.foretold).sum(),
        seen: all.iter().map(|(_, one)| one.seen).sum(),
        without_ttl: without_ttl.without_ttl,
        without_ttl_examples: some(&without_ttl.without_ttl_examples),
        equal_values: equal_values.equal_values,
        equal_values_examples: some(&equal_values.equal_values_examples),
        ran_out_while_held: sum(|one| one.ran_out_while_held),
        // Each of them has to see enough.
        wanted_calls: most(|one| one.wanted_calls)?.1.wanted_calls,
        wanted_until: all.iter().filter_map(|(_, one)| one.wanted_until).max(),
        mixed: most(|one| one.mixed.len() as u64)?.1.mixed.clone(),
        harm: all.iter().find_map(|(_, one)| one.harm.clone()),
        against: {
            let against = all.iter().flat_map(|(_, one)| &one.against);
            against.collect::<BTreeSet<_>>().into_iter().cloned().collect()
        },
        ready,
        verdict,
    })
}

fn some(examples: &[String]) -> Vec<String> {
    examples.iter().take(MAX_EXAMPLES).cloned().collect()
}

/// What all of them say.
fn same<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let first = words.next()?;
    words.all(|word| word == first).then_some(first)
}

/// Whether something is ready, and the words of those that say it: of all that have seen something of it.
fn together(verdicts: Vec<(&str, u64, bool, &str)>) -> (bool, String) {
    let has_seen = |one: &&(&str, u64, bool, &str)| one.1 > 0;
    let saw: Vec<_> = verdicts.iter().filter(has_seen).collect();
    let ready = !saw.is_empty() && saw.iter().all(|(_, _, ready, _)| *ready);
    // Nobody has seen anything: all say so.
    let telling: Vec<_> = match saw.is_empty() {
        true => verdicts.iter().collect(),
        false => saw.into_iter().filter(|(_, _, one, _)| *one == ready).collect(),
    };
    if let Some(words) = same(telling.iter().map(|(_, _, _, verdict)| *verdict)) {
        return (ready, words.to_owned());
    }
    let told = telling.iter().take(MAX_VERDICTS);
    let mut told: Vec<String> = told.map(|(proxy, _, _, verdict)| format!("{proxy}: {verdict}")).collect();
    if let Some(more) = telling.len().checked_sub(MAX_VERDICTS + 1) {
        told.push(format!("and so {}", counted(more as u64 + 1, "proxy more", "proxies more")));
    }
    (ready, told.join(" / "))
}

fn application(all: &[Of<'_, Application>]) -> Option<Application> {
    let (_, first) = all.first()?;
    let verdicts = all.iter().map(|(proxy, one)| {
        let operations = one.namespaces.iter().map(|usage| usage.operations).sum();
        (*proxy, operations, one.ready, &*one.verdict)
    });
    let (ready, verdict) = together(verdicts.collect());
    let mut libraries: Vec<String> = Vec::new();
    let mut namespaces: Vec<Usage> = Vec::new();
    for (_, one) in all {
        for library in &one.libraries {
            if !libraries.contains(library) {
                libraries.push(library.clone());
            }
        }
        for usage in &one.namespaces {
            let mut known = namespaces.iter_mut();
            match known.find(|known| known.namespace == usage.namespace) {
                Some(known) => add(known, usage),
                None => namespaces.push(usage.clone()),
            }
        }
    }
    Some(Application {
        application: first.application.clone(),
        libraries,
        connections: all.iter().map(|(_, one)| one.connections).sum(),
        ready,
        verdict,
        namespaces,
    })
}

fn add(known: &mut Usage, other: &Usage) {
    known.operations += other.operations;
    known.acquired += other.acquired;
    known.contended += other.contended;
    known.overlaps += other.overlaps;
    known.would_modify += other.would_modify;
    known.foretold = [known.foretold, other.foretold].into_iter().sum();
    known.seen = [known.seen, other.seen].into_iter().sum();
    if known.mode != other.mode {
        MIXED.clone_into(&mut known.mode);
    }
    for one in &other.lost_on {
        let mut all = known.lost_on.iter_mut();
        match all.find(|known| known.pattern == one.pattern) {
            Some(known) => {
                known.foretold = [known.foretold, one.foretold].into_iter().sum();
                known.seen = [known.seen, one.seen].into_iter().sum();
            }
            None => known.lost_on.push(one.clone()),
        }
    }
    add_misuses(&mut known.refusals, &other.refusals);
    add_misuses(&mut known.findings, &other.findings);
}

fn add_misuses(known: &mut Vec<Misuse>, others: &[Misuse]) {
    for other in others {
        let same = known.iter_mut().find(|one| one.what == other.what);
        let Some(one) = same else {
            known.push(other.clone());
            continue;
        };
        one.count += other.count;
        one.breaks |= other.breaks;
        for pattern in &other.patterns {
            let mut known = one.patterns.iter_mut();
            match known.find(|known| known.pattern == pattern.pattern) {
                Some(known) => {
                    known.count += pattern.count;
                    known.last = known.last.max(pattern.last);
                }
                None => one.patterns.push(pattern.clone()),
            }
        }
        // The example is that of the latest.
        if other.last > one.last {
            one.last = other.last;
            one.example = other.example.clone();
        }
    }
}

fn refused(application: &Application) -> u64 {
    let usages = application.namespaces.iter();
    let refusals = usages.flat_map(|usage| &usage.refusals);
    refusals.map(|misuse| misuse.count).sum()
}

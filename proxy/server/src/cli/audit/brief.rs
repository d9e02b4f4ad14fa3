//! The report on one screen: a paragraph for each family of locks (a key pattern in a namespace) that prevents enforcing, with
//! what happens, which applications do it, its cost in lock time and the line that repairs it; then the readiness. `--all`
//! shows everything else.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use lockwarden_console::view::api::{LockTime, Misuse, MisusedPattern, NamespaceReport, Report, Usage};
use lockwarden_control::text::durations::times;
use lockwarden_control::text::numbers::{number, utc};

use crate::cli::output::{Paint, Screen, plain};

/// Families with a paragraph, the most costly first.
const MAX_FAMILIES: usize = 6;
/// Events and applications named per family.
const MAX_NAMED: usize = 4;
/// Sentences about locks on the server.
const MAX_HELD: usize = 4;
/// Namespaces that are listed one by one if they are not ready.
const MAX_NOT_READY: usize = 6;

/// The problems of one key pattern that prevent enforcing.
#[derive(Default)]
struct Family {
    refused: BTreeMap<String, u64>,
    found: BTreeMap<String, u64>,
    who: BTreeMap<String, u64>,
    foretold: LockTime,
    seen: LockTime,
    /// Further remarks, in words.
    said: Vec<String>,
    /// The repair of the most frequent problem, refusals before findings, with its count.
    mends: Option<((bool, u64), String)>,
}

/// The namespace, and the pattern.
type Place = (String, String);

pub(super) fn words(head: &str, report: &Report, screen: Screen) -> String {
    let mut text = format!("{head}\n");
    let families = families(report);
    let mut ranked: Vec<(&Place, &Family)> = families.iter().collect();
    ranked.sort_by_key(|(place, family)| (Reverse(family.weight()), *place));
    // Writing to a String cannot fail, here and below.
    for (place, family) in ranked.iter().take(MAX_FAMILIES) {
        let _ = write!(text, "\n{}", paragraph(place, family, report, screen));
    }
    if let Some(more) = ranked.len().checked_sub(MAX_FAMILIES).filter(|more| *more > 0) {
        let more = match more {
            1 => "1 family".to_owned(),
            more => format!("{} families", number(more as u64)),
        };
        let _ = writeln!(text, "\nand {more} of locks more: lockwarden audit --all");
    }
    text.push('\n');
    text.push_str(&readiness(report, &families, screen));
    let held = report.namespaces.iter();
    let held = held.flat_map(|one| [without_ttl(one), equal_values(one)]);
    for said in held.flatten().take(MAX_HELD) {
        let _ = writeln!(text, "{said}");
    }
    if report.unclaimed_patterns > 0 {
        let patterns = times(report.unclaimed_patterns, "pattern");
        let _ =
            writeln!(text, "Used as locks, and in no namespace: {patterns} of keys, which `lockwarden discover` names");
    }
    let _ = writeln!(text, "Everything that was seen, with examples: lockwarden audit --all");
    text
}

fn families(report: &Report) -> BTreeMap<Place, Family> {
    let mut families: BTreeMap<Place, Family> = BTreeMap::new();
    let place = |namespace: &str, pattern: &str| (namespace.to_owned(), pattern.to_owned());
    for application in &report.applications {
        for usage in &application.namespaces {
            for (misuse, pattern) in in_the_way(usage) {
                let family = families.entry(place(&usage.namespace, &pattern.pattern));
                let refused = usage.refusals.iter().any(|one| std::ptr::eq(one, misuse));
                family.or_default().suffers(misuse, refused, pattern, &application.application);
            }
            for lost in &usage.lost_on {
                let family = families.entry(place(&usage.namespace, &lost.pattern));
                let family = family.or_default();
                family.foretold = [family.foretold, lost.foretold].into_iter().sum();
                family.seen = [family.seen, lost.seen].into_iter().sum();
            }
        }
    }
    for pattern in &report.patterns {
        let ran_out = pattern.holds.ran_out;
        if let (1.., Some(advice)) = (ran_out, &pattern.advice) {
            let family = families.entry(place(&pattern.namespace, &pattern.pattern));
            let family = family.or_default();
            family.said.push(format!("{} ran out", times(ran_out, "lease")));
            family.mends.get_or_insert(((false, ran_out), advice.clone()));
        }
    }
    for namespace in &report.namespaces {
        for mixed in &namespace.mixed {
            let family = families.entry(place(&namespace.namespace, &mixed.patterns.join(" ")));
            let family = family.or_default();
            family.said.push("wants a namespace of its own".to_owned());
            let mends = "the namespace that lockwarden audit --all shows".to_owned();
            family.mends.get_or_insert(((false, 1), mends));
        }
    }
    families
}

/// What an application does that prevents enforcing, by key pattern.
fn in_the_way(usage: &Usage) -> impl Iterator<Item = (&Misuse, &MisusedPattern)> {
    let all = usage.refusals.iter().chain(&usage.findings);
    let breaking = all.filter(|misuse| misuse.breaks);
    breaking.flat_map(|misuse| misuse.patterns.iter().map(move |pattern| (misuse, pattern)))
}

impl Family {
    fn suffers(&mut self, misuse: &Misuse, refused: bool, pattern: &MisusedPattern, who: &str) {
        let counts = match refused {
            true => &mut self.refused,
            false => &mut self.found,
        };
        *counts.entry(misuse.what.clone()).or_default() += pattern.count;
        *self.who.entry(who.to_owned()).or_default() += pattern.count;
        let weight = (refused, pattern.count);
        let is_more = |(other, _): &((bool, u64), String)| weight > *other;
        if let Some(mends) = pattern.mends()
            && self.mends.as_ref().is_none_or(is_more)
        {
            self.mends = Some((weight, mends));
        }
    }

    /// The most costly comes first, then the most frequent.
    fn weight(&self) -> (u64, u64) {
        let lost = |time: LockTime| time.unheld_ms.saturating_add(time.cut_ms);
        (lost(self.foretold).max(lost(self.seen)), self.refused.values().chain(self.found.values()).sum())
    }

    fn happens(&self) -> String {
        let mut parts = Vec::new();
        let refused: u64 = self.refused.values().sum();
        if refused > 0 {
            let calls = times(refused, "call");
            parts.push(format!("{calls} refused, or would be ({})", named(&self.refused)));
        }
        if !self.found.is_empty() {
            parts.push(named(&self.found));
        }
        parts.extend(self.said.iter().cloned());
        parts.join("; ")
    }

    fn costs(&self) -> String {
        match (self.foretold.loss(), self.seen.loss()) {
            (None, None) => "no lock time".to_owned(),
            (Some(would), None) => format!("would {would}"),
            (None, Some(did)) => format!("enforced, it did {did}"),
            (Some(would), Some(did)) => format!("would {would}; enforced, it did {did}"),
        }
    }
}

/// The most frequent first.
fn named(counts: &BTreeMap<String, u64>) -> String {
    let mut ranked: Vec<(&String, &u64)> = counts.iter().collect();
    ranked.sort_by_key(|(name, count)| (Reverse(**count), *name));
    let mut told: Vec<String> =
        ranked.iter().take(MAX_NAMED).map(|(name, count)| format!("{} {name}", number(**count))).collect();
    if let Some(more) = ranked.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told.join(", ")
}

fn paragraph(place: &Place, family: &Family, report: &Report, screen: Screen) -> String {
    let (namespace, pattern) = place;
    let mut all = report.namespaces.iter();
    let mode = all.find(|one| one.namespace == *namespace);
    let mode = mode.map_or("", |one| one.mode.as_str());
    let head = format!("{} in {} ({mode})", plain(pattern), plain(namespace));
    let mut text = format!("{}: {}", screen.paint(&head, Paint::Head), plain(&family.happens()));
    let mut line = |word: &str, what: &str| {
        let _ = write!(text, "\n  {word}  {}", plain(what));
    };
    if !family.who.is_empty() {
        let mut ranked: Vec<(&String, &u64)> = family.who.iter().collect();
        ranked.sort_by_key(|(name, count)| (Reverse(**count), *name));
        let named = ranked.iter().take(MAX_NAMED).map(|(name, _)| name.as_str());
        line("who ", &named.collect::<Vec<_>>().join(", "));
    }
    line("cost", &family.costs());
    if let Some((_, mends)) = &family.mends {
        line("mend", mends);
    }
    text.push('\n');
    text
}

/// The namespaces that are ready, and the reasons for the others.
fn readiness(report: &Report, families: &BTreeMap<Place, Family>, screen: Screen) -> String {
    let mut text = String::new();
    let (ready, others): (Vec<_>, Vec<_>) = report.namespaces.iter().partition(|one| one.ready);
    if !ready.is_empty() {
        let names: Vec<&str> = ready.iter().map(|one| one.namespace.as_str()).collect();
        let head = screen.paint("Ready to be enforced, or enforced:", Paint::Good);
        let _ = writeln!(text, "{head} {}", plain(&names.join(", ")));
    }
    for one in others.iter().take(MAX_NOT_READY) {
        let head = format!("Not ready: {}", plain(&one.namespace));
        let why = why_not(one, families);
        let _ = writeln!(text, "{}: {}", screen.paint(&head, Paint::Bad), plain(&why));
    }
    if let Some(more) = others.len().checked_sub(MAX_NOT_READY).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {} more", times(more as u64, "namespace"));
    }
    text
}

fn why_not(namespace: &NamespaceReport, families: &BTreeMap<Place, Family>) -> String {
    if namespace.operations == 0 {
        return "nothing was seen yet".to_owned();
    }
    let mut parts = Vec::new();
    let harm = namespace.harm.clone();
    let count = |count: u64, word: &str| format!("{word} {}", number(count));
    if namespace.would_refuse > 0 {
        parts.push(count(namespace.would_refuse, "would refuse"));
    }
    if namespace.refused > 0 {
        parts.push(count(namespace.refused, "refused"));
    }
    if let Some(calls) = (!parts.is_empty()).then(|| times(namespace.operations, "call")) {
        parts = vec![format!("{} of {calls}", parts.join(", "))];
    }
    if namespace.overlaps > 0 {
        let overlaps = times(namespace.overlaps, "time");
        parts.push(format!("{overlaps} a former holder acted while another held the lock"));
    }
    let own = families.keys().filter(|(name, _)| *name == namespace.namespace);
    match own.count() {
        0 => {}
        1 => parts.push("see the family above".to_owned()),
        some => parts.push(format!("see the {some} families above")),
    }
    if namespace.wanted_calls > 0 {
        let calls = times(namespace.wanted_calls, "call");
        parts.push(match namespace.wanted_until {
            Some(until) => format!("watch for {calls} more, or until {}", utc(until)),
            None => format!("watch for {calls} more"),
        });
    }
    match parts.is_empty() {
        true => namespace.verdict.clone(),
        false => harm.into_iter().chain(parts).collect::<Vec<_>>().join("; "),
    }
}

/// Locks whose value proves nothing, because another lock has the same.
pub(super) fn equal_values(namespace: &NamespaceReport) -> Option<String> {
    (namespace.equal_values > 0).then(|| {
        format!(
            "With the same value as another in namespace {}: {}, such as {}",
            plain(&namespace.namespace),
            number(namespace.equal_values),
            plain(&namespace.equal_values_examples.join(" and "))
        )
    })
}

/// Locks that never end by themselves.
pub(super) fn without_ttl(namespace: &NamespaceReport) -> Option<String> {
    (namespace.without_ttl > 0).then(|| {
        let examples = namespace.without_ttl_examples.join(", ");
        format!(
            "Without a TTL in namespace {}: {}{}",
            plain(&namespace.namespace),
            number(namespace.without_ttl),
            if examples.is_empty() { String::new() } else { format!(", such as {}", plain(&examples)) }
        )
    })
}

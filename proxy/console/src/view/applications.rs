//! The activity of each application: its refusals, also those that enforce mode would have made, and the findings about how it
//! uses its locks, with an example of each. Bounded: applications without room are counted together.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use lockwarden_control::telemetry::events::{ByCaller, Caller, EventKind, LockEvent};
use lockwarden_control::telemetry::vocabulary::{DecisionKind, Observation};
use lockwarden_control::text::durations::{share, times};
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::number;
use lockwarden_discovery::PatternId;
use lockwarden_lock::db_key::NamedMap;
use lockwarden_lock::reason::Reason;

use super::advice;
use super::advice::Finding;
use super::api::{Application, Misuse, MisusedPattern, Moment, PatternLockTime, Usage};
use super::by_namespace::ByNamespace;
use super::key_patterns::{KeyPatterns, PatternSeen};
use super::lock_time::Costs;
use super::mending;
use super::mending::{About, Loss, Mend};

/// Applications with counts of their own.
const MAX_APPLICATIONS: usize = 256;
/// Namespaces of one application.
const MAX_NAMESPACES: usize = 64;
/// Libraries named per application.
const MAX_LIBRARIES: usize = 8;
/// The name that stands for applications without room.
const REST: &str = "__other__";
/// Refusals, and findings, of one application in one namespace with counts of their own; those on further key patterns are
/// counted together.
const MAX_FOUND: usize = 64;

/// A finding, its count, and the application.
pub(super) type FoundIn<'a> = (Finding, u64, &'a str);

/// All applications.
#[derive(Default)]
pub(super) struct Applications {
    named: Named,
    /// The places of applications with recently active connections.
    lately: ByCaller<usize>,
}

#[derive(Default)]
struct Named {
    all: Vec<Used>,
    by_name: HashMap<String, usize>,
}

/// The settings of a namespace; the default for one that is gone.
#[derive(Clone, Copy, Default)]
pub(super) struct Here {
    pub(super) mode: &'static str,
    /// It grants a lock again to its holder (`on_repeat`).
    pub(super) grants_repeats: bool,
    /// It accepts doubtful releases (`doubt`).
    pub(super) believes: bool,
}

#[derive(Default)]
struct Used {
    name: String,
    libraries: BTreeSet<Arc<str>>,
    namespaces: ByNamespace<UsedHere>,
}

#[derive(Default)]
struct UsedHere {
    operations: u64,
    acquired: u64,
    contended: u64,
    overlaps: u64,
    refused: u64,
    would_refuse: u64,
    would_modify: u64,
    refusals: ByPattern<Reason>,
    findings: ByPattern<Finding>,
    /// Lock time, by key pattern.
    costs: NamedMap<Option<PatternId>, Costs>,
}

/// Findings, by kind and key pattern.
type ByPattern<K> = NamedMap<(K, Option<PatternId>), Found>;

struct Found {
    count: u64,
    example: Arc<LockEvent>,
}

impl Found {
    /// Adds these counts to `all`, with this example as the latest.
    fn added_to<K: Eq + Hash>(&self, all: &mut NamedMap<K, Found>, what: K) {
        let before = all.get(&what).map_or(0, |found| found.count);
        let found = Found { count: before + self.count, example: self.example.clone() };
        all.insert(what, found);
    }

    /// Counts one more, with this example.
    fn again<K: Eq + Hash>(all: &mut ByPattern<K>, (what, pattern): (K, Option<PatternId>), example: &Arc<LockEvent>) {
        let example = example.clone();
        let has_room = all.len() < MAX_FOUND;
        let mut what = (what, pattern);
        if !has_room && !all.contains_key(&what) {
            what.1 = None;
        }
        match all.entry(what) {
            Occupied(mut found) => {
                let count = found.get().count + 1;
                found.insert(Found { count, example });
            }
            Vacant(place) => {
                place.insert(Found { count: 1, example });
            }
        }
    }
}

impl Applications {
    /// Counts an event of an application, and the lock time that it spent.
    pub(super) fn did(
        &mut self,
        caller: &Arc<Caller>,
        entry: &Arc<LockEvent>,
        pattern: Option<PatternId>,
        costs: &Costs,
    ) {
        let here = self.here(caller, &entry.namespace);
        if *costs != Costs::default() {
            here.costs_of(pattern).add(costs);
        }
        here.overlaps += u64::from(entry.overlap);
        // The verdict of a guard on data is no operation on the lock.
        if entry.guarded.is_some() {
            if let Some(reason) = entry.verdict.as_ref().and_then(|verdict| verdict.reason) {
                let finding = Finding::of_guarded(reason);
                Found::again(&mut here.findings, (finding, pattern), entry);
            }
            return;
        }
        here.operations += u64::from(entry.operation.is_some());
        here.acquired += u64::from(matches!(entry.happened, EventKind::Acquired { .. }));
        here.contended += u64::from(matches!(entry.happened, EventKind::Contended { .. }));
        let Some(verdict) = &entry.verdict else {
            return;
        };
        match verdict.kind {
            DecisionKind::Deny => here.refused += 1,
            DecisionKind::WouldDeny => here.would_refuse += 1,
            DecisionKind::WouldModify => {
                here.would_modify += 1;
                return;
            }
            DecisionKind::Allow | DecisionKind::Modify => return,
        }
        let reason = verdict.reason.unwrap_or(Reason::Other);
        Found::again(&mut here.refusals, (reason, pattern), entry);
    }

    /// Adds later counts.
    pub(super) fn add(&mut self, later: &Applications) {
        for used in &later.named.all {
            let place = self.named.place(used.name.clone());
            let own = &mut self.named.all[place];
            own.uses(used.libraries.iter());
            for (namespace, here) in used.namespaces.iter() {
                own.here(namespace).add(here);
            }
        }
    }

    /// The number of counts.
    pub(super) fn size(&self) -> usize {
        let each = self.named.all.iter().flat_map(|used| used.namespaces.values());
        each.map(|here| 1 + here.refusals.len() + here.findings.len() + here.costs.len()).sum()
    }

    /// Counts a finding about an application.
    pub(super) fn found(
        &mut self,
        found: (Finding, Option<PatternId>),
        caller: &Arc<Caller>,
        example: &Arc<LockEvent>,
    ) {
        let here = self.here(caller, &example.namespace);
        Found::again(&mut here.findings, found, example);
    }

    /// Counts lock time under its leases.
    pub(super) fn spent(
        &mut self,
        caller: &Arc<Caller>,
        namespace: &Arc<str>,
        pattern: Option<PatternId>,
        costs: &Costs,
    ) {
        self.here(caller, namespace).costs_of(pattern).add(costs);
    }

    fn here(&mut self, caller: &Arc<Caller>, namespace: &Arc<str>) -> &mut UsedHere {
        let Applications { named, lately } = self;
        let place = lately.of(caller, |caller| {
            let place = named.place(caller.application());
            named.all[place].uses(caller.library.iter());
            place
        });
        self.named.all[place].here(namespace)
    }

    /// No event of a connection is to come: what is remembered of them goes.
    pub(super) fn forget_callers(&mut self) {
        self.lately = ByCaller::default();
    }

    /// All of them, those that would break first. `connections` are open now; `here` returns the settings of a namespace.
    pub(super) fn told(
        &self,
        connections: &HashMap<String, u64>,
        patterns: &KeyPatterns,
        here: impl Fn(&str) -> Here,
    ) -> Vec<Application> {
        let mut ranked: Vec<((u64, u64, u64), Application)> = self
            .named
            .all
            .iter()
            .map(|used| {
                let rank = (used.refusals(), used.breaking(&here), used.operations());
                let connections = connections.get(&used.name).copied().unwrap_or(0);
                (rank, used.told(connections, patterns, &here))
            })
            .collect();
        ranked.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.application.cmp(&other.application)));
        ranked.into_iter().map(|(_, told)| told).collect()
    }

    /// The applications with the most refusals in a namespace, by reason; also refusals that enforce mode would have made.
    pub(super) fn refused_most(&self, namespace: &str) -> Vec<(Reason, u64, &str)> {
        let mut by_reason: HashMap<Reason, (u64, u64, &str)> = HashMap::new();
        for used in &self.named.all {
            let name = used.name.as_str();
            let Some(here) = used.namespaces.get(namespace) else {
                continue;
            };
            for (reason, count) in sums(&here.refusals) {
                let (all, most, who) = by_reason.entry(reason).or_insert((0, 0, name));
                *all += count;
                if (count, &**who) > (*most, name) {
                    (*most, *who) = (count, name);
                }
            }
        }
        let mut ranked: Vec<(Reason, u64, &str)> =
            by_reason.into_iter().map(|(reason, (all, _, who))| (reason, all, who)).collect();
        ranked.sort_by_key(|(reason, all, _)| (std::cmp::Reverse(*all), *reason));
        ranked
    }

    /// Whether refused releases cost an application lock time on keys like these.
    pub(super) fn loses(
        &self,
        application: &str,
        namespace: &str,
        is_meant: impl Fn(Option<PatternId>) -> bool,
    ) -> bool {
        let used = self.named.by_name.get(application).map(|place| &self.named.all[*place]);
        let here = used.and_then(|used| used.namespaces.get(namespace));
        here.is_some_and(|here| {
            let lost = |costs: &Costs| costs.foretold.unheld_ms > 0 || costs.seen.unheld_ms > 0;
            let mut meant = here.costs.iter().filter(|(pattern, _)| is_meant(**pattern));
            meant.any(|(_, costs)| lost(costs))
        })
    }

    /// How often this was found in a namespace, by key pattern.
    pub(super) fn found_on(&self, namespace: &str, what: Finding) -> Vec<(Option<PatternId>, u64)> {
        let here = self.named.all.iter().filter_map(|used| used.namespaces.get(namespace));
        let found = here.flat_map(|here| &here.findings);
        let these = found.filter(|((finding, _), _)| *finding == what);
        these.map(|((_, pattern), found)| (*pattern, found.count)).collect()
    }

    /// The findings of this kind in a namespace, the most frequent first.
    pub(super) fn found_in(&self, namespace: &str, is_one: impl Fn(Finding) -> bool) -> Vec<FoundIn<'_>> {
        let mut found: Vec<FoundIn<'_>> = Vec::new();
        for used in &self.named.all {
            let name = used.name.as_str();
            let Some(here) = used.namespaces.get(namespace) else {
                continue;
            };
            let these = sums(&here.findings).into_iter();
            let these = these.filter(|(finding, _)| is_one(*finding));
            found.extend(these.map(|(finding, count)| (finding, count, name)));
        }
        found.sort_by_key(|(finding, count, name)| (std::cmp::Reverse(*count), finding.word(), *name));
        found
    }
}

impl Named {
    /// The place of the application with this name, or of the rest.
    fn place(&mut self, name: String) -> usize {
        let has_room = self.all.len() < MAX_APPLICATIONS || self.by_name.contains_key(&name);
        let name = if has_room { name } else { REST.to_owned() };
        let all = &mut self.all;
        *self.by_name.entry(name).or_insert_with_key(|name| {
            all.push(Used { name: name.clone(), ..Used::default() });
            all.len() - 1
        })
    }
}

impl Used {
    fn uses<'a>(&mut self, libraries: impl Iterator<Item = &'a Arc<str>>) {
        for library in libraries {
            if self.libraries.len() < MAX_LIBRARIES && !self.libraries.contains(library) {
                self.libraries.insert(library.clone());
            }
        }
    }

    fn here(&mut self, namespace: &Arc<str>) -> &mut UsedHere {
        if self.namespaces.len() < MAX_NAMESPACES || self.namespaces.get(namespace).is_some() {
            return self.namespaces.of(namespace);
        }
        self.namespaces.of(&REST.into())
    }

    fn sum(&self, of: impl Fn(&UsedHere) -> u64) -> u64 {
        self.namespaces.values().map(of).sum()
    }

    fn operations(&self) -> u64 {
        self.sum(|here| here.operations)
    }

    fn refusals(&self) -> u64 {
        self.sum(|here| here.refused + here.would_refuse)
    }

    fn breaking(&self, here: &impl Fn(&str) -> Here) -> u64 {
        self.named(Used::may_break(here)).values().sum()
    }

    fn may_break(here: &impl Fn(&str) -> Here) -> impl Fn(&str, Finding) -> bool {
        |namespace, finding| finding.may_break(here(namespace).grants_repeats)
    }

    fn told(&self, connections: u64, patterns: &KeyPatterns, here_of: &impl Fn(&str) -> Here) -> Application {
        let mut namespaces: Vec<Usage> = self
            .namespaces
            .iter()
            .map(|(namespace, here)| {
                let own = Whose { application: &self.name, namespace, patterns };
                here.told(&own, here_of(namespace))
            })
            .collect();
        namespaces.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        let ready = self.refusals() == 0 && self.breaking(here_of) == 0;
        Application {
            application: self.name.clone(),
            libraries: self.libraries.iter().map(ToString::to_string).collect(),
            connections,
            ready,
            verdict: self.verdict(here_of),
            namespaces,
        }
    }

    /// The findings of this kind, by word.
    fn named(&self, is_one: impl Fn(&str, Finding) -> bool) -> BTreeMap<&'static str, u64> {
        let mut named = BTreeMap::new();
        for (namespace, here) in self.namespaces.iter() {
            for ((finding, _), found) in &here.findings {
                if is_one(namespace, *finding) {
                    *named.entry(finding.word()).or_default() += found.count;
                }
            }
        }
        named
    }

    fn verdict(&self, here: &impl Fn(&str) -> Here) -> String {
        let operations = self.operations();
        let would = self.sum(|here| here.would_refuse);
        let refused = self.sum(|here| here.refused);
        let of = |count: u64| {
            let calls = times(operations, "call");
            format!("{} of {calls} ({})", number(count), share(count, operations))
        };
        let mut costs = Costs::default();
        self.namespaces.values().for_each(|here| costs.add(&here.costs()));
        let mut parts: Vec<String> = costs.words().into_iter().collect();
        if would > 0 {
            parts.push(format!("enforce mode would refuse {}", of(would)));
        }
        if refused > 0 {
            let calls = times(operations, "call");
            let share = share(refused, operations);
            parts.push(format!("{} of {calls} were refused ({share})", number(refused)));
        }
        for (what, count) in self.named(Used::may_break(here)) {
            parts.push(format!("look at {what} ({})", times(count, "time")));
        }
        if parts.is_empty() {
            parts.push(format!("ready: nothing to refuse in {}", times(operations, "call")));
        }
        let changes = self.named(|_, finding| finding.would_change());
        if !changes.is_empty() {
            let changes = changes.iter().map(|(what, count)| format!("{what} ({})", times(*count, "time")));
            let changes: Vec<String> = changes.collect();
            parts.push(format!("enforce mode would change {}", changes.join(", ")));
        }
        let guarded = self.named(|_, finding| finding.is_of_guard());
        if !guarded.is_empty() {
            let guarded = guarded.iter().map(|(what, count)| format!("{what} ({})", times(*count, "time")));
            let guarded: Vec<String> = guarded.collect();
            parts.push(format!("of guarded data: {}", guarded.join(", ")));
        }
        parts.join("; ")
    }
}

impl UsedHere {
    fn costs_of(&mut self, pattern: Option<PatternId>) -> &mut Costs {
        let has_room = self.costs.len() < MAX_FOUND || self.costs.contains_key(&pattern);
        self.costs.entry(pattern.filter(|_| has_room)).or_default()
    }

    /// How refused releases of its own cost it lock time, if they do.
    fn loss_of(&self, pattern: Option<PatternId>, set: Here) -> Loss {
        let costs = self.costs.get(&pattern).copied().unwrap_or_default();
        let after_refusal = Finding::Observed(Observation::RefusedThenReleased);
        if costs.foretold.unheld_ms <= 0 && costs.seen.unheld_ms <= 0 {
            return Loss::None;
        }
        match self.findings.contains_key(&(after_refusal, pattern)) {
            // Where doubtful releases are accepted, only a client that releases too often is refused.
            true if set.believes => Loss::TooMany,
            true => Loss::AfterRefusal,
            false => Loss::OverOthers,
        }
    }

    fn lost_on(&self, own: &Whose<'_>) -> Vec<PatternLockTime> {
        let mut lost: BTreeMap<String, Costs> = BTreeMap::new();
        for (pattern, costs) in &self.costs {
            let place = own.patterns.known(own.namespace, *pattern);
            lost.entry(own.patterns.glob(place)).or_default().add(costs);
        }
        let told = lost.into_iter().map(|(pattern, costs)| PatternLockTime {
            pattern,
            foretold: (&costs.foretold).into(),
            seen: (&costs.seen).into(),
        });
        told.filter(|one| one.foretold.is_lost() || one.seen.is_lost()).collect()
    }

    fn costs(&self) -> Costs {
        let mut all = Costs::default();
        self.costs.values().for_each(|costs| all.add(costs));
        all
    }

    fn add(&mut self, later: &UsedHere) {
        self.operations += later.operations;
        self.acquired += later.acquired;
        self.contended += later.contended;
        self.overlaps += later.overlaps;
        self.refused += later.refused;
        self.would_refuse += later.would_refuse;
        self.would_modify += later.would_modify;
        for (pattern, costs) in &later.costs {
            self.costs_of(*pattern).add(costs);
        }
        for (reason, found) in &later.refusals {
            found.added_to(&mut self.refusals, *reason);
        }
        for (finding, found) in &later.findings {
            found.added_to(&mut self.findings, *finding);
        }
    }

    fn told(&self, own: &Whose<'_>, set: Here) -> Usage {
        let loss_of = |pattern| self.loss_of(pattern, set);
        let refusals = grouped(&self.refusals).into_iter().map(|(reason, found)| {
            let mend = |about: &About<'_>| mending::of_reason(reason, about);
            let advice = advice::for_reason(reason);
            own.misuse((reason.word(), &advice, true), &found, loss_of, mend)
        });
        let findings = grouped(&self.findings).into_iter().map(|(finding, found)| {
            let mend = |about: &About<'_>| mending::of_finding(finding, about);
            let breaks = finding.may_break(set.grants_repeats);
            let words = (finding.word(), advice::for_finding(finding), breaks);
            own.misuse(words, &found, loss_of, mend)
        });
        Usage {
            namespace: own.namespace.to_owned(),
            mode: set.mode.to_owned(),
            operations: self.operations,
            acquired: self.acquired,
            contended: self.contended,
            overlaps: self.overlaps,
            would_modify: self.would_modify,
            foretold: (&self.costs().foretold).into(),
            seen: (&self.costs().seen).into(),
            lost_on: self.lost_on(own),
            refusals: most_first(refusals.collect()),
            findings: most_first(findings.collect()),
        }
    }
}

/// The findings on the keys of one pattern.
type OnPattern<'a> = (Option<PatternId>, &'a Found);

/// The application whose misuses are reported.
struct Whose<'a> {
    application: &'a str,
    namespace: &'a str,
    patterns: &'a KeyPatterns,
}

impl Whose<'_> {
    fn misuse(
        &self,
        (what, advice, breaks): (&str, &str, bool),
        found: &[OnPattern<'_>],
        loss_of: impl Fn(Option<PatternId>) -> Loss,
        mend: impl Fn(&About<'_>) -> Mend,
    ) -> Misuse {
        let mut patterns: Vec<MisusedPattern> = Vec::new();
        for (pattern, found) in found {
            let place = self.patterns.known(self.namespace, *pattern);
            let name = self.patterns.glob(place);
            let last = found.example.at_ms;
            // Several patterns may have been merged since.
            if let Some(known) = patterns.iter_mut().find(|one| one.pattern == name) {
                known.count += found.count;
                known.last = known.last.max(last);
                continue;
            }
            let seen = self.patterns.get(self.namespace, place);
            let mend = mend(&About {
                application: self.application,
                example: &found.example,
                wanted_ms: seen.and_then(|seen| seen.holds.wanted_ttl_ms()),
                longest_ms: seen.and_then(PatternSeen::longest_ttl_ms),
                loss: loss_of(*pattern),
            });
            patterns.push(MisusedPattern {
                pattern: name,
                key: spell(found.example.key.bytes()),
                db: found.example.key.db(),
                count: found.count,
                last,
                code: mend.code,
                toml: mend.toml,
            });
        }
        patterns.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.pattern.cmp(&b.pattern)));
        let last = found.iter().max_by_key(|(_, found)| found.example.at_ms);
        let (_, last) = last.expect("something was found on some pattern");
        Misuse {
            what: what.to_owned(),
            count: found.iter().map(|(_, found)| found.count).sum(),
            last: last.example.at_ms,
            example: Moment::of(&last.example),
            breaks,
            advice: advice.to_owned(),
            patterns,
        }
    }
}

/// The count of each.
fn sums<K: Copy + Eq + Hash>(all: &ByPattern<K>) -> HashMap<K, u64> {
    let mut sums = HashMap::new();
    for ((what, _), found) in all {
        *sums.entry(*what).or_default() += found.count;
    }
    sums
}

/// The findings, each with its patterns.
fn grouped<K: Copy + Eq + Hash>(all: &ByPattern<K>) -> HashMap<K, Vec<OnPattern<'_>>> {
    let mut grouped: HashMap<K, Vec<OnPattern<'_>>> = HashMap::new();
    for ((what, pattern), found) in all {
        grouped.entry(*what).or_default().push((*pattern, found));
    }
    grouped
}

fn most_first(mut misuses: Vec<Misuse>) -> Vec<Misuse> {
    misuses.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.what.cmp(&b.what)));
    misuses
}

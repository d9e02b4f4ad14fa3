//! Who does what, by application: what each was refused or would have been, and what was found about
//! how it uses its locks, with an example of each. Bounded: applications that come when there is no more
//! room are told of together.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use lockwarden_lock::reason::Reason;

use super::api::{Application, Misuse, Usage};
use super::telling::moment;
use super::words::{share, times};
use super::{advice, telling};
use crate::metrics::{DecisionKind, Label, Observation};
use crate::trail::{Caller, Entry, Happened};
use crate::words::number;

/// Applications that are told apart.
const MOST_APPLICATIONS: usize = 256;
/// Namespaces of one application.
const MOST_NAMESPACES: usize = 64;
/// Libraries of one application that are named.
const MOST_LIBRARIES: usize = 8;
/// What stands for those without room.
const REST: &str = "__other__";

/// Something that was found about how an application uses its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Finding {
    Observed(Observation),
    /// A release that named no owner token.
    TokenlessRelease,
    /// A release over another connection than the one that took the lock.
    Pooled,
    /// A lease that ran out before it was given back.
    RanOut,
    /// A lease that keep-alive brought over its TTL.
    KeptAlive,
    /// A command that was forwarded unjudged.
    Unjudged,
    /// An operation on a lease without a record.
    Ungoverned,
}

impl Finding {
    pub(super) fn word(self) -> &'static str {
        match self {
            Finding::Observed(observation) => observation.word(),
            Finding::TokenlessRelease => "tokenless-release",
            Finding::Pooled => "pooled",
            Finding::RanOut => "ran-out",
            Finding::KeptAlive => "kept-alive",
            Finding::Unjudged => "unjudged",
            Finding::Ungoverned => "ungoverned",
        }
    }

    /// Whether work that goes well now may not, once the namespace is enforced.
    fn may_break(self) -> bool {
        match self {
            Finding::Observed(
                Observation::SharedToken
                | Observation::SharedSession
                | Observation::RefusedThenReleased
                | Observation::Outlived,
            )
            | Finding::Unjudged => true,
            // What they bring about is refused, or not, and counted as that.
            Finding::Observed(Observation::Debt)
            | Finding::TokenlessRelease
            | Finding::Pooled
            | Finding::RanOut
            | Finding::KeptAlive
            | Finding::Ungoverned => false,
        }
    }
}

/// All applications.
#[derive(Default)]
pub(super) struct Applications {
    by_name: HashMap<String, Used>,
}

#[derive(Default)]
struct Used {
    libraries: BTreeSet<Arc<str>>,
    namespaces: HashMap<Arc<str>, UsedHere>,
}

#[derive(Default)]
struct UsedHere {
    operations: u64,
    acquired: u64,
    contended: u64,
    overlaps: u64,
    refused: u64,
    would_refuse: u64,
    refusals: HashMap<Reason, Found>,
    findings: HashMap<Finding, Found>,
}

struct Found {
    count: u64,
    example: Arc<Entry>,
}

impl Found {
    fn again(found: Option<Found>, example: &Arc<Entry>) -> Found {
        Found {
            count: found.map_or(0, |found| found.count) + 1,
            example: example.clone(),
        }
    }
}

impl Applications {
    /// An application did something.
    pub(super) fn did(&mut self, caller: &Caller, entry: &Arc<Entry>) {
        let here = self.here(caller, &entry.namespace);
        here.overlaps += u64::from(entry.overlap);
        here.operations += u64::from(entry.operation.is_some());
        here.acquired += u64::from(matches!(entry.happened, Happened::Acquired { .. }));
        here.contended += u64::from(matches!(entry.happened, Happened::Contended { .. }));
        let Some(verdict) = &entry.verdict else {
            return;
        };
        match verdict.kind {
            DecisionKind::Deny => here.refused += 1,
            DecisionKind::WouldDeny => here.would_refuse += 1,
            DecisionKind::Allow | DecisionKind::Modify => return,
        }
        let reason = verdict.reason.unwrap_or(Reason::Other);
        let found = here.refusals.remove(&reason);
        here.refusals.insert(reason, Found::again(found, entry));
    }

    /// Something was found about it.
    pub(super) fn found(&mut self, finding: Finding, caller: &Caller, example: &Arc<Entry>) {
        let here = self.here(caller, &example.namespace);
        let found = here.findings.remove(&finding);
        here.findings.insert(finding, Found::again(found, example));
    }

    fn here(&mut self, caller: &Caller, namespace: &Arc<str>) -> &mut UsedHere {
        let name = telling::application(caller);
        let has_room = self.by_name.len() < MOST_APPLICATIONS || self.by_name.contains_key(&name);
        let name = if has_room { name } else { REST.to_owned() };
        let used = self.by_name.entry(name).or_default();
        if let Some(library) = &caller.library
            && used.libraries.len() < MOST_LIBRARIES
            && !used.libraries.contains(library)
        {
            used.libraries.insert(library.clone());
        }
        let namespaces = &mut used.namespaces;
        let has_room = namespaces.len() < MOST_NAMESPACES || namespaces.contains_key(namespace);
        let namespace = if has_room {
            namespace.clone()
        } else {
            REST.into()
        };
        namespaces.entry(namespace).or_default()
    }

    /// All of them, those that would break first. `connections` are open now; `mode_of` a namespace.
    pub(super) fn told(
        &self,
        connections: &HashMap<String, u64>,
        mode_of: impl Fn(&str) -> &'static str,
    ) -> Vec<Application> {
        let mut ranked: Vec<((u64, u64, u64), Application)> = self
            .by_name
            .iter()
            .map(|(name, used)| {
                let rank = (used.refusals(), used.breaking(), used.operations());
                let connections = connections.get(name).copied().unwrap_or(0);
                (rank, used.told(name, connections, &mode_of))
            })
            .collect();
        ranked.sort_by(|(a, one), (b, other)| {
            b.cmp(a)
                .then_with(|| one.application.cmp(&other.application))
        });
        ranked.into_iter().map(|(_, told)| told).collect()
    }

    /// Who was refused most in a namespace, or would have been, by reason.
    pub(super) fn refused_most(&self, namespace: &str) -> Vec<(Reason, u64, &str)> {
        let mut by_reason: HashMap<Reason, (u64, u64, &str)> = HashMap::new();
        for (name, used) in &self.by_name {
            let Some(here) = used.namespaces.get(namespace) else {
                continue;
            };
            for (reason, found) in &here.refusals {
                let (all, most, who) = by_reason.entry(*reason).or_insert((0, 0, name));
                *all += found.count;
                if (found.count, &**who) > (*most, name) {
                    (*most, *who) = (found.count, name);
                }
            }
        }
        let mut ranked: Vec<(Reason, u64, &str)> = by_reason
            .into_iter()
            .map(|(reason, (all, _, who))| (reason, all, who))
            .collect();
        ranked.sort_by_key(|(reason, all, _)| (std::cmp::Reverse(*all), *reason));
        ranked
    }

    /// What was found in a namespace that may break work once it is enforced.
    pub(super) fn breaking_in(&self, namespace: &str) -> Vec<(Finding, u64, &str)> {
        let mut found: Vec<(Finding, u64, &str)> = Vec::new();
        for (name, used) in &self.by_name {
            let Some(here) = used.namespaces.get(namespace) else {
                continue;
            };
            let breaking = here
                .findings
                .iter()
                .filter(|(finding, _)| finding.may_break());
            found.extend(breaking.map(|(finding, what)| (*finding, what.count, name.as_str())));
        }
        found.sort_by_key(|(finding, count, name)| {
            (std::cmp::Reverse(*count), finding.word(), *name)
        });
        found
    }
}

impl Used {
    fn sum(&self, of: impl Fn(&UsedHere) -> u64) -> u64 {
        self.namespaces.values().map(of).sum()
    }

    fn operations(&self) -> u64 {
        self.sum(|here| here.operations)
    }

    fn refusals(&self) -> u64 {
        self.sum(|here| here.refused + here.would_refuse)
    }

    fn breaking(&self) -> u64 {
        self.sum(|here| {
            let breaking = here
                .findings
                .iter()
                .filter(|(finding, _)| finding.may_break());
            breaking.map(|(_, found)| found.count).sum()
        })
    }

    fn told(
        &self,
        name: &str,
        connections: u64,
        mode_of: &impl Fn(&str) -> &'static str,
    ) -> Application {
        let mut namespaces: Vec<Usage> = self
            .namespaces
            .iter()
            .map(|(namespace, here)| here.told(namespace, mode_of(namespace)))
            .collect();
        namespaces.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        let ready = self.refusals() == 0 && self.breaking() == 0;
        Application {
            application: name.to_owned(),
            libraries: self.libraries.iter().map(ToString::to_string).collect(),
            connections,
            ready,
            verdict: self.verdict(),
            namespaces,
        }
    }

    fn verdict(&self) -> String {
        let operations = self.operations();
        let would = self.sum(|here| here.would_refuse);
        let refused = self.sum(|here| here.refused);
        let of = |count: u64| {
            let calls = times(operations, "call");
            format!(
                "{} of {calls} ({})",
                number(count),
                share(count, operations)
            )
        };
        let mut parts = Vec::new();
        if would > 0 {
            parts.push(format!("enforce mode would refuse {}", of(would)));
        }
        if refused > 0 {
            let calls = times(operations, "call");
            let share = share(refused, operations);
            parts.push(format!(
                "{} of {calls} were refused ({share})",
                number(refused)
            ));
        }
        let mut breaking: Vec<(&str, u64)> = Vec::new();
        for here in self.namespaces.values() {
            let findings = here
                .findings
                .iter()
                .filter(|(finding, _)| finding.may_break());
            breaking.extend(findings.map(|(finding, found)| (finding.word(), found.count)));
        }
        breaking.sort_unstable();
        for (what, count) in breaking {
            parts.push(format!("look at {what} ({})", times(count, "time")));
        }
        if parts.is_empty() {
            return format!("ready: nothing to refuse in {}", times(operations, "call"));
        }
        parts.join("; ")
    }
}

impl UsedHere {
    fn told(&self, namespace: &str, mode: &str) -> Usage {
        let refusals = self
            .refusals
            .iter()
            .map(|(reason, found)| found.told(reason.word(), advice::for_reason(*reason)));
        let findings = self
            .findings
            .iter()
            .map(|(finding, found)| found.told(finding.word(), advice::for_finding(*finding)));
        Usage {
            namespace: namespace.to_owned(),
            mode: mode.to_owned(),
            operations: self.operations,
            acquired: self.acquired,
            contended: self.contended,
            overlaps: self.overlaps,
            refusals: most_first(refusals.collect()),
            findings: most_first(findings.collect()),
        }
    }
}

impl Found {
    fn told(&self, what: &str, advice: &str) -> Misuse {
        Misuse {
            what: what.to_owned(),
            count: self.count,
            last: self.example.at_ms,
            example: moment(&self.example),
            advice: advice.to_owned(),
        }
    }
}

fn most_first(mut misuses: Vec<Misuse>) -> Vec<Misuse> {
    misuses.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.what.cmp(&b.what)));
    misuses
}

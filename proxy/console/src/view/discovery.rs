//! Keys that belong to no namespace, in the types of the API.

use lockwarden_control::clock::now_ms;
use lockwarden_control::text::durations::duration;
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::counted;
use lockwarden_dataplane::state::ProxyState;
use lockwarden_discovery::collector::Collector;
use lockwarden_discovery::guards::GuardCandidate;
use lockwarden_discovery::propose::{Candidate, is_proposed};
use lockwarden_discovery::{Confidence, Kind, Pattern, UnknownScript, guards, propose};
use lockwarden_lock::data_guard::DataGuards;
use lockwarden_lock::glob::Glob;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::script_facts::ScriptSha;

use super::api;
use super::service::ViewService;

impl ViewService {
    /// See [`super::Views::discovery`].
    pub(super) fn discovered(&self) -> api::Discovery {
        let active = self.shared.active.load();
        let names: Vec<String> = active.details.iter().map(|details| details.name.to_string()).collect();
        let unseen = self.shared.discovery.unseen();
        let collected = self.shared.discovery.collected();
        let passed = collected.since.elapsed().as_millis();
        let watched = Watched {
            for_ms: u64::try_from(passed).unwrap_or(u64::MAX),
            unseen,
            unreadable: 0,
            knows: &|sha| self.shared.knows_script(sha),
        };
        let guards = active.guards.details.iter();
        let governed = Governed {
            namespaces: &active.namespaces,
            is_implied: active.details.iter().any(|details| details.is_implied),
            names: &names,
            guards: &active.guards.index,
            guard_names: &guards.map(|guard| guard.name.to_string()).collect::<Vec<_>>(),
        };
        told(&collected.collector, &governed, &watched)
    }
}

/// The parts of the configuration that exist already.
pub struct Governed<'a> {
    pub namespaces: &'a Namespaces,
    /// Its one namespace is implied, because no file names one. A file that does replaces it, so its locks are proposed, too.
    pub is_implied: bool,
    pub names: &'a [String],
    pub guards: &'a DataGuards,
    pub guard_names: &'a [String],
}

impl Governed<'_> {
    /// Whether the key belongs to a namespace that stays.
    fn has(&self, key: &[u8]) -> bool {
        !self.is_implied && self.namespaces.find(key).is_some()
    }
}

/// The number of patterns that look like locks and belong to no namespace.
pub fn unclaimed(shared: &ProxyState) -> u64 {
    let active = shared.active.load();
    let collected = shared.discovery.collected();
    let unknown = collected.collector.unknown_scripts(&|sha| shared.knows_script(sha));
    let patterns = patterns(&collected.collector, &unknown);
    let is_free = |pattern: &&Pattern<'_>| is_unclaimed(pattern, &active.namespaces);
    patterns.iter().filter(is_free).count() as u64
}

/// The time of the observation, and its gaps.
pub struct Watched<'a> {
    pub for_ms: u64,
    pub unseen: u64,
    pub unreadable: u64,
    /// Whether a script is known.
    pub knows: &'a dyn Fn(&ScriptSha) -> bool,
}

/// Every pattern. Where unknown scripts were called on its keys, they may have released keys that seem never to be released:
/// then its kind is a guess.
fn patterns<'a>(collector: &'a Collector, unknown: &[UnknownScript]) -> Vec<Pattern<'a>> {
    let mut patterns = collector.patterns();
    for pattern in &mut patterns {
        let calls = unknown.iter().find(|one| one.glob == pattern.glob);
        if let Some(calls) = calls.filter(|_| pattern.verdict.kind != Kind::Lock) {
            pattern.verdict.confidence = Confidence::Guess;
            let calls = counted(calls.calls, "call", "calls");
            let why = format!("; but {calls} of scripts that are not known here may have given it back");
            pattern.verdict.why.push_str(&why);
        }
    }
    patterns
}

/// The collected patterns, without the keys that belong to namespaces by now.
pub fn told(collector: &Collector, governed: &Governed<'_>, watched: &Watched<'_>) -> api::Discovery {
    let now = now_ms();
    let namespaces = governed.namespaces;
    let mut unknown = collector.unknown_scripts(watched.knows);
    let mut patterns = patterns(collector, &unknown);
    unknown.retain(|one| !governed.has(&one.example));
    patterns.retain(|pattern| !governed.has(&pattern.usage.example));
    let is_free = |pattern: &&Pattern<'_>| is_unclaimed(pattern, namespaces);
    let unclaimed = patterns.iter().filter(is_free).count() as u64;
    let locks = patterns.iter().filter(|pattern| is_lock(pattern)).count() as u64;
    let candidates: Vec<Candidate> = patterns.iter().map(Candidate::from).collect();
    let proposed = proposed_guards(collector, &candidates, governed);
    let for_guards = guards::toml(&proposed, governed.guard_names);
    let period = duration(watched.for_ms);
    let toml = propose::toml(&candidates, &for_guards, &period, governed.names);
    api::Discovery {
        since: now.saturating_sub(watched.for_ms),
        now,
        unseen: watched.unseen + unknown.iter().map(|one| one.calls).sum::<u64>(),
        unreadable: watched.unreadable,
        unknown_scripts: unknown.iter().map(unknown_script).collect(),
        beyond: collector.beyond(),
        unclaimed,
        implied: locks.saturating_sub(unclaimed),
        patterns: patterns.iter().map(pattern).collect(),
        guards: proposed.iter().map(guard).collect(),
        toml,
    }
}

/// Guards of data whose locks belong to a namespace, or to one that is proposed at the same time.
fn proposed_guards(collector: &Collector, candidates: &[Candidate], governed: &Governed<'_>) -> Vec<GuardCandidate> {
    let locks = candidates.iter().filter(|candidate| is_proposed(candidate));
    let globs: Vec<Glob> = locks.map(|lock| Glob::new(lock.glob.clone().into())).collect();
    let is_lock = |key: &[u8]| governed.has(key) || globs.iter().any(|glob| glob.matches(key));
    let is_guarded = |key: &[u8]| !governed.guards.of_key(key).is_empty();
    guards::proposed(collector.guards(), &is_lock, &is_guarded)
}

fn unknown_script(one: &UnknownScript) -> api::UnknownScripts {
    api::UnknownScripts {
        pattern: spell(&one.glob),
        example: spell(&one.example),
        calls: one.calls,
        scripts: one.scripts.iter().map(ToString::to_string).collect(),
    }
}

fn guard(one: &GuardCandidate) -> api::ProposedGuard {
    let outsiders = one.outsiders.iter();
    let outside = one.outside.as_ref();
    let starters = one.starters.iter();
    api::ProposedGuard {
        keys: spell(one.keys.as_bytes()),
        lock: spell(one.lock.as_bytes()),
        example: spell(&one.example),
        example_lock: spell(&one.example_lock),
        under: one.under,
        without: one.without,
        locks: one.locks,
        fixed: one.is_fixed,
        words: one.words.clone(),
        outsiders: outsiders
            .map(|(application, writes)| api::Outsider { application: application.clone(), writes: *writes })
            .collect(),
        outside: outside
            .map(|(key, application)| api::OutsideWrite { key: spell(key), application: application.clone() }),
        starters: starters
            .map(|(application, connections)| api::Starter {
                application: application.clone(),
                connections: *connections,
            })
            .collect(),
        unfit: one.is_unfit,
    }
}

fn is_lock(pattern: &Pattern<'_>) -> bool {
    pattern.verdict.kind.is_lock() && pattern.verdict.confidence > Confidence::Guess
}

fn is_unclaimed(pattern: &Pattern<'_>, namespaces: &Namespaces) -> bool {
    is_lock(pattern) && namespaces.find(&pattern.usage.example).is_none()
}

fn pattern(pattern: &Pattern<'_>) -> api::KeyPattern {
    let usage = pattern.usage;
    let taken_by = usage.tries.keys().map(|spelling| spelling.name().to_owned());
    let applications = usage.applications().iter();
    // Keys that are no locks have no hold time.
    let hold_ms = |share| usage.hold_ms(share).filter(|_| pattern.verdict.kind.is_lock());
    api::KeyPattern {
        pattern: spell(&pattern.glob),
        example: spell(&usage.example),
        kind: pattern.verdict.kind.name().to_owned(),
        confidence: pattern.verdict.confidence.name().to_owned(),
        why: pattern.verdict.why.clone(),
        taken_by: taken_by.collect(),
        keys: usage.keys(),
        tries: usage.tried(),
        granted: usage.granted,
        contended: usage.contended,
        released: usage.released,
        handed_over: usage.handed_over,
        foreign_releases: usage.foreign,
        swept: usage.swept,
        late_releases: usage.late,
        ran_out: usage.ran_out,
        extended: usage.extended,
        overwritten: usage.overwritten,
        without_ttl: usage.without_ttl + pattern.held_without_ttl,
        longest_ttl_ms: (usage.longest_ttl_ms > 0).then_some(usage.longest_ttl_ms),
        hold_p50_ms: hold_ms(0.5),
        hold_p99_ms: hold_ms(0.99),
        hold_p999_ms: hold_ms(0.999),
        hand_over: pattern.verdict.hands_over,
        one_value: usage.one_value && usage.granted > 1,
        first_seen: usage.first_ms,
        last_seen: usage.last_ms,
        words: pattern.words.clone(),
        named: pattern.is_named,
        applications: applications
            .map(|(application, by)| api::PatternUser {
                application: application.to_string(),
                tries: by.tries,
                granted: by.granted,
                deleted: by.deleted,
            })
            .collect(),
    }
}

//! What several proxies have seen of keys that no namespace has, put together: counts are added, the first and the last sighting
//! are the earliest and the latest, and of how long leases were held the largest is said, because percentiles cannot be added.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use lockwarden_discovery::guards::GuardCandidate;
use lockwarden_discovery::propose::Candidate;
use lockwarden_discovery::{Confidence, Kind, Spelling, Verdict, guards, propose};

use serde::Serialize;

use crate::cli::fleet::Answers;
use crate::text::durations;
use crate::text::escape::unspell;
use crate::text::numbers::counted;
use crate::view::api::{Discovery, KeyPattern, PatternUser, ProposedGuard, UnknownScripts};

/// Proxies that take keys for something else, named in a reason.
const MAX_NAMED: usize = 3;

/// What a proxy was asked.
#[derive(Debug, Serialize)]
pub(super) struct Seen {
    #[serde(flatten)]
    pub(super) found: Discovery,
    /// The names of its namespaces, where they are needed for a configuration of several.
    #[serde(skip)]
    pub(super) names: Vec<String>,
}

/// A pattern of a proxy.
type Of<'a> = (&'a str, &'a KeyPattern);

/// What they have seen together.
pub(super) fn merged(answers: &Answers<Seen>) -> Discovery {
    let mut by_glob: BTreeMap<&str, Vec<Of<'_>>> = BTreeMap::new();
    let found = || answers.answers.iter().map(|one| &one.answer.found);
    for one in &answers.answers {
        let proxy = one.proxy.as_deref().unwrap_or_default();
        for pattern in &one.answer.found.patterns {
            let all = by_glob.entry(&pattern.pattern).or_default();
            all.push((proxy, pattern));
        }
    }
    let mut patterns: Vec<KeyPattern> = by_glob.values().filter_map(|all| together(all)).collect();
    patterns.sort_by_key(|pattern| Reverse(pattern.tries));
    let is_lock =
        |pattern: &&KeyPattern| ["lock", "timed lock"].contains(&&*pattern.kind) && pattern.confidence != "a guess";
    let implied = found().map(|one| one.implied).max().unwrap_or(0);
    let now = found().map(|one| one.now).max().unwrap_or(0);
    let watched = found().map(|one| one.now.saturating_sub(one.since)).max();
    let watched = watched.unwrap_or(0);
    let names: BTreeSet<&String> = answers.answers.iter().flat_map(|one| &one.answer.names).collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    let candidates: Vec<Candidate> = patterns.iter().filter_map(candidate).collect();
    let all_guards = guards_together(answers);
    let proposed: Vec<GuardCandidate> = all_guards.iter().filter_map(guard_candidate).collect();
    let proxies = counted(answers.answers.len() as u64, "proxy", "proxies");
    let period = format!("{} at {proxies}", durations::duration(watched));
    Discovery {
        since: now.saturating_sub(watched),
        now,
        unseen: found().map(|one| one.unseen).sum(),
        unreadable: found().map(|one| one.unreadable).sum::<u64>() + (patterns.len() - candidates.len()) as u64,
        unknown_scripts: unknown_together(answers),
        beyond: found().map(|one| one.beyond).sum(),
        unclaimed: (patterns.iter().filter(is_lock).count() as u64).saturating_sub(implied),
        implied,
        toml: propose::toml(&candidates, &guards::toml(&proposed, &[]), &period, &names),
        guards: all_guards,
        patterns,
    }
}

/// Scripts that are not known, with the calls that proxies saw together.
fn unknown_together(answers: &Answers<Seen>) -> Vec<UnknownScripts> {
    let mut all: BTreeMap<&str, UnknownScripts> = BTreeMap::new();
    let answers = answers.answers.iter();
    for one in answers.flat_map(|one| &one.answer.found.unknown_scripts) {
        let Some(known) = all.get_mut(&*one.pattern) else {
            all.insert(&one.pattern, one.clone());
            continue;
        };
        known.calls = known.calls.saturating_add(one.calls);
        let new = one.scripts.iter().filter(|sha| !known.scripts.contains(sha));
        let new: Vec<String> = new.cloned().collect();
        known.scripts.extend(new);
    }
    let mut all: Vec<UnknownScripts> = all.into_values().collect();
    all.sort_by_key(|one| Reverse(one.calls));
    all
}

/// The guards that proxies propose, each once, with what they saw together. One of which they saw too little together is
/// left out.
fn guards_together(answers: &Answers<Seen>) -> Vec<ProposedGuard> {
    let mut all: BTreeMap<(&str, &str), ProposedGuard> = BTreeMap::new();
    let found = answers.answers.iter().flat_map(|one| &one.answer.found.guards);
    for one in found {
        let Some(known) = all.get_mut(&(&*one.keys, &*one.lock)) else {
            all.insert((&one.keys, &one.lock), one.clone());
            continue;
        };
        known.under = known.under.saturating_add(one.under);
        known.without = known.without.saturating_add(one.without);
        known.locks = known.locks.max(one.locks);
        known.unfit |= one.unfit;
        known.outside = known.outside.take().or_else(|| one.outside.clone());
        for outsider in &one.outsiders {
            let mut same = known.outsiders.iter_mut();
            match same.find(|by| by.application == outsider.application) {
                Some(by) => by.writes = by.writes.saturating_add(outsider.writes),
                None => known.outsiders.push(outsider.clone()),
            }
        }
        for starter in &one.starters {
            let mut same = known.starters.iter_mut();
            match same.find(|by| by.application == starter.application) {
                Some(by) => by.connections = by.connections.saturating_add(starter.connections),
                None => known.starters.push(starter.clone()),
            }
        }
    }
    let mut all: Vec<ProposedGuard> = all.into_values().collect();
    all.sort_by_key(|one| Reverse(one.under));
    all
}

/// What a guard follows from; nothing where a proxy says it in words that this version does not know.
fn guard_candidate(one: &ProposedGuard) -> Option<GuardCandidate> {
    let text = |spelled: &str| String::from_utf8(unspell(spelled)?).ok();
    let outsiders = one.outsiders.iter();
    let outside = one.outside.as_ref();
    let starters = one.starters.iter();
    let candidate = GuardCandidate {
        keys: text(&one.keys)?,
        lock: text(&one.lock)?,
        words: one.words.clone(),
        under: one.under,
        without: one.without,
        locks: one.locks,
        is_fixed: one.fixed,
        example: unspell(&one.example)?,
        example_lock: unspell(&one.example_lock)?,
        outsiders: outsiders.map(|by| (by.application.clone(), by.writes)).collect(),
        starters: starters.map(|by| (by.application.clone(), by.connections)).collect(),
        is_unfit: one.unfit,
        outside: outside.and_then(|one| Some((unspell(&one.key)?, one.application.clone()))),
    };
    candidate.guards(&candidate.example, &candidate.example_lock).then_some(candidate)
}

/// One pattern; nothing where no proxy has it.
fn together(all: &[Of<'_>]) -> Option<KeyPattern> {
    // Who is surest, and has seen most.
    let sure = |one: &&Of<'_>| (confidence(&one.1.confidence), one.1.granted, one.1.tries);
    let best = all.iter().max_by_key(sure)?;
    let sum = |count: fn(&KeyPattern) -> u64| all.iter().map(|(_, one)| count(one)).sum::<u64>();
    let most = |of: fn(&KeyPattern) -> Option<u64>| all.iter().filter_map(|(_, one)| of(one)).max();
    let taken_by: BTreeSet<&String> = all.iter().flat_map(|(_, one)| &one.taken_by).collect();
    Some(KeyPattern {
        why: why(best, all),
        taken_by: taken_by.into_iter().cloned().collect(),
        // The same keys may have been seen by several.
        keys: most(|one| Some(one.keys)).unwrap_or(0),
        tries: sum(|one| one.tries),
        granted: sum(|one| one.granted),
        contended: sum(|one| one.contended),
        released: sum(|one| one.released),
        handed_over: sum(|one| one.handed_over),
        foreign_releases: sum(|one| one.foreign_releases),
        swept: sum(|one| one.swept),
        late_releases: sum(|one| one.late_releases),
        ran_out: sum(|one| one.ran_out),
        extended: sum(|one| one.extended),
        overwritten: sum(|one| one.overwritten),
        without_ttl: sum(|one| one.without_ttl),
        longest_ttl_ms: most(|one| one.longest_ttl_ms),
        hold_p50_ms: most(|one| one.hold_p50_ms),
        hold_p99_ms: most(|one| one.hold_p99_ms),
        hold_p999_ms: most(|one| one.hold_p999_ms),
        one_value: all.iter().all(|(_, one)| one.one_value),
        first_seen: all.iter().map(|(_, one)| one.first_seen).min().unwrap_or(0),
        last_seen: all.iter().map(|(_, one)| one.last_seen).max().unwrap_or(0),
        applications: applications(all),
        ..best.1.clone()
    })
}

/// Why, by the proxy that is surest, and who takes the keys for something else.
fn why((proxy, best): &Of<'_>, all: &[Of<'_>]) -> String {
    let mut why = best.why.clone();
    if all.len() > 1 {
        why += &format!(", as {proxy} saw it");
    }
    let others = all.iter().filter(|(_, one)| one.kind != best.kind);
    for (proxy, one) in others.take(MAX_NAMED) {
        why += &format!("; {} at {proxy} ({})", one.kind, one.confidence);
    }
    why
}

fn applications(all: &[Of<'_>]) -> Vec<PatternUser> {
    let mut applications: BTreeMap<&str, PatternUser> = BTreeMap::new();
    for user in all.iter().flat_map(|(_, one)| &one.applications) {
        let known = applications.entry(&user.application);
        let known = known.or_insert_with(|| PatternUser {
            application: user.application.clone(),
            tries: 0,
            granted: 0,
            deleted: 0,
        });
        known.tries += user.tries;
        known.granted += user.granted;
        known.deleted += user.deleted;
    }
    applications.into_values().collect()
}

fn confidence(word: &str) -> Option<Confidence> {
    Confidence::ALL.into_iter().find(|one| one.name() == word)
}

/// What a proposal follows from; nothing where a proxy uses words that this version does not know.
fn candidate(pattern: &KeyPattern) -> Option<Candidate> {
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == pattern.kind)?;
    Some(Candidate {
        glob: unspell(&pattern.pattern)?,
        example: unspell(&pattern.example)?,
        is_named: pattern.named,
        words: pattern.words.clone(),
        verdict: Verdict {
            kind,
            confidence: confidence(&pattern.confidence)?,
            why: pattern.why.clone(),
            hands_over: pattern.hand_over,
        },
        counts: pattern.taken_by.iter().any(|name| name == Spelling::Incr.name()),
        released: pattern.released,
        handed_over: pattern.handed_over,
        foreign: pattern.foreign_releases,
        swept: pattern.swept,
        without_ttl: pattern.without_ttl,
        longest_ttl_ms: pattern.longest_ttl_ms.unwrap_or(0),
        hold_p999_ms: pattern.hold_p999_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fleet::Answer;
    use crate::view::api::Outsider;

    fn pattern(glob: &str, kind: &str, confidence: &str, granted: u64) -> KeyPattern {
        KeyPattern {
            pattern: glob.to_owned(),
            example: glob.replace('*', "7"),
            kind: kind.to_owned(),
            confidence: confidence.to_owned(),
            why: format!("seen {granted} times"),
            taken_by: vec!["SETNX".to_owned()],
            keys: granted / 2,
            tries: granted + 1,
            granted,
            contended: 1,
            released: granted,
            handed_over: 0,
            foreign_releases: 0,
            swept: 0,
            late_releases: 0,
            ran_out: 0,
            extended: 0,
            overwritten: 0,
            without_ttl: 0,
            longest_ttl_ms: Some(granted * 1_000),
            hold_p50_ms: Some(granted),
            hold_p99_ms: Some(granted * 2),
            hold_p999_ms: Some(granted * 3),
            hand_over: false,
            words: vec!["order".to_owned(), "lock".to_owned()],
            named: true,
            one_value: granted == 40,
            first_seen: 1_000 - granted,
            last_seen: 5_000 + granted,
            applications: vec![PatternUser {
                application: "billing".to_owned(),
                tries: granted,
                granted,
                deleted: granted,
            }],
        }
    }

    fn fleet(all: Vec<Vec<KeyPattern>>) -> Answers<Seen> {
        let numbered = (1..).zip(all);
        let answers = numbered.map(|(number, patterns)| Answer {
            proxy: Some(format!("proxy-{number}")),
            answer: Seen {
                found: Discovery {
                    since: 10_000,
                    now: 70_000,
                    unseen: 1,
                    unreadable: 0,
                    unknown_scripts: Vec::new(),
                    beyond: 2,
                    unclaimed: patterns.len() as u64,
                    implied: 0,
                    patterns,
                    guards: Vec::new(),
                    toml: String::new(),
                },
                names: vec!["order-lock".to_owned()],
            },
        });
        Answers::of_fleet(answers.collect())
    }

    #[test]
    fn counts_are_added_and_the_longest_hold_is_said() {
        let all = merged(&fleet(vec![
            vec![pattern("order:*:lock", "lock", "likely", 10)],
            vec![pattern("other", "cache", "certain", 30), pattern("order:*:lock", "lock", "certain", 40)],
        ]));
        assert_eq!((all.since, all.now), (10_000, 70_000));
        assert_eq!((all.unseen, all.beyond, all.unclaimed), (2, 4, 1));
        let [order, other] = &all.patterns[..] else {
            panic!("{:?}", all.patterns);
        };
        assert_eq!(other.tries, 31);
        assert_eq!((order.tries, order.granted, order.contended), (52, 50, 2));
        assert_eq!((&*order.confidence, &*order.why), ("certain", "seen 40 times, as proxy-2 saw it"));
        assert_eq!((order.first_seen, order.last_seen), (960, 5_040));
        assert_eq!((order.hold_p50_ms, order.hold_p99_ms), (Some(40), Some(80)), "of the slower one, no average");
        assert_eq!((order.keys, order.longest_ttl_ms), (20, Some(40_000)));
        assert!(!order.one_value);
        assert_eq!(order.applications.len(), 1);
        assert_eq!(order.applications[0].granted, 50);
        for said in [
            "# Proposed by lockwarden discover: what was seen in 1 min at 2 proxies.",
            "name = \"order-lock-2\"",
            "keys = [\"order:*:lock\"]",
            "# order:*:lock: lock, certain; seen 40 times, as proxy-2 saw it",
            "#   other: cache, certain; seen 30 times",
        ] {
            assert!(all.toml.contains(said), "{said}: {}", all.toml);
        }
        assert_eq!(all.toml.matches("[[namespace]]").count(), 1);
    }

    #[test]
    fn a_proxy_that_takes_keys_for_something_else_is_named() {
        let all = merged(&fleet(vec![
            vec![pattern("order:*", "lock", "certain", 40)],
            vec![pattern("order:*", "cache", "likely", 90)],
        ]));
        assert_eq!(all.patterns[0].kind, "lock", "it is surer");
        assert_eq!(all.patterns[0].why, "seen 40 times, as proxy-1 saw it; cache at proxy-2 (likely)");
    }

    #[test]
    fn guards_are_put_together_with_who_wrote_without_the_lock() {
        let guard = |under, application: &str| ProposedGuard {
            keys: "stock:{id}".to_owned(),
            lock: "lock:{id}".to_owned(),
            example: "stock:7".to_owned(),
            example_lock: "lock:7".to_owned(),
            under,
            without: 1,
            locks: 5,
            fixed: false,
            words: vec!["stock".to_owned()],
            outsiders: vec![Outsider { application: application.to_owned(), writes: 1 }],
            outside: None,
            starters: Vec::new(),
            unfit: false,
        };
        let mut fleet = fleet(vec![Vec::new(), Vec::new(), Vec::new()]);
        for (answer, guard) in fleet.answers.iter_mut().zip([
            guard(20, "importer"),
            guard(30, "importer"),
            ProposedGuard {
                // It says what no guard of these patterns would do.
                example_lock: "lock:8".to_owned(),
                keys: "order:{id}".to_owned(),
                ..guard(40, "editor")
            },
        ]) {
            answer.answer.found.guards = vec![guard];
        }
        let all = merged(&fleet);
        let [stock, _] = &all.guards[..] else {
            panic!("{:?}", all.guards);
        };
        assert_eq!((stock.under, stock.without, stock.outsiders[0].writes), (50, 2, 2));
        let said = "# stock:{id}: 50 of 52 writes under the lock; without it: importer (2)";
        assert!(all.toml.contains(said), "{}", all.toml);
        assert_eq!(all.toml.matches("[[guard]]").count(), 1, "{}", all.toml);
    }

    /// What only looks like a lockwarden may say anything, and a configuration is pasted.
    #[test]
    fn a_foreign_reason_ends_no_comment() {
        let mut one = pattern("order:*", "lock", "certain", 40);
        one.why = "it\nmode = \"enforce\"".to_owned();
        let toml = merged(&fleet(vec![vec![one]])).toml;
        assert!(toml.contains("it?mode"), "{toml}");
    }
}

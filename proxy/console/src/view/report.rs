//! The verdicts: whether a namespace could be enforced tomorrow, and what speaks against it.

use lockwarden_control::text::durations::{share, times};
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::{number, utc};

use super::advice::Finding;
use super::api::{LockTime, MixedFamily, NamespaceReport};
use super::applications::{Applications, FoundIn};
use super::families;
use super::key_patterns::{KeyPatterns, PatternSeen};
use super::tally::{Counts, Tally};

/// Reasons or findings named in a verdict.
const MAX_NAMED: usize = 4;
/// Calls that a namespace needs to be ready. If none of this many is refused, fewer than 3 in 1,000 are (with 95 % confidence:
/// the rule of three).
const ENOUGH_CALLS: u64 = 1_000;
/// A week is enough even for few calls: locks that are taken seldom were taken by then.
const ENOUGH_TIME_MS: u64 = 7 * 24 * 3_600_000;

/// Harm is more than one part in this many of the lock time, a twentieth, that enforcing would cost.
const HARM_IN: u64 = 20;

/// Facts about a namespace beside its observations.
pub(super) struct Standing<'a> {
    pub(super) namespace: &'a str,
    pub(super) enforced: bool,
    /// It grants a lock again to its holder (`on_repeat`).
    pub(super) grants_repeats: bool,
    /// The harm of enforcing it, in words.
    pub(super) harm: Option<String>,
    /// Locks without a TTL that are held now, or that the last scan of the server found.
    pub(super) without_ttl: u64,
    pub(super) without_ttl_examples: Vec<String>,
    /// Locks with the same value as another lock, as the last scan found.
    pub(super) equal_values: u64,
    pub(super) equal_values_examples: Vec<String>,
    pub(super) watched: Watched<'a>,
}

impl Standing<'_> {
    /// The findings that enforce mode would turn against an application.
    fn breaking<'a>(&self, applications: &'a Applications) -> Vec<(Finding, u64, &'a str)> {
        let is_one = |finding: Finding| finding.may_break(self.grants_repeats);
        applications.found_in(self.namespace, is_one)
    }
}

/// The period of the report, and how much of it is enough.
#[derive(Clone, Copy)]
pub(super) struct Watched<'a> {
    pub(super) patterns: &'a KeyPatterns,
    /// Unix ms.
    pub(super) since: u64,
    /// See `since`.
    pub(super) now: u64,
    /// The requested number of calls, in place of the rule.
    pub(super) enough: Option<u64>,
    /// The existing namespaces.
    pub(super) names: &'a [String],
}

impl Watched<'_> {
    /// How many more calls are needed, and until when to watch if there are fewer.
    fn wanted(&self, operations: u64) -> (u64, Option<u64>) {
        let calls = self.enough.unwrap_or(ENOUGH_CALLS);
        let more = calls.saturating_sub(operations);
        let until = self.since.saturating_add(ENOUGH_TIME_MS);
        match (more, self.enough) {
            (0, _) => (0, None),
            (_, None) if self.now >= until => (0, None),
            (more, None) => (more, Some(until)),
            (more, Some(_)) => (more, None),
        }
    }
}

pub(super) fn namespace(standing: Standing<'_>, tally: &Tally) -> NamespaceReport {
    let nothing = Counts::default();
    let seen = tally.namespaces.get(standing.namespace);
    let (seen, applications) = (seen.unwrap_or(&nothing), &tally.applications);
    let breaking = standing.breaking(applications);
    let refusals = seen.refused + seen.would_refuse;
    let watched = standing.watched;
    let (wanted_calls, wanted_until) = watched.wanted(seen.operations);
    let of_pattern = |(_, pattern): (_, &PatternSeen)| {
        let holds = pattern.holds.since(watched.since);
        holds.ran_out_while_held()
    };
    let told = Told {
        nothing_breaks: breaking.is_empty(),
        wanted_calls,
        wanted_until,
        ran_out_while_held: watched.patterns.of(standing.namespace).map(of_pattern).sum(),
        mixed: families::mixed(
            standing.namespace,
            (watched.patterns, applications),
            watched.since,
            (watched.names, standing.enforced),
        ),
    };
    let is_unharmed = standing.harm.is_none() && seen.overlaps == 0;
    let ready = seen.operations > 0 && refusals == 0 && is_unharmed && told.is_ready();
    NamespaceReport {
        namespace: standing.namespace.to_owned(),
        mode: if standing.enforced { "enforce" } else { "monitor" }.to_owned(),
        operations: seen.operations,
        refused: seen.refused,
        would_refuse: seen.would_refuse,
        would_modify: seen.would_modify,
        overlaps: seen.overlaps,
        ran_out: seen.ran_out,
        kept_alive: seen.kept_alive,
        ungoverned: seen.ungoverned,
        tokenless_releases: seen.tokenless_releases,
        foretold: (&seen.costs.foretold).into(),
        seen: (&seen.costs.seen).into(),
        without_ttl: standing.without_ttl,
        ready,
        harm: standing.harm.clone(),
        against: told.against(standing.harm.as_deref(), &breaking, &(&seen.costs.foretold).into()),
        verdict: verdict(&standing, (seen, applications), &told, ready),
        ran_out_while_held: told.ran_out_while_held,
        wanted_calls: told.wanted_calls,
        wanted_until: told.wanted_until,
        mixed: told.mixed,
        without_ttl_examples: standing.without_ttl_examples,
        equal_values: standing.equal_values,
        equal_values_examples: standing.equal_values_examples,
    }
}

/// The points against a namespace beside refusals.
struct Told {
    /// No finding would be turned against an application by enforce mode.
    nothing_breaks: bool,
    wanted_calls: u64,
    wanted_until: Option<u64>,
    ran_out_while_held: u64,
    mixed: Vec<MixedFamily>,
}

impl Told {
    fn is_ready(&self) -> bool {
        let nothing_mixed = self.mixed.is_empty() && self.ran_out_while_held == 0;
        self.nothing_breaks && self.wanted_calls == 0 && nothing_mixed
    }

    /// The reasons to decline an order to enforce: harm to clients that do nothing wrong. Refusing strangers is no reason,
    /// because enforcing is meant to do that.
    fn against(&self, harm: Option<&str>, breaking: &[FoundIn<'_>], foretold: &LockTime) -> Vec<String> {
        let lost = foretold.unheld_ms.saturating_add(foretold.cut_ms);
        let is_harm = lost.saturating_mul(HARM_IN) > foretold.locked_ms();
        let loss = foretold.loss().filter(|_| is_harm);
        let breaking = breaking.iter().take(MAX_NAMED).map(found);
        let loss = loss.map(|loss| format!("it would {loss}"));
        let harm = harm.map(str::to_owned).into_iter();
        harm.chain(loss).chain(breaking).collect()
    }
}

/// How much more has to be seen.
fn wanted(calls: u64, until: Option<u64>) -> Option<String> {
    let wanted = times(calls, "call");
    (calls > 0).then(|| match until {
        Some(until) => format!("too little was seen: watch for {wanted} more, or until {}", utc(until)),
        None => format!("too little was seen: watch for {wanted} more"),
    })
}

impl NamespaceReport {
    /// How much more has to be seen before the effect of enforcing is known.
    pub fn too_little(&self) -> Option<String> {
        wanted(self.wanted_calls, self.wanted_until)
    }
}

fn verdict(
    standing: &Standing<'_>,
    (seen, applications): (&Counts, &Applications),
    told: &Told,
    ready: bool,
) -> String {
    if seen.operations == 0 {
        return "nothing was seen yet".to_owned();
    }
    let calls = times(seen.operations, "call");
    let mut parts: Vec<String> = standing.harm.clone().into_iter().collect();
    let named: Vec<String> = applications
        .refused_most(standing.namespace)
        .into_iter()
        .take(MAX_NAMED)
        .map(|(reason, count, who)| format!("{} {reason} (most by {who})", number(count)))
        .collect();
    let named = named.join(", ");
    let of = |count: u64| format!("{} of {calls} ({})", number(count), share(count, seen.operations));
    parts.extend(seen.costs.words());
    match (seen.would_refuse, seen.refused) {
        (0, 0) => {}
        (would, 0) => parts.push(format!("would refuse {}: {named}", of(would))),
        (0, refused) => parts.push(format!("refused {}: {named}", of(refused))),
        // Some clients are enforced already, or the mode was switched.
        (would, refused) => parts.push(format!("would refuse {}, refused {}: {named}", of(would), of(refused))),
    }
    if seen.overlaps > 0 {
        let overlaps = times(seen.overlaps, "time");
        parts.push(format!("{overlaps} a former holder acted while another held the lock"));
    }
    let breaking = standing.breaking(applications);
    parts.extend(breaking.iter().take(MAX_NAMED).map(found));
    if told.ran_out_while_held > 0 {
        let leases = times(told.ran_out_while_held, "lease");
        parts.push(format!("{leases} ran out while held"));
    }
    for family in &told.mixed {
        parts.push(format!("{} wants a namespace of its own: {}", family.patterns.join(" "), family.words()));
    }
    if ready {
        parts.push(match standing.enforced {
            true => format!("enforced, and nothing was refused in {calls}"),
            false => format!("ready for enforce: nothing to refuse in {calls}"),
        });
    }
    let changes = applications.found_in(standing.namespace, Finding::would_change);
    if !standing.enforced && !changes.is_empty() {
        let changes: Vec<String> = changes.iter().take(MAX_NAMED).map(found).collect();
        parts.push(format!("would change {}", changes.join(", ")));
    }
    parts.extend(wanted(told.wanted_calls, told.wanted_until));
    if standing.without_ttl > 0 {
        let locks = times(standing.without_ttl, "lock");
        let example = standing.without_ttl_examples.first();
        let example = example.map_or_else(String::new, |key| format!(", for example {key}"));
        parts.push(format!("{locks} without a TTL{example}"));
    }
    if standing.equal_values > 0 {
        let locks = times(standing.equal_values, "lock");
        let examples = standing.equal_values_examples.join(" and ");
        parts.push(format!("{locks} with the same value as another, which proves nothing: {examples}"));
    }
    if seen.kept_alive > 0 {
        let leases = times(seen.kept_alive, "lease");
        parts.push(format!("{leases} outlived the TTL because the proxy renews it"));
    }
    parts.join("; ")
}

/// A finding, its count, and the application with the most.
fn found((finding, count, who): &FoundIn<'_>) -> String {
    format!("{} in {who} ({})", finding.word(), times(*count, "time"))
}

/// Some of the keys, spelled and sorted.
pub(super) fn examples<'a>(keys: impl Iterator<Item = &'a [u8]>, most: usize) -> Vec<String> {
    let mut examples: Vec<String> = keys.map(spell).collect();
    examples.sort_unstable();
    examples.truncate(most);
    examples
}

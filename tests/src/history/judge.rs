//! What must not be in a history. A client counts as the holder of a lock from the reply to its acquire until it
//! sends its release, or until the TTL that it asked for is over, counted from its request; whichever comes first. An
//! extension counts from its own request. So no client counts as the holder for longer than it may rely on, and every
//! violation that the checker reports about two clients is real. An operation without a known outcome may have
//! happened or not: it counts against no client.

use std::collections::BTreeMap;
use std::time::Duration;

use super::aof::Committed;
use super::clock::At;
use super::operation::{Action, Answer, History, Operation};
use super::transcript;

/// Redis counts a TTL from the beginning of a millisecond, on a clock that others may set right by a little.
pub const GRAIN: Duration = Duration::from_millis(4);

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two clients held one lock at the same time.
    Overlap(Claim, Claim),
    /// A grant has no higher fencing token than an earlier one, or one that another client has, too.
    Fence {
        /// The number of the earlier grant among the operations.
        earlier: usize,
        /// The number of the later one.
        later: usize,
    },
    /// A release or extension was carried out for a client that did not hold the lock.
    ByStranger {
        /// Its number among the operations.
        operation: usize,
        /// The newer grant of another client, if that is why.
        holder: Option<usize>,
    },
    /// A holder whose request proved that it holds the lock was refused, within the time that it may rely on.
    Lost {
        /// The number of what was refused.
        operation: usize,
        /// The claim that it had.
        claim: Claim,
    },
    /// A reply confirmed something that never took place on Redis, or that no proxy has on its trail.
    Uncommitted {
        /// The number of the operation that was answered so.
        operation: usize,
        /// Where it is missing.
        missing: &'static str,
    },
}

/// The time in which a client may rely on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The number of its acquire among the operations.
    pub grant: usize,
    /// When it heard that it has it.
    pub from: At,
    /// Up to when it may rely on it.
    pub until: At,
    /// Why not longer.
    pub end: End,
}

/// What ended a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The TTL, counted from the request.
    Ttl,
    /// The release was sent.
    Release,
    /// The client was told that it has the lock no more.
    Told,
    /// The client was killed.
    Death,
}

/// For this long, a request that was never answered may still be carried out: the longest time that anything is
/// frozen, then the longest TTL, and some time for a busy machine.
pub(super) const LATE: Duration = Duration::from_secs(10);

/// Judges one history.
pub struct Judge<'a> {
    history: &'a History,
    /// What Redis has written down of grants and releases, if that is known.
    committed: Option<&'a Committed>,
    /// Grants on the trails of the proxies, by lock and fencing token, if they are known.
    trail: Option<&'a BTreeMap<String, Vec<u64>>>,
    /// Grants whose lines a killed proxy may not have written any more.
    unwritten: Vec<(At, At)>,
}

/// What a client knows of its last acquire of a lock.
#[derive(Clone, Copy)]
struct Mine {
    grant: usize,
    /// Its place in the list of claims.
    claim: usize,
    /// A release was sent and not answered, or an extension that shortens: the lock may be gone.
    is_unsure: bool,
    is_over: bool,
}

/// Acquires that were never answered, the last of each client and lock.
#[derive(Default)]
struct Unknown<'a>(BTreeMap<(u32, &'a str), At>);

impl<'a> Unknown<'a> {
    fn notes(&mut self, operation: &'a Operation) {
        self.0.insert((operation.client, &operation.lock), operation.sent);
    }

    /// Whether one of them may be what this is about.
    fn may_concern(&self, operation: &Operation) -> bool {
        let last = self.0.get(&(operation.client, operation.lock.as_str()));
        last.is_some_and(|last| operation.sent.since(*last) < LATE)
    }
}

impl<'a> Judge<'a> {
    /// Of what clients have written alone.
    pub fn of(history: &'a History) -> Judge<'a> {
        Judge { history, committed: None, trail: None, unwritten: Vec::new() }
    }

    /// Compares with what Redis has written to its file.
    #[must_use]
    pub fn with_file_of_redis(mut self, committed: &'a Committed) -> Judge<'a> {
        self.committed = Some(committed);
        self
    }

    /// Compares with the audit trails, but for grants in these times, just before a proxy was killed.
    #[must_use]
    pub fn with_trail(mut self, trail: &'a BTreeMap<String, Vec<u64>>, unwritten: Vec<(At, At)>) -> Judge<'a> {
        self.trail = Some(trail);
        self.unwritten = unwritten;
        self
    }

    /// Everything that must not be, one kind after the other, each in the order of time.
    pub fn violations(&self) -> Vec<Violation> {
        let (claims, by_answers) = self.claims();
        let mut found = self.overlaps(&claims);
        found.extend(by_answers);
        found.extend(self.fences());
        found.extend(self.uncommitted());
        found
    }

    /// The same as a text for people; `None` where all is well.
    pub fn verdict(&self) -> Option<String> {
        let violations = self.violations();
        (!violations.is_empty()).then(|| transcript::of(self.history, &violations))
    }

    /// How long each client may rely on each lock, and the violations that the replies to releases and
    /// extensions show.
    fn claims(&self) -> (Vec<Claim>, Vec<Violation>) {
        let mut claims: Vec<Claim> = Vec::new();
        let mut found = Vec::new();
        let mut mine: BTreeMap<(u32, &str), Mine> = BTreeMap::new();
        let mut unknown = Unknown::default();
        for (number, operation) in self.history.operations.iter().enumerate() {
            let who = (operation.client, operation.lock.as_str());
            match operation.action {
                Action::Acquire(ttl) => {
                    if operation.refused().is_some() {
                        continue;
                    }
                    let claim = operation.done().map(|from| {
                        claims.push(Claim { grant: number, from, until: self.may_rely(operation, ttl), end: End::Ttl });
                        claims.len() - 1
                    });
                    match claim {
                        Some(claim) => {
                            let new = Mine { grant: number, claim, is_unsure: false, is_over: false };
                            mine.insert(who, new);
                        }
                        None => unknown.notes(operation),
                    }
                }
                Action::Extend(_) | Action::Release => {
                    let mine = mine.get_mut(&who);
                    if !unknown.may_concern(operation) {
                        found.extend(self.stranger(number, operation, mine.as_deref()));
                    }
                    if let Some(mine) = mine {
                        found.extend(self.lost(number, operation, *mine, &claims));
                        self.changes(operation, mine, &mut claims);
                    }
                }
            }
        }
        for claim in &mut claims {
            let client = self.history.operations[claim.grant].client;
            if let Some(death) = self.history.deaths.get(&client)
                && *death < claim.until
            {
                (claim.until, claim.end) = (*death, End::Death);
            }
        }
        (claims, found)
    }

    fn may_rely(&self, operation: &Operation, ttl: Duration) -> At {
        operation.sent.plus(ttl.saturating_sub(GRAIN))
    }

    /// Applies a release or an extension to the claim that it concerns.
    fn changes(&self, operation: &Operation, mine: &mut Mine, claims: &mut [Claim]) {
        let claim = &mut claims[mine.claim];
        match (operation.action, operation.answered) {
            (Action::Release, answered) => {
                ends(claim, operation.sent, End::Release);
                match answered {
                    Some((_, Answer::Yes)) => mine.is_over = true,
                    Some((_, Answer::No)) => {}
                    None => mine.is_unsure = true,
                }
            }
            (Action::Extend(ttl), Some((_, Answer::Yes))) => {
                claim.until = self.may_rely(operation, ttl);
                claim.end = End::Ttl;
            }
            (Action::Extend(_), Some((_, Answer::No))) => {
                ends(claim, operation.sent, End::Told);
            }
            (Action::Extend(ttl), None) => {
                ends(claim, self.may_rely(operation, ttl), End::Ttl);
            }
            (Action::Acquire(_), _) => {}
        }
    }

    /// A release or an extension that was carried out, although the client did not have the lock.
    fn stranger(&self, number: usize, operation: &Operation, mine: Option<&Mine>) -> Option<Violation> {
        operation.done()?;
        let Some(mine) = mine.filter(|mine| !mine.is_over) else {
            return Some(Violation::ByStranger { operation: number, holder: None });
        };
        // Of another client: certainly behind the client's own grant, and certainly before this.
        let grant = &self.history.operations[mine.grant];
        let granted_by = grant.done()?;
        let holder = self.history.operations.iter().position(|other| {
            other.is_acquire()
                && other.lock == operation.lock
                && other.client != operation.client
                && other.sent > granted_by
                && other.done().is_some_and(|at| at < operation.sent)
        })?;
        Some(Violation::ByStranger { operation: number, holder: Some(holder) })
    }

    fn lost(&self, number: usize, operation: &Operation, mine: Mine, claims: &[Claim]) -> Option<Violation> {
        let refused = operation.refused()?;
        let claim = claims[mine.claim];
        let is_sure = operation.proves && !mine.is_unsure && !mine.is_over;
        (is_sure && claim.end == End::Ttl && refused < claim.until)
            .then_some(Violation::Lost { operation: number, claim })
    }

    fn overlaps(&self, claims: &[Claim]) -> Vec<Violation> {
        let mut by_lock: BTreeMap<&str, Vec<Claim>> = BTreeMap::new();
        for claim in claims.iter().filter(|claim| claim.from < claim.until) {
            let lock = self.history.operations[claim.grant].lock.as_str();
            by_lock.entry(lock).or_default().push(*claim);
        }
        let mut found = Vec::new();
        for claims in by_lock.values_mut() {
            claims.sort_by_key(|claim| claim.from);
            // Of those that have begun, the one that lasts longest.
            let mut longest: Option<Claim> = None;
            for claim in claims {
                if let Some(before) = longest
                    && claim.from < before.until
                    && self.client(before.grant) != self.client(claim.grant)
                {
                    found.push(Violation::Overlap(before, *claim));
                }
                if longest.is_none_or(|before| before.until < claim.until) {
                    longest = Some(*claim);
                }
            }
        }
        found
    }

    fn client(&self, operation: usize) -> u32 {
        self.history.operations[operation].client
    }

    /// If the reply to one grant came before the request for another, the other must have the higher token; and no
    /// two clients may have the same token.
    fn fences(&self) -> Vec<Violation> {
        let mut by_lock: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (number, operation) in self.history.operations.iter().enumerate() {
            if operation.fence.is_some() && operation.done().is_some() {
                by_lock.entry(&operation.lock).or_default().push(number);
            }
        }
        let operation = |number: usize| &self.history.operations[number];
        let mut found = Vec::new();
        for grants in by_lock.values() {
            let mut answered = grants.clone();
            answered.sort_by_key(|grant| operation(*grant).done());
            let mut answered = answered.into_iter().peekable();
            let mut highest: Option<usize> = None;
            for &later in grants {
                while let Some(earlier) =
                    answered.next_if(|earlier| operation(*earlier).done() < Some(operation(later).sent))
                {
                    if highest.is_none_or(|high| operation(high).fence < operation(earlier).fence) {
                        highest = Some(earlier);
                    }
                }
                if let Some(earlier) = highest {
                    let (before, after) = (operation(earlier), operation(later));
                    // A client may get a second reply about a grant whose first reply it has not read.
                    let again = before.client == after.client && before.fence == after.fence;
                    if before.fence >= after.fence && !again {
                        found.push(Violation::Fence { earlier, later });
                    }
                }
            }
            found.extend(self.doubles(grants));
        }
        found
    }

    fn doubles(&self, grants: &[usize]) -> Vec<Violation> {
        let mut owners: BTreeMap<Option<u64>, usize> = BTreeMap::new();
        let mut found = Vec::new();
        for &later in grants {
            let earlier = *owners.entry(self.history.operations[later].fence).or_insert(later);
            if self.client(earlier) != self.client(later) {
                found.push(Violation::Fence { earlier, later });
            }
        }
        found
    }

    fn uncommitted(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (number, operation) in self.history.operations.iter().enumerate() {
            let (Some(fence), Some(heard)) = (operation.fence, operation.done()) else {
                continue;
            };
            let lock = operation.lock.as_str();
            if let Some(committed) = self.committed
                && !committed.has_grant(lock, fence)
            {
                found.push(Violation::Uncommitted { operation: number, missing: "the file of Redis" });
            }
            let is_excused = || {
                let mut times = self.unwritten.iter();
                times.any(|(from, to)| *from <= heard && operation.sent <= *to)
            };
            if let Some(trail) = self.trail
                && !trail.get(lock).is_some_and(|fences| fences.contains(&fence))
                && !is_excused()
            {
                found.push(Violation::Uncommitted { operation: number, missing: "the audit trails of the proxies" });
            }
        }
        found.extend(self.releases_that_left_the_lock());
        found
    }

    /// Releases that were answered with yes, of grants that are not marked as given back on Redis.
    fn releases_that_left_the_lock(&self) -> Vec<Violation> {
        let Some(committed) = self.committed else {
            return Vec::new();
        };
        let mut newest: BTreeMap<(u32, &str), Option<u64>> = BTreeMap::new();
        let mut unknown = Unknown::default();
        let mut found = Vec::new();
        for (number, operation) in self.history.operations.iter().enumerate() {
            let who = (operation.client, operation.lock.as_str());
            match operation.action {
                Action::Acquire(_) if operation.done().is_some() => {
                    newest.insert(who, operation.fence);
                }
                Action::Acquire(_) if operation.refused().is_none() => unknown.notes(operation),
                Action::Release if operation.done().is_some() && !unknown.may_concern(operation) => {
                    let fence = newest.get(&who).copied().flatten();
                    if fence.is_some_and(|fence| !committed.has_release(&operation.lock, fence)) {
                        found.push(Violation::Uncommitted { operation: number, missing: "the file of Redis" });
                    }
                }
                Action::Acquire(_) | Action::Extend(_) | Action::Release => {}
            }
        }
        found
    }
}

fn ends(claim: &mut Claim, at: At, end: End) {
    if at < claim.until {
        (claim.until, claim.end) = (at, end);
    }
}

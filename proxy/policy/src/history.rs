//! Clients' recent actions, as far as this process has seen: how often a lock was requested, and budgets that refill;
//! and their holdings, which come with the question. Policies ask for these ([`v1::history`]). Times are those of the
//! questions, so the same questions in the same order get the same answers. Memory is bounded; an action that finds no
//! room is not counted, which refuses nothing.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lockwarden_lock::decision::{Holdings, Question};

use crate::bindings::v1::history::Whose;

/// The number of seconds over which attempts are counted.
const SECONDS: usize = 10;

/// The number of maps, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// The most locks, and applications that request one, in each map.
const MAX_WINDOWS: usize = 4096;

/// The most budgets in each map.
const MAX_BUDGETS: usize = 640;

/// See the module.
pub(crate) struct History {
    shards: [Mutex<Shard>; SHARDS],
    /// What is answered instead, if an author sets that; a proxy only checks whether there is any.
    pretends: AtomicBool,
    pretended: Mutex<Pretended>,
}

#[derive(Default)]
struct Shard {
    windows: Bounded<Window, MAX_WINDOWS>,
    budgets: Bounded<Budget, MAX_BUDGETS>,
}

/// At most so many entries.
struct Bounded<V, const MOST: usize> {
    entries: HashMap<u64, V>,
    /// In which second room was last made: a look at all entries, which finds hardly more within the same second.
    swept: u64,
}

impl<V, const MOST: usize> Default for Bounded<V, MOST> {
    fn default() -> Self {
        Bounded { entries: HashMap::new(), swept: 0 }
    }
}

impl<V, const MOST: usize> Bounded<V, MOST> {
    /// The entry of this key, which is `new` at first, unless there are too many that still matter.
    fn entry(&mut self, key: u64, second: u64, matters: impl Fn(&V) -> bool, new: V) -> Option<&mut V> {
        let Bounded { entries, swept } = self;
        if entries.len() >= MOST && *swept != second && !entries.contains_key(&key) {
            *swept = second;
            entries.retain(|_, entry| matters(entry));
        }
        if entries.len() < MOST { Some(entries.entry(key).or_insert(new)) } else { entries.get_mut(&key) }
    }
}

/// The answers to a policy that asks, regardless of what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pretended {
    /// Attempts of the client's application.
    pub application: u32,
    /// Attempts of all clients.
    pub everyone: u32,
    /// Budgets that are used up.
    pub spent: Vec<String>,
    /// What the client holds.
    pub holdings: Holdings,
}

impl Default for Pretended {
    fn default() -> Pretended {
        Pretended { application: 1, everyone: 1, spent: Vec::new(), holdings: Holdings::default() }
    }
}

/// The attempts of the last seconds.
#[derive(Clone, Copy, Default)]
struct Window {
    /// The second of the newest attempt.
    newest: u64,
    /// By the second, modulo the number of places.
    counts: [u32; SECONDS],
}

impl Window {
    /// Clears what is older than the window that ends with this second.
    fn turn(&mut self, second: u64) {
        let passed = second.saturating_sub(self.newest);
        for step in 1..=passed.min(SECONDS as u64) {
            self.counts[((self.newest + step) % SECONDS as u64) as usize] = 0;
        }
        self.newest = self.newest.max(second);
    }

    fn add(&mut self, second: u64) {
        self.turn(second);
        let count = &mut self.counts[(self.newest % SECONDS as u64) as usize];
        *count = count.saturating_add(1);
    }

    fn sum(mut self, second: u64) -> u32 {
        self.turn(second);
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// The state of a budget, as the time at which it is full again, in microseconds: it refills evenly.
#[derive(Clone, Copy)]
struct Budget {
    full_at: u64,
}

/// The client and lock of a question, its time, and the client's holdings.
#[derive(Clone)]
pub(crate) struct Asking {
    /// The client's handle.
    pub(crate) client: u64,
    lock: u64,
    application: u64,
    now_ms: u64,
    holdings: Arc<Holdings>,
}

impl Asking {
    /// `chain` is the name of the chain that is asked: no chain uses up another one's budget.
    pub(crate) fn new(chain: &str, question: &Question<'_>, application: &str, holdings: Holdings) -> Asking {
        Asking {
            client: question.client,
            lock: hash((chain, question.db, question.key)),
            application: hash((chain, application)),
            now_ms: question.now.0,
            holdings: Arc::new(holdings),
        }
    }

    fn windows(&self) -> [(Whose, u64); 2] {
        [(Whose::Everyone, self.lock), (Whose::Application, hash((self.lock, self.application)))]
    }
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl History {
    pub(crate) fn new() -> History {
        History { shards: Default::default(), pretends: AtomicBool::new(false), pretended: Mutex::default() }
    }

    pub(crate) fn pretend(&self, what: Pretended) {
        *self.pretended.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.pretends.store(true, Ordering::Relaxed);
    }

    fn pretended<T>(&self, of: impl FnOnce(&Pretended) -> T) -> Option<T> {
        let pretends = self.pretends.load(Ordering::Relaxed);
        pretends.then(|| of(&self.pretended.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn with<T>(&self, key: u64, what: impl FnOnce(&mut Shard) -> T) -> T {
        let shard = &self.shards[(key % SHARDS as u64) as usize];
        what(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts an attempt to take a lock.
    pub(crate) fn tried(&self, asking: &Asking) {
        let second = asking.now_ms / 1000;
        for (_, key) in asking.windows() {
            self.with(key, |shard| {
                let matters = |window: &Window| window.newest + SECONDS as u64 > second;
                if let Some(window) = shard.windows.entry(key, second, matters, Window::default()) {
                    window.add(second);
                }
            });
        }
    }

    /// How often the lock was requested in the last seconds, this time included.
    pub(crate) fn tries(&self, asking: &Asking, whose: Whose) -> u32 {
        let pretended = self.pretended(|pretended| match whose {
            Whose::Application => pretended.application,
            Whose::Everyone => pretended.everyone,
        });
        pretended.unwrap_or_else(|| {
            let mut windows = asking.windows().into_iter();
            let key = windows.find(|(known, _)| *known == whose).map_or(asking.lock, |(_, key)| key);
            let second = asking.now_ms / 1000;
            self.with(key, |shard| shard.windows.entries.get(&key).map_or(0, |window| window.sum(second)))
        })
    }

    /// The client's holdings.
    pub(crate) fn holdings(&self, asking: &Asking) -> Arc<Holdings> {
        let pretended = self.pretended(|pretended| Arc::new(pretended.holdings.clone()));
        pretended.unwrap_or_else(|| asking.holdings.clone())
    }

    /// Takes one from a budget of the client's application that has `most` and refills evenly within `per_ms`.
    pub(crate) fn take(&self, asking: &Asking, policy: &str, (budget, most, per_ms): (&str, u32, u64)) -> bool {
        if let Some(is_there) = self.pretended(|pretended| !pretended.spent.iter().any(|spent| spent == budget)) {
            return is_there;
        }
        if most == 0 {
            return false;
        }
        let (now, whole) = (asking.now_ms.saturating_mul(1000), per_ms.saturating_mul(1000));
        let one = whole / u64::from(most);
        let key = hash((asking.application, policy, budget));
        self.with(key, |shard| {
            let matters = |budget: &Budget| budget.full_at > now;
            let Some(budget) = shard.budgets.entry(key, asking.now_ms / 1000, matters, Budget { full_at: now }) else {
                return true;
            };
            let full_at = budget.full_at.max(now).saturating_add(one);
            let is_there = full_at <= now.saturating_add(whole);
            if is_there {
                budget.full_at = full_at;
            }
            is_there
        })
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lockwarden_lock::decision::Operation;
    use lockwarden_lock::time::ProxyTime;

    use super::*;

    fn asking(key: &str, application: &str, now_ms: u64) -> Asking {
        let plain = Question::plain(Operation::Acquire, key.as_bytes());
        let question = Question { client: 1, now: ProxyTime(now_ms), ..plain };
        Asking::new("orders", &question, application, Holdings::default())
    }

    #[test]
    fn tries_are_counted_over_ten_seconds_by_application_and_for_all() {
        let history = History::new();
        let told = |asking: &Asking| [Whose::Application, Whose::Everyone].map(|whose| history.tries(asking, whose));
        for second in 0..30 {
            history.tried(&asking("a", "shop", second * 1000));
            history.tried(&asking("a", "billing", second * 1000 + 500));
        }
        assert_eq!(told(&asking("a", "shop", 29_999)), [10, 20]);
        assert_eq!(told(&asking("a", "nobody", 29_999)), [0, 20]);
        assert_eq!(told(&asking("b", "shop", 29_999)), [0, 0]);
        assert_eq!(told(&asking("a", "shop", 34_000)), [5, 10]);
        assert_eq!(told(&asking("a", "shop", 39_000)), [0, 0]);
        // A clock that goes back clears nothing.
        history.tried(&asking("a", "shop", 5_000));
        assert_eq!(told(&asking("a", "shop", 29_999)), [11, 21]);
    }

    #[test]
    fn a_budget_refills_evenly_and_a_refused_try_takes_nothing_of_it() {
        let history = History::new();
        let takes = |application: &str, now_ms: u64| {
            history.take(&asking("a", application, now_ms), "mine", ("spin", 3, 3_000))
        };
        assert_eq!([0, 0, 0, 0].map(|now| takes("shop", now)), [true, true, true, false]);
        assert!(takes("billing", 0), "each application has its own");
        // One attempt per second: each is counted, though others between them were refused.
        for second in 1..20 {
            assert!(takes("shop", second * 1000), "{second}");
            assert!(!takes("shop", second * 1000 + 500), "{second}");
        }
        assert_eq!([60_000; 4].map(|now| takes("shop", now)), [true, true, true, false]);
        assert!(!history.take(&asking("a", "shop", 0), "mine", ("none", 0, 1)));
        assert!(history.take(&asking("a", "shop", 0), "mine", ("large", u32::MAX, u64::MAX)));
    }

    #[test]
    fn what_is_kept_has_a_bound_and_what_finds_no_room_is_permitted() {
        let history = History::new();
        for number in 0..2 * (SHARDS * MAX_WINDOWS) as u64 {
            let asking = asking(&number.to_string(), "shop", 0);
            history.tried(&asking);
        }
        let kept =
            |of: fn(&Shard) -> usize| -> usize { history.shards.iter().map(|shard| of(&shard.lock().unwrap())).sum() };
        assert_eq!(kept(|shard| shard.windows.entries.len()), SHARDS * MAX_WINDOWS);
        let full = asking("one more", "shop", 0);
        history.tried(&full);
        assert_eq!(history.tries(&full, Whose::Everyone), 0);
        // Old ones are replaced.
        let later = asking("one more", "shop", 11_000);
        history.tried(&later);
        assert_eq!(history.tries(&later, Whose::Everyone), 1);
        for number in 0..2 * (SHARDS * MAX_BUDGETS) as u64 {
            assert!(history.take(&asking("a", &number.to_string(), 0), "mine", ("spin", 1, 1_000)));
        }
        assert!(kept(|shard| shard.budgets.entries.len()) <= SHARDS * MAX_BUDGETS);
    }
}

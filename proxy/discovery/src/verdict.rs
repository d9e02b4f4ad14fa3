//! What the keys of a pattern are: locks, or something else that is taken by the same commands. The rules, and the
//! reason for each, are in `docs/first-hour.md`.

use std::fmt;

use crate::sighting::Spelling;
use crate::usage::Usage;

/// Fewer leases than this prove nothing.
pub const ENOUGH: u64 = 5;
/// This many leases make the verdict certain.
pub const CERTAIN: u64 = 20;
/// A key with at least this TTL that is never released records that something was done, ms.
const LONG_TTL_MS: u64 = 3_600_000;
/// A longer value is content, not the name of a holder, bytes.
const LONG_VALUE: usize = 256;
/// Words that occur in the names of locks. Every word that contains `lock` counts too, except blocks and clocks.
const LOCK_WORDS: [&str; 10] =
    ["lck", "mutex", "mtx", "semaphore", "singleton", "running", "leader", "lease", "guard", "exclusive"];

/// Whether this word occurs in the names of locks.
pub(crate) fn is_lock_word(word: &str) -> bool {
    let mut places = word.match_indices("lock");
    let has_lock = places.any(|(at, _)| !word[..at].ends_with(['b', 'c']));
    has_lock || LOCK_WORDS.contains(&word)
}

/// What the keys of a pattern are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Locks that are released.
    Lock,
    /// Locks that end only by their TTL: a job that may run once per period.
    TimedLock,
    /// Records that something was done once.
    Marker,
    /// Values that are kept to be read.
    Cache,
    /// Counters.
    Counter,
    /// Not known yet.
    Unclear,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] = [Kind::Lock, Kind::TimedLock, Kind::Marker, Kind::Cache, Kind::Counter, Kind::Unclear];

    /// The usual spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::TimedLock => "timed lock",
            Kind::Marker => "marker",
            Kind::Cache => "cache",
            Kind::Counter => "counter",
            Kind::Unclear => "unclear",
        }
    }

    /// Whether its keys are locks.
    pub const fn is_lock(self) -> bool {
        matches!(self, Kind::Lock | Kind::TimedLock)
    }
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Based on the name alone, or on too few leases.
    Guess,
    /// Most of what was seen supports it.
    Likely,
    /// Enough was seen, and all of it supports it.
    Certain,
}

impl Confidence {
    /// All of them.
    pub const ALL: [Confidence; 3] = [Confidence::Guess, Confidence::Likely, Confidence::Certain];

    /// The usual spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Guess => "a guess",
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What the keys are.
    pub kind: Kind,
    /// How sure the verdict is.
    pub confidence: Confidence,
    /// The reason, for people to read.
    pub why: String,
    /// The keys are released by other clients than take them, and those clients stay connected.
    pub hands_over: bool,
}

/// A count out of a total; prints as `3 of 5`.
struct Of(u64, u64);

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 == self.1 {
            true => write!(f, "all {}", self.1),
            false => write!(f, "{} of {}", self.0, self.1),
        }
    }
}

impl Verdict {
    /// Decides from what was seen and from the words of the keys' names.
    pub fn of(usage: &Usage, words: &[String]) -> Verdict {
        let counts = usage.tries.get(&Spelling::Incr).copied().unwrap_or(0);
        let verdict = if counts * 2 > usage.tried() { counted(usage) } else { taken(usage, words) };
        let is_named = words.iter().any(|word| is_lock_word(word));
        match verdict {
            Some(verdict) if is_named && !verdict.kind.is_lock() => Verdict {
                confidence: verdict.confidence.min(Confidence::Likely),
                why: format!("{}; its name is like that of a lock", verdict.why),
                ..verdict
            },
            Some(verdict) => verdict,
            None if usage.granted == 0 && usage.unclear > 0 => Verdict {
                kind: Kind::Unclear,
                confidence: Confidence::Guess,
                why: "scripts that are not understood work on it; named like a lock, it may be one that is no string"
                    .to_owned(),
                hands_over: false,
            },
            None if is_named => Verdict {
                kind: Kind::Lock,
                confidence: Confidence::Guess,
                why: format!("by its name; {}", too_little(usage)),
                hands_over: false,
            },
            None => Verdict {
                kind: Kind::Unclear,
                confidence: Confidence::Guess,
                why: too_little(usage),
                hands_over: false,
            },
        }
    }
}

/// A verdict without a hand-over.
fn plain(kind: Kind, confidence: Confidence, why: String) -> Option<Verdict> {
    Some(Verdict { kind, confidence, why, hands_over: false })
}

fn too_little(usage: &Usage) -> String {
    match usage.granted {
        0 => format!("taken by nobody in {} tries", usage.tried()),
        granted if granted < ENOUGH => {
            format!("taken {granted} times so far, which says little; {ENOUGH} are wanted")
        }
        granted => format!("taken {granted} times, given back {} times", usage.deleted()),
    }
}

/// How sure a verdict is, from the number of grants.
fn by(usage: &Usage, all_of_it: bool) -> Confidence {
    match usage.granted.max(usage.unwitnessed) {
        CERTAIN.. if all_of_it => Confidence::Certain,
        ENOUGH.. => Confidence::Likely,
        _ => Confidence::Guess,
    }
}

/// `INCR`: a lock that is held by the client that counted to 1, or a counter.
fn counted(usage: &Usage) -> Option<Verdict> {
    let granted = usage.granted;
    if granted < ENOUGH && usage.counted_to < 10 {
        return None;
    }
    let by_jobs = if usage.is_by_short_lived() { usage.swept } else { 0 };
    let own = usage.released + usage.handed_over + by_jobs;
    if granted >= ENOUGH && own * 2 >= granted {
        let why = format!("INCR to 1 takes it, and whoever did deletes it ({} times)", Of(own, granted));
        return plain(Kind::Lock, by(usage, own * 10 >= granted * 9), why);
    }
    let why = match usage.counted_to {
        // The replies were not seen.
        0 => format!("counted {} times, and hardly ever deleted by who began", usage.tried()),
        most if own == 0 => {
            format!("counted up to {most}, and never deleted by who counted to 1")
        }
        most => {
            format!("counted up to {most}, and deleted by who counted to 1 only {own} times")
        }
    };
    plain(Kind::Counter, by(usage, own == 0), why)
}

/// The other commands.
fn taken(usage: &Usage, words: &[String]) -> Option<Verdict> {
    let granted = usage.granted;
    if usage.tries.contains_key(&Spelling::HSetNx) {
        let why = "each field of a hash is a lock of its own (HSETNX), which no namespace can have";
        return plain(Kind::Unclear, Confidence::Guess, why.to_owned());
    }
    let compared = usage.compared + usage.unwitnessed;
    if compared > 0 || usage.tries.contains_key(&Spelling::Redisson) {
        let why = match compared {
            0 => "taken by Redisson's own script".to_owned(),
            compared => format!("given back by comparing the value first ({compared} times)"),
        };
        return plain(Kind::Lock, by(usage, true).max(Confidence::Likely), why);
    }
    if granted < ENOUGH {
        return None;
    }
    let is_named = words.iter().any(|word| is_lock_word(word));
    let own = usage.released + usage.handed_over + usage.foreign;
    let has_content = usage.longest_value > LONG_VALUE || usage.documents * 2 > granted;
    let is_looked_up = usage.looked_up * 2 > granted;
    if usage.swept > own {
        return Some(swept(usage, own, has_content || is_looked_up, is_named));
    }
    if has_content && own * 2 < granted {
        let why = format!("its values are content, up to {} bytes, and not given back", usage.longest_value);
        return plain(Kind::Cache, by(usage, own == 0), why);
    }
    if is_looked_up && (has_content || !is_named) {
        let why = format!(
            "its value is read while it is there ({} times), by others than were refused it",
            Of(usage.looked_up, granted)
        );
        return plain(Kind::Cache, by(usage, usage.looked_up == granted), why);
    }
    if own * 2 >= granted {
        let why = format!("given back by who takes it ({} times)", Of(own, granted));
        let is_sure = own * 10 >= granted * 9 && !is_looked_up;
        return plain(Kind::Lock, by(usage, is_sure), why);
    }
    // If only a few are deleted, after an error for example, the keys are records of something done.
    if own > 0 && (is_named || own * 4 >= granted) {
        let why = format!("given back {} times; the others ran out", Of(own, granted));
        return plain(Kind::Lock, Confidence::Likely, why);
    }
    never_given_back(usage, is_named)
}

/// Keys that are deleted by other clients than take them. A cache is deleted when the data that it holds changes, and
/// is read in between. A lock is taken and deleted in turn, and its value is not read.
fn swept(usage: &Usage, own: u64, has_content: bool, is_named: bool) -> Verdict {
    let granted = usage.granted;
    let deleted = usage.deleted();
    let is_in_turn = deleted * 10 >= granted * 8;
    // A client that was refused a lock may read its value to see the holder, over any connection of its pool.
    let is_unread = is_named || usage.looked_up * 10 <= granted;
    if has_content || !is_in_turn || !is_unread {
        return Verdict {
            kind: Kind::Cache,
            confidence: by(usage, own == 0),
            why: format!("deleted by clients that never take it ({} times)", Of(usage.swept, deleted)),
            hands_over: false,
        };
    }
    let (how, hands_over) = match usage.is_by_short_lived() {
        true => ("each by a client that came for that alone, as of a script", false),
        false => ("by other clients than take it", true),
    };
    Verdict {
        kind: Kind::Lock,
        confidence: Confidence::Likely,
        why: format!(
            "taken and given back in turn, before its TTL, and nobody asks what it holds; given back {how} ({} times)",
            Of(usage.swept, deleted)
        ),
        hands_over,
    }
}

/// Keys that are (almost) never deleted.
fn never_given_back(usage: &Usage, is_named: bool) -> Option<Verdict> {
    let granted = usage.granted;
    let own = usage.released + usage.handed_over + usage.foreign;
    let never = match own {
        0 => "never given back".to_owned(),
        some => format!("hardly ever given back ({some} times)"),
    };
    let ttl = usage.ttl_ms(0.5);
    let repeats = granted >= 3 * usage.keys().max(1);
    if ttl.is_none_or(|ms| ms >= LONG_TTL_MS) && !repeats {
        let why = match ttl {
            Some(ms) => format!("{never}, and lives for {} h", (ms + 1_800_000) / 3_600_000),
            None => format!("{never}, and has no TTL"),
        };
        return plain(Kind::Marker, by(usage, !is_named), why);
    }
    if usage.read > granted {
        let why = format!("{never}, and read more often than taken ({} reads)", usage.read);
        return plain(Kind::Cache, Confidence::Likely, why);
    }
    if repeats && usage.contended > 0 {
        let why = format!(
            "the same few keys are taken again and again as soon as they run out ({granted} times, {} tries in vain)",
            usage.contended
        );
        return plain(Kind::TimedLock, Confidence::Likely, why);
    }
    if is_named {
        return None;
    }
    let why = format!("{never} in {granted} times, and hardly ever wanted by two");
    plain(Kind::Marker, Confidence::Likely, why)
}

//! Proposals for `[[guard]]`: data that is written under the same lock again and again. The writes are counted in
//! `writes.rs`. Every proposal was tested with keys and locks that were seen.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lockwarden_lock::data_guard::{KeyPattern, LockTemplate};

use crate::shape::{Piece, Shape};
use crate::toml_text::{free_name, is_name_byte, line, quoted};

/// Fewer writes under the lock than this prove nothing.
pub const ENOUGH_WRITES: u64 = 5;
/// Locks whose names vary are proposed once this many different ones were seen.
pub const ENOUGH_LOCKS: u64 = 2;
/// At least this share of the writes must be under the lock, in percent.
pub const MOST: u64 = 80;
/// The most guards that are proposed: as many as one configuration may have.
const MAX_PROPOSED: usize = lockwarden_lock::data_guard::MAX_GUARDS;
/// The most patterns of one guard.
const MAX_KEYS: usize = lockwarden_lock::data_guard::MAX_PATTERNS;
/// From this many patterns on, those that differ only in the last part of their names become one: jobs by name, for
/// example.
const FOLDED_FROM: usize = 3;
/// The most applications that a comment names.
const MAX_NAMED: usize = 4;

/// Why there is no guard for keys that are written in a way that a guard refuses.
pub const UNFIT: &str = "written by commands that wait, or that give the lock back as well, which a guard would refuse";

/// The basis of a proposal: keys of one pattern that are written under locks of one pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardCandidate {
    /// The pattern of the keys, as in `[[guard]]`.
    pub keys: String,
    /// Its lock; it uses the names of the pattern.
    pub lock: String,
    /// The words of the keys, lower case.
    pub words: Vec<String>,
    /// Writes under the lock.
    pub under: u64,
    /// Writes by clients that did not hold it.
    pub without: u64,
    /// About how many different locks; at most 64 are distinguished.
    pub locks: u64,
    /// The lock's name does not vary.
    pub is_fixed: bool,
    /// A key.
    pub example: Vec<u8>,
    /// The lock under which it was written.
    pub example_lock: Vec<u8>,
    /// Applications that wrote without the lock, and how often.
    pub outsiders: Vec<(String, u64)>,
    /// Applications that wrote such a key before they took the lock, and over how many connections: a guard would keep
    /// them from starting.
    pub starters: Vec<(String, u64)>,
    /// Whether any write was of a kind that a guard refuses: a command that waits, or one that also releases the lock.
    pub is_unfit: bool,
    /// The last write without the lock: the key, and the application.
    pub outside: Option<(Vec<u8>, String)>,
}

impl GuardCandidate {
    /// Whether enough was seen.
    pub fn is_proposed(&self) -> bool {
        let enough = self.under >= ENOUGH_WRITES;
        let all = self.under.saturating_add(self.without);
        let most = self.under.saturating_mul(100) >= all.saturating_mul(MOST);
        enough && most && (self.is_fixed || self.locks >= ENOUGH_LOCKS)
    }

    /// Whether the application would still work with a guard.
    pub fn may_be_guarded(&self) -> bool {
        self.starters.is_empty() && !self.is_unfit
    }

    /// Whether a guard with these patterns would require this lock for a write of this key.
    pub fn guards(&self, key: &[u8], lock: &[u8]) -> bool {
        let (Ok(pattern), Ok(template)) = (KeyPattern::new(&self.keys), LockTemplate::new(&self.lock)) else {
            return false;
        };
        let captures = pattern.matches(key);
        captures.is_some_and(|captures| template.fill(&captures) == lock)
    }

    /// Two examples of a key with its lock: one that was seen, and one that is generated from the patterns.
    pub fn stand_for(&self) -> [(Vec<u8>, Vec<u8>); 2] {
        let key = KeyPattern::new(&self.keys).map(|pattern| pattern.example());
        let lock = LockTemplate::new(&self.lock).map(|lock| lock.example());
        [(self.example.clone(), self.example_lock.clone()), (key.unwrap_or_default(), lock.unwrap_or_default())]
    }
}

/// A shape, spelled as a pattern of a `[[guard]]`; `None` where it is not valid UTF-8.
pub(crate) fn template(shape: &Shape, name: &dyn Fn(usize) -> Option<String>) -> Option<String> {
    let mut text = Vec::new();
    let is_named = |place: usize, piece: &Piece| matches!(piece, Piece::Any) && name(place).is_some();
    let mut pieces = shape.pieces().iter().enumerate().rev();
    let last_named = pieces.find(|(place, piece)| is_named(*place, piece));
    let last_named = last_named.map(|(place, _)| place);
    for (place, piece) in shape.pieces().iter().enumerate() {
        match piece {
            Piece::Word(word) => word.iter().for_each(|byte| put(&mut text, *byte)),
            Piece::Separator(byte) => put(&mut text, *byte),
            Piece::Any => match name(place) {
                Some(name) => text.extend_from_slice(format!("{{{name}}}").as_bytes()),
                // A guard allows no `*` before a name.
                None if Some(place) < last_named => {
                    text.extend_from_slice(format!("{{part-{place}}}").as_bytes());
                }
                None => text.push(b'*'),
            },
        }
    }
    String::from_utf8(text).ok()
}

fn put(text: &mut Vec<u8>, byte: u8) {
    if matches!(byte, b'*' | b'?' | b'[' | b'{' | b'}' | b'\\') {
        text.push(b'\\');
    }
    text.push(byte);
}

/// Selects the candidates to propose, the most written first. For each pattern of keys that is the lock under which
/// most of its writes were. `is_lock` says whether a key is a lock, of an existing or a proposed namespace;
/// `is_guarded`, whether a guard covers the key already.
pub fn proposed(
    candidates: Vec<GuardCandidate>,
    is_lock: &dyn Fn(&[u8]) -> bool,
    is_guarded: &dyn Fn(&[u8]) -> bool,
) -> Vec<GuardCandidate> {
    let fits = |one: &GuardCandidate| {
        one.is_proposed()
            && one.stand_for().iter().all(|(key, lock)| is_lock(lock) && !is_lock(key) && !is_guarded(key))
    };
    let mut candidates = folded(candidates);
    candidates.retain(fits);
    // Of two with as many writes, the one whose lock name varies comes first: it makes fewer clients wait for each
    // other.
    candidates.sort_by(|a, b| {
        let most = b.under.cmp(&a.under).then(a.is_fixed.cmp(&b.is_fixed));
        most.then_with(|| (&a.keys, &a.lock).cmp(&(&b.keys, &b.lock)))
    });
    let mut proposed: Vec<GuardCandidate> = Vec::new();
    for one in candidates {
        if !proposed.iter().any(|known| known.example == one.example || same_keys(known, &one)) {
            proposed.push(one);
        }
    }
    proposed.truncate(MAX_PROPOSED);
    proposed
}

/// Merges patterns of three or more parts that differ only in the last one.
fn folded(candidates: Vec<GuardCandidate>) -> Vec<GuardCandidate> {
    let mut alike: BTreeMap<(String, String), Vec<GuardCandidate>> = BTreeMap::new();
    let mut all = Vec::new();
    for one in candidates {
        match one.keys.rsplit_once(':') {
            Some((front, last)) if front.contains(':') && !last.contains('{') => {
                let of = (one.lock.clone(), front.to_owned());
                alike.entry(of).or_default().push(one);
            }
            _ => all.push(one),
        }
    }
    for ((_, front), some) in alike {
        let folded = (some.len() >= FOLDED_FROM).then(|| together(format!("{front}:{{name}}"), &some)).flatten();
        match folded {
            Some(one) => all.push(one),
            None => all.extend(some),
        }
    }
    all
}

/// All of them as one pattern, if one pattern fits all their keys.
fn together(keys: String, all: &[GuardCandidate]) -> Option<GuardCandidate> {
    let mut one = all.first()?.clone();
    one.keys = keys;
    one.words.pop();
    for other in &all[1..] {
        one.under = one.under.saturating_add(other.under);
        one.without = one.without.saturating_add(other.without);
        one.locks = one.locks.max(other.locks);
        one.is_unfit |= other.is_unfit;
        one.outside = one.outside.take().or_else(|| other.outside.clone());
        add(&mut one.outsiders, &other.outsiders);
        add(&mut one.starters, &other.starters);
    }
    let mut examples = all.iter().map(|one| (&one.example, &one.example_lock));
    let fits = examples.all(|(key, lock)| one.guards(key, lock));
    fits.then_some(one)
}

fn add(all: &mut Vec<(String, u64)>, more: &[(String, u64)]) {
    for (application, times) in more {
        match all.iter_mut().find(|(known, _)| known == application) {
            Some((_, count)) => *count = count.saturating_add(*times),
            None => all.push((application.clone(), *times)),
        }
    }
}

fn same_keys(a: &GuardCandidate, b: &GuardCandidate) -> bool {
    let matches =
        |pattern: &str, key: &[u8]| KeyPattern::new(pattern).is_ok_and(|pattern| pattern.matches(key).is_some());
    matches(&a.keys, &b.example) && matches(&b.keys, &a.example)
}

/// The configuration for the proposals, as TOML. For data that is written before the lock is taken, a comment says why
/// no guard covers it. `names` are those of the existing guards.
pub fn toml(proposed: &[GuardCandidate], names: &[String]) -> String {
    let mut guards: Vec<Vec<&GuardCandidate>> = Vec::new();
    for one in proposed {
        let fits = |guard: &&mut Vec<&GuardCandidate>| guard[0].lock == one.lock && guard.len() < MAX_KEYS;
        match guards.iter_mut().find(fits) {
            Some(guard) => guard.push(one),
            None => guards.push(vec![one]),
        }
    }
    let mut used = names.to_vec();
    let mut text = String::new();
    for guard in &guards {
        let (guard, left_out): (Vec<_>, Vec<_>) = guard.iter().partition(|one| one.may_be_guarded());
        for one in left_out {
            // Writing to a string does not fail.
            let _ = writeln!(text, "\n# {}", line(&why_not(one)));
        }
        if guard.is_empty() {
            continue;
        }
        let name = guard[0].words.join("-");
        let name = free_name(name.chars().filter(|one| is_name_byte(*one)).collect(), "data", &used);
        put_guard(&mut text, &guard, &name);
        used.push(name);
    }
    text
}

fn put_guard(text: &mut String, guard: &[&GuardCandidate], name: &str) {
    let keys: Vec<String> = guard.iter().map(|one| quoted(&one.keys)).collect();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\n[[guard]]\nname = {}\nkeys = [{}]\nlock = {}",
        quoted(name),
        keys.join(", "),
        quoted(&guard[0].lock)
    );
    for one in guard {
        let _ = writeln!(text, "# {}", line(&why(one)));
    }
    text.push_str(
        "mode = \"monitor\" # refuses nothing; lockwarden_guarded_writes_total says what \"enforce\" would refuse\n",
    );
}

/// The reason for the proposal, in one sentence.
pub fn why(one: &GuardCandidate) -> String {
    let all = one.under.saturating_add(one.without);
    let mut why = format!("{}: {} of {all} writes under the lock", one.keys, one.under);
    if one.without > 0 {
        let _ = write!(why, "; without it: {}", named(&one.outsiders));
        if let Some((key, application)) = &one.outside {
            let key = String::from_utf8_lossy(key);
            let _ = write!(why, "; the last: {key} by {application}");
        }
    }
    why
}

/// The reason why no guard covers it, in one sentence.
pub fn why_not(one: &GuardCandidate) -> String {
    if one.is_unfit {
        return format!("no guard for {} under {}: {UNFIT}", one.keys, one.lock);
    }
    format!(
        "no guard for {} under {}: written before the lock is taken, over the same connection, which a guard would refuse; \
         connections that began so: {}",
        one.keys,
        one.lock,
        named(&one.starters)
    )
}

fn named(all: &[(String, u64)]) -> String {
    let first = all.iter().take(MAX_NAMED);
    let mut named: Vec<String> = first.map(|(application, times)| format!("{application} ({times})")).collect();
    if all.len() > MAX_NAMED {
        named.push("…".to_owned());
    }
    named.join(", ")
}

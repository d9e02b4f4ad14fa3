//! Random scripts against a server alone: which keys each of them changes, and whether a reader of its text foresaw them. The
//! caller brings the reader as a function. `maker` makes scripts from the ways of Lua in `carriers`, `arena` runs them and
//! compares the keyspace before and after, `shortening` makes a script that was found as short as possible, and `corpus` has the
//! scripts that were found before.

mod arena;
mod carriers;
mod corpus;
mod maker;
mod shortening;

use crate::random::Random;

pub use arena::Arena;
pub use corpus::corpus;
pub use maker::Maker;

/// Scripts that are run in one write.
const BATCH: usize = 100;

/// What stands before a library of functions, whose second function is the one that is judged.
pub const LIBRARY: &str = "#!lua name=fuzzed\n";

/// The keys and the arguments of a call.
pub type Given = (Vec<Vec<u8>>, Vec<Vec<u8>>);

/// A script, or a library, with the keys and arguments of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Lua.
    pub text: String,
    /// `KEYS`
    pub keys: Vec<Vec<u8>>,
    /// `ARGV`
    pub arguments: Vec<Vec<u8>>,
    /// Of a library: the keys and arguments of the call of its first function, which comes before.
    pub before: Option<Given>,
}

/// The keys that one call may change according to a reader of the script's text, beyond those that the call
/// declares.
pub enum Foreseen {
    /// Any key: such a script runs behind a guard.
    Anything,
    /// No other than these.
    These(Vec<Pattern>),
}

/// Keys that begin and end in a certain way.
pub struct Pattern {
    /// What they begin with.
    pub beginning: Vec<u8>,
    /// What they end with; `None` if the beginning is the whole key.
    pub ending: Option<Vec<u8>>,
}

impl Pattern {
    fn fits(&self, key: &[u8]) -> bool {
        match &self.ending {
            None => key == self.beginning,
            Some(ending) => {
                key.len() >= self.beginning.len() + ending.len()
                    && key.starts_with(&self.beginning)
                    && key.ends_with(ending)
            }
        }
    }
}

impl Foreseen {
    fn covers(&self, key: &[u8]) -> bool {
        match self {
            Foreseen::Anything => true,
            Foreseen::These(patterns) => patterns.iter().any(|pattern| pattern.fits(key)),
        }
    }
}

/// Reads a script.
pub type Reader<'r> = &'r dyn Fn(&Script) -> Foreseen;

/// The result of a run of many scripts.
#[derive(Debug, Default)]
pub struct Account {
    /// Scripts that were made.
    pub made: u64,
    /// Those of which the reader named all keys. Only these are run: the reader claims nothing about the
    /// others.
    pub read: u64,
    /// Those among them that changed a key which they do not declare. The others prove nothing.
    pub telling: u64,
    /// Those that did not end.
    pub endless: u64,
    /// Those that changed a key which the reader did not name, made short.
    pub holes: Vec<Hole>,
}

/// A script that changes a key which its reader did not name.
#[derive(Debug)]
pub struct Hole {
    /// The script, as short as it can be made.
    pub script: Script,
    /// The keys.
    pub keys: Vec<Vec<u8>>,
}

/// Makes and runs so many scripts of this seed, or fewer if so many holes are found before.
pub fn run(arena: &mut Arena, reader: Reader<'_>, seed: u64, count: u64, holes: usize) -> Account {
    let mut maker = Maker::new(Random::from_seed(seed), arena.has_functions());
    let mut account = Account::default();
    while account.made < count && account.holes.len() < holes {
        let mut batch = Vec::new();
        while batch.len() < BATCH && account.made < count {
            account.made += 1;
            let script = maker.script();
            let foreseen = reader(&script);
            if matches!(foreseen, Foreseen::These(_)) {
                account.read += 1;
                batch.push((script, foreseen));
            }
        }
        for (found, changed) in judged(arena, &batch, &mut account) {
            let script = shortening::shortened(arena, reader, &found);
            let keys = unforeseen(arena, reader, std::slice::from_ref(&script)).swap_remove(0);
            let keys = if keys.is_empty() { changed } else { keys };
            let is_known = account.holes.iter().any(|hole| hole.script == script);
            if !is_known && account.holes.len() < holes {
                account.holes.push(Hole { script, keys });
            }
        }
    }
    account
}

/// The scripts of a batch that changed what was not foreseen, with these keys.
fn judged(arena: &mut Arena, batch: &[(Script, Foreseen)], account: &mut Account) -> Vec<(Script, Vec<Vec<u8>>)> {
    let scripts: Vec<&Script> = batch.iter().map(|(script, _)| script).collect();
    let mut found = Vec::new();
    for ((script, foreseen), changed) in batch.iter().zip(arena.changed_by(&scripts)) {
        let Some(mut changed) = changed else {
            account.endless += 1;
            continue;
        };
        changed.retain(|key| !script.keys.contains(key));
        account.telling += u64::from(!changed.is_empty());
        changed.retain(|key| !foreseen.covers(key));
        if !changed.is_empty() {
            found.push((script.clone(), changed));
        }
    }
    found
}

/// The keys that each of these scripts changes and the reader does not name.
pub fn unforeseen(arena: &mut Arena, reader: Reader<'_>, scripts: &[Script]) -> Vec<Vec<Vec<u8>>> {
    let foreseen: Vec<Foreseen> = scripts.iter().map(reader).collect();
    let scripts: Vec<&Script> = scripts.iter().collect();
    let changed = arena.changed_by(&scripts);
    let each = scripts.iter().zip(&foreseen).zip(changed);
    each.map(|((script, foreseen), changed)| {
        let mut keys = changed.unwrap_or_default();
        keys.retain(|key| !script.keys.contains(key) && !foreseen.covers(key));
        keys
    })
    .collect()
}

impl std::fmt::Display for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |words: &[Vec<u8>]| {
            let each = words.iter().map(|word| format!(" '{}'", word.escape_ascii()));
            each.collect::<String>()
        };
        let text = self.text.escape_debug().to_string().replace("\\'", "'");
        match &self.before {
            Some((keys, arguments)) => {
                write!(f, "FUNCTION LOAD \"{text}\"\n  FCALL f {}", keys.len())?;
                write!(f, "{}{}", shown(keys), shown(arguments))?;
                write!(f, "\n  FCALL g {}", self.keys.len())?;
            }
            None => write!(f, "EVAL \"{text}\" {}", self.keys.len())?,
        }
        write!(f, "{}{}", shown(&self.keys), shown(&self.arguments))
    }
}

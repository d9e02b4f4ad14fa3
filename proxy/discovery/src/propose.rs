//! The configuration that would govern the locks that were found. Families with the same rules share a namespace, and
//! every line says which observation it follows from.

use std::fmt::Write;

use lockwarden_lock::glob::Glob;
use lockwarden_lock::time::in_words;

use crate::collector::Pattern;
use crate::sighting::Spelling;
use crate::toml_text::{free_name, is_name_byte, line, quoted};
use crate::verdict::{Confidence, Kind, Verdict};

/// Durations that people usually write, in milliseconds, with their spelling.
const USUAL: [(u64, &str); 18] = [
    (1_000, "1s"),
    (2_000, "2s"),
    (5_000, "5s"),
    (10_000, "10s"),
    (15_000, "15s"),
    (30_000, "30s"),
    (60_000, "1m"),
    (120_000, "2m"),
    (300_000, "5m"),
    (600_000, "10m"),
    (1_800_000, "30m"),
    (3_600_000, "1h"),
    (7_200_000, "2h"),
    (21_600_000, "6h"),
    (43_200_000, "12h"),
    (86_400_000, "1d"),
    (172_800_000, "2d"),
    (604_800_000, "7d"),
];
/// The default TTL of a policy, and the lowest that is proposed, ms. With keep-alive, the TTL only decides how long a
/// dead holder blocks the others.
const DEFAULT_TTL_MS: u64 = 30_000;
/// The same for locks that a job takes from one process to another, ms: the job may wait long before it is done.
const HAND_OVER_TTL_MS: u64 = 3_600_000;
/// What a proposal is based on, for one pattern: seen by one proxy, or by several together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// A Redis glob.
    pub glob: Vec<u8>,
    /// A key that it matches.
    pub example: Vec<u8>,
    /// Whether the glob contains a word that distinguishes its keys from others.
    pub is_named: bool,
    /// The words of its keys, lower case.
    pub words: Vec<String>,
    /// What the keys are.
    pub verdict: Verdict,
    /// Whether `INCR` takes them.
    pub counts: bool,
    /// Released by the connection that took it, or by another one of its pool.
    pub released: u64,
    /// Released by another process of the same application.
    pub handed_over: u64,
    /// Deleted by other clients.
    pub foreign: u64,
    /// Deleted by clients that never take such keys.
    pub swept: u64,
    /// Leases that had no TTL.
    pub without_ttl: u64,
    /// The longest TTL, ms; 0: none was requested.
    pub longest_ttl_ms: u64,
    /// The time within which 99.9 % of the leases were released, ms.
    pub hold_p999_ms: Option<u64>,
}

impl From<&Pattern<'_>> for Candidate {
    fn from(pattern: &Pattern<'_>) -> Candidate {
        let usage = pattern.usage;
        Candidate {
            glob: pattern.glob.clone(),
            example: usage.example.to_vec(),
            is_named: pattern.is_named,
            words: pattern.words.clone(),
            verdict: pattern.verdict.clone(),
            counts: usage.tries.contains_key(&Spelling::Incr),
            released: usage.released,
            handed_over: usage.handed_over,
            foreign: usage.foreign,
            swept: usage.swept,
            without_ttl: usage.without_ttl + pattern.held_without_ttl,
            longest_ttl_ms: usage.longest_ttl_ms,
            hold_p999_ms: usage.hold_ms(0.999),
        }
    }
}

impl Candidate {
    fn given_back(&self) -> u64 {
        self.released + self.handed_over + self.foreign + self.swept
    }

    /// More than one in five releases came from other applications, or from connections that were refused the lock:
    /// enforcing would block some of them. Threads that share a pool stay below that, unless they do little but wait.
    fn is_misused(&self) -> bool {
        self.foreign * 5 > self.given_back()
    }

    /// Releases by other clients than the holder, where that is intended.
    fn by_others(&self) -> u64 {
        match self.verdict.hands_over {
            true => self.handed_over + self.swept,
            false => self.handed_over,
        }
    }
}

/// The settings chosen for a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rules {
    kind: Kind,
    counter_locks: bool,
    hand_over: bool,
    default_ms: u64,
    ceiling_ms: u64,
    /// Shares its namespace with no other family: the others could not be enforced before this one is repaired.
    by_itself: bool,
}

impl Rules {
    fn of(one: &Candidate) -> Rules {
        let longest = one.longest_ttl_ms.max(DEFAULT_TTL_MS * 2);
        // Four times what nearly every holder needed: this is how long a dead holder blocks the others.
        let needed = one.hold_p999_ms.unwrap_or(0).saturating_mul(4);
        let hand_over = one.by_others() * 2 > one.given_back();
        let least = match hand_over && one.without_ttl > 0 {
            true => HAND_OVER_TTL_MS,
            false => DEFAULT_TTL_MS,
        };
        let default_ms = usual(needed.max(least)).0;
        Rules {
            kind: one.verdict.kind,
            counter_locks: one.counts,
            hand_over,
            default_ms,
            ceiling_ms: usual(longest.max(default_ms)).0,
            by_itself: !hand_over && one.is_misused(),
        }
    }
}

/// The shortest usual duration that is not below this one.
fn usual(ms: u64) -> (u64, String) {
    let fits = USUAL.iter().find(|(one, _)| *one >= ms);
    match fits {
        Some((ms, name)) => (*ms, (*name).to_owned()),
        None => {
            let days = ms.div_ceil(86_400_000);
            (days * 86_400_000, format!("{days}d"))
        }
    }
}

/// A namespace for families with the same rules.
struct Family<'a> {
    rules: Rules,
    /// How many patterns of proposed locks are nested below it. A key belongs to the first namespace that matches, so
    /// the narrower ones come first.
    depth: usize,
    patterns: Vec<&'a Candidate>,
}

/// Families with the same rules and the same depth share a namespace. Misused families get one of their own.
fn families(patterns: &[Candidate]) -> Vec<Family<'_>> {
    let all: Vec<&Candidate> = patterns.iter().filter(|one| is_proposed(one)).collect();
    let depths = depths(&all);
    let mut families: Vec<Family<'_>> = Vec::new();
    for (pattern, depth) in all.into_iter().zip(depths) {
        let rules = Rules::of(pattern);
        let is_like = |family: &&mut Family<'_>| !rules.by_itself && (family.rules, family.depth) == (rules, depth);
        match families.iter_mut().find(is_like) {
            Some(family) => family.patterns.push(pattern),
            None => families.push(Family { rules, depth, patterns: vec![pattern] }),
        }
    }
    let literal = |pattern: &&Candidate| pattern.glob.iter().filter(|byte| **byte != b'*').count();
    families.sort_by_key(|family| {
        let longest = family.patterns.iter().map(literal).min();
        (family.depth, std::cmp::Reverse(longest))
    });
    families
}

/// For each pattern, how many patterns are nested below it.
fn depths(all: &[&Candidate]) -> Vec<usize> {
    let globs: Vec<Glob> = all.iter().map(|one| Glob::new(one.glob.clone().into())).collect();
    let keys: Vec<[Vec<u8>; 3]> = all.iter().map(|one| keys_of(&one.glob)).collect();
    // A pattern that covers another one has fewer literal bytes, or as many and at least as many stars.
    let width = |at: &usize| {
        let glob = &all[*at].glob;
        let stars = glob.iter().filter(|byte| **byte == b'*').count();
        (std::cmp::Reverse(glob.len() - stars), stars)
    };
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(width);
    let mut depths = vec![0; all.len()];
    for (place, wide) in order.iter().enumerate() {
        let covers = |narrow: &&usize| keys[**narrow].iter().all(|key| globs[*wide].matches(key));
        let covered = order[..place].iter().filter(covers);
        depths[*wide] = covered.map(|narrow| depths[*narrow] + 1).max().unwrap_or(0);
    }
    depths
}

/// Sample keys that represent everything a pattern matches. A pattern has no special bytes but stars and escapes. A
/// star matches anything, so three names in its place are enough.
fn keys_of(glob: &[u8]) -> [Vec<u8>; 3] {
    let any: [&[u8]; 3] = [b"", b"\x01", b"\x01\x02\x01"];
    any.map(|any| {
        let mut key = Vec::new();
        let mut bytes = glob.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'*' => key.extend_from_slice(any),
                b'\\' => key.extend(bytes.next()),
                byte => key.push(*byte),
            }
        }
        key
    })
}

/// The configuration, as TOML. `period` is the time of observation, in words; `names` are the existing namespaces;
/// `guards` is the text for guards ([`crate::guards::toml`]).
pub fn toml(patterns: &[Candidate], guards: &str, period: &str, names: &[String]) -> String {
    let families = families(patterns);
    let mut text = format!(
        "# Proposed by lockwarden discover: what was seen in {period}. Read it, then paste it into the configuration.\n"
    );
    if families.is_empty() {
        text.push_str("# No locks were found outside the namespaces that there are.\n");
    }
    let mut used: Vec<String> = names.to_vec();
    for family in &families {
        let name = name(family, &used);
        put_family(&mut text, family, &name, patterns);
        used.push(name);
    }
    text.push_str(guards);
    put_others(&mut text, patterns);
    text
}

/// Whether the keys of a pattern are proposed as locks.
pub fn is_proposed(pattern: &Candidate) -> bool {
    // The configuration file is UTF-8.
    std::str::from_utf8(&pattern.glob).is_ok()
        && pattern.verdict.kind.is_lock()
        && pattern.verdict.confidence > Confidence::Guess
        && pattern.is_named
}

fn put_family(text: &mut String, family: &Family<'_>, name: &str, all: &[Candidate]) {
    let patterns = || family.patterns.iter().copied();
    let sum = |of: fn(&Candidate) -> u64| patterns().map(of).sum::<u64>();
    let mut put = |line: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = text.write_fmt(line);
        text.push('\n');
    };
    put(format_args!("\n[[namespace]]\nname = {}", quoted(name)));
    let globs = family.patterns.iter().map(|pattern| quoted(&shown(&pattern.glob)));
    put(format_args!("keys = [{}]", globs.collect::<Vec<_>>().join(", ")));
    for pattern in &family.patterns {
        put(format_args!(
            "# {}: {}, {}; {}",
            line(&shown(&pattern.glob)),
            pattern.verdict.kind.name(),
            pattern.verdict.confidence.name(),
            line(&pattern.verdict.why)
        ));
    }
    if family.rules.by_itself {
        put(format_args!(
            "# {} of {} were deleted by other applications, or by connections that were refused them: by itself, so that the others can be enforced before it",
            sum(|one| one.foreign),
            sum(Candidate::given_back)
        ));
    }
    let globs: Vec<Glob> = family.patterns.iter().map(|pattern| Glob::new(pattern.glob.clone().into())).collect();
    for other in all.iter().filter(|other| !is_proposed(other)) {
        if globs.iter().any(|glob| glob.matches(&other.example)) {
            put(format_args!(
                "# CAUTION: matches {} as well, which looks like a {}: name the keys more narrowly, or put those into a \
                 namespace of their own above this one",
                line(&shown(&other.glob)),
                other.verdict.kind.name()
            ));
        }
    }
    put(format_args!("mode = \"monitor\" # refuses nothing; `lockwarden audit` says when it may be \"enforce\""));
    if family.rules.counter_locks {
        put(format_args!("counter_locks = true # taken by INCR: whoever counts to 1 has it"));
    }
    if family.rules.hand_over {
        put(format_args!(
            "hand_over = true # {} of {} were given back by others than took them: give these one ACL user or client name",
            sum(Candidate::by_others),
            sum(Candidate::given_back)
        ));
    }
    if family.rules.kind == Kind::TimedLock {
        put(format_args!(
            "policies = [\"fencing\", \"ttl-ceiling\"] # nobody gives them back, so nobody has to prove ownership"
        ));
    }
    put(format_args!("[namespace.settings.ttl-ceiling]"));
    let without = sum(|one| one.without_ttl);
    let longest_hold = patterns().filter_map(|one| one.hold_p999_ms).max();
    let held = longest_hold.map_or("no lease was given back".to_owned(), |ms| {
        format!("999 of 1,000 leases were held for {} at most", in_words(ms))
    });
    put(format_args!(
        "default = {:?} # for the {} acquires without a TTL; {held}",
        usual(family.rules.default_ms).1,
        without
    ));
    let longest = patterns().map(|one| one.longest_ttl_ms).max().unwrap_or(0);
    let longest = match longest {
        0 => "no TTL was asked for".to_owned(),
        ms => format!("the longest TTL that was asked for is {}", in_words(ms)),
    };
    put(format_args!("ceiling = {:?} # {longest}", usual(family.rules.ceiling_ms).1));
    if family.rules.kind == Kind::TimedLock {
        put(format_args!("keep_alive = \"off\" # the TTL is the time between two runs"));
    }
}

/// Lists what is left out, and why.
fn put_others(text: &mut String, patterns: &[Candidate]) {
    let mut others = patterns.iter().filter(|pattern| !is_proposed(pattern)).peekable();
    if others.peek().is_some() {
        text.push_str("\n# Left out:\n");
    }
    for pattern in others {
        let _ = writeln!(
            text,
            "#   {}: {}, {}; {}",
            line(&shown(&pattern.glob)),
            pattern.verdict.kind.name(),
            pattern.verdict.confidence.name(),
            line(&pattern.verdict.why)
        );
    }
}

/// A name that no other namespace has, from the words of the first pattern.
fn name(family: &Family<'_>, used: &[String]) -> String {
    let words = family.patterns.first().map(|pattern| pattern.words.join("-"));
    let name: String = words.unwrap_or_default().chars().filter(|one| is_name_byte(*one)).collect();
    free_name(name, "locks", used)
}

fn shown(glob: &[u8]) -> String {
    String::from_utf8_lossy(glob).into_owned()
}

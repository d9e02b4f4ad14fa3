//! Families of locks that are used differently but share a namespace: some are released, some are left to their TTLs, some are
//! released by another process. No single set of rules fits all of them; this module proposes a namespace for those in the
//! minority.

use std::collections::HashMap;
use std::fmt::Write as _;

use lockwarden_control::telemetry::vocabulary::Observation;
use lockwarden_control::text::durations::toml_duration;
use lockwarden_discovery::PatternId;
use lockwarden_discovery::toml_text::{free_name, quoted};
use lockwarden_lock::glob::Glob;

use super::advice::Finding;
use super::api::MixedFamily;
use super::applications::Applications;
use super::key_patterns::{KeyPatterns, PatternSeen};

/// Fewer leases do not show how a family is used.
const FEW_LEASES: u64 = 5;
/// A family is left to its TTLs if at least this many times as many leases are left as are released.
const MOSTLY: u64 = 10;

/// How a family is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Way {
    GivenBack,
    /// As a mark that something was done, or as a pause between two runs.
    LeftToTtl,
    /// One process takes the lock, and another releases it.
    HandedOver,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::GivenBack => "given-back",
            Way::LeftToTtl => "left-to-ttl",
            Way::HandedOver => "handed-over",
        }
    }
}

/// One pattern of keys.
struct Member<'a> {
    id: PatternId,
    seen: &'a PatternSeen,
    way: Way,
}

/// The families in the minority, by their use. `names` are the existing namespaces; this one may be `enforced`.
pub(super) fn mixed(
    namespace: &str,
    (patterns, applications): (&KeyPatterns, &Applications),
    from_ms: u64,
    (names, enforced): (&[String], bool),
) -> Vec<MixedFamily> {
    let found = |observation| {
        let found = applications.found_on(namespace, Finding::Observed(observation));
        let mut by_place: HashMap<Option<PatternId>, u64> = HashMap::new();
        for (pattern, count) in found {
            *by_place.entry(patterns.known(namespace, pattern)).or_default() += count;
        }
        by_place
    };
    let outlived = found(Observation::Outlived);
    let handed_over = found(Observation::HandedOver);
    let on = |all: &HashMap<_, u64>, id| all.get(&Some(id)).copied().unwrap_or(0);
    let mut members: Vec<Member<'_>> = patterns
        .of(namespace)
        .filter_map(|(id, seen)| {
            let id = id?;
            let way = way(seen, from_ms, on(&outlived, id), on(&handed_over, id))?;
            Some(Member { id, seen, way })
        })
        .collect();
    members.sort_by_key(|one| (one.way, patterns.glob(Some(one.id))));
    let busy = |way: Way| -> u64 {
        let these = members.iter().filter(|one| one.way == way);
        these.map(|one| one.seen.operations()).sum()
    };
    let ways = [Way::GivenBack, Way::LeftToTtl, Way::HandedOver];
    // Of equals the first, so that the result is stable.
    let Some(main) = ways.into_iter().rev().max_by_key(|way| busy(*way)) else {
        return Vec::new();
    };
    let mut names = names.to_vec();
    let fewer = ways.into_iter().filter(|way| *way != main);
    fewer
        .filter_map(|way| {
            let (these, others): (Vec<&Member<'_>>, Vec<_>) = members.iter().partition(|one| one.way == way);
            if these.is_empty() || others.iter().all(|one| one.way != main) {
                return None;
            }
            let name = name_of(&patterns.glob(these.first().map(|one| one.id)), &names);
            let toml = toml((&name, enforced), &these, &others, patterns);
            names.push(name);
            let globs = these.iter().map(|one| patterns.glob(Some(one.id)));
            Some(MixedFamily {
                way: way.word().to_owned(),
                others: main.word().to_owned(),
                patterns: globs.collect(),
                toml,
            })
        })
        .collect()
}

fn way(seen: &PatternSeen, from_ms: u64, outlived: u64, handed_over: u64) -> Option<Way> {
    let holds = seen.holds.since(from_ms);
    let given_back = holds.given_back();
    let left = outlived + (holds.count() - given_back);
    if handed_over >= FEW_LEASES && handed_over * 2 >= given_back {
        Some(Way::HandedOver)
    } else if left >= FEW_LEASES && left >= given_back * MOSTLY {
        Some(Way::LeftToTtl)
    } else if given_back >= FEW_LEASES {
        Some(Way::GivenBack)
    } else {
        None
    }
}

/// The namespace to write above the current one.
fn toml(
    (name, enforced): (&str, bool),
    these: &[&Member<'_>],
    others: &[&Member<'_>],
    patterns: &KeyPatterns,
) -> String {
    let globs: Vec<String> =
        these.iter().filter_map(|one| String::from_utf8(patterns.glob_bytes(one.id)).ok()).collect();
    let keys: Vec<String> = globs.iter().map(|glob| quoted(glob)).collect();
    let mut text = format!("[[namespace]]\nname = {}\nkeys = [{}]\n", quoted(name), keys.join(", "));
    let takes = |glob: &String| {
        let glob = Glob::new(glob.clone().into_bytes().into());
        let mut others = others.iter();
        others.find(|other| glob.matches(other.seen.example()))
    };
    // Writing to a String cannot fail, here and below.
    for other in globs.iter().filter_map(takes) {
        let other = String::from_utf8_lossy(&patterns.glob_bytes(other.id)).into_owned();
        let _ = writeln!(text, "# CAUTION: matches {} as well: name the keys more narrowly", quoted(&other));
    }
    // The same mode, so that a reload does not govern less.
    let mode = if enforced { "enforce" } else { "monitor" };
    let _ = writeln!(text, "mode = \"{mode}\"");
    let longest = these.iter().filter_map(|one| one.seen.longest_ttl_ms()).max();
    let wanted = these.iter().filter_map(|one| one.seen.holds.wanted_ttl_ms()).max();
    let ceiling = longest.max(wanted).map(toml_duration);
    let of_way = these.first().map(|one| one.way);
    match of_way {
        Some(Way::LeftToTtl) => {
            text.push_str("[namespace.settings.ttl-ceiling]\n");
            if let Some(ceiling) = ceiling {
                let _ = writeln!(text, "ceiling = \"{ceiling}\" # the longest TTL that was asked for");
            }
            text.push_str("keep_alive = \"off\" # the TTL is what they are for\n");
        }
        Some(Way::HandedOver) => {
            text.push_str("hand_over = true # one process takes them, and another gives them back\n");
            if let Some(ms) = wanted {
                let _ = writeln!(
                    text,
                    "[namespace.settings.ttl-ceiling]\ndefault = \"{}\" # no job takes longer",
                    toml_duration(ms)
                );
                if let Some(ceiling) = ceiling {
                    let _ = writeln!(text, "ceiling = \"{ceiling}\"");
                }
            }
        }
        Some(Way::GivenBack) | None => {
            if let Some(ceiling) = ceiling {
                let _ = writeln!(
                    text,
                    "[namespace.settings.ttl-ceiling]\nceiling = \"{ceiling}\" # the longest TTL that was asked for"
                );
            }
        }
    }
    text
}

/// A name that no other namespace has, built from the words of a pattern.
fn name_of(glob: &str, used: &[String]) -> String {
    let is_fit = |one: char| one.is_ascii_alphanumeric();
    let words: Vec<&str> = glob.split(|one| !is_fit(one)).filter(|word| !word.is_empty()).collect();
    free_name(words.join("-"), "locks", used)
}

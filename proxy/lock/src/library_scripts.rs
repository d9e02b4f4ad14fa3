//! Scripts of lock libraries that are known by their digest alone: on a Redis in use, clients only send EVALSHA, and a
//! proxy that is added later never sees a text. `library_scripts.tsv` has the digests, written by
//! `tests/library-scripts/collect.py` from the packages of every released version; `library_scripts.lua` describes in
//! our own code what each does. It also has the scripts of job systems that an operator may name in `trusted_scripts`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::script_facts::{ScriptFacts, ScriptSha};

/// The purpose of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes a lock, and may extend its own.
    Take,
    /// It extends one.
    Extend,
    /// It releases one, if it is the caller's.
    Release,
    /// It only reads one.
    Look,
    /// Anything else; possibly unrelated to locks.
    Other,
}

/// The reply that means success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// This number.
    Number(i64),
    /// `OK`.
    Status,
    /// Nil.
    Nil,
    /// The file does not say.
    Unknown,
}

/// What a script does, and the places of its arguments. Places are those in ARGV, from 0.
#[derive(Debug)]
pub struct Manner {
    /// The name of its section.
    pub name: &'static str,
    /// See [`Role`].
    pub role: Role,
    /// The place of the value that proves the lease.
    pub owner: Option<usize>,
    /// The place of its TTL, and how many milliseconds its unit has.
    pub ttl: Option<(usize, u64)>,
    /// See [`Done`].
    pub done: Done,
    /// A text that does the same; `None` if a call of the script cannot be judged without its own text.
    text: Option<&'static str>,
}

impl Manner {
    /// Whether it is about locks.
    pub fn is_about_locks(&self) -> bool {
        self.role != Role::Other || self.text.is_some()
    }

    /// Whether the commands that it calls do not show the lock to an observer of those alone.
    pub fn is_hidden(&self) -> bool {
        self.name.starts_with("members-")
    }

    /// Whether each of its keys is a lock; otherwise only the first is.
    pub fn is_of_each_key(&self) -> bool {
        self.name.ends_with("-all") || self.name.ends_with("-each")
    }

    fn of(head: &'static str, text: &'static str) -> Option<Manner> {
        let (name, rest) = head.split_once(": ")?;
        let mut words = rest.split(", ");
        let role = match words.next()? {
            "take" => Role::Take,
            "extend" => Role::Extend,
            "release" => Role::Release,
            "look" => Role::Look,
            "other" => Role::Other,
            _ => return None,
        };
        let mut manner = Manner {
            name,
            role,
            owner: None,
            ttl: None,
            done: Done::Unknown,
            text: Some(text.trim()).filter(|text| !text.is_empty()),
        };
        for (place, word) in words.enumerate() {
            match word.split_once('=') {
                Some(("done", "nil")) => manner.done = Done::Nil,
                Some(("done", "OK")) => manner.done = Done::Status,
                Some(("done", number)) => manner.done = Done::Number(number.parse().ok()?),
                Some(_) => return None,
                None if word == "owner" => manner.owner = manner.owner.or(Some(place)),
                None if word == "ms" => manner.ttl = manner.ttl.or(Some((place, 1))),
                None if word == "s" => manner.ttl = manner.ttl.or(Some((place, 1_000))),
                None => {}
            }
        }
        // A release that leaves a part of a count has a TTL for that part.
        if !matches!(role, Role::Take | Role::Extend) {
            manner.ttl = None;
        }
        Some(manner)
    }
}

/// A script, and the library that has it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The name of its package.
    pub library: &'static str,
    /// A version, or the first and the last with `..` between them.
    pub versions: &'static str,
    /// What it does.
    pub manner: &'static Manner,
}

/// A line of the table: digest, section, library, versions.
type Line = [&'static str; 4];

/// The sections of the file. It parses, because its own test has parsed it.
static MANNERS: LazyLock<HashMap<&'static str, Manner>> = LazyLock::new(|| {
    let sections = include_str!("library_scripts.lua").split("\n--- ");
    let manners = sections.skip(1).filter_map(|section| {
        let (head, text) = section.split_once('\n').unwrap_or((section, ""));
        Manner::of(head, text)
    });
    manners.map(|manner| (manner.name, manner)).collect()
});

static SCRIPTS: LazyLock<HashMap<ScriptSha, Known>> = LazyLock::new(|| {
    let known = lines().filter_map(|[digest, section, library, versions]| {
        let known = Known { library, versions, manner: MANNERS.get(section)? };
        Some((ScriptSha::from_hex(digest.as_bytes())?, known))
    });
    known.collect()
});

fn lines() -> impl Iterator<Item = Line> {
    let lines = include_str!("library_scripts.tsv").lines();
    lines.filter_map(|line| line.split('\t').collect::<Vec<_>>().try_into().ok())
}

/// What is known of a script, by its digest.
pub fn find(sha: &ScriptSha) -> Option<Known> {
    SCRIPTS.get(sha).copied()
}

/// The facts of a script with an unknown text, from the text that does the same.
pub fn facts(sha: &ScriptSha) -> Option<Arc<ScriptFacts>> {
    let text = find(sha)?.manner.text?;
    Some(Arc::new(ScriptFacts::standing_in(*sha, text.as_bytes())))
}

/// Facts of any script about locks, for discovery, which only watches; [`find`] describes what it does.
pub fn facts_to_watch(sha: &ScriptSha) -> Option<Arc<ScriptFacts>> {
    let known = find(sha).filter(|known| known.manner.is_about_locks())?;
    // Not Lua: what each call does cannot be found in a text.
    let text = known.manner.text.unwrap_or("?");
    Some(Arc::new(ScriptFacts::standing_in(*sha, text.as_bytes())))
}

/// The scripts of job systems: library and version, with their digests.
pub(crate) fn of_jobs() -> impl Iterator<Item = (String, &'static str)> {
    let jobs = lines().filter(|[_, section, _, _]| *section == "job");
    jobs.map(|[digest, _, library, versions]| (format!("{library}@{versions}"), digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use lockwarden_lua::{Meaning, Names};

    #[test]
    fn every_line_of_both_files_is_read() {
        let sections = include_str!("library_scripts.lua").matches("\n--- ").count();
        assert_eq!(MANNERS.len(), sections);
        let lines = include_str!("library_scripts.tsv").lines().count();
        assert_eq!(SCRIPTS.len(), lines);
        for manner in MANNERS.values() {
            let needs_ttl = manner.role == Role::Take || manner.role == Role::Extend;
            assert_eq!(manner.ttl.is_some(), needs_ttl, "{}", manner.name);
        }
    }

    /// If a text computed names from data, any call of such a script would be a danger to every lock.
    #[test]
    fn texts_that_stand_in_compute_no_names_and_mean_what_their_role_says() {
        for manner in MANNERS.values() {
            let Some(text) = manner.text else { continue };
            let facts = ScriptFacts::of(text.as_bytes());
            assert_ne!(facts.analysis.names, Names::Computed, "{}", manner.name);
            assert!(!facts.calls_others && !facts.minds_guard, "{}", manner.name);
            let owner = Bytes::from_static(b"own-token-of-22-bytes!");
            let number = Bytes::from_static(b"22");
            let arguments: Vec<Bytes> = (0..3)
                .map(|place| match manner.owner == Some(place) {
                    true => owner.clone(),
                    false => number.clone(),
                })
                .collect();
            let key = Bytes::from_static(b"lock");
            let meaning = facts.analysis.meaning(&[key], &arguments, b"lock");
            match manner.role {
                // Those remove what has ended.
                Role::Look if manner.is_hidden() => {}
                Role::Look => assert_eq!(meaning, Meaning::Reads, "{}", manner.name),
                _ => assert_ne!(meaning, Meaning::Reads, "{}", manner.name),
            }
        }
    }

    #[test]
    fn libraries_are_found_by_the_digests_that_they_send() {
        for (digest, library, section) in [
            ("c3f8721cbb97f72bc19e972846bd7aaf91901658", "redis", "delete-or-zero"),
            ("a4e8783852e6b949f9ef3a97212805108459a890", "redis", "prolong-or-replace"),
            ("e5a322e2634ef59a516e8ea150cb085afafee684", "redlock", "take-all"),
            ("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", "redlock", "store-again-all"),
            ("e950836ed1e694540c503ef9972b8de518044d3b", "github.com/go-redsync/redsync/v4", "delete-or-why"),
            ("90da91872223f85eb1376a17e3c4df21ace8c54b", "python-redis-lock", "signal-and-delete"),
            ("7157921a7cc7cfba979acf6d63f073151df17d12", "redis-semaphore", "delete-or-zero"),
        ] {
            let sha = ScriptSha::from_hex(digest.as_bytes()).expect("40 digits");
            let known = find(&sha).unwrap_or_else(|| panic!("{library}: {digest}"));
            assert_eq!((known.library, known.manner.name), (library, section));
        }
    }
}

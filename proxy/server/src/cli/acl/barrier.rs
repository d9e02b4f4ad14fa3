//! The rights that the users of a server must have so that clients which bypass lockwarden cannot touch lock keys or records,
//! and the rights of their twins. Pure: [`super::users`] reads the present rights, and the callers send the commands that
//! change them. docs/decisions/0055 gives the reasons.

use std::collections::BTreeSet;

use bytes::Bytes;
use lockwarden_control::config::Config;
use lockwarden_lock::companion::PREFIX_MARKS;
use lockwarden_lock::key_sets::{KeySetError, Remainder, Taken, fitting_acl};
use lockwarden_lock::scripts::Purpose;
use lockwarden_lock::table::{KEYS_UNCHECKED, KEYS_UNCHECKED_BEFORE_7};

use super::commands::Commands;
use super::users::{Keys, Rights, User};

/// Commands that reach lock keys without naming them.
const HOLES: &[&str] = &["flushall", "flushdb", "swapdb", "debug", "replicaof", "slaveof", "failover", "sync", "psync"];
/// Commands with which a user can give itself its rights back; from Redis 7.0 on, which can forbid a single subcommand.
const HOLES_SINCE_7: &[&str] =
    &["acl|setuser", "acl|deluser", "acl|load", "config|set", "config|rewrite", "module|load", "module|loadex"];
/// Forbidden where functions are trusted with locks: otherwise a client could replace such a function.
const HOLES_BY_FUNCTIONS: &[&str] = &["function|load", "function|delete", "function|flush", "function|restore"];
/// The same before 7.0.
const HOLES_BEFORE_7: &[&str] = &["module", "acl", "config"];
/// Harmless subcommands of those.
const HARMLESS_BEFORE_7: [(&str, &str); 2] = [("acl", "+acl|whoami"), ("config", "+config|get")];

/// Sent after steps where grants wait for replicas.
const WAIT: &str = "wait";
/// Sent before the first step where there is a quarantine.
const INFO: &str = "info";
/// The commands of a write of guarded data.
const GUARDED: [&str; 4] = ["exec", "multi", "unwatch", "watch"];

/// See the module.
pub(crate) struct Barrier {
    taken: Taken,
    /// Patterns of lock keys and records, as an ACL spells them.
    grants: Vec<Bytes>,
    /// Commands that bypass it.
    holes: Vec<&'static str>,
    /// Whether grants wait for replicas.
    waits: bool,
    /// Some locks have a quarantine.
    quarantines: bool,
    /// Some data is guarded.
    guards: bool,
    commands: Commands,
}

/// The required rights of a user.
pub(crate) struct Barred {
    pub(crate) root: Rights,
    pub(crate) selectors: Vec<Rights>,
    /// Globs that are removed as a whole, because the rest of them cannot be expressed.
    pub(crate) dropped: Vec<Vec<u8>>,
    /// Commands that it may no longer use.
    pub(crate) forbidden: Vec<&'static str>,
}

impl Barrier {
    /// The barrier for the namespaces of a configuration; from Redis 7.0 on single subcommands can be forbidden.
    pub(crate) fn new(config: &Config, is_since_7: bool, commands: Commands) -> Result<Barrier, KeySetError> {
        let records = [&config.companion_prefix[..], b"*"].concat();
        let namespaces = config.namespaces.iter().flat_map(|namespace| &namespace.keys);
        let locks: Vec<Bytes> = namespaces.cloned().collect();
        let (mark, ending) = PREFIX_MARKS;
        let own = [records, [mark, b"*", ending].concat()].map(Bytes::from);
        let all = || locks.iter().chain(&own).map(|glob| &glob[..]);
        let mut grants: Vec<Bytes> = all().map(|glob| fitting_acl(glob).into()).collect();
        if mark.starts_with(&config.companion_prefix) {
            grants.pop();
        }
        let mut holes = HOLES.to_vec();
        holes.extend(if is_since_7 { HOLES_SINCE_7 } else { HOLES_BEFORE_7 });
        holes.extend(KEYS_UNCHECKED);
        if !is_since_7 {
            holes.extend(KEYS_UNCHECKED_BEFORE_7);
        }
        if is_since_7 && !config.administration.trusted_functions.is_empty() {
            holes.extend(HOLES_BY_FUNCTIONS);
        }
        Ok(Barrier {
            taken: Taken::new(all())?,
            grants,
            holes,
            waits: config.waits_for_replicas(),
            quarantines: config.has_quarantine(),
            guards: !config.guards.is_empty(),
            commands,
        })
    }

    /// Globs that cover more than their own keys.
    pub(crate) fn widened(&self) -> &[Vec<u8>] {
        &self.taken.widened
    }

    /// Whether this user may touch a lock key or a record by its name.
    pub(crate) fn is_open_to(&self, user: &User) -> bool {
        user.all_rights().any(|rights| {
            let mut keys = rights.keys.iter();
            !rights.commands.is_empty() && keys.any(|keys| self.taken.touches(&keys.glob))
        })
    }

    /// The commands of this user that would bypass the barrier.
    pub(crate) fn holes(&self, user: &User) -> Vec<&'static str> {
        let rights: Vec<_> = user.all_rights().map(|rights| self.commands.allowed(&rights.commands)).collect();
        let may = |hole: &&&'static str| rights.iter().any(|allowed| allowed.contains(**hole));
        self.holes.iter().filter(may).copied().collect()
    }

    /// This user behind the barrier.
    pub(crate) fn barred(&self, user: &User) -> Result<Barred, KeySetError> {
        let forbidden = self.holes(user);
        let mut dropped = Vec::new();
        let mut bar = |rights: &Rights| -> Result<Rights, KeySetError> {
            let left = self.left_of(rights)?;
            dropped.extend(left.1);
            let mut commands = rights.commands.clone();
            let allowed = self.commands.allowed(&commands);
            for hole in forbidden.iter().filter(|hole| allowed.contains(**hole)) {
                commands.push(format!("-{hole}").into());
                let harmless = HARMLESS_BEFORE_7.iter().find(|(family, _)| family == hole);
                commands.extend(harmless.map(|(_, rule)| Bytes::from_static(rule.as_bytes())));
            }
            Ok(Rights { keys: left.0, others: rights.others.clone(), commands })
        };
        let root = bar(&user.root)?;
        let selectors = user.selectors.iter().map(bar).collect::<Result<_, _>>()?;
        Ok(Barred { root, selectors, dropped, forbidden })
    }

    /// The remaining keys, and the globs that had to be dropped.
    fn left_of(&self, rights: &Rights) -> Result<(Vec<Keys>, Vec<Vec<u8>>), KeySetError> {
        let (mut keys, mut gone) = (Vec::new(), Vec::new());
        for access in [&b"~"[..], b"%R~", b"%W~"] {
            let of_this = rights.keys.iter().filter(|keys| keys.access == access);
            let Remainder { patterns, dropped } = self.taken.from(of_this.map(|keys| &keys.glob[..]))?;
            let access: &'static [u8] = match access {
                b"%R~" => b"%R~",
                b"%W~" => b"%W~",
                _ => b"~",
            };
            keys.extend(patterns.into_iter().map(|glob| Keys { access, glob: glob.into() }));
            gone.extend(dropped);
        }
        Ok((keys, gone))
    }

    /// The twin of this user: the same rights, and on all locks and records every right that governing them needs. An existing
    /// twin keeps its keys, if they equal the user's apart from locks.
    pub(crate) fn twin(&self, user: &User, existing: Option<&User>) -> (Rights, Vec<Rights>) {
        let mut root = user.root.clone();
        if let Some(twin) = existing
            && let (Ok(one), Ok(two)) = (self.barred(user), self.barred(twin))
            && one.root.key_set() == two.root.key_set()
        {
            root.keys = twin.root.keys.clone();
        }
        let everything = Keys::all(b"*");
        if root.keys.contains(&everything) {
            root.keys = vec![everything];
        } else {
            for grant in &self.grants {
                let grant = Keys::all(grant);
                if !root.keys.contains(&grant) {
                    root.keys.push(grant);
                }
            }
        }
        let needed = self.needed(user);
        let allowed = self.commands.allowed(&root.commands);
        let lacking: Vec<&str> = needed.into_iter().filter(|command| !self.commands.has(&allowed, command)).collect();
        for command in lacking {
            root.commands.push(format!("+{command}").into());
        }
        (root, user.selectors.clone())
    }

    /// The additional commands for namespaces with durability and for guards.
    fn more(&self) -> impl Iterator<Item = &'static str> {
        let guarded = self.guards.then_some(GUARDED).into_iter().flatten();
        let waits = self.waits.then_some(WAIT);
        let asks = self.quarantines.then_some(INFO);
        waits.into_iter().chain(asks).chain(guarded)
    }

    /// The commands of the steps that run as the twin of this user.
    fn needed(&self, user: &User) -> BTreeSet<&'static str> {
        let mut needed: BTreeSet<_> = Purpose::Locks.commands().into_iter().collect();
        needed.extend(Purpose::Scripts.commands());
        needed.extend(self.more());
        let flushes = ["flushall", "flushdb"];
        let holes = self.holes(user);
        if flushes.iter().any(|flush| holes.contains(flush)) {
            needed.extend(Purpose::Flush.commands());
        }
        needed
    }

    /// How a twin differs from its required rights beside this user; empty if it does not. Its password is checked by logging
    /// in.
    pub(crate) fn differences(&self, user: &User, twin: &User) -> Vec<String> {
        let mut differences = Vec::new();
        if !twin.is_on {
            differences.push("it is off".to_owned());
        }
        if twin.no_password {
            differences.push("it has nopass: anybody may log in as it".to_owned());
        }
        let has = |keys: &Keys| twin.root.keys.contains(keys);
        if !has(&Keys::all(b"*")) {
            let lacking = self.grants.iter().map(|grant| Keys::all(grant));
            let lacking: Vec<Bytes> = lacking.filter(|keys| !has(keys)).map(|keys| keys.rule()).collect();
            if !lacking.is_empty() {
                differences.push(format!("it lacks {}", shown(&lacking)));
            }
        }
        let needed = self.needed(user);
        let allowed = self.commands.allowed(&twin.root.commands);
        let lacking: Vec<Bytes> = needed
            .iter()
            .filter(|command| !self.commands.has(&allowed, command))
            .map(|command| Bytes::from(format!("+{command}")))
            .collect();
        if !lacking.is_empty() {
            differences.push(format!("it lacks {}", shown(&lacking)));
        }
        // Without the lock rights both have to be equal.
        if let (Ok(one), Ok(two)) = (self.barred(user), self.barred(twin)) {
            let pairs = std::iter::once((&one.root, &two.root)).chain(one.selectors.iter().zip(&two.selectors));
            for (user, twin) in pairs {
                differences.extend(difference(user.key_set(), twin.key_set(), |keys| keys.rule()));
                differences.extend(difference(user.others.iter().collect(), twin.others.iter().collect(), |word| {
                    (*word).clone()
                }));
                let (user, twin) = (self.plain(&user.commands), self.plain(&twin.commands));
                differences.extend(difference(user.iter().collect(), twin.iter().collect(), |command| {
                    format!("+{command}").into()
                }));
            }
            if one.selectors.len() != two.selectors.len() {
                differences.push("it has another number of selectors".to_owned());
            }
        }
        differences
    }

    /// The commands that rules allow, without those that the barrier removes and those that a twin is given.
    fn plain(&self, rules: &[Bytes]) -> BTreeSet<String> {
        let all = [Purpose::Locks, Purpose::Scripts, Purpose::Flush];
        let given = all.into_iter().flat_map(Purpose::commands);
        let given: BTreeSet<&str> = given.chain(self.more()).collect();
        let is_of_hole = |command: &str| {
            let family = command.split('|').next().unwrap_or(command);
            self.holes.iter().any(|hole| *hole == command || *hole == family)
        };
        let mut allowed = self.commands.allowed(rules);
        allowed.retain(|command| !given.contains(command.as_str()) && !is_of_hole(command));
        allowed
    }
}

fn difference<T: Ord + Copy>(user: BTreeSet<T>, twin: BTreeSet<T>, word: impl Fn(T) -> Bytes) -> Option<String> {
    let only =
        |one: &BTreeSet<T>, two: &BTreeSet<T>| -> Vec<Bytes> { one.difference(two).map(|rule| word(*rule)).collect() };
    let (lost, added) = (only(&user, &twin), only(&twin, &user));
    match (lost.is_empty(), added.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("it has not {}, which the user has", shown(&lost))),
        (true, false) => Some(format!("it has {}, which the user has not", shown(&added))),
        (false, false) => Some(format!("it has {} in place of {}", shown(&added), shown(&lost))),
    }
}

/// Rules that are named in one line.
const MAX_SHOWN: usize = 12;

fn shown(rules: &[Bytes]) -> String {
    let mut words: Vec<String> =
        rules.iter().take(MAX_SHOWN).map(|rule| lockwarden_control::text::escape::spell(rule)).collect();
    if rules.len() > MAX_SHOWN {
        words.push(format!("and {} more", rules.len() - MAX_SHOWN));
    }
    words.join(" ")
}

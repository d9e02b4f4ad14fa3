//! Which commands the steps use, taken from their texts; and the check that is put before a step of a user whose rights
//! are unknown: it tests every one of these commands, changes nothing, and names what is missing. Everything that
//! mentions a user's rights (error lines, `check --backend`, the page of the documentation) takes them from here.

use std::collections::HashSet;
use std::fmt::Write;

use super::packed;

/// How a command can be tested without changing anything: its arguments, with `KEY` in place of a key.
struct Trial {
    command: &'static str,
    words: &'static [&'static str],
}

const KEY: &str = "key";

const fn trial(command: &'static str, words: &'static [&'static str]) -> Trial {
    Trial { command, words }
}

/// Every command that a step may use. Those that need memory come first: on a server before 7.0 the commands themselves
/// must be tested, and the others would let these pass when the server is out of memory.
const TRIALS: &[Trial] = &[
    trial("set", &["'SET'", KEY, "''", "'NX'", "'XX'"]),
    trial("setrange", &["'SETRANGE'", KEY, "0", "''"]),
    trial("zadd", &["'ZADD'", KEY, "'XX'", "0", "''"]),
    trial("restore", &["'RESTORE'", KEY, "0", "''"]),
    trial("command", &["'COMMAND'", "'COUNT'"]),
    trial("dbsize", &["'DBSIZE'"]),
    trial("del", &["'DEL'", KEY]),
    trial("dump", &["'DUMP'", KEY]),
    trial("exists", &["'EXISTS'", KEY]),
    trial("get", &["'GET'", KEY]),
    trial("getrange", &["'GETRANGE'", KEY, "0", "0"]),
    trial("hexists", &["'HEXISTS'", KEY, "''"]),
    trial("hget", &["'HGET'", KEY, "''"]),
    trial("hgetall", &["'HGETALL'", KEY]),
    trial("info", &["'INFO'", "'server'"]),
    trial("lpush", &["'LPUSH'", KEY, "''"]),
    trial("lrange", &["'LRANGE'", KEY, "0", "0"]),
    trial("memory|usage", &["'MEMORY'", "'USAGE'", KEY]),
    trial("mget", &["'MGET'", KEY]),
    trial("persist", &["'PERSIST'", KEY]),
    trial("pexpire", &["'PEXPIRE'", KEY, "''"]),
    trial("pexpireat", &["'PEXPIREAT'", KEY, "''"]),
    trial("pexpiretime", &["'PEXPIRETIME'", KEY]),
    trial("ping", &["'PING'"]),
    trial("pttl", &["'PTTL'", KEY]),
    trial("publish", &["'PUBLISH'", "''", "''"]),
    trial("scan", &["'SCAN'", "0"]),
    trial("select", &["'SELECT'", "0"]),
    trial("time", &["'TIME'"]),
    trial("ttl", &["'TTL'", KEY]),
    trial("type", &["'TYPE'", KEY]),
    trial("zrange", &["'ZRANGE'", KEY, "0", "0"]),
    trial("zrangebyscore", &["'ZRANGEBYSCORE'", KEY, "0", "0"]),
    trial("zrem", &["'ZREM'", KEY, "''"]),
    trial("zscore", &["'ZSCORE'", KEY, "''"]),
];

/// Commands without which a step works too. `SELECT`: a script of the application that may not use it has selected
/// nothing. `PEXPIRETIME`, which 6.2 does not have: `PTTL` and `TIME` give the same. The others wake clients that wait
/// for a lock which an operator ended; they try again anyway.
const DISPENSABLE: &[&str] = &["select", "pexpiretime", "publish", "lrange", "lpush"];

/// The commands that a step's text calls by name, as ACLs name them, sorted.
pub(super) fn commands(text: &str) -> Vec<&'static str> {
    let called = text.match_indices("('").filter_map(|(at, open)| {
        let name = text[at + open.len()..].split('\'').next()?;
        CALLS.iter().any(|call| text[..at].ends_with(call)).then(|| name.to_ascii_lowercase())
    });
    let called: HashSet<String> = called.collect();
    let name = |trial: &Trial| trial.command.split('|').next().unwrap_or_default();
    let found = TRIALS.iter().filter(|trial| called.contains(name(trial)));
    let mut found: Vec<_> = found.map(|trial| trial.command).collect();
    found.sort_unstable();
    found
}

/// The functions by which the scripts call Redis commands.
const CALLS: [&str; 4] = ["call", "try", "run", "read"];

/// The arguments by which a command can be tested on a key without changing anything, if it is one of ours.
pub(super) fn words<'a>(command: &str, key: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let trial = TRIALS.iter().find(|trial| trial.command == command)?;
    let word = |word: &&'static str| match *word {
        KEY => key,
        literal => literal.trim_matches('\'').as_bytes(),
    };
    Some(trial.words.iter().map(word).collect())
}

/// Whether a step requires a command.
pub(super) fn is_needed(command: &str) -> bool {
    !DISPENSABLE.contains(&command)
}

/// The contents of the check.
pub(super) struct Check<'a> {
    /// The commands that it tests.
    pub commands: &'a [&'static str],
    /// A lock, in Lua.
    pub lock: &'static str,
    /// A companion, in Lua.
    pub companion: &'static str,
    /// Whether the last argument is the application's own command, which is tested and removed.
    pub takes_own: bool,
}

/// The check as Lua, to be put before a step; `check.lua` documents it.
pub(super) fn check(check: &Check<'_>) -> String {
    let mut words = String::new();
    for trial in TRIALS {
        if check.commands.contains(&trial.command) {
            let _ = write!(words, "{{{}}},", trial.words.join(","));
        }
    }
    let (lock, companion, takes_own) = (check.lock, check.companion, check.takes_own);
    let text = packed!("check").replace("TRIALS", &words);
    format!("do local lock,companion,takes_own={lock},{companion},{takes_own}\n{text}end\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::all;

    /// Every word in capitals that is called, in any spelling, is a command that can be tested.
    #[test]
    fn every_command_that_a_script_calls_is_known() {
        for script in all() {
            let text = script.text();
            for (at, _) in text.match_indices("('") {
                let name: String = text[at + 2..].chars().take_while(char::is_ascii_uppercase).collect();
                let ends = text[at + 2 + name.len()..].starts_with('\'');
                if name.len() > 1 && ends {
                    let known = |command: &&str| command.split('|').next() == Some(&name.to_ascii_lowercase());
                    assert!(
                        script.commands().iter().any(known),
                        "{}: {name} is called in a way that nobody sees",
                        script.name()
                    );
                }
            }
        }
    }

    #[test]
    fn what_takes_memory_is_tried_first() {
        let growing =
            TRIALS.iter().take_while(|trial| matches!(trial.command, "set" | "setrange" | "zadd" | "restore"));
        assert_eq!(growing.count(), 4, "lpush is never tried");
        assert!(!is_needed("lpush"));
    }
}

//! The atomic steps, as text for Redis. Each `.lua` file has its contract on top; this module puts
//! the shared functions that it uses in front of it and knows its SHA-1. Nothing else in the
//! product writes Lua.

use std::sync::LazyLock;

use sha1::{Digest, Sha1};

use crate::token::hex;

/// One atomic step.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    text: String,
    sha: String,
}

impl Script {
    /// The file's name, for logs and figures.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole text, as `EVAL` and `SCRIPT LOAD` take it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name that `EVALSHA` takes: 40 lower-case hex digits.
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$doc])* pub static $constant: LazyLock<Script> =
            LazyLock::new(|| assemble($name, include_str!(concat!("scripts/", $name, ".lua"))));)*

        /// Every script.
        #[cfg(test)]
        fn all() -> Vec<&'static Script> {
            vec![$(&$constant),*]
        }
    };
}

scripts! {
    /// SETNX, SET … NX.
    ACQUIRE = "acquire";
    /// Scripts that take a free lock and extend their own.
    TAKE = "take";
    /// MSETNX.
    ACQUIRE_ALL = "acquire_all";
    /// SET, SETEX, PSETEX, SET … XX, GETSET, SET … GET.
    STORE = "store";
    /// The EXPIRE family, GETEX, PERSIST, compare-and-expire.
    EXTEND = "extend";
    /// DEL, UNLINK, GETDEL of one key, compare-and-delete.
    RELEASE = "release";
    /// DEL, UNLINK of several keys.
    RELEASE_MANY = "release_many";
    /// Keep-alive.
    RENEW = "renew";
    /// A lease that ran out.
    NOTICE = "notice";
    /// Locks that a sweep has found.
    SWEEP = "sweep";
    /// What follows the text of an application's script.
    WRAP = "wrap";
    /// A grant whose reply was never read.
    UNDELIVERED = "undelivered";
    /// FLUSHDB, FLUSHALL.
    FLUSH = "flush";
    /// The process of a lease's holder.
    IDENTIFY = "identify";
    /// A lease that an operator ends.
    BREAK = "break";
}

const PRELUDE: &str = include_str!("scripts/prelude.lua");

/// Puts those functions of the prelude before a script that it uses, directly or through another:
/// Redis makes every function anew on every call, so one that is not used still costs.
fn assemble(name: &'static str, body: &str) -> Script {
    let mut text = String::new();
    let mut needed = code_of(body);
    for block in PRELUDE.split("\n\n").collect::<Vec<_>>().into_iter().rev() {
        let code = code_of(block);
        let wanted = defined_names(block).any(|defined| mentions(&needed, defined));
        if wanted {
            needed.push_str(&code);
            text.insert_str(0, &code);
        }
    }
    text.push_str(&code_of(body));
    let sha = hex(&Sha1::digest(text.as_bytes()));
    Script { name, text, sha }
}

/// A script without its comment lines; nothing in our scripts has two dashes inside a string.
fn code_of(lua: &str) -> String {
    let mut code = String::new();
    for line in lua.lines() {
        let line = line.split("--").next().unwrap_or_default().trim();
        if !line.is_empty() {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// The names that a block defines for others: those of its lines that are not indented.
fn defined_names(block: &str) -> impl Iterator<Item = &str> {
    block.lines().flat_map(|line| {
        let names = match line.strip_prefix("local function ") {
            Some(rest) => rest.split('(').next(),
            None => line
                .strip_prefix("local ")
                .and_then(|rest| rest.split('=').next()),
        };
        names.unwrap_or_default().split(',').map(str::trim)
    })
}

fn mentions(code: &str, name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && code.match_indices(name).any(|(at, _)| {
            let before = code[..at].bytes().next_back();
            let after = code[at + name.len()..].bytes().next();
            !before.is_some_and(|byte| word(byte) || byte == b'.') && !after.is_some_and(word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_carries_the_functions_that_it_uses_and_no_others() {
        let text = ACQUIRE.text();
        assert!(text.contains("local function grant("));
        assert!(text.contains("local function form("), "through governed()");
        assert!(!text.contains("local function proof("));
        assert!(!RENEW.text().contains("local function grant("));
        for script in all() {
            assert!(!script.text().contains("--"), "{}", script.name());
            assert_eq!(script.sha().len(), 40);
        }
    }
}

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
    /// Which leases are kept alive, and by whom no more.
    INDEX = "index";
    /// Leases that nobody may keep alive any more.
    ORPHANS = "orphans";
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
    /// A lease whose release was refused without a look at Redis.
    LET_GO = "let_go";
    /// A lease that an operator ends.
    BREAK = "break";
}

const PRELUDE: &str = include_str!("scripts/prelude.lua");

/// What follows this line in its block is not on the usual way of a call.
const RARELY: &str = "-- Rarely:";

/// Puts those functions of the prelude before a script that it uses, directly or through another:
/// Redis makes every function anew on every call, so one that is not used still costs. For the same
/// reason those that are used only behind a line [`RARELY`] are made there.
fn assemble(name: &'static str, body: &str) -> Script {
    let text = with_functions(body, &[]);
    let sha = hex(&Sha1::digest(text.as_bytes()));
    Script { name, text, sha }
}

/// The code with the functions that it uses before it, apart from those that are known there.
fn with_functions(code: &str, known: &[&str]) -> String {
    let mut needed = code_of(&usual(code));
    let mut used = Vec::new();
    for block in PRELUDE.split("\n\n").collect::<Vec<_>>().into_iter().rev() {
        let wanted = defined_names(block)
            .any(|defined| !known.contains(&defined) && mentions(&needed, defined));
        if wanted {
            needed.push_str(&code_of(&usual(block)));
            used.push(block);
        }
    }
    let (mut text, mut known) = (String::new(), known.to_vec());
    for block in used.into_iter().rev() {
        known.extend(defined_names(block));
        text.push_str(&with_rare_parts(block, &known));
    }
    text.push_str(&with_rare_parts(code, &known));
    text
}

/// The code with the functions that its rare parts use at the beginning of each.
fn with_rare_parts(code: &str, known: &[&str]) -> String {
    parts(code)
        .into_iter()
        .map(|part| match part {
            Part::Usual(code) => code_of(&code),
            Part::Rare(code) => with_functions(&code, known),
        })
        .collect()
}

/// The code without its rare parts.
fn usual(code: &str) -> String {
    parts(code)
        .into_iter()
        .filter_map(|part| match part {
            Part::Usual(code) => Some(code),
            Part::Rare(_) => None,
        })
        .collect()
}

/// A piece of Lua, whole lines.
enum Part {
    Usual(String),
    /// From behind a line [`RARELY`] to the end of its block, as its indentation shows it.
    Rare(String),
}

fn parts(code: &str) -> Vec<Part> {
    let (mut parts, mut usual) = (Vec::new(), String::new());
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() == RARELY {
            let mut rare = String::new();
            while let Some(line) =
                lines.next_if(|next| next.trim().is_empty() || indent(next) >= indent(line))
            {
                rare.push_str(line);
                rare.push('\n');
            }
            parts.push(Part::Usual(std::mem::take(&mut usual)));
            parts.push(Part::Rare(rare));
        } else {
            usual.push_str(line);
            usual.push('\n');
        }
    }
    parts.push(Part::Usual(usual));
    parts
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
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
    fn the_page_on_the_life_of_a_command_names_the_scripts_as_they_are() {
        let page = include_str!("../../../docs/life-of-a-command.md");
        let named = page
            .split_whitespace()
            .filter(|word| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(
            named.collect::<Vec<_>>(),
            [ACQUIRE.sha(), RELEASE.sha()],
            "docs/life-of-a-command.md: take the bytes off the wire again"
        );
    }

    #[test]
    fn a_script_carries_the_functions_that_it_uses_and_no_others() {
        let text = ACQUIRE.text();
        assert!(text.contains("local function grant("));
        assert!(text.contains("local function form("), "through governed()");
        assert!(!text.contains("local function proof("));
        assert!(!RELEASE.text().contains("local function grant("));
        assert!(!RENEW.text().contains("local function grant("));
        for script in all() {
            assert!(!script.text().contains("--"), "{}", script.name());
            assert_eq!(script.sha().len(), 40);
        }
    }

    #[test]
    fn what_only_a_rare_way_uses_is_made_there() {
        for (script, brief) in [(&ACQUIRE, "return 'G'"), (&EXTEND, "return 'X'")] {
            let (usual, rest) = script.text().split_once(brief).expect("a brief answer");
            for function in ["governed", "has"] {
                let made = format!("local function {function}(");
                assert!(!usual.contains(&made), "{} {function}", script.name());
                assert!(rest.contains(&made), "{} {function}", script.name());
            }
        }
        let (before, _) = RELEASE.text().split_once("return 'R'").expect("an answer");
        assert!(!before.contains("function"), "{before}");
    }

    #[test]
    fn a_rare_part_ends_with_its_block() {
        let code = "if a then\n  -- Rarely:\n  has(1)\n\n  has(2)\nend\nlocal x = form(1)\n";
        let text = with_functions(code, &[]);
        let at = |part: &str| text.find(part).expect("it is there");
        assert!(at("local function form(") < at("if a then"));
        assert!(at("if a then") < at("local function has("));
        assert!(at("has(2)") < at("end\nlocal x"));
        assert_eq!(text.matches("local function has(").count(), 1);
    }
}

//! The atomic steps, as text for Redis. Each `.lua` file has its contract on top; this module puts
//! the shared functions that it uses in front of it and knows its SHA-1. Which rights they need is told
//! in `rights`. Nothing else in the product writes Lua.

mod rights;

pub mod guard;

use std::sync::LazyLock;

use sha1::{Digest, Sha1};

use crate::token::hex;

/// One atomic step.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    plain: Text,
    checked: Text,
    question: Text,
    commands: Vec<&'static str>,
    is_for_clients: bool,
}

/// A text as `EVAL` takes it, and its name, as `EVALSHA` takes it: 40 lower-case hex digits.
#[derive(Debug)]
pub struct Text {
    text: String,
    sha: String,
}

impl Text {
    fn new(text: String) -> Text {
        let sha = hex(&Sha1::digest(text.as_bytes()));
        Text { text, sha }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its name.
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

impl Script {
    /// The file's name, for logs and figures.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole text, as `EVAL` and `SCRIPT LOAD` take it.
    pub fn text(&self) -> &str {
        self.plain.text()
    }

    /// The name that `EVALSHA` takes: 40 lower-case hex digits.
    pub fn sha(&self) -> &str {
        self.plain.sha()
    }

    /// The text as it is.
    pub fn plain(&self) -> &Text {
        &self.plain
    }

    /// The same behind a check of the rights that it takes. One more argument, the last, names the
    /// application's own command.
    pub fn checked(&self) -> &Text {
        &self.checked
    }

    /// The check alone.
    pub fn question(&self) -> &Text {
        &self.question
    }

    /// Whether it carries out commands of clients, on their connections.
    pub fn is_for_clients(&self) -> bool {
        self.is_for_clients
    }

    /// The commands that it uses, as ACLs name them.
    pub fn commands(&self) -> &[&'static str] {
        &self.commands
    }

    /// Those of them that it cannot do without.
    pub fn needs(&self) -> impl Iterator<Item = &'static str> {
        self.commands
            .iter()
            .copied()
            .filter(|command| rights::is_needed(command))
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$doc])* pub static $constant: LazyLock<Script> =
            LazyLock::new(|| assemble($name, include_str!(concat!("scripts/", $name, ".lua"))));)*

        /// Every script.
        pub fn all() -> Vec<&'static Script> {
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
    /// The same where the script declares no lock, behind a guard.
    GUARDED = "guarded";
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

/// The check of every right that a step of a client may take.
pub static ALL_RIGHTS: LazyLock<Text> = LazyLock::new(|| {
    Text::new(question(
        &[Purpose::Locks, Purpose::Scripts]
            .map(Purpose::commands)
            .concat(),
    ))
});

/// The check of every right that the proxy's own connection takes.
pub static OWN_RIGHTS: LazyLock<Text> =
    LazyLock::new(|| Text::new(question(&Purpose::Own.commands())));

/// The words by which a command that ACLs name so can be tried on a key so that nothing is changed; `None` for `EVAL`
/// and `EVALSHA`.
pub fn trial<'a>(command: &str, key: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    rights::words(command, key)
}

/// What commands are for that a user needs beside its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Lock commands of a client, and scripts whose meaning is known.
    Locks,
    /// Other scripts of a client that name a lock: what they need beside [`Purpose::Locks`].
    Scripts,
    /// FLUSHALL and FLUSHDB of a client.
    Flush,
    /// The proxy's own connection.
    Own,
}

impl Purpose {
    /// The commands as ACLs name them, sorted.
    pub fn commands(self) -> Vec<&'static str> {
        let (more, is_meant): (&[&str], fn(&Script) -> bool) = match self {
            Purpose::Locks => (&["eval", "evalsha", "getrange"], |script| {
                script.is_for_clients && script.name != "wrap"
            }),
            Purpose::Scripts => (&[], |script| script.name == "wrap"),
            Purpose::Flush => (&["eval", "evalsha", "select"], |script| {
                script.name == "flush"
            }),
            Purpose::Own => (
                &[
                    "command", "eval", "evalsha", "info", "ping", "scan", "select",
                ],
                |script| !script.is_for_clients && script.name != "flush",
            ),
        };
        let scripts = all().into_iter().filter(|script| is_meant(script));
        let mut commands: Vec<_> = scripts
            .flat_map(Script::needs)
            .chain(more.iter().copied())
            .collect();
        commands.sort_unstable();
        commands.dedup();
        if self == Purpose::Scripts {
            let known = Purpose::Locks.commands();
            commands.retain(|command| !known.contains(command));
        }
        commands
    }
}

/// The scripts that carry out commands of clients, on their connections.
const FOR_CLIENTS: [&str; 8] = [
    "acquire",
    "take",
    "acquire_all",
    "store",
    "extend",
    "release",
    "release_many",
    "wrap",
];

/// In front of a text it says that the script only reads, where the server reads flags of scripts (from 7.0 on): so it is
/// not kept waiting while writes are paused.
pub const ONLY_READS: &str = "#!lua flags=no-writes\n";

/// A check and nothing behind it.
fn question(needed: &[&'static str]) -> String {
    rights::check(&rights::Check {
        commands: needed,
        lock: "KEYS[1]",
        companion: "KEYS[2]",
        takes_own: true,
    }) + "return { 'Q', '' }"
}

const PRELUDE: &str = include_str!("scripts/prelude.lua");

/// What follows this line in its block is not on the usual way of a call.
const RARELY: &str = "-- Rarely:";

/// Puts those functions of the prelude before a script that it uses, directly or through another:
/// Redis makes every function anew on every call, so one that is not used still costs. For the same
/// reason those that are used only behind a line [`RARELY`] are made there.
fn assemble(name: &'static str, body: &str) -> Script {
    let body = with_functions(body, &[]);
    let commands = rights::commands(&body);
    let needed: Vec<_> = commands
        .iter()
        .copied()
        .filter(|command| rights::is_needed(command))
        .collect();
    let is_wrap = name == "wrap";
    let check = rights::check(&rights::Check {
        commands: &needed,
        lock: "KEYS[1]",
        companion: if is_wrap { "KEYS[#KEYS]" } else { "KEYS[2]" },
        takes_own: !is_wrap,
    });
    // What an application's script does cannot be taken back for want of a right, so it is always looked for.
    let plain = if is_wrap { check.clone() + &body } else { body };
    Script {
        name,
        checked: Text::new(check + &plain),
        question: Text::new(question(&needed)),
        plain: Text::new(plain),
        is_for_clients: FOR_CLIENTS.contains(&name),
        commands,
    }
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

/// A script without its comment lines and without blanks that mean nothing: in a block its text goes along, and Redis
/// hashes all of it. Nothing in our scripts has two dashes inside a string.
fn code_of(lua: &str) -> String {
    let mut code = String::new();
    for line in lua.lines() {
        let line = line.split("--").next().unwrap_or_default().trim();
        if !line.is_empty() {
            push_without_blanks(line, &mut code);
            code.push('\n');
        }
    }
    code
}

/// Leaves out blanks beside a sign that ends a word by itself, outside of strings, which have single quotes here.
fn push_without_blanks(line: &str, code: &mut String) {
    let ends_word = |byte: Option<&u8>| byte.is_some_and(|byte| b",=~<>(){}+*/%".contains(byte));
    let bytes = line.as_bytes();
    let mut quoted = false;
    for (at, letter) in line.char_indices() {
        quoted ^= letter == '\'';
        let beside = ends_word(at.checked_sub(1).and_then(|before| bytes.get(before)))
            || ends_word(bytes.get(at + 1));
        if letter != ' ' || quoted || !beside {
            code.push(letter);
        }
    }
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
    fn the_page_on_rights_names_the_commands_that_the_scripts_use() {
        let page = include_str!("../../../docs/rights.md");
        let lists: Vec<&str> = page.lines().filter(|line| line.starts_with('+')).collect();
        let purposes = [
            Purpose::Locks,
            Purpose::Scripts,
            Purpose::Flush,
            Purpose::Own,
        ];
        let wanted = purposes.map(|purpose| {
            let rules: Vec<_> = purpose
                .commands()
                .iter()
                .map(|name| format!("+{name}"))
                .collect();
            rules.join(" ")
        });
        assert_eq!(lists, wanted, "docs/rights.md");
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
    fn blanks_stay_where_they_mean_something() {
        let code =
            "  local a, b = x .. ' = ', { 'a b', -1 } -- why\n\nif not (a) then return - 1 end\n";
        assert_eq!(
            code_of(code),
            "local a,b=x .. ' = ',{'a b',-1}\nif not(a)then return - 1 end\n"
        );
    }

    #[test]
    fn a_rare_part_ends_with_its_block() {
        let code = "if a then\n  -- Rarely:\n  has(1)\n\n  has(2)\nend\nlocal x = form(1)\n";
        let text = with_functions(code, &[]);
        let at = |part: &str| text.find(part).expect("it is there");
        assert!(at("local function form(") < at("if a then"));
        assert!(at("if a then") < at("local function has("));
        assert!(at("has(2)") < at("end\nlocal x="));
        assert_eq!(text.matches("local function has(").count(), 1);
    }
}

//! The guard around a script that computes key names, as text for Redis: `guard.lua`, preceded by its data: the
//! commands with the positions of their keys, from the one command table, and the globs of the configuration.

use std::fmt::Write;
use std::sync::LazyLock;

use lockwarden_lua::{InScript, Places};
use sha1::{Digest, Sha1};

use super::packed;
use crate::companion::OWN;
use crate::namespace::{NamespaceId, Namespaces};
use crate::rules::Mode;
use crate::table::{Effect, Listing, SessionVerb, in_script, rows};

/// The Lua pattern for names that `companion::is_prefix_mark` accepts.
const MARKS: &str = "'^lw:{[^}]*}:lockwarden%-prefix$'";
/// The start of the function whose body is a guarded text: its parameters are all names that give access to the real
/// `redis`, or a way around the guard.
pub(crate) const HEAD: &str = "local f=function(redis,server,_G,getfenv,setfenv,loadstring,load,print,newproxy";

/// The start of a guarded script's answer that is not the script's own.
pub const MARK: &str = "lockwarden:guard";

/// Before 7.0, a server keeps every script that it knows as a global function with this prefix and 40 hexadecimal
/// digits, which no parameter can hide.
const OTHER_SCRIPT: &str = "f_";

/// Whether a text may call another script, bypassing the guard.
pub(crate) fn may_call_others(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, OTHER_SCRIPT).any(|at| {
        let name = text[at + OTHER_SCRIPT.len()..].iter().take(40);
        name.filter(|byte| byte.is_ascii_hexdigit()).count() == 40
    })
}

/// Whether a text may run differently behind the guard even though nothing is refused: it may call another script, or
/// it mentions what the guard hides.
pub(crate) fn may_be_noticed(text: &[u8]) -> bool {
    let has = |word: &str| memchr::memmem::find(text, word.as_bytes()).is_some();
    may_call_others(text) || has("fenv") || has("newproxy")
}

/// Whether a text certainly has room for the guard's few local variables besides its own: Lua allows 200 per function.
pub(crate) fn has_room(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, "local").count() <= 150
}

/// The guard for one configuration: which keys are locks, and which of these are enforced.
#[derive(Debug)]
pub struct Guard {
    text: String,
    /// The same for a text that uses global variables as such, or makes functions at run time.
    with_globals: String,
    /// Distinguishes guards.
    digest: [u8; 20],
    enforces: bool,
}

impl PartialEq for Guard {
    fn eq(&self, other: &Guard) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Guard {}

impl Guard {
    /// For these namespaces; `None` if there are none, so that there is nothing to guard.
    pub fn new(namespaces: &Namespaces, mode: &dyn Fn(NamespaceId) -> Mode, prefix: &[u8]) -> Option<Guard> {
        let mut all = namespaces.globs().map(|(namespace, _)| mode(namespace)).peekable();
        all.peek()?;
        let enforces = all.any(|mode| mode == Mode::Enforce);
        let (mut functions, mut tests) = ("", String::new());
        for (namespace, glob) in namespaces.globs() {
            let (shape, pattern) = glob.for_script();
            let test = match shape {
                b'x' => format!("key=={}", quoted(pattern)),
                b'p' => format!("sub(key,1,{})=={}", pattern.len(), quoted(pattern)),
                b'a' => "true".to_owned(),
                _ => {
                    functions = packed!("glob");
                    format!("glob({},key)", quoted(pattern))
                }
            };
            let answer = match mode(namespace) {
                Mode::Enforce => 1,
                Mode::Monitor => 2,
            };
            let _ = writeln!(tests, "if {test} then return {answer},{} end", namespace.0);
        }
        let text = format!(
            "local sub=string.sub\n{functions}\
             local COMMANDS,BEGINNINGS='{}','{}'\n\
             local MARK,PREFIX,OTHERS='{MARK}',{},'{OTHER_SCRIPT}{}'\n\
             local OWN,PREFIX_MARK={},{MARKS}\n\
             local ENFORCES={}\n\
             local function lock(key)\n{tests}end\n{}",
            COMMANDS.0,
            COMMANDS.1,
            quoted(prefix),
            "%x".repeat(40),
            quoted(OWN),
            if enforces { 1 } else { 2 },
            packed!("guard"),
        );
        let with_globals = [&text, packed!("guard_globals")].concat();
        let digest = Sha1::digest(text.as_bytes()).into();
        Some(Guard { text, with_globals, digest, enforces })
    }

    /// Whether it refuses anything: where nothing is enforced, it only records what it would refuse.
    pub fn enforces(&self) -> bool {
        self.enforces
    }

    /// The text between this text of the application and the one after the guard.
    pub fn behind(&self, text: &[u8]) -> &str {
        let speaks_of = |word: &str| memchr::memmem::find(text, word.as_bytes()).is_some();
        if speaks_of("_G") || speaks_of("load") { &self.with_globals } else { &self.text }
    }
}

/// Every command with three letters: which arguments it writes, which it reads, and further properties; see guard.lua.
/// And four digits for each initial letter: where the commands that begin with it start, from 1.
static COMMANDS: LazyLock<(String, String)> = LazyLock::new(|| {
    let (mut commands, mut beginnings) = (String::new(), String::new());
    let mut all: Vec<_> = rows().filter(|row| !row.name.contains('|')).collect();
    all.sort_unstable_by_key(|row| row.name);
    for row in all {
        while beginnings.len() / 4 <= usize::from(row.name.as_bytes()[0] - b'a') {
            let _ = write!(beginnings, "{:04}", commands.len() + 1);
        }
        let letters = match in_script(row) {
            InScript::Sweeping => match row.effect {
                Effect::Session(SessionVerb::Select) => "..d".to_owned(),
                _ => "..x".to_owned(),
            },
            InScript::Keys { written, read, far } => {
                let more = match row.effect {
                    _ if far => 'f',
                    Effect::Listing(Listing::Keys) => 'k',
                    Effect::Listing(Listing::Scan) => 's',
                    _ => '.',
                };
                format!("{}{}{more}", letter(written), letter(read))
            }
        };
        let _ = write!(commands, " {}={letters}", row.name);
    }
    (commands, beginnings)
});

/// The letter of guard.lua for these positions; that for any argument if there is no special one.
fn letter(places: Places) -> char {
    match places {
        Places::None => '.',
        Places::Range { first: 1, last: 1, .. } => '1',
        Places::Range { first: 2, last: 2, .. } => '2',
        Places::Range { first: 1, last: 2, step: 1 } => 'T',
        Places::Range { first: 1, last: -1, step: 1 } => 'A',
        Places::Range { first: 1, last: -2, step: 1 } => 'B',
        Places::Range { first: 1, last: -1, step: 2 } => 'P',
        Places::Range { first: 2, last: -1, step: 1 } => 'R',
        Places::Range { first: 3, last: -1, step: 1 } => 'Q',
        Places::Counted { at: 1, step: 1 } => 'K',
        Places::Counted { at: 2, step: 1 } => 'L',
        Places::Counted { at: 1, step: 2 } => 'M',
        Places::Stored { .. } => 'O',
        Places::Range { .. } | Places::Counted { .. } | Places::Every => '*',
    }
}

/// Bytes as a Lua string.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("'");
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' | b'-' | 0..0x20 | 0x7f.. => {
                let _ = write!(text, "\\{byte:03}");
            }
            _ => text.push(char::from(byte)),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glob::Glob;

    fn guard(globs: &[(&str, Mode)]) -> Option<Guard> {
        let glob = |(glob, _): &(&str, Mode)| vec![Glob::new(glob.as_bytes().to_vec().into())];
        let namespaces = Namespaces::new(globs.iter().map(glob).collect());
        Guard::new(&namespaces, &|id| globs[usize::from(id.0)].1, b"lw:")
    }

    #[test]
    fn nothing_is_refused_where_nothing_is_enforced() {
        assert_eq!(guard(&[]), None);
        let enforces = |globs| guard(globs).expect("there are namespaces").enforces();
        assert!(!enforces(&[("lock:*", Mode::Monitor)]));
        assert!(enforces(&[("lock:*", Mode::Monitor), ("x", Mode::Enforce)]));
    }

    #[test]
    fn every_place_of_a_key_has_a_letter_of_its_own() {
        let (commands, _) = &*COMMANDS;
        let any: Vec<&str> =
            commands.split(' ').filter(|command| command.contains("=*") || command.contains("=.*")).collect();
        assert_eq!(any, ["xread=.*.", "xreadgroup=*.."]);
        for one in ["del=A..", "set=1..", "get=.1.", "copy=21f", "select=..d", "swapdb=..x", "xgroup=2..", "scan=..s"] {
            assert!(commands.contains(&format!(" {one} ")), "{one}");
        }
    }

    #[test]
    fn where_the_commands_of_a_letter_begin_is_told() {
        let (commands, beginnings) = &*COMMANDS;
        for command in commands.split(' ').skip(1) {
            let letter = usize::from(command.as_bytes()[0] - b'a');
            let from: usize = beginnings[letter * 4..][..4].parse().expect("digits");
            let at = commands.find(&format!(" {command}")).expect("it is there");
            assert!(from <= at + 1, "{command}");
            assert!(commands[from - 1..].starts_with(&format!(" {}", &command[..1])));
        }
    }

    #[test]
    fn any_bytes_are_spelled() {
        assert_eq!(quoted(b"a'\\-\n\xff"), "'a\\039\\092\\045\\010\\255'");
    }
}

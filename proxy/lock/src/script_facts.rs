//! What the proxy remembers about a script text that it has seen, so that a later EVALSHA means as much as the text:
//! the results of `lockwarden-lua`, the text's digest, and how a server was seen to handle it. The server crate stores
//! the facts and limits their number.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use lockwarden_lua::{Analysis, InScript, Names, Places, may_say_varargs, shebang_and_chunk};
use sha1::{Digest, Sha1};

use crate::companion;
use crate::op::Reach;
use crate::scripts;
use crate::scripts::guard::{self, Guard};
use crate::table::{Lookup, in_script, lookup};
use crate::token::hex;

/// The most envelopes of one text whose digests are remembered: clients may see the configuration differently.
const MAX_ENVELOPES: usize = 8;

/// Redis's name for a script: the SHA-1 of its text, byte for byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScriptSha([u8; 20]);

impl ScriptSha {
    /// The digest of a text.
    pub fn of(text: &[u8]) -> ScriptSha {
        ScriptSha(Sha1::digest(text).into())
    }

    /// The digest as EVALSHA takes it: 40 hexadecimal digits, in upper or lower case. Anything else is no script's
    /// digest; Redis replies NOSCRIPT.
    pub fn from_hex(hex: &[u8]) -> Option<ScriptSha> {
        if hex.len() != 40 {
            return None;
        }
        let mut sha = [0; 20];
        for (byte, digits) in sha.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(digits[0])? << 4 | nibble(digits[1])?;
        }
        Some(ScriptSha(sha))
    }
}

impl fmt::Display for ScriptSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ScriptSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptSha({self})")
    }
}

/// What follows from a script's text, and how a server was seen to handle it.
#[derive(Debug)]
pub struct ScriptFacts {
    /// The digest by which EVALSHA calls it.
    pub sha: ScriptSha,
    /// The analysis of its text.
    pub analysis: Analysis,
    /// Whether it may call another script, around a guard.
    pub calls_others: bool,
    /// Whether it may notice the guard around it other than by a refusal.
    pub minds_guard: bool,
    /// Whether a server certainly compiles it with a guard around it, if it compiles it without one.
    pub has_room: bool,
    /// The text.
    pub text: Bytes,
    /// Whether the text is another one with the same effect, because the script's own was never seen.
    pub stands_in: bool,
    /// The digests of the envelopes in which it was recently put.
    enveloped: Mutex<Vec<(Envelope, Arc<str>)>>,
    compiles: AtomicBool,
    takes: AtomicBool,
}

/// Two texts are equal if Redis has the same digest for both.
impl PartialEq for ScriptFacts {
    fn eq(&self, other: &ScriptFacts) -> bool {
        self.sha == other.sha
    }
}

impl Eq for ScriptFacts {}

impl ScriptFacts {
    /// The facts of a text. Linear in its length.
    pub fn of(text: &[u8]) -> ScriptFacts {
        ScriptFacts {
            sha: ScriptSha::of(text),
            analysis: Analysis::of(text, &command),
            calls_others: guard::may_call_others(text),
            minds_guard: guard::may_be_noticed(text),
            has_room: guard::has_room(text),
            text: Bytes::copy_from_slice(text),
            stands_in: false,
            enveloped: Mutex::default(),
            compiles: AtomicBool::new(false),
            takes: AtomicBool::new(false),
        }
    }

    /// The facts of a script with an unknown text, from a text with the same effect.
    pub fn standing_in(sha: ScriptSha, text: &[u8]) -> ScriptFacts {
        ScriptFacts { sha, stands_in: true, ..ScriptFacts::of(text) }
    }

    /// Whether its text contains a word by which keys or members are removed.
    pub fn may_release(&self) -> bool {
        let text = self.text.to_ascii_lowercase();
        let removes: [&[u8]; 3] = [b"del", b"unlink", b"rem"];
        removes.iter().any(|word| memchr::memmem::find(&text, word).is_some())
    }

    /// How many bytes these facts take, roughly.
    pub fn weight(&self) -> usize {
        self.analysis.weight() + self.text.len() + size_of::<ScriptFacts>()
    }

    /// The digest by which EVALSHA calls its text in this envelope. Must not be run before [`ScriptFacts::compiles`].
    pub fn sha_in(&self, envelope: &Envelope) -> Arc<str> {
        let mut known = self.enveloped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, sha)) = known.iter().find(|(one, _)| one == envelope) {
            return sha.clone();
        }
        let sha: Arc<str> = hex(&Sha1::digest(envelope.around(&self.text))).into();
        if known.len() == MAX_ENVELOPES {
            known.remove(0);
        }
        known.push((envelope.clone(), sha.clone()));
        sha
    }

    /// The text from its second line on if the first is a shebang, including that line's end: the part that Lua itself
    /// sees.
    pub fn chunk(&self) -> &[u8] {
        let (_, chunk) = shebang_and_chunk(&self.text);
        chunk
    }

    /// Whether a server has compiled the text as a chunk of its own, so that it cannot end the function into which it
    /// is wrapped.
    pub fn compiles(&self) -> bool {
        self.compiles.load(Ordering::Relaxed)
    }

    /// Records that a server has compiled it.
    pub fn found_to_compile(&self) {
        self.compiles.store(true, Ordering::Relaxed);
    }

    /// Whether it was seen to take a lock; then a run that changes nothing found the lock held.
    pub fn takes_locks(&self) -> bool {
        self.takes.load(Ordering::Relaxed)
    }

    /// Records that it took a lock.
    pub fn took_a_lock(&self) {
        self.takes.store(true, Ordering::Relaxed);
    }
}

/// The names that the functions of a library write, see [`Names::of_library`].
pub fn names_of_library(text: &[u8]) -> Names {
    Names::of_library(text, &command)
}

/// Whether a command may write, by its name.
pub fn may_write(name: &[u8]) -> bool {
    match command(name) {
        Some(InScript::Keys { written, far, .. }) => written != Places::None || far,
        Some(InScript::Sweeping) | None => true,
    }
}

/// A command that a script calls, as the table of commands knows it.
pub(crate) fn command(name: &[u8]) -> Option<InScript> {
    match lookup(&[name][..]) {
        Lookup::Known(spec) => Some(in_script(spec)),
        Lookup::UnknownSubcommand | Lookup::Unknown => None,
    }
}

/// What is put around an application's script to make it the body of one of our steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// It declares locks: its effects on them are judged afterwards.
    pub judged: bool,
    /// It computes key names: its commands are checked before they run.
    pub guard: Option<Arc<Guard>>,
    /// It may touch locks that it does not declare.
    pub adopts: bool,
}

impl Envelope {
    /// For a script that declares locks and may also write these other keys.
    pub fn judged(reach: &Reach) -> Envelope {
        Envelope {
            judged: true,
            guard: match reach {
                Reach::Guarded(guard) | Reach::Trusted(guard) => Some(guard.clone()),
                Reach::Nothing | Reach::Others | Reach::Anything => None,
            },
            adopts: matches!(reach, Reach::Trusted(_)),
        }
    }

    /// The whole text. It is built each time: a server needs it once.
    pub fn around(&self, application: &[u8]) -> Vec<u8> {
        let (shebang, chunk) = shebang_and_chunk(application);
        let (head, guard) = match &self.guard {
            None => ("local f=function(", NO_GUARD.to_owned()),
            Some(guard) => {
                let only = only_line(shebang, chunk).unwrap_or(0);
                let behind = guard.behind(chunk);
                let tags = match self.adopts {
                    true => companion::tags(),
                    false => "",
                };
                (guard::HEAD, format!("local ONLY,TAGS={only},'{tags}'\n{behind}"))
            }
        };
        let tail = match self.judged {
            true => scripts::WRAP.text(),
            false => scripts::GUARDED.text(),
        };
        let more = match (may_say_varargs(chunk), self.guard.is_some()) {
            (false, _) => ") ",
            (true, false) => "...) ",
            (true, true) => ",...) ",
        };
        // The application's first line stays the first line, and a comment on its last line ends.
        let parts: [&[u8]; 7] =
            [shebang, head.as_bytes(), more.as_bytes(), chunk, b"\nend\n", guard.as_bytes(), tail.as_bytes()];
        parts.concat()
    }
}

/// The line number of a text with a single line.
fn only_line(shebang: &[u8], chunk: &[u8]) -> Option<usize> {
    let lines = chunk.trim_ascii_end().split(|byte| *byte == b'\n').count();
    let first = if shebang.is_empty() { 1 } else { 2 };
    (lines == 1).then_some(first)
}

/// The guard's variables that wrap.lua uses, for a script without a guard.
const NO_GUARD: &str = "local TAGS,ENFORCES,declared,home,refused,noted,adopt,before,placed=nil,2,{}\n";

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sha_is_read_in_any_case_and_nothing_else_is_one() {
        let text = b"return 1";
        let hex = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let sha = ScriptSha::of(text);
        assert_eq!(sha.to_string(), hex);
        assert_eq!(ScriptSha::from_hex(hex.as_bytes()), Some(sha));
        let shouted = hex.to_ascii_uppercase();
        assert_eq!(ScriptSha::from_hex(shouted.as_bytes()), Some(sha));

        let with_g = hex.replace('e', "g");
        for wrong in ["", &hex[1..], &format!("{hex}0"), &with_g] {
            assert_eq!(ScriptSha::from_hex(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_command_table_says_which_keys_a_script_writes() {
        let text = "redis.call('MSET', 'a', 'v', 'b', 'v') redis.call('sort', 'c', 'store', 'd') \
            redis.call('zunionstore', 'e', 1, 'f') redis.call('copy', 'g', 'h') redis.call('get', 'i')";
        let mut written = Vec::new();
        ScriptFacts::of(text.as_bytes()).analysis.names.in_call(&[], &[], &mut |name| {
            written.push(name.beginning().to_vec());
        });
        assert_eq!(written, ["a", "b", "d", "e", "h"].map(Vec::from));
        for computed in ["json.set", "flushall", "select"] {
            let library = names_of_library(format!("redis.call('{computed}', 'a')").as_bytes());
            assert_eq!(library, Names::Computed, "{computed}");
        }
    }
}

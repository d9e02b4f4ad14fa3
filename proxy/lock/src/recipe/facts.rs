//! What a server remembers about a script text it has seen, so that a later EVALSHA means as much
//! as the text did. Everything here follows from the text alone; where the facts are kept, and how
//! many, is the business of the server.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use sha1::{Digest, Sha1};

use super::meaning::Call;
use super::release::{MOST_ARGUMENTS, Release};
use super::{MAX_TEXT_LEN, Meaning, Names, Reply, lexer, shape, syntax};
use crate::op::Reach;
use crate::scripts;
use crate::scripts::guard::{self, Guard};
use crate::token::hex;

/// Envelopes of one text whose names are remembered: clients may see the configuration differently.
const MAX_ENVELOPES: usize = 8;

/// What a token costs in memory once it stands in a tree, roughly and rather too much.
const TOKEN_WEIGHT: usize = 128;

/// The name Redis gives to a script: the SHA-1 of its text, byte for byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScriptSha([u8; 20]);

impl ScriptSha {
    /// The name of a text.
    pub fn of(text: &[u8]) -> ScriptSha {
        ScriptSha(Sha1::digest(text).into())
    }

    /// The name as EVALSHA takes it: 40 hexadecimal digits, of any case. Anything else names no
    /// script; Redis answers it with NOSCRIPT.
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

/// What follows from a script's text, and what a server was seen to make of it.
#[derive(Debug)]
pub struct ScriptFacts {
    /// The name by which EVALSHA calls it.
    pub sha: ScriptSha,
    /// Its tree, if it is written in the part of Lua that is understood. What it does is asked for
    /// each call.
    tree: Option<syntax::Block>,
    /// What it does in every call with one key, by the number of arguments less one.
    releases: [OnceLock<Option<Release>>; MOST_ARGUMENTS],
    /// Bytes that these facts take.
    weight: usize,
    /// The names of the keys that it may write.
    pub names: Names,
    /// Whether it begins with `#!`, which Redis 7 reads and older servers refuse.
    pub shebang: bool,
    /// Whether its first line says `no-writes` in a form that the server cannot read otherwise, so
    /// the server itself keeps it from writing.
    pub no_writes: bool,
    /// Whether it may call another script, around a guard.
    pub calls_others: bool,
    /// The text.
    pub text: Bytes,
    /// The names of the texts that it was put into lately.
    enveloped: Mutex<Vec<(Envelope, Arc<str>)>>,
    compiles: AtomicBool,
    takes: AtomicBool,
}

/// Two texts are one where Redis has one name for both.
impl PartialEq for ScriptFacts {
    fn eq(&self, other: &ScriptFacts) -> bool {
        self.sha == other.sha
    }
}

impl Eq for ScriptFacts {}

impl ScriptFacts {
    /// The facts of a text. Linear in its length.
    pub fn of(text: &[u8]) -> ScriptFacts {
        let (tree, names, weight) = match tree(text) {
            Some((tree, names, tokens)) => (tree, names, tokens * TOKEN_WEIGHT),
            None => (None, Names::Computed, 0),
        };
        ScriptFacts {
            sha: ScriptSha::of(text),
            tree,
            names,
            releases: Default::default(),
            weight: weight + text.len() + size_of::<ScriptFacts>(),
            shebang: text.starts_with(b"#!"),
            no_writes: says_no_writes(text),
            calls_others: guard::may_call_others(text),
            text: Bytes::copy_from_slice(text),
            enveloped: Mutex::default(),
            compiles: AtomicBool::new(false),
            takes: AtomicBool::new(false),
        }
    }

    /// Whether its text has a word by which keys or members are removed.
    pub fn may_release(&self) -> bool {
        let text = self.text.to_ascii_lowercase();
        let removes: [&[u8]; 3] = [b"del", b"unlink", b"rem"];
        removes
            .iter()
            .any(|word| memchr::memmem::find(&text, word).is_some())
    }

    /// What a call with these keys and arguments means for the lock key `lock`. Bounded whatever the
    /// text is: steps, branches and turns of loops are limited.
    pub fn meaning(&self, keys: &[Bytes], arguments: &[Bytes], lock: &[u8]) -> Meaning {
        let Some(tree) = &self.tree else {
            return Meaning::Unknown;
        };
        let is_lock = |key: &[u8]| key == lock;
        let call = Call {
            keys,
            arguments,
            lock,
            is_lock: &is_lock,
            any: false,
        };
        if let ([key], [_, others @ ..]) = (keys, arguments)
            && let Some(release) = self.releases.get(others.len())
            && let Some(release) = release.get_or_init(|| Release::of(tree, arguments.len()))
            && key == lock
        {
            let meaning = release.meaning(arguments);
            debug_assert_eq!(
                meaning,
                shape::meaning(tree, call),
                "of all calls and of this"
            );
            return meaning;
        }
        shape::meaning(tree, call)
    }

    /// What the script would answer to this call if every lock among its keys were somebody
    /// else's, so that a refusal can be told in its own words; of whatever type the locks are. `None`
    /// where that is not understood, or where it would still change something. Keys that are no locks
    /// count as absent. [`Reply::Left`] stands for what is left of the lock's TTL, which the caller
    /// puts in. Never [`Reply::Stored`] or [`Reply::CommandResult`].
    pub fn refusal_reply(
        &self,
        keys: &[Bytes],
        arguments: &[Bytes],
        is_lock: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Reply> {
        let lock = keys.iter().find(|key| is_lock(key))?;
        let call = Call {
            keys,
            arguments,
            lock,
            is_lock,
            any: false,
        };
        shape::refusal(self.tree.as_ref()?, call)
    }

    /// How many bytes these facts take, roughly.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The name by which EVALSHA calls its text in this envelope. Not to be run before
    /// [`ScriptFacts::compiles`].
    pub fn sha_in(&self, envelope: &Envelope) -> Arc<str> {
        let mut known = self
            .enveloped
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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

    /// The text from its second line on where the first is a shebang, with that line's end: what
    /// Lua itself gets to see.
    pub fn chunk(&self) -> &[u8] {
        let (_, chunk) = shebang_and_chunk(&self.text);
        chunk
    }

    /// Whether a server has compiled the text as a chunk of its own, so that it cannot end the
    /// function that it is wrapped into.
    pub fn compiles(&self) -> bool {
        self.compiles.load(Ordering::Relaxed)
    }

    /// A server has.
    pub fn found_to_compile(&self) {
        self.compiles.store(true, Ordering::Relaxed);
    }

    /// Whether it was seen to take a lock; then a run that changes nothing met a held one.
    pub fn takes_locks(&self) -> bool {
        self.takes.load(Ordering::Relaxed)
    }

    /// It took a lock.
    pub fn took_a_lock(&self) {
        self.takes.store(true, Ordering::Relaxed);
    }
}

/// A script of the application as the body of a step of ours: what is put around its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// It declares locks: what it did to them is judged behind it.
    pub judged: bool,
    /// It computes names of keys: what it calls is looked at before it happens.
    pub guard: Option<Arc<Guard>>,
}

impl Envelope {
    /// Of a script that declares locks and may write so much beside.
    pub fn judged(reach: &Reach) -> Envelope {
        Envelope {
            judged: true,
            guard: match reach {
                Reach::Guarded(guard) => Some(guard.clone()),
                Reach::Nothing | Reach::Others | Reach::Anything => None,
            },
        }
    }

    /// The whole text. It is made anew each time: a server wants it once.
    pub fn around(&self, application: &[u8]) -> Vec<u8> {
        let (shebang, chunk) = shebang_and_chunk(application);
        let (head, guard) = match &self.guard {
            None => ("local f=function(...) ", NO_GUARD.to_owned()),
            Some(guard) => {
                let only = only_line(shebang, chunk).unwrap_or(0);
                let behind = guard.behind(chunk);
                (guard::HEAD, format!("local ONLY={only}\n{behind}"))
            }
        };
        let tail = match self.judged {
            true => scripts::WRAP.text(),
            false => scripts::GUARDED.text(),
        };
        // The application's first line stays the first line, and a comment on its last one ends.
        let parts: [&[u8]; 6] = [
            shebang,
            head.as_bytes(),
            chunk,
            b"\nend\n",
            guard.as_bytes(),
            tail.as_bytes(),
        ];
        parts.concat()
    }
}

/// The number of the line of a text that has but one.
fn only_line(shebang: &[u8], chunk: &[u8]) -> Option<usize> {
    let lines = chunk.trim_ascii_end().split(|byte| *byte == b'\n').count();
    let first = if shebang.is_empty() { 1 } else { 2 };
    (lines == 1).then_some(first)
}

/// What wrap.lua finds of a guard where there is none.
const NO_GUARD: &str = "local declared,home,refused,before,placed={}\n";

/// A first line that begins with `#!`, its end included, and what comes behind it.
pub(super) fn shebang_and_chunk(text: &[u8]) -> (&[u8], &[u8]) {
    if !text.starts_with(b"#!") {
        return (b"", text);
    }
    let end = text.iter().position(|byte| *byte == b'\n');
    text.split_at(end.map_or(text.len(), |end| end + 1))
}

/// What is known of a text that Lua can read: its tree, where it may be a recipe, the names of the keys that it
/// writes, and how many tokens of it are kept.
fn tree(text: &[u8]) -> Option<(Option<syntax::Block>, Names, usize)> {
    let (shebang, chunk) = shebang_and_chunk(text);
    if text.len() > MAX_TEXT_LEN {
        return None;
    }
    let tokens = lexer::tokens(chunk)?;
    let count = tokens.tokens.len();
    let tree = syntax::parse(tokens)?;
    let names = Names::of(&tree.block);
    if !tree.plain || !shebang.is_empty() {
        return Some((None, names, 0));
    }
    Some((Some(tree.block), names, count))
}

/// `#!lua flags=no-writes,…` up to a line end. A first line with anything odd in it (a control
/// character such as NUL, where the server may stop reading; quotes, which it interprets; an
/// unknown option) says nothing.
fn says_no_writes(text: &[u8]) -> bool {
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
        return false;
    };
    let Some(options) = text[..end].strip_prefix(b"#!lua ") else {
        return false;
    };
    let plain = |byte: &u8| matches!(byte, b' ' | b'a'..=b'z' | b'-' | b'=' | b',');
    if !options.iter().all(plain) {
        return false;
    }
    let mut no_writes = false;
    for option in options.split(|byte| *byte == b' ') {
        if option.is_empty() {
            continue;
        }
        let Some(flags) = option.strip_prefix(b"flags=") else {
            return false;
        };
        no_writes |= flags
            .split(|byte| *byte == b',')
            .any(|flag| flag == b"no-writes");
    }
    no_writes
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

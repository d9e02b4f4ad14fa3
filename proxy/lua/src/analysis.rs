//! What a script's text shows by itself: which keys it may write, and what each call of it means for a lock. The text
//! is read once; a call is followed with its own keys and arguments.

use std::sync::OnceLock;

use bytes::Bytes;

use super::deeds::{Act, Deeds};
use super::lexer::MAX_TEXT_LEN;
use super::names::Names;
use super::places::Commands;
use super::recipe::{Meaning, Reply};
use super::release::{MAX_ARGUMENTS, Release};
use super::shebang::{says_no_writes, shebang_and_chunk};
use super::syntax::Block;
use super::trace::Call;
use super::{lexer, parser, recognise};

/// Bytes that one token takes once it stands in a tree: an estimate from above.
const TOKEN_WEIGHT: usize = 128;

/// What follows from the text of a script alone.
#[derive(Debug)]
pub struct Analysis {
    /// Its tree, if the text keeps to the part of Lua that recipes are written in; else `None`.
    tree: Option<Block>,
    /// What it does in every call with one key, at the number of arguments minus one.
    releases: [OnceLock<Option<Release>>; MAX_ARGUMENTS],
    /// The keys that its text takes and releases.
    deeds: Deeds,
    /// Bytes that the tree takes.
    weight: usize,
    /// The names of the keys that it may write.
    pub names: Names,
    /// Whether it begins with `#!`, which Redis 7 reads and older servers refuse.
    pub shebang: bool,
    /// Whether its first line says `no-writes` in a form that every server reads as such. Then the server itself keeps
    /// the script from writing.
    pub no_writes: bool,
}

impl Analysis {
    /// Reads a text; `commands` returns where each command of Redis has its keys. Takes time linear in the length of
    /// the text. If the text is longer than [`MAX_TEXT_LEN`] or is not in Lua, its names are [`Names::Computed`] and
    /// every call means [`Meaning::Unknown`].
    pub fn of(text: &[u8], commands: Commands<'_>) -> Analysis {
        let (tree, names, tokens) = tree(text, commands).unwrap_or((None, Names::Computed, 0));
        Analysis {
            deeds: tree.as_ref().map(Deeds::of).unwrap_or_default(),
            tree,
            releases: Default::default(),
            weight: tokens * TOKEN_WEIGHT,
            names,
            shebang: text.starts_with(b"#!"),
            no_writes: says_no_writes(text),
        }
    }

    /// Returns what a call with these keys and arguments means for the lock key `lock`. The time is bounded for every
    /// text: steps, branches and turns of loops are limited, and a call above a limit is [`Meaning::Unknown`].
    pub fn meaning(&self, keys: &[Bytes], arguments: &[Bytes], lock: &[u8]) -> Meaning {
        let Some(tree) = &self.tree else {
            return Meaning::Unknown;
        };
        let is_lock = |key: &[u8]| key == lock;
        let call = Call { keys, arguments, lock, is_lock: &is_lock, any: false };
        if let ([key], [_, others @ ..]) = (keys, arguments)
            && let Some(release) = self.releases.get(others.len())
            && let Some(release) = release.get_or_init(|| Release::of(tree, arguments.len()))
            && key == lock
        {
            let meaning = release.meaning(arguments);
            debug_assert_eq!(meaning, recognise::meaning(tree, call), "of all calls and of this");
            return meaning;
        }
        recognise::meaning(tree, call)
    }

    /// Returns what the script would reply to this call if others held all locks among its keys, so that a refusal can
    /// use the script's own words. The locks may be of any type; keys that are no locks count as absent. Returns `None`
    /// if the script is not understood, or would still change something. [`Reply::Left`] stands for the remaining TTL
    /// of the lock, which the caller puts in; [`Reply::Stored`] and [`Reply::CommandResult`] are never returned.
    pub fn refusal_reply(&self, keys: &[Bytes], arguments: &[Bytes], is_lock: &dyn Fn(&[u8]) -> bool) -> Option<Reply> {
        let lock = keys.iter().find(|key| is_lock(key))?;
        let call = Call { keys, arguments, lock, is_lock, any: false };
        recognise::refusal(self.tree.as_ref()?, call)
    }

    /// Returns which of its keys a call may take or release, according to the commands spelled out in the text. A hint:
    /// a script that is no recipe may do anything else as well.
    pub fn deeds(&self, keys: &[Bytes], arguments: &[Bytes]) -> Vec<(Bytes, Act)> {
        self.deeds.in_call(keys, arguments)
    }

    /// Returns roughly how many bytes the tree takes; 0 if none is kept.
    pub fn weight(&self) -> usize {
        self.weight
    }
}

/// Whether a text after its shebang may use `...` outside its functions. Only then it must be put into a function with
/// variable arguments: Lua gives such a function a variable `arg`, which a script does not have.
pub fn may_say_varargs(chunk: &[u8]) -> bool {
    let parsed = || {
        let fits = Some(chunk).filter(|chunk| chunk.len() <= MAX_TEXT_LEN);
        fits.and_then(lexer::tokens).and_then(parser::parse)
    };
    chunk.windows(3).any(|three| three == b"...") && parsed().is_none_or(|tree| tree.takes_more)
}

/// Reads a text that Lua can read: its tree if it may be a recipe, the names of the keys that it writes, and the number
/// of tokens in the tree.
fn tree(text: &[u8], commands: Commands<'_>) -> Option<(Option<Block>, Names, usize)> {
    let (shebang, chunk) = shebang_and_chunk(text);
    if text.len() > MAX_TEXT_LEN {
        return None;
    }
    let tokens = lexer::tokens(chunk)?;
    let count = tokens.tokens.len();
    let tree = parser::parse(tokens)?;
    let names = Names::of(&tree.block, commands);
    if !tree.plain || !shebang.is_empty() {
        return Some((None, names, 0));
    }
    Some((Some(tree.block), names, count))
}

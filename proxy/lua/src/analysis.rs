//! What a script's text says by itself: which keys it may write, and what each call of it means for a lock. The text is
//! read once; a call is followed with its own keys and arguments.

use std::sync::OnceLock;

use bytes::Bytes;

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
    /// Its tree, if it is written in the part of Lua that is understood.
    tree: Option<Block>,
    /// What it does in every call with one key, by the number of arguments less one.
    releases: [OnceLock<Option<Release>>; MAX_ARGUMENTS],
    /// Bytes that the tree takes.
    weight: usize,
    /// The names of the keys that it may write.
    pub names: Names,
    /// Whether it begins with `#!`, which Redis 7 reads and older servers refuse.
    pub shebang: bool,
    /// Whether its first line says `no-writes` in a form that the server cannot read otherwise, so
    /// the server itself keeps it from writing.
    pub no_writes: bool,
}

impl Analysis {
    /// Reads a text, for which `commands` says where each command of Redis has its keys. Linear in the length of the
    /// text. A text that is longer than [`MAX_TEXT_LEN`], or that Lua cannot read, computes its names and has no
    /// known meaning.
    pub fn of(text: &[u8], commands: Commands<'_>) -> Analysis {
        let (tree, names, tokens) = tree(text, commands).unwrap_or((None, Names::Computed, 0));
        Analysis {
            tree,
            releases: Default::default(),
            weight: tokens * TOKEN_WEIGHT,
            names,
            shebang: text.starts_with(b"#!"),
            no_writes: says_no_writes(text),
        }
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
                recognise::meaning(tree, call),
                "of all calls and of this"
            );
            return meaning;
        }
        recognise::meaning(tree, call)
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
        recognise::refusal(self.tree.as_ref()?, call)
    }

    /// How many bytes the tree takes, roughly; 0 where none is kept.
    pub fn weight(&self) -> usize {
        self.weight
    }
}

/// What is known of a text that Lua can read: its tree, where it may be a recipe, the names of the keys that it
/// writes, and how many tokens of it are kept.
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

//! Options that may be followed by keys, walked as Redis walks them: each option with its operands, so that a key or a
//! value which looks like an option does not mislead. At an unknown word the walk stops, and the caller treats the rest
//! with suspicion.

use lockwarden_lua::is_option;

use super::Arguments;

/// An option, and its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// In lower case.
    pub(crate) name: &'static str,
    /// How many arguments follow it, at least, if the command continues after them.
    pub(crate) operands: usize,
    /// The role of its operands.
    pub(crate) role: Role,
}

/// What follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing that is a key.
    Option,
    /// A key that is written.
    Destination,
    /// All keys, up to the end.
    Keys,
}

/// The options of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grammar {
    /// The command in lower case.
    pub(crate) command: &'static str,
    /// Its words.
    pub(crate) words: &'static [Word],
}

const fn word(name: &'static str, operands: usize, role: Role) -> Word {
    Word { name, operands, role }
}

/// The options of `BITFIELD` that write nothing; `OVERFLOW` is about later writes.
const BITFIELD_READS: Grammar =
    Grammar { command: "bitfield", words: &[word("get", 2, Role::Option), word("overflow", 1, Role::Option)] };

const SORT: Grammar = Grammar {
    command: "sort",
    words: &[
        word("asc", 0, Role::Option),
        word("desc", 0, Role::Option),
        word("alpha", 0, Role::Option),
        word("limit", 2, Role::Option),
        word("by", 1, Role::Option),
        word("get", 1, Role::Option),
        word("store", 1, Role::Destination),
    ],
};

const GEORADIUS: Grammar = Grammar {
    command: "georadius",
    words: &[
        word("withcoord", 0, Role::Option),
        word("withdist", 0, Role::Option),
        word("withhash", 0, Role::Option),
        word("asc", 0, Role::Option),
        word("desc", 0, Role::Option),
        word("any", 0, Role::Option),
        word("count", 1, Role::Option),
        word("store", 1, Role::Destination),
        word("storedist", 1, Role::Destination),
    ],
};

const XREAD: Grammar = Grammar {
    command: "xread",
    words: &[word("streams", 1, Role::Keys), word("block", 1, Role::Option), word("count", 1, Role::Option)],
};

const XREADGROUP: Grammar = Grammar {
    command: "xreadgroup",
    words: &[
        word("streams", 1, Role::Keys),
        word("block", 1, Role::Option),
        word("count", 1, Role::Option),
        word("noack", 0, Role::Option),
        word("claim", 1, Role::Option),
        word("group", 2, Role::Option),
    ],
};

const MIGRATE: Grammar = Grammar {
    command: "migrate",
    words: &[
        word("copy", 0, Role::Option),
        word("replace", 0, Role::Option),
        word("auth", 1, Role::Option),
        word("auth2", 2, Role::Option),
        word("keys", 0, Role::Keys),
    ],
};

/// The grammars in which keys of a write may be hidden.
pub(crate) const GRAMMARS: [Grammar; 6] = [BITFIELD_READS, SORT, GEORADIUS, XREAD, XREADGROUP, MIGRATE];

impl Grammar {
    /// The option at argument `at`, if all its operands are there.
    fn word_at(self, args: &(impl Arguments + ?Sized), at: usize) -> Option<&'static Word> {
        #[cfg(test)]
        let words = super::replaced::words_of(self);
        #[cfg(not(test))]
        let words = self.words;
        let left = args.len() - at - 1;
        words.iter().find(|word| word.operands <= left && is_option(args.arg(at), word.name))
    }
}

/// Whether `BITFIELD` has only operations that read.
pub(super) fn bitfield_only_reads(args: &(impl Arguments + ?Sized)) -> bool {
    let mut at = 2;
    while at < args.len() {
        match BITFIELD_READS.word_at(args, at) {
            Some(word) => at += 1 + word.operands,
            None => return false,
        }
    }
    true
}

/// Positions that `SORT` may write: after each `STORE`, or the whole rest after an unknown word.
pub(super) fn each_sort_key(args: &(impl Arguments + ?Sized), each: impl FnMut(usize)) {
    each_destination(SORT, args, 2, each);
}

/// Positions that `GEORADIUS` may write: after each `STORE` and `STOREDIST`, or the whole rest after an unknown word.
pub(super) fn each_georadius_key(args: &(impl Arguments + ?Sized), options: usize, each: impl FnMut(usize)) {
    each_destination(GEORADIUS, args, options, each);
}

fn each_destination(grammar: Grammar, args: &(impl Arguments + ?Sized), mut at: usize, mut each: impl FnMut(usize)) {
    while at < args.len() {
        let Some(word) = grammar.word_at(args, at) else {
            return (at..args.len()).for_each(each);
        };
        match word.role {
            Role::Destination => each(at + 1),
            Role::Option | Role::Keys => {}
        }
        at += 1 + word.operands;
    }
}

/// The position at which the streams of `XREAD` or `XREADGROUP` begin; as an error the position of the first unknown
/// word, or the end.
pub(super) fn streams_begin(args: &(impl Arguments + ?Sized), group: bool) -> Result<usize, usize> {
    let grammar = if group { XREADGROUP } else { XREAD };
    let mut at = 1;
    while at < args.len() {
        let word = grammar.word_at(args, at).ok_or(at)?;
        match word.role {
            Role::Keys => return Ok(at + 1),
            Role::Option | Role::Destination => at += 1 + word.operands,
        }
    }
    Err(at)
}

/// The range of the keys of `MIGRATE`: the one at 3, those after `KEYS` if that one is empty, or all from 3 if the
/// options are not understood.
pub(super) fn migrated_keys(args: &(impl Arguments + ?Sized)) -> (usize, usize) {
    const KEY: usize = 3;
    let mut at = 6;
    while at < args.len() {
        match MIGRATE.word_at(args, at) {
            Some(word) if word.role != Role::Keys => at += 1 + word.operands,
            Some(_) if args.arg(KEY).is_empty() => return (at + 1, args.len()),
            Some(_) | None => return (KEY, args.len()),
        }
    }
    (KEY, KEY + 1)
}

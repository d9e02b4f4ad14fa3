//! Options among which keys hide, walked as Redis walks them: each word with the operands that it
//! takes, so that a key or a value which looks like a word misleads nobody. Where a word is not
//! understood the walk stops, and the caller treats what is left with suspicion.

use super::Arguments;

/// Whether an argument is this option to Redis, which compares options as C strings: without case,
/// up to the first NUL. (Names of commands are compared with every byte.)
fn is_word(arg: &[u8], word: &str) -> bool {
    let text = arg.split(|&byte| byte == 0).next().unwrap_or_default();
    text.eq_ignore_ascii_case(word.as_bytes())
}

fn is_any(arg: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| is_word(arg, word))
}

/// Whether `BITFIELD` has nothing but `GET` (and `OVERFLOW`, which is about later writes).
pub(super) fn bitfield_only_reads(args: &(impl Arguments + ?Sized)) -> bool {
    let mut at = 2;
    while at < args.len() {
        let operands = match args.arg(at) {
            word if is_word(word, "get") => 2,
            word if is_word(word, "overflow") => 1,
            _ => return false,
        };
        at += 1 + operands;
    }
    at == args.len()
}

/// Positions that `SORT` may store to: behind each `STORE`, or all that is left behind a word that
/// is not understood.
pub(super) fn each_sort_key(args: &(impl Arguments + ?Sized), mut each: impl FnMut(usize)) {
    let mut at = 2;
    while at < args.len() {
        let word = args.arg(at);
        let operands = match args.len() - at - 1 {
            _ if is_any(word, &["asc", "desc", "alpha"]) => 0,
            2.. if is_word(word, "limit") => 2,
            1.. if is_any(word, &["by", "get"]) => 1,
            1.. if is_word(word, "store") => {
                each(at + 1);
                1
            }
            _ => return (at..args.len()).for_each(each),
        };
        at += 1 + operands;
    }
}

/// Positions that `GEORADIUS` may store to: behind each `STORE` and `STOREDIST`, or all that is
/// left behind a word that is not understood.
pub(super) fn each_georadius_key(
    args: &(impl Arguments + ?Sized),
    options: usize,
    mut each: impl FnMut(usize),
) {
    let mut at = options;
    while at < args.len() {
        let word = args.arg(at);
        let operands = match args.len() - at - 1 {
            _ if is_any(
                word,
                &["withcoord", "withdist", "withhash", "asc", "desc", "any"],
            ) =>
            {
                0
            }
            1.. if is_word(word, "count") => 1,
            1.. if is_any(word, &["store", "storedist"]) => {
                each(at + 1);
                1
            }
            _ => return (at..args.len()).for_each(each),
        };
        at += 1 + operands;
    }
}

/// Where the streams of `XREAD` or `XREADGROUP` begin; else the first word that is not understood,
/// or the end.
pub(super) fn streams_begin(args: &(impl Arguments + ?Sized), group: bool) -> Result<usize, usize> {
    let mut at = 1;
    while at < args.len() {
        let word = args.arg(at);
        let operands = match args.len() - at - 1 {
            1.. if is_word(word, "streams") => return Ok(at + 1),
            1.. if is_any(word, &["block", "count"]) => 1,
            1.. if group && is_word(word, "noack") => 0,
            1.. if group && is_word(word, "claim") => 1,
            2.. if group && is_word(word, "group") => 2,
            _ => return Err(at),
        };
        at += 1 + operands;
    }
    Err(at)
}

/// From where to where the keys of `MIGRATE` stand: the one at 3, those behind `KEYS` where that is
/// empty, or all from 3 where the options are not understood.
pub(super) fn migrated_keys(args: &(impl Arguments + ?Sized)) -> (usize, usize) {
    const KEY: usize = 3;
    let mut at = 6;
    while at < args.len() {
        let word = args.arg(at);
        let operands = match args.len() - at - 1 {
            _ if is_any(word, &["copy", "replace"]) => 0,
            1.. if is_word(word, "auth") => 1,
            2.. if is_word(word, "auth2") => 2,
            _ if is_word(word, "keys") && args.arg(KEY).is_empty() => {
                return (at + 1, args.len());
            }
            _ => return (KEY, args.len()),
        };
        at += 1 + operands;
    }
    (KEY, KEY + 1)
}

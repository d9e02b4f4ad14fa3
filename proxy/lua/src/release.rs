//! The most usual script, which compares with an argument and deletes, is followed once for all its calls. In that run
//! the texts of keys and arguments are not known. A script that would look at one is not understood here, and is
//! followed again for each call. So every call does the release that is found here.

use bytes::Bytes;

use super::recipe::{DeleteCommand, Meaning, Recipe, Replies, Reply};
use super::recognise;
use super::syntax::Block;
use super::trace::Call;
use super::value::marker;

/// Most arguments of a call for which this is done.
pub(super) const MAX_ARGUMENTS: usize = 3;

/// A release that a script does in each call with one key, the lock, and a certain number of arguments.
#[derive(Debug)]
pub(super) struct Release {
    /// The place of the argument that is compared with the value of the lock.
    argument: usize,
    command: DeleteCommand,
    replies: Replies,
}

impl Release {
    /// Returns the release that every call with this many arguments does, or `None` if it may depend on the texts, or is
    /// none.
    pub(super) fn of(script: &Block, arguments: usize) -> Option<Release> {
        let nothing = [const { Bytes::new() }; MAX_ARGUMENTS];
        let call = Call {
            keys: &nothing[..1],
            arguments: nothing.get(..arguments)?,
            lock: b"",
            is_lock: &|_| false,
            any: true,
        };
        let Meaning::Recipe(Recipe::CompareAndDelete { token, command, replies }) = recognise::meaning(script, call)
        else {
            return None;
        };
        let said = [&replies.done, &replies.different, &replies.absent];
        let is_bulk = |reply: &Reply| matches!(reply, Reply::Bulk(_));
        // The reply may be the argument, which differs from call to call.
        if said.into_iter().chain(&replies.other_type).any(is_bulk) {
            return None;
        }
        Some(Release { argument: (0..arguments).find(|index| marker(*index) == token)?, command, replies })
    }

    /// Returns what this call means.
    pub(super) fn meaning(&self, arguments: &[Bytes]) -> Meaning {
        Meaning::Recipe(Recipe::CompareAndDelete {
            token: arguments[self.argument].clone(),
            command: self.command,
            replies: self.replies.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::analysed;
    use crate::{lexer, parser};

    const DELETE: &str = "then return redis.call('del',KEYS[1]) else return 0 end";

    fn found(text: &str, arguments: usize) -> Option<usize> {
        let tokens = lexer::tokens(text.as_bytes()).expect("tokens");
        let tree = parser::parse(tokens).expect("a tree");
        Release::of(&tree.block, arguments).map(|release| release.argument)
    }

    #[test]
    fn a_release_is_found_for_all_calls_where_no_text_is_looked_at() {
        for (condition, arguments, argument) in [
            ("redis.call('get',KEYS[1])==ARGV[1]", 1, Some(0)),
            ("ARGV[2]==redis.call('GET',KEYS[1])", 3, Some(1)),
            ("redis.call('get',KEYS[1])==ARGV[1] and ARGV[2]", 2, Some(0)),
            ("redis.call('get',KEYS[1])==ARGV[2]", 1, None),
            ("redis.call('get',KEYS[1])==ARGV[1] or redis.call('get',KEYS[1])==ARGV[2]", 2, None),
            ("redis.call('get',KEYS[1])==ARGV[1] and ARGV[2]=='force'", 2, None),
            ("redis.call('get',KEYS[1])==ARGV[1] or redis.call('get',KEYS[1])=='0'", 1, None),
            ("redis.call('get',KEYS[1])==ARGV[1] and KEYS[1]~='lock:a'", 1, None),
            ("redis.call('get',KEYS[1])==ARGV[1] and #ARGV[1]>3", 1, None),
            ("redis.call('get',KEYS[1])==ARGV[1]..':x'", 1, None),
            ("redis.call('get',ARGV[1])==ARGV[1]", 1, None),
            ("redis.call('get',KEYS[1])==KEYS[1]", 1, None),
        ] {
            let text = format!("if {condition} {DELETE}");
            assert_eq!(found(&text, arguments), argument, "{condition}");
        }
        let answers = "local v=redis.call('get',KEYS[1]) \
            if v==ARGV[1] then redis.call('del',KEYS[1]) return v end return 0";
        assert_eq!(found(answers, 1), None);
        assert_eq!(found("return redis.call('del',KEYS[1])", 1), None);
    }

    #[test]
    fn what_is_understood_once_is_what_each_call_means() {
        let text = format!("if redis.call('get',KEYS[1])==ARGV[1] {DELETE}");
        let analysis = analysed(text.as_bytes());
        let texts = ["6e3d0bcd", "", "0", "lock:a", "another"].map(Bytes::from);
        let key = Bytes::from("lock:a");
        for token in &texts {
            let call = [token.clone()];
            // A debug build follows this call, too, and compares.
            let meaning = analysis.meaning(std::slice::from_ref(&key), &call, &key);
            let Meaning::Recipe(Recipe::CompareAndDelete { token: read, .. }) = meaning else {
                panic!("{meaning:?}");
            };
            assert_eq!(read, token);
        }
        let other = analysis.meaning(&[key], &texts[..1], b"lock:b");
        assert_eq!(other, Meaning::Unknown);
    }
}

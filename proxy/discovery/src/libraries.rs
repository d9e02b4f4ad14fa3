//! What calls of lock libraries' scripts do, for scripts that no recipe describes. A script is recognised by its
//! digest; its role and its arguments are in [`lockwarden_lock::library_scripts`].

use lockwarden_lock::library_scripts::{Done, Manner, Role, find};
use lockwarden_lock::op::{LockCommand, LockOp};

use crate::sighting::{Compares, Did, Doings, Spelling, Stored};

/// How a script works, if it belongs to a library and is about locks.
fn manner(command: &LockCommand) -> Option<&'static Manner> {
    let LockOp::Wrapped { script, .. } = &command.op else {
        return None;
    };
    Some(find(&script.sha)?.manner).filter(|manner| manner.is_about_locks())
}

/// What it does to each of its locks; `None` where the script is unknown.
pub(crate) fn doings(command: &LockCommand) -> Option<Doings> {
    let manner = manner(command)?;
    let LockOp::Wrapped { locks, keys, .. } = &command.op else {
        return None;
    };
    let argument = |at: usize| command.argv.get(3 + keys + at).map(|word| &word[..]);
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
    let ttl_ms = manner.ttl.and_then(|(at, unit_ms)| {
        let ttl = argument(at).and_then(number)?;
        ttl.checked_mul(unit_ms)
    });
    let did = match manner.role {
        Role::Take => Did::Acquire {
            spelling: match manner.name.starts_with("redisson-") {
                true => Spelling::Redisson,
                false => Spelling::Script,
            },
            value: Stored::of(manner.owner.and_then(argument).unwrap_or_default()),
            ttl_ms,
            granted: None,
        },
        Role::Extend => Did::Extend { ttl_ms, done: None },
        Role::Release => Did::Release {
            compares: match manner.owner.map(argument) {
                Some(Some(token)) => Compares::with(token),
                Some(None) => Compares::Unseen,
                None => Compares::No,
            },
            done: None,
        },
        Role::Look => Did::Read,
        Role::Other => Did::Unclear,
    };
    let count = if manner.is_of_each_key() { locks.len() } else { 1 };
    let locks = locks.iter().take(count);
    Some(locks.map(|(target, _)| (target.key.clone(), did)).collect())
}

/// Whether a reply says that it was done; `None` where that is unknown.
pub(crate) fn is_done(command: &LockCommand, reply: &[u8]) -> Option<Option<bool>> {
    let manner = manner(command)?;
    let is_nil = || [&b"$-1"[..], b"*-1", b"_"].iter().any(|nil| reply.starts_with(nil));
    let number = || -> Option<i64> {
        let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    Some(match manner.done {
        _ if reply.starts_with(b"-") => None,
        Done::Nil => Some(is_nil()),
        Done::Status => Some(reply.starts_with(b"+OK") || reply.starts_with(b"$2\r\nOK")),
        Done::Number(0) => Some(number() == Some(0)),
        // Scripts on several keys reply with a count.
        Done::Number(_) => Some(number().is_some_and(|count| count > 0)),
        Done::Unknown if is_nil() => Some(false),
        Done::Unknown => number().map(|count| count > 0),
    })
}

/// Whether the commands that the script runs do not show the lock, so that it must be read from the call.
pub(crate) fn is_hidden(command: &LockCommand) -> bool {
    manner(command).is_some_and(Manner::is_hidden)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockwarden_lock::library_scripts::facts_to_watch;
    use lockwarden_lock::script_facts::ScriptFacts;
    use lockwarden_resp::OwnedRequest;

    use super::*;
    use crate::recognise::{Scripts, recognise};
    use crate::sighting::answered;

    /// What calls by digest do, and what they did according to these replies.
    fn seen(words: &[&str], reply: &str) -> Vec<(String, Did)> {
        let request = OwnedRequest::new(words.iter().map(|word| word.as_bytes()));
        let of_text = |text: &[u8]| Arc::new(ScriptFacts::of(text));
        let scripts = Scripts { by_name: &facts_to_watch, of_text: &of_text };
        let command = recognise(request.request(), &scripts).expect("it is about a lock");
        let doings = crate::sighting::doings(&command, 0);
        let answered = answered(&command, doings, reply.as_bytes()).into_iter();
        answered.map(|(key, did)| (String::from_utf8_lossy(&key).into_owned(), did)).collect()
    }

    fn take(owner: &str, ttl_ms: u64, spelling: Spelling, granted: bool) -> Did {
        Did::Acquire { spelling, value: Stored::of(owner.as_bytes()), ttl_ms: Some(ttl_ms), granted: Some(granted) }
    }

    #[test]
    fn a_sorted_set_is_taken_and_given_back_by_its_members() {
        let words = ["EVALSHA", MEMBERS_TAKE, "1", "job", "1.5", "me", "300000"];
        for (reply, granted) in [(":1\r\n", true), ("$-1\r\n", false)] {
            let did = take("me", 300_000, Spelling::Script, granted);
            assert_eq!(seen(&words, reply), [("job".to_owned(), did)]);
        }
        let words = ["EVALSHA", MEMBERS_RELEASE, "1", "job", "me"];
        let did = Did::Release { compares: Compares::with(b"me"), done: Some(true) };
        assert_eq!(seen(&words, ":1\r\n"), [("job".to_owned(), did)]);
    }

    #[test]
    fn a_lock_of_redisson_counts_in_a_hash() {
        let words = ["EVALSHA", REDISSON_LOCK, "1", "job", "30000", "me:1"];
        for (reply, granted) in [("$-1\r\n", true), (":29000\r\n", false)] {
            let did = take("me:1", 30_000, Spelling::Redisson, granted);
            assert_eq!(seen(&words, reply), [("job".to_owned(), did)]);
        }
        let words = ["EVALSHA", REDISSON_UNLOCK, "3", "job", "channel", "latch", "0", "30000", "me:1", "PUBLISH", "1"];
        for (reply, done) in [(":1\r\n", true), (":0\r\n", false), ("$-1\r\n", false)] {
            let did = Did::Release { compares: Compares::with(b"me:1"), done: Some(done) };
            assert_eq!(seen(&words, reply), [("job".to_owned(), did)]);
        }
    }

    #[test]
    fn several_locks_are_taken_in_one_call() {
        let words = ["EVALSHA", TAKE_ALL, "2", "a", "b", "me", "9000"];
        let did = take("me", 9_000, Spelling::Script, true);
        let both = [("a".to_owned(), did), ("b".to_owned(), did)];
        assert_eq!(seen(&words, ":2\r\n"), both);
        let did = take("me", 9_000, Spelling::Script, false);
        assert_eq!(seen(&words, ":0\r\n")[0].1, did);
    }

    #[test]
    fn zero_says_yes_where_a_library_says_so() {
        let words = ["EVALSHA", SIGNAL_AND_DELETE, "2", "lock:a", "signal:a", "me", "9"];
        for (reply, done) in [(":0\r\n", true), (":1\r\n", false)] {
            let did = Did::Release { compares: Compares::with(b"me"), done: Some(done) };
            assert_eq!(seen(&words, reply), [("lock:a".to_owned(), did)]);
        }
        let words = ["EVALSHA", EXPIRE_OR_WHY, "1", "lock:a", "me", "9"];
        for (reply, done) in [(":0\r\n", true), (":2\r\n", false)] {
            let did = Did::Extend { ttl_ms: Some(9_000), done: Some(done) };
            assert_eq!(seen(&words, reply), [("lock:a".to_owned(), did)]);
        }
    }

    const REDISSON_LOCK: &str = "149c5a8bf18676fd99e9e6e24923bd64d9b62f94";
    const REDISSON_UNLOCK: &str = "6866459238a13a701d42f4971f12d9f3a50e2442";
    const TAKE_ALL: &str = "96da70f7716f27d278a5218544df37fd8b0a5e4c";
    const SIGNAL_AND_DELETE: &str = "90da91872223f85eb1376a17e3c4df21ace8c54b";
    const EXPIRE_OR_WHY: &str = "fed16109024d968d9496e4140fe1355bac05ebff";
    const MEMBERS_TAKE: &str = "05d7803e3682f1aec08bb99c2932c68d247fdcc9";
    const MEMBERS_RELEASE: &str = "2b1725862ba31ea95cf45bf7ebffa2ca47c985b8";
}

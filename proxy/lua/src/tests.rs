//! Which texts are recipes, and which are not. The tables of texts stand in the files below; the
//! answers in them were compared with a Redis 7.0 that ran each text in each state of the lock.

mod extends;
mod hostile;
mod near_misses;
mod releases;
mod takes;

use bytes::Bytes;
use sha1::{Digest, Sha1};

use super::value::canonical_integer;
use super::*;

/// What a text says, where the commands are those of these tests.
pub(super) fn analysed(text: &[u8]) -> Analysis {
    Analysis::of(text, &commands)
}

/// The commands in the scripts of these tests that look for names, as the command table has them.
pub(super) fn commands(name: &[u8]) -> Option<InScript> {
    let places = |first, last, step| Places::Range { first, last, step };
    let written = match &name.to_ascii_lowercase()[..] {
        b"flushall" | b"migrate" | b"select" => return Some(InScript::Sweeping),
        b"get" | b"keys" | b"llen" | b"memory" => Places::None,
        b"hset" | b"incr" | b"lpop" | b"move" | b"sadd" | b"set" | b"spop" | b"zadd" | b"zunionstore" => {
            places(1, 1, 1)
        }
        b"copy" | b"xgroup" => places(2, 2, 1),
        b"rename" => places(1, 2, 1),
        b"del" => places(1, -1, 1),
        b"mset" => places(1, -1, 2),
        b"lmpop" => Places::Counted { at: 1, step: 1 },
        b"sort" => Places::Stored { from: 2 },
        b"xreadgroup" => Places::Every,
        _ => return None,
    };
    Some(InScript::Keys {
        written,
        read: Places::None,
        far: matches!(&name.to_ascii_lowercase()[..], b"copy" | b"move"),
    })
}

const fn replies(done: Reply, different: Reply, absent: Reply) -> Replies {
    Replies { done, different, absent, no_ttl: None, other_type: None }
}

const DONE_OR_ZERO: Replies = replies(Reply::CommandResult, Reply::Integer(0), Reply::Integer(0));
const ONE_OR_ZERO: Replies = replies(Reply::Integer(1), Reply::Integer(0), Reply::Integer(0));
const ONE_OR_NIL: Replies = replies(Reply::Integer(1), Reply::Nil, Reply::Nil);
const DONE_OR_NIL: Replies = replies(Reply::CommandResult, Reply::Nil, Reply::Nil);
const DONE_OR_MINUS_ONE: Replies = replies(Reply::CommandResult, Reply::Integer(-1), Reply::Integer(-1));
const SILENT: Replies = replies(Reply::Nil, Reply::Nil, Reply::Nil);

/// The call that the tables are about: one lock key and another, the owner token, a time, and "1".
const KEYS: [&str; 2] = ["lock:a", "plain:b"];
const ARGUMENTS: [&str; 3] = ["a1", "30000", "1"];
const TOKEN: Bytes = Bytes::from_static(b"a1");

fn bytes(words: &[&str]) -> Vec<Bytes> {
    words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn meaning(text: &str, keys: &[&str], arguments: &[&str]) -> Meaning {
    analysed(text.as_bytes()).meaning(&bytes(keys), &bytes(arguments), b"lock:a")
}

/// What the text does in that call.
fn recognise(text: &[u8]) -> Option<Recipe> {
    match analysed(text).meaning(&bytes(&KEYS), &bytes(&ARGUMENTS), b"lock:a") {
        Meaning::Recipe(recipe) => Some(recipe),
        Meaning::Reads | Meaning::Unknown => None,
    }
}

fn deletes(replies: Replies) -> Recipe {
    Recipe::CompareAndDelete { token: TOKEN, command: DeleteCommand::Del, replies }
}

fn unlinks(replies: Replies) -> Recipe {
    Recipe::CompareAndDelete { token: TOKEN, command: DeleteCommand::Unlink, replies }
}

fn extends(extension: Extension, replies: Replies) -> Recipe {
    Recipe::CompareAndExtend { token: TOKEN, extension, replies }
}

/// PEXPIRE with the second argument, as most libraries extend.
fn pexpires(replies: Replies) -> Recipe {
    extends(Extension::Expire(TtlUnit::Milliseconds, 30_000), replies)
}

/// The same where Redis's complaint about the key's type is caught.
fn catching(mut recipe: Recipe, other_type: Reply) -> Recipe {
    match &mut recipe {
        Recipe::CompareAndDelete { replies, .. } | Recipe::CompareAndExtend { replies, .. } => {
            replies.other_type = Some(other_type);
        }
        Recipe::Acquire { .. } | Recipe::AcquireOrExtend { .. } => {}
    }
    recipe
}

#[test]
fn every_library_text_is_recognised_and_is_the_published_one() {
    for (library, sha, text, recipe) in releases::published().into_iter().chain(extends::published()) {
        let facts = analysed(text.as_bytes());
        assert_eq!(recognise(text.as_bytes()), Some(recipe), "{library}");
        if let Some(sha) = sha {
            let digest = Sha1::digest(text);
            let digits = digest.iter().map(|byte| format!("{byte:02x}"));
            assert_eq!(digits.collect::<String>(), sha, "{library}");
        }
        assert!(!facts.shebang && !facts.no_writes, "{library}");
    }
}

#[test]
fn hand_written_spellings_are_recognised() {
    for (text, recipe) in releases::hand_written().into_iter().chain(extends::hand_written()) {
        assert_eq!(recognise(text.as_bytes()), Some(recipe), "{text}");
    }
}

#[test]
fn texts_that_do_anything_else_are_not_recognised() {
    let recognised: Vec<_> = near_misses::texts()
        .into_iter()
        .filter(|(_, text)| recognise(text.as_bytes()).is_some())
        .map(|(why, _)| why)
        .collect();
    assert!(recognised.is_empty(), "{recognised:#?}");
}

#[test]
fn a_script_may_use_any_key_and_argument() {
    let text = "if redis.call('get', KEYS[2]) == ARGV[3] then \
                return redis.call('expire', KEYS[2], ARGV[1]) end return 0";
    let recognised = |keys: &[&str], arguments: &[&str]| match meaning(text, keys, arguments) {
        Meaning::Recipe(Recipe::CompareAndExtend { token, extension, .. }) => Some((token, extension)),
        _ => None,
    };
    let seconds = |token: &'static str, seconds| {
        let token = Bytes::from_static(token.as_bytes());
        Some((token, Extension::Expire(TtlUnit::Seconds, seconds)))
    };
    let two = ["plain:b", "lock:a"];
    assert_eq!(recognised(&two, &["30", "x", "a1"]), seconds("a1", 30));
    assert_eq!(recognised(&["x", "lock:a", "y"], &["-1", "x", "a2", "y"]), seconds("a2", -1));
    assert_eq!(meaning(text, &["lock:a", "plain:b"], &["30", "x", "a1"]), Meaning::Unknown, "another key");
    assert_eq!(meaning(text, &["lock:a"], &["30", "x", "a1"]), Meaning::Unknown, "there is no KEYS[2]");
    // A missing argument is nil, which equals no text.
    assert_eq!(meaning(text, &two, &["30", "x"]), Meaning::Reads, "there is no ARGV[3]");
}

#[test]
fn the_owner_token_false_is_what_an_absent_key_reads_as_text() {
    // On an absent key these do their command if the owner token is "false", to no effect.
    for (text, reply) in [
        (
            "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) else return -1 end",
            Reply::Integer(0),
        ),
        (
            "if tostring(redis.call('get', KEYS[1])) == ARGV[1] then redis.call('del', KEYS[1]) return 1 end return 0",
            Reply::Integer(1),
        ),
        (
            "if redis.call('get', KEYS[1]) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) else return -1 end",
            Reply::Integer(-1),
        ),
    ] {
        let Meaning::Recipe(Recipe::CompareAndDelete { replies, .. }) = meaning(text, &KEYS, &["false"]) else {
            panic!("{text}");
        };
        assert_eq!(replies.absent, reply, "{text}");
    }
}

#[test]
fn a_missing_owner_token_or_ttl_is_what_lua_makes_of_it() {
    let text = "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then \
                return redis.call('pexpire', KEYS[1], tonumber(ARGV[2])) else return -1 end";
    let recipe = |arguments: &[&str]| matches!(meaning(text, &KEYS, arguments), Meaning::Recipe(_));
    assert!(recipe(&["a1", "5000"]));
    assert!(!recipe(&[]), "Redis would be asked for a TTL of nil");
    assert!(!recipe(&["a1"]));
    assert!(!recipe(&["a1", "5e3"]));
    assert_eq!(meaning(text, &[], &["a1", "5000"]), Meaning::Unknown);
    // `tostring(nil)` is a text too, which a value may equal.
    let text =
        "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) end";
    let Meaning::Recipe(Recipe::CompareAndDelete { token, .. }) = meaning(text, &KEYS, &[]) else {
        panic!("not recognised");
    };
    assert_eq!(&token[..], b"nil");
}

#[test]
fn a_number_counts_only_in_the_spelling_that_redis_and_lua_agree_on() {
    for (text, value) in [
        ("30000", Some(30_000)),
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9007199254740992", Some(1 << 53)),
        ("9007199254740993", None),
        ("99999999999999999999", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("01", None),
        (" 1", None),
        ("1 ", None),
        ("1e3", None),
        ("0x10", None),
        ("1.0", None),
        ("١", None),
    ] {
        assert_eq!(canonical_integer(text.as_bytes()), value, "{text:?}");
    }
}

#[test]
fn a_shebang_is_told_and_no_writes_only_where_the_server_must_read_it() {
    for (text, no_writes) in [
        ("#!lua flags=no-writes\nreturn 1", true),
        ("#!lua  flags=allow-stale,no-writes \nreturn 1", true),
        ("#!lua flags=allow-stale flags=no-writes\nreturn redis.call('get', KEYS[1])", true),
        ("#!lua\nreturn 1", false),
        ("#!lua flags=\nreturn 1", false),
        ("#!lua flags=allow-stale\nreturn 1", false),
        ("#!lua flags=no-writes", false),
        ("#!lua\0 flags=no-writes\nreturn 1", false),
        ("#!lua \0flags=no-writes\nreturn 1", false),
        ("#!lua flags=\"no-writes\"\nreturn 1", false),
        ("#!lua flags=no-writes name=x\nreturn 1", false),
        ("#!lua flags=NO-WRITES\nreturn 1", false),
        ("#!js flags=no-writes\nreturn 1", false),
        ("#!luaflags=no-writes\nreturn 1", false),
    ] {
        let facts = analysed(text.as_bytes());
        assert!(facts.shebang, "{text:?}");
        assert_eq!(facts.no_writes, no_writes, "{text:?}");
        assert_eq!(recognise(text.as_bytes()), None, "{text:?}");
    }
    let plain = analysed(b"-- #!lua flags=no-writes\nreturn 1");
    assert!(!plain.shebang && !plain.no_writes);
}

//! Which texts are recipes, and which are not. The tables of texts stand in the files below; the
//! answers in them were compared with a Redis 7.0 that ran each text in each state of the lock.

mod extends;
mod hostile;
mod near_misses;
mod releases;

use super::*;

const DONE_OR_ZERO: Replies = Replies {
    done: Reply::CommandResult,
    different: Reply::Integer(0),
    absent: Reply::Integer(0),
};
const ONE_OR_ZERO: Replies = Replies {
    done: Reply::Integer(1),
    different: Reply::Integer(0),
    absent: Reply::Integer(0),
};
const ONE_OR_NIL: Replies = Replies {
    done: Reply::Integer(1),
    different: Reply::Nil,
    absent: Reply::Nil,
};
const DONE_OR_NIL: Replies = Replies {
    done: Reply::CommandResult,
    different: Reply::Nil,
    absent: Reply::Nil,
};
const DONE_OR_MINUS_ONE: Replies = Replies {
    done: Reply::CommandResult,
    different: Reply::Integer(-1),
    absent: Reply::Integer(-1),
};
const SILENT: Replies = Replies {
    done: Reply::Nil,
    different: Reply::Nil,
    absent: Reply::Nil,
};

fn deletes(replies: Replies) -> Recipe {
    Recipe::CompareAndDelete {
        key: 0,
        token: 0,
        compared: Compared::Answer,
        command: DeleteCommand::Del,
        replies,
    }
}

fn unlinks(replies: Replies) -> Recipe {
    Recipe::CompareAndDelete {
        key: 0,
        token: 0,
        compared: Compared::Answer,
        command: DeleteCommand::Unlink,
        replies,
    }
}

fn expires(unit: TtlUnit, ttl: TtlSource, replies: Replies) -> Recipe {
    Recipe::CompareAndExpire {
        key: 0,
        token: 0,
        compared: Compared::Answer,
        ttl,
        unit,
        replies,
    }
}

/// PEXPIRE with the second argument, as most libraries extend.
fn pexpires(replies: Replies) -> Recipe {
    expires(TtlUnit::Milliseconds, TtlSource::Argument(1), replies)
}

/// The same recipe in a text that compares with `tostring`.
fn as_text(mut recipe: Recipe) -> Recipe {
    match &mut recipe {
        Recipe::CompareAndDelete { compared, .. } | Recipe::CompareAndExpire { compared, .. } => {
            *compared = Compared::AnswerAsText;
        }
    }
    recipe
}

#[test]
fn every_library_text_is_recognised_and_is_the_published_one() {
    for (library, sha, text, recipe) in releases::published()
        .into_iter()
        .chain(extends::published())
    {
        let facts = ScriptFacts::of(text.as_bytes());
        assert_eq!(facts.recipe, Some(recipe), "{library}");
        if let Some(sha) = sha {
            assert_eq!(facts.sha.to_string(), sha, "{library}");
        }
        assert!(!facts.shebang && !facts.no_writes, "{library}");
    }
}

#[test]
fn hand_written_spellings_are_recognised() {
    for (text, recipe) in releases::hand_written()
        .into_iter()
        .chain(extends::hand_written())
    {
        assert_eq!(recognise(text.as_bytes()), Some(recipe), "{text}");
    }
}

#[test]
fn texts_that_do_anything_else_are_not_recognised() {
    for (why, text) in near_misses::texts() {
        assert_eq!(recognise(text.as_bytes()), None, "{why}: {text}");
    }
}

#[test]
fn a_script_may_use_any_key_and_argument() {
    let text = "if redis.call('get', KEYS[2]) == ARGV[3] then \
                return redis.call('expire', KEYS[2], ARGV[1]) end return 0";
    let recipe = recognise(text.as_bytes()).unwrap();
    assert_eq!((recipe.key(), recipe.token()), (1, 2));
    assert_eq!(recipe.replies(), &DONE_OR_ZERO);
    assert!(recipe.fits(2, &["30", "x", "a1"]));
    assert!(recipe.fits(3, &["-1", "x", "a1", "y"]));
    assert!(!recipe.fits(1, &["30", "x", "a1"]), "there is no KEYS[2]");
    assert!(!recipe.fits(2, &["30", "x"]), "there is no ARGV[3]");
}

#[test]
fn the_owner_token_false_fits_only_where_an_absent_key_is_told_apart() {
    let fits = |text: &str, token: &str| {
        let recipe = recognise(text.as_bytes()).expect(text);
        recipe.fits(1, &[token, "5000"])
    };
    // On an absent key these do their command if the owner token is "false".
    for text in [
        "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) else return -1 end",
        "if tostring(redis.call('get', KEYS[1])) == ARGV[1] then redis.call('del', KEYS[1]) return 1 end return 0",
        "if ARGV[1] ~= tostring(redis.call('get', KEYS[1])) then return -1 end return redis.call('pexpire', KEYS[1], ARGV[2])",
        "local t = tostring local v = t(t(redis.call('get', KEYS[1]))) if v == t(ARGV[1]) then return redis.call('pexpire', KEYS[1], tonumber(ARGV[2])) else return -1 end",
    ] {
        assert!(!fits(text, "false"), "{text}");
        for other in ["a1", "", "False", "false ", "false\0", "nil", "true"] {
            assert!(fits(text, other), "{other:?}: {text}");
        }
    }
    // These never compare the text of an absent key.
    for text in [
        "if redis.call('get', KEYS[1]) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) else return -1 end",
        "local v = redis.call('get', KEYS[1]) if not v then return -2 end
         if tostring(v) == tostring(ARGV[1]) then return redis.call('pexpire', KEYS[1], ARGV[2]) end return -1",
    ] {
        assert!(fits(text, "false"), "{text}");
    }
}

#[test]
fn a_missing_owner_token_or_ttl_fits_no_recipe_with_tostring() {
    let text = "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then \
                return redis.call('pexpire', KEYS[1], tonumber(ARGV[2])) else return -1 end";
    let recipe = recognise(text.as_bytes()).unwrap();
    assert!(recipe.fits(1, &["a1", "5000"]));
    assert!(!recipe.fits::<&str>(1, &[]), "tostring(nil) is a text too");
    assert!(!recipe.fits(1, &["a1"]));
    assert!(!recipe.fits(1, &["a1", "5e3"]));
    assert!(!recipe.fits(0, &["a1", "5000"]));
}

#[test]
fn a_ttl_counts_only_in_the_spelling_that_redis_and_lua_agree_on() {
    let ttl = TtlSource::Argument(1);
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
        assert_eq!(ttl.value(&["a1", text]), value, "{text:?}");
    }
    assert_eq!(ttl.value(&["a1"]), None);
    assert_eq!(TtlSource::Literal(5).value::<&str>(&[]), Some(5));
}

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
fn a_shebang_is_told_and_no_writes_only_where_the_server_must_read_it() {
    for (text, no_writes) in [
        ("#!lua flags=no-writes\nreturn 1", true),
        ("#!lua  flags=allow-stale,no-writes \nreturn 1", true),
        (
            "#!lua flags=allow-stale flags=no-writes\nreturn redis.call('get', KEYS[1])",
            true,
        ),
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
        let facts = ScriptFacts::of(text.as_bytes());
        assert!(facts.shebang, "{text:?}");
        assert_eq!(facts.no_writes, no_writes, "{text:?}");
        assert_eq!(facts.recipe, None, "{text:?}");
    }
    let plain = ScriptFacts::of(b"-- #!lua flags=no-writes\nreturn 1");
    assert!(!plain.shebang && !plain.no_writes);
}

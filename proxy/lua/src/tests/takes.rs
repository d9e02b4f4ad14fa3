//! Scripts that take a lock, or take and extend it, and meanings that depend on the arguments of the call; a script's
//! reply for a lock that another client holds; and scripts that only read.

use super::*;

const GRANT_OR_ZERO: AcquireReplies =
    AcquireReplies { granted: Reply::Integer(1), held: Reply::Integer(0), reads_value: false };

fn acquires(ttl_ms: Option<i64>, replies: AcquireReplies) -> Recipe {
    Recipe::Acquire { value: TOKEN, ttl_ms, replies }
}

fn takes(by_expire: bool, [granted, extended, different]: [Reply; 3]) -> Recipe {
    Recipe::AcquireOrExtend {
        value: TOKEN,
        owner: Owner::Whole,
        ttl_ms: 30_000,
        by_expire,
        replies: TakeReplies { granted, extended, different, other_type: None },
    }
}

fn ok() -> Reply {
    Reply::Status(Bytes::from_static(b"OK"))
}

pub(super) fn texts() -> Vec<(&'static str, Recipe)> {
    let one_or_zero = GRANT_OR_ZERO;
    let busy = AcquireReplies { granted: ok(), held: Reply::Left(TtlUnit::Milliseconds), reads_value: false };
    let done_two = replies(Reply::Integer(2), Reply::Integer(0), Reply::Integer(0));
    let mut with_ttl = ONE_OR_ZERO;
    with_ttl.no_ttl = Some(Reply::Integer(0));
    let mut persisted = DONE_OR_ZERO;
    persisted.no_ttl = Some(Reply::Integer(0));
    let text = |text: &'static str| Reply::Bulk(Bytes::from_static(text.as_bytes()));
    vec![
        (
            "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
            acquires(Some(30_000), one_or_zero.clone()),
        ),
        ("return redis.call('SETNX', KEYS[1], ARGV[1])", acquires(None, one_or_zero.clone())),
        (
            "if redis.call('exists', KEYS[1]) > 0 then return 0 end redis.call('setex', KEYS[1], 60, ARGV[1]) return 1",
            acquires(Some(60_000), one_or_zero),
        ),
        (
            "return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) or redis.call('pttl', KEYS[1])",
            acquires(Some(30_000), busy),
        ),
        (
            "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) elseif not v then redis.call('psetex', KEYS[1], ARGV[2], ARGV[1]) return 1 end return -1",
            takes(true, [Reply::Integer(1), Reply::CommandResult, Reply::Integer(-1)]),
        ),
        (
            "local v = redis.call('get', KEYS[1]) if v and v ~= ARGV[1] then return false end return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])",
            takes(false, [ok(), ok(), Reply::Nil]),
        ),
        (
            "local v = redis.call('get', KEYS[1]) if v ~= ARGV[1] then return 0 end if redis.call('pttl', KEYS[1]) < 0 then return 0 end redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[2]) return 1",
            extends(Extension::Prolong(30_000), with_ttl),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end return 0",
            extends(Extension::Store(30_000), replies(ok(), Reply::Integer(0), Reply::Integer(0))),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('persist', KEYS[1]) end return 0",
            extends(Extension::Persist, persisted),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2] + 1000) end return 0",
            extends(Extension::Expire(TtlUnit::Milliseconds, 31_000), DONE_OR_ZERO),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] and tonumber(ARGV[2]) > 0 then return redis.call('expire', KEYS[1], ARGV[2]) end return 0",
            extends(Extension::Expire(TtlUnit::Seconds, 30_000), DONE_OR_ZERO),
        ),
        // DEL of a key that is absent does nothing.
        (
            "local v = redis.call('get', KEYS[1]) if not v or v == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
            deletes(DONE_OR_ZERO),
        ),
        (
            "if ARGV[1] and redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
            deletes(DONE_OR_ZERO),
        ),
        (
            "if redis.call('get', 'lock:a') == ARGV[1] then return redis.call('del', 'lock:' .. 'a') end return 0",
            deletes(DONE_OR_ZERO),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return KEYS[1] end return 0",
            deletes(replies(text("lock:a"), Reply::Integer(0), Reply::Integer(0))),
        ),
        (
            "for i = 1, 1 do if redis.call('get', KEYS[i]) == ARGV[1] then return redis.call('del', KEYS[i]) + i end end return 0",
            deletes(done_two),
        ),
    ]
}

#[test]
fn scripts_that_take_a_lock_are_recognised() {
    for (text, recipe) in texts() {
        assert_eq!(recognise(text.as_bytes()), Some(recipe), "{text}");
    }
}

#[test]
fn a_literal_is_an_owner_token_like_another() {
    let text = "if redis.call('get', KEYS[1]) == 'locked' then return redis.call('del', KEYS[1]) end return 0";
    let Some(Recipe::CompareAndDelete { token, .. }) = recognise(text.as_bytes()) else {
        panic!("not recognised");
    };
    assert_eq!(&token[..], b"locked");
}

#[test]
fn an_owner_may_be_known_by_how_its_value_begins() {
    let text = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return 1 end
        local n = tonumber(ARGV[2])
        if redis.call('getrange', KEYS[1], 0, n - 1) == string.sub(ARGV[1], 1, n) then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[3]) end";
    let owner = |value: &str, bytes: &str| match meaning(text, &KEYS, &[value, bytes, "5000"]) {
        Meaning::Recipe(Recipe::AcquireOrExtend { owner, .. }) => Some(owner),
        _ => None,
    };
    assert_eq!(owner("token+metadata", "5"), Some(Owner::Prefix(5)));
    assert_eq!(owner("token", "5"), Some(Owner::Prefix(5)));
    // What is shorter than its beginning is compared whole.
    assert_eq!(owner("tok", "5"), Some(Owner::Whole));
    // GETRANGE 0 -1 is everything, and string.sub(…, 1, 0) nothing.
    assert_eq!(owner("token", "0"), None);
    assert_eq!(owner("token", "-3"), None);
    assert_eq!(owner("token", "x"), None);
}

#[test]
fn what_a_call_means_depends_on_its_arguments() {
    let text = "local v = redis.call('get', KEYS[1]) if v ~= ARGV[1] then return 0 end
        local left = redis.call('pttl', KEYS[1]) if left < 0 then return 0 end
        local new = ARGV[2] if ARGV[3] == '0' then new = ARGV[2] + left end
        redis.call('pexpire', KEYS[1], new) return 1";
    let extension = |arguments: &[&str]| match meaning(text, &KEYS, arguments) {
        Meaning::Recipe(Recipe::CompareAndExtend { extension, .. }) => Some(extension),
        _ => None,
    };
    let replaced = Extension::Expire(TtlUnit::Milliseconds, 500);
    assert_eq!(extension(&["a1", "500", "1"]), Some(replaced));
    assert_eq!(extension(&["a1", "500"]), Some(replaced));
    assert_eq!(extension(&["a1", "500", "0"]), Some(Extension::Prolong(500)));
    assert_eq!(extension(&["a1", "-500", "0"]), None, "it may end the lease");
    assert_eq!(extension(&["a1", "0x1F4", "0"]), None);
}

#[test]
fn the_answer_about_somebody_elses_lock_is_followed_in_scripts_that_are_no_recipe() {
    let refusal = |text: &str, keys: &[&str], arguments: &[&str]| {
        let is_lock = |key: &[u8]| key.starts_with(b"lock:");
        analysed(text.as_bytes()).refusal_reply(&bytes(keys), &bytes(arguments), &is_lock)
    };
    let keys = ["lock:a", "plain:b", "plain:latch"];
    for (text, reply) in [
        // A release that also signals: its answers are the other way round.
        (
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 else redis.call('del', KEYS[2]) redis.call('lpush', KEYS[2], 1) redis.call('del', KEYS[1]) return 0 end",
            Some(Reply::Integer(1)),
        ),
        (
            "local v = redis.call('GET', KEYS[1]) if v == ARGV[1] then redis.call('UNLINK', KEYS[1]) redis.call('PUBLISH', ARGV[2], KEYS[1]) return true end return false",
            Some(Reply::Nil),
        ),
        // A lock that is a hash of its holders: how long to wait, or nothing.
        (
            "if (redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);",
            Some(Reply::Left(TtlUnit::Milliseconds)),
        ),
        (
            "local done = redis.call('get', KEYS[3]); if done ~= false then return tonumber(done); end; if (redis.call('hexists', KEYS[1], ARGV[2]) == 0) then return nil; end; return redis.call('hincrby', KEYS[1], ARGV[2], -1);",
            Some(Reply::Nil),
        ),
        (
            "for _, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end for _, key in ipairs(KEYS) do redis.call('set', key, ARGV[1]) end return #KEYS",
            Some(Reply::Integer(0)),
        ),
        (
            "local held = redis.call('zscore', KEYS[1], ARGV[1]) if held then return redis.call('zadd', KEYS[1], 'XX', 5, ARGV[1]) end return {err = 'NOTHELD sorry'}",
            Some(Reply::Error(Bytes::from_static(b"NOTHELD sorry"))),
        ),
        // What it would still change, show or not decide, is not told.
        ("return redis.call('del', KEYS[1])", None),
        ("return redis.call('incr', KEYS[2])", None),
        ("return redis.call('get', KEYS[1])", None),
        ("if redis.call('hget', KEYS[1], 'mode') == 'read' then return 1 end return 0", None),
        ("return redis.call('hgetall', KEYS[1])", None),
        ("while true do end", None),
    ] {
        assert_eq!(refusal(text, &keys, &["a1", "a2"]), reply, "{text}");
    }
    // No lock among the keys, and a lock that is not the first.
    assert_eq!(refusal("return 0", &["plain:b"], &[]), None);
    let second = "if redis.call('get', KEYS[2]) ~= ARGV[1] then return -1 end return redis.call('del', KEYS[2])";
    let reply = refusal(second, &["plain:b", "lock:a"], &["a1"]);
    assert_eq!(reply, Some(Reply::Integer(-1)));
}

#[test]
fn a_script_reads_only_if_no_way_through_it_writes() {
    for text in [
        "return 1",
        "return redis.call('get', KEYS[1])",
        "return redis.call('exists', KEYS[1], KEYS[2])",
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pttl', KEYS[1]) else return -3 end",
        "if redis.call('hlen', KEYS[2]) > 3 then return redis.call('lrange', KEYS[2], 0, -1) end return redis.call('time')[1]",
        "if redis.call('get', KEYS[2]) then return redis.call('get', KEYS[1]) .. 'x' end",
        "local t = redis.call('pttl', KEYS[1]) return t > 0 and t or 0",
    ] {
        assert_eq!(meaning(text, &KEYS, &ARGUMENTS), Meaning::Reads, "{text}");
    }
    for text in [
        "if redis.call('get', KEYS[2]) == 'x' then return redis.call('set', KEYS[1], 'y') end return 1",
        "if redis.call('hlen', KEYS[2]) > 3 then redis.call('del', KEYS[2]) end return 1",
        "return redis.call('getdel', KEYS[1])",
        "return redis.call('getex', KEYS[1], 'EX', 5)",
        "return redis.call('sort', KEYS[1], 'STORE', KEYS[2])",
        "return redis.call('publish', 'c', 'm')",
        "redis.call('select', 1) return redis.call('get', KEYS[1])",
        "if redis.call('time')[1] == '5' then redis.call('flushall') end return 1",
        "return redis.call(ARGV[1], KEYS[1])",
    ] {
        let meant = meaning(text, &KEYS, &["del", "30000", "1"]);
        assert_ne!(meant, Meaning::Reads, "{text}");
    }
}

#[test]
fn loops_steps_and_branches_are_limited() {
    let many: Vec<String> = (0..1_000).map(|i| format!("plain:{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let loops = "for _, a in ipairs(ARGV) do for _, b in ipairs(ARGV) do for _, c in ipairs(ARGV) do local x = a end end end return 1";
    assert_eq!(meaning(loops, &KEYS, &many[..60]), Meaning::Unknown);
    assert_eq!(meaning(loops, &KEYS, &many), Meaning::Unknown);
    assert_eq!(meaning(loops, &KEYS, &many[..5]), Meaning::Reads);
    let counts = "for i = 1, 9007199254740992 do local x = i end return 1";
    assert!(matches!(meaning(counts, &KEYS, &ARGUMENTS), Meaning::Unknown));
    let grows = "local x = ARGV[1] for i = 1, 60 do x = x .. x end return 1";
    assert_eq!(meaning(grows, &KEYS, &ARGUMENTS), Meaning::Unknown);
    let branches = "if redis.call('get', KEYS[2]) then local x = 1 end ".repeat(20);
    assert_eq!(meaning(&format!("{branches} return 1"), &KEYS, &ARGUMENTS), Meaning::Unknown);
}

//! Common scripts: compare-and-delete (B3) and compare-and-expire (C2) in the spellings that applications
//! use. They are correct by themselves, so nothing about them may change but the ceiling; their own replies
//! for "not yours" stay.

use lockwarden_tests::World;

const ALICES: &str = "9f86d081-884c-alice";
const BOBS: &str = "2c26b46b-68ff-bob-0";

/// A script, and its reply to the holder, to another value, and on a free lock.
struct Spelling {
    text: &'static str,
    holder: &'static str,
    stranger: &'static str,
    free: &'static str,
}

const fn spelling(text: &'static str, stranger: &'static str, free: &'static str) -> Spelling {
    Spelling { text, holder: ":1", stranger, free }
}

const COMPARE_AND_DELETE: &[Spelling] = &[
    spelling(
        r#"if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end"#,
        ":0",
        ":0",
    ),
    spelling(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then\n  return redis.call('DEL', KEYS[1])\nelse\n  return 0\nend\n",
        ":0",
        ":0",
    ),
    spelling(
        "if ARGV[1] == redis.call('get', KEYS[1]) then return redis.call('del', KEYS[1]) end return 0",
        ":0",
        ":0",
    ),
    spelling(
        "local v = redis.call('get', KEYS[1]); if v == ARGV[1] then redis.call('del', KEYS[1]); return 1; end; return 0;",
        ":0",
        ":0",
    ),
    spelling(
        "\n        local token = redis.call('get', KEYS[1])\n        if not token or token ~= ARGV[1] then\n            return 0\n        end\n        redis.call('del', KEYS[1])\n        return 1\n    ",
        ":0",
        ":0",
    ),
    spelling(
        "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) else return -1 end",
        ":-1",
        ":-1",
    ),
    spelling(
        "-- give it back\nif redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('unlink', KEYS[1]) else return 0 end",
        ":0",
        ":0",
    ),
    spelling(
        "\n\tlocal val = redis.call(\"GET\", KEYS[1])\n\tif val == ARGV[1] then\n\t\treturn redis.call(\"DEL\", KEYS[1])\n\telseif val == false then\n\t\treturn -1\n\telse\n\t\treturn 0\n\tend\n",
        ":0",
        ":-1",
    ),
];

const COMPARE_AND_EXPIRE: &[Spelling] = &[
    spelling(
        r#"if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end"#,
        ":0",
        ":0",
    ),
    spelling(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then\n  return redis.call('PEXPIRE', KEYS[1], ARGV[2])\nelse\n  return 0\nend\n",
        ":0",
        ":0",
    ),
    spelling(
        "if ARGV[1] == redis.call('get', KEYS[1]) then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
        ":0",
        ":0",
    ),
    spelling(
        "local v = redis.call('get', KEYS[1]); if v == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]); return 1; end; return 0;",
        ":0",
        ":0",
    ),
    spelling(
        "\n        local token = redis.call('get', KEYS[1])\n        if not token or token ~= ARGV[1] then\n            return 0\n        end\n        redis.call('pexpire', KEYS[1], ARGV[2])\n        return 1\n    ",
        ":0",
        ":0",
    ),
    spelling(
        "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then return redis.call('pexpire', KEYS[1], tonumber(ARGV[2])) else return -1 end",
        ":-1",
        ":-1",
    ),
    spelling(
        "-- a watchdog\nif redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
        ":0",
        ":0",
    ),
];

/// B3: the holder's script deletes, a stranger's value does not, on a free lock nothing happens.
fn compare_and_delete(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for Spelling { text, holder, stranger, free } in COMPARE_AND_DELETE {
        let run = |client: &lockwarden_tests::Client, value: &str, reply: &str| {
            client.sends_arguments(&["EVAL", text, "1", "lock:job", value]).gets(reply);
        };
        alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
        let before = world.redis().lease("lock:job");
        run(&bob, BOBS, stranger);
        assert_eq!(world.redis().lease("lock:job"), before, "{text}");
        run(&alice, ALICES, holder);
        assert!(world.redis().is_free("lock:job"), "{text}");
        run(&alice, ALICES, free);

        // Over another connection: the value is the proof.
        alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
        run(&world.client(), ALICES, holder);
    }
    let releases = 2.0 * COMPARE_AND_DELETE.len() as f64;
    world.counts("lockwarden_lock_releases_total{namespace=\"locks\",outcome=\"released\"}", releases);
}
in_every_world!(compare_and_delete);

/// B3 after SCRIPT LOAD, in the way that most libraries send it.
fn compare_and_delete_by_its_sha(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for Spelling { text, holder, stranger, .. } in COMPARE_AND_DELETE {
        let sha = alice.sends_arguments(&["SCRIPT", "LOAD", text]).text();
        alice.sends(format!("SCRIPT EXISTS {sha}")).gets("[:1]");
        alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
        bob.sends(format!("EVALSHA {sha} 1 lock:job {BOBS}")).gets(stranger);
        alice.sends(format!("evalsha {} 1 lock:job {ALICES}", sha.to_uppercase())).gets(holder);
        assert!(world.redis().is_free("lock:job"), "{text}");
    }
    world.releases("released", COMPARE_AND_DELETE.len() as u32);
}
in_every_world!(compare_and_delete_by_its_sha);

/// C2: the holder's script extends, to the ceiling and no further.
fn compare_and_expire(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for Spelling { text, holder, stranger, free } in COMPARE_AND_EXPIRE {
        let run = |client: &lockwarden_tests::Client, value: &str, ms: &str, reply: &str| {
            client.sends_arguments(&["EVAL", text, "1", "lock:job", value, ms]).gets(reply);
        };
        run(&alice, ALICES, "5000", free);
        alice.sends(format!("SET lock:job {ALICES} NX PX 2000")).gets("+OK");
        let before = world.redis().lease("lock:job");
        run(&bob, BOBS, "5000", stranger);
        assert_eq!(world.redis().lease("lock:job"), before, "{text}");
        run(&alice, ALICES, "5000", holder);
        let left = world.redis().pttl("lock:job");
        assert!((4_000..=5_000).contains(&left), "{text}: {left}");
        run(&world.client(), ALICES, "86400000", holder);
        let left = world.redis().pttl("lock:job");
        assert_eq!(left > 10_000, world.is_harmed(), "{text}: {left}");
        alice.sends("DEL lock:job").gets(":1");
    }
    // The script's own comparison said no: nothing had to be refused.
    world.counted("extend", "not-owner", 0);
}
in_every_world!(compare_and_expire);

/// C2 in seconds, by its SHA.
fn compare_and_expire_in_seconds(world: &World) {
    let alice = world.client();
    let text =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2]) else return 0 end";
    let sha = alice.sends_arguments(&["SCRIPT", "LOAD", text]).text();
    alice.sends(format!("SET lock:job {ALICES} NX PX 2000")).gets("+OK");
    alice.sends(format!("EVALSHA {sha} 1 lock:job {ALICES} 7")).gets(":1");
    let left = world.redis().pttl("lock:job");
    assert!((6_000..=7_000).contains(&left), "{left}");
    alice.sends(format!("EVALSHA {sha} 1 lock:job {ALICES} 0")).gets(":1");
    assert!(world.redis().is_free("lock:job"), "an EXPIRE of 0 is a release");
    world.releases("released", 1);
}
in_every_world!(compare_and_expire_in_seconds);

/// A recipe in a MULTI block keeps its place and its reply.
fn a_recipe_in_a_block(world: &World) {
    let alice = world.client();
    let text = COMPARE_AND_DELETE[0].text;
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    alice.sends("MULTI").gets("+OK");
    alice.sends("SET plain 1").gets("+QUEUED");
    alice.sends_arguments(&["EVAL", text, "1", "lock:job", BOBS]).gets("+QUEUED");
    alice.sends_arguments(&["EVAL", text, "1", "lock:job", ALICES]).gets("+QUEUED");
    alice.sends("GET plain").gets("+QUEUED");
    alice.sends("EXEC").gets("[+OK, :0, :1, $1 1]");
    assert!(world.redis().is_free("lock:job"));
    world.releases("released", 1);
}
in_every_world!(a_recipe_in_a_block);

/// bsm/redislock's `obtain`: the beginning of the value is the owner token, anything may follow.
const OBTAIN: &str = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return redis.status_reply('OK') end
local offset = tonumber(ARGV[2])
if redis.call('getrange', KEYS[1], 0, offset-1) == string.sub(ARGV[1], 1, offset) then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[3]) end";

fn a_lock_is_taken_again_with_other_metadata(world: &World) {
    let [one, other, stranger] = ["127.46.0.1", "127.46.0.2", "127.46.0.3"].map(|source| world.client_from(source));
    for token in ["0f8fad5b-d9cb-469f-a165-70867728950e", "short"] {
        let long = "m".repeat(100);
        for (client, metadata) in
            [(&one, "first"), (&other, "first"), (&one, "second"), (&other, "third"), (&one, ""), (&other, &long)]
        {
            let value = format!("{token}{metadata}");
            let bytes = token.len().to_string();
            client.sends_arguments(&["EVAL", OBTAIN, "1", "lock:job", &value, &bytes, "9000"]).gets("+OK");
            let stored = format!("${} {value}", value.len());
            assert_eq!(world.redis().value("lock:job"), stored);
        }
        let theirs = format!("{}!", &token[1..]);
        let bytes = theirs.len().to_string();
        stranger.sends_arguments(&["EVAL", OBTAIN, "1", "lock:job", &theirs, &bytes, "9000"]).gets("nil");
        one.sends(format!(
            "EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end\" 1 lock:job {token}{long}"
        ))
        .gets(":1");
    }
}

in_every_world!(a_lock_is_taken_again_with_other_metadata);

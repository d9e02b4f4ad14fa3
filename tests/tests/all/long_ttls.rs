//! TTLs beyond what a record has digits for, and beyond the numbers that Redis reads from Lua: 2^53 ms, 1e17 ms.
//! Redis takes them, so the proxy does; in enforce mode the ceiling holds.

use lockwarden_tests::{World, WorldKind};

const OWNER: &str = "5c9e2f70-alice-d1b3";
/// As many milliseconds; Redis ends at 2^63.
const MILLISECONDS: [&str; 6] = [
    "10000000000000",
    "9007199254740992",
    "9007199254740993",
    "100000000000000000",
    "4611686018427387904",
    "9223000000000000000",
];
/// A script that runs in a wrap, because of its loop.
const WRAPPED: &str = "while true do return redis.call('pexpire', KEYS[1], ARGV[1]) end";
const TAKES: &str =
    "while true do redis.call('set', KEYS[1], ARGV[2]) return redis.call('pexpire', KEYS[1], ARGV[1]) end";
const RECIPE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('pexpire', KEYS[1], ARGV[1]) end return 0";
const TAKE_OR_EXTEND: &str = "local v = redis.call('get', KEYS[1]) if v and v ~= ARGV[2] then return false end return redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[1])";

fn a_ttl_of_any_length_is_taken(world: &World) {
    let alice = world.client_from("127.47.0.1");
    let eval =
        |text: &str, ms: &str| -> Vec<String> { ["EVAL", text, "1", "lock:job", ms, OWNER].map(str::to_owned).into() };
    for ms in MILLISECONDS {
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let seconds = &ms[..ms.len() - 3];
        let fresh = [
            words(format!("SET lock:job {OWNER} NX PX {ms}")),
            words(format!("SET lock:job {OWNER} EX {seconds}")),
            words(format!("PSETEX lock:job {ms} {OWNER}")),
            eval(TAKES, ms),
            eval(TAKE_OR_EXTEND, ms),
        ];
        let held = [
            words(format!("PEXPIRE lock:job {ms}")),
            words(format!("EXPIRE lock:job {seconds}")),
            words(format!("PEXPIREAT lock:job {ms}")),
            words(format!("GETEX lock:job PX {ms}")),
            words(format!("SET lock:job {OWNER} XX PX {ms}")),
            eval(WRAPPED, ms),
            eval(RECIPE, ms),
            eval(TAKE_OR_EXTEND, ms),
        ];
        let fresh = fresh.into_iter().map(|words| (false, words));
        for (is_held, words) in fresh.chain(held.into_iter().map(|words| (true, words))) {
            if is_held {
                alice.sends(format!("SET lock:job {OWNER} NX PX 5000")).gets("+OK");
            }
            let reply = alice.sends_arguments(&words).reply().to_string();
            let given = format!("${} {OWNER}", OWNER.len());
            assert!(reply == "+OK" || reply == ":1" || reply == given, "{words:?}: {reply}");
            let left = world.redis().pttl("lock:job");
            if world.kind == WorldKind::Enforce {
                assert!((1..=10_000).contains(&left), "{words:?}: {left}");
            } else {
                assert!(left > 5_000_000_000_000, "{words:?}: {left}");
            }
            if world.proxy().is_some() {
                let record = world.redis().record("lock:job").expect("a record");
                assert_eq!(record.owner, OWNER.as_bytes(), "{words:?}");
            }
            // The lease is known as before: another client's command does not end it, its holder's does.
            world.client_from("127.47.0.2").sends("DEL lock:job").gets(world.either(":1", ":0"));
            alice.sends("DEL lock:job").gets(world.either(":0", ":1"));
        }
    }
}

in_every_world!(a_ttl_of_any_length_is_taken);

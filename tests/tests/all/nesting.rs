//! Replies that are nested as deep as a script can make them.

use lockwarden_tests::{Client, Mode, Proxy, Redis, Server, encode};

/// Returns an array in an array in an array, as often as its first argument says.
const NESTED: &str = "local t = {} for i = 1, tonumber(ARGV[1]) do t = {t} end return t";
/// The same, and does something with its key that has no name.
const NESTED_ON_A_LOCK: &str = "redis.call('SET', KEYS[1], 'x', 'PX', 9000) redis.call('PEXPIRE', KEYS[1], 8000) \
                                local t = {} for i = 1, tonumber(ARGV[1]) do t = {t} end return t";

/// Above 7,995 Redis replies with an error in the innermost place.
const DEPTHS: [&str; 5] = ["31", "33", "100", "7990", "20000"];

#[track_caller]
fn says(client: &Client, words: &[&str]) -> Vec<u8> {
    client.write(&encode(words));
    // Every reply ends with its innermost element; the reply to this ECHO marks the end.
    client.write(&encode(&["ECHO", "behind"]));
    client.reads_until(b"behind\r\n")
}

/// Redis 6.2.5 writes beyond the end of Lua's stack (CVE-2021-32626) and then hangs.
fn has_no_bound_of_its_own() -> bool {
    Server::under_test().lacks("bound for Lua's stack", 7, 0)
}

#[test]
fn a_reply_of_any_depth_is_relayed_as_it_is() {
    if has_no_bound_of_its_own() {
        return;
    }
    let redis = Redis::start();
    for sessions in ["dedicated", "multiplexed"] {
        let proxy = Proxy::builder(&redis).top("sessions", &format!("\"{sessions}\"")).start();
        let (client, direct) = (proxy.client(), redis.client());
        let neighbours: Vec<_> = (0..5).map(|_| proxy.client()).collect();
        for depth in DEPTHS {
            for neighbour in &neighbours {
                neighbour.sends("SET plain 1").gets("+OK");
                neighbour.write(&encode(&["GET", "plain"]));
            }
            let words = ["EVAL", NESTED, "0", depth];
            let (through, straight) = (says(&client, &words), says(&direct, &words));
            assert!(through == straight, "{sessions} {depth}: {}", through.len());
            for neighbour in &neighbours {
                neighbour.then().gets("$1 1");
            }
        }
        // In a block it is one level deeper still, among the replies about locks.
        let block = [
            encode(&["MULTI"]),
            encode(&["SETNX", "lock:job", "a1"]),
            encode(&["EVAL", NESTED, "0", "7990"]),
            encode(&["DEL", "lock:job"]),
            encode(&["EXEC"]),
        ];
        client.write(&block.concat());
        direct.write(&block.concat());
        let (through, straight) = (says(&client, &["PING"]), says(&direct, &["PING"]));
        assert!(through == straight, "{sessions}: {}", through.len());
    }
}

#[test]
fn a_script_on_a_lock_may_answer_as_deep_as_it_likes() {
    if has_no_bound_of_its_own() {
        return;
    }
    for mode in [Mode::Enforce, Mode::Monitor] {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let (client, direct) = (proxy.client(), Redis::start());
        let direct = direct.client();
        for depth in DEPTHS {
            let words = ["EVAL", NESTED_ON_A_LOCK, "1", "lock:job", depth];
            let (through, straight) = (says(&client, &words), says(&direct, &words));
            if depth.len() < 5 {
                assert!(through == straight, "{mode:?} {depth}: {}", through.len());
            } else {
                // Our own answer around it takes some of Lua's stack.
                assert!(through.starts_with(b"*1\r\n*1\r\n"), "{mode:?}");
            }
            assert!(!redis.is_free("lock:job"));
        }
        client.sends("DEL lock:job").gets(":1");
    }
}

//! A Redis in use has a warm script cache: clients send EVALSHA only, and a proxy that comes later never sees a text. Scripts of
//! lock libraries are known by their digests; other scripts are reported as not seen.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use lockwarden_tests::{Client, Mode, Proxy, Redis, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

use crate::discovering::{discover, found};

/// The release of half the libraries, on one line as bsm/redislock sends it.
const COMPARE_AND_DELETE: &str =
    "if redis.call(\"get\", KEYS[1]) == ARGV[1] then return redis.call(\"del\", KEYS[1]) else return 0 end";
/// No library's.
const HOME_MADE: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', '7')";

/// The server knows a script that no proxy has seen.
fn loaded(redis: &Redis, text: &str) -> String {
    let client = redis.client();
    client.sends_arguments(&["SCRIPT", "LOAD", text]).text()
}

fn calls(client: &Client, sha: &str, key: &str, argument: &str) -> String {
    let words = ["EVALSHA", sha, "1", key, argument];
    client.sends_arguments(&words).reply().to_string()
}

/// Where `make test-clients` has installed the libraries of a language, if it has.
fn libraries(of: &str) -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/clients");
    let found = Some(home.join(of)).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no {of}; make test-clients installs it");
    }
    found
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/warm_cache").join(file)
}

/// The programs of this test, each with the folder or interpreter that it needs.
fn programs() -> Vec<Command> {
    let mut all = Vec::new();
    if let Some(python) = libraries("python/usual/bin/python") {
        let mut command = Command::new(python);
        command.arg("-B").arg(here("libraries.py"));
        all.push(command);
    }
    if let Some(modules) = libraries("node/node_modules") {
        let mut command = Command::new("node");
        command.env("NODE_PATH", modules).arg(here("redlock.js"));
        all.push(command);
    }
    all
}

fn run(programs: &mut [Command], port: u16, rounds: u16) {
    let with = |program: &Command| {
        let mut command = Command::new(program.get_program());
        command.args(program.get_args());
        for (name, value) in program.get_envs() {
            command.env(name, value.expect("it is set"));
        }
        command.args([port.to_string(), rounds.to_string()]);
        command
    };
    for program in programs {
        let done = run_to_end(&mut with(program));
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    }
}

#[test]
fn a_release_by_a_known_digest_is_judged_though_its_text_was_never_seen() {
    for mode in [Mode::Enforce, Mode::Monitor] {
        let redis = Redis::start();
        let sha = loaded(&redis, COMPARE_AND_DELETE);
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let (alice, bob) = (proxy.client(), proxy.client());
        alice.sends("SET lock:job alices-token-0123456789 NX PX 8000").gets("+OK");
        assert_eq!(calls(&bob, &sha, "lock:job", "bobs-token-0123456789ab"), ":0");
        assert_eq!(redis.value("lock:job"), "$23 alices-token-0123456789");
        assert_eq!(calls(&alice, &sha, "lock:job", "alices-token-0123456789"), ":1");
        assert!(redis.is_free("lock:job"));
        let released = "lockwarden_lock_releases_total{outcome=\"released\"}";
        assert_eq!(proxy.metrics().get(released), 1.0, "{}", proxy.log());

        // In a block no client can be asked for the text.
        alice.sends("SET lock:job alices-token-0123456789 NX PX 8000").gets("+OK");
        alice.sends("MULTI").gets("+OK");
        assert_eq!(calls(&alice, &sha, "lock:job", "alices-token-0123456789"), "+QUEUED");
        alice.sends("EXEC").gets("[:1]");
        assert!(redis.is_free("lock:job"));
        let unjudged = "lockwarden_unjudged_commands_total{why=\"unknown-script\"}";
        assert_eq!(proxy.metrics().get(unjudged), 0.0, "{}", proxy.log());

        // Any other has to be seen, and is as it was.
        let other = loaded(&redis, HOME_MADE);
        let said = calls(&bob, &other, "lock:job", "bobs-token-0123456789ab");
        match mode {
            Mode::Enforce => assert!(said.starts_with("-NOSCRIPT"), "{said}"),
            Mode::Monitor => assert_eq!(said, "+OK"),
        }
    }
}

/// Libraries send the digest first, and the text where Redis has not got it. Nothing was run then, so nothing went unjudged.
#[test]
fn a_script_that_redis_has_not_got_either_is_not_unjudged() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let client = proxy.client();
    let token = "alices-token-0123456789";
    let takes = || {
        client.sends(format!("SET lock:job {token} NX PX 8000")).gets("+OK");
    };
    let why = "lockwarden_unjudged_commands_total{why=\"unknown-script\"}";
    let is_ready = || proxy.api("report?enough=2")["namespaces"][0]["ready"] == true;

    let text = format!("{COMPARE_AND_DELETE} -- no library's");
    let sha = loaded(&redis, &text);
    redis.client().sends("SCRIPT FLUSH").gets("+OK");
    takes();
    let said = calls(&client, &sha, "lock:job", token);
    assert_eq!(said, calls(&redis.client(), &sha, "lock:job", token));
    assert!(said.starts_with("-NOSCRIPT"), "{said}");
    client.sends_arguments(&["EVAL", &text, "1", "lock:job", token]).gets(":1");
    assert_eq!(proxy.metrics().get(why), 0.0, "{}", proxy.log());
    wait_for("the report to be ready", is_ready);

    // A script that Redis has was run: that is counted, and in a block as always.
    let sha = loaded(&redis, &format!("{COMPARE_AND_DELETE} -- another one"));
    takes();
    assert_eq!(calls(&client, &sha, "lock:job", token), ":1");
    assert_eq!(proxy.metrics().get(why), 1.0);
    takes();
    client.sends("MULTI").gets("+OK");
    assert_eq!(calls(&client, &sha, "lock:job", token), "+QUEUED");
    client.sends("EXEC").gets("[:1]");
    assert_eq!(proxy.metrics().get(why), 2.0);
    wait_for("the report to speak against it", || !is_ready());
}

/// Redisson's: `lock`, `unlock` and the renewal of its watchdog in 4.7.0, and the read-write lock's.
const REDISSON: [&str; 6] = [
    "149c5a8bf18676fd99e9e6e24923bd64d9b62f94",
    "6866459238a13a701d42f4971f12d9f3a50e2442",
    "8e19a1ddbdee9138df9f32a480c57addab4353d1",
    "95553a6ff11176c18e71344e89d116b06fd6f753",
    "6306ba3bf1f563b284bed52d305fce615c6664d9",
    "0e0d43be494b850ddca0571693de237177df9aa0",
];
/// Those of Symfony's store: it takes a lock for one, by the client's clock and by the server's, extends it and gives it back.
const SYMFONY: [&str; 4] = [
    "2155a22977281a463ab5041c78e06e6a8a20dcb7",
    "05d7803e3682f1aec08bb99c2932c68d247fdcc9",
    "463980164c45efce2736dd2b24b6df36f1c11f21",
    "2b1725862ba31ea95cf45bf7ebffa2ca47c985b8",
];

fn named(proxy: &Proxy, name: &str) -> Client {
    let client = proxy.client();
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// The reply to a call of a script that the server need not have. Numbers of 1000 and more are TTLs, which run down.
fn comes_to(client: &Client, sha: &str, words: &str) -> String {
    let words: Vec<&str> = ["EVALSHA", sha].into_iter().chain(words.split(' ')).collect();
    let reply = client.sends_arguments(&words).reply().to_string();
    match reply.strip_prefix(':').map(str::len) {
        Some(4..) => "a TTL".to_owned(),
        Some(_) | None => reply,
    }
}

/// Every call was judged, and none was sent back for its text.
fn all_were_judged(proxy: &Proxy) {
    let unjudged = "lockwarden_unjudged_commands_total{why=\"unknown-script\"}";
    assert_eq!(proxy.metrics().get(unjudged), 0.0, "{}", proxy.log());
    assert_eq!(proxy.logged(&["NOSCRIPT"]), 0);
}

#[test]
fn a_lock_of_redisson_is_judged_though_no_text_of_its_scripts_was_seen() {
    let [take, give_back, renew, read, write, read_no_more] = REDISSON;
    let (alice_1, bob_1) = ("0f8fad5b-d9cb-469f-a165-70867728950e:1", "7c9e6679-7425-40de-944b-e07fc1f90ae7:1");
    for mode in [Mode::Enforce, Mode::Monitor] {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis).mode(mode).ceiling("60s").start();
        let (alice, bob) = (named(&proxy, "alice"), named(&proxy, "bob"));
        let unlock = |client: &Client, owner: &str, request: u8| {
            let keys = format!("3 lock:r redisson_lock__channel:{{lock:r}} latch:{request}");
            comes_to(client, give_back, &format!("{keys} 0 30000 {owner} publish 5000"))
        };
        assert_eq!(comes_to(&alice, take, &format!("1 lock:r 30000 {alice_1}")), "nil");
        assert_eq!(comes_to(&alice, take, &format!("1 lock:r 30000 {alice_1}")), "nil");
        assert_eq!(comes_to(&bob, take, &format!("1 lock:r 30000 {bob_1}")), "a TTL");
        assert_eq!(comes_to(&alice, renew, &format!("1 lock:r 30000 {alice_1}")), ":1");
        assert_eq!(comes_to(&bob, renew, &format!("1 lock:r 30000 {bob_1}")), ":0");
        assert_eq!(unlock(&bob, bob_1, 1), "nil");
        // The record names the owner, whatever the command.
        if let Mode::Enforce = mode {
            bob.sends("DEL lock:r").gets(":0");
        }
        assert_eq!(unlock(&alice, alice_1, 2), ":0");
        assert_eq!(unlock(&alice, alice_1, 3), ":1");
        assert!(redis.is_free("lock:r"));
        proxy.counts("lockwarden_lock_acquires_total{outcome=\"acquired\"}", 1.0);
        proxy.counts("lockwarden_lock_releases_total{outcome=\"released\"}", 1.0);

        // Readers share it, each with a key for its own time beside the lock; the writer waits.
        let reads = |client: &Client, owner: &str| {
            let times = format!("{{lock:w}}:{owner}:rwlock_timeout");
            comes_to(client, read, &format!("2 lock:w {times} 30000 {owner} {owner}:write"))
        };
        let reads_no_more = |client: &Client, owner: &str| {
            let keys = format!(
                "5 lock:w redisson_rwlock:{{lock:w}} {{lock:w}}:{owner}:rwlock_timeout {{lock:w}} latch:{owner}"
            );
            comes_to(client, read_no_more, &format!("{keys} 0 {owner} publish 5000"))
        };
        assert_eq!((&*reads(&alice, alice_1), &*reads(&bob, bob_1)), ("nil", "nil"));
        let writer = format!("1 lock:w 30000 {alice_1}:write");
        assert_eq!(comes_to(&alice, write, &writer), "a TTL");
        assert_eq!(reads_no_more(&alice, alice_1), ":0");
        assert_eq!(reads_no_more(&bob, bob_1), ":1");
        assert_eq!(comes_to(&alice, write, &writer), "nil");
        assert_eq!(reads(&bob, bob_1), "a TTL");
        all_were_judged(&proxy);
    }
}

#[test]
fn a_lock_of_symfony_is_judged_though_no_text_of_its_scripts_was_seen() {
    let [by_client, by_server, extend, give_back] = SYMFONY;
    for mode in [Mode::Enforce, Mode::Monitor] {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let (alice, bob) = (named(&proxy, "alice"), named(&proxy, "bob"));
        for take in [by_client, by_server] {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
            let now = format!("{:.3}", now.as_secs_f64());
            let takes = |client: &Client, owner: &str| comes_to(client, take, &format!("1 lock:s {now} {owner} 20000"));
            assert_eq!(takes(&alice, "alices-token-0123456789"), ":1");
            assert_eq!(takes(&bob, "bobs-token-0123456789ab"), "nil");
            let words = format!("1 lock:s {now} alices-token-0123456789 25000");
            assert_eq!(comes_to(&alice, extend, &words), ":1");
            let words = format!("1 lock:s {now} bobs-token-0123456789ab 25000");
            assert_eq!(comes_to(&bob, extend, &words), "nil");
            assert_eq!(comes_to(&bob, give_back, "1 lock:s bobs-token-0123456789ab"), "nil");
            if let Mode::Enforce = mode {
                bob.sends("DEL lock:s").gets(":0");
            }
            assert_eq!(comes_to(&alice, give_back, "1 lock:s alices-token-0123456789"), ":1");
            assert!(redis.is_free("lock:s"));
        }
        proxy.counts("lockwarden_lock_acquires_total{outcome=\"acquired\"}", 2.0);
        proxy.counts("lockwarden_lock_releases_total{outcome=\"released\"}", 2.0);
        all_were_judged(&proxy);
    }
}

/// A proxy does not claim to have a text that it has not seen: a client that asks then loads the text, and the
/// proxy sees it.
#[test]
fn a_known_digest_is_no_text_that_was_seen() {
    let redis = Redis::start();
    let sha = loaded(&redis, COMPARE_AND_DELETE);
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends(format!("SCRIPT EXISTS {sha}")).gets("[:0]");
    assert_eq!(loaded(&redis, COMPARE_AND_DELETE), sha);
    client.sends_arguments(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).gets(format!("$40 {sha}"));
    client.sends(format!("SCRIPT EXISTS {sha}")).gets("[:1]");
    // A script that the server does not have is unknown, as always, unless it is about a lock: then the proxy runs it.
    redis.client().sends("SCRIPT FLUSH").gets("+OK");
    assert!(calls(&client, &sha, "plain", "x").starts_with("-NOSCRIPT"));
}

#[test]
fn libraries_go_on_in_both_modes_on_a_server_that_has_their_scripts() {
    let mut programs = programs();
    for mode in [Mode::Enforce, Mode::Monitor] {
        let redis = Redis::start();
        run(&mut programs, redis.address().port(), 1);
        let keys = "[\"acct-*:lock\", \"lock:report-*\", \"redlock:*\", \"stock:*:lock\", \"cart:*:lock\"]";
        let proxy = Proxy::builder(&redis).mode(mode).namespace("keys", keys).start();
        run(&mut programs, proxy.address().port(), 3);
        let unjudged = "lockwarden_unjudged_commands_total{why=\"unknown-script\"}";
        assert_eq!(proxy.metrics().get(unjudged), 0.0, "{}", proxy.log());
    }
}

#[test]
fn locks_of_libraries_are_discovered_on_a_server_that_has_their_scripts() {
    let mut programs = programs();
    let expected: &[&str] = match programs.len() {
        2 => &["acct-*:lock", "redlock:page-*", "stock:*:lock", "cart:*:lock"],
        _ => return,
    };
    let redis = Redis::start();
    run(&mut programs, redis.address().port(), 1);
    let proxy = Proxy::builder(&redis).start();
    run(&mut programs, proxy.address().port(), 15);
    let found = wait_for_value("every lease to be seen", || {
        let said = discover(&proxy, "json");
        let found = found(&said);
        let patterns = found["patterns"].as_array().expect("a list");
        let is_lock = |glob: &str| {
            let one = patterns.iter().find(|one| one["pattern"] == *glob);
            one.is_some_and(|one| {
                let is_sure = one["kind"] == "lock" && one["confidence"] != "a guess";
                // Each was given back, and none by its TTL.
                is_sure && one["granted"].as_u64() >= Some(15) && one["granted"] == one["released"]
            })
        };
        let all = expected.iter().all(|one| is_lock(one));
        all.then_some(found)
    });
    assert_eq!((&found["unseen"], &found["unknown_scripts"]), (&0.into(), &Value::Array(Vec::new())));
    let toml = discover(&proxy, "toml").stdout;
    assert!(!toml.contains("keep_alive = \"off\""), "{toml}");
}

#[test]
fn a_script_that_nobody_knows_is_listed_until_its_text_is_seen() {
    let redis = Redis::start();
    let sha = loaded(&redis, HOME_MADE);
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    let client = proxy.client();
    for number in 10..40 {
        assert_eq!(calls(&client, &sha, &format!("acct:{number}"), "t"), "+OK");
    }
    let said = wait_for_value("the calls to be counted", || {
        let said = discover(&proxy, "json");
        (found(&said)["unseen"] == 30).then_some(said)
    });
    assert_eq!(said.code, Some(1), "something was not seen");
    let one = &found(&said)["unknown_scripts"][0];
    assert_eq!((&one["pattern"], &one["calls"]), (&"acct:*".into(), &30.into()));
    assert_eq!(one["scripts"], serde_json::json!([sha]));
    let words = discover(&proxy, "text").stdout;
    let line = format!("  acct:*: 30 calls of a script that is not known here ({sha})");
    for expected in [&*line, "`SCRIPT FLUSH` on the server, once", "--from-monitor 60"] {
        assert!(words.contains(expected), "{words}");
    }
    assert!(!words.contains("too many at once"), "{words}");
    let (status, page) = proxy.get("/discovery");
    assert!(status == 200 && page.contains("Scripts that are not known here"), "{page}");

    redis.client().sends("SCRIPT FLUSH").gets("+OK");
    assert!(calls(&client, &sha, "acct:7", "t").starts_with("-NOSCRIPT"));
    client.sends_arguments(&["EVAL", HOME_MADE, "1", "acct:50", "t"]).gets("+OK");
    wait_for("it to be known", || {
        let said = discover(&proxy, "json");
        let found = found(&said);
        found["unseen"] == 0 && found["unknown_scripts"] == Value::Array(Vec::new())
    });
}

/// Locks that are taken in plain sight and given back by an unknown script look as if they were never given
/// back.
#[test]
fn what_seems_never_to_be_given_back_is_a_guess_where_a_script_may_have_done_it() {
    let redis = Redis::start();
    let sha = loaded(&redis, "redis.call('DEL', KEYS[1]) return ARGV[1]");
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    for round in 0..30 {
        let key = format!("acct:{}", 10 + round % 2);
        alice.sends(format!("SET {key} a NX PX 8000")).gets("+OK");
        bob.sends(format!("SET {key} b NX PX 8000")).gets("nil");
        assert_eq!(calls(&alice, &sha, &key, "done"), "$4 done");
    }
    let found = wait_for_value("every call to be counted", || {
        let found = found(&discover(&proxy, "json"));
        (found["unseen"] == 30).then_some(found)
    });
    let one = &found["patterns"][0];
    assert_eq!((&one["granted"], &one["released"]), (&30.into(), &0.into()), "{one:#}");
    assert_eq!(one["confidence"], "a guess", "{one:#}");
    let why = one["why"].as_str().expect("text");
    let words = "but 30 calls of scripts that are not known here may have given it back";
    assert!(why.contains(words), "{why}");
    let toml = discover(&proxy, "toml").stdout;
    assert!(!toml.contains("[[namespace]]"), "{toml}");
}

#[test]
fn monitor_shows_what_the_scripts_of_a_warm_server_do() {
    let redis = Redis::start();
    let sha = loaded(&redis, COMPARE_AND_DELETE);
    let url = format!("redis://{}", redis.address());
    let said = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let words = ["discover", "--from-monitor", "4", "-o", "json", "--backend-url", &url];
            run_to_end(&mut lockwarden(&words))
        });
        let client = redis.client();
        wait_for("MONITOR", || client.sends("CLIENT LIST").text().contains("cmd=monitor"));
        for number in 10..40 {
            let key = format!("acct:{number}");
            client.sends(format!("SET {key} token-{number} NX PX 8000")).gets("+OK");
            assert_eq!(calls(&client, &sha, &key, &format!("token-{number}")), ":1");
        }
        watching.join().expect("it ends")
    });
    let found = found(&said);
    assert_eq!((&found["patterns"][0]["kind"], &found["unseen"]), (&"lock".into(), &0.into()));
    assert_eq!(found["patterns"][0]["released"], 30, "{found:#}");
}

#[test]
fn a_server_that_goes_away_ends_a_look_with_what_was_seen() {
    let mut redis = Redis::start();
    let url = format!("redis://{}", redis.address());
    let said = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let words = ["discover", "--from-monitor", "600", "--backend-url", &url];
            run_to_end(&mut lockwarden(&words))
        });
        {
            let client = redis.client();
            wait_for("MONITOR", || client.sends("CLIENT LIST").text().contains("cmd=monitor"));
        }
        redis.stop();
        watching.join().expect("it ends")
    });
    assert_eq!(said.code, Some(1), "{}", said.stdout);
    assert!(said.stderr.contains("the server went away"), "{}", said.stderr);
    assert!(said.stderr.contains("look again when it answers"), "{}", said.stderr);
}

/// A server that replies with the first page of a walk, and is gone then.
#[test]
fn a_walk_that_is_broken_off_tells_what_was_there_until_then() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("redis://{}", listener.local_addr().expect("it is bound"));
    let said = thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("it connects");
            let mut asked = [0; 4096];
            for answer in ["*2\r\n$1\r\n7\r\n*1\r\n$6\r\nmutex1\r\n", "+string\r\n:-1\r\n:5\r\n:1\r\n", ""] {
                let read = stream.read(&mut asked).expect("it asks");
                assert!(read > 0);
                stream.write_all(answer.as_bytes()).expect("it reads");
            }
        });
        let words = ["discover", "--from-keys", "--backend-url", &url];
        run_to_end(&mut lockwarden(&words))
    });
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stdout.contains("1 keys, of more"), "{}", said.stdout);
    let words = "what follows was there until then, so look again when it answers";
    assert!(said.stderr.contains(words), "{}", said.stderr);
}

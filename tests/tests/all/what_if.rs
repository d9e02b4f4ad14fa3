//! `lockwarden audit --if`: what would be refused with another configuration, computed from the kept refusals, compared with
//! what is refused once that configuration is in force.

use lockwarden_tests::{Client, Finished, Mode, Proxy, Redis, lockwarden, run_to_end, wait_for};

const COUNTS: &str = "namespace.locks.settings.owner-token.proofs=[\"token\", \"session\", \"identity\"]";
const NOT_VOID: &str = "namespace.locks.settings.owner-token.void_after_refusal=[]";

fn asks(proxy: &Proxy, changes: &[&str], more: &[&str]) -> Finished {
    let admin = proxy.admin_address().to_string();
    let mut command = lockwarden(&["audit", "--admin", &admin]);
    for change in changes {
        command.args(["--if", change]);
    }
    command.args(more);
    run_to_end(&mut command)
}

/// Sums of the answer: spared, refused all the same, open.
fn sums(proxy: &Proxy, changes: &[&str]) -> (u64, u64, u64) {
    let said = asks(proxy, changes, &["-o", "json"]);
    let answer: serde_json::Value =
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", said.stdout, said.stderr));
    let rows = answer["rows"].as_array().expect("a list");
    let sum = |what: &str| rows.iter().filter_map(|row| row[what].as_u64()).sum();
    (sum("spared"), sum("stays"), sum("open"))
}

fn named(client: Client, name: &str) -> Client {
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// First a stranger deletes the lock; then a pool gives it back over another connection than the one that took it, and
/// that connection was refused the lock. A lock that is not given back ends by its TTL.
fn plays(proxy: &Proxy, times: u32) -> (Vec<String>, Vec<String>) {
    let pooled = || named(proxy.client_from("127.41.0.1"), "pool");
    let (one, two) = (pooled(), pooled());
    let stranger = named(proxy.client_from("127.41.0.9"), "stranger");
    let (mut strange, mut own) = (Vec::new(), Vec::new());
    for _ in 0..times {
        wait_for("the lock", || {
            let take = one.sends("SET lock:a 1 NX PX 300");
            take.reply().to_string() == "+OK"
        });
        strange.push(stranger.sends("DEL lock:a").reply().to_string());
        two.sends("SET lock:a 1 NX PX 300").reply();
        own.push(two.sends("DEL lock:a").reply().to_string());
    }
    wait_for("the lock to be free", || one.sends("EXISTS lock:a").integer() == 0);
    // The time without a holder is counted with the next event.
    one.sends("SET lock:a 1 NX PX 300").gets("+OK");
    one.sends("DEL lock:a").gets(":1");
    (strange, own)
}

#[test]
fn what_is_told_is_what_happens_once_it_is_in_force() {
    let redis = Redis::start();
    let strict = |proofs: &str| {
        Proxy::builder(&redis).setting("owner-token", "proofs", proofs).setting("owner-token", "doubt", "\"refuse\"")
    };
    let builder = strict("[\"token\", \"session\"]");
    let proxy = builder.start();
    let (strange, own) = plays(&proxy, 3);
    assert_eq!((strange, own), (vec![":0".to_owned(); 3], vec![":0".to_owned(); 3]));

    // The stranger stays refused, the pool's own releases do not, once its identity counts although it was refused the lock.
    assert_eq!(sums(&proxy, &[COUNTS]), (0, 6, 0));
    assert_eq!(sums(&proxy, &[COUNTS, NOT_VOID]), (3, 3, 0));
    let said = asks(&proxy, &[COUNTS, NOT_VOID], &[]);
    assert_eq!(said.code, Some(1), "some would be refused: {said:?}");
    for part in [
        "of the last 6 refusals, made or only counted, 3 would not be, 3 would be all the same, 0 cannot be told",
        "locks      lock:a  not-owner  pool                    3             0",
        "locks      lock:a  not-owner  stranger                0             3",
    ] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    // Asking has changed nothing.
    assert_eq!(plays(&proxy, 1).1, [":0"]);

    let text =
        strict("[\"token\", \"session\", \"identity\"]").setting("owner-token", "void_after_refusal", "[]").text();
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload?allow=weaker");
    assert_eq!(status, 200, "{answer}");
    let (strange, own) = plays(&proxy, 3);
    assert_eq!((strange, own), (vec![":0".to_owned(); 3], vec![":1".to_owned(); 3]));
}

#[test]
fn each_key_is_told_as_far_as_the_refusals_tell_it() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .setting("owner-token", "proofs", "[\"token\", \"session\"]")
        .setting("owner-token", "shared_tokens", "\"deny\"")
        .more("[[namespace]]\nname = \"other\"\nkeys = [\"other:*\"]\nmode = \"enforce\"\n")
        .start();
    plays(&proxy, 1);
    let (alice, bob) = (proxy.client_from("127.41.0.2"), proxy.client_from("127.41.0.3"));
    alice.sends("INCR lock:count").gets_error("LOCKDENIED opaque-write");
    alice.sends("SET lock:x the-same-value-everywhere NX PX 9000").gets("+OK");
    bob.sends("SET lock:y the-same-value-everywhere NX PX 9000").gets_error("LOCKDENIED shared-token");
    // Two of not-owner, the counter, the value.
    for (change, expected) in [
        ("namespace.locks.mode=\"monitor\"", (4, 0, 0)),
        ("namespace.other.mode=\"monitor\"", (0, 4, 0)),
        ("namespace.locks.keys=[\"lock:x\", \"lock:y\", \"lock:count\"]", (2, 2, 0)),
        ("namespace.locks.counter_locks=true", (1, 3, 0)),
        ("namespace.locks.settings.owner-token.shared_tokens=\"report\"", (1, 3, 0)),
        ("namespace.locks.hand_over=true", (1, 3, 0)),
        ("namespace.locks.on_violation=\"error\"", (0, 4, 0)),
        ("log_format=\"json\"", (0, 4, 0)),
        // A result that only a real run would show is reported as open.
        ("namespace.locks.settings.ttl-ceiling.ceiling=\"20s\"", (0, 0, 4)),
        ("namespace.other.settings.ttl-ceiling.ceiling=\"20s\"", (0, 4, 0)),
        ("computed_names=\"forward\"", (0, 0, 4)),
    ] {
        assert_eq!(sums(&proxy, &[change]), expected, "{change}");
    }
    let open = asks(&proxy, &["computed_names=\"forward\""], &[]);
    assert!(open.stdout.contains("set it in monitor mode"), "{open:?}");
    let all = ["namespace.locks.counter_locks=true", "namespace.locks.mode=\"monitor\""];
    assert_eq!(sums(&proxy, &all), (4, 0, 0));
    assert_eq!(asks(&proxy, &all, &[]).code, Some(0));
}

#[test]
fn what_cannot_be_asked_ends_with_what_to_do_and_changes_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    plays(&proxy, 1);
    for (change, parts) in [
        ("namespace.locks.hand_ovr=true", &["hand_ovr", "lockwarden config"][..]),
        ("namespace.locks.settings.owner-token.void_after=[]", &["void_after", "lockwarden config"]),
        ("namespace.locks.settings.owner-token.void_after_refusal=[\"tokn\"]", &["tokn"]),
        ("namespace.nosuch.hand_over=true", &["there are locks"]),
        ("namespace.locks.mode=monitor", &["a text has quotes"]),
        ("namespace.locks.mode=\"lax\"", &["monitor", "enforce"]),
        ("hand_over", &["write KEY=VALUE"]),
        ("nosuch=1", &["nosuch"]),
    ] {
        let said = asks(&proxy, &[change], &[]);
        assert_eq!(said.code, Some(1), "{change}: {said:?}");
        assert_eq!(said.stdout, "", "{change}");
        for part in parts {
            assert!(said.stderr.contains(part), "{change}: {part}: {}", said.stderr);
        }
        // One wrong change is none of them.
        let both = asks(&proxy, &["namespace.locks.hand_over=true", change], &[]);
        assert_eq!((both.code, &*both.stdout), (Some(1), ""), "{change}");
    }
    assert_eq!(asks(&proxy, &["nosuch=1"], &["--all"]).code, Some(2), "one question at a time");
    let settings = proxy.api("settings");
    let settings = settings["settings"].as_array().expect("a list");
    let hand_over = settings.iter().find(|one| one["key"] == "hand_over");
    assert_eq!(hand_over.expect("it is listed")["value"], "false");
}

/// Operators ask this before they enforce, so would-be refusals count in the same way.
#[test]
fn in_monitor_mode_it_is_told_of_what_would_have_been_refused() {
    let redis = Redis::start();
    let proxy =
        Proxy::builder(&redis).mode(Mode::Monitor).setting("owner-token", "proofs", "[\"token\", \"session\"]").start();
    let pooled = || named(proxy.client_from("127.41.0.1"), "pool");
    let (one, two) = (pooled(), pooled());
    for _ in 0..5 {
        one.sends("SET lock:a 1 NX PX 60000").gets("+OK");
        two.sends("DEL lock:a").gets(":1");
    }
    assert_eq!(sums(&proxy, &["sweep=\"5m\""]), (0, 5, 0));
    // The cost is counted once a second.
    wait_for("that it is told", || sums(&proxy, &[COUNTS, NOT_VOID]) == (5, 0, 0));
}

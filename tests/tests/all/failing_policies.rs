//! A policy that traps, or denies, on one operation only: with `on_fault = "deny"` the client gets an error,
//! and a lock that a client wanted to give back is not kept alive.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use lockwarden_tests::{
    Client, Proxy, ProxyBuilder, Redis, holds_for, lockwarden, run_to_end, wait_for, wait_for_value,
};

#[path = "../../../proxy/policy/build/guest.rs"]
mod guest;

const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const COMPARE_AND_EXPIRE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
/// Its meaning is unknown, so it runs in a wrap.
const OPAQUE: &str = "local n = redis.call('del', KEYS[1]) redis.call('incr', KEYS[2]) return n";
const TTL: Duration = Duration::from_millis(600);

/// The policy module that traps where its settings say so.
pub(crate) fn naughty() -> &'static str {
    static FILE: OnceLock<String> = OnceLock::new();
    FILE.get_or_init(|| example("naughty"))
}

/// An example of the SDK, as a module.
pub(crate) fn example(name: &str) -> String {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let target = PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/guests"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["--example", name];
    let built = guest::build(&cargo, &root, &target, "lockwarden-policy-sdk", &arguments).expect("the guest builds");
    built.join(format!("examples/{name}.wasm")).display().to_string()
}

/// A proxy whose chain has the naughty policy, with this setting.
fn with_naughty(redis: &Redis, setting: (&str, &str)) -> ProxyBuilder {
    with_limits(redis, setting, "")
}

/// The same with other keys of its `[[policy]]`.
fn with_limits(redis: &Redis, setting: (&str, &str), limits: &str) -> ProxyBuilder {
    Proxy::builder(redis)
        .namespace("policies", "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"naughty\"]")
        .setting("naughty", setting.0, &format!("[\"{}\"]", setting.1))
        .more(&format!("[[policy]]\nname = \"naughty\"\nmodule = \"{}\"\n{limits}", naughty()))
}

/// Only the policy's own words say what it forbids, and what to do about it.
#[test]
fn a_refusal_of_an_own_policy_says_nothing_but_the_policys_own_words() {
    let redis = Redis::start();
    let id_of = |line: &str| {
        let (_, rest) = line.split_once(" id=").expect("it has one");
        rest.split(' ').next().unwrap_or_default().to_owned()
    };
    let proxy = with_naughty(&redis, ("deny", "acquire")).setting("naughty", "deny_as", "\"limited\"").start();
    let line = proxy.client().sends("SET lock:a a1 NX PX 5000").gets_error("LOCKDENIED limited");
    assert!(line.contains("hint=\"one report a minute: ask later\""), "{line}");
    let admin = proxy.admin_address().to_string();
    let told = wait_for_value("the proxy to know", || {
        let end = run_to_end(lockwarden(&["why", &id_of(&line), "--admin"]).arg(&admin));
        (end.code == Some(0)).then_some(end.stdout)
    });
    assert!(told.contains("one report a minute: ask later"), "{told}");
    assert!(!told.contains("give the lock back"), "{told}");

    let proxy = with_naughty(&redis, ("deny", "acquire")).setting("naughty", "deny_as", "\"too-long\"").start();
    let line = proxy.client().sends("SET lock:a a1 NX PX 9000").gets_error("LOCKDENIED ttl-too-long");
    assert!(line.contains(" ttl_ms=9000 hint=\"at most 5 s\""), "{line}");
    let proxy = Proxy::builder(&redis).ceiling("5s").setting("ttl-ceiling", "on_excess", "\"deny\"").start();
    let line = proxy.client().sends("SET lock:a a1 NX PX 9000").gets_error("LOCKDENIED ttl-too-long");
    assert!(line.contains(" ttl_ms=9000 max_ms=5000 "), "{line}");
}

#[test]
fn a_module_that_is_cut_off_is_one_line_of_the_log_and_nothing_raw() {
    let redis = Redis::start();
    let proxy = with_naughty(&redis, ("trap_on", "release")).start();
    let whole = fs::read(naughty()).expect("the guest is built");
    let cut = proxy.directory().join("cut.wasm");
    let text = fs::read_to_string(proxy.config()).expect("the file is there");
    let text = text.replace(naughty(), &cut.display().to_string());
    for part in 1..12 {
        fs::write(&cut, &whole[..whole.len() * part / 12]).expect("the directory is ours");
        let (status, answer) = proxy.reloads(text.as_bytes(), "/reload");
        assert_eq!(status, 422, "{answer}");
        assert!(answer.contains("policy naughty"), "{answer}");
    }
    let end = run_to_end(lockwarden(&["check", "--config"]).arg(proxy.config()));
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(!end.stderr.contains("panicked"), "{end:?}");
    for line in proxy.log().lines() {
        let json: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(json.is_ok(), "no line of the log: {line}");
    }
    proxy.client().sends("SETNX lock:job a1").gets(":1");
}

/// The lock is there, and ends by its TTL though its holder lives.
#[track_caller]
fn is_let_go(redis: &Redis, key: &str, holder: &Client) {
    assert!(!redis.is_free(key), "nothing was deleted");
    redis.becomes_free(key);
    holder.sends("PING").gets("+PONG");
}

#[track_caller]
fn is_kept(redis: &Redis, key: &str) {
    let client = redis.client();
    holds_for(3 * TTL, &format!("{key} is held"), || client.sends(format!("EXISTS {key}")).integer() == 1);
}

#[test]
fn a_release_that_could_not_be_judged_is_an_error_and_the_lock_goes_by_its_ttl() {
    let redis = Redis::start();
    let proxy = with_naughty(&redis, ("trap_on", "release")).start();
    let releases = [
        vec!["DEL lock:job".to_owned()],
        vec!["UNLINK lock:job".to_owned()],
        vec!["GETDEL lock:job".to_owned()],
        vec!["DEL plain lock:job".to_owned()],
        vec!["EXPIRE lock:job 0".to_owned()],
        vec!["CAD lock:job a1".to_owned()],
        vec![format!("EVAL \"{COMPARE_AND_DELETE}\" 1 lock:job a1")],
        vec![format!("EVAL \"{OPAQUE}\" 2 lock:job runs")],
    ];
    for release in releases {
        let holder = proxy.client();
        holder.sends("SETNX lock:job a1").gets(":1");
        let error = holder.sends(&release[0]).gets_error("LOCKPOLICY other");
        assert!(error.contains("policy=naughty"), "{error}");
        is_let_go(&redis, "lock:job", &holder);
    }
    assert!(redis.is_free("runs"), "the script did not run");

    // In a block, whether it is executed or not.
    for (end, reply) in
        [("EXEC", "-EXECABORT Transaction discarded because of previous errors: LOCKPOLICY"), ("DISCARD", "+OK")]
    {
        let holder = proxy.client();
        holder.sends("SETNX lock:job a1").gets(":1");
        holder.sends("MULTI").gets("+OK");
        holder.sends("DEL lock:job").gets_error("LOCKPOLICY other");
        let said = holder.sends(end).reply().to_string();
        assert!(said.starts_with(reply), "{said}");
        is_let_go(&redis, "lock:job", &holder);
    }
}

/// Over another connection of the holder's pool, and by a stranger.
#[test]
fn who_may_be_the_holder_ends_keep_alive_and_a_stranger_does_not() {
    let redis = Redis::start();
    let proxy = with_naughty(&redis, ("trap_on", "release")).start();
    let holder = proxy.client_from("127.62.0.1");
    holder.sends("SETNX lock:job a1").gets(":1");
    let stranger = proxy.client_from("127.62.0.2");
    stranger.sends("DEL lock:job").gets_error("LOCKPOLICY other");
    is_kept(&redis, "lock:job");
    let pooled = proxy.client_from("127.62.0.1");
    pooled.sends("DEL lock:job").gets_error("LOCKPOLICY other");
    is_let_go(&redis, "lock:job", &holder);
}

#[test]
fn an_extension_that_could_not_be_judged_is_an_error_and_says_nothing_about_keep_alive() {
    let redis = Redis::start();
    let proxy = with_naughty(&redis, ("trap_on", "extend")).start();
    let holder = proxy.client();
    holder.sends("SETNX lock:job a1").gets(":1");
    for extension in [
        "EXPIRE lock:job 5".to_owned(),
        "SET lock:job a1 XX PX 5000".to_owned(),
        format!("EVAL \"{COMPARE_AND_EXPIRE}\" 1 lock:job a1 5000"),
    ] {
        holder.sends(&extension).gets_error("LOCKPOLICY other");
    }
    is_kept(&redis, "lock:job");
    holder.sends("DEL lock:job").gets(":1");
}

/// Of several locks none is given back, and all of them go.
#[test]
fn a_release_of_several_locks_is_refused_as_a_whole() {
    let redis = Redis::start();
    let proxy = with_naughty(&redis, ("trap_on", "release")).start();
    let holder = proxy.client();
    for key in ["lock:a", "lock:b"] {
        holder.sends(format!("SETNX {key} a1")).gets(":1");
    }
    redis.client().sends("SET plain x").gets("+OK");
    holder.sends("DEL lock:a plain lock:b").gets_error("LOCKPOLICY other");
    assert!(!redis.is_free("plain"));
    is_let_go(&redis, "lock:a", &holder);
    redis.becomes_free("lock:b");
}

/// The waiter's compare-and-set of a passed deadline asks for an extension and a take-over.
#[test]
fn a_take_over_that_could_not_be_judged_is_an_error() {
    let redis = Redis::start();
    let proxy = with_naughty(&redis, ("trap_on", "take-over")).start();
    let (holder, waiter) = (proxy.client(), proxy.client());
    holder.sends("SETNX lock:job 1795261000").gets(":1");
    for take_over in ["CAS lock:job 1795261000 1795261029", "GETSET lock:job 1795261029"] {
        waiter.sends(take_over).gets_error("LOCKPOLICY other");
    }
    assert_eq!(redis.value("lock:job"), "$10 1795261000");
}

#[test]
fn where_a_fault_is_allowed_the_rest_of_the_chain_decides() {
    let redis = Redis::start();
    let proxy = with_naughty(&redis, ("trap_on", "release")).namespace("on_fault", "\"allow\"").start();
    let (holder, stranger) = (proxy.client(), proxy.client());
    holder.sends("SETNX lock:job a1").gets(":1");
    stranger.sends("DEL lock:job").gets(":0");
    holder.sends("DEL lock:job").gets(":1");
}

/// Where a policy denies a release, the reply says that nothing was released; but the lock then ends by its
/// TTL, too.
#[test]
fn a_release_that_a_policy_refuses_ends_keep_alive_as_well() {
    let redis = Redis::start();
    let proxy = with_naughty(&redis, ("deny", "release")).start();
    let holder = proxy.client();
    holder.sends("SETNX lock:job a1").gets(":1");
    holder.sends("DEL lock:job").gets(":0");
    is_let_go(&redis, "lock:job", &holder);
}

/// The client that causes failures bears them, and no other.
#[test]
fn a_client_that_makes_a_policy_fail_switches_off_nobodys_locks() {
    let redis = Redis::start();
    let limits = "deadline = \"2ms\"\nfuel = 1000000000000\n";
    let proxy = with_limits(&redis, ("spin_on", "acquire"), limits).start();
    // On each of the proxy's threads.
    let honest: Vec<Client> = (0..8).map(|_| proxy.client()).collect();
    let hostile = proxy.client();
    let not_asked = "lockwarden_policy_failures_total{policy=\"naughty\",kind=\"breaker-open\"}";
    let mut refused = 0;
    wait_for("the hostile one is asked about no more", || {
        hostile.sends("SETNX lock:spin a1").gets_error("LOCKPOLICY other");
        refused += 1;
        proxy.metric(not_asked) > 0.0
    });
    for round in 0..200 {
        hostile.sends("SETNX lock:spin a1").gets_error("LOCKPOLICY other");
        refused += 1;
        for (number, client) in honest.iter().enumerate() {
            client.sends(format!("SETNX lock:{number} a{round}")).gets(":1");
            client.sends(format!("DEL lock:{number}")).gets(":1");
        }
    }
    // Hardly any of its commands cost the policy's time.
    let timeouts = proxy.metric("lockwarden_policy_failures_total{policy=\"naughty\",kind=\"timeout\"}");
    assert_eq!(proxy.metric(not_asked) + timeouts, f64::from(refused));
    assert!(timeouts < 50.0, "{timeouts} of {refused}");
}

/// The time that a worker thread of the proxy may lose to it is bounded, whatever its fuel.
#[test]
fn a_policy_that_takes_too_long_is_asked_no_more_for_a_while_and_then_tried_again() {
    let redis = Redis::start();
    let limits = "deadline = \"2ms\"\nfuel = 1000000000000\n";
    let proxy = with_limits(&redis, ("spin_on", "acquire"), limits).start();
    let client = proxy.client();
    let failures = |kind: &str| {
        let series = "lockwarden_policy_failures_total";
        proxy.metric(&format!("{series}{{policy=\"naughty\",kind=\"{kind}\"}}"))
    };
    let open = || proxy.metric("lockwarden_policy_open_breakers{policy=\"naughty\"}");

    let refused = |key: &str| {
        client.sends(format!("SETNX {key} a1")).gets_error("LOCKPOLICY other");
    };
    wait_for("the breaker opens", || {
        refused("lock:spin");
        open() > 0.0
    });
    // While it is open the policy is not asked, whatever the key, and decisions are those of `on_fault`.
    let timeouts = failures("timeout");
    assert!(timeouts >= 2.0, "{timeouts}");
    wait_for("an acquire is refused without having been asked about", || {
        refused("lock:spin-2");
        failures("breaker-open") > 0.0
    });
    // Other operations have a breaker of their own, and plain commands concern no policy.
    client.sends("DEL lock:job").gets(":0");
    client.sends("SET plain x").gets("+OK");

    // Thousands of failures are a handful of lines.
    for _ in 0..2_000 {
        refused("lock:spin");
    }
    let lines = proxy.logged(&["did not answer"]);
    assert!((1..=6).contains(&lines), "{lines} lines: {}", proxy.log());

    // A probe that is answered closes it.
    wait_for("the policy is asked again", || client.sends("SETNX lock:job a1").reply().to_string() == ":1");
    wait_for("no breaker is open", || {
        client.sends("SETNX lock:job a1").gets(":0");
        open() == 0.0
    });
}

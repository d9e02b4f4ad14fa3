//! The words of a refusal and the names of the metrics: interfaces that dashboards and clients rely on. No
//! owner token, address or key is a label.

use lockwarden_tests::{Mode, Proxy, Redis};

const TOKEN: &str = "very-secret-owner-token-1";

#[test]
fn a_refusal_is_one_line_of_a_code_a_reason_and_named_facts() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("on_violation", "\"error\"").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends(format!("SET lock:job {TOKEN} NX PX 9000")).gets("+OK");
    let mut ids = Vec::new();
    for (line, reason, command) in [
        ("DEL lock:job", "not-owner", "DEL"),
        ("expire lock:job 5", "not-owner", "EXPIRE"),
        ("SET lock:job x", "overwrite", "SET"),
        ("GETSET lock:job x", "take-over", "GETSET"),
        ("APPEND lock:job x", "opaque-write", "APPEND"),
        ("PERSIST lock:job", "no-ttl", "PERSIST"),
        ("FCALL steal 1 lock:job", "unsafe-script", "FCALL"),
    ] {
        let text = bob.sends(line).gets_error(&format!("LOCKDENIED {reason} key=lock:job cmd={command} policy="));
        assert!(text.len() <= 512, "{} bytes: {text}", text.len());
        assert!(text.ends_with('"') && text.contains(" hint=\""), "{text}");
        assert!(!text.contains(TOKEN), "{text}");
        assert!(!text.contains(&alice.source().ip().to_string()), "{text}");
        for retried in ["BUSY", "LOADING", "TRYAGAIN", "NOSCRIPT", "ERR unknown command", "ERR syntax error"] {
            assert!(!text.contains(retried), "{text}");
        }
        let id = text.split(" id=").nth(1).and_then(|rest| rest.split(' ').next());
        ids.push(id.expect("an id to look it up by").to_owned());
    }
    let told = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), told, "every refusal has an id of its own");
}

#[test]
fn a_key_of_unprintable_bytes_or_great_length_is_shown_safely() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let bob = proxy.client();
    let text = bob
        .sends_arguments(&[b"APPEND".as_slice(), b"lock:\r\n+OK\r\n\x00\xff\"", b"x"])
        .gets_error("LOCKDENIED opaque-write key=lock:");
    assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text:?}");
    let long = format!("lock:{}", "k".repeat(900));
    let text = bob.sends(format!("APPEND {long} x")).gets_error("LOCKDENIED opaque-write key=lock:");
    assert!(text.len() <= 512 && !text.contains(&long), "{text}");
    bob.sends("PING").gets("+PONG");
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused_as_such() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    let key = format!("lock:{}", "k".repeat(1_100));
    alice.sends(format!("SETNX {key} v")).gets_error("LOCKLIMIT");
    alice.sends(format!("SETNX lock:job {}", "v".repeat(17_000))).gets_error("LOCKLIMIT");
    assert!(redis.is_free("lock:job") && redis.is_free(&key));
}

#[test]
fn every_series_that_an_alert_needs_is_there_from_the_start() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let metrics = proxy.metrics();
    for zero in [
        "lockwarden_decisions_total{namespace=\"locks\",operation=\"acquire\",decision=\"deny\",reason=\"ttl-too-long\"}",
        "lockwarden_decisions_total{namespace=\"locks\",operation=\"release\",decision=\"deny\",reason=\"not-owner\"}",
        "lockwarden_decisions_total{namespace=\"locks\",operation=\"extend\",decision=\"deny\",reason=\"expired\"}",
        "lockwarden_decisions_total{namespace=\"locks\",reason=\"stale-fence\"}",
        "lockwarden_decisions_total{namespace=\"locks\",operation=\"write\",decision=\"deny\",reason=\"opaque-write\"}",
        "lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"acquired\"}",
        "lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"contended\"}",
        "lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"denied\"}",
        "lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"error\"}",
        "lockwarden_lock_releases_total{namespace=\"locks\",outcome=\"released\"}",
        "lockwarden_lock_releases_total{namespace=\"locks\",outcome=\"not-owner\"}",
        "lockwarden_lock_releases_total{namespace=\"locks\",outcome=\"absent\"}",
        "lockwarden_lock_expired_while_held_total{namespace=\"locks\"}",
        "lockwarden_lock_overlaps_total{namespace=\"locks\"}",
        "lockwarden_ttl_clamped_total{namespace=\"locks\"}",
        "lockwarden_keep_alive_renewals_total{namespace=\"locks\",outcome=\"renewed\"}",
        "lockwarden_ungoverned_operations_total{namespace=\"locks\"}",
        "lockwarden_unjudged_commands_total{namespace=\"locks\",why=\"no-rights\"}",
        "lockwarden_locks_held{namespace=\"locks\",ttl=\"none\"}",
        "lockwarden_locks_held{namespace=\"locks\",ttl=\"finite\"}",
        "lockwarden_policy_failures_total{policy=\"owner-token\",kind=\"trap\"}",
        "lockwarden_policy_failures_total{policy=\"ttl-ceiling\",kind=\"timeout\"}",
        "lockwarden_protocol_errors_total",
        "lockwarden_client_connections",
        "lockwarden_lock_hold_duration_seconds_count{namespace=\"locks\",end=\"released\"}",
    ] {
        assert_eq!(metrics.get(zero), 0.0, "{zero}");
    }
    assert_eq!(metrics.get("lockwarden_backend_up"), 1.0);
    assert_eq!(metrics.get("lockwarden_build_info"), 1.0);
    assert_eq!(metrics.get("lockwarden_config_last_reload_successful"), 1.0);
    assert_eq!(
        metrics.find("lockwarden_oldest_lock_acquired_timestamp_seconds{namespace=\"locks\"}"),
        None,
        "absent when nothing is held"
    );
}

#[test]
fn the_gauges_follow_the_leases() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    let held = "lockwarden_locks_held{namespace=\"locks\",ttl=\"finite\"}";
    alice.sends("SET lock:1 a1 NX PX 9000").gets("+OK");
    alice.sends("SETNX lock:2 a1").gets(":1");
    proxy.counts(held, 2.0);
    assert!(proxy.metric("lockwarden_oldest_lock_acquired_timestamp_seconds{namespace=\"locks\"}") > 1.6e9);
    alice.sends("DEL lock:1").gets(":1");
    proxy.counts(held, 1.0);
    proxy.counts("lockwarden_client_connections", 1.0);
    drop(alice);
    redis.becomes_free("lock:2");
    proxy.counts(held, 0.0);
    proxy.counts("lockwarden_client_connections", 0.0);
    proxy.counts("lockwarden_lock_expired_while_held_total{namespace=\"locks\"}", 1.0);
    proxy.counts("lockwarden_lock_hold_duration_seconds_count{namespace=\"locks\",end=\"released\"}", 1.0);
}

#[test]
fn neither_metrics_nor_the_log_tell_an_owner_token_and_no_label_a_key() {
    let redis = Redis::start();
    for mode in [Mode::Enforce, Mode::Monitor] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let (alice, bob) = (proxy.client(), proxy.client());
        alice.sends("CLIENT SETNAME billing-7").gets("+OK");
        alice.sends(format!("SET lock:very-special-key {TOKEN} NX PX 9000")).gets("+OK");
        bob.sends(format!("SETNX lock:very-special-key other-{TOKEN}")).gets(":0");
        bob.sends("DEL lock:very-special-key").reply();
        alice.sends(format!("APPEND lock:very-special-key {TOKEN}")).reply();
        let metrics = proxy.metrics();
        for (family, label, value) in metrics.label_values() {
            for secret in [TOKEN, "very-special-key", "127.16.", "billing-7"] {
                assert!(!value.contains(secret), "{family} tells {value} as {label}");
            }
        }
        proxy.logs(&["very-special-key"]);
        assert!(!proxy.log().contains(TOKEN), "{}", proxy.log());
    }
}

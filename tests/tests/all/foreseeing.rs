//! Refusals in enforce mode of scripts that compute the names of locks, as those of job systems do: monitor mode foresees each
//! refusal, and a refused script leaves nothing behind.

use lockwarden_tests::{Mode, Proxy, Redis};

/// A job is moved from one list to the other, and its lock is taken: its name is in the job's number, which is data.
const TAKES_A_JOB: &str = "local rcall = redis.call \
    local job = rcall('RPOPLPUSH', KEYS[1], KEYS[2]) \
    if not job then return false end \
    rcall('HSET', ARGV[1] .. job, 'processed', 1) \
    local key = rcall('ECHO', ARGV[1]) .. job .. ':lock' \
    rcall('SET', key, ARGV[2], 'PX', ARGV[3]) \
    return job";

/// The same where the text shows that the name is a lock's, whatever the number.
const PLAINLY: &str = "local job = redis.call('RPOPLPUSH', KEYS[1], KEYS[2]) \
    redis.call('SET', ARGV[1] .. job .. ':lock', ARGV[2], 'PX', ARGV[3]) return job";

const REFUSED: &str = "lockwarden_decisions_total{decision=\"deny\",reason=\"unsafe-script\"}";
const FORESEEN: &str = "lockwarden_decisions_total{decision=\"would-deny\",reason=\"unsafe-script\"}";

fn queue(redis: &Redis, mode: Mode) -> Proxy {
    let jobs = redis.client();
    jobs.sends("RPUSH bull:q:wait 3 2 1").gets(":3");
    Proxy::builder(redis).mode(mode).namespace("keys", "[\"bull:*:lock\"]").start()
}

fn takes(proxy: &Proxy, text: &str) -> String {
    proxy.client().eval(text, &["bull:q:wait", "bull:q:active"], &["bull:q:", "worker-5c9e2f70-d1b3", "30000"])
}

#[test]
fn monitor_mode_foresees_what_a_guard_would_refuse_and_changes_nothing() {
    for text in [TAKES_A_JOB, PLAINLY] {
        let redis = Redis::start();
        let proxy = queue(&redis, Mode::Monitor);
        assert_eq!(takes(&proxy, text), "$1 1");
        assert_eq!(redis.value("bull:q:1:lock"), "$20 worker-5c9e2f70-d1b3");
        proxy.counts(FORESEEN, 1.0);
        assert_eq!(proxy.metrics().find(REFUSED), None);
        proxy.logs(&["would have been refused", "unsafe-script", "bull:q:"]);
        let report = proxy.api("report");
        assert_eq!(report["namespaces"][0]["would_refuse"], 1, "{report}");
        let sha = redis.client().sends_arguments(&["SCRIPT", "LOAD", text]).text();
        let clients = proxy.api("clients").to_string();
        let line = format!("trusted_scripts = [\\\"{sha}\\\"]");
        assert!(clients.contains(&line), "what mends it: {clients}");
        assert_eq!(takes(&proxy, text), "$1 2");
        proxy.counts(FORESEEN, 2.0);
    }
}

#[test]
fn as_many_are_refused_as_were_foreseen() {
    for text in [TAKES_A_JOB, PLAINLY] {
        let redis = Redis::start();
        let proxy = queue(&redis, Mode::Monitor);
        for _ in 0..3 {
            takes(&proxy, text);
        }
        proxy.counts(FORESEEN, 3.0);
        redis.client().sends("DEL bull:q:active").gets(":1");
        redis.client().sends("RPUSH bull:q:wait 3 2 1").gets(":3");
        assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
        for _ in 0..3 {
            let said = takes(&proxy, text);
            assert!(said.starts_with("-LOCKDENIED unsafe-script "), "{said}");
            assert!(!said.contains("stands"), "{said}");
        }
        proxy.counts(REFUSED, 3.0);
    }
}

#[test]
fn a_script_that_is_refused_leaves_no_job_half_moved() {
    for text in [TAKES_A_JOB, PLAINLY] {
        let redis = Redis::start();
        let proxy = queue(&redis, Mode::Enforce);
        let said = takes(&proxy, text);
        assert!(said.starts_with("-LOCKDENIED unsafe-script "), "{said}");
        assert!(!said.contains("stands"), "{said}");
        let straight = redis.client();
        straight.sends("LRANGE bull:q:wait 0 -1").gets("[$1 3, $1 2, $1 1]");
        straight.sends("EXISTS bull:q:active bull:q:1 bull:q:1:lock").gets(":0");
        proxy.counts("lockwarden_script_effects_left_total", 0.0);
    }
}

/// A key that is too large to be copied is not put back by halves, and the error says so.
#[test]
fn what_cannot_be_put_back_stands_as_a_whole_and_that_is_said() {
    let redis = Redis::start();
    let proxy = queue(&redis, Mode::Enforce);
    let straight = redis.client();
    let mut words = vec!["LPUSH".to_owned(), "bull:q:wait".to_owned()];
    words.extend((0..3_000).map(|number| format!("{number}:{}", "x".repeat(40))));
    straight.sends_arguments(&words).gets(":3003");
    let said = takes(&proxy, TAKES_A_JOB);
    assert!(said.contains("; what the script had done before stands"), "{said}");
    straight.sends("LRANGE bull:q:active 0 -1").gets("[$1 1]");
    straight.sends("HGET bull:q:1 processed").gets("$1 1");
    straight.sends("EXISTS bull:q:1:lock").gets(":0");
    proxy.counts("lockwarden_script_effects_left_total", 1.0);
}

/// A user that may not restore keys finds all that its script did.
#[test]
fn who_may_not_restore_loses_nothing_by_halves() {
    let redis = Redis::start();
    let proxy = queue(&redis, Mode::Enforce);
    let straight = redis.client();
    straight.sends("ACL SETUSER worker on >pw ~* +@all -restore").gets("+OK");
    let worker = proxy.client();
    worker.sends("AUTH worker pw").gets("+OK");
    let said =
        worker.eval(TAKES_A_JOB, &["bull:q:wait", "bull:q:active"], &["bull:q:", "worker-5c9e2f70-d1b3", "30000"]);
    assert!(said.contains("; what the script had done before stands"), "{said}");
    straight.sends("LRANGE bull:q:active 0 -1").gets("[$1 1]");
    straight.sends("HGET bull:q:1 processed").gets("$1 1");
}

/// A script that would notice the guard runs without one while nothing is refused.
#[test]
fn monitor_mode_puts_no_guard_around_a_script_that_would_notice_it() {
    let redis = Redis::start();
    let proxy = queue(&redis, Mode::Monitor);
    let client = proxy.client();
    let computes = "redis.call('set', redis.call('echo', ARGV[1]), 1)";
    for (text, reply) in [
        (format!("{computes} return type(getfenv)"), None),
        (format!("{} {computes} return v1", "local v1 = 1 ".repeat(199)), Some(":1")),
    ] {
        let direct = redis.client().eval(&text, &[], &["some"]);
        let through = client.eval(&text, &[], &["some"]);
        assert_eq!(through, direct, "{text}");
        assert!(reply.is_none_or(|reply| reply == through), "{through}");
    }
    proxy.counts("lockwarden_unjudged_commands_total{why=\"computed-names\"}", 2.0);
}

/// A lock that is declared and one that is not: the one is judged, the other foreseen.
#[test]
fn a_script_with_a_declared_lock_and_another_one_is_foreseen_too() {
    let redis = Redis::start();
    let proxy = queue(&redis, Mode::Monitor);
    let client = proxy.client();
    let text = "redis.call('set', KEYS[1], ARGV[1], 'PX', 30000) \
        local other = redis.call('echo', ARGV[2]) redis.call('del', other) return 1";
    let said = client.eval(text, &["bull:q:1:lock"], &["mine-5c9e2f70-d1b3", "bull:q:2:lock"]);
    assert_eq!(said, ":1");
    proxy.counts(FORESEEN, 1.0);
    proxy.counts("lockwarden_lock_acquires_total{outcome=\"acquired\"}", 1.0);
}

/// A user that may run only loaded scripts, and no texts, is served as without the proxy, and the proxy does not try a text
/// at each call.
#[test]
fn monitor_mode_leaves_a_user_alone_who_may_not_run_them() {
    let redis = Redis::start();
    let proxy = queue(&redis, Mode::Monitor);
    let admin = redis.client();
    admin.sends("ACL SETUSER worker on >pw ~bull:* +@all -eval").gets("+OK");
    let worker = proxy.client();
    worker.sends("AUTH worker pw").gets("+OK");
    let sha = admin.sends_arguments(&["SCRIPT", "LOAD", TAKES_A_JOB]).text();
    // The proxy has seen the text.
    proxy.client().sends_arguments(&["SCRIPT", "LOAD", TAKES_A_JOB]).text();
    let words = ["EVALSHA", &sha, "2", "bull:q:wait", "bull:q:active", "bull:q:", "mine", "30000"];
    let tried = || {
        let log = admin.sends("ACL LOG").reply();
        let counts = log.elements().iter().map(|entry| entry.elements()[1].clone());
        counts.collect::<Vec<_>>()
    };
    worker.sends_arguments(&words).gets("$1 1");
    // What it does to a lock is asked to be marked, as for every client.
    worker.sends("PING").gets("+PONG");
    let at_first = tried();
    for job in ["$1 2", "$1 3"] {
        worker.sends_arguments(&words).gets(job);
    }
    assert_eq!(tried(), at_first, "nothing is tried at each call");
}

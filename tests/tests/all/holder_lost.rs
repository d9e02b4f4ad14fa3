//! `holder_lost = "shorten:…"`: the lease of a holder that is known to be gone ends soon, and no other does. Holders are
//! processes of this machine that connect to the proxy directly, or clients on other machines, played by a balancer that names
//! their addresses.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, State, holds_for, lockwarden, run_to_end, wait_for};

use crate::jobs::{Job, PLAIN, is_taken};

const VALUE: &str = "5c9e2f70-8d1b-4a33";
const LOST: &str = "lockwarden_holders_lost_total{namespace=\"locks\"}";
const TAKE: &str = "SET lock:job 5c9e2f70-8d1b-4a33 NX PX 9000";
const SHORTEN: &str = "\"shorten:1s\"";

/// A process with its own connection. It sends the given commands, and prints the first line of each reply.
struct Holder {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

const SCRIPT: &str = r#"
open() { exec 3<>"/dev/tcp/127.0.0.1/$1"; }
open "$1"
while read -r order; do
  case "$order" in
    close) exec 3>&-; echo closed ;;
    fork) sleep 600 & echo "$!" ;;
    *) printf '%s\r\n' "$order" >&3; read -r answer <&3; echo "${answer%?}" ;;
  esac
done
"#;

impl Holder {
    fn starts(proxy: &Proxy) -> Holder {
        let port = proxy.address().port().to_string();
        let mut process = Command::new("bash")
            .args(["-c", SCRIPT, "holder", &port])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a bash");
        let orders = process.stdin.take().expect("piped");
        let answers = BufReader::new(process.stdout.take().expect("piped"));
        let mut holder = Holder { process, orders, answers };
        // Not by its first command: then it would be a job of a shell.
        holder.does("PING", "+PONG");
        holder
    }

    fn told(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        answer.trim_end().to_owned()
    }

    #[track_caller]
    fn does(&mut self, order: &str, answer: &str) {
        assert_eq!(self.told(order), answer, "{order}");
    }

    /// Takes the lock, and has it for long enough to be known by its process.
    fn takes(&mut self, redis: &Redis) {
        self.does(TAKE, "+OK");
        wait_for("the holder's process to be known", || {
            redis.record("lock:job").expect("it is held").process_is_known()
        });
    }

    fn dies(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ended");
    }
}

fn shortening(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).namespace("holder_lost", SHORTEN)
}

/// The lock's TTL is as it was, for two seconds.
#[track_caller]
fn is_left_alone(redis: &Redis) {
    holds_for(Duration::from_secs(2), "the TTL is as it was", || redis.pttl("lock:job") > 2_000);
}

#[track_caller]
fn is_shortened(proxy: &Proxy, redis: &Redis, times: f64) {
    wait_for("the lease to be shortened", || redis.pttl("lock:job") <= 1_000);
    proxy.counts(LOST, times);
    redis.becomes_free("lock:job");
}

#[test]
fn the_lease_of_a_process_that_has_ended_runs_out_soon_and_unreleased() {
    let redis = Redis::start();
    let proxy = shortening(&redis).start();
    let bob = proxy.client();
    let mut holder = Holder::starts(&proxy);
    holder.takes(&redis);
    let record = redis.record("lock:job").unwrap();
    is_left_alone(&redis);
    let start = Instant::now();
    holder.dies();
    wait_for("the lease to be shortened", || {
        // It did not end at once: a holder that comes back has a second.
        let left = redis.pttl("lock:job");
        assert!(left > 0, "{left}");
        left <= 1_000
    });
    assert_eq!(redis.record("lock:job").unwrap().bytes, record.bytes);
    bob.sends("SET lock:job b1 NX PX 9000").gets("nil");
    redis.becomes_free("lock:job");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    proxy.counts(LOST, 1.0);
    proxy.counts("lockwarden_lock_expired_while_held_total{namespace=\"locks\"}", 1.0);
    assert_ne!(redis.record("lock:job").unwrap().state, State::Released);
    let story = proxy.api("locks/lock:job").to_string();
    assert!(story.contains("holder-lost"), "{story}");
    proxy.logs(&["the holder of a lock is gone", "lock:job", "\"ttl_ms\":1000"]);
    bob.sends("SET lock:job b1 NX PX 9000").gets("+OK");
}

#[test]
fn by_default_and_in_monitor_mode_it_goes_by_its_ttl() {
    let redis = Redis::start();
    let plain = Proxy::builder(&redis);
    let with = shortening(&redis).text();
    let proxy = plain.start();
    let mut holder = Holder::starts(&proxy);
    holder.takes(&redis);
    holder.dies();
    // It is counted all the same.
    proxy.counts(LOST, 1.0);
    proxy.logs(&["the holder of a lock is gone", "goes by its TTL", "lock:job"]);
    is_left_alone(&redis);
    redis.client().sends("DEL lock:job").gets(":1");

    let monitored = shortening(&redis).mode(Mode::Monitor).start();
    let mut holder = Holder::starts(&monitored);
    holder.takes(&redis);
    holder.dies();
    monitored.counts(LOST, 1.0);
    is_left_alone(&redis);
    redis.client().sends("DEL lock:job").gets(":1");

    // A reload counts for the leases that there are.
    let mut holder = Holder::starts(&proxy);
    holder.takes(&redis);
    let (status, answer) = proxy.reloads(with.as_bytes(), "/reload");
    assert_eq!(status, 200, "{answer}");
    holder.dies();
    is_shortened(&proxy, &redis, 2.0);
}

#[test]
fn a_connection_that_ends_is_no_process_that_does() {
    let redis = Redis::start();
    let proxy = shortening(&redis).start();
    let mut holder = Holder::starts(&proxy);
    holder.takes(&redis);
    holder.does("close", "closed");
    is_left_alone(&redis);
    holder.dies();
    is_shortened(&proxy, &redis, 1.0);

    // A child that has the connection open goes on with it.
    let mut parent = Holder::starts(&proxy);
    parent.takes(&redis);
    let child = parent.told("fork");
    parent.dies();
    is_left_alone(&redis);
    let child: libc::pid_t = child.parse().expect("the number of a process");
    // A minimal system has no program `kill`.
    // SAFETY: `kill` takes no pointers.
    assert_eq!(unsafe { libc::kill(child, libc::SIGTERM) }, 0);
    is_shortened(&proxy, &redis, 2.0);
}

#[test]
fn a_lease_that_another_process_goes_on_with_is_left_to_that() {
    let redis = Redis::start();
    let (here, there) = (shortening(&redis).start(), shortening(&redis).start());
    let extend = format!(
        "EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end\" 1 lock:job {VALUE} 9000"
    );
    let (mut parent, mut child) = (Holder::starts(&here), Holder::starts(&here));
    parent.takes(&redis);
    child.does(&extend, ":1");
    parent.dies();
    is_left_alone(&redis);
    child.dies();
    is_shortened(&here, &redis, 1.0);

    // Through another proxy, too.
    let (mut parent, mut child) = (Holder::starts(&here), Holder::starts(&there));
    parent.takes(&redis);
    wait_for("a part of the TTL to pass", || redis.pttl("lock:job") < 8_000);
    child.does(&extend, ":1");
    let lost = here.metric(LOST);
    parent.dies();
    is_left_alone(&redis);
    assert_eq!(here.metric(LOST), lost);
    child.does("DEL lock:job", ":0");
}

#[test]
fn a_job_of_a_shell_has_its_lock_until_it_ends() {
    let redis = Redis::start();
    let proxy = shortening(&redis).default_ttl("8s").start();
    let port = proxy.address().port();
    let cli = format!("redis-cli -h 127.0.0.1 -p {port}");
    let job = Job::starts_calling(&cli, PLAIN);
    is_taken(&redis);
    is_left_alone(&redis);
    assert_eq!(job.ends(), Some(0));
    assert!(redis.is_free("lock:job"));
    let killed = Job::starts_calling(&cli, PLAIN);
    is_taken(&redis);
    is_left_alone(&redis);
    killed.dies();
    is_shortened(&proxy, &redis, 1.0);
}

/// A connection of a client at that address.
fn from(proxy: &Proxy, address: &str) -> Client {
    let client = proxy.client();
    client.write(format!("PROXY TCP4 {address} 10.9.9.9 40000 6379\r\n").as_bytes());
    client.sends("PING").gets("+PONG");
    client
}

fn elsewhere(redis: &Redis, trust: &str) -> Proxy {
    let proxy = shortening(redis)
        .setting("owner-token", "trust_address", trust)
        .top("proxy_protocol_from", "[\"127.0.0.0/8\"]")
        .without_waiting()
        .start();
    wait_for("the proxy to be ready", || proxy.ready() == Some(200));
    proxy
}

#[test]
fn an_address_that_is_one_process_is_gone_when_it_has_had_no_connection_for_that_time() {
    const POD: &str = "10.1.2.3";
    let redis = Redis::start();
    let proxy = elsewhere(&redis, "\"process\"");
    let stranger = from(&proxy, "10.1.2.4");
    let (one, two) = (from(&proxy, POD), from(&proxy, POD));
    one.sends(TAKE).gets("+OK");
    drop(one);
    is_left_alone(&redis);
    // Its network blinks, and it comes back in time.
    drop(two);
    wait_for("the connection to be gone", || proxy_connections(&proxy) == 1);
    let back = from(&proxy, POD);
    is_left_alone(&redis);
    drop(back);
    is_shortened(&proxy, &redis, 1.0);
    stranger.sends(TAKE).gets("+OK");
    stranger.sends("DEL lock:job").gets(":1");

    // A holder whose connection Redis has closed may still be at work.
    if !proxy.is_multiplexed() {
        let cut = from(&proxy, POD);
        cut.sends(TAKE).gets("+OK");
        let id = cut.sends("CLIENT ID").integer();
        let kill = format!("CLIENT KILL ID {id}");
        redis.client().sends(kill).gets(":1");
        cut.then().gets_close();
        is_left_alone(&redis);
        redis.client().sends("DEL lock:job").gets(":1");
    }
}

fn proxy_connections(proxy: &Proxy) -> usize {
    proxy.metric("lockwarden_client_connections") as usize
}

#[test]
fn who_is_known_neither_by_process_nor_by_address_is_never_gone() {
    let redis = Redis::start();
    let proxy = elsewhere(&redis, "\"auto\"");
    let alice = from(&proxy, "10.1.2.3");
    alice.sends(TAKE).gets("+OK");
    drop(alice);
    is_left_alone(&redis);
    assert_eq!(proxy.metric(LOST), 0.0);
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_to_do() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).start();
    for (value, more, error) in [
        ("\"shorten:500ms\"", "", "is outside 1s to"),
        ("\"shorten:\"", "", "is not a duration"),
        ("\"release\"", "", "\"release\" is neither \"keep\" nor as \"shorten:2s\""),
        (SHORTEN, "true", "leave one of them out"),
    ] {
        let mut builder = Proxy::builder(&redis).namespace("holder_lost", value);
        if !more.is_empty() {
            builder = builder.namespace("hand_over", more);
        }
        let path = proxy.directory().join("other.toml");
        fs::write(&path, builder.text()).expect("the directory is ours");
        let checked = run_to_end(lockwarden(&["check", "--config"]).arg(&path));
        let said = format!("{}{}", checked.stdout, checked.stderr);
        assert!(said.contains(error), "{value}: {said}");
    }
    let settings = proxy.api("settings").to_string();
    assert!(settings.contains("\"key\":\"holder_lost\""), "{settings}");
}

//! Every command that may write a key, on guarded data: from the holder of the lock the reply is Redis's own, byte for byte,
//! alone, in a block and in one write with others, in both protocols; from a late holder nothing is written.

use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::cases::{Case, EVAL_TEXT, FUNCTION, Facts, Form, Kind, cases};
use lockwarden_tests::history::{Planted, Planter};
use lockwarden_tests::random::Random;
use lockwarden_tests::{Client, Proxy, ProxyBuilder, Redis, Reply, Server, encode, soak, wait_for};

const KEY: &str = "guarded:1";
const GUARD: &str = r#"
[[guard]]
name = "data"
keys = ["guarded:{id}"]
lock = "lock:{id}"
mode = "enforce"
"#;

fn guarding(redis: &Redis) -> Proxy {
    let proxy = Proxy::builder(redis).more(GUARD).start();
    // A proxy knows what was loaded through it.
    proxy.client().sends_arguments(&["SCRIPT", "LOAD", EVAL_TEXT]).reply();
    proxy
}

/// The cases that are about data, with what they need on this server.
fn prepared(redis: &Redis) -> Vec<Case> {
    let own = redis.client();
    own.sends_arguments(&["SCRIPT", "LOAD", EVAL_TEXT]).reply();
    own.sends_arguments(&["FUNCTION", "LOAD", FUNCTION]).reply();
    own.sends("SET payload v").gets("+OK");
    own.write(&encode(&["DUMP", "payload"]));
    let dumped = own.raw_reply();
    let from = dumped.iter().position(|byte| *byte == b'\n').expect("a length") + 1;
    let facts = Facts { payload: dumped[from..dumped.len() - 2].to_vec(), port: redis.address().port() };
    let all = cases(&facts).into_iter().map(|case| case.aimed_at(KEY));
    // Commands that only administrators may send are no writes of a client. A guard makes functions explain themselves
    // even on a server that has none.
    let mut left_out = vec!["keydb.cron", "migrate", "pfdebug", "restore", "restore-asking"];
    if !Server::under_test().since(7, 0) {
        left_out.push("fcall");
    }
    all.filter(|case| !left_out.contains(&&*case.command())).collect()
}

/// Both servers hold the same for this case.
fn furnish(clients: &[&Client], case: &Case) {
    for client in clients {
        client.sends(format!("DEL {KEY} {} dest other new", case.kind.plain())).reply();
        for (key, member) in [(KEY, "own"), (case.kind.plain(), "plain")] {
            for line in case.kind.furnishing(key, member) {
                client.sends(&line).reply();
            }
        }
    }
}

/// Whether its reply depends on chance or time, or on the server.
fn is_chance(case: &Case) -> bool {
    let is_new_entry = case.args.iter().any(|arg| arg == b"*");
    matches!(&*case.command(), "spop") || is_new_entry
}

/// Whether it may wait, and so is refused outside a block.
fn may_wait(case: &Case) -> bool {
    let command = case.command();
    let blocks = case.args.iter().any(|arg| arg.eq_ignore_ascii_case(b"block"));
    command.starts_with('b') && !command.starts_with("bit") || blocks || command == "xreadgroup"
}

fn replies(client: &Client, requests: &[Vec<u8>]) -> Vec<String> {
    client.write(&requests.concat());
    let each = requests.iter().map(|_| client.raw_reply().escape_ascii().to_string());
    each.collect()
}

fn compare(protocol: &str) {
    let (plain, behind) = (Redis::start(), Redis::start());
    let proxy = guarding(&behind);
    let all = prepared(&behind);
    prepared(&plain);
    let (direct, own) = (plain.client(), behind.client());
    let holder = proxy.client();
    for client in [&direct, &holder] {
        client.sends(format!("HELLO {protocol}")).reply();
        client.sends("SET lock:1 5c9e2f70-8d1b-4a33 NX PX 600000").gets("+OK");
    }
    let (furnisher, mut seen) = (plain.client(), 0);
    for case in &all {
        for form in [Form::Plain, Form::Block, Form::MixedCase] {
            let Some(requests) = case.requests(form) else {
                continue;
            };
            // It writes in two databases, and the lock of one is not that of the other.
            let is_move = &*case.command() == "move";
            if is_move || is_chance(case) || (may_wait(case) && form != Form::Block) {
                continue;
            }
            furnish(&[&furnisher, &own], case);
            // Something of the same client stands before and behind it.
            let more = [vec![encode(&["ECHO", "a"])], requests, vec![encode(&["EXISTS", KEY])]];
            let all = more.concat();
            let (expected, got) = (replies(&direct, &all), replies(&holder, &all));
            assert_eq!(got, expected, "{form:?}: {}", case.line);
            // A set has another order on each server, a stream the time of what was read, and a field of a hash its end.
            let look = match case.kind {
                Kind::Hash => format!("HGETALL {KEY}"),
                Kind::Set => format!("SCARD {KEY}"),
                Kind::Stream => format!("XLEN {KEY}"),
                _ => format!("DUMP {KEY}"),
            };
            furnisher.sends(&look).gets(own.sends(&look).reply());
            seen += 1;
        }
    }
    assert!(seen > 300, "{seen}");
}

#[test]
fn a_holders_write_is_answered_byte_for_byte() {
    compare("2");
}

#[test]
fn a_holders_write_is_answered_byte_for_byte_under_resp3() {
    compare("3");
}

#[test]
fn nothing_that_a_late_holder_sends_changes_guarded_data() {
    let redis = Redis::start();
    let proxy = guarding(&redis);
    let (own, late, holder) = (redis.client(), proxy.client_from("127.0.0.2"), proxy.client_from("127.0.0.3"));
    late.sends("SET lock:1 f81d4fae-7dec-11d0 NX PX 1").gets("+OK");
    redis.becomes_free("lock:1");
    holder.sends("SET lock:1 5c9e2f70-8d1b-4a33 NX PX 600000").gets("+OK");
    for case in prepared(&redis) {
        for form in [Form::Plain, Form::Block, Form::MixedCase] {
            let Some(requests) = case.requests(form) else {
                continue;
            };
            furnish(&[&own], &case);
            let before = own.sends(format!("DUMP {KEY}")).reply().to_string();
            let said = replies(&late, &requests);
            let last = said.last().expect("a reply");
            let is_refused = last.starts_with("-LOCKDENIED stale-fence")
                || last.starts_with("-LOCKLIMIT guarded-write")
                || last.starts_with("-EXECABORT Transaction discarded because of previous errors: LOCK");
            assert!(is_refused, "{form:?}: {}: {said:?}", case.line);
            let after = own.sends(format!("DUMP {KEY}")).reply().to_string();
            assert_eq!(after, before, "{form:?}: {}", case.line);
        }
    }
}

/// The writes of workers with leases of a few milliseconds through two proxies: how many, and how many of them were made
/// under an older lease after a write under a newer one.
struct Race {
    written: usize,
    stale: usize,
    again: f64,
}

fn race(planted: Planted, time: Duration) -> Race {
    let redis = Redis::start();
    let planter = Planter::before(redis.address(), planted);
    let backend = format!("redis://{}", planter.address());
    let proxies = [(); 2].map(|()| ProxyBuilder::for_backend(&backend).more(GUARD).start());
    let end = Instant::now() + time;
    thread::scope(|scope| {
        for worker in 0..6_u64 {
            let proxy = &proxies[worker as usize % 2];
            let client = proxy.client_from(&format!("127.0.1.{}", worker + 1));
            scope.spawn(move || works(&client, worker, end));
        }
    });
    let written = redis.client().sends(format!("LRANGE {KEY} 0 -1")).reply();
    let (mut newest, mut stale) = (0, 0);
    for fence in written.elements() {
        let fence: u64 = fence.clone().text().parse().expect("a fencing token");
        stale += usize::from(fence < newest);
        newest = newest.max(fence);
    }
    assert!(planter.changed() > 0, "it was played");
    let again = |proxy: &Proxy| proxy.metric("lockwarden_guard_again_total{guard=\"data\"}");
    Race { written: written.elements().len(), stale, again: proxies.iter().map(again).sum() }
}

fn works(client: &Client, worker: u64, end: Instant) {
    let mut random = Random::from_seed(worker);
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        let ttl = 5 + random.below(30);
        let acquire = format!("SET lock:1 {worker:02}-{number:06}-8d1b-4a33 NX PX {ttl}");
        if client.sends(&acquire).reply().to_string() != "+OK" {
            thread::sleep(Duration::from_micros(500));
            continue;
        }
        let Reply::Integer(fence) = client.sends("LOCKWARDEN FENCE lock:1").reply() else {
            continue;
        };
        thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        let reply = client.sends(format!("RPUSH {KEY} {fence}")).reply().to_string();
        let is_known =
            reply.starts_with(':') || reply.starts_with("-LOCKDENIED stale-fence") || reply.contains("changed hands");
        assert!(is_known, "{reply}");
    }
}

#[test]
fn no_write_of_an_older_lease_stands_behind_one_of_a_newer() {
    let seconds = soak::number("LOCKWARDEN_SOAK_SECONDS").unwrap_or(10);
    let race = race(Planted::SlowBlocks, Duration::from_secs(seconds));
    eprintln!("guarded writes: {} written, {} stale, {} checked again", race.written, race.stale, race.again);
    assert_eq!(race.stale, 0, "of {}", race.written);
    assert!(race.written > 20, "{}", race.written);
    assert!(race.again > 0.0, "the lock changed hands under writes");
}

#[test]
fn a_build_without_the_watch_is_found_out() {
    let found = (0..6).any(|_| {
        let race = race(Planted::WriteWithoutWatch, Duration::from_secs(5));
        eprintln!("without WATCH: {} written, {} stale", race.written, race.stale);
        race.stale > 0
    });
    assert!(found);
}

/// Its client cannot know whether it was carried out; the proxy does not guess.
#[test]
fn what_a_redis_that_dies_was_sent_is_not_sent_again() {
    let mut redis = Redis::with_arguments(&["--appendonly", "yes", "--appendfsync", "always"]);
    let planter = Planter::before(redis.address(), Planted::SlowBlocks);
    let backend = format!("redis://{}", planter.address());
    let proxy = ProxyBuilder::for_backend(&backend).more(GUARD).start();
    let client = proxy.client();
    client.sends("SET lock:1 5c9e2f70-8d1b-4a33 NX PX 600000").gets("+OK");
    for length in 1..=2 {
        client.sends(format!("RPUSH {KEY} a")).gets(format!(":{length}"));
    }
    // The fourth block is on its way for a while, its record watched and judged.
    client.write(&encode(&["RPUSH", KEY, "b"]));
    wait_for("the block", || planter.changed() == 4);
    redis.stop();
    assert_eq!(client.reads_to_end(), b"");
    redis.start_again();
    let own = redis.client();
    own.sends(format!("LRANGE {KEY} 0 -1")).gets("[$1 a, $1 a]");
    wait_for("the proxy is up again", || proxy.ready() == Some(200));
    own.sends(format!("LRANGE {KEY} 0 -1")).gets("[$1 a, $1 a]");
}

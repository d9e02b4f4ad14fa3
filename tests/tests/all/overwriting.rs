//! Storing another value over a lease. A distinctive value names one try for the lock; another such value
//! belongs to another try, whichever client sends it.

use lockwarden_tests::{Client, Mode, Proxy, Redis};

/// One process with a pool: all clients from here are one identity.
const POOL: &str = "127.60.0.1";
const FIRST: &str = "6e3d0bcd-9c1e-4a07";
const SECOND: &str = "0a94c2de-6f3b-4a55";
const OVERWRITES: &str = "lockwarden_decisions_total{reason=\"overwrite\"}";

fn pool(proxy: &Proxy) -> [Client; 2] {
    [proxy.client_from(POOL), proxy.client_from(POOL)]
}

/// Every way to replace the value, and how it is refused.
const REPLACING: [(&str, &str); 8] = [
    ("SET lock:job 0a94c2de-6f3b-4a55", "-LOCKDENIED overwrite"),
    ("SET lock:job 0a94c2de-6f3b-4a55 PX 9000", "-LOCKDENIED overwrite"),
    ("SETEX lock:job 9 0a94c2de-6f3b-4a55", "-LOCKDENIED overwrite"),
    ("PSETEX lock:job 9000 0a94c2de-6f3b-4a55", "-LOCKDENIED overwrite"),
    ("SET lock:job 0a94c2de-6f3b-4a55 KEEPTTL", "-LOCKDENIED overwrite"),
    ("SET lock:job 0a94c2de-6f3b-4a55 XX PX 9000", "nil"),
    ("GETSET lock:job 0a94c2de-6f3b-4a55", "-LOCKDENIED take-over"),
    (
        "EVAL \"redis.call('set', KEYS[1], ARGV[1]) return redis.call('pexpire', KEYS[1], 9000)\" 1 lock:job 0a94c2de-6f3b-4a55",
        "-LOCKDENIED overwrite",
    ),
];

fn is_refused(redis: &Redis, client: &Client, command: &str, refusal: &str) {
    let before = redis.lease("lock:job");
    let reply = client.sends(command).reply().to_string();
    assert!(reply.starts_with(refusal), "{command}: {reply}");
    assert_eq!(redis.lease("lock:job"), before, "{command}");
}

#[test]
fn a_worker_that_lost_does_not_replace_its_own_neighbours_lock() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for (command, refusal) in REPLACING {
        let [winner, loser] = pool(&proxy);
        winner.sends(format!("SET lock:job {FIRST} NX PX 9000")).gets("+OK");
        loser.sends(format!("SET lock:job {SECOND} NX PX 9000")).gets("nil");
        is_refused(&redis, &loser, command, refusal);
        winner.sends("DEL lock:job").gets(":1");
    }
}

/// Threads that share one connection: the loser's value is not the winner's.
#[test]
fn a_thread_that_lost_does_not_replace_the_lock_of_another_on_its_connection() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let shared = proxy.client();
    for (command, refusal) in REPLACING {
        shared.sends(format!("SET lock:job {FIRST} NX PX 9000")).gets("+OK");
        shared.sends(format!("SET lock:job {SECOND} NX PX 9000")).gets("nil");
        is_refused(&redis, &shared, command, refusal);
        shared.sends("DEL lock:job").gets(":1");
    }
}

/// No try came over this connection before: a plain SET is still the value of another try.
#[test]
fn another_workers_value_does_not_replace_a_lock_that_its_process_holds() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for (command, refusal) in REPLACING {
        if command.contains("XX") || command.contains("KEEPTTL") {
            continue;
        }
        let [holder, other] = pool(&proxy);
        holder.sends(format!("SET lock:job {FIRST} NX PX 9000")).gets("+OK");
        is_refused(&redis, &other, command, refusal);
        holder.sends("DEL lock:job").gets(":1");
    }
    proxy.counts(OVERWRITES, 5.0);
}

#[test]
fn in_monitor_mode_the_replaced_lock_is_counted() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    let [holder, other] = pool(&proxy);
    holder.sends(format!("SET lock:job {FIRST} NX PX 9000")).gets("+OK");
    other.sends(format!("SET lock:job {SECOND} PX 9000")).gets("+OK");
    proxy.counts(OVERWRITES, 1.0);
}

/// A holder that writes its progress into its lock: its state, the time, its next step.
#[test]
fn a_holder_may_change_what_its_lock_says() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [holder, pooled] = pool(&proxy);
    let next = |number: u32| format!("node-a, renewed for the {number:04}. time");

    // Over the connection that was granted the lease.
    holder.sends_arguments(&["SET", "lock:job", &next(0), "NX", "PX", "9000"]).gets("+OK");
    holder.sends_arguments(&["SET", "lock:job", &next(1), "PX", "9000"]).gets("+OK");
    holder.sends_arguments(&["SETEX", "lock:job", "9", &next(2)]).gets("+OK");
    // Over another connection of its pool: a command that itself names an existing lock (so ShedLock gives
    // back early), and a command after a read of the value.
    pooled.sends_arguments(&["SET", "lock:job", &next(3), "XX", "PX", "8000"]).gets("+OK");
    pooled.sends_arguments(&["SET", "lock:job", &next(4), "KEEPTTL"]).gets("+OK");
    for (number, in_block) in [(5, false), (6, true)] {
        if in_block {
            pooled.sends("WATCH lock:job").gets("+OK");
        }
        assert!(pooled.sends("GET lock:job").text().starts_with("node-a"));
        let said = next(number);
        let stores = ["SET", "lock:job", &said, "PX", "9000"];
        if in_block {
            pooled.sends("MULTI").gets("+OK");
            pooled.sends_arguments(&stores).gets("+QUEUED");
            pooled.sends("EXEC").gets("[+OK]");
        } else {
            pooled.sends_arguments(&stores).gets("+OK");
        }
    }
    assert_eq!(redis.value("lock:job"), format!("${} {}", next(6).len(), next(6)));
    holder.sends("DEL lock:job").gets(":1");

    // First a mark and then the name of the holder, and the other way round.
    for (first, then) in [("1", FIRST), (FIRST, "done"), (FIRST, FIRST)] {
        holder.sends(format!("SET lock:job {first} NX PX 9000")).gets("+OK");
        pooled.sends(format!("SET lock:job {then} PX 9000")).gets("+OK");
        holder.sends("DEL lock:job").gets(":1");
    }
}

/// The other way round: a value that names another try is no proof for changing a value that says
/// nothing, but a process may.
#[test]
fn a_stranger_is_refused_whatever_it_has_read() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let holder = proxy.client_from(POOL);
    let stranger = proxy.client_from("127.60.0.2");
    holder.sends(format!("SET lock:job {FIRST} NX PX 9000")).gets("+OK");
    stranger.sends("GET lock:job").text();
    for (command, refusal) in REPLACING {
        is_refused(&redis, &stranger, command, refusal);
    }
}

//! What a proxy promises clients while it may not learn of a new primary, or is in front of a former primary. The sentinels are
//! simulated, so that each proxy hears what its test wants.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lockwarden_tests::{Proxy, ProxyBuilder, Redis, holds_for, wait_for};

use super::{ERAS, UNTIL};

const ERA: &str = "lw:{}:lockwarden-era";

/// Answers as a sentinel does.
pub(super) struct Oracle {
    address: SocketAddr,
    /// The address that it names, and its epoch; `None` while it does not answer.
    says: Arc<Mutex<Option<(SocketAddr, u64)>>>,
}

impl Oracle {
    pub(super) fn names(redis: &Redis, epoch: u64) -> Oracle {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let says = Arc::new(Mutex::new(Some((redis.address(), epoch))));
        let told = says.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let told = told.clone();
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        let asked = String::from_utf8_lossy(&buffer[..read]).to_uppercase();
                        let now = *told.lock().unwrap_or_else(PoisonError::into_inner);
                        let Some((named, epoch)) = now else { continue };
                        let said = match asked.contains("SUBSCRIBE") {
                            true => "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n".to_owned(),
                            false => answers(named, epoch),
                        };
                        if stream.write_all(said.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Oracle { address, says }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn says(&self, what: Option<(SocketAddr, u64)>) {
        *self.says.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }
}

fn answers(named: SocketAddr, epoch: u64) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let epoch = epoch.to_string();
    let (host, port) = (named.ip().to_string(), named.port().to_string());
    format!("*2\r\n{}{}*2\r\n{}{}*0\r\n-ERR unknown\r\n", bulk("config-epoch"), bulk(&epoch), bulk(&host), bulk(&port))
}

/// Three of them.
pub(super) struct Oracles(pub(super) [Oracle; 3]);

impl Oracles {
    pub(super) fn name(redis: &Redis, epoch: u64) -> Oracles {
        Oracles([(), (), ()].map(|()| Oracle::names(redis, epoch)))
    }

    pub(super) fn in_front(&self) -> ProxyBuilder {
        let addresses: Vec<String> = self.0.iter().map(|one| one.address.to_string()).collect();
        let url = format!("redis-sentinel://{}/mymaster", addresses.join(","));
        ProxyBuilder::for_backend(&url)
    }

    fn say(&self, redis: &Redis, epoch: u64) {
        for one in &self.0 {
            one.says(Some((redis.address(), epoch)));
        }
    }
}

/// Names this run of a server.
fn run_of(redis: &Redis) -> String {
    let info = redis.client().sends("INFO server").text();
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    run.expect("it says so").trim().to_owned()
}

/// It has been the primary for long, so that its quarantine is over: as an earlier version has entered it.
fn was_the_primary_for_long(redis: &Redis) {
    let entry = format!("{} 1000", run_of(redis));
    let order = redis.client();
    order.sends_arguments(&["SET", ERA, &entry]).gets("+OK");
}

fn since(redis: &Redis) -> u64 {
    let entry = redis.client().sends(format!("GET {ERA}")).text();
    let since = entry.split(' ').nth(1).and_then(|word| word.parse().ok());
    since.unwrap_or_else(|| panic!("{entry}"))
}

/// Over a connection of its own each time, which may be closed meanwhile.
#[track_caller]
fn comes_to(proxy: &Proxy, command: &str, reply: &str) {
    wait_for(command, || {
        let client = proxy.client();
        client.write(format!("{command}\r\nQUIT\r\n").as_bytes());
        let said = client.reads_to_end();
        said.starts_with(format!("{reply}\r\n").as_bytes())
    });
}

#[test]
fn a_proxy_in_the_minority_promises_nothing_that_outlasts_the_quarantine_elsewhere() {
    let redis = Redis::start();
    was_the_primary_for_long(&redis);
    let all = Oracles::name(&redis, 1);
    let proxy = all.in_front().ceiling("2s").namespace("quarantine", "\"auto\"").start();
    let (shop, depot) = (proxy.client(), proxy.client());
    wait_for("a grant", || shop.sends("SET lock:a s NX PX 2000").reply().to_string() == "+OK");
    depot.sends("SETNX lock:kept d").gets(":1");
    // Commands that are queued now are carried out at a time when less may be promised.
    let baker = proxy.client();
    baker.pipelines(&["MULTI", "SET lock:block b NX PX 2000", "SET data b"], &["+OK", "+QUEUED", "+QUEUED"]);

    for silent in &all.0[1..] {
        silent.says(None);
    }
    proxy.logs(&["WARN", "half of the sentinels or more are not heard", "\"heard\":1"]);
    // Ten seconds of silence have no effect on clients.
    let extension = "PEXPIRE lock:a 2000";
    wait_for("the extension to be refused", || shop.sends(extension).integer() == 0);
    proxy.logs(&["refused", "quarantine", "PEXPIRE"]);
    shop.sends(extension).gets(":0");
    let extend = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
    assert_eq!(depot.eval(extend, &["lock:kept"], &["d", "2000"]), ":0");
    depot.sends("SET lock:new d NX PX 100").gets("nil");
    baker.sends("EXEC").gets_error("EXECABORT");
    proxy.logs(&["refused", "quarantine", "lock:block"]);
    assert!(redis.is_free("lock:block") && redis.is_free("data"));
    wait_for("what was kept alive to run out", || redis.is_free("lock:kept") && redis.is_free("lock:a"));
    proxy.logs(&["a lease ran out under its holder", "most of the sentinels", "lock:kept"]);
    // Plain commands go on, and lock commands do once most sentinels are heard.
    shop.sends("SET data x").gets("+OK");
    all.say(&redis, 1);
    comes_to(&proxy, "SET lock:a o NX PX 2000", "+OK");
}

#[test]
fn a_silence_of_few_seconds_costs_no_holder_anything() {
    let redis = Redis::start();
    was_the_primary_for_long(&redis);
    let all = Oracles::name(&redis, 1);
    let proxy = all.in_front().ceiling("2s").namespace("quarantine", "\"auto\"").start();
    let (shop, depot) = (proxy.client(), proxy.client());
    wait_for("a grant", || shop.sends("SET lock:a s NX PX 2000").reply().to_string() == "+OK");
    depot.sends("SETNX lock:kept d").gets(":1");
    for silent in &all.0 {
        silent.says(None);
    }
    proxy.counts("lockwarden_sentinels_heard", 0.0);
    holds_for(Duration::from_secs(1), "both are held", || {
        shop.sends("PEXPIRE lock:a 2000").integer() == 1 && !redis.is_free("lock:kept")
    });
}

#[test]
fn a_primary_that_is_one_again_has_a_quarantine_though_it_copied_nothing_meanwhile() {
    let (a, b) = (Redis::start(), Redis::start());
    was_the_primary_for_long(&a);
    let all = Oracles::name(&a, 1);
    let proxy = all.in_front().ceiling("60s").namespace("quarantine", "\"3s\"").start();
    comes_to(&proxy, "SET lock:first f NX PX 1000", "+OK");
    all.say(&b, 2);
    proxy.counts(ERAS, 1.0);
    // Its quarantine passes, and a client is granted a lock there.
    comes_to(&proxy, "SET lock:a h NX PX 60000", "+OK");
    assert_eq!(b.value("lock:a"), "$1 h");
    all.say(&a, 3);
    proxy.counts(ERAS, 2.0);
    wait_for("clients to be served", || proxy.ready() == Some(200));
    proxy.client().sends("SET lock:a o NX PX 1000").gets("nil");
    assert!(proxy.metric(UNTIL) > 0.0);
    // A proxy that has seen nothing of it knows.
    let other = all.in_front().ceiling("60s").namespace("quarantine", "\"60s\"").start();
    other.client().sends("SET lock:a o NX PX 1000").gets("nil");
}

#[test]
fn a_lowered_ceiling_shortens_no_quarantine_of_leases_from_before() {
    let (a, b) = (Redis::start(), Redis::start());
    was_the_primary_for_long(&a);
    let all = Oracles::name(&a, 1);
    let proxy = all.in_front().ceiling("300s").namespace("quarantine", "\"auto\"").start();
    comes_to(&proxy, "SET lock:a h NX PX 300000", "+OK");
    let text = std::fs::read_to_string(proxy.config()).expect("its file");
    proxy.reload(&text.replace("300s", "1s"));
    proxy.logs(&["configuration loaded"]);
    all.say(&b, 2);
    proxy.counts(ERAS, 1.0);
    wait_for("the quarantine of the new primary", || proxy.metric(UNTIL) > 0.0);
    let left = |proxy: &Proxy| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        proxy.metric(UNTIL) - now.expect("it is later").as_secs_f64()
    };
    wait_for("the era to be entered", || left(&proxy) < 1_000.0);
    assert!(left(&proxy) > 200.0, "{}", left(&proxy));
    // Another proxy that was started with the lower one does not know it either.
    let other = all.in_front().ceiling("1s").namespace("quarantine", "\"auto\"").start();
    wait_for("the era to be entered", || (200.0..1_000.0).contains(&left(&other)));
}

#[test]
fn a_clock_that_jumps_in_a_quarantine_does_not_end_it_for_a_proxy_that_starts_later() {
    let redis = Redis::with_jumping_clock(&[]);
    let start = || Proxy::builder(&redis).ceiling("60s").namespace("quarantine", "\"60s\"").start();
    let first = start();
    wait_for("the era to be entered", || !redis.is_free(ERA));
    let before = since(&redis);
    redis.clock_jumps(3_600_000);
    wait_for("it to be entered anew", || since(&redis) > before + 3_000_000);
    first.logs(&["WARN", "the server's clock has jumped forward"]);
    start().client().sends("SET lock:a x NX PX 1000").gets("nil");
}

/// Neither server has a record of the tokens: the grant was lost, and the promoted server's clock is an hour behind.
#[test]
fn fencing_tokens_do_not_go_back_where_the_clock_of_the_promoted_server_is_behind() {
    let (a, b) = (Redis::start(), Redis::with_jumping_clock(&[]));
    was_the_primary_for_long(&a);
    b.clock_jumps(-3_600_000);
    let all = Oracles::name(&a, 1);
    let start = || all.in_front().ceiling("2s").namespace("quarantine", "\"2s\"").start();
    let proxy = start();
    comes_to(&proxy, "SET lock:1 a NX PX 500", "+OK");
    let before = a.fence("lock:1");
    all.say(&b, 2);
    proxy.counts(ERAS, 1.0);
    comes_to(&proxy, "SET lock:1 b NX PX 500", "+OK");
    assert!(b.fence("lock:1") > before, "{} after {before}", b.fence("lock:1"));
    // The next tokens are above that, and a proxy that starts later counts from the stored number.
    b.client().sends("FLUSHDB").reply();
    let last = before;
    let other = start();
    comes_to(&proxy, "SET lock:1 c NX PX 500", "+OK");
    comes_to(&other, "SET lock:2 d NX PX 500", "+OK");
    assert!(b.fence("lock:1") > last && b.fence("lock:2") > last);
}

#[test]
fn fencing_tokens_do_not_go_back_where_the_clock_is_put_back() {
    let redis = Redis::with_jumping_clock(&[]);
    was_the_primary_for_long(&redis);
    let proxy = Proxy::builder(&redis).ceiling("2s").namespace("quarantine", "\"2s\"").start();
    comes_to(&proxy, "SET lock:1 a NX PX 500", "+OK");
    let before = redis.fence("lock:1");
    redis.client().sends("DEL lock:1").reply();
    redis.clock_jumps(-3_600_000);
    wait_for("it to be entered", || {
        let entry = redis.client().sends(format!("GET {ERA}")).text();
        entry.split(' ').nth(6).is_some_and(|ahead| ahead.parse().is_ok_and(|ahead: u64| ahead > 3_500_000))
    });
    let straight = redis.client();
    let record = straight.sends("KEYS lw:{*}:lock:1").reply();
    let name = record.elements().first().expect("its record").bytes().to_vec();
    straight.sends_arguments(&[b"DEL".as_slice(), &name]).gets(":1");
    comes_to(&proxy, "SET lock:1 b NX PX 500", "+OK");
    assert!(redis.fence("lock:1") > before);
}

/// An older lease came along to the new primary, and a newer one did not.
#[test]
fn a_late_writer_passes_no_guard_behind_a_grant_that_a_failover_lost() {
    let (a, b) = (Redis::start(), Redis::start());
    was_the_primary_for_long(&a);
    let all = Oracles::name(&a, 1);
    let guard = "[[guard]]\nname = \"data\"\nmode = \"enforce\"\nkeys = [\"guarded:{id}\"]\nlock = \"lock:{id}\"";
    let proxy = all.in_front().ceiling("60s").namespace("quarantine", "\"2s\"").more(guard).start();
    // A client that comes again is known by name and address.
    let named = |name: &str| {
        let client = proxy.client_from("127.7.7.7");
        client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
        client
    };
    let alice = named("alice");
    wait_for("a grant", || alice.sends("SET lock:1 a NX PX 500").reply().to_string() == "+OK");
    alice.sends("SET guarded:1 a").gets("+OK");
    let replica = b.client();
    let (host, port) = (a.address().ip(), a.address().port());
    replica.sends(format!("REPLICAOF {host} {port}")).gets("+OK");
    wait_for("the copy", || b.value("guarded:1") == "$1 a");
    replica.sends("REPLICAOF NO ONE").gets("+OK");
    let bob = named("bob");
    wait_for("the lease to run out", || bob.sends("SET lock:1 b NX PX 60000").reply().to_string() == "+OK");
    bob.sends("SET guarded:1 b").gets("+OK");
    b.becomes_free("lock:1");

    all.say(&b, 2);
    proxy.counts(ERAS, 1.0);
    wait_for("clients to be served", || proxy.ready() == Some(200));
    named("alice").sends("SET guarded:1 late").gets_error("LOCKDENIED stale-fence");
    comes_to(&proxy, "SET lock:other o NX PX 1000", "+OK");
    // The quarantine is over, and the lost lease is not back.
    let late = named("alice");
    late.sends("SET guarded:1 late").gets_error("LOCKDENIED stale-fence");
    late.sends("MULTI").gets("+OK");
    late.sends("SET guarded:1 late").gets("+QUEUED");
    late.sends("EXEC").gets_error("EXECABORT");
    late.sends("SET lock:1 a2 NX PX 60000").gets("+OK");
    late.sends("SET guarded:1 again").gets("+OK");
}

/// A command that was queued before a quarantine began takes no free lock in it.
#[test]
fn a_block_that_was_queued_before_a_quarantine_takes_no_free_lock_in_it() {
    let redis = Redis::with_jumping_clock(&[]);
    was_the_primary_for_long(&redis);
    let proxy = Proxy::builder(&redis).ceiling("60s").namespace("quarantine", "\"60s\"").start();
    let shop = proxy.client();
    wait_for("a grant", || shop.sends("SET lock:a s NX PX 60000").reply().to_string() == "+OK");
    let block = ["MULTI", "SET lock:new s NX PX 1000", "PEXPIRE lock:a 60000"];
    let queued = ["+OK", "+QUEUED", "+QUEUED"];
    shop.pipelines(&block, &queued);
    let before = since(&redis);
    redis.clock_jumps(3_000);
    wait_for("the era to be entered anew", || since(&redis) > before + 2_000);
    wait_for("the quarantine", || proxy.metric(UNTIL) > 0.0);
    shop.sends("EXEC").gets_error("EXECABORT");
    assert!(redis.is_free("lock:new"));
    // An extension outside a block is promised as always, and commands that are queued now are queued in the
    // form for the quarantine.
    shop.pipelines(&["MULTI", "PEXPIRE lock:a 60000", "SET lock:new s NX PX 1000"], &queued);
    shop.sends("EXEC").gets("[:1, nil]");
}

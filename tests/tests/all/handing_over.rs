//! Stopping, and handing the address to the next process: no lock is lost, no client is turned away.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockwarden_tests::{Client, Proxy, ProxyBuilder, Redis, holds_for, lockwarden, run_to_end, wait_for};

/// The next process of the same configuration.
fn next_after(first: &Proxy, redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis)
        .top("listen", &format!("\"{}\"", first.address()))
        .top("admin", &format!("\"{}\"", first.admin_address()))
        .argument("--takeover")
}

/// Clients that connect, work under a lock, and leave, again and again.
struct Passers {
    came: AtomicUsize,
    enough: AtomicBool,
}

impl Passers {
    fn walk(&self, to: SocketAddr, number: usize) {
        while !self.enough.load(Ordering::Relaxed) {
            let client = Client::connect(to);
            client.sends("PING").gets("+PONG");
            client.sends(format!("SETNX lock:passer-{number} 1")).gets(":1");
            client.sends(format!("DEL lock:passer-{number}")).gets(":1");
            self.came.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the clients that are under way now have come and gone.
    fn pass(&self) {
        let before = self.came.load(Ordering::Relaxed);
        wait_for("clients to come and go", || self.came.load(Ordering::Relaxed) > before + 20);
    }
}

#[test]
fn an_upgrade_drops_no_lock_and_turns_nobody_away() {
    let redis = Redis::start();
    let first = Proxy::builder(&redis).top("drain", "\"1m\"").start();
    let address = first.address();
    let holders: Vec<Client> = (0..8).map(|_| first.client()).collect();
    for (number, holder) in holders.iter().enumerate() {
        holder.sends(format!("SETNX lock:holder-{number} 1")).gets(":1");
    }
    let (idle, passers) = (first.client(), Passers { came: AtomicUsize::new(0), enough: AtomicBool::new(false) });
    idle.sends("PING").gets("+PONG");
    std::thread::scope(|scope| {
        for number in 0..2 {
            let passers = &passers;
            scope.spawn(move || passers.walk(address, number));
        }
        passers.pass();
        let second = next_after(&first, &redis).start();
        passers.pass();
        first.asks_to_stop();
        idle.then().gets_close();
        second.client().sends("PING").gets("+PONG");

        let looking = redis.client();
        let keys: Vec<String> = (0..8).map(|number| format!("lock:holder-{number}")).collect();
        let question = format!("EXISTS {}", keys.join(" "));
        // The default TTL is 600 ms: without renewal each would be gone three times over.
        holds_for(Duration::from_millis(2000), "every lock is held", || looking.sends(&question).integer() == 8);
        passers.pass();
        passers.enough.store(true, Ordering::Relaxed);
        for (number, holder) in holders.iter().enumerate() {
            second.client().sends(format!("SETNX lock:holder-{number} 2")).gets(":0");
            holder.sends(format!("DEL lock:holder-{number}")).gets(":1");
        }
        assert_eq!(first.ends(), Some(0), "it ends with its last holder");
        for holder in &holders {
            holder.then().gets_close();
        }
        second.client().sends("SETNX lock:holder-0 2").gets(":1");
    });
}

#[test]
fn a_second_proxy_by_mistake_does_not_share_the_address() {
    let redis = Redis::start();
    let first = Proxy::enforcing(&redis);
    let listen = first.address().to_string();
    let end = run_to_end(&mut lockwarden(&["run", "--listen", &listen, "--admin", "off"]));
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(end.stderr.contains("in use"), "{end:?}");
    assert!(end.stderr.contains("--takeover"), "{end:?}");
}

#[test]
fn taking_over_where_nobody_is_is_an_ordinary_start() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).argument("--takeover").start();
    proxy.client().sends("SETNX lock:job 1").gets(":1");
}

#[test]
fn whoever_takes_over_waits_for_the_backend_first() {
    let redis = Redis::start();
    let first = Proxy::enforcing(&redis);
    let next = next_after(&first, &redis).namespace("name", "\"second\"");
    redis.freeze();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            holds_for(Duration::from_millis(800), "the first one answers", || {
                !first.get("/metrics").1.contains("namespace=\"second\"")
            });
            redis.thaw();
        });
        let second = next.start();
        assert!(second.get("/metrics").1.contains("namespace=\"second\""));
        second.client().sends("PING").gets("+PONG");
    });
}

#[test]
fn an_order_by_post_drains_and_a_second_one_ends_the_wait() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("drain", "\"1m\"").default_ttl("9s").start();
    let (holder, idle) = (proxy.client(), proxy.client());
    idle.sends("PING").gets("+PONG");
    holder.sends("SETNX lock:job 1").gets(":1");
    let (status, body) = proxy.post("/drain");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("clients connected: 2"), "{body}");
    idle.then().gets_close();
    assert_eq!(proxy.ready(), Some(503));
    holder.sends("GET lock:job").gets("$1 1");
    wait_for("a part of the lease to pass", || redis.pttl("lock:job") < 7_500);
    assert_eq!(proxy.post("/drain").0, 200);
    assert_eq!(proxy.ends(), Some(0));
    holder.then().gets_close();
    assert!(redis.pttl("lock:job") > 7_500, "it was renewed once more, to its full TTL");
}

#[test]
fn a_holder_is_served_until_its_lease_is_over_by_itself() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("drain", "\"1m\"").start();
    let holder = proxy.client();
    holder.sends("SET lock:job a1 NX PX 2500").gets("+OK");
    proxy.asks_to_stop();
    proxy.logs(&["stopping"]);
    holder.sends("GET lock:job").gets("$2 a1");
    holder.then().gets_close();
    redis.becomes_free("lock:job");
    assert_eq!(proxy.ends(), Some(0));
}

#[test]
fn a_service_manager_is_told_what_happens() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("the directory is ours");
    manager.set_read_timeout(Some(Duration::from_secs(10))).expect("the timeout is not zero");
    let hears = |wanted: &str| {
        let mut bytes = [0; 512];
        loop {
            let length = manager.recv(&mut bytes).expect(wanted);
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.lines().any(|line| line == wanted) {
                return text;
            }
            // Signs of life come in between.
            assert_eq!(text.trim(), "WATCHDOG=1", "instead of {wanted}");
        }
    };
    let builder = Proxy::builder(&redis)
        .environment("NOTIFY_SOCKET", &path.display().to_string())
        .environment("WATCHDOG_USEC", "200000");
    let text = builder.text();
    let proxy = builder.start();
    hears("READY=1");
    hears("WATCHDOG=1");
    hears("WATCHDOG=1");
    proxy.reload(&text);
    let reloading = hears("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    hears("READY=1");
    proxy.asks_to_stop();
    hears("STOPPING=1");
    assert_eq!(proxy.ends(), Some(0));
}

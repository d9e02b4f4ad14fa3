//! `sessions = "multiplexed"`: a shared connection on which replies no longer come, for any reason, and its
//! clients that could go on.

use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Forwarder, Numbers, Proxy, ProxyBuilder, Redis, comes_true, encode, wait_for};

/// In front of a forwarder that leads to this server.
fn through(forwarder: &Forwarder) -> Proxy {
    ProxyBuilder::for_backend(&format!("redis://{}", forwarder.address())).multiplexed().start()
}

/// A client that writes while writes are held back waits, as on Redis; a client that reads does not.
#[test]
fn a_write_that_waits_holds_no_reader_up() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).multiplexed().start();
    let holder = proxy.client();
    holder.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    let (writer, taker, reader) = (proxy.client(), proxy.client(), proxy.client());
    for client in [&writer, &taker, &reader] {
        client.sends("SET plain 1").gets("+OK");
    }
    redis.client().sends("CLIENT PAUSE 60000 WRITE").gets("+OK");
    writer.write(&encode(&["SET", "plain", "2"]));
    taker.write(&encode(&["SETNX", "lock:other", "a1"]));
    // Behind them, and before the proxy can know that they wait.
    reader.sends("GET plain").gets("$1 1");
    for _ in 0..20 {
        reader.sends("GET plain").gets("$1 1");
        reader.sends("GET lock:job").gets("$2 a1");
        reader.sends("EXISTS lock:job").gets(":1");
        reader.sends("KEYS plain").gets("[$5 plain]");
        reader.sends("PING").gets("+PONG");
        proxy.client().sends("GET plain").gets("$1 1");
    }
    // In one write, a client's own read waits for its own earlier write, as on Redis.
    let both = proxy.client();
    both.write(&encode(&["GET", "plain"]));
    both.then().gets("$1 1");
    both.write(&[encode(&["APPEND", "plain", "3"]), encode(&["GET", "plain"])].concat());
    both.hears_nothing_for(Duration::from_millis(100));
    redis.client().sends("CLIENT UNPAUSE").gets("+OK");
    writer.then().gets("+OK");
    taker.then().gets(":1");
    both.then().gets(":2");
    both.then().gets("$2 23");
}

/// The proxy's write into a record, for a client that has just read, goes over the connection for writes.
#[test]
fn what_the_proxy_writes_for_a_client_holds_no_reader_up() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).multiplexed().start();
    let reader = proxy.client();
    reader.sends("GET plain").gets("nil");
    let pauser = redis.client();
    for round in 0..3 {
        let holder = proxy.client();
        // The holder's process is looked up a moment later.
        holder.sends(format!("SETNX lock:{round} {round}")).gets(":1");
        holder.sends("GET plain").gets("nil");
        pauser.sends("CLIENT PAUSE 60000 WRITE").gets("+OK");
        for _ in 0..10 {
            reader.sends("GET plain").gets("nil");
            thread::sleep(Duration::from_millis(20));
        }
        pauser.sends("CLIENT UNPAUSE").gets("+OK");
        wait_for("the holder to be in the record", || {
            let record = redis.record(&format!("lock:{round}"));
            record.is_some_and(|record| record.is_identified())
        });
    }
}

/// Reads and writes use different connections; the commands of one client still keep their order.
#[test]
fn what_a_client_reads_and_writes_happens_in_its_order() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).multiplexed().start();
    thread::scope(|scope| {
        for seed in 1..=4 {
            let proxy = &proxy;
            scope.spawn(move || {
                let mut dice = Numbers(seed);
                let clients: Vec<_> = (0..8).map(|_| (proxy.client(), Vec::new())).collect();
                let mut clients: Vec<(Client, Vec<u64>)> = clients;
                for _ in 0..60 {
                    for (at, (client, counters)) in clients.iter_mut().enumerate() {
                        let (bytes, replies) = burst(&mut dice, &format!("{seed}:{at}"), counters);
                        client.write(&bytes);
                        for reply in replies {
                            client.then().gets(reply);
                        }
                    }
                }
            });
        }
    });
}

/// Reads and writes of a client's own counters, and the reply that each must get.
fn burst(dice: &mut Numbers, me: &str, counters: &mut Vec<u64>) -> (Vec<u8>, Vec<String>) {
    counters.resize(3, 0);
    let (mut bytes, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..=dice.below(8) {
        let which = dice.below(3);
        let key = format!("{me}:{which}");
        let count = &mut counters[which];
        if dice.below(2) == 0 {
            *count += 1;
            bytes.extend(encode(&["INCR", key.as_str()]));
            replies.push(format!(":{count}"));
        } else {
            bytes.extend(encode(&["GET", key.as_str()]));
            replies.push(match count {
                0 => "nil".to_owned(),
                count => format!("${} {count}", count.to_string().len()),
            });
        }
    }
    (bytes, replies)
}

/// Something between the proxy and Redis drops one connection without notice.
#[test]
fn a_frozen_connection_is_given_up_and_nobody_new_gets_on_it() {
    for (asks, is_read) in [("GET frozen", true), ("INCR frozen", false)] {
        let redis = Redis::start();
        let forwarder = Forwarder::to(redis.address());
        let proxy = through(&forwarder);
        let (early, idle) = (proxy.client(), proxy.client());
        early.sends(asks).reply();
        idle.sends(asks).reply();
        assert_eq!(forwarder.freezes_those_that_said("frozen"), 1);
        early.write(&encode(&asks.split(' ').collect::<Vec<_>>()));

        // Until it is noticed, new clients get on it, too.
        let mut unlucky = Vec::new();
        let answers = comes_true(|| {
            let newcomer = proxy.client();
            newcomer.write(&[encode(&["GET", "plain"]), encode(&["INCR", "n"])].concat());
            let moment = Duration::from_millis(200);
            let both = newcomer.reply_within(moment).and(newcomer.reply_within(moment));
            unlucky.push(newcomer);
            both.is_some()
        });
        assert!(answers, "newcomers hang");
        proxy.client().sends("INCR n").reply().integer();
        idle.sends("SET plain 1").gets("+OK");
        idle.sends("GET plain").gets("$1 1");
        assert_eq!(proxy.ready(), Some(200));

        // The clients that wait on it are told in the only possible way.
        let given_up = || proxy.logged(&["WARN", "given up"]) == 1;
        assert!(comes_true(given_up) || comes_true(given_up), "{}", proxy.log());
        early.then().gets_close();
        let count = redis.client().sends("GET frozen").reply().to_string();
        assert_eq!(count, if is_read { "nil" } else { "$1 2" });
    }
}

/// Longer than a frozen connection is waited for.
const LONG: Duration = Duration::from_secs(13);

#[test]
fn who_waits_for_redis_itself_is_not_given_up() {
    let (paused, hanging) = (Redis::start(), Redis::start());
    let proxies = [&paused, &hanging].map(|redis| Proxy::builder(redis).multiplexed().start());
    let [writer, reader] = [&proxies[0], &proxies[1]].map(|proxy| {
        let client = proxy.client();
        client.sends("PING").gets("+PONG");
        client
    });
    paused.client().sends("CLIENT PAUSE 60000 WRITE").gets("+OK");
    writer.write(&encode(&["SET", "plain", "1"]));
    hanging.freeze();
    reader.write(&encode(&["GET", "plain"]));
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        thread::sleep(Duration::from_millis(100));
    }
    hanging.thaw();
    paused.client().sends("CLIENT UNPAUSE").gets("+OK");
    writer.then().gets("+OK");
    reader.then().gets("nil");
    for proxy in &proxies {
        assert_eq!(proxy.logged(&["given up"]), 0, "{}", proxy.log());
    }
}

/// A server that stands still for long costs few connections, however many clients come meanwhile.
#[test]
fn a_server_that_stands_still_is_not_flooded_with_connections() {
    let redis = Redis::start();
    let forwarder = Forwarder::to(redis.address());
    let proxy = through(&forwarder);
    proxy.client().sends("GET plain").gets("nil");
    let before = forwarder.connections();
    redis.freeze();
    let begun = Instant::now();
    let mut waiting = Vec::new();
    while begun.elapsed() < Duration::from_secs(4) {
        let client = proxy.client();
        client.write(&encode(&["GET", "plain"]));
        waiting.push(client);
        thread::sleep(Duration::from_millis(20));
    }
    assert!(forwarder.connections() <= before + 8, "{} connections, {before} before", forwarder.connections());
    redis.thaw();
    for client in &waiting {
        client.then().gets("nil");
    }
    wait_for("the connections to be closed again", || forwarder.connections() <= before + 3);
}

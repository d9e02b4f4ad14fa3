//! Connections that are as old as `max_connection_age` end, except those on which something depends. A stopping proxy
//! closes its clients' connections one after the other.

use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Proxy, ProxyBuilder, Redis, wait_for};

const AGED: &str = "lockwarden_clients_aged_total";

fn aging(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).top("max_connection_age", "\"1s\"")
}

/// A connection that does nothing comes and goes.
fn passes(proxy: &Proxy) {
    let idle = proxy.client();
    idle.sends("PING").gets("+PONG");
    idle.then().gets_close();
}

#[test]
fn a_connection_at_rest_ends_when_it_is_old_and_the_client_may_come_back() {
    let redis = Redis::start();
    let proxy = aging(&redis).start();
    let begun = Instant::now();
    let (silent, spoke) = (proxy.client(), proxy.client());
    spoke.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    spoke.sends("DEL lock:job").gets(":1");
    silent.then().gets_close();
    spoke.then().gets_close();
    assert!(begun.elapsed() >= Duration::from_millis(900));
    proxy.counts(AGED, 2.0);
    passes(&proxy);
    proxy.counts(AGED, 3.0);
}

#[test]
fn a_connection_stays_while_something_depends_on_it() {
    let redis = Redis::start();
    let proxy = aging(&redis).start();
    let client = |line: &str, reply: &str| {
        let client = proxy.client();
        client.sends(line).gets(reply);
        client
    };
    let holder = client("SET lock:job a1 NX PX 60000", "+OK");
    let kept = client("SETNX lock:kept 1", ":1");
    let in_block = client("MULTI", "+OK");
    in_block.sends("SET a 1").gets("+QUEUED");
    let watching = client("WATCH b", "+OK");
    let listening = client("SUBSCRIBE news", "[$9 subscribe, $4 news, :1]");
    let blocked = proxy.client();
    blocked.write(b"BLPOP queue 0\r\n");
    let half = proxy.client();
    half.write(b"*1\r\n$4\r\nPI");
    let all = [&holder, &kept, &in_block, &watching, &listening, &blocked];
    // By then all of them were old for a while.
    passes(&proxy);
    passes(&proxy);
    for client in all {
        client.hears_nothing_for(Duration::from_millis(1));
    }
    redis.client().sends("PUBLISH news one").gets(":1");
    listening.then().gets("[$7 message, $4 news, $3 one]");
    listening.sends("UNSUBSCRIBE news").gets("[$11 unsubscribe, $4 news, :0]");
    redis.client().sends("RPUSH queue x").gets(":1");
    blocked.then().gets("[$5 queue, $1 x]");
    in_block.sends("EXEC").gets("[+OK]");
    watching.sends("UNWATCH").gets("+OK");
    holder.sends("DEL lock:job").gets(":1");
    kept.sends("DEL lock:kept").gets(":1");
    half.write(b"NG\r\n");
    half.then().gets("+PONG");
    for client in all.into_iter().chain([&half]) {
        client.then().gets_close();
    }
}

/// Asks again and again, with a new connection when the one before has ended; returns how many requests were answered
/// and how many connections ended.
fn counts(proxy: &Proxy, key: &str, until: Instant) -> (u64, u64) {
    let (mut answered, mut ended) = (0, 0);
    let mut client: Option<Client> = None;
    while Instant::now() < until {
        let connected = client.get_or_insert_with(|| proxy.client());
        connected.write(format!("INCR {key}\r\n").as_bytes());
        let came = connected.reads_until(b"\r\n");
        if came.is_empty() {
            client = None;
            ended += 1;
        } else {
            answered += 1;
            assert_eq!(came, format!(":{answered}\r\n").as_bytes());
        }
        // So that it is at rest now and then.
        thread::sleep(Duration::from_micros(300 + answered % 700));
    }
    (answered, ended)
}

#[test]
fn what_was_carried_out_was_answered_before_a_connection_ends() {
    let redis = Redis::start();
    let proxy = aging(&redis).start();
    let until = Instant::now() + Duration::from_secs(4);
    let keys: Vec<String> = (0..8).map(|number| format!("count:{number}")).collect();
    let counted: Vec<(u64, u64)> = thread::scope(|scope| {
        let counting = keys.iter().map(|key| scope.spawn(|| counts(&proxy, key, until)));
        let counting: Vec<_> = counting.collect();
        counting.into_iter().map(|thread| thread.join().expect("it counts")).collect()
    });
    for (key, (answered, ended)) in keys.iter().zip(counted) {
        assert!(ended >= 2, "{ended} connections ended");
        redis.client().sends(format!("GET {key}")).gets(format!("${} {answered}", answered.to_string().len()));
    }
}

#[test]
fn a_reload_switches_it_on_and_off() {
    let redis = Redis::start();
    let builder = Proxy::builder(&redis);
    let off = builder.text();
    let proxy = builder.start();
    let on = format!("max_connection_age = \"1s\"\n{off}");
    let old = proxy.client();
    old.sends("PING").gets("+PONG");
    old.hears_nothing_for(Duration::from_millis(1_500));
    let (status, body) = proxy.reloads(on.as_bytes(), "/reload");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("changed: max_connection_age"), "{body}");
    old.then().gets_close();
    let holder = proxy.client();
    holder.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    passes(&proxy);
    assert_eq!(proxy.reloads(off.as_bytes(), "/reload").0, 200);
    // It was marked as old, and now no connection is old any more.
    holder.sends("DEL lock:job").gets(":1");
    holder.hears_nothing_for(Duration::from_millis(1_500));
    assert_eq!(proxy.metric(AGED), 2.0);
}

#[test]
fn a_stopping_proxy_sends_its_clients_away_one_behind_the_other() {
    const CLIENTS: usize = 60;
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("drain", "\"10s\"").start();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| proxy.client()).collect();
    for client in &clients {
        client.sends("PING").gets("+PONG");
    }
    wait_for("all of them to be counted", || proxy.metric("lockwarden_client_connections") == CLIENTS as f64);
    proxy.asks_to_stop();
    let mut ends: Vec<Instant> = thread::scope(|scope| {
        let waiting = clients.into_iter().map(|client| {
            scope.spawn(move || {
                client.then().gets_close();
                Instant::now()
            })
        });
        let waiting: Vec<_> = waiting.collect();
        waiting.into_iter().map(|thread| thread.join().expect("it was closed")).collect()
    });
    ends.sort();
    let took = ends[CLIENTS - 1] - ends[0];
    assert!(took >= Duration::from_millis(400), "all within {took:?}");
    let middle = ends[CLIENTS / 2] - ends[0];
    assert!(middle >= took / 5 && middle <= took * 4 / 5, "{middle:?} of {took:?}");
    assert_eq!(proxy.ends(), Some(0));
}

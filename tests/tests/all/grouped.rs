//! Steps about locks that many clients send at the same moment go to Redis as one script. No client notices,
//! whatever happens to the steps of the others. The tests freeze the proxy while clients send, so that it
//! finds all requests at once.

use std::time::Duration;

use lockwarden_tests::{Client, Proxy, Redis, encode, wait_for};

mod of_their_own;

const CLIENTS: usize = 12;

fn started(redis: &Redis) -> Proxy {
    Proxy::builder(redis).multiplexed().ceiling("60s").start()
}

/// Clients that are known to the proxy already.
fn clients(proxy: &Proxy, login: Option<&str>) -> Vec<Client> {
    let clients = (0..CLIENTS).map(|at| proxy.client_from(&format!("127.44.0.{}", at + 1)));
    let know = |(at, client): (usize, &Client)| {
        if let Some(login) = login {
            client.sends(login).gets("+OK");
        }
        client.sends(format!("SET lock:first-{at} 1 NX PX 9000")).gets("+OK");
    };
    let clients: Vec<Client> = clients.collect();
    clients.iter().enumerate().for_each(know);
    clients
}

/// All of them ask, and the proxy reads none of it before the last one has.
fn ask_at_once(proxy: &Proxy, clients: &[Client], line: impl Fn(usize) -> String) {
    proxy.freeze();
    for (at, client) in clients.iter().enumerate() {
        let line = line(at);
        client.write(&encode(&line.split(' ').collect::<Vec<_>>()));
    }
    proxy.thaw();
}

#[track_caller]
fn each_gets(clients: &[Client], reply: impl Fn(usize) -> &'static str) {
    for (at, client) in clients.iter().enumerate() {
        client.then().gets(reply(at));
    }
}

/// Each takes a lock of its own, in the same moment.
#[track_caller]
fn take_at_once(proxy: &Proxy, clients: &[Client], name: &str) {
    ask_at_once(proxy, clients, |at| format!("SET lock:{name}-{at} a NX PX 9000"));
    each_gets(clients, |_| "+OK");
}

/// How many scripts Redis has run for clients.
fn scripts(console: &Client) -> u64 {
    console.calls("eval") + console.calls("evalsha")
}

#[test]
fn locks_of_many_clients_are_taken_extended_and_given_back_by_one_script_each_time() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    let console = redis.client();
    for (line, reply) in [("SET lock:# a# NX PX 9000", "+OK"), ("PEXPIRE lock:# 20000", ":1"), ("DEL lock:#", ":1")] {
        let before = scripts(&console);
        ask_at_once(&proxy, &clients, |at| line.replace('#', &at.to_string()));
        each_gets(&clients, |_| reply);
        // The proxy does something of its own now and then.
        let run = scripts(&console) - before;
        assert!(run <= 4, "{line}: {run} scripts");
        if reply == ":1" && line.starts_with("PEXPIRE") {
            assert!((18_000..=20_000).contains(&redis.pttl("lock:7")), "{}", redis.pttl("lock:7"));
        }
    }
    assert!(redis.is_free("lock:7"));
    proxy.counts("lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"acquired\"}", 2.0 * CLIENTS as f64);
}

#[test]
fn of_many_that_want_one_lock_one_gets_it() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    ask_at_once(&proxy, &clients, |at| format!("SET lock:one a{at} NX PX 9000"));
    let won: Vec<usize> = (0..CLIENTS).filter(|at| clients[*at].then().reply().to_string() == "+OK").collect();
    let [winner] = won[..] else {
        panic!("{won:?} have it");
    };
    assert_eq!(redis.value("lock:one"), format!("${} a{winner}", format!("a{winner}").len()));
    ask_at_once(&proxy, &clients, |_| "DEL lock:one".to_owned());
    each_gets(&clients, |at| if at == winner { ":1" } else { ":0" });
}

#[test]
fn what_is_unusual_about_one_lock_changes_nothing_for_the_others() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    let console = redis.client();
    console.sends("HSET lock:0 a 1").gets(":1");
    console.sends("SET lock:1 outside").gets("+OK");
    console.sends("RPUSH lw:{3oo}:lock:2 no-record").reply();
    clients[3].sends("SET lock:3 mine-and-nobody-elses NX PX 9000").gets("+OK");
    ask_at_once(&proxy, &clients, |at| match at {
        3 => "SET lock:3 mine-and-nobody-elses NX PX 9000".to_owned(),
        _ => format!("SET lock:{at} a{at} NX PX 9000"),
    });
    each_gets(&clients, |at| if matches!(at, 0 | 1 | 3) { "nil" } else { "+OK" });
    assert_eq!(redis.value("lock:1"), "$7 outside");
}

#[test]
fn a_server_that_has_forgotten_the_script_is_told_it_again() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    for round in 0..3 {
        redis.client().sends("SCRIPT FLUSH").gets("+OK");
        take_at_once(&proxy, &clients, &round.to_string());
    }
}

#[test]
fn a_user_who_may_not_touch_one_key_keeps_nobody_from_his() {
    let redis = Redis::start();
    let console = redis.client();
    console.sends("ACL SETUSER app on >secret +@all -@dangerous ~lock:first* ~lock:a* ~lw:*").gets("+OK");
    let proxy = started(&redis);
    let clients = clients(&proxy, Some("AUTH app secret"));
    for round in 0..2 {
        ask_at_once(&proxy, &clients, |at| match at {
            5 => format!("SET lock:b{round} 1 NX PX 9000"),
            _ => format!("SET lock:a{round}-{at} 1 NX PX 9000"),
        });
        for (at, client) in clients.iter().enumerate() {
            match at {
                5 => drop(client.then().gets_error("NOPERM")),
                _ => client.then().gets("+OK"),
            }
        }
    }
}

#[test]
fn a_user_who_loses_a_command_that_only_the_common_script_needs_has_his_locks_all_the_same() {
    let redis = Redis::start();
    let console = redis.client();
    console.sends("ACL SETUSER app on >secret +@all ~*").gets("+OK");
    let proxy = started(&redis);
    let clients = clients(&proxy, Some("AUTH app secret"));
    console.sends("ACL SETUSER app -mget").gets("+OK");
    for round in 0..3 {
        take_at_once(&proxy, &clients, &round.to_string());
    }
}

#[test]
fn where_redis_is_out_of_memory_each_is_told_so_and_nothing_is_left() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    let console = redis.client();
    console.sends("CONFIG SET maxmemory 1").gets("+OK");
    ask_at_once(&proxy, &clients, |at| format!("SET lock:{at} a NX PX 9000"));
    for client in &clients {
        client.then().gets_error("OOM");
    }
    console.sends("CONFIG SET maxmemory 0").gets("+OK");
    assert!((0..CLIENTS).all(|at| redis.is_free(&format!("lock:{at}"))));
    ask_at_once(&proxy, &clients, |at| format!("SET lock:{at} a NX PX 9000"));
    each_gets(&clients, |_| "+OK");
}

#[test]
fn a_server_that_is_a_replica_now_says_so_to_each() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    redis.client().sends("REPLICAOF 127.0.0.1 1").gets("+OK");
    ask_at_once(&proxy, &clients, |at| format!("SET lock:{at} a NX PX 9000"));
    for client in &clients {
        client.then().gets_error("READONLY");
    }
}

/// It is unknown whether the script was run, so no client gets a reply that it has its lock, or that it has
/// not.
#[test]
fn where_the_server_dies_before_it_answers_all_of_them_lose_their_connection() {
    let mut redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    redis.freeze();
    ask_at_once(&proxy, &clients, |at| format!("SET lock:{at} a NX PX 9000"));
    for client in &clients {
        client.hears_nothing_for(Duration::from_millis(10));
    }
    redis.stop();
    for client in &clients {
        client.then().gets_close();
    }
}

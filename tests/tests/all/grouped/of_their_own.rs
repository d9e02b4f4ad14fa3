//! Where each client has its own connection, the default, its steps are grouped with those of other clients while
//! there are many.

use super::*;

fn started(redis: &Redis) -> Proxy {
    Proxy::builder(redis).dedicated().ceiling("60s").start()
}

/// Repeats requests until steps are grouped: for the first ones the shared connection is not open yet.
#[track_caller]
fn go_together(redis: &Redis, proxy: &Proxy, clients: &[Client]) {
    let console = redis.client();
    let mut round = 0;
    wait_for("steps to go together", || {
        let before = scripts(&console);
        ask_at_once(proxy, clients, |at| format!("SET lock:warm-{round}-{at} a NX PX 60000"));
        each_gets(clients, |_| "+OK");
        round += 1;
        scripts(&console) - before < CLIENTS as u64 - 2
    });
}

#[test]
fn steps_of_many_go_together_and_those_of_few_do_not() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    go_together(&redis, &proxy, &clients);
    for (line, reply) in [("SET lock:# a# NX PX 9000", "+OK"), ("PEXPIRE lock:# 20000", ":1"), ("DEL lock:#", ":1")] {
        ask_at_once(&proxy, &clients, |at| line.replace('#', &at.to_string()));
        each_gets(&clients, |_| reply);
    }
    ask_at_once(&proxy, &clients, |at| format!("SET lock:one a{at} NX PX 9000"));
    let won = clients.iter().filter(|client| client.then().reply().to_string() == "+OK");
    assert_eq!(won.count(), 1);
    let console = redis.client();
    let before = scripts(&console);
    for at in 0..10 {
        clients[0].sends(format!("SET lock:alone-{at} a NX PX 9000")).gets("+OK");
    }
    assert!(scripts(&console) - before >= 10);
}

#[test]
fn what_a_client_has_chosen_holds_for_its_steps_too() {
    let redis = Redis::start();
    let console = redis.client();
    console.sends("ACL SETUSER app on >secret +@all ~*").gets("+OK");
    let proxy = started(&redis);
    let clients = clients(&proxy, Some("AUTH app secret"));
    go_together(&redis, &proxy, &clients);
    clients.iter().for_each(|client| client.sends("SELECT 3").gets("+OK"));
    for round in 0..3 {
        take_at_once(&proxy, &clients, &round.to_string());
    }
    console.sends("SELECT 3").gets("+OK");
    assert_eq!(console.sends("EXISTS lock:0-0 lock:1-5 lock:2-11").integer(), 3);
    // A client's rights are those of its own user.
    console.sends("ACL SETUSER app resetkeys ~lock:a* ~lock:first* ~lw:*").gets("+OK");
    for round in 0..2 {
        ask_at_once(&proxy, &clients, |at| format!("SET lock:b{round}-{at} a NX PX 9000"));
        for client in &clients {
            client.then().gets_error("NOPERM");
        }
    }
}

/// A renamed command may have selected a database or a user.
#[test]
fn behind_a_command_that_is_not_known_steps_go_by_the_connection_that_had_it() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    go_together(&redis, &proxy, &clients);
    for client in &clients {
        client.sends("CHOOSE 3").gets_error("ERR unknown command");
    }
    let console = redis.client();
    for round in 0..3 {
        let before = scripts(&console);
        take_at_once(&proxy, &clients, &round.to_string());
        assert!(scripts(&console) - before >= CLIENTS as u64);
    }
}

#[test]
fn a_client_whose_password_was_changed_has_its_locks_by_its_own_connection() {
    let redis = Redis::start();
    let console = redis.client();
    console.sends("ACL SETUSER app on >secret +@all ~*").gets("+OK");
    let proxy = started(&redis);
    let clients = clients(&proxy, Some("AUTH app secret"));
    console.sends("ACL SETUSER app resetpass >another").gets("+OK");
    for round in 0..8 {
        take_at_once(&proxy, &clients, &round.to_string());
    }
    // Nor is the server asked again and again whether it lets them in after all.
    let stats = console.sends("INFO stats").text();
    let denied = stats.lines().find_map(|line| line.strip_prefix("acl_access_denied_auth:"));
    let denied: Option<u32> = denied.map(|denied| denied.trim().parse().expect("a number"));
    assert!(denied.is_none_or(|denied| (1..=2).contains(&denied)), "{denied:?}");
}

#[test]
fn wait_counts_the_replicas_that_have_a_lock_taken_by_a_common_step() {
    let redis = Redis::start();
    let replica = Redis::start();
    replica.client().sends(format!("REPLICAOF 127.0.0.1 {}", redis.address().port())).gets("+OK");
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    wait_for("the replica to be there", || redis.client().sends("WAIT 1 100").integer() == 1);
    go_together(&redis, &proxy, &clients);
    assert_eq!(clients[11].sends("WAIT 1 5000").integer(), 1);
    replica.freeze();
    ask_at_once(&proxy, &clients, |at| format!("SET lock:{at} a NX PX 9000"));
    each_gets(&clients, |_| "+OK");
    for client in &clients {
        client.sends("WAIT 1 30").gets(":0");
    }
    replica.thaw();
    assert_eq!(clients[11].sends("WAIT 1 5000").integer(), 1);
}

#[test]
fn a_client_that_sends_no_more_hears_its_answer_and_the_end() {
    let redis = Redis::start();
    let proxy = started(&redis);
    let clients = clients(&proxy, None);
    go_together(&redis, &proxy, &clients);
    redis.freeze();
    ask_at_once(&proxy, &clients, |at| format!("SET lock:{at} a NX PX 9000"));
    clients.iter().for_each(Client::half_closes);
    redis.thaw();
    for client in &clients {
        assert_eq!(client.reads_to_end().escape_ascii().to_string(), "+OK\\r\\n");
    }
    wait_for("the sessions to end", || proxy.metric("lockwarden_client_connections") == 0.0);
}

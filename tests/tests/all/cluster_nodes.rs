//! One lockwarden in front of each node of a cluster, with `cluster_node = true`: which locks are governed, renewed and found
//! there, and what becomes of them when a replica takes over or slots move.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::Duration;

use lockwarden_tests::{Client, Cluster, Proxy, ProxyBuilder, Redis, Stops, holds_for, wait_for, wait_for_value};

const RENEWED: &str = "lockwarden_keep_alive_renewals_total{namespace=\"locks\",outcome=\"renewed\"}";

fn sidecar(node: &Redis) -> ProxyBuilder {
    Proxy::builder(node).top("cluster_node", "true")
}

/// The keys of a node as it has them itself, without its locks and their records.
#[track_caller]
fn own_keys(node: &Redis) -> Vec<String> {
    let keys = node.client().sends("KEYS lw:{*}:lockwarden-*").reply();
    let mut keys: Vec<String> = keys.elements().iter().map(|key| key.clone().text()).collect();
    keys.sort();
    keys
}

#[test]
fn locks_of_each_node_are_governed_by_the_proxy_before_it() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxies: Vec<Proxy> = (0..3).map(|at| sidecar(cluster.node(at)).start()).collect();
    for (at, proxy) in proxies.iter().enumerate() {
        let (alice, bob) = (proxy.client(), proxy.client());
        let lock = &cluster.locks_of(at, 1)[0];
        alice.sends(format!("SET {lock} a1 NX PX 9000")).gets("+OK");
        bob.sends(format!("SET {lock} b1 NX PX 9000")).gets("nil");
        bob.sends(format!("DEL {lock}")).gets(":0");
        alice.sends(format!("DEL {lock}")).gets(":1");
        assert!(cluster.node(at).fence(lock) > 0, "{lock}");
    }
    // A client that asks the wrong node is redirected in the server's own words, and nothing has happened
    // there.
    let lock = &cluster.locks_of(1, 1)[0];
    let moved = format!("MOVED {} {}", cluster.slot(lock), cluster.node(1).address());
    proxies[0].client().sends(format!("SET {lock} c1 NX PX 9000")).gets_error(&moved);
    // Locks in two slots are the server's to refuse, too.
    let [one, two] = &cluster.locks_of(0, 2)[..] else { unreachable!("two were asked for") };
    proxies[0].client().sends(format!("DEL {one} {two}")).gets_error("CROSSSLOT");
    // The proxy's keys that belong to no lock are on each node, and no client sees them.
    for (at, proxy) in proxies.iter().enumerate() {
        let keys = own_keys(cluster.node(at));
        assert!(keys.iter().any(|key| key.ends_with("}:lockwarden-prefix")), "{keys:?}");
        assert!(keys.iter().all(|key| cluster.home_of(key) == at), "{keys:?}");
        let client = proxy.client();
        client.sends("KEYS *lockwarden*").gets("[]");
        client.sends(format!("GET {}", keys[0])).gets_error("LOCKDENIED");
        client
            .sends("EVAL \"return redis.call('del', 'lw:{' .. ARGV[1])\" 0 x}:lockwarden-prefix")
            .gets_error("LOCKDENIED");
    }
}

#[test]
fn many_leases_of_a_node_are_renewed_and_found_by_the_next_proxy() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let node = cluster.node(2);
    let first = sidecar(node).default_ttl("2s").start();
    let locks = cluster.locks_of(2, 40);
    let alice = first.client_from("127.41.0.1");
    for lock in &locks {
        alice.sends(format!("SETNX {lock} a1")).gets(":1");
    }
    let console = node.client();
    let held = |client: &Client| locks.iter().all(|lock| client.sends(format!("EXISTS {lock}")).integer() == 1);
    holds_for(Duration::from_secs(4), "all locks are held", || held(&console));
    assert!(first.metric(RENEWED) >= 80.0);
    let index = own_keys(node).into_iter().find(|key| key.ends_with("-kept")).expect("an index");
    assert_eq!(console.sends(format!("ZCARD {index}")).integer(), 40);

    let second = sidecar(node).default_ttl("2s").start();
    let follower = second.client_from("127.41.0.1");
    follower.sends("PING").gets("+PONG");
    drop(alice);
    first.kill();
    holds_for(Duration::from_secs(5), "all locks are held", || held(&console));
    // The server runs scripts still, which Valkey 9.1 does not once one of them has touched two slots with one command.
    console.sends("EVAL return(1) 0").gets(":1");
}

#[test]
fn the_proxy_before_a_replica_grants_locks_once_that_is_the_primary() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::with_replicas();
    let open = sidecar(cluster.node(3)).top("listen", "\"0.0.0.0:0\"").without_waiting().start();
    open.logs(&["ERROR", "no client is served", "allow_open"]);
    let end = sidecar(cluster.node(3)).check_backend();
    assert!(end.stdout.contains("the node has no slots of its own, and so grants no lock"), "{end:?}");
    assert!(!end.stdout.contains("replica"), "{end:?}");
    let [old, new] =
        [0, 3].map(|at| sidecar(cluster.node(at)).namespace("quarantine", "\"1500ms\"").without_waiting().start());
    let serves = |proxy: &Proxy| proxy.ready() == Some(200);
    wait_for("both proxies to serve", || serves(&old) && serves(&new));
    let [lock, free, last] = &cluster.locks_of(0, 3)[..] else { unreachable!("three were asked for") };
    // A replica is read by clients that take stale data; one that wants a lock is sent on by the node itself.
    let reader = new.client();
    let moved = format!("MOVED {} {}", cluster.slot(lock), cluster.node(0).address());
    reader.sends(format!("SET {lock} r1 NX PX 9000")).gets_error(&moved);
    reader.sends("READONLY").gets("+OK");
    reader.sends(format!("GET {lock}")).gets("nil");
    // A quarantine is over some time after the first proxy has come.
    wait_for("the first quarantine to be over", || {
        old.client().sends(format!("SET {lock} a1 NX PX 9000")).reply().to_string() == "+OK"
    });
    cluster.hands_over_to(3);
    let client = new.client();
    wait_for("the lock to be known behind the new primary's proxy", || {
        client.sends(format!("SET {lock} b1 NX PX 9000")).reply().to_string() == "nil"
    });
    // A lock that was held may have been lost, so a free lock is not granted yet.
    client.sends(format!("SET {free} b1 NX PX 9000")).gets("nil");
    wait_for("the quarantine to be over", || {
        client.sends(format!("SET {free} b1 NX PX 9000")).reply().to_string() == "+OK"
    });
    // A client that asks the old one is redirected.
    let moved = format!("MOVED {} {}", cluster.slot(lock), cluster.node(3).address());
    wait_for("the old primary's proxy to send its clients on", || {
        old.client().sends(format!("SET {lock} c1 NX PX 9000")).reply().to_string().contains(&moved)
    });
    // What it knew from when it was the primary counts no more when it is that again.
    cluster.hands_over_to(0);
    let first = wait_for_value("an answer of its own", || {
        let reply = old.client().sends(format!("SET {last} c1 NX PX 9000")).reply().to_string();
        (!reply.starts_with('-')).then_some(reply)
    });
    assert_eq!(first, "nil");
}

#[test]
fn what_is_about_no_lock_follows_the_lowest_slot_of_the_node() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxies: Vec<Proxy> = (0..3)
        .map(|at| sidecar(cluster.node(at)).namespace("quarantine", "\"2s\"").without_waiting().start())
        .collect();
    let locks = cluster.locks_of(1, 3);
    wait_for("the proxies to serve", || proxies.iter().all(|proxy| proxy.ready() == Some(200)));
    let client = proxies[1].client();
    wait_for("the quarantine to be over", || {
        client.sends(format!("SET {} a1 NX PX 9000", locks[0])).reply().to_string() == "+OK"
    });
    let before = own_keys(cluster.node(1));
    // Now node 1 has the lowest slot of node 0, with what that had left there.
    cluster.moves_slot(0, 0, 1);
    wait_for("the keys to stand elsewhere", || {
        let now = own_keys(cluster.node(1));
        let lowest = |key: &&String| cluster.slot(key) == 0;
        now.iter().filter(lowest).filter(|key| key.ends_with("-era") || key.ends_with("-prefix")).count() == 2
            && now.len() > before.len()
    });
    // The same server goes on as the primary: nothing is in quarantine anew.
    holds_for(Duration::from_secs(3), "free locks are granted", || {
        client.sends(format!("SET {} a1 NX PX 9000", locks[1])).reply().to_string() == "+OK"
            && client.sends(format!("DEL {}", locks[1])).integer() == 1
    });
}

#[test]
fn a_node_and_a_server_that_is_none_are_told_apart() {
    if Cluster::is_lacking() {
        return;
    }
    let (cluster, single) = (Cluster::start(), Redis::start());
    for (builder, words) in [
        (
            Proxy::builder(cluster.node(0)),
            "write redis-cluster:// for all of it, say cluster_node = true where one lockwarden stands before each node",
        ),
        (
            sidecar(&single),
            "the backend is not in cluster mode, although cluster_node = true or redis-cluster:// says so",
        ),
    ] {
        let end = builder.check_backend();
        assert!(end.code == Some(1) && end.stdout.contains(words), "{end:?}");
        let proxy = builder.without_waiting().start();
        proxy.logs(&["ERROR", "no client is served", words]);
        assert_eq!(proxy.ready(), Some(503));
        proxy.client().sends("SETNX lock:job a1").gets_close();
    }
    // A replica is read in a cluster only.
    let address = single.address();
    let replica = Redis::with_arguments(&["--replicaof", &format!("{} {}", address.ip(), address.port())]);
    let proxy = sidecar(&replica).without_waiting().start();
    proxy.logs(&["ERROR", "no client is served", "the backend is not in cluster mode"]);
    assert_eq!(proxy.ready(), Some(503));
    // Clients of a cluster go where its nodes say; most servers can only say where they are themselves.
    let node = cluster.node(0).client();
    let can_announce = !node.sends("CONFIG GET cluster-announce-client-port").reply().elements().is_empty();
    let end = sidecar(cluster.node(0)).top("listen", "\"127.0.0.1:6391\"").check_backend();
    let words = match can_announce {
        true => "CONFIG SET cluster-announce-client-port 6391",
        false => "clients of the cluster are told the node's own address, and go past lockwarden",
    };
    assert!(end.code == Some(1) && end.stdout.contains(words), "{end:?}");
    if can_announce {
        node.sends("CONFIG SET cluster-announce-client-port 6391").gets("+OK");
        let end = sidecar(cluster.node(0)).top("listen", "\"127.0.0.1:6391\"").check_backend();
        assert!(end.code == Some(0) && end.stdout.contains("are told to come by port 6391"), "{end:?}");
    }
}

/// A client of a cluster that asks the proxy before a node, and goes where it is sent: by the address of the node, as it knows
/// which proxy stands before which.
struct Router<'a> {
    cluster: &'a Cluster,
    clients: Vec<Client>,
}

impl<'a> Router<'a> {
    /// A client at this address of the machine.
    fn new(cluster: &'a Cluster, proxies: &[Proxy], address: &str) -> Router<'a> {
        Router { cluster, clients: proxies.iter().map(|proxy| proxy.client_from(address)).collect() }
    }

    /// Which proxy stands before the node that an error names.
    fn named(&self, error: &str) -> usize {
        let place = error.trim().rsplit(' ').next().expect("a place");
        let at = (0..self.clients.len()).find(|at| self.cluster.node(*at).address().to_string() == place);
        at.unwrap_or_else(|| panic!("{error} names no node"))
    }

    /// The reply of the right node, and how often the request was redirected; like libraries, it repeats the request a
    /// few times after a TRYAGAIN.
    #[track_caller]
    fn asks(&self, first: usize, line: &str) -> (String, usize) {
        let (mut at, mut asking) = (first, false);
        for hops in 0..16 {
            if asking {
                self.clients[at].sends("ASKING").gets("+OK");
            }
            let reply = self.clients[at].sends(line).reply().to_string();
            (at, asking) = match reply.split(' ').next() {
                Some("-ASK") => (self.named(&reply), true),
                Some("-MOVED") => (self.named(&reply), false),
                Some("-TRYAGAIN") => (first, false),
                _ => return (reply, hops),
            };
        }
        panic!("{line} was sent to and fro");
    }
}

/// Which keys of a lock are on which node when its slot is about to move.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lies {
    Nowhere,
    Source,
    Target,
}

#[test]
fn a_lock_whose_slot_moves_is_the_same_lock_on_both_nodes() {
    use Lies::{Nowhere, Source, Target};

    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxies: Vec<Proxy> = (0..3).map(|at| sidecar(cluster.node(at)).start()).collect();
    let address = cluster.node(1).address();
    let states =
        [(Nowhere, Nowhere), (Nowhere, Source), (Target, Source), (Source, Target), (Source, Source), (Target, Target)];
    for (number, (lock, (value, record))) in cluster.locks_of(0, states.len()).iter().zip(states).enumerate() {
        // A client that has given back what was not its own is not believed for a while.
        let [alice, bob] = [1, 2].map(|last| Router::new(&cluster, &proxies, &format!("127.42.{number}.{last}")));
        let (slot, lies) = (cluster.slot(lock), format!("{lock}: value {value:?}, record {record:?}"));
        let console = cluster.node(0).client();
        if record != Nowhere {
            alice.clients[0].sends(format!("SET {lock} a1 NX PX 20000")).gets("+OK");
            // Her connections to other nodes are hers by the process, which the proxy looks up at its leisure.
            wait_for("her process to be known", || {
                cluster.node(0).record(lock).is_some_and(|record| record.process_is_known())
            });
            if value == Nowhere {
                alice.clients[0].sends(format!("DEL {lock}")).gets(":1");
            }
        }
        let before = cluster.node(0).record(lock).map_or(0, |record| record.fence);
        cluster.opens_slot(slot, 0, 1);
        let record_key = format!("lw:{{*}}:{lock}");
        let names = console.sends(format!("KEYS {record_key}")).reply();
        for (key, place) in
            [(Some(lock.clone()), value), (names.elements().first().map(|key| key.clone().text()), record)]
        {
            if let (Some(key), Target) = (key, place) {
                console.sends(format!("MIGRATE {} {} {key} 0 5000", address.ip(), address.port())).gets("+OK");
            }
        }
        // Held or free, it is so for every client.
        let is_held = value != Nowhere;
        let (taken, hops) = bob.asks(0, &format!("SET {lock} b1 NX PX 20000"));
        assert_eq!(taken, if is_held { "nil" } else { "+OK" }, "{lies}");
        assert!(hops <= 1, "{lies}: {hops}");
        let (holder, other, token) = if is_held { (&alice, &bob, "a1") } else { (&bob, &alice, "b1") };
        assert_eq!(other.asks(0, &format!("SET {lock} c1 NX PX 20000")).0, "nil", "{lies}");
        assert_eq!(other.asks(0, &format!("DEL {lock}")).0, ":0", "{lies}");
        assert_eq!(other.asks(0, &format!("GET {lock}")).0, format!("$2 {token}"), "{lies}");
        assert_eq!(holder.asks(0, &format!("PEXPIRE {lock} 15000")).0, ":1", "{lies}");
        assert_eq!(holder.asks(0, &format!("DEL {lock}")).0, ":1", "{lies}");
        // Fencing tokens go on where the record has gone.
        assert_eq!(other.asks(0, &format!("SET {lock} d1 NX PX 20000")).0, "+OK", "{lies}");
        cluster.moves_keys(slot, 0, 1);
        cluster.closes_slot(slot, 1);
        assert_eq!(other.asks(0, &format!("GET {lock}")).0, "$2 d1", "{lies}");
        assert!(cluster.node(1).fence(lock) > before, "{lies}");
    }
    cluster.is_whole();
}

#[test]
fn a_lease_that_is_kept_alive_is_renewed_where_its_slot_still_moves_to() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxies: Vec<Proxy> = (0..3).map(|at| sidecar(cluster.node(at)).default_ttl("1s").start()).collect();
    let alice = Router::new(&cluster, &proxies, "127.42.0.1");
    let lock = &cluster.locks_of(0, 1)[0];
    let slot = cluster.slot(lock);
    cluster.opens_slot(slot, 0, 1);
    assert_eq!(alice.asks(0, &format!("SETNX {lock} 1")), (":1".to_owned(), 1));
    let bob = Router::new(&cluster, &proxies, "127.42.0.2");
    holds_for(Duration::from_secs(4), "the lock is held", || bob.asks(0, &format!("SETNX {lock} 2")).0 == ":0");
    cluster.closes_slot(slot, 1);
    assert_eq!(alice.asks(0, &format!("DEL {lock}")).0, ":1");
}

#[test]
fn no_lock_has_two_holders_while_its_slot_moves_to_and_fro() {
    const CLIENTS: usize = 4;

    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxies: Vec<Proxy> = (0..3).map(|at| sidecar(cluster.node(at)).start()).collect();
    let locks = cluster.locks_of(0, 3);
    let held: Vec<AtomicUsize> = locks.iter().map(|_| AtomicUsize::new(0)).collect();
    let (granted, twice, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let router = Router::new(&cluster, &proxies, &format!("127.43.0.{number}"));
            let (locks, held, granted, twice, is_over) = (&locks, &held, &granted, &twice, &is_over);
            scope.spawn(move || {
                let mut turn = number;
                while !is_over.load(Relaxed) {
                    turn += 1;
                    let at = turn % locks.len();
                    let lock = &locks[at];
                    if router.asks(turn % 2, &format!("SET {lock} c{number} NX PX 20000")).0 != "+OK" {
                        continue;
                    }
                    granted.fetch_add(1, Relaxed);
                    twice.fetch_add(held[at].fetch_add(1, Relaxed), Relaxed);
                    held[at].fetch_sub(1, Relaxed);
                    assert_eq!(router.asks(turn % 2, &format!("DEL {lock}")).0, ":1");
                }
            });
        }
        let _stops = Stops(&is_over);
        cluster.moves_to_and_fro(&locks, &granted);
    });
    assert_eq!(twice.load(Relaxed), 0);
    assert!(granted.load(Relaxed) > 100, "{granted:?}");
}

/// Where nodes announce the proxies in front of them, tools that move slots use these addresses, too.
#[test]
fn a_node_hands_its_locks_over_through_the_proxy_before_the_other() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxies: Vec<Proxy> = (0..2).map(|at| sidecar(cluster.node(at)).start()).collect();
    let lock = &cluster.locks_of(0, 1)[0];
    proxies[0].client().sends(format!("SET {lock} a1 NX PX 20000")).gets("+OK");
    let (before, console) = (cluster.node(0).fence(lock), cluster.node(0).client());
    let slot = cluster.slot(lock);
    cluster.opens_slot(slot, 0, 1);
    // From anywhere else it is a write like any other.
    let dump = console.sends(format!("DUMP {lock}")).reply();
    let words: [&[u8]; 4] = [b"RESTORE-ASKING", lock.as_bytes(), b"0", dump.bytes()];
    proxies[1].client().sends_arguments(&words).gets_error("LOCKDENIED opaque-write");
    cluster.moves_keys_by(slot, 0, proxies[1].address());
    cluster.closes_slot(slot, 1);
    let bob = proxies[1].client();
    bob.sends(format!("SET {lock} b1 NX PX 20000")).gets("nil");
    assert_eq!(cluster.node(1).fence(lock), before);
}

#[test]
fn guarded_data_whose_slot_moves_is_written_by_the_holder_only() {
    if Cluster::is_lacking() {
        return;
    }
    const GUARD: &str =
        "[[guard]]\nname = \"stock\"\nkeys = ['stock:\\{{id}\\}']\nlock = 'lock:\\{{id}\\}'\nmode = \"enforce\"\n";

    let cluster = Cluster::start();
    let proxies: Vec<Proxy> = (0..3).map(|at| sidecar(cluster.node(at)).more(GUARD).start()).collect();
    let [alice, bob] = [1, 2].map(|last| Router::new(&cluster, &proxies, &format!("127.44.0.{last}")));
    let id = (0..).find(|id| cluster.home_of(&format!("lock:{{{id}}}")) == 0).expect("an id");
    let (lock, stock) = (format!("lock:{{{id}}}"), format!("stock:{{{id}}}"));
    let slot = cluster.slot(&lock);
    assert_eq!(alice.asks(0, &format!("SET {lock} a1 NX PX 20000")).0, "+OK");
    let console = cluster.node(0).client();
    let write = |router: &Router<'_>, value: u8| router.asks(0, &format!("SET {stock} {value}")).0;
    assert_eq!(write(&alice, 1), "+OK");
    assert!(write(&bob, 2).starts_with("-LOCKDENIED"));
    cluster.opens_slot(slot, 0, 1);
    cluster.moves_keys(slot, 0, 1);
    // All has gone, and the slot is still open.
    assert!(write(&bob, 3).starts_with("-LOCKDENIED"));
    assert_eq!(bob.asks(0, &format!("GET {stock}")).0, "$1 1");
    cluster.closes_slot(slot, 1);
    assert!(write(&bob, 4).starts_with("-LOCKDENIED"));
    assert_eq!(console.sends(format!("EXISTS {stock}")).reply().to_string().split(' ').next(), Some("-MOVED"));
    assert_eq!(bob.asks(0, &format!("GET {stock}")).0, "$1 1");
}

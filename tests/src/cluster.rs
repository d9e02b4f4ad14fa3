//! A cluster of real servers: three primaries, each with a replica where a test wants one. A test can move slots and let
//! primaries fail.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::client::Client;
use crate::deadline::wait_for;
use crate::ports::free_port;
use crate::redis::Redis;
use crate::reply::Reply;
use crate::server::Server;

/// The first and last slot of each primary.
const RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];
/// After so long without an answer, in ms, the others take a node for failed.
const NODE_TIMEOUT_MS: &str = "1500";

/// Dropping it kills all nodes.
pub struct Cluster {
    /// The primaries, in the order of their slots, then their replicas in the same order.
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Whether the server under test is too old for it; if so, prints that.
    pub fn is_lacking() -> bool {
        Server::under_test().lacks("a port of its own for the bus of a cluster", 7, 0)
    }

    /// Three primaries.
    #[track_caller]
    pub fn start() -> Cluster {
        Cluster::of(3)
    }

    /// With a replica each.
    #[track_caller]
    pub fn with_replicas() -> Cluster {
        Cluster::of(6)
    }

    /// One primary, which has all slots.
    #[track_caller]
    pub fn of_one() -> Cluster {
        let cluster = Cluster { nodes: vec![node()] };
        cluster.nodes[0].has_all_slots();
        // It has met no other node, from which it would have learned its address.
        cluster.nodes[0].client().sends("CONFIG SET cluster-announce-ip 127.0.0.1").gets("+OK");
        cluster
    }

    #[track_caller]
    fn of(nodes: usize) -> Cluster {
        let cluster = Cluster { nodes: (0..nodes).map(|_| node()).collect() };
        let first = cluster.nodes[0].address();
        for (node, (from, to)) in cluster.nodes.iter().zip(RANGES) {
            node.client().sends(format!("CLUSTER ADDSLOTSRANGE {from} {to}")).gets("+OK");
        }
        for node in &cluster.nodes[1..] {
            let bus = bus_port(&cluster.nodes[0]);
            node.client().sends(format!("CLUSTER MEET {} {} {bus}", first.ip(), first.port())).gets("+OK");
        }
        for (at, node) in cluster.nodes.iter().enumerate().skip(RANGES.len()) {
            let primary = cluster.id(at - RANGES.len());
            let client = node.client();
            wait_for("a replica to have a primary", || {
                client.sends(format!("CLUSTER REPLICATE {primary}")).reply().to_string() == "+OK"
            });
        }
        cluster.is_whole();
        cluster
    }

    /// Waits until all nodes know all others, and all slots are served.
    #[track_caller]
    pub fn is_whole(&self) {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        for node in &self.nodes {
            let client = node.client();
            wait_for("the cluster to be whole", || {
                let info = client.sends("CLUSTER INFO").text();
                info.contains("cluster_state:ok") && info.contains(&known)
            });
        }
        for replica in self.nodes.iter().skip(RANGES.len()) {
            let client = replica.client();
            wait_for("a replica to be in step", || {
                client.sends("INFO replication").text().contains("master_link_status:up")
            });
        }
    }

    /// What a configuration calls all of it.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().take(2).map(|node| node.address().to_string()).collect();
        format!("redis-cluster://{}", addresses.join(","))
    }

    /// A node by its number.
    pub fn node(&self, at: usize) -> &Redis {
        &self.nodes[at]
    }

    /// A node ends.
    pub fn kill(&mut self, at: usize) {
        self.nodes[at].stop();
    }

    /// It comes back where it was, with what it knows of the cluster.
    #[track_caller]
    pub fn restart(&mut self, at: usize) {
        self.nodes[at].start_again();
    }

    /// How the cluster calls a node.
    #[track_caller]
    pub fn id(&self, at: usize) -> String {
        self.nodes[at].client().sends("CLUSTER MYID").text()
    }

    /// The slot of a key, as the server says.
    #[track_caller]
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.nodes[0].client().sends(format!("CLUSTER KEYSLOT {key}")).integer();
        slot.try_into().expect("a slot")
    }

    /// The primary that has a key when nothing was moved.
    #[track_caller]
    pub fn home_of(&self, key: &str) -> usize {
        let slot = self.slot(key);
        let at = RANGES.iter().position(|(from, to)| (*from..=*to).contains(&slot));
        at.expect("each slot has a primary")
    }

    /// So many lock keys of one primary, nearly all in slots of their own.
    #[track_caller]
    pub fn locks_of(&self, at: usize, count: usize) -> Vec<String> {
        let names = (0..).map(|number| format!("lock:{number}"));
        names.filter(|name| self.home_of(name) == at).take(count).collect()
    }

    /// A slot goes from one primary to another, with all its keys, as `redis-cli --cluster reshard` moves it.
    #[track_caller]
    pub fn moves_slot(&self, slot: u16, from: usize, to: usize) {
        self.opens_slot(slot, from, to);
        self.moves_keys(slot, from, to);
        self.closes_slot(slot, to);
    }

    /// It is about to move.
    #[track_caller]
    pub fn opens_slot(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (self.nodes[from].client(), self.nodes[to].client());
        target.sends(format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from))).gets("+OK");
        source.sends(format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to))).gets("+OK");
    }

    /// Its keys go over.
    #[track_caller]
    pub fn moves_keys(&self, slot: u16, from: usize, to: usize) {
        self.moves_keys_by(slot, from, self.nodes[to].address());
    }

    /// The same by this address of the other node.
    #[track_caller]
    pub fn moves_keys_by(&self, slot: u16, from: usize, address: SocketAddr) {
        let source = self.nodes[from].client();
        loop {
            let keys = source.sends(format!("CLUSTER GETKEYSINSLOT {slot} 100")).reply();
            if keys.elements().is_empty() {
                return;
            }
            for key in keys.elements() {
                let key = key.clone().text();
                let words = ["MIGRATE", &address.ip().to_string(), &address.port().to_string(), &key, "0", "5000"];
                // A client may give its lock back meanwhile.
                let moved = source.sends_arguments(&words).reply().to_string();
                assert!(["+OK", "+NOKEY"].contains(&&*moved), "{key}: {moved}");
            }
        }
    }

    /// It belongs to that one from now on.
    #[track_caller]
    pub fn closes_slot(&self, slot: u16, to: usize) {
        let id = self.id(to);
        // The new owner first, because it informs the others.
        let rest = (0..RANGES.len()).filter(|at| *at != to);
        for at in std::iter::once(to).chain(rest) {
            self.nodes[at].client().sends(format!("CLUSTER SETSLOT {slot} NODE {id}")).gets("+OK");
        }
    }

    /// The slots of these locks go from the first primary to the second and back, three times, with some of them taken while each is
    /// open: `granted` counts those.
    #[track_caller]
    pub fn moves_to_and_fro(&self, locks: &[String], granted: &AtomicUsize) {
        for round in 0..6 {
            let (from, to) = (round % 2, (round + 1) % 2);
            for lock in locks {
                let slot = self.slot(lock);
                self.opens_slot(slot, from, to);
                let before = granted.load(Relaxed);
                wait_for("locks to be taken while the slot is open", || granted.load(Relaxed) > before + 5);
                self.moves_keys(slot, from, to);
                self.closes_slot(slot, to);
            }
        }
    }

    /// A replica becomes the primary of its shard, as an operator asks.
    #[track_caller]
    pub fn hands_over_to(&self, replica: usize) {
        let client = self.nodes[replica].client();
        wait_for("the hand-over to begin", || client.sends("CLUSTER FAILOVER").reply().to_string() == "+OK");
        wait_for("the replica to be the primary", || is_primary(&client));
    }
}

fn is_primary(client: &Client) -> bool {
    match client.sends("ROLE").reply() {
        Reply::Array(role) => role.first().is_some_and(|role| role.clone().text() == "master"),
        _ => false,
    }
}

/// A server in cluster mode. Its bus port is by default 10,000 above its own port, and may be taken.
#[track_caller]
fn node() -> Redis {
    let bus = free_port().to_string();
    Redis::with_arguments(&[
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        NODE_TIMEOUT_MS,
        // Clients come from any loopback address; protected mode knows only one of them.
        "--protected-mode",
        "no",
    ])
}

#[track_caller]
fn bus_port(node: &Redis) -> u16 {
    let port = node.client().sends("CONFIG GET cluster-port").reply();
    let port = port.elements().last().map(|port| port.clone().text());
    port.and_then(|port| port.parse().ok()).expect("it has a bus")
}

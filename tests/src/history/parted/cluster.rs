//! The servers are a cluster: on each of the three machines a primary, and a replica of the primary on the
//! machine before. All locks belong to the primary on the first machine.

use crate::deadline::wait_for;
use crate::reply::Reply;

use super::{Parted, SERVER_PORT, SERVERS, text_of};

/// Where replicas listen.
const REPLICA_PORT: u16 = 6378;
/// After so long without an answer, in ms, the others take a node for failed.
const NODE_TIMEOUT_MS: &str = "3000";
/// The first and last slot of each primary.
const RANGES: [(u16, u16); SERVERS] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];
/// A slot of the first.
const SLOT: u16 = 0;

impl Parted {
    #[track_caller]
    pub(super) fn starts_cluster(&mut self) {
        for machine in 0..SERVERS {
            for port in [SERVER_PORT, REPLICA_PORT] {
                let bus = bus(port).to_string();
                let words =
                    ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", NODE_TIMEOUT_MS];
                self.starts_server(machine, port, &words);
            }
        }
        for (machine, (first, last)) in RANGES.iter().enumerate() {
            self.is_ok(machine, SERVER_PORT, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for (machine, port) in nodes().skip(1) {
            let host = self.machines.machine(0).address().to_string();
            let words = ["CLUSTER", "MEET", &host, &SERVER_PORT.to_string(), &bus(SERVER_PORT).to_string()];
            self.is_ok(machine, port, &words);
        }
        for primary in 0..SERVERS {
            let id = text_of(self.asks(primary, SERVER_PORT, &["CLUSTER", "MYID"]));
            wait_for("a replica to have a primary", || {
                let reply = self.asks(after(primary), REPLICA_PORT, &["CLUSTER", "REPLICATE", &id]);
                text_of(reply) == "OK"
            });
        }
        let names = (0..).map(|number| format!("lock:{{{number}}}"));
        let here = names.filter(|name| {
            let slot = self.asks(0, SERVER_PORT, &["CLUSTER", "KEYSLOT", name]);
            matches!(slot, Some(Reply::Integer(slot)) if slot <= i64::from(RANGES[0].1))
        });
        self.locks = here.take(self.locks.len()).collect();
    }

    /// Waits until every node knows all others, none has failed, and the first machine has the primary of the locks.
    #[track_caller]
    pub(super) fn cluster_is_in_order(&self) {
        self.agreed("the nodes of the cluster to be in order", |parted| {
            let is_well = |(machine, port): (usize, u16)| {
                let told = parted.told(machine, port);
                let info = text_of(parted.asks(machine, port, &["INFO", "replication"]));
                told.lines().count() == nodes().count()
                    && !told.contains("fail")
                    && (info.contains("role:master") || info.contains("master_link_status:up"))
            };
            if !nodes().all(is_well) {
                return None;
            }
            match parted.named_by_nodes(&[0, 1, 2]) {
                Some(0) => Some(()),
                // The node that lost its place takes it again.
                Some(_) => {
                    parted.asks(0, SERVER_PORT, &["CLUSTER", "FAILOVER"]);
                    None
                }
                None => None,
            }
        });
    }

    /// The machine whose node has the slot of the locks, as every node of these machines says.
    pub(super) fn named_by_nodes(&self, machines: &[usize]) -> Option<usize> {
        let asked = nodes().filter(|(machine, _)| machines.contains(machine));
        let mut named = asked.map(|(machine, port)| owner(&self.told(machine, port)));
        let first = named.next()??;
        if !named.all(|one| one.as_deref() == Some(&first)) {
            return None;
        }
        (0..SERVERS).find(|machine| first.starts_with(&format!("{}:", self.machines.machine(*machine).address())))
    }

    fn told(&self, machine: usize, port: u16) -> String {
        text_of(self.asks(machine, port, &["CLUSTER", "NODES"]))
    }

    #[track_caller]
    fn is_ok(&self, machine: usize, port: u16, words: &[&str]) {
        let reply = self.asks(machine, port, words);
        assert_eq!(reply, Some(Reply::Status("OK".to_owned())), "{words:?}");
    }
}

/// The machine and port of each node.
fn nodes() -> impl Iterator<Item = (usize, u16)> {
    (0..SERVERS).flat_map(|machine| [(machine, SERVER_PORT), (machine, REPLICA_PORT)])
}

/// The machine that has the replica of the primary on this one.
fn after(machine: usize) -> usize {
    (machine + 1) % SERVERS
}

fn bus(port: u16) -> u16 {
    port + 10_000
}

/// The address of the node that has the slot of the locks, by the reply of one node.
fn owner(told: &str) -> Option<String> {
    let slots = format!("{SLOT}-");
    let mut lines = told.lines().map(|line| line.split(' '));
    lines.find_map(|mut words| {
        let address = words.nth(1)?.to_owned();
        words.any(|word| word.starts_with(&slots)).then_some(address)
    })
}

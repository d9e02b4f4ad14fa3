//! Sentinels watch over a primary and two replicas, with one of them on each of the three machines.

use std::process::Command;

use crate::reply::Reply;
use crate::server::Server;

use super::{ERA, MASTER, Parted, SENTINEL_PORT, SERVER_PORT, SERVERS, text_of};

impl Parted {
    #[track_caller]
    pub(super) fn starts_sentinels(&mut self) {
        for number in 0..SERVERS {
            self.starts_server(number, SERVER_PORT, &[]);
        }
        let primary = self.address(0, SERVER_PORT);
        for number in 1..SERVERS {
            let (host, port) = (primary.ip().to_string(), primary.port().to_string());
            self.asks(number, SERVER_PORT, &["REPLICAOF", &host, &port]);
        }
        // It has been the primary for long, so that its quarantine is over.
        let info = text_of(self.asks(0, SERVER_PORT, &["INFO", "server"]));
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        self.asks(0, SERVER_PORT, &["SET", ERA, &format!("{} 1000", run.expect("it says so").trim())]);
        for number in 0..SERVERS {
            let file = self.folder.path().join(format!("sentinel-{number}.conf"));
            let mut text = format!(
                "bind 0.0.0.0\nprotected-mode no\nsentinel monitor {MASTER} {} {} 2\n\
                 sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 4000\n",
                primary.ip(),
                primary.port(),
            );
            for (key, value) in self.words_of_port(SENTINEL_PORT) {
                text.push_str(&format!("{key} {value}\n"));
            }
            std::fs::write(&file, text).expect("the folder is ours");
            let mut command = Command::new(Server::under_test().program());
            command.arg(&file).arg("--sentinel");
            self.starts(number, &mut command);
        }
        for number in 0..SERVERS {
            self.comes_up(number, SENTINEL_PORT);
        }
    }

    /// Waits until all sentinels name one server, which is the primary of the two others.
    #[track_caller]
    pub(super) fn sentinels_are_in_order(&self) {
        self.agreed("servers and sentinels to be in order", |parted| {
            let primary = parted.named_by_sentinels(&[0, 1, 2])?;
            let is_well = |number: usize| {
                let reply = parted.asks(number, SERVER_PORT, &["INFO", "replication"]);
                let info = text_of(reply);
                let is = |words: &[&str]| words.iter().all(|word| info.contains(word));
                let follows = format!("master_host:{}\r\n", parted.machines.machine(primary).address());
                match number == primary {
                    true => is(&["role:master", "connected_slaves:2"]),
                    false => is(&["role:slave", "master_link_status:up", &follows]),
                }
            };
            let sees_all = |number: usize| {
                let reply = parted.asks(number, SENTINEL_PORT, &["SENTINEL", "CKQUORUM", MASTER]);
                text_of(reply).starts_with("OK 3 usable")
            };
            (0..SERVERS).all(|number| is_well(number) && sees_all(number)).then_some(())
        });
    }

    /// The server that at least two of these sentinels name, and no other of them does otherwise.
    pub(super) fn named_by_sentinels(&self, sentinels: &[usize]) -> Option<usize> {
        let named = sentinels.iter().map(|number| {
            match self.asks(*number, SENTINEL_PORT, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])? {
                Reply::Array(parts) => parts.first().map(Reply::text),
                _ => None,
            }
        });
        let named: Vec<Option<String>> = named.collect();
        let first = named.first()?.clone()?;
        let agree = named.iter().all(|one| one.as_ref() == Some(&first));
        let mut servers = 0..SERVERS;
        servers.find(|server| self.machines.machine(*server).address().to_string() == first).filter(|_| agree)
    }
}

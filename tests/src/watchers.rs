//! Two real sentinels that watch one server without replicas: programs that look for a primary find these where
//! there is no proxy.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::client::Client;
use crate::deadline::wait_for;
use crate::ports::free_port;
use crate::process::Process;
use crate::redis::Redis;
use crate::server::Server;

/// Two that know each other. Dropping it kills them.
pub struct Watchers {
    addresses: Vec<SocketAddr>,
    _processes: Vec<Process>,
    _directory: TempDir,
}

impl Watchers {
    /// They call the server `mymaster`, and are up when they have found each other.
    #[track_caller]
    pub fn of(redis: &Redis) -> Watchers {
        let directory = tempfile::tempdir().expect("a directory for sentinels");
        let (mut addresses, mut processes) = (Vec::new(), Vec::new());
        while addresses.len() < 2 {
            let port = free_port();
            let config = directory.path().join(format!("{port}.conf"));
            let text = format!(
                "port {port}\nbind 127.0.0.1\nprotected-mode no\ndir {}\nsentinel monitor mymaster 127.0.0.1 {} 1\n",
                directory.path().display(),
                redis.address().port()
            );
            fs::write(&config, text).expect("the directory is ours");
            let mut command = Command::new(Server::under_test().program());
            command.arg(&config).arg("--sentinel");
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut process = Process::spawn(&mut command).expect("the server under test runs");
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            wait_for("a sentinel to listen or to end", || {
                process.has_ended().is_some() || std::net::TcpStream::connect(address).is_ok()
            });
            // Another program may have taken the port meanwhile; then the loop tries another one.
            if process.has_ended().is_none() {
                addresses.push(address);
                processes.push(process);
            }
        }
        let watchers = Watchers { addresses, _processes: processes, _directory: directory };
        for number in 0..2 {
            let client = watchers.client(number);
            wait_for("the sentinels to find each other", || {
                let others = client.sends("SENTINEL SENTINELS mymaster").reply();
                !others.elements().is_empty()
            });
        }
        watchers
    }

    /// Where they are asked.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// A connection to one of them.
    #[track_caller]
    pub fn client(&self, number: usize) -> Client {
        Client::connect_plain_from(Ipv4Addr::LOCALHOST, self.addresses[number])
    }
}

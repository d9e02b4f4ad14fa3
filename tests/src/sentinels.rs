//! A primary, two replicas and three real sentinels, and every way in which a primary loses its place:
//! planned, killed, frozen and woken, cut off from the others, or beside a sentinel that hears nothing of it.
//! Every server and sentinel is reached through a [`Forwarder`], whose address is the announced one, and each
//! connects from an address of its own. So a test can separate any of them from the rest while clients still
//! reach both sides. The sentinels decide about failovers; this module only causes the faults.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::Client;
use crate::deadline::{wait_for, wait_for_value};
use crate::forwarder::Forwarder;
use crate::ports::free_port;
use crate::process::Process;
use crate::redis::Redis;
use crate::reply::Reply;
use crate::server::Server;

/// The name under which the sentinels watch the primary.
const MASTER: &str = "mymaster";
/// After so long without an answer a sentinel takes a server for dead.
const DOWN_AFTER: Duration = Duration::from_secs(1);
/// After twice this a failover that came to nothing is tried again.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(4);
/// Sentinel lets a server that calls itself a primary be one for eight seconds, looks every ten, and the replica
/// copies everything anew.
const IN_ORDER_WITHIN: Duration = Duration::from_secs(60);
/// A sentinel whose clock seems to jump by two seconds, because the machine is busy, does nothing for thirty.
const SWITCHED_WITHIN: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);
const QUORUM: usize = 2;

/// A way in which the primary becomes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failover {
    /// `SENTINEL FAILOVER`: the old primary lives, all can reach it, and it is told some ten seconds later.
    Planned,
    /// The process of the old primary is killed.
    Killed,
    /// It stands still until the others have chosen a new one, and then goes on where it was.
    Frozen,
    /// Sentinels and replicas do not reach it; clients do.
    PrimaryCutOff,
    /// A planned one, of which one sentinel is not told: it goes on naming the old primary.
    SentinelCutOff,
}

impl Failover {
    /// All of them.
    pub const ALL: [Failover; 5] =
        [Failover::Planned, Failover::Killed, Failover::Frozen, Failover::PrimaryCutOff, Failover::SentinelCutOff];

    /// As a table calls it.
    pub fn words(self) -> &'static str {
        match self {
            Failover::Planned => "planned",
            Failover::Killed => "killed",
            Failover::Frozen => "frozen and woken",
            Failover::PrimaryCutOff => "primary cut off",
            Failover::SentinelCutOff => "planned, a sentinel cut off",
        }
    }
}

/// What a failover did.
#[derive(Clone, Copy, Debug)]
pub struct Switched {
    /// The number of the server that was the primary.
    pub from: usize,
    /// The number of the one that is it now.
    pub to: usize,
    /// When it was brought about.
    pub began: Instant,
    /// When most sentinels named the new one.
    pub named: Instant,
}

/// The servers and their sentinels. Dropping it kills them all.
pub struct Sentinels {
    servers: Vec<Node>,
    sentinels: Vec<Sentinel>,
}

/// A server and the address at which others know it.
struct Node {
    redis: Redis,
    way_in: Forwarder,
    /// From where it connects to others.
    source: Ipv4Addr,
}

/// A process of Sentinel and the address at which others know it.
struct Sentinel {
    process: Process,
    address: SocketAddr,
    way_in: Forwarder,
    source: Ipv4Addr,
    _directory: TempDir,
}

impl Sentinels {
    /// Server 0 is the primary, and all servers and sentinels know each other.
    #[track_caller]
    pub fn start() -> Sentinels {
        Sentinels::with_arguments(&[])
    }

    /// The same with these arguments for each server, `--min-replicas-to-write 1` for example.
    #[track_caller]
    pub fn with_arguments(arguments: &[&str]) -> Sentinels {
        assert!(
            Server::under_test().since(7, 0),
            "parties are told apart by bind-source-addr, which came with 7.0: ask Sentinels::are_lacking"
        );
        let servers: Vec<Node> = (0..3).map(|number| Node::start(number, arguments)).collect();
        let primary = servers[0].way_in.address();
        for replica in &servers[1..] {
            let order = format!("REPLICAOF {} {}", primary.ip(), primary.port());
            replica.redis.client().sends(order).gets("+OK");
        }
        let sentinels = (0..3).map(|number| Sentinel::start(number, primary)).collect();
        let all = Sentinels { servers, sentinels };
        all.are_in_order();
        all
    }

    /// Whether the server is too old for this; if so, prints that on the terminal.
    pub fn are_lacking() -> bool {
        Server::under_test().lacks("bind-source-addr", 7, 0)
    }

    /// What a configuration calls them.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        format!("redis-sentinel://{}/{MASTER}", addresses.join(","))
    }

    /// Where the sentinels are asked.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let each = self.sentinels.iter();
        each.map(|sentinel| sentinel.way_in.address()).collect()
    }

    /// The server with this number.
    pub fn server(&self, number: usize) -> &Redis {
        &self.servers[number].redis
    }

    /// The address under which sentinels and clients know it.
    pub fn server_address(&self, number: usize) -> SocketAddr {
        self.servers[number].way_in.address()
    }

    /// The forwarder in front of it, which can freeze and close connections.
    pub fn way_to_server(&self, number: usize) -> &Forwarder {
        &self.servers[number].way_in
    }

    /// The forwarder in front of a sentinel.
    pub fn way_to_sentinel(&self, number: usize) -> &Forwarder {
        &self.sentinels[number].way_in
    }

    /// A connection to a sentinel.
    #[track_caller]
    pub fn sentinel(&self, number: usize) -> Client {
        Client::connect_from(Ipv4Addr::LOCALHOST, self.sentinels[number].way_in.address())
    }

    /// Kills a sentinel for good.
    pub fn kills_sentinel(&mut self, number: usize) {
        self.sentinels[number].process.kill();
    }

    /// Parts a sentinel from servers and other sentinels; clients reach it, and it goes on naming what it knew.
    pub fn cuts_off_sentinel(&self, number: usize) {
        let source = IpAddr::from(self.sentinels[number].source);
        let servers = self.servers.iter().map(|node| &node.way_in);
        let others = self.sentinels.iter().map(|other| &other.way_in);
        servers.chain(others).for_each(|way| way.cuts_off(source));
        for other in self.sentinels.iter().filter(|other| IpAddr::from(other.source) != source) {
            self.sentinels[number].way_in.cuts_off(other.source.into());
        }
    }

    /// Parts a server from the other servers and from the sentinels; clients reach it.
    pub fn cuts_off_server(&self, number: usize) {
        let cut_off = &self.servers[number];
        for node in self.servers.iter().filter(|node| node.source != cut_off.source) {
            node.way_in.cuts_off(cut_off.source.into());
            cut_off.way_in.cuts_off(node.source.into());
        }
        for sentinel in &self.sentinels {
            cut_off.way_in.cuts_off(sentinel.source.into());
        }
    }

    /// Ends all cuts: all servers and sentinels reach each other again.
    pub fn rejoins_all(&self) {
        let servers = self.servers.iter().map(|node| &node.way_in);
        let sentinels = self.sentinels.iter().map(|sentinel| &sentinel.way_in);
        servers.chain(sentinels).for_each(Forwarder::rejoins_all);
    }

    /// The server that most sentinels name, if most agree.
    pub fn primary(&self) -> Option<usize> {
        let named: Vec<_> = (0..self.sentinels.len()).filter_map(|number| self.named_by(number)).collect();
        let most = |server: &usize| named.iter().filter(|one| *one == server).count() >= QUORUM;
        (0..self.servers.len()).find(most)
    }

    /// The server that this sentinel names, if it answers and names one of ours.
    pub fn named_by(&self, number: usize) -> Option<usize> {
        let address = self.sentinels[number].address;
        let asked = asks(address, &["SENTINEL", "get-master-addr-by-name", MASTER])?;
        let port: u16 = match asked {
            Reply::Array(parts) => parts.get(1)?.text().parse().ok()?,
            _ => return None,
        };
        let mut servers = self.servers.iter();
        servers.position(|node| node.way_in.address().port() == port)
    }

    /// Causes a failover and waits until most sentinels name another server. What was killed, frozen or cut off
    /// for it stays so until [`Sentinels::heals`]; a frozen primary is woken.
    #[track_caller]
    pub fn fails_over(&mut self, kind: Failover) -> Switched {
        let from = wait_for_value("the sentinels to agree", || self.primary());
        let began = Instant::now();
        match kind {
            Failover::Planned => self.orders_failover(),
            Failover::Killed => self.servers[from].redis.stop(),
            Failover::Frozen => self.servers[from].redis.freeze(),
            Failover::PrimaryCutOff => self.cuts_off_server(from),
            Failover::SentinelCutOff => {
                self.cuts_off_sentinel(self.sentinels.len() - 1);
                self.orders_failover();
            }
        }
        let to = self.is_switched(from, kind);
        let named = Instant::now();
        if kind == Failover::Frozen {
            self.servers[from].redis.thaw();
        }
        Switched { from, to, began, named }
    }

    /// Waits until most sentinels name another server. A planned failover that came to nothing is ordered once more.
    #[track_caller]
    fn is_switched(&self, from: usize, kind: Failover) -> usize {
        let (began, mut ordered) = (Instant::now(), Instant::now());
        loop {
            if let Some(to) = self.primary().filter(|primary| *primary != from) {
                return to;
            }
            assert!(
                began.elapsed() < SWITCHED_WITHIN,
                "after {SWITCHED_WITHIN:?} most sentinels do not name another primary:\n{}",
                self.description()
            );
            let is_ordered = matches!(kind, Failover::Planned | Failover::SentinelCutOff);
            if is_ordered && ordered.elapsed() > 3 * FAILOVER_TIMEOUT {
                ordered = Instant::now();
                asks(self.sentinels[0].address, &["SENTINEL", "FAILOVER", MASTER]);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Starts killed servers again, ends all cuts, and waits until all are in order.
    #[track_caller]
    pub fn heals(&mut self) {
        self.rejoins_all();
        for node in &mut self.servers {
            if !node.redis.is_running() {
                node.redis.start_again();
            }
        }
        self.are_in_order();
    }

    /// Waits until all sentinels name one server, which is a primary with two linked replicas and knows it.
    #[track_caller]
    pub fn are_in_order(&self) {
        let began = Instant::now();
        while !self.is_in_order() {
            assert!(
                began.elapsed() < IN_ORDER_WITHIN,
                "after {IN_ORDER_WITHIN:?} servers and sentinels are not in order:\n{}",
                self.description()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn is_in_order(&self) -> bool {
        let Some(primary) = self.primary() else {
            return false;
        };
        let agree = (0..self.sentinels.len()).all(|one| self.named_by(one) == Some(primary));
        agree
            && (0..self.servers.len()).all(|number| {
                let Some(info) = self.replication(number) else {
                    return false;
                };
                match number == primary {
                    true => info.contains("role:master") && info.contains("connected_slaves:2"),
                    false => {
                        let port = self.server_address(primary).port();
                        info.contains("role:slave")
                            && info.contains("master_link_status:up")
                            && info.contains(&format!("master_port:{port}\r\n"))
                    }
                }
            })
            && (0..self.sentinels.len()).all(|one| self.sees_everybody(one, primary))
    }

    /// Whether a sentinel has found the others and both replicas, and takes none of them for dead: before that
    /// it can neither choose a replica nor be chosen.
    fn sees_everybody(&self, number: usize, primary: usize) -> bool {
        let address = self.sentinels[number].address;
        let Some(Reply::Array(said)) = asks(address, &["SENTINEL", "MASTER", MASTER]) else {
            return false;
        };
        let is_well = field(&said, "flags") == Some("master".to_owned())
            && field(&said, "num-slaves").as_deref() == Some("2")
            && field(&said, "num-other-sentinels").as_deref() == Some("2")
            && field(&said, "port") == Some(self.server_address(primary).port().to_string());
        let others_are_well = ["REPLICAS", "SENTINELS"].iter().all(|what| {
            let Some(Reply::Array(each)) = asks(address, &["SENTINEL", what, MASTER]) else {
                return false;
            };
            each.iter().all(|one| match one {
                Reply::Array(said) => {
                    let flags = field(said, "flags").unwrap_or_default();
                    let link = field(said, "master-link-status");
                    // Valkey's sentinels keep what another sentinel said about the previous primary.
                    let flags = flags.trim_end_matches(",master_down");
                    matches!(flags, "slave" | "sentinel") && link.is_none_or(|link| link == "ok")
                }
                _ => false,
            })
        });
        is_well && others_are_well
    }

    fn replication(&self, number: usize) -> Option<String> {
        let address = self.servers[number].redis.address();
        match asks(address, &["INFO", "replication"])? {
            Reply::Bulk(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            _ => None,
        }
    }

    /// One sentinel that sees the others starts a failover.
    #[track_caller]
    fn orders_failover(&self) {
        wait_for("a sentinel to begin a failover", || {
            let address = self.sentinels[0].address;
            let said = asks(address, &["SENTINEL", "FAILOVER", MASTER]);
            said == Some(Reply::Status("OK".to_owned()))
        });
    }

    /// The state of all servers and sentinels, for the search after a failure.
    fn description(&self) -> String {
        let servers = (0..self.servers.len()).map(|number| {
            let info = self.replication(number);
            let info = info.unwrap_or_else(|| "does not answer".to_owned());
            let address = self.server_address(number);
            format!("server {number} at {address}: {}", info.replace("\r\n", " "))
        });
        let sentinels = (0..self.sentinels.len()).map(|number| {
            let named = self.named_by(number);
            let seen = ["MASTER", "REPLICAS", "SENTINELS"].map(|what| {
                let said = asks(self.sentinels[number].address, &["SENTINEL", what, MASTER]);
                said.map_or_else(|| "nothing".to_owned(), |said| said.to_string())
            });
            format!("sentinel {number} names server {named:?}, sees {}", seen.join(" "))
        });
        servers.chain(sentinels).collect::<Vec<_>>().join("\n")
    }
}

impl Node {
    #[track_caller]
    fn start(number: u8, arguments: &[&str]) -> Node {
        // The address is announced, so it must be there before the server is.
        let way_in = Forwarder::to((Ipv4Addr::LOCALHOST, 1).into());
        let source = Ipv4Addr::new(127, 15, 0, 1 + number);
        let (announced, from) = (way_in.address().port().to_string(), source.to_string());
        let own = [
            "--replica-announce-ip",
            "127.0.0.1",
            "--replica-announce-port",
            &announced,
            "--bind-source-addr",
            &from,
            "--repl-diskless-sync-delay",
            "0",
        ];
        let redis = Redis::with_arguments(&[&own, arguments].concat());
        way_in.leads_to(redis.address());
        Node { redis, way_in, source }
    }
}

impl Sentinel {
    #[track_caller]
    fn start(number: u8, primary: SocketAddr) -> Sentinel {
        let directory = tempfile::tempdir().expect("a directory for a sentinel");
        let way_in = Forwarder::to((Ipv4Addr::LOCALHOST, 1).into());
        let source = Ipv4Addr::new(127, 15, 1, 1 + number);
        for _ in 0..20 {
            let port = free_port();
            let file = directory.path().join("sentinel.conf");
            let text = Sentinel::configuration(port, way_in.address(), source, primary);
            fs::write(&file, text).expect("the directory is ours");
            if let Some(process) = Sentinel::launch(&file, port) {
                let address = (Ipv4Addr::LOCALHOST, port).into();
                way_in.leads_to(address);
                return Sentinel { process, address, way_in, source, _directory: directory };
            }
        }
        panic!("no sentinel started on any of 20 ports");
    }

    fn configuration(port: u16, known_as: SocketAddr, source: Ipv4Addr, primary: SocketAddr) -> String {
        format!(
            "port {port}\nbind 127.0.0.1\nbind-source-addr {source}\nprotected-mode no\n\
             sentinel announce-ip {}\nsentinel announce-port {}\n\
             sentinel monitor {MASTER} {} {} {QUORUM}\n\
             sentinel down-after-milliseconds {MASTER} {}\n\
             sentinel failover-timeout {MASTER} {}\n",
            known_as.ip(),
            known_as.port(),
            primary.ip(),
            primary.port(),
            DOWN_AFTER.as_millis(),
            FAILOVER_TIMEOUT.as_millis(),
        )
    }

    fn launch(file: &PathBuf, port: u16) -> Option<Process> {
        let mut command = Command::new(Server::under_test().program());
        command.arg(file).arg("--sentinel");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut process =
            Process::spawn(&mut command).unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let is_up = wait_for_value("a sentinel to listen", || {
            if process.has_ended().is_some() {
                return Some(false);
            }
            let asked = asks(address, &["PING"]);
            asked.map(|reply| reply == Reply::Status("PONG".to_owned()))
        });
        is_up.then_some(process)
    }
}

/// The reply to these words; `None` where none comes within half a second.
fn asks(address: SocketAddr, words: &[&str]) -> Option<Reply> {
    const MOMENT: Duration = Duration::from_millis(500);
    let client = Client::try_plain_from(Ipv4Addr::LOCALHOST, address).ok()?;
    client.write(&crate::client::encode(words));
    client.reply_if_any(MOMENT)
}

/// A value of a reply that is a list of names and values in turn.
fn field(said: &[Reply], name: &str) -> Option<String> {
    let mut pairs = said.chunks_exact(2);
    pairs.find_map(|pair| match pair {
        [Reply::Bulk(key), Reply::Bulk(value)] if key == name.as_bytes() => {
            Some(String::from_utf8_lossy(value).into_owned())
        }
        _ => None,
    })
}

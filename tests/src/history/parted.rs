//! A run on simulated machines: three with servers and the programs that watch them, two with a proxy and its
//! clients. The machines are separated in every way that makes a primary lose its place, with a proxy and its
//! clients on each side. It produces a history and judges nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::builder::{Mode, ProxyBuilder};
use crate::certificates::{Authority, Subject};
use crate::client::{Client, encode};
use crate::deadline::wait_for;
use crate::machines::Machines;
use crate::process::Process;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::reply::Reply;
use crate::server::Server;

use super::aof::Committed;
use super::clock::At;
use super::idioms::DEFAULT_TTL;
use super::line;
use super::operation::{History, Trouble};
use super::proxies_said;
use super::rig::{GUARD, keeps_history};
use super::run::Run;
use super::worker::{Orders, Worker};

mod cluster;
mod sentinels;

const MASTER: &str = "mymaster";
const SERVERS: usize = 3;
/// The machines with a proxy and its clients.
const PROXIES: [usize; 2] = [3, 4];
const CLIENTS: u8 = 4;
const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const PROXY_PORT: u16 = 6380;
/// Where servers and sentinels that speak TLS are asked by the test.
const PLAIN: u16 = 1000;
const ERA: &str = "lw:{}:lockwarden-era";
/// Longest time for anything that servers and sentinels agree on: a sentinel on a busy machine takes its clock for one that jumps, and does
/// nothing for thirty seconds.
const AGREED_WITHIN: Duration = Duration::from_secs(150);
/// A program that still works this long after a change counts as unaffected.
const GOES_ON_FOR: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

/// A way in which machines are parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The primary, its sentinel and a proxy with its clients from all others.
    LosingSide,
    /// The machine of the primary from all others.
    PrimaryAlone,
    /// The machines of the primary and of a proxy receive from the others, but what they send does not
    /// arrive.
    Unheard,
    /// The machines of the primary and of a proxy receive nothing from the others, but what they send
    /// arrives.
    Deaf,
    /// The primary and its sentinel from the other servers; and a proxy that reaches all stands still until some time after the
    /// others have chosen another primary.
    ProxyFrozen,
    /// As on the losing side; and the primary stands still until some time after the others grant locks.
    Asleep,
}

impl Parting {
    /// All of them.
    pub const ALL: [Parting; 6] = [
        Parting::LosingSide,
        Parting::PrimaryAlone,
        Parting::Unheard,
        Parting::Deaf,
        Parting::ProxyFrozen,
        Parting::Asleep,
    ];

    /// As a transcript calls it.
    pub fn words(self) -> &'static str {
        match self {
            Parting::LosingSide => "it was cut off with a proxy and its clients",
            Parting::PrimaryAlone => "its machine was cut off",
            Parting::Unheard => "it and a proxy were not heard",
            Parting::Deaf => "it and a proxy heard nothing",
            Parting::ProxyFrozen => "it was cut off from other servers, and a proxy stood still",
            Parting::Asleep => "it was cut off with a proxy and its clients, and stood still for a while",
        }
    }
}

/// What a run is to be.
#[derive(Clone, Debug)]
pub struct PartedPlan {
    /// What clients choose follows from it.
    pub seed: u64,
    /// How clients come by connections to the server.
    pub sessions: &'static str,
    /// Whether servers, sentinels and proxies speak TLS with one another.
    pub tls: bool,
    /// What the namespace of the locks has for `quarantine`.
    pub quarantine: &'static str,
    /// How long the long leases are held.
    pub holds: (Duration, Duration),
    /// Whether the servers are a cluster, and not watched over by sentinels.
    pub cluster: bool,
    /// What happens, one after the other.
    pub partings: Vec<Parting>,
    /// What a client is.
    pub worker: Worker,
}

/// The processes of a run.
pub struct Parted {
    plan: PartedPlan,
    folder: TempDir,
    random: Random,
    /// Behind the processes, so that it is removed last.
    clients: Vec<(u32, PathBuf, Process)>,
    proxies: Vec<(Proxy, PathBuf)>,
    /// Servers and sentinels.
    watched: Vec<(usize, Process)>,
    machines: Machines,
    /// One for deadlines, then the others; all of one primary.
    locks: Vec<String>,
    history: History,
}

impl Parted {
    /// Plays the run of this plan. Ask [`Machines::are_lacking`] before.
    #[track_caller]
    pub fn plays(plan: PartedPlan) -> Run {
        let mut parted = Parted {
            random: Random::from_seed(plan.seed),
            folder: tempfile::tempdir().expect("a folder for the run"),
            machines: Machines::start(SERVERS + PROXIES.len()),
            watched: Vec::new(),
            proxies: Vec::new(),
            clients: Vec::new(),
            locks: (0..6).map(|number| format!("lock:{number}")).collect(),
            history: History::default(),
            plan,
        };
        parted.starts_servers();
        for number in PROXIES {
            parted.starts_proxy(number);
        }
        for number in PROXIES {
            parted.starts_clients(number);
        }
        for parting in parted.plan.partings.clone() {
            parted.parts(parting);
        }
        parted.ends()
    }

    #[track_caller]
    fn starts_servers(&mut self) {
        if self.plan.tls {
            self.writes_certificates();
        }
        match self.plan.cluster {
            false => self.starts_sentinels(),
            true => self.starts_cluster(),
        }
        self.are_in_order();
    }

    /// Waits until all servers and sentinels know each other, and the primary is on the machine that a
    /// parting expects.
    #[track_caller]
    fn are_in_order(&self) {
        match self.plan.cluster {
            false => self.sentinels_are_in_order(),
            true => self.cluster_is_in_order(),
        }
    }

    /// The machine of the primary, as all of these machines name it.
    fn primary_named_by(&self, machines: &[usize]) -> Option<usize> {
        match self.plan.cluster {
            false => self.named_by_sentinels(machines),
            true => self.named_by_nodes(machines),
        }
    }

    fn starts_server(&mut self, machine: usize, port: u16, more: &[&str]) {
        let folder = self.folder.path().join(format!("server-{machine}-{port}"));
        std::fs::create_dir(&folder).expect("the folder is ours");
        let mut command = Command::new(Server::under_test().program());
        command.args(["--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--loglevel", "warning"]);
        command.args(["--repl-diskless-sync-delay", "0", "--repl-timeout", "5"]);
        command.args(more).arg("--dir").arg(&folder);
        self.words_of_port(port).iter().for_each(|(key, value)| {
            command.args([&format!("--{key}"), value]);
        });
        self.starts(machine, &mut command);
        self.comes_up(machine, port);
    }

    fn starts(&mut self, machine: usize, command: &mut Command) {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.machines.machine(machine).runs(command);
        let process = Process::spawn(command);
        let process = process.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        self.watched.push((machine, process));
    }

    /// What runs on this machine, the proxy apart, gets a signal.
    fn signals(&self, machine: usize, signal: libc::c_int) {
        let there = self.watched.iter().filter(|(one, _)| *one == machine);
        there.for_each(|(_, process)| process.signal(signal));
    }

    /// What makes a server or a sentinel listen at this port.
    fn words_of_port(&self, port: u16) -> Vec<(&'static str, String)> {
        if !self.plan.tls {
            return vec![("port", port.to_string())];
        }
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        vec![
            ("port", (port - PLAIN).to_string()),
            ("tls-port", port.to_string()),
            ("tls-replication", "yes".to_owned()),
            ("tls-cluster", if self.plan.cluster { "yes" } else { "no" }.to_owned()),
            ("tls-auth-clients", "no".to_owned()),
            ("tls-cert-file", file("machine.crt")),
            ("tls-key-file", file("machine.key")),
            ("tls-ca-cert-file", file("ca.pem")),
        ]
    }

    fn writes_certificates(&self) {
        let machines = (0..SERVERS).map(|number| self.machines.machine(number).address());
        let subject = machines.fold(Subject::server(), Subject::address);
        Authority::of_harness().issue(&subject).write(self.folder.path(), "machine");
        let ca = self.folder.path().join("ca.pem");
        std::fs::write(ca, Authority::of_harness().pem()).expect("the folder is ours");
    }

    #[track_caller]
    fn starts_proxy(&mut self, number: usize) {
        let trail = self.folder.path().join(format!("audit-{number}.jsonl"));
        let scheme = if self.plan.tls { "rediss" } else { "redis" };
        let (kind, port, rest) = match self.plan.cluster {
            false => ("sentinel", SENTINEL_PORT, format!("/{MASTER}")),
            true => ("cluster", SERVER_PORT, String::new()),
        };
        let all: Vec<String> = (0..SERVERS).map(|one| self.address(one, port).to_string()).collect();
        let mut builder = ProxyBuilder::for_backend(&format!("{scheme}-{kind}://{}{rest}", all.join(",")))
            // No client asks for more.
            .ceiling("1s")
            .more(GUARD)
            .namespace("quarantine", &format!("{:?}", self.plan.quarantine))
            .mode(Mode::Enforce)
            .top("listen", &format!("\"127.0.0.1:{PROXY_PORT}\""))
            .top("sessions", &format!("\"{}\"", self.plan.sessions))
            .top("audit", "\"all\"")
            .top("audit_max_size", "\"off\"")
            .top("audit_file", &format!("\"{}\"", trail.display()))
            .default_ttl(&format!("{}ms", DEFAULT_TTL.as_millis()));
        if self.plan.tls {
            let ca = self.folder.path().join("ca.pem");
            builder = builder.more(&format!("[backend_tls]\nca = \"{}\"", ca.display()));
        }
        let machine = self.machines.machine(number);
        let proxy = builder.on_machine(machine).without_waiting().start();
        machine.within(|| wait_for("the proxy to be ready", || proxy.ready() == Some(200)));
        self.proxies.push((proxy, trail));
    }

    fn starts_clients(&mut self, number: usize) {
        for seat in 0..CLIENTS {
            let client = u32::try_from(self.clients.len()).expect("few clients");
            let file = self.folder.path().join(format!("client-{client}"));
            let source = Ipv4Addr::new(127, 40, u8::try_from(number).expect("few machines"), 1 + seat);
            let orders = Orders {
                client,
                seed: self.random.number(),
                source,
                servers: vec![(Ipv4Addr::LOCALHOST, PROXY_PORT).into()],
                locks: self.locks[1..].to_vec(),
                deadline_lock: self.locks[0].clone(),
                file: file.clone(),
                // They are killed at the end.
                until: At(u64::MAX),
                misbehaves: true,
                holds: Some(self.plan.holds),
                clock_ahead: Duration::ZERO,
            };
            let process = orders.start(&self.plan.worker, Some(self.machines.machine(number)));
            self.clients.push((client, file, process));
        }
    }

    /// Parts the machines, waits until others have a primary that grants locks, and has all of them meet again.
    #[track_caller]
    fn parts(&mut self, parting: Parting) {
        self.grants_go_on();
        let began = At::now();
        let from = self.agreed("the primary to be agreed upon", |parted| parted.primary_named_by(&[0, 1, 2]));
        let others: Vec<usize> = (0..SERVERS).filter(|one| *one != from).collect();
        let [losing, winning] = PROXIES;
        let rest = [&others[..], &[winning]].concat();
        let machines = &self.machines;
        match parting {
            Parting::LosingSide => machines.parts(&[from, losing]),
            Parting::PrimaryAlone => machines.parts(&[from]),
            Parting::Unheard => [from, losing].iter().for_each(|one| machines.silences(*one, &rest)),
            Parting::Deaf => rest.iter().for_each(|one| machines.silences(*one, &[from, losing])),
            Parting::ProxyFrozen => {
                self.proxies[0].0.freeze();
                machines.cuts(&[from], &others);
            }
            Parting::Asleep => {
                machines.parts(&[from, losing]);
                self.signals(from, libc::SIGSTOP);
            }
        }
        let to = self
            .agreed("the others to choose another", |parted| parted.primary_named_by(&others).filter(|to| *to != from));
        if parting == Parting::ProxyFrozen {
            // Longer than a working program takes to notice it.
            sleep(GOES_ON_FOR);
            self.proxies[0].0.thaw();
        }
        self.grants_go_on();
        sleep(GOES_ON_FOR);
        if parting == Parting::Asleep {
            self.signals(from, libc::SIGCONT);
            sleep(GOES_ON_FOR);
        }
        self.machines.rejoins_all();
        let words = format!("the primary, server {from}, lost its place to server {to}: {}", parting.words());
        self.history.troubles.push(Trouble { words, began, ended: Some(At::now()) });
        self.are_in_order();
        self.grants_go_on();
    }

    #[track_caller]
    fn grants_go_on(&self) {
        line::grants_go_on(self.clients.iter().map(|(_, file, _)| file));
    }

    #[track_caller]
    fn agreed<T>(&self, what: &str, mut look: impl FnMut(&Parted) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(began.elapsed() < AGREED_WITHIN, "waited {AGREED_WITHIN:?} in vain for: {what}");
            sleep(POLL);
        }
    }

    fn address(&self, machine: usize, port: u16) -> SocketAddr {
        (self.machines.machine(machine).address(), port).into()
    }

    #[track_caller]
    fn comes_up(&self, machine: usize, port: u16) {
        wait_for("a server to answer", || {
            self.asks(machine, port, &["PING"]) == Some(Reply::Status("PONG".to_owned()))
        });
    }

    /// Asks a server or a sentinel on its own machine, which is never cut off.
    fn asks(&self, machine: usize, port: u16, words: &[&str]) -> Option<Reply> {
        const MOMENT: Duration = Duration::from_secs(1);
        let port = if self.plan.tls { port - PLAIN } else { port };
        self.machines.machine(machine).within(|| {
            let client = Client::try_plain_from(Ipv4Addr::LOCALHOST, (Ipv4Addr::LOCALHOST, port).into()).ok()?;
            client.write(&encode(words));
            client.reply_if_any(MOMENT)
        })
    }

    /// Kills the clients and collects what clients and proxies have written.
    #[track_caller]
    fn ends(mut self) -> Run {
        let mut history = std::mem::take(&mut self.history);
        let calm_from = At::now();
        for (client, file, mut process) in self.clients.drain(..) {
            history.deaths.insert(client, At::now());
            process.kill();
            line::read(&file, client, &mut history);
        }
        history.sorts();
        let machines = &self.machines;
        let counted = |proxy: &Proxy, name: &str| {
            let number = self.proxies.iter().position(|(one, _)| std::ptr::eq(one, proxy)).unwrap_or_default();
            machines.machine(PROXIES[number]).within(|| proxy.metric(name))
        };
        let (lost, lost_counted) = proxies_said::lost(self.proxies.iter().map(|(proxy, _)| proxy), counted);
        let proxies: Vec<(Proxy, PathBuf)> = self.proxies.drain(..).collect();
        let files: Vec<PathBuf> = proxies.iter().map(|(_, file)| file.clone()).collect();
        let proxies = proxies.into_iter().map(|(proxy, _)| Some(proxy));
        let trail = proxies_said::trail(proxies.zip(files.iter().map(PathBuf::as_path)));
        keeps_history(self.folder.path(), self.plan.seed);
        Run {
            failovers: Vec::new(),
            lost,
            lost_counted,
            written: Default::default(),
            committed: Committed::default(),
            trail: Some(trail),
            unwritten: Vec::new(),
            faults: Default::default(),
            planted: 0,
            refuses_extensions: self.plan.quarantine != "off",
            one_server: false,
            history,
            calm_from,
        }
    }
}

/// What was said; nothing, where that is no text.
fn text_of(reply: Option<Reply>) -> String {
    match reply {
        Some(Reply::Bulk(text)) => String::from_utf8_lossy(&text).into_owned(),
        Some(Reply::Status(text)) => text,
        _ => String::new(),
    }
}

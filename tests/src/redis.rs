//! A private `redis-server` for a test: its own port, its own directory, nothing persisted, removed when the
//! value is dropped. It can be killed and started again on the same port; so a test loses its backend.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::{wait_for, wait_for_value};
use crate::jumping_clock::JumpingClock;
use crate::ports::free_port;
use crate::process::Process;
use crate::record::Record;
use crate::reply::Reply;
use crate::server::Server;

/// A running server. Dropping it kills it.
pub struct Redis {
    port: u16,
    tls_port: Option<u16>,
    directory: TempDir,
    arguments: Vec<String>,
    /// The clock that it uses, where a test sets one.
    clock: Option<JumpingClock>,
    process: Option<Process>,
}

impl Redis {
    /// A server with nothing in it.
    #[track_caller]
    pub fn start() -> Redis {
        Redis::with_arguments(&[])
    }

    /// A server with more command-line arguments, `--maxmemory 4mb` for example.
    #[track_caller]
    pub fn with_arguments(arguments: &[&str]) -> Redis {
        Redis::launched(arguments, is_whole_run_with_tls(), None)
    }

    /// A server whose clock can be set to another time: see [`Redis::clock_jumps`].
    #[track_caller]
    pub fn with_jumping_clock(arguments: &[&str]) -> Redis {
        let clock = JumpingClock::new();
        Redis::launched(arguments, is_whole_run_with_tls(), Some(clock))
    }

    /// Sets its clock forward, or back.
    #[track_caller]
    pub fn clock_jumps(&self, by_ms: i64) {
        let clock = self.clock.as_ref();
        clock.expect("its clock can be set").jumps(by_ms);
    }

    /// A server that speaks TLS at a second port, with a certificate of the harness; with these arguments besides.
    #[track_caller]
    pub fn with_tls(arguments: &[&str]) -> Redis {
        Redis::launched(arguments, true, None)
    }

    #[track_caller]
    fn launched(arguments: &[&str], tls: bool, clock: Option<JumpingClock>) -> Redis {
        let mut redis = Redis {
            port: 0,
            tls_port: None,
            directory: tempfile::tempdir().expect("a directory for redis-server"),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            clock,
            process: None,
        };
        // Another program may take the port between our look and the server's start.
        for _ in 0..20 {
            redis.port = free_port();
            redis.tls_port = tls.then(free_port);
            if redis.launch() {
                return redis;
            }
        }
        panic!("redis-server did not start on any of 20 ports; is it installed?");
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The port at which it speaks TLS, where it does.
    pub fn tls_address(&self) -> SocketAddr {
        let port = self.tls_port.expect("it was started with TLS");
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// What a configuration calls that.
    pub fn tls_url(&self) -> String {
        format!("rediss://{}", self.tls_address())
    }

    /// The unix socket that it listens at as well.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// What a configuration calls it. The whole suite can be run with either: LOCKWARDEN_TEST_BACKEND=unix,
    /// LOCKWARDEN_TEST_BACKEND=tls; and with LOCKWARDEN_TEST_BACKEND=cluster in front of a cluster of one node, which
    /// refuses commands over several slots.
    pub fn url(&self) -> String {
        match std::env::var("LOCKWARDEN_TEST_BACKEND").as_deref() {
            Ok("unix") => self.socket_url(),
            Ok("tls") => self.tls_url(),
            Ok("cluster") => format!("redis-cluster://{}", self.address()),
            _ => format!("redis://{}", self.address()),
        }
    }

    /// The same by its unix socket.
    pub fn socket_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Where it keeps its files.
    pub fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        let process = self.process.as_ref();
        process.expect("the server runs").id()
    }

    /// Whether it was neither stopped nor ended by itself.
    pub(crate) fn is_running(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_some_and(|process| process.has_ended().is_none())
    }

    /// A connection without the proxy.
    #[track_caller]
    pub fn client(&self) -> Client {
        // Redis's protected mode knows no other loopback address than this one.
        Client::connect_from(Ipv4Addr::LOCALHOST, self.address())
    }

    /// Kills the server as a crash would: nothing is answered any more.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again on the same port, with what it has in its files, and waits until it has read them.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.begin_again();
        wait_for("redis-server with its data", || {
            let reply = self.client().sends("PING").reply().to_string();
            !reply.starts_with("-LOADING")
        });
    }

    /// As [`Redis::start_again`], but it may still read its files.
    #[track_caller]
    pub fn begin_again(&mut self) {
        self.stop();
        // The port is not reserved for us: another program may hold it for a moment.
        wait_for_value("redis-server on its old port", || self.launch().then_some(()));
    }

    /// Stops the process for a while (SIGSTOP): connections stay, replies do not come.
    pub fn freeze(&self) {
        self.process.as_ref().expect("the server runs").signal(libc::SIGSTOP);
    }

    /// Ends [`Redis::freeze`].
    pub fn thaw(&self) {
        self.process.as_ref().expect("the server runs").signal(libc::SIGCONT);
    }

    /// Waits until this many acquires of proxies wait for a frozen server. The proxies' own requests each second are shorter
    /// than an acquire.
    #[track_caller]
    pub fn acquires_wait(&self, acquires: usize) {
        const SHORTEST: u64 = 200;
        wait_for("the acquires to be sent to Redis", || self.connections_waiting(SHORTEST) >= acquires);
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        [Some(self.port), self.tls_port].into_iter().flatten()
    }

    /// Whether this client goes around every proxy.
    pub fn is_asked_directly_by(&self, client: &Client) -> bool {
        self.ports().any(|port| port == client.port())
    }

    /// How many connections have sent a frozen server so many bytes that it has not read.
    fn connections_waiting(&self, bytes: u64) -> usize {
        let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let ports: Vec<String> = self.ports().map(|port| format!(":{port:04X}")).collect();
        table
            .lines()
            .filter_map(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let (local, queues) = (fields.get(1)?, fields.get(4)?);
                let unread = u64::from_str_radix(queues.split_once(':')?.1, 16).ok()?;
                let is_here = ports.iter().any(|port| local.ends_with(port));
                (is_here && unread >= bytes).then_some(())
            })
            .count()
    }

    /// The companion record of a lock key, if there is one.
    #[track_caller]
    pub fn record(&self, key: &str) -> Option<Record> {
        Record::of(&self.client(), key)
    }

    /// The newest fencing token of a lock; panics if it never had one.
    #[track_caller]
    pub fn fence(&self, key: &str) -> u64 {
        match self.record(key) {
            Some(record) => record.fence,
            None => panic!("{key} has no record, so no fencing token"),
        }
    }

    /// The value of a key, as a transcript shows it: `$2 a1` or `nil`.
    #[track_caller]
    pub fn value(&self, key: &str) -> String {
        self.client().sends(format!("GET {key}")).reply().to_string()
    }

    /// Milliseconds left of a key, -1 without TTL, -2 without key.
    #[track_caller]
    pub fn pttl(&self, key: &str) -> i64 {
        self.client().sends(format!("PTTL {key}")).integer()
    }

    /// Whether the key is absent.
    #[track_caller]
    pub fn is_free(&self, key: &str) -> bool {
        self.client().sends(format!("EXISTS {key}")).integer() == 0
    }

    /// Waits until the key is gone.
    #[track_caller]
    pub fn becomes_free(&self, key: &str) {
        let client = self.client();
        wait_for(&format!("{key} to be free"), || client.sends(format!("EXISTS {key}")).integer() == 0);
    }

    /// Waits until the holder's lease has run out: on the server, and by the clock of a client that counts
    /// from the reply. The holder shortens the lease here, so that the steps before are in no hurry.
    #[track_caller]
    pub fn runs_out(&self, holder: &Client, key: &str) {
        const LEFT: Duration = Duration::from_millis(40);
        holder.sends(format!("PEXPIRE {key} {}", LEFT.as_millis())).gets(":1");
        let told = Instant::now();
        self.becomes_free(key);
        wait_for("the lease to be over by every clock", || told.elapsed() >= LEFT);
    }

    /// Makes a lease older by so much, where it has a record: as if the lock had been taken then.
    #[track_caller]
    pub fn was_granted_earlier(&self, key: &str, by: Duration) {
        let client = self.client();
        let names = client.sends(format!("KEYS lw:{{*}}:{key}")).reply();
        for name in names.elements() {
            let name = name.clone().text();
            let since = client.sends(format!("GETRANGE {name} 67 79")).text();
            let since: u128 = since.parse().expect("a record says since when it is held");
            let earlier = since - by.as_millis();
            let moved = client.sends(format!("SETRANGE {name} 67 {earlier:013}"));
            assert!(moved.integer() > 0);
        }
    }

    /// What only the holder may change: value, end and record of a lock. The holder's process is left out,
    /// because the proxy adds it when it has looked it up.
    #[track_caller]
    pub fn lease(&self, key: &str) -> (String, i64, Option<Record>) {
        let client = self.client();
        let value = client.sends(format!("GET {key}")).reply().to_string();
        // Before Redis 7 a TTL can only be seen passing.
        let end = match client.sends(format!("PEXPIRETIME {key}")).reply() {
            Reply::Error(_) => client.sends(format!("PTTL {key}")).integer().signum(),
            end => end.integer(),
        };
        let record = Record::of(&client, key).map(Record::without_process);
        (value, end, record)
    }

    /// How many connections the server has, without the asking one.
    #[track_caller]
    pub fn connections(&self) -> usize {
        let list = self.client().sends("CLIENT LIST").text();
        list.lines().count() - 1
    }

    fn launch(&mut self) -> bool {
        let server = Server::under_test();
        let mut command = Command::new(server.program());
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
            // A busy machine makes any command slow.
            .args(["--slowlog-log-slower-than", "-1"])
            .arg("--dir")
            .arg(self.directory.path())
            .arg("--unixsocket")
            .arg(self.socket());
        if let Some(port) = self.tls_port {
            let (cert, key) = Authority::server_of_harness().write(self.directory.path(), "server");
            let ca = self.directory.path().join("ca.pem");
            fs::write(&ca, Authority::of_harness().pem()).expect("the folder is ours");
            command.args(["--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
            command.arg("--tls-cert-file").arg(cert);
            command.arg("--tls-key-file").arg(key);
            command.arg("--tls-ca-cert-file").arg(ca);
        }
        // Before 7.0 every client could use DEBUG, and the option is an error.
        if server.since(7, 0) {
            command.args(["--enable-debug-command", "yes"]);
        }
        if let Some(clock) = &self.clock {
            command.envs(clock.environment());
        }
        let joins = is_whole_run_with_cluster() && !self.arguments.iter().any(|word| word == "--cluster-enabled");
        if joins {
            command.args(["--cluster-enabled", "yes", "--cluster-port", &free_port().to_string()]);
        }
        command.args(&self.arguments).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::spawn(&mut command).unwrap_or_else(|error| panic!("cannot run {server}: {error}"));
        let address = self.address();
        let up = wait_for_value("redis-server to listen", || {
            if process.has_ended().is_some() {
                return Some(false);
            }
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok().then_some(true)
        });
        // A listener that is not our child would be another program that took the port.
        if up && process.has_ended().is_none() && self.answers_as(process.id()) {
            self.process = Some(process);
            if joins {
                self.has_all_slots();
            }
            return true;
        }
        false
    }

    /// The only node of a cluster serves once it has all slots.
    #[track_caller]
    pub(crate) fn has_all_slots(&self) {
        let client = self.client();
        if let Some(at) = self.arguments.iter().position(|argument| argument == "--requirepass") {
            client.sends(format!("AUTH {}", self.arguments[at + 1])).gets("+OK");
        }
        client.sends("CLUSTER ADDSLOTSRANGE 0 16383").gets("+OK");
        wait_for("the node to serve", || client.sends("CLUSTER INFO").text().contains("cluster_state:ok"));
    }

    /// Whether this process answers. Returns false also for a server that ends after it has begun to listen,
    /// for example because a second port is taken.
    fn answers_as(&self, id: u32) -> bool {
        let password = self
            .arguments
            .iter()
            .position(|argument| argument == "--requirepass")
            .map(|at| format!("AUTH {}\r\n", self.arguments[at + 1]));
        let ask = move || -> io::Result<String> {
            let mut stream = TcpStream::connect(self.address())?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let questions = format!("{}INFO server\r\nQUIT\r\n", password.unwrap_or_default());
            stream.write_all(questions.as_bytes())?;
            let mut answers = String::new();
            stream.read_to_string(&mut answers)?;
            Ok(answers)
        };
        let has_no_info = self.arguments.iter().any(|argument| argument == "INFO");
        ask().is_ok_and(|answers| match has_no_info {
            // It cannot say which process it is.
            true => answers.contains("unknown command"),
            false => answers.contains(&format!("process_id:{id}\r\n")),
        })
    }
}

/// Whether tests run before a cluster of one node: LOCKWARDEN_TEST_BACKEND=cluster.
pub fn is_whole_run_with_cluster() -> bool {
    std::env::var("LOCKWARDEN_TEST_BACKEND").is_ok_and(|backend| backend == "cluster")
}

/// Whether tests run over TLS on both sides: LOCKWARDEN_TEST_BACKEND=tls.
pub(crate) fn is_whole_run_with_tls() -> bool {
    std::env::var("LOCKWARDEN_TEST_BACKEND").is_ok_and(|backend| backend == "tls")
}

//! The real binary with its own configuration, in front of a test's Redis. Knows the files, flags, signals
//! and addresses that an operator knows, and nothing about the inside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tempfile::TempDir;

use crate::builder::{ADMIN_TOKEN, Mode, ProxyBuilder};
use crate::client::{Client, lead_to_tls};
use crate::deadline::{comes_true, wait_for, wait_for_value};
use crate::http;
use crate::metrics::Metrics;
use crate::process::{Process, binary, has_descriptors, lockwarden, lockwarden_at, stays_on_one_core};
use crate::redis::{Redis, is_whole_run_with_tls};

/// A running proxy. Dropping it kills it.
pub struct Proxy {
    process: Process,
    config: PathBuf,
    directory: TempDir,
    log: Arc<Mutex<String>>,
    listen: Option<SocketAddr>,
    secure: Option<SocketAddr>,
    sentinels: Vec<SocketAddr>,
    cluster: Option<SocketAddr>,
    admin: SocketAddr,
}

impl Proxy {
    /// A configuration in front of this Redis.
    pub fn builder(redis: &Redis) -> ProxyBuilder {
        ProxyBuilder::for_backend(&redis.url())
    }

    /// The usual configuration in enforce mode.
    #[track_caller]
    pub fn enforcing(redis: &Redis) -> Proxy {
        Proxy::builder(redis).start()
    }

    /// The usual configuration in monitor mode.
    #[track_caller]
    pub fn monitoring(redis: &Redis) -> Proxy {
        Proxy::builder(redis).mode(Mode::Monitor).start()
    }

    /// Runs it and waits until it says where it listens.
    #[track_caller]
    pub(crate) fn run(builder: &ProxyBuilder) -> Proxy {
        let directory = tempfile::tempdir().expect("a directory for the configuration");
        let config = directory.path().join("lockwarden.toml");
        fs::write(&config, builder.text()).expect("the directory is ours");
        let mut command = match builder.user {
            None => lockwarden(&["run", "--config"]),
            Some(user) => {
                let mut command = lockwarden_at(&readable_by_all(&directory, &config), &["run", "--config"]);
                command.uid(user).gid(user);
                command
            }
        };
        command
            .arg(&config)
            .args(&builder.arguments)
            .envs(builder.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if builder.on_one_cpu {
            stays_on_one_core(&mut command);
        }
        if let Some(most) = builder.descriptors {
            has_descriptors(&mut command, most);
        }
        if let Some(machine) = &builder.machine {
            machine.runs(&mut command);
        }
        let mut process =
            Process::spawn(&mut command).unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = process.child().stderr.take().expect("stderr is piped");
        let collected = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = lock(&collected);
                log.push_str(&line);
                log.push('\n');
            }
        });
        let (listen, further, admin) = wait_for_value("the proxy to serve", || {
            if let Some(status) = process.has_ended() {
                panic!("the proxy ended with {status}:\n{}", lock(&log));
            }
            let log = lock(&log);
            let line = log.lines().find(|line| line.contains("\"message\":\"serving\""))?;
            Some((
                text_of(line, "listen").parse().ok(),
                text_of(line, "listeners").to_owned(),
                address_in(line, "admin"),
            ))
        });
        let called = |kind: &str| -> Vec<SocketAddr> {
            let those = further.split(", ").filter_map(|one| one.strip_suffix(kind));
            those.filter_map(|address| address.parse().ok()).collect()
        };
        let secure = called(" (TLS)").first().copied();
        if let (Some(plain), Some(secure), true) = (listen, secure, is_whole_run_with_tls()) {
            lead_to_tls(plain, Some(secure));
        }
        Proxy {
            secure,
            cluster: called(" (cluster)").first().copied(),
            sentinels: [called(" (sentinel)"), called(" (sentinel with TLS)")].concat(),
            process,
            config,
            directory,
            log,
            listen,
            admin,
        }
    }

    /// Whether its clients share connections to the backend.
    pub fn is_multiplexed(&self) -> bool {
        let text = fs::read_to_string(&self.config).unwrap_or_default();
        text.contains("sessions = \"multiplexed\"")
    }

    /// Where clients connect.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        self.listen.expect("it has a port, and not only a unix socket")
    }

    /// Where clients connect that speak TLS.
    #[track_caller]
    pub fn tls_address(&self) -> SocketAddr {
        self.secure.expect("it has a listener with TLS")
    }

    /// Where clients come in that look for a cluster.
    #[track_caller]
    pub fn cluster_address(&self) -> SocketAddr {
        self.cluster.expect("it has a listener that presents a cluster")
    }

    /// Where clients ask that look for a sentinel: those without TLS first.
    pub fn sentinel_addresses(&self) -> &[SocketAddr] {
        &self.sentinels
    }

    /// The first of them.
    #[track_caller]
    pub fn sentinel_address(&self) -> SocketAddr {
        *self.sentinels.first().expect("it has a sentinel")
    }

    /// A client of a sentinel, without TLS.
    #[track_caller]
    pub fn sentinel(&self) -> Client {
        Client::connect_plain(self.sentinel_address())
    }

    /// Where operators connect.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// An order by POST, with the admin token; the status and body.
    #[track_caller]
    pub fn post(&self, path: &str) -> (u16, String) {
        let bearer = format!("Bearer {ADMIN_TOKEN}");
        let headers = [("Authorization", bearer.as_str())];
        let answer = http::request(self.admin, "POST", path, &headers, "")
            .unwrap_or_else(|| panic!("nobody answers POST {path}"));
        (answer.status, answer.body)
    }

    /// The file that it was started with.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// A directory that lives as long as the proxy.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A client that shares its address with no other.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// A client with this source address.
    #[track_caller]
    pub fn client_from(&self, source: &str) -> Client {
        let source: Ipv4Addr = source.parse().expect("a test wrote an IPv4 address");
        Client::connect_from(source, self.address())
    }

    /// A client by the proxy's unix socket at this path.
    #[track_caller]
    pub fn client_at(&self, path: &Path) -> Client {
        Client::connect_unix(path)
    }

    /// The status of `/ready`; `None` when the proxy does not answer.
    pub fn ready(&self) -> Option<u16> {
        http::request(self.admin, "GET", "/ready", &[], "").map(|answer| answer.status)
    }

    /// The status and body of a GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> (u16, String) {
        let answer =
            http::request(self.admin, "GET", path, &[], "").unwrap_or_else(|| panic!("nobody answers GET {path}"));
        (answer.status, answer.body)
    }

    /// What the JSON API returns for this path behind `/api/v1/`.
    #[track_caller]
    pub fn api(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get(&format!("/api/v1/{path}"));
        assert_eq!(status, 200, "GET {path}: {body}");
        serde_json::from_str(&body).expect("the API speaks JSON")
    }

    /// Switches a namespace with `POST /mode`, whatever the report says, and returns the status.
    #[track_caller]
    pub fn switch(&self, namespace: &str, mode: Mode) -> u16 {
        self.post_mode(namespace, mode.word(), Some(ADMIN_TOKEN)).0
    }

    /// `POST /mode` with any words and any token; the status and body.
    #[track_caller]
    pub fn post_mode(&self, namespace: &str, mode: &str, token: Option<&str>) -> (u16, String) {
        let body = format!("{{\"namespace\":\"{namespace}\",\"mode\":\"{mode}\",\"anyway\":true}}");
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        let answer = http::request(self.admin, "POST", "/mode", &headers, &body)
            .unwrap_or_else(|| panic!("nobody answers POST /mode"));
        (answer.status, answer.body)
    }

    /// An order by POST with a body and the admin token; returns the status and body of the reply.
    #[track_caller]
    pub fn orders(&self, path: &str, body: &str) -> (u16, String) {
        self.post_with(Some(ADMIN_TOKEN), path, body)
    }

    /// The same with any token, or with none.
    #[track_caller]
    pub fn post_with(&self, token: Option<&str>, path: &str, body: &str) -> (u16, String) {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = bearer.as_deref().map(|bearer| ("Authorization", bearer)).into_iter().collect();
        let answer = http::request(self.admin, "POST", path, &headers, body)
            .unwrap_or_else(|| panic!("nobody answers POST {path}"));
        (answer.status, answer.body)
    }

    /// What `/metrics` returns now.
    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, 200, "GET /metrics");
        Metrics::parse(&body)
    }

    /// The sum of the series that the selector matches, now.
    #[track_caller]
    pub fn metric(&self, selector: &str) -> f64 {
        self.metrics().get(selector)
    }

    /// Waits until the selector's sum is this.
    #[track_caller]
    pub fn counts(&self, selector: &str, expected: f64) {
        let mut last = f64::NAN;
        let reached = comes_true(|| {
            last = self.metric(selector);
            last == expected
        });
        assert!(reached, "{selector} is {last}, not {expected}");
    }

    /// Everything that was logged so far.
    pub fn log(&self) -> String {
        lock(&self.log).clone()
    }

    /// How many lines of the log contain all of these.
    pub fn logged(&self, words: &[&str]) -> usize {
        let log = lock(&self.log);
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// Waits until a line with all of these was logged.
    #[track_caller]
    pub fn logs(&self, words: &[&str]) {
        wait_for(&format!("a log line with {words:?}"), || self.logged(words) > 0);
    }

    /// Puts another text in the configuration file and sends SIGHUP.
    pub fn reload(&self, text: &str) {
        fs::write(&self.config, text).expect("the directory is ours");
        self.process.signal(libc::SIGHUP);
    }

    /// Puts another text in the configuration file and orders `path`, as in `/reload`; the status and
    /// body.
    #[track_caller]
    pub fn reloads(&self, text: &[u8], path: &str) -> (u16, String) {
        fs::write(&self.config, text).expect("the directory is ours");
        self.post(path)
    }

    /// Asks it to stop (SIGTERM) and does not wait.
    pub fn asks_to_stop(&self) {
        self.process.signal(libc::SIGTERM);
    }

    /// Waits for the end that was asked for and returns the exit code.
    #[track_caller]
    pub fn ends(mut self) -> Option<i32> {
        self.process.wait().code()
    }

    /// Stops it gracefully and returns the exit code.
    #[track_caller]
    pub fn stop(self) -> Option<i32> {
        self.asks_to_stop();
        self.ends()
    }

    /// Stops the process for a while (SIGSTOP): connections stay, replies do not come.
    pub fn freeze(&self) {
        self.process.signal(libc::SIGSTOP);
    }

    /// Ends [`Proxy::freeze`].
    pub fn thaw(&self) {
        self.process.signal(libc::SIGCONT);
    }

    /// Kills it as a crash would.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Whether the process still runs.
    pub fn runs(&mut self) -> bool {
        self.process.has_ended().is_none()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(plain) = self.listen {
            lead_to_tls(plain, None);
        }
        if thread::panicking() {
            eprintln!("--- the proxy's log\n{}---", self.log());
        }
    }
}

/// Lets other users read the configuration, and run a copy of the binary, which is returned.
fn readable_by_all(directory: &TempDir, config: &Path) -> PathBuf {
    let program = directory.path().join("lockwarden");
    fs::copy(binary(), &program).expect("there is room");
    for path in [directory.path(), &program, config] {
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(path, all).expect("it is ours");
    }
    program
}

fn lock(log: &Mutex<String>) -> MutexGuard<'_, String> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

#[track_caller]
fn address_in(line: &str, field: &str) -> SocketAddr {
    text_of(line, field).parse().unwrap_or_else(|_| panic!("the line does not say where {field} is: {line}"))
}

/// A text in a line of JSON.
fn text_of<'a>(line: &'a str, field: &str) -> &'a str {
    let start = format!("\"{field}\":\"");
    let found = line.split_once(&start);
    found.and_then(|(_, rest)| rest.split('"').next()).unwrap_or_default()
}

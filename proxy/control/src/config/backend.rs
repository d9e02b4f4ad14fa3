//! Which Redis or Valkey stands behind the proxy, and the spelling of its URL. Connects to nothing;
//! error texts never repeat a part of the URL that could be a password.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use crate::net::unix_listener::MAX_PATH;

use super::backend_login::BackendLogin;
use super::listener::ListenAddress;
use super::secret;
use super::secret::{Secret, SecretError};

/// The form of a URL, for messages.
const SHAPE: &str = "redis://[user[:password]@]host[:port][/db]";
/// The same for sentinels.
const SENTINEL_SHAPE: &str =
    "redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/name-of-the-primary[?db=number]";
/// The same for a cluster.
const CLUSTER_SHAPE: &str = "redis-cluster://[user[:password]@]host[:port][,host[:port]…]";
/// The same for a unix socket.
const UNIX_SHAPE: &str = "redis+unix://[user[:password]@]/path[?db=number]";

/// The default port of Redis.
const REDIS_PORT: u16 = 6379;
/// The default port of Sentinel.
const SENTINEL_PORT: u16 = 26379;
/// The most sentinels, or nodes of a cluster, in one URL.
const MAX_HOSTS: usize = 16;
/// The longest name of a primary in Sentinel, bytes.
const MAX_PRIMARY_NAME: usize = 128;

/// Which server stands behind the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A redis-server (or valkey-server) found in `PATH`, which the proxy starts and stops itself.
    Private,
    /// A server that is already running.
    Redis(BackendUrl),
}

impl Default for Backend {
    fn default() -> Backend {
        Backend::Redis(BackendUrl::at(Target::Tcp { host: "127.0.0.1".to_owned(), port: REDIS_PORT }))
    }
}

impl Backend {
    /// Whether it is a cluster as a whole.
    pub fn is_cluster(&self) -> bool {
        matches!(self, Backend::Redis(BackendUrl { target: Target::Cluster(_), .. }))
    }
}

/// Where a server is, and the login for the proxy's own connections. Prints without the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendUrl {
    pub target: Target,
    /// Use TLS; only for addresses with a port.
    pub tls: bool,
    /// ACL user; `None` is Redis's `default`.
    pub user: Option<String>,
    /// Password of that user.
    pub password: Option<Secret>,
    /// Logical database of the proxy's own connections.
    pub db: u32,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Tcp {
        /// Host name or IP address; an IPv6 address has no brackets.
        host: String,
        port: u16,
    },
    /// A unix socket, by its absolute path.
    Unix(PathBuf),
    /// The primary that these sentinels name.
    Sentinel(SentinelTarget),
    /// The primaries of a cluster, as its nodes name them: hosts and ports of some nodes, at least one.
    Cluster(Vec<(String, u16)>),
}

impl Target {
    /// Whether a client that connects here certainly reaches this listener on this machine. No host name but
    /// `localhost` is resolved.
    pub(super) fn is(&self, listener: &ListenAddress) -> bool {
        match (self, listener) {
            (Target::Tcp { host, port }, ListenAddress::Tcp(listener)) => {
                let loopback = || IpAddr::V4(Ipv4Addr::LOCALHOST);
                let named = match host.eq_ignore_ascii_case("localhost") {
                    true => Some(loopback()),
                    false => host.parse::<IpAddr>().ok(),
                };
                let (own, at) = (listener.ip().to_canonical(), named.map(|ip| ip.to_canonical()));
                *port == listener.port()
                    && at.is_some_and(|at| {
                        at == own
                            || own.is_unspecified() && (at.is_loopback() || at.is_unspecified())
                            || at.is_unspecified() && own.is_loopback()
                    })
            }
            (Target::Unix(path), ListenAddress::Unix(listener)) => path == listener,
            (Target::Tcp { .. } | Target::Unix(_), _) | (Target::Sentinel(_) | Target::Cluster(_), _) => false,
        }
    }
}

/// The sentinels to ask for the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelTarget {
    /// Hosts and ports of sentinels, of which there is at least one.
    pub sentinels: Vec<(String, u16)>,
    /// Their name for the primary.
    pub name: String,
    /// The login for the sentinels.
    pub login: Option<BackendLogin>,
}

impl BackendUrl {
    /// The server at this address, without a login, database 0.
    pub fn at(target: Target) -> BackendUrl {
        BackendUrl { target, tls: false, user: None, password: None, db: 0 }
    }
}

impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_deref();
        let at = if user.is_some() { "@" } else { "" };
        let (user, db) = (user.unwrap_or(""), self.db);
        let scheme = if self.tls { "rediss" } else { "redis" };
        match &self.target {
            Target::Tcp { host, port } => {
                write!(f, "{scheme}://{user}{at}{}/{db}", HostAndPort(host, *port))
            }
            Target::Sentinel(SentinelTarget { sentinels, name, .. }) => {
                write!(f, "{scheme}-sentinel://{user}{at}{}", Hosts(sentinels))?;
                match db {
                    0 => write!(f, "/{name}"),
                    db => write!(f, "/{name}?db={db}"),
                }
            }
            Target::Cluster(nodes) => write!(f, "{scheme}-cluster://{user}{at}{}", Hosts(nodes)),
            Target::Unix(path) => {
                write!(f, "redis+unix://{user}{at}{}?db={db}", path.display())
            }
        }
    }
}

/// Prints several addresses, separated by commas.
struct Hosts<'a>(&'a [(String, u16)]);

impl fmt::Display for Hosts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (host, port)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", HostAndPort(host, *port))?;
        }
        Ok(())
    }
}

/// Prints an address as in a URL.
pub struct HostAndPort<'a>(pub &'a str, pub u16);

impl fmt::Display for HostAndPort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostAndPort(host, port) = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Private => f.write_str("private"),
            Backend::Redis(url) => url.fmt(f),
        }
    }
}

/// Why a text is no backend. The message repeats nothing that could be a password.
#[derive(Debug, thiserror::Error)]
pub enum BackendUrlError {
    #[error("\"{0}\" has no scheme; write \"redis://{0}\"")]
    NoScheme(String),
    #[error("neither \"private\" nor a URL; write {SHAPE}")]
    NoUrl,
    #[error("what sentinels call the primary stands behind the last /; write {SENTINEL_SHAPE}")]
    PrimaryName,
    #[error("{MAX_HOSTS} sentinels are the most")]
    ManySentinels,
    #[error("{MAX_HOSTS} nodes are the most in a URL: they name the others")]
    ManyNodes,
    #[error("a cluster has no database but 0, and nothing stands behind its nodes; write {CLUSTER_SHAPE}")]
    ClusterOptions,
    #[error("the only option behind the name of the primary is ?db=number; write {SENTINEL_SHAPE}")]
    SentinelOptions,
    #[error("the path of a unix socket has to be a whole one, as in redis+unix:///run/redis/redis.sock")]
    SocketPath,
    #[error("the path of a unix socket has at most {MAX_PATH} bytes")]
    LongSocketPath,
    #[error("the only option of a unix socket is ?db=number; write {UNIX_SHAPE}")]
    SocketOptions,
    #[error("write {0}:// for Valkey too; the protocol is the same")]
    Valkey(&'static str),
    #[error(
        "must begin with redis://, rediss:// (TLS), redis+unix://, redis-sentinel:// or redis-cluster://; write {SHAPE}, {UNIX_SHAPE}, {SENTINEL_SHAPE} or {CLUSTER_SHAPE}"
    )]
    OtherScheme,
    #[error("options behind ? or # are not understood; write {SHAPE}")]
    Options,
    #[error("the part behind the last / must be a database number, as in /0")]
    Database,
    #[error("the part in [ ] must be an IPv6 address, as in redis://[::1]:6379")]
    NoIpv6InBrackets,
    #[error("an IPv6 address needs brackets, as in redis://[::1]:6379")]
    Ipv6WithoutBrackets,
    #[error("there is no usable host; write {SHAPE}")]
    Host,
    #[error("the port must be a number from 1 to 65535")]
    Port,
    #[error("the user or password has a % without two hex digits; write %25 for %")]
    PercentSign,
    #[error("the user or password is not UTF-8 text")]
    NotUtf8,
    #[error("the password {0}")]
    Password(SecretError),
}

/// `private`, or a URL.
pub fn backend(text: &str) -> Result<Backend, BackendUrlError> {
    if text == "private" {
        return Ok(Backend::Private);
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(match is_host_and_port(text) {
            true => BackendUrlError::NoScheme(text.to_owned()),
            false => BackendUrlError::NoUrl,
        });
    };
    let over_tls = |url| Backend::Redis(BackendUrl { tls: true, ..url });
    match scheme {
        "redis" => url(rest).map(Backend::Redis),
        "rediss" => url(rest).map(over_tls),
        "redis-sentinel" | "redis+sentinel" => sentinel_url(rest).map(Backend::Redis),
        "rediss-sentinel" | "rediss+sentinel" => sentinel_url(rest).map(over_tls),
        "redis-cluster" | "redis+cluster" => cluster_url(rest).map(Backend::Redis),
        "rediss-cluster" | "rediss+cluster" => cluster_url(rest).map(over_tls),
        "redis+unix" | "unix" | "redis-socket" => unix_url(rest).map(Backend::Redis),
        "valkey" => Err(BackendUrlError::Valkey("redis")),
        "valkeys" => Err(BackendUrlError::Valkey("rediss")),
        _ => Err(BackendUrlError::OtherScheme),
    }
}

fn url(rest: &str) -> Result<BackendUrl, BackendUrlError> {
    // The last @, so that a password with a bare @ or / in it is not taken for a host and shown.
    let (login, server) = match rest.rsplit_once('@') {
        Some((login, server)) => (Some(login), server),
        None => (None, rest),
    };
    if server.contains(['?', '#']) {
        return Err(BackendUrlError::Options);
    }
    let (authority, db) = match server.split_once('/') {
        Some((authority, db)) => (authority, db),
        None => (server, ""),
    };
    let (host, port) = host_and_port(authority)?;
    let (user, password) = login.map_or(Ok((None, None)), credentials)?;
    let db = match db {
        "" => 0,
        digits => database(digits)?,
    };
    Ok(BackendUrl { target: Target::Tcp { host, port }, tls: false, user, password, db })
}

/// `/run/redis/redis.sock?db=1`, behind an optional login.
fn unix_url(rest: &str) -> Result<BackendUrl, BackendUrlError> {
    let (login, rest) = match rest.rsplit_once("@/") {
        Some((login, _)) => (Some(login), &rest[login.len() + 1..]),
        None => (None, rest),
    };
    let (path, db) = with_database(rest, BackendUrlError::SocketOptions)?;
    if !path.starts_with('/') || path.len() < 2 || path.ends_with('/') || path.contains('\0') {
        return Err(BackendUrlError::SocketPath);
    }
    if path.len() > MAX_PATH {
        return Err(BackendUrlError::LongSocketPath);
    }
    let (user, password) = login.map_or(Ok((None, None)), credentials)?;
    Ok(BackendUrl { target: Target::Unix(path.into()), tls: false, user, password, db })
}

/// `s1:26379,s2,s3/mymaster?db=1`, behind an optional login to the primary.
fn sentinel_url(rest: &str) -> Result<BackendUrl, BackendUrlError> {
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, rest),
    };
    let (rest, db) = with_database(rest, BackendUrlError::SentinelOptions)?;
    let (hosts, name) = rest.split_once('/').ok_or(BackendUrlError::PrimaryName)?;
    // As `sentinel monitor` takes it.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if name.is_empty() || name.len() > MAX_PRIMARY_NAME || !name.bytes().all(is_plain) {
        return Err(BackendUrlError::PrimaryName);
    }
    let sentinels = hosts_and_ports(hosts, SENTINEL_PORT)?;
    if sentinels.len() > MAX_HOSTS {
        return Err(BackendUrlError::ManySentinels);
    }
    let (user, password) = login.map_or(Ok((None, None)), credentials)?;
    Ok(BackendUrl {
        target: Target::Sentinel(SentinelTarget { sentinels, name: name.to_owned(), login: None }),
        tls: false,
        user,
        password,
        db,
    })
}

/// `n1,n2:7000`, behind an optional login to each node.
fn cluster_url(rest: &str) -> Result<BackendUrl, BackendUrlError> {
    let (login, hosts) = match rest.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, rest),
    };
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    if hosts.contains(['/', '?', '#']) {
        return Err(BackendUrlError::ClusterOptions);
    }
    let nodes = hosts_and_ports(hosts, REDIS_PORT)?;
    if nodes.len() > MAX_HOSTS {
        return Err(BackendUrlError::ManyNodes);
    }
    let (user, password) = login.map_or(Ok((None, None)), credentials)?;
    Ok(BackendUrl { target: Target::Cluster(nodes), tls: false, user, password, db: 0 })
}

fn hosts_and_ports(hosts: &str, usual: u16) -> Result<Vec<(String, u16)>, BackendUrlError> {
    hosts.split(',').map(|host| host_and_port_or(host, usual)).collect()
}

/// The part before `?db=1`, and the database number; any other option is the error `wrong`.
fn with_database(rest: &str, wrong: BackendUrlError) -> Result<(&str, u32), BackendUrlError> {
    let Some((before, options)) = rest.split_once('?') else {
        return Ok((rest, 0));
    };
    let digits = options.strip_prefix("db=").ok_or(wrong)?;
    Ok((before, database(digits)?))
}

/// Redis keeps database numbers in an int.
fn database(digits: &str) -> Result<u32, BackendUrlError> {
    let db = digits.parse().ok();
    db.filter(|&db| db <= i32::MAX as u32).ok_or(BackendUrlError::Database)
}

fn host_and_port(authority: &str) -> Result<(String, u16), BackendUrlError> {
    host_and_port_or(authority, REDIS_PORT)
}

fn host_and_port_or(authority: &str, usual: u16) -> Result<(String, u16), BackendUrlError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed
                .split_once(']')
                .filter(|(host, _)| host.parse::<std::net::Ipv6Addr>().is_ok())
                .ok_or(BackendUrlError::NoIpv6InBrackets)?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').unwrap_or("")) })
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(BackendUrlError::Ipv6WithoutBrackets);
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() || host.len() > 255 || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BackendUrlError::Host);
    }
    let port = match port {
        None => usual,
        Some(digits) => digits.parse().ok().filter(|&port| port != 0).ok_or(BackendUrlError::Port)?,
    };
    Ok((host.to_owned(), port))
}

fn credentials(login: &str) -> Result<(Option<String>, Option<Secret>), BackendUrlError> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let user = match user {
        "" => None,
        user => Some(percent_decoded(user)?),
    };
    let password = match password {
        None | Some("") => None,
        Some(text) => Some(secret::password(&percent_decoded(text)?).map_err(BackendUrlError::Password)?),
    };
    Ok((user, password))
}

fn percent_decoded(text: &str) -> Result<String, BackendUrlError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(BackendUrlError::PercentSign);
        };
        decoded.push((high * 16 + low) as u8);
    }
    String::from_utf8(decoded).map_err(|_| BackendUrlError::NotUtf8)
}

fn is_host_and_port(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    text.split_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && host.len() < 64 && host.bytes().all(plain) && port.parse::<u16>().is_ok()
    })
}

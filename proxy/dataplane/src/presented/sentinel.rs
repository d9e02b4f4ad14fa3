//! What one listener returns as a Sentinel: the primary, which is always this proxy, the other sentinels, and what
//! Redis's own Sentinel returns besides, field by field, because libraries look at some of it and monitoring programs
//! at more.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use lockwarden_control::config::{HostPort, SentinelFace};
use lockwarden_control::random;
use lockwarden_resp::Value;
use sha1::{Digest, Sha1};

use super::answer::text;

/// The Redis version whose Sentinel is imitated: that of Debian 12, with which a test compares.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// What a real Sentinel returns by default, in milliseconds.
const DOWN_AFTER: u64 = 30_000;
const FAILOVER_TIMEOUT: u64 = 180_000;

/// See the module.
#[derive(Debug)]
pub struct Sentinel {
    names: Vec<String>,
    primary: Primary,
    peers: Vec<Peer>,
    /// The port that clients connect to.
    port: u16,
    /// Its own id, and that of the primary: forty hexadecimal digits, as Redis has them.
    id: String,
    primary_id: String,
    since: Instant,
    /// Connections so far.
    connections: AtomicI64,
}

/// The address that is returned for the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primary {
    /// This address.
    At(HostPort),
    /// This port of the address at which the client has reached the sentinel.
    Port(u16),
}

/// Another sentinel.
#[derive(Debug)]
struct Peer {
    address: HostPort,
    id: String,
}

impl Sentinel {
    /// A sentinel with its address at this port.
    pub fn new(face: &SentinelFace, primary: Primary, port: u16) -> Sentinel {
        let peers =
            face.peers.iter().cloned().map(|address| Peer { id: hex(&Sha1::digest(address.to_string())), address });
        Sentinel {
            names: face.names.clone(),
            primary,
            peers: peers.collect(),
            port,
            id: random_id(),
            primary_id: random_id(),
            since: Instant::now(),
            connections: AtomicI64::new(0),
        }
    }

    /// The number of a new connection.
    pub(super) fn next_connection(&self) -> i64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The name, if it is one of the primary's.
    pub(super) fn name(&self, name: &[u8]) -> Option<&str> {
        let names = self.names.iter().map(String::as_str);
        names.into_iter().find(|known| known.as_bytes() == name)
    }

    /// The reply to `ROLE`.
    pub(super) fn role(&self) -> Value {
        let names = self.names.iter().map(text);
        Value::Array(vec![text("sentinel"), Value::Array(names.collect())])
    }

    /// The address of the primary, for a client that connected to this address.
    fn primary(&self, entrance: IpAddr) -> HostPort {
        match &self.primary {
            Primary::At(address) => address.clone(),
            Primary::Port(port) => HostPort { host: entrance.to_canonical().to_string(), port: *port },
        }
    }

    /// The same as two strings.
    pub(super) fn address(&self, entrance: IpAddr) -> Value {
        let HostPort { host, port } = self.primary(entrance);
        Value::Array(vec![text(host), text(port.to_string())])
    }

    /// The reply to `SENTINEL MASTERS`.
    pub(super) fn masters(&self, entrance: IpAddr, now: Instant) -> Value {
        let all = self.names.iter();
        Value::Array(all.map(|name| self.master(name, entrance, now)).collect())
    }

    /// The fields of the primary, by this name.
    pub(super) fn master(&self, name: &str, entrance: IpAddr, now: Instant) -> Value {
        let HostPort { host, port } = self.primary(entrance);
        let up = self.up(now).as_millis();
        fields(&[
            ("name", name),
            ("ip", &host),
            ("port", &port.to_string()),
            ("runid", &self.primary_id),
            ("flags", "master"),
            ("link-pending-commands", "0"),
            ("link-refcount", "1"),
            ("last-ping-sent", "0"),
            ("last-ok-ping-reply", "0"),
            ("last-ping-reply", "0"),
            ("down-after-milliseconds", &DOWN_AFTER.to_string()),
            ("info-refresh", "0"),
            ("role-reported", "master"),
            ("role-reported-time", &up.to_string()),
            ("config-epoch", "0"),
            ("num-slaves", "0"),
            ("num-other-sentinels", &self.peers.len().to_string()),
            ("quorum", &self.quorum().to_string()),
            ("failover-timeout", &FAILOVER_TIMEOUT.to_string()),
            ("parallel-syncs", "1"),
        ])
    }

    /// The other sentinels.
    pub(super) fn sentinels(&self) -> Value {
        let peers = self.peers.iter().map(|peer| {
            fields(&[
                ("name", &peer.id),
                ("ip", &peer.address.host),
                ("port", &peer.address.port.to_string()),
                ("runid", &peer.id),
                ("flags", "sentinel"),
                ("link-pending-commands", "0"),
                ("link-refcount", "1"),
                ("last-ping-sent", "0"),
                ("last-ok-ping-reply", "0"),
                ("last-ping-reply", "0"),
                ("down-after-milliseconds", &DOWN_AFTER.to_string()),
                ("last-hello-message", "0"),
                ("voted-leader", "?"),
                ("voted-leader-epoch", "0"),
            ])
        });
        Value::Array(peers.collect())
    }

    /// Whether it knows no other sentinel.
    pub fn is_alone(&self) -> bool {
        self.peers.is_empty()
    }

    /// How many sentinels there are, including this one.
    pub(super) fn all(&self) -> usize {
        self.peers.len() + 1
    }

    fn quorum(&self) -> usize {
        self.all() / 2 + 1
    }

    fn up(&self, now: Instant) -> std::time::Duration {
        now.saturating_duration_since(self.since)
    }

    /// The sections of `INFO` that these words ask for, each in any case; no words ask for all.
    pub(super) fn info(&self, words: &[&[u8]], entrance: IpAddr, now: Instant) -> String {
        let is_asked = |section: &str| {
            let all = ["default", "all", "everything", section];
            let means = |word: &&&[u8]| all.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(word));
            words.is_empty() || words.iter().any(|word| means(&word))
        };
        let mut info = String::new();
        for (section, fields) in [("Server", self.server(now)), ("Sentinel", self.section(entrance))] {
            if is_asked(section) {
                let between = if info.is_empty() { "" } else { "\r\n" };
                let _ = write!(info, "{between}# {section}\r\n{fields}");
            }
        }
        info
    }

    fn server(&self, now: Instant) -> String {
        let up = self.up(now).as_secs();
        format!(
            "redis_version:{REDIS_VERSION}\r\nlockwarden_version:{}\r\nredis_mode:sentinel\r\narch_bits:{}\r\nprocess_id:{}\r\n\
             run_id:{}\r\ntcp_port:{}\r\nuptime_in_seconds:{up}\r\nuptime_in_days:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            usize::BITS,
            std::process::id(),
            self.id,
            self.port,
            up / 86_400,
        )
    }

    fn section(&self, entrance: IpAddr) -> String {
        let mut section = format!(
            "sentinel_masters:{}\r\nsentinel_tilt:0\r\nsentinel_tilt_since_seconds:-1\r\nsentinel_total_tilt:0\r\nsentinel_running_scripts:0\r\n\
             sentinel_scripts_queue_length:0\r\nsentinel_simulate_failure_flags:0\r\n",
            self.names.len()
        );
        let HostPort { host, port } = self.primary(entrance);
        for (number, name) in self.names.iter().enumerate() {
            let sentinels = self.all();
            let _ = write!(
                section,
                "master{number}:name={name},status=ok,address={host}:{port},slaves=0,sentinels={sentinels}\r\n"
            );
        }
        section
    }
}

fn fields(fields: &[(&str, &str)]) -> Value {
    let pairs = fields.iter().map(|(key, value)| (text(*key), text(*value)));
    Value::Map(pairs.collect())
}

fn random_id() -> String {
    let mut bytes = [0; 20];
    random::fill(&mut bytes);
    hex(&bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

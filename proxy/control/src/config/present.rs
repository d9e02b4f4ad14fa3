//! What a listener is for its clients: the Redis behind the proxy, a Sentinel that names the address of that Redis
//! (`present = "sentinel"`), or a node that has all slots of a cluster (`present = "cluster"`). `advertise` finds the
//! address that such a Sentinel names; its replies are in `presented`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::reader::{Found, Reader, Section};
use super::suggest::quoted;
use super::value;

/// The most names that one listener knows.
const MAX_NAMES: usize = 64;
/// The most other sentinels that one listener names.
const MAX_PEERS: usize = 64;
/// The primary's name in Redis's example configuration, and nearly everywhere.
const USUAL_NAME: &str = "mymaster";
/// Longest name of a host, bytes.
const MAX_HOST: usize = 255;

const KINDS: [(&str, Kind); 3] =
    [("standalone", Kind::Standalone), ("sentinel", Kind::Sentinel), ("cluster", Kind::Cluster)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Standalone,
    Sentinel,
    Cluster,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Present {
    /// The Redis behind the proxy.
    Standalone,
    /// A Sentinel, which has no data.
    Sentinel(SentinelFace),
    /// The only node of a cluster, for cluster clients; with the address that it reports as its own.
    Cluster(Advertise),
}

impl Present {
    /// Whether this listener leads to the backend.
    pub fn has_data(&self) -> bool {
        !matches!(self, Present::Sentinel(_))
    }
}

/// What a listener that acts as a Sentinel reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelFace {
    /// The names of the primary. At least one, without duplicates.
    pub names: Vec<String>,
    /// The address that it reports for the primary.
    pub advertise: Advertise,
    /// The other sentinels: such listeners of other proxies.
    pub peers: Vec<HostPort>,
}

/// Where clients are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advertise {
    /// To a listener of this proxy; see [`super::advertise::target`].
    Auto,
    /// There.
    Address(HostPort),
}

impl fmt::Display for Advertise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advertise::Auto => f.write_str("auto"),
            Advertise::Address(address) => address.fmt(f),
        }
    }
}

/// A host by its name or IP address, and a port other than 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Why a text is not a host and a port.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostPortError {
    #[error("{} has no port; write one behind it, as in \"b.corp:26380\"", quoted(.0))]
    NoPort(String),
    #[error("{} has no port from 1 to 65535", quoted(.0))]
    BadPort(String),
    #[error("{} is an IPv6 address without brackets; write \"[::1]:26380\"", quoted(.0))]
    NoBrackets(String),
    #[error("{} does not begin with a host's name or IP address, as in \"b.corp:26380\"", quoted(.0))]
    NoHost(String),
}

/// `b.corp:26380`, `10.0.0.7:26380`, `[fd00::7]:26380`.
fn host_and_port(text: &str) -> Result<HostPort, HostPortError> {
    let whole = || text.to_owned();
    let is_bare = text.parse::<IpAddr>().is_ok() || text.ends_with(']');
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(HostPortError::NoBrackets(whole()));
    }
    let Some((host, port)) = text.rsplit_once(':').filter(|_| !is_bare) else {
        return Err(HostPortError::NoPort(whole()));
    };
    let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| HostPortError::BadPort(whole()))?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bracketed {
        Some(host) => host.parse::<Ipv6Addr>().ok().map(|ip| ip.to_string()),
        None => is_host(host).then(|| host.to_owned()),
    };
    let host = host.ok_or_else(|| HostPortError::NoHost(whole()))?;
    Ok(HostPort { host, port })
}

fn is_host(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=MAX_HOST).contains(&text.len()) && text.bytes().all(plain)
}

fn advertise(text: &str) -> Result<Advertise, HostPortError> {
    match text {
        "auto" => Ok(Advertise::Auto),
        _ => host_and_port(text).map(Advertise::Address),
    }
}

/// Reads `present` and its related keys of one `[[listener]]`.
pub(super) fn read(reader: &mut Reader<'_>, section: &Section<'_, '_>, is_unix: bool) -> Present {
    let kind = reader.choice(section, "present", &KINDS);
    let names = reader.strings(section, "names", MAX_NAMES, value::name);
    let advertise = reader.parsed(section, "advertise", advertise);
    let peers = reader.strings(section, "peers", MAX_PEERS, host_and_port);
    // An invalid word was already reported.
    let kind = kind.or_else(|| (!section.table.contains_key("present")).then_some(Kind::Standalone));
    let mut belongs_to = |key: &str, whose: &str| {
        if let Some(value) = section.table.get(key) {
            let scope = &section.scope;
            reader.error(value.span(), || format!("{scope}{key}: only a listener with present = {whose} has this"));
        }
    };
    if let Some(Kind::Standalone | Kind::Cluster) = kind {
        belongs_to("names", "\"sentinel\"");
        belongs_to("peers", "\"sentinel\"");
    }
    if kind == Some(Kind::Standalone) {
        belongs_to("advertise", "\"sentinel\" or \"cluster\"");
        return Present::Standalone;
    }
    let span = section.table.get("present").map(toml::Spanned::span);
    if let (true, Some(span)) = (is_unix, span) {
        let scope = &section.scope;
        let what = if kind == Some(Kind::Cluster) { "a cluster" } else { "a sentinel" };
        reader.error(span, || {
            format!("{scope}present: clients look for {what} at an IP address and a port; a unix socket has none")
        });
    }
    if kind == Some(Kind::Cluster) {
        return Present::Cluster(advertise.map_or(Advertise::Auto, |found| found.value));
    }
    Present::Sentinel(SentinelFace {
        names: checked_names(reader, section, names),
        advertise: advertise.map_or(Advertise::Auto, |found| found.value),
        peers: peers.map_or_else(Vec::new, |peers| values(peers.value)),
    })
}

fn checked_names(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    names: Option<Found<Vec<Found<String>>>>,
) -> Vec<String> {
    let Some(names) = names else {
        return vec![USUAL_NAME.to_owned()];
    };
    let scope = &section.scope;
    let is_empty = section
        .table
        .get("names")
        .is_some_and(|value| value.get_ref().as_array().is_some_and(|names| names.is_empty()));
    if is_empty {
        reader.error(names.span.clone(), || {
            format!("{scope}names: nobody could ask for the primary; write names = [\"{USUAL_NAME}\"]")
        });
    }
    for (index, found) in names.value.iter().enumerate() {
        let earlier = &names.value[..index];
        if earlier.iter().any(|other| other.value == found.value) {
            let name = quoted(&found.value);
            reader.error(found.span.clone(), || format!("{scope}names: {name} is there twice"));
        }
    }
    values(names.value)
}

fn values<T>(found: Vec<Found<T>>) -> Vec<T> {
    found.into_iter().map(|found| found.value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read_and_what_is_none_is_told_why() {
        for (text, expected) in [
            ("b.corp:26380", "b.corp:26380"),
            ("10.0.0.7:1", "10.0.0.7:1"),
            ("[fd00::07]:26380", "[fd00::7]:26380"),
            ("redis_b:65535", "redis_b:65535"),
        ] {
            let read = host_and_port(text).unwrap();
            assert_eq!(read.to_string(), expected);
        }
        for (text, why) in [
            ("", "has no port;"),
            ("b.corp", "has no port;"),
            ("10.0.0.7", "has no port;"),
            ("[::1]", "has no port;"),
            ("::1", "without brackets"),
            ("fd00::7:6379", "without brackets"),
            ("b.corp:", "has no port from 1 to 65535"),
            ("b.corp:0", "has no port from 1 to 65535"),
            ("b.corp:65536", "has no port from 1 to 65535"),
            ("b.corp:redis", "has no port from 1 to 65535"),
            (":26380", "does not begin with a host"),
            ("b corp:26380", "does not begin with a host"),
            ("redis://b:26380", "does not begin with a host"),
            ("[b.corp]:26380", "does not begin with a host"),
            ("a:b:26380", "does not begin with a host"),
            ("b\r\n:26380", "does not begin with a host"),
        ] {
            let error = host_and_port(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}

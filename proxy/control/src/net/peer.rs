//! The address of a client, read from its connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use tokio::net::UnixStream;

/// The other end of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// A process on this machine, over a unix socket.
    Unix(UnixPeer),
}

/// The process that connected to a unix socket: the kernel recorded it at that moment (unix(7), `SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnixPeer {
    /// The process ID; `None` if it is in a PID namespace that this process cannot see.
    pub process: Option<u32>,
}

impl PeerAddress {
    /// The peer of a unix socket.
    pub fn of_unix(socket: &UnixStream) -> PeerAddress {
        let number = socket.peer_cred().ok().and_then(|peer| peer.pid());
        let number = number.and_then(|number| u32::try_from(number).ok());
        PeerAddress::Unix(UnixPeer { process: number.filter(|number| *number != 0) })
    }

    /// Its IP address; an IPv4 address that arrived over an IPv6 socket is returned as IPv4.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            PeerAddress::Tcp(address) => Some(address.ip().to_canonical()),
            PeerAddress::Unix(_) => None,
        }
    }

    /// The part that all connections from the same host share: the IP address, or `unix`.
    pub fn host(&self) -> String {
        self.ip().map_or_else(|| UNIX.to_owned(), |ip| ip.to_string())
    }

    /// Whether it is on this machine.
    pub fn is_local(&self) -> bool {
        self.ip().is_none_or(|ip| ip.is_loopback())
    }
}

/// Used in place of an IP address.
const UNIX: &str = "unix";

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> PeerAddress {
        PeerAddress::Tcp(address)
    }
}

impl From<([u8; 4], u16)> for PeerAddress {
    fn from(address: ([u8; 4], u16)) -> PeerAddress {
        PeerAddress::Tcp(address.into())
    }
}

/// `10.0.0.7:40000`, `unix:4242`, or `unix` where the process cannot be seen.
impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Tcp(address) => address.fmt(f),
            PeerAddress::Unix(UnixPeer { process: Some(number) }) => write!(f, "{UNIX}:{number}"),
            PeerAddress::Unix(UnixPeer { process: None }) => f.write_str(UNIX),
        }
    }
}

//! The two ends that identify a connection.

use std::net::SocketAddr;

/// The two ends of a connection, as the client's socket has them. An IPv4 address that is written as an
/// IPv6 one is that IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    pub(super) client: SocketAddr,
    pub(super) local: SocketAddr,
}

impl Pair {
    pub(super) fn new(client: SocketAddr, local: SocketAddr) -> Pair {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Pair { client: plain(client), local: plain(local) }
    }
}

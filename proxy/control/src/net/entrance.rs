//! The proxy's own address by which a client came in, read from its connection.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;

use socket2::SockRef;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// The address that it connected to: one of this machine's, even if the proxy listens on all of them.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl Entrance {
    /// The entrance of an accepted connection, if the system reports it.
    pub fn of(stream: &impl AsFd) -> Option<Entrance> {
        let local = SockRef::from(stream).local_addr().ok()?;
        if let Some(address) = local.as_socket() {
            return Some(Entrance::Tcp(address));
        }
        let path = local.as_pathname()?;
        Some(Entrance::Unix(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn an_accepted_connection_tells_where_it_came_in() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(Entrance::of(&accepted), Some(Entrance::Tcp(address)));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(Entrance::of(&accepted), Some(Entrance::Unix(path)));
    }
}

//! The addresses by which clients come in, how one process takes them over from another, socket options, and the rule
//! that keeps an unprotected Redis off the network. It opens listeners and reads nothing from them; `app::accept` and
//! `admin` accept.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::stream::Stream;

/// The most connections that wait to be accepted. Redis's own default (`tcp-backlog`); the kernel limits it to
/// `net.core.somaxconn`.
pub(super) const BACKLOG: i32 = 511;

/// A silent connection is probed after this time …
const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
/// … then this often …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// … and closed after this many unanswered probes: 10 s + 3 × 5 s = 25 s.
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent data may stay unacknowledged. Keep-alive only probes a connection with no data in flight. Without this
/// limit, a peer that vanishes while a reply is in flight is noticed after about 15 minutes of retransmission (tcp(7),
/// `TCP_USER_TIMEOUT` and `tcp_retries2`; RFC 5482). Linux also lets it override the number of keep-alive probes. So
/// both cases are noticed within about half a minute, and a lock whose holder is gone is no longer renewed.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Sets the socket options of every client's connection: replies leave at once, and a peer that vanished without
/// closing is noticed within about half a minute.
pub fn prepare_client(stream: &Stream) -> io::Result<()> {
    prepare(stream, UNACKNOWLEDGED)
}

fn prepare(stream: &Stream, unacknowledged: Duration) -> io::Result<()> {
    let Some(stream) = stream.tcp() else {
        // The kernel knows both ends of a unix socket, and reports the end of the other side at once.
        return Ok(());
    };
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(unacknowledged))?;
    Ok(())
}

/// How long data sent to the backend may stay unacknowledged. Longer than for clients: Linux also counts the time in
/// which the other side accepts no more bytes, and a Redis that runs a long script or waits for a slow disk accepts
/// none, though it is alive.
const UNACKNOWLEDGED_BY_BACKEND: Duration = Duration::from_secs(60);

/// Sets the socket options of every connection to the backend: requests leave at once, and a server that vanished
/// without closing is noticed within about a minute.
pub fn prepare_backend(stream: &Stream) -> io::Result<()> {
    prepare(stream, UNACKNOWLEDGED_BY_BACKEND)
}

/// How a process gets its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// They must be free, or it does not start.
    Alone,
    /// The proxy that has them now is about to stop.
    TakingOver,
}

/// An address that is reserved for us, and not open yet.
#[derive(Debug)]
pub struct Endpoint {
    socket: Socket,
    arrival: Arrival,
}

impl Endpoint {
    /// Reserves the address. If it is in use, this is an error here, before anything has started, unless it is to be
    /// taken over. A free address is reserved as if there were nothing to take over.
    pub fn reserve(address: SocketAddr, arrival: Arrival) -> io::Result<Endpoint> {
        match (Endpoint::bind(address, Arrival::Alone), arrival) {
            (Err(error), Arrival::TakingOver) if error.kind() == io::ErrorKind::AddrInUse => {
                Endpoint::bind(address, Arrival::TakingOver)
            }
            (bound, _) => bound,
        }
    }

    /// Its port; the assigned one if 0 was requested.
    pub fn port(&self) -> Option<u16> {
        let address = self.socket.local_addr().ok()?.as_socket()?;
        Some(address.port())
    }

    /// Whether another process still has it.
    pub fn is_taken_over(&self) -> bool {
        self.arrival == Arrival::TakingOver
    }

    fn bind(address: SocketAddr, arrival: Arrival) -> io::Result<Endpoint> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restart need not wait until the last run's connections are forgotten. On Linux this does not let two
        // processes listen on one address.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        // Setting this before bind requests to share the address, and the kernel lets two processes of one user share
        // it if both set it. Setting it after bind, as below, only permits the next process to share: a second proxy
        // that was started by mistake finds the address in use.
        #[cfg(target_os = "linux")]
        socket.set_reuse_port(arrival == Arrival::TakingOver)?;
        socket.bind(&address.into())?;
        #[cfg(target_os = "linux")]
        socket.set_reuse_port(true)?;
        Ok(Endpoint { socket, arrival })
    }

    /// Opens it for clients. If it is taken over, all new connections come to this process.
    pub fn open(self) -> io::Result<TcpListener> {
        self.socket.listen(BACKLOG)?;
        #[cfg(target_os = "linux")]
        if self.arrival == Arrival::TakingOver
            && let Err(error) = take_newcomers(&self.socket)
        {
            tracing::warn!(%error, "half of the new clients go on coming to the other process");
        }
        Ok(self.socket.into())
    }
}

/// Directs every new connection to the second of the two listening processes. Without this the kernel would continue to
/// give half of them to the first, and those not accepted when the first stops would be reset. Once the first is gone
/// there is no second, and the kernel ignores the rule.
#[cfg(target_os = "linux")]
fn take_newcomers(listener: &Socket) -> io::Result<()> {
    // A program of one instruction: "return 1", the index of the second.
    let mut second = [libc::sock_filter { code: RETURN_CONSTANT, jt: 0, jf: 0, k: 1 }];
    let program = libc::sock_fprog { len: 1, filter: second.as_mut_ptr() };
    let size =
        libc::socklen_t::try_from(size_of_val(&program)).map_err(|_| io::Error::other("a program has no size"))?;
    // SAFETY: the socket is open; `program` is an initialised `sock_fprog` of `size` bytes whose one
    // instruction outlives the call, and the kernel copies both.
    let failed = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size,
        )
    };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `BPF_RET | BPF_K` of linux/bpf_common.h.
#[cfg(target_os = "linux")]
const RETURN_CONSTANT: u16 = 0x06;

/// Whether only this machine can reach the address.
pub fn is_loopback(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::net::stream::Detached;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn a_clients_socket_notices_a_vanished_peer() {
        let listener = open("127.0.0.1:0", Arrival::Alone).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Detached::Tcp(stream).attach().unwrap();
        prepare_client(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_RETRIES);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    }

    #[tokio::test]
    async fn a_backends_socket_notices_a_vanished_server_later() {
        let listener = open("127.0.0.1:0", Arrival::Alone).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Detached::Tcp(stream).attach().unwrap();
        prepare_backend(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED_BY_BACKEND));
    }

    fn open(address_text: &str, arrival: Arrival) -> io::Result<TcpListener> {
        Endpoint::reserve(address(address_text), arrival)?.open()
    }

    #[test]
    fn an_occupied_port_is_an_error_at_once() {
        let first = open("127.0.0.1:0", Arrival::Alone).unwrap();
        let taken = first.local_addr().unwrap().to_string();
        let error = open(&taken, Arrival::Alone).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn who_takes_over_gets_every_newcomer_and_a_third_is_still_refused() {
        let first = open("127.0.0.1:0", Arrival::Alone).unwrap();
        let taken = first.local_addr().unwrap().to_string();
        let endpoint = Endpoint::reserve(address(&taken), Arrival::TakingOver).unwrap();
        let early: Vec<_> = (0..8).map(|_| TcpStream::connect(&taken).unwrap()).collect();
        for _ in &early {
            first.accept().unwrap();
        }
        let second = endpoint.open().unwrap();
        let late: Vec<_> = (0..32).map(|_| TcpStream::connect(&taken).unwrap()).collect();
        for _ in &late {
            second.accept().unwrap();
        }
        let none = first.accept().unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        let error = open(&taken, Arrival::Alone).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);

        drop(first);
        TcpStream::connect(&taken).unwrap();
        second.accept().unwrap();
        let third = open(&taken, Arrival::TakingOver).unwrap();
        TcpStream::connect(&taken).unwrap();
        third.accept().unwrap();
    }

    #[test]
    fn loopback_is_told_from_the_network() {
        for (text, expected) in [
            ("127.0.0.1:6380", true),
            ("127.8.9.1:6380", true),
            ("[::1]:6380", true),
            ("[::ffff:127.0.0.1]:6380", true),
            ("0.0.0.0:6380", false),
            ("[::]:6380", false),
            ("10.0.0.7:6380", false),
            ("[::ffff:10.0.0.7]:6380", false),
        ] {
            assert_eq!(is_loopback(address(text)), expected, "{text}");
        }
    }
}

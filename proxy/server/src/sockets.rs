//! Options of the sockets that clients come in by, and the rule that keeps an unprotected Redis off
//! the network. It opens the listener and reads nothing from it; `listener.rs` accepts.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that wait to be accepted. Redis's own default (`tcp-backlog`); the kernel cuts it
/// to `net.core.somaxconn`.
const BACKLOG: i32 = 511;

/// A silent connection is asked for a sign of life after this time …
const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
/// … then this often …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// … and given up after this many unanswered questions: 10 s + 3 × 5 s = 25 s.
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent data may stay unacknowledged. Keep-alive asks only a connection on which nothing
/// is under way; without this, a peer that vanishes while a reply is under way is noticed after
/// some 15 minutes of retransmission (tcp(7), `TCP_USER_TIMEOUT` and `tcp_retries2`; RFC 5482).
/// Linux also lets it overrule the number of keep-alive questions, so both ways of vanishing are
/// noticed within about half a minute, and a lock whose holder is gone stops being renewed.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Sets what every client's connection needs: replies leave at once, and a peer that vanished
/// without a word is noticed within about half a minute.
pub(crate) fn prepare_client(stream: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

/// Opens the listener, not blocking, ready to be given to the runtime. An address that is in use
/// is an error here, before anything else has started.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // A restart need not wait until the connections of the last run are forgotten. On Linux this
    // does not let two processes listen on one address.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Whether only this machine can reach the address.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    }
}

/// Why nobody may be served, if so. Redis's protected mode refuses strangers by their address, and
/// behind the proxy everybody comes from the proxy's, so the proxy has to do that job.
pub(crate) fn open_network_refusal(
    listen: SocketAddr,
    backend_lets_anybody_in: bool,
    allow_open: bool,
) -> Option<String> {
    if is_loopback(listen) || !backend_lets_anybody_in || allow_open {
        return None;
    }
    Some(format!(
        "the backend lets anybody in without a password and {listen} can be reached from the \
         network: set a password in the backend (requirepass, or an ACL for the default user), \
         or listen on 127.0.0.1, or say allow_open = true"
    ))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_clients_socket_notices_a_vanished_peer() {
        let listener = listen(address("127.0.0.1:0")).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare_client(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_RETRIES);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    }

    #[test]
    fn an_occupied_port_is_an_error_at_once() {
        let first = listen(address("127.0.0.1:0")).unwrap();
        let error = listen(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
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

    #[test]
    fn only_an_open_backend_on_the_network_without_leave_is_refused() {
        for (listen, open, allowed, refused) in [
            ("0.0.0.0:6380", true, false, true),
            ("10.0.0.7:6380", true, false, true),
            ("[::]:6380", true, false, true),
            ("0.0.0.0:6380", true, true, false),
            ("0.0.0.0:6380", false, false, false),
            ("127.0.0.1:6380", true, false, false),
            ("[::1]:6380", true, false, false),
        ] {
            let refusal = open_network_refusal(address(listen), open, allowed);
            assert_eq!(refusal.is_some(), refused, "{listen} {open} {allowed}");
            assert!(refusal.is_none_or(|text| !text.contains('\n') && text.contains("allow_open")));
        }
    }
}

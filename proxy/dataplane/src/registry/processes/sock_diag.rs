//! Asks the kernel for one TCP socket by its two addresses, by `sock_diag(7)`, as `ss` does. It costs the same
//! however many sockets the machine has. The messages are short and of fixed layout, in the machine's own byte order
//! except for ports and addresses.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::pair::Pair;

// From linux/socket.h, netlink.h, sock_diag.h and in.h.
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
/// No such socket; also the reply of a kernel that has no `inet_diag`.
const ENOENT: i32 = 2;

/// `nlmsghdr`.
const HEADER: usize = 16;
/// `inet_diag_req_v2`.
const REQUEST: usize = HEADER + 56;
/// `inet_diag_msg`; attributes follow, which are of no use here.
const ANSWER: usize = HEADER + 72;
/// The place of `inet_diag_sockid` in the two, and that of `idiag_inode` in the latter.
const ASKED_ID: usize = HEADER + 8;
const TOLD_ID: usize = HEADER + 4;
const INODE: usize = HEADER + 68;

/// The loopback device's number, which is the same in every network namespace. A socket that is bound to that device
/// is found only with it; a socket that is bound to none is found as well.
const LOOPBACK_DEVICE: u32 = 1;

/// What the kernel says about a pair of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The socket's inode.
    Inode(u64),
    /// The socket is there, but no process has it any more: the rest of a connection.
    Nobodys,
    /// There is no such socket, or the kernel lacks the module for this.
    NotThere,
}

/// A way to ask, open to every user whom the system lets open a netlink socket.
pub(super) struct Diag {
    socket: Socket,
    asked: u32,
}

impl Diag {
    pub(super) fn open() -> io::Result<Diag> {
        if !cfg!(target_os = "linux") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let protocol = Protocol::from(NETLINK_SOCK_DIAG);
        let socket = Socket::new(Domain::from(AF_NETLINK), Type::DGRAM, Some(protocol))?;
        // The kernel has answered when `send` returns, so there is nothing to wait for.
        socket.set_nonblocking(true)?;
        Ok(Diag { socket, asked: 0 })
    }

    /// The client's socket. After an error the kernel is not asked again: a late reply would be taken for the next
    /// one.
    pub(super) fn ask(&mut self, pair: &Pair) -> io::Result<Answer> {
        self.asked = self.asked.wrapping_add(1);
        // A message without an address is for the kernel, and only the kernel can answer.
        self.socket.send(&request(pair, self.asked))?;
        let mut answer = [0; 1024];
        let length = (&self.socket).read(&mut answer)?;
        read(&answer[..length], pair, self.asked)
    }
}

#[cfg(test)]
impl Diag {
    /// A kernel that gives this answer to the first question.
    pub(super) fn of_a_kernel_that_says(error: i32) -> (Diag, Socket) {
        let (socket, kernel) = Socket::pair(Domain::UNIX, Type::DGRAM, None).unwrap();
        let mut answer = [0; HEADER + 4];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        answer[8..12].copy_from_slice(&1u32.to_ne_bytes());
        answer[HEADER..].copy_from_slice(&error.to_ne_bytes());
        kernel.send(&answer).unwrap();
        socket.set_nonblocking(true).unwrap();
        (Diag { socket, asked: 0 }, kernel)
    }
}

fn request(pair: &Pair, number: u32) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(0, &(REQUEST as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    put(8, &number.to_ne_bytes());
    // A pair of mixed families is no connection, and nothing is found for it.
    let is_ipv4 = pair.client.is_ipv4() && pair.local.is_ipv4();
    put(HEADER, &[if is_ipv4 { AF_INET } else { AF_INET6 }]);
    put(HEADER + 1, &[IPPROTO_TCP]);
    // Every state.
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    put(ASKED_ID, &pair.client.port().to_be_bytes());
    put(ASKED_ID + 2, &pair.local.port().to_be_bytes());
    for (at, address) in [(4, pair.client), (20, pair.local)] {
        match address.ip() {
            IpAddr::V4(ip) if is_ipv4 => put(ASKED_ID + at, &ip.octets()),
            IpAddr::V4(ip) => put(ASKED_ID + at, &ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => put(ASKED_ID + at, &ip.octets()),
        }
    }
    put(ASKED_ID + 36, &LOOPBACK_DEVICE.to_ne_bytes());
    // Any socket that has these addresses now.
    put(ASKED_ID + 40, &u64::MAX.to_ne_bytes());
    bytes
}

fn read(answer: &[u8], pair: &Pair, number: u32) -> io::Result<Answer> {
    let strange = || io::Error::from(io::ErrorKind::InvalidData);
    if u32_at(answer, 8).ok_or_else(strange)? != number {
        return Err(strange());
    }
    match u16_at(answer, 4).ok_or_else(strange)? {
        SOCK_DIAG_BY_FAMILY if answer.len() >= ANSWER => {
            // If no connection has these addresses, the kernel returns the socket that listens on the client's.
            if told(answer) != Some(*pair) {
                return Ok(Answer::NotThere);
            }
            match u32_at(answer, INODE).ok_or_else(strange)? {
                0 => Ok(Answer::Nobodys),
                inode => Ok(Answer::Inode(u64::from(inode))),
            }
        }
        NLMSG_ERROR => match u32_at(answer, HEADER).ok_or_else(strange)?.cast_signed() {
            error if error == -ENOENT => Ok(Answer::NotThere),
            error if error < 0 && error != i32::MIN => Err(io::Error::from_raw_os_error(-error)),
            _ => Err(strange()),
        },
        _ => Err(strange()),
    }
}

/// The addresses of the socket that a reply is about.
fn told(answer: &[u8]) -> Option<Pair> {
    let ip = |at: usize| match *answer.get(HEADER)? {
        AF_INET => Some(Ipv4Addr::from(array(answer, at)?).into()),
        AF_INET6 => Some(Ipv6Addr::from(array(answer, at)?).into()),
        _ => None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(array(answer, at)?));
    let client: (IpAddr, u16) = (ip(TOLD_ID + 4)?, port(TOLD_ID)?);
    let local: (IpAddr, u16) = (ip(TOLD_ID + 20)?, port(TOLD_ID + 2)?);
    Some(Pair::new(SocketAddr::from(client), SocketAddr::from(local)))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(array(bytes, at)?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(array(bytes, at)?))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(client: &str, local: &str) -> Pair {
        Pair::new(client.parse().unwrap(), local.parse().unwrap())
    }

    /// An answer about the socket that was asked for.
    fn answered(request: &[u8], family: u8, inode: u32) -> Vec<u8> {
        let mut answer = request[..HEADER].to_vec();
        answer.extend([family, 1, 0, 0]);
        answer.extend(&request[ASKED_ID..]);
        answer.extend([0; 16]);
        answer.extend(inode.to_ne_bytes());
        assert_eq!(answer.len(), ANSWER);
        answer
    }

    #[test]
    fn an_answer_is_taken_only_for_the_socket_that_was_asked_for() {
        for (family, one, other) in [
            (AF_INET, pair("127.0.0.1:7", "127.0.0.2:8"), pair("127.0.0.1:7", "127.0.0.1:8")),
            (AF_INET6, pair("[::1]:7", "[::1]:8"), pair("[::1]:8", "[::1]:7")),
        ] {
            let answer = answered(&request(&one, 5), family, 4711);
            assert_eq!(read(&answer, &one, 5).unwrap(), Answer::Inode(4711));
            assert_eq!(read(&answer, &other, 5).unwrap(), Answer::NotThere);
            assert!(read(&answer, &one, 6).is_err());
            let nobodys = answered(&request(&one, 5), family, 0);
            assert_eq!(read(&nobodys, &one, 5).unwrap(), Answer::Nobodys);
        }
    }

    #[test]
    fn an_ipv4_address_is_the_same_in_ipv6_spelling() {
        let (short, long) = (pair("127.0.0.1:7", "127.0.0.1:8"), pair("[::ffff:127.0.0.1]:7", "[::ffff:127.0.0.1]:8"));
        assert_eq!(short, long);
        let mut answer = answered(&request(&short, 1), AF_INET6, 4711);
        for at in [TOLD_ID + 4, TOLD_ID + 20] {
            answer[at..at + 16].copy_from_slice(&Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
        }
        assert_eq!(read(&answer, &short, 1).unwrap(), Answer::Inode(4711));
    }

    #[test]
    fn an_error_is_told_from_a_socket_that_is_not_there() {
        let one = pair("127.0.0.1:7", "127.0.0.1:8");
        let failed = |error: i32| {
            let mut answer = request(&one, 1)[..HEADER].to_vec();
            answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
            answer.extend(error.to_ne_bytes());
            read(&answer, &one, 1)
        };
        assert_eq!(failed(-ENOENT).unwrap(), Answer::NotThere);
        assert_eq!(failed(-1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        for strange in [0, 7, i32::MIN] {
            assert_eq!(failed(strange).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(mut bytes: Vec<u8>, kind in 0u16..24, length in 0usize..120) {
            let one = pair("[::1]:7", "[::1]:8");
            bytes.resize(length, 0);
            if length >= HEADER {
                bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
                bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
            }
            let answer = read(&bytes, &one, 1);
            prop_assert!(length >= ANSWER || !matches!(answer, Ok(Answer::Inode(_) | Answer::Nobodys)));
        }
    }
}

//! The PROXY protocol, versions 1 and 2: before the first command, a trusted load balancer sends the address of its
//! client. The header is read here, within a limit of bytes and of time; the bytes after it are the client's and go to
//! the session. Headers of other peers are not trusted. Only the source address is used, and in version 2 also what
//! `extensions` reads.

mod extensions;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;

use super::stream::Stream;
pub use extensions::Extensions;

/// A balancer sends the header with its first packet; a lost packet is sent again within this time.
const HEADER_WITHIN: Duration = Duration::from_secs(3);

/// The longest header of version 1, with its line end: the protocol's own number.
const MAX_TEXT: usize = 107;

/// The most bytes of addresses and extensions in a header of version 2, which could have 65,535. What balancers send,
/// including certificates' names, is some hundred bytes.
const MAX_BODY: usize = 4096;

const TEXT_BEGINS: &[u8] = b"PROXY ";
const BINARY_BEGINS: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The fixed part of version 2, with version, command, family and length.
const BINARY_HEAD: usize = 16;

/// How a client's address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the connection itself.
    Direct,
    /// From the header of the balancer at this address.
    Told(IpAddr),
    /// Unknown: the balancer sent no address. A health check of its own, or a client of unknown origin.
    Untold,
}

/// Why there is no header.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The bytes are no header.
    #[error("what came is no PROXY header: {0}")]
    Malformed(&'static str),
    /// It would be longer than any header in use.
    #[error("the PROXY header is too long")]
    TooLong,
    /// It did not arrive in time.
    #[error("no PROXY header within {HEADER_WITHIN:?}")]
    Late,
    /// The balancer closed the connection first, as a health check does.
    #[error("the connection ended before a PROXY header")]
    Ended(#[source] Option<io::Error>),
}

/// How much of a header has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Incomplete,
    Complete { length: usize, said: Said },
}

/// The contents of a complete header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    source: Option<SocketAddr>,
    extensions: Extensions,
}

/// A connection that began with a header.
pub struct Introduced {
    /// The client's address.
    pub source: SocketAddr,
    pub origin: Origin,
    pub extensions: Extensions,
    /// The bytes after the header.
    pub rest: BytesMut,
}

/// Reads the header on a connection from `balancer`.
pub async fn read_header(stream: &mut Stream, balancer: SocketAddr) -> Result<Introduced, HeaderError> {
    let reading = tokio::time::timeout(HEADER_WITHIN, read(stream));
    let (said, rest) = reading.await.map_err(|_| HeaderError::Late)??;
    let (source, origin) = match said.source {
        Some(source) => (source, Origin::Told(balancer.ip())),
        None => (balancer, Origin::Untold),
    };
    Ok(Introduced { source, origin, extensions: said.extensions, rest })
}

async fn read(stream: &mut Stream) -> Result<(Said, BytesMut), HeaderError> {
    let mut bytes = BytesMut::with_capacity(BINARY_HEAD + MAX_BODY);
    loop {
        match progress(&bytes)? {
            Progress::Complete { length, said } => {
                bytes.advance(length);
                return Ok((said, bytes));
            }
            // The header ends within the capacity, so this does not grow the buffer.
            Progress::Incomplete => match stream.read_buf(&mut bytes).await {
                Ok(0) => return Err(HeaderError::Ended(None)),
                Ok(_) => {}
                Err(error) => return Err(HeaderError::Ended(Some(error))),
            },
        }
    }
}

/// Examines all bytes so far. Bytes that cannot become a header are refused at the first wrong byte.
fn progress(bytes: &[u8]) -> Result<Progress, HeaderError> {
    if begins(bytes, TEXT_BEGINS) {
        return text(bytes);
    }
    if begins(bytes, BINARY_BEGINS) {
        return binary(bytes);
    }
    Err(HeaderError::Malformed("it begins in another way"))
}

/// Compares as far as there are bytes.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let both = bytes.len().min(with.len());
    bytes[..both] == with[..both]
}

fn text(bytes: &[u8]) -> Result<Progress, HeaderError> {
    let looked_at = &bytes[..bytes.len().min(MAX_TEXT)];
    let Some(end) = memchr::memmem::find(looked_at, b"\r\n") else {
        return match bytes.len() < MAX_TEXT {
            true => Ok(Progress::Incomplete),
            false => Err(HeaderError::TooLong),
        };
    };
    let line = std::str::from_utf8(&looked_at[..end]).map_err(|_| HeaderError::Malformed("a line that is no text"))?;
    let said = Said { source: source_in(line)?, extensions: Extensions::default() };
    let length = end + 2;
    Ok(Progress::Complete { length, said })
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 40000 6379`, or `PROXY UNKNOWN` and anything.
fn source_in(line: &str) -> Result<Option<SocketAddr>, HeaderError> {
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(None);
    }
    let words: Vec<&str> = words.take(5).collect();
    let [source, destination, port, other_port] = words[..] else {
        return Err(HeaderError::Malformed("a line of other words"));
    };
    let both = match family {
        Some("TCP4") => address::<Ipv4Addr>(source).zip(address::<Ipv4Addr>(destination)),
        Some("TCP6") => address::<Ipv6Addr>(source).zip(address::<Ipv6Addr>(destination)),
        Some(_) | None => return Err(HeaderError::Malformed("an unknown protocol")),
    };
    let ports = number(port).zip(number(other_port));
    match (both, ports) {
        (Some((source, _)), Some((port, _))) => Ok(Some(SocketAddr::new(source, port))),
        _ => Err(HeaderError::Malformed("an address that is none")),
    }
}

fn address<T: std::str::FromStr + Into<IpAddr>>(text: &str) -> Option<IpAddr> {
    text.parse::<T>().ok().map(Into::into)
}

/// A port: decimal digits, without a sign or a leading zero.
fn number(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

fn binary(bytes: &[u8]) -> Result<Progress, HeaderError> {
    let Some((head, rest)) = bytes.split_first_chunk::<BINARY_HEAD>() else {
        return Ok(Progress::Incomplete);
    };
    let [.., command, family, high, low] = *head;
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(HeaderError::Malformed("another version or command")),
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_BODY {
        return Err(HeaderError::TooLong);
    }
    let Some(body) = rest.get(..length) else {
        return Ok(Progress::Incomplete);
    };
    let said = match (is_local, family) {
        // What a balancer sends about its own connection is ignored.
        (true, _) => Said::default(),
        // Without a family, the length of the addresses is unknown too.
        (false, UNSPECIFIED) => Said::default(),
        (false, TCP_OVER_IPV4) => said_of::<4, 12>(body)?,
        (false, TCP_OVER_IPV6) => said_of::<16, 36>(body)?,
        // A client on the balancer's machine, without an address.
        (false, UNIX_STREAM) => {
            Said { source: None, extensions: Extensions::read(body.get(TWO_PATHS..).unwrap_or_default()) }
        }
        (false, _) => return Err(HeaderError::Malformed("an unknown protocol")),
    };
    Ok(Progress::Complete { length: BINARY_HEAD + length, said })
}

const UNSPECIFIED: u8 = 0x00;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
const UNIX_STREAM: u8 = 0x31;
/// The length of both addresses of a unix socket.
const TWO_PATHS: usize = 216;

/// Two addresses of `ADDRESS` bytes, two ports, and extensions.
fn said_of<const ADDRESS: usize, const ALL: usize>(body: &[u8]) -> Result<Said, HeaderError>
where
    [u8; ADDRESS]: Into<IpAddr>,
{
    let short = || HeaderError::Malformed("fewer bytes than its addresses have");
    let (addresses, extensions) = body.split_first_chunk::<ALL>().ok_or_else(short)?;
    let source = addresses.first_chunk::<ADDRESS>().ok_or_else(short)?;
    let port = [addresses[2 * ADDRESS], addresses[2 * ADDRESS + 1]];
    let source = SocketAddr::new((*source).into(), u16::from_be_bytes(port));
    Ok(Said { source: Some(source), extensions: Extensions::read(extensions) })
}

#[cfg(test)]
mod tests;

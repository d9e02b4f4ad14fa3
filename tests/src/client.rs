//! A client that sends one line and names the reply that it expects. Each client connects from its own
//! loopback address, so that the proxy takes two of them for two machines. It knows frames, not locks; every
//! read has a deadline.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::certificates::Authority;
use crate::reply::Reply;
use crate::secure::{Secure, Trust};
use crate::words;

/// How long a reply may take before the test fails.
const REPLY_WITHIN: Duration = Duration::from_secs(5);

/// Sources handed out so far; 127.16.0.1 is the first.
static SOURCES: AtomicU32 = AtomicU32::new(1);

/// One connection.
pub struct Client {
    stream: TcpStream,
    /// Where TLS is spoken.
    secure: Option<Secure>,
    input: RefCell<Input>,
}

/// The writing half of a [`Client`].
pub struct Writer(TcpStream, Option<Secure>);

/// Bytes that came and were not yet used up.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    start: usize,
}

/// Why there was no reply.
enum Silence {
    Closed,
    Late,
}

/// A command that was sent and whose reply is to be looked at.
#[must_use = "say what the reply must be"]
pub struct Exchange<'a> {
    client: &'a Client,
    said: String,
}

/// A command as the canonical array of bulk strings.
pub fn encode<T: AsRef<[u8]>>(arguments: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Client {
    /// Connects from a source address that no other client has.
    #[track_caller]
    pub fn connect(to: SocketAddr) -> Client {
        Client::connect_from(next_source(), to)
    }

    /// Connects from this source address.
    #[track_caller]
    pub fn connect_from(source: Ipv4Addr, to: SocketAddr) -> Client {
        if let Some(secure) = secure_listener(to) {
            let stream = tcp(source, secure);
            let trust = Trust::new(Authority::of_harness(), None);
            let session = Secure::connect(&stream, &trust);
            // A connection that was closed meanwhile becomes a client that reads the close.
            return Client::of(stream, session.ok());
        }
        Client::of(tcp(source, to), None)
    }

    /// Connects without TLS, also where the whole run speaks it: as a balancer that first names its client.
    #[track_caller]
    pub fn connect_plain(to: SocketAddr) -> Client {
        Client::connect_plain_from(next_source(), to)
    }

    /// The same from this source address.
    #[track_caller]
    pub fn connect_plain_from(source: Ipv4Addr, to: SocketAddr) -> Client {
        Client::of(tcp(source, to), None)
    }

    /// Connects to this address of a listener with TLS, from a source address that no other client has.
    #[track_caller]
    pub fn connect_tls(to: SocketAddr, trust: &Trust) -> Client {
        Client::try_tls(next_source(), to, trust).unwrap_or_else(|error| panic!("no TLS with {to}: {error}"))
    }

    /// The same, where the handshake may fail.
    pub fn try_tls(source: Ipv4Addr, to: SocketAddr, trust: &Trust) -> std::io::Result<Client> {
        let stream = connect_from(source, to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(4 * REPLY_WITHIN))?;
        let secure = Secure::connect(&stream, trust)?;
        Ok(Client::of(stream, Some(secure)))
    }

    /// Connects without TLS from this source address; an error where no server listens.
    pub(crate) fn try_plain_from(source: Ipv4Addr, to: SocketAddr) -> std::io::Result<Client> {
        let stream = connect_from(source, to)?;
        stream.set_nodelay(true)?;
        Ok(Client::of(stream, None))
    }

    /// Whether an earlier session of TLS went on.
    pub fn was_resumed(&self) -> bool {
        self.secure.as_ref().is_some_and(Secure::was_resumed)
    }

    /// Connects to a unix socket.
    #[track_caller]
    pub fn connect_unix(path: &Path) -> Client {
        let stream =
            UnixStream::connect(path).unwrap_or_else(|error| panic!("cannot connect to {}: {error}", path.display()));
        // All that is done with it here works the same with both kinds of sockets.
        Client::of(TcpStream::from(OwnedFd::from(stream)), None)
    }

    #[track_caller]
    fn of(stream: TcpStream, secure: Option<Secure>) -> Client {
        stream.set_read_timeout(Some(REPLY_WITHIN)).expect("the timeout is not zero");
        stream.set_write_timeout(Some(4 * REPLY_WITHIN)).expect("the timeout is not zero");
        Client { stream, secure, input: RefCell::default() }
    }

    /// The address that the server sees.
    pub fn source(&self) -> SocketAddr {
        self.stream.local_addr().expect("the socket is bound")
    }

    /// The port that it is connected to.
    pub fn port(&self) -> u16 {
        self.stream.peer_addr().expect("the socket is connected").port()
    }

    /// Sends one command line; blanks separate arguments, quotes hold them together.
    #[track_caller]
    pub fn sends(&self, line: impl AsRef<str>) -> Exchange<'_> {
        let line = line.as_ref();
        self.sends_arguments(&words::split(line))
    }

    /// Runs a script; returns its reply as a transcript writes it.
    #[track_caller]
    pub fn eval(&self, text: &str, keys: &[&str], arguments: &[&str]) -> String {
        let count = keys.len().to_string();
        let words = [&["EVAL", text, &count], keys, arguments].concat();
        self.sends_arguments(&words).reply().to_string()
    }

    /// Sends one command of these arguments.
    #[track_caller]
    pub fn sends_arguments<T: AsRef<[u8]>>(&self, arguments: &[T]) -> Exchange<'_> {
        let said: Vec<String> =
            arguments.iter().map(|argument| shortened(&argument.as_ref().escape_ascii().to_string())).collect();
        self.write(&encode(arguments));
        Exchange { client: self, said: said.join(" ") }
    }

    /// Sends all lines in one write, then expects these replies in order.
    #[track_caller]
    pub fn pipelines(&self, lines: &[&str], replies: &[&str]) {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| encode(&words::split(line))).collect();
        self.write(&bytes);
        for (at, expected) in replies.iter().enumerate() {
            let said = lines.get(at).unwrap_or(&"the pipeline");
            Exchange { client: self, said: (*said).to_owned() }.gets(expected);
        }
    }

    /// Sends exactly these bytes.
    #[track_caller]
    pub fn sends_bytes(&self, bytes: impl AsRef<[u8]>) -> Exchange<'_> {
        let bytes = bytes.as_ref();
        self.write(bytes);
        Exchange { client: self, said: shortened(&bytes.escape_ascii().to_string()) }
    }

    /// The next reply, to a command sent before or to none at all.
    pub fn then(&self) -> Exchange<'_> {
        Exchange { client: self, said: "nothing more".to_owned() }
    }

    /// Writes bytes without looking for a reply. A connection that is closed already is no error here;
    /// reading shows it.
    #[track_caller]
    pub fn write(&self, bytes: &[u8]) {
        write(&self.stream, self.secure.as_ref(), bytes);
    }

    /// Writes bytes to the socket itself, where TLS is spoken over it.
    #[track_caller]
    pub fn write_below_tls(&self, bytes: &[u8]) {
        write(&self.stream, None, bytes);
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub fn half_closes(&self) {
        let closed = match &self.secure {
            // It may have been closed meanwhile; without TLS such a socket still says nothing of it.
            Some(secure) => match secure.half_close(&self.stream) {
                Err(error) if is_close(error.kind()) => Ok(()),
                done => done,
            },
            None => self.stream.shutdown(Shutdown::Write),
        };
        closed.expect("the connection is open");
    }

    /// Waits until a reply has come, and leaves it unread.
    #[track_caller]
    pub fn leaves_a_reply_unread(&self) {
        self.stream.set_read_timeout(Some(REPLY_WITHIN)).expect("the timeout is not zero");
        match self.stream.peek(&mut [0]) {
            Ok(1) => {}
            other => panic!("no reply came: {other:?}"),
        }
    }

    /// Ends the connection by a reset, whatever was read.
    pub fn resets(self) {
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        let length = size_of::<libc::linger>() as libc::socklen_t;
        // SAFETY: the socket is open, and `at_once` is an initialised `linger` of `length` bytes
        // that outlives the call.
        let failed = unsafe {
            libc::setsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const at_once).cast(),
                length,
            )
        };
        assert_eq!(failed, 0, "a TCP socket takes SO_LINGER");
    }

    /// Everything that came until the other side closed.
    #[track_caller]
    pub fn reads_to_end(&self) -> Vec<u8> {
        loop {
            match self.read_more(Instant::now() + 4 * REPLY_WITHIN) {
                Ok(()) => {}
                Err(Silence::Closed) => break,
                Err(Silence::Late) => panic!("the connection was not closed in time"),
            }
        }
        let mut input = self.input.borrow_mut();
        let start = std::mem::take(&mut input.start);
        std::mem::take(&mut input.bytes).split_off(start)
    }

    /// Everything that came up to these bytes and with them; or all that came, where they do not come in
    /// time or the other side closes.
    #[track_caller]
    pub fn reads_until(&self, end: &[u8]) -> Vec<u8> {
        let deadline = Instant::now() + 4 * REPLY_WITHIN;
        let mut searched = 0;
        loop {
            let mut input = self.input.borrow_mut();
            let start = input.start;
            let found = input.bytes[start + searched..].windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                let length = searched + at + end.len();
                let bytes = input.bytes[start..start + length].to_vec();
                input.advance(length);
                return bytes;
            }
            searched = (input.bytes.len() - start).saturating_sub(end.len() - 1);
            drop(input);
            if self.read_more(deadline).is_err() {
                let mut input = self.input.borrow_mut();
                let start = std::mem::take(&mut input.start);
                return std::mem::take(&mut input.bytes).split_off(start);
            }
        }
    }

    /// A second handle that only writes, for a thread beside the one that reads.
    pub fn writer(&self) -> Writer {
        let stream = self.stream.try_clone();
        let stream = stream.expect("the system has a descriptor left");
        Writer(stream, self.secure.clone())
    }

    /// The exact bytes of the next reply.
    #[track_caller]
    pub fn raw_reply(&self) -> Vec<u8> {
        match self.next_reply(REPLY_WITHIN) {
            Ok((_, raw)) => raw,
            Err(silence) => panic!("no reply: {}", silence.words()),
        }
    }

    /// The next reply, if it comes within this time.
    #[track_caller]
    pub fn reply_within(&self, time: Duration) -> Option<Reply> {
        match self.next_reply(time) {
            Ok((reply, _)) => Some(reply),
            Err(Silence::Late) => None,
            Err(Silence::Closed) => panic!("the connection was closed"),
        }
    }

    /// How often the server has carried out a command, as its statistics call it.
    #[track_caller]
    pub fn calls(&self, command: &str) -> u64 {
        let all = self.sends("INFO commandstats").text();
        let start = format!("cmdstat_{command}:calls=");
        let calls = all.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number of calls"))
    }

    /// The next reply, if it comes within this time and before the other side closes.
    pub fn reply_if_any(&self, within: Duration) -> Option<Reply> {
        self.next_reply(within).ok().map(|(reply, _)| reply)
    }

    /// Asserts that nothing comes for this long.
    #[track_caller]
    pub fn hears_nothing_for(&self, time: Duration) {
        match self.next_reply(time) {
            Ok((reply, _)) => panic!("silence was expected, but {reply} came"),
            Err(Silence::Closed) => panic!("silence was expected, but the connection was closed"),
            Err(Silence::Late) => {}
        }
    }

    fn next_reply(&self, within: Duration) -> Result<(Reply, Vec<u8>), Silence> {
        let end = Instant::now() + within;
        loop {
            if let Some(found) = self.input.borrow_mut().take_reply() {
                return Ok(found);
            }
            self.read_more(end)?;
        }
    }

    fn read_more(&self, end: Instant) -> Result<(), Silence> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Silence::Late);
        }
        self.stream.set_read_timeout(Some(left)).expect("the timeout is not zero");
        let bytes = &mut self.input.borrow_mut().bytes;
        let read = match &self.secure {
            Some(secure) => secure.read(&self.stream, bytes),
            None => {
                let mut chunk = vec![0; 1 << 16];
                let read = (&self.stream).read(&mut chunk);
                bytes.extend_from_slice(&chunk[..*read.as_ref().unwrap_or(&0)]);
                read
            }
        };
        match read {
            Ok(0) => Err(Silence::Closed),
            Ok(_) => Ok(()),
            Err(error) if is_close(error.kind()) => Err(Silence::Closed),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(Silence::Late),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => panic!("reading a reply failed: {error}"),
        }
    }
}

impl Writer {
    /// As [`Client::write`].
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        write(&self.0, self.1.as_ref(), bytes);
    }
}

#[track_caller]
fn write(mut stream: &TcpStream, secure: Option<&Secure>, bytes: &[u8]) {
    let written = match secure {
        Some(secure) => secure.write(stream, bytes),
        None => stream.write_all(bytes),
    };
    match written {
        Ok(()) => {}
        Err(error) if is_close(error.kind()) => {}
        Err(error) => panic!("{} bytes could not be sent: {error}", bytes.len()),
    }
}

impl Input {
    fn take_reply(&mut self) -> Option<(Reply, Vec<u8>)> {
        let (reply, length) = Reply::parse(&self.bytes[self.start..])?;
        let raw = self.bytes[self.start..self.start + length].to_vec();
        self.advance(length);
        Some((reply, raw))
    }

    fn advance(&mut self, length: usize) {
        self.start += length;
        if self.start * 2 > self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

impl Silence {
    fn words(&self) -> &'static str {
        match self {
            Silence::Closed => "the connection was closed",
            Silence::Late => "nothing came within the deadline",
        }
    }
}

impl Exchange<'_> {
    /// The reply, whatever it is.
    #[track_caller]
    pub fn reply(self) -> Reply {
        match self.client.next_reply(REPLY_WITHIN) {
            Ok((reply, _)) => reply,
            Err(silence) => panic!("{}: {}", self.said, silence.words()),
        }
    }

    /// Asserts that the reply, as compact text, is this.
    #[track_caller]
    pub fn gets(self, expected: impl Display) {
        let said = self.said.clone();
        let reply = shortened(&self.reply().to_string());
        assert_eq!(reply, shortened(&expected.to_string()), "the reply to: {said}");
    }

    /// Asserts that the reply is an error that begins so, and returns its text.
    #[track_caller]
    pub fn gets_error(self, beginning: &str) -> String {
        let said = self.said.clone();
        match self.reply() {
            Reply::Error(text) if text.starts_with(beginning) => text,
            other => panic!("{said}: an error {beginning:?}… was expected, but {other} came"),
        }
    }

    /// Asserts that the connection is closed without another reply.
    #[track_caller]
    pub fn gets_close(self) {
        match self.client.next_reply(REPLY_WITHIN) {
            Err(Silence::Closed) => {}
            Err(Silence::Late) => panic!("{}: the connection stayed open", self.said),
            Ok((reply, _)) => panic!("{}: {reply} came instead of a close", self.said),
        }
    }

    /// The number that comes back.
    #[track_caller]
    pub fn integer(self) -> i64 {
        self.reply().integer()
    }

    /// The string that comes back.
    #[track_caller]
    pub fn text(self) -> String {
        self.reply().text()
    }
}

fn is_close(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            // TLS: the other end has said why it hangs up.
            | ErrorKind::InvalidData
    )
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(600) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}

#[track_caller]
fn tcp(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let stream =
        connect_from(source, to).unwrap_or_else(|error| panic!("cannot connect from {source} to {to}: {error}"));
    stream.set_nodelay(true).expect("a TCP socket takes TCP_NODELAY");
    stream
}

/// A source address that no other client has.
fn next_source() -> Ipv4Addr {
    let next = SOURCES.fetch_add(1, Ordering::Relaxed);
    let [_, high, middle, low] = next.to_be_bytes();
    Ipv4Addr::new(127, 16 + high % 128, middle, low)
}

/// Listeners with TLS that stand beside those without, in a whole run with TLS.
static SECURE_LISTENERS: Mutex<BTreeMap<SocketAddr, SocketAddr>> = Mutex::new(BTreeMap::new());

fn secure_listeners() -> MutexGuard<'static, BTreeMap<SocketAddr, SocketAddr>> {
    let listeners = SECURE_LISTENERS.lock();
    listeners.unwrap_or_else(PoisonError::into_inner)
}

fn secure_listener(plain: SocketAddr) -> Option<SocketAddr> {
    secure_listeners().get(&plain).copied()
}

/// A client that connects to the first address from now on is led to the second, and speaks TLS. `None` ends
/// this.
pub(crate) fn lead_to_tls(plain: SocketAddr, secure: Option<SocketAddr>) {
    match secure {
        Some(secure) => secure_listeners().insert(plain, secure),
        None => secure_listeners().remove(&plain),
    };
}

/// The standard library cannot choose a source address, so this asks the system itself.
pub(crate) fn connect_from(source: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let SocketAddr::V4(to) = to else {
        panic!("the harness speaks IPv4 only, not {to}");
    };
    // SAFETY: no pointers are passed, and the result is checked before it is used.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened, is valid, and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let (from, to) = (raw(SocketAddrV4::new(source, 0)), raw(to));
    let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: both addresses are initialised `sockaddr_in`s that outlive the calls, and `length`
    // is their size.
    let failed = unsafe {
        libc::bind(fd, (&raw const from).cast(), length) != 0 || libc::connect(fd, (&raw const to).cast(), length) != 0
    };
    if failed {
        return Err(std::io::Error::last_os_error());
    }
    Ok(TcpStream::from(socket))
}

fn raw(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

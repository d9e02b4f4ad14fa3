//! One TLS connection over TCP, in the form that sessions use: bytes are read and written when possible, and the caller
//! knows of everything that waits in here. When idle, it has no buffer.
//!
//! The caller is told of written bytes by whole records: bytes whose record the system did not accept to its end count
//! as not written, and the caller writes the same bytes again. It waits for that as for a socket.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, HandshakeKind};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use super::handshake::HandshakeError;

/// The most bytes of one read from the socket.
const READ: usize = 64 * 1024;

/// The most plain bytes of one record (RFC 8446, 5.1).
const RECORD: usize = 16 * 1024;

/// How much longer than its plain bytes a record usually is: header, explicit nonce and tag.
const RECORD_OVERHEAD: usize = 256;

/// The most ciphertext that waits for its rest: the longest message of a handshake (64 KiB) and a record.
const MAX_PARTIAL: usize = 128 * 1024;

/// The most bytes that wait to be sent besides the caller's records: answers to a peer that reads none of them.
const MAX_ANSWERS: usize = 64 * 1024;

thread_local! {
    /// What comes from a socket, until it is read.
    static CIPHERTEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// One record on its way out.
    static RECORD_OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// See the module.
pub struct TlsStream {
    socket: TcpStream,
    session: Session,
    /// The beginning of an incomplete record.
    partial: Vec<u8>,
    /// Decrypted and not read yet.
    plain: Plain,
    outgoing: Outgoing,
    /// The peer sends no more.
    has_ended: bool,
    /// The session is unusable: its last input is lost, and it must not be used again.
    has_failed: bool,
    /// The peer was told that no more comes, or there is no peer.
    said_goodbye: bool,
}

/// Which end of the connection this is.
enum Session {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Session {
    fn common(&self) -> &CommonState {
        match self {
            Session::Server(session) => session,
            Session::Client(session) => session,
        }
    }
}

/// Plain bytes, read from the front.
#[derive(Default)]
struct Plain {
    bytes: Vec<u8>,
    read: usize,
}

impl Plain {
    fn left(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    fn is_empty(&self) -> bool {
        self.left().is_empty()
    }

    fn advance(&mut self, bytes: usize) {
        self.read += bytes;
        if self.is_empty() {
            *self = Plain::default();
        }
    }
}

/// Records that the system has not accepted yet.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// The caller's plain bytes in the last record: they count as written when it is sent.
    owed: usize,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Sends what the system accepts. Ready when that was all; otherwise `WouldBlock`.
    fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            match socket.try_write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) => return Err(error),
            }
        }
        self.bytes = Vec::new();
        self.sent = 0;
        Ok(())
    }
}

/// Receives the decrypted bytes.
trait Sink {
    fn put(&mut self, plain: &[u8]);
}

/// What to do next.
enum Next {
    /// The same input may contain more.
    Again,
    /// All input was processed.
    Rest,
}

/// Makes one step of a session: decrypts input, and keeps answers to be sent.
fn step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    outgoing: &mut Vec<u8>,
    has_ended: &mut bool,
    sink: &mut impl Sink,
) -> (usize, Result<Next, rustls::Error>) {
    let mut discard = status.discard;
    let state = match status.state {
        Ok(state) => state,
        Err(error) => return (discard, Err(error)),
    };
    let next = match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        sink.put(record.payload);
                    }
                    Err(error) => return (discard, Err(error)),
                }
            }
            Next::Again
        }
        ConnectionState::EncodeTlsData(mut data) => {
            let start = outgoing.len();
            if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = data.encode(&mut []) {
                outgoing.resize(start + required_size, 0);
                let written = data.encode(&mut outgoing[start..]).unwrap_or(0);
                outgoing.truncate(start + written);
            }
            Next::Again
        }
        // It is sent later, in order.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Next::Again
        }
        ConnectionState::PeerClosed => {
            *has_ended = true;
            Next::Again
        }
        ConnectionState::Closed => {
            *has_ended = true;
            Next::Rest
        }
        // A replayed acquire would be a second one, so early data is never offered.
        ConnectionState::ReadEarlyData(_) => {
            return (discard, Err(rustls::Error::General("early data".to_owned())));
        }
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => Next::Rest,
        // A state that a later version of the library may add.
        _ => {
            return (discard, Err(rustls::Error::General("an unknown state".to_owned())));
        }
    };
    (discard, Ok(next))
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl TlsStream {
    fn new(socket: TcpStream, session: Session) -> TlsStream {
        TlsStream {
            socket,
            session,
            partial: Vec::new(),
            plain: Plain::default(),
            outgoing: Outgoing::default(),
            has_ended: false,
            has_failed: false,
            said_goodbye: true,
        }
    }

    /// Performs the handshake as the server; `said` are the bytes received so far.
    pub(super) async fn accept(
        socket: TcpStream,
        session: UnbufferedServerConnection,
        said: &[u8],
    ) -> Result<TlsStream, HandshakeError> {
        let mut stream = TlsStream::new(socket, Session::Server(session));
        stream.partial.extend_from_slice(said);
        stream.shake_hands().await?;
        Ok(stream)
    }

    /// Performs the handshake as the client.
    pub(super) async fn connect(
        socket: TcpStream,
        session: UnbufferedClientConnection,
    ) -> Result<TlsStream, HandshakeError> {
        let mut stream = TlsStream::new(socket, Session::Client(session));
        stream.shake_hands().await?;
        Ok(stream)
    }

    async fn shake_hands(&mut self) -> Result<(), HandshakeError> {
        let said = mem::take(&mut self.partial);
        let mut plain = Vec::new();
        let mut stepped = self.open(said, &mut plain);
        loop {
            let sent = self.send_all().await;
            stepped?;
            sent?;
            if !self.session.common().is_handshaking() {
                break;
            }
            if self.has_ended {
                return Err(HandshakeError::Ended);
            }
            self.socket.readable().await?;
            stepped = match self.read_socket(|socket, room| socket.try_read(room), &mut plain) {
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(error) => Err(error),
                Ok(()) => Ok(()),
            };
        }
        self.plain.bytes = plain;
        self.said_goodbye = false;
        Ok(())
    }

    /// Sends the pending messages of a handshake.
    async fn send_all(&mut self) -> io::Result<()> {
        loop {
            match self.outgoing.flush(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                done => return done,
            }
        }
    }

    /// Whether the handshake resumed a session.
    pub(crate) fn was_resumed(&self) -> bool {
        self.session.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The peer's certificate, as DER.
    pub(super) fn peer_certificate(&self) -> Option<&[u8]> {
        let chain = self.session.common().peer_certificates()?;
        chain.first().map(AsRef::as_ref)
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether bytes, or the end, can be read without a system call.
    pub(crate) fn has_read(&self) -> bool {
        !self.plain.is_empty() || self.has_ended
    }

    /// Reads available bytes, without waiting.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut into = ReadBuf::new(buffer);
        loop {
            if let Some(bytes) = self.take(&mut into) {
                return Ok(bytes);
            }
            self.fill(|socket, room| socket.try_read(room), &mut into)?;
            let bytes = into.filled().len();
            if bytes > 0 {
                return Ok(bytes);
            }
        }
    }

    /// Ready with the byte that would be read next, which stays where it is; `None` at the end.
    pub fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        while !self.has_read() {
            ready!(self.poll_fill(cx, &mut ReadBuf::new(&mut [])))?;
        }
        Poll::Ready(Ok(self.plain.left().first().copied()))
    }

    /// Returns bytes that were decrypted before, or the end; `None` if the socket must be read.
    fn take(&mut self, into: &mut ReadBuf<'_>) -> Option<usize> {
        let bytes = self.plain.left().len().min(into.remaining());
        into.put_slice(&self.plain.left()[..bytes]);
        self.plain.advance(bytes);
        let is_full = into.remaining() == 0;
        (bytes > 0 || self.has_ended || is_full).then_some(bytes)
    }

    /// Reads the socket once. Bytes for which the caller has no room are kept.
    fn fill(
        &mut self,
        read: impl FnOnce(&mut TcpStream, &mut [u8]) -> io::Result<usize>,
        into: &mut ReadBuf<'_>,
    ) -> io::Result<()> {
        let rest = mem::take(&mut self.plain.bytes);
        let mut room = Room { into, rest };
        let opened = self.read_socket(read, &mut room);
        self.plain.bytes = room.rest;
        let answered = self.send_answers();
        match opened {
            Ok(()) => answered,
            Err(ReadError::Io(error)) => Err(error),
            Err(ReadError::Tls(error)) => {
                self.has_failed = true;
                self.has_ended = true;
                Err(invalid(error))
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Read in this way, a short read shows that there is no more, which saves a system call.
        let read = |socket: &mut TcpStream, room: &mut [u8]| {
            let mut room = ReadBuf::new(room);
            match Pin::new(socket).poll_read(cx, &mut room) {
                Poll::Ready(read) => read.map(|()| room.filled().len()),
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            }
        };
        match self.fill(read, into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            done => Poll::Ready(done),
        }
    }

    /// Sends the session's own answers. The rest is sent before the next write.
    fn send_answers(&mut self) -> io::Result<()> {
        // The rest of the caller's own record is sent when the caller writes again, so that the caller is told.
        if self.outgoing.owed == 0
            && let Err(error) = self.outgoing.flush(&self.socket)
            && error.kind() != io::ErrorKind::WouldBlock
        {
            return Err(error);
        }
        match self.outgoing.bytes.len() > MAX_ANSWERS {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(()),
        }
    }

    /// Reads the socket once, and decrypts the input.
    fn read_socket(
        &mut self,
        read: impl FnOnce(&mut TcpStream, &mut [u8]) -> io::Result<usize>,
        sink: &mut impl Sink,
    ) -> Result<(), ReadError> {
        CIPHERTEXT.with_borrow_mut(|ciphertext| {
            let kept = self.partial.len();
            if ciphertext.len() < kept + READ {
                ciphertext.resize(kept + READ, 0);
            }
            let came = read(&mut self.socket, &mut ciphertext[kept..kept + READ])?;
            if came == 0 {
                // Few peers of Redis send a close notice, and RESP messages are complete in themselves.
                self.has_ended = true;
                return Ok(());
            }
            ciphertext[..kept].copy_from_slice(&self.partial);
            self.partial = Vec::new();
            let all = &mut ciphertext[..kept + came];
            let (done, opened) = self.process(all, sink);
            opened?;
            self.keep(&all[done..])
        })
    }

    /// The same with bytes that were read elsewhere.
    fn open(&mut self, mut said: Vec<u8>, sink: &mut impl Sink) -> Result<(), ReadError> {
        let (done, opened) = self.process(&mut said, sink);
        opened?;
        self.keep(&said[done..])
    }

    fn keep(&mut self, partial: &[u8]) -> Result<(), ReadError> {
        if partial.len() > MAX_PARTIAL {
            return Err(rustls::Error::General("a message is too long".to_owned()).into());
        }
        self.partial = partial.to_vec();
        Ok(())
    }

    /// Decrypts the complete records; returns how many bytes were processed.
    fn process(&mut self, bytes: &mut [u8], sink: &mut impl Sink) -> (usize, Result<(), rustls::Error>) {
        let mut done = 0;
        let mut failed = None;
        loop {
            // Also after a failure: the session may process its unfinished input once more.
            let rest = &mut bytes[done..];
            let (outgoing, has_ended) = (&mut self.outgoing.bytes, &mut self.has_ended);
            let (discard, next) = match &mut self.session {
                Session::Server(session) => step(session.process_tls_records(rest), outgoing, has_ended, sink),
                Session::Client(session) => step(session.process_tls_records(rest), outgoing, has_ended, sink),
            };
            done += discard;
            match (next, failed.take()) {
                (Ok(Next::Rest), None) => return (done, Ok(())),
                (Ok(Next::Again), None) => {}
                // After a failure the session first outputs an alert for the peer, and then fails again.
                (Ok(Next::Again), Some(error)) => failed = Some(error),
                (Err(error), None) => {
                    self.has_failed = true;
                    failed = Some(error);
                }
                (Ok(Next::Rest) | Err(_), Some(error)) => return (done, Err(error)),
            }
        }
    }

    /// Writes as much as possible now. After `WouldBlock`, or fewer bytes than given, the next call must begin with the
    /// bytes that were not written.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.outgoing.flush(&self.socket)?;
        let told = mem::take(&mut self.outgoing.owed);
        if told > 0 || bytes.is_empty() {
            // A caller that writes the same bytes again has at least these.
            return match told <= bytes.len() {
                true => Ok(told),
                false => Err(io::ErrorKind::InvalidInput.into()),
            };
        }
        let bytes = &bytes[..bytes.len().min(RECORD)];
        self.seal(bytes, Seal::Bytes)
    }

    /// Ready when bytes were written. Otherwise the next call must begin with the same bytes.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(cx))?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Makes a record and sends it. The part that the system does not accept is kept.
    fn seal(&mut self, bytes: &[u8], what: Seal) -> io::Result<usize> {
        RECORD_OUT.with_borrow_mut(|record| {
            let length = self.encrypt(bytes, what, record)?;
            let sent = match self.outgoing.is_empty() {
                true => match self.socket.try_write(&record[..length]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    sent => sent?,
                },
                // The session has a message of its own, which is sent first.
                false => 0,
            };
            if sent == length {
                return Ok(bytes.len());
            }
            self.outgoing.bytes.extend_from_slice(&record[sent..length]);
            self.outgoing.owed = bytes.len();
            self.outgoing.flush(&self.socket)?;
            Ok(mem::take(&mut self.outgoing.owed))
        })
    }

    /// Makes a record; returns its length.
    fn encrypt(&mut self, bytes: &[u8], what: Seal, into: &mut Vec<u8>) -> io::Result<usize> {
        let (outgoing, has_ended) = (&mut self.outgoing.bytes, &mut self.has_ended);
        let (partial, plain) = (&mut self.partial, &mut self.plain.bytes);
        loop {
            let (discard, next) = match &mut self.session {
                Session::Server(session) => match session.process_tls_records(partial) {
                    UnbufferedStatus { state: Ok(ConnectionState::WriteTraffic(traffic)), .. } => {
                        return write_record(traffic, bytes, what, into);
                    }
                    status => step(status, outgoing, has_ended, plain),
                },
                Session::Client(session) => match session.process_tls_records(partial) {
                    UnbufferedStatus { state: Ok(ConnectionState::WriteTraffic(traffic)), .. } => {
                        return write_record(traffic, bytes, what, into);
                    }
                    status => step(status, outgoing, has_ended, plain),
                },
            };
            partial.drain(..discard);
            match next {
                Ok(Next::Again) => {}
                Ok(Next::Rest) => return Err(io::ErrorKind::NotConnected.into()),
                Err(error) => {
                    self.has_failed = true;
                    return Err(invalid(error));
                }
            }
        }
    }

    /// Sends the notice that no more comes, if it can be sent now. A peer that has closed the connection gets none: its
    /// system would reject the notice, which looks the same as rejecting a reply.
    pub(crate) fn say_goodbye(&mut self) {
        let is_over = self.has_ended || self.has_failed;
        if mem::replace(&mut self.said_goodbye, true) || is_over || self.outgoing.flush(&self.socket).is_err() {
            return;
        }
        // What cannot be sent now is lost with the connection, like the last bytes in a full socket.
        let _ = self.seal(&[], Seal::Goodbye);
    }
}

/// Makes one record in this memory, which grows if needed; returns its length.
fn write_record<D>(
    mut traffic: WriteTraffic<'_, D>,
    bytes: &[u8],
    what: Seal,
    into: &mut Vec<u8>,
) -> io::Result<usize> {
    loop {
        let written = match what {
            Seal::Bytes => traffic.encrypt(bytes, into),
            Seal::Goodbye => traffic.queue_close_notify(into),
        };
        match written {
            Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size }))
                if required_size > into.len() =>
            {
                into.resize(required_size.max(RECORD + RECORD_OVERHEAD), 0);
            }
            written => return written.map_err(io::Error::other),
        }
    }
}

/// The contents of a record.
#[derive(Clone, Copy)]
enum Seal {
    Bytes,
    /// The notice that no more comes.
    Goodbye,
}

/// A peer that only sees the socket end takes this for an attack, or logs it.
impl Drop for TlsStream {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}

/// Why reading the socket failed.
enum ReadError {
    Io(io::Error),
    Tls(rustls::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

impl From<rustls::Error> for ReadError {
    fn from(error: rustls::Error) -> ReadError {
        ReadError::Tls(error)
    }
}

impl From<ReadError> for HandshakeError {
    fn from(error: ReadError) -> HandshakeError {
        match error {
            ReadError::Io(error) => HandshakeError::Io(error),
            ReadError::Tls(error) => HandshakeError::Tls(error),
        }
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, plain: &[u8]) {
        self.extend_from_slice(plain);
    }
}

/// The caller's room, and the buffer for the rest.
struct Room<'a, 'b> {
    into: &'a mut ReadBuf<'b>,
    rest: Vec<u8>,
}

impl Sink for Room<'_, '_> {
    fn put(&mut self, plain: &[u8]) {
        let (now, later) = plain.split_at(plain.len().min(self.into.remaining()));
        self.into.put_slice(now);
        self.rest.extend_from_slice(later);
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let before = buffer.filled().len();
        while stream.take(buffer).is_none() {
            ready!(stream.poll_fill(cx, buffer))?;
            if buffer.filled().len() > before {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsStream").field(&self.socket).finish()
    }
}

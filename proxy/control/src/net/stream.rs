//! A connection of any kind, to a client or to the backend. It offers what sessions need, so that no code above depends
//! on the kind.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

use super::buffer_pool::{give_back, make_room};
use super::pipe::Pipe;
use super::socket_queues;
use super::tls::stream::TlsStream;

/// See the module.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsStream>),
    /// One of several parts of a client's connection, in memory.
    Pipe(Box<Pipe<Stream>>),
}

/// A connection on its way from the runtime of one thread to that of another.
pub enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// Runs one expression for whichever socket it is, and another for a pipe, which has no socket.
macro_rules! socket {
    ($stream:expr, $it:ident => $does:expr, $pipe:ident => $else:expr) => {
        match $stream {
            Stream::Pipe($pipe) => $else,
            Stream::Tcp($it) => $does,
            Stream::Unix($it) => $does,
            Stream::Tls(stream) => {
                let $it = stream.socket();
                $does
            }
        }
    };
}

/// Does the same with the bytes that are meant.
macro_rules! bytes {
    ($stream:expr, $it:ident => $does:expr) => {
        match $stream {
            Stream::Tcp($it) => $does,
            Stream::Unix($it) => $does,
            Stream::Tls($it) => $does,
            Stream::Pipe($it) => $does,
        }
    };
}

impl Stream {
    /// Reads available bytes, without waiting.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        bytes!(self, stream => stream.try_read(buffer))
    }

    /// Writes as much as can be written now. The next call must begin with the bytes that were not written.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        bytes!(self, stream => stream.try_write(bytes))
    }

    /// Writes as much as can be written now from the front of a buffer, by moving memory if that is quicker.
    pub fn give(&mut self, bytes: &mut BytesMut) -> io::Result<usize> {
        if let Stream::Pipe(pipe) = self {
            return pipe.give(bytes);
        }
        let written = self.try_write(bytes)?;
        bytes.advance(written);
        Ok(written)
    }

    /// Ready when there is something to read, or reading would fail.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_read() {
            return Poll::Ready(Ok(()));
        }
        socket!(self, stream => stream.poll_read_ready(cx), pipe => pipe.poll_read_ready(cx))
    }

    /// Ready when something can be written, or writing would fail.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        socket!(self, stream => stream.poll_write_ready(cx), pipe => pipe.poll_write_ready(cx))
    }

    /// Whether bytes can be read without a system call.
    fn has_read(&self) -> bool {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Pipe(_) => false,
            Stream::Tls(stream) => stream.has_read(),
        }
    }

    /// Waits for one of these events.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        if interest.is_readable() && self.has_read() {
            return Ok(Ready::READABLE);
        }
        // Boxed, as every session reserves room for this future.
        socket!(self, stream => stream.ready(interest).await, pipe => Box::pin(pipe.ready(interest)).await)
    }

    /// Ready with the byte that would be read next, which stays where it is; `None` at the end.
    pub fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        match self {
            Stream::Tls(stream) => return stream.poll_peek(cx),
            Stream::Pipe(pipe) => return pipe.poll_peek(cx),
            Stream::Tcp(_) | Stream::Unix(_) => {}
        }
        let socket = &*self;
        loop {
            if let Err(error) = ready!(socket.poll_read_ready(cx)) {
                return Poll::Ready(Err(error));
            }
            let peek = || {
                let mut first = [MaybeUninit::new(0)];
                let read = SockRef::from(socket).peek(&mut first)?;
                // SAFETY: it was written when it was made.
                let [first] = first.map(|byte| unsafe { byte.assume_init() });
                Ok((read > 0).then_some(first))
            };
            match socket!(socket, stream => stream.try_io(Interest::READABLE, peek), _pipe => Ok(None)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                peeked => return Poll::Ready(peeked),
            }
        }
    }

    /// The IP address and port of this end, where it has them.
    pub fn local_ip(&self) -> Option<SocketAddr> {
        match self {
            Stream::Pipe(pipe) => pipe.client().stream().local_ip(),
            socket => socket.tcp()?.local_addr().ok(),
        }
    }

    /// The TCP socket below it, if there is one.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(_) | Stream::Pipe(_) => None,
            Stream::Tls(stream) => Some(stream.socket()),
        }
    }

    /// The pending error of this connection, which the system reports once.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        socket!(self, stream => stream.take_error(), pipe => pipe.take_error())
    }

    /// How many of the bytes written the other end has not acknowledged, also after a reset.
    pub fn unacknowledged(&self) -> u64 {
        match self {
            Stream::Pipe(pipe) => pipe.unacknowledged(),
            socket => socket_queues::unacknowledged(socket),
        }
    }

    /// How many received bytes were not read yet.
    pub fn unread(&self) -> u64 {
        match self {
            Stream::Pipe(pipe) => pipe.unread(),
            socket => socket_queues::unread(socket),
        }
    }

    /// How many of the bytes written the other end had when it last sent something. This is `when_read`, the count when
    /// that was read, except for a pipe.
    pub fn heard(&self, when_read: u64) -> u64 {
        match self {
            Stream::Pipe(pipe) => pipe.heard(),
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Tls(_) => when_read,
        }
    }

    /// Whether requests on it should be answered as if they were executed, but not executed.
    pub fn is_trying(&self) -> bool {
        matches!(self, Stream::Pipe(pipe) if pipe.client().is_trying())
    }

    /// Tells the other end that no more comes.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => stream.say_goodbye(),
            Stream::Pipe(pipe) => {
                pipe.close(None);
                return Ok(());
            }
            Stream::Tcp(_) | Stream::Unix(_) => {}
        }
        SockRef::from(&*self).shutdown(Shutdown::Write)
    }

    /// Detaches it from this thread's runtime.
    pub fn detach(self) -> io::Result<Detached> {
        match self {
            Stream::Tcp(stream) => stream.into_std().map(Detached::Tcp),
            Stream::Unix(stream) => stream.into_std().map(Detached::Unix),
            // The TLS handshake is made where the client is served, and so is a pipe.
            Stream::Tls(_) | Stream::Pipe(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Reads into a buffer, which gets memory only if there is something to read. After a short read it also knows that
/// there is no more yet, which saves a system call.
pub fn poll_read(socket: &mut Stream, buffer: &mut BytesMut, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    if let Stream::Pipe(pipe) = socket {
        return pipe.poll_take(buffer, cx);
    }
    if let Err(error) = ready!(socket.poll_read_ready(cx)) {
        return Poll::Ready(Err(error));
    }
    make_room(buffer);
    let read = pin!(socket.read_buf(buffer)).poll(cx);
    if !matches!(read, Poll::Ready(Ok(bytes)) if bytes > 0) {
        give_back(buffer);
    }
    read
}

impl Detached {
    /// Attaches it to this thread's runtime.
    pub fn attach(self) -> io::Result<Stream> {
        match self {
            Detached::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Detached::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::Tcp(stream)
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream::Unix(stream)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        socket!(self, stream => stream.as_fd(), pipe => pipe.client().as_fd())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        socket!(self, stream => stream.as_raw_fd(), pipe => pipe.client().as_raw_fd())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Pipe(pipe) => {
                ready!(pipe.poll_read_ready(cx))?;
                let read = pipe.try_read(buffer.initialize_unfilled())?;
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => stream.poll_write(cx, bytes),
            Stream::Pipe(pipe) => {
                ready!(pipe.poll_write_ready(cx))?;
                Poll::Ready(pipe.try_write(bytes))
            }
        }
    }

    /// Written bytes are already with the system.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().shutdown_write())
    }
}

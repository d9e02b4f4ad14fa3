//! A connection, whatever it goes by: to a client or to the backend. It offers what sessions use, so that nothing above
//! knows what a connection is made of.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

/// See the module.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection on its way from the runtime of one thread to that of another.
pub(crate) enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// Does the same with either.
macro_rules! either {
    ($stream:expr, $it:ident => $does:expr) => {
        match $stream {
            Stream::Tcp($it) => $does,
            Stream::Unix($it) => $does,
        }
    };
}

impl Stream {
    /// Reads what is there, without waiting.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_read(buffer))
    }

    /// Writes what can be taken now.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_write(bytes))
    }

    /// Ready when something can be read, or reading will say why not.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read_ready(cx))
    }

    /// Ready when something can be written, or writing will say why not.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_write_ready(cx))
    }

    /// Waits for one of these.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        either!(self, stream => stream.ready(interest).await)
    }

    /// Ready with the byte that would be read next, which stays where it is; `None` at the end.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        loop {
            if let Err(error) = ready!(self.poll_read_ready(cx)) {
                return Poll::Ready(Err(error));
            }
            let peek = || {
                let mut first = [MaybeUninit::new(0)];
                let read = SockRef::from(self).peek(&mut first)?;
                // SAFETY: it was written when it was made.
                let [first] = first.map(|byte| unsafe { byte.assume_init() });
                Ok((read > 0).then_some(first))
            };
            match either!(self, stream => stream.try_io(Interest::READABLE, peek)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                peeked => return Poll::Ready(peeked),
            }
        }
    }

    /// The IP address and port of this end, where it has them.
    pub(crate) fn local_ip(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// The error that the system holds for this connection, which it tells once.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        either!(self, stream => stream.take_error())
    }

    /// Tells the other end that no more comes.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Write)
    }

    /// For another thread.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        match self {
            Stream::Tcp(stream) => stream.into_std().map(Detached::Tcp),
            Stream::Unix(stream) => stream.into_std().map(Detached::Unix),
        }
    }
}

impl Detached {
    /// For the runtime of this thread.
    pub(crate) fn attach(self) -> io::Result<Stream> {
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
        either!(self, stream => stream.as_fd())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        either!(self, stream => stream.as_raw_fd())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}

//! The address of a way, a TCP or a unix socket, and connections to it: one that blocks, and one for the event loop.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token, net};

/// Where a way is reached.
#[derive(Clone)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connection that waits for its replies.
pub(crate) enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Address {
    /// Connects; nothing on it waits longer than this.
    pub(crate) fn connect(&self, patience: Duration) -> io::Result<Plain> {
        Ok(match self {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, patience)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                Plain::Tcp(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(patience))?;
                Plain::Unix(stream)
            }
        })
    }

    /// Begins to connect.
    pub(crate) fn begin(&self) -> io::Result<Wire> {
        Ok(match self {
            Address::Tcp(address) => Wire::Tcp(net::TcpStream::connect(*address)?),
            Address::Unix(path) => Wire::Unix(net::UnixStream::connect(path)?),
        })
    }
}

impl Read for Plain {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Plain::Tcp(stream) => stream.read(into),
            Plain::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Plain::Tcp(stream) => stream.write(bytes),
            Plain::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Plain::Tcp(stream) => stream.flush(),
            Plain::Unix(stream) => stream.flush(),
        }
    }
}

/// A connection of the event loop.
pub(crate) enum Wire {
    Tcp(net::TcpStream),
    Unix(net::UnixStream),
}

impl Wire {
    /// Of one that has answered.
    pub(crate) fn of(plain: Plain) -> Result<Wire, Box<dyn Error>> {
        Ok(match plain {
            Plain::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                Wire::Tcp(net::TcpStream::from_std(stream))
            }
            Plain::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Wire::Unix(net::UnixStream::from_std(stream))
            }
        })
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Wire::Tcp(stream) => stream,
            Wire::Unix(stream) => stream,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.read(into),
            Wire::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.write(bytes),
            Wire::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.flush(),
            Wire::Unix(stream) => stream.flush(),
        }
    }
}

impl Source for Wire {
    fn register(&mut self, at: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().register(at, token, interests)
    }

    fn reregister(&mut self, at: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().reregister(at, token, interests)
    }

    fn deregister(&mut self, at: &Registry) -> io::Result<()> {
        self.source().deregister(at)
    }
}

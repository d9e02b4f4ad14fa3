//! What a peer of the admin address may take up: so many connections at once, each for so long. A
//! connection serves one request (every answer says `Connection: close`), so one deadline covers
//! slow senders, slow readers and silent ones alike.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at once; further ones wait in the kernel's queue. A Prometheus or a probe uses one.
const CONNECTIONS: usize = 64;

/// A connection's whole life. Prometheus gives up after 10 s by default, a reload takes less.
const LIFETIME: Duration = Duration::from_secs(30);

/// Pause after a failed accept, which mostly means that no file descriptor is free.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// A listener with these limits.
pub(super) struct Limited {
    listener: TcpListener,
    free: Arc<Semaphore>,
    lifetime: Duration,
}

impl Limited {
    pub(super) fn new(listener: TcpListener) -> Limited {
        Limited::with(listener, CONNECTIONS, LIFETIME)
    }

    fn with(listener: TcpListener, connections: usize, lifetime: Duration) -> Limited {
        Limited {
            listener,
            free: Arc::new(Semaphore::new(connections)),
            lifetime,
        }
    }
}

impl Listener for Limited {
    type Io = Mortal;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Mortal, SocketAddr) {
        let permit = self
            .free
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let mortal = Mortal {
                        stream,
                        end: Box::pin(tokio::time::sleep(self.lifetime)),
                        _permit: permit,
                    };
                    return (mortal, peer);
                }
                Err(error) => {
                    tracing::debug!(%error, "an admin connection was not accepted");
                    tokio::time::sleep(AFTER_ERROR).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when its time is over.
pub(super) struct Mortal {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Mortal {
    /// The stream while it lives. Asking also arms the timer to wake the task.
    fn alive(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Mortal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.alive(cx)?.poll_read(cx, into)
    }
}

impl AsyncWrite for Mortal {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.alive(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.alive(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.alive(cx)?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::time::{Instant, timeout};

    use super::*;

    async fn limited(connections: usize, lifetime: Duration) -> Limited {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Limited::with(listener, connections, lifetime)
    }

    #[tokio::test]
    async fn a_silent_connection_is_given_up() {
        let mut listener = limited(1, Duration::from_millis(50)).await;
        let _silent = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut server_side, _) = listener.accept().await;
        let before = Instant::now();
        let error = server_side.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(before.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn one_connection_more_than_allowed_waits_for_its_turn() {
        let mut listener = limited(1, LIFETIME).await;
        let address = listener.local_addr().unwrap();
        let (_first, _second) = (
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        );
        let held = listener.accept().await;
        assert!(
            timeout(Duration::from_millis(50), listener.accept())
                .await
                .is_err()
        );
        drop(held);
        timeout(Duration::from_secs(20), listener.accept())
            .await
            .unwrap();
    }
}

//! Limits what a peer of the admin address may use. A connection serves one request (every reply says `Connection: close`), so
//! one deadline covers slow senders, slow readers and silent connections alike. Half of the places are kept for connections
//! without a request yet and for health and metrics, which are needed when things go wrong: no number of boards or slow readers
//! takes these places. When places are short, silent connections are closed soon.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::serve::Listener;
use lockwarden_control::net::descriptors;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// The whole life of a connection. Prometheus gives up after 10 s by default; a reload takes less.
const LIFETIME: Duration = Duration::from_secs(30);

/// How long a connection may be silent while all places are taken. A real client sends its request at once.
const SILENCE: Duration = Duration::from_secs(2);

/// Pause after a failed accept, which mostly means that no file descriptor is free.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// A listener with these limits.
pub(super) struct Limited {
    listener: TcpListener,
    places: Arc<Places>,
    lifetime: Duration,
}

impl Limited {
    pub(super) fn new(listener: TcpListener) -> Limited {
        let most = usize::try_from(descriptors::admin_places()).unwrap_or(usize::MAX);
        Limited::with(listener, most, (LIFETIME, SILENCE))
    }

    fn with(listener: TcpListener, most: usize, (lifetime, silence): (Duration, Duration)) -> Limited {
        Limited {
            listener,
            places: Arc::new(Places {
                most,
                silence,
                open: Mutex::default(),
                freed: Notify::new(),
                // The other half stays for health and metrics.
                requests: Arc::new(Semaphore::new(most.div_ceil(2))),
            }),
            lifetime,
        }
    }
}

/// The places for connections of one address.
struct Places {
    most: usize,
    /// How long a connection may be silent while all places are taken.
    silence: Duration,
    /// In order of arrival.
    open: Mutex<VecDeque<Arc<Place>>>,
    freed: Notify,
    /// For requests other than health and metrics.
    requests: Arc<Semaphore>,
}

impl Places {
    fn open(&self) -> MutexGuard<'_, VecDeque<Arc<Place>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free place, and closes silent connections that occupy one.
    async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            let until = {
                let open = self.open();
                if open.len() < self.most {
                    return;
                }
                // A connection that was given up frees its place in a moment.
                let soon = open.iter().any(|place| place.is_given_up());
                open.iter()
                    .find(|place| place.is_silent() && !soon)
                    .map(|place| (place.clone(), place.since + self.silence))
            };
            let Some((silent, until)) = until else {
                freed.await;
                continue;
            };
            if tokio::time::timeout_at(until, freed).await.is_err() {
                silent.give_up();
            }
        }
    }
}

/// The place of one connection.
pub(super) struct Place {
    since: Instant,
    /// Its request has arrived completely.
    spoke: AtomicBool,
    given_up: AtomicBool,
    waker: Mutex<Option<Waker>>,
    requests: Arc<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Place {
    /// Whether it may request more than health; if so it counts as such a request until it ends.
    pub(super) fn may_ask(&self) -> bool {
        let permit = self.requests.clone().try_acquire_owned().ok();
        let may = permit.is_some();
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        may
    }

    /// Its request has arrived completely.
    pub(super) fn spoke(&self) {
        self.spoke.store(true, Ordering::Relaxed);
    }

    fn is_silent(&self) -> bool {
        !self.spoke.load(Ordering::Relaxed) && !self.is_given_up()
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Makes its task end. If its request arrived at this very moment, the client has to send it again.
    fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Listener for Limited {
    type Io = Mortal;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Mortal, SocketAddr) {
        self.places.room().await;
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let place = Arc::new(Place {
                        since: Instant::now(),
                        spoke: AtomicBool::new(false),
                        given_up: AtomicBool::new(false),
                        waker: Mutex::default(),
                        requests: self.places.requests.clone(),
                        permit: Mutex::default(),
                    });
                    self.places.open().push_back(place.clone());
                    let mortal = Mortal {
                        stream,
                        end: Box::pin(tokio::time::sleep(self.lifetime)),
                        place,
                        places: self.places.clone(),
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

/// A connection that fails at the end of its lifetime.
pub(super) struct Mortal {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    place: Arc<Place>,
    places: Arc<Places>,
}

impl Mortal {
    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The stream within its lifetime. The call also registers the task to be woken at the end of it.
    fn alive(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        let waker = cx.waker().clone();
        *self.place.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
        if self.place.is_given_up() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.places.open().retain(|place| !Arc::ptr_eq(place, &self.place));
        self.places.freed.notify_one();
    }
}

impl AsyncRead for Mortal {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.alive(cx)?.poll_read(cx, into)
    }
}

impl AsyncWrite for Mortal {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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
        Limited::with(listener, connections, (lifetime, Duration::from_secs(1)))
    }

    #[tokio::test]
    async fn a_silent_connection_is_given_up() {
        let mut listener = limited(1, Duration::from_millis(50)).await;
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server_side, _) = listener.accept().await;
        let before = Instant::now();
        let error = server_side.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(before.elapsed() < Duration::from_secs(20));
    }

    async fn connect(listener: &Limited) -> TcpStream {
        let address = listener.local_addr().unwrap();
        TcpStream::connect(address).await.unwrap()
    }

    #[tokio::test]
    async fn one_connection_more_than_allowed_waits_for_its_turn() {
        let mut listener = limited(1, LIFETIME).await;
        let (_first, _second) = (connect(&listener).await, connect(&listener).await);
        let (held, _) = listener.accept().await;
        held.place().spoke();
        assert!(timeout(Duration::from_millis(50), listener.accept()).await.is_err());
        drop(held);
        timeout(Duration::from_secs(20), listener.accept()).await.unwrap();
    }

    #[tokio::test]
    async fn where_places_are_short_the_longest_silent_one_is_given_up() {
        let mut listener = limited(3, LIFETIME).await;
        // The connection that is silent for longest times out first.
        let mut clients = Vec::new();
        let mut held = Vec::new();
        for _ in 0..3 {
            clients.push(connect(&listener).await);
            held.push(listener.accept().await.0);
        }
        held[0].place().spoke();
        clients.push(connect(&listener).await);
        // Its task notices that it is given up, and ends.
        let mut second = held.remove(1);
        let given_up = tokio::spawn(async move { second.read_u8().await.unwrap_err().kind() });
        let _ = listener.accept().await;
        assert_eq!(given_up.await.unwrap(), io::ErrorKind::TimedOut);
        assert!(!held[0].place.is_given_up());
        assert!(!held[1].place.is_given_up());
    }
}

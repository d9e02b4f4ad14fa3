//! Every connection to the backend, by the era in which its address was looked up. When another server has become the
//! primary, those of older eras are cut at once: the old primary may go on taking writes for a while, and what it is
//! sent is lost. Requests that have not reached it by then never do: it may be the primary again by the time that the
//! network lets them through.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockwarden_control::net::stream::Stream;
use socket2::SockRef;

/// See the module.
#[derive(Debug, Default)]
pub struct OpenConnections {
    era: AtomicU64,
    /// Connections of older eras are cut as soon as they are made.
    oldest: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: HashMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    socket: RawFd,
    era: u64,
}

/// A place on the list; it is removed before the socket is closed.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    all: Arc<OpenConnections>,
    number: u64,
}

/// A connection, and its place on the list.
pub struct Connected {
    // Dropped first: after the socket is closed, its number may belong to another socket.
    pub(super) place: OpenConnection,
    pub(super) stream: Stream,
}

impl OpenConnections {
    /// Counts the servers that stood behind the backend's name.
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Relaxed)
    }

    /// Another server is behind the name now, or the same one as a replica.
    pub(crate) fn begin_era(&self) -> u64 {
        self.era.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Cuts the connections that were looked up in an era older than the present one. Returns how many that were.
    pub(crate) fn cut_older(&self) -> usize {
        let state = self.state();
        let oldest = self.era();
        self.oldest.store(oldest, Ordering::Release);
        let old = state.open.values().filter(|open| open.era < oldest);
        old.map(cut).count()
    }

    /// Whether connections of this era are cut. Bytes that were read from one before that may still come.
    pub(crate) fn are_cut(&self, era: u64) -> bool {
        era < self.oldest.load(Ordering::Acquire)
    }

    /// Enters a connection whose address was looked up in this era.
    pub(super) fn enter(self: &Arc<Self>, stream: Stream, era: u64) -> Connected {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let open = Open { socket: stream.as_raw_fd(), era };
        if self.are_cut(era) {
            cut(&open);
        }
        state.open.insert(number, open);
        drop(state);
        let all = self.clone();
        Connected { place: OpenConnection { all, number }, stream }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnection {
    /// It was found to lead to the server of this era.
    pub(crate) fn leads_to(&self, era: u64) {
        if let Some(open) = self.all.state().open.get_mut(&self.number) {
            open.era = era;
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.state().open.remove(&self.number);
    }
}

/// A reader finds its end, even in the middle of a reply; and once it is closed, the kernel sends nothing of it again (`SO_LINGER` of
/// zero, socket(7)).
fn cut(open: &Open) {
    // SAFETY: it is on the list, which it leaves before it is closed.
    let socket = unsafe { BorrowedFd::borrow_raw(open.socket) };
    let socket = SockRef::from(&socket);
    let _ = socket.set_linger(Some(Duration::ZERO));
    // If the other end has closed it already, nothing is left to do.
    let _ = socket.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(50);

    async fn connected(all: &Arc<OpenConnections>, era: u64) -> (Connected, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (all.enter(near.unwrap().into(), era), far.unwrap().0)
    }

    async fn is_cut(one: &mut Connected) -> bool {
        let read = one.stream.read_u8();
        match tokio::time::timeout(MOMENT, read).await {
            Ok(read) => read.is_err(),
            Err(_) => false,
        }
    }

    #[tokio::test]
    async fn connections_of_older_eras_are_cut_and_those_that_are_made_late_too() {
        let all = Arc::new(OpenConnections::default());
        let (mut old, _old_far) = connected(&all, 0).await;
        let (mut known, _known_far) = connected(&all, 0).await;
        let era = all.begin_era();
        known.place.leads_to(era);
        let (mut new, _new_far) = connected(&all, era).await;
        assert_eq!(all.cut_older(), 1);
        assert!(is_cut(&mut old).await);
        assert!(!is_cut(&mut known).await && !is_cut(&mut new).await);
        let (mut late, _late_far) = connected(&all, 0).await;
        assert!(is_cut(&mut late).await);
    }

    #[tokio::test]
    async fn what_had_not_arrived_when_one_was_cut_never_does() {
        let all = Arc::new(OpenConnections::default());
        let (mut one, mut far) = connected(&all, 0).await;
        // The other end reads nothing: once its window is shut, what is written waits on this side. An acknowledgement may
        // take 40 ms and more, after which there can be room again.
        let chunk = [b'x'; 65_536];
        while tokio::time::timeout(10 * MOMENT, one.stream.write_all(&chunk)).await.is_ok() {}
        all.begin_era();
        all.cut_older();
        drop(one);
        let read = tokio::io::copy(&mut far, &mut tokio::io::sink()).await;
        assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    }

    #[tokio::test]
    async fn one_that_is_closed_is_on_the_list_no_more() {
        let all = Arc::new(OpenConnections::default());
        let (one, _far) = connected(&all, 0).await;
        assert_eq!(all.state().open.len(), 1);
        drop(one);
        all.begin_era();
        assert_eq!((all.cut_older(), all.state().open.len()), (0, 0));
    }
}

//! A connection in memory, with two ends in one process. Behind one of them is a client whose requests are handed on by this and other
//! pipes, and whose replies come together from all of them. At the other end it is asked through the pipe how far that client has
//! taken them: what the socket says is about the bytes of all pipes, and is reckoned back to those of this one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use socket2::SockRef;
use tokio::io::{Interest, ReadBuf, Ready};

use super::buffer_pool::{give_back, move_front, open};
use super::sleeper::{register, wake};
use super::socket_queues::{unacknowledged, unread};

/// Bytes that wait in one direction; above that no more are taken.
const ROOM: usize = 256 * 1024;
/// Runs that are remembered before those that the client has acknowledged are dropped.
const MAX_RUNS: usize = 64;
/// Between two looks whether the client's socket has an error.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The client's socket, and what has gone by it.
#[derive(Debug)]
pub struct ClientSocket<S> {
    fd: RawFd,
    stream: Mutex<S>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Bytes written to the client, and how many of them had been when it spoke last.
    sent: u64,
    sent_when_spoken: u64,
    /// Bytes that have come from it and were not handed on yet.
    waiting: u64,
    /// It was told that no more comes, which counts as a byte that it has to acknowledge.
    said_goodbye: bool,
    /// What is handed on now is to be answered and not done.
    is_trying: bool,
}

impl<S: AsRawFd> ClientSocket<S> {
    pub fn new(stream: S) -> Arc<ClientSocket<S>> {
        let fd = stream.as_raw_fd();
        Arc::new(ClientSocket { fd, stream: Mutex::new(stream), counts: Mutex::default() })
    }

    /// The socket, for a moment.
    pub fn stream(&self) -> MutexGuard<'_, S> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many more bytes were written to it.
    pub fn was_sent(&self, bytes: usize) {
        self.counts().sent += bytes as u64;
    }

    /// It has said something, of which so many bytes wait to be handed on.
    pub fn has_spoken(&self) {
        let mut counts = self.counts();
        counts.sent_when_spoken = counts.sent;
    }

    /// So many bytes that have come wait to be handed on.
    pub fn leaves_waiting(&self, bytes: usize) {
        self.counts().waiting = bytes as u64;
    }

    /// Bytes written to it so far.
    pub fn sent(&self) -> u64 {
        self.counts().sent
    }

    /// It was told that no more comes.
    pub fn was_told_goodbye(&self) {
        self.counts().said_goodbye = true;
    }

    /// What is handed on from now on is to be answered as if it were done, and not to be done; or to be done again.
    pub fn tries(&self, is_trying: bool) {
        self.counts().is_trying = is_trying;
    }

    /// Whether it is.
    pub(super) fn is_trying(&self) -> bool {
        self.counts().is_trying
    }

    /// Bytes of all that were written which it has acknowledged.
    fn acknowledged(&self) -> u64 {
        let counts = self.counts();
        let unacknowledged = unacknowledged(self).saturating_sub(u64::from(counts.said_goodbye));
        counts.sent.saturating_sub(unacknowledged)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> AsFd for ClientSocket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is that of the stream, which is ours and open for as long as we are.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl<S> AsRawFd for ClientSocket<S> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

/// One end.
#[derive(Debug)]
pub struct Pipe<S> {
    from: Arc<Mutex<Half>>,
    to: Arc<Mutex<Half>>,
    /// How what is written at the end away from the client goes on to it.
    relayed: Arc<Mutex<Relayed>>,
    client: Arc<ClientSocket<S>>,
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    bytes: BytesMut,
    /// Bytes that were written in all.
    written: u64,
    /// No more come, because of this error where there is one.
    closed: Option<Option<io::ErrorKind>>,
    /// The other end reads no more.
    is_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Bytes of a pipe, and where in all that goes to the client they end.
#[derive(Clone, Copy, Debug)]
struct Run {
    here: u64,
    at_client: u64,
    /// So many of the last ones went on as they were.
    same: u64,
}

#[derive(Debug, Default)]
struct Relayed {
    /// Bytes that were taken from the pipe.
    taken: u64,
    runs: VecDeque<Run>,
    /// Bytes of runs that were dropped: the client has acknowledged them.
    floor: u64,
}

impl Relayed {
    /// How many bytes of the pipe the client has, where it has so many of all.
    fn at(&self, client: u64) -> u64 {
        let mut here = self.floor;
        for run in &self.runs {
            if run.at_client <= client {
                here = run.here;
                continue;
            }
            let missing = run.at_client - client;
            return if missing < run.same { run.here - missing } else { here };
        }
        here
    }

    fn add(&mut self, taken: u64, at_client: u64, same: bool) {
        self.taken += taken;
        let same = if same { taken } else { 0 };
        if let Some(last) = self.runs.back_mut()
            && last.at_client + same == at_client
            && same > 0
            && last.same > 0
        {
            (last.here, last.at_client, last.same) = (self.taken, at_client, last.same + same);
            return;
        }
        if same == 0
            && let Some(last) = self.runs.back_mut().filter(|last| last.at_client == at_client)
        {
            (last.here, last.same) = (self.taken, 0);
            return;
        }
        self.runs.push_back(Run { here: self.taken, at_client, same });
    }

    fn forget_before(&mut self, acknowledged: u64) {
        while self.runs.len() > 1
            && let Some(first) = self.runs.front().filter(|first| first.at_client <= acknowledged)
        {
            self.floor = first.here;
            self.runs.pop_front();
        }
        // A client that takes nothing: what is not known to have come counts as not come.
        while self.runs.len() > 2 * MAX_RUNS {
            self.runs.pop_front();
        }
    }
}

impl<S: AsRawFd> Pipe<S> {
    /// The end at the side of this client, and the other one.
    pub fn pair(client: &Arc<ClientSocket<S>>) -> (Pipe<S>, Pipe<S>) {
        let halves = [Arc::<Mutex<Half>>::default(), Arc::default()];
        let relayed = Arc::<Mutex<Relayed>>::default();
        let end = |from: &Arc<Mutex<Half>>, to: &Arc<Mutex<Half>>| Pipe {
            from: from.clone(),
            to: to.clone(),
            relayed: relayed.clone(),
            client: client.clone(),
        };
        let [one, other] = &halves;
        (end(one, other), end(other, one))
    }

    /// Takes what is there without waiting.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut half = lock(&self.from);
        if half.bytes.is_empty() {
            return half.end();
        }
        let bytes = half.bytes.len().min(into.len());
        into[..bytes].copy_from_slice(&half.bytes[..bytes]);
        half.bytes.advance(bytes);
        half.was_read();
        Ok(bytes)
    }

    /// Puts what is there behind what the buffer has, with its memory where that is quicker. 0 is the end.
    pub fn poll_take(&self, into: &mut BytesMut, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        let mut half = lock(&self.from);
        ready!(half.poll_ready(cx));
        if half.bytes.is_empty() {
            return Poll::Ready(half.end());
        }
        let bytes = half.bytes.len();
        move_front(&mut half.bytes, bytes, into);
        half.was_read();
        Poll::Ready(Ok(bytes))
    }

    /// Writes what there is room for.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut half = lock(&self.to);
        let room = half.room()?;
        let bytes = &bytes[..bytes.len().min(room)];
        open(&mut half.bytes);
        half.bytes.extend_from_slice(bytes);
        half.was_written(bytes.len());
        Ok(bytes.len())
    }

    /// Writes what there is room for from the front of a buffer, with its memory where that is quicker. What was not taken
    /// stays there.
    pub fn give(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        let mut half = lock(&self.to);
        let room = half.room()?.min(bytes.len());
        move_front(bytes, room, &mut half.bytes);
        half.was_written(room);
        Ok(room)
    }

    /// Ready when there is something to be read, or the end.
    pub fn poll_read_ready(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.from).poll_ready(cx).map(Ok)
    }

    /// Ready when there is room, or writing will say that the other end reads no more.
    pub fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut half = lock(&self.to);
        if half.bytes.len() < ROOM || half.is_gone {
            return Poll::Ready(Ok(()));
        }
        register(&mut half.writer, cx);
        Poll::Pending
    }

    /// Waits for one of these.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let readable = poll_fn(|cx| self.poll_read_ready(cx));
        let writable = poll_fn(|cx| self.poll_write_ready(cx));
        tokio::select! {
            ready = readable, if interest.is_readable() => ready.map(|()| Ready::READABLE),
            ready = writable, if interest.is_writable() => ready.map(|()| Ready::WRITABLE),
            () = self.has_error(), if interest.is_error() => Ok(Ready::ERROR),
        }
    }

    /// For those who read by tokio's traits.
    pub(super) fn poll_read(&self, cx: &Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut half = lock(&self.from);
        ready!(half.poll_ready(cx));
        if half.bytes.is_empty() {
            return Poll::Ready(half.end().map(drop));
        }
        // Its room is not made zeros first, as there are many reads of few bytes.
        let bytes = half.bytes.len().min(buffer.remaining());
        buffer.put_slice(&half.bytes[..bytes]);
        half.bytes.advance(bytes);
        half.was_read();
        Poll::Ready(Ok(()))
    }

    /// The byte that would be read next; `None` at the end.
    pub(super) fn poll_peek(&self, cx: &Context<'_>) -> Poll<io::Result<Option<u8>>> {
        if self.poll_read_ready(cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(Ok(lock(&self.from).bytes.first().copied()))
    }

    /// No more is written; `why` is what the other end is told in place of an end.
    pub fn close(&self, why: Option<io::ErrorKind>) {
        lock(&self.to).close(why);
    }

    /// Whether the other end is gone.
    pub fn is_alone(&self) -> bool {
        lock(&self.to).is_gone
    }

    /// Ready when it is.
    pub fn poll_alone(&self, cx: &Context<'_>) -> Poll<()> {
        register(&mut lock(&self.from).reader, cx);
        if self.is_alone() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Of what was taken from the pipe so many bytes end there, in all that goes to the client: as they were, or not at all.
    pub fn goes_on(&self, bytes: usize, at_client: u64, same: bool) {
        let mut relayed = lock(&self.relayed);
        relayed.add(bytes as u64, at_client, same);
        if relayed.runs.len() > MAX_RUNS {
            relayed.forget_before(self.client.acknowledged());
        }
    }

    /// Of what was taken from the pipe so many bytes are not for the client: it misses nothing.
    pub fn drops(&self, bytes: usize) {
        let mut relayed = lock(&self.relayed);
        let before = relayed.runs.back().map_or(0, |run| run.at_client);
        relayed.add(bytes as u64, before, false);
    }

    /// How many of the bytes that were written here the client has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        let acknowledged = lock(&self.relayed).at(self.client.acknowledged());
        lock(&self.to).written.saturating_sub(acknowledged)
    }

    /// How many of the bytes that were written here the client had when it spoke last.
    pub(super) fn heard(&self) -> u64 {
        let spoken = self.client.counts().sent_when_spoken;
        lock(&self.relayed).at(spoken)
    }

    /// How many bytes have come from the client that were not read here yet, if they are for here.
    pub(super) fn unread(&self) -> u64 {
        let waiting = self.client.counts().waiting;
        lock(&self.from).bytes.len() as u64 + waiting + unread(&*self.client)
    }

    /// The client's socket.
    pub(super) fn client(&self) -> &ClientSocket<S> {
        &self.client
    }

    /// Waits until the client's socket has an error.
    async fn has_error(&self) {
        loop {
            let mut poll = libc::pollfd { fd: self.client.fd, events: 0, revents: 0 };
            // SAFETY: the kernel reads and writes one `pollfd`, which outlives the call; the descriptor is open.
            let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
            if ready > 0 && poll.revents & libc::POLLERR != 0 {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The error that the system holds for the client's connection.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(&*self.client).take_error()
    }
}

impl<S> Drop for Pipe<S> {
    fn drop(&mut self) {
        lock(&self.to).close(None);
        let mut half = lock(&self.from);
        half.is_gone = true;
        half.bytes = BytesMut::new();
        wake(&mut half.writer);
        // Who waits for the other end to go waits to read.
        drop(half);
        wake(&mut lock(&self.to).reader);
    }
}

impl Half {
    fn close(&mut self, why: Option<io::ErrorKind>) {
        self.closed.get_or_insert(why);
        wake(&mut self.reader);
    }

    /// Ready when there is something to be read, or the end.
    fn poll_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.bytes.is_empty() || self.closed.is_some() {
            return Poll::Ready(());
        }
        register(&mut self.reader, cx);
        Poll::Pending
    }

    /// What reading gives where there are no bytes: an error once, as a socket does, and the end from then on.
    fn end(&mut self) -> io::Result<usize> {
        match self.closed.replace(None) {
            None => {
                self.closed = None;
                Err(io::ErrorKind::WouldBlock.into())
            }
            Some(None) => Ok(0),
            Some(Some(kind)) => Err(kind.into()),
        }
    }

    fn room(&self) -> io::Result<usize> {
        if self.is_gone || self.closed.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        match ROOM.saturating_sub(self.bytes.len()) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            room => Ok(room),
        }
    }

    fn was_read(&mut self) {
        give_back(&mut self.bytes);
        wake(&mut self.writer);
    }

    fn was_written(&mut self, bytes: usize) {
        self.written += bytes as u64;
        wake(&mut self.reader);
    }
}

fn lock<T>(half: &Mutex<T>) -> MutexGuard<'_, T> {
    half.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    fn pair() -> (Pipe<UnixStream>, Pipe<UnixStream>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let (front, leg) = Pipe::pair(&ClientSocket::new(near));
        (front, leg, far)
    }

    #[tokio::test]
    async fn what_is_written_at_one_end_is_read_at_the_other_up_to_its_end() {
        let (front, leg, _client) = pair();
        let mut into = [0; 8];
        assert_eq!(leg.try_read(&mut into).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(front.try_write(b"PING").unwrap(), 4);
        assert_eq!((leg.try_read(&mut into).unwrap(), &into[..4]), (4, &b"PING"[..]));
        assert_eq!(leg.try_write(b"+PONG").unwrap(), 5);
        leg.close(None);
        let mut all = BytesMut::new();
        let mut take = async || poll_fn(|cx| front.poll_take(&mut all, cx)).await.unwrap();
        assert_eq!((take().await, take().await), (5, 0));
        assert_eq!(all, b"+PONG"[..]);
        assert!(leg.try_write(b"x").is_err() && !leg.is_alone());
        drop(front);
        assert!(leg.is_alone());
        assert_eq!(leg.try_read(&mut into).unwrap(), 0);
    }

    #[tokio::test]
    async fn no_more_is_taken_than_there_is_room_for() {
        let (front, leg, _client) = pair();
        let long = vec![b'x'; ROOM + 1];
        assert_eq!(front.try_write(&long).unwrap(), ROOM);
        assert_eq!(front.try_write(b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let room = poll_fn(|cx| front.poll_write_ready(cx));
        let reading = async { leg.try_read(&mut [0; 1]).unwrap() };
        let (room, read) = tokio::join!(room, reading);
        assert!(room.is_ok() && read == 1);
        front.close(Some(io::ErrorKind::ConnectionReset));
        let end = std::iter::repeat_with(|| leg.try_read(&mut [0; 4096])).find(|read| !matches!(read, Ok(1..)));
        assert_eq!(end.expect("it ends").unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(leg.try_read(&mut [0; 1]).unwrap_or(1), 0, "an error is told once");
    }

    #[test]
    fn positions_at_the_client_are_reckoned_back_to_the_bytes_of_a_pipe() {
        let mut relayed = Relayed::default();
        relayed.add(10, 10, true);
        relayed.add(5, 15, true);
        // 100 bytes of others, then 20 that the client did not get, then 8 that it got.
        relayed.add(20, 115, false);
        relayed.add(8, 123, true);
        let at = |relayed: &Relayed, client| relayed.at(client);
        for (client, here) in [(0, 0), (7, 7), (15, 15), (114, 15), (115, 35), (120, 40), (123, 43), (500, 43)] {
            assert_eq!(at(&relayed, client), here, "{client}");
        }
        // What is not for it the client has as soon as what was before.
        let mut quiet = Relayed::default();
        quiet.add(10, 0, false);
        assert_eq!(quiet.at(0), 10);
        relayed.forget_before(116);
        assert_eq!((at(&relayed, 0), at(&relayed, 123)), (35, 43));
    }
}

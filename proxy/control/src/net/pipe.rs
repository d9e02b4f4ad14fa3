//! A connection in memory, with both ends in one process. Behind one end is a client whose requests are distributed
//! over several pipes, and whose replies are merged from all of them. Through the pipe, the other end can ask how many
//! of its bytes that client has received: the socket counts the bytes of all pipes, and this is converted to those of
//! this pipe.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use socket2::SockRef;
use tokio::io::{Interest, Ready};

use super::buffer_pool::{give_back, move_front, open};
use super::sleeper::{register, wake};
use super::socket_queues::{unacknowledged, unread};

/// The most bytes that wait in one direction; beyond that no more are accepted.
const ROOM: usize = 256 * 1024;
/// When there are more runs than this, those that the client has acknowledged are dropped.
const MAX_RUNS: usize = 64;
/// The time between two checks of the client's socket for an error.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The client's socket, and counters of its bytes.
#[derive(Debug)]
pub struct ClientSocket<S> {
    fd: RawFd,
    stream: Mutex<S>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Bytes written to the client; and the same number when the client last sent something.
    sent: u64,
    sent_when_spoken: u64,
    /// Bytes received from it and not passed on yet.
    waiting: u64,
    /// It was sent the end of the stream, which counts as one byte to acknowledge.
    said_goodbye: bool,
    /// What is passed on now should be answered, but not executed.
    is_trying: bool,
}

impl<S: AsRawFd> ClientSocket<S> {
    pub fn new(stream: S) -> Arc<ClientSocket<S>> {
        let fd = stream.as_raw_fd();
        Arc::new(ClientSocket { fd, stream: Mutex::new(stream), counts: Mutex::default() })
    }

    /// Locks the socket.
    pub fn stream(&self) -> MutexGuard<'_, S> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes written to it.
    pub fn was_sent(&self, bytes: usize) {
        self.counts().sent += bytes as u64;
    }

    /// It has sent something.
    pub fn has_spoken(&self) {
        let mut counts = self.counts();
        counts.sent_when_spoken = counts.sent;
    }

    /// Sets how many received bytes wait to be passed on.
    pub fn leaves_waiting(&self, bytes: usize) {
        self.counts().waiting = bytes as u64;
    }

    /// Bytes written to it so far.
    pub fn sent(&self) -> u64 {
        self.counts().sent
    }

    /// It was sent the end of the stream.
    pub fn was_told_goodbye(&self) {
        self.counts().said_goodbye = true;
    }

    /// From now on, what is passed on should be answered as if it were executed, but not executed; or executed again.
    pub fn tries(&self, is_trying: bool) {
        self.counts().is_trying = is_trying;
    }

    /// Whether what is passed on should be answered but not executed.
    pub(super) fn is_trying(&self) -> bool {
        self.counts().is_trying
    }

    /// How many of all bytes written it has acknowledged.
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
    /// How bytes written at the end away from the client are passed on to the client.
    relayed: Arc<Mutex<Relayed>>,
    client: Arc<ClientSocket<S>>,
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    bytes: BytesMut,
    /// Bytes written so far.
    written: u64,
    /// No more bytes come; because of this error, if any.
    closed: Option<Option<io::ErrorKind>>,
    /// The other end reads no more.
    is_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A run of a pipe's bytes, and where it ends among all bytes sent to the client.
#[derive(Clone, Copy, Debug)]
struct Run {
    here: u64,
    at_client: u64,
    /// How many of its last bytes were passed on unchanged.
    same: u64,
}

#[derive(Debug, Default)]
struct Relayed {
    /// Bytes taken from the pipe so far.
    taken: u64,
    runs: VecDeque<Run>,
    /// Bytes of dropped runs: the client has acknowledged them.
    floor: u64,
}

impl Relayed {
    /// How many bytes of the pipe the client has, if it has `client` bytes of all.
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
        // For a client that acknowledges nothing: its bytes count as not received.
        while self.runs.len() > 2 * MAX_RUNS {
            self.runs.pop_front();
        }
    }
}

impl<S: AsRawFd> Pipe<S> {
    /// The end on this client's side, and the other one.
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

    /// Reads available bytes without waiting.
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

    /// Appends available bytes to the buffer, by moving memory if that is quicker. 0 means the end.
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

    /// Writes as much as there is room for.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut half = lock(&self.to);
        let room = half.room()?;
        let bytes = &bytes[..bytes.len().min(room)];
        open(&mut half.bytes);
        half.bytes.extend_from_slice(bytes);
        half.was_written(bytes.len());
        Ok(bytes.len())
    }

    /// Writes as much as there is room for from the front of a buffer, by moving memory if that is quicker. The rest
    /// stays in the buffer.
    pub fn give(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        let mut half = lock(&self.to);
        let room = half.room()?.min(bytes.len());
        move_front(bytes, room, &mut half.bytes);
        half.was_written(room);
        Ok(room)
    }

    /// Ready when there are bytes to read, or the end.
    pub fn poll_read_ready(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.from).poll_ready(cx).map(Ok)
    }

    /// Ready when there is room, or when writing would fail because the other end reads no more.
    pub fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut half = lock(&self.to);
        if half.bytes.len() < ROOM || half.is_gone {
            return Poll::Ready(Ok(()));
        }
        register(&mut half.writer, cx);
        Poll::Pending
    }

    /// Waits for one of these events.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let readable = poll_fn(|cx| self.poll_read_ready(cx));
        let writable = poll_fn(|cx| self.poll_write_ready(cx));
        tokio::select! {
            ready = readable, if interest.is_readable() => ready.map(|()| Ready::READABLE),
            ready = writable, if interest.is_writable() => ready.map(|()| Ready::WRITABLE),
            () = self.has_error(), if interest.is_error() => Ok(Ready::ERROR),
        }
    }

    /// The byte that would be read next; `None` at the end.
    pub(super) fn poll_peek(&self, cx: &Context<'_>) -> Poll<io::Result<Option<u8>>> {
        if self.poll_read_ready(cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(Ok(lock(&self.from).bytes.first().copied()))
    }

    /// Ends this direction; `why` is the error that the other end gets in place of a normal end.
    pub fn close(&self, why: Option<io::ErrorKind>) {
        lock(&self.to).close(why);
    }

    /// Whether the other end is gone.
    pub fn is_alone(&self) -> bool {
        lock(&self.to).is_gone
    }

    /// Ready when the other end is gone.
    pub fn poll_alone(&self, cx: &Context<'_>) -> Poll<()> {
        register(&mut lock(&self.from).reader, cx);
        if self.is_alone() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Bytes that were taken from the pipe end at this position among all bytes sent to the client: unchanged, or not
    /// at all.
    pub fn goes_on(&self, bytes: usize, at_client: u64, same: bool) {
        let mut relayed = lock(&self.relayed);
        relayed.add(bytes as u64, at_client, same);
        if relayed.runs.len() > MAX_RUNS {
            relayed.forget_before(self.client.acknowledged());
        }
    }

    /// Bytes that were taken from the pipe are not for the client.
    pub fn drops(&self, bytes: usize) {
        let mut relayed = lock(&self.relayed);
        let before = relayed.runs.back().map_or(0, |run| run.at_client);
        relayed.add(bytes as u64, before, false);
    }

    /// How many of the bytes written here the client has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        let acknowledged = lock(&self.relayed).at(self.client.acknowledged());
        lock(&self.to).written.saturating_sub(acknowledged)
    }

    /// How many of the bytes written here the client had when it last sent something.
    pub(super) fn heard(&self) -> u64 {
        let spoken = self.client.counts().sent_when_spoken;
        lock(&self.relayed).at(spoken)
    }

    /// How many bytes from the client were not read here yet, if they are for this pipe.
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

    /// The pending error of the client's connection.
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
        // A task that waits for the other end to go waits to read.
        drop(half);
        wake(&mut lock(&self.to).reader);
    }
}

impl Half {
    fn close(&mut self, why: Option<io::ErrorKind>) {
        self.closed.get_or_insert(why);
        wake(&mut self.reader);
    }

    /// Ready when there are bytes to read, or the end.
    fn poll_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.bytes.is_empty() || self.closed.is_some() {
            return Poll::Ready(());
        }
        register(&mut self.reader, cx);
        Poll::Pending
    }

    /// The result of reading when there are no bytes: first the error, if any, as from a socket, then the end.
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
        // 100 bytes of other pipes, then 20 that the client did not get, then 8 that it got.
        relayed.add(20, 115, false);
        relayed.add(8, 123, true);
        let at = |relayed: &Relayed, client| relayed.at(client);
        for (client, here) in [(0, 0), (7, 7), (15, 15), (114, 15), (115, 35), (120, 40), (123, 43), (500, 43)] {
            assert_eq!(at(&relayed, client), here, "{client}");
        }
        // The client has bytes that are not for it as soon as it has those before.
        let mut quiet = Relayed::default();
        quiet.add(10, 0, false);
        assert_eq!(quiet.at(0), 10);
        relayed.forget_before(116);
        assert_eq!((at(&relayed, 0), at(&relayed, 123)), (35, 43));
    }
}

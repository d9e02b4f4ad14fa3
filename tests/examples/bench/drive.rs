//! The load generator: one thread and one epoll for all clients of a run, in a closed loop. Each client sends
//! its next command when the reply to its last one has come and is the expected one; any other reply ends the
//! run. A client stops between cycles only, so that no lock stays behind.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Interest, Poll, Token};

use crate::histogram::Histogram;
use crate::load::{Lane, Load, Script, Texts};
use crate::process;
use crate::replies::{Expected, Found};
use crate::wire::{Address, Plain, Wire};

/// How long a reply may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often interruption is looked at where nothing else happens.
const LOOK_UP: Duration = Duration::from_millis(100);
/// What is read in one go, bytes.
const CHUNK: usize = 256 * 1024;

/// How long a run is: before it counts, and while it does.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// The result of a run. Where every cycle has its own connection, connections are counted and timed, from
/// connecting to the last reply; otherwise commands are, from the write to the reply.
pub(crate) struct Driven<R> {
    pub(crate) latencies: Histogram,
    pub(crate) elapsed: Duration,
    /// What was read of other processes at both ends of the window.
    pub(crate) before: R,
    pub(crate) after: R,
}

/// A connection that answered; some systems make connections before the server accepts them.
pub(crate) fn connect(address: &Address) -> Result<Plain, Box<dyn Error>> {
    let mut stream = address.connect(PATIENCE)?;
    exchange(&mut stream, b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n")?;
    Ok(stream)
}

/// Sends a request and reads exactly its reply; anything else is an error.
pub(crate) fn exchange(stream: &mut Plain, request: &[u8], reply: &[u8]) -> Result<(), Box<dyn Error>> {
    stream.write_all(request)?;
    let mut came = vec![0; reply.len()];
    let mut length = 0;
    while length < reply.len() {
        match stream.read(&mut came[length..])? {
            0 => return Err("closed before the reply".into()),
            more => length += more,
        }
        // A wrong reply may be shorter than the right one, and then nothing more comes.
        if !reply.starts_with(&came[..length]) {
            return Err(format!("answered {}", shown(&came[..length])).into());
        }
    }
    Ok(())
}

/// Puts the load on this address. `read` is called at both ends of the measured window; `locks` begins
/// the names of locks.
pub(crate) fn drive<R>(
    load: &Load,
    address: &Address,
    locks: &str,
    lane: Lane,
    window: Window,
    mut read: impl FnMut() -> io::Result<R>,
) -> Result<Driven<R>, Box<dyn Error>> {
    let idle: Vec<Plain> = (0..load.idle).map(|_| connect(address)).collect::<Result<_, _>>()?;
    let mut run = Run::start(load, address, locks, lane)?;

    run.go_on_until(run.end(window.warm_up, |most| most / 10))?;
    let before = read()?;
    let begun = Instant::now();
    run.latencies = Histogram::new();
    run.go_on_until(run.end(window.measured, |most| most))?;
    let elapsed = begun.elapsed();
    let after = read()?;
    let latencies = std::mem::replace(&mut run.latencies, Histogram::new());
    run.stop()?;
    drop(idle);
    Ok(Driven { latencies, elapsed, before, after })
}

/// What ends a part of a run.
#[derive(Clone, Copy)]
enum End {
    At(Instant),
    /// When so many were counted.
    Count(u64),
    /// When every client has stopped.
    Stopped,
}

struct Run<'a> {
    load: &'a Load,
    address: &'a Address,
    texts: Texts,
    poll: Poll,
    clients: Vec<Client>,
    /// How many clients have stopped.
    stopped: usize,
    stopping: bool,
    latencies: Histogram,
    scratch: Vec<u8>,
}

struct Client {
    stream: Wire,
    script: Script,
    output: Vec<u8>,
    written: usize,
    /// The beginning of a reply whose end has not come.
    input: Vec<u8>,
    awaited: VecDeque<Expected>,
    /// When the awaited command was sent; where every cycle has a connection, when that began.
    begun: Instant,
}

impl<'a> Run<'a> {
    fn start(load: &'a Load, address: &'a Address, locks: &str, lane: Lane) -> Result<Run<'a>, Box<dyn Error>> {
        let mut run = Run {
            load,
            address,
            texts: Texts::of(load.kind, locks),
            poll: Poll::new()?,
            clients: Vec::with_capacity(load.clients),
            stopped: 0,
            stopping: false,
            latencies: Histogram::new(),
            scratch: vec![0; CHUNK],
        };
        for number in 0..load.clients {
            let stream = if load.connections.is_some() { address.begin()? } else { Wire::of(connect(address)?)? };
            run.clients.push(Client {
                stream,
                script: Script::new(load.kind, lane, number),
                output: Vec::new(),
                written: 0,
                input: Vec::new(),
                awaited: VecDeque::new(),
                begun: Instant::now(),
            });
        }
        for (number, client) in run.clients.iter_mut().enumerate() {
            client.register(&run.poll, number)?;
            client.begun = Instant::now();
            client.send(&run.texts)?;
        }
        Ok(run)
    }

    /// How long a part of the run lasts: a time, or a share of the connections.
    fn end(&self, time: Duration, share: impl FnOnce(u64) -> u64) -> End {
        match self.load.connections {
            None => End::At(Instant::now() + time),
            Some(most) => End::Count(share(most)),
        }
    }

    fn stop(mut self) -> Result<(), Box<dyn Error>> {
        self.stopping = true;
        self.go_on_until(End::Stopped)
    }

    fn go_on_until(&mut self, end: End) -> Result<(), Box<dyn Error>> {
        let mut events = Events::with_capacity(1024);
        let mut heard = Instant::now();
        loop {
            let now = Instant::now();
            let left = match end {
                End::At(at) if now >= at => return Ok(()),
                End::Count(most) if self.latencies.total() >= most => return Ok(()),
                End::Stopped if self.stopped == self.clients.len() => return Ok(()),
                End::At(at) => at - now,
                End::Count(_) | End::Stopped => LOOK_UP,
            };
            if process::interrupted() {
                return Err("interrupted".into());
            }
            match self.poll.poll(&mut events, Some(left.min(LOOK_UP))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if !events.is_empty() {
                heard = now;
            } else if now - heard > PATIENCE {
                return Err(format!("no reply for {PATIENCE:?}").into());
            }
            for event in &events {
                self.serve(event)?;
            }
        }
    }

    fn serve(&mut self, event: &Event) -> Result<(), Box<dyn Error>> {
        let Token(number) = event.token();
        let client = &mut self.clients[number];
        if event.is_writable() {
            client.flush()?;
        }
        if !event.is_readable() {
            return Ok(());
        }
        loop {
            let length = match client.stream.read(&mut self.scratch) {
                Ok(0) => return Err("a connection was closed".into()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let now = Instant::now();
            let replies = client.take(&self.texts, &self.scratch[..length])?;
            let of_its_own = self.load.connections.is_some();
            if !of_its_own {
                for _ in 0..replies {
                    self.latencies.record(now - client.begun);
                }
            }
            if replies > 0 && client.awaited.is_empty() {
                let cycle_over = client.script.at_rest();
                if of_its_own && cycle_over {
                    self.latencies.record(now - client.begun);
                }
                if self.stopping && cycle_over {
                    self.stopped += 1;
                    return Ok(());
                }
                if of_its_own && cycle_over {
                    client.begun = Instant::now();
                    client.stream = self.address.begin()?;
                    client.register(&self.poll, number)?;
                } else if !of_its_own {
                    client.begun = now;
                }
                client.send(&self.texts)?;
            }
            // Nothing was left, or another event comes with it.
            if length < self.scratch.len() {
                return Ok(());
            }
        }
    }
}

impl Client {
    fn register(&mut self, poll: &Poll, number: usize) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut self.stream, Token(number), interests)
    }

    /// Puts what comes next on its way.
    fn send(&mut self, texts: &Texts) -> io::Result<()> {
        self.script.put(texts, &mut self.output, &mut self.awaited);
        self.flush()
    }

    /// Writes as much as goes; an event comes when more does.
    fn flush(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(length) => self.written += length,
                Err(error) => {
                    return match error.kind() {
                        // The second: not connected yet.
                        io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => Ok(()),
                        io::ErrorKind::Interrupted => continue,
                        _ => Err(error),
                    };
                }
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Checks the received bytes, and returns how many whole replies they were.
    fn take(&mut self, texts: &Texts, bytes: &[u8]) -> Result<usize, String> {
        if self.input.is_empty() {
            let (used, replies) = self.check(texts, bytes)?;
            self.input.extend_from_slice(&bytes[used..]);
            return Ok(replies);
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let (used, replies) = self.check(texts, &input)?;
        input.drain(..used);
        self.input = input;
        Ok(replies)
    }

    fn check(&mut self, texts: &Texts, bytes: &[u8]) -> Result<(usize, usize), String> {
        let (mut used, mut replies) = (0, 0);
        while used < bytes.len() {
            let rest = &bytes[used..];
            let Some(&expected) = self.awaited.front() else {
                return Err(format!("{} came unasked", shown(rest)));
            };
            match expected.find(&texts.value_reply, rest) {
                Found::Reply { length, granted } => {
                    self.script.heard(granted);
                    self.awaited.pop_front();
                    used += length;
                    replies += 1;
                }
                Found::Part => break,
                Found::Other => return Err(format!("{} is not {expected:?}", shown(rest))),
            }
        }
        Ok((used, replies))
    }
}

/// The beginning of a reply, as a line.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].escape_ascii().to_string()
}

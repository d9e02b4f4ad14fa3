//! Random programs: processes with threads that contend for a few locks with a constant value, over a pool, over a connection a
//! thread, or all over one connection. Some give back what they hold; some have a `finally` block that gives back what they never
//! got. The model knows what becomes of each lock, independently of the proxy.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use lockwarden_tests::random::Random;
use lockwarden_tests::soak::number;
use lockwarden_tests::{Client, Proxy, Redis};

/// Commands in a usual run; `LOCKWARDEN_STEPS` asks for another number.
const STEPS: u64 = 12_000;
/// A run has so many, then others begin.
const STEPS_OF_A_RUN: u64 = 1_500;
const KEYS: usize = 3;
/// For so long at least an identity is doubted after its last release too many.
const DOUBT: Duration = Duration::from_secs(10);

/// Which connection a thread uses next.
#[derive(Clone, Copy, Debug)]
enum Connections {
    /// Whichever comes to hand.
    Pool,
    /// Its own.
    Own,
    /// The only one.
    Shared,
}

#[derive(Clone, Copy, Debug)]
enum Thread {
    Idle,
    /// It works for so many more turns.
    Holds(usize, usize),
    /// It never got this lock, and gives it back all the same.
    Lost(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    No,
    /// From when a lease has run out.
    Soon,
    Due(usize),
}

struct Program {
    is_honest: bool,
    connections: Connections,
    clients: Vec<Client>,
    threads: Vec<Thread>,
    /// Connections that were refused a lock since they were granted it or gave it back.
    refused: HashSet<(usize, usize)>,
    /// When a release of it last was one too many.
    recognised: Option<Instant>,
    /// For each lock, how many releases are due for its refused tries. They are counted from the time when a lease ran out of
    /// which a release was refused.
    counted: [Counted; KEYS],
    /// Locks of its own that it deleted because it was believed.
    deleted: usize,
}

impl Program {
    fn starts(proxy: &Proxy, seed: u64, number: usize, random: &mut Random) -> Program {
        let threads = random.between(2, 4);
        let connections = *random.among(&[Connections::Pool, Connections::Own, Connections::Shared]);
        let wanted = match connections {
            Connections::Pool | Connections::Own => threads,
            Connections::Shared => 1,
        };
        // An identity that no run before had.
        let source = format!("127.45.{}.{}", seed % 250, 1 + number as u64 + seed / 250 % 80 * 3);
        Program {
            is_honest: random.one_in(2),
            connections,
            clients: (0..wanted).map(|_| proxy.client_from(&source)).collect(),
            threads: vec![Thread::Idle; threads],
            refused: HashSet::new(),
            recognised: None,
            counted: [Counted::No; KEYS],
            deleted: 0,
        }
    }

    /// The connection that a thread uses next.
    fn connection(&self, thread: usize, random: &mut Random) -> usize {
        match self.connections {
            Connections::Pool => random.below(self.clients.len()),
            Connections::Own => thread,
            Connections::Shared => 0,
        }
    }

    fn is_recognised(&self) -> bool {
        self.recognised.is_some_and(|at| at.elapsed() < DOUBT)
    }
}

/// The totals of all runs. Locks that losers deleted: because they were believed, and over the connection that took the lock,
/// on which no try had been refused since.
#[derive(Debug, Default)]
struct Told {
    releases: usize,
    misusers: usize,
    deleted: usize,
    most_deleted: usize,
    deleted_like_the_holder: usize,
    /// Releases that were taken for those of refused tries.
    counted: usize,
}

/// The holder of a lock, as its program knows it.
#[derive(Clone, Copy)]
struct Holder {
    process: usize,
    /// `None` once it has given the lock back, where that was taken for the release after a refused try.
    thread: Option<usize>,
    /// The connection that was granted it, as long as it was not refused the lock since: commands over it are the holder's.
    connection: Option<usize>,
}

struct World<'a> {
    seed: u64,
    step: u64,
    random: Random,
    programs: Vec<Program>,
    holders: [Option<Holder>; KEYS],
    /// The process whose lease ended without its release: its next release is that one.
    unreleased: [Option<usize>; KEYS],
    /// The process that was granted the last lease, and its connection.
    last: [Option<(usize, usize)>; KEYS],
    console: Client,
    told: &'a mut Told,
}

impl World<'_> {
    fn key(&self, at: usize) -> String {
        format!("lock:{}:{at}", self.seed)
    }

    fn story(&self, process: usize, thread: usize) -> String {
        format!("LOCKWARDEN_SEED={}, step {}, process {process}, thread {thread}", self.seed, self.step)
    }

    fn goes_on(&mut self) {
        let process = self.random.below(self.programs.len());
        let thread = self.random.below(self.programs[process].threads.len());
        match self.programs[process].threads[thread] {
            Thread::Idle => self.tries(process, thread),
            Thread::Holds(at, left @ 1..) => {
                self.programs[process].threads[thread] = Thread::Holds(at, left - 1);
            }
            Thread::Holds(at, 0) | Thread::Lost(at) => self.gives_back(process, thread, at),
        }
    }

    fn tries(&mut self, process: usize, thread: usize) {
        let at = self.random.below(KEYS);
        let (key, story) = (self.key(at), self.story(process, thread));
        let program = &mut self.programs[process];
        let connection = program.connection(thread, &mut self.random);
        let got = program.clients[connection].sends(format!("SETNX {key} 1")).integer() == 1;
        assert_eq!(got, self.holders[at].is_none(), "{story}");
        if got {
            self.holders[at] = Some(Holder { process, thread: Some(thread), connection: Some(connection) });
            self.unreleased[at] = None;
            self.last[at] = Some((process, connection));
            program.refused.remove(&(connection, at));
            program.threads[thread] = Thread::Holds(at, self.random.below(4));
            return;
        }
        if let Some(holder) = &mut self.holders[at]
            && holder.process == process
            && holder.connection == Some(connection)
        {
            holder.connection = None;
        }
        program.refused.insert((connection, at));
        if let Counted::Due(due) = &mut program.counted[at] {
            *due += 1;
        }
        if !program.is_honest {
            program.threads[thread] = Thread::Lost(at);
        }
    }

    fn gives_back(&mut self, process: usize, thread: usize, at: usize) {
        let (key, story) = (self.key(at), self.story(process, thread));
        let program = &mut self.programs[process];
        let connection = program.connection(thread, &mut self.random);
        let deleted = program.clients[connection].sends(format!("DEL {key}")).integer() == 1;
        program.threads[thread] = Thread::Idle;
        let holder = self.holders[at];
        let own = holder.filter(|holder| holder.process == process);
        let is_holder = own.is_some_and(|holder| holder.thread == Some(thread));
        let is_like_the_holder = own.is_some_and(|holder| holder.connection == Some(connection));
        let counted = program.counted[at];
        if deleted {
            let Some(own) = own else {
                panic!("another process's lock is gone: {story}");
            };
            let is_last = counted == Counted::Due(0) && (is_holder || own.thread.is_none());
            if program.is_recognised() && !is_like_the_holder && !is_last {
                panic!("deleted although recognised: {story}");
            }
            match (is_holder || is_last, is_like_the_holder) {
                (true, _) => self.told.releases += 1,
                (false, true) => self.told.deleted_like_the_holder += 1,
                (false, false) => program.deleted += 1,
            }
            program.refused.remove(&(connection, at));
            self.holders[at] = None;
            return;
        }
        assert!(!program.is_honest, "an honest release is refused: {story}");
        assert!(!is_holder || program.recognised.is_some(), "too early: {story}");
        if own.is_none() {
            if self.unreleased[at] == Some(process) {
                self.unreleased[at] = None;
                return;
            }
            if program.refused.contains(&(connection, at))
                || self.last[at] == Some((process, connection)) && holder.is_none()
            {
                program.recognised = Some(Instant::now());
            }
        }
        match &mut program.counted[at] {
            Counted::Due(due @ 1..) => {
                *due -= 1;
                self.told.counted += 1;
                if is_holder {
                    self.holders[at] = own.map(|own| Holder { thread: None, ..own });
                }
                return;
            }
            Counted::No if own.is_some() => program.counted[at] = Counted::Soon,
            Counted::No | Counted::Soon | Counted::Due(_) => {}
        }
        if is_holder {
            self.runs_out(at, process);
        }
    }

    /// The lock ends by its TTL; the model does not wait for that, but deletes it. Until then every loser has given
    /// back what it never got.
    fn runs_out(&mut self, at: usize, process: usize) {
        self.holders[at] = self.holders[at].map(|own| Holder { thread: None, ..own });
        for process in 0..self.programs.len() {
            for thread in 0..self.programs[process].threads.len() {
                if let (Thread::Lost(lost), Some(_)) = (self.programs[process].threads[thread], self.holders[at])
                    && lost == at
                {
                    self.gives_back(process, thread, at);
                }
            }
        }
        if self.holders[at].take().is_some() {
            self.console.sends(format!("DEL {}", self.key(at))).gets(":1");
            self.unreleased[at] = Some(process);
            for program in &mut self.programs {
                if program.counted[at] != Counted::No {
                    program.counted[at] = Counted::Due(0);
                }
            }
        }
    }
}

fn plays(redis: &Redis, proxy: &Proxy, seed: u64, told: &mut Told) {
    let mut random = Random::from_seed(seed);
    let count = random.between(2, 3);
    let programs = (0..count).map(|number| Program::starts(proxy, seed, number, &mut random)).collect();
    let mut world = World {
        seed,
        step: 0,
        random,
        programs,
        holders: [None; KEYS],
        unreleased: [None; KEYS],
        last: [None; KEYS],
        console: redis.client(),
        told,
    };
    for step in 0..STEPS_OF_A_RUN {
        world.step = step;
        world.goes_on();
    }
    for program in world.programs.iter().filter(|program| !program.is_honest) {
        world.told.misusers += 1;
        world.told.deleted += program.deleted;
        world.told.most_deleted = world.told.most_deleted.max(program.deleted);
    }
}

#[test]
fn an_honest_program_is_refused_nothing_and_a_misuser_deletes_only_its_own_and_only_until_it_is_recognised() {
    let redis = Redis::start();
    let steps = number("LOCKWARDEN_STEPS").unwrap_or(STEPS);
    let first = number("LOCKWARDEN_SEED").unwrap_or(1);
    // No lock runs out here, however slow the machine is.
    let builder = || Proxy::builder(&redis).default_ttl("1h").ceiling("1h");
    let (dedicated, shared) = (builder().start(), builder().multiplexed().start());
    let mut told = Told::default();
    for seed in first..first + steps.div_ceil(STEPS_OF_A_RUN) {
        let proxy = if seed % 2 == 0 { &dedicated } else { &shared };
        plays(&redis, proxy, seed, &mut told);
    }
    println!("{steps} steps: {told:?}");
    assert!(told.releases > 0 && told.deleted > 0 && told.counted > 0);
}

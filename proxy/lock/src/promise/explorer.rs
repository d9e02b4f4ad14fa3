//! Explores every order of events for three servers, their sentinels and two proxies, up to a depth. This crate's rules
//! decide, and only their environment is simulated. The server, sentinel and proxy with the same number are on one
//! machine, which a cut separates from the others. Two things must never happen: two clients rely on one lock, or a
//! client whose lease has had a successor makes a guarded write. The shortest way to a failure is reported. Each cure
//! can be left out, and its absence must then be detected.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Heard, MARGIN, Terms, knows_successors, most_since, now};
use crate::era::{Era, Look, Reading, Reckoned};
use crate::time::RedisTime;

/// The number of steps from the start that `make test` explores; `make soak` explores more.
const DEPTH: usize = 5;
/// All times are multiples of this.
const TICK: Duration = Duration::from_secs(1_000);
/// The length of every requested lease, in ticks, and the longest one once the ceiling is lower.
const LEASE: i16 = 2;
const LOWER: i16 = 1;
/// How far a clock jumps, in ticks.
const JUMP: i16 = 2;
/// The most faults in one history.
const FAULTS: u8 = 3;
/// Moments further back than this many ticks are treated as equal.
const LONG_AGO: i16 = 5;
const SERVERS: usize = 3;

/// Which cures are active.
#[derive(Clone, Copy)]
struct Cures {
    /// An extension checks what may be promised.
    bound: bool,
    /// The era includes the authority's number.
    epoch: bool,
    /// A guard checks whether a successor would be known.
    guard: bool,
    /// The entry includes the longest quarantine.
    longest: bool,
    /// A jump of the clock begins a new era.
    jump: bool,
    /// An era begins only when most sentinels name the primary.
    most: bool,
}

const ALL: Cures = Cures { bound: true, epoch: true, guard: true, longest: true, jump: true, most: true };

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Tick,
    /// It stops, and later continues where it was.
    Freeze(usize),
    Wake(usize),
    /// A machine is cut off from the others, and reconnected.
    Cut(usize),
    Heal,
    /// The sentinel on its machine promotes it.
    Promote(usize),
    /// Sentinels that can reach each other exchange what they know.
    Gossip,
    /// A replica copies what its primary has.
    Copy(usize),
    /// A server is restarted, without its keys.
    Empty(usize),
    /// A server's clock jumps forward, seen by each proxy that uses it, and by at least one: they look every second.
    Jump(usize),
    /// A proxy asks the sentinels and the server.
    Look(usize),
    /// A proxy is restarted.
    Restart(usize),
    /// A proxy reads a configuration with a lower ceiling.
    Reload(usize),
    /// The client of a proxy acquires, extends, or makes a guarded write.
    Acquire(usize),
    Extend(usize),
    Write(usize),
}

#[derive(Clone)]
struct Server {
    run: Arc<str>,
    is_frozen: bool,
    /// It accepts no writes.
    is_replica: bool,
    clock: i16,
    /// The lease that holds the lock, and its end by this clock.
    lock: Option<(u8, i16)>,
    /// The newest lease in its records, and when it was granted by this clock.
    record: Option<(u8, i16)>,
    era: Option<Era>,
}

/// What a sentinel knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Named {
    epoch: u64,
    server: usize,
}

#[derive(Clone)]
struct Proxy {
    followed: Option<Named>,
    answers: [Option<(Named, i16)>; SERVERS],
    reckoned: Option<Reckoned>,
    /// The era that it used last.
    known: Option<Era>,
    is_lower: bool,
}

#[derive(Clone, Copy, Hash)]
struct Client {
    own: Option<u8>,
    /// Until when it relies on its lease.
    until: i16,
}

#[derive(Clone)]
struct World {
    begun: Instant,
    now: i16,
    servers: [Server; SERVERS],
    sentinels: [Named; SERVERS],
    cut_off: Option<usize>,
    proxies: [Proxy; 2],
    clients: [Client; 2],
    /// The newest lease that a client was told of.
    newest: u8,
    /// How many more faults may happen.
    faults: u8,
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    TwoHolders,
    StaleWrite,
}

fn ticks(count: i16) -> Duration {
    TICK * u32::try_from(count).unwrap_or(0)
}

fn terms(proxy: &Proxy, cures: Cures) -> Terms<'static> {
    let (lease, rules) = match proxy.is_lower {
        true => (ticks(LOWER), "lower"),
        false => (ticks(LEASE), "usual"),
    };
    Terms {
        quarantine: lease - MARGIN,
        longest: Some(lease),
        reach: Some(lease),
        rules: if cures.longest { rules } else { "any" },
    }
}

impl World {
    /// All agree on server 0, which has been the primary for a long time.
    fn new(cures: Cures) -> World {
        let named = Named { epoch: 1, server: 0 };
        let server = |run: &str| Server {
            run: run.into(),
            is_frozen: false,
            is_replica: false,
            clock: 0,
            lock: None,
            record: None,
            era: None,
        };
        let proxy = Proxy { followed: None, answers: [None; SERVERS], reckoned: None, known: None, is_lower: false };
        let mut world = World {
            begun: Instant::now(),
            now: 0,
            servers: [server("a"), server("b"), server("c")],
            sentinels: [named; SERVERS],
            cut_off: None,
            proxies: [proxy.clone(), proxy],
            clients: [Client { own: None, until: 0 }; 2],
            newest: 0,
            faults: FAULTS,
        };
        world.look(0, cures);
        world.now = LONG_AGO;
        world.look(0, cures);
        world.look(1, cures);
        for replica in 1..SERVERS {
            world.copy(replica);
        }
        world
    }

    fn reaches(&self, one: usize, other: usize) -> bool {
        one == other || (self.cut_off != Some(one) && self.cut_off != Some(other))
    }

    fn instant(&self, at: i16) -> Instant {
        self.begun + ticks(at)
    }

    /// The time of a server's clock at a moment.
    fn redis(&self, server: usize, at: i16) -> RedisTime {
        let ms = ticks(at + self.servers[server].clock).as_millis();
        RedisTime(1_000_000_000 + u64::try_from(ms).unwrap_or(0))
    }

    fn fault(&mut self) -> Option<()> {
        self.faults = self.faults.checked_sub(1)?;
        Some(())
    }

    /// `None` if it cannot happen.
    fn happens(&mut self, event: Event, cures: Cures) -> Option<Result<(), Broken>> {
        match event {
            Event::Tick => self.now += 1,
            Event::Freeze(server) => {
                self.fault()?;
                self.servers[server].is_frozen = true;
            }
            Event::Wake(server) => {
                let frozen = &mut self.servers[server].is_frozen;
                std::mem::take(frozen).then_some(())?;
            }
            Event::Cut(machine) => {
                self.fault()?;
                self.cut_off = Some(machine);
            }
            Event::Heal => drop(self.cut_off.take()?),
            Event::Promote(server) => self.promote(server)?,
            Event::Gossip => {
                let views = self.sentinels;
                for one in 0..SERVERS {
                    let heard = (0..SERVERS).filter(|other| self.reaches(one, *other));
                    self.sentinels[one] = heard.map(|other| views[other]).max()?;
                }
                (self.sentinels != views).then_some(())?;
            }
            Event::Copy(server) => self.copy(server)?,
            Event::Empty(server) => {
                self.fault()?;
                let server = &mut self.servers[server];
                server.run = format!("{}'", server.run).into();
                (server.lock, server.record, server.era) = (None, None, None);
            }
            Event::Jump(server) => {
                self.fault()?;
                self.servers[server].clock += JUMP;
                let mut is_seen = self.servers[server].is_replica;
                // Twice, so that both know the other's entry.
                for proxy in [0, 1, 0, 1] {
                    if self.reckons_by(proxy, server) {
                        self.served_by(proxy)?;
                        self.look(proxy, cures);
                        is_seen |= self.reckons_by(proxy, server);
                    }
                }
                is_seen.then_some(())?;
            }
            Event::Look(proxy) => self.look(proxy, cures),
            Event::Restart(proxy) => {
                self.fault()?;
                let is_lower = self.proxies[proxy].is_lower;
                self.proxies[proxy] =
                    Proxy { followed: None, answers: [None; SERVERS], reckoned: None, known: None, is_lower };
                // The other proxy looks in between: a quarantine is longer than a second.
                for proxy in [proxy, 1 - proxy, proxy] {
                    self.look(proxy, cures);
                }
            }
            Event::Reload(proxy) => {
                self.fault()?;
                let proxy = &mut self.proxies[proxy];
                (!std::mem::replace(&mut proxy.is_lower, true)).then_some(())?;
            }
            Event::Acquire(client) => self.acquire(client, cures)?,
            Event::Extend(client) => self.extend(client, cures)?,
            Event::Write(client) => return self.write(client, cures),
        }
        let both = self.clients.iter().all(|client| client.until > self.now);
        Some(if both { Err(Broken::TwoHolders) } else { Ok(()) })
    }

    /// The sentinel on its machine needs the votes of most.
    fn promote(&mut self, server: usize) -> Option<()> {
        let voters = (0..SERVERS).filter(|other| self.reaches(server, *other));
        let views: Vec<Named> = voters.map(|other| self.sentinels[other]).collect();
        let newest = views.iter().max()?;
        if views.len() * 2 <= SERVERS || self.servers[server].is_frozen || newest.server == server {
            return None;
        }
        let epoch = newest.epoch + 1;
        self.fault()?;
        self.sentinels[server] = Named { epoch, server };
        self.servers[server].is_replica = false;
        Some(())
    }

    fn copy(&mut self, to: usize) -> Option<()> {
        let heard = (0..SERVERS).filter(|other| self.reaches(to, *other));
        let from = heard.map(|other| self.sentinels[other]).max()?.server;
        let is_there = |server: usize| !self.servers[server].is_frozen;
        if from == to || !self.reaches(from, to) || !is_there(from) || !is_there(to) {
            return None;
        }
        let (lock, record, era) = {
            let from = &self.servers[from];
            (from.lock, from.record, from.era.clone())
        };
        let replica = &mut self.servers[to];
        (replica.lock, replica.record, replica.era) = (lock, record, era);
        let was_primary = !std::mem::replace(&mut replica.is_replica, true);
        if was_primary {
            // A sentinel closes the connections of a server that it demotes, and a proxy looks before it uses new ones.
            let followers = self.proxies.iter_mut();
            followers
                .filter(|proxy| proxy.followed.is_some_and(|named| named.server == to))
                .for_each(|proxy| proxy.reckoned = None);
        }
        Some(())
    }

    fn look(&mut self, number: usize, cures: Cures) {
        for sentinel in 0..SERVERS {
            if self.reaches(number, sentinel) {
                let answer = (self.sentinels[sentinel], self.now);
                self.proxies[number].answers[sentinel] = Some(answer);
            }
        }
        let proxy = &mut self.proxies[number];
        let newest = proxy.answers.iter().flatten().map(|(named, _)| *named).max();
        if newest > proxy.followed {
            (proxy.followed, proxy.reckoned) = (newest, None);
        }
        let Some(followed) = proxy.followed else {
            return;
        };
        let named_now = |answer: &&Option<(Named, i16)>| **answer == Some((followed, self.now));
        let is_named = proxy.answers.iter().filter(named_now).count() * 2 > SERVERS;
        let server = &self.servers[followed.server];
        if self.served_by(number).is_none() || (cures.most && !is_named) {
            return;
        }
        let (at, redis) = (self.instant(self.now), self.redis(followed.server, self.now));
        let proxy = &self.proxies[number];
        let terms = terms(proxy, cures);
        let jumped = proxy.reckoned.as_ref().is_some_and(|known| known.read.jump(redis, at).is_some());
        let look = Look {
            run: server.run.clone(),
            epoch: cures.epoch.then_some(followed.epoch),
            rules: terms.rules.into(),
            longest_ms: u64::try_from(terms.quarantine.as_millis()).unwrap_or(u64::MAX),
            now: redis,
            age: None,
            tokens: None,
            anew: jumped && cures.jump,
        };
        let known = proxy.known.as_ref();
        let era = Era::after(server.era.as_ref(), known, &look);
        self.servers[followed.server].era = Some(era.clone());
        let read = Reading { redis, sent: at, heard: at };
        self.proxies[number].known = Some(era.clone());
        self.proxies[number].reckoned = Some(Reckoned { era, read });
    }

    fn heard(&self, proxy: &Proxy) -> Heard {
        let answers = proxy.answers.iter();
        Heard::ByMost(most_since(answers.map(|answer| {
            let same = answer.filter(|(named, _)| Some(*named) == proxy.followed);
            same.map(|(_, at)| self.instant(at))
        })))
    }

    /// The server that a client's command reaches through its proxy.
    fn served_by(&self, proxy: usize) -> Option<usize> {
        let server = self.proxies[proxy].followed?.server;
        let Server { is_frozen, is_replica, .. } = self.servers[server];
        (!is_frozen && !is_replica && self.reaches(proxy, server)).then_some(server)
    }

    fn reckons_by(&self, proxy: usize, server: usize) -> bool {
        let Proxy { followed, reckoned, .. } = &self.proxies[proxy];
        reckoned.is_some() && followed.is_some_and(|named| named.server == server)
    }

    fn holder(&self, server: usize) -> Option<u8> {
        let here = &self.servers[server];
        let (lease, ends) = here.lock?;
        (ends > self.now + here.clock).then_some(lease)
    }

    fn acquire(&mut self, client: usize, cures: Cures) -> Option<()> {
        let server = self.served_by(client)?;
        let proxy = &self.proxies[client];
        let promise = now(&terms(proxy, cures), proxy.reckoned.as_ref(), self.heard(proxy), self.instant(self.now));
        // A connection is asked once which run of a server it leads to.
        let leads_there = proxy.reckoned.as_ref().is_some_and(|known| known.era.run == self.servers[server].run);
        if promise.free.is_err() || !leads_there || self.holder(server).is_some() {
            return None;
        }
        let lease = if proxy.is_lower { LOWER } else { LEASE };
        self.newest += 1;
        let here = &mut self.servers[server];
        let at = self.now + here.clock;
        here.lock = Some((self.newest, at + lease));
        here.record = Some((self.newest, at));
        self.clients[client] = Client { own: Some(self.newest), until: self.now + lease };
        Some(())
    }

    fn extend(&mut self, client: usize, cures: Cures) -> Option<()> {
        let server = self.served_by(client)?;
        let proxy = &self.proxies[client];
        let lease = if proxy.is_lower { LOWER } else { LEASE };
        let promise = now(&terms(proxy, cures), proxy.reckoned.as_ref(), self.heard(proxy), self.instant(self.now));
        let fits = promise.longest.is_none_or(|longest| ticks(lease) <= longest);
        let own = self.clients[client].own?;
        let ends = self.now + lease;
        if (cures.bound && !fits) || self.holder(server) != Some(own) || self.clients[client].until >= ends {
            return None;
        }
        let here = &mut self.servers[server];
        here.lock = Some((own, ends + here.clock));
        self.clients[client].until = ends;
        Some(())
    }

    /// Changes nothing here, so it can only reveal a failure.
    fn write(&self, client: usize, cures: Cures) -> Option<Result<(), Broken>> {
        let server = self.served_by(client)?;
        let own = self.clients[client].own?;
        let (newest, granted) = self.servers[server].record?;
        let proxy = &self.proxies[client];
        let granted = self.redis(server, granted - self.servers[server].clock);
        let knows = !cures.guard
            || knows_successors(
                &terms(proxy, cures),
                proxy.reckoned.as_ref(),
                self.heard(proxy),
                self.instant(self.now),
                granted,
            );
        let passes = newest == own && (knows || self.holder(server) == Some(own));
        (passes && own < self.newest).then_some(Err(Broken::StaleWrite))
    }

    /// Equal for states that differ only in what no longer matters.
    fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        let ago = |at: i16| (self.now - at).min(LONG_AGO);
        let older = |lease: u8| self.newest - lease;
        let era = |era: &Era, now: RedisTime, hash: &mut DefaultHasher| {
            let tick = TICK.as_millis();
            let since = (u128::from(now.ms_since(era.since)) / tick).min(5);
            let mixed = u128::from(era.mixed_until.ms_since(now)).div_ceil(tick);
            let before = era.since < era.mixed_until;
            (&era.run, era.epoch, since, &era.rules, era.longest_ms, mixed, before).hash(hash);
        };
        for (number, server) in self.servers.iter().enumerate() {
            let clocked = |at: i16| ago(at - server.clock);
            (&server.run, server.is_frozen, server.is_replica, server.clock).hash(&mut hash);
            let held = server.lock.filter(|_| self.holder(number).is_some());
            held.map(|(lease, ends)| (older(lease), clocked(ends))).hash(&mut hash);
            server.record.map(|(lease, at)| (older(lease), clocked(at))).hash(&mut hash);
            if let Some(known) = &server.era {
                era(known, self.redis(number, self.now), &mut hash);
            }
        }
        (self.sentinels, self.cut_off, self.faults).hash(&mut hash);
        for proxy in &self.proxies {
            (proxy.followed, proxy.is_lower).hash(&mut hash);
            for answer in &proxy.answers {
                answer.map(|(named, at)| (named, ago(at))).hash(&mut hash);
            }
            if let Some(known) = &proxy.known {
                era(known, self.redis(proxy.followed.map_or(0, |named| named.server), self.now), &mut hash);
            }
            if let Some(known) = &proxy.reckoned {
                era(&known.era, known.read.redis, &mut hash);
                let read = self.instant(self.now).duration_since(known.read.sent);
                (read.as_secs() / TICK.as_secs()).min(5).hash(&mut hash);
            }
        }
        for client in &self.clients {
            (client.own.map(older), ago(client.until)).hash(&mut hash);
        }
        hash.finish()
    }
}

/// All possible events. For servers without keys and for jumping clocks, the third server is like the second.
fn all_events() -> Vec<Event> {
    let two = || 0..2;
    let plain = [Event::Tick, Event::Heal, Event::Gossip].into_iter();
    plain
        .chain((0..SERVERS).flat_map(|one| [Event::Freeze(one), Event::Wake(one), Event::Cut(one)]))
        .chain((0..SERVERS).flat_map(|one| [Event::Promote(one), Event::Copy(one)]))
        .chain(two().flat_map(|one| [Event::Empty(one), Event::Jump(one)]))
        .chain(two().flat_map(|one| [Event::Look(one), Event::Restart(one), Event::Reload(one)]))
        .chain(two().flat_map(|one| [Event::Acquire(one), Event::Extend(one), Event::Write(one)]))
        .collect()
}

/// The result: the number of states, and the shortest way to one that must never happen.
struct Found {
    states: usize,
    broken: Option<(Broken, Vec<Event>)>,
}

/// Explores every state that this many of these events lead to.
fn explore(events: &[Event], depth: usize, cures: Cures) -> Found {
    let mut seen = HashSet::new();
    let mut ways: Vec<(usize, Option<Event>)> = vec![(0, None)];
    let mut states = vec![(0, World::new(cures))];
    for _ in 0..depth {
        let mut next = Vec::new();
        for (way, world) in states {
            for &event in events {
                let mut then = world.clone();
                match then.happens(event, cures) {
                    Some(Err(broken)) => {
                        let mut told = vec![event];
                        let mut at = way;
                        while let (before, Some(event)) = ways[at] {
                            told.push(event);
                            at = before;
                        }
                        told.reverse();
                        let (states, broken) = (seen.len(), Some((broken, told)));
                        return Found { states, broken };
                    }
                    Some(Ok(())) if seen.insert(then.fingerprint()) => {
                        next.push((ways.len(), then));
                        ways.push((way, Some(event)));
                    }
                    Some(Ok(())) | None => {}
                }
            }
        }
        states = next;
    }
    Found { states: seen.len(), broken: None }
}

/// Without a cure these events break a promise, within this many steps; with all cures they do in no order.
#[track_caller]
fn misses(without: Cures, expected: Broken, events: &[Event], depth: usize) {
    let found = explore(events, depth, without);
    let (broken, way) = found.broken.expect("it is missed");
    assert_eq!(broken, expected, "{way:?}");
    eprintln!("explorer: {} states, {broken:?} by {way:?}", found.states);
    let found = explore(events, depth, ALL);
    eprintln!("explorer: {} states", found.states);
    assert_eq!(found.broken, None);
}

const COMMON: [Event; 7] = [
    Event::Tick,
    Event::Promote(1),
    Event::Look(0),
    Event::Look(1),
    Event::Acquire(0),
    Event::Acquire(1),
    Event::Gossip,
];

#[test]
fn nothing_that_happens_in_any_order_breaks_a_promise() {
    let depth = std::env::var("LOCKWARDEN_EXPLORE");
    let depth = depth.map_or(DEPTH, |depth| depth.parse().expect("a number"));
    let found = explore(&all_events(), depth, ALL);
    eprintln!("explorer: {} states in {depth} steps", found.states);
    if let Some((broken, way)) = found.broken {
        panic!("{broken:?} by {way:?}");
    }
}

#[test]
fn an_extension_in_the_minority_is_found_out() {
    let more = [Event::Cut(0), Event::Extend(0)];
    let without = Cures { bound: false, ..ALL };
    misses(without, Broken::TwoHolders, &[&COMMON[..], &more].concat(), 9);
}

#[test]
fn a_primary_that_is_one_again_is_found_out() {
    let more = [Event::Promote(0), Event::Copy(0), Event::Copy(1)];
    let without = Cures { epoch: false, ..ALL };
    misses(without, Broken::TwoHolders, &[&COMMON[..], &more].concat(), 9);
}

#[test]
fn a_late_write_behind_a_grant_that_was_lost_is_found_out() {
    let more = [Event::Copy(1), Event::Write(0), Event::Write(1)];
    let without = Cures { guard: false, ..ALL };
    misses(without, Broken::StaleWrite, &[&COMMON[..], &more].concat(), 9);
}

#[test]
fn a_quarantine_shorter_than_leases_of_before_a_reload_is_found_out() {
    let more = [Event::Reload(0), Event::Reload(1), Event::Copy(1)];
    let without = Cures { longest: false, ..ALL };
    misses(without, Broken::TwoHolders, &[&COMMON[..], &more].concat(), 8);
}

#[test]
fn a_clock_that_jumps_is_found_out() {
    let more = [Event::Jump(1), Event::Restart(1)];
    let without = Cures { jump: false, ..ALL };
    misses(without, Broken::TwoHolders, &[&COMMON[..], &more].concat(), 8);
}

#[test]
fn a_primary_that_few_name_is_found_out() {
    let more = [Event::Cut(1), Event::Heal];
    let without = Cures { most: false, ..ALL };
    misses(without, Broken::TwoHolders, &[&COMMON[..], &more].concat(), 11);
}

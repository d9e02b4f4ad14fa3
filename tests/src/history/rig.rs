//! One run: a Redis that logs every write, proxies in front of it, clients in separate processes, and faults
//! from a seed. It produces a history and judges nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use std::{env, fs};

use tempfile::TempDir;

use crate::builder::{Mode, ProxyBuilder};
use crate::deadline::wait_for;
use crate::forwarder::Forwarder;
use crate::ports::free_port;
use crate::process::Process;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::redis::Redis;
use crate::sentinels::{Failover, Sentinels};

use super::aof::Committed;
use super::clock::At;
use super::faults::{self, Fault};
use super::idioms::DEFAULT_TTL;
use super::line;
use super::operation::{History, Trouble};
use super::planted::{Planted, Planter};
use super::proxies_said;
use super::run::{Plan, Run, without_grants};
use super::worker::{Orders, guarded_by};

/// The time between two looks at what is to be done.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// At the end there are no faults for this long, so that all clients can be seen to recover.
const CALM: Duration = Duration::from_secs(5);
/// A proxy that is killed may not have written what it decided just before; some fifty milliseconds' worth, on a machine
/// that is not busy.
const UNWRITTEN: Duration = Duration::from_secs(2);
/// What a lock guards: [`super::worker::guarded_by`].
pub(super) const GUARD: &str =
    "[[guard]]\nname = \"data\"\nkeys = [\"data:{id}\"]\nlock = \"lock:{id}\"\nmode = \"enforce\"\n";
/// A server that loses nothing. Clients without a proxy come from addresses of their own, which protected mode refuses.
const WRITES_DOWN: [&str; 6] = ["--appendonly", "yes", "--appendfsync", "always", "--protected-mode", "no"];
/// A client that has not ended this long after the end is stuck.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Redis by itself, or one that sentinels watch over.
enum Backend {
    Single(Redis),
    Watched(Sentinels),
}

/// The processes of a run.
pub struct Rig {
    plan: Plan,
    folder: TempDir,
    random: Random,
    locks: Vec<String>,
    backend: Backend,
    failovers: Vec<(Failover, At)>,
    places: Vec<Place>,
    seats: Vec<Seat>,
    until: At,
    history: History,
    files: Vec<(u32, PathBuf)>,
    faults: BTreeMap<Fault, usize>,
    unwritten: Vec<(At, At)>,
    /// What goes on, and when it is to end.
    active: Vec<(Fault, usize, At, usize)>,
}

/// A proxy, and what stands in front of it and behind.
struct Place {
    proxy: Option<Proxy>,
    port: u16,
    planter: Option<Planter>,
    to_redis: Forwarder,
    from_clients: Forwarder,
    trail: PathBuf,
}

/// A client, one process after the other.
struct Seat {
    process: Option<Process>,
    client: u32,
}

/// Copies what clients and proxies have written to where `LOCKWARDEN_KEEP_HISTORY` says.
pub(super) fn keeps_history(folder: &Path, seed: u64) {
    let Some(kept) = env::var_os("LOCKWARDEN_KEEP_HISTORY") else {
        return;
    };
    let kept = Path::new(&kept).join(format!("seed-{seed}"));
    fs::create_dir_all(&kept).expect("a folder for what is kept");
    let files = fs::read_dir(folder).expect("it is there").flatten();
    for file in files.filter(|file| file.path().is_file()) {
        fs::copy(file.path(), kept.join(file.file_name())).expect("a copy");
    }
}

/// The address that a client comes from. The successor of a killed client has another one: with the same user, name and
/// address a DEL of the successor is believed to be the dead client's while its process is not known yet (decision 62),
/// and the judge takes the two for strangers.
fn source_of(client: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 40, 0, 1)) + client)
}

impl Rig {
    /// Plays the run of this plan.
    #[track_caller]
    pub fn plays(plan: Plan) -> Run {
        let mut rig = Rig::new(plan);
        for seat in 0..rig.plan.clients {
            rig.seats_client(seat);
        }
        match rig.plan.failovers.is_empty() {
            true => rig.makes_trouble(),
            false => rig.fails_over(),
        }
        let calm_from = At::now();
        rig.ends(calm_from)
    }

    #[track_caller]
    fn new(plan: Plan) -> Rig {
        let backend = match plan.failovers.is_empty() {
            true => Backend::Single(Redis::with_arguments(&WRITES_DOWN)),
            false => Backend::Watched(Sentinels::start()),
        };
        let folder = tempfile::tempdir().expect("a folder for the run");
        let seats = (0..plan.clients).map(|_| Seat { process: None, client: 0 });
        let mut rig = Rig {
            seats: seats.collect(),
            random: Random::from_seed(plan.seed),
            locks: (0..3).map(|number| format!("lock:{number}")).collect(),
            places: Vec::new(),
            until: At::now(),
            history: History::default(),
            files: Vec::new(),
            faults: BTreeMap::new(),
            unwritten: Vec::new(),
            active: Vec::new(),
            failovers: Vec::new(),
            plan,
            folder,
            backend,
        };
        if rig.plan.sessions.is_some() {
            for number in 0..2 {
                rig.opens_place(number);
            }
        }
        rig.until = match rig.plan.failovers.is_empty() {
            true => At::now().plus(rig.plan.lasts),
            // It is unknown how long they take, so the clients are killed at the end.
            false => At(u64::MAX),
        };
        rig
    }

    fn redis(&self) -> &Redis {
        match &self.backend {
            Backend::Single(redis) => redis,
            Backend::Watched(all) => all.server(0),
        }
    }

    fn redis_to_be_killed(&mut self) -> &mut Redis {
        match &mut self.backend {
            Backend::Single(redis) => redis,
            Backend::Watched(_) => panic!("sentinels watch over it: let it fail over"),
        }
    }

    #[track_caller]
    fn opens_place(&mut self, number: usize) {
        // One of two that disagree is enough.
        let is_planted = self.plan.planted != Some(Planted::ClockOfTheProxy) || number == 1;
        let planted = self.plan.planted.filter(|_| is_planted);
        let planter = planted.map(|mistake| Planter::before(self.redis().address(), mistake));
        let behind = planter.as_ref().map_or(self.redis().address(), Planter::address);
        let mut place = Place {
            proxy: None,
            port: free_port(),
            planter,
            to_redis: Forwarder::to(behind),
            from_clients: Forwarder::transparent_to(behind),
            trail: self.folder.path().join(format!("audit-{number}.jsonl")),
        };
        let proxy = self.builder(&place).start();
        place.from_clients.leads_to(proxy.address());
        place.proxy = Some(proxy);
        self.places.push(place);
    }

    fn builder(&self, place: &Place) -> ProxyBuilder {
        let sessions = self.plan.sessions.unwrap_or("dedicated");
        let url = match &self.backend {
            Backend::Single(_) => format!("redis://{}", place.to_redis.address()),
            Backend::Watched(all) => all.url(),
        };
        ProxyBuilder::for_backend(&url)
            // No client asks for more.
            .ceiling("1s")
            .more(GUARD)
            .namespace("quarantine", &format!("{:?}", self.plan.quarantine))
            .namespace("durability", &format!("{:?}", self.plan.durability))
            .mode(Mode::Enforce)
            .top("listen", &format!("\"127.0.0.1:{}\"", place.port))
            .top("sessions", &format!("\"{sessions}\""))
            .top("audit", "\"all\"")
            .top("audit_max_size", "\"off\"")
            .top("audit_file", &format!("\"{}\"", place.trail.display()))
            .default_ttl(&format!("{}ms", DEFAULT_TTL.as_millis()))
    }

    /// Starts a client in this seat. Half of the seats reach the proxies through a network that can break.
    fn seats_client(&mut self, seat: usize) {
        let client = u32::try_from(self.files.len()).expect("few clients");
        let file = self.folder.path().join(format!("client-{client}"));
        let servers: Vec<SocketAddr> = match self.places.is_empty() {
            true => match &self.backend {
                Backend::Single(redis) => vec![redis.address()],
                Backend::Watched(all) => all.addresses(),
            },
            false if seat.is_multiple_of(2) => {
                let ways = self.places.iter();
                ways.map(|place| place.from_clients.address()).collect()
            }
            false => {
                let ports = self.places.iter().map(|place| place.port);
                ports.map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect()
            }
        };
        let orders = Orders {
            client,
            seed: self.random.number(),
            source: source_of(client),
            servers,
            locks: self.locks.clone(),
            deadline_lock: "lock:deadline".to_owned(),
            file: file.clone(),
            until: self.until,
            misbehaves: self.plan.misbehave,
            holds: None,
            clock_ahead: Duration::from_secs(if seat % 4 == 3 { 60 } else { 0 }),
        };
        self.seats[seat].process = Some(orders.start(&self.plan.worker, None));
        self.seats[seat].client = client;
        self.files.push((client, file));
    }

    /// Makes faults, several at a time, until it is time to be calm.
    fn makes_trouble(&mut self) {
        let calm = self.until.minus(CALM);
        let mut next = None;
        let mut due = At::now();
        while At::now() < calm && !self.plan.faults.is_empty() {
            let chosen = next.get_or_insert_with(|| {
                let (clients, proxies) = (self.plan.clients, self.places.len());
                let next = faults::next(&mut self.random, self.plan.faults, clients, proxies);
                due = At::now().plus(next.pause);
                next
            });
            if At::now() >= due {
                let target = chosen.fault.target(chosen.victim);
                let mut active = self.active.iter();
                if active.all(|(fault, victim, ..)| fault.target(*victim) != target) {
                    let (fault, victim, lasts) = (chosen.fault, chosen.victim, chosen.lasts);
                    self.begins(fault, victim, lasts);
                }
                next = None;
            }
            self.ends_what_is_due(At::now());
            sleep(LOOK_EVERY);
        }
        // What still goes on ends now.
        self.ends_what_is_due(At(u64::MAX));
    }

    /// One failover after the other, each when clients are granted locks, and healed when they are again.
    #[track_caller]
    fn fails_over(&mut self) {
        for kind in self.plan.failovers.clone() {
            self.grants_go_on();
            let began = At::now();
            let Backend::Watched(all) = &mut self.backend else {
                return;
            };
            let switched = all.fails_over(kind);
            self.history.troubles.push(Trouble {
                words: format!(
                    "the primary, server {}, lost its place to server {}: {}",
                    switched.from,
                    switched.to,
                    kind.words()
                ),
                began,
                ended: Some(At::now()),
            });
            self.failovers.push((kind, began));
            self.grants_go_on();
            if let Backend::Watched(all) = &mut self.backend {
                all.heals();
            }
        }
        self.grants_go_on();
    }

    #[track_caller]
    fn grants_go_on(&self) {
        line::grants_go_on(self.files.iter().map(|(_, file)| file));
    }

    fn begins(&mut self, fault: Fault, victim: usize, lasts: Duration) {
        let began = At::now();
        match fault {
            Fault::KillClient => {
                self.history.deaths.insert(self.seats[victim].client, began);
                self.seats[victim].process = None;
            }
            Fault::FreezeClient => self.signals(victim, libc::SIGSTOP),
            Fault::KillProxy => {
                if let Some(proxy) = self.places[victim].proxy.take() {
                    proxy.kill();
                }
                let now = At::now();
                self.unwritten.push((began.minus(UNWRITTEN), now));
            }
            Fault::FreezeProxy => self.proxy(victim).freeze(),
            Fault::KillRedis => self.redis_to_be_killed().stop(),
            Fault::FreezeRedis => self.redis().freeze(),
            Fault::PauseAll => self.pauses(lasts, "ALL"),
            Fault::PauseWrites => self.pauses(lasts, "WRITE"),
            Fault::CutClients => self.places[victim].from_clients.closes_all(),
            Fault::FreezeClients => {
                self.places[victim].from_clients.freezes_all();
            }
            Fault::CutBackend => self.places[victim].to_redis.closes_all(),
            Fault::FreezeBackend => {
                self.places[victim].to_redis.freezes_all();
            }
        }
        *self.faults.entry(fault).or_default() += 1;
        self.history.troubles.push(Trouble { words: fault.words(victim), began, ended: None });
        let number = self.history.troubles.len() - 1;
        self.active.push((fault, victim, began.plus(lasts), number));
    }

    fn ends_what_is_due(&mut self, now: At) {
        let active = std::mem::take(&mut self.active);
        let (over, active) = active.into_iter().partition(|(_, _, end, _)| *end <= now);
        self.active = active;
        for (fault, victim, _, trouble) in over {
            match fault {
                Fault::KillClient => self.seats_client(victim),
                Fault::FreezeClient => self.signals(victim, libc::SIGCONT),
                Fault::KillProxy => {
                    let proxy = self.builder(&self.places[victim]).without_waiting().start();
                    self.places[victim].proxy = Some(proxy);
                }
                Fault::FreezeProxy => self.proxy(victim).thaw(),
                Fault::KillRedis => self.redis_to_be_killed().start_again(),
                Fault::FreezeRedis => self.redis().thaw(),
                Fault::FreezeClients => self.places[victim].from_clients.thaws_all(),
                Fault::FreezeBackend => self.places[victim].to_redis.thaws_all(),
                // Redis ends it by itself; nothing else has to be ended.
                Fault::PauseAll | Fault::PauseWrites | Fault::CutClients | Fault::CutBackend => {}
            }
            self.history.troubles[trouble].ended = Some(At::now());
        }
    }

    fn proxy(&self, number: usize) -> &Proxy {
        let proxy = self.places[number].proxy.as_ref();
        proxy.expect("one fault hits a proxy at a time")
    }

    fn signals(&self, seat: usize, signal: libc::c_int) {
        if let Some(process) = &self.seats[seat].process {
            process.signal(signal);
        }
    }

    fn pauses(&self, lasts: Duration, what: &str) {
        let order = format!("CLIENT PAUSE {} {what}", lasts.as_millis());
        self.redis().client().sends(order).gets("+OK");
    }

    /// Waits for the clients and collects what clients and proxies have written.
    #[track_caller]
    fn ends(mut self, calm_from: At) -> Run {
        let end = self.until.plus(ENDS_WITHIN);
        if !self.failovers.is_empty() {
            for seat in &mut self.seats {
                self.history.deaths.insert(seat.client, At::now());
                seat.process = None;
            }
        }
        for (number, seat) in self.seats.iter_mut().enumerate() {
            if let Some(process) = &mut seat.process {
                wait_for("a client to end", || process.has_ended().is_some() || At::now() > end);
                let ended = process.has_ended();
                let well = ended.is_some_and(|status| status.success());
                assert!(well, "the client in seat {number} ended with {ended:?}");
            }
        }
        let mut history = std::mem::take(&mut self.history);
        for (client, file) in &self.files {
            line::read(file, *client, &mut history);
        }
        history.sorts();
        keeps_history(self.folder.path(), self.plan.seed);
        let failovers = without_grants(&history, &self.failovers);
        let proxies = self.places.iter().filter_map(|place| place.proxy.as_ref());
        let (lost, lost_counted) = proxies_said::lost(proxies, Proxy::metric);
        Run {
            failovers,
            lost,
            lost_counted,
            written: self.written(&history),
            committed: Committed::in_folder(self.redis().folder()),
            trail: (!self.places.is_empty()).then(|| self.trail()),
            unwritten: std::mem::take(&mut self.unwritten),
            faults: std::mem::take(&mut self.faults),
            planted: self.planted(),
            refuses_extensions: self.plan.durability != "none",
            one_server: self.failovers.is_empty(),
            history,
            calm_from,
        }
    }

    /// What Redis has of the data that each lock guards: the fencing tokens, in the order in which they were written.
    fn written(&self, history: &History) -> BTreeMap<String, Vec<u64>> {
        // After a failover no single server has everything.
        if !self.failovers.is_empty() {
            return BTreeMap::new();
        }
        let locks = history.operations.iter().map(|one| one.lock.clone());
        let locks: BTreeSet<String> = locks.collect();
        let client = self.redis().client();
        let list = |lock: String| {
            let list = client.sends(format!("LRANGE {} 0 -1", guarded_by(&lock))).reply();
            let fences = list.elements().iter().map(|fence| fence.clone().text());
            let fences = fences.map(|fence| fence.parse().expect("a fencing token"));
            (lock, fences.collect())
        };
        locks.into_iter().map(list).collect()
    }

    fn planted(&self) -> usize {
        let planters = self.places.iter().filter_map(|place| place.planter.as_ref());
        planters.map(Planter::changed).sum()
    }

    /// Stops the proxies, so that they have written everything, and reads the grants.
    #[track_caller]
    fn trail(&mut self) -> BTreeMap<String, Vec<u64>> {
        let places = self.places.iter_mut();
        proxies_said::trail(places.map(|place| (place.proxy.take(), place.trail.as_path())))
    }
}

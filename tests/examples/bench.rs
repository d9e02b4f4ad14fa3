//! What the proxy costs end to end: the same commands straight to a Redis, through a forwarder that only
//! copies bytes, through other proxies where they are installed, and through lockwarden. All ways take turns
//! within a round, so that a slow moment of the machine hits all of them, and a ratio is taken within a
//! round. `make bench ARGS="--only plain,good"` runs it (`ARGS=--help` lists all options). It prints tables
//! and goals, and never fails because of a number; earlier output is in `docs/performance/`.

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs};

use clap::Parser as _;
use lockwarden_tests::{Authority, Cluster, Cores, Redis, Server, binary, run_to_end};
use serde_json::json;

use crate::drive::{Window, connect, drive, exchange};
use crate::figures::Sample;
use crate::footprint::Footprint;
use crate::goals::Measured;
use crate::load::{Lane, Load};
use crate::options::{Options, Pin};
use crate::process::CpuTime;
use crate::table::{Row, Table};
use crate::ways::{By, LOCKS, Open, Place, Program, Way, find, find_envoy};
use crate::wire::Address;

#[path = "bench/drive.rs"]
mod drive;
#[path = "bench/figures.rs"]
mod figures;
#[path = "bench/footprint.rs"]
mod footprint;
#[path = "bench/forwarder.rs"]
mod forwarder;
#[path = "bench/goals.rs"]
mod goals;
#[path = "bench/growth.rs"]
mod growth;
#[path = "bench/histogram.rs"]
mod histogram;
#[path = "bench/load.rs"]
mod load;
#[path = "bench/options.rs"]
mod options;
#[path = "bench/process.rs"]
mod process;
#[path = "bench/replies.rs"]
mod replies;
#[path = "bench/scale.rs"]
mod scale;
#[path = "bench/table.rs"]
mod table;
#[path = "bench/ways.rs"]
mod ways;
#[path = "bench/wire.rs"]
mod wire;

/// A proxy needs two for each of a thousand clients, Redis some of its own.
const DESCRIPTORS: u64 = 8192;
/// How much of the measured window runs before it, for connections, caches and policy instances.
const WARM_UP: f64 = 0.25;
const LEAST_WARM_UP: Duration = Duration::from_millis(200);
/// With locks: once for each client lockwarden looks up its process, in the kernel's table of all connections.
const LOCKS_WARM_UP: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match words.as_slice() {
        [word, listen, backend] if word == "forward" => forward(listen, backend),
        _ => run(&Options::parse()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn forward(listen: &str, backend: &str) -> Result<ExitCode, Box<dyn Error>> {
    forwarder::serve(listen.parse()?, backend.parse()?)?;
    Ok(ExitCode::SUCCESS)
}

fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    process::notice_interruption();
    process::allow_descriptors(DESCRIPTORS)?;
    let loads = chosen_loads(&options.only)?;
    let directory = tempfile::tempdir()?;
    let ways = chosen_ways(options, directory.path())?;

    let allowed = Cores::allowed()?;
    let numbers = allowed.numbers();
    let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else {
        return Err("no core to run on".into());
    };
    let (ours, theirs) = match options.pin {
        Pin::Onecore => (Cores::only(last), Cores::only(last)),
        Pin::Pinned => (Cores::only(first), Cores::only(last)),
        Pin::Free => (allowed, allowed),
    };
    ours.take()?;
    let redis = Redis::with_tls(&["--maxclients", "9000"]);
    let authority = directory.path().join("authority.pem");
    fs::write(&authority, Authority::of_harness().pem())?;
    let cluster = ways.iter().any(Way::is_of_cluster).then(Cluster::start);
    let nodes = cluster.iter().flat_map(|cluster| (0..3).map(|at| cluster.node(at).id()));
    let servers = nodes.chain([redis.id()]).collect();
    let mut bench = Bench {
        place: Place {
            redis: redis.address(),
            socket: redis.socket(),
            tls: redis.tls_address(),
            authority,
            cluster,
            directory: directory.path(),
            cores: theirs,
        },
        servers,
        window: Window { warm_up: options.secs.mul_f64(WARM_UP).max(LEAST_WARM_UP), measured: options.secs },
        rounds: options.rounds,
        runs: 0,
        filled: Vec::new(),
    };
    describe(options, &ways, numbers.len());

    if options.grow {
        let series = growth::run(&mut bench, &ways)?;
        write(options, &json!({ "growth": series }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.scale {
        let way = ways.iter().find(|way| way.name == "dedicated").ok_or("the way dedicated is not chosen")?;
        let series = scale::run(&bench, way)?;
        write(options, &json!({ "scale": series }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut footprints = Vec::new();
    if !options.no_footprint {
        for way in ways.iter().filter(|way| !matches!(way.program, Program::Nothing | Program::Socket)) {
            eprintln!("footprint: {}", way.name);
            match Footprint::of(way, &bench.place) {
                Ok(found) => footprints.push(found),
                Err(_) if process::interrupted() => return Err("interrupted".into()),
                Err(error) => eprintln!("{} has no footprint: {error}", way.name),
            }
        }
    }
    let open = bench.open(&ways)?;
    let tables = bench.measure(&loads, &open)?;
    drop(open);
    for table in &tables {
        table.print();
    }
    if !footprints.is_empty() {
        footprint::print(&footprints);
    }
    let goals = Measured { tables: &tables, footprints: &footprints, decision: decision(options) }
        .print_goals(options.only.is_empty() && options.targets.is_empty());
    write(
        options,
        &json!({
            "loads": tables.iter().map(Table::json).collect::<Vec<_>>(),
            "footprints": footprints.iter().map(Footprint::json).collect::<Vec<_>>(),
            "goals": goals,
        }),
    )?;
    let ours = |name: &str| {
        let way = ways.iter().find(|way| way.name == name);
        way.is_some_and(|way| matches!(way.program, Program::Lockwarden { .. }))
    };
    let mut rows = tables.iter().flat_map(|table| &table.rows);
    // A peer may lack a command; lockwarden may not.
    Ok(match rows.find(|row| row.failure.is_some() && ours(&row.name)) {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

fn chosen_loads(only: &[String]) -> Result<Vec<Load>, Box<dyn Error>> {
    let mut loads = load::all();
    let names: Vec<_> = loads.iter().map(|load| load.name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("no load is called {unknown}; there are {}", names.join(", ")).into());
    }
    loads.retain(|load| only.is_empty() || only.iter().any(|name| name == load.name));
    Ok(loads)
}

/// The wanted ways that can run here; prints which cannot.
fn chosen_ways(options: &Options, directory: &Path) -> Result<Vec<Way>, Box<dyn Error>> {
    let way = |name: &str, program| Way { name: name.to_owned(), program };
    let wanted = |name: &str| options.targets.is_empty() || options.targets.iter().any(|target| target == name);
    let mut ways = vec![
        way("direct", Program::Nothing),
        way("direct-unix", Program::Socket),
        way("forwarder", Program::Forwarder),
    ];
    let envoy = || find_envoy(options.envoy.as_deref());
    let mut missing = Vec::new();
    let mut peer = |name: &'static str, program: Option<Program>| match program {
        Some(program) => ways.push(way(name, program)),
        None => missing.push(name),
    };
    let haproxy = |by| find("haproxy").map(|path| Program::Haproxy(path, by));
    peer("haproxy", haproxy(By::Tcp));
    peer("haproxy-tls", haproxy(By::Tls));
    let stunnel = find("stunnel4").or_else(|| find("stunnel"));
    peer("stunnel", stunnel.map(Program::Stunnel));
    peer("twemproxy", find("nutcracker").map(Program::Twemproxy));
    peer("envoy", envoy().map(|path| Program::Envoy(path, By::Tcp)));
    peer("predixy", find("predixy").map(|path| Program::Predixy(path, By::Tcp)));
    // Their figures mean little except beside one another.
    let wants_cluster = options.targets.iter().any(|target| target.starts_with(CLUSTER));
    if wants_cluster {
        peer("cluster-envoy", envoy().map(|path| Program::Envoy(path, By::Cluster)));
        peer("cluster-predixy", find("predixy").map(|path| Program::Predixy(path, By::Cluster)));
    }
    for name in missing.into_iter().filter(|name| wanted(name)) {
        println!("{name} is left out: it is not installed");
    }
    let binary = options.proxy.clone().unwrap_or_else(binary);
    let knows = ways::knows_sessions(&binary, directory)?;
    let lockwarden =
        |binary, sessions, by| Program::Lockwarden { binary, sessions, by, namespaces: ways::usual_namespaces() };
    let dedicated = knows.then_some("dedicated");
    ways.push(way("dedicated", lockwarden(binary.clone(), dedicated, By::Tcp)));
    if ways::takes_unix_sockets(&binary, directory)? {
        for (name, by) in [("dedicated-unix", By::Unix), ("dedicated-tls", By::Tls)] {
            ways.push(way(name, lockwarden(binary.clone(), dedicated, by)));
        }
    }
    if wants_cluster {
        ways.push(way(CLUSTER, lockwarden(binary.clone(), dedicated, By::Cluster)));
        ways.push(way("cluster-multiplexed", lockwarden(binary.clone(), Some("multiplexed"), By::Cluster)));
    }
    for (name, guards) in ways::guarded() {
        // Their figures mean little except beside the way without guards.
        if options.targets.iter().any(|target| target == name) {
            let mut program = lockwarden(binary.clone(), dedicated, By::Tcp);
            if let Program::Lockwarden { namespaces, .. } = &mut program {
                namespaces.push_str(&guards);
            }
            ways.push(way(name, program));
        }
    }
    if knows {
        for (name, namespaces) in [("multiplexed", ways::usual_namespaces()), (FORGETS, ways::forgetting_namespaces())]
        {
            let (binary, sessions, by) = (binary.clone(), Some("multiplexed"), By::Tcp);
            ways.push(way(name, Program::Lockwarden { binary, sessions, by, namespaces }));
        }
    } else if wanted("multiplexed") {
        println!("multiplexed is left out: this lockwarden does not know the key `sessions`");
    }
    for (name, binary) in &options.also {
        if ways.iter().any(|way| way.name == *name) {
            return Err(format!("there is a way called {name}").into());
        }
        ways.push(way(name, lockwarden(binary.clone(), None, By::Tcp)));
    }
    let names: Vec<_> = ways.iter().map(|way| way.name.clone()).collect();
    let known = |target: &String| names.contains(target) || PEERS.contains(&target.as_str());
    if let Some(unknown) = options.targets.iter().find(|target| !known(target)) {
        return Err(format!("no way is called {unknown}; there are {}", names.join(", ")).into());
    }
    ways.retain(|way| way.name == "direct" || wanted(&way.name));
    Ok(ways)
}

/// Lockwarden before a cluster; other proxies there have this before their names.
const CLUSTER: &str = "cluster";

/// With shared connections, too, and no record of a released lock.
const FORGETS: &str = "forgets";

/// Ways that may be named even where their program is not installed.
const PEERS: [&str; 16] = [
    "haproxy",
    "haproxy-tls",
    "stunnel",
    "twemproxy",
    "envoy",
    "predixy",
    "cluster-envoy",
    "cluster-predixy",
    "cluster-multiplexed",
    "multiplexed",
    FORGETS,
    "dedicated-unix",
    "dedicated-tls",
    "guards-of-others",
    "guard-watches",
    "guard-enforces",
];

/// Prints what is measured, and where.
fn describe(options: &Options, ways: &[Way], cores: usize) {
    let line = |path: &str, start: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(start));
        let value = line.map(|line| line.rsplit(": ").next().unwrap_or(line));
        value.unwrap_or("unknown").trim().to_owned()
    };
    println!(
        "{}, {cores} core(s) to use, Linux {}; {}",
        line("/proc/cpuinfo", "model name"),
        line("/proc/sys/kernel/osrelease", ""),
        Server::under_test()
    );
    for way in ways {
        if let Some(version) = way.version() {
            println!("{}: {version}", way.name);
        }
    }
    println!(
        "{} rounds, {:?} a load, --pin {}. Medians over the rounds, ±: half the range; ratios within a round.\n\
         CPU: µs a command of the process in between, Redis and the load generator, by their own accounts.",
        options.rounds,
        options.secs,
        options.pin.word()
    );
}

/// The time of a decision that three policies judge, in µs, by the policies' own bench; that bench is beside
/// the measured proxy if it was built. An unoptimised build would say nothing, and would take long.
fn decision(options: &Options) -> Option<f64> {
    if cfg!(debug_assertions) {
        return None;
    }
    let proxy = options.proxy.clone().unwrap_or_else(binary);
    let program = proxy.with_file_name("examples").join("decision_cost");
    if !program.is_file() || process::interrupted() {
        return None;
    }
    let output = run_to_end(&mut Command::new(program));
    let line = output.stdout.lines().find(|line| line.contains("three judge it"))?;
    let nanos: f64 = line.strip_suffix("ns")?.split_whitespace().last()?.parse().ok()?;
    Some(nanos / 1e3)
}

fn write(options: &Options, value: &serde_json::Value) -> Result<(), Box<dyn Error>> {
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(value)? + "\n")?;
    }
    Ok(())
}

/// The numbers that are read at both ends of a window.
struct Reading {
    proxy: Option<CpuTime>,
    /// Resident, of the process in between, bytes.
    memory: Option<u64>,
    redis: CpuTime,
    generator: CpuTime,
}

/// One Redis, and everything that is done with it.
struct Bench<'a> {
    place: Place<'a>,
    /// Redis's process, and those of the cluster.
    servers: Vec<u32>,
    window: Window,
    rounds: u32,
    /// Runs so far; each has owner tokens of its own.
    runs: u64,
    /// Sizes of ordinary values that are there.
    filled: Vec<usize>,
}

impl Bench<'_> {
    /// Starts what can be started; says what cannot.
    fn open<'w>(&self, ways: &'w [Way]) -> Result<Vec<(&'w Way, Open)>, Box<dyn Error>> {
        let mut open = Vec::new();
        for way in ways {
            match way.open(&self.place) {
                Ok(opened) => open.push((way, opened)),
                Err(_) if process::interrupted() => return Err("interrupted".into()),
                Err(error) => match way.program {
                    Program::Lockwarden { .. } => {
                        return Err(format!("{}: {error}", way.name).into());
                    }
                    _ => println!("{} is left out: {error}", way.name),
                },
            }
        }
        Ok(open)
    }

    /// All loads over all ways, in rounds. A way on which a load failed is left out of it from then on.
    fn measure(&mut self, loads: &[Load], ways: &[(&Way, Open)]) -> Result<Vec<Table>, Box<dyn Error>> {
        let cluster = ways.iter().find(|(way, _)| way.is_of_cluster());
        for load in loads {
            self.fill(load, cluster.map(|(_, open)| open))?;
        }
        for (way, open) in ways {
            ways::load_script(way, &open.address).map_err(|error| format!("{}: SCRIPT LOAD: {error}", open.name))?;
        }
        let row = |(_, open): &(&Way, Open)| Row { name: open.name.clone(), rounds: Vec::new(), failure: None };
        let mut tables: Vec<_> =
            loads.iter().map(|load| Table { load: load.clone(), rows: ways.iter().map(row).collect() }).collect();
        // The ways that open and close connections come last: the system remembers each connection for a
        // minute, and every program that reads its table of connections pays for all of them.
        for of_its_own in [false, true] {
            for round in 0..self.rounds as usize {
                for (number, table) in tables.iter_mut().enumerate() {
                    if table.load.connections.is_some() == of_its_own {
                        self.round(round, number, table, ways)?;
                    }
                }
            }
        }
        Ok(tables)
    }

    /// One load over all ways, once each; each time another way goes first.
    fn round(
        &mut self,
        round: usize,
        number: usize,
        table: &mut Table,
        ways: &[(&Way, Open)],
    ) -> Result<(), Box<dyn Error>> {
        let (load, of) = (&table.load, self.rounds);
        eprintln!("round {} of {of}: {}", round + 1, load.name);
        for turn in 0..ways.len() {
            let at = (round + number + turn) % ways.len();
            let row = &mut table.rows[at];
            if row.failure.is_some() {
                continue;
            }
            match self.once(&table.load, &ways[at].1, at) {
                Ok(sample) => row.rounds.push(Some(sample)),
                Err(_) if process::interrupted() => return Err("interrupted".into()),
                Err(error) => row.failure = Some(error.to_string()),
            }
        }
        Ok(())
    }

    /// One load on one way, once.
    fn once(&mut self, load: &Load, open: &Open, way: usize) -> Result<Sample, Box<dyn Error>> {
        self.runs += 1;
        let lane = Lane { way, run: self.runs };
        let between = open.id();
        let read = || {
            Ok(Reading {
                proxy: between.map(CpuTime::of).transpose()?,
                memory: between.map(process::resident).transpose()?,
                redis: CpuTime::of_all(&self.servers)?,
                generator: CpuTime::of_this_process()?,
            })
        };
        let mut window = self.window;
        if load.kind.has_locks() {
            window.warm_up = window.warm_up.max(LOCKS_WARM_UP);
        }
        let driven = drive(load, &open.address, LOCKS, lane, window, read)?;
        let (before, after) = (driven.before, driven.after);
        let commands = driven.latencies.total();
        if commands == 0 {
            return Err("nothing was answered within the window".into());
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / commands as f64;
        let proxy = after.proxy.zip(before.proxy);
        let proxy = proxy.map(|(after, before)| after.since(before));
        let proxy_micros = proxy.as_ref().map_or(f64::NAN, |spent| micros(spent.total));
        let user_share = proxy.map_or(f64::NAN, |spent| spent.user_share);
        let memory = after.memory.map_or(f64::NAN, |bytes| bytes as f64);
        Ok(Sample {
            commands,
            rate: commands as f64 / driven.elapsed.as_secs_f64(),
            p50: driven.latencies.quantile_us(0.50),
            p99: driven.latencies.quantile_us(0.99),
            p999: driven.latencies.quantile_us(0.999),
            proxy: proxy_micros,
            proxy_user: proxy_micros * user_share,
            redis: micros(after.redis.since(before.redis).total),
            generator: micros(after.generator.since(before.generator).total),
            memory: memory / 1024.0 / 1024.0,
        })
    }

    /// Ordinary values of the load's size, straight on Redis, and by a way to the cluster where one is open.
    fn fill(&mut self, load: &Load, cluster: Option<&Open>) -> Result<(), Box<dyn Error>> {
        let Some(size) = load.kind.value().filter(|size| !self.filled.contains(size)) else {
            return Ok(());
        };
        let redis = Address::Tcp(self.place.redis);
        for address in [Some(&redis), cluster.map(|open| &open.address)].into_iter().flatten() {
            let (mut stream, value) = (connect(address)?, vec![b'x'; size]);
            for number in 0..load::keys(size) {
                let mut request = Vec::with_capacity(size + 64);
                load::put_set(&value, number, &mut request);
                exchange(&mut stream, &request, b"+OK\r\n")?;
            }
        }
        self.filled.push(size);
        Ok(())
    }
}

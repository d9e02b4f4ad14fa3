//! Real lock libraries, straight to a Redis and through the proxy in both modes, with the same checks. Each language
//! has a folder in `tests/clients` with its programs; this one starts the servers, runs the programs in every world
//! and compares the results. It fails when a check failed anywhere, when the worlds ran different checks, when the
//! proxy granted nothing, or when its report on honest checks is not "ready". `cargo run -p lockwarden-tests
//! --example clients -- [LANGUAGE…] [--quick] [--cluster] [--write]`; `tests/clients/README.md` says what a folder
//! holds, and `--write` updates `docs/clients.md`.

use std::env;
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::slice;

use lockwarden_tests::{Cluster, Mode, Proxy, ProxyBuilder, Redis, Watchers, free_port};

use crate::language::{CLIENTS, Language, POOLS, SHOP};
use crate::page::Run;
use crate::report::Report;

#[path = "clients/language.rs"]
mod language;
#[path = "clients/page.rs"]
mod page;
#[path = "clients/report.rs"]
mod report;

/// What the suites' proxy gives an acquire that names no TTL, and the longest that it grants.
const DEFAULT_TTL: &str = "10s";
const CEILING: &str = "60s";

/// The words that tell a program about its world: whether misuse does damage.
const DIRECT: &str = "direct";
const ENFORCED: &str = "enforced";

/// The checks in which no party does anything wrong, with `;` between them: after these the report must say
/// "ready".
const HONEST: &str = "acquire;contend;extend;release;TTL;all or none;deleted;delayed, retried;disposer;done again and again;\
     fence grows;get with a callback;jobs;long job;one at a time;one beat;one scheduler;other connection;owned;queued once;\
     reentrance;renewal;renewal by scheduler;two resources;wake-up;watchdog";

/// Where a program finds two sentinels that name the server `mymaster`: real ones where it is a Redis, else the proxy's.
const SENTINELS: &str = "LOCK_SENTINELS";

/// Or where it finds a cluster: one node that has all slots, which through the proxy is three.
const CLUSTER: &str = "LOCK_CLUSTER";

/// Clients of a program may come from any loopback address; protected mode knows only one of them.
const OPEN: [&str; 2] = ["--protected-mode", "no"];

/// What was asked for on the command line.
struct Wishes {
    languages: Vec<String>,
    quick: bool,
    cluster: bool,
    write: bool,
}

/// The settings for doubtful releases, one after the other: first the default; then, with doubtful releases refused, each
/// value of `void_after_refusal`, as TOML writes it. Beside each the word that tells a program of it.
const VOIDS: [(Option<&str>, &str); 4] = [
    (None, "default"),
    (Some("[]"), ""),
    (Some("[\"identity\"]"), "identity"),
    (Some("[\"session\", \"identity\"]"), "session,identity"),
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the package lies in the repository")?;
    let wishes = wishes(env::args().skip(1))?;
    let mut problems = Vec::new();
    let mut done = Vec::new();
    for language in Language::chosen(root, &wishes.languages)? {
        done.push(everything(language, &wishes, &mut problems)?);
    }
    if wishes.write {
        let path = root.join("docs/clients.md");
        let known = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, page::written(&known, &done)?)?;
        println!("wrote {}", path.display());
    }
    for problem in &problems {
        println!("PROBLEM {problem}");
    }
    if !problems.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    println!("every check gave what it must, in every world");
    Ok(ExitCode::SUCCESS)
}

/// Runs everything that a language brings; what fails is added to the problems, and left out of the result.
fn everything(language: Language, wishes: &Wishes, problems: &mut Vec<String>) -> Result<Run, Box<dyn Error>> {
    let (name, quick) = (language.name().to_owned(), wishes.quick);
    language.set_up()?;
    if wishes.cluster {
        return before_a_cluster(language, quick, problems);
    }
    let clients = every_world(&language, quick)?;
    let honest = watched(&language, &clients, quick)?;
    let pools = if language.has(POOLS) && !quick { every_setting(&language)? } else { Vec::new() };
    let shop = if language.has(SHOP) { both_shops(&language, quick)? } else { Vec::new() };
    print!(
        "{name}\n{}{}{}{}",
        report::table(&clients),
        report::table(slice::from_ref(&honest)),
        report::table(&pools),
        report::table(&shop)
    );
    let mut holding = |reports| holding(&name, reports, problems);
    let clients = holding(clients);
    let is_ready = !holding(vec![honest]).is_empty();
    Ok(Run {
        clients: if is_ready { clients } else { Vec::new() },
        pools: holding(pools),
        shop: holding(shop),
        language,
    })
}

/// The same reports, if all is as it must be in them; otherwise none, and the failures are added to the
/// problems.
fn holding(language: &str, reports: Vec<Report>, problems: &mut Vec<String>) -> Vec<Report> {
    let found = report::problems(&reports);
    problems.extend(found.iter().map(|problem| format!("{language}, {problem}")));
    if found.is_empty() { reports } else { Vec::new() }
}

/// The clients straight to a cluster of one node, and through a proxy before one of three: those that know
/// nothing of clusters, and those that ask which node has which slots.
fn before_a_cluster(language: Language, quick: bool, problems: &mut Vec<String>) -> Result<Run, Box<dyn Error>> {
    let more: &[_] = if quick { &[QUICK] } else { &[] };
    let alone = Cluster::of_one();
    let address = alone.node(0).address();
    let told = address.to_string();
    let mut direct = language.run(CLIENTS, address, DIRECT, &[more, &[(CLUSTER, &*told)]].concat())?;
    let cluster = Cluster::start();
    let presented = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let builder = governing(&language, ProxyBuilder::for_backend(&cluster.url()), Mode::Enforce)?
        .default_ttl(DEFAULT_TTL)
        .more(&format!("[[listener]]\naddress = \"{presented}\"\npresent = \"cluster\"\nadvertise = \"auto\"\n"));
    let proxy = builder.start();
    let told = presented.to_string();
    let mut through = run_through(&language, CLIENTS, &proxy, ENFORCED, &[more, &[(CLUSTER, &*told)]].concat())?;
    report::leave_out_failures_of(&mut direct, &mut through);
    let clients = vec![direct, through];
    print!("{}, before a cluster\n{}", language.name(), report::table(&clients));
    let clients = holding(language.name(), clients, problems);
    Ok(Run { clients, pools: Vec::new(), shop: Vec::new(), language })
}

fn wishes(arguments: impl Iterator<Item = String>) -> Result<Wishes, String> {
    let mut wishes = Wishes { languages: Vec::new(), quick: false, cluster: false, write: false };
    for argument in arguments {
        match argument.as_str() {
            "--quick" => wishes.quick = true,
            "--cluster" => wishes.cluster = true,
            "--write" => wishes.write = true,
            flag if flag.starts_with('-') => {
                return Err(format!("{flag} is not known; [LANGUAGE…] [--quick] [--cluster] [--write]"));
            }
            _ => wishes.languages.push(argument),
        }
    }
    if wishes.cluster && wishes.write {
        return Err("--write wants what is not before a cluster".to_owned());
    }
    if wishes.quick && wishes.write {
        return Err("--write wants every client, --quick runs one a language".to_owned());
    }
    Ok(wishes)
}

/// The variable that makes a program use only one client, or one check.
const QUICK: (&str, &str) = ("LOCK_QUICK", "1");

/// The same program straight to a Redis and through proxies, each with a Redis of its own.
fn every_world(language: &Language, quick: bool) -> Result<Vec<Report>, Box<dyn Error>> {
    let more: &[_] = if quick { &[QUICK] } else { &[] };
    let through =
        |mode, world| proxied(language, CLIENTS, (mode, world), more, |builder| builder.default_ttl(DEFAULT_TTL));
    // In monitor mode misuse does the same damage as without the proxy.
    let mut monitored = through(Mode::Monitor, DIRECT)?;
    "monitored".clone_into(&mut monitored.world);
    Ok(vec![direct(language, CLIENTS, more)?, through(Mode::Enforce, ENFORCED)?, monitored])
}

/// The honest checks of the program through a proxy that only looks. Its report must say that all of it can be enforced.
fn watched(language: &Language, worlds: &[Report], quick: bool) -> Result<Report, Box<dyn Error>> {
    let mut more = vec![("LOCK_CHECKS", HONEST)];
    more.extend(quick.then_some(QUICK));
    let world = (Mode::Monitor, DIRECT);
    let mut honest = proxied(language, CLIENTS, world, &more, |builder| builder.default_ttl(DEFAULT_TTL))?;
    "watched".clone_into(&mut honest.world);
    let file = language.home().join("report.json");
    fs::write(&file, honest.told.to_string())?;
    eprintln!("the proxy's report: {}", file.display());
    honest.is_ready();
    honest.has_clients_of(worlds);
    Ok(honest)
}

/// The program about pools straight to a Redis, and through a proxy with each setting.
fn every_setting(language: &Language) -> Result<Vec<Report>, Box<dyn Error>> {
    let mut reports = vec![direct(language, POOLS, &[])?];
    for (value, told) in VOIDS {
        let more = [("LOCK_VOID", told)];
        let world = (Mode::Enforce, ENFORCED);
        let mut report = proxied(language, POOLS, world, &more, |builder| match value {
            Some(void) => {
                builder.setting("owner-token", "doubt", "\"refuse\"").setting("owner-token", "void_after_refusal", void)
            }
            None => builder,
        })?;
        value.unwrap_or("default").clone_into(&mut report.world);
        reports.push(report);
    }
    Ok(reports)
}

/// The program about the shop straight to a Redis, and through a proxy that guards the stock.
fn both_shops(language: &Language, quick: bool) -> Result<Vec<Report>, Box<dyn Error>> {
    let more: &[_] = if quick { &[QUICK] } else { &[] };
    let guard = format!(
        "[[guard]]\nname = \"stock\"\nkeys = [\"stock:{{id}}\"]\nlock = \"lock:{}:sale:{{id}}\"\nmode = \"enforce\"\n",
        language.name()
    );
    let world = (Mode::Enforce, ENFORCED);
    let mut guarded = proxied(language, SHOP, world, more, |builder| builder.more(&guard))?;
    "guarded".clone_into(&mut guarded.world);
    Ok(vec![direct(language, SHOP, more)?, guarded])
}

fn direct(language: &Language, program: &str, more: &[(&str, &str)]) -> Result<Report, Box<dyn Error>> {
    let redis = Redis::with_arguments(&OPEN);
    let watchers = Watchers::of(&redis);
    let sentinels = listed(watchers.addresses());
    let more = [more, &[(SENTINELS, &*sentinels)]].concat();
    language.run(program, redis.address(), DIRECT, &more)
}

fn listed(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(",")
}

fn proxied(
    language: &Language,
    program: &str,
    (mode, world): (Mode, &str),
    more: &[(&str, &str)],
    configure: impl FnOnce(ProxyBuilder) -> ProxyBuilder,
) -> Result<Report, Box<dyn Error>> {
    let redis = Redis::with_arguments(&OPEN);
    let mut builder = governing(language, Proxy::builder(&redis), mode)?;
    // Two, because Redisson wants a sentinel to name another one.
    let addresses = [free_port(), free_port()].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    for (own, other) in [(addresses[0], addresses[1]), (addresses[1], addresses[0])] {
        builder = builder
            .more(&format!("[[listener]]\naddress = \"{own}\"\npresent = \"sentinel\"\npeers = [\"{other}\"]\n"));
    }
    let proxy = configure(builder).start();
    let sentinels = listed(&addresses);
    let more = [more, &[(SENTINELS, &*sentinels)]].concat();
    run_through(language, program, &proxy, world, &more)
}

/// A proxy that governs what the language's libraries take for locks.
fn governing(language: &Language, builder: ProxyBuilder, mode: Mode) -> Result<ProxyBuilder, Box<dyn Error>> {
    let builder = builder
        .namespace("name", "\"clients\"")
        .namespace("keys", &format!("{:?}", language.keys()?))
        .namespace("trusted_scripts", &format!("{:?}", language.trusted_scripts()?))
        .ceiling(CEILING)
        .mode(mode);
    let handed_over = language.handed_over()?;
    Ok(match handed_over.is_empty() {
        true => builder,
        false => builder.more(&format!(
            "[[namespace]]\nname = \"queues\"\nkeys = {handed_over:?}\nmode = \"{}\"\nhand_over = true\n",
            mode.word()
        )),
    })
}

fn run_through(
    language: &Language,
    program: &str,
    proxy: &Proxy,
    world: &str,
    more: &[(&str, &str)],
) -> Result<Report, Box<dyn Error>> {
    let mut report = language.run(program, proxy.address(), world, more)?;
    report.acquires = Some(proxy.metric("lockwarden_lock_acquires_total{namespace=\"clients\",outcome=\"acquired\"}"));
    report.told = proxy.api("report?enough=1");
    let log = language.home().join("proxy.log");
    fs::write(&log, proxy.log())?;
    eprintln!("the proxy's log: {}", log.display());
    Ok(report)
}

//! Real lock libraries, straight to a Redis and through the proxy in both modes, with the same checks. Each
//! language has a folder in `tests/clients` with programs of its own; this one starts the servers, runs
//! the programs in every world and compares. It fails when a check failed anywhere, when the worlds ran
//! different checks, or when the proxy granted nothing. `cargo run -p lockwarden-tests --example clients
//! -- [LANGUAGE…] [--quick] [--write]`; `tests/clients/README.md` says what a folder holds, and `--write`
//! brings `docs/clients.md` up to date.

use std::env;
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;

use lockwarden_tests::{Mode, Proxy, ProxyBuilder, Redis, Watchers};

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

/// What a program is told about its world: whether misuse does damage.
const DIRECT: &str = "direct";
const ENFORCED: &str = "enforced";

/// Where a program finds two sentinels that name the server `mymaster`: real ones where it is a Redis, else the proxy's.
const SENTINELS: &str = "LOCK_SENTINELS";

/// Clients of a program may come from any loopback address; protected mode knows only one of them.
const OPEN: [&str; 2] = ["--protected-mode", "no"];

/// What was asked for on the command line.
struct Wishes {
    languages: Vec<String>,
    quick: bool,
    write: bool,
}

/// What `void_after_refusal` is set to in turn, as TOML writes it and as a program is told.
const VOIDS: [(&str, &str); 3] = [
    ("[]", ""),
    ("[\"identity\"]", "identity"),
    ("[\"session\", \"identity\"]", "session,identity"),
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the package lies in the repository")?;
    let wishes = wishes(env::args().skip(1))?;
    let mut problems = Vec::new();
    let mut done = Vec::new();
    for language in Language::chosen(root, &wishes.languages)? {
        let name = language.name().to_owned();
        language.set_up()?;
        let clients = every_world(&language, wishes.quick)?;
        let pools = if language.has(POOLS) && !wishes.quick {
            every_setting(&language)?
        } else {
            Vec::new()
        };
        let shop = if language.has(SHOP) {
            both_shops(&language, wishes.quick)?
        } else {
            Vec::new()
        };
        print!(
            "{name}\n{}{}{}",
            report::table(&clients),
            report::table(&pools),
            report::table(&shop)
        );
        let mut holding = |reports: Vec<Report>| {
            let found = report::problems(&reports);
            problems.extend(found.iter().map(|problem| format!("{name}, {problem}")));
            if found.is_empty() {
                reports
            } else {
                Vec::new()
            }
        };
        done.push(Run {
            clients: holding(clients),
            pools: holding(pools),
            shop: holding(shop),
            language,
        });
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

fn wishes(arguments: impl Iterator<Item = String>) -> Result<Wishes, String> {
    let mut wishes = Wishes {
        languages: Vec::new(),
        quick: false,
        write: false,
    };
    for argument in arguments {
        match argument.as_str() {
            "--quick" => wishes.quick = true,
            "--write" => wishes.write = true,
            flag if flag.starts_with('-') => {
                return Err(format!(
                    "{flag} is not known; [LANGUAGE…] [--quick] [--write]"
                ));
            }
            _ => wishes.languages.push(argument),
        }
    }
    if wishes.quick && wishes.write {
        return Err("--write wants every client, --quick runs one a language".to_owned());
    }
    Ok(wishes)
}

/// What a program is told that has one client, or one check, do.
const QUICK: (&str, &str) = ("LOCK_QUICK", "1");

/// The same program straight to a Redis and through proxies, each with a Redis of its own.
fn every_world(language: &Language, quick: bool) -> Result<Vec<Report>, Box<dyn Error>> {
    let more: &[_] = if quick { &[QUICK] } else { &[] };
    let through = |mode, world| {
        proxied(language, CLIENTS, world, more, |builder| {
            builder.mode(mode).default_ttl(DEFAULT_TTL)
        })
    };
    // Where the proxy only looks, misuse does the damage that it does without it.
    let mut monitored = through(Mode::Monitor, DIRECT)?;
    "monitored".clone_into(&mut monitored.world);
    Ok(vec![
        direct(language, CLIENTS, more)?,
        through(Mode::Enforce, ENFORCED)?,
        monitored,
    ])
}

/// The program about pools straight to a Redis, and through a proxy with each setting.
fn every_setting(language: &Language) -> Result<Vec<Report>, Box<dyn Error>> {
    let mut reports = vec![direct(language, POOLS, &[])?];
    for (value, told) in VOIDS {
        let more = [("LOCK_VOID", told)];
        let mut report = proxied(language, POOLS, ENFORCED, &more, |builder| {
            builder.setting("owner-token", "void_after_refusal", value)
        })?;
        report.world = value.to_owned();
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
    let mut guarded = proxied(language, SHOP, ENFORCED, more, |builder| {
        builder.more(&guard)
    })?;
    "guarded".clone_into(&mut guarded.world);
    Ok(vec![direct(language, SHOP, more)?, guarded])
}

fn direct(
    language: &Language,
    program: &str,
    more: &[(&str, &str)],
) -> Result<Report, Box<dyn Error>> {
    let redis = Redis::with_arguments(&OPEN);
    let watchers = Watchers::of(&redis);
    let sentinels = listed(watchers.addresses());
    let more = [more, &[(SENTINELS, &*sentinels)]].concat();
    language.run(program, redis.address(), DIRECT, &more)
}

/// An address that nobody has at the moment.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn listed(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(",")
}

fn proxied(
    language: &Language,
    program: &str,
    world: &str,
    more: &[(&str, &str)],
    configure: impl FnOnce(ProxyBuilder) -> ProxyBuilder,
) -> Result<Report, Box<dyn Error>> {
    let redis = Redis::with_arguments(&OPEN);
    let mut builder = Proxy::builder(&redis)
        .namespace("name", "\"clients\"")
        .namespace("keys", &format!("{:?}", language.keys()?))
        .ceiling(CEILING);
    let handed_over = language.handed_over()?;
    if !handed_over.is_empty() {
        builder = builder.more(&format!(
            "[[namespace]]\nname = \"queues\"\nkeys = {handed_over:?}\nmode = \"enforce\"\nhand_over = true\n"
        ));
    }
    // Two, because Redisson wants to hear of another one.
    let addresses = [free_address()?, free_address()?];
    for (own, other) in [(addresses[0], addresses[1]), (addresses[1], addresses[0])] {
        builder = builder.more(&format!(
            "[[listener]]\naddress = \"{own}\"\npresent = \"sentinel\"\npeers = [\"{other}\"]\n"
        ));
    }
    let proxy = configure(builder).start();
    let sentinels = listed(&addresses);
    let more = [more, &[(SENTINELS, &*sentinels)]].concat();
    let mut report = language.run(program, proxy.address(), world, &more)?;
    report.acquires = Some(
        proxy.metric("lockwarden_lock_acquires_total{namespace=\"clients\",outcome=\"acquired\"}"),
    );
    let log = language.home().join("proxy.log");
    fs::write(&log, proxy.log())?;
    eprintln!("the proxy's log: {}", log.display());
    Ok(report)
}

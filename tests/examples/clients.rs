//! Real lock libraries, straight to a Redis and through the enforcing proxy, with the same checks. Each
//! language has a folder in `tests/clients` with a program of its own; this one starts the servers, runs
//! the programs in both worlds and compares. It fails when a check failed in either world, when the
//! worlds ran different checks, or when the proxy granted nothing. `cargo run -p lockwarden-tests
//! --example clients -- [LANGUAGE…] [--quick] [--write]`; `tests/clients/README.md` says what a folder
//! holds, and `--write` brings `docs/clients.md` up to date.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lockwarden_tests::{Proxy, Redis};

use crate::language::Language;
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

/// Clients of a program may come from any loopback address; protected mode knows only one of them.
const OPEN: [&str; 2] = ["--protected-mode", "no"];

/// What was asked for on the command line.
struct Wishes {
    languages: Vec<String>,
    quick: bool,
    write: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the package lies in the repository")?;
    let wishes = wishes(env::args().skip(1))?;
    let mut held = true;
    let mut done = Vec::new();
    for language in Language::chosen(root, &wishes.languages)? {
        eprintln!("--- {}: set-up", language.name());
        language.set_up()?;
        let (direct, enforced) = both_worlds(&language, wishes.quick)?;
        let problems = report::problems(&direct, &enforced);
        print!("{}", report::table(language.name(), &direct, &enforced));
        for problem in &problems {
            println!("  PROBLEM {problem}");
        }
        held &= problems.is_empty();
        done.push((language, direct));
    }
    if wishes.write && held {
        let path = root.join("docs/clients.md");
        let known = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, page::written(&known, &done)?)?;
        println!("wrote {}", path.display());
    }
    Ok(if held {
        println!("every check gave in both worlds what it must");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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

/// The same program straight to a Redis and through a proxy, each with a Redis of its own.
fn both_worlds(language: &Language, quick: bool) -> Result<(Report, Report), Box<dyn Error>> {
    eprintln!("--- {}: direct", language.name());
    let redis = Redis::with_arguments(&OPEN);
    let direct = language.run(redis.address(), "direct", quick)?;
    drop(redis);

    eprintln!("--- {}: enforced", language.name());
    let redis = Redis::with_arguments(&OPEN);
    let keys: Vec<String> = language
        .keys()?
        .iter()
        .map(|key| format!("{key:?}"))
        .collect();
    let proxy = Proxy::builder(&redis)
        .namespace("name", "\"clients\"")
        .namespace("keys", &format!("[{}]", keys.join(", ")))
        .default_ttl(DEFAULT_TTL)
        .ceiling(CEILING)
        .start();
    let mut enforced = language.run(proxy.address(), "enforced", quick)?;
    enforced.grants = Some(
        proxy.metric("lockwarden_lock_acquires_total{namespace=\"clients\",outcome=\"acquired\"}"),
    );
    let log: PathBuf = language.home().join("proxy.log");
    fs::write(&log, proxy.log())?;
    eprintln!("the proxy's log: {}", log.display());
    Ok((direct, enforced))
}

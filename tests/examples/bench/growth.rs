//! How cost grows: with clients, pipelines and values over every way, with namespaces, patterns and policies
//! in lockwarden alone. The namespace of the locks is always the last one that is searched.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::Bench;
use crate::figures::{Rounds, of};
use crate::load::{Keys, Kind, Load};
use crate::table::{PROXY, RATE, REDIS, Table, number};
use crate::ways::{LOCKS, Open, Way, namespace};

const CLIENTS: [usize; 8] = [1, 2, 5, 10, 50, 100, 200, 500];
const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const VALUES: [usize; 8] = [16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
const NAMES: [usize; 4] = [1, 10, 100, 1000];
const POLICIES: [usize; 6] = [0, 1, 2, 3, 5, 8];
const BUILT_IN: [&str; 3] = ["owner-token", "fencing", "ttl-ceiling"];

/// Every series, printed as it comes.
pub(crate) fn run(bench: &mut Bench<'_>, ways: &[Way]) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut found = Vec::new();
    let compared = ["direct", "forwarder", "dedicated", "multiplexed"];
    let open = open(bench, ways.iter().filter(|way| compared.contains(&way.name.as_str())))?;
    let plain = |clients, value, depth| Load {
        name: "plain",
        title: String::new(),
        clients,
        idle: 0,
        kind: Kind::Plain { value, depth },
        connections: None,
    };
    for (title, column, points) in [
        ("SET/GET 64 B, by clients", "clients", CLIENTS.map(|clients| (clients, plain(clients, 64, 1))).to_vec()),
        (
            "50 clients, SET/GET 64 B, by commands in a pipeline",
            "pipeline",
            DEPTHS.map(|depth| (depth, plain(50, 64, depth))).to_vec(),
        ),
        (
            "50 clients, SET/GET, by bytes of the value",
            "bytes",
            VALUES.map(|value| (value, plain(50, value, 1))).to_vec(),
        ),
    ] {
        let (labels, loads): (Vec<_>, Vec<_>) = points.into_iter().unzip();
        let tables = bench.measure(&loads, &open)?;
        let columns: Vec<_> = open.iter().map(|(_, open)| open.name.clone()).collect();
        let rows = labels.iter().zip(&tables).map(|(label, table)| {
            let cells = table.rows.iter().map(|row| row.rounds.as_slice());
            (label.to_string(), cells.collect())
        });
        found.push(print(title, column, &columns, &rows.collect::<Vec<_>>()));
        complain(&tables);
    }
    drop(open);

    let Some(way) = ways.iter().find(|way| way.name == "dedicated") else {
        return Ok(found);
    };
    let loads = [plain(50, 64, 1), Load { kind: Kind::Good(Keys::Many), ..plain(50, 64, 1) }];
    let locks = [format!("{LOCKS}*")];
    let others = |count: usize| (1..count).map(|number| format!("other{number:04}:*"));
    let namespaces = NAMES.map(|count| {
        let others = others(count).enumerate();
        // With policies there would be no room for a thousand of them.
        let others = others.map(|(at, keys)| namespace(&format!("other{at}"), &[keys], Some(&[])));
        (count, others.collect::<String>() + &namespace("locks", &locks, None))
    });
    let patterns = NAMES.map(|count| {
        let keys: Vec<_> = others(count).chain(locks.clone()).collect();
        (count, namespace("locks", &keys, None))
    });
    let module = another_policy();
    let chains = POLICIES.map(|count| {
        let repeated = (BUILT_IN.len()..count).map(|number| format!("repeated{number}"));
        let chain: Vec<_> = BUILT_IN.map(str::to_owned).into_iter().chain(repeated).take(count).collect();
        let path = module.as_deref().unwrap_or(Path::new(""));
        let policies =
            chain.iter().skip(BUILT_IN.len()).map(|name| format!("\n[[policy]]\nname = {name:?}\nmodule = {path:?}\n"));
        (count, namespace("locks", &locks, Some(&chain)) + &policies.collect::<String>())
    });
    if module.is_none() {
        eprintln!(
            "chains of more than {} policies are left out: no policy to repeat was found in {}",
            BUILT_IN.len(),
            build_directory().map_or("…".to_owned(), |path| path.display().to_string())
        );
    }
    let longest = if module.is_some() { usize::MAX } else { BUILT_IN.len() };
    for (title, column, points) in [
        ("by namespaces; the last is the locks', the others have no policies", "namespaces", namespaces.to_vec()),
        ("by patterns of one namespace; the last is the locks'", "patterns", patterns.to_vec()),
        (
            "by policies of the chain; beyond the third, fencing again",
            "policies",
            chains.into_iter().filter(|&(count, _)| count <= longest).collect(),
        ),
    ] {
        let configured: Vec<_> =
            points.iter().map(|(count, text)| way.with_namespaces(&count.to_string(), text)).collect();
        let open = self::open(bench, configured.iter())?;
        let tables = bench.measure(&loads, &open)?;
        let rows = points.iter().enumerate().map(|(at, (count, _))| {
            let cells = tables.iter().map(|table| table.rows[at].rounds.as_slice());
            (count.to_string(), cells.collect())
        });
        let columns = ["passed through", "lock cycle"].map(str::to_owned);
        let title = format!("dedicated, 50 clients, {title}");
        found.push(print(&title, column, &columns, &rows.collect::<Vec<_>>()));
        complain(&tables);
    }
    Ok(found)
}

fn open<'a>(bench: &Bench<'_>, ways: impl Iterator<Item = &'a Way>) -> Result<Vec<(&'a Way, Open)>, Box<dyn Error>> {
    ways.map(|way| {
        let open = way.open(&bench.place);
        let open = open.map_err(|error| format!("{}: {error}", way.name))?;
        Ok((way, open))
    })
    .collect()
}

/// Where the build left the built-in policies as files.
fn build_directory() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join("build"))
}

/// The newest fencing policy there.
fn another_policy() -> Option<PathBuf> {
    let entries = fs::read_dir(build_directory()?).ok()?;
    let built = entries.flatten().filter_map(|entry| {
        let path = entry.path().join("out/fencing.wasm");
        let at: SystemTime = fs::metadata(&path).ok()?.modified().ok()?;
        Some((at, path))
    });
    built.max().map(|(_, path)| path)
}

fn complain(tables: &[Table]) {
    for row in tables.iter().flat_map(|table| &table.rows) {
        if let Some(failure) = &row.failure {
            println!("{}: {failure}", row.name);
        }
    }
}

/// A line a point, and in it for each column the rate, the CPU of the process in between, and Redis's.
fn print(title: &str, label: &str, columns: &[String], rows: &[(String, Vec<&Rounds>)]) -> Value {
    println!("\n{title}");
    print!("{label:<12}");
    for column in columns {
        print!("{column:>16}{:>6}{:>9}{:>8}", "±%", "CPU µs", "Redis");
    }
    println!();
    let mut points = Vec::new();
    for (label, cells) in rows {
        print!("{label:<12}");
        for (column, rounds) in columns.iter().zip(cells) {
            let median = |metric| of(rounds, metric).map(|figure| figure.median);
            let spread = of(rounds, RATE).map(|figure| figure.spread);
            print!(
                "{:>16}{:>6}{:>9}{:>8}",
                number(median(RATE), 0),
                number(spread, 1),
                number(median(PROXY), 2),
                number(median(REDIS), 2)
            );
            points.push(json!({
                "at": label,
                "column": column,
                "a_second": median(RATE),
                "spread_percent": spread,
                "proxy_us": median(PROXY),
                "redis_us": median(REDIS),
            }));
        }
        println!();
    }
    json!({ "series": title, "points": points })
}

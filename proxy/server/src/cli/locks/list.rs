//! `lockwarden locks list`: the locks that are held, one a line. The other commands word locks the same way.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;

use crate::app::exit_code;
use crate::cli::api_client::{ApiArgs, ApiClient, ApiError, path};
use crate::cli::output;
use crate::cli::output::{Column, Format, Output, Paint, Screen, Table, cell, duration};
use crate::text::numbers::{counted, number};
use crate::view::api::{Client, Lock, LockState, Locks};

/// Locks that are listed where nobody says how many.
const USUAL: u32 = 200;

/// Which locks are meant.
#[derive(Args, Clone, Debug)]
pub(super) struct Filter {
    /// Only the locks of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Only the locks whose key contains this
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Only the locks with something wrong: overlaps, deadlocks, no TTL
    #[arg(long)]
    problems: bool,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = USUAL)]
    limit: u32,
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) fn list(args: &ListArgs) -> Result<ExitCode, ApiError> {
    let locks = fetch(&ApiClient::new(&args.api)?, &args.filter)?;
    let text = match args.output.output {
        Format::Json => output::json(&locks),
        Format::Text => listed(&locks, &args.filter, Screen::there_is()),
    };
    output::print(&text)?;
    // So that a script can ask: is something wrong?
    Ok(match args.filter.problems && locks.matching > 0 {
        true => exit_code::findings(),
        false => ExitCode::SUCCESS,
    })
}

pub(super) fn fetch(client: &ApiClient, filter: &Filter) -> Result<Locks, ApiError> {
    let limit = filter.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    if let Some(namespace) = &filter.namespace {
        query.push(("namespace", namespace));
    }
    if let Some(contains) = &filter.contains {
        query.push(("contains", contains));
    }
    if filter.problems {
        query.push(("problems", "true"));
    }
    client.get(&path(&["locks"], &query))
}

pub(super) fn listed(locks: &Locks, filter: &Filter, screen: Screen) -> String {
    if locks.locks.is_empty() {
        return match filter.problems {
            true => "no lock has a problem\n".to_owned(),
            false => "no lock is held\n".to_owned(),
        };
    }
    let mut text = table(&locks.locks, screen);
    let shown = locks.locks.len() as u64;
    if shown < locks.matching {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "and {}; --limit {} shows them",
            counted(locks.matching - shown, "more", "more"),
            locks.matching
        );
    }
    text
}

/// Locks in the order they came.
pub(crate) fn table(locks: &[Lock], screen: Screen) -> String {
    // Hardly anybody has locks in other databases.
    let with_db = locks.iter().any(|lock| lock.db != 0);
    let mut columns = vec![
        ("KEY", Column::Cut),
        ("NAMESPACE", Column::Cut),
        ("STATE", Column::Left),
        ("HOLDER", Column::Cut),
        ("AGE", Column::Right),
        ("TTL LEFT", Column::Right),
        ("FENCE", Column::Right),
        ("WAITING", Column::Right),
        ("SEEN", Column::Left),
    ];
    if with_db {
        columns.insert(1, ("DB", Column::Right));
    }
    let mut table = Table::new(&columns);
    for lock in locks {
        let (state, paint) = state(lock.state);
        let mut row = vec![
            cell(lock.key.as_str()),
            cell(lock.namespace.as_str()),
            (state.to_owned(), paint),
            cell(lock.holder.as_ref().map_or("?".to_owned(), client)),
            cell(duration(lock.age_ms)),
            left(lock),
            cell(fence(lock.fence)),
            cell(number(lock.waiters)),
            cell(lock.seen.as_str()),
        ];
        if with_db {
            row.insert(1, cell(lock.db.to_string()));
        }
        table.row(row);
    }
    table.show(screen)
}

pub(super) fn state(state: LockState) -> (&'static str, Paint) {
    match state {
        LockState::Overlap => ("overlap", Paint::Bad),
        LockState::Deadlock => ("deadlock", Paint::Bad),
        LockState::NoTtl => ("no TTL", Paint::Doubtful),
        LockState::Held => ("held", Paint::Good),
    }
}

/// What is left of the TTL, and whether the proxy sees to it that it stays.
pub(super) fn left(lock: &Lock) -> (String, Paint) {
    match (lock.ttl_left_ms, lock.kept_alive) {
        (None, _) => ("none".to_owned(), Paint::Doubtful),
        (Some(ms), true) => cell(format!("{}, kept", duration(ms))),
        (Some(ms), false) => cell(duration(ms)),
    }
}

/// A lease without a record has none.
pub(super) fn fence(fence: u64) -> String {
    match fence {
        0 => "-".to_owned(),
        fence => fence.to_string(),
    }
}

/// The name that tells applications apart, and the address that tells connections apart.
pub(crate) fn client(client: &Client) -> String {
    // Without a name or a user of its own an application is called by its address without the port.
    match client.address.contains(&client.application) {
        true => client.address.clone(),
        false => format!("{} {}", client.application, client.address),
    }
}

//! `lockwarden locks`: who holds what, since when, who waits, and ending a lease on purpose. Asks a running proxy;
//! what it shows is the proxy's view, and what `break` ends is decided in Redis, by the fencing token.

mod show;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::api_client::{ApiArgs, ApiClient, ApiError, path};
use super::output;
use super::output::{Column, Format, Output, Paint, Screen, Table, cell, duration, plain};
use crate::app::exit_code;
use crate::text::escape::spell;
use crate::text::numbers::{counted, number};
use crate::view::api::{Break, Broken, Client, Lock, LockState, Locks};

/// Locks that are listed where nobody says how many.
const USUAL: u32 = 200;

#[derive(Debug, Subcommand)]
pub(super) enum LocksCommand {
    /// List the locks that are held: problems first, then the oldest
    List(ListArgs),
    /// Show one lock: who holds it, who waits, what happened to it
    Show(ShowArgs),
    /// Go on listing; without a terminal, a line for every change
    Watch(WatchArgs),
    /// End a lease whose holder is lost: only the one with this fencing token
    Break(BreakArgs),
}

/// Which locks are meant.
#[derive(Args, Clone, Debug)]
struct Filter {
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
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

/// One lock, spelled as `locks list` spells it.
#[derive(Args, Debug)]
struct Which {
    /// The lock, as `locks list` shows it: \xNN for a byte that cannot be shown, \\ for a backslash
    key: OsString,
    /// The logical database that it is in
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    db: u32,
}

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args, Debug)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    filter: Filter,
    /// Between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = super::parse_duration)]
    interval: std::time::Duration,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args, Debug)]
pub(super) struct BreakArgs {
    #[command(flatten)]
    which: Which,
    /// The fencing token of the lease that is meant, as `locks show` says it
    #[arg(long, value_name = "NUMBER")]
    fence: u64,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

/// Does what was asked for.
pub(super) fn locks(command: &LocksCommand) -> ExitCode {
    let done = match command {
        LocksCommand::List(args) => list(args),
        LocksCommand::Show(args) => show::show(args),
        LocksCommand::Watch(args) => watch::watch(args),
        LocksCommand::Break(args) => end_lease(args),
    };
    super::finish(done)
}

fn list(args: &ListArgs) -> Result<ExitCode, ApiError> {
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

fn fetch(client: &ApiClient, filter: &Filter) -> Result<Locks, ApiError> {
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

fn listed(locks: &Locks, filter: &Filter, screen: Screen) -> String {
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
pub(super) fn table(locks: &[Lock], screen: Screen) -> String {
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

fn state(state: LockState) -> (&'static str, Paint) {
    match state {
        LockState::Overlap => ("overlap", Paint::Bad),
        LockState::Deadlock => ("deadlock", Paint::Bad),
        LockState::NoTtl => ("no TTL", Paint::Doubtful),
        LockState::Held => ("held", Paint::Good),
    }
}

/// What is left of the TTL, and whether the proxy sees to it that it stays.
fn left(lock: &Lock) -> (String, Paint) {
    match (lock.ttl_left_ms, lock.kept_alive) {
        (None, _) => ("none".to_owned(), Paint::Doubtful),
        (Some(ms), true) => cell(format!("{}, kept", duration(ms))),
        (Some(ms), false) => cell(duration(ms)),
    }
}

/// A lease without a record has none.
fn fence(fence: u64) -> String {
    match fence {
        0 => "-".to_owned(),
        fence => fence.to_string(),
    }
}

/// The name that tells applications apart, and the address that tells connections apart.
fn client(client: &Client) -> String {
    // Without a name or a user of its own an application is called by its address without the port.
    match client.address.contains(&client.application) {
        true => client.address.clone(),
        false => format!("{} {}", client.application, client.address),
    }
}

/// The key as the API spells it. What is text is taken to be a copy from a list.
fn spelled(key: &OsStr) -> String {
    key.to_str()
        .map_or_else(|| spell(key.as_bytes()), str::to_owned)
}

fn end_lease(args: &BreakArgs) -> Result<ExitCode, ApiError> {
    let key = spelled(&args.which.key);
    if args.reason.trim().is_empty() {
        return Err(ApiError::Usage(
            "--reason: say why; it is kept in the audit trail".to_owned(),
        ));
    }
    let order = Break {
        db: args.which.db,
        fence: args.fence,
        reason: args.reason.clone(),
    };
    let client = ApiClient::new(&args.api)?;
    let broken: Broken = client.post(&path(&["locks", &key, "break"], &[]), &order)?;
    let text = match args.output.output {
        Format::Json => output::json(&broken),
        Format::Text => words(&broken, &plain(&key), args.fence),
    };
    output::print(&text)?;
    Ok(match broken {
        Broken::Done { .. } => ExitCode::SUCCESS,
        Broken::Absent | Broken::Newer { .. } | Broken::Ungoverned => exit_code::findings(),
    })
}

fn words(broken: &Broken, key: &str, fence: u64) -> String {
    match broken {
        Broken::Done { id } => format!("{key}: the lease {fence} is over, id {}\n", plain(id)),
        Broken::Absent => format!("{key}: nobody holds it; nothing was done\n"),
        Broken::Newer { fence: newer } => format!(
            "{key}: the lease {fence} does not hold it, {newer} does by now; nothing was done\n"
        ),
        Broken::Ungoverned => format!(
            "{key}: it was taken around the proxy, so there is no lease to name; nothing was done. DEL at Redis \
             itself is all there is: make sure first that its holder is gone\n"
        ),
    }
}

impl From<io::Error> for ApiError {
    fn from(error: io::Error) -> ApiError {
        ApiError::Usage(format!("cannot write the answer: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_no_text_is_spelled_and_one_that_is_stays_a_copy() {
        assert_eq!(spelled(OsStr::new(r"lock:\x00\\a")), r"lock:\x00\\a");
        assert_eq!(spelled(OsStr::from_bytes(b"lock:\xff\\")), r"lock:\xff\\");
    }

    #[test]
    fn what_came_of_a_break_is_said_with_what_to_do() {
        let done = Broken::Done {
            id: "7F3K2A".into(),
        };
        assert_eq!(
            words(&done, "lock:a", 42),
            "lock:a: the lease 42 is over, id 7F3K2A\n"
        );
        assert!(words(&Broken::Newer { fence: 43 }, "lock:a", 42).contains("43 does by now"));
        assert!(words(&Broken::Ungoverned, "lock:a", 42).contains("DEL at Redis"));
    }
}

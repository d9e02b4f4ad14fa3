//! `lockwarden locks list`: the held locks, one per line. Other commands show locks in the same words.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use lockwarden_console::view::api::{Client, Lock, LockState, Locks, LocksQuery};
use lockwarden_control::text::numbers::counted;

use crate::cli::api_client::{ApiClient, ApiError, path};
use crate::cli::arguments::parse_duration;
use crate::cli::fleet::{Answer, Answers, FleetArgs};
use crate::cli::output::{Column, Output, Paint, Screen, Table, duration, plain};

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(super) query: LocksQuery,
    /// Go on: a line for every change, for pipes; `lockwarden top` is the live screen
    #[arg(long, conflicts_with = "fleet")]
    pub(super) follow: bool,
    /// With --follow: the time between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub(super) interval: Duration,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) fleet: FleetArgs,
}

pub(super) fn list(args: &ListArgs) -> Result<ExitCode, ApiError> {
    let answers = args.fleet.ask(|client| fetch(client, &args.query))?;
    args.output.print(&answers, |screen| match &answers.answers[..] {
        [one] if !answers.are_of_fleet() => listed(&one.answer, &args.query, screen),
        _ => listed_of_fleet(&answers, &args.query, screen),
    })?;
    // So that a script can test for problems.
    let found = answers.answers.iter().any(|one| one.answer.matching > 0);
    Ok(answers.end_with_findings(args.query.problems && found))
}

pub(super) fn fetch(client: &ApiClient, query: &LocksQuery) -> Result<Locks, ApiError> {
    client.get(&path(&["locks"], query))
}

fn listed(locks: &Locks, query: &LocksQuery, screen: Screen) -> String {
    if locks.locks.is_empty() {
        return format!("{}{}", nothing(query), notices(None, locks, screen));
    }
    let rows: Vec<_> = locks.locks.iter().map(|lock| (None, lock)).collect();
    let mut text = table_of(&rows, screen);
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
    text.push_str(&notices(None, locks, screen));
    text
}

/// What a failover means for these locks, printed below them.
fn notices(proxy: Option<&str>, locks: &Locks, screen: Screen) -> String {
    let of = proxy.map(|proxy| format!("{proxy}: ")).unwrap_or_default();
    let lines = locks.notices.iter().map(|notice| {
        let line = format!("{of}{notice}");
        format!("{}\n", screen.paint(&plain(&line), Paint::Doubtful))
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\n{lines}"),
    }
}

fn nothing(query: &LocksQuery) -> String {
    match query.problems {
        true => "no lock has a problem\n".to_owned(),
        false => "no lock is held\n".to_owned(),
    }
}

/// The locks of several proxies. A lease that a proxy has only found on the server appears once, with the proxy that granted it
/// if that one was asked.
pub(crate) fn merged<'a>(
    answers: impl Iterator<Item = (Option<&'a str>, &'a Locks)>,
) -> Vec<(Option<&'a str>, &'a Lock)> {
    let mut rows: Vec<(Option<&str>, &Lock)> = Vec::new();
    for (proxy, locks) in answers {
        rows.extend(locks.locks.iter().map(|lock| (proxy, lock)));
    }
    // The proxy that granted it comes first.
    rows.sort_by_key(|(_, lock)| lock.holder.is_none());
    let mut known = HashSet::new();
    rows.retain(|(_, lock)| {
        let lease = (&lock.namespace, &lock.key, lock.db, lock.fence);
        lock.fence == 0 || known.insert(lease) || lock.holder.is_some()
    });
    rows.sort_by_key(|(_, lock)| (lock.state, lock.since));
    rows
}

fn listed_of_fleet(answers: &Answers<Locks>, query: &LocksQuery, screen: Screen) -> String {
    let all = answers.answers.iter();
    let rows = merged(all.map(|one| (one.proxy.as_deref(), &one.answer)));
    let notices = answers.answers.iter().map(|one| notices(one.proxy.as_deref(), &one.answer, screen));
    let notices: String = notices.collect();
    if rows.is_empty() {
        return format!("{}{notices}", nothing(query));
    }
    let mut text = table_of(&rows, screen);
    let is_cut = |one: &Answer<Locks>| (one.answer.locks.len() as u64) < one.answer.matching;
    if answers.answers.iter().any(is_cut) {
        text.push_str("and more; a larger --limit shows them\n");
    }
    text.push_str(&notices);
    text
}

/// Locks in the given order, each with its proxy if several were asked.
pub(crate) fn table_of(rows: &[(Option<&str>, &Lock)], screen: Screen) -> String {
    // Locks in other databases are rare.
    let with_db = rows.iter().any(|(_, lock)| lock.db != 0);
    let with_proxy = rows.iter().any(|(proxy, _)| proxy.is_some());
    let state = |lock: &Lock| {
        let (word, paint) = state(lock.state);
        (word.to_owned(), paint)
    };
    Table::of(rows)
        .column_if(with_proxy, "PROXY", Column::Left, |(proxy, _)| proxy.unwrap_or_default())
        .cut("KEY", |(_, lock)| lock.key.as_str())
        .column_if(with_db, "DB", Column::Right, |(_, lock)| lock.db.to_string())
        .cut("NAMESPACE", |(_, lock)| lock.namespace.as_str())
        .left("STATE", |(_, lock)| state(lock))
        .cut("HOLDER", |(_, lock)| lock.holder.as_ref().map_or("?".to_owned(), client))
        .right("AGE", |(_, lock)| duration(lock.age_ms))
        .right("TTL LEFT", |(_, lock)| left(lock))
        .right("FENCE", |(_, lock)| fence(lock.fence))
        .right("WAITING", |(_, lock)| lock.waiters)
        .left("SEEN", |(_, lock)| lock.seen.as_str())
        .show(screen)
}

pub(crate) fn state(state: LockState) -> (&'static str, Paint) {
    match state {
        LockState::Overlap => ("overlap", Paint::Bad),
        LockState::Deadlock => ("deadlock", Paint::Bad),
        LockState::Unknown => ("unknown since the failover", Paint::Doubtful),
        LockState::NoTtl => ("no TTL", Paint::Doubtful),
        LockState::Held => ("held", Paint::Good),
    }
}

/// The rest of the TTL, and whether the proxy keeps it alive.
pub(crate) fn left(lock: &Lock) -> (String, Paint) {
    match (lock.ttl_left_ms, lock.kept_alive) {
        (None, _) => ("none".to_owned(), Paint::Doubtful),
        (Some(ms), true) => (format!("{}, kept", duration(ms)), Paint::Plain),
        (Some(ms), false) => (duration(ms), Paint::Plain),
    }
}

/// A lease without a record has no fencing token.
pub(crate) fn fence(fence: u64) -> String {
    match fence {
        0 => "-".to_owned(),
        fence => fence.to_string(),
    }
}

/// The name distinguishes applications, and the address distinguishes connections.
pub(crate) fn client(client: &Client) -> String {
    // An application without a name or a user of its own is named by its address without the port.
    match client.address.contains(&client.application) {
        true => client.address.clone(),
        false => format!("{} {}", client.application, client.address),
    }
}

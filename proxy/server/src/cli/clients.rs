//! `lockwarden clients`: the connected clients with their start, their identity, and the locks that each holds and waits for.

use std::cmp::Reverse;
use std::process::ExitCode;

use clap::Args;
use lockwarden_console::view::api::{Connection, Connections, ConnectionsQuery, NamedLock};
use lockwarden_control::text::numbers::counted;

use super::api_client::{ApiError, finish, path};
use super::fleet::{Answers, FleetArgs};
use super::locks::list;
use super::output;
use super::output::{Column, Output, Paint, Screen, Table, duration};

/// Locks named in a line.
const MAX_SHOWN: usize = 3;

#[derive(Args, Debug)]
pub(super) struct ClientsArgs {
    #[command(flatten)]
    query: ConnectionsQuery,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Lists them.
pub(super) fn clients(args: &ClientsArgs) -> ExitCode {
    finish(answer(args))
}

fn answer(args: &ClientsArgs) -> Result<ExitCode, ApiError> {
    let answers = args.fleet.ask(|client| client.get(&path(&["connections"], &args.query)))?;
    args.output.print(&answers, |screen| listed(&answers, screen))?;
    Ok(answers.end())
}

fn listed(answers: &Answers<Connections>, screen: Screen) -> String {
    let told = || answers.answers.iter().map(|one| &one.answer);
    let matching: u64 = told().map(|connections| connections.matching).sum();
    let shown: u64 = told().map(|connections| connections.connections.len() as u64).sum();
    if matching == 0 {
        return "no such client is connected\n".to_owned();
    }
    let hidden = told().find_map(|connections| connections.hidden_processes.as_deref());
    let mut text = output::warning(hidden, screen);
    text.push_str(&table(answers, screen));
    if let Some(more) = matching.checked_sub(shown).filter(|more| *more > 0) {
        let most = told().map(|connections| connections.matching).max();
        let (more, most) = (counted(more, "more", "more"), most.unwrap_or(0));
        text.push_str(&format!("and {more}; --limit {most} shows them\n"));
    }
    text
}

fn table(answers: &Answers<Connections>, screen: Screen) -> String {
    let rows = rows(answers);
    // Most proxies have no client with a certificate.
    let with_certificates = rows.iter().any(|(_, one)| one.client.certificate.is_some());
    Table::of(&rows)
        .column_if(answers.are_of_fleet(), "PROXY", Column::Left, |(proxy, _)| proxy.unwrap_or_default())
        .right("SESSION", |(_, one)| one.session.to_string())
        .cut("CLIENT", |(_, one)| list::client(&one.client))
        .right("CONNECTED", |(_, one)| duration(one.age_ms))
        .left("USER", |(_, one)| one.client.user.as_deref())
        .cut("LIBRARY", |(_, one)| one.client.library.as_deref())
        .column_if(with_certificates, "CERTIFICATE", Column::Cut, |(_, one)| one.client.certificate.as_deref())
        .left("PROCESS", |(_, one)| process(one))
        .cut("HOLDS", |(_, one)| locks(&one.holds, one.holding, Paint::Good))
        .cut("WAITS FOR", |(_, one)| locks(&one.waits_for, one.waiting, Paint::Doubtful))
        .show(screen)
}

/// The connections of all proxies, in the order that each proxy gives its own.
fn rows(answers: &Answers<Connections>) -> Vec<(Option<&str>, &Connection)> {
    let mut rows: Vec<_> = answers
        .answers
        .iter()
        .flat_map(|one| {
            let connections = one.answer.connections.iter();
            connections.map(move |connection| (one.proxy.as_deref(), connection))
        })
        .collect();
    rows.sort_by_key(|(_, one)| (Reverse(one.holding), Reverse(one.waiting), Reverse(one.age_ms)));
    rows
}

fn process(connection: &Connection) -> Option<String> {
    let process = connection.process.as_ref()?;
    Some(match &process.program {
        Some(program) => format!("{program} ({})", process.id),
        None => process.id.to_string(),
    })
}

/// Some of these locks by their keys, and how many more there are.
fn locks(named: &[NamedLock], count: u64, paint: Paint) -> Option<(String, Paint)> {
    if count == 0 {
        return None;
    }
    let some: Vec<String> = named.iter().take(MAX_SHOWN).map(name).collect();
    let mut text = some.join(", ");
    let more = count.saturating_sub(some.len() as u64);
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    Some((text, paint))
}

fn name(lock: &NamedLock) -> String {
    match lock.db {
        0 => lock.key.clone(),
        db => format!("{} in database {db}", lock.key),
    }
}

//! `lockwarden clients`: who is connected, since when, as whom, and which locks each holds and waits for.

use std::process::ExitCode;

use clap::Args;

use super::api_client::{ApiArgs, ApiClient, ApiError, finish, path};
use super::locks::list;
use super::output;
use super::output::{Column, Format, Output, Paint, Screen, Table, cell, duration};
use crate::text::numbers::counted;
use crate::view::api::{Connection, Connections, NamedLock};

/// Connections that are listed where nobody says how many.
const USUAL: u32 = 200;
/// Locks that a line names.
const MAX_SHOWN: usize = 3;

/// Which connections are meant.
#[derive(Args, Clone, Debug)]
pub(super) struct Filter {
    /// Only the connections of this application, as the list names it
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Only the connections that hold a lock
    #[arg(long)]
    holding: bool,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = USUAL)]
    limit: u32,
}

#[derive(Args, Debug)]
pub(super) struct ClientsArgs {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

/// Lists them.
pub(super) fn clients(args: &ClientsArgs) -> ExitCode {
    finish(answer(args))
}

fn answer(args: &ClientsArgs) -> Result<ExitCode, ApiError> {
    let connections = fetch(&ApiClient::new(&args.api)?, &args.filter)?;
    output::print(&match args.output.output {
        Format::Json => output::json(&connections),
        Format::Text => listed(&connections, Screen::there_is()),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn fetch(client: &ApiClient, filter: &Filter) -> Result<Connections, ApiError> {
    let limit = filter.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    if let Some(application) = &filter.application {
        query.push(("application", application));
    }
    if filter.holding {
        query.push(("holding", "true"));
    }
    client.get(&path(&["connections"], &query))
}

fn listed(connections: &Connections, screen: Screen) -> String {
    if connections.matching == 0 {
        return "no such client is connected\n".to_owned();
    }
    let mut text = table(&connections.connections, screen);
    let shown = connections.connections.len() as u64;
    if let Some(more) = connections
        .matching
        .checked_sub(shown)
        .filter(|more| *more > 0)
    {
        let (more, all) = (counted(more, "more", "more"), connections.matching);
        text.push_str(&format!("and {more}; --limit {all} shows them\n"));
    }
    text
}

fn table(connections: &[Connection], screen: Screen) -> String {
    let mut table = Table::new(&[
        ("SESSION", Column::Right),
        ("CLIENT", Column::Cut),
        ("CONNECTED", Column::Right),
        ("USER", Column::Left),
        ("LIBRARY", Column::Cut),
        ("PROCESS", Column::Left),
        ("HOLDS", Column::Cut),
        ("WAITS FOR", Column::Cut),
    ]);
    for one in connections {
        table.row([
            cell(one.session.to_string()),
            cell(list::client(&one.client)),
            cell(duration(one.age_ms)),
            cell(one.client.user.as_deref().unwrap_or("-")),
            cell(one.client.library.as_deref().unwrap_or("-")),
            cell(process(one)),
            locks(&one.holds, one.holding, Paint::Good),
            locks(&one.waits_for, one.waiting, Paint::Doubtful),
        ]);
    }
    table.show(screen)
}

fn process(connection: &Connection) -> String {
    let Some(process) = &connection.process else {
        return "-".to_owned();
    };
    match &process.program {
        Some(program) => format!("{program} ({})", process.id),
        None => process.id.to_string(),
    }
}

/// Some of these locks by their keys, and how many more there are.
fn locks(named: &[NamedLock], count: u64, paint: Paint) -> (String, Paint) {
    if count == 0 {
        return cell("-");
    }
    let some: Vec<String> = named.iter().take(MAX_SHOWN).map(name).collect();
    let mut text = some.join(", ");
    let more = count.saturating_sub(some.len() as u64);
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    (text, paint)
}

fn name(lock: &NamedLock) -> String {
    match lock.db {
        0 => lock.key.clone(),
        db => format!("{} in database {db}", lock.key),
    }
}

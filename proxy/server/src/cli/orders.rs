//! `lockwarden mode`, `reload`, `drain` and `token`: orders to a running proxy, for a person on call. `app::control` carries
//! them out; the admin address accepts the same orders.

use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::api_client::{ApiArgs, ApiClient, ApiError, finish, path};
use super::fleet::{Answers, FleetArgs};
use super::output;
use super::output::{Column, Output, Screen, Table};

#[derive(Args, Debug)]
pub(super) struct ModeArgs {
    /// enforce or monitor for all namespaces, or NAMESPACE=MODE for one
    mode: String,
    /// Enforce also what the report speaks against
    #[arg(long)]
    anyway: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Args, Debug)]
pub(super) struct ReloadArgs {
    /// Also a configuration that governs less than the one in force
    #[arg(long)]
    allow_weaker: bool,
    /// Also one that enforces what the report speaks against
    #[arg(long)]
    anyway: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Args, Debug)]
pub(super) struct DrainArgs {
    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Args, Debug)]
pub(super) struct TokenArgs {
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Serialize)]
struct ModeOrder<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    mode: &'a str,
    anyway: bool,
}

#[derive(Deserialize, Serialize)]
struct Modes {
    modes: Vec<NamespaceMode>,
}

#[derive(Deserialize, Serialize)]
struct NamespaceMode {
    namespace: String,
    mode: String,
}

#[derive(Deserialize)]
struct Done {
    result: String,
}

/// Switches one namespace, or all.
pub(super) fn mode(args: &ModeArgs) -> ExitCode {
    finish(switch(args))
}

/// Makes the proxy reload its configuration.
pub(super) fn reload(args: &ReloadArgs) -> ExitCode {
    finish(read_again(args))
}

/// Makes the proxy drain and end.
pub(super) fn drain(args: &DrainArgs) -> ExitCode {
    finish(ask_to_stop(args))
}

/// Prints the admin token that the other commands would use.
pub(super) fn token(args: &TokenArgs) -> ExitCode {
    finish(ApiClient::new(&args.api).and_then(|client| {
        output::print(&format!("{}\n", client.token()?.expose()))?;
        Ok(ExitCode::SUCCESS)
    }))
}

fn switch(args: &ModeArgs) -> Result<ExitCode, ApiError> {
    let (namespace, mode) = match args.mode.split_once('=') {
        Some((namespace, mode)) => (Some(namespace), mode),
        None => (None, &*args.mode),
    };
    let anyway = args.anyway;
    let order = ModeOrder { namespace, mode, anyway };
    let order = |client: &ApiClient| client.post::<Modes>(&path(&["mode"], &()), &order);
    let answers = args.fleet.ask(order)?;
    args.output.print(&answers, |_| listed(&answers))?;
    Ok(answers.end())
}

fn listed(answers: &Answers<Modes>) -> String {
    let of_each = answers.answers.iter();
    let rows: Vec<_> = of_each.flat_map(|one| one.answer.modes.iter().map(|mode| (&one.proxy, mode))).collect();
    Table::of(&rows)
        .column_if(answers.are_of_fleet(), "PROXY", Column::Left, |(proxy, _)| proxy.as_deref())
        .cut("NAMESPACE", |(_, one)| one.namespace.as_str())
        .left("MODE", |(_, one)| one.mode.as_str())
        .show_if_any(Screen::there_is())
}

fn read_again(args: &ReloadArgs) -> Result<ExitCode, ApiError> {
    let weaker = args.allow_weaker.then_some(("allow", "weaker"));
    let anyway = args.anyway.then_some(("anyway", "true"));
    let query: Vec<_> = weaker.into_iter().chain(anyway).collect();
    give(&args.fleet, &path(&["reload"], &query))
}

fn ask_to_stop(args: &DrainArgs) -> Result<ExitCode, ApiError> {
    give(&args.fleet, &path(&["drain"], &()))
}

/// Sends an order without a body, and prints the result.
fn give(fleet: &FleetArgs, path: &str) -> Result<ExitCode, ApiError> {
    let nothing = serde_json::Map::new();
    let answers = fleet.ask(|client| client.post::<Done>(path, &nothing))?;
    output::print(&answers.lines(|done| done.result.clone()))?;
    Ok(answers.end())
}

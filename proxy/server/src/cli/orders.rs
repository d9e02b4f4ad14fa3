//! `lockwarden mode`, `reload`, `drain`, `log` and `token`: orders to a running proxy, for a person on call. What they do is
//! `app::control`; the same is to be had at the admin address.

use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::api_client::{ApiArgs, ApiClient, ApiError, finish, path};
use super::output;
use super::output::{Column, Format, Output, Screen, Table, cell};
use crate::view::api::{LogChanged, LogLevel};

#[derive(Args, Debug)]
pub(super) struct ModeArgs {
    /// enforce or monitor for all namespaces, or NAMESPACE=MODE for one
    mode: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args, Debug)]
pub(super) struct ReloadArgs {
    /// Also a configuration that governs less than the one in force
    #[arg(long)]
    allow_weaker: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args, Debug)]
pub(super) struct DrainArgs {
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args, Debug)]
pub(super) struct LogArgs {
    /// off, error, warn, info, debug or trace for all, or MODULE=LEVEL, as in lockwarden::session=debug;
    /// without it the one in force is printed
    level: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
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

/// Has the configuration read again.
pub(super) fn reload(args: &ReloadArgs) -> ExitCode {
    finish(read_again(args))
}

/// Has the proxy finish and end.
pub(super) fn drain(args: &DrainArgs) -> ExitCode {
    finish(ask_to_stop(args))
}

/// Says which lines are logged, or changes that.
pub(super) fn log(args: &LogArgs) -> ExitCode {
    finish(log_level(args))
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
    let client = ApiClient::new(&args.api)?;
    let order = ModeOrder { namespace, mode };
    let modes: Modes = client.post(&path(&["mode"], &[]), &order)?;
    output::print(&match args.output.output {
        Format::Json => output::json(&modes),
        Format::Text => listed(&modes),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn listed(modes: &Modes) -> String {
    let mut table = Table::new(&[("NAMESPACE", Column::Cut), ("MODE", Column::Left)]);
    for NamespaceMode { namespace, mode } in &modes.modes {
        table.row([cell(namespace), cell(mode)]);
    }
    table.show(Screen::there_is())
}

fn read_again(args: &ReloadArgs) -> Result<ExitCode, ApiError> {
    let query: &[_] = match args.allow_weaker {
        true => &[("allow", "weaker")],
        false => &[],
    };
    let client = ApiClient::new(&args.api)?;
    let done: Done = client.post(&path(&["reload"], query), &serde_json::Map::new())?;
    output::print(&format!("{}\n", output::plain(&done.result)))?;
    Ok(ExitCode::SUCCESS)
}

fn ask_to_stop(args: &DrainArgs) -> Result<ExitCode, ApiError> {
    let client = ApiClient::new(&args.api)?;
    let done: Done = client.post(&path(&["drain"], &[]), &serde_json::Map::new())?;
    output::print(&format!("{}\n", output::plain(&done.result)))?;
    Ok(ExitCode::SUCCESS)
}

fn log_level(args: &LogArgs) -> Result<ExitCode, ApiError> {
    let client = ApiClient::new(&args.api)?;
    let path = path(&["log"], &[]);
    let (json, text) = match &args.level {
        None => {
            let level: LogLevel = client.get(&path)?;
            (output::json(&level), level.filter)
        }
        Some(level) => {
            let filter = level.clone();
            let changed: LogChanged = client.post(&path, &LogLevel { filter })?;
            let text = format!("{}, before: {}", changed.filter, changed.was);
            (output::json(&changed), text)
        }
    };
    output::print(&match args.output.output {
        Format::Json => json,
        Format::Text => format!("{}\n", output::plain(&text)),
    })?;
    Ok(ExitCode::SUCCESS)
}

//! `lockwarden config`: the configuration in force in a running proxy, key by key with the origin of each value; and its log
//! filter, which can be changed at run time.

use std::process::ExitCode;

use clap::Args;
use lockwarden_console::view::api::{LogChanged, LogLevel, Setting, Settings};

use super::api_client::{ApiClient, ApiError, finish, path};
use super::fleet::FleetArgs;
use super::output::{Output, Paint, Screen, Table};

#[derive(Args, Debug)]
pub(super) struct ConfigArgs {
    /// Only what somebody has said: nothing that is a default
    #[arg(long)]
    changed: bool,
    /// Which lines are logged, in place of the configuration; with a level that is in force from now on: off, error, warn,
    /// info, debug or trace for all, or MODULE=LEVEL, as in lockwarden_dataplane::session=debug
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, conflicts_with = "changed")]
    log: Option<Option<String>>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Prints it, or changes the log filter.
pub(super) fn config(args: &ConfigArgs) -> ExitCode {
    finish(match &args.log {
        None => show(args),
        Some(None) => log_level(args),
        Some(Some(level)) => set_log_level(args, level),
    })
}

fn show(args: &ConfigArgs) -> Result<ExitCode, ApiError> {
    let answers = args.fleet.ask(|client| {
        let mut told: Settings = client.get(&path(&["settings"], &()))?;
        if args.changed {
            told.settings.retain(|setting| !setting.default || setting.after_restart.is_some());
        }
        Ok(told)
    })?;
    args.output.print(&answers, |_| answers.parts(|told| listed(&told.settings), ""))?;
    Ok(answers.end())
}

fn log_level(args: &ConfigArgs) -> Result<ExitCode, ApiError> {
    let answers = args.fleet.ask(|client| client.get::<LogLevel>(&path(&["log"], &())))?;
    args.output.print(&answers, |_| answers.lines(|level| level.filter.clone()))?;
    Ok(answers.end())
}

fn set_log_level(args: &ConfigArgs, level: &str) -> Result<ExitCode, ApiError> {
    let order = LogLevel { filter: level.to_owned() };
    let order = |client: &ApiClient| client.post::<LogChanged>(&path(&["log"], &()), &order);
    let answers = args.fleet.ask(order)?;
    args.output.print(&answers, |_| answers.lines(|done| format!("{}, before: {}", done.filter, done.was)))?;
    Ok(answers.end())
}

fn listed(settings: &[Setting]) -> String {
    if settings.is_empty() {
        return "everything is as it is by default\n".to_owned();
    }
    let key = |setting: &Setting| match &setting.table {
        Some(table) => format!("{table} {}", setting.key),
        None => setting.key.clone(),
    };
    let value = |setting: &Setting| match &setting.after_restart {
        Some(next) => (format!("{}, after a restart: {next}", setting.value), Paint::Doubtful),
        None => (setting.value.clone(), Paint::Plain),
    };
    Table::of(settings)
        .left("KEY", key)
        .cut("VALUE", value)
        .left("FROM", |setting| setting.origin.as_str())
        .show(Screen::there_is())
}

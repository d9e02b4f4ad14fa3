//! `lockwarden config`: what is in force in a running proxy, key by key, and where each value came from.

use std::process::ExitCode;

use clap::Args;

use super::api_client::{ApiArgs, ApiClient, ApiError, finish, path};
use super::output;
use super::output::{Column, Format, Output, Paint, Screen, Table, cell};
use crate::view::api::{Setting, Settings};

#[derive(Args, Debug)]
pub(super) struct ConfigArgs {
    /// Only what somebody has said: nothing that is a default
    #[arg(long)]
    changed: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

/// Prints it.
pub(super) fn config(args: &ConfigArgs) -> ExitCode {
    finish(show(args))
}

fn show(args: &ConfigArgs) -> Result<ExitCode, ApiError> {
    let client = ApiClient::new(&args.api)?;
    let mut told: Settings = client.get(&path(&["settings"], &[]))?;
    if args.changed {
        told.settings.retain(|setting| !setting.default || setting.after_restart.is_some());
    }
    output::print(&match args.output.output {
        Format::Json => output::json(&told),
        Format::Text => listed(&told.settings),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn listed(settings: &[Setting]) -> String {
    if settings.is_empty() {
        return "everything is as it is by default\n".to_owned();
    }
    let mut table = Table::new(&[("KEY", Column::Left), ("VALUE", Column::Cut), ("FROM", Column::Left)]);
    for setting in settings {
        let key = match &setting.table {
            Some(table) => format!("{table} {}", setting.key),
            None => setting.key.clone(),
        };
        let value = match &setting.after_restart {
            Some(next) => (format!("{}, after a restart: {next}", setting.value), Paint::Doubtful),
            None => cell(&*setting.value),
        };
        table.row([cell(key), value, cell(&*setting.origin)]);
    }
    table.show(Screen::there_is())
}

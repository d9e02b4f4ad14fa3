//! `lockwarden why ID`: one decision, in words. Asks the running proxy, which remembers the latest decisions, or reads audit
//! files; `telemetry/audit/wording.rs` puts a decision into words.

use std::path::PathBuf;
use std::process::ExitCode;

use lockwarden_console::view::api::Why;
use lockwarden_control::config::AuditTarget;
use lockwarden_control::telemetry::audit::{Client, Record, grant_of, records_with, told};
use lockwarden_control::text::escape::readable_json;

use crate::terminal::{complain, say};
use clap::Args;

use super::api_client::{ApiArgs, ApiClient, ApiError, load_config, path};
use super::output::{Format, Output};
use crate::app::exit_code;

/// What is asked.
#[derive(Args, Debug)]
pub(super) struct WhyArgs {
    /// The id that an error reply, a line of the log or the board shows
    id: String,
    /// Look into these audit files and the full ones beside them (audit.jsonl.1, …) instead of asking
    /// the proxy; - is standard input
    #[arg(long, value_name = "FILE", num_args = 1..)]
    log: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    proxy: ApiArgs,
}

/// A record, and the client that was granted its lease, if known.
struct Found {
    record: Record,
    holder: Option<Client>,
}

/// Why there is no answer.
enum NoAnswer {
    /// The id is unknown; with the sources that were asked.
    NotFound(String),
    Unusable(String),
    Proxy(ApiError),
}

/// Runs the command.
pub(super) fn why(args: &WhyArgs) -> ExitCode {
    let id = args.id.trim().to_ascii_uppercase();
    let found = if args.log.is_empty() { from_proxy(&id, &args.proxy) } else { from_files(&id, &args.log) };
    match found {
        Ok(records) => {
            for Found { record, holder } in &records {
                match args.output.output {
                    Format::Text => {
                        let text = told(record, holder.as_ref(), &id).text(&id);
                        say!("{}", text.trim_end());
                    }
                    Format::Json => say!("{}", json(record)),
                }
            }
            ExitCode::SUCCESS
        }
        Err(NoAnswer::NotFound(who)) => {
            complain!("lockwarden: {who}");
            exit_code::findings()
        }
        Err(NoAnswer::Unusable(problem)) => {
            complain!("lockwarden: {problem}");
            exit_code::configuration()
        }
        Err(NoAnswer::Proxy(error)) => {
            complain!("lockwarden: {error}");
            if let ApiError::Unreachable { .. } = error {
                complain!("with --log FILE this looks into an audit file instead");
            }
            error.exit()
        }
    }
}

fn json(record: &Record) -> String {
    let text = serde_json::to_string(record).unwrap_or_default();
    readable_json(&text).into_owned()
}

fn from_files(id: &str, files: &[PathBuf]) -> Result<Vec<Found>, NoAnswer> {
    let (found, read) = records_with(id, files).map_err(|error| NoAnswer::Unusable(error.to_string()))?;
    if found.is_empty() {
        let files = if read == 1 { "file" } else { "files" };
        let who = format!("no record with the id {id} in {read} audit {files}");
        return Err(NoAnswer::NotFound(who));
    }
    Ok(with_holders(found, files))
}

fn with_holders(records: Vec<Record>, files: &[PathBuf]) -> Vec<Found> {
    let found = records
        .into_iter()
        .map(|record| Found { holder: grant_of(&record, files).and_then(|grant| grant.client), record });
    found.collect()
}

/// The proxy remembers a few thousand decisions; older ones are in its audit file, if that is on this machine.
fn from_proxy(id: &str, args: &ApiArgs) -> Result<Vec<Found>, NoAnswer> {
    let client = ApiClient::new(args).map_err(NoAnswer::Proxy)?;
    match client.get::<Vec<Why>>(&path(&["why", id], &())) {
        Ok(remembered) => {
            let found = remembered.into_iter().map(|one| Found { holder: one.holder, record: one.decision });
            return Ok(found.collect());
        }
        Err(ApiError::NotFound(_)) => {}
        Err(error) => return Err(NoAnswer::Proxy(error)),
    }
    let configured = args.config().and_then(|file| load_config(Some(file)).ok());
    if let Some(AuditTarget::File(file)) = configured.and_then(|config| config.audit.target)
        && let Ok((found, _)) = records_with(id, std::slice::from_ref(&file))
        && !found.is_empty()
    {
        return Ok(with_holders(found, &[file]));
    }
    Err(NoAnswer::NotFound(format!(
        "the proxy at {} does not remember {id}; what is older, or was decided by another proxy, stands in \
         an audit file: --log FILE",
        client.address()
    )))
}

//! `lockwarden why ID`: one decision, in words. Asks the running proxy, which remembers the latest, or
//! looks into audit files; how a decision is told is in `why/wording.rs`.

mod wording;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::api_client::{ApiArgs, ApiClient, ApiError, load_config, path};
use super::output::{Format, Output};
use crate::app::exit_code;
use crate::config::AuditTarget;
use crate::telemetry::audit::{Client, Record, grant_of, records_with};
use crate::text::numbers::utc;
use crate::view::api;
use crate::view::api::{LockDetail, Moment};

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

/// A record, and who was granted the lease that it is about, where that is known.
struct Found {
    record: Record,
    holder: Option<Client>,
}

/// Why there is no answer.
enum NoAnswer {
    /// Nobody knows the id; who was asked.
    NotFound(String),
    Unusable(String),
    Proxy(ApiError),
}

/// Does what was asked.
pub(super) fn why(args: &WhyArgs) -> ExitCode {
    let id = args.id.trim().to_ascii_uppercase();
    let found = if args.log.is_empty() {
        from_proxy(&id, &args.proxy)
    } else {
        from_files(&id, &args.log)
    };
    match found {
        Ok(records) => {
            for Found { record, holder } in &records {
                match args.output.output {
                    Format::Text => print!("{}", wording::told(record, holder.as_ref(), &id)),
                    Format::Json => println!("{}", json(record)),
                }
            }
            ExitCode::SUCCESS
        }
        Err(NoAnswer::NotFound(who)) => {
            eprintln!("lockwarden: {who}");
            exit_code::findings()
        }
        Err(NoAnswer::Unusable(problem)) => {
            eprintln!("lockwarden: {problem}");
            exit_code::configuration()
        }
        Err(NoAnswer::Proxy(error)) => {
            eprintln!("lockwarden: {error}");
            if let ApiError::Unreachable { .. } = error {
                eprintln!("with --log FILE this looks into an audit file instead");
            }
            error.exit()
        }
    }
}

fn json(record: &Record) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

fn from_files(id: &str, files: &[PathBuf]) -> Result<Vec<Found>, NoAnswer> {
    let (found, read) =
        records_with(id, files).map_err(|error| NoAnswer::Unusable(error.to_string()))?;
    if found.is_empty() {
        let files = if read == 1 { "file" } else { "files" };
        let who = format!("no record with the id {id} in {read} audit {files}");
        return Err(NoAnswer::NotFound(who));
    }
    Ok(with_holders(found, files))
}

fn with_holders(records: Vec<Record>, files: &[PathBuf]) -> Vec<Found> {
    let found = records.into_iter().map(|record| Found {
        holder: grant_of(&record, files).and_then(|grant| grant.client),
        record,
    });
    found.collect()
}

/// The proxy remembers a few thousand decisions; what is older stands in its audit file, if it is here.
fn from_proxy(id: &str, args: &ApiArgs) -> Result<Vec<Found>, NoAnswer> {
    let client = ApiClient::new(args).map_err(NoAnswer::Proxy)?;
    let moments: Vec<Moment> = client
        .get(&path(&["decisions"], &[("id", id)]))
        .map_err(NoAnswer::Proxy)?;
    if !moments.is_empty() {
        let found = moments.into_iter().map(|moment| Found {
            holder: holder_of(&moment, &client),
            record: as_record(moment),
        });
        return Ok(found.collect());
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

/// Who was granted the lease: the proxy remembers it while the lock is held, and for a while after.
fn holder_of(moment: &Moment, client: &ApiClient) -> Option<Client> {
    let fence = moment.fence?;
    let db = moment.db.to_string();
    let detail: LockDetail = client
        .get(&path(&["locks", &moment.key], &[("db", &db)]))
        .ok()?;
    let held = detail.lock.filter(|lock| lock.fence == fence);
    let granted = |told: &Moment| told.event == "acquired" && told.fence == Some(fence);
    let told = detail.timeline.into_iter().rfind(granted);
    let holder = held.and_then(|lock| lock.holder);
    holder.or(told.and_then(|told| told.client)).map(as_client)
}

fn as_client(client: api::Client) -> Client {
    let own = [client.name.as_ref(), client.user.as_ref()];
    let address: Option<SocketAddr> = client.address.parse().ok();
    let host = address.map(|address| address.ip().to_canonical().to_string());
    let is_own =
        own.contains(&Some(&client.application)) || host.as_ref() == Some(&client.application);
    Client {
        session: None,
        application: (!is_own).then_some(client.application),
        address: client.address,
        name: client.name,
        user: client.user,
        library: client.library,
    }
}

fn as_record(moment: Moment) -> Record {
    Record {
        time: utc(moment.at),
        at: moment.at,
        event: moment.event,
        kind: moment.kind,
        id: moment.id,
        namespace: moment.namespace,
        mode: moment.mode,
        db: moment.db,
        key: moment.key,
        command: moment.command,
        operation: moment.operation,
        client: moment.client.map(as_client),
        decision: moment.decision,
        reason: moment.reason,
        policy: moment.policy,
        detail: moment.detail,
        token: moment.token,
        fence: moment.fence,
        ttl_ms: moment.ttl_ms,
        asked_ms: moment.asked_ms,
        would_ttl_ms: moment.would_ttl_ms,
        held_ms: moment.held_ms,
        overlap: moment.overlap,
        ..Record::default()
    }
}

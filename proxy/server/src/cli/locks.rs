//! `lockwarden locks`: the holders, their times, the waiters, and ending a lease on purpose. Asks a running proxy; it shows the
//! proxy's view, and Redis decides by the fencing token what `break` ends.

mod follow;
pub(super) mod list;
mod show;

use std::io;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use lockwarden_console::view::api::{Break, Broken};

use super::api_client::{ApiArgs, ApiClient, ApiError, finish, path};
use super::output::{Output, plain};
use crate::app::exit_code;
use list::ListArgs;
use show::{ShowArgs, Which, spelled};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct LocksArgs {
    #[command(subcommand)]
    command: Option<LocksCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum LocksCommand {
    /// List the locks that are held: problems first, then the oldest; so does `locks` alone
    List(ListArgs),
    /// Show one lock: who holds it, who waits, what happened to it
    Show(ShowArgs),
    /// End a lease whose holder is lost: only the one with this fencing token
    Break(BreakArgs),
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

/// Runs the subcommand.
pub(super) fn locks(args: &LocksArgs) -> ExitCode {
    let listed = |args: &ListArgs| match args.follow {
        true => follow::follow(args),
        false => list::list(args),
    };
    let done = match &args.command {
        None => listed(&args.list),
        Some(LocksCommand::List(args)) => listed(args),
        Some(LocksCommand::Show(args)) => show::show(args),
        Some(LocksCommand::Break(args)) => end_lease(args),
    };
    finish(done)
}

fn end_lease(args: &BreakArgs) -> Result<ExitCode, ApiError> {
    let key = spelled(&args.which.key);
    if args.reason.trim().is_empty() {
        return Err(ApiError::Usage("--reason: say why; it is kept in the audit trail".to_owned()));
    }
    let order = Break { db: args.which.db, fence: args.fence, reason: args.reason.clone() };
    let client = ApiClient::new(&args.api)?;
    let broken: Broken = client.post(&path(&["locks", &key, "break"], &()), &order)?;
    args.output.print(&broken, |_| words(&broken, &plain(&key), args.fence))?;
    Ok(match broken {
        Broken::Done { .. } => ExitCode::SUCCESS,
        Broken::Absent | Broken::Newer { .. } | Broken::Ungoverned => exit_code::findings(),
    })
}

fn words(broken: &Broken, key: &str, fence: u64) -> String {
    match broken {
        Broken::Done { id } => format!("{key}: the lease {fence} is over, id {}\n", plain(id)),
        Broken::Absent => format!("{key}: nobody holds it; nothing was done\n"),
        Broken::Newer { fence: newer } => {
            format!("{key}: the lease {fence} does not hold it, {newer} does by now; nothing was done\n")
        }
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
    fn what_came_of_a_break_is_said_with_what_to_do() {
        let done = Broken::Done { id: "7F3K2A".into() };
        assert_eq!(words(&done, "lock:a", 42), "lock:a: the lease 42 is over, id 7F3K2A\n");
        assert!(words(&Broken::Newer { fence: 43 }, "lock:a", 42).contains("43 does by now"));
        assert!(words(&Broken::Ungoverned, "lock:a", 42).contains("DEL at Redis"));
    }
}

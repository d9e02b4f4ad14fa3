//! `lockwarden policy rollout`: the differing answers of the chains that a running proxy evaluates beside those in force, and
//! the order that sets their clients.

use std::process::ExitCode;

use clap::Args;
use lockwarden_console::view::api::{Next, StageOrder};
use lockwarden_control::text::numbers::{number, utc};

use super::changed::changes_in_words;
use crate::cli::api_client::{ApiClient, ApiError, path};
use crate::cli::fleet::FleetArgs;
use crate::cli::output::{Output, plain};

#[derive(Args, Debug)]
pub(super) struct RolloutArgs {
    /// Whom they answer from now on: shadow, 10%, all, or back. Without it their answers are told
    stage: Option<String>,
    /// Only in this namespace
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    fleet: FleetArgs,
}

pub(super) fn rollout(args: &RolloutArgs) -> Result<ExitCode, ApiError> {
    let path = path(&["next"], &());
    let namespace = &args.namespace;
    let answers = args.fleet.ask(|client: &ApiClient| match &args.stage {
        Some(stage) => {
            let order = StageOrder { namespace: namespace.clone(), stage: stage.clone() };
            client.post::<Vec<Next>>(&path, &order)
        }
        None => client.get::<Vec<Next>>(&path),
    })?;
    args.output.print(&answers, |_| answers.parts(|nexts| in_words(nexts, namespace.as_deref()), ""))?;
    Ok(answers.end())
}

fn in_words(nexts: &[Next], namespace: Option<&str>) -> String {
    let wanted = nexts.iter().filter(|next| namespace.is_none_or(|name| name == next.namespace));
    let told: Vec<String> = wanted.map(one).collect();
    match told.is_empty() {
        true => {
            "Nothing is asked beside what is in force; [policy.next] and [namespace.next] say what is.\n".to_owned()
        }
        false => told.join("\n"),
    }
}

fn one(next: &Next) -> String {
    let otherwise: u64 = next.changes.iter().map(|change| change.questions).sum();
    let mut text = format!(
        "{}, stage {}: policies {}\nasked since {}; answers that are the same: {}, otherwise: {}\n",
        plain(&next.namespace),
        plain(&next.stage),
        plain(&next.policies.join(" ")),
        utc(next.since),
        number(next.same),
        number(otherwise),
    );
    if !next.changes.is_empty() {
        text.push_str(&format!("\n{}", changes_in_words(&next.changes)));
    }
    text
}

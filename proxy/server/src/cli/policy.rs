//! `lockwarden policy`: what policies come to, without a proxy and without Redis. `rules` looks at the rules of namespaces, `test`
//! and `run` ask a module, or the chain of a namespace, as the proxy would. Next: `policy/asking.rs`.

mod asking;
mod cases;
mod rules;

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use lockwarden_lock::decision::{Fence, Obligations, TakeOverRule};

use super::api_client::finish;
use crate::text::durations::toml_duration;

#[derive(Args, Debug)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Ask a module, or the policies of a namespace, what a file of cases says, and compare the answers
    Test(asking::TestArgs),
    /// Ask a module, or the policies of a namespace, about one request
    Run(asking::RunArgs),
    /// What the rules of a configuration come to: those that never or always refuse, or stand behind another one
    Rules(rules::RulesArgs),
}

/// Does what was asked.
pub(super) fn policy(args: &PolicyArgs) -> ExitCode {
    finish(match &args.command {
        PolicyCommand::Test(args) => asking::test(args),
        PolicyCommand::Run(args) => asking::run(args),
        PolicyCommand::Rules(args) => rules::rules_of(args),
    })
}

/// `permitted`, with what is asked for, spelt as case files and rules do.
fn wants_in_words(wants: &Obligations) -> String {
    let Obligations { ttl_default_ms, ttl_cap_ms, keep_alive_ms, max_hold_ms, require, fence, .. } = wants;
    let duration = |ms: &Option<u64>| ms.map(toml_duration);
    let mut words = "permitted".to_owned();
    for (key, wish) in [
        ("ttl_default", duration(ttl_default_ms)),
        ("ttl_cap", duration(ttl_cap_ms)),
        ("keep_alive", duration(keep_alive_ms)),
        ("max_hold", duration(max_hold_ms)),
        ("require", require.map(|proofs| proofs.words().collect::<Vec<_>>().join(","))),
        ("fence", fence_word(*fence).map(str::to_owned)),
        ("current_fence_only", wants.current_fence_only.then(|| "true".to_owned())),
        ("take_over", wants.take_over.map(|rule| take_over_word(rule).to_owned())),
    ] {
        if let Some(wish) = wish {
            let _ = write!(words, ", {key} {wish}");
        }
    }
    words
}

fn fence_word(fence: Fence) -> Option<&'static str> {
    match fence {
        Fence::None => None,
        Fence::Hybrid => Some("hybrid"),
        Fence::Sequential => Some("sequential"),
    }
}

fn take_over_word(rule: TakeOverRule) -> &'static str {
    match rule {
        TakeOverRule::Never => "never",
        TakeOverRule::AfterDeadline => "after-deadline",
    }
}

//! `lockwarden policy`: the effect of policies, without a proxy and without Redis. `rules` examines the rules of namespaces;
//! `test`, `bench` and `run` ask a module, or the chain of a namespace, as the proxy would. Next: `policy/asking.rs`.

mod asking;
mod building;
mod cases;
mod changed;
mod checking;
mod creating;
mod inspecting;
mod listing;
mod project;
mod replaying;
mod rollout;
mod rules;
mod source;
mod toml_file;
mod wording;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::api_client::finish;

#[derive(Args, Debug)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Make the folder of a policy to begin with, in one of several languages
    New(creating::NewArgs),
    /// Build the policy of a folder with the tool chain of its language
    Build(building::BuildArgs),
    /// Ask a module, or the policies of a namespace, what a file of cases says, and compare the answers
    Test(asking::TestArgs),
    /// Measure what the answers to a file of cases cost
    Bench(asking::BenchArgs),
    /// Ask a module, or the policies of a namespace, about one request
    Run(Box<asking::RunArgs>),
    /// Load the policies of a configuration as a proxy does, and tell what each judges and what it needs
    Check(checking::CheckArgs),
    /// The policies that ship with lockwarden, and what each judges
    List(listing::ListArgs),
    /// Tell what a module is, what it may call and its digest, and run nothing of it
    Inspect(inspecting::InspectArgs),
    /// Ask the policies of a configuration what an audit trail says that was asked, and tell what they answer otherwise
    Replay(replaying::ReplayArgs),
    /// What the policies that are asked beside those in force answer otherwise; and whom they answer
    Rollout(rollout::RolloutArgs),
    /// What the rules of a configuration come to: those that never or always refuse, or stand behind another one
    Rules(rules::RulesArgs),
}

/// Runs the subcommand.
pub(super) fn policy(args: &PolicyArgs) -> ExitCode {
    finish(match &args.command {
        PolicyCommand::New(args) => creating::create(args),
        PolicyCommand::Build(args) => building::build(args),
        PolicyCommand::Test(args) => asking::test(args),
        PolicyCommand::Bench(args) => asking::bench(args),
        PolicyCommand::Run(args) => asking::run(args),
        PolicyCommand::Check(args) => checking::check(args),
        PolicyCommand::List(args) => listing::list(args),
        PolicyCommand::Inspect(args) => inspecting::inspect(args),
        PolicyCommand::Replay(args) => replaying::replay(args),
        PolicyCommand::Rollout(args) => rollout::rollout(args),
        PolicyCommand::Rules(args) => rules::rules_of(args),
    })
}

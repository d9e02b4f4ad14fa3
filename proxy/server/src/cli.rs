//! The command line: its definitions and dispatch. The commands that ask a running proxy are in the modules below; the exit
//! codes are those of `app::exit_code`.

mod acl;
mod api_client;
mod arguments;
mod audit;
mod check;
mod clients;
mod config;
mod demo;
mod discover;
mod fleet;
mod generate;
mod lock;
mod locks;
mod orders;
mod output;
mod policy;
mod top;
mod version;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use lockwarden_control::config::Overrides;
use lockwarden_control::net::listener::Arrival;
use lockwarden_control::text::escape::readable_lines;

use crate::terminal::{self, complain};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::app::control::Source;
use crate::app::{self, exit_code};

/// Makes the locks of legacy applications safe: a proxy in front of Redis.
#[derive(Debug, Parser)]
#[command(name = "lockwarden", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the proxy
    Run {
        #[command(flatten)]
        settings: Settings,
        /// Take the addresses over from a proxy that runs and is to stop afterwards
        #[arg(long)]
        takeover: bool,
    },
    /// Check the configuration and the policies; with --backend also the server, with --fleet whether proxies have the
    /// same rules
    Check {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        args: check::CheckArgs,
    },
    /// Print, or set, ACL rules by which nobody who goes around lockwarden can touch locks
    Acl(acl::AclArgs),
    /// Tell the classic story: a late DEL without the proxy, and with it; with --guard that of a shop that sells items twice
    Demo(demo::DemoArgs),
    /// Who holds which lock, who waits, and ending a lease on purpose
    Locks(Box<locks::LocksArgs>),
    /// Watch locks, applications and refusals of a running proxy on a live screen
    Top(top::TopArgs),
    /// Who is connected to a running proxy, as whom, and which locks each holds and waits for
    Clients(clients::ClientsArgs),
    /// What is in force in a running proxy: every key of the configuration, and where its value came from; with --log which
    /// lines it logs, or have it log more or less
    Config(config::ConfigArgs),
    /// Switch a running proxy to enforce or monitor mode, for all namespaces or one
    Mode(orders::ModeArgs),
    /// Have a running proxy read its configuration again
    Reload(orders::ReloadArgs),
    /// Have a running proxy take no new clients, let those that are there finish, and end
    Drain(orders::DrainArgs),
    /// Print the admin token of a proxy on this machine, for orders by HTTP
    Token(orders::TokenArgs),
    /// Say what enforce mode would break, by application, and whether a namespace is ready for it
    Audit(audit::AuditArgs),
    /// Find the locks that no namespace has, and propose the configuration that would govern them
    Discover(discover::DiscoverArgs),
    /// One decision, in words: by the id of an error reply
    Why(why::WhyArgs),
    /// Run a command while holding a lock
    Lock(lock::LockArgs),
    /// What the policies of a configuration come to, without a proxy and without Redis
    Policy(policy::PolicyArgs),
    /// Print the script that completes commands in a shell
    Completions(generate::CompletionsArgs),
    /// Print the manual page
    Man(generate::ManArgs),
    /// Print what was built, and which policies it has
    Version(version::VersionArgs),
    /// Write the built-in policies as machine code, for a build that is to have it in it
    #[command(hide = true)]
    CompilePolicies(generate::CompilePoliciesArgs),
}

#[derive(Args, Debug)]
struct Settings {
    /// The configuration; without one lock:* is only watched
    #[arg(short, long, value_name = "FILE", env = "LOCKWARDEN_CONFIG")]
    config: Option<PathBuf>,
    /// Where clients connect, for example 127.0.0.1:6380
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The server, for example redis://127.0.0.1:6379, or "private"
    #[arg(long, value_name = "URL")]
    backend_url: Option<String>,
    /// Where the admin interface listens, or "off"
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// A second address for metrics and health only
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// auto, json, text or logfmt
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// enforce or monitor for all namespaces, or NAMESPACE=MODE for one
    #[arg(long, value_name = "MODE")]
    mode: Vec<String>,
}

impl Settings {
    fn source(self) -> Source {
        Source {
            file: self.config,
            overrides: Overrides {
                listen: self.listen,
                backend: self.backend_url,
                admin: self.admin,
                metrics: self.metrics,
                log_format: self.log_format,
                modes: self.mode,
            },
        }
    }
}

/// Runs the command line.
pub(crate) fn main() -> ExitCode {
    // A wrong command line exits with 2, as in our own exit codes.
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        let text = error.render().to_string();
        if readable_lines(&text) == text {
            error.exit();
        }
        // The text repeats the wrong word.
        complain!("{}", text.trim_end());
        std::process::exit(error.exit_code());
    });
    let end = match cli.command {
        Command::Run { settings, takeover } => {
            let arrival = match takeover {
                true => Arrival::TakingOver,
                false => Arrival::Alone,
            };
            app::run(settings.source(), arrival)
        }
        Command::Check { settings, args } => check::check(&settings.source(), &args),
        Command::Acl(args) => acl::acl(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Locks(args) => locks::locks(&args),
        Command::Top(args) => top::top(&args),
        Command::Clients(args) => clients::clients(&args),
        Command::Config(args) => config::config(&args),
        Command::Mode(args) => orders::mode(&args),
        Command::Reload(args) => orders::reload(&args),
        Command::Drain(args) => orders::drain(&args),
        Command::Token(args) => orders::token(&args),
        Command::Audit(args) => audit::audit(&args),
        Command::Discover(args) => discover::discover(&args),
        Command::Why(args) => why::why(&args),
        Command::Lock(args) => lock::lock(&args),
        Command::Policy(args) => policy::policy(&args),
        Command::Completions(args) => generate::completions(&args, Cli::command()),
        Command::Man(args) => generate::man(&args, Cli::command()),
        Command::Version(args) => version::version(&args),
        Command::CompilePolicies(args) => generate::compile_policies(&args),
    };
    match end == ExitCode::SUCCESS && terminal::has_lost() {
        true => exit_code::configuration(),
        false => end,
    }
}

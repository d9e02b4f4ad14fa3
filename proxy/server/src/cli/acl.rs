//! `lockwarden acl`: ACL rules that keep clients which bypass lockwarden away from lock keys and records. Prints the rules or
//! sets them; `barrier` defines them, `plan` decides their order and their users.

pub(super) mod barrier;
mod commands;
mod passwords;
mod plan;
pub(super) mod users;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use lockwarden_control::config::{self, Backend, Config, Secret};
use lockwarden_control::net::tls::Unobserved;
use lockwarden_control::ruleset::activate;
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::counted;
use lockwarden_dataplane::backend::{Address, BackendError, Conversation};
use lockwarden_dataplane::maintenance::ask_rights::{and_besides, lacking_to_own};
use lockwarden_lock::key_sets::KeySetError;
use lockwarden_resp::Value;

use super::api_client::{ApiError, finish, load_config};
use super::output;
use crate::app::exit_code;
use barrier::Barrier;
use commands::Commands;
use plan::{Plan, Situation, Step};
use users::User;

/// Users that are checked.
pub(super) const MAX_USERS: usize = 10_000;

#[derive(Args, Debug)]
pub(super) struct AclArgs {
    /// The configuration
    #[arg(short, long, value_name = "FILE", env = "LOCKWARDEN_CONFIG")]
    config: Option<PathBuf>,
    /// The login that may ask for users and change them, where lockwarden's own may not
    #[arg(long, value_name = "URL")]
    admin_url: Option<String>,
    /// Set the rules; without it they are only printed
    #[arg(long)]
    apply: bool,
    /// Have the server keep the rules over a restart: ACL SAVE, or CONFIG REWRITE where it has no ACL file
    #[arg(long, requires = "apply")]
    save: bool,
    /// Make the twins of `[[user_map]]`, and bar nobody yet
    #[arg(long)]
    only_twins: bool,
    /// Bar users that have no twin, too: through lockwarden they cannot take locks any more
    #[arg(long)]
    without_twin: bool,
}

/// Prints or sets the rules; exits with 1 if applications could still bypass lockwarden.
pub(super) fn acl(args: &AclArgs) -> ExitCode {
    finish(done(args))
}

fn done(args: &AclArgs) -> Result<ExitCode, ApiError> {
    let config = load_config(args.config.as_deref()).map_err(|error| ApiError::Usage(error.to_string()))?;
    let Backend::Redis(url) = &config.backend else {
        return Err(ApiError::Usage("the backend is private: nobody else has users there".to_owned()));
    };
    let address = |url, login| {
        let files = config.backend_tls.as_ref();
        let address = Address::new(url, login, files, Arc::new(Unobserved));
        address.map_err(|error| ApiError::Usage(format!("backend_tls: {error}")))
    };
    let own = address(url.clone(), config.backend_login.clone())?;
    let asks = match &args.admin_url {
        None => own.clone(),
        Some(text) => match config::parse_backend(text) {
            Ok(Backend::Redis(url)) => address(url, None)?,
            Ok(Backend::Private) => {
                return Err(ApiError::Usage("--admin-url: name a server".to_owned()));
            }
            Err(error) => return Err(ApiError::Usage(format!("--admin-url: {error}"))),
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ApiError::Usage(error.to_string()))?;
    runtime.block_on(async {
        let mut is_open = false;
        // The nodes of a cluster do not share their users, and a replica may be the primary tomorrow.
        for node in asks.nodes().await? {
            is_open |= work(args, &config, &own.at(&node), &node).await?;
        }
        Ok(match is_open {
            true => exit_code::findings(),
            false => ExitCode::SUCCESS,
        })
    })
}

/// Handles one server; returns whether applications could still bypass lockwarden on it.
async fn work(args: &AclArgs, config: &Config, own: &Address, asks: &Address) -> Result<bool, ApiError> {
    let mut server = asks.converse().await?;
    let users = match list(&mut server).await? {
        Listed::Users(users) => users,
        Listed::Refused(text) => {
            let who = asks.user().unwrap_or("default");
            return Err(ApiError::Usage(format!(
                "{who} may not ask ACL LIST: {}; name one who may by --admin-url",
                spell(text.as_bytes())
            )));
        }
    };
    let barrier = barrier(config, &mut server).await?;
    let plan = {
        let passwords = passwords(args, config)?;
        Plan::of(&Situation {
            config,
            barrier: &barrier,
            users: &users,
            own: own.user().unwrap_or("default"),
            own_lacks: own_lacks(config, own).await?,
            runs_as: asks.user().unwrap_or("default"),
            without_twin: args.without_twin,
            only_twins: args.only_twins,
            passwords: &passwords,
        })
        .map_err(unsayable)?
    };
    let mut text = format!(
        "# {asks}: {}, lock keys {}, records {}*\n",
        counted(users.len() as u64, "user", "users"),
        globs(config),
        spell(&config.companion_prefix)
    );
    let mut set = 0;
    for step in &plan.steps {
        text.push_str(&step.line());
        text.push('\n');
        if let (true, Step::Set { user, rules, .. }) = (args.apply, step) {
            set_user(&mut server, user, rules).await?;
            set += 1;
        }
    }
    text.push_str(&match (args.apply, set) {
        (false, _) if plan.steps.iter().any(|step| matches!(step, Step::Set { .. })) => {
            "# nothing was changed; --apply sets these rules\n".to_owned()
        }
        (_, 0) => "# nothing is to be changed\n".to_owned(),
        (_, set) => format!("# {} set\n", counted(set, "user", "users")),
    });
    if args.apply && set > 0 {
        text.push_str(match args.save {
            true => save(&mut server).await?,
            false => "# the server forgets that when it restarts: type ACL SAVE, or CONFIG REWRITE where it has no ACL file\n",
        });
    }
    output::print(&text)?;
    Ok(plan.is_open)
}

/// The reply to `ACL LIST`.
pub(super) enum Listed {
    Users(Vec<User>),
    /// The asking user has no right to it.
    Refused(String),
}

/// All users of the server.
pub(super) async fn list(server: &mut Conversation) -> Result<Listed, BackendError> {
    Ok(match server.ask(&["ACL", "LIST"]).await? {
        Value::Error(text) => Listed::Refused(String::from_utf8_lossy(&text).into_owned()),
        answer => {
            let lines = answer.as_items().unwrap_or_default().iter().take(MAX_USERS);
            let lines = lines.filter_map(Value::as_bytes);
            Listed::Users(lines.filter_map(User::read).collect())
        }
    })
}

/// The barrier for this configuration on this server.
pub(super) async fn barrier(config: &Config, server: &mut Conversation) -> Result<Barrier, ApiError> {
    let info = server.ask(&["INFO", "server"]).await?;
    let info = info.as_bytes().map(|info| String::from_utf8_lossy(info).into_owned());
    let info = info.unwrap_or_default();
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    // A server without a version counts as new: an old server refuses what it does not know, with an error.
    let is_since_7 = major.is_none_or(|major| major >= 7);
    let commands = Commands::ask(server).await?;
    let commands =
        commands.ok_or_else(|| ApiError::Usage("who asks for users has to be allowed ACL CAT, too".to_owned()))?;
    Barrier::new(config, is_since_7, commands).map_err(unsayable)
}

fn unsayable(error: KeySetError) -> ApiError {
    ApiError::Usage(format!(
        "what is left beside the lock keys cannot be said in ACL patterns: {error}; give locks fewer beginnings, or list the \
         application's own keys by hand (docs/rights.md)"
    ))
}

/// The passwords of the twins, in the order of the configuration. Missing ones are created when rules are set.
fn passwords(args: &AclArgs, config: &Config) -> Result<Vec<Option<Secret>>, ApiError> {
    let one = |mapping: &config::UserMapping| match (&mapping.password, args.apply) {
        (Some(password), _) => Ok(Some(password.clone())),
        (None, false) => Ok(None),
        (None, true) => {
            let file = mapping.password_file.display();
            let made = passwords::make(&mapping.password_file);
            made.map(Some).map_err(|error| {
                ApiError::Usage(format!("no password for twin {} can be written to {file}: {error}", mapping.twin))
            })
        }
    };
    config.user_map.iter().map(one).collect()
}

/// The rights that lockwarden's own user lacks, as rules.
async fn own_lacks(config: &Config, own: &Address) -> Result<Option<String>, ApiError> {
    let mut conversation = own.converse().await?;
    let namespaces = activate::namespaces(config);
    let prefix = &config.companion_prefix;
    let missing = lacking_to_own(&mut conversation, &namespaces, prefix, false).await?;
    let missing = and_besides(&mut conversation, config, missing).await?;
    Ok(missing.map(|missing| missing.rules(prefix)).filter(|rules| !rules.is_empty()))
}

async fn set_user(server: &mut Conversation, user: &Bytes, rules: &[Bytes]) -> Result<(), ApiError> {
    let mut words: Vec<&[u8]> = vec![b"ACL", b"SETUSER", user];
    words.extend(rules.iter().map(|rule| &rule[..]));
    match server.ask(&words).await? {
        Value::Error(text) => Err(ApiError::Usage(format!(
            "the server did not change user {}: {}; what stands above it is in force",
            spell(user),
            spell(&text)
        ))),
        _ => Ok(()),
    }
}

async fn save(server: &mut Conversation) -> Result<&'static str, ApiError> {
    if !matches!(server.ask(&["ACL", "SAVE"]).await?, Value::Error(_)) {
        return Ok("# saved to the ACL file\n");
    }
    match server.ask(&["CONFIG", "REWRITE"]).await? {
        Value::Error(text) => Err(ApiError::Usage(format!(
            "the rules are in force, but were not saved: the server has no ACL file, and says to CONFIG REWRITE: {}",
            spell(&text)
        ))),
        _ => Ok("# saved to the server's configuration file\n"),
    }
}

/// The patterns of lock keys.
fn globs(config: &Config) -> String {
    let namespaces = config.namespaces.iter();
    let globs: Vec<String> = namespaces.flat_map(|namespace| &namespace.keys).map(|glob| spell(glob)).collect();
    globs.join(" ")
}

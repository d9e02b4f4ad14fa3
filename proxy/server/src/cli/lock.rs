//! `lockwarden lock`: runs a command while holding a lock. It takes, extends and releases the lock as a good lock library does,
//! with commands that every Redis knows, so it works through the proxy and without it. It tells the command to end as soon as
//! the lease is no longer reliable. `lease.rs` talks to Redis, `child.rs` to the process.

mod child;
mod lease;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lockwarden_control::clock;
use lockwarden_control::config;
use lockwarden_control::config::{
    Backend, BackendLogin, BackendUrl, BackendUrlError, ListenAddress, Listener, Secret, Target, Unusable,
};
use lockwarden_control::net::tls::{BackendFiles, TlsError, Unobserved};
use lockwarden_control::text::escape::spell;
use lockwarden_dataplane::backend::Address;
use lockwarden_dataplane::session::commands::lease_questions::IN_NO_NAMESPACE;
use tokio::time::Instant;

use super::api_client::load_config;
use super::arguments::parse_duration;
use super::output::{duration, plain};
use crate::app::exit_code;
use crate::terminal::complain;
use child::{Child, Secrets, Signals};
use lease::{Failure, Lease, Lost, Returned};

/// The shortest lease that can be extended in time on an ordinary network.
const MIN_TTL: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub(super) struct LockArgs {
    /// The lock
    key: OsString,
    /// How long the lock outlives this command if the machine dies; extended while the command runs
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    ttl: Duration,
    /// How long to try while somebody else holds the lock; 0s: once
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,
    /// Between SIGTERM, when the lock is lost, and SIGKILL
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    grace: Duration,
    /// The proxy or the Redis to use: HOST:PORT or redis://user@host:port/db, the password in
    /// REDISCLI_AUTH; without it the proxy of the configuration
    #[arg(long, value_name = "ADDRESS", conflicts_with = "backend")]
    connect: Option<String>,
    /// Around the proxy: the backend of the configuration
    #[arg(long)]
    backend: bool,
    /// How the connection calls itself (CLIENT SETNAME); without it the name of the command
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Let the command have what this one logs in with: LOCKWARDEN_ADMIN_TOKEN,
    /// LOCKWARDEN_BACKEND_PASSWORD, REDISCLI_AUTH, a LOCKWARDEN_BACKEND with a password
    #[arg(long)]
    hand_on_secrets: bool,
    /// The configuration of the proxy
    #[arg(short, long, value_name = "FILE", env = "LOCKWARDEN_CONFIG")]
    config: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command under the lock; returns its exit code.
pub(super) fn lock(args: &LockArgs) -> ExitCode {
    if args.ttl < MIN_TTL {
        complain!("lockwarden: --ttl: shorter than {} is over before it can be extended", said(MIN_TTL));
        return exit_code::configuration();
    }
    let address = match address(args) {
        Ok(address) => address,
        Err(wrong) => {
            complain!("lockwarden: {wrong}");
            return exit_code::configuration();
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map(|runtime| runtime.block_on(story(args, address))) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) | Err(error) => {
            complain!("lockwarden: {error}");
            exit_code::configuration()
        }
    }
}

async fn story(args: &LockArgs, address: Address) -> io::Result<ExitCode> {
    let key = plain(&spell(args.key.as_bytes())).into_owned();
    let mut signals = Signals::listen()?;
    let mut lease = Lease::new(address, args.key.as_bytes(), args.ttl, &name(args));
    let taken = tokio::select! {
        taken = lease.take(args.wait) => taken,
        signal = signals.next() => {
            // It may have been granted at this very moment.
            lease.give_back().await;
            return Ok(exit_code::after_signal(signal));
        }
    };
    match taken {
        Ok(true) => {}
        Ok(false) => {
            complain!("lockwarden: {key} is held by somebody else{}", waited(args.wait));
            return Ok(exit_code::wait_is_over());
        }
        Err(failure) => {
            complain!("lockwarden: {key}: {failure}");
            return Ok(match failure {
                Failure::Unreachable(_) => exit_code::unreachable(),
                Failure::Refused(_) => exit_code::findings(),
            });
        }
    }
    let fence = lease.fence().await;
    if fence.is_none() && lease.is_in_no_namespace().await {
        complain!(
            "lockwarden: {key} {IN_NO_NAMESPACE} of the proxy: it governs this key as little as any other, and the lock has no fencing token"
        );
    }
    let secrets = match args.hand_on_secrets {
        true => Secrets::HandedOn,
        false => Secrets::Withheld,
    };
    let mut child = match Child::start(&args.command, fence, secrets) {
        Ok(child) => child,
        Err(error) => {
            lease.give_back().await;
            let program = Path::new(&args.command[0]).display();
            complain!("lockwarden: cannot run {program}: {error}");
            return Ok(exit_code::not_started(&error));
        }
    };
    let (status, lost) = attend(&mut child, &mut lease, &mut signals, args.grace, &key).await?;
    if lost {
        return Ok(exit_code::findings());
    }
    Ok(match lease.give_back().await {
        Returned::Done => exit_code::after(status),
        Returned::Unknown(error) => {
            complain!("lockwarden: {key} could not be given back ({error}); it ends by its TTL");
            exit_code::after(status)
        }
        Returned::Lost => {
            complain!("lockwarden: {key} was lost before the command had ended");
            match status.success() {
                true => exit_code::findings(),
                false => exit_code::after(status),
            }
        }
    })
}

/// Waits until the command has ended; returns whether the lease was lost before.
async fn attend(
    child: &mut Child,
    lease: &mut Lease,
    signals: &mut Signals,
    grace: Duration,
    key: &str,
) -> io::Result<(std::process::ExitStatus, bool)> {
    let mut kill_at = None;
    loop {
        let keeping = async {
            match kill_at {
                None => lease.keep(key).await,
                Some(_) => std::future::pending().await,
            }
        };
        let killing = async {
            match kill_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = child.ended() => return Ok((status?, kill_at.is_some())),
            signal = signals.next() => child.forward(signal),
            lost = keeping => {
                complain!("lockwarden: {key}: {}; the command is told to end", why(&lost));
                child.signal(libc::SIGTERM);
                kill_at = Some(Instant::now() + grace);
            }
            () = killing => {
                complain!("lockwarden: the command has not ended within {}; killed", said(grace));
                child.signal(libc::SIGKILL);
                return Ok((child.ended().await?, true));
            }
        }
    }
}

fn why(lost: &Lost) -> String {
    match lost {
        Lost::Gone => "the lock is not ours any more".to_owned(),
        Lost::Unrenewed(error) => format!("the lock could not be extended in time ({error})"),
    }
}

fn waited(wait: Duration) -> String {
    match wait.is_zero() {
        true => String::new(),
        false => format!(" (waited {})", said(wait)),
    }
}

fn said(time: Duration) -> String {
    duration(clock::ms(time))
}

/// Redis allows no blanks and line ends in a name.
fn name(args: &LockArgs) -> String {
    let given = args.name.clone().unwrap_or_else(|| {
        let program = Path::new(&args.command[0]);
        let name = program.file_name().unwrap_or(program.as_os_str());
        name.to_string_lossy().into_owned()
    });
    given.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect()
}

/// Why there is no address for taking the lock.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    #[error("--connect: {0}")]
    Url(BackendUrlError),
    #[error("--connect: a private Redis has no fixed address")]
    ConnectToPrivate,
    #[error("--backend: the backend is private, so its address is the proxy's secret")]
    BackendIsPrivate,
    #[error(
        "the backend is a whole cluster: take the lock through the proxy, without --backend, or name the proxy with --connect"
    )]
    BackendIsCluster,
    #[error("the configuration lets the system choose the port; name it with --connect")]
    PortChosenBySystem,
    #[error("every listener wants TLS; name the proxy by its certificate with --connect rediss://host:port")]
    OnlyTls,
    #[error("TLS: {0}")]
    Tls(TlsError),
    #[error(transparent)]
    Configuration(#[from] Unusable),
}

fn address(args: &LockArgs) -> Result<Address, AddressError> {
    let (mut url, login, files) = match &args.connect {
        Some(text) => (connect_to(text)?, None, None),
        None => configured(args)?,
    };
    if let (None, None, Ok(password)) = (&login, &url.password, std::env::var("REDISCLI_AUTH"))
        && !password.is_empty()
    {
        url.password = Some(Secret::new(password));
    }
    let address = Address::new(url, login, files.as_ref(), Arc::new(Unobserved));
    address.map_err(AddressError::Tls)
}

fn connect_to(text: &str) -> Result<BackendUrl, AddressError> {
    let whole = match text.contains("://") {
        true => text.to_owned(),
        false => format!("redis://{text}"),
    };
    match config::parse_backend(&whole) {
        Ok(Backend::Redis(BackendUrl { target: Target::Cluster(_), .. })) => Err(AddressError::BackendIsCluster),
        Ok(Backend::Redis(url)) => Ok(url),
        Ok(Backend::Private) => Err(AddressError::ConnectToPrivate),
        Err(wrong) => Err(AddressError::Url(wrong)),
    }
}

/// A server, the login, and the files that verify it.
type Configured = (BackendUrl, Option<BackendLogin>, Option<BackendFiles>);

/// The proxy's own address with the login of its backend, which is the same server; or the backend itself.
fn configured(args: &LockArgs) -> Result<Configured, AddressError> {
    let config = load_config(args.config.as_deref())?;
    let backend = match config.backend {
        Backend::Redis(url) => Some(url),
        Backend::Private => None,
    };
    if args.backend {
        let backend = backend.ok_or(AddressError::BackendIsPrivate)?;
        if let Target::Cluster(_) = backend.target {
            return Err(AddressError::BackendIsCluster);
        }
        return Ok((backend, config.backend_login, config.backend_tls));
    }
    // The proxy's certificate is known, but not the authority that clients trust.
    let leads_there = |listener: &&Listener| listener.present.has_data();
    let plain = config.listeners.iter().find(|listener| leads_there(listener) && !listener.tls);
    let target = match plain.map(|first| &first.address) {
        Some(ListenAddress::Tcp(address)) if address.port() != 0 => {
            let ip = address.ip();
            let host = match (ip.is_unspecified(), ip.is_ipv4()) {
                (true, true) => "127.0.0.1".to_owned(),
                (true, false) => "::1".to_owned(),
                (false, _) => ip.to_string(),
            };
            Target::Tcp { host, port: address.port() }
        }
        Some(ListenAddress::Tcp(_)) => return Err(AddressError::PortChosenBySystem),
        None => return Err(AddressError::OnlyTls),
        Some(ListenAddress::Unix(path)) => Target::Unix(path.clone()),
    };
    let url = match backend {
        Some(backend) => BackendUrl { target, tls: false, ..backend },
        None => BackendUrl::at(target),
    };
    Ok((url, config.backend_login, None))
}

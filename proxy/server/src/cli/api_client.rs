//! The HTTP client for all commands that ask a running proxy at its admin address. It finds that address, sends the token with
//! an order and turns a failed request into an error; the types of the replies are [`lockwarden_console::view::api`]. One
//! request per connection, as the admin address serves them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use lockwarden_console::admin::token_file;
use lockwarden_console::view::api::in_address;
use lockwarden_control::config;
use lockwarden_control::config::{Overrides, Report, Secret};
use lockwarden_control::ruleset::load_policies;
use lockwarden_control::text::numbers::percent;
use lockwarden_dataplane::backend::BackendError;
use lockwarden_policy::{Generation, PolicyHost};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::app::control::Source;
use crate::app::exit_code;
use crate::terminal::complain;

/// The limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// The limit for a whole reply; the admin address gives up after 20 seconds.
const ANSWER: Duration = Duration::from_secs(25);
/// The longest reply, bytes: the list of a hundred thousand locks is shorter.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// Characters shown of a reply that is not from lockwarden.
const SHOWN: usize = 200;

/// Where the proxy is that a command asks.
#[derive(Args, Clone, Debug)]
pub(super) struct ApiArgs {
    /// The proxy's admin address, for example 127.0.0.1:9180 or proxy.internal:9180; without
    /// it what the configuration says
    #[arg(long, value_name = "URL", env = "LOCKWARDEN_ADMIN")]
    admin: Option<String>,
    /// A file with the admin token; else LOCKWARDEN_ADMIN_TOKEN, else what the configuration says, else the
    /// file that the proxy keeps on this machine
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// The configuration of the proxy
    #[arg(short, long, value_name = "FILE", env = "LOCKWARDEN_CONFIG")]
    config: Option<PathBuf>,
}

impl ApiArgs {
    /// The same, for the proxy at another address.
    pub(super) fn at(&self, admin: &str) -> ApiArgs {
        ApiArgs { admin: Some(admin.to_owned()), ..self.clone() }
    }

    /// The proxy for a command with its own flags: as they say, otherwise as the environment says.
    pub(super) fn of(admin: Option<&str>, config: Option<&Path>) -> ApiArgs {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let said = || variable("LOCKWARDEN_ADMIN")?.into_string().ok();
        let named = || variable("LOCKWARDEN_CONFIG").map(PathBuf::from);
        ApiArgs {
            admin: admin.map(str::to_owned).or_else(said),
            admin_token_file: None,
            config: config.map(Path::to_owned).or_else(named),
        }
    }

    /// The named configuration.
    pub(super) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }
}

/// Why there is no reply. The variants differ in their exit codes.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// The command line or the configuration is wrong.
    #[error("{0}")]
    Usage(String),
    /// The command line and the configuration name no address to ask.
    #[error(transparent)]
    Address(#[from] AdminAddressError),
    /// The address does not reply; an order that was sent may have been carried out.
    #[error("the admin address {address} cannot be reached: {source}")]
    Unreachable {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The requested object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The proxy refused.
    #[error("the proxy refused ({status}): {text}")]
    Refused {
        /// Its status.
        status: u16,
        /// Its words.
        text: String,
    },
    /// The server behind the proxy cannot be asked.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// It could be asked, but is not, for a reason.
    #[error("{0}")]
    Declined(String),
    /// Not a lockwarden, or one of another version.
    #[error("{address} answers what no lockwarden of this version answers: {text}")]
    Foreign {
        /// As it was given.
        address: String,
        /// What is wrong.
        text: String,
    },
}

impl ApiError {
    /// The exit code.
    pub(super) fn exit(&self) -> ExitCode {
        match self {
            ApiError::Usage(_) | ApiError::Address(_) => exit_code::configuration(),
            ApiError::Unreachable { .. } | ApiError::Foreign { .. } | ApiError::Backend(_) => exit_code::unreachable(),
            ApiError::NotFound(_) | ApiError::Refused { .. } | ApiError::Declined(_) => exit_code::findings(),
        }
    }
}

/// Why there is no admin address to ask.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminAddressError {
    #[error("--admin: {0:?} is no address; write for example 127.0.0.1:9180 or http://proxy.internal:9180")]
    Unreadable(String),
    #[error("--admin: the admin address speaks http:// only, without TLS")]
    Tls,
    #[error("--admin: the admin address is off (LOCKWARDEN_ADMIN)")]
    Off,
    #[error("the configuration has no admin address (admin = \"off\"); name one with --admin")]
    NotConfigured,
    #[error("the configuration lets the system choose the admin port; name it with --admin")]
    ChosenBySystem,
}

/// One proxy's admin address.
pub(super) struct ApiClient {
    place: Place,
    token: Option<Secret>,
    runtime: tokio::runtime::Runtime,
}

/// Host and port, for the connection and for the `Host` header.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    host: String,
    port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl ApiClient {
    /// The proxy of the command line. Does not connect yet.
    pub(super) fn new(args: &ApiArgs) -> Result<ApiClient, ApiError> {
        let given = args.admin.as_deref().filter(|text| !text.is_empty());
        let token = given_token(args)?;
        // With both set the configuration is not read, so that a broken one does no harm.
        let config = match (given, &token) {
            (Some(_), Some(_)) => None,
            (Some(_), None) if args.config.is_none() => None,
            _ => Some(load(args)?),
        };
        let place = match given {
            Some(text) => place(text)?,
            None => configured(config.as_ref())?,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ApiError::Usage(error.to_string()))?;
        let token = token
            .or_else(|| config.and_then(|config| config.admin_token))
            .or_else(|| token_file::read(&place.host, place.port));
        Ok(ApiClient { place, token, runtime })
    }

    /// The admin token, for `lockwarden token`.
    pub(super) fn token(&self) -> Result<&Secret, ApiError> {
        self.token.as_ref().ok_or_else(|| {
            let address = &self.place;
            ApiError::Usage(format!(
                "this needs the admin token of the proxy at {address}: --admin-token-file, \
                 LOCKWARDEN_ADMIN_TOKEN or the configuration. A proxy whose configuration has none keeps \
                 one in a file that only its own user can read, and logs at the start where"
            ))
        })
    }

    /// Its address, for messages.
    pub(super) fn address(&self) -> String {
        self.place.to_string()
    }

    /// Sends a GET. `path` is made with [`path`].
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        let (status, body) = self.send(Method::GET, path, None)?;
        match status.is_success() {
            true => self.read(status, &body),
            false => Err(self.problem(status, &body)),
        }
    }

    /// Sends an order. Its result is a reply, whatever the status.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, order: &impl Serialize) -> Result<T, ApiError> {
        let body = serde_json::to_vec(order).map_err(|error| ApiError::Usage(error.to_string()))?;
        self.token()?;
        let (status, body) = self.send(Method::POST, path, Some(body))?;
        self.read(status, &body)
    }

    fn send(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<(StatusCode, Bytes), ApiError> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.place.to_string());
        if let (Some(token), true) = (&self.token, body.is_some()) {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| ApiError::Usage(error.to_string()))?;
        self.runtime
            .block_on(async {
                tokio::time::timeout(ANSWER, exchange(&self.place, request))
                    .await
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            })
            .map_err(|source| ApiError::Unreachable { address: self.address(), source })
    }

    fn read<T: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> Result<T, ApiError> {
        match serde_json::from_slice(body) {
            Ok(answer) => Ok(answer),
            Err(error) if status.is_success() => {
                Err(ApiError::Foreign { address: self.address(), text: error.to_string() })
            }
            Err(_) => Err(self.problem(status, body)),
        }
    }

    /// The text of `{"error": …}`, which every refusal of lockwarden contains.
    fn problem(&self, status: StatusCode, body: &[u8]) -> ApiError {
        #[derive(serde::Deserialize)]
        struct Problem {
            error: String,
        }
        match serde_json::from_slice::<Problem>(body) {
            Ok(Problem { error }) if status == StatusCode::NOT_FOUND => ApiError::NotFound(error),
            Ok(Problem { error }) if status == StatusCode::BAD_REQUEST => ApiError::Usage(error),
            Ok(Problem { error }) => ApiError::Refused { status: status.as_u16(), text: error },
            Err(_) => ApiError::Foreign {
                address: self.address(),
                text: format!("{status}, {}", String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).trim()),
            },
        }
    }
}

async fn exchange(place: &Place, request: Request<Full<Bytes>>) -> io::Result<(StatusCode, Bytes)> {
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect((place.host.as_str(), place.port)))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // This task drives the request; the request notices its end.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(io::Error::other)?;
    Ok((status, body.to_bytes()))
}

/// Returns the exit code of the reply, or prints the error and returns its exit code.
pub(super) fn finish(done: Result<ExitCode, ApiError>) -> ExitCode {
    done.unwrap_or_else(|error| {
        complain!("lockwarden: {error}");
        error.exit()
    })
}

/// A path below `/api/v1/`: the segments and the query.
pub(super) fn path(segments: &[&str], query: &impl Serialize) -> String {
    let mut path = "/api/v1".to_owned();
    for segment in segments {
        path.push('/');
        path.push_str(&percent(segment));
    }
    path + &in_address(query)
}

fn given_token(args: &ApiArgs) -> Result<Option<Secret>, ApiError> {
    if let Some(file) = &args.admin_token_file {
        return config::admin_token_in(file)
            .map(Some)
            .map_err(|wrong| ApiError::Usage(format!("--admin-token-file: {wrong}")));
    }
    match std::env::var("LOCKWARDEN_ADMIN_TOKEN") {
        Ok(text) if !text.is_empty() => config::admin_token(&text)
            .map(Some)
            .map_err(|wrong| ApiError::Usage(format!("LOCKWARDEN_ADMIN_TOKEN: the text {wrong}"))),
        Ok(_) | Err(_) => Ok(None),
    }
}

fn load(args: &ApiArgs) -> Result<config::Config, ApiError> {
    load_config(args.config.as_deref()).map_err(|report| {
        ApiError::Usage(format!("{report}\nwith --admin and --admin-token-file the configuration is not needed"))
    })
}

/// The configuration, or what is wrong with it.
pub(super) fn load_config(file: Option<&Path>) -> Result<config::Config, config::Unusable> {
    let source = Source { file: file.map(Path::to_owned), overrides: Overrides::default() };
    source.load().usable()
}

/// The host into which policies are loaded.
pub(super) fn policy_host() -> Result<PolicyHost, ApiError> {
    PolicyHost::new().map_err(|error| ApiError::Usage(error.to_string()))
}

/// The configuration, and its policies in a host as the proxy would load them.
pub(super) fn load_policies_of(file: &Path) -> Result<(PolicyHost, config::Config, Arc<Generation>), ApiError> {
    let config = load_config(Some(file)).map_err(|wrong| ApiError::Usage(wrong.to_string()))?;
    let host = policy_host()?;
    let loaded = load_policies::load(&host, &config);
    let generation = loaded.map_err(|wrong| ApiError::Usage(Report(&wrong).to_string()))?;
    Ok((host, config, generation))
}

fn configured(config: Option<&config::Config>) -> Result<Place, AdminAddressError> {
    let address = config.and_then(|config| config.admin).ok_or(AdminAddressError::NotConfigured)?;
    let ip = address.ip();
    // A server that listens everywhere is also on this machine.
    let host = match (ip.is_unspecified(), ip.is_ipv4()) {
        (true, true) => "127.0.0.1".to_owned(),
        (true, false) => "::1".to_owned(),
        (false, _) => ip.to_string(),
    };
    match address.port() {
        0 => Err(AdminAddressError::ChosenBySystem),
        port => Ok(Place { host, port }),
    }
}

/// `http://host:port`, `host:port` or `[::1]:port`.
fn place(text: &str) -> Result<Place, AdminAddressError> {
    let wrong = || AdminAddressError::Unreadable(text.to_owned());
    let authority = match text.split_once("://") {
        Some(("http", rest)) => rest.trim_end_matches('/'),
        Some(("https", _)) => return Err(AdminAddressError::Tls),
        Some(_) => return Err(wrong()),
        None if text == "off" => return Err(AdminAddressError::Off),
        None => text,
    };
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .filter(|host| host.parse::<std::net::Ipv6Addr>().is_ok())
        .or((!host.contains(':')).then_some(host))
        .ok_or_else(wrong)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if host.is_empty() || !host.bytes().all(plain) {
        return Err(wrong());
    }
    Ok(Place { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_people_write_it() {
        for (text, shown) in [
            ("127.0.0.1:9180", "127.0.0.1:9180"),
            ("http://proxy.internal:80/", "proxy.internal:80"),
            ("[::1]:9180", "[::1]:9180"),
            ("http://[::1]:9180", "[::1]:9180"),
        ] {
            assert_eq!(place(text).unwrap().to_string(), shown);
        }
        for text in [
            "",
            "off",
            "9180",
            ":9180",
            "localhost",
            "::1:9180",
            "[x]:1",
            "host:0",
            "host:99999",
            "https://host:1",
            "ftp://host:1",
            "a b:1",
            "user@host:1",
            "host:1/path",
        ] {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_in_a_path_stays_one_segment() {
        assert_eq!(
            path(&["locks", "lock:a/b?c=d&e ü\\x00"], &[("db", "1"), ("contains", "a&b c")].as_slice()),
            "/api/v1/locks/lock%3Aa%2Fb%3Fc%3Dd%26e%20%C3%BC%5Cx00?db=1&contains=a%26b+c"
        );
    }
}

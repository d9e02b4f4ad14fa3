//! Where the backend is: its name is looked up for every connection, and of several addresses the primary's
//! is taken.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use arc_swap::ArcSwapOption;
use lockwarden_resp::Protocol;
use tokio::net::{TcpStream, UnixStream};

use super::conversation::{BackendError, Conversation, PATIENCE};
use super::own_login::{Fresh, OwnLogin};
use super::profile::{Login, Profile};
use super::server_info::role::{Role, RoleQuestion};
use crate::config::{BackendLogin, BackendUrl, Target};
use crate::net::listener;
use crate::net::stream::Stream;
use crate::telemetry::metrics::Metrics;

/// Addresses of the backend's name that are tried.
const MAX_ADDRESSES: usize = 16;

/// Where the backend is.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) url: BackendUrl,
    /// How the proxy's own connections log in, where the URL does not say it.
    login: Option<Arc<OwnLogin>>,
    /// Where a name has several addresses: which of them was the primary when it was asked last.
    primary: Arc<ArcSwapOption<Home>>,
}

/// One place where the backend may be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Home {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Home {
    async fn connect(&self) -> io::Result<Stream> {
        match self {
            Home::Tcp(address) => TcpStream::connect(address).await.map(Stream::Tcp),
            Home::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl Address {
    pub(crate) fn new(url: BackendUrl, login: Option<BackendLogin>) -> Address {
        Address {
            url,
            login: login.map(|login| Arc::new(OwnLogin::new(login))),
            primary: Arc::default(),
        }
    }

    /// Connects. The name is looked up every time, so a backend that moved is found.
    pub(crate) async fn connect(&self) -> Result<Stream, BackendError> {
        let homes = self.homes().await?;
        let known = self.primary.load_full();
        self.connect_to_first(to_try(&homes, known.as_deref()))
            .await
    }

    /// All addresses of the name, or the one path.
    async fn homes(&self) -> Result<Vec<Home>, BackendError> {
        let target = match &self.url.target {
            Target::Tcp { host, port } => (host.as_str(), *port),
            Target::Unix(path) => return Ok(vec![Home::Unix(path.clone())]),
        };
        match tokio::time::timeout(PATIENCE, tokio::net::lookup_host(target)).await {
            Ok(Ok(found)) => Ok(found.take(MAX_ADDRESSES).map(Home::Tcp).collect()),
            Ok(Err(source)) => Err(self.unreachable(source)),
            Err(_) => Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Connects to the first of these that listens.
    async fn connect_to_first(&self, homes: &[Home]) -> Result<Stream, BackendError> {
        // All addresses together may take as long as one would.
        let each = PATIENCE / u32::try_from(homes.len().max(1)).unwrap_or(u32::MAX);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for home in homes {
            match tokio::time::timeout(each, home.connect()).await {
                Ok(Ok(stream)) => {
                    let prepared = listener::prepare_backend(&stream);
                    prepared.map_err(|source| self.unreachable(source))?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(self.unreachable(last))
    }

    /// Connects, and says what connections of this kind say first.
    pub(super) async fn introduced(&self, profile: &Profile) -> Result<Stream, BackendError> {
        Ok(self.converse_as(profile).await?.stream)
    }

    /// The same for a question of the proxy's own.
    pub(crate) async fn converse_as(
        &self,
        profile: &Profile,
    ) -> Result<Conversation, BackendError> {
        let stream = self.connect().await?;
        let mut conversation = Conversation::new(stream);
        if let Some(Login { user, password }) = &profile.login {
            conversation.log_in(user, password).await?;
        }
        if profile.db != 0 {
            let db = profile.db.to_string();
            let selected = conversation.must(&[b"SELECT", db.as_bytes()]).await;
            // `must` calls every refusal one of the login; this one is about the database.
            selected.map_err(|error| match error {
                BackendError::Login(text) => BackendError::Database {
                    db: profile.db,
                    text,
                },
                other => other,
            })?;
        }
        if profile.protocol == Protocol::Resp3 {
            conversation.must(&[b"HELLO", b"3"]).await?;
        }
        Ok(conversation)
    }

    fn unreachable(&self, source: io::Error) -> BackendError {
        BackendError::Connect {
            address: self.to_string(),
            source,
        }
    }

    /// Who the proxy's own connection is, where the URL says so.
    pub(crate) fn user(&self) -> Option<&str> {
        if let Some(login) = &self.login {
            return Some(login.user());
        }
        let user = self.url.user.as_deref().unwrap_or("default");
        self.url.password.as_ref().map(|_| user)
    }

    /// A connection of the proxy's own, logged in as the URL says.
    pub(crate) async fn converse(&self) -> Result<Conversation, BackendError> {
        let stream = self.connect().await?;
        self.log_in(stream).await
    }

    async fn log_in(&self, stream: Stream) -> Result<Conversation, BackendError> {
        let mut conversation = Conversation::new(stream);
        let password = match &self.login {
            Some(login) => {
                conversation.logged_in_with = login.fresh().map_or(0, |fresh| fresh.number);
                Some(login.password().await?)
            }
            None => self.url.password.clone(),
        };
        if let (Some(user), Some(password)) = (self.user(), password) {
            let password = password.expose();
            conversation
                .log_in(user.as_bytes(), password.as_bytes())
                .await?;
        }
        Ok(conversation)
    }

    /// The same with the primary, of all addresses that the name has; and the question by which it
    /// tells its role. Clients are led to that address from now on, as long as the name has it.
    pub(crate) async fn converse_with_primary(
        &self,
    ) -> Result<(Conversation, RoleQuestion), BackendError> {
        let homes = self.homes().await?;
        self.find_primary(&homes).await
    }

    async fn find_primary(
        &self,
        homes: &[Home],
    ) -> Result<(Conversation, RoleQuestion), BackendError> {
        let (mut failure, mut silent) = (None, None);
        for home in homes {
            let mut question = RoleQuestion::Hello;
            let asked = async {
                let stream = self.connect_to_first(std::slice::from_ref(home)).await?;
                let mut own = self.log_in(stream).await?;
                let role = question.ask(&mut own).await?;
                Ok((own, role))
            };
            match asked.await {
                Ok((own, Role::Primary)) => {
                    self.primary.store(Some(Arc::new(home.clone())));
                    return Ok((own, question));
                }
                Ok((own, Role::Unknown)) => silent = silent.or(Some((own, question))),
                Ok((_, Role::Replica)) => failure = Some(BackendError::Replica),
                // What a replica is, is known; why another does not answer is not.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        self.primary.store(None);
        match (silent, failure) {
            (Some(silent), _) => Ok(silent),
            (None, Some(failure)) => Err(failure),
            (None, None) => Err(self.unreachable(io::ErrorKind::NotFound.into())),
        }
    }

    /// Logs an open connection in again, where a password was read since it did so last. It must not wait for an answer. A
    /// refusal leaves it logged in as it was.
    pub(crate) async fn stay_logged_in(&self, own: &mut Conversation) -> Result<(), BackendError> {
        let Some(login) = &self.login else {
            return Ok(());
        };
        let Some(fresh) = login
            .fresh()
            .filter(|fresh| fresh.number > own.logged_in_with)
        else {
            return Ok(());
        };
        own.logged_in_with = fresh.number;
        let (user, password) = (login.user().as_bytes(), fresh.password.expose().as_bytes());
        match own.log_in(user, password).await {
            Err(BackendError::Login(text)) => {
                tracing::warn!(
                    user = login.user(),
                    text,
                    "the backend refused the refreshed login"
                );
                Ok(())
            }
            other => other,
        }
    }

    /// Reads the password again and again, where the configuration says so, until the process ends.
    pub(crate) async fn keep_login_fresh(&self, metrics: &Metrics) {
        if let Some(login) = &self.login {
            login.keep_fresh(metrics).await;
        }
    }

    /// Returns when the password was read again after this number; else never.
    pub(crate) async fn login_changes(&self, own: u64) {
        if let Some(login) = &self.login {
            let mut changes = login.changes();
            let newer = |fresh: &Option<Arc<Fresh>>| {
                let fresh = fresh.as_ref();
                fresh.is_some_and(|fresh| fresh.number > own)
            };
            if changes.wait_for(newer).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }

    /// The address of the proxy's own Redis.
    pub(crate) fn private(address: SocketAddr) -> Address {
        Address::new(
            BackendUrl::at(Target::Tcp {
                host: address.ip().to_string(),
                port: address.port(),
            }),
            None,
        )
    }
}

/// Which of a name's addresses a connection goes to: where one was the primary, it alone, for as long
/// as the name has it.
fn to_try<'a>(homes: &'a [Home], primary: Option<&Home>) -> &'a [Home] {
    match homes.iter().position(|one| Some(one) == primary) {
        Some(at) => &homes[at..=at],
        None => homes,
    }
}

//! The login of the proxy's own connections if its password changes: it is read for each new connection, from a file
//! or from what a program prints, and read again while connections are open. Nothing here waits for a program without
//! a limit, and no password ever appears in a message.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lockwarden_control::config::{self, BackendLogin, CertificateLogin, PasswordSource, Secret};
use lockwarden_control::telemetry::metrics::Metrics;
use lockwarden_control::telemetry::vocabulary::LoginRefresh;
use prometheus::IntCounter;
use tokio::sync::watch;
use tokio::task::JoinError;

use super::profile::Login;

/// How long reading a password may take.
const PATIENCE: Duration = Duration::from_secs(8);
/// Between two checks whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(30);
/// Bytes of the longest password, a CR and an LF.
const MAX_PRINTED: usize = config::MAX_SECRET_BYTES + 2;
/// Bytes of a program's error output that are reported.
const MAX_COMPLAINT: u64 = 200;

/// Why there is no password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("password_file: {0}")]
    File(#[from] config::SecretFileError),
    #[error("password_file: {} was not read within {PATIENCE:?}", .0.display())]
    SlowFile(PathBuf),
    #[error("password_command: cannot run {program}: {error}")]
    Run { program: String, error: io::Error },
    #[error("password_command: {program} ended with {status}{complaint}")]
    Failed { program: String, status: ExitStatus, complaint: String },
    #[error("password_command: {0} did not end within {PATIENCE:?}, and was stopped")]
    Hung(String),
    #[error("password_command: what {program} printed {wrong}")]
    Unusable { program: String, wrong: config::SecretError },
    #[error("password_command: what {0} printed is not UTF-8 text")]
    NotText(String),
    #[error("it was not read: {0}")]
    Unread(#[from] JoinError),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct OwnLogin {
    config: BackendLogin,
    fresh: watch::Sender<Option<Arc<Fresh>>>,
    /// Counts refusals until it is read again.
    refused: OnceLock<IntCounter>,
}

/// A password that was read while connections were open.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// Counts such passwords.
    pub(crate) number: u64,
    pub(crate) password: Secret,
}

impl OwnLogin {
    pub(crate) fn new(config: BackendLogin) -> OwnLogin {
        OwnLogin { config, fresh: watch::Sender::new(None), refused: OnceLock::new() }
    }

    pub(crate) fn user(&self) -> &str {
        &self.config.user
    }

    /// The present password. If it cannot be read, the last one that was read again may still be valid.
    pub(super) async fn password(&self) -> Result<Secret, PasswordError> {
        match read_password(&self.config.source).await {
            Ok(password) => Ok(password),
            Err(error) => match &*self.fresh.borrow() {
                Some(fresh) => Ok(fresh.password.clone()),
                None => Err(error),
            },
        }
    }

    /// The last password that was read again; `None` if none was.
    pub(super) fn fresh(&self) -> Option<Arc<Fresh>> {
        self.fresh.borrow().clone()
    }

    /// The server refused a password that was read again, on an open connection.
    pub(super) fn was_refused(&self, text: &str) {
        let user = self.user();
        tracing::warn!(user, text, "the backend refused the refreshed login");
        if let Some(refused) = self.refused.get() {
            refused.inc();
        }
    }

    /// A receiver that is notified of each password that is read again.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<Arc<Fresh>>> {
        self.fresh.subscribe()
    }

    /// Reads it again, as often as the configuration says, until the process ends.
    pub(crate) async fn keep_fresh(&self, metrics: &Metrics) {
        let Some(every) = self.config.refresh else {
            return;
        };
        let refused = metrics.login_refreshes.at(LoginRefresh::Refused);
        self.refused.get_or_init(|| refused.clone());
        let mut pause = every;
        for number in 1.. {
            tokio::time::sleep(pause).await;
            let result = match read_password(&self.config.source).await {
                Ok(password) => {
                    pause = every;
                    let fresh = Fresh { number, password };
                    self.fresh.send_replace(Some(Arc::new(fresh)));
                    LoginRefresh::Ok
                }
                Err(error) => {
                    pause = every.min(PAUSE);
                    tracing::warn!(%error, user = self.config.user, "the login to the backend could not be refreshed");
                    LoginRefresh::Failed
                }
            };
            metrics.login_refreshes.at(result).inc();
        }
    }
}

/// The login of a client with such a certificate, with the present password.
pub async fn login_of(login: &CertificateLogin) -> Result<Login, PasswordError> {
    let source = PasswordSource::File(login.password_file.clone());
    let password = read_password(&source).await?;
    Ok(Login { user: login.user.clone().into(), password: password.expose().to_owned().into() })
}

/// The present password.
async fn read_password(source: &PasswordSource) -> Result<Secret, PasswordError> {
    match source {
        PasswordSource::File(path) => {
            let path = path.clone();
            let named = path.clone();
            // A file system may block.
            let reading = tokio::task::spawn_blocking(move || config::password_in(&path));
            match tokio::time::timeout(PATIENCE, reading).await {
                Ok(read) => Ok(read??),
                Err(_) => Err(PasswordError::SlowFile(named)),
            }
        }
        PasswordSource::Command(words) => run(words).await,
    }
}

/// The output of a program, without the newline at its end.
async fn run(words: &[String]) -> Result<Secret, PasswordError> {
    let until = Instant::now() + PATIENCE;
    let program = words.first().cloned().unwrap_or_default();
    let mut child = Command::new(&program)
        .args(words.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| PasswordError::Run { program: program.clone(), error })?;
    let printed = beginning(child.stdout.take(), MAX_PRINTED as u64 + 1);
    let complaint = beginning(child.stderr.take(), MAX_COMPLAINT);
    // Processes that the program started may keep its output open longer than it lives.
    let both = async { Ok::<_, JoinError>((printed.await?, complaint.await?)) };
    let Ok(read) = tokio::time::timeout_at(until.into(), both).await else {
        stop(child);
        return Err(PasswordError::Hung(program));
    };
    let (printed, complaint) = read?;
    if printed.len() > MAX_PRINTED {
        // Its closed output ends it, or it prints nothing more; either way it is not waited for.
        stop(child);
        let wrong = config::SecretError::TooLong;
        return Err(PasswordError::Unusable { program, wrong });
    }
    let Some(status) = ended(&mut child, until).await else {
        stop(child);
        return Err(PasswordError::Hung(program));
    };
    if !status.success() {
        let complaint = String::from_utf8_lossy(&complaint);
        let line = complaint.lines().next().unwrap_or_default();
        return Err(PasswordError::Failed {
            program,
            status,
            complaint: match line {
                "" => String::new(),
                line => format!(": {}", line.escape_debug()),
            },
        });
    }
    let text = match String::from_utf8(printed) {
        Ok(text) => text,
        Err(_) => return Err(PasswordError::NotText(program)),
    };
    config::password(config::without_line_end(&text)).map_err(|wrong| PasswordError::Unusable { program, wrong })
}

/// The first bytes of an output, which is closed after them, so that a program that prints for ever ends.
fn beginning(output: Option<impl Read + Send + 'static>, most: u64) -> tokio::task::JoinHandle<Vec<u8>> {
    tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            // After an error, what was read so far is used.
            let _ = output.take(most).read_to_end(&mut bytes);
        }
        bytes
    })
}

async fn ended(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => tokio::time::sleep(LOOK).await,
            Ok(None) | Err(_) => return None,
        }
    }
}

fn stop(mut child: Child) {
    // If it has ended meanwhile, this only collects its status.
    let _ = child.kill();
    let _ = child.wait();
}

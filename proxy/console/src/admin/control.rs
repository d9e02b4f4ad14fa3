//! What the admin side may ask of the proxy: all that it knows of it.

use lockwarden_control::config::Unusable;
use lockwarden_control::telemetry::audit;

use crate::view::Views;
use crate::view::api::{Break, Broken, LogChanged, Next, Settings, WhatIf};

/// What the admin side may ask of the proxy. The calls come from the admin thread or its helpers,
/// never from the data path, and none of them may wait for a client.
pub trait Control: Send + Sync + 'static {
    /// The metrics page.
    fn metrics(&self) -> Vec<u8>;

    /// Whether clients are being served; if not, why.
    fn readiness(&self) -> Result<(), NotReady>;

    /// Switches one namespace, or all, to a mode, and says which modes are in force in those
    /// that were asked for. It changes all of them or none. `by` is for the audit trail.
    fn set_mode(
        &self,
        namespace: Option<&str>,
        mode: &str,
        leap: Leap,
        by: audit::Client,
    ) -> Result<Vec<(String, String)>, ControlError>;

    /// What is asked beside what is in force, and how its answers differ.
    fn next(&self) -> Vec<Next>;

    /// Says whom that answers, in one namespace or in all that have it. `by` is for the audit trail.
    fn set_stage(&self, namespace: Option<&str>, stage: &str, by: audit::Client) -> Result<Vec<Next>, ControlError>;

    /// Takes no new clients, lets those that are there finish, and ends the process; says what it
    /// waits for. Asked a second time, it waits no longer.
    fn drain(&self) -> String;

    /// Reads the configuration again, and says in one line what was done. An error has changed
    /// nothing. It may take as long as compiling the policies.
    fn reload(&self, weaker: Weaker, leap: Leap) -> Result<String, ReloadError>;

    /// Every key of the configuration with what is in force, and who said so.
    fn settings(&self) -> Settings;

    /// What of the refusals that are kept would be spared with these changes of the configuration, as they are typed.
    fn what_if(&self, changes: &[&str]) -> Result<WhatIf, ControlError>;

    /// Which lines are logged.
    fn log_filter(&self) -> String;

    /// Changes that, and says what it was before.
    fn set_log_filter(&self, order: &str) -> Result<LogChanged, ControlError>;

    /// Has the report count from now on. Returns the moment, Unix ms.
    fn reset_report(&self) -> u64;

    /// Ends the lease of this lock with that fencing token, and no other. It waits for the backend.
    fn break_lock(&self, key: &[u8], order: &Break) -> Result<Broken, ControlError>;

    /// What is known of locks: all that was answered before the call, for which it may wait some milliseconds.
    fn views(&self) -> &dyn Views;
}

/// Whether a reload may take away what is governed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weaker {
    /// It is refused, and says what would be lost: half a file is often a valid one.
    Refused,
    /// Somebody has said that it is meant.
    Allowed,
}

/// Whether a namespace is enforced although the report speaks against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leap {
    /// It is not; the order says what speaks against it.
    Looks,
    /// It is: somebody has said that it is meant.
    Anyway,
}

impl From<bool> for Leap {
    fn from(anyway: bool) -> Leap {
        match anyway {
            true => Leap::Anyway,
            false => Leap::Looks,
        }
    }
}

/// What speaks against enforcing a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Harm {
    pub namespace: String,
    /// In words; at least one.
    pub reasons: Vec<String>,
}

impl Harm {
    /// Of several namespaces, in one line.
    pub fn words(harms: &[Harm]) -> String {
        let told = harms.iter().map(|harm| format!("{}: {}", harm.namespace, harm.reasons.join("; ")));
        told.collect::<Vec<_>>().join("; ")
    }
}

/// Why no clients are served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The proxy was asked to stop.
    #[error("the proxy is stopping")]
    Stopping,
    /// The backend cannot be served; why.
    #[error("{0}")]
    Backend(String),
}

/// Why the configuration was not read again. What was in force before still is.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration, or a policy that it names.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It takes away what is governed now, and nobody has said that this is meant.
    #[error(
        "this would govern less than what is in force: {losses}. Half a file is often a valid \
         one; if it is meant, type lockwarden reload --allow-weaker, or POST /reload?allow=weaker"
    )]
    Weaker {
        /// What would be lost.
        losses: String,
    },
    /// It enforces what is only watched now, and the report speaks against that.
    #[error(
        "this would enforce what the report speaks against: {}. lockwarden audit says more; if it is meant all the \
         same, type lockwarden reload --anyway, or POST /reload?anyway=true", Harm::words(.0)
    )]
    Harmful(Vec<Harm>),
    /// The metrics of its namespaces and policies cannot be registered.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No such namespace.
    #[error("{0}")]
    NotFound(String),
    /// No such mode.
    #[error("{0}")]
    Invalid(String),
    /// The report speaks against it; nothing was done.
    #[error(
        "the report speaks against it: {}. lockwarden audit says more; if it is meant all the same, type lockwarden \
         mode --anyway, say \"anyway\":true, or LOCKWARDEN MODE … ANYWAY", Harm::words(.0)
    )]
    Harmful(Vec<Harm>),
    /// It cannot be done now; nothing was.
    #[error("{0}")]
    Unavailable(String),
    /// It was sent, and what came of it is not known.
    #[error("{0}")]
    Unknown(String),
}

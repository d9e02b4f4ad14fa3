//! The interface of the proxy to the admin side, which knows nothing else of it.

use lockwarden_control::config::Unusable;
use lockwarden_control::telemetry::audit;

use crate::view::Views;
use crate::view::api::{Break, Broken, LogChanged, Next, Settings, WhatIf};

/// The requests that the admin side can make. The calls come from the admin thread or its helpers, never from the data path,
/// and none of them may wait for a client.
pub trait Control: Send + Sync + 'static {
    /// The metrics page.
    fn metrics(&self) -> Vec<u8>;

    /// Whether clients are served; if not, the reason.
    fn readiness(&self) -> Result<(), NotReady>;

    /// Switches one namespace, or all, to a mode; returns the modes in force in the requested namespaces. It changes all of
    /// them or none. `by` is for the audit trail.
    fn set_mode(
        &self,
        namespace: Option<&str>,
        mode: &str,
        leap: Leap,
        by: audit::Client,
    ) -> Result<Vec<(String, String)>, ControlError>;

    /// The chains that are evaluated beside those in force, and the differing answers.
    fn next(&self) -> Vec<Next>;

    /// Sets to which clients their answers apply, in one namespace or in all that have such a chain. `by` is for the audit
    /// trail.
    fn set_stage(&self, namespace: Option<&str>, stage: &str, by: audit::Client) -> Result<Vec<Next>, ControlError>;

    /// Accepts no new clients, lets the connected ones finish, and ends the process; returns what it waits for. A second call
    /// ends the waiting.
    fn drain(&self) -> String;

    /// Reads the configuration again; returns in one line what was done. An error has changed nothing. It may take as long as
    /// compiling the policies.
    fn reload(&self, weaker: Weaker, leap: Leap) -> Result<String, ReloadError>;

    /// Every key of the configuration with the value in force, and its origin.
    fn settings(&self) -> Settings;

    /// The remembered refusals that these changes of the configuration, as typed, would spare.
    fn what_if(&self, changes: &[&str]) -> Result<WhatIf, ControlError>;

    /// The log filter.
    fn log_filter(&self) -> String;

    /// Changes the log filter; returns it with the one before.
    fn set_log_filter(&self, order: &str) -> Result<LogChanged, ControlError>;

    /// Makes the report count from now on. Returns the moment, Unix ms.
    fn reset_report(&self) -> u64;

    /// Ends the lease of this lock with this fencing token, and no other. It waits for the backend.
    fn break_lock(&self, key: &[u8], order: &Break) -> Result<Broken, ControlError>;

    /// The view of locks, with everything that was replied before the call; it may wait some milliseconds for that.
    fn views(&self) -> &dyn Views;
}

/// Whether a reload may stop governing what is governed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weaker {
    /// It is refused, and the error names the losses: half a file is often a valid one.
    Refused,
    /// The operator confirmed that it is intended.
    Allowed,
}

/// Whether a namespace may be enforced against the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leap {
    /// Refused; the error names the reasons against it.
    Looks,
    /// Allowed: the operator confirmed that it is intended.
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

/// The reasons against enforcing a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Harm {
    pub namespace: String,
    /// In words; at least one.
    pub reasons: Vec<String>,
}

impl Harm {
    /// The reasons of several namespaces, in one line.
    pub fn words(harms: &[Harm]) -> String {
        let told = harms.iter().map(|harm| format!("{}: {}", harm.namespace, harm.reasons.join("; ")));
        told.collect::<Vec<_>>().join("; ")
    }
}

/// Why clients are not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The proxy was told to stop.
    #[error("the proxy is stopping")]
    Stopping,
    /// The backend is not usable; with the reason.
    #[error("{0}")]
    Backend(String),
}

/// Why the configuration was not reloaded. The previous one is still in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration, or a policy that it names, is unusable.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It would stop governing what is governed now, without a confirmation.
    #[error(
        "this would govern less than what is in force: {losses}. Half a file is often a valid \
         one; if it is meant, type lockwarden reload --allow-weaker, or POST /reload?allow=weaker"
    )]
    Weaker {
        /// The locks that would be lost.
        losses: String,
    },
    /// It enforces a namespace that is only watched now, against the report.
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
    /// No such namespace or other object.
    #[error("{0}")]
    NotFound(String),
    /// An invalid mode or other value.
    #[error("{0}")]
    Invalid(String),
    /// The report speaks against it; nothing was changed.
    #[error(
        "the report speaks against it: {}. lockwarden audit says more; if it is meant all the same, type lockwarden \
         mode --anyway, say \"anyway\":true, or LOCKWARDEN MODE … ANYWAY", Harm::words(.0)
    )]
    Harmful(Vec<Harm>),
    /// Not possible now; nothing was changed.
    #[error("{0}")]
    Unavailable(String),
    /// It was sent, and the result is unknown.
    #[error("{0}")]
    Unknown(String),
}

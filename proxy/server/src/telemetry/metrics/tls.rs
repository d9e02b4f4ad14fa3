//! Handshakes and certificates, of both sides.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{GaugeVec, Histogram, IntCounter, IntGauge, Result};

use super::catalogue as names;
use super::register::{ByLabel, Registrar};
use crate::net::tls::{Observe, Outcome};
use crate::telemetry::vocabulary::{CertificateRole, Label, Side, TlsResult};

/// A handshake takes from a fifth of a millisecond of computing to some round trips over an ocean.
const HANDSHAKE_SECONDS: [f64; 10] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 10.0];

/// See the module.
pub(crate) struct TlsMetrics {
    sides: ByLabel<Side, TlsSide>,
    expiry: GaugeVec,
    reload_successful: IntGauge,
}

/// Of one side.
#[derive(Clone)]
pub(crate) struct TlsSide {
    resumed: IntCounter,
    results: ByLabel<TlsResult, IntCounter>,
    duration: Histogram,
}

impl TlsMetrics {
    pub(super) fn new(make: &Registrar<'_>) -> Result<TlsMetrics> {
        let handshakes = make.counter_vec(&names::TLS_HANDSHAKES)?;
        let durations = make.histograms::<Side>(&names::TLS_HANDSHAKE_DURATION, &HANDSHAKE_SECONDS)?;
        let of = |side: Side| TlsSide {
            resumed: handshakes.with_label_values(&[side.word(), TlsResult::Ok.word(), "true"]),
            results: ByLabel::new(|result| handshakes.with_label_values(&[side.word(), result, "false"])),
            duration: durations.at(side).clone(),
        };
        Ok(TlsMetrics {
            sides: ByLabel::of(of),
            expiry: make.float_gauge_vec(&names::TLS_CERTIFICATE_EXPIRY)?,
            reload_successful: make.gauge(&names::TLS_RELOAD_SUCCESSFUL)?,
        })
    }

    /// Counts the handshakes of this side.
    pub(crate) fn of(&self, side: Side) -> TlsSide {
        self.sides.at(side).clone()
    }

    /// A certificate ends then; `None`: there is none, or it does not say.
    pub(crate) fn ends(&self, side: Side, role: CertificateRole, at: Option<SystemTime>) {
        let labels = [side.word(), role.word()];
        match at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
            Some(at) => self.expiry.with_label_values(&labels).set(at.as_secs_f64()),
            // There may be no such series, which is as well.
            None => drop(self.expiry.remove_label_values(&labels)),
        }
    }

    /// Whether the files could be used that were looked at last.
    pub(crate) fn looked(&self, successful: bool) {
        self.reload_successful.set(i64::from(successful));
    }
}

impl Observe for TlsSide {
    fn handshake(&self, outcome: Outcome, took: Duration) {
        let result = match outcome {
            Outcome::Ok { resumed } => {
                self.duration.observe(took.as_secs_f64());
                if resumed {
                    self.resumed.inc();
                    return;
                }
                TlsResult::Ok
            }
            Outcome::NoCertificate => TlsResult::NoCertificate,
            Outcome::UnknownAuthority => TlsResult::UnknownCa,
            Outcome::Expired => TlsResult::Expired,
            Outcome::Protocol => TlsResult::Protocol,
            Outcome::Timeout => TlsResult::Timeout,
            Outcome::Other => TlsResult::Other,
        };
        self.results.at(result).inc();
    }
}

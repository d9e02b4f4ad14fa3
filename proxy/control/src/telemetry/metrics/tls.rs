//! Handshakes and certificates, of both sides.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge, Result};

use super::declaration::{ByLabel, Registrar, metrics};
use crate::net::tls::{Observe, Outcome};
use crate::telemetry::vocabulary::{CertificateRole, Label, Side, TlsResult};

/// A handshake takes from a fifth of a millisecond of computing to some round trips over an ocean.
const HANDSHAKE_SECONDS: [f64; 10] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 10.0];

metrics! {
    /// Handshakes and certificates, of both sides.
    pub struct TlsMetrics {
        /// Handshakes of TLS.
        handshakes: IntCounterVec = "lockwarden_tls_handshakes_total" {
            "side" of Side,
            "result" of TlsResult,
            "resumed": "`true` where an earlier session went on, which costs less; else `false`"
        };
        /// How long handshakes of TLS took that ended well.
        durations: ByLabel<Side, Histogram> = "lockwarden_tls_handshake_duration_seconds" in HANDSHAKE_SECONDS {
            "side"
        };
        /// When a certificate that is in use ends, Unix time. There while there is such a certificate.
        expiry: GaugeVec = "lockwarden_tls_certificate_expiry_timestamp_seconds" {
            "side" of Side,
            "role" of CertificateRole
        };
        /// 1 if the files of `[tls]` and `[backend_tls]` could be used when they were looked at last, else 0.
        reload_successful: IntGauge = "lockwarden_tls_reload_last_successful" {};
    } with {}
}

/// Of one side.
#[derive(Clone)]
pub struct TlsSide {
    resumed: IntCounter,
    results: ByLabel<TlsResult, IntCounter>,
    duration: Histogram,
}

impl TlsMetrics {
    pub(super) fn new(make: &Registrar<'_>) -> Result<TlsMetrics> {
        let metrics = TlsMetrics::declare(make)?;
        for side in Side::ALL {
            // Its series are there from now on, at 0.
            metrics.of(*side);
        }
        Ok(metrics)
    }

    /// Counts the handshakes of this side.
    pub fn of(&self, side: Side) -> TlsSide {
        let series = |result: &str, resumed: &str| self.handshakes.with_label_values(&[side.word(), result, resumed]);
        TlsSide {
            resumed: series(TlsResult::Ok.word(), "true"),
            results: ByLabel::new(|result| series(result, "false")),
            duration: self.durations.at(side).clone(),
        }
    }

    /// A certificate ends then; `None`: there is none, or it does not say.
    pub fn ends(&self, side: Side, role: CertificateRole, at: Option<SystemTime>) {
        let labels = [side.word(), role.word()];
        match at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
            Some(at) => self.expiry.with_label_values(&labels).set(at.as_secs_f64()),
            // There may be no such series, which is as well.
            None => drop(self.expiry.remove_label_values(&labels)),
        }
    }

    /// Whether the files could be used that were looked at last.
    pub fn looked(&self, successful: bool) {
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

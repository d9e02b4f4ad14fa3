//! The certificates of both sides while the proxy runs: what listeners present, and how often the files are looked
//! at. A file that cannot be used changes nothing and is reported once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use lockwarden_control::config::Config;
use lockwarden_control::net::tls::{Acceptor, TlsError};
use lockwarden_control::telemetry::logging::Pace;
use lockwarden_control::telemetry::metrics::Metrics;
use lockwarden_control::telemetry::vocabulary::{CertificateRole, Side};

use crate::backend::Address;

/// See the module.
pub struct Certificates {
    acceptor: Option<Acceptor>,
    /// What was wrong with the files of each side when they were last looked at.
    complaints: Mutex<[Option<String>; 2]>,
    failed: Mutex<Pace>,
    nameless: Mutex<Pace>,
}

impl Certificates {
    /// Reads the files of listeners with TLS, if there are any.
    pub fn new(config: &Config, address: &Address, metrics: &Metrics) -> Result<Certificates, TlsError> {
        let has_tls = config.listeners.iter().any(|listener| listener.tls);
        let files = config.tls.as_ref().filter(|_| has_tls);
        let observer = Arc::new(metrics.tls.of(Side::Client));
        let acceptor = files.map(|files| Acceptor::new(files.clone(), observer));
        let certificates = Certificates {
            acceptor: acceptor.transpose()?,
            complaints: Mutex::default(),
            failed: Mutex::default(),
            nameless: Mutex::default(),
        };
        certificates.show(address, metrics);
        metrics.tls.looked(true);
        Ok(certificates)
    }

    /// Shakes hands with clients of listeners with TLS.
    pub fn acceptor(&self) -> Option<&Acceptor> {
        self.acceptor.as_ref()
    }

    /// A client's handshake failed. Returns how many have failed since the last log line about them, if a line is due
    /// now.
    pub fn handshake_failed(&self) -> Option<u64> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.line(Instant::now())
    }

    /// A client's certificate has no name. Returns how many had none since the last log line, if a line is due now.
    pub fn was_nameless(&self) -> Option<u64> {
        let mut nameless = self.nameless.lock().unwrap_or_else(PoisonError::into_inner);
        nameless.line(Instant::now())
    }

    /// Whether there are any files.
    pub(crate) fn are_there(&self, address: &Address) -> bool {
        self.acceptor.is_some() || address.connector().is_some()
    }

    /// Looks at the files of both sides. Connections that are open stay as they are.
    pub fn look(&self, address: &Address, metrics: &Metrics) {
        let looked = [
            (Side::Client, self.acceptor.as_ref().map(Acceptor::reload)),
            (Side::Backend, address.connector().map(|own| own.reload())),
        ];
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let mut good = true;
        for ((side, looked), complaint) in looked.into_iter().zip(complaints.iter_mut()) {
            let table = match side {
                Side::Client => "tls",
                Side::Backend => "backend_tls",
            };
            match looked {
                Some(Err(error)) => {
                    good = false;
                    let why = error.to_string();
                    if complaint.as_ref() != Some(&why) {
                        tracing::error!(table, why, "certificates were not read again; those from before stay in use");
                    }
                    *complaint = Some(why);
                }
                Some(Ok(has_changed)) => {
                    if has_changed || complaint.is_some() {
                        tracing::info!(table, "new connections use the certificates as they are now");
                    }
                    *complaint = None;
                }
                None => {}
            }
        }
        metrics.tls.looked(good);
        self.show(address, metrics);
    }

    /// When the certificates in use expire, by table and key of the configuration.
    pub fn ends(&self, address: &Address) -> Vec<(&'static str, SystemTime)> {
        let (own, clients) = self.acceptor.as_ref().map(Acceptor::ends).unwrap_or_default();
        let backend = address.connector().map(|own| own.ends());
        let (to_backend, authorities) = backend.unwrap_or_default();
        [
            ("[tls] cert", own),
            ("[tls] client_ca", clients),
            ("[backend_tls] cert", to_backend),
            ("[backend_tls] ca", authorities),
        ]
        .into_iter()
        .filter_map(|(name, end)| Some((name, end?)))
        .collect()
    }

    fn show(&self, address: &Address, metrics: &Metrics) {
        let of_clients = self.acceptor.as_ref().map(Acceptor::ends);
        let of_backend = address.connector().map(|own| own.ends());
        for (side, ends) in [(Side::Client, of_clients), (Side::Backend, of_backend)] {
            let (own, authorities) = ends.unwrap_or_default();
            metrics.tls.ends(side, CertificateRole::Own, own);
            metrics.tls.ends(side, CertificateRole::Ca, authorities);
        }
    }
}

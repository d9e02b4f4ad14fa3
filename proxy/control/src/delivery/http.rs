//! Fetches a file of limited length over HTTP within limited time. TLS certificates are checked against the system's
//! authorities; a registry on the same machine may also be used without TLS.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// The time for everything that is fetched for one policy.
const IN_ALL: Duration = Duration::from_secs(30);
const TRIES: u32 = 3;
/// The pause before the second try; twice that before the third.
const PAUSE: Duration = Duration::from_millis(200);
const MAX_REDIRECTS: u32 = 5;

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{url} answers {status}")]
    Status { url: String, status: u16 },
    #[error("{url} has more than {most} bytes")]
    TooLong { url: String, most: u64 },
    #[error("{url}: {source}")]
    Failed { url: String, source: Box<ureq::Error> },
}

/// A response, whatever its status.
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// How to authenticate, if the server requires that.
    pub(super) challenge: Option<String>,
}

/// The connections for one policy.
pub(super) struct Http {
    over_tls: Agent,
    open: Agent,
    until: Instant,
}

impl Http {
    pub(super) fn new() -> Http {
        let roots = rustls_native_certs::load_native_certs().certs;
        let roots: Vec<_> = roots.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&roots))
            .build();
        let agent = |https_only, redirects| {
            let config = Agent::config_builder().tls_config(tls.clone()).http_status_as_error(false);
            let config = config.https_only(https_only).max_redirects(redirects).max_redirects_will_error(true);
            config.build().new_agent()
        };
        Http { over_tls: agent(true, MAX_REDIRECTS), open: agent(false, 0), until: Instant::now() + IN_ALL }
    }

    /// Fetches a file that must exist.
    pub(super) fn file(&self, url: &str, most: u64) -> Result<Vec<u8>, HttpError> {
        match self.get(url, &[], most)? {
            Got { status: 200, body, .. } => Ok(body),
            Got { status, .. } => Err(HttpError::Status { url: url.to_owned(), status }),
        }
    }

    /// The response at an address. A server that is unreachable, or reports a failure, is asked again.
    pub(super) fn get(&self, url: &str, headers: &[(&str, &str)], most: u64) -> Result<Got, HttpError> {
        let mut tries = 1;
        loop {
            let got = self.try_to_get(url, headers, most);
            let may_pass = match &got {
                Ok(got) => got.status >= 500,
                Err(HttpError::Failed { .. }) => true,
                Err(HttpError::Status { .. } | HttpError::TooLong { .. }) => false,
            };
            let pause = PAUSE * tries;
            if !may_pass || tries == TRIES || Instant::now() + pause >= self.until {
                return got;
            }
            sleep(pause);
            tries += 1;
        }
    }

    fn try_to_get(&self, url: &str, headers: &[(&str, &str)], most: u64) -> Result<Got, HttpError> {
        let failed = |source: ureq::Error| match source {
            ureq::Error::BodyExceedsLimit(_) => HttpError::TooLong { url: url.to_owned(), most },
            source => HttpError::Failed { url: url.to_owned(), source: Box::new(source) },
        };
        let agent = if url.starts_with("https://") { &self.over_tls } else { &self.open };
        let left = self.until.saturating_duration_since(Instant::now());
        let request = headers.iter().fold(agent.get(url), |request, (name, value)| request.header(*name, *value));
        let mut response = request.config().timeout_global(Some(left)).build().call().map_err(failed)?;
        let challenge = response.headers().get("www-authenticate");
        let challenge = challenge.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = response.body_mut().with_config().limit(most).read_to_vec().map_err(failed)?;
        Ok(Got { status: response.status().as_u16(), body, challenge })
    }
}

//! Where spans go and which decisions have one. Reads and checks those keys on top of the file, in
//! builds that can send spans; `docs/operations.md` says what they mean.

use std::fmt;
use std::time::Duration;

use hyper::Uri;

use super::reader::{Reader, Section};
use super::suggest::quoted;
use super::value;

/// Where a collector takes spans, behind its address.
const PATH: &str = "/v1/traces";
/// A collector's port for OTLP over gRPC, which is often taken for the one of HTTP.
const GRPC_PORT: u16 = 4317;

const DEFAULT_SLOW: Duration = Duration::from_millis(5);
const MIN_SLOW: Duration = Duration::from_millis(1);
const MAX_SLOW: Duration = Duration::from_secs(60);

/// Spans as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtelConfig {
    /// Where they go; `None`: there are none.
    pub(crate) endpoint: Option<Endpoint>,
    /// A decision that takes so long has a span, refused or not; `None`: only refused ones have.
    pub(crate) slow: Option<Duration>,
}

impl Default for OtelConfig {
    fn default() -> OtelConfig {
        OtelConfig { endpoint: None, slow: Some(DEFAULT_SLOW) }
    }
}

/// A collector's URL for traces. Prints as it is, because it holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint(String);

impl Endpoint {
    /// The whole URL.
    pub(crate) fn url(&self) -> &str {
        &self.0
    }

    /// One that was not checked.
    #[cfg(test)]
    pub(crate) fn example(url: &str) -> Endpoint {
        Endpoint(url.to_owned())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the keys on top of the file.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> OtelConfig {
    let mut otel = OtelConfig::default();
    if let Some(found) = reader.parsed(top, "otel_endpoint", endpoint) {
        let (endpoint, port) = found.value;
        if port == Some(GRPC_PORT) {
            let message = "otel_endpoint: 4317 is usually the collector's port for OTLP over gRPC; spans \
                           are sent over HTTP, whose port is 4318";
            reader.warning(found.span, message.to_owned());
        }
        otel.endpoint = Some(endpoint);
    }
    let slow = reader.parsed(top, "otel_slow", |text| value::duration_or_off(text, MIN_SLOW..=MAX_SLOW));
    let Some(slow) = slow else { return otel };
    otel.slow = slow.value;
    if !top.table.contains_key("otel_endpoint") {
        let message = "otel_slow: no span is sent, because there is no otel_endpoint; name one";
        reader.warning(slow.span, message.to_owned());
    }
    otel
}

const SHAPE: &str = "write http://host:port, as in \"http://127.0.0.1:4318\"";

/// Why a text is not the URL of a collector.
#[derive(Debug, thiserror::Error)]
enum EndpointError {
    #[error(
        "TLS to the collector is not there; name one on this machine or in a trusted network with http://, which can send on by TLS"
    )]
    Tls,
    /// The text may hold a password, so it is not repeated.
    #[error("a URL with a login is not understood; put it into OTEL_EXPORTER_OTLP_HEADERS and {SHAPE}")]
    Login,
    #[error("options behind ? are not understood; {SHAPE}")]
    Options,
    #[error("{} is no URL of a collector; {SHAPE}", quoted(.0))]
    Other(String),
}

/// `http://host[:port][/path]`, as OpenTelemetry takes it: the path of traces is added.
fn endpoint(text: &str) -> Result<(Endpoint, Option<u16>), EndpointError> {
    if text.starts_with("https://") {
        return Err(EndpointError::Tls);
    }
    if text.contains('@') {
        return Err(EndpointError::Login);
    }
    let is_http = |uri: &Uri| uri.scheme_str() == Some("http") && uri.host().is_some();
    let Some(uri) = text.parse().ok().filter(is_http) else {
        return Err(EndpointError::Other(text.to_owned()));
    };
    if uri.query().is_some() {
        return Err(EndpointError::Options);
    }
    let base = text.trim_end_matches('/');
    let base = base.strip_suffix(PATH).unwrap_or(base);
    Ok((Endpoint(format!("{base}{PATH}")), uri.port_u16()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_once() {
        for text in ["http://127.0.0.1:4318", "http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"] {
            let (found, port) = endpoint(text).unwrap();
            assert_eq!(found.url(), "http://127.0.0.1:4318/v1/traces", "{text}");
            assert_eq!(port, Some(4318));
        }
        let (behind, port) = endpoint("http://gateway/otlp").unwrap();
        assert_eq!(behind.url(), "http://gateway/otlp/v1/traces");
        assert_eq!(port, None);
    }

    #[test]
    fn what_is_no_collector_is_said_without_a_password() {
        for text in [
            "",
            "127.0.0.1:4318",
            "http://",
            "grpc://127.0.0.1:4317",
            "https://collector",
            "http://user:hunter2@collector:4318",
            "http://collector:4318/?key=value",
            "http://col lector",
        ] {
            let wrong = endpoint(text).unwrap_err().to_string();
            assert!(!wrong.contains("hunter2"), "{wrong}");
        }
    }
}

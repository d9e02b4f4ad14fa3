//! Why no spans are sent.

use std::io;

use opentelemetry_otlp::ExporterBuildError;

/// Why there are no spans though some are configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OtelError {
    /// What the environment says about OTLP cannot be followed.
    #[error("cannot send spans: {0}")]
    Exporter(#[source] ExporterBuildError),
    /// The thread that sends could not be started.
    #[error("cannot start the thread that sends spans: {0}")]
    Thread(#[source] io::Error),
}

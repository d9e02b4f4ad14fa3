//! OpenTelemetry: refused and slow decisions as spans, in builds with the feature `otel`. It follows the
//! [`EventLog`](super::events::Trail), as the audit trail and the board do, and makes spans of what it is told
//! (`otel/spans.rs`); a thread of its own sends them by OTLP (`otel/sender.rs`). So a decision is over
//! before its span is made, and nobody waits for a collector. `docs/operations.md` is the same for
//! operators.

mod error;
mod sender;
mod spans;

use std::time::{Duration, Instant, SystemTime};

use super::events::{Follower, LockEvent};
use crate::config::{BackendUrl, OtelConfig};
pub(crate) use error::OtelError;
use sender::Outbox;
use spans::Spans;

/// Starts the thread that sends spans, if a collector is configured. The follower is to be given to the
/// trail; connects to nothing yet.
pub(crate) fn open(config: &OtelConfig, backend: &BackendUrl) -> Result<Option<Box<dyn Follower>>, OtelError> {
    let Some(endpoint) = &config.endpoint else {
        return Ok(None);
    };
    let outbox = Outbox::open(endpoint)?;
    tracing::info!(
        %endpoint,
        slow_ms = config.slow.and_then(|slow| u64::try_from(slow.as_millis()).ok()),
        "refused and slow decisions are sent as spans"
    );
    Ok(Some(Box::new(Tracer { spans: Spans::new(config.slow, backend), outbox })))
}

/// Makes spans and hands them on.
struct Tracer {
    spans: Spans,
    outbox: Outbox,
}

impl Follower for Tracer {
    fn follow(&mut self, entries: &[LockEvent], _now: Instant) {
        // Both clocks at one moment. Entries say when they were by the one that only goes on.
        let (now, wall) = (Instant::now(), SystemTime::now());
        for entry in entries {
            let ago = now.saturating_duration_since(entry.at);
            let ended = wall.checked_sub(ago).unwrap_or(wall);
            if let Some(trace) = self.spans.of(entry, ended) {
                self.outbox.put(trace);
            }
        }
    }

    fn finish(&mut self) {
        self.outbox.close(PATIENCE);
    }
}

/// How long the end of the process waits for the last spans.
const PATIENCE: Duration = Duration::from_secs(2);

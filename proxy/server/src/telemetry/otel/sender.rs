//! The way of spans to a collector: a bounded queue, and a thread that takes from it and sends many at
//! once. What cannot be sent, or does not fit into the queue, is lost and counted; spans are for looking,
//! and the audit trail is for keeping.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::{Notify, mpsc};

use super::error::OtelError;
use super::spans::Trace;
use crate::config::Endpoint;

/// Decisions whose spans wait to be sent; above that new ones are lost. A few MiB.
const MAX_WAITING: usize = 2048;
/// Decisions that are sent at once.
const AT_ONCE: usize = 512;
/// Between two requests, so that few have many spans.
const PAUSE: Duration = Duration::from_secs(1);
/// For one request with its repetitions.
const ANSWER: Duration = Duration::from_secs(10);

/// Where spans are put to be sent.
pub(super) struct Outbox {
    /// `None` once it is closed.
    queue: Option<mpsc::Sender<Trace>>,
    stopping: Arc<Notify>,
    lost: Arc<AtomicU64>,
    /// Disconnected when the thread has ended.
    ended: std_mpsc::Receiver<()>,
}

impl Outbox {
    /// Starts the thread.
    pub(super) fn open(endpoint: &Endpoint) -> Result<Outbox, OtelError> {
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint.url())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(ANSWER)
            .build()
            .map_err(OtelError::Exporter)?;
        exporter.set_resource(&resource());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(OtelError::Thread)?;
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let (stopping, lost) = (Arc::new(Notify::new()), Arc::new(AtomicU64::new(0)));
        let (alive, ended) = std_mpsc::channel();
        let sender = Sender {
            exporter,
            endpoint: endpoint.clone(),
            waiting,
            stopping: stopping.clone(),
            lost: lost.clone(),
            failing: false,
        };
        std::thread::Builder::new()
            .name("otel".to_owned())
            .spawn(move || {
                runtime.block_on(sender.run());
                drop(alive);
            })
            .map_err(OtelError::Thread)?;
        Ok(Outbox { queue: Some(queue), stopping, lost, ended })
    }

    /// Puts a decision's spans into the queue, if there is room.
    pub(super) fn put(&self, trace: Trace) {
        let taken = self.queue.as_ref().map(|queue| queue.try_send(trace));
        if !matches!(taken, Some(Ok(()))) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has everything sent, as far as that is possible in this time.
    pub(super) fn close(&mut self, patience: Duration) {
        self.queue = None;
        self.stopping.notify_one();
        if let Err(std_mpsc::RecvTimeoutError::Timeout) = self.ended.recv_timeout(patience) {
            tracing::warn!("the last spans could not be sent in time");
        }
    }
}

/// Who sends spans, in the words of OpenTelemetry. The environment has the last word, as everywhere there.
fn resource() -> Resource {
    let detectors: [Box<dyn opentelemetry_sdk::resource::ResourceDetector>; 2] =
        [Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())];
    let resource = Resource::builder_empty()
        .with_service_name("lockwarden")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detectors(&detectors);
    let named = std::env::var("OTEL_SERVICE_NAME").ok();
    match named.filter(|name| !name.is_empty()) {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}

/// The thread's part.
struct Sender {
    exporter: SpanExporter,
    endpoint: Endpoint,
    waiting: mpsc::Receiver<Trace>,
    stopping: Arc<Notify>,
    lost: Arc<AtomicU64>,
    failing: bool,
}

impl Sender {
    /// Sends until the queue is closed and empty.
    async fn run(mut self) {
        let mut traces = Vec::new();
        while self.waiting.recv_many(&mut traces, AT_ONCE).await > 0 {
            let decisions = traces.len();
            let spans = traces.drain(..).flatten().collect();
            match self.exporter.export(spans).await {
                Ok(()) => self.works(),
                Err(error) => self.failed(decisions, &error),
            }
            // After a full batch more is waiting, so it goes on at once; a collector that fails gets its
            // pause.
            if !self.waiting.is_closed() && (decisions < AT_ONCE || self.failing) {
                // Woken at the end.
                let _ = tokio::time::timeout(PAUSE, self.stopping.notified()).await;
            }
        }
        self.tell_lost();
    }

    fn works(&mut self) {
        if std::mem::take(&mut self.failing) {
            tracing::info!(endpoint = %self.endpoint, "spans are sent again");
        }
        self.tell_lost();
    }

    fn failed(&mut self, decisions: usize, error: &dyn std::error::Error) {
        self.lost.fetch_add(decisions as u64, Ordering::Relaxed);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                endpoint = %self.endpoint,
                %error,
                "spans cannot be sent; those that cannot are lost and counted"
            );
        }
    }

    fn tell_lost(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(decisions = lost, "decisions are missing from the traces");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_collector_that_never_answers_costs_spans_and_no_memory() {
        // The system takes the connection; nobody reads from it.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/traces", silent.local_addr().unwrap());
        let mut outbox = Outbox::open(&Endpoint::example(&url)).unwrap();
        for _ in 0..3 * MAX_WAITING {
            outbox.put(Vec::new());
        }
        let lost = outbox.lost.load(Ordering::Relaxed);
        // What is being sent has made room for as many.
        let least = u64::try_from(2 * MAX_WAITING - AT_ONCE).unwrap();
        assert!(lost >= least, "{lost} lost");
        outbox.close(Duration::from_millis(10));
        outbox.put(Vec::new());
        assert!(outbox.lost.load(Ordering::Relaxed) > lost);
    }
}

//! How busy the threads are that serve clients, as their runtime counts it anyway: asked when the page
//! is made, so it costs nothing in between.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Counter, IntGauge, Result};
use tokio::runtime::Handle;

use super::catalogue as names;
use super::register::Registrar;

/// What is shown of the runtime.
pub(super) struct RuntimeMetrics {
    handle: OnceLock<Handle>,
    workers: IntGauge,
    busy: Counter,
    tasks: IntGauge,
    queue: IntGauge,
}

impl RuntimeMetrics {
    pub(super) fn new(make: &Registrar<'_>) -> Result<RuntimeMetrics> {
        Ok(RuntimeMetrics {
            handle: OnceLock::new(),
            workers: make.gauge(&names::RUNTIME_WORKERS)?,
            busy: make.float_counter(&names::RUNTIME_BUSY)?,
            tasks: make.gauge(&names::RUNTIME_TASKS)?,
            queue: make.gauge(&names::RUNTIME_QUEUE)?,
        })
    }

    /// From now on it is this runtime; the first one stays.
    pub(super) fn follow(&self, handle: Handle) {
        self.handle.get_or_init(|| handle);
    }

    /// Asks the runtime. The caller sees to it that nobody else does at the same time.
    pub(super) fn show(&self) {
        let Some(handle) = self.handle.get() else {
            return;
        };
        let runtime = handle.metrics();
        let workers = runtime.num_workers();
        let busy: Duration = (0..workers)
            .map(|worker| runtime.worker_total_busy_duration(worker))
            .sum();
        // What was read last may lie ahead by a rounding.
        self.busy
            .inc_by((busy.as_secs_f64() - self.busy.get()).max(0.0));
        for (gauge, count) in [
            (&self.workers, workers),
            (&self.tasks, runtime.num_alive_tasks()),
            (&self.queue, runtime.global_queue_depth()),
        ] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

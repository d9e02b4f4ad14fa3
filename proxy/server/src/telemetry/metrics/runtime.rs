//! How busy the threads are that serve clients, as their runtimes count it anyway: asked when the page
//! is made, so it costs nothing in between.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Counter, IntGauge, Result};
use tokio::runtime::Handle;

use super::catalogue as names;
use super::register::Registrar;

/// What is shown of the runtime.
pub(super) struct RuntimeMetrics {
    handles: OnceLock<Vec<Handle>>,
    workers: IntGauge,
    busy: Counter,
    tasks: IntGauge,
    queue: IntGauge,
}

impl RuntimeMetrics {
    pub(super) fn new(make: &Registrar<'_>) -> Result<RuntimeMetrics> {
        Ok(RuntimeMetrics {
            handles: OnceLock::new(),
            workers: make.gauge(&names::RUNTIME_WORKERS)?,
            busy: make.float_counter(&names::RUNTIME_BUSY)?,
            tasks: make.gauge(&names::RUNTIME_TASKS)?,
            queue: make.gauge(&names::RUNTIME_QUEUE)?,
        })
    }

    /// From now on it is these runtimes, one for each thread; the first ones stay.
    pub(super) fn follow(&self, handles: Vec<Handle>) {
        self.handles.get_or_init(|| handles);
    }

    /// Asks the runtimes. The caller sees to it that nobody else does at the same time.
    pub(super) fn show(&self) {
        let Some(handles) = self.handles.get() else {
            return;
        };
        let runtimes = || handles.iter().map(Handle::metrics);
        let busy: Duration = runtimes().map(|runtime| runtime.worker_total_busy_duration(0)).sum();
        // What was read last may lie ahead by a rounding.
        self.busy.inc_by((busy.as_secs_f64() - self.busy.get()).max(0.0));
        let tasks = runtimes().map(|runtime| runtime.num_alive_tasks()).sum();
        let queue = runtimes().map(|runtime| runtime.global_queue_depth()).sum();
        for (gauge, count) in [(&self.workers, handles.len()), (&self.tasks, tasks), (&self.queue, queue)] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

//! How busy the threads are that serve clients, as their runtimes count it anyway: asked when the page
//! is made, so it costs nothing in between.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Counter, IntGauge, Result};
use tokio::runtime::Handle;

use super::declaration::{Registrar, metrics};

metrics! {
    /// What is shown of the runtime.
    pub(super) struct RuntimeMetrics {
        /// Threads that serve clients.
        workers: IntGauge = "lockwarden_runtime_workers" {};
        /// Time that those threads were at work, together.
        busy: Counter = "lockwarden_runtime_busy_seconds_total" {};
        /// Tasks that live on them: one a client, and a few of the proxy's own.
        tasks: IntGauge = "lockwarden_runtime_tasks" {};
        /// Tasks that could run and wait in the common queue for a thread.
        queue: IntGauge = "lockwarden_runtime_queue_depth" {};
    } with {
        handles: OnceLock<Vec<Handle>>,
    }
}

impl RuntimeMetrics {
    pub(super) fn new(make: &Registrar<'_>) -> Result<RuntimeMetrics> {
        RuntimeMetrics::declare(make, OnceLock::new())
    }

    /// From now on it is these runtimes, one for each thread; the first ones stay.
    pub(super) fn follow(&self, handles: Vec<Handle>) {
        self.handles.get_or_init(|| handles);
    }

    /// Asks the runtimes. The caller sees to it that no other thread does at the same time.
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

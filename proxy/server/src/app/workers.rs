//! The threads that serve clients. Each has its own runtime and keeps a client from its first byte to its last: no part of a
//! command is woken on another thread or stolen by one. The first thread also accepts clients, and gives each to the thread
//! with the fewest.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use lockwarden_dataplane::backend::pool;
use lockwarden_dataplane::state::standstill::Standstill;
use tokio::runtime::{self, Handle, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

/// Work for a thread: a function that it calls in its runtime.
type Job = Box<dyn FnOnce() + Send>;

/// The threads. When dropped, they end with their current work.
pub(crate) struct Workers {
    workers: Arc<[Worker]>,
    threads: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
    crowd: Arc<Crowd>,
}

/// One thread, as seen by those who send it work.
struct Worker {
    jobs: UnboundedSender<Job>,
    handle: Handle,
    /// Clients that it serves.
    clients: Arc<AtomicUsize>,
}

/// All served clients.
#[derive(Default)]
struct Crowd {
    clients: AtomicUsize,
    gone: Notify,
}

/// Gives access to the threads, for the code that accepts clients.
#[derive(Clone)]
pub(crate) struct Seats {
    workers: Arc<[Worker]>,
    crowd: Arc<Crowd>,
}

/// The place of one client. Dropping it frees the place.
pub(crate) struct Seat {
    place: usize,
    clients: Arc<AtomicUsize>,
    crowd: Arc<Crowd>,
}

thread_local! {
    /// The index of this thread among the workers.
    static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Workers {
    /// Starts `number` threads. After each wake-up a thread checks for a standstill of the process before any other work.
    pub(crate) fn start(number: usize, standstill: &Arc<Standstill>) -> io::Result<Workers> {
        let mut workers = Vec::new();
        let mut threads = Vec::new();
        for place in 0..number.max(1) {
            let (jobs, queue) = unbounded_channel();
            let (told, handle) = std::sync::mpsc::channel();
            let (stop, stopped) = oneshot::channel();
            let standstill = standstill.clone();
            let thread = thread::Builder::new()
                .name(format!("worker-{place}"))
                .spawn(move || work(place, queue, &told, stopped, standstill))?;
            let handle = handle.recv().unwrap_or_else(|_| Err(io::Error::other("a worker thread ended at once")))?;
            workers.push(Worker { jobs, handle, clients: Arc::default() });
            threads.push((stop, thread));
        }
        Ok(Workers { workers: workers.into(), threads, crowd: Arc::default() })
    }

    /// Their runtimes, for the code that measures their work.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let workers = self.workers.iter();
        workers.map(|worker| worker.handle.clone()).collect()
    }

    /// The access to them.
    pub(crate) fn seats(&self) -> Seats {
        Seats { workers: self.workers.clone(), crowd: self.crowd.clone() }
    }

    /// Makes the first thread accept clients; the returned receiver reports when that is over.
    pub(crate) fn accept<F>(&self, accepting: impl FnOnce() -> F + Send + 'static) -> oneshot::Receiver<()>
    where
        F: Future<Output = ()> + 'static,
    {
        let (done, finished) = oneshot::channel();
        let job: Job = Box::new(move || {
            tokio::task::spawn_local(async move {
                accepting().await;
                // The receiver may be gone.
                let _ = done.send(());
            });
        });
        // A thread that is gone drops the job, and with it the sender.
        let _ = self.workers[0].jobs.send(job);
        finished
    }

    /// How many clients are served.
    pub(crate) fn clients(&self) -> usize {
        self.crowd.clients()
    }

    /// Returns when the last client is gone.
    pub(crate) async fn empty(&self) {
        loop {
            // Registered before the check, so that the last client cannot go unnoticed between the two.
            let gone = self.crowd.gone.notified();
            if self.clients() == 0 {
                return;
            }
            gone.await;
        }
    }

    /// Ends the threads; the clients that are left are dropped.
    pub(crate) fn end(self) {
        let (stops, threads): (Vec<_>, Vec<_>) = self.threads.into_iter().unzip();
        // All are told before waiting for the first, so that they end at the same time.
        drop(stops);
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}

impl Crowd {
    fn clients(&self) -> usize {
        self.clients.load(Ordering::Acquire)
    }
}

impl Seats {
    /// How many clients are served.
    pub(crate) fn clients(&self) -> usize {
        self.crowd.clients()
    }

    /// A place on the thread with the fewest clients; this thread is preferred among equals.
    pub(crate) fn free(&self) -> Seat {
        let here = PLACE.get();
        let load = |place: usize| self.workers[place].clients.load(Ordering::Relaxed);
        let place = (0..self.workers.len())
            // This thread among equals, because a client that stays here needs no other runtime.
            .min_by_key(|&place| (load(place), Some(place) != here))
            .unwrap_or(0);
        let clients = self.workers[place].clients.clone();
        clients.fetch_add(1, Ordering::Relaxed);
        self.crowd.clients.fetch_add(1, Ordering::Relaxed);
        Seat { place, clients, crowd: self.crowd.clone() }
    }

    /// Serves a client at its place on another thread.
    pub(crate) fn serve<F>(&self, seat: Seat, serving: impl FnOnce(Seat) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let jobs = &self.workers[seat.place].jobs;
        let job: Job = Box::new(move || {
            tokio::task::spawn_local(serving(seat));
        });
        // A thread that is gone cannot serve: the client's connection is dropped with the job.
        let _ = jobs.send(job);
    }
}

impl Seat {
    /// Whether it is on this thread.
    pub(crate) fn is_here(&self) -> bool {
        Some(self.place) == PLACE.get()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
        if self.crowd.clients.fetch_sub(1, Ordering::Release) == 1 {
            self.crowd.gone.notify_waiters();
        }
    }
}

/// One thread's life.
fn work(
    place: usize,
    mut jobs: UnboundedReceiver<Job>,
    told: &std::sync::mpsc::Sender<io::Result<Handle>>,
    mut stopped: oneshot::Receiver<()>,
    standstill: Arc<Standstill>,
) {
    PLACE.set(Some(place));
    let mut runtime = runtime::Builder::new_current_thread();
    runtime.enable_all().on_thread_unpark(move || {
        standstill.look(Instant::now());
    });
    let runtime = runtime.build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = told.send(Err(error));
            return;
        }
    };
    let _ = told.send(Ok(runtime.handle().clone()));
    runtime.block_on(async {
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(job) => job(),
                    None => return,
                },
                _ = &mut stopped => return,
            }
        }
    });
    // A name look-up that hangs is not waited for.
    runtime.shutdown_background();
    pool::close_all();
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn each_newcomer_goes_to_the_thread_with_the_fewest_and_stays_there() {
        let workers = Workers::start(3, &Arc::default()).unwrap();
        let seats = workers.seats();
        let places = Arc::new(Mutex::new(Vec::new()));
        let (enough, go) = tokio::sync::watch::channel(false);
        let told = places.clone();
        workers
            .accept(move || async move {
                for _ in 0..9 {
                    let (told, mut go) = (told.clone(), go.clone());
                    seats.serve(seats.free(), move |seat| async move {
                        told.lock().unwrap().push(PLACE.get());
                        go.wait_for(|&go| go).await.unwrap();
                        drop(seat);
                    });
                }
            })
            .await
            .unwrap();
        assert_eq!(workers.clients(), 9);
        while places.lock().unwrap().len() < 9 {
            tokio::task::yield_now().await;
        }
        enough.send_replace(true);
        workers.empty().await;
        let mut places = places.lock().unwrap().clone();
        places.sort_unstable();
        let each = [Some(0), Some(1), Some(2)].map(|place| [place; 3]);
        assert_eq!(places, each.concat());
        workers.end();
    }
}

//! The clock that stops a policy which does not answer: a thread that increments the engine's epoch once per
//! millisecond while a guest may have to be stopped, and sleeps otherwise, so that an idle proxy does not wake a
//! thousand times per second. `deadline.rs` decides what happens at a check.

mod need;

use std::sync::{Arc, Weak};
use std::thread::{self, Thread};

use wasmtime::Engine;

use crate::deadline::TICK;
use crate::error::HostError;
use need::Need;

/// How many ticks the ticker continues after the last deadline for which it was needed: waking it costs a call about 5
/// µs, which a busy proxy then pays at most ten times per second.
const LINGER: u64 = 100;

/// The ticks of one engine. The thread ends when the last user of the engine is gone.
pub(crate) struct Ticker {
    engine: Engine,
    /// Its ticks are never behind the engine's epoch: they are counted first.
    need: Need,
    thread: Thread,
}

impl Ticker {
    /// Starts the thread, which sleeps until it is needed.
    pub(crate) fn start(engine: &Engine) -> Result<Arc<Ticker>, HostError> {
        let (send, receive) = std::sync::mpsc::channel::<Weak<Ticker>>();
        let thread = thread::Builder::new()
            .name("policy-ticker".to_owned())
            .spawn(move || {
                if let Ok(ticker) = receive.recv() {
                    run(&ticker);
                }
            })
            .map_err(HostError::Ticker)?;
        let ticker =
            Arc::new(Ticker { engine: engine.clone(), need: Need::new(LINGER), thread: thread.thread().clone() });
        // It is received: the thread does not end before.
        let _ = send.send(Arc::downgrade(&ticker));
        Ok(ticker)
    }

    /// Promises this many ticks to a call. Call this after the store's deadline was set: then the thread cannot fall
    /// asleep before it has counted to that deadline.
    pub(crate) fn promise(&self, ticks: u64) {
        self.need.promise(ticks, || self.thread.unpark());
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // It finds no ticker, and ends.
        self.thread.unpark();
    }
}

/// The thread's function. It holds no ticker while it waits, so that the end of the ticker is noticed.
fn run(ticker: &Weak<Ticker>) {
    while let Some(strong) = ticker.upgrade() {
        let asleep = strong.need.is_asleep();
        drop(strong);
        if asleep {
            // A wake-up between the check and this call makes it return at once.
            thread::park();
            continue;
        }
        thread::sleep(TICK);
        if let Some(ticker) = ticker.upgrade() {
            ticker.need.tick(|| ticker.engine.increment_epoch());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::engine;
    use crate::sync::Ordering;

    #[track_caller]
    fn wait_until(what: &str, holds: impl Fn() -> bool) {
        let patience = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < patience, "waited in vain until {what}");
            thread::sleep(TICK);
        }
    }

    #[test]
    fn it_ticks_for_as_long_as_was_promised_then_sleeps_and_can_be_woken() {
        let ticker = Ticker::start(&engine::start().unwrap().engine).unwrap();
        let counted = || ticker.need.ticks.load(Ordering::Relaxed);
        assert!(ticker.need.is_asleep(), "nobody needs it yet");
        for promised in [1, 20, 3] {
            let before = counted();
            ticker.promise(promised);
            assert!(!ticker.need.is_asleep());
            wait_until("it sleeps again", || ticker.need.is_asleep());
            assert!(counted() >= before + promised + LINGER);
        }
        let asleep = counted();
        thread::sleep(20 * TICK);
        assert_eq!(counted(), asleep, "it went on counting");
    }

    #[test]
    fn many_promises_at_once_leave_none_without_its_ticks() {
        let ticker = Ticker::start(&engine::start().unwrap().engine).unwrap();
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for round in 0..20 {
                        let before = ticker.need.ticks.load(Ordering::Relaxed);
                        ticker.promise(2);
                        wait_until("two ticks are over", || ticker.need.ticks.load(Ordering::Relaxed) >= before + 2);
                        // Around the moment when it falls asleep.
                        thread::sleep(TICK * (95 + round / 2));
                    }
                });
            }
        });
    }

    #[test]
    fn the_thread_ends_with_the_last_who_may_call() {
        for promised in [None, Some(5)] {
            let new = engine::start().unwrap();
            let weak = new.engine.weak();
            let ticker = Ticker::start(&new.engine).unwrap();
            if let Some(promised) = promised {
                ticker.promise(promised);
            }
            drop((new, ticker));
            wait_until("nobody holds the engine", || weak.upgrade().is_none());
        }
    }
}

//! Hand-written wake-ups across threads, which loom tries in every order of their steps and with every value that the
//! memory model lets a thread read: a task that has something to do is never left asleep. The original files are
//! compiled here, with `sync.rs` in place of the types of std, so the tried code is the code that runs.

#![cfg(test)]

#[path = "../../../proxy/control/src/net/wakeup/bits.rs"]
mod bits;
#[path = "../../../proxy/control/src/telemetry/audit/queue/waiting.rs"]
mod lines;
#[path = "../../../proxy/policy/src/ticker/need.rs"]
mod need;
mod sync;
#[path = "../../../proxy/control/src/telemetry/events/waiting.rs"]
mod waiting;

/// The messages to the writing thread; here only the fact that there is a message matters.
mod config {
    #[derive(Debug)]
    pub(crate) struct Limits;
}

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

use bits::Bits;
use need::Need;
use sync::{park, spawn};
use waiting::Waiting;

/// Tries all orders with up to three switches in the middle of a thread: more switches find nothing and take
/// hours.
fn every_order(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

#[test]
fn a_task_hears_each_word_that_is_said_before_its_look_or_during_its_sleep() {
    every_order(|| {
        let bits = Arc::new(Bits::default());
        let speakers = [1, 2].map(|word| {
            let bits = bits.clone();
            loom::thread::spawn(move || bits.say(word))
        });
        let mut heard = 0;
        block_on(poll_fn(|cx| {
            heard |= bits.look(cx).unwrap_or(0);
            match heard {
                3 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }));
        for speaker in speakers {
            speaker.join().unwrap();
        }
    });
}

/// Takes entries until it has so many, or is stopped; returns how many it had.
fn follow(waiting: &Waiting<u8>, enough: usize) -> usize {
    let (mut entries, mut taken) = (Vec::new(), 0);
    loop {
        let is_last = waiting.take(&mut entries);
        taken += entries.len();
        if is_last || taken >= enough {
            return taken;
        }
        waiting.rest(!entries.is_empty());
        entries.clear();
    }
}

#[test]
fn an_entry_wakes_the_thread_that_it_waits_for() {
    every_order(|| {
        let waiting = Arc::new(Waiting::new());
        let followed = waiting.clone();
        let (thread, follower) = spawn(move || follow(&followed, 2));
        waiting.wait_for(thread);
        let other = waiting.clone();
        let putter = loom::thread::spawn(move || assert!(other.put(1, 9)));
        assert!(waiting.put(2, 9));
        putter.join().unwrap();
        assert_eq!(follower.join().unwrap(), 2);
    });
}

#[test]
fn what_was_put_in_before_the_end_is_taken_and_the_thread_ends() {
    every_order(|| {
        let waiting = Arc::new(Waiting::new());
        let followed = waiting.clone();
        let (thread, follower) = spawn(move || follow(&followed, usize::MAX));
        waiting.wait_for(thread);
        assert!(waiting.put(1, 1));
        let had_room = waiting.put(2, 1);
        waiting.stop();
        assert_eq!(follower.join().unwrap(), 1 + usize::from(had_room));
    });
}

#[test]
fn who_was_promised_ticks_gets_them_though_the_ticker_falls_asleep_meanwhile() {
    every_order(|| {
        let (need, is_over) = (Arc::new(Need::new(0)), Arc::new(AtomicBool::new(false)));
        let (needed, ended) = (need.clone(), is_over.clone());
        let (thread, ticker) = spawn(move || {
            while !ended.load(Ordering::Acquire) {
                match needed.is_asleep() {
                    true => park(),
                    false => needed.tick(|| {}),
                }
                loom::thread::yield_now();
            }
        });
        for _ in 0..2 {
            let before = need.ticks.load(Ordering::Relaxed);
            need.promise(1, || thread.unpark());
            while need.ticks.load(Ordering::Relaxed) <= before {
                loom::thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Release);
        thread.unpark();
        ticker.join().unwrap();
    });
}

#[test]
fn lines_and_an_order_to_open_the_file_anew_wake_the_thread_that_writes() {
    every_order(|| {
        let lines = Arc::new(lines::Waiting::default());
        let taken = lines.clone();
        let writer = loom::thread::spawn(move || {
            let (mut written, mut reopened) = (0, 0);
            while written == 0 || reopened == 0 {
                let work = taken.take(Duration::MAX, true);
                written += work.lines.len();
                reopened += usize::from(work.reopen.is_some());
            }
            (written, reopened)
        });
        let told = lines.clone();
        let operator = loom::thread::spawn(move || told.reopen(config::Limits));
        lines.queue().lines.push(b'\n');
        lines.wake();
        operator.join().unwrap();
        assert_eq!(writer.join().unwrap(), (1, 1));
    });
}

#[test]
fn the_thread_that_writes_hears_of_the_end_and_is_waited_for() {
    every_order(|| {
        let lines = Arc::new(lines::Waiting::default());
        let taken = lines.clone();
        let writer = loom::thread::spawn(move || {
            while !taken.take(Duration::MAX, false).stopping {}
            taken.ended();
        });
        lines.stop();
        writer.join().unwrap();
    });
}

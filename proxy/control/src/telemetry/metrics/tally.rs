//! Counters of what every command counts, one set for each thread that serves clients. Only their own
//! thread writes them, so counting is an addition to memory that no other processor has; they are added
//! up when the page is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::IntCounter;

use super::declaration::ByLabel;
use crate::telemetry::vocabulary::{CommandClass, CommandResult, Direction, Label};

/// One thread's counters. See the module.
#[derive(Debug, Default)]
pub struct Tally {
    /// By class and result.
    commands: [[Cell; 4]; 3],
    /// Bytes from clients, and to them.
    bytes: [Cell; 2],
    /// Notices that would have led a client to another server.
    notices: Cell,
}

/// A number that one thread writes and any may read.
#[derive(Debug, Default)]
struct Cell(AtomicU64);

impl Cell {
    fn add(&self, count: u64) {
        // No other thread writes in between.
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(count);
        self.0.store(sum, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Tally {
    /// Counts one command.
    pub fn command(&self, class: CommandClass, result: CommandResult) {
        self.commands[class.index()][result.index()].add(1);
    }

    /// Counts a notice that would have led a client to another server.
    pub fn notice_kept(&self) {
        self.notices.add(1);
    }

    /// Counts bytes that came from a client.
    pub fn received(&self, bytes: usize) {
        self.bytes[Direction::In.index()].add(bytes as u64);
    }

    /// Counts bytes that went to a client.
    pub fn sent(&self, bytes: usize) {
        self.bytes[Direction::Out.index()].add(bytes as u64);
    }
}

/// Brings the counters of the page up to what the threads have counted. The caller sees to it that
/// no other thread does at the same time.
pub(super) fn show(
    tallies: &[Arc<Tally>],
    commands: &ByLabel<CommandClass, ByLabel<CommandResult, IntCounter>>,
    notices_kept: &IntCounter,
    bytes: &ByLabel<Direction, IntCounter>,
) {
    let sum = |cell: &dyn Fn(&Tally) -> &Cell| -> u64 { tallies.iter().map(|tally| cell(tally).read()).sum() };
    for class in CommandClass::ALL {
        for result in CommandResult::ALL {
            let total = sum(&|tally| &tally.commands[class.index()][result.index()]);
            raise(commands.at(*class).at(*result), total);
        }
    }
    raise(notices_kept, sum(&|tally| &tally.notices));
    for direction in Direction::ALL {
        let total = sum(&|tally| &tally.bytes[direction.index()]);
        raise(bytes.at(*direction), total);
    }
}

fn raise(shown: &IntCounter, total: u64) {
    shown.inc_by(total.saturating_sub(shown.get()));
}

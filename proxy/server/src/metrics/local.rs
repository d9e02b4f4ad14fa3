//! Counters of one session, added to the shared ones now and then: a passed-through command costs
//! an addition to a number in the session's own memory. They are not on the page until `flush`.

use super::Metrics;
use super::labels::{CommandClass, CommandResult, Direction, Label};

/// What a session counted since its last flush.
#[derive(Debug, Default)]
pub(crate) struct LocalCounters {
    /// By class and result.
    commands: [[u64; 4]; 3],
    /// Bytes that came from the client.
    pub(crate) bytes_in: u64,
    /// Bytes that went to the client.
    pub(crate) bytes_out: u64,
}

impl LocalCounters {
    /// Counts one command.
    pub(crate) fn command(&mut self, class: CommandClass, result: CommandResult) {
        self.commands[class.index()][result.index()] += 1;
    }

    /// Moves everything to the shared counters. A session does this when it goes idle, and when
    /// it ends.
    pub(crate) fn flush(&mut self, metrics: &Metrics) {
        for class in CommandClass::ALL {
            for result in CommandResult::ALL {
                let count = std::mem::take(&mut self.commands[class.index()][result.index()]);
                if count > 0 {
                    metrics.commands.at(*class).at(*result).inc_by(count);
                }
            }
        }
        metrics
            .client_bytes
            .at(Direction::In)
            .inc_by(std::mem::take(&mut self.bytes_in));
        metrics
            .client_bytes
            .at(Direction::Out)
            .inc_by(std::mem::take(&mut self.bytes_out));
    }
}

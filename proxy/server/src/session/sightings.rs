//! Commands that pass through and may be about locks of which nobody has said that they are locks. They go on as they
//! came; what they did is told to [`Discovery`](crate::telemetry::discovery::Discovery).

use bytes::Bytes;
use lockwarden_discovery::Did;
use lockwarden_discovery::recognise::{Interest, Scripts, recognise};
use lockwarden_discovery::sighting::{Doings, answered, doings};
use lockwarden_lock::op::{AcquireReply, LockOp, ReleaseSpelling};
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_resp::Request;
use smallvec::smallvec;

use super::awaited::Sighted;
use super::client::Client;
use crate::clock::now_ms;
use crate::telemetry::discovery::Seen;

/// A longer command is not about a lock: bytes.
const MAX_FRAME: usize = 4_096;
/// Keys of a command that are looked at.
const MAX_KEYS: usize = 16;
/// Of so many reads of followed keys one is told: it shows whether a value is there to be read.
const READS: u64 = 16;

impl Client {
    /// A command whose reply says what it did to keys that may be locks. Nearly every command is none, which is found
    /// out without a look at its key.
    #[inline]
    pub(super) fn sight(
        &mut self,
        pass: PassThrough<'_>,
        request: &Request<'_>,
    ) -> Option<Box<Sighted>> {
        match Interest::of(pass.effect(), request) {
            Interest::No => None,
            interest => self.sight_of(interest, pass, request),
        }
    }

    fn sight_of(
        &mut self,
        interest: Interest,
        pass: PassThrough<'_>,
        request: &Request<'_>,
    ) -> Option<Box<Sighted>> {
        let discovery = &self.shared.discovery;
        let db = self.connection.db();
        let follows = |key: &[u8]| discovery.follows(db, key);
        match interest {
            Interest::No => return None,
            Interest::Reads => {
                self.reads = self.reads.wrapping_add(1);
                let key = request.get(1)?;
                if self.reads.is_multiple_of(READS) && follows(key) {
                    let key = Bytes::copy_from_slice(key);
                    self.leave_sightings(db, smallvec![(key, Did::Read)]);
                }
                return None;
            }
            Interest::Changes => {
                let mut keys = request.args().skip(1).take(MAX_KEYS);
                if !keys.any(follows) {
                    return None;
                }
            }
            Interest::Script => {
                let is_followed = request.get(3).is_some_and(follows);
                if !is_followed && !discovery.script(request.get(1)?).is_worth_a_look() {
                    return None;
                }
            }
            Interest::Takes | Interest::Counts => {}
        }
        if pass.is_blocking() || pass.frame().len() > MAX_FRAME || !discovery.may_look() {
            return None;
        }
        let scripts = Scripts {
            by_name: &|sha| self.shared.script_cache.get(sha),
            of_text: &|text| self.shared.script_cache.saw(text),
        };
        let command = recognise(*request, &scripts);
        let doings = command.as_deref().map(|command| doings(command, now_ms()));
        let doings = doings.filter(|doings| !doings.is_empty());
        if interest == Interest::Script {
            discovery.script(request.get(1)?).showed(doings.is_some());
        }
        let doings = doings?;
        for (key, did) in &doings {
            if matches!(did, Did::Acquire { .. } | Did::Counted(_)) {
                discovery.follow(db, key);
            }
        }
        let command = command?;
        // What stands in a block is answered with the block, and a value may be as long as memory.
        if self.connection.block.is_some() || may_answer_a_value(&command.op) {
            self.leave_sightings(db, doings);
            return None;
        }
        Some(Box::new(Sighted {
            command,
            db,
            doings,
        }))
    }

    /// The reply to such a command.
    pub(super) fn sighted(&self, sighted: Sighted, reply: &[u8]) {
        let Sighted {
            command,
            db,
            doings,
        } = sighted;
        self.leave_sightings(db, answered(&command, doings, reply));
    }

    fn leave_sightings(&self, db: u32, doings: Doings) {
        self.shared.discovery.saw(Seen {
            at_ms: now_ms(),
            db,
            caller: self.caller(),
            doings,
        });
    }
}

/// Whether the reply may be what is stored.
fn may_answer_a_value(op: &LockOp) -> bool {
    match op {
        LockOp::Acquire { reply, .. } => matches!(reply, AcquireReply::OldValue),
        LockOp::Take { script, .. } => !script.has_plain_no(),
        LockOp::Store { wants_old, .. } => *wants_old,
        LockOp::Extend { spelling, .. } if spelling.answers_value() => true,
        LockOp::Release {
            spelling: ReleaseSpelling::GetDel,
            ..
        } => true,
        LockOp::Extend { comparison, .. } | LockOp::Release { comparison, .. } => {
            let comparison = comparison.as_ref();
            comparison.is_some_and(|comparison| !comparison.has_plain_no())
        }
        LockOp::AcquireAll { .. } | LockOp::ReleaseMany { .. } | LockOp::Wrapped { .. } => false,
    }
}

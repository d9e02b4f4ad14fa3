//! Calls that are sent to Redis unjudged and name locks: what they do to these locks is not seen. So the leases of
//! these locks are marked before the call, in the record, where every proxy reads the mark. A marked lease does not
//! count as one that ran out, or whose release is still owed.

use std::time::Instant;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::Observation;
use lockwarden_lock::classify::{MAX_WRAPPED_LOCKS, named_locks};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::lease::LeaseEvent;
use lockwarden_lock::op::Target;
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_lock::plan::{self, Form};
use lockwarden_resp::{RequestDecoder, RequestLimits, Step, Value, parse_reply};

use crate::session::Session;
use crate::session::client::block::Place;
use crate::session::step::awaited::Look;
use crate::session::transport::Muted;
use crate::state::effects;

impl Session {
    /// Such a call is about to be forwarded. The mark goes before it: after it another client may have been granted
    /// the lock.
    pub(crate) fn mark_unwitnessed(&mut self, pass: &PassThrough<'_>, active: &Active) {
        let mut decoder = RequestDecoder::new(RequestLimits::default());
        if !matches!(decoder.decode(pass.frame()), Ok(Step::Request { .. })) {
            return;
        }
        let mut locks = named_locks(&active.namespaces, &decoder.request(pass.frame()));
        locks.truncate(MAX_WRAPPED_LOCKS);
        self.mark(&locks, false, active);
    }

    /// A script has changed a lock that it does not declare, and the guard only recorded that: what the change was is
    /// not known.
    pub(crate) fn mark_noted(&mut self, lock: &Target, active: &Active) {
        if active.namespaces.find(&lock.key).is_some() {
            self.mark(std::slice::from_ref(lock), true, active);
        }
    }

    fn mark(&mut self, locks: &[Target], was: bool, active: &Active) {
        let now = Instant::now();
        for lock in locks {
            let key = DbKey::new(self.client.connection.db(), &lock.key);
            self.client.evidence.unwitnessed(&key);
            let mirror = &self.client.shared.mirror;
            mirror.apply(&key, LeaseEvent::Unwitnessed, now);
        }
        if locks.is_empty() || !self.may_mark(now) {
            return;
        }
        let keys: Vec<&[u8]> = locks.iter().map(|lock| &lock.key[..]).collect();
        let step = plan::unwitnessed(&keys, was, &active.companion_prefix);
        let look = match &mut self.client.connection.block {
            Some(block) => {
                block.hold(Place::Guard);
                Look::Own
            }
            None => Look::Unwitnessed(locks.into()),
        };
        self.transport.execute(&step, Form::Text, look, Muted::Yes);
    }

    /// Whether the mark may go over the client's own connection.
    fn may_mark(&self, now: Instant) -> bool {
        let connection = &self.client.connection;
        match connection.block {
            // A mark that Redis refuses would spoil the block.
            Some(_) => self.client.shared.rights.runs_scripts(connection.user()),
            // It would end a CLIENT CACHING, which applies to the call after it.
            None if connection.reads_are_noted() => false,
            None => !connection.may_not_read_records(now),
        }
    }

    /// What came of the marks.
    pub(crate) fn marked_unwitnessed(&mut self, locks: &[Target], frame: &Bytes) {
        self.own_step_failed(frame);
        if frame.starts_with(b"-NOPERM") {
            self.client.connection.cannot_read_records();
        }
        let Ok(Value::Array(marked)) = parse_reply(frame, self.client.connection.protocol) else {
            return;
        };
        let active = self.client.active();
        for (lock, _) in locks.iter().zip(marked).filter(|(_, one)| *one == Value::Integer(1)) {
            let key = DbKey::new(self.client.connection.selected, &lock.key);
            let caller = self.client.caller();
            effects::observed(&self.client.shared, Observation::EndUnseen, key, caller, &active);
        }
    }
}

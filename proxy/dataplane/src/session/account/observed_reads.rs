//! Reads of locks pass through. What they return may prove something later, so the grant that each value belongs to
//! is read with it.

use std::time::Instant;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult, UnjudgedWhy};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::op::Target;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_lock::token::Grant;
use lockwarden_resp::{RequestDecoder, RequestLimits, Step, Value, parse_reply};
use smallvec::SmallVec;

use crate::session::Session;
use crate::session::client::Client;
use crate::session::step::awaited::Look;
use crate::session::transport::Muted;

impl Session {
    /// A read of locks: sent as it is. The grant that each value belongs to is read just before it, so that a change
    /// between the two can only make the proof fail.
    pub fn read(
        &mut self,
        name: &[u8],
        pass: PassThrough<'_>,
        targets: SmallVec<[Target; 1]>,
        active: &Active,
        muted: Muted,
    ) {
        self.client.count(CommandClass::PassThrough, CommandResult::Ok);
        let implied = |target: &&Target| active.namespace(target.namespace).is_implied;
        for target in targets.iter().filter(implied) {
            self.client.sight_read(&target.key);
        }
        let connection = &self.client.connection;
        if connection.block.is_some() || connection.may_not_read_records(Instant::now()) {
            self.transport.forward(pass, muted);
            self.client.queued();
            return;
        }
        if self.client.connection.reads_are_noted() || self.transport.pushes.is_monitoring() {
            for target in &targets {
                active.namespace(target.namespace).metrics.unjudged.at(UnjudgedWhy::Tracking).inc();
            }
            self.transport.forward(pass, muted);
            return;
        }
        let mut keys = SmallVec::new();
        for target in targets {
            let question = OwnRequest::GrantOf { lock: &target.key, companion_prefix: &active.companion_prefix };
            self.transport.inquire(&question, Look::ReadGrant);
            self.client.connection.unsettle();
            keys.push((DbKey::new(self.client.connection.db(), &target.key), 0));
        }
        if name.eq_ignore_ascii_case(b"MGET") {
            place_in_reply(&mut keys, &pass);
        }
        self.client.connection.unsettle();
        self.transport.forward_and_look(pass, Look::ReadValue(Box::new(keys)), muted);
    }
}

impl Client {
    /// Remembers what was read.
    pub(crate) fn observe(&mut self, keys: SmallVec<[(DbKey, usize); 1]>, frame: &Bytes) {
        let from = self.connection.read_grants.len().saturating_sub(keys.len());
        let grants: SmallVec<[Option<Grant>; 1]> = self.connection.read_grants.drain(from..).collect();
        let Ok(value) = parse_reply(frame, self.connection.protocol) else {
            return;
        };
        let now = Instant::now();
        for ((key, place), grant) in keys.into_iter().zip(grants) {
            // A SELECT before it may still have been on its way when this was sent.
            let key = DbKey::new(self.connection.selected, key.bytes());
            let read = match &value {
                Value::Array(items) => items.get(place),
                single => Some(single),
            };
            let Some(read) = read.filter(|read| !read.is_error()) else {
                continue;
            };
            let watched = self.connection.watch.has_lock(&key);
            self.notes_vanished(&key, now);
            self.evidence.observed(key, grant, read.as_bytes(), watched, now);
        }
    }
}

/// Which elements of an MGET's reply are the values of these keys.
fn place_in_reply(keys: &mut SmallVec<[(DbKey, usize); 1]>, pass: &PassThrough<'_>) {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    if !matches!(decoder.decode(pass.frame()), Ok(Step::Request { .. })) {
        return;
    }
    let request = decoder.request(pass.frame());
    let mut next = 1;
    for (key, place) in keys {
        while next < request.len() && request.arg(next) != key.bytes() {
            next += 1;
        }
        *place = next - 1;
        next += 1;
    }
}

//! Findings about how locks are used: they are counted and reported, and change nothing.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::Observation;
use lockwarden_lock::data_guard::{RecordHead, Refusal, Verdict};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::evidence::Own;
use lockwarden_lock::op::Target;
use lockwarden_lock::outcome::Granted;
use lockwarden_lock::plan::Who;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::token::stored_form;

use crate::session::client::Client;
use crate::state::effects;

use super::Settled;

/// The owner that a record names for a lock whose type has no owner: the type's name, which no client has as a value.
const TYPES: [&[u8]; 5] = [b"hash", b"zset", b"list", b"set", b"stream"];

impl Client {
    /// A former holder acted while another client holds the lock. A lease that was released by other means before its
    /// time was over, for example with its owner token over another connection, is no overlap. Returns whether it was
    /// one.
    pub(super) fn acted_late(&mut self, one: &Settled<'_>, late: bool, now: Instant) -> bool {
        if !late {
            return false;
        }
        let own = self.evidence.own(one.key, now);
        let may_be_over = |own: &Own| !own.unwitnessed && own.ends.is_none_or(|ends| ends <= now);
        let vanished = |own: &Own| self.shared.mirror.has_vanished(one.key, own.grant);
        let overlapped = own.is_none_or(|own| may_be_over(own) || vanished(own));
        self.evidence.lapsed(one.key, now);
        self.shared.renewals.remove(one.key, Some(self.number));
        overlapped
    }

    /// An acquire was refused, because the lock is held. `own`: this very connection holds it, so several threads
    /// share it. A command on several locks has one answer for all of them, so what the connection knows of each is
    /// checked, too.
    pub(super) fn refused_the_lock(&mut self, one: &Settled<'_>, own: bool, active: &Active, now: Instant) {
        if own && self.evidence.own(one.key, now).is_some() {
            self.observed(Observation::SharedSession, one.target, active);
        }
        self.evidence.refused(one.key, one.stored);
    }

    /// A release or extension met a lease, whether it was refused or not. Reports one without an owner token, from a
    /// connection that did not get the lock when it last tried.
    pub(super) fn touched_the_lease(&mut self, one: &Settled<'_>, active: &Active) {
        let gives_back = matches!(one.operation, Operation::Release | Operation::Extend);
        if gives_back && one.tokenless && self.evidence.was_refused(one.key) {
            self.observed(Observation::RefusedThenReleased, one.target, active);
        }
    }

    /// A release proved nothing, and its connection neither took the lock nor tried to. If that happens again and
    /// again, locks are taken by one process and released by another.
    pub(super) fn handed_over(&mut self, one: &Settled<'_>, reason: Reason, active: &Active, now: Instant) {
        let by_another = one.operation == Operation::Release
            && one.tokenless
            && reason == Reason::NotOwner
            && !self.evidence.was_refused(one.key)
            && self.evidence.own(one.key, now).is_none();
        let namespace = &active.namespace(one.target.namespace).name;
        if by_another && self.shared.hand_overs.given_back(namespace, &one.target.key, now) {
            self.observed(Observation::HandedOver, one.target, active);
        }
    }

    /// A lock was granted with a value: reports a value that another client was granted lately.
    pub(super) fn uses_a_token(
        &mut self,
        one: &Settled<'_>,
        who: &Who,
        value: &Bytes,
        granted: &Granted,
        active: &Active,
        now: Instant,
    ) {
        if granted.again.is_some() || TYPES.contains(&&value[..]) {
            return;
        }
        let shared = self.shared.owner_tokens.granted(
            &active.namespace(one.target.namespace).name,
            &stored_form(value),
            who.identity(&one.allowed.rules),
            granted.shared_token,
            now,
        );
        if shared {
            self.observed(Observation::SharedToken, one.target, active);
        }
    }

    /// A lease of this client, or of another client with its identity, ran out, and this step was the first to
    /// notice.
    pub(super) fn ran_out_unnoticed(&mut self, one: &Settled<'_>, active: &Active) {
        let holder = match self.evidence.own(one.key, one.now.at) {
            Some(_) => Some(self.caller()),
            None => {
                let lease = self.shared.mirror.lease(one.key);
                let session = lease.and_then(|lease| lease.session);
                session.and_then(|session| self.shared.clients.caller(session))
            }
        };
        if let Some(holder) = holder {
            let (kind, lock) = (Observation::RanOutConnected, one.key.clone());
            effects::observed(&self.shared, kind, lock, holder, active);
        }
    }

    /// Reports a lease that this client, or another client of its identity, has let run out: a release or an
    /// extension comes after all. `is_its`: the step found that the lease is theirs.
    pub(super) fn comes_back_late(&mut self, one: &Settled<'_>, is_its: bool, active: &Active) {
        let now = one.now.at;
        let gives_back = matches!(one.operation, Operation::Release | Operation::Extend);
        // A lease that is kept alive ends at another time than the connection knows.
        let own = self.evidence.own(one.key, now).map(|own| own.grant);
        let current = self.shared.mirror.lease(one.key);
        let runs = current.is_some_and(|lease| Some(lease.grant) == own && lease.ends.is_none_or(|ends| ends > now));
        if gives_back && (is_its || !runs) && self.evidence.comes_back(one.key, is_its, now) {
            self.observed(Observation::RanOutAlive, one.target, active);
        }
    }

    /// What a guard decided about a write, by the record of a lock. This finds clients whose threads share
    /// connections: there the write of a late thread looks like the holder's. Either the holder's own lease followed
    /// one on this connection that ran out and was not released, or another connection of this client is the holder
    /// and the client owes a release.
    pub(crate) fn judged_a_write(
        &mut self,
        verdict: Verdict,
        lock: &[u8],
        record: Option<&RecordHead>,
        active: &Active,
    ) {
        if active.namespaces.find(lock).is_none() {
            return;
        }
        let key = DbKey::new(self.connection.db(), lock);
        let is_found = match verdict {
            Verdict::Holder => self.evidence.overran(&key),
            // A connection without a lease of its own gets this verdict for that debt alone.
            Verdict::Refused(Refusal::StaleFence) => {
                let session = self.connection.peer().session;
                record.is_some_and(|record| record.is_indebted && record.session != session)
                    && self.evidence.own(&key, Instant::now()).is_none()
            }
            Verdict::Late | Verdict::Identity | Verdict::Unlocked | Verdict::Refused(Refusal::NotOwner) => false,
        };
        if is_found {
            let caller = self.caller();
            effects::observed(&self.shared, Observation::SharedGuard, key, caller, active);
        }
    }

    /// Counts a finding, and logs it.
    pub(super) fn observed(&mut self, kind: Observation, target: &Target, active: &Active) {
        let key = DbKey::new(self.connection.db(), &target.key);
        effects::observed(&self.shared, kind, key, self.caller(), active);
    }

    /// The client closed its connection in order: reports leases that are meant to go on without it for longer than
    /// the ceiling.
    pub fn report_outlived(&mut self) {
        let (active, now) = (self.active(), Instant::now());
        let mut outlived = Vec::new();
        for (key, own) in self.evidence.held() {
            let Some(namespace) = active.namespaces.find(key.bytes()) else {
                continue;
            };
            let ceiling = active.namespace(namespace).ceiling_ms();
            let current = self.shared.mirror.lease(key);
            let longer = ceiling.is_some_and(|ms| {
                let ceiling = Duration::from_millis(ms);
                own.asked_end.is_some_and(|end| end > now + ceiling)
            });
            let is_held = current.is_some_and(|lease| lease.grant == own.grant && !lease.unwitnessed);
            if longer && is_held {
                let key = Bytes::copy_from_slice(key.bytes());
                outlived.push(Target { namespace, key });
            }
        }
        for target in outlived {
            self.observed(Observation::Outlived, &target, &active);
        }
    }
}

//! What a lease that was granted, extended or cut means for the connection's evidence, for keep-alive and the mirror.

use std::time::Instant;

use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::evidence::Own;
use lockwarden_lock::lease::LeaseEvent;
use lockwarden_lock::op::{AskedTtl, LockOp};
use lockwarden_lock::outcome::{Ended, Granted, Outcome};
use lockwarden_lock::plan::{Renewal, Who, outlive_ms};
use lockwarden_lock::rules::{HolderLost, KeepAliveBy, KeepAliveTtl, TrustAddress};
use lockwarden_lock::time::{AskedMs, KeepAliveMs, TtlMs};
use lockwarden_lock::token::{Grant, Process, stored_form};

use super::super::client::{Client, FirstCommand};
use crate::holders::identify;
use crate::registry::renewals::SameClient;
use crate::registry::undelivered::Undelivered;
use crate::ruleset::Active;
use crate::state::effects;

use super::{Settled, asked_end};

impl Client {
    pub(super) fn granted(
        &mut self,
        one: &Settled<'_>,
        granted: &Granted,
        active: &Active,
        now: Instant,
    ) {
        let (Some(drawn), Some(value)) = (one.grant, one.stored) else {
            return;
        };
        let grant = granted.again.unwrap_or(drawn);
        let who = self.connection.who();
        let lease = Undelivered {
            namespace: one.target.namespace,
            key: one.key.clone(),
            session: who.session,
            grant: Some(grant),
        };
        self.pending_grants.granted(lease, one.spoken_after);
        let ttl = granted.ttl_ms.span();
        let own = Own {
            grant,
            fence: granted.fence,
            stored: stored_form(value),
            ends: ttl.map(|ttl| one.sent(now) + ttl),
            asked_end: asked_end(granted.asked_ms, now),
            lapsed: None,
            came_back: false,
        };
        let ran_out = matches!(granted.ended, Ended::RanOut(_)).then_some(now);
        self.evidence.granted(one.key.clone(), own, ran_out);
        let event = LeaseEvent::Granted {
            namespace: one.target.namespace,
            grant,
            fence: granted.fence,
            session: who.session,
            ttl,
        };
        let ended = self.shared.mirror.apply(one.key, event, now);
        if let (Some(ended), Ended::RanOut(_)) = (ended, granted.ended) {
            effects::expired(&self.shared, one.key, &ended, active);
        }
        let since = one.sent(now);
        self.keep(one, &who, grant, granted.ttl_ms, granted.kept, since);
        self.uses_a_token(one, &who, value, granted, active, now);
        if self.first_command == FirstCommand::AtHand && granted.again.is_none() {
            self.may_be_job(one, &who, grant, granted.asked_ms == AskedMs(0), active);
        }
        let told = Who {
            process: one.told,
            ..who
        };
        let unnamed = who.client.with_process(Process::Pending);
        if one.told == Process::Pending && told.identity(&one.allowed.rules) == unnamed {
            let peer = self.connection.peer();
            identify::identify_later(&self.shared, peer, one.key.clone(), grant);
        }
        tracing::debug!(
            namespace = %active.namespace(one.target.namespace).name,
            key = %String::from_utf8_lossy(&one.target.key),
            fence = granted.fence.0,
            ttl_ms = granted.ttl_ms.0,
            again = granted.again.is_some(),
            client = %self.peer,
            certificate = self.certificate(),
            "granted"
        );
    }

    /// A lock was granted to the first command of a connection: that may be all that its client is there for.
    pub(super) fn may_be_job(
        &mut self,
        one: &Settled<'_>,
        who: &Who,
        grant: Grant,
        endless: bool,
        active: &Active,
    ) {
        let rules = &one.allowed.rules;
        let running = self.connection.peer().running();
        let is_elsewhere = !who.local && endless && who.is_distinctive(rules);
        if running.is_some() || is_elsewhere {
            let whose = (grant, who.identity(rules));
            let namespace = &active.namespace(one.target.namespace).name;
            if self.shared.jobs.took(one.key, whose, running, namespace) {
                self.first_lock = Some((one.key.clone(), grant));
            }
        }
    }

    pub(super) fn extended(
        &mut self,
        one: &Settled<'_>,
        (ttl_ms, asked_ms): (TtlMs, Option<AskedMs>),
        kept: bool,
        own: bool,
        now: Instant,
    ) {
        let ttl = ttl_ms.span();
        let ends = ttl.map(|ttl| one.sent(now) + ttl);
        if own {
            self.evidence
                .extended(one.key, ends, one.stored.map(stored_form));
        }
        self.shared
            .mirror
            .apply(one.key, LeaseEvent::Extended { ttl }, now);
        if !own && one.allowed.rules.holder_lost != HolderLost::Keep {
            let mirror = &self.shared.mirror;
            if let Some((grant, _)) = mirror.current(one.key) {
                let by = (grant, self.connection.peer());
                let is_held = |key: &DbKey, grant| {
                    let current = mirror.current(key);
                    current.is_some_and(|(current, _)| current == grant)
                };
                self.shared.lost_holders.extended(one.key, by, is_held);
            }
        }
        let grant = self.evidence.own(one.key, now).map(|own| own.grant);
        match grant.filter(|_| own) {
            // Its terms are as they were, whatever is left of its TTL just now.
            Some(grant)
                if kept && asked_ms.is_none() && self.shared.renewals.keeps(one.key, grant) => {}
            Some(grant) => {
                let who = self.connection.who();
                self.keep(one, &who, grant, ttl_ms, kept, one.sent(now));
            }
            // Somebody else's lease: its holder's session goes on keeping it alive.
            None if kept => {}
            None => self.shared.renewals.remove(one.key, None),
        }
    }

    /// Keep-alive begins or ends with the terms of the lease, whose TTL began to run after `since`: replicas may have been waited for since.
    pub(super) fn keep(
        &self,
        one: &Settled<'_>,
        who: &Who,
        grant: Grant,
        ttl_ms: TtlMs,
        kept: bool,
        since: Instant,
    ) {
        if !kept || ttl_ms == TtlMs(0) {
            self.shared.renewals.remove(one.key, None);
            return;
        }
        let obligations = &one.allowed.obligations;
        let rules = &one.allowed.rules;
        let keep_alive_ms = obligations.keep_alive_ms.unwrap_or(0);
        let keep_alive_ms = KeepAliveMs(match (rules.keep_alive_ttl, obligations.max_hold_ms) {
            // What hangs must not hold for ever.
            (KeepAliveTtl::All, Some(most)) => keep_alive_ms.min(most),
            (KeepAliveTtl::All, None) | (KeepAliveTtl::Proxy, _) => keep_alive_ms,
        });
        // Every renewal gives what the policy would give again: the default, or the ceiling.
        let renewal = Renewal {
            lock: one.target.key.clone(),
            grant,
            ttl_ms,
            grace_ms: one.allowed.rules.grace_ms,
            keep_alive_ms,
            keep_alive_ttl: rules.keep_alive_ttl,
            outlive_ms: outlive_ms(one.allowed),
        };
        let distinctive = who.is_distinctive(rules);
        let same_client = match who.trust(rules) {
            _ if rules.hand_over
                && let Some(application) = who.application =>
            {
                SameClient::Identity(application)
            }
            TrustAddress::Process => SameClient::Identity(who.client),
            TrustAddress::Auto | TrustAddress::No if who.local => {
                SameClient::Process(who.client, self.connection.peer().clone(), distinctive)
            }
            TrustAddress::Auto | TrustAddress::No
                if distinctive && rules.keep_alive_by == KeepAliveBy::Identity =>
            {
                SameClient::Identity(who.client)
            }
            TrustAddress::Auto | TrustAddress::No => SameClient::Nobody,
        };
        self.shared.renewals.add(
            &self.holder,
            same_client,
            one.target.namespace,
            one.key.clone(),
            renewal,
            since,
        );
    }

    /// Whether the TTL is shorter than the one that was asked for, its grace left aside.
    pub(super) fn clamped(&self, op: &LockOp, TtlMs(ttl_ms): TtlMs, one: &Settled<'_>) -> bool {
        let ttl_ms = ttl_ms.saturating_sub(one.allowed.rules.grace_ms);
        let cap = one.allowed.obligations.ttl_cap_ms;
        if let LockOp::Wrapped { .. } = op {
            // An invented TTL is the default, one that was cut the ceiling.
            return match &one.answer.outcome {
                Outcome::Granted(Granted { kept, asked_ms, .. }) => {
                    *kept && cap == Some(ttl_ms) && asked_ms.0 != ttl_ms
                }
                Outcome::Extended { kept, asked_ms, .. } => {
                    *kept && cap == Some(ttl_ms) && *asked_ms != Some(AskedMs(ttl_ms))
                }
                Outcome::Busy { .. }
                | Outcome::Released { .. }
                | Outcome::Absent { .. }
                | Outcome::Refused(_)
                | Outcome::Ungoverned
                | Outcome::Different { .. }
                | Outcome::ConditionUnmet
                | Outcome::Untouched { .. }
                | Outcome::Unconfirmed(_)
                | Outcome::Failed => false,
            };
        }
        match op.asked_ttl() {
            AskedTtl::For(ms) => one.enforced && i64::try_from(ttl_ms).is_ok_and(|ttl| ttl < ms),
            AskedTtl::Until(_) | AskedTtl::Further(_) => one.enforced && cap == Some(ttl_ms),
            AskedTtl::None | AskedTtl::Keep => false,
        }
    }
}

//! What a lease that was granted, extended or cut means for the connection's evidence, for keep-alive and the mirror.

use std::time::{Duration, Instant};

use lockwarden_control::ruleset::Active;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::evidence::{Own, SURELY_BEFORE_END};
use lockwarden_lock::lease::{Lease, LeaseEvent};
use lockwarden_lock::op::{AskedTtl, LockOp};
use lockwarden_lock::outcome::{Answer, Ended, Granted, Outcome};
use lockwarden_lock::plan::{Renewal, Who, keep_alive_ms, outlive_ms};
use lockwarden_lock::rules::{KeepAliveBy, TrustAddress};
use lockwarden_lock::time::{AskedMs, Tick, TtlMs};
use lockwarden_lock::token::{Grant, Process, stored_form};

use crate::holders::identify;
use crate::registry::renewals::SameClient;
use crate::registry::undelivered::Undelivered;
use crate::session::client::Client;
use crate::state::effects;

use super::{Settled, asked_end};

/// The age of one lease by Redis's clock and by the proxy's differs by this at most, apart from the time that a reply
/// took.
const SAME_AGE: Duration = Duration::from_millis(100);

impl Client {
    pub(super) fn granted(
        &mut self,
        one: &Settled<'_>,
        granted: &Granted,
        ran_out: bool,
        active: &Active,
        now: Instant,
    ) {
        let (Some(drawn), Some(value)) = (one.grant, one.stored) else {
            return;
        };
        let grant = granted.again.unwrap_or(drawn);
        let who = self.connection.who();
        let lease = Undelivered { key: one.key.clone(), session: who.session, grant: Some(grant) };
        self.pending_grants.granted(lease, one.spoken_after);
        let ttl = granted.ttl_ms.span();
        let own = Own {
            grant,
            fence: granted.fence,
            stored: stored_form(value).into(),
            ends: ttl.map(|ttl| Tick::from(one.sent(now)) + ttl),
            asked_end: asked_end(granted.asked_ms, now).map(Tick::from),
            lapsed: None,
            came_back: false,
            unwitnessed: false,
        };
        let ran_out = ran_out.then_some(now);
        self.evidence.granted(one.key.clone(), own, ran_out);
        self.has_taken_a_lock(one.key.db());
        let event = LeaseEvent::Granted { grant, fence: granted.fence, session: who.session, ttl: one.left(ttl) };
        let ended = self.shared.mirror.apply(one.key, event, now);
        if active.generation.asks_holdings()
            && let Some(counted) = self.shared.holdings.count(self.caller().steady_application())
        {
            self.shared.mirror.count(one.key, grant, counted);
        }
        if let (Some(ended), true) = (ended, ran_out.is_some()) {
            effects::expired(&self.shared, one.key, &ended, active);
        }
        let since = one.sent(now);
        self.keep(one, &who, grant, granted.ttl_ms, granted.kept, since);
        self.uses_a_token(one, &who, value, granted, active, now);
        if self.is_first_command() && granted.again.is_none() {
            self.may_be_job(one, &who, grant, granted.asked_ms == AskedMs(0), active);
        }
        let told = Who { process: one.told, ..who };
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

    /// Whether the previous lease had run out. If it ended before its time, and through no proxy, a client of Redis
    /// itself ended it.
    pub(super) fn ran_out_before(&self, one: &Settled<'_>, granted: &Granted, active: &Active, now: Instant) -> bool {
        let Ended::RanOut(since) = granted.ended else {
            return false;
        };
        let age = Duration::from_millis(granted.now.ms_since(since));
        let is_that_one = |lease: &Lease| {
            let seen = now.saturating_duration_since(lease.since.instant());
            seen.abs_diff(age) <= SAME_AGE + one.took.redis.unwrap_or_default()
        };
        let before = self.shared.mirror.lease(one.key).filter(is_that_one);
        match before.filter(|lease| !one.vanished && lease.surely_lasts(now + SURELY_BEFORE_END)) {
            Some(lease) => effects::bypassed(&self.shared, active, one.key, &lease, now),
            None => {
                let metrics = &active.namespace(one.target.namespace).metrics;
                metrics.expired_while_held.inc();
                return true;
            }
        }
        false
    }

    /// What an answer means if the record says that the lease was not released, and its time was not over: the lock
    /// was deleted around all proxies. That is reported as a deletion, not as a lease that ran out; and the end of a
    /// lease is reported once.
    pub(super) fn deleted_around(
        &mut self,
        key: &DbKey,
        answer: &Answer,
        active: &Active,
        now: Instant,
    ) -> Option<Answer> {
        let Outcome::Absent { ran_out: true, unrecorded } = answer.outcome else {
            return None;
        };
        let own = self.evidence.own(key, now);
        let is_counted = own.is_some_and(|own| own.lapsed.is_some());
        let own = own.map(|own| own.grant);
        let lease =
            self.shared.mirror.lease(key).filter(|lease| {
                own.is_none_or(|own| own == lease.grant) && lease.surely_lasts(now + SURELY_BEFORE_END)
            });
        match lease {
            _ if is_counted => {}
            Some(lease) => {
                self.shared.mirror.apply(key, LeaseEvent::Released, now);
                effects::bypassed(&self.shared, active, key, &lease, now);
                self.evidence.lapsed(key, now);
                self.shared.renewals.remove(key, Some(self.number));
            }
            None => return None,
        }
        let outcome = Outcome::Absent { ran_out: false, unrecorded };
        Some(Answer { outcome, ..answer.clone() })
    }

    /// A lock was granted to the first command of a connection: its client may have connected only for that.
    pub(super) fn may_be_job(&mut self, one: &Settled<'_>, who: &Who, grant: Grant, endless: bool, active: &Active) {
        let rules = &one.allowed.rules;
        let lineage = self.connection.peer().lineage();
        let is_elsewhere = !who.local && endless && who.is_distinctive(rules);
        if lineage.is_some() || is_elsewhere {
            let whose = (grant, who.identity(rules));
            let namespace = &active.namespace(one.target.namespace).name;
            if self.shared.jobs.took(one.key, whose, lineage, namespace) {
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
            self.evidence.extended(one.key, ends, one.stored.map(|value| stored_form(value).into()));
        }
        let event = LeaseEvent::Extended { ttl: one.left(ttl) };
        self.shared.mirror.apply(one.key, event, now);
        if !own {
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
            // Its terms are unchanged, whatever is left of its TTL now.
            Some(grant) if kept && asked_ms.is_none() && self.shared.renewals.keeps(one.key, grant) => {}
            Some(grant) => {
                let who = self.connection.who();
                self.keep(one, &who, grant, ttl_ms, kept, one.sent(now));
            }
            // Another client's lease: its holder's session still keeps it alive.
            None if kept => {}
            None => self.shared.renewals.remove(one.key, None),
        }
    }

    /// Keep-alive begins or ends with the terms of the lease, whose TTL began to run after `since`: the wait for
    /// replicas may lie in between.
    pub(super) fn keep(&self, one: &Settled<'_>, who: &Who, grant: Grant, ttl_ms: TtlMs, kept: bool, since: Instant) {
        if !kept || ttl_ms == TtlMs(0) {
            self.shared.renewals.remove(one.key, None);
            return;
        }
        let rules = &one.allowed.rules;
        // Every renewal sets again what the policy would give: the default, or the ceiling.
        let renewal = Renewal {
            lock: one.key.clone(),
            grant,
            ttl_ms,
            grace_ms: one.allowed.rules.grace_ms,
            keep_alive_ms: keep_alive_ms(&one.allowed.obligations, rules),
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
            TrustAddress::Auto | TrustAddress::No if distinctive && rules.keep_alive_by == KeepAliveBy::Identity => {
                SameClient::Identity(who.client)
            }
            TrustAddress::Auto | TrustAddress::No => SameClient::Nobody,
        };
        self.shared.renewals.add(&self.holder, same_client, renewal, since);
    }

    /// Whether the TTL, without its grace, is shorter than the one that was asked for.
    pub(super) fn clamped(&self, op: &LockOp, TtlMs(ttl_ms): TtlMs, one: &Settled<'_>) -> bool {
        let ttl_ms = ttl_ms.saturating_sub(one.allowed.rules.grace_ms);
        let cap = one.allowed.obligations.ttl_cap_ms;
        if let LockOp::Wrapped { .. } = op {
            // A TTL that the proxy made up is the default, one that was cut is the ceiling.
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
                | Outcome::Unrecorded
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

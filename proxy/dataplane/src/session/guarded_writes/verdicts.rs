//! The verdicts on a write of guarded data, by the records of its locks; each verdict is counted, and a refusal is
//! logged.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::random::refusal_id;
use lockwarden_control::ruleset::guards::GuardDetails;
use lockwarden_control::ruleset::{Active, mode_label};
use lockwarden_control::telemetry::events::{EventKind, GuardedData, Verdict as Told};
use lockwarden_control::telemetry::vocabulary::{DecisionKind, GuardResult, GuardUnchecked};
use lockwarden_lock::data_guard::{Guarded, RecordHead, Refusal, Verdict, Writer, judge};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::op::Target;
use lockwarden_lock::outcome::{GuardLine, guard_limit_line, guard_line};
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::token::{FencingToken, Process};
use lockwarden_resp::parse_reply;

use super::{OTHER_DATABASE, Unread};
use crate::session::client::Client;
use crate::session::error_frame;
use crate::session::guarded_writes::kept::{GuardedBlock, GuardedWrite, Heads, IntoDatabase};

impl Client {
    pub(super) fn head(&self, answer: &Bytes) -> Option<RecordHead> {
        let value = parse_reply(answer, self.connection.protocol).ok()?;
        RecordHead::read(value.as_bytes()?)
    }

    /// Monitor mode: a record was read ahead of a write.
    pub(crate) fn learn_of_head(&mut self, frame: &Bytes, write: Option<Box<GuardedWrite>>) {
        let head = match frame.starts_with(b"-") {
            true => None,
            false => Some(self.head(frame)),
        };
        self.connection.read_heads.push(head);
        let Some(write) = write else {
            return;
        };
        let active = self.active();
        let read = std::mem::take(&mut self.connection.read_heads);
        let locks = write.locks().into_iter().map(<[u8]>::to_vec);
        let heads: Option<Heads> =
            locks.zip(read).map(|(lock, head)| Some((lock, self.with_known_process(head?)))).collect();
        match heads {
            Some(heads) => {
                self.judge_write(&write, &heads, &active);
            }
            None => {
                self.connection.cannot_read_records();
                self.unchecked(&write, GuardUnchecked::NoRights, &active);
            }
        }
    }

    /// A record that was written before its holder's process was known, completed with what is known now.
    fn with_known_process(&self, head: Option<RecordHead>) -> Option<RecordHead> {
        let head = head?;
        if head.identity.process() != Process::Pending {
            return Some(head);
        }
        let holder = self.shared.clients.of_session(head.session);
        let process = holder.map_or(Process::Pending, |(_, holder)| {
            self.shared.processes.identify(&holder);
            holder.process()
        });
        let identity = head.identity.with_process(process);
        Some(RecordHead { identity, ..head })
    }

    /// The same for each write of a block, up to the first refusal.
    pub(super) fn judge_block(&mut self, guarded: &GuardedBlock, heads: &Heads, active: &Active) -> Option<String> {
        let mut writes = guarded.writes.iter();
        writes.find_map(|write| self.judge_write(write, heads, active))
    }

    /// Counts and reports the verdict on a write; returns the error line if it is refused.
    pub(super) fn judge_write(&mut self, write: &GuardedWrite, heads: &Heads, active: &Active) -> Option<String> {
        let selected = IntoDatabase(Some(self.connection.selected));
        if write.into.is_some_and(|into| into != selected) {
            self.unchecked(write, GuardUnchecked::OtherDatabase, active);
            let line = || self.limit(write, OTHER_DATABASE, active);
            return write.is_enforced(active).then(line);
        }
        let mut keys = write.keys.iter();
        keys.find_map(|one| {
            let guard = &active.guards.details[one.guard];
            let said = self.verdict(one, guard, heads, active);
            self.said_to(write.command, one, said, active)
        })
    }

    /// Counts and reports the verdict on a write of this key; returns the error line if it is refused.
    pub(super) fn said_to(
        &mut self,
        command: &'static str,
        one: &Guarded,
        (verdict, lock, head): (Verdict, &[u8], Option<RecordHead>),
        active: &Active,
    ) -> Option<String> {
        let guard = &active.guards.details[one.guard];
        self.judged_a_write(verdict, lock, head.as_ref(), active);
        guard.metrics.wrote(mode_label(guard.rules.mode), result(verdict));
        let Verdict::Refused(why) = verdict else {
            return None;
        };
        let own = self.own_fence(lock, head.as_ref());
        let about = (one, guard, lock);
        let id = self.tell_refusal(command, about, (why, head.as_ref(), own), active);
        let line = || {
            guard_line(&GuardLine {
                reason: reason(why),
                key: &one.key,
                command,
                lock,
                guard: &guard.name,
                id: &id,
                fence: own,
            })
        };
        guard.enforces().then(line)
    }

    /// The fencing token of this connection's latest lease, if that had one.
    fn own_fence(&self, lock: &[u8], head: Option<&RecordHead>) -> Option<FencingToken> {
        let key = DbKey::new(self.connection.db(), lock);
        let remembered = self.evidence.own(&key, Instant::now());
        let is_own = |head: &&RecordHead| head.session == self.connection.peer().session;
        let fence = remembered.map(|own| own.fence);
        let fence = fence.or_else(|| head.filter(is_own).map(|head| head.fence));
        fence.filter(|fence| *fence != FencingToken(0))
    }

    /// The verdict of one guard, and the lock that it is by: the best verdict among its locks counts.
    fn verdict<'k>(
        &self,
        one: &'k Guarded,
        guard: &GuardDetails,
        heads: &Heads,
        active: &Active,
    ) -> (Verdict, &'k [u8], Option<RecordHead>) {
        let now = Instant::now();
        let who = self.connection.who();
        let mut best: Option<(Verdict, &'k [u8], Option<RecordHead>)> = None;
        for lock in &one.locks {
            // A record that was not read permits nothing.
            let Some((_, head)) = heads.iter().find(|(known, _)| known == lock) else {
                continue;
            };
            let namespace = active.namespaces.find(lock);
            let rules = namespace.map(|namespace| active.rules(namespace));
            let key = DbKey::new(self.connection.db(), lock);
            let writer = Writer {
                session: who.session,
                identity: rules.map_or(who.client, |rules| who.identity(&rules)),
                is_distinctive: rules.is_some_and(|rules| who.is_distinctive(&rules)),
                own: self.evidence.own(&key, now).map(|own| own.grant),
            };
            let rules = &guard.rules;
            let verdict = judge(head.as_ref(), &writer, rules.by_identity, rules.unlocked);
            let is_better = match best {
                None => true,
                Some((Verdict::Refused(Refusal::NotOwner), ..)) => true,
                Some((Verdict::Refused(Refusal::StaleFence), ..)) => verdict.passes(),
                Some(_) => false,
            };
            if is_better {
                best = Some((verdict, lock, *head));
            }
        }
        best.unwrap_or((Verdict::Refused(Refusal::NotOwner), &[], None))
    }

    /// Writes a refusal, or what enforce mode would refuse, to the log and the event log; returns its name.
    fn tell_refusal(
        &mut self,
        command: &'static str,
        (one, guard, lock): (&Guarded, &GuardDetails, &[u8]),
        (why, newest, own): (Refusal, Option<&RecordHead>, Option<FencingToken>),
        active: &Active,
    ) -> String {
        let id = refusal_id();
        let reason = reason(why);
        let Some(namespace) = active.namespaces.find(lock) else {
            return id;
        };
        let target = Target { namespace, key: Bytes::copy_from_slice(lock) };
        let mode = guard.rules.mode;
        let why = (reason, None);
        self.log(&id, &target, command, why, ("guard", None), mode, active);
        let (kind, happened) = match mode {
            Mode::Enforce => (DecisionKind::Deny, EventKind::Refused),
            Mode::Monitor => (DecisionKind::WouldDeny, EventKind::Forwarded),
        };
        let operation = Some(Operation::GuardedWrite);
        let mut entry = self.entry(happened, &target, command, operation, active);
        entry.id = Some(id.as_str().into());
        entry.verdict = Some(Told::refused(kind, reason, "guard", None));
        entry.fence = newest.map(|head| head.fence.0);
        entry.guarded = Some(Arc::new(GuardedData {
            guard: guard.name.clone(),
            key: Bytes::copy_from_slice(&one.key),
            own_fence: own.map(|fence| fence.0),
        }));
        self.shared.events.leave(entry);
        id
    }

    /// It could not be judged.
    pub(super) fn unchecked(&self, write: &GuardedWrite, why: GuardUnchecked, active: &Active) {
        for one in &write.keys {
            let guard = &active.guards.details[one.guard];
            guard.metrics.unchecked.at(why).inc();
        }
    }

    /// A record changed between the look at it and the write.
    pub(super) fn again(&self, write: &GuardedWrite, active: &Active) {
        for one in &write.keys {
            active.guards.details[one.guard].metrics.again.inc();
        }
    }

    /// The reply if records could not be read: nothing was written.
    pub(super) fn unread(&self, write: &GuardedWrite, unread: &Unread, active: &Active) -> BytesMut {
        match unread {
            Unread::NoRights => {
                self.unchecked(write, GuardUnchecked::NoRights, active);
                let prefix = String::from_utf8_lossy(&active.companion_prefix);
                error_frame(&format!(
                    "NOPERM lockwarden checks a write of guarded data by the record of its lock: this user needs +watch \
                     +unwatch +multi +exec +getrange and the keys ~{prefix}*"
                ))
            }
            Unread::Error(frame) => BytesMut::from(&frame[..]),
        }
    }

    /// The line for a write that is not checked.
    pub(super) fn limit(&self, write: &GuardedWrite, hint: &str, active: &Active) -> String {
        let first = &write.keys[0];
        let guard = &active.guards.details[first.guard].name;
        guard_limit_line(&first.key, write.command, guard, &refusal_id(), hint)
    }
}

fn result(verdict: Verdict) -> GuardResult {
    match verdict {
        Verdict::Holder => GuardResult::Holder,
        Verdict::Late => GuardResult::Late,
        Verdict::Identity => GuardResult::Identity,
        Verdict::Unlocked => GuardResult::Unlocked,
        Verdict::Refused(Refusal::StaleFence) => GuardResult::StaleFence,
        Verdict::Refused(Refusal::NotOwner) => GuardResult::NotOwner,
    }
}

fn reason(why: Refusal) -> Reason {
    match why {
        Refusal::StaleFence => Reason::StaleFence,
        Refusal::NotOwner => Reason::NotOwner,
    }
}

//! What a connection contributes when its command is judged: which locks the command names, what the connection knows
//! of them, and whether its process must be known first.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::Proofs;
use lockwarden_lock::evidence::Own;
use lockwarden_lock::lease::Lease;
use lockwarden_lock::op::{Command, LockOp, Target};
use lockwarden_lock::plan::grants_repetition;
use lockwarden_lock::rules::{Rules, TrustAddress};
use lockwarden_lock::settle::{Allowed, Lock, Permitted};
use lockwarden_lock::token::{Process, StoredToken, stored_form};
use lockwarden_resp::{put_integer, put_null};
use smallvec::SmallVec;

use crate::session::Session;
use crate::session::client::Client;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

impl Session {
    /// Replies with the fencing token of the lease that this connection was granted last and has not released; null
    /// if there is none, as for a key that is no lock. What the connection remembers is enough, because leases of
    /// other connections do not matter here.
    pub(crate) async fn tell_fence(&mut self, inbox: &mut RequestBuffer, key: Bytes, muted: Muted) -> Result<(), End> {
        if let Some(error) = self.barred(inbox, b"lockwarden").await? {
            self.reply(&error, muted);
            return Ok(());
        }
        let key = DbKey::new(self.client.connection.db(), &key);
        let now = Instant::now();
        self.client.takes_over(&key, now);
        let own = self.client.evidence.own(&key, now);
        let fence = own.and_then(|own| i64::try_from(own.fence.0).ok()).filter(|fence| *fence > 0);
        let mut reply = BytesMut::new();
        match fence {
            Some(fence) => put_integer(&mut reply, fence),
            None => put_null(&mut reply, self.client.connection.protocol),
        }
        self.client.count(CommandClass::Admin, CommandResult::Ok);
        self.answer_locally(reply, muted);
        Ok(())
    }
}

impl Client {
    /// Whether the current lease, as far as this proxy has seen, was granted to a client of the same distinctive
    /// identity. This is only for policies: the step checks whether it is true.
    fn is_same_identity(&self, key: &DbKey, rules: &Rules) -> bool {
        let who = self.connection.who();
        let Some((_, Some(session))) = self.shared.mirror.current(key) else {
            return false;
        };
        let Some((client, peer)) = self.shared.clients.of_session(session) else {
            return false;
        };
        let by_process = who.local && who.trust(rules) != TrustAddress::Process;
        let processes = (who.process, peer.process());
        client == who.client
            && match processes {
                (Process::Known(ours), Process::Known(theirs)) if by_process => ours == theirs,
                (Process::None, Process::None) => who.is_distinctive(rules),
                _ => !by_process && who.is_distinctive(rules),
            }
    }

    /// Finds out whether this client is part of a job. This is done before the first command of a connection takes a
    /// lock, since the client may end with the reply; and for a lock that a job holds. Returns the process that the
    /// client speaks for, if that is not its own.
    pub(crate) async fn job_of(&self, command: &Command, active: &Active) -> Option<Process> {
        let [target] = command.targets()[..] else {
            return None;
        };
        let peer = self.connection.peer();
        let trust = self.connection.who().trust(&active.rules(target.namespace));
        let by_process = peer.is_local() && trust != TrustAddress::Process;
        if self.connection.block.is_some() || !by_process {
            return None;
        }
        if let Some(LockOp::Acquire { .. }) = command.op() {
            if self.is_first_command() {
                self.shared.jobs.look_up(&self.shared.processes, peer).await;
            }
            return None;
        }
        if self.shared.jobs.is_empty() {
            return None;
        }
        let key = &DbKey::new(self.connection.db(), &target.key);
        let own = self.evidence.own(key, Instant::now()).map(|own| own.grant);
        if !self.shared.jobs.has(key, own) {
            return None;
        }
        let lineage = self.shared.processes.lineage_of(peer).await?;
        let client = self.connection.client();
        self.shared.jobs.stands_for(key, client, lineage)
    }

    /// The locks of a command, with what the client knows of each.
    pub(crate) fn locks(&mut self, command: &Command, active: &Active, now: Instant) -> SmallVec<[Lock; 1]> {
        let db = self.connection.db();
        let acquires = is_try(command);
        let targets = command.targets().into_iter().enumerate();
        targets
            .map(|(index, target)| {
                let key = DbKey::new(db, &target.key);
                if acquires {
                    self.evidence.attempted(&key, now);
                }
                if !acquires {
                    self.takes_over(&key, now);
                }
                self.notes_vanished(&key, now);
                let mut facts = self.evidence.facts(&key, now);
                if let Some(grants) = self.connection.block.as_ref().and_then(|block| block.grants.get(&key)) {
                    facts.queued.clone_from(grants);
                }
                if !acquires && facts.own.is_none() {
                    facts.same_identity = self.is_same_identity(&key, &active.rules(target.namespace));
                }
                facts.shared_token = self.names_shared_token(command, index, target, active, now);
                Lock::new(target.clone(), key, facts)
            })
            .collect()
    }

    /// In a cluster: a lease counts as this session's own if this client was granted it over another of its sessions,
    /// before the slot came here or another server became the primary.
    fn takes_over(&mut self, key: &DbKey, now: Instant) {
        if self.shared.shards.map().is_none() || self.evidence.was_refused(key) {
            return;
        }
        let (session, known) = (self.connection.who().session, self.evidence.own(key, now).map(|own| own.grant));
        let is_news = |lease: &Lease| lease.session == Some(session) && known != Some(lease.grant);
        // Until the map has changed, its lease is kept in the shard that had the slot.
        let elsewhere = || self.shared.shards.each().iter().find_map(|shard| shard.mirror.lease(key));
        let lease = self.shared.mirror.lease(key).or_else(elsewhere);
        if let Some(lease) = lease.filter(is_news) {
            let own = Own {
                grant: lease.grant,
                fence: lease.fence,
                stored: StoredToken::default().into(),
                ends: lease.ends,
                asked_end: None,
                lapsed: None,
                came_back: false,
                unwitnessed: lease.unwitnessed,
            };
            self.evidence.granted(key.clone(), own, None);
        }
    }

    /// Notes that a lease of this connection that was deleted on the server itself is over, whatever its time says.
    pub(crate) fn notes_vanished(&mut self, key: &DbKey, now: Instant) {
        if !self.shared.mirror.has_lost() {
            return;
        }
        let own = self.evidence.own(key, now).map(|own| own.grant);
        if own.is_some_and(|own| self.shared.mirror.has_vanished(key, own)) {
            self.evidence.lapsed(key, now);
        }
    }

    /// Whether another client was granted a lock with the value that a command carries. For a script whose meaning is
    /// not known, each argument that is distinctive enough may be the value.
    fn names_shared_token(
        &self,
        command: &Command,
        index: usize,
        target: &Target,
        active: &Active,
        now: Instant,
    ) -> bool {
        let details = active.namespace(target.namespace);
        let who = self.connection.who().identity(&details.rules);
        let tokens = &self.shared.owner_tokens;
        let is_shared = |value: &Bytes| tokens.is_shared(&details.name, &stored_form(value), who, now);
        match (command.owner_token(index), command) {
            (Some(value), _) => is_shared(value),
            (None, Command::Lock(command)) => command.script_tokens().any(is_shared),
            (None, Command::Opaque(_)) => false,
        }
    }
}

/// Whether a command may be granted a lock.
pub(crate) fn may_be_granted(command: &Command) -> bool {
    match command.op() {
        Some(
            LockOp::Acquire { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::Take { .. }
            | LockOp::Store { .. }
            | LockOp::Wrapped { .. },
        ) => true,
        Some(LockOp::Extend { .. } | LockOp::Release { .. } | LockOp::ReleaseMany { .. }) | None => false,
    }
}

/// Whether a command tries to take locks.
pub(crate) fn is_try(command: &Command) -> bool {
    match command.op() {
        Some(LockOp::Acquire { .. } | LockOp::AcquireAll { .. }) => true,
        Some(LockOp::Wrapped { script, .. }) => script.takes_locks(),
        Some(
            LockOp::Take { .. }
            | LockOp::Store { .. }
            | LockOp::Extend { .. }
            | LockOp::Release { .. }
            | LockOp::ReleaseMany { .. },
        )
        | None => false,
    }
}

/// Whether a command may have to be proven by its client's process: one without an owner token, or an acquire that
/// may be a repetition.
pub(crate) fn may_need_process(permitted: &Permitted) -> bool {
    let tokenless = match &permitted.command().op {
        LockOp::Release { comparison, .. } | LockOp::Extend { comparison, .. } => comparison.is_none(),
        LockOp::ReleaseMany { .. } | LockOp::Store { .. } | LockOp::Take { .. } | LockOp::Wrapped { .. } => true,
        LockOp::Acquire { .. } => return grants_repetition(permitted),
        LockOp::AcquireAll { .. } => false,
    };
    let not_own = |lock: &Allowed| {
        let facts = &lock.lock.facts;
        facts.own.is_none() && facts.queued.is_empty()
    };
    let counts = |allowed: &Allowed| {
        let script = allowed.terms.as_deref().map(|terms| &terms.release.0);
        let required = script.unwrap_or(&allowed.obligations).require;
        allowed.rules.trust_address != TrustAddress::Process
            && required.is_some_and(|required| required.contains(Proofs::IDENTITY))
    };
    tokenless && permitted.locks().iter().any(not_own) && permitted.locks().iter().any(counts)
}

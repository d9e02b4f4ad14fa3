//! Writes of guarded data (`[[guard]]`). If a guard enforces, the client's own bytes are sent between MULTI and EXEC,
//! under a WATCH on the records of the locks, and only after those records were read and judged. A grant of the lock
//! in between writes its record, and then nothing has run. No reply is made up. If the guard only monitors, the
//! records are read in the same write ahead of the client's bytes. [`lockwarden_lock::data_guard`] says which clients
//! may write.

pub(super) mod kept;
mod scripts;
mod verdicts;

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::ruleset::{Active, mode_label};
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult, GuardResult, GuardUnchecked};
use lockwarden_lock::classify::Class;
use lockwarden_lock::companion::slot;
use lockwarden_lock::data_guard::{Guarded, TooMany};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::Denial;
use lockwarden_lock::lease::Lease;
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::op::{LockOp, Target};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::pass_through::{Kept, PassThrough};
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::settle::{Code, Refused};
use lockwarden_lock::table::{Access, Effect, Lookup, lookup};
use lockwarden_lock::token::Process;
use lockwarden_resp::{Elements, Request};

use crate::session::client::Client;
use crate::session::client::login::Acting;
use crate::session::guarded_writes::kept::{GuardedBlock, GuardedWrite, Heads, IntoDatabase};
use crate::session::judge::refusals::policy_of;
use crate::session::step::awaited::Look;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted, QueuedRequests};
use crate::session::{Session, error_frame};
use crate::state::quarantine;

/// How often a write is tried if its lock changes hands meanwhile.
pub(super) const MAX_TRIES: u32 = 16;
/// The error for a block that cannot be sent again.
pub(super) const BLOCK_TOO_LONG: &str = "LOCKLIMIT guarded-write hint=\"this block writes guarded data and cannot be checked: it is longer than 1 MiB, or guards changed meanwhile; send it again, or less in one block\"";
/// The error for a write in another database.
const OTHER_DATABASE: &str =
    "this writes in another database than that whose lock would be read; SELECT that database outside a block first";
const OTHER_SLOT: &str =
    "in a cluster data and its lock must be in one slot: give both one hash tag, as in stock:{42} and lock:{42}";
/// Most locks of one write that is checked.
const MAX_LOCKS: usize = 1_000;

/// Why the records could not be read.
enum Unread {
    /// The user may not.
    NoRights,
    /// Redis gave this error.
    Error(Bytes),
}

impl Client {
    /// Whether any data is guarded.
    pub(super) fn has_guards(&mut self) -> bool {
        !self.active.load().guards.is_empty()
    }

    /// The guards of the keys that a request would write; `None` for nearly all requests.
    #[inline]
    pub(super) fn guarded_by(&mut self, class: &Class<'_>, request: &Request<'_>) -> Option<Box<GuardedWrite>> {
        let guards = &self.active.load().guards;
        if guards.is_empty() {
            return None;
        }
        let unchecked = match class {
            Class::PassThrough(pass) => match (pass.effect(), pass.is_blocking()) {
                // Commands of modules have no effect in the table.
                (Effect::Neutral, false) => return None,
                (Effect::Neutral, true) => None,
                (effect, _) if effect.access() == Access::Read => return None,
                _ if !guards.index.may_guard(pass.keys(), request) => return None,
                // In a block no command waits.
                (_, true) if self.connection.block.is_none() => Some(GuardUnchecked::Blocking),
                _ => None,
            },
            Class::UnseenScript(_) => None,
            // It is refused for what it does to the lock.
            Class::Opaque(command) | Class::UnknownScript(command) if self.enforces(command.target.namespace) => {
                return None;
            }
            Class::Judge(command) if is_script(command.name) => match command.op.script() {
                // It is judged in the step that runs it.
                Some(_) => None,
                // Such a script is known to be about its lock alone.
                None => return None,
            },
            Class::Judge(_)
            | Class::Opaque(_)
            | Class::UnknownScript(_)
            | Class::Computed(_)
            | Class::ComputedFunction(_)
            | Class::UnknownFunction(_) => Some(GuardUnchecked::WithLocks),
            _ => return None,
        };
        let elsewhere = self.writes_elsewhere();
        let unchecked = unchecked.or(elsewhere.then_some(GuardUnchecked::OtherDatabase));
        self.guarded_keys(request, unchecked)
    }

    /// Whether a block writes in another database than the one in which it began, where its records are read.
    fn writes_elsewhere(&self) -> bool {
        let block = self.connection.block.as_ref();
        block.is_some_and(|block| block.db.is_some())
    }

    /// Whether refusals are carried out in a namespace, for this client.
    fn enforces(&mut self, namespace: NamespaceId) -> bool {
        self.active().rules(namespace).mode == Mode::Enforce
    }

    /// The refusal of a command that deletes another client's lock together with guarded data.
    pub(super) fn theft(&mut self, class: &Class<'_>, write: &GuardedWrite) -> Option<Refused> {
        let Class::Judge(command) = class else {
            return None;
        };
        let LockOp::ReleaseMany { .. } = command.op else {
            return None;
        };
        let active = self.active();
        if write.unchecked != Some(GuardUnchecked::WithLocks) || !write.is_enforced(&active) {
            return None;
        }
        let (now, db) = (Instant::now(), self.connection.db());
        let who = self.connection.who();
        // If the lock may be this client's after all, only Redis knows that.
        let is_stranger = |session| {
            let holder = self.shared.clients.of_session(session);
            holder.is_some_and(|(client, peer)| {
                let processes = (who.process, peer.process());
                let differ = matches!(processes, (Process::Known(ours), Process::Known(theirs)) if ours != theirs);
                client != who.client || differ
            })
        };
        let is_anothers = |target: &&Target| {
            let key = DbKey::new(db, &target.key);
            let rules = active.rules(target.namespace);
            let lives = |lease: &Lease| {
                let runs = lease.ends.is_none_or(|ends| ends > now);
                runs && !lease.unknown && !lease.unwitnessed
            };
            let lease = self.shared.mirror.lease(&key).filter(lives);
            let holder = lease.and_then(|lease| lease.session);
            rules.mode == Mode::Enforce
                && !rules.hand_over
                && self.evidence.own(&key, now).is_none()
                && holder.is_some_and(is_stranger)
        };
        let target = command.op.targets().into_iter().find(is_anothers)?.clone();
        let denial = Denial {
            reason: Reason::NotOwner,
            detail: None,
            policy: policy_of(Reason::NotOwner, &target, &active).into(),
            rule: None,
        };
        Some(Refused { command: command.clone().into(), target, code: Code::Denied, denial, native: false })
    }

    fn guarded_keys(&mut self, request: &Request<'_>, unchecked: Option<GuardUnchecked>) -> Option<Box<GuardedWrite>> {
        let guards = self.active.load().guards.clone();
        let server = &self.shared.backend.server;
        let found = guards.index.of_request(request, &|| server.commands().clone());
        let (mut keys, unchecked) = match found {
            Ok(mut keys) => {
                for name in self.written_by_script(request).named {
                    let more = guards.index.of_key(&name);
                    let is_new = |one: &Guarded| !keys.contains(one);
                    let more: Vec<Guarded> = more.into_iter().filter(is_new).collect();
                    keys.extend(more);
                }
                (keys, unchecked)
            }
            // With this many keys, the first stands for all.
            Err(TooMany(first)) => (vec![*first], Some(GuardUnchecked::TooLong)),
        };
        let (name, user) = (self.connection.name(), self.connection.user());
        let certificate = self.certificate();
        keys.retain(|one| {
            let guard = &guards.details[one.guard];
            let is_exempt = guard.exempts(user, name, certificate);
            if is_exempt {
                guard.metrics.wrote(mode_label(guard.rules.mode), GuardResult::Exempt);
            }
            !is_exempt
        });
        if keys.is_empty() {
            return None;
        }
        let locks: usize = keys.iter().map(|one| one.locks.len()).sum();
        let unchecked = unchecked.or((locks > MAX_LOCKS).then_some(GuardUnchecked::TooLong));
        let is_apart = |one: &Guarded| one.locks.iter().any(|lock| slot(lock) != slot(&one.key));
        let is_apart = self.shared.backend.server.in_cluster() && keys.iter().any(is_apart);
        let unchecked = unchecked.or(is_apart.then_some(GuardUnchecked::OtherSlot));
        let command = match lookup(request) {
            Lookup::Known(spec) => spec.name,
            Lookup::UnknownSubcommand | Lookup::Unknown => "unknown",
        };
        Some(Box::new(GuardedWrite { command, keys, unchecked, into: named_database(request) }))
    }

    /// The bytes that are sent between MULTI and EXEC, if a refusal of this write is carried out.
    pub(super) fn kept_for(&mut self, write: &GuardedWrite, class: &Class<'_>) -> Option<Kept> {
        let active = self.active.load();
        if !write.is_enforced(active) {
            return None;
        }
        match class {
            Class::PassThrough(pass) => Some(pass.keep()),
            Class::UnseenScript(script) => Some(script.forward(&active.computed_names)),
            _ => None,
        }
    }

    /// Whether what is queued in a block must be kept, because it may have to be sent again.
    pub(super) fn keeps_blocks(&mut self) -> bool {
        self.active.load().guards.enforces_any && !self.connection.watch.is_any()
    }
}

/// The database into which a command writes by its own arguments; `IntoDatabase(None)` where the argument is no
/// number.
fn named_database(request: &Request<'_>) -> Option<IntoDatabase> {
    let read = |word: &[u8]| {
        let number = std::str::from_utf8(word).ok();
        number.and_then(|number| number.parse().ok())
    };
    match lookup(request) {
        Lookup::Known(spec) if spec.name == "move" => request.get(2).map(read).map(IntoDatabase),
        Lookup::Known(spec) if spec.name == "copy" => {
            // Redis compares an option up to the first NUL, and the last one counts.
            let is_db = |word: &[u8]| {
                let end = word.iter().position(|&byte| byte == 0);
                word[..end.unwrap_or(word.len())].eq_ignore_ascii_case(b"db")
            };
            let (options, values) = (request.args().skip(3), request.args().skip(4));
            let named = options.zip(values).filter(|(option, _)| is_db(option));
            named.last().map(|(_, db)| IntoDatabase(read(db)))
        }
        Lookup::Known(_) | Lookup::UnknownSubcommand | Lookup::Unknown => None,
    }
}

fn is_script(name: &str) -> bool {
    matches!(name, "eval" | "evalsha" | "fcall")
}

impl Session {
    /// Handles a write of guarded data. Returns whether that is complete; otherwise the request continues as usual.
    pub(super) async fn guarded_write(
        &mut self,
        inbox: &mut RequestBuffer,
        write: Box<GuardedWrite>,
        kept: Option<Kept>,
        muted: Muted,
    ) -> Result<bool, End> {
        if self.transport.pushes.takes_no_commands() {
            return Ok(false);
        }
        let active = self.client.active();
        let enforced = write.is_enforced(&active);
        if let Some(why) = write.unchecked {
            return Ok(self.cannot_check(&write, why, &active, muted));
        }
        if self.client.connection.block.is_some() {
            return Ok(self.guard_in_block(*write, &active, muted));
        }
        if !enforced {
            // Only once for a client: after that its process is known.
            let peer = self.client.connection.peer().clone();
            if peer.process() == Process::Pending {
                self.client.shared.processes.of(&peer).await;
            }
            self.look_ahead(*write, &active);
            return Ok(false);
        }
        if self.client.connection.watch.is_any() {
            let why = GuardUnchecked::WatchInForce;
            return Ok(self.cannot_check(&write, why, &active, muted));
        }
        let Some(kept) = kept else {
            return Ok(false);
        };
        if !self.takes_own_connection(inbox, muted).await? {
            return Ok(true);
        }
        let begun = Instant::now();
        self.check_and_write(inbox, &write, kept.pass(), &active, muted).await?;
        let took = begun.elapsed().as_secs_f64();
        for one in &write.keys {
            active.guards.details[one.guard].metrics.seconds.observe(took);
        }
        Ok(true)
    }

    /// Reads the records under a WATCH, judges, and sends the client's own bytes, which are not executed if a record
    /// has changed.
    async fn check_and_write(
        &mut self,
        inbox: &mut RequestBuffer,
        write: &GuardedWrite,
        pass: PassThrough<'_>,
        active: &Active,
        muted: Muted,
    ) -> Result<(), End> {
        // While the client's state is not known, it is not known either whose lock it is.
        self.settled(inbox).await?;
        if let Some(error) = self.may_carry_out_blocks(inbox).await? {
            let line = self.client.unread(write, &error, active);
            self.reply(&line, muted);
            return Ok(());
        }
        for _ in 0..MAX_TRIES {
            self.ask_for_heads(&write.locks(), active);
            let mut heads = match self.heads(inbox, &write.locks()).await? {
                Ok(heads) => heads,
                Err(unread) => {
                    self.transport.inquire(&OwnRequest::Unwatch, Look::Own);
                    let line = self.client.unread(write, &unread, active);
                    self.reply(&line, muted);
                    return Ok(());
                }
            };
            self.look_processes_up(&mut heads).await;
            if let Some(line) = self.client.judge_write(write, &heads, active) {
                self.transport.inquire(&OwnRequest::Unwatch, Look::Own);
                self.client.count(CommandClass::Policy, CommandResult::Denied);
                self.reply(&error_frame(&line), muted);
                return Ok(());
            }
            self.transport.inquire(&OwnRequest::Multi, Look::Own);
            self.transport.forward_and_look(pass, Look::Answer, Muted::Yes);
            self.transport.inquire(&OwnRequest::Exec, Look::Answer);
            let queued = self.answer(inbox).await?;
            let executed = self.answer(inbox).await?;
            if is_nil(&executed) {
                self.client.again(write, active);
                continue;
            }
            // A command that Redis did not queue was not done: Redis's error is the reply.
            let answer = match queued.starts_with(b"-") {
                true => queued,
                false => element(&executed),
            };
            let result = match answer.starts_with(b"-") {
                true => CommandResult::Error,
                false => CommandResult::Ok,
            };
            self.client.count(CommandClass::Policy, result);
            self.reply(&BytesMut::from(&answer[..]), muted);
            return Ok(());
        }
        let line = self.client.limit(write, "the lock changed hands 16 times meanwhile", active);
        self.reply(&error_frame(&line), muted);
        Ok(())
    }

    /// Whether the user may begin a block and carry it out: after a refused MULTI, the commands that it should hold
    /// back would be executed at once. This is asked once for a user.
    async fn may_carry_out_blocks(&mut self, inbox: &mut RequestBuffer) -> Result<Option<Unread>, End> {
        let connection = &self.client.connection;
        if connection.rights.may_carry_out_blocks && connection.login.acting() == Acting::Own {
            return Ok(None);
        }
        self.transport.inquire(&OwnRequest::Multi, Look::Answer);
        self.transport.inquire(&OwnRequest::Exec, Look::Answer);
        let (begun, executed) = (self.answer(inbox).await?, self.answer(inbox).await?);
        if begun.starts_with(b"+OK") && executed.starts_with(b"*0") {
            self.client.connection.rights.may_carry_out_blocks = true;
            return Ok(None);
        }
        if begun.starts_with(b"+OK") {
            self.transport.inquire(&OwnRequest::Discard, Look::Own);
        }
        let error = if begun.starts_with(b"-") { begun } else { executed };
        Ok(Some(match error.starts_with(b"-NOPERM") {
            true => Unread::NoRights,
            false => Unread::Error(error),
        }))
    }

    /// Has Redis watch the records of these locks, and reads them, in one write.
    fn ask_for_heads(&mut self, locks: &[&[u8]], active: &Active) {
        let companion_prefix = &active.companion_prefix[..];
        let watch = OwnRequest::WatchRecords { locks, companion_prefix };
        self.transport.inquire(&watch, Look::Answer);
        for lock in locks {
            let head = OwnRequest::Head { lock, companion_prefix };
            self.transport.inquire(&head, Look::Answer);
        }
    }

    /// Redis's reply to that.
    async fn heads(&mut self, inbox: &mut RequestBuffer, locks: &[&[u8]]) -> Result<Result<Heads, Unread>, End> {
        let mut unread = None;
        let mut note = |answer: &Bytes| {
            if answer.starts_with(b"-NOPERM") {
                unread = Some(Unread::NoRights);
            } else if answer.starts_with(b"-") && unread.is_none() {
                unread = Some(Unread::Error(answer.clone()));
            }
        };
        note(&self.answer(inbox).await?);
        let mut heads = Heads::with_capacity(locks.len());
        for lock in locks {
            let answer = self.answer(inbox).await?;
            note(&answer);
            let head = self.client.head(&answer);
            heads.push((lock.to_vec(), head));
        }
        self.doubt_heads(inbox, &mut heads).await?;
        Ok(unread.map_or(Ok(heads), Err))
    }

    /// A server that became the primary lately may have lost the record of a newer lease. Then an older lease counts
    /// only while its lock is there, which keeps all other clients from being granted it.
    async fn doubt_heads(&mut self, inbox: &mut RequestBuffer, heads: &mut Heads) -> Result<(), End> {
        let active = self.client.active();
        for (lock, head) in heads {
            let (Some(head), Some(details)) = (head, active.of_lock(lock)) else {
                continue;
            };
            let shared = &self.client.shared;
            if !quarantine::knows_successors(details, shared, Instant::now(), head.granted) {
                self.transport.inquire(&OwnRequest::IsThere(lock), Look::Answer);
                head.is_doubtful = !self.answer(inbox).await?.starts_with(b":1");
            }
        }
        Ok(())
    }

    /// Looks up the process of the client, and of the holders that came by this proxy, if it is not known yet.
    async fn look_processes_up(&mut self, heads: &mut Heads) {
        let peer = self.client.connection.peer().clone();
        let shared = self.client.shared.clone();
        for head in heads.iter_mut().filter_map(|(_, head)| head.as_mut()) {
            if head.session == peer.session {
                continue;
            }
            if peer.process() == Process::Pending {
                shared.processes.of(&peer).await;
            }
            if head.identity.process() == Process::Pending
                && let Some((_, holder)) = shared.clients.of_session(head.session)
            {
                let process = shared.processes.of(&holder).await;
                head.identity = head.identity.with_process(process);
            }
        }
    }

    /// Monitor mode: the records are read ahead of the client's bytes, in the same write.
    fn look_ahead(&mut self, write: GuardedWrite, active: &Active) {
        let rights = &self.client.connection.rights;
        let unreadable = rights.unreadable_until.is_some_and(|until| Instant::now() < until);
        if unreadable || self.client.connection.reads_are_noted() {
            self.client.unchecked(&write, GuardUnchecked::NoRights, active);
            return;
        }
        let locks: Vec<Vec<u8>> = write.locks().into_iter().map(<[u8]>::to_vec).collect();
        let mut write = Some(Box::new(write));
        for (place, lock) in locks.iter().enumerate() {
            let head = OwnRequest::Head { lock, companion_prefix: &active.companion_prefix };
            let is_last = place + 1 == locks.len();
            let judged = if is_last { write.take() } else { None };
            self.transport.inquire(&head, Look::Head(judged));
        }
    }

    /// In a block: it is judged when the block is to be executed.
    fn guard_in_block(&mut self, write: GuardedWrite, active: &Active, muted: Muted) -> bool {
        let connection = &mut self.client.connection;
        let enforced = write.is_enforced(active);
        let is_covered = write.locks().into_iter().all(|lock| connection.watch.covers(lock));
        if enforced && connection.watch.is_any() && !is_covered {
            let why = GuardUnchecked::WatchInForce;
            return self.cannot_check(&write, why, active, muted);
        }
        if let Some(block) = &mut connection.block {
            block.guarded.writes.push(write);
        }
        false
    }

    /// The write cannot be judged. Returns whether its client was refused for that.
    pub(super) fn cannot_check(
        &mut self,
        write: &GuardedWrite,
        why: GuardUnchecked,
        active: &Active,
        muted: Muted,
    ) -> bool {
        self.client.unchecked(write, why, active);
        if !write.is_enforced(active) {
            return false;
        }
        let in_block = self.client.connection.block.is_some();
        let hint = match why {
            GuardUnchecked::Blocking => {
                "a blocking command cannot be checked when it writes; use one that does not wait"
            }
            GuardUnchecked::WatchInForce if in_block => "WATCH the guarded key too",
            GuardUnchecked::WatchInForce => {
                "a WATCH is in force: put the write between MULTI and EXEC, or UNWATCH first"
            }
            GuardUnchecked::WithLocks => {
                "a command that changes locks as well, or a script that computes names, cannot be checked; send the write by itself"
            }
            GuardUnchecked::OtherDatabase => OTHER_DATABASE,
            GuardUnchecked::OtherSlot => OTHER_SLOT,
            GuardUnchecked::NoRights | GuardUnchecked::TooLong | GuardUnchecked::ComputedNames => {
                "this is too much to be checked at once; send less"
            }
        };
        self.client.count(CommandClass::Policy, CommandResult::ProxyError);
        let line = self.client.limit(write, hint, active);
        self.error(&line, muted);
        true
    }

    /// Whether a block may be executed, checked before it is. `queued` is what it holds, as it was sent, and whether
    /// this is the first try: then the block is still open. Returns an error line if it may not be executed; then the
    /// block is over.
    pub(super) async fn check_block(
        &mut self,
        inbox: &mut RequestBuffer,
        guarded: &GuardedBlock,
        (queued, is_open): (&QueuedRequests, bool),
    ) -> Result<Option<String>, End> {
        let active = self.client.active();
        if is_open {
            self.transport.inquire(&OwnRequest::Discard, Look::Own);
        }
        let locks: Vec<Vec<u8>> = guarded.locks().into_iter().map(<[u8]>::to_vec).collect();
        let names: Vec<&[u8]> = locks.iter().map(Vec::as_slice).collect();
        self.ask_for_heads(&names, &active);
        let refused = match self.heads(inbox, &names).await? {
            Err(unread) => {
                let line = self.client.unread(&guarded.writes[0], &unread, &active);
                Some(String::from_utf8_lossy(line[1..].trim_ascii_end()).into_owned())
            }
            Ok(mut heads) => {
                self.look_processes_up(&mut heads).await;
                self.client.judge_block(guarded, &heads, &active)
            }
        };
        if refused.is_some() {
            self.transport.inquire(&OwnRequest::Unwatch, Look::Own);
            return Ok(refused);
        }
        self.transport.inquire(&OwnRequest::Multi, Look::Own);
        self.transport.queue_again(queued.clone());
        Ok(None)
    }

    /// Whether a block may be executed if the client's own WATCH covers its records: judged by what was read when the
    /// WATCH was sent.
    pub(super) async fn check_watched_block(&mut self, guarded: &GuardedBlock) -> Option<String> {
        let active = self.client.active();
        let mut heads = self.client.connection.watch.heads().clone();
        self.look_processes_up(&mut heads).await;
        self.client.judge_block(guarded, &heads, &active)
    }

    /// Whether guards hold back this block.
    pub(super) fn is_held_back(&mut self, guarded: &GuardedBlock) -> bool {
        !guarded.is_empty() && guarded.is_enforced(&self.client.active())
    }

    /// Monitor mode: reads the records behind a block, in the same write.
    pub(super) fn look_behind(&mut self, guarded: GuardedBlock) {
        let active = self.client.active();
        for write in guarded.writes {
            self.look_ahead(write, &active);
        }
    }

    /// The block was to be executed again, because a record has changed.
    pub(super) fn block_again(&mut self, guarded: &GuardedBlock) {
        let active = self.client.active();
        for write in &guarded.writes {
            self.client.again(write, &active);
        }
    }

    /// Before the client's own WATCH, has Redis watch the records of the locks that guard these keys, and of those
    /// keys that are locks. Then the client's block can be judged by what is read now.
    pub(super) async fn watch_records(
        &mut self,
        inbox: &mut RequestBuffer,
        words: &[Bytes],
        active: &Active,
    ) -> Result<(), End> {
        if !active.guards.enforces_any || self.transport.is_shared() {
            return Ok(());
        }
        let guards = &active.guards.index;
        let mut locks: Vec<Vec<u8>> = Vec::new();
        for word in words {
            if active.namespaces.find(word).is_some() {
                locks.push(word.to_vec());
            }
            locks.extend(guards.of_key(word).into_iter().flat_map(|one| one.locks));
        }
        let watch = &self.client.connection.watch;
        locks.retain(|lock| !watch.covers(lock));
        locks.sort_unstable();
        locks.dedup();
        if locks.is_empty() || watch.heads().len() + locks.len() > MAX_LOCKS {
            return Ok(());
        }
        self.settled(inbox).await?;
        let names: Vec<&[u8]> = locks.iter().map(Vec::as_slice).collect();
        self.ask_for_heads(&names, active);
        // A user who may not read them is told so by the write that needs it.
        if let Ok(heads) = self.heads(inbox, &names).await? {
            self.client.connection.watch.add_heads(heads);
        }
        Ok(())
    }
}

/// Whether EXEC says that a watched key had changed.
pub(super) fn is_nil(answer: &[u8]) -> bool {
    answer.starts_with(b"*-1") || answer.starts_with(b"_")
}

/// The one reply in the answer to EXEC, or that answer where it is an error.
fn element(executed: &Bytes) -> Bytes {
    let one = Elements::of(executed).and_then(|mut all| all.next());
    one.map_or_else(|| executed.clone(), |range| executed.slice(range))
}

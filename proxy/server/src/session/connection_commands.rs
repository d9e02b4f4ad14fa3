//! Commands that change the connection itself: forwarded and tracked, so that judging and pairing
//! go on from what Redis has accepted. `CLIENT REPLY` is the exception: the proxy does it, and the
//! backend always answers. Those on which the reading of what follows depends are order barriers.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockwarden_lock::evidence::DbKey;
use lockwarden_lock::op::Arguments;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::pass_through::{Kept, PassThrough};
use lockwarden_lock::recipe::ScriptSha;
use lockwarden_lock::table::{SessionVerb, parse_integer};
use lockwarden_lock::token::Grant;
use lockwarden_resp::{Protocol, RequestLimits, Value, parse_reply, put_value};

use super::client::Client;
use super::connection_state::{Block, Place, ReplyMode, StateChange};
use super::transport::pushes::Channels;
use super::transport::request_buffer::RequestBuffer;
use super::transport::{End, Muted, Reply, maintenance_notices};
use super::{Look, Session, replicas};
use crate::backend::profile::Login;
use crate::holders::handover::Ended;
use crate::state::effects;
use crate::telemetry::events::DEFAULT_USER;
use crate::telemetry::vocabulary::{CommandClass, CommandResult};

/// A user who may not read a record is not tried with the next before this time has passed.
const UNREADABLE_FOR: Duration = Duration::from_secs(10);

impl Session {
    pub(crate) async fn session_verb(
        &mut self,
        inbox: &mut RequestBuffer,
        verb: SessionVerb,
        words: Arguments,
        kept: Kept,
        muted: Muted,
    ) -> Result<(), End> {
        self.client
            .count(CommandClass::PassThrough, CommandResult::Ok);
        let pass = kept.pass();
        match verb {
            SessionVerb::Multi => return self.multi(inbox, pass, muted).await,
            SessionVerb::Exec => return self.exec(inbox, pass, muted).await,
            SessionVerb::Discard => self.discard(pass, muted),
            SessionVerb::Watch => return self.watch(inbox, &words, pass, muted).await,
            SessionVerb::Unwatch => {
                if self.client.connection.block.is_none() {
                    self.client.unwatch();
                    self.end(pass, muted);
                } else {
                    self.transport.forward(pass, muted);
                    self.client.queued();
                }
            }
            SessionVerb::Reset => {
                self.client.connection.block = None;
                self.client.unwatch();
                // It ends OFF before it is answered, a SKIP just before it after that.
                let heard = match self.client.connection.reply_mode {
                    ReplyMode::Off => Muted::No,
                    ReplyMode::On | ReplyMode::Skip => muted,
                };
                self.change_state(StateChange::Reset, pass, heard);
                return self.settled(inbox).await;
            }
            // Redis hangs up and reads no further.
            SessionVerb::Quit => {
                self.took_leave = true;
                self.client.ended = Ended::ByClient(Instant::now());
                self.client.connection.block = None;
                if self.transport.is_shared() {
                    self.answer_locally(BytesMut::from(&b"+OK\r\n"[..]), muted);
                } else {
                    self.transport.forward(pass, muted);
                }
                return Err(self.last_replies(inbox).await);
            }
            SessionVerb::Auth => {
                let (user, password) = match &words[..] {
                    [user, password] => (user.clone(), password.clone()),
                    [password] => (Bytes::from_static(DEFAULT_USER), password.clone()),
                    // Redis will say that this is none.
                    _ => (Bytes::from_static(DEFAULT_USER), Bytes::new()),
                };
                let change = StateChange::Auth(Login { user, password });
                return self.log_in(inbox, change, pass, muted).await;
            }
            SessionVerb::Hello => {
                let change = hello(&words);
                if matches!(change, StateChange::Hello { login: Some(_), .. }) {
                    return self.log_in(inbox, change, pass, muted).await;
                }
                self.change_state(change, pass, muted);
            }
            SessionVerb::Select => match words.first().and_then(|word| database(word)) {
                Some(db) => self.change_state(StateChange::Select(db), pass, muted),
                None => {
                    self.transport.forward(pass, muted);
                    self.client.queued();
                }
            },
            SessionVerb::ClientSetName => {
                let name = words.get(1).cloned().unwrap_or_default();
                self.change_state(StateChange::Name(name), pass, muted);
            }
            // It is what the client says of itself, whether or not its server is new enough to keep it.
            SessionVerb::ClientSetInfo => {
                if let [_, what, value] = &words[..] {
                    self.client.connection.library.set(what, value);
                    self.client.introduce();
                }
                self.transport.forward(pass, muted);
                self.client.queued();
            }
            SessionVerb::ClientMaintNotifications => {
                match maintenance_notices::without_addresses(&words) {
                    Some(words) => {
                        let request = OwnRequest::Notices(&words);
                        self.transport.relay_own(&request, muted);
                    }
                    None => self.transport.forward(pass, muted),
                }
                self.client.queued();
            }
            SessionVerb::ClientTracking => {
                let says = |what: &[u8]| words.iter().any(|word| word.eq_ignore_ascii_case(what));
                // With BCAST Redis does not note what is read.
                let on = says(b"ON");
                let reads = on && !says(b"BCAST");
                self.change_state(StateChange::Tracking { on, reads }, pass, muted);
                // Nothing may be read between this command and the next.
                if self.client.connection.block.is_none() {
                    return self.settled(inbox).await;
                }
            }
            SessionVerb::ClientReply => {
                return self.client_reply(inbox, &words, pass, muted).await;
            }
            SessionVerb::Subscribe(kind) => {
                self.channels(Channels::new(kind, true, words.len()), pass, muted)
            }
            SessionVerb::Unsubscribe(kind) => {
                self.channels(Channels::new(kind, false, words.len()), pass, muted)
            }
            SessionVerb::Monitor => {
                if self.may_administer(inbox, "monitor", muted).await? {
                    return self.monitor(inbox, pass, muted).await;
                }
            }
            SessionVerb::Replication => {
                self.client.count(CommandClass::Admin, CommandResult::Error);
                self.error(
                    "ERR lockwarden does not relay replication; connect replicas to Redis itself",
                    muted,
                );
            }
        }
        Ok(())
    }

    /// Forwards a command whose reply says whether the state changed.
    pub(crate) fn change_state(
        &mut self,
        change: StateChange,
        pass: PassThrough<'_>,
        muted: Muted,
    ) {
        if let Some(block) = &mut self.client.connection.block {
            if let StateChange::Select(db) = change {
                block.db = Some(db);
            }
            block.hold(Place::Change(change));
            self.transport.forward(pass, muted);
            return;
        }
        self.client.connection.unsettled += 1;
        self.transport
            .forward_and_look(pass, Look::State(Box::new(change)), muted);
    }

    /// Forwards what ends a block or a WATCH. Where connections change hands, it has to be known that
    /// it did.
    pub(crate) fn end(&mut self, pass: PassThrough<'_>, muted: Muted) {
        if self.multiplexed {
            self.change_state(StateChange::Ended, pass, muted);
        } else {
            self.transport.forward(pass, muted);
        }
    }

    /// A reply that somebody wanted to look at.
    pub(crate) fn learn(
        &mut self,
        reply: Reply<Look>,
        inbox: &mut RequestBuffer,
    ) -> Result<(), End> {
        let Reply { look, frame, muted } = reply;
        match look {
            Look::State(change) => {
                self.client.connection.unsettled =
                    self.client.connection.unsettled.saturating_sub(1);
                if muted == Muted::No {
                    self.transport.reply(&frame);
                }
                self.apply(*change, frame.first() != Some(&b'-'), inbox);
            }
            Look::ReadGrant => {
                self.client.connection.unsettled =
                    self.client.connection.unsettled.saturating_sub(1);
                if frame.starts_with(b"-NOPERM") {
                    self.client.connection.unreadable_until = Some(Instant::now() + UNREADABLE_FOR);
                }
                let value = parse_reply(&frame, self.client.connection.protocol);
                let grant = value.ok().and_then(|value| value.as_bytes().cloned());
                self.client
                    .connection
                    .read_grants
                    .push(grant.and_then(|grant| Grant::from_slice(&grant)));
            }
            Look::ReadValue(keys) => {
                self.client.connection.unsettled =
                    self.client.connection.unsettled.saturating_sub(1);
                if muted == Muted::No {
                    self.transport.reply(&frame);
                }
                self.client.observe(*keys, &frame);
            }
            Look::Scripts(names) => {
                if muted == Muted::No {
                    let told = self.client.only_known(&names, &frame);
                    self.transport.reply(&told);
                }
            }
            Look::Queued(step) => self.learn_of_queued(&step, &frame, muted),
            Look::Rights(asked) => self.client.learn_of_rights(&asked, &frame),
            Look::Renewed(renewed) => {
                self.own_step_failed(&frame);
                if let Ok(value) = parse_reply(&frame, self.client.connection.protocol) {
                    effects::renewal_answered(&self.client.shared, &renewed.0, &renewed.1, &value);
                }
            }
            Look::Role => self.learn_role(&frame),
            Look::Replicas => {
                if replicas::names_any(&frame) {
                    self.client.shared.metrics.replicas_told();
                }
                if muted == Muted::No {
                    self.transport.reply(&frame);
                }
            }
            // A session whose client is gone reads these itself.
            Look::Own | Look::Marked(_) => self.own_step_failed(&frame),
            Look::Answer => {
                return Err(End::OutOfStep("an answer that nobody waits for".into()));
            }
        }
        Ok(())
    }

    /// Changes the state as Redis did.
    pub(crate) fn apply(&mut self, change: StateChange, accepted: bool, inbox: &mut RequestBuffer) {
        match (change, accepted) {
            // A nested MULTI was refused, but the block it stands in goes on.
            (StateChange::Multi, false) => self.client.connection.block = None,
            // Redis 6.2 may have logged it in before it found what was wrong.
            (StateChange::Ended | StateChange::Hello { login: Some(_), .. }, false) => {
                self.client.connection.is_pinned = true;
            }
            (_, false) | (StateChange::Multi | StateChange::Ended, true) => {}
            (StateChange::Select(db), true) => self.client.connection.selected = db,
            (StateChange::Auth(login), true) => self.logged_in(login, inbox),
            (
                StateChange::Hello {
                    protocol,
                    login,
                    name,
                },
                true,
            ) => {
                if let Some(protocol) = protocol {
                    self.client.connection.protocol = protocol;
                    self.transport.pushes.set_resp3(protocol == Protocol::Resp3);
                }
                if let Some(login) = login {
                    self.logged_in(login, inbox);
                }
                if let Some(name) = name {
                    self.client.connection.set_name(name);
                    self.client.introduce();
                }
            }
            (StateChange::Name(name), true) => {
                self.client.connection.set_name(name);
                self.client.introduce();
            }
            (StateChange::Tracking { on, reads }, true) => {
                (
                    self.client.connection.is_tracking,
                    self.client.connection.tracking,
                ) = (on, reads);
            }
            (StateChange::Reset, true) => {
                self.client.connection.reset();
                self.client.connection.was_let_in =
                    !self.client.shared.backend.server.may_want_password();
                self.client.introduce();
                self.transport.pushes.reset();
                if self.client.shared.backend.server.wants_password() {
                    inbox.set_limits(RequestLimits::before_auth());
                }
            }
            (StateChange::Monitor, true) => self.transport.pushes.set_monitoring(),
            (StateChange::Loaded(text), true) => {
                self.client.shared.script_cache.saw(&text);
            }
            (StateChange::Functions, true) => self.client.shared.functions.forget(),
            (StateChange::Subscribed, true) => self.transport.pushes.set_unknown(),
        }
    }

    /// `SCRIPT EXISTS`. Inside a block its answer is Redis's alone.
    pub(crate) fn script_exists(&mut self, names: Arguments, pass: PassThrough<'_>, muted: Muted) {
        self.client
            .count(CommandClass::PassThrough, CommandResult::Ok);
        if self.client.connection.block.is_some() {
            self.transport.forward(pass, muted);
            self.client.queued();
            return;
        }
        self.transport
            .forward_and_look(pass, Look::Scripts(Box::new(names)), muted);
    }

    fn logged_in(&mut self, login: Login, inbox: &mut RequestBuffer) {
        // Whether this user may select the database that another has selected is not known, and a new connection
        // would have to.
        self.client.connection.is_pinned |=
            self.client.connection.selected != 0 && self.client.connection.user != login.user;
        self.client.connection.set_user(login.user.clone());
        // Nowhere else is the password of any use.
        self.client.connection.login = self.multiplexed.then_some(login);
        self.client.introduce();
        inbox.set_limits(RequestLimits::default());
    }

    async fn monitor(
        &mut self,
        inbox: &mut RequestBuffer,
        pass: PassThrough<'_>,
        muted: Muted,
    ) -> Result<(), End> {
        if self.client.connection.block.is_none() {
            self.settled(inbox).await?;
            // Redis says nothing to a second one.
            if self.transport.pushes.is_monitoring() {
                self.transport.forward_unanswered(pass);
                return Ok(());
            }
        }
        self.change_state(StateChange::Monitor, pass, muted);
        Ok(())
    }

    /// Redis from 7.2 on leaves a login that fails without an answer while earlier answers are still
    /// in its hands, and nobody could tell whose the next one is. So they are waited for; and the
    /// login too, since requests are short before it and may be longer behind it.
    async fn log_in(
        &mut self,
        inbox: &mut RequestBuffer,
        change: StateChange,
        pass: PassThrough<'_>,
        muted: Muted,
    ) -> Result<(), End> {
        if self.client.connection.block.is_some() {
            self.change_state(change, pass, muted);
            return Ok(());
        }
        self.all_answered(inbox).await?;
        self.change_state(change, pass, muted);
        self.settled(inbox).await
    }

    async fn multi(
        &mut self,
        inbox: &mut RequestBuffer,
        pass: PassThrough<'_>,
        muted: Muted,
    ) -> Result<(), End> {
        if self.client.connection.block.is_some() {
            self.transport.forward(pass, muted);
            return Ok(());
        }
        let certain = self.client.connection.may_begin_block
            && self.client.connection.unsettled == 0
            && !self.transport.pushes.takes_no_commands();
        self.change_state(StateChange::Multi, pass, muted);
        self.client.connection.block = Some(Block::default());
        // Where Redis might refuse it, what follows could not be told from what is queued.
        if !certain {
            self.settled(inbox).await?;
            self.client.connection.may_begin_block = self.client.connection.block.is_some();
        }
        Ok(())
    }

    async fn watch(
        &mut self,
        inbox: &mut RequestBuffer,
        words: &Arguments,
        pass: PassThrough<'_>,
        muted: Muted,
    ) -> Result<(), End> {
        let active = self.client.active();
        let is_lock = |word: &Bytes| active.namespaces.find(word).is_some();
        self.client.connection.is_watching |= self.client.connection.block.is_none();
        if self.client.connection.block.is_none() && words.iter().any(is_lock) {
            self.settled(inbox).await?;
            let db = self.client.connection.db();
            for word in words.iter().filter(|word| is_lock(word)) {
                let key = DbKey::new(db, word.clone());
                if !self.client.connection.watched.contains(&key) {
                    self.client.shared.watched_keys.add(&key);
                    self.client.connection.watched.push(key);
                }
            }
        }
        self.transport.forward(pass, muted);
        Ok(())
    }

    /// Redis is asked only whether this user may, in words that change nothing there.
    async fn client_reply(
        &mut self,
        inbox: &mut RequestBuffer,
        words: &Arguments,
        pass: PassThrough<'_>,
        muted: Muted,
    ) -> Result<(), End> {
        let word = words.get(1).map(|word| word.to_ascii_uppercase());
        let mode = match word.as_deref() {
            Some(b"ON") => ReplyMode::On,
            Some(b"OFF") => ReplyMode::Off,
            Some(b"SKIP") => ReplyMode::Skip,
            _ => {
                self.transport.forward(pass, muted);
                self.client.queued();
                return Ok(());
            }
        };
        if self.client.connection.block.is_some() {
            // From Redis the array of EXEC would never come whole.
            self.error(
                "ERR CLIENT REPLY is not possible inside a transaction through lockwarden",
                muted,
            );
            return Ok(());
        }
        self.settled(inbox).await?;
        if !self.client.connection.may_silence || self.transport.pushes.takes_no_commands() {
            self.transport.inquire(&OwnRequest::ReplyOn, Look::Answer);
            let answer = self.answer(inbox).await?;
            if answer.starts_with(b"-") {
                self.reply(&BytesMut::from(&answer[..]), muted);
                return Ok(());
            }
            self.client.connection.may_silence = true;
        }
        match (mode, self.client.connection.reply_mode) {
            (ReplyMode::Skip, ReplyMode::Off) => {}
            (mode, _) => self.client.connection.reply_mode = mode,
        }
        if mode == ReplyMode::On {
            // Whatever the mode was, Redis answers this.
            self.transport.answer(Bytes::from_static(b"+OK\r\n"));
        }
        Ok(())
    }

    fn channels(&mut self, channels: Channels, pass: PassThrough<'_>, muted: Muted) {
        if self.client.connection.block.is_some() {
            self.change_state(StateChange::Subscribed, pass, muted);
        } else {
            self.transport.forward_channels(pass, channels);
        }
    }
}

impl Client {
    /// Whether the client wants the reply to the next command.
    pub(crate) fn next_muted(&mut self) -> Muted {
        match self.connection.reply_mode {
            ReplyMode::On => Muted::No,
            ReplyMode::Off => Muted::Yes,
            ReplyMode::Skip => {
                self.connection.reply_mode = ReplyMode::On;
                Muted::Yes
            }
        }
    }

    /// A command went to Redis; inside a block it stands at the next place.
    pub(crate) fn queued(&mut self) {
        if let Some(block) = &mut self.connection.block {
            block.queued += 1;
        }
    }

    /// Says 1 only of scripts that the server has and this proxy knows.
    fn only_known(&self, names: &Arguments, frame: &Bytes) -> BytesMut {
        let known = |name: &Bytes| {
            ScriptSha::from_hex(name).and_then(|sha| self.shared.script_cache.get(&sha))
        };
        let Ok(Value::Array(mut items)) = parse_reply(frame, self.connection.protocol) else {
            return BytesMut::from(&frame[..]);
        };
        for (item, name) in items.iter_mut().zip(names) {
            if known(name).is_none() {
                *item = Value::Integer(0);
            }
        }
        let mut told = BytesMut::new();
        put_value(&mut told, &Value::Array(items), self.connection.protocol);
        told
    }

    /// Every WATCH of this connection is over.
    pub(crate) fn unwatch(&mut self) {
        self.connection.is_watching = false;
        for key in self.connection.watched.drain(..) {
            self.shared.watched_keys.remove(&key);
        }
        self.evidence.unwatched();
    }
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`; what Redis refuses changes nothing.
fn hello(words: &Arguments) -> StateChange {
    let protocol = match words.first().map(|word| &word[..]) {
        Some(b"2") => Some(Protocol::Resp2),
        Some(b"3") => Some(Protocol::Resp3),
        _ => None,
    };
    let (mut login, mut name) = (None, None);
    let mut at = 1;
    while at < words.len() {
        if words[at].eq_ignore_ascii_case(b"AUTH") {
            let told = words.get(at + 1).zip(words.get(at + 2));
            login = told.map(|(user, password)| Login {
                user: user.clone(),
                password: password.clone(),
            });
            at += 3;
        } else if words[at].eq_ignore_ascii_case(b"SETNAME") {
            name = words.get(at + 1).cloned();
            at += 2;
        } else {
            at += 1;
        }
    }
    StateChange::Hello {
        protocol,
        login,
        name,
    }
}

fn database(word: &[u8]) -> Option<u32> {
    parse_integer(word)
        .ok()
        .and_then(|db| u32::try_from(db).ok())
}

//! Commands that change the connection itself: forwarded and tracked, so that judging and pairing follow what Redis
//! has accepted. `CLIENT REPLY` is the exception: the proxy carries it out, and the backend always replies. Commands
//! that decide how later ones are read are order barriers.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::telemetry::events::DEFAULT_USER;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::op::Arguments;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::pass_through::{Kept, PassThrough};
use lockwarden_lock::table::{SessionVerb, parse_integer};
use lockwarden_resp::{Protocol, Request};

use crate::backend::profile::Login;
use crate::holders::handover::Ended;
use crate::session::client::Client;
use crate::session::client::block::Place;
use crate::session::client::connection_state::ReplyMode;
use crate::session::client::login::Acting;
use crate::session::step::awaited::{Look, StateChange, Tracking};
use crate::session::transport::pushes::Channels;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted, maintenance_notices};
use crate::session::{OK, Session};

impl Session {
    pub(crate) async fn session_verb(
        &mut self,
        inbox: &mut RequestBuffer,
        verb: SessionVerb,
        kept: Kept,
        muted: Muted,
    ) -> Result<(), End> {
        self.client.count(CommandClass::PassThrough, CommandResult::Ok);
        let words: Arguments = inbox.request().args().skip(1).map(Bytes::copy_from_slice).collect();
        let pass = kept.pass();
        match verb {
            SessionVerb::Asking => {
                // In a block it is queued like any other.
                self.client.connection.is_asking = self.client.connection.block.is_none();
                self.relay(pass, muted);
            }
            SessionVerb::Multi => return self.multi(inbox, pass, muted).await,
            SessionVerb::Exec => return self.exec(inbox, pass, muted).await,
            SessionVerb::Discard => self.discard(pass, muted),
            SessionVerb::Watch => return self.watch(inbox, &words, pass, muted).await,
            SessionVerb::Unwatch => {
                if self.client.connection.block.is_none() {
                    self.client.unwatch();
                    self.end(pass, muted);
                } else {
                    self.relay(pass, muted);
                }
            }
            SessionVerb::Reset => return self.reset(inbox, pass, muted).await,
            // Redis closes the connection and reads no further.
            SessionVerb::Quit => return Err(self.quit(inbox, pass, muted).await),
            SessionVerb::Auth => {
                let change = StateChange::Auth(login(&words));
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
                Some(db) => {
                    // They are records of locks in the database that was selected. In a block the new one is not
                    // known before EXEC.
                    if self.client.connection.block.is_none() {
                        self.client.connection.watch.forget_heads();
                    }
                    self.change_state(StateChange::Select(db), pass, muted);
                }
                None => self.relay(pass, muted),
            },
            SessionVerb::ClientSetName => {
                let name = words.get(1).cloned().unwrap_or_default();
                self.change_state(StateChange::Name(name), pass, muted);
            }
            // The client says it of itself, whether or not its server is new enough to keep it.
            SessionVerb::ClientSetInfo => {
                if let [_, what, value] = &words[..] {
                    self.client.connection.library.set(what, value);
                    self.client.introduce();
                }
                self.relay(pass, muted);
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
            SessionVerb::ClientTracking => return self.track(inbox, &words, pass, muted).await,
            SessionVerb::ClientReply => {
                return self.client_reply(inbox, &words, pass, muted).await;
            }
            SessionVerb::Subscribe(kind) => self.channels(Channels::new(kind, true, words.len()), pass, muted),
            SessionVerb::Unsubscribe(kind) => self.channels(Channels::new(kind, false, words.len()), pass, muted),
            SessionVerb::Monitor => {
                if self.may_administer(inbox, "monitor", muted).await? {
                    return self.monitor(inbox, pass, muted).await;
                }
            }
            SessionVerb::Replication => {
                self.client.count(CommandClass::Admin, CommandResult::Error);
                self.error("ERR lockwarden does not relay replication; connect replicas to Redis itself", muted);
            }
        }
        Ok(())
    }

    /// Forwards a command that was counted.
    fn relay(&mut self, pass: PassThrough<'_>, muted: Muted) {
        self.transport.forward(pass, muted);
        self.client.queued();
    }

    async fn reset(&mut self, inbox: &mut RequestBuffer, pass: PassThrough<'_>, muted: Muted) -> Result<(), End> {
        self.transport.take_queued();
        self.client.connection.block = None;
        self.client.unwatch();
        // The command ends OFF before it is answered; after that, a SKIP ends just before it.
        let heard = match self.client.connection.reply_mode {
            ReplyMode::Off => Muted::No,
            ReplyMode::On | ReplyMode::Skip => muted,
        };
        self.change_state(StateChange::Reset, pass, heard);
        self.settled(inbox).await
    }

    async fn quit(&mut self, inbox: &mut RequestBuffer, pass: PassThrough<'_>, muted: Muted) -> End {
        self.took_leave = true;
        self.client.ended = Ended::ByClient(Instant::now());
        self.client.connection.block = None;
        // On Redis it would close the connection that all these clients share.
        if self.transport.is_shared() {
            self.answer_locally(BytesMut::from(OK), muted);
        } else {
            self.transport.forward(pass, muted);
        }
        self.last_replies(inbox).await
    }

    async fn track(
        &mut self,
        inbox: &mut RequestBuffer,
        words: &[Bytes],
        pass: PassThrough<'_>,
        muted: Muted,
    ) -> Result<(), End> {
        let says = |what: &[u8]| words.iter().any(|word| word.eq_ignore_ascii_case(what));
        let tracking = match (says(b"ON"), says(b"BCAST")) {
            (false, _) => Tracking::Off,
            (true, true) => Tracking::Broadcast,
            (true, false) => Tracking::Reads,
        };
        self.change_state(StateChange::Tracking(tracking), pass, muted);
        // Nothing may be read between this command and the next.
        match self.client.connection.block {
            None => self.settled(inbox).await,
            Some(_) => Ok(()),
        }
    }

    /// Forwards a command whose reply says whether the state changed.
    pub(crate) fn change_state(&mut self, change: StateChange, pass: PassThrough<'_>, muted: Muted) {
        if let Some(block) = &mut self.client.connection.block {
            if let StateChange::Select(db) = change {
                block.db = Some(db);
            }
            // Redis says only QUEUED now; the reply that counts is in the answer to EXEC.
            block.hold(Place::Change(change));
            self.transport.forward(pass, muted);
            return;
        }
        self.client.connection.unsettle();
        self.transport.forward_and_look(pass, Look::State(Box::new(change)), muted);
    }

    /// Forwards a command that ends a block or a WATCH. Where connections change hands, the proxy must know that it
    /// took effect.
    pub(crate) fn end(&mut self, pass: PassThrough<'_>, muted: Muted) {
        if self.multiplexed {
            self.change_state(StateChange::Ended, pass, muted);
        } else {
            self.transport.forward(pass, muted);
        }
    }

    /// `SCRIPT LOAD`: the proxy remembers the text once the server has it.
    pub(crate) fn script_load(&mut self, request: &Request<'_>, pass: PassThrough<'_>, muted: Muted) {
        let text = Bytes::copy_from_slice(request.get(2).unwrap_or_default());
        self.change_state(StateChange::Loaded(text), pass, muted);
    }

    /// `SCRIPT EXISTS`. Inside a block its reply is Redis's alone.
    pub(crate) fn script_exists(&mut self, request: &Request<'_>, pass: PassThrough<'_>, muted: Muted) {
        self.client.count(CommandClass::PassThrough, CommandResult::Ok);
        if self.client.connection.block.is_some() {
            self.transport.forward(pass, muted);
            self.client.queued();
            return;
        }
        let names = request.args().skip(2).map(Bytes::copy_from_slice).collect();
        self.transport.forward_and_look(pass, Look::Scripts(Box::new(names)), muted);
    }

    async fn monitor(&mut self, inbox: &mut RequestBuffer, pass: PassThrough<'_>, muted: Muted) -> Result<(), End> {
        if self.client.connection.block.is_none() {
            self.settled(inbox).await?;
            // Redis does not reply to a second one.
            if self.transport.pushes.is_monitoring() {
                self.transport.forward_unanswered(pass);
                return Ok(());
            }
        }
        self.change_state(StateChange::Monitor, pass, muted);
        Ok(())
    }

    /// From version 7.2 on, Redis gives no reply to a login that fails while earlier replies are still in its hands,
    /// and the next reply could then belong to any request. So the earlier replies are waited for. The reply to the
    /// login is waited for too, because requests must be short before it and may be longer after it.
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

    async fn multi(&mut self, inbox: &mut RequestBuffer, pass: PassThrough<'_>, muted: Muted) -> Result<(), End> {
        if self.client.connection.block.is_some() {
            self.transport.forward(pass, muted);
            return Ok(());
        }
        Box::pin(self.prepare_block(inbox)).await?;
        let certain = self.client.connection.rights.may_begin_block
            && self.client.connection.is_settled()
            && !self.transport.pushes.takes_no_commands();
        self.change_state(StateChange::Multi, pass, muted);
        self.client.connection.block = Some(Box::default());
        let may_become_twin = self.client.connection.login.acting() == Acting::Own && self.client.has_twin();
        if may_become_twin || self.client.keeps_blocks() {
            self.transport.keep_queued();
        }
        // If Redis might refuse it, the replies to what follows could not be told from those to queued commands.
        if !certain {
            self.settled(inbox).await?;
            self.client.connection.rights.may_begin_block = self.client.connection.block.is_some();
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
        // Inside a block Redis refuses it.
        let takes_effect = self.client.connection.block.is_none();
        if takes_effect {
            self.client.connection.watch.begin();
        }
        if takes_effect && words.iter().any(is_lock) {
            // A SELECT may be under way, and the keys are those of its database.
            self.settled(inbox).await?;
            let db = self.client.connection.db();
            for word in words.iter().filter(|word| is_lock(word)) {
                let key = DbKey::new(db, word);
                if self.client.connection.watch.add_lock(&key) {
                    self.client.shared.watched_keys.add(&key);
                }
            }
        }
        if takes_effect {
            Box::pin(self.watch_records(inbox, words, &active)).await?;
        }
        self.transport.forward(pass, muted);
        Ok(())
    }

    /// Redis is only asked whether this user may use it, in words that change nothing there.
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
            // From Redis the array of EXEC would never come complete.
            self.error("ERR CLIENT REPLY is not possible inside a transaction through lockwarden", muted);
            return Ok(());
        }
        self.settled(inbox).await?;
        if !self.client.connection.rights.may_silence || self.transport.pushes.takes_no_commands() {
            self.transport.inquire(&OwnRequest::ReplyOn, Look::Answer);
            let answer = self.answer(inbox).await?;
            if answer.starts_with(b"-") {
                self.reply(&BytesMut::from(&answer[..]), muted);
                return Ok(());
            }
            self.client.connection.rights.may_silence = true;
        }
        match (mode, self.client.connection.reply_mode) {
            // As on Redis: while replies are off, SKIP changes nothing.
            (ReplyMode::Skip, ReplyMode::Off) => {}
            (mode, _) => self.client.connection.reply_mode = mode,
        }
        if mode == ReplyMode::On {
            // Redis answers this in every mode.
            self.transport.answer(Bytes::from_static(OK));
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

    /// A command was sent to Redis; inside a block it takes the next place.
    pub(crate) fn queued(&mut self) {
        if let Some(block) = &mut self.connection.block {
            block.queued += 1;
        }
    }

    /// Every WATCH of this connection is over.
    pub(crate) fn unwatch(&mut self) {
        for key in self.connection.watch.end() {
            self.shared.watched_keys.remove(&key);
        }
        self.evidence.unwatched();
    }
}

/// The login that `AUTH` names.
fn login(words: &[Bytes]) -> Login {
    let (user, password) = match words {
        [user, password] => (user.clone(), password.clone()),
        [password] => (Bytes::from_static(DEFAULT_USER), password.clone()),
        // Redis will refuse it as no valid login.
        _ => (Bytes::from_static(DEFAULT_USER), Bytes::new()),
    };
    Login { user, password }
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
            login = told.map(|(user, password)| Login { user: user.clone(), password: password.clone() });
            at += 3;
        } else if words[at].eq_ignore_ascii_case(b"SETNAME") {
            name = words.get(at + 1).cloned();
            at += 2;
        } else {
            at += 1;
        }
    }
    StateChange::Hello { protocol, login, name }
}

fn database(word: &[u8]) -> Option<u32> {
    parse_integer(word).ok().and_then(|db| u32::try_from(db).ok())
}

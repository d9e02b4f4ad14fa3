//! What a session learns of its client from the replies that it looks at.

use bytes::{Bytes, BytesMut};
use lockwarden_lock::op::Arguments;
use lockwarden_lock::script_facts::ScriptSha;
use lockwarden_lock::token::Grant;
use lockwarden_resp::{Protocol, RequestLimits, Value, parse_reply, put_value};

use crate::backend::profile::Login;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::client::sharing::Trace;
use crate::session::servers::replicas;
use crate::session::step::awaited::{Look, StateChange};
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted, Reply};
use crate::state::effects;

impl Session {
    /// Handles a reply that was to be looked at.
    pub(crate) fn learn(&mut self, reply: Reply<Look>, inbox: &mut RequestBuffer) -> Result<(), End> {
        let Reply { look, frame, muted } = reply;
        match look {
            Look::State(change) => {
                self.client.connection.settle();
                if muted == Muted::No {
                    self.transport.reply(&frame);
                }
                self.apply(*change, frame.first() != Some(&b'-'), inbox);
            }
            Look::ReadGrant => {
                self.client.connection.settle();
                if frame.starts_with(b"-NOPERM") {
                    self.client.connection.cannot_read_records();
                }
                let value = parse_reply(&frame, self.client.connection.protocol);
                let grant = value.ok().and_then(|value| value.as_bytes().cloned());
                self.client.connection.read_grants.push(grant.and_then(|grant| Grant::from_slice(&grant)));
            }
            Look::Head(write) => self.client.learn_of_head(&frame, write),
            Look::ReadValue(keys) => {
                self.client.connection.settle();
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
            Look::Renewed(lease) => {
                self.own_step_failed(&frame);
                if let Ok(value) = parse_reply(&frame, self.client.connection.protocol) {
                    effects::renewal_answered(&self.client.shared, &lease, &value);
                }
            }
            Look::InTwinsBlock => {
                let told = self.client.without_twin(&frame);
                self.reply(&told, muted);
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
            Look::Sighted(sighted) => {
                self.client.sighted(*sighted, &frame);
                if muted == Muted::No {
                    self.transport.reply(&frame);
                }
            }
            Look::Unknown(asked) => {
                let (command, why, active) = *asked;
                self.answered_unknown((&command, why, &active), &frame, muted);
            }
            Look::Unwitnessed(locks) => self.marked_unwitnessed(&locks, &frame),
            // Nothing was written that replicas must confirm.
            Look::Confirmed => {}
            // A session whose client is gone reads these itself.
            Look::Own | Look::Marked(_) => self.own_step_failed(&frame),
            Look::Answer => {
                return Err(End::OutOfStep("an answer that nobody waits for".into()));
            }
        }
        Ok(())
    }

    /// Changes the state as Redis did.
    pub fn apply(&mut self, change: StateChange, accepted: bool, inbox: &mut RequestBuffer) {
        match (change, accepted) {
            (StateChange::Twin, accepted) => self.client.twin_logged_in(accepted),
            (StateChange::OwnAgain, accepted) => self.client.own_logged_in(accepted),
            // A nested MULTI was refused, but the block around it goes on.
            (StateChange::Multi, false) => self.client.connection.block = None,
            // Redis 6.2 may have logged the client in before it found the error.
            (StateChange::Ended | StateChange::Hello { login: Some(_), .. }, false) => {
                self.client.connection.sharing.leave(Trace::Pin);
            }
            (_, false) | (StateChange::Multi | StateChange::Ended, true) => {}
            (StateChange::Select(db), true) => self.client.connection.selected = db,
            (StateChange::Auth(login), true) => self.logged_in(login, inbox),
            (StateChange::Hello { protocol, login, name }, true) => {
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
            (StateChange::Tracking(tracking), true) => self.client.connection.tracking = tracking,
            (StateChange::Reset, true) => {
                let was_let_in = !self.client.shared.backend.server.may_want_password();
                self.client.connection.reset(was_let_in);
                self.client.introduce();
                self.transport.pushes.reset();
                if self.client.connection.login.is_demanded() || self.client.shared.backend.server.wants_password() {
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

    pub(crate) fn logged_in(&mut self, login: Login, inbox: &mut RequestBuffer) {
        // It is not known whether this user may select the database that another user has selected, and a new
        // connection would have to select it.
        if self.client.connection.selected != 0 && *self.client.connection.user() != login.user {
            self.client.connection.sharing.leave(Trace::Pin);
        }
        let backend = &self.client.shared.backend;
        backend.passwords.proved(&login, backend.server.era());
        self.client.logged_in(login);
        inbox.set_limits(RequestLimits::default());
    }
}

impl Client {
    /// Replies 1 only for scripts that the server has and this proxy knows.
    pub(crate) fn only_known(&self, names: &Arguments, frame: &Bytes) -> BytesMut {
        let known = |name: &Bytes| ScriptSha::from_hex(name).and_then(|sha| self.shared.script_cache.seen(&sha));
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
}

//! The twin of a client's user (`[[user_map]]`): the connection to the backend is logged in as the client's own user, and
//! as the twin only while something is sent that was judged and touches a lock, or only reads one. So what the
//! judgement does not know to be a lock command is carried out with rights that no lock key is among, and Redis itself refuses
//! it. Logging in as the client's own user again is waited for before anything else is sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use lockwarden_control::ruleset::Twin;
use lockwarden_control::telemetry::events::DEFAULT_USER;
use lockwarden_control::telemetry::vocabulary::TwinLogin;
use lockwarden_lock::classify::Class;
use lockwarden_lock::own_request::{OwnRequest, Password};
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::table::{Effect, KEYS_UNCHECKED, KEYS_UNCHECKED_BEFORE_7, SessionVerb};
use lockwarden_resp::Request;

use crate::backend::profile::Login;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::client::block::Place;
use crate::session::client::login::Acting;
use crate::session::step::awaited::{Look, StateChange};
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

/// Any password is right for a user that needs none, and the protocol wants one.
const NO_PASSWORD: &[u8] = b"none";

/// The client is told so where the first lock of a block comes too late.
const BLOCK_TOO_LONG: &str = "ERR lockwarden: the first command of this block that touches a lock comes behind more than 1 MiB of others; \
     send it before them";

impl Session {
    /// Waits until the connection is the client's own user again, where it was the twin. Without that nothing is sent.
    pub(crate) async fn own_again(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        if self.client.connection.login.acting() == Acting::Returning {
            self.settled(inbox).await?;
        }
        match self.client.connection.login.acting() {
            Acting::Stuck => Err(End::Done),
            Acting::Own | Acting::Twin | Acting::Returning => Ok(()),
        }
    }

    /// Logs in as the twin, before something is sent that touches a lock. Returns whether the request at the front may be
    /// sent; else its client was told why not.
    pub(crate) async fn become_twin(&mut self, inbox: &mut RequestBuffer, muted: Muted) -> Result<bool, End> {
        let Some(twin) = self.client.twin() else {
            return Ok(true);
        };
        if !self.takes_own_connection(inbox, muted).await? {
            return Ok(false);
        }
        // A login that fails is left without an answer where earlier ones are still in Redis's hands.
        self.all_answered(inbox).await?;
        if !self.knows_own_login(inbox).await? {
            return Ok(true);
        }
        if self.client.connection.block.is_some() {
            return self.begin_block_anew(&twin, inbox, muted).await;
        }
        self.log_in_as(&twin);
        Ok(true)
    }

    /// Logs in as the client's own user again, once all is answered that was sent as the twin.
    pub(crate) async fn rest(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let connection = &self.client.connection;
        if connection.login.acting() != Acting::Twin || connection.block.is_some() {
            return Ok(());
        }
        self.all_answered(inbox).await?;
        // The server may not have let the twin in.
        let connection = &mut self.client.connection;
        if connection.login.acting() != Acting::Twin {
            return Ok(());
        }
        let Some(Login { user, password }) = connection.login.own().cloned() else {
            return Err(End::Done);
        };
        connection.login.returns();
        connection.unsettled += 1;
        let password = Password(&password);
        let request = OwnRequest::LogIn { user: &user, password };
        let look = Look::State(Box::new(StateChange::OwnAgain));
        self.transport.inquire(&request, look);
        Ok(())
    }

    fn log_in_as(&mut self, twin: &Twin) {
        let Some(password) = &twin.password else {
            return self.client.twin_is_shut_out(twin, "there is no password for it");
        };
        self.client.connection.login.becomes_twin();
        self.client.connection.unsettled += 1;
        let request = OwnRequest::LogIn { user: &twin.user, password: Password(password.expose().as_bytes()) };
        let look = Look::State(Box::new(StateChange::Twin));
        self.transport.inquire(&request, look);
    }

    /// Logs in as the twin for what ends with the session, without waiting for the answers. Returns whether that is possible.
    pub(crate) fn become_twin_at_last(&mut self) -> bool {
        let Some(twin) = self.client.twin() else {
            return true;
        };
        match (self.client.connection.login.acting(), &twin.password) {
            (Acting::Twin, _) => true,
            (Acting::Own, Some(password)) if !self.transport.is_shared() => {
                let request = OwnRequest::LogIn { user: &twin.user, password: Password(password.expose().as_bytes()) };
                self.transport.inquire(&request, Look::Own);
                true
            }
            (Acting::Own | Acting::Returning | Acting::Stuck, _) => false,
        }
    }

    /// What has to be known before a block begins, because in a block nothing can be asked.
    pub(crate) async fn prepare_block(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        if self.client.connection.login.acting() == Acting::Own && self.client.has_twin() {
            self.all_answered(inbox).await?;
            self.knows_own_login(inbox).await?;
        }
        self.verify_before_block(inbox).await
    }

    /// A command of a block that the twin began. What it is told shows the client's own user. Returns whether it was one.
    pub(crate) fn pass_in_twins_block(&mut self, request: &Request<'_>, pass: PassThrough<'_>, muted: Muted) -> bool {
        let connection = &mut self.client.connection;
        let Some(block) = connection.block.as_mut().filter(|_| connection.login.acting() == Acting::Twin) else {
            return false;
        };
        let mut words = request.args();
        let is = |word: Option<&[u8]>, name: &[u8]| word.is_some_and(|word| word.eq_ignore_ascii_case(name));
        if is(words.next(), b"acl") && is(words.next(), b"whoami") && request.len() == 2 {
            block.hold(Place::User(connection.user.clone()));
            // A user who may not ask is told so here.
            let look = Look::InTwinsBlock;
            self.transport.forward_and_look(pass, look, muted);
            return true;
        }
        self.transport.forward_and_look(pass, Look::InTwinsBlock, muted);
        self.client.queued();
        true
    }

    /// Whether it is known how the client's own user logs in. Who has not logged in is `default`, if that needs no
    /// password: only Redis knows, so it is asked, and the login must not let in who was not.
    async fn knows_own_login(&mut self, inbox: &mut RequestBuffer) -> Result<bool, End> {
        if self.client.connection.login.own().is_some() {
            return Ok(true);
        }
        // Of another user that logged in before it had a twin the password was not kept.
        let connection = &self.client.connection;
        if connection.user != DEFAULT_USER || connection.block.is_some() {
            return Ok(false);
        }
        let request = OwnRequest::LogIn { user: DEFAULT_USER, password: Password(NO_PASSWORD) };
        self.transport.inquire(&request, Look::Answer);
        let answer = self.answer(inbox).await?;
        let is_open = answer.starts_with(b"+");
        if is_open {
            let (user, password) = (Bytes::from_static(DEFAULT_USER), Bytes::from_static(NO_PASSWORD));
            self.client.connection.login.learn_own(Login { user, password });
        }
        Ok(is_open)
    }

    /// In a block every command is tried against the rights of its user when it is queued, and a login would only be
    /// queued. So the block is ended, and begun again by the twin with what was queued.
    async fn begin_block_anew(&mut self, twin: &Twin, inbox: &mut RequestBuffer, muted: Muted) -> Result<bool, End> {
        let Some(queued) = self.transport.take_queued() else {
            self.error(BLOCK_TOO_LONG, muted);
            return Ok(false);
        };
        for request in [OwnRequest::Discard, OwnRequest::Multi] {
            if matches!(request, OwnRequest::Multi) {
                self.log_in_as(twin);
                self.settled(inbox).await?;
            }
            self.transport.inquire(&request, Look::Answer);
            if !self.answer(inbox).await?.starts_with(b"+OK") {
                return Err(End::OutOfStep("a block could not be begun anew".into()));
            }
        }
        if self.client.keeps_blocks() {
            self.transport.keep_queued();
        }
        self.transport.queue_again(queued);
        Ok(true)
    }
}

impl Client {
    /// Whether some user has a twin. Most configurations have none, and then nothing else here is done.
    pub(crate) fn may_have_twin(&mut self) -> bool {
        !self.active.load().twins.is_empty()
    }

    /// The twin of the user that the client is.
    pub(crate) fn twin(&mut self) -> Option<Arc<Twin>> {
        self.active.load().twins.get(&self.connection.user).cloned()
    }

    /// Whether the client's user has one.
    pub(crate) fn has_twin(&mut self) -> bool {
        let twins = &self.active.load().twins;
        !twins.is_empty() && twins.contains_key(&self.connection.user)
    }

    /// Whether its user has a twin, and this connection is not logged in as that yet.
    pub(crate) fn may_become_twin(&mut self) -> bool {
        self.has_twin() && self.connection.login.acting() != Acting::Twin
    }

    /// Whether a request is for the twin: it was understood as one about locks, or only reads some.
    pub(crate) fn wants_twin(&mut self, class: &Class<'_>, request: &Request<'_>) -> bool {
        let active = self.active();
        match class {
            Class::Judge(_)
            | Class::Read(..)
            | Class::Trusted(..)
            | Class::UnknownScript(_)
            | Class::TooLong(..)
            | Class::Fence(..)
            | Class::Lease(Ok(_))
            | Class::ErrorOfOthers(..) => true,
            Class::Admin(command) => command.may_erase_locks() || !active.enforces_any(),
            // Where something is enforced it is refused, and not sent at all.
            Class::Opaque(command) => active.rules(command.target.namespace).mode == Mode::Monitor,
            // Behind a WATCH it cannot be begun anew.
            Class::Session(SessionVerb::Multi, _) => self.connection.is_watching,
            Class::Session(SessionVerb::Watch, _) => {
                let mut words = request.args().skip(1);
                words.any(|word| active.namespaces.find(word).is_some())
            }
            Class::Session(..)
            | Class::Listing(..)
            | Class::ScriptLoad(_)
            | Class::ScriptExists(_)
            | Class::Operator(_)
            | Class::Lease(Err(_))
            | Class::UnknownName(_)
            | Class::OtherName(_)
            | Class::Error(_) => false,
            Class::PassThrough(pass) => {
                pass.effect() != Effect::Neutral && (self.names_lock(request) || self.is_taken_from_users(request))
            }
            // It may compute the name of a lock, and is not to touch it; where all is only watched it may go on doing so.
            Class::UnseenScript(_) | Class::Computed(_) | Class::ComputedFunction(_) | Class::UnknownFunction(_) => {
                !active.enforces_any()
            }
        }
    }

    /// An error as it would be worded for the client's own user.
    pub(crate) fn without_twin(&mut self, frame: &Bytes) -> BytesMut {
        let words = frame.strip_prefix(b"-NOPERM User ");
        let (Some(words), Some(twin)) = (words, self.twin()) else {
            return BytesMut::from(&frame[..]);
        };
        match words.strip_prefix(&twin.user[..]) {
            Some(rest) if rest.starts_with(b" ") => {
                let own = &self.connection.user;
                BytesMut::from(&[b"-NOPERM User ", &own[..], rest].concat()[..])
            }
            Some(_) | None => BytesMut::from(&frame[..]),
        }
    }

    /// Whether no user behind the barrier has this command, because Redis does not check all of its keys. The proxy does.
    fn is_taken_from_users(&self, request: &Request<'_>) -> bool {
        let is = |name: &&str| request.name().eq_ignore_ascii_case(name.as_bytes());
        let is_since_7 = self.shared.backend.server.reads_script_flags();
        KEYS_UNCHECKED.iter().any(is) || (!is_since_7 && KEYS_UNCHECKED_BEFORE_7.iter().any(is))
    }

    /// Redis's word on a login as the twin.
    pub(crate) fn twin_logged_in(&mut self, accepted: bool) {
        let Some(twin) = self.twin() else {
            return;
        };
        if accepted {
            twin.is_shut_out.store(false, Ordering::Relaxed);
            self.shared.metrics.twin_logins.at(TwinLogin::Ok).inc();
        } else {
            self.connection.login.stays_own();
            self.twin_is_shut_out(&twin, "the server refuses its login");
        }
    }

    fn twin_is_shut_out(&mut self, twin: &Twin, why: &str) {
        self.shared.metrics.twin_logins.at(TwinLogin::Failed).inc();
        if !twin.is_shut_out.swap(true, Ordering::Relaxed) {
            tracing::error!(
                user = %String::from_utf8_lossy(&self.connection.user),
                twin = %String::from_utf8_lossy(&twin.user),
                why,
                "a twin cannot be used: lock commands of its user are carried out without its rights"
            );
        }
    }

    /// Redis's word on the login as the client's own user again.
    pub(crate) fn own_logged_in(&mut self, accepted: bool) {
        self.connection.login.returned(accepted);
        if accepted {
            return;
        }
        self.shared.metrics.twin_logins.at(TwinLogin::NotBack).inc();
        tracing::info!(
            client = %self.peer,
            user = %String::from_utf8_lossy(&self.connection.user),
            "closing a connection: its user's password is not the one any more that it logged in with"
        );
    }
}

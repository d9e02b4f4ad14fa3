//! The twin of a client's user (`[[user_map]]`): the connection to the backend is logged in as the client's own user.
//! It is logged in as the twin only while a request is sent that was judged and touches a lock, or only reads one. So
//! a command that the judgement does not recognise as a lock command is executed with rights that include no lock
//! key, and Redis itself refuses it. Before anything else is sent, the proxy waits until the connection is logged in
//! as the client's own user again.

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

/// A user without a password accepts any password, and the protocol requires one.
const NO_PASSWORD: &[u8] = b"none";

/// The error for a client whose block touches its first lock too late.
const BLOCK_TOO_LONG: &str = "ERR lockwarden: the first command of this block that touches a lock comes behind more than 1 MiB of others; \
     send it before them";

impl Session {
    /// Waits until the connection is logged in as the client's own user again, if it was the twin. Before that
    /// nothing is sent.
    pub(crate) async fn own_again(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        if self.client.connection.login.acting() == Acting::Returning {
            self.settled(inbox).await?;
        }
        match self.client.connection.login.acting() {
            Acting::Stuck => Err(End::Done),
            Acting::Own | Acting::Twin | Acting::Returning => Ok(()),
        }
    }

    /// Logs in as the twin, before a request is sent that touches a lock. Returns whether the request at the front
    /// may be sent; if not, its client was told why.
    pub(crate) async fn become_twin(&mut self, inbox: &mut RequestBuffer, muted: Muted) -> Result<bool, End> {
        let Some(twin) = self.client.twin() else {
            return Ok(true);
        };
        if !self.takes_own_connection(inbox, muted).await? {
            return Ok(false);
        }
        // A login that fails gets no reply while earlier replies are still in Redis's hands.
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

    /// Logs in as the client's own user again, once everything that was sent as the twin is answered.
    pub(crate) async fn rest(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let connection = &self.client.connection;
        if connection.login.acting() != Acting::Twin || connection.block.is_some() {
            return Ok(());
        }
        self.all_answered(inbox).await?;
        // The server may have refused the twin's login.
        let connection = &mut self.client.connection;
        if connection.login.acting() != Acting::Twin {
            return Ok(());
        }
        let Some(Login { user, password }) = connection.login.own().cloned() else {
            return Err(End::Done);
        };
        connection.login.returns();
        connection.unsettle();
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
        self.client.connection.unsettle();
        let request = OwnRequest::LogIn { user: &twin.user, password: Password(password.expose().as_bytes()) };
        let look = Look::State(Box::new(StateChange::Twin));
        self.transport.inquire(&request, look);
    }

    /// Logs in as the twin for the last steps of an ending session, without waiting for the replies. Returns whether
    /// that is possible.
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

    /// Finds out what has to be known before a block begins, because in a block nothing can be asked.
    pub(crate) async fn prepare_block(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        if self.client.connection.login.acting() == Acting::Own && self.client.has_twin() {
            self.all_answered(inbox).await?;
            self.knows_own_login(inbox).await?;
        }
        self.verify_before_block(inbox).await
    }

    /// A command of a block that the twin began. The client must see its own user in the reply. Returns whether it
    /// was such a command.
    pub(crate) fn pass_in_twins_block(&mut self, request: &Request<'_>, pass: PassThrough<'_>, muted: Muted) -> bool {
        let connection = &mut self.client.connection;
        let user = connection.user().clone();
        let Some(block) = connection.block.as_mut().filter(|_| connection.login.acting() == Acting::Twin) else {
            return false;
        };
        let mut words = request.args();
        let is = |word: Option<&[u8]>, name: &[u8]| word.is_some_and(|word| word.eq_ignore_ascii_case(name));
        if is(words.next(), b"acl") && is(words.next(), b"whoami") && request.len() == 2 {
            block.hold(Place::User(user));
            // A user who may not send it gets the error here.
            let look = Look::InTwinsBlock;
            self.transport.forward_and_look(pass, look, muted);
            return true;
        }
        self.transport.forward_and_look(pass, Look::InTwinsBlock, muted);
        self.client.queued();
        true
    }

    /// Whether it is known how to log in as the client's own user. A client that has not logged in is `default`, if
    /// that needs no password. Only Redis knows that, so it is asked; and the login must not let in a client that was
    /// not let in.
    async fn knows_own_login(&mut self, inbox: &mut RequestBuffer) -> Result<bool, End> {
        if self.client.connection.login.own().is_some() {
            return Ok(true);
        }
        // If another user logged in before it had a twin, its password was not kept.
        let connection = &self.client.connection;
        if connection.user() != DEFAULT_USER || connection.block.is_some() {
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

    /// In a block every command is checked against the rights of its user when it is queued, and a login would only
    /// be queued. So the block is ended, and begun again as the twin with the commands that were queued.
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
    /// Whether any user has a twin. Most configurations have none, and then nothing else here runs.
    pub(crate) fn may_have_twin(&mut self) -> bool {
        !self.active.load().twins.is_empty()
    }

    /// The twin of the user that the client is.
    pub(crate) fn twin(&mut self) -> Option<Arc<Twin>> {
        self.active.load().twins.get(self.connection.user()).cloned()
    }

    /// Whether the client's user has one.
    pub(crate) fn has_twin(&mut self) -> bool {
        let twins = &self.active.load().twins;
        !twins.is_empty() && twins.contains_key(self.connection.user())
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
            // In enforce mode it is refused, and not sent at all.
            Class::Opaque(command) => active.rules(command.target.namespace).mode == Mode::Monitor,
            // After a WATCH it cannot be begun again.
            Class::Session(SessionVerb::Multi, _) => self.connection.watch.is_any(),
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
            // It may compute the name of a lock, and must not touch it; in monitor mode it may go on doing so.
            Class::UnseenScript(_) | Class::Computed(_) | Class::ComputedFunction(_) | Class::UnknownFunction(_) => {
                !active.enforces_any()
            }
        }
    }

    /// An error in the words that the client's own user would get.
    pub(crate) fn without_twin(&mut self, frame: &Bytes) -> BytesMut {
        let words = frame.strip_prefix(b"-NOPERM User ");
        let (Some(words), Some(twin)) = (words, self.twin()) else {
            return BytesMut::from(&frame[..]);
        };
        match words.strip_prefix(&twin.user[..]) {
            Some(rest) if rest.starts_with(b" ") => {
                let own = self.connection.user();
                BytesMut::from(&[b"-NOPERM User ", &own[..], rest].concat()[..])
            }
            Some(_) | None => BytesMut::from(&frame[..]),
        }
    }

    /// Whether no user behind the barrier may use this command, because Redis does not check all of its keys. The
    /// proxy checks them.
    fn is_taken_from_users(&self, request: &Request<'_>) -> bool {
        let is = |name: &&str| request.name().eq_ignore_ascii_case(name.as_bytes());
        let is_since_7 = self.shared.backend.server.reads_script_flags();
        KEYS_UNCHECKED.iter().any(is) || (!is_since_7 && KEYS_UNCHECKED_BEFORE_7.iter().any(is))
    }

    /// Redis's reply to a login as the twin.
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
                user = %String::from_utf8_lossy(self.connection.user()),
                twin = %String::from_utf8_lossy(&twin.user),
                why,
                "a twin cannot be used: lock commands of its user are carried out without its rights"
            );
        }
    }

    /// Redis's reply to the login as the client's own user again.
    pub(crate) fn own_logged_in(&mut self, accepted: bool) {
        self.connection.login.returned(accepted);
        if accepted {
            return;
        }
        self.shared.metrics.twin_logins.at(TwinLogin::NotBack).inc();
        tracing::info!(
            client = %self.peer,
            user = %String::from_utf8_lossy(self.connection.user()),
            "closing a connection: its user's password is not the one any more that it logged in with"
        );
    }
}

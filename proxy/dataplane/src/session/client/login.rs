//! How far the login of a connection has come, and which user it acts as meanwhile.

use crate::backend::profile::Login;

/// How far the login has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is done for the client before it has logged in, whatever Redis would do.
    Demanded,
    /// It has not logged in, and need not where Redis asks for no password.
    Open,
    /// A login has succeeded, or was found not to be needed.
    Done,
}

/// Which user the session's own connection is logged in as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acting {
    /// The client's own.
    Own,
    /// Its twin, or will be when what is under way is answered.
    Twin,
    /// The client's own, when what is under way is answered.
    Returning,
    /// The twin, although it should be the client's own: nothing may be sent any more.
    Stuck,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LoginState {
    stage: Stage,
    /// A login is demanded again after `RESET`.
    is_strict: bool,
    /// It was let in when no login was needed: as on Redis, a password that is set later does not concern it.
    was_let_in: bool,
    /// The user's proven login, if it is needed to share a connection.
    shared: Option<Login>,
    /// The same if the user has a twin; also that of `default` without a login, once it is known to need no password.
    own: Option<Login>,
    acting: Acting,
}

impl LoginState {
    /// Of a client that has said nothing yet.
    pub(crate) fn new(was_let_in: bool) -> LoginState {
        LoginState { stage: Stage::Open, is_strict: false, was_let_in, shared: None, own: None, acting: Acting::Own }
    }

    /// After `RESET`, and from the beginning on unless `is_logged_in`, the client must log in.
    pub(crate) fn demand(&mut self, is_logged_in: bool) {
        self.is_strict = true;
        if !is_logged_in {
            self.stage = Stage::Demanded;
        }
    }

    /// After `RESET`.
    pub(crate) fn reset(&self, was_let_in: bool) -> LoginState {
        let stage = match self.is_strict {
            true => Stage::Demanded,
            false => Stage::Open,
        };
        LoginState { stage, is_strict: self.is_strict, ..LoginState::new(was_let_in) }
    }

    /// A login has succeeded. The password is kept only where it is needed: to share a connection, or to return from
    /// the twin.
    pub(crate) fn succeeded(&mut self, login: Login, may_have_twin: bool) {
        self.stage = Stage::Done;
        self.own = may_have_twin.then(|| login.clone());
        self.shared = Some(login);
    }

    /// Redis accepted a command that it accepts only from a client that is logged in.
    pub(crate) fn is_not_needed(&mut self) {
        self.stage = Stage::Done;
    }

    /// The login of the client's own user is known now.
    pub(crate) fn learn_own(&mut self, login: Login) {
        self.own = Some(login);
    }

    /// Whether nothing is done for the client before it has logged in.
    pub(crate) fn is_demanded(&self) -> bool {
        self.stage == Stage::Demanded
    }

    /// Whether a login has succeeded, or was found not to be needed.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether Redis would ask this client for a password if it asks clients for one.
    pub(crate) fn is_stranger(&self) -> bool {
        self.shared.is_none() && !self.was_let_in
    }

    /// The login with which a shared connection is opened.
    pub(crate) fn shared(&self) -> Option<&Login> {
        self.shared.as_ref()
    }

    /// The login with which the connection returns from the twin.
    pub(crate) fn own(&self) -> Option<&Login> {
        self.own.as_ref()
    }

    pub(crate) fn acting(&self) -> Acting {
        self.acting
    }

    /// A login as the twin was sent.
    pub(crate) fn becomes_twin(&mut self) {
        self.acting = Acting::Twin;
    }

    /// Redis did not let the twin in.
    pub(crate) fn stays_own(&mut self) {
        self.acting = Acting::Own;
    }

    /// A login as the client's own user was sent.
    pub(crate) fn returns(&mut self) {
        self.acting = Acting::Returning;
    }

    /// Redis's reply to that login.
    pub(crate) fn returned(&mut self, accepted: bool) {
        self.acting = match accepted {
            true => Acting::Own,
            false => Acting::Stuck,
        };
    }
}

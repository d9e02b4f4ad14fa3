//! The client for which a step is planned: its session, and its identity under a namespace's rules.

use crate::rules::{Rules, TrustAddress};
use crate::token::{Identity, Process, SessionId};

/// The client of a step.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The connection.
    pub session: SessionId,
    /// The client, without its process.
    pub client: Identity,
    /// Its application, if the client names it: by its ACL user, or else by its name.
    pub application: Option<Identity>,
    /// Its process.
    pub process: Process,
    /// Whether it is on the proxy's own machine.
    pub local: bool,
    /// How much its address identifies it, if the rules do not decide that.
    pub trust: Option<TrustAddress>,
    /// The logical database.
    pub db: u32,
    /// Whether a step may ask back for a process that was not looked up yet.
    pub may_ask_back: bool,
    /// Records of a later version exist: an acquire reads the record before it writes one.
    pub looks_first: bool,
}

impl Who {
    /// How much its address identifies it under these rules.
    pub fn trust(&self, rules: &Rules) -> TrustAddress {
        self.trust.unwrap_or(rules.trust_address)
    }

    /// The identity under these rules.
    pub fn identity(&self, rules: &Rules) -> Identity {
        if let (Some(application), true) = (self.application, rules.hand_over) {
            return application;
        }
        match (self.trust(rules), self.local) {
            // The address identifies the process.
            (TrustAddress::Process, _) | (_, false) => self.client,
            (TrustAddress::Auto | TrustAddress::No, true) => self.client.with_process(self.process),
        }
    }

    /// Whether the connection alone distinguishes the client from others, whatever its process.
    pub fn is_distinctive(&self, rules: &Rules) -> bool {
        self.application.is_some()
            || match self.trust(rules) {
                TrustAddress::Auto => !self.local,
                TrustAddress::Process => true,
                TrustAddress::No => false,
            }
    }

    /// Whether its identity is distinctive, or may become so.
    pub(super) fn may_be_distinctive(&self, rules: &Rules) -> bool {
        let pending = Process::Pending;
        self.is_distinctive(rules)
            || self.identity(rules) != self.client && (self.process != pending || self.may_ask_back)
    }
}

//! The client that a step is planned for: its session, and the identity that it has under a namespace's rules.

use crate::rules::{Rules, TrustAddress};
use crate::token::{Identity, Process, SessionId};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The connection.
    pub session: SessionId,
    /// The client, without its process.
    pub client: Identity,
    /// Its application, where it says of itself which: by its ACL user, or else by its name.
    pub application: Option<Identity>,
    /// Which process it is.
    pub process: Process,
    /// It is on the proxy's own machine.
    pub local: bool,
    /// What its address says of it, where that is not for the rules to say.
    pub trust: Option<TrustAddress>,
    /// The logical database.
    pub db: u32,
    /// Whether a step may ask back for a process that was not looked up yet.
    pub may_ask_back: bool,
    /// Records of a later version are about: an acquire looks at the record before it writes one.
    pub looks_first: bool,
}

impl Who {
    /// What its address says of it under these rules.
    pub fn trust(&self, rules: &Rules) -> TrustAddress {
        self.trust.unwrap_or(rules.trust_address)
    }

    /// The identity under these rules.
    pub fn identity(&self, rules: &Rules) -> Identity {
        if let (Some(application), true) = (self.application, rules.hand_over) {
            return application;
        }
        match (self.trust(rules), self.local) {
            // The address is the process.
            (TrustAddress::Process, _) | (_, false) => self.client,
            (TrustAddress::Auto | TrustAddress::No, true) => self.client.with_process(self.process),
        }
    }

    /// Whether the connection alone tells the client from others, whatever its process.
    pub fn is_distinctive(&self, rules: &Rules) -> bool {
        self.application.is_some()
            || match self.trust(rules) {
                TrustAddress::Auto => !self.local,
                TrustAddress::Process => true,
                TrustAddress::No => false,
            }
    }

    /// Whether its identity can be told from others', or may turn out to be.
    pub(super) fn may_be_distinctive(&self, rules: &Rules) -> bool {
        let pending = Process::Pending;
        self.is_distinctive(rules)
            || self.identity(rules) != self.client && (self.process != pending || self.may_ask_back)
    }
}

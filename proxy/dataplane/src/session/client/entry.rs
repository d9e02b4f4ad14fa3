//! As whom a client begins: as Redis's default user, as the user that belongs to its certificate, or as nobody, until it logs
//! in itself.

use crate::backend::profile::Login;

/// See the module.
#[derive(Debug)]
pub enum Entry {
    /// As Redis lets connections in.
    Default,
    /// The connection to Redis is logged in already.
    User {
        login: Login,
        /// After `RESET` it is nobody.
        is_strict: bool,
    },
    /// Nothing is done for it before it has logged in, after `RESET` as well.
    Nobody,
}

impl Entry {
    /// Whether the client is nobody after `RESET`.
    pub fn is_strict(&self) -> bool {
        match self {
            Entry::Default => false,
            Entry::User { is_strict, .. } => *is_strict,
            Entry::Nobody => true,
        }
    }
}

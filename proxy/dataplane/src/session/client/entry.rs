//! How a client begins: as Redis's default user, as the user that belongs to its certificate, or without any user
//! until it logs in itself.

use crate::backend::profile::Login;

/// See the module.
#[derive(Debug)]
pub enum Entry {
    /// As Redis treats a new connection.
    Default,
    /// The connection to Redis is logged in already.
    User {
        login: Login,
        /// After `RESET` the client must log in again.
        is_strict: bool,
    },
    /// Nothing is done for it before it has logged in, after `RESET` as well.
    Nobody,
}

impl Entry {
    /// Whether the client must log in after `RESET`.
    pub fn is_strict(&self) -> bool {
        match self {
            Entry::Default => false,
            Entry::User { is_strict, .. } => *is_strict,
            Entry::Nobody => true,
        }
    }
}

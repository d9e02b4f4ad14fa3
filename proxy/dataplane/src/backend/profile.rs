//! What connections can be opened with. Sessions with the same profile share a connection.

use std::fmt;

use bytes::Bytes;
use lockwarden_resp::Protocol;

/// A user and the password that was accepted for it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Login {
    pub user: Bytes,
    pub password: Bytes,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Login").finish_non_exhaustive()
    }
}

/// What a connection can be opened with: sessions with the same profile share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    pub login: Option<Login>,
    pub db: u32,
    pub protocol: Protocol,
}

/// What a shared connection carries. While Redis holds writes back (`CLIENT PAUSE`, a failover), or a script runs,
/// requests after a write on the same connection get no reply; so reads have a connection of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Requests that Redis answers even while it holds writes back.
    Reads,
    /// Everything else.
    Writes,
}

impl Profile {
    /// The profile of a connection on which nothing was sent.
    pub fn plain() -> Profile {
        Profile { login: None, db: 0, protocol: Protocol::Resp2 }
    }

    /// The profile of a connection that has only logged in.
    pub fn of(login: Login) -> Profile {
        Profile { login: Some(login), ..Profile::plain() }
    }
}

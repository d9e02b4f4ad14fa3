//! What connections can be opened with. Sessions for which that is the same share one.

use std::fmt;

use bytes::Bytes;
use lockwarden_resp::Protocol;

/// What a user proved to be theirs.
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

/// What a connection can be opened with: sessions for which that is the same share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    pub login: Option<Login>,
    pub db: u32,
    pub protocol: Protocol,
}

/// What a shared connection carries. While Redis holds writes back (`CLIENT PAUSE`, a failover), or a
/// script runs, nothing behind a write on the same connection is answered; so reads have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// What Redis answers also while it holds writes back.
    Reads,
    /// Everything else.
    Writes,
}

impl Profile {
    /// How a connection is when nothing was said on it.
    pub fn plain() -> Profile {
        Profile { login: None, db: 0, protocol: Protocol::Resp2 }
    }

    /// How it is when it has only logged in.
    pub fn of(login: Login) -> Profile {
        Profile { login: Some(login), ..Profile::plain() }
    }
}

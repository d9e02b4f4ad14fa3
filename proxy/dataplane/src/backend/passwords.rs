//! The newest password of each user that a client has logged in with, for `sessions = "multiplexed"`. If passwords
//! are tokens that expire, the next connection for a client that is already connected cannot be opened with the
//! client's own password. On a connection that stays open Redis lets such a client go on, so the proxy does too, with
//! the newest password of the same user. Once the server has closed a connection of that user this ends, as it would
//! on Redis: then each client's own password is used.

use bytes::Bytes;
use dashmap::DashMap;
use sha2::{Digest, Sha256};

use super::profile::Login;

/// Users that are remembered. Beyond this limit all are forgotten, and their clients' own passwords are used.
const MAX_USERS: usize = 1_024;
/// Passwords of one user that newer ones may replace; beyond this limit the oldest is forgotten.
const MAX_PASSWORDS: usize = 256;

/// See the module.
#[derive(Default)]
pub(crate) struct Passwords {
    users: DashMap<Bytes, User>,
}

/// The period in which a user has been let in without a break: the server behind the name, and how often it had
/// closed a connection of the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Since {
    era: u64,
    hung_up: u64,
}

#[derive(Default)]
struct User {
    newest: Option<Bytes>,
    /// How often the server has closed a connection.
    hung_up: u64,
    /// Digests of passwords that were accepted, and the period in which each last was.
    proved: Vec<([u8; 32], Since)>,
}

impl Passwords {
    /// The server has accepted a login with this.
    pub(crate) fn proved(&self, login: &Login, era: u64) {
        if self.users.len() >= MAX_USERS && !self.users.contains_key(&login.user) {
            self.users.clear();
        }
        // Copies: a slice of a request would keep the whole of it in memory.
        let name = Bytes::copy_from_slice(&login.user);
        let mut user = self.users.entry(name).or_default();
        let since = Since { era, hung_up: user.hung_up };
        let digest = digest(&login.password);
        user.proved.retain(|(known, _)| *known != digest);
        if user.proved.len() >= MAX_PASSWORDS {
            user.proved.remove(0);
        }
        user.proved.push((digest, since));
        user.newest = Some(Bytes::copy_from_slice(&login.password));
    }

    /// A newer password of the same user, if it may replace this one.
    pub(super) fn newer_than(&self, login: &Login, era: u64) -> Option<Login> {
        let user = self.users.get(&login.user)?;
        let newest = user.newest.clone()?;
        let now = Since { era, hung_up: user.hung_up };
        let digest = digest(&login.password);
        let is_let_in = user.proved.contains(&(digest, now));
        (is_let_in && newest != login.password).then(|| Login { user: login.user.clone(), password: newest })
    }

    /// The server refuses this password now.
    pub(super) fn refused(&self, login: &Login) {
        if let Some(mut user) = self.users.get_mut(&login.user)
            && user.newest.as_ref() == Some(&login.password)
        {
            user.newest = None;
        }
    }

    /// The server has closed a connection of this user.
    pub(super) fn hung_up(&self, login: &Login) {
        if let Some(mut user) = self.users.get_mut(&login.user) {
            user.hung_up += 1;
        }
    }
}

fn digest(password: &[u8]) -> [u8; 32] {
    Sha256::digest(password).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &'static str, password: &'static str) -> Login {
        Login { user: Bytes::from_static(user.as_bytes()), password: Bytes::from_static(password.as_bytes()) }
    }

    #[test]
    fn the_newest_password_of_the_same_user_takes_the_place_of_an_older_one() {
        let passwords = Passwords::default();
        let (old, new) = (login("app", "old"), login("app", "new"));
        passwords.proved(&old, 1);
        assert_eq!(passwords.newer_than(&old, 1), None);
        passwords.proved(&new, 1);
        assert_eq!(passwords.newer_than(&old, 1), Some(new.clone()));
        assert_eq!(passwords.newer_than(&new, 1), None);
        assert_eq!(passwords.newer_than(&login("app", "never proved"), 1), None);
        assert_eq!(passwords.newer_than(&login("other", "old"), 1), None);
        passwords.refused(&new);
        assert_eq!(passwords.newer_than(&old, 1), None);
    }

    #[test]
    fn once_the_server_has_hung_up_or_is_another_one_each_needs_its_own() {
        let passwords = Passwords::default();
        let (old, new) = (login("app", "old"), login("app", "new"));
        passwords.proved(&old, 1);
        passwords.hung_up(&old);
        passwords.proved(&new, 1);
        assert_eq!(passwords.newer_than(&old, 1), None);
        passwords.proved(&old, 1);
        passwords.proved(&new, 1);
        assert_eq!(passwords.newer_than(&old, 1), Some(new));
        assert_eq!(passwords.newer_than(&old, 2), None);
    }

    #[test]
    fn the_memory_is_bounded() {
        let passwords = Passwords::default();
        for number in 0..MAX_USERS + 10 {
            let user = Login { user: number.to_string().into(), password: Bytes::from_static(b"a") };
            passwords.proved(&user, 0);
        }
        assert!(passwords.users.len() <= MAX_USERS);
        for number in 0..MAX_PASSWORDS + 10 {
            let one = Login { user: Bytes::from_static(b"app"), password: number.to_string().into() };
            passwords.proved(&one, 0);
        }
        let kept = passwords.users.get(&b"app"[..]).map(|user| user.proved.len());
        assert_eq!(kept, Some(MAX_PASSWORDS));
    }
}

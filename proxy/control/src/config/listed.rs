//! Names, and lists of clients. Each entry says how a client is recognised, because a client may choose its own name
//! freely.

use std::collections::HashSet;

use bytes::Bytes;

use super::suggest::quoted;

/// Longest name of a client, a user or a function, in bytes.
const MAX_NAME: usize = 256;

/// A text that is not the name of a client, a user or a function.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} cannot be a name; use 1 to {MAX_NAME} printable ASCII characters without spaces",
    quoted(.0)
)]
pub(super) struct NameError(String);

/// A name as Redis takes it: neither a client nor a function can have an empty one.
pub(super) fn name(text: &str) -> Result<String, NameError> {
    let plain = |byte: u8| (b'!'..=b'~').contains(&byte);
    if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(NameError(text.to_owned()))
    }
}

/// An entry in a list of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// `user:` and an ACL user, or the user alone.
    User(String),
    /// `certificate:` and the name in a client's certificate.
    Certificate(String),
    /// `name:` and the client's own name, which any client may choose.
    Name(String),
}

/// A text that is no such entry.
#[derive(Debug, thiserror::Error)]
pub(super) enum WhoError {
    #[error(transparent)]
    Unprintable(#[from] NameError),
    #[error("{} does not say by what a client is told; write \"user:…\" for an ACL user, \"certificate:…\" or \"name:…\"", quoted(.0))]
    Kind(String),
    #[error("{} is what any client may call itself; write \"user:…\" for an ACL user, or \"certificate:…\"", quoted(.0))]
    Claimed(String),
}

impl Who {
    pub(super) fn read(text: &str) -> Result<Who, WhoError> {
        name(text)?;
        match text.split_once(':') {
            None => Ok(Who::User(text.to_owned())),
            Some(("user", user)) if !user.is_empty() => Ok(Who::User(user.to_owned())),
            Some(("certificate", name)) if !name.is_empty() => Ok(Who::Certificate(name.to_owned())),
            Some(("name", name)) if !name.is_empty() => Ok(Who::Name(name.to_owned())),
            Some(_) => Err(WhoError::Kind(text.to_owned())),
        }
    }

    /// An entry of a list that grants rights: names that any client may choose are refused.
    pub(super) fn read_proven(text: &str) -> Result<Who, WhoError> {
        match Who::read(text)? {
            Who::Name(_) => Err(WhoError::Claimed(text.to_owned())),
            who => Ok(who),
        }
    }
}

/// The clients of a list.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    users: HashSet<Bytes>,
    certificates: HashSet<String>,
    names: HashSet<Bytes>,
}

impl Listed {
    /// The list of these checked entries.
    pub fn of(entries: &[String]) -> Listed {
        let mut listed = Listed::default();
        for who in entries.iter().filter_map(|entry| Who::read(entry).ok()) {
            match who {
                Who::User(user) => listed.users.insert(user.into()),
                Who::Certificate(name) => listed.certificates.insert(name),
                Who::Name(name) => listed.names.insert(name.into()),
            };
        }
        listed
    }

    /// Whether a client with this ACL user, name and certificate name is in the list.
    pub fn has(&self, user: &[u8], name: &[u8], certificate: Option<&str>) -> bool {
        self.users.contains(user)
            || self.names.contains(name)
            || certificate.is_some_and(|name| self.certificates.contains(name))
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.certificates.is_empty() && self.names.is_empty()
    }
}

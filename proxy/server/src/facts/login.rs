//! What the server lets a connection do that has not logged in. Only `NOAUTH` means that a password is
//! wanted: a server that is loading, busy or full refuses as well, and says nothing about passwords.

use lockwarden_resp::Value;

use crate::backend::{Address, BackendError, Conversation};

/// What the server lets a connection do that has not logged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WithoutLogin {
    /// It has not said so yet.
    #[default]
    Unknown,
    /// No password is wanted, and the default user may do what it likes.
    Everything,
    /// No password is wanted, but an operator has limited what the default user may do.
    Restricted,
    /// It wants a password first.
    Nothing,
}

impl WithoutLogin {
    /// The same from the number that it was stored as.
    pub(super) fn from_number(number: u8) -> WithoutLogin {
        const ALL: [WithoutLogin; 4] = [
            WithoutLogin::Unknown,
            WithoutLogin::Everything,
            WithoutLogin::Restricted,
            WithoutLogin::Nothing,
        ];
        let named = ALL.into_iter().find(|one| *one as u8 == number);
        named.unwrap_or_default()
    }

    /// Asks over a new connection. One that cannot be made says nothing.
    pub(crate) async fn ask(address: &Address) -> WithoutLogin {
        let Ok(stream) = address.connect().await else {
            return WithoutLogin::Unknown;
        };
        let mut stranger = Conversation::new(stream);
        let asked = WithoutLogin::ask_over(&mut stranger).await;
        asked.unwrap_or_default()
    }

    /// `HELLO` is answered whatever the server is doing, and whatever the default user may do, so its
    /// answer is about the password alone. Old servers do not know it.
    async fn ask_over(stranger: &mut Conversation) -> Result<WithoutLogin, BackendError> {
        let hello = stranger.ask(&["HELLO"]).await?;
        let greeted = match hello.as_error() {
            Some(text) if text.starts_with(b"NOAUTH") => return Ok(WithoutLogin::Nothing),
            Some(text) if text.starts_with(b"ERR unknown command") => false,
            Some(_) => return Ok(WithoutLogin::Unknown),
            None => true,
        };
        let ping = stranger.ask(&["PING"]).await?;
        Ok(WithoutLogin::from_ping(greeted, &ping))
    }

    fn from_ping(greeted: bool, ping: &Value) -> WithoutLogin {
        match ping.as_error() {
            None => WithoutLogin::Everything,
            Some(text) if text.starts_with(b"NOAUTH") => WithoutLogin::Nothing,
            Some(text) if text.starts_with(b"NOPERM") => WithoutLogin::Restricted,
            Some(_) if greeted => WithoutLogin::Everything,
            Some(_) => WithoutLogin::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_noauth_means_that_a_password_is_wanted() {
        let loading = "LOADING Redis is loading the dataset in memory";
        for (greeted, ping, expected) in [
            (true, "", WithoutLogin::Everything),
            (false, "", WithoutLogin::Everything),
            (true, loading, WithoutLogin::Everything),
            (false, loading, WithoutLogin::Unknown),
            (
                true,
                "NOAUTH Authentication required.",
                WithoutLogin::Nothing,
            ),
            (
                true,
                "NOPERM this user has no permissions",
                WithoutLogin::Restricted,
            ),
            (
                false,
                "ERR max number of clients reached",
                WithoutLogin::Unknown,
            ),
        ] {
            let answer = match ping {
                "" => Value::Simple(Bytes::from_static(b"PONG")),
                text => Value::Error(Bytes::from_static(text.as_bytes())),
            };
            let found = WithoutLogin::from_ping(greeted, &answer);
            assert_eq!(found, expected, "{greeted} {ping}");
            assert_eq!(WithoutLogin::from_number(expected as u8), expected);
        }
    }
}

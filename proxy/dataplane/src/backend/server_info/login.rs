//! What the server allows a connection that has not logged in. Only `NOAUTH` means that a password is wanted: a
//! server that is loading, busy or full refuses as well, and says nothing about passwords.

use lockwarden_control::config::Listener;
use lockwarden_control::net::listener::is_loopback;
use lockwarden_resp::Value;

use crate::backend::address::Address;
use crate::backend::conversation::{BackendError, Conversation};

/// What the server allows a connection that has not logged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum WithoutLogin {
    /// It is not known yet.
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
    /// The value for the number that it was stored as.
    pub(super) fn from_number(number: u8) -> WithoutLogin {
        const ALL: [WithoutLogin; 4] =
            [WithoutLogin::Unknown, WithoutLogin::Everything, WithoutLogin::Restricted, WithoutLogin::Nothing];
        let named = ALL.into_iter().find(|one| *one as u8 == number);
        named.unwrap_or_default()
    }

    /// Asks over a new connection. If none can be made, the result is `Unknown`.
    pub async fn ask(address: &Address) -> WithoutLogin {
        let Ok(stream) = address.connect().await else {
            return WithoutLogin::Unknown;
        };
        let mut stranger = Conversation::new(stream);
        let asked = WithoutLogin::ask_over(&mut stranger).await;
        asked.unwrap_or_default()
    }

    /// `HELLO` is answered whatever the server is doing, and whatever the default user may do, so its reply is about
    /// the password alone. Old servers do not know it.
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

/// Why no client may be served, if so. Redis's protected mode refuses clients without a login by their address.
/// Behind the proxy all connections come from the proxy's address, so the proxy has to do that job.
pub fn open_network_refusal(listeners: &[Listener], without_login: WithoutLogin, allow_open: bool) -> Option<String> {
    let mut addresses = listeners.iter().filter_map(|listener| listener.address.tcp());
    let listen = addresses.find(|address| !is_loopback(*address));
    let listen = listen.filter(|_| !allow_open)?;
    match without_login {
        WithoutLogin::Nothing | WithoutLogin::Restricted => None,
        WithoutLogin::Unknown => Some(format!(
            "the backend has not said yet whether it wants a password, and {listen} can be reached \
             from the network"
        )),
        WithoutLogin::Everything => Some(format!(
            "the backend lets anybody in without a password and {listen} can be reached from the \
             network: set a password in the backend (requirepass, or an ACL for the default user), \
             or listen on 127.0.0.1, or say allow_open = true"
        )),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use lockwarden_control::config::ListenAddress;

    use super::*;

    #[test]
    fn only_noauth_means_that_a_password_is_wanted() {
        let loading = "LOADING Redis is loading the dataset in memory";
        for (greeted, ping, expected) in [
            (true, "", WithoutLogin::Everything),
            (false, "", WithoutLogin::Everything),
            (true, loading, WithoutLogin::Everything),
            (false, loading, WithoutLogin::Unknown),
            (true, "NOAUTH Authentication required.", WithoutLogin::Nothing),
            (true, "NOPERM this user has no permissions", WithoutLogin::Restricted),
            (false, "ERR max number of clients reached", WithoutLogin::Unknown),
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

    #[test]
    fn only_a_backend_on_the_network_that_may_be_open_is_refused_without_leave() {
        use WithoutLogin::{Everything, Nothing, Restricted, Unknown};
        for (listen, found, allowed, refused) in [
            ("0.0.0.0:6380", Everything, false, true),
            ("10.0.0.7:6380", Everything, false, true),
            ("[::]:6380", Everything, false, true),
            ("0.0.0.0:6380", Unknown, false, true),
            ("0.0.0.0:6380", Everything, true, false),
            ("0.0.0.0:6380", Unknown, true, false),
            ("0.0.0.0:6380", Nothing, false, false),
            ("0.0.0.0:6380", Restricted, false, false),
            ("127.0.0.1:6380", Everything, false, false),
            ("127.0.0.1:6380", Unknown, false, false),
            ("[::1]:6380", Everything, false, false),
        ] {
            let at = Listener::at(ListenAddress::Tcp(listen.parse().unwrap()));
            let local = Listener::at(ListenAddress::Unix("/run/redis.sock".into()));
            let refusal = open_network_refusal(&[local, at], found, allowed);
            assert_eq!(refusal.is_some(), refused, "{listen} {found:?} {allowed}");
            assert!(refusal.is_none_or(|text| !text.contains('\n')));
        }
    }
}

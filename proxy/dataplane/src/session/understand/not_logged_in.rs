//! A client that must log in before anything is done for it, whatever Redis itself would do: it gets Redis's reply to
//! a client that has not logged in.

use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};

use crate::session::Session;
use crate::session::transport::Muted;
use crate::session::transport::request_buffer::RequestBuffer;

/// Redis's own words.
const NO_AUTH: &str = "NOAUTH Authentication required.";
const NO_AUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
     HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
     protocol version at the same time";

impl Session {
    /// For a client that has yet to log in, only commands that Redis accepts before a login continue. Returns whether
    /// the request may.
    pub(crate) fn lets_in(&mut self, inbox: &RequestBuffer, muted: Muted) -> bool {
        let request = inbox.request();
        let name = request.name();
        let is = |what: &[u8]| name.eq_ignore_ascii_case(what);
        let refusal = if is(b"auth") || is(b"quit") || is(b"reset") {
            return true;
        } else if is(b"hello") {
            let mut words = request.args().skip(2);
            if words.any(|word| word.eq_ignore_ascii_case(b"auth")) {
                return true;
            }
            NO_AUTH_HELLO
        } else {
            NO_AUTH
        };
        self.client.count(CommandClass::PassThrough, CommandResult::Error);
        self.error(refusal, muted);
        false
    }
}

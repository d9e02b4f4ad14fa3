//! The replies that must come back: each is known to the last byte, except which client wins a contended
//! lock.

/// The reply that must come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expected {
    Ok,
    One,
    Pong,
    Value,
    /// `+OK`, or nil where another client holds the lock.
    OkOrNil,
    /// 1, or 0 where another client holds the lock.
    OneOrZero,
}

/// What the received bytes begin with.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// The expected reply, of this length; whether it grants what was asked.
    Reply {
        length: usize,
        granted: bool,
    },
    /// Its beginning.
    Part,
    Other,
}

impl Expected {
    /// `value` is the reply that an ordinary value comes in.
    pub(crate) fn find(self, value: &[u8], bytes: &[u8]) -> Found {
        let (yes, no): (&[u8], Option<&[u8]>) = match self {
            Expected::Ok => (b"+OK\r\n", None),
            Expected::One => (b":1\r\n", None),
            Expected::Pong => (b"+PONG\r\n", None),
            Expected::Value => (value, None),
            Expected::OkOrNil => (b"+OK\r\n", Some(b"$-1\r\n")),
            Expected::OneOrZero => (b":1\r\n", Some(b":0\r\n")),
        };
        let mut found = Found::Other;
        for (reply, granted) in [(Some(yes), true), (no, false)] {
            let Some(reply) = reply else { continue };
            if bytes.len() < reply.len() {
                // The rest is compared when all of it is there.
                let looked_at = bytes.len().min(32);
                if reply.starts_with(&bytes[..looked_at]) {
                    found = Found::Part;
                }
            } else if bytes.starts_with(reply) {
                let length = reply.len();
                return Found::Reply { length, granted };
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_compared_to_the_last_byte() {
        let whole = b"$4\r\nxxxx\r\n";
        let reply = |length, granted| Found::Reply { length, granted };
        let find = |expected: Expected, bytes: &[u8]| expected.find(whole, bytes);
        assert_eq!(find(Expected::Ok, b"+OK\r\n:1"), reply(5, true));
        assert_eq!(find(Expected::Ok, b"+O"), Found::Part);
        assert_eq!(find(Expected::Ok, b"-ERR no\r\n"), Found::Other);
        assert_eq!(find(Expected::One, b":0\r\n"), Found::Other);
        assert_eq!(find(Expected::OneOrZero, b":0\r\n"), reply(4, false));
        assert_eq!(find(Expected::OkOrNil, b"$-1\r\n"), reply(5, false));
        assert_eq!(find(Expected::Value, whole), reply(10, true));
        assert_eq!(find(Expected::Value, &whole[..7]), Found::Part);
        assert_eq!(find(Expected::Value, b"$4\r\nxxxy\r\n"), Found::Other);
    }
}

//! The requests that the proxy itself sends over a client's connection, besides steps. Each is one of these, and none
//! of them changes a lock; arbitrary commands cannot be sent:
//!
//! ```compile_fail,E0308
//! use lockwarden_lock::own_request::OwnRequest;
//! let request: OwnRequest<'_> = [b"DEL".as_slice(), b"lock:a"];
//! ```

use std::borrow::Cow;
use std::fmt;

use bytes::BytesMut;
use lockwarden_resp::put_request;
use smallvec::SmallVec;

use crate::companion::companion_key;
use crate::data_guard::HEAD_BYTES;
use crate::scripts::ONLY_READS;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub enum OwnRequest<'a> {
    /// A short command that Redis rejects wherever it accepts hardly any.
    Knock,
    /// Lists the functions, with their texts.
    Functions,
    /// Tests whether `CLIENT REPLY` is accepted here.
    ReplyOn,
    /// Reads from a lock's record under which grant its value was stored.
    GrantOf {
        /// The lock.
        lock: &'a [u8],
        /// The prefix of the names of records.
        companion_prefix: &'a [u8],
    },
    /// Reads the beginning of a lock's record: which client was granted it last.
    Head {
        /// The lock.
        lock: &'a [u8],
        /// The prefix of the names of records.
        companion_prefix: &'a [u8],
    },
    /// Makes Redis watch the records of these locks for changes.
    WatchRecords {
        /// The locks.
        locks: &'a [&'a [u8]],
        /// The prefix of the names of records.
        companion_prefix: &'a [u8],
    },
    /// Reads the value of a lock.
    Value(&'a [u8]),
    /// A command that Redis refuses to queue for any client.
    SpoilBlock,
    /// Reads the server's role, among other things. It changes nothing and is allowed to every user.
    Hello,
    /// Shows how the server words an error that a script raises. `flagged`: the script's text says that it only reads.
    Raises {
        /// See above.
        flagged: bool,
    },
    /// Returns 1 if a text compiles as a chunk of its own, otherwise the error.
    Compiles {
        /// See above.
        flagged: bool,
        /// The text.
        chunk: &'a [u8],
    },
    /// Loads a script.
    Load(&'a [u8]),
    /// Passes on what a client has said about its library.
    Library {
        /// The name of the attribute.
        what: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// A write after all others: it represents them in a `WAIT`.
    Offset {
        /// The prefix of the names of records.
        companion_prefix: &'a [u8],
    },
    /// Waits until replicas have everything that was written on this connection before.
    Wait {
        /// The number of replicas; with 0 the server only reports how many have it.
        replicas: u16,
        /// The longest wait, ms.
        within_ms: u16,
    },
    /// `CLIENT` with these arguments: maintenance notices without addresses, in place of a client's request for them.
    Notices(&'a [&'a [u8]]),
    /// Logs the connection in as another user: a client's twin, or the client's own user again.
    LogIn {
        /// The user.
        user: &'a [u8],
        /// The password.
        password: Password<'a>,
    },
    /// Ends a block that will be started again.
    Discard,
    /// Starts a block.
    Multi,
    /// Executes the block.
    Exec,
    /// Ends all watches.
    Unwatch,
    /// Reads the first byte of a string.
    Beginning(&'a [u8]),
    /// Tests whether a key exists.
    IsThere(&'a [u8]),
    /// Asks which run of which server this is.
    Server,
    /// Announces that the next request is for a slot that is moving to this node.
    Asking,
    /// A ping.
    Ping,
}

/// A password, which is never printed.
#[derive(Clone, Copy)]
pub struct Password<'a>(pub &'a [u8]);

impl fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Tests whether a text compiles as a chunk of its own.
const COMPILES: &str = "local f, e = loadstring(ARGV[1], '@user_script') return f and 1 or tostring(e)";

/// Raises an error to be examined.
const RAISES: &str = "error('x')";

/// One of the proxy's own scripts that only reads.
fn reading(text: &'static str, flagged: bool) -> Cow<'static, [u8]> {
    match flagged {
        true => [ONLY_READS, text].concat().into_bytes().into(),
        false => text.as_bytes().into(),
    }
}

impl<'a> OwnRequest<'a> {
    /// The words that the request begins with.
    fn head(&self) -> &'static [&'static str] {
        match self {
            OwnRequest::Knock => &["EXISTS", ""],
            OwnRequest::IsThere(_) => &["EXISTS"],
            OwnRequest::Functions => &["FUNCTION", "LIST", "WITHCODE"],
            OwnRequest::ReplyOn => &["CLIENT", "REPLY", "ON"],
            OwnRequest::GrantOf { .. } | OwnRequest::Head { .. } | OwnRequest::Beginning(_) => &["GETRANGE"],
            OwnRequest::WatchRecords { .. } => &["WATCH"],
            OwnRequest::Value(_) | OwnRequest::SpoilBlock => &["GET"],
            OwnRequest::Hello => &["HELLO"],
            OwnRequest::Raises { .. } | OwnRequest::Compiles { .. } => &["EVAL"],
            OwnRequest::Load(_) => &["SCRIPT", "LOAD"],
            OwnRequest::Library { .. } => &["CLIENT", "SETINFO"],
            OwnRequest::Offset { .. } => &["SET"],
            OwnRequest::Wait { .. } => &["WAIT"],
            OwnRequest::Notices(_) => &["CLIENT"],
            OwnRequest::LogIn { .. } => &["AUTH"],
            OwnRequest::Discard => &["DISCARD"],
            OwnRequest::Multi => &["MULTI"],
            OwnRequest::Exec => &["EXEC"],
            OwnRequest::Unwatch => &["UNWATCH"],
            OwnRequest::Server => &["INFO", "server"],
            OwnRequest::Asking => &["ASKING"],
            OwnRequest::Ping => &["PING"],
        }
    }

    /// The words of the request.
    pub fn words(&self) -> SmallVec<[Cow<'a, [u8]>; 5]> {
        let head = self.head().iter().map(|word| word.as_bytes().into());
        let mut words: SmallVec<[Cow<'a, [u8]>; 5]> = head.collect();
        match *self {
            OwnRequest::Knock
            | OwnRequest::Functions
            | OwnRequest::ReplyOn
            | OwnRequest::SpoilBlock
            | OwnRequest::Hello
            | OwnRequest::Discard
            | OwnRequest::Multi
            | OwnRequest::Exec
            | OwnRequest::Unwatch
            | OwnRequest::Server
            | OwnRequest::Asking
            | OwnRequest::Ping => {}
            OwnRequest::LogIn { user, password } => words.extend([user.into(), password.0.into()]),
            OwnRequest::GrantOf { lock, companion_prefix } => {
                words.push(companion_key(companion_prefix, lock).into());
                words.extend([b"3".as_slice().into(), b"18".as_slice().into()]);
            }
            OwnRequest::Head { lock, companion_prefix } => {
                words.push(companion_key(companion_prefix, lock).into());
                let last = HEAD_BYTES - 1;
                words.extend([Cow::Borrowed(b"0".as_slice()), last.to_string().into_bytes().into()]);
            }
            OwnRequest::Beginning(key) => words.extend([key.into(), b"0".as_slice().into(), b"0".as_slice().into()]),
            OwnRequest::WatchRecords { locks, companion_prefix } => {
                let record = |lock: &&[u8]| companion_key(companion_prefix, lock).into();
                words.extend(locks.iter().map(record));
            }
            OwnRequest::Value(word) | OwnRequest::Load(word) | OwnRequest::IsThere(word) => words.push(word.into()),
            OwnRequest::Raises { flagged } => {
                words.extend([reading(RAISES, flagged), b"0".as_slice().into()]);
            }
            OwnRequest::Compiles { flagged, chunk } => {
                let text = reading(COMPILES, flagged);
                words.extend([text, b"0".as_slice().into(), chunk.into()]);
            }
            OwnRequest::Library { what, value } => words.extend([what.into(), value.into()]),
            OwnRequest::Offset { companion_prefix } => {
                words.push(companion_key(companion_prefix, b"lockwarden:offset").into());
                words.extend([b"".as_slice(), b"PX", b"1"].map(Cow::Borrowed));
            }
            OwnRequest::Wait { replicas, within_ms } => {
                let numbers = [replicas, within_ms].map(|number| number.to_string());
                words.extend(numbers.map(|number| Cow::Owned(number.into_bytes())));
            }
            OwnRequest::Notices(options) => {
                words.extend(options.iter().map(|word| Cow::Borrowed(*word)));
            }
        }
        words
    }

    /// Writes the request.
    pub fn put(&self, out: &mut BytesMut) {
        put_request(out, &self.words());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_what_it_says() {
        let companion_prefix = b"lw:".as_slice();
        let record = String::from_utf8(companion_key(b"lw:", b"lock:a")).expect("text");
        let offset = String::from_utf8(companion_key(b"lw:", b"lockwarden:offset")).expect("text");
        for (request, expected) in [
            (OwnRequest::Knock, "EXISTS ".to_owned()),
            (OwnRequest::IsThere(b"lock:a"), "EXISTS lock:a".to_owned()),
            (OwnRequest::SpoilBlock, "GET".to_owned()),
            (OwnRequest::Value(b"lock:a"), "GET lock:a".to_owned()),
            (OwnRequest::GrantOf { lock: b"lock:a", companion_prefix }, format!("GETRANGE {record} 3 18")),
            (OwnRequest::Head { lock: b"lock:a", companion_prefix }, format!("GETRANGE {record} 0 79")),
            (
                OwnRequest::WatchRecords { locks: &[b"lock:a", b"lock:a"], companion_prefix },
                format!("WATCH {record} {record}"),
            ),
            (OwnRequest::Offset { companion_prefix }, format!("SET {offset}  PX 1")),
            (OwnRequest::Wait { replicas: 2, within_ms: 50 }, "WAIT 2 50".to_owned()),
            (OwnRequest::Raises { flagged: true }, format!("EVAL {ONLY_READS}{RAISES} 0")),
            (OwnRequest::Compiles { flagged: false, chunk: b"return 1" }, format!("EVAL {COMPILES} 0 return 1")),
            (OwnRequest::Notices(&[b"MAINT_NOTIFICATIONS", b"ON"]), "CLIENT MAINT_NOTIFICATIONS ON".to_owned()),
        ] {
            let words: Vec<_> = request.words().into_iter().map(Cow::into_owned).collect();
            assert_eq!(words.join(&b' '), expected.as_bytes(), "{request:?}");
        }
    }
}

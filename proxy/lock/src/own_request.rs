//! The requests that the proxy sends over a client's connection on its own account, beside steps. Each is one of
//! these, and none of them changes a lock; words of anybody's choice are not sent:
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
    /// A short command that Redis turns away wherever it takes hardly any.
    Knock,
    /// Which functions there are, with their texts.
    Functions,
    /// Whether `CLIENT REPLY` is taken here.
    ReplyOn,
    /// The grant under which the value of a lock stands, out of its record.
    GrantOf {
        /// The lock.
        lock: &'a [u8],
        /// The beginning of the names of records.
        companion_prefix: &'a [u8],
    },
    /// The beginning of a lock's record: who was granted it last.
    Head {
        /// The lock.
        lock: &'a [u8],
        /// The beginning of the names of records.
        companion_prefix: &'a [u8],
    },
    /// Has Redis notice whether the records of these locks change.
    WatchRecords {
        /// The locks.
        locks: &'a [&'a [u8]],
        /// The beginning of the names of records.
        companion_prefix: &'a [u8],
    },
    /// The value of a lock.
    Value(&'a [u8]),
    /// A command that Redis refuses to queue for every client.
    SpoilBlock,
    /// The server's role, among other things. It changes nothing and is allowed to every user.
    Hello,
    /// How the server words an error that a script raises. `flagged` says in the script's text that it only reads.
    Raises {
        /// See above.
        flagged: bool,
    },
    /// 1 where a text compiles as a chunk of its own, else why it does not.
    Compiles {
        /// See above.
        flagged: bool,
        /// The text.
        chunk: &'a [u8],
    },
    /// Makes a script known.
    Load(&'a [u8]),
    /// What a client has said of its library.
    Library {
        /// The name of the attribute.
        what: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// A write behind all others: it stands in for them at a `WAIT`.
    Offset {
        /// The beginning of the names of records.
        companion_prefix: &'a [u8],
    },
    /// Waits until replicas have all that was written on this connection before.
    Wait {
        /// So many; with none the server only says how many have.
        replicas: u16,
        /// At most so long, ms.
        within_ms: u16,
    },
    /// `CLIENT` with these words: notices of maintenance without addresses, in place of a client's request for them.
    Notices(&'a [&'a [u8]]),
    /// Another user for the connection: a client's twin, or the client's own again.
    LogIn {
        /// Who.
        user: &'a [u8],
        /// With what.
        password: Password<'a>,
    },
    /// Ends a block that is begun anew.
    Discard,
    /// Begins it.
    Multi,
    /// Carries it out.
    Exec,
    /// Ends what is watched.
    Unwatch,
    /// The first byte of a string.
    Beginning(&'a [u8]),
    /// Whether a key is there.
    IsThere(&'a [u8]),
    /// Which run of which server this is.
    Server,
    /// That the next request is for a slot which moves to the node.
    Asking,
    /// Nothing.
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

/// Whether a text compiles as a chunk of its own.
const COMPILES: &str = "local f, e = loadstring(ARGV[1], '@user_script') return f and 1 or tostring(e)";

/// An error to look at.
const RAISES: &str = "error('x')";

/// A script of the proxy's own that only reads.
fn reading(text: &'static str, flagged: bool) -> Cow<'static, [u8]> {
    match flagged {
        true => [ONLY_READS, text].concat().into_bytes().into(),
        false => text.as_bytes().into(),
    }
}

impl<'a> OwnRequest<'a> {
    /// The words that it begins with.
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

    /// Its words.
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

    /// Writes it.
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

//! The facts that an expression may use: their names, types and sources. The only such table; the parser, the
//! documentation and the proxy's suggestions are made from it.

use crate::problem::Type;

/// The longest text of a fact that is compared: a longer one is cut. Keys are not longer, but the name that a client
/// sets can be.
pub const MAX_TEXT_BYTES: usize = 1 << 10;

/// What is known of one lock command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// The lock key.
    pub key: &'a [u8],
    /// The operation's word, such as `acquire`.
    pub operation: &'a str,
    /// The logical database.
    pub db: u32,
    /// The TTL that the command requests.
    pub ttl_ms: Option<u64>,
    /// Attempts of this session to take this lock in the last ten seconds.
    pub attempts: u32,
    /// The same for other clients, if an expression uses it.
    pub tries: Tries,
    /// The locks that the client holds, if an expression uses them.
    pub held: Held,
    /// What is left of this session's own lease, ms.
    pub remaining_ms: u64,
    /// The value that the command stores or proves.
    pub token: Option<&'a [u8]>,
    /// Whether other clients take locks with this value.
    pub token_is_shared: bool,
    /// The client's identity, if an expression uses it.
    pub client: Client<'a>,
}

/// How often the lock was requested in the last ten seconds, this time included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// By the client's application.
    pub application: u32,
    /// By all clients.
    pub everyone: u32,
}

/// The numbers of held locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Other locks than this, by the client's connection.
    pub connection: u32,
    /// By all clients of its application.
    pub application: u32,
}

/// A client's identity; empty where unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client<'a> {
    /// `CLIENT SETNAME`.
    pub name: &'a [u8],
    /// The ACL user.
    pub user: &'a [u8],
    /// The client's address.
    pub address: &'a [u8],
    /// The name in its certificate.
    pub certificate: &'a [u8],
    /// The proxy's name for its application.
    pub application: &'a [u8],
}

/// A fact that is itself a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    HasTtl,
    TokenShared,
}

/// A fact that is a number, or a duration in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Db,
    Ttl,
    Attempts,
    TriesApplication,
    TriesEveryone,
    HeldConnection,
    HeldApplication,
    Remaining,
    TokenLength,
    Hour,
    Minute,
    Weekday,
}

/// A fact that is a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    Key,
    Operation,
    TokenClass,
    ClientName,
    ClientUser,
    ClientAddress,
    ClientCertificate,
    ClientApplication,
}

/// A fact by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Flag(Flag),
    Number(Quantity),
    Duration(Quantity),
    Text(Words),
}

/// A fact's description for people.
#[derive(Clone, Copy, Debug)]
pub struct FactInfo {
    /// How it is written.
    pub name: &'static str,
    /// Its meaning.
    pub about: &'static str,
    pub(crate) fact: Fact,
}

impl FactInfo {
    /// Its type, with the article.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.fact.of_type().words()
    }
}

impl Fact {
    pub(crate) fn of_type(self) -> Type {
        match self {
            Fact::Flag(_) => Type::Condition,
            Fact::Number(_) => Type::Number,
            Fact::Duration(_) => Type::Duration,
            Fact::Text(_) => Type::Text,
        }
    }
}

impl Words {
    /// All its possible values, if these are few.
    pub(crate) fn values(self) -> Option<&'static [&'static str]> {
        match self {
            Words::Operation => Some(&OPERATIONS),
            Words::TokenClass => Some(&crate::token_class::CLASSES),
            Words::Key
            | Words::ClientName
            | Words::ClientUser
            | Words::ClientAddress
            | Words::ClientCertificate
            | Words::ClientApplication => None,
        }
    }

    /// Its longest value, in bytes.
    pub(crate) fn longest(self) -> usize {
        match self.values() {
            Some(words) => words.iter().map(|word| word.len()).max().unwrap_or(0),
            None => MAX_TEXT_BYTES,
        }
    }
}

/// The operations for which rules may be asked.
pub const OPERATIONS: [&str; 4] = ["acquire", "extend", "release", "take-over"];

/// Every fact, in the order of the documentation.
pub const FACTS: [FactInfo; 22] = [
    about("key", Fact::Text(Words::Key), "the lock key"),
    about("operation", Fact::Text(Words::Operation), "what the command means: acquire, extend, release or take-over"),
    about("db", Fact::Number(Quantity::Db), "the logical database"),
    about("ttl", Fact::Duration(Quantity::Ttl), "the TTL that the command names; 0s where it names none"),
    about("has_ttl", Fact::Flag(Flag::HasTtl), "whether it names one"),
    about(
        "attempts",
        Fact::Number(Quantity::Attempts),
        "tries of this connection for this lock in the last 10 seconds",
    ),
    about(
        "tries.application",
        Fact::Number(Quantity::TriesApplication),
        "tries of its application for this lock in the last 10 seconds, at this proxy",
    ),
    about("tries.everyone", Fact::Number(Quantity::TriesEveryone), "the same of all clients"),
    about(
        "held.connection",
        Fact::Number(Quantity::HeldConnection),
        "other locks of this database that its connection holds; of more than 32 it is 32",
    ),
    about(
        "held.application",
        Fact::Number(Quantity::HeldApplication),
        "locks that its application holds, at this proxy",
    ),
    about("remaining", Fact::Duration(Quantity::Remaining), "what is left of this connection's own lease; 0s if none"),
    about("token.length", Fact::Number(Quantity::TokenLength), "the bytes of the owner token; 0 if none"),
    about("token.class", Fact::Text(Words::TokenClass), "what it looks like: none, uuid, hex, number, deadline, other"),
    about("token.shared", Fact::Flag(Flag::TokenShared), "others were granted a lock with it in the last hour"),
    about("hour", Fact::Number(Quantity::Hour), "0 to 23, in the rule's zone"),
    about("minute", Fact::Number(Quantity::Minute), "0 to 59"),
    about("weekday", Fact::Number(Quantity::Weekday), "1 is Monday, 7 is Sunday"),
    about("client.name", Fact::Text(Words::ClientName), "CLIENT SETNAME; the client's own word"),
    about("client.user", Fact::Text(Words::ClientUser), "the ACL user; default if it did not log in"),
    about("client.address", Fact::Text(Words::ClientAddress), "the peer's address, without the port"),
    about(
        "client.certificate",
        Fact::Text(Words::ClientCertificate),
        "the name in its certificate, which was verified",
    ),
    about(
        "client.application",
        Fact::Text(Words::ClientApplication),
        "what [[application]] calls it; else its name, user, certificate, process or address",
    ),
];

const fn about(name: &'static str, fact: Fact, about: &'static str) -> FactInfo {
    FactInfo { name, about, fact }
}

pub(crate) fn named(name: &str) -> Option<Fact> {
    FACTS.iter().find(|known| known.name == name).map(|known| known.fact)
}

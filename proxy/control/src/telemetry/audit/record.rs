//! The lines of the audit trail, as they are written and as `lockwarden why` reads them. The committed schema is
//! `docs/audit-record.schema.json`; the JSON API also reports on locks as [`Record`]s. A line is one of two things: an
//! event of a lock ([`Record`]), or an event of the trail itself ([`Notice`]).

mod build;

use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::text::numbers::utc;

/// The version of the lines; it is increased when a field changes its meaning or is removed.
pub const VERSION: u32 = 1;

/// What happened to a lock, or was prevented.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The version of a line, its number from 1 (a gap means lost lines), and `at` for people: the API leaves them out.
    #[serde(skip_serializing_if = "is_zero")]
    pub v: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub seq: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub time: String,
    /// Unix time, ms, by the proxy's clock.
    pub at: u64,
    /// One word: `acquired`, `contended`, `extended`, `released`, `absent`, `ran-out`, `lease-lost`, `refused`,
    /// `different`, `unchanged`, `ungoverned`, `unjudged`, `forwarded`, `failed`, `observed`, `broken`.
    pub event: String,
    /// The kind of an observation, or why something was not judged. In special cases also: for an acquire `again`,
    /// `taken-over` or `after-one-that-ran-out`, for a release `taken-over`, for `absent` `ran-out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The id that an error reply carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub namespace: String,
    pub mode: String,
    pub db: u32,
    pub key: String,
    /// In upper case, as usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
    /// `allow`, `modify`, `would-modify`, `deny` or `would-deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The rule of the policy, if a namespace has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The owner token's fingerprint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The length of that token, bytes; the API leaves it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_ms: Option<u64>,
    /// In monitor mode: the TTL that enforce mode would have given instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// The key that the command would write, if the lock guards it, and the guard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// The fencing token of the writer's own lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_fence: Option<u64>,
    /// How long the decision took, and how much of that time passed until Redis replied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_us: Option<u64>,
    /// A former holder acted while another held the lock.
    #[serde(skip_serializing_if = "is_zero")]
    pub overlap: bool,
    /// The lease before, or the connection's own, ran out unreleased.
    #[serde(skip_serializing_if = "is_zero")]
    pub ran_out: bool,
    /// The lease replaced another one, or was deleted by the client that replaces it.
    #[serde(skip_serializing_if = "is_zero")]
    pub taken_over: bool,
    /// The lease had been granted before, but its reply was lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub again: bool,
    /// The proxy renews the lease.
    #[serde(skip_serializing_if = "is_zero")]
    pub kept_alive: bool,
    /// The same connection holds the lock that it requested.
    #[serde(skip_serializing_if = "is_zero")]
    pub own: bool,
    /// How many equal records this line stands for; it shows the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<u64>,
    /// The ids of the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// The questions to the policies, with their answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
}

/// The client, as it identified itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// The proxy's number for the connection: the API leaves it out here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The application's name: given by the operator or the client, or else its process, its user or its host. A line
    /// leaves it out if its name, user or address is the same.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub application: String,
    /// Whether that name is its process, which policies do not see. Only lines have this field.
    #[serde(skip_serializing_if = "is_zero")]
    pub process: bool,
    pub address: String,
    /// `CLIENT SETNAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The user that it logged in as; the API leaves out `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// `CLIENT SETINFO`: the library and its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// The name in its certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// A question to a policy chain, in the terms of the contract in `wit/`, and the answer. The lock, its database and the
/// client are in the line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Question {
    pub operation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_length: Option<usize>,
    /// The form of the token: `uuid`, `hex`, `number`, `deadline` or `other`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    pub proofs: Vec<String>,
    pub traits: Vec<String>,
    pub fencing_token: u64,
    pub remaining_ms: u64,
    pub attempts: u32,
    pub now_ms: u64,
    /// Other locks in its database that the connection holds, if a policy asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// The number of locks that its application holds.
    #[serde(skip_serializing_if = "is_zero")]
    pub held: u32,
    pub answer: Answer,
}

/// The answer of the whole chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// `permit` or `deny`.
    pub(crate) verdict: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// The policy that failed, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    /// Whether the answer is that of the `next` chain.
    #[serde(skip_serializing_if = "is_zero")]
    pub next: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_default_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_cap_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep_alive_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_hold_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) require: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) current_fence_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) take_over: Option<String>,
}

/// An event of the trail itself, or a change of what is in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notice {
    pub(crate) v: u32,
    pub(crate) seq: u64,
    pub(crate) time: String,
    pub(crate) at: u64,
    /// `started`, `reloaded`, `reload-rejected`, `mode-switched`, `stage-switched`, `log-changed`, `lost`, `stopped`.
    pub(crate) event: String,
    /// The proxy's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// What is recorded from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audit: Option<String>,
    /// What is in force from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) namespaces: Vec<InForce>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// Who ordered it: for orders at the admin address, only their source is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<Client>,
    /// The number of lines that could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<u64>,
}

/// One namespace in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    pub(crate) name: String,
    pub(crate) mode: String,
    pub(crate) policies: Vec<Policy>,
}

/// One policy in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// The first twelve digits of its SHA-256.
    pub(crate) digest: String,
}

/// Whether a field has no information and is left out.
fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A command in its usual spelling.
pub fn shown_command(command: &str) -> Option<String> {
    (!command.is_empty()).then(|| command.replace('|', " ").to_ascii_uppercase())
}

impl Notice {
    /// A notice about something that happens now.
    pub(crate) fn new(event: &str) -> Notice {
        let at = now_ms();
        Notice { v: VERSION, time: utc(at), at, event: event.to_owned(), ..Notice::default() }
    }
}

/// A line with its number.
pub(super) trait Numbered: Serialize {
    /// Sets the number.
    fn number(&mut self, seq: u64);
}

impl Numbered for Record {
    fn number(&mut self, seq: u64) {
        self.seq = seq;
    }
}

impl Numbered for Notice {
    fn number(&mut self, seq: u64) {
        self.seq = seq;
    }
}

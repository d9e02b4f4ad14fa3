//! What the JSON API under `/api/v1/` says, as the server writes it and the command line reads it.
//! Times are Unix milliseconds of the proxy's clock, durations milliseconds. Keys and names are bytes to
//! Redis; here they are text in which a backslash and whatever cannot be printed stands as `\xNN`
//! ([`lockwarden_control::text::escape::spell`]). An owner token is never here, only its fingerprint.

mod config_meaning;

use std::iter::Sum;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use lockwarden_lock::glob::Glob;
use lockwarden_lock::reason::Reason;
use lockwarden_policy::PolicyInfo;
use std::collections::BTreeMap;

use lockwarden_control::telemetry::metrics::BUILD;
use lockwarden_control::text::escape::unspell;
use serde::{Deserialize, Serialize};

pub use config_meaning::ConfigMeaning;
/// What happened to a lock, and to whom. `GET /api/v1/decisions?since=&id=&namespace=&limit=` answers those that were
/// refused or would have been, the newest first.
pub use lockwarden_control::telemetry::audit::{Client, Record as Moment};
pub use lockwarden_control::telemetry::changes::Change;

/// How a list is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// As everything else of the API.
    #[default]
    Json,
    /// For spreadsheets.
    Csv,
}

/// What is asked of the decisions.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionsQuery {
    /// Later ones only.
    pub(crate) since: Option<After>,
    pub(crate) id: Option<String>,
    pub(crate) namespace: Option<String>,
    /// Of the client, as it is shown.
    pub(crate) application: Option<String>,
    pub(crate) reason: Option<ReasonWord>,
    pub(crate) pattern: Option<KeyGlob>,
    /// What their keys contain, spelled as keys are shown.
    pub(crate) contains: Option<String>,
    pub(crate) limit: Option<usize>,
    #[serde(default)]
    pub(crate) format: Format,
}

/// What is asked of the locks that are held.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocksQuery {
    pub namespace: Option<String>,
    /// What their keys contain, spelled as keys are shown.
    pub contains: Option<String>,
    pub pattern: Option<KeyGlob>,
    /// Of the holder, as it is shown.
    pub application: Option<String>,
    /// Only those of which something is to be said.
    #[serde(default)]
    pub problems: bool,
    pub limit: Option<usize>,
    #[serde(default)]
    pub format: Format,
}

/// A Redis glob over keys, spelled as keys are shown.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct KeyGlob(pub Glob);

/// Bytes of a glob that are looked at; matching takes at most its length times that of a key.
const MAX_GLOB: usize = 1_024;

/// Not a glob.
#[derive(Debug, thiserror::Error)]
#[error(
    "a pattern is a Redis glob of at most {MAX_GLOB} bytes, in which a backslash is spelled \\\\, and a byte \\xNN"
)]
pub struct NoGlob;

impl TryFrom<String> for KeyGlob {
    type Error = NoGlob;

    fn try_from(text: String) -> Result<KeyGlob, NoGlob> {
        let bytes = unspell(&text).filter(|bytes| bytes.len() <= MAX_GLOB);
        Ok(KeyGlob(Glob::new(bytes.ok_or(NoGlob)?.into())))
    }
}

/// A reason, by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ReasonWord(pub(crate) Reason);

/// Not a reason.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no reason of a refusal")]
pub(crate) struct NoReason(String);

impl TryFrom<String> for ReasonWord {
    type Error = NoReason;

    fn try_from(word: String) -> Result<ReasonWord, NoReason> {
        let reason = Reason::from_word(word.as_bytes());
        reason.map(ReasonWord).ok_or(NoReason(word))
    }
}

/// After which moment: Unix ms, or what a report may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct After(pub(crate) Since);

impl TryFrom<String> for After {
    type Error = NoTime;

    fn try_from(text: String) -> Result<After, NoTime> {
        match text.parse() {
            Ok(unix_ms) => Ok(After(Since::Time(unix_ms))),
            Err(_) => text.parse().map(After),
        }
    }
}

/// What is asked of the connections of clients.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsQuery {
    /// As it is shown.
    pub application: Option<String>,
    /// Only those that hold a lock.
    #[serde(default)]
    pub holding: bool,
    pub limit: Option<usize>,
}

/// `GET /api/v1/overview`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub version: String,
    pub(crate) started_at: u64,
    pub now: u64,
    pub backend: Backend,
    pub namespaces: Vec<Namespace>,
    pub(crate) policies: Vec<Policy>,
    pub totals: Totals,
    /// Entries of the event log that came too fast to be seen; above 0 the rest is incomplete.
    pub(crate) unseen: u64,
    /// Certificates in use that end within two weeks, by table and key of the configuration: when, Unix ms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) certificates_end: BTreeMap<String, u64>,
}

/// The Redis behind the proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    pub address: String,
    /// As the server says, once it was asked.
    pub(crate) version: Option<String>,
    pub up: bool,
    /// Why clients are not served, in one line.
    pub problem: Option<String>,
    /// Since when it is the primary, by the entry that the proxies keep on it; `None` where that is not known yet.
    #[serde(default)]
    pub(crate) primary_since: Option<u64>,
    /// Where sentinels say which server is the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentinels: Option<Sentinels>,
    /// The primaries, where it is a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Shard>,
}

/// A primary of a cluster, or the replica that has taken its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// A number that this process has given it.
    pub(crate) id: String,
    pub(crate) primary: String,
    /// How many it has.
    pub(crate) slots: u64,
    /// As for a single server, from here on.
    pub(crate) version: Option<String>,
    pub(crate) up: bool,
    pub(crate) problem: Option<String>,
    pub(crate) primary_since: Option<u64>,
}

/// What sentinels say of the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentinels {
    /// What they call it.
    pub(crate) name: String,
    /// The server that is followed; `None` until one was named.
    pub primary: Option<String>,
    /// Of two answers the one with the higher epoch is the newer.
    pub(crate) epoch: Option<u64>,
    /// How many answered within the last 5 s.
    pub heard: u64,
    /// How many are asked: those of the URL and those that they name.
    pub known: u64,
    pub(crate) each: Vec<Sentinel>,
}

/// What one sentinel says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentinel {
    pub(crate) address: String,
    /// The server that it names; `None`: nothing is heard of it.
    pub(crate) primary: Option<String>,
    pub(crate) epoch: Option<u64>,
    /// Why nothing is heard of it, where that is known.
    pub(crate) problem: Option<String>,
}

/// No free lock is granted in a namespace, because the primary has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// When that ends; `None` where nobody knows yet.
    pub(crate) until: Option<u64>,
    /// Why, in words.
    pub(crate) why: String,
}

/// One namespace in force. `GET /api/v1/config` answers the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Namespace {
    pub name: String,
    /// Its globs.
    pub(crate) keys: Vec<String>,
    /// `enforce` or `monitor`.
    pub mode: String,
    /// `enforce_for`: some clients are refused already, though the mode is `monitor`.
    pub enforced_for_some: bool,
    pub(crate) policies: Vec<String>,
    pub(crate) ceiling_ms: Option<u64>,
    pub(crate) held: u64,
    pub(crate) without_ttl: u64,
    /// Locks that were held when the primary changed, and that nobody has looked for on the new one yet; `held` leaves
    /// them out.
    #[serde(default)]
    pub(crate) unknown: u64,
    /// Locks that the last walk over the server found without a record.
    pub(crate) ungoverned: u64,
    /// No free lock is granted now; left out where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// Since it is enforced fewer locks are granted or lock time is lost, or it was so and the proxy has set it back, in
    /// words; left out where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) harm: Option<String>,
    /// How long its leases last.
    pub(crate) holds: Holds,
    /// What that says about the TTL to ask for, in words.
    pub(crate) advice: Option<String>,
}

/// How long leases lasted, over the last [`Holds::count`] of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holds {
    pub count: u64,
    pub p50_ms: u64,
    pub p99_ms: u64,
    #[serde(default)]
    pub p999_ms: u64,
    pub max_ms: u64,
    /// How many of them ran out before they were given back.
    pub ran_out: u64,
}

/// One `[[guard]]`. `GET /api/v1/guards` answers the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    pub name: String,
    pub(crate) mode: String,
    pub(crate) keys: Vec<String>,
    /// Of which any will do.
    pub(crate) lock: Vec<String>,
    pub(crate) unlocked: String,
    pub(crate) proofs: Vec<String>,
    pub(crate) exempt: Vec<String>,
    /// What was said to writes in this mode since the proxy was started, by the words of the metrics.
    pub(crate) writes: BTreeMap<String, u64>,
    /// How many could not be checked, by why.
    pub(crate) unchecked: BTreeMap<String, u64>,
    /// Times that a lock changed hands between the look at it and the write.
    pub(crate) again: u64,
}

/// One policy. `GET /api/v1/policies` answers the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The first 12 hex digits of its SHA-256.
    pub(crate) digest: String,
    /// `enforce`, `monitor`, `mixed` or `unused`.
    pub(crate) mode: String,
    pub(crate) evaluations: u64,
    pub(crate) failures: u64,
}

/// What was built, and which policies it has. `GET /api/v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub version: String,
    /// Of the source, `unknown` outside a checkout.
    pub revision: String,
    /// The newest version of `lockwarden:policy` that policies may use.
    pub policy_interface: String,
    pub wasmtime: String,
    pub os: String,
    pub arch: String,
    /// The policies that ship with it.
    pub built_in: Vec<PolicyDigest>,
    /// Whether those are in the binary as machine code, so that a start does not compile them.
    pub compiled_ahead: bool,
    /// The policies that are loaded; none where no proxy runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_force: Option<Vec<PolicyDigest>>,
    /// What the configuration in force means for locks, as a hash; none where no proxy runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config_hash: Option<String>,
}

/// Which module a policy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyDigest {
    pub name: String,
    /// The SHA-256 of its module, in hex.
    pub sha256: String,
}

impl Version {
    /// That of this binary.
    pub fn of_this() -> Version {
        Version {
            version: BUILD.version.to_owned(),
            revision: BUILD.revision.to_owned(),
            policy_interface: BUILD.policy_abi.to_owned(),
            wasmtime: BUILD.wasmtime.to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            built_in: lockwarden_policy::builtins()
                .iter()
                .map(|policy| PolicyDigest { name: policy.name.to_owned(), sha256: policy.sha256() })
                .collect(),
            compiled_ahead: lockwarden_policy::are_compiled_ahead(),
            in_force: None,
            config_hash: None,
        }
    }
}

impl PolicyDigest {
    pub fn of(loaded: &PolicyInfo) -> PolicyDigest {
        PolicyDigest { name: loaded.name.to_string(), sha256: loaded.sha256.clone() }
    }
}

/// The figures at the head of the board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    pub held: u64,
    pub waiting: u64,
    pub refused_last_hour: u64,
    pub would_refuse_last_hour: u64,
    pub overlaps_last_day: u64,
    pub without_ttl: u64,
    /// Patterns of keys that look like locks and that no namespace has.
    #[serde(default)]
    pub(crate) unclaimed_patterns: u64,
    /// Locks of which nobody knows yet whether the new primary has them.
    #[serde(default)]
    pub unknown: u64,
    /// Leases that failovers have lost.
    #[serde(default)]
    pub lost_last_day: u64,
}

/// `GET /api/v1/locks?namespace=&contains=&problems=&limit=`: problems first, then the oldest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Locks {
    pub now: u64,
    /// How many match; the list may be shorter.
    pub matching: u64,
    pub locks: Vec<Lock>,
    /// What a failover means for them now, a sentence each: namespaces in quarantine, locks that are unknown, leases that
    /// were lost in the last hour.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// One lock that is held, as far as this proxy has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    pub key: String,
    pub db: u32,
    pub namespace: String,
    pub state: LockState,
    /// Who took it, where that was seen.
    pub holder: Option<Client>,
    /// The fingerprint of the owner token.
    pub token: Option<String>,
    pub fence: u64,
    pub since: u64,
    pub age_ms: u64,
    /// What is left of the TTL; `None`: it has none.
    pub ttl_left_ms: Option<u64>,
    /// The TTL that it was given last.
    pub ttl_ms: Option<u64>,
    /// The proxy renews it while its holder lives.
    pub kept_alive: bool,
    /// Connections that were refused it at least twice and try on.
    pub waiters: u64,
    /// How it came to be known: `acquire` or `scan`.
    pub seen: String,
}

/// What is to be said of a held lock, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockState {
    /// A former holder acted while this one held it.
    Overlap,
    /// It waits for what it holds itself, or for a circle of others.
    Deadlock,
    /// It was held when the primary changed, and nobody has looked for it on the new one yet.
    Unknown,
    /// It has no TTL.
    NoTtl,
    /// Nothing is wrong.
    Held,
}

/// `GET /api/v1/connections?application=&holding=&limit=`: who holds most first, then who waits, then the oldest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    pub now: u64,
    /// How many match; the list may be shorter.
    pub matching: u64,
    /// What it means, and what to type, where the proxy may not see the processes of clients; left out where it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_processes: Option<String>,
    pub connections: Vec<Connection>,
}

/// One connection of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Its number, from the start of the proxy.
    pub session: u64,
    pub client: Client,
    /// When it was accepted.
    pub(crate) since: u64,
    pub age_ms: u64,
    /// Of a client on the proxy's machine, once it was looked up.
    pub process: Option<ClientProcess>,
    /// How many locks it holds, as far as this proxy has seen.
    pub holding: u64,
    /// Some of them.
    pub holds: Vec<NamedLock>,
    /// How many locks it polls.
    pub waiting: u64,
    /// Some of them.
    pub waits_for: Vec<NamedLock>,
}

/// The process of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientProcess {
    pub id: u32,
    /// The name of its program; `None`: it is gone.
    pub program: Option<String>,
}

/// A lock by its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLock {
    pub key: String,
    pub db: u32,
}

/// `GET /api/v1/settings`: every key of the configuration, with what is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The configuration that was read.
    pub file: Option<String>,
    pub settings: Vec<Setting>,
}

/// One key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The table that it is in, such as `namespace orders`; `None`: the top of the file.
    pub table: Option<String>,
    pub key: String,
    /// As TOML; words in parentheses where there is no value, or where it is a secret.
    pub value: String,
    /// It is what holds where nobody says anything.
    pub default: bool,
    /// `default`, `FILE:LINE`, the name of a variable or flag, or `order`.
    pub origin: String,
    /// What was read since the start, and takes a restart.
    pub after_restart: Option<String>,
}

/// `GET /api/v1/log`, and what `POST` of it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// A level, or modules with one: `info,lockwarden_dataplane::session=debug`.
    pub filter: String,
}

/// What `POST /api/v1/next` is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageOrder {
    /// All that have something to stage, if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `shadow`, `10%`, `all` or `back`.
    pub stage: String,
}

/// A chain that is asked beside the one in force, of `GET /api/v1/next`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    pub namespace: String,
    /// `shadow`, `10%` or `all`: whom it answers.
    pub stage: String,
    pub policies: Vec<String>,
    /// Since when both are asked.
    pub since: u64,
    /// Questions to which both answers come to the same.
    pub same: u64,
    /// The others, the most frequent change first.
    pub changes: Vec<Change>,
}

/// What `POST /api/v1/log` has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChanged {
    /// In force now.
    pub filter: String,
    /// In force before.
    pub was: String,
}

/// `GET /api/v1/locks/{key}?db=`: a lock that is held, or that something was told of lately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockDetail {
    pub key: String,
    pub db: u32,
    pub namespace: String,
    /// The lease, while the lock is held.
    pub lock: Option<Lock>,
    /// What happened to it lately, the oldest first.
    pub timeline: Vec<Moment>,
    pub waiters: Vec<Waiter>,
    pub holds: Holds,
    /// What stands out, in words.
    pub remarks: Vec<String>,
}

/// Somebody who polls a held lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiter {
    pub client: Client,
    pub since: u64,
    pub tries: u64,
}

/// `GET /api/v1/why/{id}` answers those with this id: a refusal in words, as `lockwarden why` tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    pub id: String,
    /// What was sent, what came of it, and the reason.
    pub headline: String,
    pub lines: Vec<WhyLine>,
    pub decision: Moment,
    /// Who held the lock then, where that was seen.
    pub holder: Option<Client>,
}

/// One line of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyLine {
    /// `when`, `who`, `sent`, `lease`, `overlap`, `said`, `result`, `do`.
    pub about: String,
    pub words: String,
}

/// `GET /api/v1/incidents` answers a list: leases that failovers have lost, by who lost them, and refusals, put together by
/// who did what to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// `payments-worker deleted lock:invoice:7, which billing held, 12 times`.
    pub(crate) sentence: String,
    /// The parts of the sentence: who …
    pub(crate) application: Option<String>,
    /// … did or was kept from doing what …
    pub(crate) did: String,
    /// … to which lock, the last of them; empty where a command named none …
    pub(crate) key: String,
    pub(crate) db: u32,
    /// … and under which circumstances, how often.
    pub(crate) then: String,
    /// The other application that held the lock, where that was seen; of a lost lease, who holds the lock now.
    pub(crate) holder: Option<String>,
    pub(crate) namespace: String,
    /// Of a refusal its reason; `lease-lost`.
    pub(crate) reason: String,
    /// `deny` or `would-deny`; of a lost lease, about which nothing was decided, `lost`.
    pub(crate) decision: String,
    /// A former holder acted while another held the lock; of a lost lease: another holds the lock now.
    pub(crate) overlap: bool,
    /// How many locks it is about.
    pub(crate) keys: u64,
    pub(crate) count: u64,
    pub(crate) last: u64,
    /// Of the last of them.
    pub(crate) id: Option<String>,
}

/// `GET /api/v1/clients`: what each application did, and what enforce mode would break, worst first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Application {
    pub application: String,
    pub libraries: Vec<String>,
    /// Of the connections that are open now.
    pub connections: u64,
    /// Nothing that it did would be refused, and nothing was found that enforce mode would turn against
    /// it.
    pub ready: bool,
    /// Why, and what to do, in words.
    pub verdict: String,
    pub namespaces: Vec<Usage>,
}

/// What an application did in a namespace, since the proxy started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub namespace: String,
    pub mode: String,
    /// Operations on locks.
    pub operations: u64,
    pub acquired: u64,
    pub contended: u64,
    pub overlaps: u64,
    /// In monitor mode: operations whose lease enforce mode would have given another TTL.
    #[serde(default)]
    pub would_modify: u64,
    /// Lock time in monitor mode, with what enforce mode would cost of it.
    #[serde(default)]
    pub foretold: LockTime,
    /// Lock time in enforce mode, with what that costs of it.
    #[serde(default)]
    pub seen: LockTime,
    /// Lock time by what the keys have in common, where some is lost.
    #[serde(default)]
    pub lost_on: Vec<PatternLockTime>,
    /// Refused, or in monitor mode what would have been.
    pub refusals: Vec<Misuse>,
    /// Findings about how it uses its locks: `shared-token`, `shared-session`, `refused-then-released`,
    /// `outlived`, `handed-over`, `shared-guard`, `debt` (as the log and the metrics name them), `tokenless-release`, `pooled`,
    /// `ran-out`, `lease-lost`, `kept-alive`, `unjudged`, `let-through`, `computed-names`, `ungoverned`, `late-write`, `write-without-lock`; in monitor mode also `no-ttl`, `ttl-cut`,
    /// `needs-keep-alive`, `would-run-out`, `takes-over`.
    pub findings: Vec<Misuse>,
}

/// One kind of misuse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Misuse {
    /// The reason of a refusal, or the kind of a finding.
    pub what: String,
    pub count: u64,
    pub last: u64,
    pub example: Moment,
    /// Whether it is in the way of enforcing, or is refused already.
    #[serde(default)]
    pub breaks: bool,
    /// What to do about it, in words.
    pub advice: String,
    /// The same by what the keys have in common, the most first.
    #[serde(default)]
    pub patterns: Vec<MisusedPattern>,
}

/// A misuse of locks whose keys are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MisusedPattern {
    /// A Redis glob.
    pub pattern: String,
    /// One of the keys.
    pub key: String,
    pub db: u32,
    pub count: u64,
    pub last: u64,
    /// The command that the application should send, or what to type. What is in capitals is for its owner to fill in.
    pub code: Option<String>,
    /// The line of the configuration that mends it.
    pub toml: Option<TomlLine>,
}

/// A line of the configuration, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TomlLine {
    /// The namespace that the table belongs to; `None`: the line is at the top of the file.
    pub namespace: Option<String>,
    /// `namespace`, `namespace.settings.ttl-ceiling`; empty at the top of the file.
    pub table: String,
    pub line: String,
}

impl MisusedPattern {
    /// What mends it, in a line.
    pub fn mends(&self) -> Option<String> {
        let toml = self.toml.as_ref().map(TomlLine::words);
        match (&self.code, toml) {
            (Some(code), Some(toml)) => Some(format!("{code}   or   {toml}")),
            (Some(code), None) => Some(code.clone()),
            (None, toml) => toml,
        }
    }
}

impl TomlLine {
    /// For people.
    pub fn words(&self) -> String {
        let TomlLine { table, line, .. } = self;
        match (&self.namespace, table.as_str()) {
            (None, _) => format!("{line} at the top of the configuration"),
            (Some(namespace), "namespace") => format!("{line} in namespace {namespace}"),
            (Some(namespace), table) => format!("{line} in [{table}] of namespace {namespace}"),
        }
    }
}

/// What `GET /api/v1/report` may be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportQuery {
    /// From when on things count; without it from the start, or from the last order to count anew.
    pub(crate) since: Option<Since>,
    /// Calls that a namespace needs to be ready, in place of 1,000 or those of a week.
    pub(crate) enough: Option<u64>,
}

/// What `GET /api/v1/what-if` is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhatIfQuery {
    /// Changes of the configuration, `KEY=VALUE`, one a line.
    pub(crate) changes: String,
}

/// What of the refusals that are kept would be spared with another configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// As they were typed.
    pub changes: Vec<String>,
    /// Refusals that are kept, of those that there were since the report counts.
    pub kept: u64,
    pub refused: u64,
    /// They may refuse what was let through, too, of which nothing is kept.
    pub may_refuse_more: bool,
    /// The most first.
    pub rows: Vec<WhatIfRow>,
}

/// Refusals of one kind, of one application, on keys that are alike; also those that enforce mode would have made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIfRow {
    pub namespace: String,
    pub pattern: String,
    pub reason: String,
    pub application: String,
    /// They would be let through.
    pub spared: u64,
    /// They would be refused all the same.
    pub stays: u64,
    /// That depends on what is not kept.
    pub open: u64,
}

/// From when on things count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Since {
    /// So long ago.
    Ago(Duration),
    /// Unix ms.
    Time(u64),
    /// Since a mode was switched or a reload changed what is in force.
    LastChange,
    /// Since the configuration was loaded again.
    Reload,
}

/// Not a time.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no time to count from: say a span such as 1h, a moment such as 2026-11-22T18:00:00Z, last-change or reload"
)]
pub struct NoTime(String);

impl FromStr for Since {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Since, NoTime> {
        match text {
            "last-change" => return Ok(Since::LastChange),
            "reload" => return Ok(Since::Reload),
            _ => {}
        }
        if let Ok(span) = humantime::parse_duration(text) {
            return Ok(Since::Ago(span));
        }
        let moment = humantime::parse_rfc3339_weak(text).ok();
        let since_1970 = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
        let ms = since_1970.and_then(|span| u64::try_from(span.as_millis()).ok());
        ms.map(Since::Time).ok_or_else(|| NoTime(text.to_owned()))
    }
}

impl TryFrom<String> for Since {
    type Error = NoTime;

    fn try_from(text: String) -> Result<Since, NoTime> {
        text.parse()
    }
}

/// `POST /api/v1/report/reset`: since when the report counts now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counting {
    pub since: u64,
}

/// What `GET /api/v1/patterns` may be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternsQuery {
    pub(crate) namespace: Option<String>,
    /// One of them, as it is shown.
    pub(crate) pattern: Option<String>,
    /// Leases that were over before do not count.
    pub(crate) since: Option<Since>,
    /// With the last leases of each.
    #[serde(default)]
    pub(crate) history: bool,
}

/// `GET /api/v1/patterns?namespace=&pattern=&since=&history=true`: how long locks are held, by what their keys have in
/// common; the busiest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockPatterns {
    /// Since when leases count, Unix ms.
    pub(crate) since: u64,
    pub(crate) now: u64,
    pub(crate) patterns: Vec<LockPattern>,
}

/// Keys of a namespace that are alike, and the leases of those locks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockPattern {
    pub namespace: String,
    /// A Redis glob; `*` where the keys had no room among the patterns.
    pub pattern: String,
    /// One of its keys, and its database.
    pub(crate) example: String,
    pub(crate) db: u32,
    pub(crate) first_seen: u64,
    pub(crate) last_seen: u64,
    /// Operations on its locks, whatever `since` says.
    pub(crate) operations: u64,
    pub(crate) acquired: u64,
    pub(crate) contended: u64,
    /// Leases that go on now.
    pub(crate) held: u64,
    /// How long its last leases were held: from the grant to the release of that grant.
    pub holds: Holds,
    /// The TTL that half of them were given at most; `None`: they had none.
    pub ttl_ms: Option<u64>,
    /// How many of those leases the proxy renewed.
    pub(crate) kept_alive: u64,
    /// What that says about the TTL to ask for, in words.
    pub advice: Option<String>,
    /// Whose the last leases were, the most first.
    pub(crate) applications: Vec<LeaseUser>,
    /// The last leases, the oldest first, and then those that go on; empty unless asked for.
    pub(crate) history: Vec<PastLease>,
}

/// An application of which some of the last leases of a pattern were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeaseUser {
    pub(crate) application: String,
    pub(crate) leases: u64,
}

/// One of the last leases of a pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PastLease {
    pub(crate) key: String,
    pub(crate) db: u32,
    pub(crate) fence: u64,
    /// Who took it, where that was seen.
    pub(crate) client: Option<Client>,
    pub(crate) since: u64,
    /// When the lock was free for others; `None`: it is held.
    pub(crate) until: Option<u64>,
    /// `released`, `ran-out`, `deleted-by-another`, `replaced`, `taken-over`, `broken`, `unseen`; `held`.
    pub(crate) end: String,
    /// From the grant until its holder gave it back, which may be long after `until`. `None`: it has not.
    pub(crate) held_ms: Option<u64>,
    pub(crate) ttl_ms: Option<u64>,
}

/// `GET /api/v1/report`: a verdict per namespace and per application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub since: u64,
    pub now: u64,
    pub namespaces: Vec<NamespaceReport>,
    pub applications: Vec<Application>,
    /// Patterns of keys that are used as locks and that no namespace has.
    pub unclaimed_patterns: u64,
    /// What it means, and what to type, where the proxy may not see the processes of clients; left out where it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_processes: Option<String>,
    /// How long locks are held, by what their keys have in common; without history.
    #[serde(default)]
    pub patterns: Vec<LockPattern>,
}

/// What can be said about a namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamespaceReport {
    pub namespace: String,
    pub mode: String,
    pub operations: u64,
    pub refused: u64,
    pub would_refuse: u64,
    /// Operations in monitor mode whose lease enforce mode would have given another TTL.
    #[serde(default)]
    pub would_modify: u64,
    pub overlaps: u64,
    pub ran_out: u64,
    /// Leases that live on keep-alive for longer than the ceiling.
    pub kept_alive: u64,
    /// Operations on locks without a record, which Redis alone answered.
    pub ungoverned: u64,
    /// Releases that carried no owner token: only the connection or its identity proved them.
    pub tokenless_releases: u64,
    /// Lock time in monitor mode, with what enforce mode would cost of it.
    #[serde(default)]
    pub foretold: LockTime,
    /// Lock time in enforce mode, with what that costs of it.
    #[serde(default)]
    pub seen: LockTime,
    /// Locks without a TTL: held now, or found without a record by the last walk over the server.
    pub without_ttl: u64,
    /// Some of those, spelled.
    pub without_ttl_examples: Vec<String>,
    /// Locks on the server that hold the same value as another one, as the last walk over it found: it
    /// proves nothing.
    pub equal_values: u64,
    /// Some of those, spelled.
    pub equal_values_examples: Vec<String>,
    /// Leases that ran out before they were given back, where locks are given back; not one in a thousand, which may be
    /// misfortune.
    #[serde(default)]
    pub ran_out_while_held: u64,
    /// So many calls more are wanted before it can be said to be ready.
    #[serde(default)]
    pub wanted_calls: u64,
    /// Unless it is watched until then, Unix ms.
    #[serde(default)]
    pub wanted_until: Option<u64>,
    /// Families of locks that work otherwise than most of the namespace.
    #[serde(default)]
    pub mixed: Vec<MixedFamily>,
    pub ready: bool,
    /// See `Namespace::harm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harm: Option<String>,
    /// What speaks against enforcing it: each a reason for which an order to do so is declined. So is
    /// that too little was seen, which `wanted_calls` says.
    #[serde(default)]
    pub against: Vec<String>,
    /// Why, and what to do, in words.
    pub verdict: String,
}

/// Lock time under one mode. Foretold in monitor mode: what enforce mode would leave unheld, lose, add and cut. Seen in
/// enforce mode: what it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockTime {
    pub grants: u64,
    /// For how long locks were held, of the leases whose ends were seen.
    pub held_ms: u64,
    /// For how long locks stay locked though their holders gave them back: the release is refused, though it may have been
    /// the holder's own.
    pub unheld_ms: u64,
    /// Grants in such times.
    pub lost_grants: u64,
    /// How much longer connections wait in such times, all together.
    pub waits_ms: u64,
    /// How long holders work on after a TTL that enforce mode cuts.
    pub cut_ms: u64,
}

/// Lock time of locks whose keys are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternLockTime {
    /// A Redis glob.
    pub pattern: String,
    pub foretold: LockTime,
    pub seen: LockTime,
}

impl LockTime {
    /// Whether some is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.unheld_ms > 0 || self.cut_ms > 0
    }

    /// For how long locks were locked, held or not.
    pub fn locked_ms(&self) -> u64 {
        self.held_ms.saturating_add(self.unheld_ms)
    }
}

impl Sum for LockTime {
    fn sum<I: Iterator<Item = LockTime>>(all: I) -> LockTime {
        all.fold(LockTime::default(), |sum, one| LockTime {
            grants: sum.grants.saturating_add(one.grants),
            held_ms: sum.held_ms.saturating_add(one.held_ms),
            unheld_ms: sum.unheld_ms.saturating_add(one.unheld_ms),
            lost_grants: sum.lost_grants.saturating_add(one.lost_grants),
            waits_ms: sum.waits_ms.saturating_add(one.waits_ms),
            cut_ms: sum.cut_ms.saturating_add(one.cut_ms),
        })
    }
}

/// Locks that work otherwise than most of their namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixedFamily {
    /// `given-back`, `left-to-ttl` or `handed-over`.
    pub(crate) way: String,
    /// What most of the namespace is.
    pub(crate) others: String,
    /// Redis globs.
    pub patterns: Vec<String>,
    /// The namespace to write for them, above the one that they are in.
    pub toml: String,
}

impl MixedFamily {
    /// Why it wants a namespace of its own.
    pub fn words(&self) -> String {
        let says = |way: &str| match way {
            "left-to-ttl" => "left to its TTL",
            "handed-over" => "given back by another process than takes it",
            _ => "given back by whoever takes it",
        };
        let (this, others) = (says(&self.way), says(&self.others));
        format!("it is {this}, and most of this namespace is {others}")
    }
}

/// `GET /api/v1/hot`: the locks that are asked for most, and circles of waiters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hot {
    pub locks: Vec<HotLock>,
    pub(crate) cycles: Vec<Cycle>,
}

/// One of the locks that are asked for most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotLock {
    pub key: String,
    pub(crate) db: u32,
    pub(crate) namespace: String,
    /// Acquires, at most; the real number is at least this less [`HotLock::error`].
    pub(crate) tries: u64,
    pub(crate) error: u64,
    /// Of those, how many met a held lock.
    pub(crate) contended: u64,
}

/// Clients that wait for each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cycle {
    pub(crate) since: u64,
    pub(crate) members: Vec<CycleMember>,
}

/// Holds one lock and polls the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CycleMember {
    pub(crate) client: Client,
    pub(crate) holds: String,
    pub(crate) waits_for: String,
}

/// `POST /api/v1/locks/{key}/break`, with a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Break {
    #[serde(default)]
    pub db: u32,
    /// The fencing token of the lease that is meant: a newer one is left alone.
    pub fence: u64,
    /// For the audit trail.
    pub reason: String,
}

/// What came of a [`Break`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// The lease is over; the name of the record in the audit trail.
    Done {
        /// See the variant.
        id: String,
    },
    /// Nobody holds the lock.
    Absent,
    /// Another lease holds it by now.
    Newer {
        /// Its fencing token.
        fence: u64,
    },
    /// It has no record, so there is no lease to name; `DEL` at Redis is all there is.
    Ungoverned,
}

/// `GET /api/v1/discovery`: what was seen of keys that no namespace has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discovery {
    /// Since when commands are looked at, Unix ms.
    pub since: u64,
    pub now: u64,
    /// Commands that were not looked at, because there were too many at once, and calls of scripts of which nothing is known: the counts
    /// below are of the others.
    pub unseen: u64,
    /// Lines of `MONITOR` that could not be read, and patterns of a proxy that says of them what this version does not know.
    #[serde(default)]
    pub unreadable: u64,
    /// Calls of scripts of which nothing is known, the most called first.
    #[serde(default)]
    pub unknown_scripts: Vec<UnknownScripts>,
    /// Commands on keys for whose pattern there was no room.
    pub beyond: u64,
    /// Patterns whose keys look like locks.
    pub unclaimed: u64,
    /// The same in the namespace that is there because no file names one: a file that does replaces it.
    #[serde(default)]
    pub implied: u64,
    /// The busiest first.
    pub patterns: Vec<KeyPattern>,
    /// Data that is written under the same lock again and again, the most written first.
    #[serde(default)]
    pub guards: Vec<ProposedGuard>,
    /// The configuration that would govern those that are locks, and guard that data.
    pub toml: String,
}

/// Calls by `EVALSHA` with keys of one pattern, of scripts whose text this proxy has not seen and that are of no library that it knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnknownScripts {
    pub pattern: String,
    /// One of the keys.
    pub(crate) example: String,
    pub calls: u64,
    /// Their SHA-1, four at most.
    pub scripts: Vec<String>,
}

/// Keys that are written under a lock, and what was seen of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProposedGuard {
    /// A pattern of `[[guard]]`.
    pub keys: String,
    /// Its lock, with the names of the pattern.
    pub lock: String,
    /// A key, and the lock under which it was written.
    pub(crate) example: String,
    pub(crate) example_lock: String,
    /// Writes under the lock.
    pub under: u64,
    /// Writes by clients that did not hold it.
    pub without: u64,
    /// About how many different locks, 64 at most.
    pub(crate) locks: u64,
    /// The name of the lock does not vary.
    pub(crate) fixed: bool,
    /// The words of the keys, lower case.
    pub(crate) words: Vec<String>,
    /// Who wrote without the lock.
    pub outsiders: Vec<Outsider>,
    /// The last of those writes.
    pub outside: Option<OutsideWrite>,
    /// Who writes before it takes the lock: where anybody does, no guard is proposed.
    #[serde(default)]
    pub starters: Vec<Starter>,
    /// Some writes are of a kind that a guard refuses: none is proposed.
    #[serde(default)]
    pub unfit: bool,
}

/// An application that writes before it takes the lock, over the same connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Starter {
    pub application: String,
    pub connections: u64,
}

/// An application that writes without the lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outsider {
    pub application: String,
    pub(crate) writes: u64,
}

/// A write without the lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutsideWrite {
    pub key: String,
    pub application: String,
}

/// Keys that are alike, and what was seen of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyPattern {
    /// A Redis glob.
    pub pattern: String,
    /// A key that it matches.
    pub(crate) example: String,
    /// `lock`, `timed lock`, `marker`, `cache`, `counter` or `unclear`.
    pub kind: String,
    /// `certain`, `likely` or `a guess`.
    pub confidence: String,
    /// Why it is taken for that.
    pub why: String,
    /// How keys are taken: `SETNX`, `SET NX`, …
    pub taken_by: Vec<String>,
    /// About how many different keys.
    pub keys: u64,
    pub tries: u64,
    pub granted: u64,
    pub(crate) contended: u64,
    pub released: u64,
    /// Deleted by another connection of the application that took them.
    pub handed_over: u64,
    /// Deleted by another application that takes such keys.
    pub foreign_releases: u64,
    /// Deleted by clients that never take such keys.
    pub swept: u64,
    /// Deletions that found no key.
    pub(crate) late_releases: u64,
    pub ran_out: u64,
    pub(crate) extended: u64,
    pub(crate) overwritten: u64,
    pub without_ttl: u64,
    pub longest_ttl_ms: Option<u64>,
    pub hold_p50_ms: Option<u64>,
    pub hold_p99_ms: Option<u64>,
    #[serde(default)]
    pub(crate) hold_p999_ms: Option<u64>,
    /// Given back by other clients than take them, which go on.
    #[serde(default)]
    pub(crate) hand_over: bool,
    /// The words of its keys, lower case.
    #[serde(default)]
    pub(crate) words: Vec<String>,
    /// Whether the pattern has a word that tells its keys from others: without one it is not proposed.
    #[serde(default)]
    pub(crate) named: bool,
    /// Every value was the same: nobody can tell whose lock it is.
    pub(crate) one_value: bool,
    pub(crate) first_seen: u64,
    pub(crate) last_seen: u64,
    pub applications: Vec<PatternUser>,
}

/// What an application did with keys of a pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatternUser {
    pub application: String,
    pub(crate) tries: u64,
    pub(crate) granted: u64,
    pub(crate) deleted: u64,
}

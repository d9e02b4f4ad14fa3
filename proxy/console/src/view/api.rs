//! The types of the JSON API under `/api/v1/`: the server writes them and the command line reads them. Times are Unix
//! milliseconds of the proxy's clock, durations are milliseconds. Keys and names are bytes in Redis; here they are text in
//! which a backslash and every byte that cannot be printed is written as `\xNN` ([`lockwarden_control::text::escape::spell`]).
//! An owner token is never shown, only its fingerprint.

mod config_meaning;
mod query;

use std::collections::BTreeMap;
use std::iter::Sum;

use lockwarden_control::telemetry::metrics::BUILD;
use lockwarden_policy::PolicyInfo;
use serde::{Deserialize, Serialize};

pub use config_meaning::ConfigMeaning;
/// One event of a lock, with its client. `GET /api/v1/decisions?since=&id=&namespace=&limit=` returns the refusals, also those
/// that enforce mode would have made, the newest first.
pub use lockwarden_control::telemetry::audit::{Client, Record as Moment};
pub use lockwarden_control::telemetry::changes::Change;
pub(crate) use query::{After, ReasonWord, USUAL_LIMIT, WhatIfQuery, is_default};
pub use query::{
    ConnectionsQuery, DecisionsQuery, Format, KeyGlob, LocksQuery, NoTime, PatternsQuery, ReportQuery, Since,
    in_address,
};

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
    /// Entries of the event log that were lost because they came too fast; above 0 the other counts are incomplete.
    pub(crate) unseen: u64,
    /// Certificates in use that end within two weeks, by table and key of the configuration: when, Unix ms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) certificates_end: BTreeMap<String, u64>,
}

/// The Redis behind the proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    pub address: String,
    /// As the server reports it; `None` until it was asked.
    pub(crate) version: Option<String>,
    pub up: bool,
    /// Why clients are not served, in one line.
    pub problem: Option<String>,
    /// When it became the primary, by the entry that the proxies keep on it; `None` where that is not known yet.
    #[serde(default)]
    pub(crate) primary_since: Option<u64>,
    /// Where sentinels name the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentinels: Option<Sentinels>,
    /// The primaries, where it is a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Shard>,
}

/// A primary of a cluster, or the replica that has taken its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// A number given by this process.
    pub(crate) id: String,
    pub(crate) primary: String,
    /// The number of its slots.
    pub(crate) slots: u64,
    /// From here on the fields of a single server.
    pub(crate) version: Option<String>,
    pub(crate) up: bool,
    pub(crate) problem: Option<String>,
    pub(crate) primary_since: Option<u64>,
}

/// What sentinels report about the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentinels {
    /// The name under which they watch it.
    pub(crate) name: String,
    /// The server that the proxy uses as primary; `None` until a sentinel named one.
    pub primary: Option<String>,
    /// Of two replies the one with the higher epoch is the newer.
    pub(crate) epoch: Option<u64>,
    /// Sentinels that replied within the last 5 s.
    pub heard: u64,
    /// How many are asked: those of the URL and those that they name.
    pub known: u64,
    pub(crate) each: Vec<Sentinel>,
}

/// What one sentinel reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentinel {
    pub(crate) address: String,
    /// The server that it names; `None`: it does not reply.
    pub(crate) primary: Option<String>,
    pub(crate) epoch: Option<u64>,
    /// Why it does not reply, where that is known.
    pub(crate) problem: Option<String>,
}

/// While it lasts, no free lock is granted in the namespace, because the primary has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// Its end; `None` while the end is not known.
    pub(crate) until: Option<u64>,
    /// Why, in words.
    pub(crate) why: String,
}

/// One namespace in force. `GET /api/v1/config` returns the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Namespace {
    pub name: String,
    /// Its globs.
    pub(crate) keys: Vec<String>,
    /// `enforce` or `monitor`.
    pub mode: String,
    /// True with `enforce_for`: some clients are refused already, though the mode is `monitor`.
    pub enforced_for_some: bool,
    pub(crate) policies: Vec<String>,
    pub(crate) ceiling_ms: Option<u64>,
    pub(crate) held: u64,
    pub(crate) without_ttl: u64,
    /// Locks that were held when the primary changed and that were not looked up on the new one yet; `held` does not count
    /// them.
    #[serde(default)]
    pub(crate) unknown: u64,
    /// Locks without a record, as the last scan of the server found.
    pub(crate) ungoverned: u64,
    /// Set while no free lock is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// Since the namespace is enforced, fewer locks are granted or lock time is lost, in words. Stays set for a while after the
    /// proxy has set the namespace back; left out otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) harm: Option<String>,
    /// How long its leases last.
    pub(crate) holds: Holds,
    /// The TTL to ask for that follows from it, in words.
    pub(crate) advice: Option<String>,
}

/// How long leases lasted, over the last [`Holds::count`] leases.
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

/// One `[[guard]]`. `GET /api/v1/guards` returns the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    pub name: String,
    pub(crate) mode: String,
    pub(crate) keys: Vec<String>,
    /// Any one of these locks is enough.
    pub(crate) lock: Vec<String>,
    pub(crate) unlocked: String,
    pub(crate) proofs: Vec<String>,
    pub(crate) exempt: Vec<String>,
    /// Verdicts on writes in this mode since the proxy started, by the words of the metrics.
    pub(crate) writes: BTreeMap<String, u64>,
    /// Writes that could not be checked, by the reason.
    pub(crate) unchecked: BTreeMap<String, u64>,
    /// How often a lock changed hands between the check and the write.
    pub(crate) again: u64,
}

/// One policy. `GET /api/v1/policies` returns the list.
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

/// The build and its policies. `GET /api/v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub version: String,
    /// The source revision; `unknown` outside a checkout.
    pub revision: String,
    /// The newest version of `lockwarden:policy` that policies may use.
    pub policy_interface: String,
    pub wasmtime: String,
    pub os: String,
    pub arch: String,
    /// The policies shipped with it.
    pub built_in: Vec<PolicyDigest>,
    /// Whether they are in the binary as machine code, so that a start does not compile them.
    pub compiled_ahead: bool,
    /// The loaded policies; none where no proxy runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_force: Option<Vec<PolicyDigest>>,
    /// A hash over the meaning of the configuration in force for locks; none where no proxy runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config_hash: Option<String>,
}

/// Identifies the module of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyDigest {
    pub name: String,
    /// The SHA-256 of its module, in hex.
    pub sha256: String,
}

impl Version {
    /// The version of this binary.
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
    /// Key patterns that look like locks and belong to no namespace.
    #[serde(default)]
    pub(crate) unclaimed_patterns: u64,
    /// Locks of which it is not known yet whether the new primary has them.
    #[serde(default)]
    pub unknown: u64,
    /// Leases lost in failovers.
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
    /// What a failover means for these locks now, one sentence each: namespaces in quarantine, unknown locks, leases that were
    /// lost in the last hour.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// One held lock, as far as this proxy has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    pub key: String,
    pub db: u32,
    pub namespace: String,
    pub state: LockState,
    /// The client that took it, where that was seen.
    pub holder: Option<Client>,
    /// The fingerprint of the owner token.
    pub token: Option<String>,
    pub fence: u64,
    pub since: u64,
    pub age_ms: u64,
    /// The rest of the TTL; `None`: it has no TTL.
    pub ttl_left_ms: Option<u64>,
    /// The last TTL that it was given.
    pub ttl_ms: Option<u64>,
    /// The proxy renews it while its holder is alive.
    pub kept_alive: bool,
    /// Connections that were refused this lock at least twice and still try.
    pub waiters: u64,
    /// How the proxy learned of it: `acquire` or `scan`.
    pub seen: String,
}

/// The state of a held lock, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockState {
    /// A former holder acted while this one held it.
    Overlap,
    /// Its holder waits for a lock that it holds itself, or is part of a circle of waiters.
    Deadlock,
    /// It was held when the primary changed, and was not looked up on the new one yet.
    Unknown,
    /// It has no TTL.
    NoTtl,
    /// Nothing is wrong.
    Held,
}

/// `GET /api/v1/connections?application=&holding=&limit=`: those with the most locks first, then those that wait, then the
/// oldest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    pub now: u64,
    /// How many match; the list may be shorter.
    pub matching: u64,
    /// Set where the proxy may not see the processes of clients: what that means, and what to type.
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
    /// Only for a client on the proxy's machine, once it was looked up.
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
    /// The name of its program; `None`: the process is gone.
    pub program: Option<String>,
}

/// A lock by its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLock {
    pub key: String,
    pub db: u32,
}

/// `GET /api/v1/settings`: every key of the configuration with the value in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The configuration file that was read.
    pub file: Option<String>,
    pub settings: Vec<Setting>,
}

/// One key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The table that it is in, such as `namespace orders`; `None`: the top of the file.
    pub table: Option<String>,
    pub key: String,
    /// As TOML; words in parentheses where there is no value or the value is secret.
    pub value: String,
    /// The value is the default, because it is set nowhere.
    pub default: bool,
    /// `default`, `FILE:LINE`, the name of a variable or flag, or `order`.
    pub origin: String,
    /// The value that was read since the start and takes effect after a restart.
    pub after_restart: Option<String>,
}

/// The reply of `GET /api/v1/log`, and the body of its `POST`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// A level, or modules with one: `info,lockwarden_dataplane::session=debug`.
    pub filter: String,
}

/// The body of `POST /api/v1/next`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageOrder {
    /// `None`: all namespaces that have something to stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `shadow`, `10%`, `all` or `back`.
    pub stage: String,
}

/// A policy chain that is evaluated beside the one in force; an element of `GET /api/v1/next`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    pub namespace: String,
    /// `shadow`, `10%` or `all`: the clients that its answers apply to.
    pub stage: String,
    pub policies: Vec<String>,
    /// Since when both chains are evaluated.
    pub since: u64,
    /// Questions on which both chains agree.
    pub same: u64,
    /// The differing answers, the most frequent change first.
    pub changes: Vec<Change>,
}

/// The reply of `POST /api/v1/log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChanged {
    /// The filter in force now.
    pub filter: String,
    /// The filter in force before.
    pub was: String,
}

/// `GET /api/v1/locks/{key}?db=`: a lock that is held or had an event lately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockDetail {
    pub key: String,
    pub db: u32,
    pub namespace: String,
    /// The lease, while the lock is held.
    pub lock: Option<Lock>,
    /// Its last events, the oldest first.
    pub timeline: Vec<Moment>,
    pub waiters: Vec<Waiter>,
    pub holds: Holds,
    /// Anything unusual, in words.
    pub remarks: Vec<String>,
}

/// A client that polls a held lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiter {
    pub client: Client,
    pub since: u64,
    pub tries: u64,
}

/// `GET /api/v1/why/{id}` returns the refusals with this id, each in words as `lockwarden why` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    pub id: String,
    /// The request, its result and the reason.
    pub headline: String,
    pub lines: Vec<WhyLine>,
    pub decision: Moment,
    /// The holder of the lock at that time, where it was seen.
    pub holder: Option<Client>,
}

/// One line of the explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyLine {
    /// `when`, `who`, `sent`, `lease`, `overlap`, `said`, `result`, `do`.
    pub about: String,
    pub words: String,
}

/// `GET /api/v1/incidents` returns a list: leases lost in failovers, grouped by the application that lost them, and refusals,
/// grouped by the two applications and by what was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// `payments-worker deleted lock:invoice:7, which billing held, 12 times`.
    pub(crate) sentence: String,
    /// The parts of the sentence: the application …
    pub(crate) application: Option<String>,
    /// … what it did or was kept from doing …
    pub(crate) did: String,
    /// … the lock, of the last event; empty where the command named none …
    pub(crate) key: String,
    pub(crate) db: u32,
    /// … and the circumstances and the count.
    pub(crate) then: String,
    /// The other application that held the lock, where that was seen; for a lost lease, the one that holds the lock now.
    pub(crate) holder: Option<String>,
    pub(crate) namespace: String,
    /// The reason of the refusal, or `lease-lost`.
    pub(crate) reason: String,
    /// `deny` or `would-deny`; for a lost lease, which needed no decision, `lost`.
    pub(crate) decision: String,
    /// A former holder acted while another client held the lock; for a lost lease: another client holds the lock now.
    pub(crate) overlap: bool,
    /// The number of different locks.
    pub(crate) keys: u64,
    pub(crate) count: u64,
    pub(crate) last: u64,
    /// The id of the last event.
    pub(crate) id: Option<String>,
}

/// `GET /api/v1/clients`: what each application did, and what enforce mode would break, worst first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Application {
    pub application: String,
    pub libraries: Vec<String>,
    /// The number of connections open now.
    pub connections: u64,
    /// Nothing that it did would be refused, and there is no finding that enforce mode would turn against it.
    pub ready: bool,
    /// The reason, and what to do, in words.
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
    /// In monitor mode: operations whose lease would get another TTL in enforce mode.
    #[serde(default)]
    pub would_modify: u64,
    /// Lock time in monitor mode, with the part that enforce mode would cost.
    #[serde(default)]
    pub foretold: LockTime,
    /// Lock time in enforce mode, with the part that enforcing costs.
    #[serde(default)]
    pub seen: LockTime,
    /// Lock time by key pattern, where some is lost.
    #[serde(default)]
    pub lost_on: Vec<PatternLockTime>,
    /// Refusals; in monitor mode those that enforce mode would make.
    pub refusals: Vec<Misuse>,
    /// Findings about how it uses its locks: `shared-token`, `shared-session`, `refused-then-released`, `outlived`,
    /// `handed-over`, `shared-guard`, `debt` (as the log and the metrics name them), `tokenless-release`, `pooled`, `ran-out`,
    /// `lease-lost`, `kept-alive`, `unjudged`, `let-through`, `computed-names`, `ungoverned`, `late-write`,
    /// `write-without-lock`; in monitor mode also `no-ttl`, `ttl-cut`, `needs-keep-alive`, `would-run-out`, `takes-over`.
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
    /// Whether it speaks against enforcing, or is refused already.
    #[serde(default)]
    pub breaks: bool,
    /// What to do about it, in words.
    pub advice: String,
    /// The same by key pattern, the most frequent first.
    #[serde(default)]
    pub patterns: Vec<MisusedPattern>,
}

/// A misuse of the locks of one key pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MisusedPattern {
    /// A Redis glob.
    pub pattern: String,
    /// One of the keys.
    pub key: String,
    pub db: u32,
    pub count: u64,
    pub last: u64,
    /// The command that the application should send, or what to type. The reader fills in the words in capitals.
    pub code: Option<String>,
    /// The configuration line that repairs it.
    pub toml: Option<TomlLine>,
}

/// A configuration line with its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TomlLine {
    /// The namespace that the table belongs to; `None`: the line is at the top of the file.
    pub namespace: Option<String>,
    /// `namespace`, `namespace.settings.ttl-ceiling`; empty at the top of the file.
    pub table: String,
    pub line: String,
}

impl MisusedPattern {
    /// The repair in one line.
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
    /// The line and its place, for people.
    pub fn words(&self) -> String {
        let TomlLine { table, line, .. } = self;
        match (&self.namespace, table.as_str()) {
            (None, _) => format!("{line} at the top of the configuration"),
            (Some(namespace), "namespace") => format!("{line} in namespace {namespace}"),
            (Some(namespace), table) => format!("{line} in [{table}] of namespace {namespace}"),
        }
    }
}

/// The remembered refusals that another configuration would spare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// As typed.
    pub changes: Vec<String>,
    /// Remembered refusals, out of all refusals since the report counts.
    pub kept: u64,
    pub refused: u64,
    /// The changes may also refuse what was let through, of which nothing is remembered.
    pub may_refuse_more: bool,
    /// The most frequent first.
    pub rows: Vec<WhatIfRow>,
}

/// Refusals of one kind, of one application, on keys of one pattern; includes those that enforce mode would have made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIfRow {
    pub namespace: String,
    pub pattern: String,
    pub reason: String,
    pub application: String,
    /// Refusals that would be let through.
    pub spared: u64,
    /// Refusals that would stay.
    pub stays: u64,
    /// Refusals whose outcome depends on facts that were not kept.
    pub open: u64,
}

/// `POST /api/v1/report/reset`: the new start of the report's counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counting {
    pub since: u64,
}

/// `GET /api/v1/patterns?namespace=&pattern=&since=&history=true`: how long locks are held, by key pattern; the busiest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockPatterns {
    /// The start of the counts, Unix ms.
    pub(crate) since: u64,
    pub(crate) now: u64,
    pub(crate) patterns: Vec<LockPattern>,
}

/// One key pattern of a namespace, with the leases of its locks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockPattern {
    pub namespace: String,
    /// A Redis glob; `*` for keys that found no room among the patterns.
    pub pattern: String,
    /// One of its keys, with its database.
    pub(crate) example: String,
    pub(crate) db: u32,
    pub(crate) first_seen: u64,
    pub(crate) last_seen: u64,
    /// Operations on its locks, independent of `since`.
    pub(crate) operations: u64,
    pub(crate) acquired: u64,
    pub(crate) contended: u64,
    /// Leases that are held now.
    pub(crate) held: u64,
    /// How long its last leases were held: from a grant to the release of that grant.
    pub holds: Holds,
    /// The median of their TTLs; `None`: they had none.
    pub ttl_ms: Option<u64>,
    /// How many of those leases the proxy renewed.
    pub(crate) kept_alive: u64,
    /// The TTL to ask for that follows from it, in words.
    pub advice: Option<String>,
    /// The applications of the last leases, the most frequent first.
    pub(crate) applications: Vec<LeaseUser>,
    /// The last leases, the oldest first, then those that are held now; empty unless requested.
    pub(crate) history: Vec<PastLease>,
}

/// An application that took some of the last leases of a pattern.
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
    /// The client that took it, where that was seen.
    pub(crate) client: Option<Client>,
    pub(crate) since: u64,
    /// When the lock became free for others; `None`: it is held.
    pub(crate) until: Option<u64>,
    /// `released`, `ran-out`, `deleted-by-another`, `replaced`, `taken-over`, `broken`, `unseen`; `held`.
    pub(crate) end: String,
    /// From the grant until its holder released it, which may be long after `until`. `None`: not released yet.
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
    /// Key patterns that are used as locks and belong to no namespace.
    pub unclaimed_patterns: u64,
    /// Set where the proxy may not see the processes of clients: what that means, and what to type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_processes: Option<String>,
    /// How long locks are held, by key pattern; without history.
    #[serde(default)]
    pub patterns: Vec<LockPattern>,
}

/// The report about one namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamespaceReport {
    pub namespace: String,
    pub mode: String,
    pub operations: u64,
    pub refused: u64,
    pub would_refuse: u64,
    /// Operations in monitor mode whose lease would get another TTL in enforce mode.
    #[serde(default)]
    pub would_modify: u64,
    pub overlaps: u64,
    pub ran_out: u64,
    /// Leases that keep-alive has kept for longer than the ceiling.
    pub kept_alive: u64,
    /// Operations on locks without a record, which Redis alone decided.
    pub ungoverned: u64,
    /// Releases without an owner token: only the connection or its identity proved them.
    pub tokenless_releases: u64,
    /// Lock time in monitor mode, with the part that enforce mode would cost.
    #[serde(default)]
    pub foretold: LockTime,
    /// Lock time in enforce mode, with the part that enforcing costs.
    #[serde(default)]
    pub seen: LockTime,
    /// Locks without a TTL: held now, or found without a record by the last scan of the server.
    pub without_ttl: u64,
    /// Some of their keys, spelled.
    pub without_ttl_examples: Vec<String>,
    /// Locks on the server with the same value as another lock, as the last scan found: such a value proves nothing.
    pub equal_values: u64,
    /// Some of their keys, spelled.
    pub equal_values_examples: Vec<String>,
    /// Leases that ran out before they were released, where locks are usually released. Up to one in a thousand is ignored as
    /// bad luck.
    #[serde(default)]
    pub ran_out_while_held: u64,
    /// Calls that are missing before the namespace can be ready.
    #[serde(default)]
    pub wanted_calls: u64,
    /// Unix ms; watching until then is enough instead of those calls.
    #[serde(default)]
    pub wanted_until: Option<u64>,
    /// Families of locks that are used in another way than most of the namespace.
    #[serde(default)]
    pub mixed: Vec<MixedFamily>,
    pub ready: bool,
    /// See `Namespace::harm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harm: Option<String>,
    /// The reasons against enforcing it; an order to enforce is declined for each of them, and also where too little was seen
    /// (`wanted_calls`).
    #[serde(default)]
    pub against: Vec<String>,
    /// The reason, and what to do, in words.
    pub verdict: String,
}

/// Lock time under one mode. Foretold in monitor mode: the time that enforce mode would leave unheld, lose, add and cut. Seen
/// in enforce mode: the time that it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockTime {
    pub grants: u64,
    /// How long locks were held; only leases whose ends were seen.
    pub held_ms: u64,
    /// How long locks stay locked after their holders released them: the release is refused, though it may have been the
    /// holder's own.
    pub unheld_ms: u64,
    /// Grants lost in such times.
    pub lost_grants: u64,
    /// How much longer connections wait in such times, summed.
    pub waits_ms: u64,
    /// How long holders work on after enforce mode has cut their TTL.
    pub cut_ms: u64,
}

/// Lock time of the locks of one key pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternLockTime {
    /// A Redis glob.
    pub pattern: String,
    pub foretold: LockTime,
    pub seen: LockTime,
}

impl LockTime {
    /// Whether some lock time is lost.
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

/// Locks that are used in another way than most of their namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixedFamily {
    /// `given-back`, `left-to-ttl` or `handed-over`.
    pub(crate) way: String,
    /// The way of most of the namespace.
    pub(crate) others: String,
    /// Redis globs.
    pub patterns: Vec<String>,
    /// The namespace to write for them, above the one that they belong to now.
    pub toml: String,
}

impl MixedFamily {
    /// Why the family needs a namespace of its own.
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

/// `GET /api/v1/hot`: the most requested locks, and circles of waiters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hot {
    pub locks: Vec<HotLock>,
    pub(crate) cycles: Vec<Cycle>,
}

/// One of the most requested locks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotLock {
    pub key: String,
    pub(crate) db: u32,
    pub(crate) namespace: String,
    /// The upper bound of its acquires; the lower bound is this minus [`HotLock::error`].
    pub(crate) tries: u64,
    pub(crate) error: u64,
    /// How many of them met a held lock.
    pub(crate) contended: u64,
}

/// Clients that wait for each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cycle {
    pub(crate) since: u64,
    pub(crate) members: Vec<CycleMember>,
}

/// A client that holds one lock and polls the next.
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
    /// The fencing token of the lease to end; a newer lease is left alone.
    pub fence: u64,
    /// For the audit trail.
    pub reason: String,
}

/// The result of a [`Break`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// The lease is over; with the id of its record in the audit trail.
    Done {
        /// See the variant.
        id: String,
    },
    /// The lock is free.
    Absent,
    /// Another lease holds it by now.
    Newer {
        /// Its fencing token.
        fence: u64,
    },
    /// It has no record, so there is no lease to name; only `DEL` at Redis helps.
    Ungoverned,
}

/// `GET /api/v1/discovery`: keys that belong to no namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discovery {
    /// Since when commands are observed, Unix ms.
    pub since: u64,
    pub now: u64,
    /// Commands that were not observed, because there were too many at once, and calls of unknown scripts; the counts below
    /// leave both out.
    pub unseen: u64,
    /// Lines of `MONITOR` that could not be read, and patterns from another proxy with a word that this version does not know.
    #[serde(default)]
    pub unreadable: u64,
    /// Calls of unknown scripts, the most frequent first.
    #[serde(default)]
    pub unknown_scripts: Vec<UnknownScripts>,
    /// Commands on keys whose pattern found no room.
    pub beyond: u64,
    /// Patterns whose keys look like locks.
    pub unclaimed: u64,
    /// The same for keys in the implied namespace, which exists only because no file names one: a file that does replaces it.
    #[serde(default)]
    pub implied: u64,
    /// The busiest first.
    pub patterns: Vec<KeyPattern>,
    /// Data that is written under the same lock again and again, the most writes first.
    #[serde(default)]
    pub guards: Vec<ProposedGuard>,
    /// The configuration that would govern the locks among them and guard that data.
    pub toml: String,
}

/// `EVALSHA` calls with keys of one pattern, of scripts whose text this proxy has not seen and that belong to no known library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnknownScripts {
    pub pattern: String,
    /// One of the keys.
    pub(crate) example: String,
    pub calls: u64,
    /// The SHA-1 of the scripts, four at most.
    pub scripts: Vec<String>,
}

/// Keys that are written under a lock, and the observed writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProposedGuard {
    /// A pattern of `[[guard]]`.
    pub keys: String,
    /// The pattern of its lock, with the names from `keys`.
    pub lock: String,
    /// A key, and the lock under which it was written.
    pub(crate) example: String,
    pub(crate) example_lock: String,
    /// Writes under the lock.
    pub under: u64,
    /// Writes by clients that did not hold the lock.
    pub without: u64,
    /// The approximate number of different locks, 64 at most.
    pub(crate) locks: u64,
    /// The name of the lock does not vary.
    pub(crate) fixed: bool,
    /// The words of the keys, lower case.
    pub(crate) words: Vec<String>,
    /// The applications that wrote without the lock.
    pub outsiders: Vec<Outsider>,
    /// The last of those writes.
    pub outside: Option<OutsideWrite>,
    /// The applications that write before they take the lock; with one of these no guard is proposed.
    #[serde(default)]
    pub starters: Vec<Starter>,
    /// Some writes are of a kind that a guard refuses, so no guard is proposed.
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

/// One pattern of keys, and its observed use.
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
    /// The reason for that kind.
    pub why: String,
    /// How keys are taken: `SETNX`, `SET NX`, …
    pub taken_by: Vec<String>,
    /// The approximate number of different keys.
    pub keys: u64,
    pub tries: u64,
    pub granted: u64,
    pub(crate) contended: u64,
    pub released: u64,
    /// Deletions by another connection of the application that took the key.
    pub handed_over: u64,
    /// Deletions by another application that takes such keys.
    pub foreign_releases: u64,
    /// Deletions by clients that never take such keys.
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
    /// Released by other clients than those that take them, as a usual way of working.
    #[serde(default)]
    pub(crate) hand_over: bool,
    /// The words of its keys, lower case.
    #[serde(default)]
    pub(crate) words: Vec<String>,
    /// Whether the pattern has a word that distinguishes its keys: without one it is not proposed.
    #[serde(default)]
    pub(crate) named: bool,
    /// Every value was the same, so a value does not show the owner of a lock.
    pub(crate) one_value: bool,
    pub(crate) first_seen: u64,
    pub(crate) last_seen: u64,
    pub applications: Vec<PatternUser>,
}

/// What one application did with keys of a pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatternUser {
    pub application: String,
    pub(crate) tries: u64,
    pub(crate) granted: u64,
    pub(crate) deleted: u64,
}

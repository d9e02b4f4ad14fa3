//! Files of cases: requests with their expected answers. Strict: a misspelt word is an error at its place, never a case that
//! passes. Knows no policy; `asking.rs` does.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use clap::Args;
use lockwarden_lock::decision::{
    ClientDescription, Decision, FaultKind, Fence, Holdings, MAX_HOLDINGS, Obligations, Operation, Proofs, Question,
    TakeOverRule, Traits, Verdict,
};
use lockwarden_lock::reason::Reason;
use lockwarden_lock::time::{AskedMs, ProxyTime};
use lockwarden_lock::token::FencingToken;
use lockwarden_policy::Pretended;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use toml::Spanned;

use super::wording::wants_in_words;

/// A file of cases.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    /// The settings of the policy, as in `[namespace.settings.<policy>]`.
    pub(super) settings: Option<Settings>,
    /// Defaults for all cases.
    #[serde(default)]
    pub(super) request: Request,
    #[serde(default, rename = "case")]
    pub(super) cases: Vec<Case>,
}

/// One request with its expected answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: Option<String>,
    /// Replaces the file's settings.
    pub(super) settings: Option<Settings>,
    /// Overrides the file's request.
    #[serde(default)]
    pub(super) request: Request,
    pub(super) expect: Spanned<Expected>,
}

/// Names and values as a policy gets them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "toml::Table")]
pub(super) struct Settings(pub(super) Vec<(String, String)>);

impl TryFrom<toml::Table> for Settings {
    type Error = String;

    fn try_from(table: toml::Table) -> Result<Settings, String> {
        let each = table.into_iter().map(|(name, value)| {
            let text = as_text(&value)
                .ok_or_else(|| format!("{name} must be a text, a number, true or false, or a list of such"))?;
            Ok((name, text))
        });
        each.collect::<Result<_, _>>().map(Settings)
    }
}

fn as_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        toml::Value::Array(list) => {
            let each = list.iter().map(|one| as_text(one).filter(|text| !one.is_array() && !text.contains(',')));
            Some(each.collect::<Option<Vec<_>>>()?.join(","))
        }
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

/// What is said of a request. What is not said is as in an acquire of `lock:sample` without TTL and owner token.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// acquire, extend, release, take-over, inspect, write or guarded-write
    #[arg(long)]
    operation: Option<Spelt<Operation>>,
    /// The logical database
    #[arg(long)]
    db: Option<u32>,
    /// The lock key
    #[arg(long)]
    key: Option<String>,
    /// The owner token
    #[arg(long)]
    token: Option<String>,
    /// The TTL that is asked for, such as 3s
    #[arg(long)]
    ttl: Option<Spelt<Millis>>,
    /// The proxy's clock, such as 2026-11-23T10:00:00Z
    #[arg(long)]
    time: Option<Spelt<ProxyTime>>,
    /// Proofs of ownership that seem to hold: token, session, observed, identity
    #[arg(long)]
    proofs: Option<Spelt<Proofs>>,
    /// conditional, transactional, scripted, monitored, shared-token, refused-since
    #[arg(long)]
    traits: Option<Spelt<Traits>>,
    /// The newest fencing token that the session was granted
    #[arg(long)]
    fencing_token: Option<u64>,
    /// What is left of the session's lease, such as 2s
    #[arg(long)]
    remaining: Option<Spelt<Millis>>,
    /// Acquires of this lock by this session in the last ten seconds
    #[arg(long)]
    attempts: Option<u32>,
    /// The same by all clients of its application
    #[arg(long)]
    tries: Option<u32>,
    /// The same by all clients
    #[arg(long)]
    tries_everyone: Option<u32>,
    /// Budgets of which nothing is left: of rules those with a rate
    #[arg(long)]
    spent: Option<Vec<String>>,
    /// Other locks that its connection holds, by their keys
    #[arg(long)]
    holds: Option<Vec<String>>,
    /// How many locks its application holds
    #[arg(long)]
    held: Option<u32>,
    #[command(flatten)]
    client: Option<Client>,
}

/// Who asks.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Client {
    /// The client's name (CLIENT SETNAME)
    #[arg(long = "client-name")]
    name: Option<String>,
    /// Its ACL user
    #[arg(long = "client-user")]
    user: Option<String>,
    /// Its address
    #[arg(long = "client-address")]
    address: Option<String>,
    /// The name in its certificate
    #[arg(long = "client-certificate")]
    certificate: Option<String>,
    /// What its application is called
    #[arg(long = "client-application")]
    application: Option<String>,
}

/// A span of time, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Millis(u64);

/// 2026-01-01T00:00:00Z; any time would do.
const SOME_TIME: ProxyTime = ProxyTime(1_767_225_600_000);

impl Request {
    /// This request, with the values of `other` where this has none.
    pub(super) fn or(self, other: &Request) -> Request {
        let other = other.clone();
        Request {
            operation: self.operation.or(other.operation),
            db: self.db.or(other.db),
            key: self.key.or(other.key),
            token: self.token.or(other.token),
            ttl: self.ttl.or(other.ttl),
            time: self.time.or(other.time),
            proofs: self.proofs.or(other.proofs),
            traits: self.traits.or(other.traits),
            fencing_token: self.fencing_token.or(other.fencing_token),
            remaining: self.remaining.or(other.remaining),
            attempts: self.attempts.or(other.attempts),
            tries: self.tries.or(other.tries),
            tries_everyone: self.tries_everyone.or(other.tries_everyone),
            spent: self.spent.or(other.spent),
            holds: self.holds.or(other.holds),
            held: self.held.or(other.held),
            client: match (self.client, other.client) {
                (Some(this), Some(other)) => Some(Client {
                    name: this.name.or(other.name),
                    user: this.user.or(other.user),
                    address: this.address.or(other.address),
                    certificate: this.certificate.or(other.certificate),
                    application: this.application.or(other.application),
                }),
                (this, other) => this.or(other),
            },
        }
    }

    pub(super) fn question(&self) -> Question<'_> {
        Question {
            operation: self.operation.map_or(Operation::Acquire, |asked| asked.0),
            db: self.db.unwrap_or(0),
            key: self.key.as_deref().unwrap_or("lock:sample").as_bytes(),
            owner_token: self.token.as_deref().map(str::as_bytes),
            ttl_ms: self.ttl.map(|asked| AskedMs(asked.0.0)),
            proofs: self.proofs.map_or(Proofs::NONE, |asked| asked.0),
            traits: self.traits.map_or(Traits::NONE, |asked| asked.0),
            fencing_token: FencingToken(self.fencing_token.unwrap_or(0)),
            remaining_ms: self.remaining.map_or(0, |asked| asked.0.0),
            attempts: self.attempts.unwrap_or(1),
            client: 1,
            now: self.time.map_or(SOME_TIME, |asked| asked.0),
        }
    }

    /// The recent activity of clients: by default this is the first try, and no lock is held.
    pub(super) fn history(&self) -> Pretended {
        let application = self.tries.unwrap_or(1);
        let holds = self.holds.clone().unwrap_or_default();
        let connection: Vec<_> = holds.into_iter().take(MAX_HOLDINGS).map(Bytes::from).collect();
        let held = u32::try_from(connection.len()).unwrap_or(u32::MAX);
        Pretended {
            application,
            everyone: self.tries_everyone.unwrap_or(application),
            spent: self.spent.clone().unwrap_or_default(),
            holdings: Holdings { connection, application: self.held.unwrap_or(held) },
        }
    }

    /// The client, if the request describes it.
    pub(super) fn describe(&self) -> Option<ClientDescription> {
        let client = self.client.clone()?;
        Some(ClientDescription {
            name: client.name.unwrap_or_default(),
            user: client.user.unwrap_or_else(|| "default".to_owned()),
            address: client.address.unwrap_or_else(|| "127.0.0.1".to_owned()),
            certificate: client.certificate,
            application: client.application.unwrap_or_default(),
        })
    }
}

/// A value that is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spelt<T>(T);

/// A type that can be parsed from text.
pub(super) trait FromText: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

impl<T: FromText> FromStr for Spelt<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        T::from_text(text).map(Spelt)
    }
}

/// A text, a date, or a list of words.
#[derive(Deserialize)]
#[serde(untagged)]
enum Spelling {
    Text(String),
    Words(Vec<String>),
    Date(toml::value::Datetime),
}

impl<'de, T: FromText> Deserialize<'de> for Spelt<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = Spelling::deserialize(from)
            .map_err(|_| D::Error::custom("must be a text, a list of words, or a date with its time"))?;
        let text = match written {
            Spelling::Text(text) => text,
            Spelling::Words(words) => words.join(","),
            Spelling::Date(date) => date.to_string(),
        };
        text.parse().map_err(D::Error::custom)
    }
}

/// The value with this name.
fn named<T: Copy>(text: &str, all: impl Iterator<Item = (T, &'static str)> + Clone) -> Result<T, String> {
    let found = all.clone().find(|(_, word)| *word == text);
    let known = || all.map(|(_, word)| word).collect::<Vec<_>>().join(", ");
    found.map(|(value, _)| value).ok_or_else(|| format!("`{text}` is none of {}", known()))
}

impl FromText for Operation {
    fn from_text(text: &str) -> Result<Operation, String> {
        named(text, Operation::ALL.into_iter().map(|operation| (operation, operation.word())))
    }
}

impl FromText for Reason {
    fn from_text(text: &str) -> Result<Reason, String> {
        named(text, Reason::ALL.into_iter().map(|reason| (reason, reason.word())))
    }
}

impl FromText for FaultKind {
    fn from_text(text: &str) -> Result<FaultKind, String> {
        named(text, FaultKind::ALL.into_iter().map(|kind| (kind, kind.word())))
    }
}

impl FromText for Fence {
    fn from_text(text: &str) -> Result<Fence, String> {
        let all = [Fence::Hybrid, Fence::Sequential];
        named(text, all.into_iter().filter_map(|fence| Some((fence, fence.word()?))))
    }
}

impl FromText for TakeOverRule {
    fn from_text(text: &str) -> Result<TakeOverRule, String> {
        let all = [TakeOverRule::Never, TakeOverRule::AfterDeadline];
        named(text, all.into_iter().map(|rule| (rule, rule.word())))
    }
}

impl FromText for Proofs {
    fn from_text(text: &str) -> Result<Proofs, String> {
        words(text).try_fold(Proofs::NONE, |all, word| Ok(all.union(named(word, Proofs::WORDS.iter().copied())?)))
    }
}

impl FromText for Traits {
    fn from_text(text: &str) -> Result<Traits, String> {
        words(text).try_fold(Traits::NONE, |all, word| Ok(all.union(named(word, Traits::WORDS.iter().copied())?)))
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

impl FromText for Millis {
    fn from_text(text: &str) -> Result<Millis, String> {
        let parsed =
            humantime::parse_duration(text).map_err(|error| format!("`{text}`: {error}; write a time such as 30s"))?;
        u64::try_from(parsed.as_millis()).map(Millis).map_err(|_| format!("`{text}` is too long"))
    }
}

impl FromText for ProxyTime {
    fn from_text(text: &str) -> Result<ProxyTime, String> {
        let parsed = humantime::parse_rfc3339(text);
        let parsed = parsed.map_err(|_| format!("`{text}` is no time in UTC; write 2026-11-23T10:00:00Z"))?;
        let since = parsed.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Ok(ProxyTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// What a case expects.
#[derive(Debug)]
pub(super) struct Expected {
    answer: ExpectedAnswer,
    /// The rule that only reports and refuses nothing.
    reports: Option<String>,
}

#[derive(Debug)]
enum ExpectedAnswer {
    Permit,
    /// With exactly these obligations.
    PermitWith(Obligations),
    Deny {
        code: Reason,
        /// Part of the policy's words.
        hint: Option<String>,
        rule: Option<String>,
    },
    /// The settings are rejected, in words that contain this text.
    Rejects(String),
    Fault(FaultKind),
}

/// `expect` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectWritten {
    permit: Option<WantsWritten>,
    deny: Option<Spelt<Reason>>,
    hint: Option<String>,
    rule: Option<String>,
    rejects: Option<String>,
    fault: Option<Spelt<FaultKind>>,
    reports: Option<String>,
}

/// Obligations as they are written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantsWritten {
    ttl_default: Option<Spelt<Millis>>,
    ttl_cap: Option<Spelt<Millis>>,
    keep_alive: Option<Spelt<Millis>>,
    max_hold: Option<Spelt<Millis>>,
    require: Option<Spelt<Proofs>>,
    fence: Option<Spelt<Fence>>,
    #[serde(default)]
    current_fence_only: bool,
    take_over: Option<Spelt<TakeOverRule>>,
}

impl From<WantsWritten> for Obligations {
    fn from(written: WantsWritten) -> Obligations {
        let ms = |asked: Option<Spelt<Millis>>| asked.map(|asked| asked.0.0);
        Obligations {
            ttl_default_ms: ms(written.ttl_default),
            ttl_cap_ms: ms(written.ttl_cap),
            keep_alive_ms: ms(written.keep_alive),
            max_hold_ms: ms(written.max_hold),
            require: written.require.map(|asked| asked.0),
            fence: written.fence.map_or(Fence::None, |asked| asked.0),
            current_fence_only: written.current_fence_only,
            take_over: written.take_over.map(|asked| asked.0),
        }
    }
}

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ExpectVisitor;
        impl<'de> Visitor<'de> for ExpectVisitor {
            type Value = Expected;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(HOW_TO_EXPECT)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Expected, E> {
                match text {
                    "permit" => Ok(Expected { answer: ExpectedAnswer::Permit, reports: None }),
                    _ => Err(E::custom(format!("expected {HOW_TO_EXPECT}"))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Expected, A::Error> {
                let written = ExpectWritten::deserialize(MapAccessDeserializer::new(map))?;
                written.expected().map_err(A::Error::custom)
            }
        }
        from.deserialize_any(ExpectVisitor)
    }
}

const HOW_TO_EXPECT: &str = "\"permit\", or one of { permit = { ttl_default = \"5s\" } }, { deny = \"limited\", hint = \"…\" }, \
                             { rejects = \"…\" }, { fault = \"fuel\" }, { reports = \"RULE\" }";

impl ExpectWritten {
    fn expected(self) -> Result<Expected, String> {
        let ExpectWritten { permit, deny, hint, rule, rejects, fault, reports } = self;
        if deny.is_none() && (hint.is_some() || rule.is_some()) {
            return Err("hint and rule say more of a deny; write { deny = \"limited\", hint = \"…\" }".to_owned());
        }
        let answer = match (permit, deny, rejects, fault) {
            (Some(wants), None, None, None) => ExpectedAnswer::PermitWith(wants.into()),
            (None, Some(code), None, None) => ExpectedAnswer::Deny { code: code.0, hint, rule },
            (None, None, Some(words), None) if reports.is_none() => ExpectedAnswer::Rejects(words),
            (None, None, None, Some(kind)) => ExpectedAnswer::Fault(kind.0),
            (None, None, None, None) if reports.is_some() => ExpectedAnswer::Permit,
            (_, _, _, _) => return Err(format!("expected {HOW_TO_EXPECT}")),
        };
        Ok(Expected { answer, reports })
    }
}

/// The result of a request.
#[derive(Debug)]
pub(super) enum Answer {
    Decided(Decision),
    /// The settings were rejected, in these words.
    Rejected(String),
}

impl Expected {
    /// Whether the answer is the expected one.
    pub(super) fn is(&self, answer: &Answer) -> bool {
        let decision = match (answer, &self.answer) {
            (Answer::Rejected(words), ExpectedAnswer::Rejects(expected)) => return words.contains(expected),
            (Answer::Rejected(_), _) | (_, ExpectedAnswer::Rejects(_)) => return false,
            (Answer::Decided(decision), _) => decision,
        };
        let reported = decision.reported.as_ref().and_then(|denial| denial.rule.as_deref());
        if self.reports.is_some() && reported != self.reports.as_deref() {
            return false;
        }
        match (&self.answer, &decision.verdict, &decision.fault) {
            (ExpectedAnswer::Fault(kind), _, Some(fault)) => fault.kind == *kind,
            (_, _, Some(_)) | (ExpectedAnswer::Fault(_), _, None) => false,
            (ExpectedAnswer::Permit, Verdict::Permit, None) => true,
            (ExpectedAnswer::PermitWith(wants), Verdict::Permit, None) => *wants == decision.obligations,
            (ExpectedAnswer::Deny { code, hint, rule }, Verdict::Deny(denial), None) => {
                let says = |hint: &String| denial.detail.as_ref().is_some_and(|detail| detail.contains(hint.as_str()));
                *code == denial.reason
                    && hint.as_ref().is_none_or(says)
                    && rule.as_ref().is_none_or(|rule| denial.rule.as_deref() == Some(rule))
            }
            (_, _, None) => false,
        }
    }

    pub(super) fn words(&self) -> String {
        let answer = match &self.answer {
            ExpectedAnswer::Permit => "permit".to_owned(),
            ExpectedAnswer::PermitWith(wants) => wants_in_words(wants),
            ExpectedAnswer::Deny { code, hint, rule } => {
                let rule = rule.as_ref().map(|rule| format!(" by the rule {rule}")).unwrap_or_default();
                let hint = hint.as_ref().map(|hint| format!(" that says {hint:?}")).unwrap_or_default();
                format!("deny {}{rule}{hint}", code.word())
            }
            ExpectedAnswer::Rejects(words) => format!("that it rejects its settings with {words:?}"),
            ExpectedAnswer::Fault(kind) => format!("no answer: {}", kind.word()),
        };
        match &self.reports {
            Some(rule) => format!("{answer}, reported by the rule {rule}"),
            None => answer,
        }
    }
}

impl Answer {
    pub(super) fn words(&self) -> String {
        let decision = match self {
            Answer::Rejected(words) => return format!("it rejects its settings: {words}"),
            Answer::Decided(decision) => decision,
        };
        if let Some(fault) = &decision.fault {
            return format!("no answer of {}: {}", fault.policy, fault.kind.word());
        }
        let mut words = match &decision.verdict {
            Verdict::Permit => wants_in_words(&decision.obligations),
            Verdict::Deny(denial) => {
                let rule = denial.rule.as_ref().map(|rule| format!(" rule={rule}")).unwrap_or_default();
                let detail = denial.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
                format!("deny {} policy={}{rule}{detail}", denial.reason.word(), denial.policy)
            }
        };
        if let Some(rule) = decision.reported.as_ref().and_then(|denial| denial.rule.as_deref()) {
            words.push_str(", reported by the rule ");
            words.push_str(rule);
        }
        words
    }
}

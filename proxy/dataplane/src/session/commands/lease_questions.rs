//! `LOCKWARDEN CHECK` and `LEASE`: Redis returns in one step what is known of the lease of a lock, on the client's
//! own connection and with its user's rights. Nothing is changed, and no owner token is shown.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockwarden_control::clock;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_lock::classify::{About, LeaseQuestion, Mistake};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::outcome::Why;
use lockwarden_lock::plan::{self, KnownLease, Needs};
use lockwarden_resp::{Value, parse_reply, put_value};

use crate::session::Session;
use crate::session::client::Client;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

/// What a question is about, and the namespace of the lock.
type Question = Result<(LeaseQuestion, Option<NamespaceId>), Mistake>;

impl Session {
    /// Answers a question about a lease.
    pub(crate) async fn tell_lease(
        &mut self,
        inbox: &mut RequestBuffer,
        question: Question,
        active: &Active,
        muted: Muted,
    ) -> Result<(), End> {
        if let Some(error) = self.barred(inbox, b"lockwarden").await? {
            self.reply(&error, muted);
            return Ok(());
        }
        let is_queued = self.client.connection.block.is_some();
        let (question, namespace) = match answerable(question, is_queued, active) {
            Ok(asked) => asked,
            Err(why) => {
                self.client.count(CommandClass::Admin, CommandResult::Error);
                self.error(&format!("ERR {why}"), muted);
                return Ok(());
            }
        };
        let session = self.client.connection.who().session;
        let prefix = &active.companion_prefix;
        let step = plan::ask_for_lease(&question.key, session, prefix);
        let answer = self.execute(inbox, &step).await?;
        let told = self.client.word_lease(&answer, &question, namespace, active)?;
        let result = match told.is_error() {
            true => CommandResult::Error,
            false => CommandResult::Ok,
        };
        self.client.count(CommandClass::Admin, result);
        let mut reply = BytesMut::new();
        put_value(&mut reply, &told, self.client.connection.protocol);
        self.answer_locally(reply, muted);
        Ok(())
    }
}

impl Client {
    /// The reply, made from the step's answer.
    fn word_lease(
        &self,
        answer: &Bytes,
        question: &LeaseQuestion,
        namespace: NamespaceId,
        active: &Active,
    ) -> Result<Value, End> {
        let value = parse_reply(answer, self.connection.protocol)
            .map_err(|_| End::OutOfStep("a script's answer is no reply".to_owned()))?;
        if let Some(error) = value.as_error() {
            let needs = Needs::of_lease_question();
            let line = Why::of_reading(error).map(|why| self.rights_line(&why, question.command(), needs, active));
            return Ok(Value::Error(line.map_or_else(|| error.clone(), Bytes::from)));
        }
        let known =
            plan::known_lease(&value).ok_or_else(|| End::OutOfStep("a script's answer is not its own".to_owned()))?;
        Ok(match question.about {
            About::Fence(fence) => {
                let is_current = matches!(known, KnownLease::Held { fence: Some(current), .. } if current == fence);
                Value::Integer(is_current.into())
            }
            About::Everything => described(&known, &active.namespace(namespace).name),
        })
    }
}

/// The error for a key that is no lock here. `lockwarden lock` looks for this text.
pub const IN_NO_NAMESPACE: &str = "is in no namespace";

/// The question, if it can be answered; otherwise the reason why not.
fn answerable(question: Question, is_queued: bool, active: &Active) -> Result<(LeaseQuestion, NamespaceId), String> {
    let (question, namespace) = question.map_err(|mistake| mistake.to_string())?;
    if is_queued {
        let command = question.command().to_ascii_uppercase();
        return Err(format!("{command} is not possible inside a transaction"));
    }
    let namespace = namespace.ok_or_else(|| format!("this key {IN_NO_NAMESPACE}, so it is no lock"))?;
    if matches!(question.about, About::Fence(_)) && !numbers_leases(namespace, active) {
        let name = &active.namespace(namespace).name;
        return Err(format!("namespace \"{name}\" numbers no leases: add the policy \"fencing\" to it"));
    }
    Ok((question, namespace))
}

/// Whether a policy of a namespace may number leases: `fencing`, or a policy that does not come with the proxy.
fn numbers_leases(namespace: NamespaceId, active: &Active) -> bool {
    let ships = |name: &str| {
        let mut policies = active.generation.policies().iter();
        policies.any(|policy| &*policy.name == name && policy.ships)
    };
    let mut chain = active.generation.chain(namespace);
    chain.any(|name| &**name == "fencing" || !ships(name))
}

/// All that is known of a lease, as a reply.
fn described(known: &KnownLease, namespace: &str) -> Value {
    let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let ms = |time: Duration| number(clock::ms(time));
    let maybe = |some: Option<Value>| some.unwrap_or(Value::Null);
    let (state, fence, own, since, age, left) = match *known {
        KnownLease::Held { fence, since_ms, held, left, own } => {
            ("held", fence, own, Some(number(since_ms)), Some(ms(held)), left)
        }
        KnownLease::Ungoverned { left } => ("ungoverned", None, false, None, None, left),
        KnownLease::Free { last } => ("free", last, false, None, None, None),
    };
    let text = |text: &str| Value::Bulk(Bytes::copy_from_slice(text.as_bytes()));
    let pairs = [
        ("namespace", text(namespace)),
        ("state", text(state)),
        ("fence", maybe(fence.map(|fence| number(fence.0)))),
        ("own", Value::Integer(own.into())),
        ("since", maybe(since)),
        ("age_ms", maybe(age)),
        ("ttl_left_ms", maybe(left.map(ms))),
    ];
    Value::Map(pairs.map(|(name, value)| (text(name), value)).into())
}

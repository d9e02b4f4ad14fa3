//! What a decision looks like as a trace: one span for what was decided about a client's command, and
//! where Redis was asked, one below it for the judging and one for the step. Names and meaning of the
//! attributes are those of the audit trail, and of OpenTelemetry's conventions for databases where those
//! have one. Owner tokens come in as fingerprints and stay out all the same: nobody searches traces by
//! them.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};

use crate::config::{BackendUrl, Target};
use crate::telemetry::audit::Record;
use crate::telemetry::events::{LockEvent, Took};
use crate::telemetry::vocabulary::DecisionKind;

/// The spans of one decision, the whole one first.
pub(super) type Trace = Vec<SpanData>;

/// See the module.
pub(super) struct Spans {
    slow: Option<Duration>,
    ids: RandomIdGenerator,
    scope: InstrumentationScope,
    server: String,
    port: Option<u16>,
}

impl Spans {
    /// `slow`: from when on a decision has a span though it was not refused.
    pub(super) fn new(slow: Option<Duration>, backend: &BackendUrl) -> Spans {
        let (server, port) = match &backend.target {
            Target::Tcp { host, port } => (host.clone(), Some(*port)),
            Target::Unix(path) => (path.display().to_string(), None),
            Target::Sentinel(sentinels) => (sentinels.name.clone(), None),
        };
        Spans {
            slow,
            ids: RandomIdGenerator::default(),
            scope: InstrumentationScope::builder("lockwarden").with_version(env!("CARGO_PKG_VERSION")).build(),
            server,
            port,
        }
    }

    /// The trace of an entry, if it has one.
    pub(super) fn of(&self, entry: &LockEvent, ended: SystemTime) -> Option<Trace> {
        let kind = entry.verdict.as_ref()?.kind;
        let refused = match kind {
            DecisionKind::Deny | DecisionKind::WouldDeny => true,
            DecisionKind::Allow | DecisionKind::Modify | DecisionKind::WouldModify => false,
        };
        let is_slow = |took: Took| self.slow.is_some_and(|slow| took.whole() >= slow);
        if !refused && !entry.took.is_some_and(is_slow) {
            return None;
        }
        let took = entry.took.unwrap_or_default();
        let began = ended.checked_sub(took.whole()).unwrap_or(ended);
        let record = Record::line(entry);
        let trace = self.ids.new_trace_id();
        let mut whole = self.span(trace, SpanId::INVALID, began, ended);
        whole.name = name(&record);
        whole.span_kind = SpanKind::Server;
        if let (DecisionKind::Deny, Some(reason)) = (kind, &record.reason) {
            whole.status = Status::error(reason.clone());
        }
        let parent = whole.span_context.span_id();
        whole.attributes = attributes(entry, record);
        let Some(redis) = took.redis else {
            return Some(vec![whole]);
        };
        let asked = ended.checked_sub(redis).unwrap_or(ended);
        let mut judging = self.span(trace, parent, began, asked);
        judging.name = "judge".into();
        let mut step = self.span(trace, parent, asked, ended);
        step.name = "EVALSHA".into();
        step.span_kind = SpanKind::Client;
        step.attributes = vec![
            KeyValue::new("db.system.name", "redis"),
            KeyValue::new("db.operation.name", "EVALSHA"),
            KeyValue::new("db.namespace", entry.key.db.to_string()),
            KeyValue::new("server.address", self.server.clone()),
        ];
        // One behind a unix socket has none.
        let port = self.port.map(|port| KeyValue::new("server.port", i64::from(port)));
        step.attributes.extend(port);
        Some(vec![whole, judging, step])
    }

    /// A span without a name. Every decision is a trace of its own: RESP has no place for the context
    /// of a caller's trace.
    fn span(&self, trace: TraceId, parent: SpanId, began: SystemTime, ended: SystemTime) -> SpanData {
        let id = self.ids.new_span_id();
        SpanData {
            span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::Borrowed(""),
            start_time: began,
            end_time: ended,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// Command and namespace: few enough to be grouped by, where keys are not.
fn name(record: &Record) -> Cow<'static, str> {
    match &record.command {
        Some(command) => format!("{command} {}", record.namespace).into(),
        None => record.namespace.clone().into(),
    }
}

fn attributes(entry: &LockEvent, record: Record) -> Vec<KeyValue> {
    let client = record.client.unwrap_or_default();
    let address = entry.caller.as_ref().map(|caller| caller.address);
    let text = |value: Option<String>| value.map(Value::from);
    // A whole number is an i64 there; what is greater, as no fencing token of the clock's is, would be
    // cut short.
    let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok().map(Value::I64));
    let said: [(&'static str, Option<Value>); 25] = [
        ("db.system.name", Some("redis".into())),
        ("db.operation.name", text(record.command)),
        ("db.namespace", Some(record.db.to_string().into())),
        ("client.address", text(address.map(|at| at.host()))),
        ("client.port", number(address.and_then(|at| at.port()).map(u64::from))),
        ("error.type", text(record.reason.clone())),
        ("lockwarden.decision", text(record.decision)),
        ("lockwarden.reason", text(record.reason)),
        ("lockwarden.policy", text(record.policy)),
        ("lockwarden.detail", text(record.detail)),
        ("lockwarden.id", text(record.id)),
        ("lockwarden.namespace", Some(record.namespace.into())),
        ("lockwarden.mode", Some(record.mode.into())),
        ("lockwarden.key", Some(record.key.into())),
        ("lockwarden.operation", text(record.operation)),
        ("lockwarden.event", Some(record.event.into())),
        ("lockwarden.fence", number(record.fence)),
        ("lockwarden.held_ms", number(record.held_ms)),
        ("lockwarden.ttl_ms", number(record.ttl_ms)),
        ("lockwarden.overlap", record.overlap.then_some(true.into())),
        ("lockwarden.session", number(client.session)),
        ("lockwarden.client", text(client.name)),
        ("lockwarden.user", text(client.user)),
        ("lockwarden.library", text(client.library)),
        ("lockwarden.certificate", text(client.certificate)),
    ];
    said.into_iter().filter_map(|(name, value)| Some(KeyValue::new(name, value?))).collect()
}

//! OpenTelemetry: which decisions a collector hears of, what their spans say, and that a collector that
//! is not there is in nobody's way. Compiled with the feature `otel` (`make test-otel`), and only then
//! is the proxy under test one that sends spans.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lockwarden_tests::{Mode, Proxy, ProxyBuilder, Redis, encode, wait_for, wait_for_value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

/// What a collector was sent.
type Bodies = Arc<Mutex<Vec<Vec<u8>>>>;

/// A collector that takes OTLP over HTTP and keeps it.
struct Collector {
    address: SocketAddr,
    bodies: Bodies,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = Bodies::default();
        let kept = bodies.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = kept.clone();
                thread::spawn(move || while take(stream.as_ref().unwrap(), &kept).is_some() {});
            }
        });
        Collector { address, bodies }
    }

    fn proxy(&self, redis: &Redis, slow: &str) -> ProxyBuilder {
        Proxy::builder(redis)
            .namespace("on_violation", "\"error\"")
            .top("otel_endpoint", &format!("\"http://{}\"", self.address))
            .top("otel_slow", &format!("\"{slow}\""))
    }

    /// Every span so far, with who sent it.
    fn spans(&self) -> Vec<(Vec<KeyValue>, Span)> {
        let bodies = self.bodies.lock().unwrap();
        let requests = bodies.iter().map(|body| ExportTraceServiceRequest::decode(&body[..]).expect("this is OTLP"));
        let mut spans = Vec::new();
        for by_resource in requests.flat_map(|request| request.resource_spans) {
            let resource = by_resource.resource.expect("a resource").attributes;
            for scope in by_resource.scope_spans {
                assert_eq!(scope.scope.expect("a scope").name, "lockwarden");
                spans.extend(scope.spans.into_iter().map(|span| (resource.clone(), span)));
            }
        }
        spans
    }

    /// Waits for the span of a decision with this attribute.
    #[track_caller]
    fn span(&self, name: &str, value: &str) -> Span {
        wait_for_value(&format!("a span with {name}={value}"), || {
            let found = |(_, span): &(Vec<KeyValue>, Span)| said(span, name) == value;
            self.spans().into_iter().find(found).map(|(_, span)| span)
        })
    }

    /// The spans below one, the first first.
    fn below(&self, parent: &Span) -> Vec<Span> {
        let mut below: Vec<Span> = self.spans().into_iter().map(|(_, span)| span).collect();
        below.retain(|span| span.parent_span_id == parent.span_id);
        below.sort_by_key(|span| span.start_time_unix_nano);
        for span in &below {
            assert_eq!(span.trace_id, parent.trace_id);
        }
        below
    }
}

/// Takes one request of a connection that is kept open; `None` at its end.
fn take(stream: &TcpStream, kept: &Bodies) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", number)) => length = number.parse().unwrap(),
            Some(("content-type", kind)) => assert_eq!(kind, "application/x-protobuf"),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    kept.lock().unwrap().push(body);
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n").ok()
}

/// An attribute as text; empty where there is none.
fn said(span: &Span, name: &str) -> String {
    text(&span.attributes, name)
}

fn text(attributes: &[KeyValue], name: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.as_ref()) {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text.clone(),
        Some(AnyValue { value: Some(Value::IntValue(number)) }) => number.to_string(),
        Some(AnyValue { value: Some(Value::BoolValue(yes)) }) => yes.to_string(),
        _ => String::new(),
    }
}

fn id_in(error: &str) -> &str {
    let (_, rest) = error.split_once(" id=").expect("a refusal has an id");
    rest.split(' ').next().unwrap()
}

#[test]
fn a_refusal_is_a_span_that_says_who_was_refused_what_and_why() {
    let (redis, collector) = (Redis::start(), Collector::start());
    let proxy = collector.proxy(&redis, "off").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SETNX lock:a secret-of-alice").gets(":1");
    let fence = redis.record("lock:a").expect("a record").fence;
    bob.sends("CLIENT SETNAME billing-7").gets("+OK");
    let error = bob.sends("DEL lock:a").gets_error("LOCKDENIED not-owner");

    let span = collector.span("lockwarden.id", id_in(&error));
    assert_eq!(span.name, "DEL locks");
    assert_eq!(span.kind(), SpanKind::Server);
    let status = span.status.clone().expect("a status");
    assert_eq!((status.code(), &*status.message), (StatusCode::Error, "not-owner"));
    let fence = fence.to_string();
    for (name, value) in [
        ("db.system.name", "redis"),
        ("db.operation.name", "DEL"),
        ("db.namespace", "0"),
        ("client.address", &*bob.source().ip().to_string()),
        ("client.port", &bob.source().port().to_string()),
        ("error.type", "not-owner"),
        ("lockwarden.decision", "deny"),
        ("lockwarden.reason", "not-owner"),
        ("lockwarden.policy", "owner-token"),
        ("lockwarden.namespace", "locks"),
        ("lockwarden.mode", "enforce"),
        ("lockwarden.key", "lock:a"),
        ("lockwarden.operation", "release"),
        ("lockwarden.event", "refused"),
        ("lockwarden.fence", &fence),
        ("lockwarden.client", "billing-7"),
    ] {
        assert_eq!(said(&span, name), value, "{name}");
    }

    // Below it stands where the time went.
    let [judging, step] = &collector.below(&span)[..] else { panic!("two spans below {span:?}") };
    assert_eq!((&*judging.name, &*step.name), ("judge", "EVALSHA"));
    assert_eq!(step.kind(), SpanKind::Client);
    assert_eq!(said(step, "server.port"), redis.address().port().to_string());
    assert_eq!(judging.start_time_unix_nano, span.start_time_unix_nano);
    assert_eq!(judging.end_time_unix_nano, step.start_time_unix_nano);
    assert_eq!(step.end_time_unix_nano, span.end_time_unix_nano);
    assert!(step.end_time_unix_nano > step.start_time_unix_nano);

    let (resource, _) = &collector.spans()[0];
    assert_eq!(text(resource, "service.name"), "lockwarden");
}

#[test]
fn what_is_allowed_has_no_span_and_the_last_refusals_are_sent_before_the_end() {
    let (redis, collector) = (Redis::start(), Collector::start());
    let proxy = collector.proxy(&redis, "off").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    for round in 0..20 {
        let key = format!("lock:{round}");
        alice.sends(format!("SET {key} secret-of-alice NX PX 5000")).gets("+OK");
        bob.sends(format!("SET {key} secret-of-bob NX PX 5000")).gets("nil");
        bob.sends(format!("SET {key} secret-of-bob")).gets_error("LOCKDENIED overwrite");
        bob.sends(format!("APPEND {key} secret-of-bob")).gets_error("LOCKDENIED opaque-write");
        alice.sends(format!("DEL {key}")).gets(":1");
    }
    assert_eq!(proxy.stop(), Some(0));

    let spans = collector.spans();
    let count = |reason: &str| {
        let with = |(_, span): &&(Vec<KeyValue>, Span)| said(span, "lockwarden.reason") == reason;
        spans.iter().filter(with).count()
    };
    assert_eq!((count("overwrite"), count("opaque-write")), (20, 20));
    let decisions = spans.iter().filter(|(_, span)| span.parent_span_id.is_empty());
    assert_eq!(decisions.count(), 40);
    for body in collector.bodies.lock().unwrap().iter() {
        assert!(!body.windows(9).any(|bytes| bytes == b"secret-of"), "an owner token was sent");
    }
}

#[test]
fn what_would_be_refused_is_a_span_without_an_error() {
    let (redis, collector) = (Redis::start(), Collector::start());
    let proxy = collector.proxy(&redis, "off").mode(Mode::Monitor).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SETNX lock:a 1").gets(":1");
    bob.sends("DEL lock:a").gets(":1");
    let span = collector.span("lockwarden.decision", "would-deny");
    assert_eq!(said(&span, "lockwarden.reason"), "not-owner");
    assert_eq!(said(&span, "lockwarden.mode"), "monitor");
    assert_eq!(span.status.unwrap_or_default().code(), StatusCode::Unset);
}

#[test]
fn a_slow_decision_is_a_span_whatever_was_decided() {
    const SLOW: Duration = Duration::from_millis(10);
    let (redis, collector) = (Redis::start(), Collector::start());
    let proxy = collector.proxy(&redis, "10ms").start();
    let alice = proxy.client();
    alice.sends("PING").gets("+PONG");
    redis.freeze();
    alice.write(&encode(&["SET", "lock:a", "secret-of-alice", "NX", "PX", "5000"]));
    // The proxy's own heartbeat is shorter.
    wait_for("the acquire to be sent to Redis", || redis.connections_waiting(60) == 1);
    alice.hears_nothing_for(SLOW);
    redis.thaw();
    alice.then().gets("+OK");

    let span = collector.span("lockwarden.event", "acquired");
    assert_eq!(said(&span, "lockwarden.decision"), "allow");
    assert_eq!(said(&span, "lockwarden.ttl_ms"), "5000");
    assert_eq!(said(&span, "error.type"), "");
    let length = |span: &Span| span.end_time_unix_nano - span.start_time_unix_nano;
    let slow = u64::try_from(SLOW.as_nanos()).unwrap();
    assert!(length(&span) >= slow);
    let below = collector.below(&span);
    assert!(length(&below[1]) >= slow, "it was Redis that was slow: {below:?}");
}

#[test]
fn a_collector_that_is_not_there_is_in_nobodys_way() {
    let redis = Redis::start();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::builder(&redis).top("otel_endpoint", &format!("\"http://{gone}\"")).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SETNX lock:a 1").gets(":1");
    bob.sends("DEL lock:a").gets(":0");
    proxy.logs(&["spans cannot be sent"]);
    bob.sends("DEL lock:a").gets(":0");
    alice.sends("DEL lock:a").gets(":1");
    assert_eq!(proxy.logged(&["spans cannot be sent"]), 1);
    assert_eq!(proxy.stop(), Some(0));
}

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::Instant;

use lockwarden_control::config::{Finding, Meaning, Unusable};
use lockwarden_control::telemetry::audit;

use super::*;
use crate::view::api::{Break, Broken, LogChanged, Next, Settings, WhatIf};
use crate::view::{ConnectionsQuery, DecisionsQuery, LocksQuery, PatternsQuery, ReportQuery, Views, api as told};

#[derive(Default)]
struct Fake {
    trouble: Mutex<Option<String>>,
    orders: Mutex<Vec<String>>,
}

impl Control for Fake {
    fn metrics(&self) -> Vec<u8> {
        b"lockwarden_backend_up 1\n".to_vec()
    }

    fn readiness(&self) -> Result<(), NotReady> {
        let trouble = self.trouble.lock().unwrap().clone();
        trouble.map_or(Ok(()), |text| Err(NotReady::Backend(text)))
    }

    fn set_mode(
        &self,
        namespace: Option<&str>,
        mode: &str,
        leap: Leap,
        by: audit::Client,
    ) -> Result<Vec<(String, String)>, ControlError> {
        assert!(by.address.starts_with("127.0.0.1:"), "{by:?}");
        if !["enforce", "monitor"].contains(&mode) {
            return Err(ControlError::Invalid(format!("no mode {mode:?}")));
        }
        if namespace == Some("nobody") {
            return Err(ControlError::NotFound("no namespace \"nobody\"".to_owned()));
        }
        self.orders.lock().unwrap().push(match leap {
            Leap::Looks => format!("{namespace:?} {mode}"),
            Leap::Anyway => format!("{namespace:?} {mode} anyway"),
        });
        let name = namespace.unwrap_or("orders").to_owned();
        Ok(vec![(name, mode.to_owned())])
    }

    fn next(&self) -> Vec<Next> {
        Vec::new()
    }

    fn set_stage(&self, _: Option<&str>, stage: &str, _: audit::Client) -> Result<Vec<Next>, ControlError> {
        Err(ControlError::Invalid(format!("no stage {stage:?}")))
    }

    fn drain(&self) -> String {
        self.orders.lock().unwrap().push("drain".to_owned());
        "clients connected: 3".to_owned()
    }

    fn reload(&self, weaker: Weaker, leap: Leap) -> Result<String, ReloadError> {
        let order = match (weaker, leap) {
            (Weaker::Refused, Leap::Looks) => "reload",
            (Weaker::Allowed, Leap::Looks) => "reload, weaker or not",
            (Weaker::Refused, Leap::Anyway) => "reload, harmful or not",
            (Weaker::Allowed, Leap::Anyway) => "reload, whatever it does",
        };
        self.orders.lock().unwrap().push(order.to_owned());
        match self.trouble.lock().unwrap().clone() {
            Some(text) => {
                let finding = Finding::error_in(None, None, text);
                Err(ReloadError::Unusable(Unusable(vec![finding])))
            }
            None => Ok("2 namespaces, 3 policies".to_owned()),
        }
    }

    fn settings(&self) -> Settings {
        Settings { file: None, settings: Vec::new() }
    }

    fn what_if(&self, changes: &[&str]) -> Result<WhatIf, ControlError> {
        match changes {
            ["good=1"] => Ok(WhatIf::default()),
            _ => Err(ControlError::Invalid("no such key".to_owned())),
        }
    }

    fn log_filter(&self) -> String {
        "info".to_owned()
    }

    fn set_log_filter(&self, order: &str) -> Result<LogChanged, ControlError> {
        if order == "loud" {
            return Err(ControlError::Invalid("no level".to_owned()));
        }
        self.orders.lock().unwrap().push(format!("log {order}"));
        Ok(LogChanged { filter: order.to_owned(), was: "info".to_owned() })
    }

    fn reset_report(&self) -> u64 {
        self.orders.lock().unwrap().push("reset".to_owned());
        1_790_000_000_000
    }

    fn break_lock(&self, key: &[u8], order: &Break) -> Result<Broken, ControlError> {
        let order =
            format!("break {} in {} with {}: {}", String::from_utf8_lossy(key), order.db, order.fence, order.reason);
        self.orders.lock().unwrap().push(order);
        match self.trouble.lock().unwrap().clone() {
            Some(text) => Err(ControlError::Unavailable(text)),
            None if key == b"lock:newer" => Ok(Broken::Newer { fence: 44 }),
            None => Ok(Broken::Done { id: "7F3K2A".to_owned() }),
        }
    }

    fn views(&self) -> &dyn Views {
        self
    }
}

/// One lock is held, `lock:a/b`, in database 3.
impl Views for Fake {
    fn overview(&self) -> told::Overview {
        told::Overview {
            version: "0.1.0".to_owned(),
            started_at: 1,
            now: 2,
            backend: told::Backend {
                address: "redis://127.0.0.1:6379".to_owned(),
                version: None,
                up: true,
                problem: None,
                primary_since: None,
                shards: Vec::new(),
                sentinels: None,
            },
            namespaces: Vec::new(),
            policies: Vec::new(),
            totals: told::Totals::default(),
            unseen: 0,
            certificates_end: Default::default(),
        }
    }

    fn locks(&self, query: &LocksQuery) -> told::Locks {
        told::Locks { now: 2, matching: query.limit.unwrap_or(0) as u64, locks: Vec::new(), notices: Vec::new() }
    }

    fn connections(&self, query: &ConnectionsQuery) -> told::Connections {
        told::Connections {
            now: 2,
            matching: query.limit.unwrap_or(0) as u64,
            hidden_processes: None,
            connections: Vec::new(),
        }
    }

    fn lock(&self, key: &[u8], db: u32) -> Option<told::LockDetail> {
        (key == b"lock:a/b" && db == 3).then(|| told::LockDetail {
            key: "lock:a/b".to_owned(),
            db,
            namespace: "orders".to_owned(),
            lock: None,
            timeline: Vec::new(),
            waiters: Vec::new(),
            holds: told::Holds::default(),
            remarks: Vec::new(),
        })
    }

    fn decisions(&self, _query: &DecisionsQuery) -> Vec<told::Moment> {
        Vec::new()
    }

    fn lost(&self, _: &DecisionsQuery) -> Vec<told::Moment> {
        Vec::new()
    }

    fn incidents(&self, _: &DecisionsQuery) -> Vec<told::Incident> {
        Vec::new()
    }

    fn why(&self, _: &str) -> Vec<told::Why> {
        Vec::new()
    }

    fn applications(&self) -> Vec<told::Application> {
        Vec::new()
    }

    fn version(&self) -> told::Version {
        told::Version::of_this()
    }

    fn meaning(&self) -> told::ConfigMeaning {
        (&Meaning::default()).into()
    }

    fn guards(&self) -> Vec<told::Guard> {
        Vec::new()
    }

    fn policies(&self) -> Vec<told::Policy> {
        Vec::new()
    }

    fn hot(&self) -> told::Hot {
        told::Hot { locks: Vec::new(), cycles: Vec::new() }
    }

    fn report(&self, _: &ReportQuery) -> told::Report {
        told::Report {
            since: 1,
            now: 2,
            namespaces: Vec::new(),
            applications: Vec::new(),
            unclaimed_patterns: 0,
            hidden_processes: None,
            patterns: Vec::new(),
        }
    }

    fn patterns(&self, _: &PatternsQuery) -> told::LockPatterns {
        told::LockPatterns { since: 1, now: 2, patterns: Vec::new() }
    }

    fn namespaces(&self) -> Vec<told::Namespace> {
        Vec::new()
    }

    fn discovery(&self) -> told::Discovery {
        told::Discovery {
            since: 1,
            now: 2,
            unseen: 0,
            unreadable: 0,
            unknown_scripts: Vec::new(),
            beyond: 0,
            unclaimed: 0,
            implied: 0,
            patterns: Vec::new(),
            guards: Vec::new(),
            toml: String::new(),
        }
    }
}

struct Served {
    handle: AdminHandle,
    control: Arc<Fake>,
}

fn serve_with(options: AdminOptions) -> Served {
    let control = Arc::new(Fake::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let handle = serve(listener, options, control.clone()).unwrap();
    Served { handle, control }
}

fn full() -> Served {
    serve_with(AdminOptions::Full {
        token: AdminToken::configured("s3cret".to_owned()),
        host: Some("locks.example".to_owned()),
        port: None,
    })
}

impl Served {
    /// Sends one request as it stands and reads until the connection is closed.
    fn sends(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.handle.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn gets(&self, path: &str) -> Answer {
        self.sends(&format!("GET {path} HTTP/1.1\r\nHost: localhost:9180\r\n\r\n"))
    }

    fn posts(&self, path: &str, token: Option<&str>, body: &str) -> Answer {
        let authorization = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        self.sends(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn orders(&self) -> Vec<String> {
        self.control.orders.lock().unwrap().clone()
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

#[test]
fn pages_for_reading_are_open_and_dressed() {
    let admin = full();
    let metrics = admin.gets("/metrics");
    assert_eq!((metrics.status, metrics.body.as_str()), (200, "lockwarden_backend_up 1\n"));
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert_eq!(admin.gets("/live").status, 200);
    for answer in [metrics, admin.gets("/nothing"), admin.posts("/mode", None, "")] {
        for header in [
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "cache-control: no-store",
            "connection: close",
        ] {
            assert!(answer.head.contains(header), "{header}: {}", answer.head);
        }
    }
}

#[test]
fn readiness_says_why_not_in_one_line() {
    let admin = full();
    assert_eq!(admin.gets("/ready").status, 200);
    *admin.control.trouble.lock().unwrap() = Some("backend refused\nthe connection".to_owned());
    let answer = admin.gets("/ready");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.body, "not ready: backend refused the connection\n");
    assert_eq!(admin.gets("/live").status, 200);
}

#[test]
fn modes_are_switched_by_body_or_query() {
    let admin = full();
    let token = Some("s3cret");
    let answer = admin.posts("/mode", token, r#"{"namespace":"orders","mode":"monitor"}"#);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.body, r#"{"modes":[{"namespace":"orders","mode":"monitor"}]}"#);
    assert_eq!(admin.posts("/mode", token, r#"{"mode":"enforce"}"#).status, 200);
    assert_eq!(admin.posts("/mode?namespace=stock&mode=monitor", token, "").status, 200);
    let expected = [r#"Some("orders") monitor"#, "None enforce", r#"Some("stock") monitor"#];
    assert_eq!(admin.orders(), expected);
}

#[test]
fn bad_orders_change_nothing_and_say_why() {
    let admin = full();
    let token = Some("s3cret");
    for (path, body, status, word) in [
        ("/mode", r#"{"namespace":"nobody","mode":"monitor"}"#, 404, "nobody"),
        ("/mode", r#"{"mode":"loud"}"#, 400, "loud"),
        ("/api/v1/mode", r#"{"mode":"loud"}"#, 400, "loud"),
        ("/api/v1/log", r#"{"filter":"loud"}"#, 400, "no level"),
        ("/api/v1/log", "{}", 400, "filter"),
        ("/api/v1/locks/lock:a/break", "{}", 400, "fence"),
        ("/api/v1/locks/lock:a/break", r#"{"fence":1,"reason":" \t "}"#, 400, "reason"),
        ("/api/v1/locks/lock:%5Ca/break", r#"{"fence":1,"reason":"x"}"#, 400, "backslash"),
        ("/mode", r#"{"mode":"monitor","nmespace":"orders"}"#, 400, "nmespace"),
        ("/mode", "{", 400, "EOF"),
        ("/mode", "", 400, "mode"),
        ("/mode?mode=monitor&nmespace=orders", "", 400, "nmespace"),
        ("/modes", "", 404, "no such page"),
    ] {
        let answer = admin.posts(path, token, body);
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.body);
        assert!(answer.body.contains(word), "{path} {body}: {}", answer.body);
    }
    assert_eq!(admin.orders(), [""; 0]);
}

#[test]
fn reload_tells_its_result() {
    let admin = full();
    let answer = admin.posts("/reload", Some("s3cret"), "");
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"result":"2 namespaces, 3 policies"}"#));
    *admin.control.trouble.lock().unwrap() = Some("unknown key".to_owned());
    let answer = admin.posts("/reload", Some("s3cret"), "");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (422, r#"{"error":"built-in configuration error: unknown key\n1 error, 0 warnings"}"#)
    );
}

#[test]
fn a_reload_may_be_told_that_a_weaker_one_is_meant() {
    let admin = full();
    for path in ["/reload", "/reload?allow=weaker", "/api/v1/reload?allow=weaker"] {
        assert_eq!(admin.posts(path, Some("s3cret"), "").status, 200, "{path}");
    }
    for path in ["/reload?allow=everything", "/reload?alow=weaker"] {
        let answer = admin.posts(path, Some("s3cret"), "");
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert!(answer.body.contains("?allow=weaker"), "{}", answer.body);
    }
    let weaker = "reload, weaker or not";
    assert_eq!(admin.orders(), ["reload", weaker, weaker]);
}

#[test]
fn draining_needs_the_admin_token_and_says_what_is_waited_for() {
    let admin = full();
    assert_eq!(admin.posts("/drain", None, "").status, 401);
    assert_eq!(admin.gets("/drain").status, 405);
    assert!(admin.orders().is_empty());
    let answer = admin.posts("/drain", Some("s3cret"), "");
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"result":"clients connected: 3"}"#));
    assert_eq!(admin.orders(), ["drain"]);
}

#[test]
fn orders_need_the_admin_token_and_reading_changes_nothing() {
    let admin = full();
    for token in [None, Some(""), Some("s3cre"), Some("s3cret2"), Some("S3cret")] {
        for path in ["/mode?mode=monitor", "/reload"] {
            let answer = admin.posts(path, token, "");
            assert_eq!(answer.status, 401, "{path} {token:?}");
            assert!(answer.head.contains("www-authenticate: bearer"));
        }
    }
    for path in ["/mode?mode=monitor", "/reload"] {
        assert_eq!(admin.gets(path).status, 405, "{path}");
    }
    assert_eq!(admin.orders(), [""; 0]);
}

#[test]
fn a_foreign_host_name_is_refused() {
    let admin = full();
    let address = admin.handle.address();
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:9180", 200),
        (&address.to_string(), 200),
        ("[::1]:9180", 200),
        ("[::1]", 200),
        ("locks.example:9180", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:9180", 403),
        ("", 403),
    ] {
        let answer = admin.sends(&format!("GET /live HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answer.status, status, "{host}");
    }
    assert_eq!(admin.sends("GET /live HTTP/1.1\r\n\r\n").status, 403);
    let two = "GET /live HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_ne!(admin.sends(two).status, 200);
    let target = "GET http://evil.example/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(admin.sends(target).status, 403);
}

#[test]
fn the_metrics_address_serves_pages_by_any_name_and_takes_no_orders() {
    let admin = serve_with(AdminOptions::MetricsOnly);
    for path in ["/metrics", "/live", "/ready"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: pod-7.example\r\n\r\n");
        assert_eq!(admin.sends(&request).status, 200, "{path}");
    }
    assert_eq!(admin.posts("/mode?mode=monitor", Some("s3cret"), "").status, 404);
    assert_eq!(admin.posts("/reload", Some("s3cret"), "").status, 404);
    assert_eq!(admin.orders(), [""; 0]);
}

#[test]
fn a_body_without_end_is_refused() {
    let admin = full();
    let body = "x".repeat(16 * 1024 + 1);
    let answer = admin.posts("/mode", Some("s3cret"), &body);
    assert_eq!(answer.status, 413);
    assert_eq!(admin.orders(), [""; 0]);
}

#[test]
fn a_generated_admin_token_is_random_and_works_from_this_machine() {
    let token = AdminToken::generate().unwrap();
    let secret = token.reveal().to_owned();
    assert_eq!(secret.len(), 32);
    assert_ne!(secret, AdminToken::generate().unwrap().reveal());
    assert!(!format!("{token:?}").contains(&secret));
    let admin = serve_with(AdminOptions::Full { token, host: None, port: None });
    assert_eq!(admin.posts("/reload", Some(&secret), "").status, 200);
}

#[test]
fn an_empty_admin_token_opens_nothing() {
    let token = AdminToken::configured(String::new());
    let admin = serve_with(AdminOptions::Full { token, host: None, port: None });
    assert_eq!(admin.posts("/reload", Some(""), "").status, 401);
}

#[test]
fn stopping_does_not_wait_for_a_silent_peer() {
    let admin = full();
    let address = admin.handle.address();
    let _silent = TcpStream::connect(address).unwrap();
    assert_eq!(admin.gets("/live").status, 200);
    let before = Instant::now();
    admin.handle.stop();
    assert!(before.elapsed() < Duration::from_secs(15));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn what_is_known_of_locks_is_open_on_the_admin_address_alone() {
    let served = full();
    for path in ["overview", "locks", "decisions", "clients", "policies", "version", "hot", "report", "config"] {
        let answer = served.gets(&format!("/api/v1/{path}"));
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.head.contains("content-type: application/json"), "{path}");
    }
    let metrics_only = serve_with(AdminOptions::MetricsOnly);
    assert_eq!(metrics_only.gets("/api/v1/locks").status, 404);
}

#[test]
fn a_lock_is_named_by_its_spelled_key() {
    let served = full();
    for (path, status) in [
        ("/api/v1/locks/lock:a%2Fb?db=3", 200),
        ("/api/v1/locks/lock:a%5Cx2fb?db=3", 200),
        ("/api/v1/locks/lock:a%2Fb", 404),
        ("/api/v1/locks/lock:%5C?db=3", 400),
        ("/api/v1/locks/lock:a%2Fb?db=x", 400),
        ("/api/v1/locks/lock:a%2Fb?base=3", 400),
        ("/api/v1/locks/%ff", 400),
    ] {
        assert_eq!(served.gets(path).status, status, "{path}");
    }
}

#[test]
fn a_query_that_is_not_understood_is_an_error() {
    let served = full();
    let locks = served.gets("/api/v1/locks?limit=7&problems=true&namespace=orders&contains=a");
    assert!(locks.body.contains("\"matching\":7"), "{}", locks.body);
    for query in ["locks?limit=-1", "locks?contain=a", "decisions?since=yesterday"] {
        assert_eq!(served.gets(&format!("/api/v1/{query}")).status, 400, "{query}");
    }
}

#[test]
fn a_lock_is_broken_by_an_order_that_says_which_lease_and_why() {
    let admin = full();
    let token = Some("s3cret");
    let order = r#"{"db":3,"fence":43,"reason":" the worker\nhangs "}"#;
    let answer = admin.posts("/api/v1/locks/lock:a%2Fb/break", token, order);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"done":{"id":"7F3K2A"}}"#));
    // A reason stays on one line of the log.
    let expected = r"break lock:a/b in 3 with 43: the worker\x0ahangs";
    assert_eq!(admin.orders(), [expected]);
    let order = r#"{"fence":43,"reason":"x"}"#;
    let answer = admin.posts("/api/v1/locks/lock:newer/break", token, order);
    assert_eq!((answer.status, answer.body.as_str()), (409, r#"{"newer":{"fence":44}}"#));
    *admin.control.trouble.lock().unwrap() = Some("the backend is not there".to_owned());
    let answer = admin.posts("/api/v1/locks/lock:a/break", token, order);
    assert_eq!(answer.status, 503, "{}", answer.body);
}

#[test]
fn a_lock_is_broken_by_nobody_without_the_admin_token() {
    let admin = full();
    let order = r#"{"fence":43,"reason":"x"}"#;
    for token in [None, Some("s3cre")] {
        let answer = admin.posts("/api/v1/locks/lock:a/break", token, order);
        assert_eq!(answer.status, 401);
    }
    assert_eq!(admin.gets("/api/v1/locks/lock:a/break").status, 405);
    assert_eq!(admin.orders(), [""; 0]);
}

#[test]
fn the_board_may_use_its_own_files_and_nothing_else() {
    let admin = full();
    let board = admin.gets("/");
    assert_eq!(board.status, 200);
    for part in [
        "content-type: text/html; charset=utf-8",
        "default-src 'none'; script-src 'self'; style-src 'self'",
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "x-frame-options: deny",
        "referrer-policy: no-referrer",
    ] {
        assert!(board.head.contains(part), "{part}: {}", board.head);
    }
    assert!(!board.head.contains("unsafe"), "{}", board.head);
    let one = board.head.matches("content-security-policy").count();
    assert_eq!(one, 1, "{}", board.head);
    let style = admin.gets("/board/board.css");
    assert!(style.head.contains("content-type: text/css"), "{}", style.head);
    assert!(style.head.contains("default-src 'none'; frame-ancestors"), "{}", style.head);
    let only_metrics = serve_with(AdminOptions::MetricsOnly);
    for path in ["/", "/events", "/board/board.js"] {
        assert_eq!(only_metrics.gets(path).status, 404, "{path}");
    }
}

#[test]
fn health_is_answered_while_all_other_places_are_taken() {
    // As high as at any time during these tests.
    lockwarden_control::net::descriptors::raise_limit().unwrap();
    let admin = full();
    let places = usize::try_from(lockwarden_control::net::descriptors::admin_places()).unwrap();
    // Each has a request that does not finish.
    let slow: Vec<TcpStream> = (0..places / 2)
        .map(|_| {
            let mut one = TcpStream::connect(admin.handle.address()).unwrap();
            one.write_all(
                b"POST /reload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\
                  Content-Length: 5\r\n\r\n",
            )
            .unwrap();
            one
        })
        .collect();
    let until = |status| {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = admin.gets("/api/v1/locks");
            if answer.status == status {
                return answer;
            }
            assert!(Instant::now() < patience, "{}", answer.body);
        }
    };
    let refused = until(503);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    for path in ["/live", "/ready", "/metrics"] {
        assert_eq!(admin.gets(path).status, 200, "{path}");
    }
    drop(slow);
    until(200);
}

#[test]
fn the_events_of_the_board_begin_with_the_whole_page() {
    let admin = full();
    let mut stream = TcpStream::connect(admin.handle.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /events?lock=lock:a/b&db=3 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    while !text.contains("\n\n") {
        let mut some = [0; 4096];
        let read = stream.read(&mut some).unwrap();
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&some[..read]));
    }
    assert!(text.contains("content-type: text/event-stream"), "{text}");
    for part in ["\"locks\":", "\"detail\":", "\"policies\":", "lock:a/b"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

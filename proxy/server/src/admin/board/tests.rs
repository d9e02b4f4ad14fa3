use super::asked::LARGE_LIST;
use super::page::{page, parts};
use super::parts::Pace;
use super::*;
use crate::text::numbers::percent;
use crate::view::api::{self, Hot, LockDetail, Locks, Overview, Report};

/// An ordinary lease.
pub(super) fn lock(key: &str) -> Lock {
    Lock {
        key: key.to_owned(),
        db: 0,
        namespace: "orders".to_owned(),
        state: api::LockState::Held,
        holder: Some(client("billing-7")),
        token: Some("9c1e0f11aa22bb33".to_owned()),
        fence: 43,
        since: NOW - 12_400,
        age_ms: 12_400,
        ttl_left_ms: Some(17_600),
        ttl_ms: Some(30_000),
        kept_alive: false,
        waiters: 2,
        seen: "acquire".to_owned(),
    }
}

/// Something that a client did.
pub(super) fn moment(event: &str, key: &str) -> Moment {
    Moment {
        at: NOW - 3_000,
        id: None,
        event: event.to_owned(),
        kind: None,
        overlap: false,
        namespace: "orders".to_owned(),
        mode: "enforce".to_owned(),
        key: key.to_owned(),
        db: 0,
        command: Some("DEL".to_owned()),
        operation: Some("release".to_owned()),
        client: Some(client("billing-3")),
        decision: None,
        reason: None,
        policy: None,
        detail: None,
        token: None,
        fence: None,
        ttl_ms: None,
        asked_ms: None,
        would_ttl_ms: None,
        held_ms: None,
    }
}

const NOW: u64 = 1_795_260_990_627;

fn client(application: &str) -> api::Client {
    api::Client {
        application: application.to_owned(),
        address: "127.0.0.1:51334".to_owned(),
        name: Some(application.to_owned()),
        user: None,
        library: Some("jedis 4.3".to_owned()),
    }
}

fn report(applications: Vec<api::Application>) -> Report {
    Report {
        patterns: Vec::new(),
        since: NOW - 60_000,
        now: NOW,
        namespaces: Vec::new(),
        applications,
        unclaimed_patterns: 0,
    }
}

fn verdict(words: &str) -> api::NamespaceReport {
    api::NamespaceReport {
        ran_out_while_held: 0,
        wanted_calls: 0,
        wanted_until: None,
        mixed: Vec::new(),
        namespace: words.to_owned(),
        mode: "monitor".to_owned(),
        operations: 1,
        refused: 0,
        would_refuse: 1,
        would_modify: 0,
        overlaps: 0,
        ran_out: 0,
        kept_alive: 0,
        tokenless_releases: 0,
        ungoverned: 0,
        without_ttl: 0,
        without_ttl_examples: Vec::new(),
        equal_values: 0,
        equal_values_examples: Vec::new(),
        ready: false,
        verdict: words.to_owned(),
    }
}

/// A proxy in front of a Redis that is there, and nobody holds a lock.
fn idle() -> Shown {
    Shown {
        overview: Overview {
            version: "0.1.0".to_owned(),
            started_at: NOW - 60_000,
            now: NOW,
            backend: api::Backend {
                address: "redis://127.0.0.1:6379".to_owned(),
                version: Some("7.0.15".to_owned()),
                up: true,
                problem: None,
            },
            namespaces: vec![api::Namespace {
                name: "orders".to_owned(),
                keys: vec!["lock:*".to_owned()],
                mode: "enforce".to_owned(),
                enforced_for_some: false,
                policies: vec!["owner-token".to_owned()],
                ceiling_ms: Some(60_000),
                held: 0,
                without_ttl: 0,
                ungoverned: 0,
                holds: api::Holds::default(),
                advice: None,
            }],
            policies: Vec::new(),
            totals: api::Totals::default(),
            unseen: 0,
        },
        locks: Locks {
            now: NOW,
            matching: 0,
            locks: Vec::new(),
        },
        detail: None,
        incidents: Vec::new(),
        refusals: Vec::new(),
        report: report(Vec::new()),
        hot: Hot {
            locks: Vec::new(),
            cycles: Vec::new(),
        },
        port: Some(6380),
    }
}

fn holding(locks: Vec<Lock>) -> Shown {
    let mut shown = idle();
    shown.locks.matching = locks.len() as u64;
    shown.locks.locks = locks;
    shown
}

fn asked(query: &str) -> Asked {
    Asked::of(&format!("/{query}").parse().unwrap()).unwrap()
}

fn text(shown: &Shown, query: &str) -> String {
    page(shown, &asked(query), "localhost:9180").into_string()
}

#[test]
fn an_idle_board_is_calm_and_says_what_to_try() {
    let text = text(&idle(), "");
    assert!(text.contains("Nothing needs attention."), "{text}");
    assert!(
        text.contains("redis-cli -p 6380 SET 'lock:try' me NX PX 30000"),
        "{text}"
    );
    assert!(text.contains("Nothing was refused"), "{text}");
}

#[test]
fn a_lock_is_shown_with_its_holder_its_age_and_its_fencing_token() {
    let text = text(&holding(vec![lock("lock:order:42")]), "");
    for part in [
        "lock:order:42",
        "billing-7",
        "127.0.0.1:51334",
        "tok#9c1e",
        "12.4 s",
        "17.6 s",
        "<progress max=\"30000\" value=\"17600\"",
        ">43<",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains("redis-cli"),
        "no example on a board that shows something"
    );
}

#[test]
fn whatever_a_client_chose_is_text() {
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    let mut lock = lock(evil);
    lock.holder = Some(client(evil));
    lock.namespace = evil.to_owned();
    let mut moment = moment(evil, evil);
    moment.id = Some(evil.to_owned());
    moment.reason = Some(evil.to_owned());
    moment.detail = Some(evil.to_owned());
    let usage = api::Usage {
        namespace: evil.to_owned(),
        mode: "monitor".to_owned(),
        operations: 1,
        acquired: 1,
        contended: 0,
        would_modify: 0,
        overlaps: 1,
        refusals: vec![api::Misuse {
            what: evil.to_owned(),
            count: 1,
            last: NOW,
            example: moment.clone(),
            advice: evil.to_owned(),
            patterns: vec![api::MisusedPattern {
                pattern: evil.to_owned(),
                key: evil.to_owned(),
                db: 0,
                count: 1,
                last: NOW,
                code: Some(evil.to_owned()),
                toml: None,
            }],
        }],
        findings: Vec::new(),
    };
    let mut shown = holding(vec![lock.clone()]);
    shown.overview.namespaces[0].name = evil.to_owned();
    shown.overview.namespaces[0].keys = vec![evil.to_owned()];
    shown.overview.backend.problem = Some(evil.to_owned());
    shown.detail = Some(LockDetail {
        key: evil.to_owned(),
        db: 0,
        namespace: evil.to_owned(),
        lock: Some(lock),
        timeline: vec![moment.clone()],
        waiters: vec![api::Waiter {
            client: client(evil),
            since: NOW,
            tries: 2,
        }],
        holds: api::Holds::default(),
        remarks: vec![evil.to_owned()],
    });
    shown.refusals = vec![moment];
    shown.incidents = vec![api::Incident {
        sentence: evil.to_owned(),
        application: Some(evil.to_owned()),
        did: evil.to_owned(),
        key: evil.to_owned(),
        db: 0,
        then: evil.to_owned(),
        holder: Some(evil.to_owned()),
        namespace: evil.to_owned(),
        reason: evil.to_owned(),
        decision: "deny".to_owned(),
        overlap: true,
        keys: 1,
        count: 1,
        last: NOW,
        id: Some(evil.to_owned()),
    }];
    shown.report = report(vec![api::Application {
        application: evil.to_owned(),
        libraries: vec![evil.to_owned()],
        connections: 1,
        ready: false,
        verdict: evil.to_owned(),
        namespaces: vec![usage],
    }]);
    let mut mixed = verdict(evil);
    mixed.mixed = vec![api::MixedFamily {
        way: evil.to_owned(),
        others: evil.to_owned(),
        patterns: vec![evil.to_owned()],
        toml: evil.to_owned(),
    }];
    shown.report.namespaces.push(mixed);
    shown.hot = Hot {
        locks: vec![api::HotLock {
            key: evil.to_owned(),
            db: 0,
            namespace: evil.to_owned(),
            tries: 3,
            error: 1,
            contended: 1,
        }],
        cycles: vec![api::Cycle {
            since: NOW,
            members: vec![api::CycleMember {
                client: client(evil),
                holds: evil.to_owned(),
                waits_for: evil.to_owned(),
            }],
        }],
    };
    let query = format!(
        "?lock={0}&contains={0}&namespace={0}&pattern={0}&application={0}",
        percent(evil)
    );
    let text = text(&shown, &query);
    assert_eq!(text.matches("<script").count(), 1, "the page's own: {text}");
    assert!(!text.contains("<img src=x"), "{text}");
    assert!(
        text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
        "{text}"
    );
    // No attribute can be left: in them, too, a quote is an entity.
    assert!(!text.contains("\"'>"), "{text}");
}

#[test]
fn a_part_is_written_the_same_while_only_time_goes_by() {
    let earlier = holding(vec![lock("lock:order:42")]);
    let mut later = holding(vec![lock("lock:order:42")]);
    later.overview.now += 1_000;
    later.locks.now += 1_000;
    later.locks.locks[0].age_ms += 1_000;
    later.locks.locks[0].ttl_left_ms = Some(16_600);
    let ask = asked("");
    let written = |shown: &Shown, pace| {
        parts(shown, &ask, "localhost", pace)
            .into_iter()
            .map(|(id, part)| (id, part.into_string()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        written(&earlier, Pace::Script),
        written(&later, Pace::Script)
    );
    assert_ne!(written(&earlier, Pace::Still), written(&later, Pace::Still));
}

#[test]
fn a_list_that_is_cut_says_so_and_offers_more() {
    let mut shown = holding(vec![lock("lock:a"); 200]);
    shown.locks.matching = 10_000;
    let text = text(&shown, "?namespace=orders");
    assert!(text.contains("These are 200 of 10,000"), "{text}");
    assert!(
        text.contains("/?namespace=orders&amp;limit=1000#locks"),
        "{text}"
    );
    assert!(
        text.contains("/api/v1/locks?namespace=orders&amp;limit=10000&amp;format=csv"),
        "{text}"
    );
}

#[test]
fn a_backend_that_is_down_stands_first_and_nothing_is_called_calm() {
    let mut shown = idle();
    shown.overview.backend.up = false;
    shown.overview.backend.problem = Some("cannot connect to the backend".to_owned());
    let text = text(&shown, "");
    assert!(text.contains("No client is served."), "{text}");
    assert!(text.contains("▲ down"), "{text}");
    assert!(!text.contains("Nothing needs attention"), "{text}");
}

#[test]
fn entries_that_nobody_saw_make_the_page_incomplete() {
    let mut shown = idle();
    shown.overview.unseen = 1_204;
    let text = text(&shown, "");
    assert!(
        text.contains("This page is incomplete: 1,204 entries"),
        "{text}"
    );
}

#[test]
fn a_query_is_understood_whoever_wrote_it() {
    let empty = asked("?namespace=&contains=&limit=200");
    assert_eq!(empty, asked(""));
    assert_eq!(empty.query(), "");
    let full = asked(
        "?namespace=a%26b&contains=x&pattern=lock%3A*&application=a&reason=not-owner&since=1h&problems=1&limit=99999&lock=lock%3Aa%2Fb&db=3",
    );
    assert_eq!(full.limit, LARGE_LIST);
    assert_eq!(
        full.query(),
        "?namespace=a%26b&contains=x&pattern=lock%3A%2A&application=a&problems=true&reason=not-owner&since=1h&limit=1000&lock=lock%3Aa%2Fb&db=3"
    );
    assert_eq!(asked(&full.query()), full);
    assert_eq!(
        full.refusals_query(Some("csv")),
        "?namespace=a%26b&contains=x&pattern=lock%3A%2A&application=a&reason=not-owner&since=1h&limit=10000&format=csv"
    );
    for mistake in ["db=x", "reason=no-owner", "since=yesterday", "pattern=%5Cq"] {
        let address = format!("/?{mistake}").parse().unwrap();
        assert!(Asked::of(&address).is_err(), "{mistake}");
    }
}

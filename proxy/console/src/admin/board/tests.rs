use lockwarden_control::text::numbers::percent;

use super::asked::LARGE_LIST;
use super::page::{page, parts};
use super::parts::Pace;
use super::*;
use crate::view::Format;
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

/// An event by a client.
pub(super) fn moment(event: &str, key: &str) -> Moment {
    Moment {
        at: NOW - 3_000,
        event: event.to_owned(),
        namespace: "orders".to_owned(),
        mode: "enforce".to_owned(),
        key: key.to_owned(),
        command: Some("DEL".to_owned()),
        operation: Some("release".to_owned()),
        client: Some(client("billing-3")),
        ..Moment::default()
    }
}

const NOW: u64 = 1_795_260_990_627;

fn client(application: &str) -> api::Client {
    api::Client {
        application: application.to_owned(),
        address: "127.0.0.1:51334".to_owned(),
        name: Some(application.to_owned()),
        library: Some("jedis 4.3".to_owned()),
        ..api::Client::default()
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
        hidden_processes: None,
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
        foretold: api::LockTime::default(),
        seen: api::LockTime::default(),
        without_ttl: 0,
        without_ttl_examples: Vec::new(),
        equal_values: 0,
        equal_values_examples: Vec::new(),
        ready: false,
        harm: None,
        against: Vec::new(),
        verdict: words.to_owned(),
    }
}

/// A proxy in front of a reachable Redis, without any held lock.
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
                primary_since: None,
                shards: Vec::new(),
                sentinels: None,
            },
            namespaces: vec![api::Namespace {
                name: "orders".to_owned(),
                keys: vec!["lock:*".to_owned()],
                mode: "enforce".to_owned(),
                enforced_for_some: false,
                harm: None,
                policies: vec!["owner-token".to_owned()],
                ceiling_ms: Some(60_000),
                held: 0,
                without_ttl: 0,
                unknown: 0,
                ungoverned: 0,
                quarantine: None,
                holds: api::Holds::default(),
                advice: None,
            }],
            policies: Vec::new(),
            totals: api::Totals::default(),
            unseen: 0,
            certificates_end: Default::default(),
        },
        locks: Locks { now: NOW, matching: 0, locks: Vec::new(), notices: Vec::new() },
        detail: None,
        incidents: Vec::new(),
        refusals: Vec::new(),
        lost: Vec::new(),
        guards: Vec::new(),
        report: report(Vec::new()),
        hot: Hot { locks: Vec::new(), cycles: Vec::new() },
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

fn guard(mode: &str, writes: &[(&str, u64)]) -> api::Guard {
    api::Guard {
        name: "stock".to_owned(),
        mode: mode.to_owned(),
        keys: vec!["stock:{id}".to_owned()],
        lock: vec!["lock:sale:{id}".to_owned()],
        unlocked: "refuse".to_owned(),
        proofs: Vec::new(),
        exempt: Vec::new(),
        writes: writes.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect(),
        unchecked: [("blocking".to_owned(), 0)].into(),
        again: 0,
    }
}

#[test]
fn what_an_alert_knows_is_among_the_first_sentences() {
    let mut shown = idle();
    let day = 86_400_000;
    shown.overview.certificates_end = [("[tls] cert".to_owned(), NOW + 3 * day)].into();
    let said = text(&shown, "");
    assert!(said.contains("The certificate of <code>[tls] cert</code> ends in 3 d: renew it."), "{said}");
    assert!(!said.contains("Nothing needs attention"));
    let mut shown = idle();
    let mut unchecked = guard("enforce", &[]);
    unchecked.unchecked = [("blocking".to_owned(), 2)].into();
    shown.guards = vec![unchecked];
    let said = text(&shown, "");
    let told = "2 writes could not be checked since the proxy was started: they were refused.";
    assert!(said.contains(told), "{said}");
}

#[test]
fn what_was_said_to_writes_of_guarded_data_is_shown_where_there_are_guards() {
    assert!(!text(&idle(), "").contains("Guarded data"));
    let writes = [("holder", 1_204), ("not-owner", 0), ("stale-fence", 3)];
    let mut shown = idle();
    shown.guards = vec![guard("enforce", &writes)];
    let page = text(&shown, "");
    for part in
        ["Guarded data", "stock:{id}", "lock:sale:{id}", "<small>stale-fence 3</small>", "<small>refused</small>"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("not-owner 0"), "what there was not: {page}");
    shown.guards = vec![guard("monitor", &writes)];
    let page = text(&shown, "");
    assert!(page.contains("let through, as in monitor mode"), "{page}");

    let mut moment = moment("refused", "lock:sale:7");
    moment.wrote = Some("stock:7".to_owned());
    moment.guard = Some("stock".to_owned());
    shown.refusals = vec![moment];
    let page = text(&shown, "");
    assert!(page.contains("guards <code dir=\"ltr\">stock:7</code>"), "{page}");
}

#[test]
fn an_idle_board_is_calm_and_says_what_to_try() {
    let text = text(&idle(), "");
    assert!(text.contains("Nothing needs attention."), "{text}");
    assert!(text.contains("redis-cli -p 6380 SET 'lock:try' me NX PX 30000"), "{text}");
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
        "12 s",
        "17 s",
        "<progress max=\"30000\" value=\"17600\"",
        ">43<",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("redis-cli"), "no example on a board that shows something");
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
        foretold: api::LockTime::default(),
        seen: api::LockTime::default(),
        lost_on: Vec::new(),
        overlaps: 1,
        refusals: vec![api::Misuse {
            what: evil.to_owned(),
            count: 1,
            last: NOW,
            example: moment.clone(),
            breaks: true,
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
        waiters: vec![api::Waiter { client: client(evil), since: NOW, tries: 2 }],
        holds: api::Holds::default(),
        remarks: vec![evil.to_owned()],
    });
    shown.lost = vec![moment.clone()];
    shown.refusals = vec![moment];
    shown.overview.backend.sentinels = Some(sentinels(evil));
    shown.overview.namespaces[0].quarantine = Some(api::Quarantine { until: Some(NOW), why: evil.to_owned() });
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
    let query = format!("?lock={0}&contains={0}&namespace={0}&pattern={0}&application={0}", percent(evil));
    let text = text(&shown, &query);
    assert_eq!(text.matches("<script").count(), 1, "the page's own: {text}");
    assert!(!text.contains("<img src=x"), "{text}");
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{text}");
    // No attribute can be ended: in attributes, too, a quote is written as an entity.
    assert!(!text.contains("\"'>"), "{text}");
}

/// Three sentinels: one names the primary, one names another server, one does not reply for this reason.
fn sentinels(problem: &str) -> api::Sentinels {
    let sentinel = |primary: Option<&str>, problem: Option<&str>| api::Sentinel {
        address: "10.0.0.7:26379".to_owned(),
        primary: primary.map(str::to_owned),
        epoch: primary.map(|_| 4),
        problem: problem.map(str::to_owned),
    };
    api::Sentinels {
        name: problem.to_owned(),
        primary: Some("10.0.0.2:6379".to_owned()),
        epoch: Some(4),
        heard: 2,
        known: 3,
        each: vec![
            sentinel(Some("10.0.0.2:6379"), None),
            sentinel(Some("10.0.0.1:6379"), None),
            sentinel(None, Some(problem)),
        ],
    }
}

#[test]
fn the_shards_of_a_cluster_stand_at_the_top_with_what_is_wrong_with_them() {
    let mut shown = idle();
    assert!(!text(&shown, "").contains("shard"), "there are none");
    let shard = |primary: &str, problem: Option<&str>| api::Shard {
        id: "0".to_owned(),
        primary: primary.to_owned(),
        slots: 5_461,
        version: Some("valkey 9.1.2".to_owned()),
        up: problem.is_none(),
        problem: problem.map(str::to_owned),
        primary_since: Some(NOW - 124_000),
    };
    let backend = &mut shown.overview.backend;
    backend.shards = vec![shard("10.0.0.1:6379", None), shard("10.0.0.2:6379", Some("<b>refused</b>"))];
    backend.problem = Some("shard 10.0.0.2:6379: refused".to_owned());
    let page = text(&shown, "");
    for part in [
        "2 shards <span class=\"bad\">▲ 1 not served</span>",
        "<b>10.0.0.1:6379</b>: 5,461 slots, valkey 9.1.2, primary for <b",
        "▲ not served: <bdi>&lt;b&gt;refused&lt;/b&gt;</bdi>",
        "A part of the cluster is not served. </b>shard 10.0.0.2:6379: refused",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("No client is served"), "{page}");
}

#[test]
fn the_primary_that_is_followed_and_what_each_sentinel_says_stand_at_the_top() {
    let mut shown = idle();
    assert!(!text(&shown, "").contains("sentinel"), "there are none");
    shown.overview.backend.primary_since = Some(NOW - 124_000);
    shown.overview.backend.sentinels = Some(sentinels("it did not answer within 500ms"));
    let heard = text(&shown, "");
    for part in [
        "primary <b>10.0.0.2:6379</b>",
        "heard <b>2 of 3 sentinels</b>",
        ">2 min 04 s</b>",
        "the primary is <b>10.0.0.1:6379</b> (epoch 4) <span class=\"warn\">not followed</span>",
        "not heard: <bdi>it did not answer within 500ms</bdi>",
    ] {
        assert!(heard.contains(part), "{part}: {heard}");
    }
    assert!(!heard.contains("might not be noticed"), "{heard}");
    let none = shown.overview.backend.sentinels.as_mut().unwrap();
    (none.heard, none.primary) = (0, None);
    let silent = text(&shown, "");
    for part in ["▲ a failover might not be noticed", "▲ none named"] {
        assert!(silent.contains(part), "{part}: {silent}");
    }
}

#[test]
fn what_a_failover_has_brought_about_is_read_first() {
    let mut unknown = lock("lock:order:42");
    unknown.state = api::LockState::Unknown;
    let mut shown = holding(vec![unknown]);
    shown.overview.totals.unknown = 1;
    shown.overview.totals.lost_last_day = 3;
    shown.overview.namespaces[0].quarantine =
        Some(api::Quarantine { until: Some(NOW + 60_000), why: "another server has become the primary".to_owned() });
    shown.incidents = vec![api::Incident {
        sentence: "billing-3 lost lock:a in the failover and works on without it".to_owned(),
        application: Some("billing-3".to_owned()),
        did: "lost".to_owned(),
        key: "lock:a".to_owned(),
        db: 0,
        then: " in the failover and works on without it".to_owned(),
        holder: None,
        namespace: "orders".to_owned(),
        reason: "lease-lost".to_owned(),
        decision: "lost".to_owned(),
        overlap: false,
        keys: 1,
        count: 1,
        last: NOW,
        id: Some("7F3K2A".to_owned()),
    }];
    shown.lost = vec![moment("lease-lost", "lock:a")];
    let text = text(&shown, "");
    for part in [
        "<span aria-hidden=\"true\">?</span> unknown since the failover",
        "unknown",
        "lost in failovers",
        "<bdi>orders</bdi> is in quarantine until 11:37:31 UTC: no free lock is granted, because another server",
        "<li class=\"bad\"><span class=\"names\">",
        " in the failover and works on without it",
        "Lost in failovers",
        "/api/v1/lost?",
        "Holder then",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    shown.overview.namespaces[0].quarantine =
        Some(api::Quarantine { until: None, why: "no sentinel is heard".to_owned() });
    let text = self::text(&shown, "");
    assert!(text.contains("is in quarantine without a known end: no free lock is granted"), "{text}");
}

#[test]
fn that_enforcing_harms_is_the_first_thing_that_is_said() {
    let mut shown = idle();
    shown.overview.unseen = 3;
    let namespace = &mut shown.overview.namespaces[0];
    (namespace.mode, namespace.harm) = ("enforce".to_owned(), Some("enforcing harms: x".to_owned()));
    let told = text(&shown, "");
    let first = "<ul class=\"notices\"><li class=\"bad\"><a href=\"/report\">Namespace <bdi>orders</bdi>: enforcing harms: x.</a> \
                 <code>lockwarden mode orders=monitor</code> takes it back.</li>";
    assert!(told.contains(first), "{told}");
    // The proxy has taken it back already.
    shown.overview.namespaces[0].mode = "monitor".to_owned();
    assert!(!text(&shown, "").contains("takes it back"));
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
        parts(shown, &ask, "localhost", pace).into_iter().map(|(id, part)| (id, part.into_string())).collect::<Vec<_>>()
    };
    assert_eq!(written(&earlier, Pace::Script), written(&later, Pace::Script));
    assert_ne!(written(&earlier, Pace::Still), written(&later, Pace::Still));
}

#[test]
fn a_list_that_is_cut_says_so_and_offers_more() {
    let mut shown = holding(vec![lock("lock:a"); 200]);
    shown.locks.matching = 10_000;
    let text = text(&shown, "?namespace=orders");
    assert!(text.contains("These are 200 of 10,000"), "{text}");
    assert!(text.contains("/?namespace=orders&amp;limit=1000#locks"), "{text}");
    assert!(text.contains("/api/v1/locks?namespace=orders&amp;limit=10000&amp;format=csv"), "{text}");
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
    assert!(text.contains("This page is incomplete: 1,204 entries"), "{text}");
}

#[test]
fn a_query_is_understood_whoever_wrote_it() {
    let empty = asked("?namespace=&contains=&limit=200");
    assert_eq!(empty, asked(""));
    assert_eq!(empty.query(), "");
    let full = asked(
        "?namespace=a%26b&contains=x&pattern=lock%3A*&application=a&reason=not-owner&since=1h&problems=1&limit=99999&lock=lock%3Aa%2Fb&db=3",
    );
    assert_eq!(full.limit, Some(LARGE_LIST));
    assert_eq!(
        full.query(),
        "?namespace=a%26b&contains=x&pattern=lock%3A*&application=a&problems=true&reason=not-owner&since=1h&limit=1000&lock=lock%3Aa%2Fb&db=3"
    );
    assert_eq!(asked(&full.query()), full);
    assert_eq!(
        full.refusals_query(Format::Csv),
        "?namespace=a%26b&contains=x&pattern=lock%3A*&application=a&reason=not-owner&since=1h&limit=10000&format=csv"
    );
    for mistake in ["db=x", "reason=no-owner", "since=yesterday", "pattern=%5Cq"] {
        let address = format!("/?{mistake}").parse().unwrap();
        assert!(Asked::of(&address).is_err(), "{mistake}");
    }
}

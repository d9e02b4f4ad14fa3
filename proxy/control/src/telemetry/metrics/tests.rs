use std::collections::{BTreeMap, BTreeSet};

use lockwarden_lock::decision::{FaultKind, Operation};
use lockwarden_lock::reason::Reason;

use super::declaration::MetricDoc;
use crate::telemetry::vocabulary::{CertificateRole, DecisionKind, DurabilityResult, HoldEnd, NextAnswer, PolicyMode};

use super::*;
use page::catalogue;

mod page;

const BUILD: BuildInfo<'static> =
    BuildInfo { version: "0.1.0", revision: "unknown", wasmtime: "48.0.8", policy_abi: "lockwarden:policy@1.0" };

fn metrics(namespaces: &[(&str, ModeLabel)]) -> Arc<Metrics> {
    Metrics::new(BUILD, namespaces, 30).unwrap()
}

fn page(metrics: &Metrics) -> String {
    String::from_utf8(metrics.render()).unwrap()
}

/// The value of the series that is spelled exactly so, if it is on the page.
fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    page(metrics).lines().find_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        (name == series).then(|| value.parse().unwrap())
    })
}

fn series_count(metrics: &Metrics) -> usize {
    page(metrics).lines().filter(|line| !line.starts_with('#')).count()
}

/// Does everything once that can be counted.
fn touch_everything(metrics: &Metrics) {
    metrics.set_mirror(Box::new(|| {
        vec![NamespaceMirror {
            name: "orders".into(),
            held_finite: 3,
            held_none: 1,
            oldest_unix_seconds: Some(1_700_000_000.5),
            waiting: 2,
            enforced: true,
            harms: true,
            unknown: 1,
            quarantine_until: 0,
        }]
    }));
    metrics.config_loaded(1_700_000_000.0);
    metrics.set_config_hash("3b1f00112233");
    let at = std::time::SystemTime::now();
    metrics.tls.ends(Side::Client, CertificateRole::Own, Some(at));
    let policy = PolicyInfo {
        name: "owner-token",
        version: "1.0.0",
        digest: "3b1f00112233445566778899",
        mode: PolicyMode::Enforce,
    };
    metrics.set_policies(&[policy]).unwrap();
    let owner_token = metrics.policy("owner-token");
    owner_token.evaluation.observe(800e-9);
    owner_token.failures.at(FaultKind::Fuel).inc();
    let used = PolicyUse { calls: 1, fuel: 1183, memory_bytes: 65_536, open_breakers: 1 };
    metrics.policies_used(&[("owner-token".into(), used)]);
    let orders = metrics.namespace(0);
    orders.hold_duration.at(HoldEnd::Released).observe(0.7);
    orders.decision(Operation::Acquire, DecisionKind::Allow, None, "", ModeLabel::Enforce);
    orders.durability(DurabilityResult::Enough);
    orders.answered_beside(NextAnswer::Same);
    orders.set_rules(["hours"].into_iter());
    metrics.set_guards(["stock"].into_iter()).expect("a guard");
}

#[test]
fn the_page_and_the_catalogue_name_the_same_metrics() {
    let metrics = metrics(&[("orders", ModeLabel::Enforce)]);
    touch_everything(&metrics);
    let families = metrics.gather();
    metrics.render();

    let documented: BTreeMap<&str, MetricDoc> = catalogue().into_iter().map(|doc| (doc.name, doc)).collect();
    assert_eq!(documented.len(), catalogue().len(), "a name is documented twice");
    let shown: BTreeSet<String> = metrics.gather().iter().map(|f| f.name().to_owned()).collect();
    for name in documented.keys() {
        assert!(shown.contains(*name), "{name} is documented and not on the page");
    }
    for family in &families {
        if family.name().starts_with("process_") {
            continue;
        }
        let doc = documented.get(family.name()).expect("on the page and not documented");
        assert_eq!(family.help(), doc.help);
        let labels: BTreeSet<&str> = doc.labels.iter().map(|(label, _)| *label).collect();
        for series in family.get_metric() {
            let shown: BTreeSet<&str> = series.get_label().iter().map(|l| l.name()).collect();
            assert_eq!(shown, labels, "{}", family.name());
        }
    }
    let page = page(&metrics);
    for doc in catalogue() {
        let types = format!("# TYPE {} {}\n", doc.name, doc.kind);
        assert!(page.contains(&types), "{types}");
        assert!(page.contains(&format!("# HELP {} ", doc.name)), "{}", doc.name);
    }
    assert_eq!(page.matches("# TYPE lockwarden_decisions_total ").count(), 1);
}

#[test]
fn nothing_that_identifies_a_client_or_a_lock_is_a_label() {
    let forbidden = ["key", "token", "fence", "addr", "address", "client", "user", "sha", "lock"];
    for doc in catalogue() {
        for (label, _) in doc.labels {
            assert!(!forbidden.contains(&label), "{} has {label}", doc.name);
        }
    }
}

#[test]
fn series_that_alerts_need_are_there_at_zero() {
    let metrics = metrics(&[("orders", ModeLabel::Enforce), ("stock", ModeLabel::Monitor)]);
    for series in [
        r#"lockwarden_lock_overlaps_total{namespace="orders"}"#,
        r#"lockwarden_decisions_total{decision="deny",mode="enforce",namespace="orders",operation="release",policy="owner-token",reason="not-owner"}"#,
        r#"lockwarden_decisions_total{decision="deny",mode="enforce",namespace="orders",operation="extend",policy="fencing",reason="stale-fence"}"#,
        r#"lockwarden_decisions_total{decision="would-deny",mode="monitor",namespace="stock",operation="release",policy="owner-token",reason="not-owner"}"#,
        r#"lockwarden_decisions_total{decision="allow",mode="enforce",namespace="orders",operation="acquire",policy="",reason=""}"#,
        r#"lockwarden_lock_expired_while_held_total{namespace="stock"}"#,
        r#"lockwarden_locks_held{namespace="orders",ttl="none"}"#,
        r#"lockwarden_lock_acquires_total{namespace="orders",outcome="contended"}"#,
        r#"lockwarden_lock_waiters{namespace="orders"}"#,
        r#"lockwarden_lock_wait_duration_seconds_count{namespace="orders"}"#,
        r#"lockwarden_lock_remaining_ttl_ratio_bucket{namespace="orders",le="0.05"}"#,
        r#"lockwarden_lock_bypass_total{namespace="orders"}"#,
        r#"lockwarden_backend_up{backend="default"}"#,
        r#"lockwarden_label_overflow_total{label="namespace"}"#,
        r#"lockwarden_config_last_reload_successful"#,
        r#"lockwarden_added_latency_seconds_bucket{path="policy",le="+Inf"}"#,
        r#"lockwarden_commands_total{class="passthrough",result="ok"}"#,
    ] {
        assert_eq!(value(&metrics, series), Some(0.0), "{series}");
    }
    metrics
        .set_policies(&[PolicyInfo { name: "fencing", version: "1.0.0", digest: "aa", mode: PolicyMode::Mixed }])
        .unwrap();
    let failures = r#"lockwarden_policy_failures_total{kind="trap",policy="fencing"}"#;
    assert_eq!(value(&metrics, failures), Some(0.0));
}

#[test]
fn the_oldest_lock_is_absent_while_none_is_held() {
    let series = r#"lockwarden_oldest_lock_acquired_timestamp_seconds{namespace="orders"}"#;
    let held = r#"lockwarden_locks_held{namespace="orders",ttl="finite"}"#;
    let metrics = metrics(&[("orders", ModeLabel::Enforce)]);
    assert_eq!(value(&metrics, series), None);
    touch_everything(&metrics);
    assert_eq!(value(&metrics, series), Some(1_700_000_000.5));
    assert_eq!(value(&metrics, held), Some(3.0));
    metrics.set_mirror(Box::new(Vec::new));
    assert_eq!(value(&metrics, series), None);
    assert_eq!(value(&metrics, held), Some(0.0));
}

#[test]
fn a_reload_keeps_the_numbers_of_names_that_stay_and_drops_the_others() {
    let metrics = metrics(&[("orders", ModeLabel::Enforce), ("stock", ModeLabel::Enforce)]);
    metrics.namespace(0).overlaps.inc();
    metrics.namespace(1).overlaps.inc();
    let kept = metrics.namespace(0);
    metrics.set_namespaces(&[("pay", ModeLabel::Monitor), ("orders", ModeLabel::Monitor)]).unwrap();
    assert!(Arc::ptr_eq(&metrics.namespace(1), &kept), "the index follows the configuration");
    kept.overlaps.inc();
    let overlaps = |name: &str| value(&metrics, &format!(r#"lockwarden_lock_overlaps_total{{namespace="{name}"}}"#));
    assert_eq!(overlaps("orders"), Some(2.0));
    assert_eq!(overlaps("pay"), Some(0.0));
    assert_eq!(overlaps("stock"), None);
    let would_deny = r#"lockwarden_decisions_total{decision="would-deny",mode="monitor",namespace="orders",operation="release",policy="owner-token",reason="not-owner"}"#;
    assert_eq!(value(&metrics, would_deny), Some(0.0), "the new mode's series are there");
}

#[test]
fn refusals_are_counted_where_they_belong() {
    let metrics = metrics(&[("orders", ModeLabel::Enforce)]);
    let orders = metrics.namespace(0);
    for _ in 0..3 {
        orders.decision(
            Operation::Release,
            DecisionKind::Deny,
            Some(Reason::NotOwner),
            "owner-token",
            ModeLabel::Enforce,
        );
    }
    orders.decision(Operation::Acquire, DecisionKind::Deny, Some(Reason::Other), "team-a-naming", ModeLabel::Enforce);
    let not_owner = r#"lockwarden_decisions_total{decision="deny",mode="enforce",namespace="orders",operation="release",policy="owner-token",reason="not-owner"}"#;
    let naming = r#"lockwarden_decisions_total{decision="deny",mode="enforce",namespace="orders",operation="acquire",policy="team-a-naming",reason="other"}"#;
    assert_eq!(value(&metrics, not_owner), Some(3.0));
    assert_eq!(value(&metrics, naming), Some(1.0));
}

#[test]
fn ten_thousand_namespaces_and_every_refusal_stay_under_six_thousand_series() {
    let names: Vec<String> = (0..10_000).map(|n| format!("ns-{n}")).collect();
    let namespaces = |mode| names.iter().map(|n| (n.as_str(), mode)).collect::<Vec<_>>();
    let metrics = metrics(&namespaces(ModeLabel::Monitor));
    metrics.set_namespaces(&namespaces(ModeLabel::Enforce)).unwrap();
    let policies: Vec<PolicyInfo<'_>> = names
        .iter()
        .take(100)
        .map(|name| PolicyInfo { name, version: "1", digest: "0", mode: PolicyMode::Unused })
        .collect();
    metrics.set_policies(&policies).unwrap();
    metrics.set_mirror(Box::new(|| {
        (0..10_000)
            .map(|index| NamespaceMirror {
                name: format!("ns-{index}").into(),
                held_finite: 1,
                held_none: 0,
                oldest_unix_seconds: Some(index as f64 + 1.0),
                waiting: 1,
                enforced: false,
                ..NamespaceMirror::default()
            })
            .collect()
    }));
    let kinds = [
        (DecisionKind::Allow, ModeLabel::Enforce),
        (DecisionKind::Allow, ModeLabel::Monitor),
        (DecisionKind::Modify, ModeLabel::Enforce),
        (DecisionKind::Modify, ModeLabel::Monitor),
        (DecisionKind::Deny, ModeLabel::Enforce),
        (DecisionKind::Deny, ModeLabel::Monitor),
        (DecisionKind::WouldDeny, ModeLabel::Enforce),
        (DecisionKind::WouldDeny, ModeLabel::Monitor),
        (DecisionKind::WouldModify, ModeLabel::Monitor),
    ];
    for index in (0..40).chain([9_999, 20_000]) {
        let namespace = metrics.namespace(index);
        for operation in Operation::ALL {
            let gives_a_ttl = matches!(operation, Operation::Acquire | Operation::Extend | Operation::TakeOver);
            for (kind, mode) in kinds {
                // Only what gives a lease its TTL can have another one than asked for.
                if !gives_a_ttl && matches!(kind, DecisionKind::Modify | DecisionKind::WouldModify) {
                    continue;
                }
                for reason in Reason::ALL {
                    namespace.decision(operation, kind, Some(reason), "team-a", mode);
                }
            }
        }
    }
    let count = series_count(&metrics);
    assert!(count < 6_000, "{count} series");
    for label in ["namespace", "policy", "decision"] {
        let series = format!(r#"lockwarden_label_overflow_total{{label="{label}"}}"#);
        assert!(value(&metrics, &series) > Some(0.0), "{series}");
    }
    let folded = r#"lockwarden_locks_held{namespace="__other__",ttl="finite"}"#;
    assert_eq!(value(&metrics, folded), Some(9_970.0));
    let waiters = r#"lockwarden_lock_waiters{namespace="__other__"}"#;
    assert_eq!(value(&metrics, waiters), Some(9_970.0));
    let oldest = r#"lockwarden_oldest_lock_acquired_timestamp_seconds{namespace="__other__"}"#;
    assert_eq!(value(&metrics, oldest), Some(31.0));
    let lost = r#"lockwarden_decisions_total{decision="deny",mode="enforce",namespace="ns-0",operation="__other__",policy="__other__",reason="__other__"}"#;
    assert!(value(&metrics, lost) > Some(0.0), "what has no room is still counted");
}

#[test]
fn what_each_thread_counts_is_added_up() {
    let metrics = metrics(&[]);
    let tallies = [metrics.tally(), metrics.tally()];
    for tally in [0, 1, 0, 0, 1].map(|place: usize| &tallies[place]) {
        tally.command(CommandClass::PassThrough, CommandResult::Ok);
    }
    tallies[1].command(CommandClass::Policy, CommandResult::Denied);
    tallies[0].received(60);
    tallies[1].received(40);
    tallies[1].sent(7);
    metrics.render();
    for (series, expected) in [
        (r#"lockwarden_commands_total{class="passthrough",result="ok"}"#, 5.0),
        (r#"lockwarden_commands_total{class="policy",result="denied"}"#, 1.0),
        (r#"lockwarden_client_bytes_total{direction="in"}"#, 100.0),
        (r#"lockwarden_client_bytes_total{direction="out"}"#, 7.0),
    ] {
        assert_eq!(value(&metrics, series), Some(expected), "{series}");
    }
}

#[test]
fn a_policy_name_cannot_break_the_page() {
    let metrics = metrics(&[("a\"b\\c\nd", ModeLabel::Enforce)]);
    metrics.namespace(0).overlaps.inc();
    let series = r#"lockwarden_lock_overlaps_total{namespace="a\"b\\c\nd"}"#;
    assert_eq!(value(&metrics, series), Some(1.0));
}

#[test]
fn the_documentation_is_this_catalogue() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = page::markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page, "docs/metrics.md is old: UPDATE_DOCS=1 cargo test -p lockwarden-control metrics");
}

#[test]
fn what_policies_used_is_shown_by_name_and_the_rest_together() {
    let metrics = metrics(&[]);
    metrics
        .set_policies(&[PolicyInfo { name: "fencing", version: "1.0.0", digest: "aa", mode: PolicyMode::Enforce }])
        .unwrap();
    let used = |calls, memory_bytes| PolicyUse { calls, fuel: 10 * calls, memory_bytes, open_breakers: 2 };
    for calls in [3, 5] {
        metrics.policies_used(&[("fencing".into(), used(calls, 100)), ("gone".into(), used(9, 7))]);
    }
    for (series, expected) in [
        (r#"lockwarden_policy_calls_total{policy="fencing"}"#, 5.0),
        (r#"lockwarden_policy_fuel_consumed_total{policy="fencing"}"#, 50.0),
        (r#"lockwarden_policy_memory_bytes{policy="fencing"}"#, 100.0),
        (r#"lockwarden_policy_open_breakers{policy="fencing"}"#, 2.0),
    ] {
        assert_eq!(value(&metrics, series), Some(expected), "{series}");
    }
}

#[test]
fn the_runtime_is_asked_when_the_page_is_made() {
    let metrics = metrics(&[]);
    assert_eq!(value(&metrics, "lockwarden_runtime_workers"), Some(0.0));
    let runtimes = [(); 2].map(|()| tokio::runtime::Builder::new_current_thread().build().unwrap());
    metrics.set_runtimes(runtimes.each_ref().map(|one| one.handle().clone()).into());
    for runtime in &runtimes {
        runtime.block_on(async { tokio::spawn(async {}).await.unwrap() });
    }
    assert_eq!(value(&metrics, "lockwarden_runtime_workers"), Some(2.0));
    assert!(value(&metrics, "lockwarden_runtime_busy_seconds_total") > Some(0.0));
}

#[test]
fn redirections_are_counted_by_kind() {
    let metrics = metrics(&[]);
    metrics.redirected(Redirects { moved: 2, ask: 1 });
    metrics.sent_on(Redirects { moved: 1, ask: 2 });
    for (kind, count) in [("moved", 2.0), ("ask", 1.0)] {
        let series = format!(r#"lockwarden_backend_redirects_total{{kind="{kind}"}}"#);
        assert_eq!(value(&metrics, &series), Some(count));
    }
}

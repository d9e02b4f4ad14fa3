//! Errors in a PromQL expression, as far as the catalogue of metrics shows them: series and labels that do not
//! exist, counters without a rate. It reads the expressions of this repository, not all of PromQL.

use std::collections::{BTreeMap, BTreeSet};

use super::read;

/// Series that are Prometheus's own, or those of every process.
const FOREIGN: [&str; 7] = [
    "ALERTS",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "scrape_samples_scraped",
    "up",
];

/// A metric of the catalogue.
pub(super) struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

/// A use of a series in an expression: its name, the labels it is chosen by, what stands before it.
pub(super) struct Selector {
    name: String,
    pub(super) labels: BTreeSet<String>,
    before: String,
}

/// docs/metrics.md; a test of the proxy sees to it that the page is what the proxy exports.
pub(super) fn catalogue() -> BTreeMap<String, Metric> {
    let page = read("docs/metrics.md");
    let sections = page.split("\n### `").skip(1);
    let metrics: BTreeMap<String, Metric> = sections
        .filter(|section| section.starts_with("lockwarden_"))
        .map(|section| {
            let (name, rest) = section.split_once('`').expect("a name ends");
            let kind = rest.trim_start().split('.').next().expect("a kind");
            let labels = rest
                .lines()
                .take_while(|line| !line.starts_with('#'))
                .filter_map(|line| line.strip_prefix("- `")?.split('`').next());
            let metric = Metric { kind: kind.to_owned(), labels: labels.map(str::to_owned).collect() };
            (name.to_owned(), metric)
        })
        .collect();
    assert!(metrics.len() > 30, "docs/metrics.md is read wrongly");
    metrics
}

pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Every series that an expression names.
pub(super) fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = expression[at..].find(|c: char| c.is_ascii_alphabetic()) {
        let start = at + start;
        let end = expression[start..].find(|c| !is_word(c)).map_or(expression.len(), |length| start + length);
        let name = &expression[start..end];
        at = end;
        if expression[end..].starts_with('{') {
            let close = end + expression[end..].find('}').expect("a closing brace");
            let matchers = &expression[end + 1..close];
            let names = matchers.split(", ").filter(|matcher| !matcher.is_empty());
            let labels = names.map(|matcher| {
                let length = matcher.find(|c| !is_word(c)).unwrap_or(matcher.len());
                matcher[..length].to_owned()
            });
            found.push(Selector {
                name: name.to_owned(),
                labels: labels.collect(),
                before: expression[..start].to_owned(),
            });
            at = close + 1;
        } else if name.starts_with("lockwarden_") || FOREIGN.contains(&name) {
            found.push(Selector {
                name: name.to_owned(),
                labels: BTreeSet::new(),
                before: expression[..start].to_owned(),
            });
        } else if expression[end..].starts_with('"') {
            at = end + 1;
        }
    }
    found
}

/// The labels that a `by (…)` keeps.
fn kept_labels(expression: &str) -> BTreeSet<String> {
    let lists = expression.split("by (").skip(1);
    let names = lists.flat_map(|rest| rest.split(')').next().unwrap_or_default().split(", "));
    names.map(str::to_owned).collect()
}

/// The errors in the series that an expression names.
pub(super) fn faults(expression: &str, metrics: &BTreeMap<String, Metric>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut known: BTreeSet<String> = ["job", "instance", "le"].map(str::to_owned).into();
    for selector in selectors(expression) {
        let name = selector.name.as_str();
        if name.contains(':') || FOREIGN.contains(&name) {
            known.extend(["namespace", "sink", "path"].map(str::to_owned));
            continue;
        }
        let parts = ["_bucket", "_sum", "_count"];
        let base = parts.iter().find_map(|part| name.strip_suffix(part));
        let histogram = base.filter(|base| metrics.get(*base).is_some_and(|m| m.kind == "histogram"));
        let Some(metric) = metrics.get(histogram.unwrap_or(name)) else {
            faults.push(format!("{name} is not in the catalogue"));
            continue;
        };
        if (metric.kind == "histogram") != histogram.is_some() {
            faults.push(format!("{name} is a histogram: name its buckets, sum or count"));
        }
        let counts = metric.kind == "counter" || histogram.is_some();
        let rated = ["rate(", "increase(", "changes("].iter().any(|f| selector.before.ends_with(f));
        // The value of a counter may be asked for where the age of its process is asked, too.
        if counts && !rated && !expression.contains("process_start_time_seconds") {
            faults.push(format!("{name} only grows: ask for its rate or increase"));
        }
        if !counts && rated && !selector.before.ends_with("changes(") {
            faults.push(format!("{name} is a gauge: it has no rate"));
        }
        known.extend(metric.labels.iter().cloned());
        for label in &selector.labels {
            if !metric.labels.contains(label) && !["job", "instance", "le"].contains(&label.as_str()) {
                faults.push(format!("{name} has no label {label}"));
            }
        }
    }
    for label in kept_labels(expression).difference(&known) {
        faults.push(format!("by ({label}): no series has that label"));
    }
    faults
}

#[test]
fn the_linter_sees_what_it_is_there_for() {
    let metrics = catalogue();
    for (expression, fault) in [
        ("lockwarden_nothing{job=~\"$job\"}", "not in the catalogue"),
        ("lockwarden_locks_held{key=\"a\"}", "has no label key"),
        ("sum by (reason) (lockwarden_locks_held)", "no series has that label"),
        ("sum(lockwarden_lock_overlaps_total)", "only grows"),
        ("rate(lockwarden_locks_held[5m])", "is a gauge"),
        ("lockwarden_added_latency_seconds", "is a histogram"),
        ("rate(lockwarden_lock_overlaps_total_count[5m])", "not in the catalogue"),
    ] {
        let found = faults(expression, &metrics).join("\n");
        assert!(found.contains(fault), "{expression}: {found:?}");
    }
    let sound = "sum by (namespace) (rate(lockwarden_lock_acquires_total{outcome=\"contended\"}[5m])) > 0";
    assert_eq!(faults(sound, &metrics), Vec::<String>::new());
}

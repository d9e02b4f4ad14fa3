//! The files of `grafana/` and the runbooks, as files: that they fit each other, and the metrics of
//! docs/metrics.md. `grafana_live.rs` runs them.

mod linter;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockwarden_tests::{installed, run_to_end};
use serde_json::Value;

use linter::{catalogue, faults, is_word, selectors};

/// Units of Grafana that the dashboard may use.
const UNITS: [&str; 8] = ["Bps", "bytes", "none", "ops", "percentunit", "s", "short", "bool"];

/// An alert of the rules.
#[derive(Default)]
struct Alert {
    name: String,
    expression: String,
    rest: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/dashboards/lockwarden.json")).expect("JSON")
}

/// The panels of a row that is folded stand inside it.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let top: Vec<&Value> = dashboard["panels"].as_array().expect("panels").iter().collect();
    let inner = top.iter().flat_map(|panel| panel["panels"].as_array().into_iter().flatten());
    let inner: Vec<&Value> = inner.collect();
    top.into_iter().chain(inner).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn expressions(panel: &Value) -> impl Iterator<Item = &str> {
    let targets = panel["targets"].as_array().into_iter().flatten();
    targets.map(|target| text(target, "expr"))
}

/// The alerts of the file, read by its form: keys stand alone on their lines.
fn alerts() -> Vec<Alert> {
    let file = read("grafana/prometheus/alerts.rules.yml");
    let mut alerts: Vec<Alert> = Vec::new();
    let mut in_expression = false;
    for line in file.lines() {
        let word = line.trim();
        if let Some(name) = word.strip_prefix("- alert: ") {
            alerts.push(Alert { name: name.to_owned(), ..Alert::default() });
        }
        let Some(alert) = alerts.last_mut() else {
            continue;
        };
        if let Some(expression) = word.strip_prefix("expr:") {
            in_expression = true;
            alert.expression.push_str(expression.trim_start_matches([' ', '|']));
        } else if word.starts_with("for:") || word.starts_with("labels:") {
            in_expression = false;
        } else if in_expression {
            alert.expression.push(' ');
            alert.expression.push_str(word);
        }
        if !in_expression {
            alert.rest.push_str(word);
            alert.rest.push('\n');
        }
    }
    assert_eq!(alerts.len(), 40, "alerts.rules.yml is read wrongly");
    alerts
}

#[test]
fn the_dashboard_is_what_its_generator_writes() {
    // Where `.ci/setup.sh --tests` installs Grafana's SDK.
    let python = repository().join("target/grafana/bin/python");
    if !installed(&[&python.to_string_lossy()]) {
        return;
    }
    let generator = repository().join("grafana/generate.py");
    let checked = run_to_end(Command::new(python).arg(generator).arg("--check"));
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
}

#[test]
fn every_panel_has_a_place_of_its_own_a_unit_and_words() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut places: BTreeMap<(u64, u64), String> = BTreeMap::new();
    for panel in panels(&dashboard) {
        let title = text(panel, "title").to_owned();
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is another's");
        let of = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(of("w") > 0 && of("h") > 0 && of("x") + of("w") <= 24, "{title} is too wide");
        for x in of("x")..of("x") + of("w") {
            for y in of("y")..of("y") + of("h") {
                if let Some(other) = places.insert((x, y), title.clone()) {
                    panic!("{title} lies on {other}");
                }
            }
        }
        if text(panel, "type") == "row" {
            continue;
        }
        assert!(text(panel, "description").len() > 10, "{title} does not say what it shows");
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or_default();
        assert!(UNITS.contains(&unit), "{title}: Grafana has no unit {unit}");
        assert!(expressions(panel).count() > 0, "{title} asks for nothing");
        let links = |within: &Value| {
            let links = within["links"].as_array().into_iter().flatten();
            links.filter(|link| text(link, "url").starts_with("${board}/")).count()
        };
        let by_namespace = |wanted: &str| expressions(panel).any(|asked| asked.contains(wanted));
        assert!(!by_namespace("$namespace") || links(panel) > 0, "{title} does not lead to the board");
        assert!(
            !by_namespace("by (namespace)") || links(&panel["fieldConfig"]["defaults"]) > 0,
            "{title} does not lead from a namespace to the board"
        );
    }
    assert_eq!(text(&dashboard, "uid"), "lockwarden-locks", "links and runbooks name it");
}

#[test]
fn panels_and_alerts_ask_for_what_the_proxy_exports() {
    let metrics = catalogue();
    let dashboard = dashboard();
    let mut faulty = Vec::new();
    for panel in panels(&dashboard) {
        for expression in expressions(panel) {
            for fault in faults(expression, &metrics) {
                faulty.push(format!("panel {}: {fault}", text(panel, "title")));
            }
            let scoped =
                selectors(expression).iter().all(|s| s.labels.contains("job") && s.labels.contains("instance"));
            assert!(scoped, "{expression} does not follow the variables");
        }
    }
    for alert in alerts() {
        for fault in faults(&alert.expression, &metrics) {
            faulty.push(format!("alert {}: {fault}", alert.name));
        }
    }
    assert!(faulty.is_empty(), "{}", faulty.join("\n"));
}

#[test]
fn every_alert_has_words_a_severity_a_runbook_and_tests() {
    let alerts = alerts();
    let mut cases: BTreeMap<String, [u32; 2]> = BTreeMap::new();
    for file in ["locks.yml", "proxy.yml"] {
        let tests = read(&format!("grafana/prometheus/tests/{file}"));
        let mut name = "";
        for line in tests.lines().map(str::trim) {
            if let Some(tested) = line.strip_prefix("alertname: ") {
                name = tested;
            } else if let Some(expected) = line.strip_prefix("exp_alerts:") {
                let silent = usize::from(expected.trim() == "[]");
                cases.entry(name.to_owned()).or_default()[silent] += 1;
            }
        }
    }
    for alert in &alerts {
        let name = &alert.name;
        for key in ["summary: ", "description: ", "runbook_url: ", "dashboard_url: ", "board_url: "] {
            assert!(alert.rest.contains(key), "{name} has no {key}");
        }
        assert!(alert.rest.contains(&format!("/{name}.md'")), "{name} leads to another runbook");
        let numbers = alert.rest.split("{{").filter(|part| part.contains("$value"));
        for number in numbers {
            let whole = [" printf \"%.0f\" $value }}", " $value | humanizeDuration }}"];
            assert!(whole.iter().any(|words| number.starts_with(words)), "{name} says {number}");
        }
        let severities = ["critical", "warning", "info"];
        assert!(
            severities.iter().any(|word| alert.rest.contains(&format!("severity: {word}\n"))),
            "{name} has no severity"
        );
        let [fires, silent] = cases.get(name).copied().unwrap_or_default();
        assert!(fires > 0 && silent > 0, "{name} is tested {fires} times firing, {silent} times silent");
        let page = read(&format!("docs/runbooks/{name}.md"));
        let severity = severities.iter().find(|word| page.to_lowercase().contains(&format!("\n\n{word}. ")));
        // Of a warning there may be a second rule: for namespaces that are only watched, or for when it is urgent.
        let only_watched = ["(lockwarden_namespace_enforced) == 0)", "would-deny"]
            .iter()
            .any(|words| alert.expression.contains(words))
            && !alert.expression.contains("unless")
            && page.contains("it is info.");
        assert!(
            severity.is_some_and(|word| alert.rest.contains(&format!("severity: {word}\n")))
                || only_watched && alert.rest.contains("severity: info\n")
                || page.contains("it is critical.") && alert.rest.contains("severity: critical\n"),
            "{name}: the page and the rule disagree about the severity"
        );
        let (_, look) = page.split_once("\n## First look\n\n").unwrap_or_default();
        let before = look.split("```\n").next().unwrap_or_default();
        assert!(
            before.lines().filter(|line| !line.is_empty()).count() <= 1,
            "{name}.md does not begin with the command that answers"
        );
        for heading in ["What it means", "First look", "Likely causes", "What to do", "False alarms"] {
            assert!(page.contains(&format!("\n## {heading}\n\n")), "{name}.md has no {heading:?}");
        }
    }
    let names: BTreeSet<String> = alerts.into_iter().map(|alert| alert.name).collect();
    let pages = fs::read_dir(repository().join("docs/runbooks")).expect("the directory of runbooks");
    let pages: BTreeSet<String> = pages
        .filter_map(|page| page.ok()?.file_name().to_str()?.strip_suffix(".md").map(str::to_owned))
        .filter(|page| page != "README")
        .collect();
    assert_eq!(pages, names, "a page for each alert, and no other");
    let index = read("docs/runbooks/README.md");
    for name in names {
        assert!(index.contains(&format!("[{name}]({name}.md)")), "the index lacks {name}");
    }
}

/// Runbooks say what to type; the metrics in it must exist.
#[test]
fn runbooks_name_metrics_that_there_are() {
    let metrics = catalogue();
    for entry in fs::read_dir(repository().join("docs/runbooks")).expect("the directory of runbooks") {
        let path = entry.expect("an entry").path();
        let page = fs::read_to_string(&path).expect("a page");
        for word in page.split(|c: char| !is_word(c)).filter(|word| word.ends_with("_total")) {
            assert!(
                metrics.contains_key(word) || !word.starts_with("lockwarden_"),
                "{}: there is no {word}",
                path.display()
            );
        }
    }
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules_and_their_tests_pass() {
    if !installed(&["promtool"]) {
        return;
    }
    let directory = repository().join("grafana/prometheus");
    for arguments in [
        &["check", "config", "prometheus.yml"][..],
        &["check", "rules", "recording.rules.yml", "alerts.rules.yml"],
        // Each by itself: together they take a quarter of a minute.
        &["test", "rules", "tests/locks.yml"],
        &["test", "rules", "tests/proxy.yml"],
        &["test", "rules", "tests/links_and_sums.yml"],
    ] {
        // Without a deadline: it only reckons, a quarter of a minute where the machine has nothing else to do.
        let checked = Command::new("promtool").args(arguments).current_dir(&directory).output().expect("promtool runs");
        let [said, wrong] = [&checked.stdout, &checked.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(checked.status.success(), "promtool {arguments:?}\n{said}{wrong}");
    }
}

use super::super::effective::Setting;
use super::super::history::{Change, Version, What, WrittenFor};
use super::super::keys::TOP_KEYS;
use super::super::reader::Key;
use super::super::{application, namespace, policy, upgrade};
use super::*;

/// Every default as it is. Whoever changes one changes it here, too, and tells those who upgrade in `changes.toml`.
const DEFAULTS: &str = r#"
listen = "127.0.0.1:6380"
backend = "redis://127.0.0.1:6379/0"
backend_password_file = (none)
admin = "127.0.0.1:9180"
admin_token = (made up at the start)
admin_token_file = (none)
metrics = "off"
metrics_max_namespaces = 30
allow_open = false
companion_prefix = "lw:"
proxy_protocol_from = []
sessions = "dedicated"
log_format = "auto"
drain = "5s"
sweep = "1m"
max_clients = (as many as the limit of open files leaves room for)
max_memory = (a quarter of the memory)
max_connection_age = "off"
server_commands = "forward"
admin_identities = []
computed_names = "watch"
trusted_functions = []
unknown_commands = []
audit = "problems"
audit_file = (none)
audit_max_size = "64MiB"
audit_keep = 5
audit_required = false
audit_key_file = (none)
namespace keys = ["lock:*"]
namespace mode = "monitor"
namespace enforce_for = (nobody)
namespace auto_back = false
namespace policies = ["owner-token", "fencing", "ttl-ceiling"]
namespace on_violation = "native"
namespace on_fault = "deny"
namespace adopt = "report"
namespace opaque_scripts = "wrap"
namespace trusted_scripts = []
namespace counter_locks = false
namespace on_repeat = "refuse"
namespace hand_over = false
namespace quarantine = "off"
namespace durability = "none"
namespace holder_lost = "keep"
"#;

fn built_in() -> Vec<Setting> {
    let (config, _) = loaded_with(None, &Overrides::default(), &[]);
    config.expect("the built-in one is good").settings()
}

#[test]
fn no_default_changes_in_silence() {
    let all = built_in();
    let told = all
        .iter()
        // Not every build knows these.
        .filter(|setting| !setting.key.starts_with("otel_"))
        .map(|setting| match &setting.table {
            None => format!("{} = {}", setting.key, setting.value),
            Some(_) => format!("namespace {} = {}", setting.key, setting.value),
        });
    assert_eq!(
        told.collect::<Vec<_>>().join("\n"),
        DEFAULTS.trim(),
        "a default that changed is told in changes.toml, too"
    );
}

/// What the table says of today is so: each changed default is the one in force, unless a later change says another.
#[test]
fn the_history_ends_with_what_holds() {
    let history = History::built_in();
    let changes: Vec<&Change> = history.since(None).collect();
    assert!(!changes.is_empty());
    for (number, change) in changes.iter().enumerate() {
        let known: &[Key] = match change.table.as_deref() {
            None => TOP_KEYS,
            Some("namespace") => namespace::KEYS,
            Some("application") => application::KEYS,
            Some("policy") => policy::KEYS,
            Some(other) => panic!("{other}: no such table"),
        };
        let first = |key: &str| key.split('.').next().unwrap_or_default().to_owned();
        let is_known = |key: &str| known.iter().any(|known| known.name == first(key));
        assert!(change.version <= Version::this(), "{change:?}");
        let is_last = !changes[number + 1..].iter().any(|later| later.table == change.table && later.key == change.key);
        match &change.what {
            What::Default { was, now, .. } => {
                assert_ne!(was, now, "{change:?}");
                assert!(is_known(&change.key), "{change:?}");
                let table = change.table.is_some();
                let settings = built_in();
                let default = settings.iter().find(|one| one.table.is_some() == table && one.key == change.key);
                // What belongs to a policy only that policy knows.
                if let (Some(default), true) = (default, is_last) {
                    assert_eq!(&default.value, now, "{change:?}");
                }
                let is_setting = change.key.starts_with("settings.");
                assert_eq!(default.is_none(), is_setting, "{change:?}");
            }
            What::Renamed { now } => {
                assert!(!is_known(&change.key) && is_known(now), "{change:?}");
            }
            What::Gone { .. } => assert!(!is_known(&change.key), "{change:?}"),
        }
    }
}

const HISTORY: &str = r#"
[[change]]
version = "0.2.0"
on = "2027-01-10"
key = "listen_on"
kind = "renamed"
now = "listen"

[[change]]
version = "0.2.0"
on = "2027-02-01"
table = "namespace"
key = "settings.fencing.size"
kind = "gone"
instead = "take it away: a fencing token has 64 bits always"

[[change]]
version = "0.10.0"
on = "2027-03-01"
table = "namespace"
key = "adopt"
kind = "default"
was = '"cap"'
now = '"report"'
effect = "weaker"
means = "locks without a TTL are only counted"
keep = 'adopt = "cap"'

[[change]]
version = "0.10.0"
on = "2027-03-02"
table = "namespace"
key = "settings.ttl-ceiling.ceiling"
kind = "default"
was = '"2h"'
now = '"1h"'
effect = "stricter"
means = "leases end earlier"

[[change]]
version = "0.10.0"
on = "2027-03-02"
table = "policy"
key = "deadline"
kind = "default"
was = '"1ms"'
now = '"2ms"'
effect = "different"
means = "a policy may take longer"
"#;

/// Each difference as `key line tables`.
fn differences(text: &str, from: Option<&str>) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.toml");
    fs::write(&path, text).unwrap();
    let history = History::parse(HISTORY).unwrap();
    let from: Option<WrittenFor> = from.map(|text| text.parse().unwrap());
    let upgrade = upgrade::compare(&path, &history, from.as_ref()).unwrap();
    upgrade
        .differences
        .iter()
        .map(|one| {
            let line = one.at.map_or(String::new(), |at| format!(":{}", at.line));
            format!("{}{line} {}", one.change.key, one.tables.join(",")).trim_end().to_owned()
        })
        .collect()
}

#[test]
fn what_became_of_a_key_is_told_where_the_file_has_it_or_lacks_it() {
    let old = "listen_on = \"127.0.0.1:1\"\n\
               [[namespace]]\nname = \"orders\"\nkeys = [\"a\"]\nadopt = \"cap\"\n\
               [namespace.settings.fencing]\nsize = 32\n\
               [[namespace]]\nname = \"stock\"\nkeys = [\"b\"]\npolicies = [\"owner-token\"]\n\
               [[namespace]]\nkeys = [\"c\"]\nsettings.ttl-ceiling.ceiling = \"5m\"\n";
    assert_eq!(
        differences(old, None),
        [
            "listen_on:1",
            "settings.fencing.size:7 orders",
            "adopt stock,#3",
            // The chain of stock does not have the policy.
            "settings.ttl-ceiling.ceiling orders",
        ]
    );
    let all = ["adopt default", "settings.ttl-ceiling.ceiling default"];
    assert_eq!(differences("", None), all);
    let policy = "[[policy]]\nname = \"mine\"\nmodule = \"mine.wasm\"\n";
    assert_eq!(differences(policy, None).last().unwrap(), "deadline mine");
}

#[test]
fn only_what_changed_since_is_told() {
    let old = "listen_on = \"127.0.0.1:1\"\n";
    for (from, told) in [
        ("0.1.9", 3),
        // Not by the text: 0.10.0 comes behind 0.2.0.
        ("0.2.0", 2),
        ("0.9.0", 2),
        ("0.10.0", 0),
        ("2027-01-10", 3),
        ("2027-01-11", 2),
        // A build of that day may lack it.
        ("2027-03-02", 1),
        ("2027-03-03", 0),
    ] {
        assert_eq!(differences(old, Some(from)).len(), told, "{from}");
    }
    for wrong in ["", "0.1", "0.1.0.0", "v0.1.0", "+1.0.0", "2027-02-30", "yesterday", "2027-1-1"] {
        assert!(wrong.parse::<WrittenFor>().is_err(), "{wrong}");
    }
}

#[test]
fn odd_tables_are_no_reason_to_panic() {
    for odd in [
        "namespace = 1\n",
        "namespace = [1, \"a\", {}]\n",
        "[namespace]\nname = \"a\"\n",
        "[[namespace]]\nname = 5\nsettings = 5\npolicies = 5\n",
        "[[namespace]]\nsettings = { ttl-ceiling = 5 }\npolicies = [5]\n",
        "listen_on.a.b = 1\n",
    ] {
        differences(odd, None);
    }
}

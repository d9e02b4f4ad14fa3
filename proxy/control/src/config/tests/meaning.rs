use super::super::keys::TOP_KEYS;
use super::super::reader::Key;
use super::super::{
    application, backend_login, certificate_login, enforce_for, guard, listener, namespace, next, policy, rule,
    sentinel, tls, user_map,
};
use super::*;

/// A configuration in which every table is there, so that every key can be changed alone.
const BASE: &[(&str, &[(&str, &str)])] = &[
    ("", &[("backend", "\"rediss://127.0.0.1:6379\"")]),
    ("[backend_login]", &[("user", "\"warden\""), ("password_file", "\"a\"")]),
    ("[backend_tls]", &[("ca", "\"ca.pem\"")]),
    (
        "[tls]",
        &[
            ("cert", "\"tls.crt\""),
            ("key", "\"tls.key\""),
            ("client_ca", "\"clients.pem\""),
            ("client_cert", "\"ask\""),
        ],
    ),
    ("[[listener]]", &[("address", "\"127.0.0.1:7001\""), ("tls", "true")]),
    ("[[guard]]", &[("name", "\"stock\""), ("keys", "[\"stock:{id}\"]"), ("lock", "\"lock:{id}\"")]),
    ("[[user_map]]", &[("user", "\"shop\""), ("twin", "\"shop-lw\""), ("twin_password_file", "\"a\"")]),
    ("[[application]]", &[("name", "\"billing\""), ("user", "\"billing\"")]),
    ("[[certificate_login]]", &[("name", "\"shop.*\""), ("user", "\"shop\""), ("password_file", "\"a\"")]),
    ("[[policy]]", &[("name", "\"mine\""), ("module", "\"mine.wasm\"")]),
    (
        "[[namespace]]",
        &[
            ("name", "\"orders\""),
            ("keys", "[\"lock:*\"]"),
            ("enforce_for", "{ clients = [\"a*\"] }"),
            ("policies", "[\"owner-token\", \"ttl-ceiling\", \"rules\", \"mine\"]"),
            ("rule", "[{ name = \"hours\", deny = 'hour > 5' }]"),
        ],
    ),
];

/// A key, a value, and whether that changes what is meant.
type Case = (&'static str, &'static str, bool);

/// The same where the primary is found by sentinels.
const BY_SENTINELS: &[(&str, &[(&str, &str)])] = &[
    ("", &[("backend", "\"redis-sentinel://127.0.0.1:26379/mymaster\"")]),
    ("[sentinel]", &[("user", "\"warden\""), ("password_file", "\"a\"")]),
];

/// Each key with a value other than that of [`BASE`], and whether it changes what the configuration means for locks.
const CASES: &[(&str, &[Case])] = &[
    (
        "",
        &[
            ("listen", "\"127.0.0.1:7000\"", false),
            ("backend", "\"rediss://127.0.0.1:6390\"", false),
            ("backend_password_file", "\"a\"", false),
            ("admin", "\"127.0.0.1:7002\"", false),
            ("admin_token", "\"0123456789abcdef\"", false),
            ("admin_token_file", "\"a\"", false),
            ("metrics", "\"127.0.0.1:7003\"", false),
            ("metrics_max_namespaces", "7", false),
            ("allow_open", "true", false),
            ("cluster_node", "true", false),
            ("companion_prefix", "\"own:\"", true),
            ("proxy_protocol_from", "[\"10.0.0.0/8\"]", false),
            ("sessions", "\"multiplexed\"", false),
            ("log_format", "\"json\"", false),
            ("drain", "\"9s\"", false),
            ("sweep", "\"9s\"", false),
            ("moving_patience", "\"9s\"", false),
            ("max_clients", "7", false),
            ("max_memory", "\"7MiB\"", false),
            ("max_connection_age", "\"7h\"", false),
            ("server_commands", "\"refuse\"", true),
            ("admin_identities", "[\"operator\"]", true),
            ("computed_names", "\"deny\"", true),
            ("trusted_functions", "[\"my_lock\"]", true),
            ("unknown_commands", "[\"pass:FT.SEARCH\"]", true),
            ("audit", "\"all\"", false),
            ("audit_file", "\"audit.jsonl\"", false),
            ("audit_max_size", "\"7MiB\"", false),
            ("audit_keep", "7", false),
            ("audit_questions", "\"7%\"", false),
            ("audit_required", "true", true),
            ("audit_key_file", "\"a\"", false),
            // Its module has to be pinned, then.
            ("require_signed", "", false),
            ("policy_cache", "\"cache\"", false),
            ("registry_auth_file", "\"a\"", false),
            // Tables, whose keys are below.
            ("backend_login", "", false),
            ("backend_tls", "", false),
            ("tls", "", false),
            ("sentinel", "", false),
            ("listener", "", false),
            ("namespace", "", true),
            ("guard", "", true),
            ("user_map", "", true),
            ("application", "", true),
            ("certificate_login", "", true),
            ("policy", "", true),
        ],
    ),
    (
        "[backend_login]",
        &[
            ("user", "\"other\"", false),
            ("password_file", "\"b\"", false),
            ("password_command", "[\"/bin/true\"]", false),
            ("refresh", "\"7m\"", false),
        ],
    ),
    (
        "[backend_tls]",
        &[
            ("ca", "\"other.pem\"", false),
            ("server_name", "\"cache.corp\"", false),
            ("verify", "\"ca\"", false),
            ("cert", "\"own.crt\"", false),
            ("key", "\"own.key\"", false),
        ],
    ),
    ("[sentinel]", &[("user", "\"other\"", false), ("password_file", "\"b\"", false)]),
    (
        "[tls]",
        &[
            ("cert", "\"other.crt\"", false),
            ("key", "\"other.key\"", false),
            ("min_version", "\"1.3\"", false),
            ("client_ca", "\"other.pem\"", false),
            ("client_cert", "\"require\"", false),
            ("client_name", "\"cn\"", false),
        ],
    ),
    (
        "[[listener]]",
        &[
            ("address", "\"127.0.0.1:7004\"", false),
            ("tls", "false", false),
            ("mode", "\"0770\"", false),
            ("group", "\"www-data\"", false),
            ("present", "\"sentinel\"", false),
            ("advertise", "\"locks.corp:6390\"", false),
            ("names", "[\"mymaster\"]", false),
            ("peers", "[\"b.corp:26380\"]", false),
        ],
    ),
    (
        "[[guard]]",
        &[
            ("name", "\"other\"", true),
            ("keys", "[\"order:{id}:*\"]", true),
            ("lock", "\"lock:order:{id}\"", true),
            ("mode", "\"enforce\"", true),
            ("unlocked", "\"allow\"", true),
            ("proofs", "[\"session\"]", true),
            ("exempt", "[\"import\"]", true),
        ],
    ),
    (
        "[[user_map]]",
        &[("user", "\"other\"", true), ("twin", "\"other-lw\"", true), ("twin_password_file", "\"b\"", false)],
    ),
    (
        "[[application]]",
        &[
            ("name", "\"other\"", true),
            ("from", "[\"10.0.0.0/8\"]", true),
            ("process", "\"php*\"", true),
            ("user", "\"other\"", true),
            ("client", "\"worker-*\"", true),
            ("certificate", "\"spiffe://*\"", true),
            ("listener", "\"127.0.0.1:7001\"", true),
        ],
    ),
    (
        "[[certificate_login]]",
        &[("name", "\"other.*\"", true), ("user", "\"other\"", true), ("password_file", "\"b\"", false)],
    ),
    (
        "[[policy]]",
        &[
            // Its chain has to name it, too: a namespace with another chain is below.
            ("name", "", true),
            // Its digest says which policy it is.
            ("module", "\"elsewhere/mine.wasm\"", false),
            ("sha256", SHA256, false),
            ("keys", "[\"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"]", false),
            ("min_version", "\"1.2.0\"", false),
            ("deadline", "\"7ms\"", true),
            ("memory", "\"7MiB\"", true),
            ("fuel", "7000000", true),
            ("next", "{ module = \"mine.wasm\", stage = \"10%\" }", true),
        ],
    ),
    (
        "[[namespace]]",
        &[
            ("name", "\"stock\"", true),
            ("keys", "[\"lock:*\", \"mutex:*\"]", true),
            // With `enforce_for` it is an error.
            ("mode", "", true),
            ("enforce_for", "{ clients = [\"b*\"] }", true),
            ("auto_back", "true", true),
            ("policies", "[\"owner-token\", \"rules\", \"mine\"]", true),
            ("on_violation", "\"error\"", true),
            ("on_fault", "\"allow\"", true),
            ("adopt", "\"cap\"", true),
            ("opaque_scripts", "\"deny\"", true),
            ("trusted_scripts", "[\"bullmq@6.7.0\"]", true),
            ("counter_locks", "true", true),
            ("on_repeat", "\"grant\"", true),
            ("release", "\"forget\"", true),
            ("hand_over", "true", true),
            ("quarantine", "\"45s\"", true),
            ("durability", "\"wait:1:50ms\"", true),
            ("holder_lost", "\"shorten:2s\"", true),
            ("settings", "{ ttl-ceiling = { ceiling = \"60s\" } }", true),
            ("rule", "[{ name = \"ttl\", ttl_cap = \"5s\" }]", true),
            ("next", "{ stage = \"all\", policies = [\"fencing\"] }", true),
        ],
    ),
    // What is asked beside what is in force counts where it answers a client.
    (
        "next",
        &[
            ("stage", "{ stage = \"10%\", policies = [\"fencing\"] }", true),
            ("policies", "{ policies = [\"fencing\"] }", false),
            ("settings", "{ settings = { ttl-ceiling = { ceiling = \"60s\" } } }", false),
            ("rule", "{ rule = [{ name = \"ttl\", ttl_cap = \"5s\" }] }", false),
        ],
    ),
    (
        "policy.next",
        &[
            ("stage", "{ module = \"mine.wasm\", stage = \"10%\" }", true),
            ("module", "{ module = \"mine.wasm\" }", false),
            (
                "sha256",
                "{ module = \"mine.wasm\", sha256 = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" }",
                false,
            ),
            ("min_version", "{ module = \"mine.wasm\", min_version = \"1.2.0\" }", false),
            ("deadline", "{ module = \"mine.wasm\", deadline = \"7ms\" }", false),
            ("memory", "{ module = \"mine.wasm\", memory = \"7MiB\" }", false),
            ("fuel", "{ module = \"mine.wasm\", fuel = 7000000 }", false),
        ],
    ),
    (
        "rule",
        &[
            ("name", "[{ name = \"time\", deny = 'hour > 5' }]", true),
            ("on", "[{ name = \"hours\", deny = 'hour > 5', on = [\"extend\"] }]", true),
            ("when", "[{ name = \"hours\", deny = 'hour > 5', when = 'db == 3' }]", true),
            ("deny", "[{ name = \"hours\", deny = 'hour > 6' }]", true),
            ("rate", "[{ name = \"hours\", deny = 'hour > 5', rate = \"10/1m\" }]", true),
            ("order", "[{ name = \"hours\", deny = 'hour > 5', order = [\"a*\", \"b*\"] }]", true),
            ("hint", "[{ name = \"hours\", deny = 'hour > 5', hint = \"sleep\" }]", true),
            ("code", "[{ name = \"hours\", deny = 'hour > 5', code = \"other\" }]", true),
            ("only", "[{ name = \"hours\", deny = 'hour > 5', only = \"report\" }]", true),
            ("zone", "[{ name = \"hours\", deny = 'hour > 5', zone = \"+01:00\" }]", true),
            ("ttl_default", "[{ name = \"hours\", deny = 'hour > 5', ttl_default = \"7s\" }]", true),
            ("ttl_cap", "[{ name = \"hours\", deny = 'hour > 5', ttl_cap = \"7s\" }]", true),
            ("keep_alive", "[{ name = \"hours\", deny = 'hour > 5', keep_alive = \"7s\" }]", true),
            ("max_hold", "[{ name = \"hours\", deny = 'hour > 5', max_hold = \"7s\" }]", true),
        ],
    ),
    (
        "enforce_for",
        &[
            ("clients", "{ clients = [\"a*\", \"b*\"] }", true),
            ("applications", "{ clients = [\"a*\"], applications = [\"billing\"] }", true),
            ("certificates", "{ clients = [\"a*\"], certificates = [\"*\"] }", true),
            ("percent", "{ clients = [\"a*\"], percent = 7 }", true),
        ],
    ),
];

const SHA256: &str = "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"";

const TABLES: &[(&str, &[Key])] = &[
    ("", TOP_KEYS),
    ("[backend_login]", backend_login::KEYS),
    ("[backend_tls]", tls::BACKEND_KEYS),
    ("[sentinel]", sentinel::KEYS),
    ("[tls]", tls::KEYS),
    ("[[listener]]", listener::KEYS),
    ("[[guard]]", guard::KEYS),
    ("[[user_map]]", user_map::KEYS),
    ("[[application]]", application::KEYS),
    ("[[certificate_login]]", certificate_login::KEYS),
    ("[[policy]]", policy::KEYS),
    ("[[namespace]]", namespace::KEYS),
    ("enforce_for", enforce_for::KEYS),
    ("rule", rule::KEYS),
    ("next", next::KEYS),
    ("policy.next", policy::NEXT_KEYS),
];

/// What stands in for keys that need, or exclude, another one.
fn beside(table: &str, key: &str) -> &'static [(&'static str, &'static str)] {
    match (table, key) {
        ("", "audit_required" | "audit_key_file") => &[("audit_file", "\"audit.jsonl\"")],
        ("", "backend_password_file") => &[("backend", "\"redis://127.0.0.1\"")],
        ("[backend_login]", "password_command") => &[("password_file", "")],
        ("[backend_tls]", "cert") => &[("key", "\"own.key\"")],
        ("[backend_tls]", "key") => &[("cert", "\"own.crt\"")],
        ("[[namespace]]", "release") => &[("release", "")],
        ("[[listener]]", "mode" | "group") => &[("address", "\"unix:/run/lw.sock\""), ("tls", "false")],
        ("[[listener]]", "advertise") => &[("present", "\"sentinel\""), ("names", "[\"mymaster\"]")],
        ("[[listener]]", "peers") => {
            &[("present", "\"sentinel\""), ("names", "[\"mymaster\"]"), ("advertise", "\"own.corp:6390\"")]
        }
        ("[[listener]]", "names") => &[("present", "\"sentinel\""), ("advertise", "\"own.corp:6390\"")],
        ("[[listener]]", "present") => &[("names", "[\"mymaster\"]"), ("advertise", "\"own.corp:6390\"")],
        _ => &[],
    }
}

/// [`BASE`] with another value of one key; an empty value takes the key away.
fn varied(table: &str, changes: &[(&str, &str)]) -> String {
    let (table, inner) = match table {
        "enforce_for" | "rule" | "next" => ("[[namespace]]", Some(table)),
        "policy.next" => ("[[policy]]", Some("next")),
        _ => (table, None),
    };
    let base = match table {
        "[sentinel]" => BY_SENTINELS,
        _ => BASE,
    };
    let mut text = String::new();
    for (header, lines) in base {
        // With a password of its own, and without TLS, the backend has neither.
        let alone = ["backend_login", "backend_tls"];
        let is_plain =
            changes.iter().any(|(key, value)| *key == "backend" && value.starts_with("\"redis://127.0.0.1\""));
        // A guard's lock has a record.
        let is_forgotten = changes.iter().any(|(key, _)| *key == "release");
        let is_left_out =
            is_plain && alone.contains(&header.trim_matches(['[', ']'])) || is_forgotten && *header == "[[guard]]";
        if is_left_out {
            continue;
        }
        text.push_str(&format!("{header}\n"));
        let changes = if *header == table { changes } else { &[] };
        let key = |key: &str| inner.unwrap_or(key).to_owned();
        let is_changed = |line: &&(&str, &str)| changes.iter().any(|(one, _)| key(one) == line.0);
        for (key, value) in lines.iter().filter(|line| !is_changed(line)) {
            text.push_str(&format!("{key} = {value}\n"));
        }
        for (one, value) in changes.iter().filter(|(_, value)| !value.is_empty()) {
            text.push_str(&format!("{} = {value}\n", key(one)));
        }
    }
    text
}

fn meaning_with(text: &str, digest: &str) -> Meaning {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    for (name, text) in [("a", "first-secret-0123"), ("b", "second-secret-0123")] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let localhost = vec!["localhost".to_owned()];
    let own = rcgen::generate_simple_self_signed(localhost).unwrap();
    for name in ["ca.pem", "tls.crt", "clients.pem", "other.pem", "other.crt", "own.crt"] {
        fs::write(directory.path().join(name), own.cert.pem()).unwrap();
    }
    for name in ["tls.key", "other.key", "own.key"] {
        let key = own.signing_key.serialize_pem();
        fs::write(directory.path().join(name), key).unwrap();
    }
    fs::write(&path, text).unwrap();
    let loaded = load(Some(&path), &Overrides::default(), std::iter::empty());
    let report = lines(directory.path(), &loaded.findings);
    let config = loaded.config.unwrap_or_else(|| panic!("{report:?}\n{text}"));
    Meaning::of(&config, |_| Some(digest))
}

fn hash(text: &str) -> String {
    meaning_with(text, "00").hash().to_owned()
}

/// So that a new key cannot be added without assigning it to one of the kinds.
#[test]
fn every_key_either_changes_the_hash_or_is_listed_among_those_that_do_not() {
    for (table, keys) in TABLES {
        let cases = CASES.iter().find(|(name, _)| name == table);
        let (_, cases) = cases.unwrap_or_else(|| panic!("{table} is in no case"));
        for key in *keys {
            let case = cases.iter().find(|(name, _, _)| *name == key.name);
            let (_, value, counts) = case.unwrap_or_else(|| {
                panic!(
                    "{table} {}: does it change what the configuration means for locks? Say so in CASES, \
                     in config/meaning.rs and in docs/operations.md",
                    key.name
                )
            });
            if value.is_empty() {
                continue;
            }
            let mut before: Vec<(&str, &str)> = beside(table, key.name).to_vec();
            // What does not count is compared with the base: beside it only what does not count changes either.
            let without = match counts {
                true => hash(&varied(table, &before)),
                false => hash(&varied(table, &[])),
            };
            before.push((key.name, value));
            let is_other = hash(&varied(table, &before)) != without;
            assert_eq!(is_other, *counts, "{table} {}", key.name);
        }
        let is_key = |name: &str| keys.iter().any(|key| key.name == name);
        for (name, _, _) in *cases {
            assert!(is_key(name), "{table} {name} is no key");
        }
    }
}

const ORDERS: &str = "[[namespace]]\nname = \"orders\"\nkeys = [\"lock:order:*\"]\n";
const STOCK: &str = "[[namespace]]\nname = \"stock\"\nkeys = [\"stock:*\", \"lock:stock\"]\n";
const REST: &str = "[[namespace]]\nname = \"rest\"\nkeys = [\"lock:*\"]\n";

#[test]
fn the_order_of_namespaces_counts_where_they_share_keys() {
    let apart = hash(&[ORDERS, STOCK].concat());
    assert_eq!(apart, hash(&[STOCK, ORDERS].concat()));
    assert_eq!(hash(&[ORDERS, STOCK, REST].concat()), hash(&[STOCK, ORDERS, REST].concat()));
    assert_ne!(hash(&[ORDERS, STOCK, REST].concat()), hash(&[ORDERS, REST, STOCK].concat()));
    assert_ne!(hash(&[ORDERS, REST].concat()), hash(&[REST, ORDERS].concat()));
}

#[test]
fn where_there_are_too_many_globs_to_compare_every_order_counts() {
    let many = |name: &str| {
        let keys: Vec<String> = (0..500).map(|at| format!("\"{name}:{at}\"")).collect();
        let keys = keys.join(", ");
        format!("[[namespace]]\nname = \"{name}\"\nkeys = [{keys}]\n")
    };
    let (a, b) = (many("a"), many("b"));
    assert_ne!(hash(&(a.clone() + &b)), hash(&(b + &a)));
}

#[test]
fn what_only_looks_different_has_the_same_hash() {
    let settings = |ceiling: &str| format!("{ORDERS}[namespace.settings.ttl-ceiling]\nceiling = \"{ceiling}\"\n");
    assert_eq!(hash(&settings("60s")), hash(&settings("1m")));
    assert_ne!(hash(&settings("60s")), hash(&settings("2m")));
    let other_order = STOCK.replace(
        "[\"stock:*\", \"lock:stock\"]",
        "[ # sorted\n \"lock:stock\", \"stock:*\", \"stock:*\",\n]\nmode = \"monitor\"",
    );
    assert_eq!(hash(STOCK), hash(&other_order));
    assert_eq!(
        hash(&format!("trusted_functions = [\"a\", \"B\"]\n{STOCK}")),
        hash(&format!("trusted_functions = [\"b\", \"A\"]\n{STOCK}"))
    );
    let durable = |text: &str| hash(&format!("{ORDERS}{text}\n"));
    let strict = durable("durability = \"strict:1:50ms\"");
    assert_eq!(strict, durable("durability = \"strict:1:50ms\"\nquarantine = \"auto\""));
    assert_ne!(strict, durable("durability = \"wait:1:50ms\"\nquarantine = \"auto\""));
    // Without a namespace the built-in one holds.
    let built_in = "[[namespace]]\nname = \"default\"\nkeys = [\"lock:*\"]\n";
    assert_eq!(hash(""), hash(built_in));
}

#[test]
fn a_policy_is_its_module_and_a_mode_may_come_from_anywhere() {
    let one = meaning_with(STOCK, "aa");
    assert_ne!(one.hash(), meaning_with(STOCK, "bb").hash());
    let env = [("LOCKWARDEN_MODE", "stock=enforce")];
    let (config, findings) = loaded_with(Some(STOCK), &Overrides::default(), &env);
    let config = config.unwrap_or_else(|| panic!("{findings:?}"));
    let by_environment = Meaning::of(&config, |_| Some("aa"));
    let by_file = meaning_with(&format!("{STOCK}mode = \"enforce\"\n"), "aa");
    assert_eq!(by_environment, by_file);
    assert_ne!(by_environment.hash(), one.hash());
}

#[test]
fn a_hash_is_twelve_hex_digits_of_everything_that_is_said() {
    let meaning = meaning_with(STOCK, "aa");
    let hash = meaning.hash();
    assert_eq!(hash.len(), 12, "{hash}");
    assert!(hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    let said = |table: Option<&str>, key: &str| {
        let mut says = meaning.says().iter();
        let found = says.find(|one| one.table.as_deref() == table && one.key == key);
        found.map(|one| one.value.as_str())
    };
    assert_eq!(said(None, "companion_prefix"), Some("\"lw:\""));
    let stock = Some("namespace stock");
    assert_eq!(said(stock, "keys"), Some("[\"lock:stock\", \"stock:*\"]"));
    assert_eq!(said(Some("policy owner-token"), "module"), Some("aa"));
}

use super::super::effective::Setting;
use super::super::keys::TOP_KEYS;
use super::*;

fn settings(text: Option<&str>, overrides: &Overrides, env: &[(&str, &str)]) -> Vec<Setting> {
    let (config, findings) = loaded_with(text, overrides, env);
    config.unwrap_or_else(|| panic!("{findings:?}")).settings()
}

fn told(settings: &[Setting], table: Option<&str>, key: &str) -> (String, String) {
    let found = settings
        .iter()
        .find(|setting| setting.table.as_deref() == table && setting.key == key)
        .unwrap_or_else(|| panic!("{table:?} {key}: {settings:?}"));
    let origin = found.origin.to_string();
    let origin = origin.rsplit('/').next().unwrap_or_default().to_owned();
    (found.value.clone(), origin)
}

/// Written into a file, the defaults that are told change nothing.
#[test]
fn the_defaults_are_those_that_hold() {
    let built_in = settings(None, &Overrides::default(), &[]);
    for key in TOP_KEYS {
        let is_of_tables = key.example.contains("{ ");
        let is_told = built_in.iter().any(|setting| setting.key == key.name);
        assert!(is_told || is_of_tables, "{}", key.name);
    }
    let mut text = String::new();
    let mut table = None;
    for setting in &built_in {
        assert!(setting.is_default, "{setting:?}");
        if setting.table != table {
            text.push_str("[[namespace]]\nname = \"default\"\n");
            table = setting.table.clone();
        }
        if !setting.value.starts_with('(') {
            text.push_str(&format!("{} = {}\n", setting.key, setting.value));
        }
    }
    let (written, findings) = loaded(&text);
    let mut written = written.unwrap_or_else(|| panic!("{findings:?}\n{text}"));
    assert!(written.settings().iter().all(|setting| setting.is_default), "{:?}", written.settings());
    let (nothing, _) = loaded_with(None, &Overrides::default(), &[]);
    let nothing = nothing.unwrap();
    written.source = None;
    written.said = nothing.said.clone();
    let namespaces = |config: &Config| format!("{:?}", config.namespaces[0]);
    let end_of_rules = |text: String| text.split(", line: ").next().unwrap_or("").to_owned();
    assert_eq!(end_of_rules(namespaces(&written)), end_of_rules(namespaces(&nothing)));
    written.namespaces = nothing.namespaces.clone();
    assert_eq!(written, nothing);
}

#[test]
fn each_value_says_who_said_it_last() {
    let text = "listen = \"127.0.0.1:7000\"\nadmin = \"127.0.0.1:7001\"\ndrain = \"5s\"\n\
                proxy_protocol_from = [ # balancers\n  \"10.0.0.0/8\",\n]\n\
                [[namespace]]\nname = \"orders\"\nkeys = [\"lock:*\"]\nmode = \"enforce\"\n\
                [namespace.settings.ttl-ceiling]\nceiling = \"60s\"\n\
                [[namespace]]\nname = \"stock\"\nkeys = [\"stock:*\"]\n\
                enforce_for = { clients = [\"a*\"] }\n";
    let overrides = Overrides {
        admin: Some("127.0.0.1:7003".to_owned()),
        modes: vec!["stock=enforce".to_owned()],
        ..Overrides::default()
    };
    let env =
        [("LOCKWARDEN_ADMIN", "127.0.0.1:7002"), ("LOCKWARDEN_ALLOW_OPEN", "1"), ("LOCKWARDEN_MODE", "orders=monitor")];
    let settings = settings(Some(text), &overrides, &env);
    let (orders, stock) = (Some("namespace orders"), Some("namespace stock"));
    for (table, key, value, origin) in [
        (None, "listen", "\"127.0.0.1:7000\"", "c.toml:1"),
        (None, "admin", "\"127.0.0.1:7003\"", "--admin"),
        (None, "allow_open", "true", "LOCKWARDEN_ALLOW_OPEN"),
        (None, "drain", "\"5s\"", "c.toml:3"),
        (None, "proxy_protocol_from", "[\"10.0.0.0/8\"]", "c.toml:4"),
        (None, "sweep", "\"1m\"", "default"),
        (orders, "keys", "[\"lock:*\"]", "c.toml:9"),
        (orders, "mode", "\"monitor\"", "LOCKWARDEN_MODE"),
        (orders, "settings.ttl-ceiling.ceiling", "\"60s\"", "c.toml:12"),
        (stock, "mode", "\"enforce\"", "--mode"),
        // A mode for everybody ends it.
        (stock, "enforce_for", "(nobody)", "default"),
    ] {
        let expected = (value.to_owned(), origin.to_owned());
        assert_eq!(told(&settings, table, key), expected, "{table:?} {key}");
    }
    let drain = settings.iter().find(|setting| setting.key == "drain");
    assert!(drain.is_some_and(|drain| drain.is_default), "{drain:?}");
}

#[test]
fn a_strict_durability_brings_a_quarantine_that_is_told() {
    let quarantine = |durability: &str| {
        let text = format!("[[namespace]]\nname = \"orders\"\nkeys = [\"lock:*\"]\ndurability = \"{durability}\"\n");
        let all = settings(Some(&text), &Overrides::default(), &[]);
        let (config, _) = loaded(&text);
        let (value, _) = told(&all, Some("namespace orders"), "quarantine");
        (value, config.unwrap().namespaces[0].quarantine)
    };
    let auto = ("\"auto\"".to_owned(), Quarantine::Auto);
    assert_eq!(quarantine("strict:1:50ms"), auto);
    let off = ("\"off\"".to_owned(), Quarantine::Off);
    assert_eq!(quarantine("wait:1:50ms"), off);
}

#[test]
fn an_order_for_a_mode_is_told_as_one() {
    let (config, _) = loaded_with(None, &Overrides::default(), &[]);
    let mut config = config.unwrap();
    config.said.order_mode("default", "enforce");
    let expected = ("\"enforce\"".to_owned(), "order".to_owned());
    let settings = config.settings();
    assert_eq!(told(&settings, Some("namespace default"), "mode"), expected);
}

#[test]
fn no_secret_is_told() {
    let text = "backend = \"redis://app:geheim1@127.0.0.1:6379\"\nadmin_token = \"geheim2-0123456789\"\n\
                admin_identities = [\"geheim3\"]\n\
                [[namespace]]\nname = \"orders\"\nkeys = [\"lock:*\"]\npolicies = [\"mine\"]\n\
                [namespace.settings.mine]\nkey = \"geheim4\"\n\
                [[policy]]\nname = \"mine\"\nmodule = \"mine.wasm\"\n";
    let everything =
        |overrides: &Overrides, env: &[(&str, &str)]| format!("{:?}", settings(Some(text), overrides, env));
    let by_file = everything(&Overrides::default(), &[]);
    let env = [
        ("LOCKWARDEN_ADMIN_TOKEN", "geheim5-0123456789"),
        ("LOCKWARDEN_BACKEND", "redis://app:geheim6@127.0.0.1:6379"),
    ];
    let by_environment = everything(&Overrides::default(), &env);
    for told in [by_file, by_environment] {
        assert!(!told.contains("geheim"), "{told}");
        assert!(told.contains("redis://app@127.0.0.1:6379"), "{told}");
    }
}

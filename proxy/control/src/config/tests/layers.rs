use super::*;
use lockwarden_policy::DEFAULT_CHAIN;

fn flags(listen: Option<&str>, modes: &[&str]) -> Overrides {
    Overrides {
        listen: listen.map(str::to_owned),
        modes: modes.iter().map(|mode| mode.to_string()).collect(),
        ..Overrides::default()
    }
}

const TWO_NAMESPACES: &str = r#"
listen = "127.0.0.1:1001"
[[namespace]]
name = "orders"
keys = ["lock:*"]
[[namespace]]
name = "stock"
keys = ["stock:*"]
mode = "enforce"
"#;

#[test]
fn without_a_file_one_namespace_is_watched_and_left_alone() {
    let (config, found) = loaded_with(None, &Overrides::default(), &[("HOME", "/root")]);
    let config = config.unwrap();
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:6380");
    assert_eq!(config.backend.to_string(), "redis://127.0.0.1:6379/0");
    assert_eq!(config.admin.unwrap().to_string(), "127.0.0.1:9180");
    assert_eq!((config.metrics, config.admin_token, config.source), (None, None, None));
    assert_eq!(config.companion_prefix, "lw:");
    assert_eq!(config.administration.server_commands, ServerCommands::Forward);
    assert!(config.administration.admin_identities.is_empty() && config.administration.trusted_functions.is_empty());
    let [namespace] = &config.namespaces[..] else { panic!("one namespace") };
    assert_eq!((&*namespace.name, &namespace.keys[..]), ("default", &["lock:*".into()][..]));
    assert_eq!((namespace.mode, namespace.line), (Mode::Monitor, None));
    assert_eq!(namespace.policies, DEFAULT_CHAIN);
}

#[test]
fn each_layer_is_put_over_the_one_before() {
    let env = [("LOCKWARDEN_LISTEN", "127.0.0.1:1002")];
    for (text, overrides, env, listen) in [
        (None, flags(None, &[]), &env[..0], 6380),
        (Some(TWO_NAMESPACES), flags(None, &[]), &env[..0], 1001),
        (Some(TWO_NAMESPACES), flags(None, &[]), &env[..], 1002),
        (Some(TWO_NAMESPACES), flags(Some("127.0.0.1:1003"), &[]), &env[..], 1003),
    ] {
        let (config, found) = loaded_with(text, &overrides, env);
        assert_eq!(config.unwrap().listeners[0].address.tcp().unwrap().port(), listen, "{found:?}");
    }
}

#[test]
fn a_mode_for_one_namespace_stands_over_one_for_all_within_a_layer() {
    use Mode::{Enforce, Monitor};
    for (env, typed, modes) in [
        ("", &[][..], [Monitor, Enforce]),
        ("monitor", &[], [Monitor, Monitor]),
        ("orders=enforce, monitor", &[], [Enforce, Monitor]),
        ("monitor", &["enforce"], [Enforce, Enforce]),
        ("", &["stock=monitor", "enforce"], [Enforce, Monitor]),
        ("", &["orders=enforce", "orders=monitor"], [Monitor, Enforce]),
    ] {
        let env = [("LOCKWARDEN_MODE", env)];
        let (config, found) = loaded_with(Some(TWO_NAMESPACES), &flags(None, typed), &env);
        let namespaces = config.unwrap().namespaces;
        assert_eq!([namespaces[0].mode, namespaces[1].mode], modes, "{found:?}");
    }
}

#[test]
fn what_is_wrong_outside_the_file_names_the_variable_or_flag() {
    let env = [
        ("LOCKWARDEN_ADMIN", "0.0.0.0:9180"),
        ("LOCKWARDEN_ADMIN_TOKEN_FILE", "/run/secrets/token"),
        ("LOCKWARDEN_ALLOW_OPEN", "perhaps"),
        ("LOCKWARDEN_BACKEND", "valkeys://:s3cret@redis"),
        ("LOCKWARDEN_COLOUR", "red"),
        ("LOCKWARDEN_CONFIG", "c.toml"),
        ("LOCKWARDEN_LISTENS", "127.0.0.1:6380"),
        ("LOCKWARDEN_LOG", "debug"),
        ("LOCKWARDEN_METRICS", ""),
        ("LOCKWARDEN_MODE", "on,order=enforce,stock=enforced"),
        ("LOCKWARDEN_PORT_6380_TCP_ADDR", "10.0.0.7"),
        ("LOCKWARDEN_SERVICE_HOST", "10.0.0.7"),
    ];
    let overrides = flags(Some("6380"), &["warehouse=monitor"]);
    let (config, found) = loaded_with(Some(TWO_NAMESPACES), &overrides, &env);
    assert!(config.is_none());
    let expected = [
        r#"LOCKWARDEN_ADMIN_TOKEN_FILE warning: no such variable, so it does nothing; admin_token_file is a key of the configuration file"#,
        r#"LOCKWARDEN_ALLOW_OPEN error: "perhaps" is not true or false"#,
        r#"LOCKWARDEN_BACKEND error: write rediss:// for Valkey too; the protocol is the same"#,
        r#"LOCKWARDEN_COLOUR warning: no such variable, so it does nothing; known are "LOCKWARDEN_ADMIN", "LOCKWARDEN_ADMIN_TOKEN", "LOCKWARDEN_ALLOW_OPEN", "LOCKWARDEN_BACKEND", "LOCKWARDEN_BACKEND_PASSWORD", "LOCKWARDEN_CLUSTER_NODE", "LOCKWARDEN_LISTEN", "LOCKWARDEN_LOG_FORMAT", "LOCKWARDEN_METRICS", "LOCKWARDEN_MODE", "LOCKWARDEN_CONFIG" and "LOCKWARDEN_LOG""#,
        r#"LOCKWARDEN_LISTENS warning: no such variable, so it does nothing; did you mean "LOCKWARDEN_LISTEN"?"#,
        r#"LOCKWARDEN_MODE error: "on" must be "monitor" or "enforce", or a namespace and one of them, as in "orders=monitor""#,
        r#"LOCKWARDEN_MODE error: "order=enforce": no namespace is called "order"; did you mean "orders"?"#,
        r#"LOCKWARDEN_MODE error: "stock=enforced": "enforced" must be "monitor" or "enforce"; did you mean "enforce"?"#,
        r#"LOCKWARDEN_ADMIN error: admin: 0.0.0.0:9180 can be reached from other machines and there is no admin token; set admin_token_file (or LOCKWARDEN_ADMIN_TOKEN), or use "127.0.0.1:9180""#,
        r#"--listen error: "6380" is only a port; write "127.0.0.1:6380""#,
        r#"--mode error: "warehouse=monitor": no namespace is called "warehouse"; there is "orders" and "stock""#,
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_override_for_a_namespace_whose_name_could_not_be_read_is_not_called_unknown() {
    let text = "[[namespace]]\nname = \"new orders\"\nkeys = [\"lock:*\"]\n";
    let (_, found) = loaded_with(Some(text), &flags(None, &["orders=enforce"]), &[]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn the_backends_password_comes_from_the_latest_layer_that_has_one() {
    let password = |config: Option<Config>| match config.unwrap().backend {
        Backend::Redis(url) => url.password.map(|password| password.expose().to_owned()),
        Backend::Private => panic!("a URL was given"),
    };
    let in_url = r#"backend = "redis://app:from%2Furl@redis""#;
    let in_env = [("LOCKWARDEN_BACKEND_PASSWORD", "from-env")];
    let (config, _) = loaded(in_url);
    assert_eq!(password(config).as_deref(), Some("from/url"));
    let (config, _) = loaded_with(Some(in_url), &Overrides::default(), &in_env);
    assert_eq!(password(config).as_deref(), Some("from-env"));
    let backend = Some("redis://:from-flag@redis".to_owned());
    let overrides = Overrides { backend, ..Overrides::default() };
    let (config, _) = loaded_with(Some(in_url), &overrides, &in_env);
    assert_eq!(password(config).as_deref(), Some("from-flag"));

    let twice = [in_env[0], ("LOCKWARDEN_BACKEND", "redis://:from-url@redis")];
    let (config, found) = loaded_with(None, &Overrides::default(), &twice);
    assert!(config.is_none());
    assert_eq!(
        found,
        ["LOCKWARDEN_BACKEND_PASSWORD error: the backend's URL has a password already; keep one of them"]
    );
}

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::config::finding::Position;

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/examples/lockwarden.toml")
}

#[test]
fn the_example_loads_without_a_finding() {
    let loaded = load(Some(&example()), &Overrides::default(), std::iter::empty());
    assert_eq!(loaded.findings, []);
    let config = loaded.config.unwrap();
    assert_eq!(config.backend, Backend::Private);
    let [namespace] = &config.namespaces[..] else { panic!("one namespace") };
    assert_eq!((&*namespace.name, namespace.mode), ("default", Mode::Enforce));
    let setting = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let expected = vec![setting("ceiling", "60s"), setting("default", "30s")];
    assert_eq!(namespace.settings["ttl-ceiling"], expected);
}

#[test]
fn what_the_example_comments_out_is_valid_too() {
    let text = fs::read_to_string(example()).unwrap();
    let uncommented: Vec<&str> = text
        .lines()
        // Prose has a blank behind its sign; keys and tables do not.
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') => key,
            _ => line,
        })
        // The private backend stays the last word, and a checksum is not shown in full.
        .filter(|line| !line.starts_with("backend = \"redis:") && !line.starts_with("sha256"))
        .filter(|line| !line.contains("_file = "))
        .collect();
    let (config, found) = loaded(&uncommented.join("\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("policy \"team-a-naming\" is in no namespace's chain, so it is never asked"));
    let config = config.unwrap();
    // The policy and its next version.
    assert_eq!((config.namespaces.len(), config.policies.len()), (2, 2));
    // The defaults that the example writes down are the defaults there are.
    let (bare, _) = loaded("");
    let bare = bare.unwrap();
    assert_eq!(
        (
            config.drain,
            config.companion_prefix,
            config.allow_open,
            config.metrics_max_namespaces,
            config.administration
        ),
        (bare.drain, bare.companion_prefix, bare.allow_open, bare.metrics_max_namespaces, bare.administration)
    );
    let (written, built_in) = (&config.namespaces[0], &bare.namespaces[0]);
    assert_eq!(written.policies[..3], built_in.policies);
    assert_eq!(written.on_violation, built_in.on_violation);
    assert_eq!(
        (
            written.on_fault,
            written.adopt,
            written.counter_locks,
            written.on_repeat,
            written.hand_over,
            written.released
        ),
        (
            built_in.on_fault,
            built_in.adopt,
            built_in.counter_locks,
            built_in.on_repeat,
            built_in.hand_over,
            built_in.released
        )
    );
}

#[test]
fn settings_become_text_and_keep_their_places() {
    let text = "[[namespace]]\nname = \"a\"\nkeys = [\"a\"]\n[namespace.settings.ttl-ceiling]\n\
                d = [\"x\", \"y\"]\nc = 0x10\nb = 1.5\na = true\n  e = \"60s\"\n";
    let (config, found) = loaded(text);
    assert_eq!(found, Vec::<String>::new());
    let namespace = &config.unwrap().namespaces[0];
    let flat: Vec<_> = namespace.settings["ttl-ceiling"].iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(flat, ["a=true", "b=1.5", "c=16", "d=x,y", "e=60s"]);
    let position = |line, column| Some(Position { line, column });
    assert_eq!(namespace.setting_position("ttl-ceiling", "e"), position(9, 7));
    assert_eq!(namespace.setting_position("ttl-ceiling", "f"), None);
    assert_eq!(namespace.policy_position("ttl-ceiling"), position(4, 21));
    assert_eq!(namespace.policy_position("fencing"), position(1, 1));
    let rejected = Finding::error_in(Some(Path::new("bad.toml")), position(9, 7), "no".to_owned());
    assert_eq!(rejected.to_string(), "bad.toml:9:7 error: no");
}

#[test]
fn a_policy_module_is_found_beside_the_file_and_its_limits_are_read() {
    let sum = "0123456789abcdefABCDEF0123456789".repeat(2);
    let text = format!(
        "[[policy]]\nname = \"mine\"\nmodule = \"p/mine.wasm\"\nsha256 = \"{sum}\"\n\
         deadline = \"10ms\"\nmemory = \"64KiB\"\nfuel = 5\n[[policy]]\nname = \"other\"\n\
         module = \"/p/other.wasm\"\n[[namespace]]\nname = \"a\"\nkeys = [\"a\"]\n\
         policies = [\"other\", \"mine\"]\n"
    );
    let (config, found) = loaded(&text);
    assert_eq!(found, Vec::<String>::new());
    let config = config.unwrap();
    let [mine, other] = &config.policies[..] else { panic!("two policies") };
    assert_eq!(mine.place, ModulePlace::File(config.source.unwrap().parent().unwrap().join("p/mine.wasm")));
    assert_eq!(mine.sha256.unwrap()[..4], [0x01, 0x23, 0x45, 0x67]);
    assert_eq!((mine.deadline, mine.memory_bytes), (Duration::from_millis(10), 64 << 10));
    assert_eq!((mine.fuel, mine.position), (Some(5), Some(Position { line: 3, column: 10 })));
    assert_eq!(other.place, ModulePlace::File("/p/other.wasm".into()));
    assert_eq!((other.deadline, other.memory_bytes), (Duration::from_millis(2), 8 << 20));
    assert_eq!((other.fuel, other.sha256), (None, None));
}

#[test]
fn secrets_come_from_files_of_their_own_and_are_never_printed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("token"), "t0ken\n").unwrap();
    fs::write(directory.path().join("password"), "pass word\r\n").unwrap();
    let path = directory.path().join("c.toml");
    let text = "backend = \"redis://app@redis:7000/3\"\nbackend_password_file = \"password\"\n\
                admin = \"0.0.0.0:9180\"\nadmin_token_file = \"token\"\n";
    fs::write(&path, text).unwrap();
    let loaded = load(Some(&path), &Overrides::default(), std::iter::empty());
    assert_eq!(loaded.findings, []);
    let config = loaded.config.unwrap();
    assert_eq!(config.admin_token.as_ref().map(Secret::expose), Some("t0ken"));
    let Backend::Redis(url) = &config.backend else { panic!("a URL was given") };
    assert_eq!(url.password.as_ref().map(Secret::expose), Some("pass word"));
    assert_eq!(url.to_string(), "redis://app@redis:7000/3");
    let printed = format!("{config:?}");
    assert!(!printed.contains("t0ken") && !printed.contains("pass word"), "{printed}");

    for (content, wrong) in [
        (&b""[..], "token is empty"),
        (b"\xff", "token is not UTF-8 text"),
        (&[b'x'; 4097], "token is longer than 4096 bytes"),
        (b"two words", "may hold only printable ASCII"),
    ] {
        fs::write(directory.path().join("token"), content).unwrap();
        let loaded = load(Some(&path), &Overrides::default(), std::iter::empty());
        let found = lines(directory.path(), &loaded.findings);
        assert!(found.len() == 1 && found[0].contains(wrong), "{found:?}");
        assert!(found[0].starts_with("c.toml:4:20 error: admin_token_file: "), "{found:?}");
    }
}

#[test]
fn a_file_that_is_no_text_of_ours_is_one_finding() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    let load = || {
        let loaded = load(Some(&path), &Overrides::default(), std::iter::empty());
        assert!(loaded.config.is_none());
        lines(directory.path(), &loaded.findings)
    };
    assert_eq!(load(), ["c.toml error: cannot read the file: No such file or directory (os error 2)"]);
    fs::write(&path, b"# ok\n# \xc3\xa9 \xff\n").unwrap();
    assert_eq!(load(), ["c.toml:2:5 error: not UTF-8 text, which TOML has to be"]);
    fs::write(&path, vec![b'#'; (16 << 20) + 1]).unwrap();
    assert_eq!(load(), ["c.toml error: the file is longer than 16777216 bytes"]);
}

#[test]
fn hostile_files_cost_neither_the_stack_nor_the_day() {
    let deep_key = format!("a{} = 1", ".a".repeat(500_000));
    let deep_quoted = format!("x = {{ \"=\"{} = 1 }}", ".'='".repeat(200_000));
    let deep_list = format!("a = {}", "[".repeat(1_000_000));
    let bad_entries = format!("[[namespace]]\nname=\"a\"\nkeys=[\"a\"]\npolicies=[{}]", "1,".repeat(400_000));
    let many_keys: String = (0..80_000).map(|key| format!("k{key} = 1\n")).collect();
    let settings: String = (0..60_000).map(|key| format!("k{key}={{}},")).collect();
    let one_line = format!("[[namespace]]\nname=\"a\"\nkeys=[\"a\"]\n[namespace.settings]\nfencing={{{settings}}}");
    let globs = (0..100).map(|namespace| {
        let globs: String = (0..1000).map(|glob| format!("\"{glob}{namespace}*\",")).collect();
        format!("[[namespace]]\nname=\"n{namespace}\"\nkeys=[{globs}]\n")
    });
    for text in [deep_key, deep_quoted, deep_list, bad_entries, many_keys, one_line, globs.collect()] {
        assert!(text.len() < 1 << 20, "{} bytes would not be read at all", text.len());
        let start = Instant::now();
        let (_, found) = loaded(&text);
        assert!(!found.is_empty(), "nothing found in {}", &text[..60]);
        assert!(found.len() <= 401 && found.iter().all(|line| line.len() < 1000));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?} for {}", start.elapsed(), &text[..60]);
    }
}

#[test]
fn too_many_errors_are_counted_to_the_end() {
    let text: String = (0..250).map(|key| format!("k{key} = 1\n")).collect();
    let (_, found) = loaded(&text);
    assert_eq!(found.len(), 201);
    assert_eq!(found[200], "c.toml error: and 50 more errors; mend these first");
}

#[test]
fn more_namespaces_or_globs_than_the_bound_are_refused() {
    let many = "[[namespace]]\nname = \"a\"\nkeys = [\"a\"]\n".repeat(1001);
    expect_findings(&[
        (&many, &["c.toml:1:1 error: namespace: 1001 of them are too many; 1000 is the most"]),
        (
            &format!("[[namespace]]\nname = \"a\"\nkeys = [{}]", "\"a\",".repeat(1001)),
            &["c.toml:3:8 error: namespace \"a\": keys: 1001 entries are too many; 1000 is the most"],
        ),
    ]);
}

#[test]
fn a_report_lines_up_and_counts() {
    let text = "listen = \"6380\"\n[[namespace]]\nname = \"a\"\nkeys = []\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    fs::write(&path, text).unwrap();
    let loaded = load(Some(&path), &Overrides::default(), std::iter::empty());
    let report = Report(&loaded.findings).to_string();
    let report = report.replace(&format!("{}/", directory.path().display()), "");
    assert_eq!(
        report,
        "c.toml:1:10 error: listen: \"6380\" is only a port; write \"127.0.0.1:6380\"\n\
         c.toml:4:8  warning: namespace \"a\": keys: the list is empty, so no key is a lock here\n\
         1 error, 1 warning"
    );
}

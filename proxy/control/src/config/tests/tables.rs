use bytes::Bytes;

use super::*;

#[test]
fn a_namespace_is_checked_in_every_field() {
    expect_findings(&[
        (
            r#"[[namespace]]
"#,
            &[
                r#"c.toml:1:1 error: namespace #1: name is missing; write name = "orders""#,
                r#"c.toml:1:1 error: namespace #1: keys is missing; write keys = ["lock:*"]"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "new orders"
keys = ["lock:*"]
"#,
            &[r#"c.toml:2:8 error: namespace #1: name: "new orders" is not a name; use 1 to 64 of A-Z a-z 0-9 _ . -"#],
        ),
        (
            r#"[[namespace]]
name = "orders"
keys = []
"#,
            &[r#"c.toml:3:8 warning: namespace "orders": keys: the list is empty, so no key is a lock here"#],
        ),
        (
            r#"[[namespace]]
name = "orders"
keys = "lock:*"
"#,
            &[
                r#"c.toml:3:8 error: namespace "orders": keys: must be a list of strings, not a string; write keys = ["lock:*"]"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "orders"
keys = ["a", 7, "b", [""]]
"#,
            &[
                r#"c.toml:3:14 error: namespace "orders": keys: must hold only strings, not an integer"#,
                r#"c.toml:3:22 error: namespace "orders": keys: must hold only strings, not a list"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["a"]
[[namespace]]
name = "b"
keys = ["b"]
[[namespace]]
name = "a"
keys = ["c"]
"#,
            &[r#"c.toml:8:8 error: namespace "a": name: line 2 has a namespace of this name already; choose another"#],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["a"]
mode = "enforced"
on_violation = "err"
on_fault = "ignore"
adopt = true
counter_locks = "yes"
on_repeat = "granted"
"#,
            &[
                r#"c.toml:4:8 error: namespace "a": mode: "enforced" must be "monitor" or "enforce"; did you mean "enforce"?"#,
                r#"c.toml:5:16 error: namespace "a": on_violation: "err" must be "native" or "error"; did you mean "error"?"#,
                r#"c.toml:6:12 error: namespace "a": on_fault: "ignore" must be "deny" or "allow""#,
                r#"c.toml:7:9 error: namespace "a": adopt: must be a string, not a boolean; write adopt = "report""#,
                r#"c.toml:8:17 error: namespace "a": counter_locks: must be true or false, not a string; write counter_locks = true"#,
                r#"c.toml:9:13 error: namespace "a": on_repeat: "granted" must be "refuse" or "grant"; did you mean "grant"?"#,
            ],
        ),
        (
            r#"namespace = [{ name = "a", keys = ["a"], mode = "enforce" }, 5]
"#,
            &["c.toml:1:62 error: namespace: must hold only tables, not an integer; write [[namespace]]"],
        ),
        (
            r#"namespace = []
"#,
            &["c.toml:1:13 warning: namespace: there is none, so every command passes through"],
        ),
    ]);
}

#[test]
fn a_chain_names_policies_that_exist_and_each_once() {
    expect_findings(&[
        (
            r#"[[namespace]]
name = "a"
keys = ["a"]
policies = ["ttl", "fencing", "owner_token", "mine", "fencing"]
"#,
            &[
                r#"c.toml:4:13 error: namespace "a": policies: no policy is called "ttl"; did you mean "ttl-ceiling"?"#,
                r#"c.toml:4:31 error: namespace "a": policies: no policy is called "owner_token"; did you mean "owner-token"?"#,
                r#"c.toml:4:46 error: namespace "a": policies: no policy is called "mine"; known are "owner-token", "fencing", "ttl-ceiling" and "rules"; others need a [[policy]]"#,
                r#"c.toml:4:54 error: namespace "a": policies: "fencing" is in the chain already; name it once"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["a"]
policies = "fencing"
"#,
            &[
                r#"c.toml:4:12 error: namespace "a": policies: must be a list of strings, not a string; write policies = ["owner-token", "fencing", "ttl-ceiling"]"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["a"]
policies = ["fencing"]
[namespace.settings.ttl-ceiling]
ceiling = "60s"
[namespace.settings.fencign]
counter = "hybrid"
"#,
            &[
                r#"c.toml:5:21 error: namespace "a": settings.ttl-ceiling: "ttl-ceiling" is not in this namespace's chain; add it to policies or remove its settings"#,
                r#"c.toml:7:21 error: namespace "a": settings: no policy is called "fencign"; did you mean "fencing"?"#,
            ],
        ),
    ]);
}

#[test]
fn settings_are_flat_or_explained() {
    expect_findings(&[
        (
            r#"[[namespace]]
name = "a"
keys = ["a"]
settings = 3
"#,
            &[
                r#"c.toml:4:12 error: namespace "a": settings: must be tables by policy, not an integer; write [namespace.settings.ttl-ceiling]"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["a"]
[namespace.settings]
ceiling = "60s"
fencing = "hybrid"
"#,
            &[
                r#"c.toml:5:1 error: namespace "a": settings: no policy is called "ceiling"; did you mean "ttl-ceiling"?"#,
                r#"c.toml:6:11 error: namespace "a": settings.fencing: must be a table, not a string; write [namespace.settings.fencing]"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["a"]
[namespace.settings.fencing]
a = nan
b = 9223372036854775808
c = ["x,y"]
d = [1]
e = { f = { h = 1 }, for = { h = 1 }, i = 1 }
g = 2026-01-01
"#,
            &[
                r#"c.toml:5:5 error: namespace "a": settings.fencing.a: nan is not a finite number"#,
                r#"c.toml:6:5 error: namespace "a": settings.fencing.b: 9223372036854775808 does not fit in 64 bits"#,
                r#"c.toml:7:5 error: namespace "a": settings.fencing.c: an entry of a list may not hold a comma, which separates entries"#,
                r#"c.toml:8:5 error: namespace "a": settings.fencing.d: a list may hold only strings, not an integer"#,
                r#"c.toml:9:11 error: namespace "a": settings.fencing.e.f: must be a string, a number, true, false or a list of strings, not a table"#,
                r#"c.toml:9:28 error: namespace "a": settings.fencing.e: must be a string, a number, true, false or a list of strings, not a table"#,
                r#"c.toml:10:5 error: namespace "a": settings.fencing.g: must be a string, a number, true, false or a list of strings, not a date or time"#,
            ],
        ),
    ]);
}

#[test]
fn a_glob_that_is_never_reached_is_a_warning() {
    expect_findings(&[
        (
            r#"[[namespace]]
name = "all"
keys = ["*"]

[[namespace]]
name = "stock"
keys = ["stock*"]
"#,
            &[
                r#"c.toml:3:9 warning: namespace "all": keys: "*" makes every key a lock, and in enforce mode no other data can be written; name the keys of locks, such as "lock:*""#,
                r#"c.toml:5:1 warning: namespace "stock" is never reached: "*" on line 3 matches first"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["lock:*", "x"]
[[namespace]]
name = "b"
keys = ["lock:b:*", "x"]
[[namespace]]
name = "c"
keys = ["lock:?", "y"]
"#,
            &[
                r#"c.toml:4:1 warning: namespace "b" is never reached: earlier globs match first, such as "lock:*" on line 3"#,
                r#"c.toml:9:9 warning: namespace "c": keys: "lock:?" is never reached: "lock:*" on line 3 matches first"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["lock:*", "lock:*"]
"#,
            &[
                r#"c.toml:3:19 warning: namespace "a": keys: "lock:*" is never reached: "lock:*" on line 3 matches first"#,
            ],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["l*k", "l[ao]*", "\\*"]
[[namespace]]
name = "b"
keys = ["lock:*", "l[ao]ck", "?", "*e"]
"#,
            &[],
        ),
        (
            r#"[[namespace]]
name = "a"
keys = ["lock:*", "?**"]
"#,
            &[
                r#"c.toml:3:19 warning: namespace "a": keys: "?**" makes every key a lock, and in enforce mode no other data can be written; name the keys of locks, such as "lock:*""#,
            ],
        ),
    ]);
}

#[test]
fn a_policy_module_is_checked_in_every_field() {
    expect_findings(&[
        (
            r#"[[policy]]
"#,
            &[
                r#"c.toml:1:1 error: policy #1: name is missing; write name = "team-a-naming""#,
                r#"c.toml:1:1 error: policy #1: module is missing; write module = "policies/team_a_naming.wasm""#,
            ],
        ),
        (
            r#"[[policy]]
name = "fencing"
module = ""
"#,
            &[
                r#"c.toml:2:8 error: policy #1: name: "fencing" ships with the proxy; choose another name"#,
                "c.toml:3:10 error: policy #1: module: is empty; write the path of a component, https://… or oci://…",
            ],
        ),
        (
            r#"[[policy]]
name = "mine"
module = "mine.wasm"
sha256 = "abc"
deadline = "1s"
memory = "8MB"
fuel = -1
"#,
            &[
                r#"c.toml:3:10 warning: policy "mine" is in no namespace's chain, so it is never asked"#,
                r#"c.toml:4:10 error: policy "mine": sha256: "abc" is not a SHA-256; write the 64 hex digits that `sha256sum` prints"#,
                r#"c.toml:5:12 error: policy "mine": deadline: "1s" is outside 1ms to 100ms"#,
                r#"c.toml:6:10 error: policy "mine": memory: "8MB" is not a size; write a whole number and B, KiB, MiB or GiB, as in "8MiB""#,
                r#"c.toml:7:8 error: policy "mine": fuel: -1 is outside 1 to 9223372036854775807"#,
            ],
        ),
        (
            r#"[[policy]]
name = "mine"
module = "mine.wasm"
deadline = "0ms"
memory = "65MiB"
[[policy]]
name = "mine"
module = "mine.wasm"
"#,
            &[
                r#"c.toml:3:10 warning: policy "mine" is in no namespace's chain, so it is never asked"#,
                r#"c.toml:4:12 error: policy "mine": deadline: "0ms" is outside 1ms to 100ms"#,
                r#"c.toml:5:10 error: policy "mine": memory: "65MiB" is outside 64KiB to 64MiB"#,
                r#"c.toml:7:8 error: policy #2: name: "mine" is another policy's name already; choose another"#,
            ],
        ),
    ]);
}

#[test]
fn enforce_for_is_checked_as_a_whole() {
    let with = |line: &str| format!("[[namespace]]\nname = \"a\"\nkeys = [\"a\"]\n{line}\n");
    for (line, expected) in [
        (
            "enforce_for = { applications = [\"shop\"] }",
            r#"c.toml:4:33 error: namespace "a": enforce_for: applications: no [[application]] is called "shop"; there is none in this file"#,
        ),
        (
            "enforce_for = { applications = [] }",
            r#"c.toml:4:32 error: namespace "a": enforce_for: applications: the list is empty, so it names nobody"#,
        ),
        (
            "enforce_for = { certificates = [] }",
            r#"c.toml:4:32 error: namespace "a": enforce_for: certificates: the list is empty, so it names nobody"#,
        ),
        (
            r#"enforce_for = "billing*""#,
            r#"c.toml:4:15 error: namespace "a": enforce_for: must be a table, not a string; write enforce_for = { clients = ["billing*"] }"#,
        ),
        (
            "enforce_for = {}",
            r#"c.toml:4:15 error: namespace "a": enforce_for: names nobody; say clients = ["billing*"], percent = 10, or both"#,
        ),
        (
            "enforce_for = { clients = [] }",
            r#"c.toml:4:27 error: namespace "a": enforce_for: clients: the list is empty, so it names nobody"#,
        ),
        (
            "enforce_for = { percent = 0 }",
            r#"c.toml:4:27 error: namespace "a": enforce_for: percent: 0 is outside 1 to 100"#,
        ),
        (
            "enforce_for = { percent = 101 }",
            r#"c.toml:4:27 error: namespace "a": enforce_for: percent: 101 is outside 1 to 100"#,
        ),
        (
            "enforce_for = { client = [\"a\"] }",
            r#"c.toml:4:17 error: namespace "a": enforce_for: unknown key "client"; did you mean "clients"?"#,
        ),
        (
            "mode = \"enforce\"\nenforce_for = { percent = 10 }",
            r#"c.toml:5:15 error: namespace "a": enforce_for: mode = "enforce" refuses for everybody; keep mode = "monitor" to refuse for these clients only, or remove enforce_for"#,
        ),
    ] {
        let (config, found) = loaded(&with(line));
        assert_eq!(found, [expected], "for {line}");
        assert!(config.is_none());
    }
    let (config, found) = loaded(&with("enforce_for = { certificates = [\"spiffe://corp/*\"] }"));
    assert!(found.is_empty(), "{found:?}");
    let enforce_for = config.and_then(|config| config.namespaces[0].enforce_for.clone());
    let expected = EnforceFor {
        clients: Vec::new(),
        applications: Vec::new(),
        certificates: vec![Bytes::from_static(b"spiffe://corp/*")],
        percent: 100,
    };
    assert_eq!(enforce_for, Some(expected));
    let (config, found) = loaded(&with("enforce_for = { clients = [\"b*\"], percent = 10 }"));
    assert!(found.is_empty(), "{found:?}");
    let enforce_for = config.and_then(|config| config.namespaces[0].enforce_for.clone());
    let expected = EnforceFor {
        clients: vec![Bytes::from_static(b"b*")],
        applications: Vec::new(),
        certificates: Vec::new(),
        percent: 10,
    };
    assert_eq!(enforce_for, Some(expected));
}

#[test]
fn an_application_is_checked_in_every_field() {
    expect_findings(&[
        (
            "[[application]]\n",
            &[
                r#"c.toml:1:1 error: application #1: name is missing; write name = "billing""#,
                "c.toml:1:1 error: application #1: says of no client that it belongs to it; add at least one of from, process, user, client, certificate and listener",
            ],
        ),
        (
            "[[application]]\nname = \"a\"\n",
            &[
                r#"c.toml:1:1 error: application "a": says of no client that it belongs to it; add at least one of from, process, user, client, certificate and listener"#,
            ],
        ),
        (
            "[[application]]\nname = \"__other__\"\nuser = \"a\"\n",
            &[
                r#"c.toml:2:8 error: application #1: name: "__other__" stands for all other applications in metrics; choose another name"#,
            ],
        ),
        (
            "[[application]]\nname = \"a\"\nfrom = []\n",
            &[r#"c.toml:3:8 error: application "a": from: the list is empty, so it names nobody"#],
        ),
        (
            "[[application]]\nname = \"a\"\nfrom = [\"lan\"]\n",
            &[
                r#"c.toml:3:9 error: application "a": from: "lan" is no network; write an address and a number of bits, as in "10.0.0.0/8""#,
            ],
        ),
        (
            "[[application]]\nname = \"a\"\nuser = 7\nproces = \"b\"\n",
            &[
                r#"c.toml:3:8 error: application "a": user: must be a string, not an integer; write user = "billing""#,
                r#"c.toml:4:1 error: application "a": unknown key "proces"; did you mean "process"?"#,
            ],
        ),
        (
            "process = \"php-fpm*\"\n",
            &[r#"c.toml:1:1 error: unknown key "process"; it belongs under an [[application]]"#],
        ),
    ]);
    let many = "[[application]]\nname = \"a\"\nuser = \"a\"\n".repeat(1_001);
    let (config, found) = loaded(&many);
    assert!(config.is_none() && found.len() == 1, "{found:?}");
    assert!(found[0].contains("1001 of them are too many; 1000 is the most"), "{found:?}");
}

#[test]
fn an_application_that_is_told_by_its_process_cannot_be_enforced_by_its_name() {
    let text = |condition: &str| {
        format!(
            "[[application]]\nname = \"billing\"\n{condition}\n[[namespace]]\nname = \"a\"\nkeys = [\"a\"]\n\
             enforce_for = {{ applications = [\"billing\"], percent = 50 }}\n"
        )
    };
    let (config, found) = loaded(&text("user = \"billing\""));
    assert!(found.is_empty(), "{found:?}");
    let enforce_for = config.and_then(|config| config.namespaces[0].enforce_for.clone());
    let expected = EnforceFor {
        clients: Vec::new(),
        applications: vec!["billing".to_owned()],
        certificates: Vec::new(),
        percent: 50,
    };
    assert_eq!(enforce_for, Some(expected));
    let (config, found) = loaded(&text("user = \"billing\"\nprocess = \"b*\""));
    assert!(config.is_none());
    assert_eq!(
        found,
        [
            r#"c.toml:8:33 error: namespace "a": enforce_for: applications: "billing" is told by its process, which is found out after its first command; tell it by from, user or client"#
        ]
    );
}

#[test]
fn odd_tables_are_no_reason_to_panic() {
    for odd in [
        "namespace = 1\n",
        "namespace = [1, \"a\", {}]\n",
        "[namespace]\nname = \"a\"\n",
        "[[namespace]]\nname = 5\nsettings = 5\npolicies = 5\n",
        "[[namespace]]\nsettings = { ttl-ceiling = 5 }\npolicies = [5]\n",
        "listen.a.b = 1\n",
    ] {
        let (config, findings) = loaded(odd);
        assert!(config.is_none() && !findings.is_empty(), "{odd}");
    }
}

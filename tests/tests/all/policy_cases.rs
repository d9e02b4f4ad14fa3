//! `lockwarden policy test` and `policy run`: a module, or the rules of a namespace, is asked the questions
//! of a file of cases, without Redis and without a proxy.

use std::fs;

use lockwarden_tests::{Finished, installed, lockwarden, run_to_end};
use tempfile::TempDir;

use crate::documentation::{page, repository};
use crate::failing_policies::{example, naughty};

/// A folder with the example of the rules of a team.
fn folder() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory for the cases");
    for name in ["team-rules.toml", "team-rules-cases.toml"] {
        let example = repository().join("docs/examples").join(name);
        fs::copy(example, directory.path().join(name)).expect("the example is there");
    }
    directory
}

fn typed(directory: &TempDir, line: &str) -> Finished {
    let words: Vec<&str> = line.split(' ').collect();
    run_to_end(lockwarden(&words).current_dir(directory))
}

/// The output of `policy test` for these cases and a module.
fn tested(module: &str, cases: &str) -> Finished {
    let directory = folder();
    fs::write(directory.path().join("cases.toml"), cases).expect("the directory is ours");
    typed(&directory, &format!("policy test cases.toml --module {module}"))
}

#[test]
fn the_rules_of_the_example_do_what_its_cases_say() {
    let end = typed(&folder(), "policy test team-rules-cases.toml --config team-rules.toml");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(end.stdout.lines().filter(|line| line.starts_with("ok    ")).count(), 5, "{end:?}");
    assert!(end.stdout.contains("\n5 passed, 0 failed; most fuel "), "{end:?}");
}

/// Each was built once, for its version of the contract, and is never built again.
#[test]
fn a_policy_that_was_built_for_an_earlier_contract_is_told_and_says_what_it_was() {
    let kept = repository().join("tests/policies/kept");
    for version in ["1.0", "1.1", "1.2"] {
        let [module, cases] = ["wasm", "toml"].map(|end| kept.join(format!("{version}.{end}")));
        let end = run_to_end(lockwarden(&["policy", "test"]).arg(cases).arg("--module").arg(&module));
        assert_eq!(end.code, Some(0), "{version}: {end:?}");
        let end = run_to_end(lockwarden(&["policy", "inspect"]).arg(&module));
        assert!(end.stdout.contains(&format!("contract  lockwarden:policy {version}.0\n")), "{end:?}");
    }
}

#[test]
fn a_rule_that_says_otherwise_fails_the_case_at_its_line() {
    let directory = folder();
    let rules = directory.path().join("team-rules.toml");
    let text = fs::read_to_string(&rules).expect("it was copied");
    fs::write(&rules, text.replace("hour >= 18", "hour >= 19")).expect("the directory is ours");
    let end = typed(&directory, "policy test team-rules-cases.toml --config team-rules.toml");
    assert_eq!(end.code, Some(1), "{end:?}");
    let words = "\n      team-rules-cases.toml:22: permitted, ttl_default 5s, ttl_cap 5s, keep_alive 1d, fence hybrid; \
                 expected deny limited by the rule hours that says \"8 to 18\"\n";
    assert!(end.stdout.contains("FAIL  after six in Berlin") && end.stdout.contains(words), "{end:?}");
    assert!(end.stdout.contains("4 passed, 1 failed"), "{end:?}");

    let end = typed(&directory, "policy test team-rules-cases.toml --config team-rules.toml -o json");
    let told: serde_json::Value = serde_json::from_str(&end.stdout).expect("it is JSON");
    let failed: Vec<_> = told.as_array().expect("a list").iter().filter(|case| case["passed"] == false).collect();
    assert_eq!(failed.len(), 1, "{told}");
    assert_eq!((&failed[0]["name"], &failed[0]["line"]), (&"after six in Berlin".into(), &22.into()));
}

#[test]
fn one_request_is_answered_in_a_line() {
    let directory = folder();
    for (line, answer) in [
        (
            "policy run --config team-rules.toml --key lock:sales:7 --ttl 3s --time 2026-11-23T10:00:00Z",
            "deny limited policy=rules rule=team: name the lock lock:<team>:<thing>; teams are billing, stock\n",
        ),
        ("policy run --module ttl-ceiling --ttl 3h", "permitted, ttl_default 30s, ttl_cap 1h, keep_alive 1d\n"),
        (
            "policy run --module owner-token --operation release",
            "permitted, require token,session,observed,identity, take_over after-deadline\n",
        ),
    ] {
        let end = typed(&directory, line);
        assert_eq!((end.code, &*end.stdout), (Some(0), answer), "{line}: {end:?}");
    }
}

#[test]
fn settings_and_faults_of_a_module_are_expected_like_answers() {
    let cases = r#"
[request]
client = { name = "worker-1", address = "10.0.0.7" }
[[case]]
request = { key = "who" }
expect = { deny = "other", hint = "worker-1/default/10.0.0.7" }
[[case]]
request = { key = "loop" }
expect = { fault = "fuel" }
[[case]]
request = { key = "bomb" }
expect = { fault = "memory" }
[[case]]
settings = { configure = "reject" }
expect = { rejects = "no thanks" }
[[case]]
settings = { require = ["token", "session"], fence = "sequential" }
expect = { permit = { require = ["session", "token"], fence = "sequential" } }
"#;
    let end = tested(naughty(), cases);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("5 passed, 0 failed; most fuel 1,000,000 of 1,000,000\n"), "{end:?}");
}

/// The example of `docs/policy-authors.md`.
#[test]
fn the_policy_of_the_page_about_writing_them_does_what_its_cases_say() {
    let cases = repository().join("policies/examples/cases.toml");
    let cases = fs::read_to_string(cases).expect("the example has cases");
    let end = tested(&example("team_naming"), &cases);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("8 passed, 0 failed; most fuel "), "{end:?}");
    let shown = page("docs/policy-authors.md");
    assert!(shown.contains(cases.split_once("\n\n").expect("a heading").1), "the page shows these cases");
    let go = fs::read_to_string(repository().join("policies/examples/go/main.go")).expect("there is one in Go");
    let (_, shown_of_it) = go.split_once("\n)\n\n").expect("imports");
    let (shown_of_it, _) = shown_of_it.split_once("\n\nfunc main()").expect("an end");
    assert!(shown.contains(shown_of_it), "the page shows this policy");
}

#[test]
fn what_answers_cost_is_measured_and_a_limit_that_is_near_is_marked() {
    let directory = folder();
    let end = typed(&directory, "policy bench team-rules-cases.toml --config team-rules.toml --count 200 -o json");
    assert_eq!(end.code, Some(0), "{end:?}");
    let told: serde_json::Value = serde_json::from_str(&end.stdout).expect("it is JSON");
    let costs = told.as_array().expect("a list");
    assert_eq!(costs.len(), 5, "{told}");
    for cost in costs {
        let number = |name: &str| cost[name].as_u64().unwrap_or_else(|| panic!("{name}: {cost}"));
        assert!(number("fuel") > 0 && number("max_fuel") >= number("fuel"), "{cost}");
        assert!(number("p99_ns") >= number("p50_ns") && number("memory_bytes") >= 1 << 16, "{cost}");
    }

    let benched = |per_byte: u64| {
        let key = "x".repeat(1_000);
        let cases = format!(
            "[settings]\nper_byte = {per_byte}\n[[case]]\nrequest = {{ key = \"{key}\", client = {{}} }}\nexpect = \"permit\"\n"
        );
        fs::write(directory.path().join("cases.toml"), cases).expect("the directory is ours");
        typed(&directory, &format!("policy bench cases.toml --count 3 --module {}", naughty()))
    };
    let end = benched(200);
    assert_eq!(end.code, Some(2), "the longest key burns more than there is: {end:?}");
    assert!(end.stderr.contains("with a key of 1024 bytes") && end.stderr.contains("fuel"), "{end:?}");
    let end = benched(60);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains(" of 1,000,000 !"), "{end:?}");
}

#[test]
fn what_depends_on_more_than_the_request_and_the_settings_fails() {
    let moody = "[[case]]\nrequest = { key = \"moody\", client = {} }\nexpect = { deny = \"other\" }\n";
    let end = tested(naughty(), moody);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.contains("cases.toml:3: asked again it answers otherwise"), "{end:?}");

    let nobody = "[[case]]\nrequest = { key = \"who\" }\nexpect = { deny = \"other\", hint = \"nobody\" }\n";
    let end = tested(naughty(), nobody);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.contains("cases.toml:3: it asks who the client is, and nothing says so"), "{end:?}");
}

#[test]
fn a_slip_in_a_file_of_cases_is_an_error_at_its_place() {
    let case = |request: &str, expect: &str| format!("[[case]]\nrequest = {{ {request} }}\nexpect = {expect}\n");
    for (cases, words) in [
        (
            case("kay = \"lock:a\"", "\"permit\""),
            "cases.toml:2:13 error: unknown field `kay`, expected one of `operation`, `db`, ",
        ),
        (case("ttl = \"3 parsecs\"", "\"permit\""), "cases.toml:2:19 error: `3 parsecs`: unknown time unit"),
        (case("operation = \"take\"", "\"permit\""), "`take` is none of acquire, extend, release, take-over"),
        (case("traits = [\"shared\"]", "\"permit\""), "`shared` is none of conditional, "),
        (case("time = 2026-11-23", "\"permit\""), "`2026-11-23` is no time in UTC; write 2026-11-23T10:00:00Z"),
        (case("", "\"allow\""), "cases.toml:3:10 error: expected \"permit\", or one of "),
        (case("", "{ deny = \"late\" }"), "`late` is none of not-owner, "),
        (case("", "{ deny = \"limited\", rejects = \"x\" }"), "expected \"permit\", or one of "),
        (case("", "{ permit = { ttl_cup = \"5s\" } }"), "unknown field `ttl_cup`, expected one of `ttl_default`, "),
        (case("", "{ hint = \"x\" }"), "hint and rule say more of a deny"),
        ("[[case]]\nname = \"nothing is expected\"\n".to_owned(), "cases.toml:1:1 error: missing field `expect`"),
        (
            "[settings]\nteams = { a = 1 }\n".to_owned(),
            "teams must be a text, a number, true or false, or a list of such",
        ),
        ("[request]\ndb = -1\n".to_owned(), "cases.toml:2:6 error: invalid value: integer `-1`, expected u32"),
        (String::new(), "cases.toml: there is no [[case]] in it"),
        ("[[case]\n".to_owned(), "cases.toml:1:8 error: "),
    ] {
        let end = tested("ttl-ceiling", &cases);
        assert_eq!((end.code, &*end.stdout), (Some(2), ""), "{cases}: {end:?}");
        assert!(end.stderr.contains(words), "{cases}: {end:?}");
        assert_eq!(end.stderr.lines().count(), 1, "{cases}: {end:?}");
    }
}

#[test]
fn the_policies_of_a_configuration_are_loaded_and_told_with_what_they_judge() {
    let directory = folder();
    let end = typed(&directory, "policy check --config team-rules.toml");
    assert_eq!(end.code, Some(0), "{end:?}");
    let cells =
        |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    let lines: Vec<Vec<String>> = end.stdout.lines().map(cells).collect();
    assert_eq!(lines[0], ["NAMESPACE", "POLICY", "VERSION", "SHA256", "MOST FUEL", "JUDGES"]);
    let judged: Vec<[&str; 2]> = lines[1..].iter().map(|line| [&*line[1], &*line[5]]).collect();
    let expected = [
        ["owner-token", "extend, release, take-over, write"],
        ["fencing", "acquire, take-over"],
        ["ttl-ceiling", "acquire, extend, take-over"],
        ["rules", "acquire, extend, take-over"],
    ];
    assert_eq!(judged, expected, "{end:?}");

    // Above half of the memory: a longer key would take the rest.
    let naughty = |per_byte: u64| {
        let config = format!(
            "listen = \"127.0.0.1:0\"\nbackend = \"redis://127.0.0.1:1\"\n[[policy]]\nname = \"naughty\"\nmodule = \"{}\"\n\
             [[namespace]]\nname = \"locks\"\nkeys = [\"lock:*\"]\npolicies = [\"naughty\"]\n\
             [namespace.settings.naughty]\nper_byte = {per_byte}\n",
            naughty()
        );
        fs::write(directory.path().join("naughty.toml"), config).expect("the directory is ours");
        typed(&directory, "policy check --config naughty.toml")
    };
    let end = naughty(60);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains(" of 1,000,000 !"), "{end:?}");
    let end = naughty(200);
    assert_eq!((end.code, &*end.stdout), (Some(2), ""), "{end:?}");
    assert!(end.stderr.contains("with a key of 1024 bytes"), "{end:?}");
}

#[test]
fn what_cannot_be_asked_is_said_in_a_line() {
    let directory = folder();
    fs::write(directory.path().join("settings.toml"), "[settings]\nceiling = \"1s\"\n").expect("the directory is ours");
    fs::write(directory.path().join("foreign.wasm"), b"\0asm\x01\0\0\0").expect("the directory is ours");
    for (line, words) in [
        ("policy run --module gone.wasm", "policy gone: cannot read gone.wasm: No such file or directory"),
        ("policy run --module settings.toml", "settings.toml is no WebAssembly component or module"),
        ("policy run --module foreign.wasm", "foreign.wasm"),
        ("policy run --config team-rules.toml --namespace teams", "no namespace is called teams; there are team"),
        (
            "policy run --config team-rules.toml --settings settings.toml",
            "with --config the settings are those of the configuration",
        ),
        ("policy test gone.toml --module fencing", "gone.toml: No such file or directory"),
    ] {
        let end = typed(&directory, line);
        assert_eq!((end.code, &*end.stdout), (Some(2), ""), "{line}: {end:?}");
        assert!(end.stderr.contains(words), "{line}: {end:?}");
    }
}

#[test]
fn a_module_is_inspected_and_nothing_of_it_is_run() {
    let directory = folder();
    let end = typed(&directory, &format!("policy inspect {}", naughty()));
    assert_eq!(end.code, Some(0), "{end:?}");
    for words in [
        " bytes, a module, which is made a component when it is loaded\nsha256    ",
        "\ncontract  lockwarden:policy 1.2.0\n",
        "\ncalls     clients.describe, clients.certificate\n",
    ] {
        assert!(end.stdout.contains(words), "{words}: {end:?}");
    }
    let digest = run_to_end(std::process::Command::new("sha256sum").arg(naughty())).stdout;
    let digest = digest.split(' ').next().unwrap_or_default();
    assert!(end.stdout.contains(&format!("\nsha256    {digest}\n")), "{digest}: {end:?}");
    let end = typed(&directory, "policy inspect fencing");
    assert!(end.stdout.contains("\ncalls     nothing\n"), "{end:?}");
}

/// Cut anywhere, changed anywhere, or something else from the start.
#[test]
fn of_a_file_that_is_no_policy_one_line_says_so() {
    let directory = folder();
    let whole = fs::read(naughty()).expect("the guest is built");
    let mut files: Vec<Vec<u8>> = (0..12).map(|part| whole[..whole.len() * part / 12].to_vec()).collect();
    files.extend((1..8).map(|part| {
        let mut changed = whole.clone();
        let at = changed.len() * part / 8;
        changed[at..at + 64].fill(0xff);
        changed
    }));
    files.extend([
        b"\0asm\x0d\0\x01\0".to_vec(),
        b"\0asm\x0d\0\x01\0\xff\xff\xff\xff\x0f".to_vec(),
        b"\0asm\x01\0\0\0\x05\xff\xff\xff\xff\x0f".to_vec(),
        b"\0asm\x02\0\0\0".to_vec(),
        b"\x1f\x8b\x08\0".to_vec(),
        b"(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)))".to_vec(),
        b"\x1b[2J\n".to_vec(),
    ]);
    for (number, bytes) in files.iter().enumerate() {
        fs::write(directory.path().join("bad.wasm"), bytes).expect("the directory is ours");
        let end = typed(&directory, "policy inspect bad.wasm");
        // The changed byte may be data, and then the file is a policy as before.
        if end.code == Some(0) && bytes.len() == whole.len() {
            continue;
        }
        assert_eq!((end.code, &*end.stdout), (Some(2), ""), "{number}: {end:?}");
        assert_eq!(end.stderr.lines().count(), 1, "{number}: {end:?}");
        assert!(end.stderr.starts_with("lockwarden: policy bad: bad.wasm "), "{number}: {end:?}");
    }
    let end = typed(&directory, "policy inspect /dev/zero");
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(end.stderr.contains("/dev/zero"), "{end:?}");
}

#[test]
fn what_ships_is_listed() {
    let directory = folder();
    let end = typed(&directory, "policy list");
    assert_eq!(end.code, Some(0), "{end:?}");
    let rows: Vec<Vec<&str>> = end.stdout.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["owner-token", "fencing", "ttl-ceiling", "rules"]);
    let by_default: Vec<&str> = rows.iter().map(|row| row[3]).collect();
    assert_eq!(by_default, ["yes", "yes", "yes", "no"]);
    let version = typed(&directory, "version").stdout;
    assert!(rows.iter().all(|row| version.contains(row[2])), "{version}\n{end:?}");
}

/// The settings that its `policy.toml` declares are stored in the module, and are checked before the policy
/// is asked.
#[test]
fn settings_are_compared_with_what_the_author_says_of_them_at_their_lines() {
    if !installed(&["clang", "wasm-ld"]) {
        return;
    }
    let directory = folder();
    for line in ["policy new team-naming --lang c", "policy build team-naming"] {
        let end = typed(&directory, line);
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    let end = typed(&directory, "policy inspect team-naming/team-naming.wasm");
    let told: Vec<Vec<&str>> = end.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(told.iter().any(|row| row.starts_with(&["teams", "list", "required", "the", "teams"])), "{end:?}");
    assert!(told.iter().any(|row| row.starts_with(&["max_attempts", "number", "1..", "100", "tries"])), "{end:?}");
    let checked = |settings: &str| {
        let text = format!(
            "[[namespace]]\nname = \"locks\"\nkeys = [\"lock:*\"]\npolicies = [\"team-naming\"]\n\
             [namespace.settings.team-naming]\n{settings}\n[[policy]]\nname = \"team-naming\"\n\
             module = \"team-naming/team-naming.wasm\"\n"
        );
        fs::write(directory.path().join("locks.toml"), text).expect("the directory is ours");
        typed(&directory, "check --config locks.toml")
    };
    let end = checked("teams = [\"billing\"]\nmax_attempts = 7");
    assert_eq!(end.code, Some(0), "{end:?}");
    let end = checked("teams = [\"billing\"]\nmax_attempts = 0");
    assert!(end.stdout.contains("locks.toml:7:16 error: ") && end.stdout.contains(": write 1 at least"), "{end:?}");
    let end = checked("tems = [\"billing\"]\nmax_attempts = \"many\"");
    for words in [
        "locks.toml:6:8  error: namespace locks: policy team-naming rejected its settings: tems: no such setting, there are teams, max_attempts",
        "locks.toml:7:16 error: namespace locks: policy team-naming rejected its settings: max_attempts = \"many\": write a whole number",
        "error: namespace locks: policy team-naming rejected its settings: teams has to be set: the teams that may take locks",
    ] {
        assert!(end.stdout.contains(words) || end.stderr.contains(words), "{words}: {end:?}");
    }
}

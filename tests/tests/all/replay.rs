//! `lockwarden policy replay`: the questions of an audit trail, asked again of another configuration.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use lockwarden_tests::{Finished, Proxy, Redis, lockwarden, run_to_end};
use serde_json::Value;
use tempfile::TempDir;

use crate::documentation::repository;
use crate::failing_policies::naughty;

const UUID: &str = "6f9619ff-8b86-d011-b42d-00c04fc964ff";

/// An audit trail of some traffic, and the configuration of the proxy that wrote it.
struct Trail {
    directory: TempDir,
    config: String,
}

impl Trail {
    /// The trail of the clients `billing` and `sales`.
    fn written() -> Trail {
        let directory = tempfile::tempdir().expect("a directory");
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis)
            .namespace("on_violation", "\"error\"")
            .top("audit_file", &format!("{:?}", directory.path().join("trail.jsonl")))
            .top("audit", "\"all\"")
            .start();
        for name in ["billing", "sales"] {
            let client = proxy.client();
            client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
            client.sends(format!("SETNX lock:{name}:1 1")).gets(":1");
            client.sends(format!("DEL lock:{name}:1")).gets(":1");
            client.sends(format!("SET lock:{name}:2 {UUID} NX PX 8000")).gets("+OK");
            client.sends(format!("GET lock:{name}:2")).gets(format!("$36 {UUID}"));
            client.sends(format!("PEXPIRE lock:{name}:2 9000")).gets(":1");
            // A stranger's release is refused by the step on Redis, which knows the proofs, and by no policy.
            proxy.client().sends(format!("DEL lock:{name}:2")).gets_error("LOCKDENIED not-owner");
            client.sends(format!("DEL lock:{name}:2")).gets(":1");
        }
        let config = fs::read_to_string(proxy.config()).expect("the file is there");
        assert_eq!(proxy.stop(), Some(0));
        Trail { directory, config }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("trail.jsonl")
    }

    /// The configuration of the proxy, with something behind it.
    fn config_with(&self, more: &str) -> PathBuf {
        let path = self.directory.path().join("other.toml");
        fs::write(&path, format!("{}\n{more}", self.config)).expect("the directory is ours");
        path
    }

    fn replayed(&self, config: &Path, more: &[&str]) -> Finished {
        replayed(&self.path(), config, more)
    }
}

fn replayed(trail: &Path, config: &Path, more: &[&str]) -> Finished {
    let mut command = lockwarden(&["policy", "replay"]);
    run_to_end(command.arg(trail).arg("--config").arg(config).args(more))
}

/// The changes of a replay, as JSON.
fn changes(end: &Finished) -> Vec<Value> {
    let told: Value = serde_json::from_str(&end.stdout).unwrap_or_else(|_| panic!("no JSON: {end:?}"));
    told["changes"].as_array().expect("a list").clone()
}

fn questions(trail: &Path) -> u64 {
    let text = fs::read_to_string(trail).expect("it is there");
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|line| line["questions"].as_array().map_or(0, |all| all.len() as u64)).sum()
}

#[test]
fn the_configuration_that_wrote_a_trail_answers_all_of_it_the_same() {
    let trail = Trail::written();
    let count = questions(&trail.path());
    assert!(count >= 10, "{count} questions");
    let end = trail.replayed(&trail.config_with(""), &[]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains(&format!(", {count} questions from 20")), "{end:?}");
    assert!(end.stdout.ends_with(&format!("; {count} are answered the same.\n")), "{end:?}");
}

#[test]
fn what_another_configuration_answers_otherwise_is_told_by_change_and_application() {
    let trail = Trail::written();
    let config = trail.config.replace("\"10s\"", "\"4s\"");
    assert_ne!(config, trail.config, "the ceiling of the tests is another one");
    let path = trail.directory.path().join("other.toml");
    let rules = "[[namespace.rule]]\nname = \"team\"\ndeny = '!key.like(\"lock:billing:*\")'\nhint = \"name it\"\n";
    let policies = config.replace("\"ttl-ceiling\"]", "\"ttl-ceiling\", \"rules\"]");
    let with_rules = match policies == config {
        true => config.replacen(
            "keys = ",
            "policies = [\"owner-token\", \"fencing\", \"ttl-ceiling\", \"rules\"]\nkeys = ",
            1,
        ),
        false => policies,
    };
    fs::write(&path, format!("{with_rules}\n{rules}")).expect("the directory is ours");
    let end = trail.replayed(&path, &["-o", "json"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    let changes = changes(&end);
    let find = |words: &str| {
        let found = changes.iter().find(|change| change["change"] == words);
        found.unwrap_or_else(|| panic!("no {words}: {changes:#?}"))
    };
    // One SETNX and one SET of each client; the rule refuses those of the other client.
    let refused = find("permitted → refused limited by rules, rule team");
    assert_eq!((&refused["questions"], &refused["applications"]), (&2.into(), &serde_json::json!({"sales": 2})));
    assert_eq!((&refused["example"]["command"], &refused["example"]["key"]), (&"SETNX".into(), &"lock:sales:1".into()));
    let cut = changes
        .iter()
        .find(|change| change["change"].as_str().is_some_and(|words| words.contains("is cut to: none → 4s")));
    let applications = &cut.unwrap_or_else(|| panic!("no shorter lease: {changes:#?}"))["applications"];
    assert!(applications["billing"].as_u64() >= Some(1), "{changes:#?}");

    let end = trail.replayed(&path, &[]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.contains("\nQUESTIONS  CHANGE "), "{end:?}");
    let line = end.stdout.lines().find(|line| line.contains("refused limited by rules, rule team")).unwrap_or_default();
    let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[..3], ["2", "permitted → refused limited by rules, rule team", "sales 2"], "{end:?}");
    assert!(cells[3].starts_with("SETNX lock:sales:1, seq "), "{end:?}");
    assert!(end.stdout.ends_with("a client that is answered otherwise goes on otherwise.\n"), "{end:?}");

    // The class of an owner token stands in the record, so a rule about it is answered truly.
    let rules = "[[namespace.rule]]\nname = \"uuid\"\ndeny = 'token.class != \"uuid\"'\ncode = \"shared-token\"\n";
    fs::write(&path, with_rules.replace("\"4s\"", "\"10s\"") + "\n" + rules).expect("the directory is ours");
    let end = trail.replayed(&path, &["-o", "json"]);
    let changes = self::changes(&end);
    assert_eq!(changes.len(), 1, "{changes:#?}");
    assert_eq!(changes[0]["change"], "permitted → refused shared-token by rules, rule uuid");
    assert_eq!(changes[0]["questions"], 2, "the constants: {changes:#?}");
}

/// An operator's own policy may look at the text of an owner token.
#[test]
fn an_answer_that_depends_on_what_an_owner_token_says_is_counted_as_open() {
    let trail = Trail::written();
    let naughty = format!(
        "[[policy]]\nname = \"naughty\"\nmodule = \"{}\"\n[namespace.settings.naughty]\ndeny_token = \"a\"\n",
        naughty()
    );
    let config = trail.config.replacen(
        "keys = ",
        "policies = [\"owner-token\", \"fencing\", \"ttl-ceiling\", \"naughty\"]\nkeys = ",
        1,
    );
    let path = trail.directory.path().join("other.toml");
    fs::write(&path, format!("{config}\n{naughty}")).expect("the directory is ours");
    let end = trail.replayed(&path, &[]);
    assert_eq!(end.code, Some(1), "{end:?}");
    // The UUIDs: one of the two that stand for one begins with an a.
    assert!(end.stdout.contains("\n2 depend on what an owner token says, which no record holds.\n"), "{end:?}");
}

/// Cut at each byte of its last line, with lines of others in it, and over standard input.
#[test]
fn lines_that_are_no_records_are_passed_over_and_counted() {
    let trail = Trail::written();
    let config = trail.config_with("");
    let whole = fs::read_to_string(trail.path()).expect("it is there");
    let lines: Vec<&str> = whole.lines().collect();
    let questions_of = |line: &str| line.matches("\"answer\":{").count();
    let last = lines.iter().rposition(|line| questions_of(line) > 0).expect("there are questions");
    let (before, line) = (lines[..last].join("\n") + "\n", lines[last]);
    let count: usize = lines[..last].iter().map(|line| questions_of(line)).sum();
    let cut = trail.directory.path().join("cut.jsonl");
    for length in (1..line.len()).step_by(37) {
        fs::write(&cut, format!("{before}{}", &line[..length])).expect("the directory is ours");
        let end = replayed(&cut, &config, &[]);
        assert_eq!(end.code, Some(0), "{length}: {end:?}");
        assert!(
            end.stdout.contains(&format!("; {count} are answered the same.\n1 lines are torn or ")),
            "{length}: {end:?}"
        );
    }

    let foreign = "{\"level\":\"INFO\"}\nnot JSON\n3\n\u{0}\u{1b}[2J\n{\"v\":\"1\"}\n";
    let mut command = lockwarden(&["policy", "replay", "-", "--config"]);
    command.arg(&config).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be run");
    let mut stdin = child.stdin.take().expect("it is piped");
    write!(stdin, "{foreign}{whole}").expect("it reads");
    drop(stdin);
    let end = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&end.stdout).into_owned();
    assert_eq!(end.status.code(), Some(0), "{told}");
    assert!(told.contains("\n5 lines are torn or of another program, and were passed over.\n"), "{told}");

    // A record may say anything.
    let strange = line.replace("\"operation\":\"", "\"operation\":\"un");
    let long = line.replacen("\"attempts\"", "\"token_length\":99999999999,\"attempts\"", 1);
    fs::write(&cut, format!("{before}{strange}\n{long}\n")).expect("the directory is ours");
    let end = replayed(&cut, &config, &[]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.contains(" are in words that this lockwarden does not know, and were not asked.\n"), "{end:?}");
}

#[test]
fn what_cannot_be_replayed_is_said_in_a_line() {
    let trail = Trail::written();
    let config = trail.config_with("");
    let whole = fs::read_to_string(trail.path()).expect("it is there");
    let other = trail.directory.path().join("other.jsonl");
    let of = |text: String| {
        fs::write(&other, text).expect("the directory is ours");
        replayed(&other, &config, &[])
    };
    let gone = trail.directory.path().join("gone.jsonl");
    let unasked: String =
        whole.lines().filter(|line| !line.contains("\"questions\"")).map(|line| format!("{line}\n")).collect();
    for (end, words) in [
        (of(String::new()), "no questions in 0 lines: they are recorded with audit = \"all\""),
        (of(unasked), "they are recorded with audit = \"all\""),
        (of(whole.replace("{\"v\":1,", "{\"v\":2,")), "line 1 is of form 2; this lockwarden reads form 1"),
        (replayed(&gone, &config, &[]), "gone.jsonl: No such file or directory"),
        (trail.replayed(&config, &["--namespace", "other"]), "no namespace is called other; there are locks"),
        (trail.replayed(&repository().join("README.md"), &[]), "README.md"),
    ] {
        assert_eq!((end.code, &*end.stdout), (Some(2), ""), "{words}: {end:?}");
        assert!(end.stderr.contains(words), "{words}: {end:?}");
    }
    let elsewhere = trail.config.replace("\"locks\"", "\"orders\"");
    fs::write(&other, elsewhere).expect("the directory is ours");
    let end = trail.replayed(&other, &[]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.contains(" are of the namespace locks, which the configuration does not have.\n"), "{end:?}");
}

/// The full files beside a trail are read first.
#[test]
fn full_files_are_read_in_their_order() {
    let trail = Trail::written();
    let whole = fs::read_to_string(trail.path()).expect("it is there");
    let count = questions(&trail.path());
    let lines: Vec<&str> = whole.lines().collect();
    let parts: Vec<String> = lines.chunks(lines.len().div_ceil(3)).map(|part| part.join("\n") + "\n").collect();
    let numbered = |n: usize| trail.directory.path().join(format!("trail.jsonl.{n}"));
    fs::write(numbered(2), &parts[0]).expect("the directory is ours");
    fs::write(numbered(1), &parts[1]).expect("the directory is ours");
    fs::write(trail.path(), &parts[2]).expect("the directory is ours");
    let end = trail.replayed(&trail.config_with(""), &["-o", "json"]);
    let told: Value = serde_json::from_str(&end.stdout).expect("it is JSON");
    assert_eq!((&told["questions"], &told["same"]), (&count.into(), &count.into()), "{told}");
    assert!(told["first"].as_u64() <= told["last"].as_u64(), "{told}");
}

//! Rules of a namespace (`[[namespace.rule]]`): the replies to clients, what people can find out afterwards, and what a
//! reload changes. The meaning of expressions is tested beside the language.

use std::fs;
use std::path::PathBuf;

use lockwarden_tests::{Finished, Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for, wait_for_value};

const UUID: &str = "6f9619ff-8b86-d011-b42d-00c04fc964ff";
/// Its meaning is not known, so it runs in a wrap.
const OPAQUE: &str =
    "local n = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 900) redis.call('incr', KEYS[2]) return n";

fn rules(redis: &Redis, rules: &str) -> ProxyBuilder {
    Proxy::builder(redis)
        .namespace("policies", "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"rules\"]")
        // They follow the last table of the namespace.
        .more(rules)
}

const TEAM: &str = r#"
[[namespace.rule]]
name = "team"
deny = '!(key.like("lock:billing:*") || key.like("lock:stock:*"))'
hint = "name the lock lock:<team>:<thing>; teams are billing, stock"
[[namespace.rule]]
name = "ttl"
ttl_cap = "5s"
[[namespace.rule]]
name = "token"
deny = 'token.class != "uuid"'
code = "shared-token"
"#;

#[track_caller]
fn typed(proxy: &Proxy, words: &[&str]) -> Finished {
    run_to_end(lockwarden(words).arg("--admin").arg(proxy.admin_address().to_string()))
}

fn id_of(line: &str) -> String {
    let (_, rest) = line.split_once(" id=").expect("it has one");
    rest.split(' ').next().unwrap_or_default().to_owned()
}

/// The operator's name for a client, and the client's own name where no table gives one.
#[test]
fn a_rule_may_go_by_the_application_of_a_client() {
    let redis = Redis::start();
    let proxy = rules(
        &redis,
        "[[namespace.rule]]\nname = \"shop\"\ndeny = '!(client.application in [\"shop\", \"nightly\"])'\n\
         [[application]]\nname = \"shop\"\nclient = \"cart-*\"\n",
    )
    .start();
    for (name, is_let_in) in [("cart-7", true), ("nightly", true), ("cart", false), ("shop", true), ("", false)] {
        let client = proxy.client();
        if !name.is_empty() {
            client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
        }
        let set = client.sends(format!("SET lock:{name} a NX PX 5000"));
        match is_let_in {
            true => set.gets("+OK"),
            false => drop(set.gets_error("LOCKDENIED limited")),
        }
    }
}

#[test]
fn a_refusal_names_the_rule_in_the_reply_the_record_why_and_the_metrics() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a directory for the trail");
    let trail = directory.path().join("audit.jsonl");
    let proxy = rules(&redis, TEAM)
        .top("audit", "\"all\"")
        .top("audit_file", &format!("{:?}", trail.display().to_string()))
        .start();
    let client = proxy.client();
    let labels = |rule: &str, decision: &str| {
        format!("lockwarden_rule_refusals_total{{decision=\"{decision}\",namespace=\"locks\",rule=\"{rule}\"}}")
    };
    assert_eq!(proxy.metric(&labels("token", "deny")), 0.0, "it is there before the first");

    let line = client.sends("SET lock:sales:7 a1 NX PX 3000").gets_error("LOCKDENIED limited key=lock:sales:7 cmd=SET");
    assert!(line.contains(" policy=rules rule=team id="), "{line}");
    assert!(line.ends_with("hint=\"name the lock lock:<team>:<thing>; teams are billing, stock\""), "{line}");
    let other = client.sends("SET lock:stock:7 worker-1 NX PX 3000").gets_error("LOCKDENIED shared-token");
    assert!(other.contains(" policy=rules rule=token "), "{other}");
    assert!(redis.is_free("lock:sales:7") && redis.is_free("lock:stock:7"));

    client.sends(format!("SET lock:stock:7 {UUID} NX PX 9000")).gets("+OK");
    let ttl = redis.pttl("lock:stock:7");
    assert!((1..=5_000).contains(&ttl), "{ttl}");
    // An extension is no way around the cap; a release is not asked about.
    client.sends("PEXPIRE lock:stock:7 9000").gets(":1");
    assert!(redis.pttl("lock:stock:7") <= 5_000);
    client.sends("DEL lock:stock:7").gets(":1");

    let told = wait_for_value("the proxy to know", || {
        let end = typed(&proxy, &["why", &id_of(&line)]);
        (end.code == Some(0)).then_some(end.stdout)
    });
    assert!(told.contains("rules, rule team: limited"), "{told}");
    assert!(told.contains("teams are billing, stock"), "{told}");
    wait_for("the record", || {
        let text = fs::read_to_string(&trail).unwrap_or_default();
        text.lines().any(|line| line.contains("\"policy\":\"rules\",\"rule\":\"team\"") && line.contains("\"answer\""))
    });
    assert_eq!(proxy.metric(&labels("team", "deny")), 1.0);
    assert_eq!(proxy.metric(&labels("token", "deny")), 1.0);
    assert_eq!(proxy.metric(&labels("team", "would-deny")), 0.0);
    proxy.logs(&["\"policy\":\"rules\"", "\"rule\":\"team\""]);
    let settings = typed(&proxy, &["config"]).stdout;
    assert!(settings.contains("rule.team.hint") && settings.contains("rule.ttl.ttl_cap"), "{settings}");
}

#[test]
fn a_script_is_refused_by_the_same_rule_as_a_command() {
    let redis = Redis::start();
    // The value that a script will store is not known before it runs.
    let text = TEAM.replace("token.class != \"uuid\"", "!(token.class in [\"uuid\", \"none\"])");
    let proxy = rules(&redis, &text).start();
    let client = proxy.client();
    let line =
        client.sends_arguments(&["EVAL", OPAQUE, "2", "lock:sales:7", "n", UUID]).gets_error("LOCKDENIED limited");
    assert!(line.contains(" policy=rules rule=team id="), "{line}");
    assert!(line.contains("teams are billing, stock"), "{line}");
    assert!(redis.is_free("lock:sales:7"));
    client.sends_arguments(&["EVAL", OPAQUE, "2", "lock:stock:7", "n", UUID]).gets("+OK");
}

#[test]
fn in_monitor_mode_a_rule_refuses_nothing_and_is_counted() {
    let redis = Redis::start();
    let proxy = rules(&redis, TEAM).mode(Mode::Monitor).start();
    proxy.client().sends("SET lock:sales:7 a1 NX PX 3000").gets("+OK");
    let series = "lockwarden_rule_refusals_total{decision=\"would-deny\",namespace=\"locks\",rule=\"team\"}";
    wait_for("the count", || proxy.metric(series) == 1.0);
    let log = "\"would have been refused\"";
    proxy.logs(&[log, "\"rule\":\"team\""]);
}

#[test]
fn a_rule_that_only_reports_refuses_nothing_and_is_told() {
    let redis = Redis::start();
    let report = TEAM.replace("code = \"shared-token\"", "code = \"shared-token\"\nonly = \"report\"");
    let proxy = rules(&redis, &report).start();
    let client = proxy.client();
    client.sends("SET lock:stock:7 worker-1 NX PX 3000").gets("+OK");
    client.sends("SET lock:sales:7 worker-1 NX PX 3000").gets_error("LOCKDENIED limited");
    let series = "lockwarden_rule_refusals_total{decision=\"would-deny\",namespace=\"locks\",rule=\"token\"}";
    wait_for("the count", || proxy.metric(series) == 1.0);
    let told = wait_for_value("the report to know", || {
        let told = typed(&proxy, &["audit"]).stdout;
        told.contains("1 shared-token").then_some(told)
    });
    assert!(told.contains("lock:stock:*"), "{told}");
    proxy.logs(&["\"would have been refused\"", "\"rule\":\"token\""]);
    // Its lock is governed like any other.
    proxy.client().sends("DEL lock:stock:7").gets(":0");
    client.sends("DEL lock:stock:7").gets(":1");
}

#[test]
fn the_clock_of_a_rule_is_that_of_its_zone() {
    let redis = Redis::start();
    // It is the same hour at the same distance from UTC, and another one eleven hours away.
    let rule = |name: &str, zone: &str| {
        let same = "(hour * 60 + minute)";
        format!(
            "[[namespace.rule]]\nname = \"{name}\"\nzone = \"{zone}\"\ndeny = \"key == 'lock:{name}' && {same} < 720\"\n"
        )
    };
    let text = ["+00:00", "+06:00", "+12:00", "-06:00"]
        .map(|zone| rule(&format!("at{}", zone.replace(':', "").replace('+', "p")), zone));
    let proxy = rules(&redis, &text.concat()).start();
    let client = proxy.client();
    // In two of four places, a quarter of a day apart, it is before noon.
    let morning = ["atp0000", "atp0600", "atp1200", "at-0600"]
        .iter()
        .filter(|name| client.sends(format!("SET lock:{name} v NX PX 500")).reply().to_string() != "+OK")
        .count();
    assert_eq!(morning, 2);
}

#[test]
fn a_rule_knows_who_asks() {
    let redis = Redis::start();
    let proxy = rules(
        &redis,
        "[[namespace.rule]]\nname = \"who\"\ndeny = '!client.name.like(\"billing-*\") || client.user != \"default\" || !client.address.startsWith(\"127.\")'\n",
    )
    .start();
    let client = proxy.client();
    client.sends("SET lock:a v NX PX 500").gets_error("LOCKDENIED limited");
    client.sends("CLIENT SETNAME billing-7").gets("+OK");
    client.sends("SET lock:a v NX PX 500").gets("+OK");
}

#[test]
fn a_freeze_lets_everybody_give_back_and_nobody_take() {
    let redis = Redis::start();
    let frozen = "[[namespace.rule]]\nname = \"freeze\"\non = [\"acquire\", \"take-over\"]\ndeny = 'true'\nhint = \"maintenance until noon\"\n";
    let proxy = rules(&redis, "").start();
    let client = proxy.client();
    client.sends("SET lock:a v NX PX 9000").gets("+OK");
    let text = fs::read_to_string(proxy.config()).expect("the file is there");
    let (status, answer) = proxy.reloads(format!("{text}\n{frozen}").as_bytes(), "/reload");
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("locks rule freeze is new"), "{answer}");
    client.sends("PEXPIRE lock:a 8000").gets(":1");
    client.sends("DEL lock:a").gets(":1");
    let line = client.sends("SET lock:a v NX PX 9000").gets_error("LOCKDENIED limited");
    assert!(line.contains("maintenance until noon"), "{line}");
    // To lose a rule is to be governed less: that is an order of its own.
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload");
    assert_eq!(status, 422, "{answer}");
    assert!(answer.contains("rule freeze would be gone"), "{answer}");
    let changed = frozen.replace("noon", "one");
    let (status, answer) = proxy.reloads(format!("{text}\n{changed}").as_bytes(), "/reload");
    assert!(status == 200 && answer.contains("locks rule freeze"), "{answer}");
    let wrong = frozen.replace("'true'", "'hour > \"8\"'");
    let (status, answer) = proxy.reloads(format!("{text}\n{wrong}").as_bytes(), "/reload");
    assert!(status == 422 && answer.contains("this is a text, and it is compared with a number"), "{answer}");
    client.sends("SET lock:a v NX PX 9000").gets_error("LOCKDENIED limited");
}

/// The example that is shipped, with the backend of the test.
fn shipped() -> String {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/team-rules.toml"));
    fs::read_to_string(file).expect("the example is there")
}

#[test]
fn the_shipped_rules_are_checked_and_cost_what_check_says() {
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let file = directory.path().join("team-rules.toml");
    fs::write(&file, shipped()).expect("the directory is ours");
    let end = run_to_end(lockwarden(&["check", "--config"]).arg(&file));
    assert_eq!(end.code, Some(0), "{end:?}");
    let line = end.stdout.lines().find(|line| line.contains(": rules ")).unwrap_or_else(|| panic!("{end:?}"));
    assert!(line.contains("rules team hours ttl token; they take at most "), "{line}");
    assert!(line.contains(" of 20,000 steps a question"), "{line}");
}

/// The output of `lockwarden policy rules` for these rules, compared with older ones where there are some.
fn looked_at(rules: &str, older: Option<&str>) -> Finished {
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let namespace = "[[namespace]]\nname = \"team\"\nkeys = [\"lock:*\"]\n";
    for (name, rules) in [("new.toml", Some(rules)), ("old.toml", older)] {
        let text = format!("{namespace}{}", rules.unwrap_or_default());
        fs::write(directory.path().join(name), text).expect("the directory is ours");
    }
    let what: &[&str] = if older.is_some() { &["--diff", "old.toml"] } else { &["--explain"] };
    run_to_end(lockwarden(&["policy", "rules", "--config", "new.toml"]).args(what).current_dir(&directory))
}

#[test]
fn rules_that_never_always_or_no_more_refuse_are_found() {
    let rule = |name: &str, deny: &str| format!("[[namespace.rule]]\nname = \"{name}\"\ndeny = '{deny}'\n");
    let end = looked_at(TEAM, None);
    assert_eq!(end.code, Some(0), "{end:?}");
    for words in [
        "namespace team: 3 rules, asked about ",
        "  team   refuses ",
        "  ttl    wants something of ",
        "  token  refuses ",
    ] {
        assert!(end.stdout.contains(words), "{words}: {end:?}");
    }
    let slips = [
        rule("hours", "hour < 8 || hour >= 24"),
        rule("late", "hour > 23"),
        rule("any", "has_ttl || !has_ttl"),
        rule("behind", "hour < 7"),
    ];
    let end = looked_at(&slips.concat(), None);
    assert_eq!(end.code, Some(1), "{end:?}");
    for words in [
        "late    ! never holds",
        "any     ! refuses everything that it is asked about",
        "behind  ! refuses only what hours before it refuses",
    ] {
        assert!(end.stdout.contains(words), "{words}: {end:?}");
    }
}

#[test]
fn two_files_whose_rules_say_otherwise_are_told_apart_by_a_request() {
    let rule = |deny: &str, more: &str| format!("[[namespace.rule]]\nname = \"a\"\ndeny = '{deny}'\n{more}");
    let end = looked_at(&rule("hour >= 18", ""), Some(&rule("!(hour < 18)", "")));
    assert_eq!((end.code, &*end.stdout), (Some(0), "the rules say the same\n"), "{end:?}");
    let end = looked_at(&rule("hour >= 19", ""), Some(&rule("hour >= 18", "")));
    assert_eq!(end.code, Some(1), "{end:?}");
    for words in [
        "namespace team: 1 of 24 requests are answered otherwise, such as acquire of \"lock:other\" on Monday at 18:00",
        "  old.toml  refused by a: limited",
        "  new.toml  permitted",
    ] {
        assert!(end.stdout.contains(words), "{words}: {end:?}");
    }
    let end = looked_at(&rule("hour >= 18", "code = \"other\"\n"), Some(&rule("hour >= 18", "ttl_cap = \"5s\"\n")));
    assert!(end.stdout.contains("24 of 24 requests"), "{end:?}");
}

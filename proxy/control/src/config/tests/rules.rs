//! `[[namespace.rule]]`: what is read, and what is said about what is wrong, at which character.

use lockwarden_lock::decision::Obligations;

use super::*;

const ORDERS: &str = "[[namespace]]\nname = \"orders\"\nkeys = [\"lock:*\"]\n";

fn with_rules(rules: &str) -> String {
    format!("{ORDERS}{rules}")
}

#[test]
fn rules_become_settings_in_their_order_and_bring_their_policy_with_them() {
    let text = with_rules(
        r#"[[namespace.rule]]
name = "team"
deny = '!key.like("lock:billing:*")'
hint = "name the lock lock:<team>:<thing>"
[[namespace.rule]]
name = "hours"
on   = ["acquire", "take-over"]
deny = "hour < 8 || hour >= 18"
zone = "+01:00"
[[namespace.rule]]
name = "a.ttl"
ttl_cap = "5s"
[[namespace.rule]]
name = "token"
deny = 'token.class != "uuid"'
code = "shared-token"
only = "report"
"#,
    );
    let (config, found) = loaded(&text);
    assert_eq!(found, [""; 0]);
    let config = config.unwrap();
    let namespace = &config.namespaces[0];
    assert_eq!(namespace.policies, ["owner-token", "fencing", "ttl-ceiling", "rules"]);
    let settings: Vec<(&str, &str)> = namespace.settings_of("rules").collect();
    assert_eq!(
        settings,
        [
            ("rule.team.deny", "!key.like(\"lock:billing:*\")"),
            ("rule.team.hint", "name the lock lock:<team>:<thing>"),
            ("rule.hours.deny", "hour < 8 || hour >= 18"),
            ("rule.hours.on", "acquire,take-over"),
            ("rule.hours.zone", "+01:00"),
            ("rule.a.ttl.ttl_cap", "5000ms"),
            ("rule.token.deny", "token.class != \"uuid\""),
            ("rule.token.only", "report"),
            ("rule.token.code", "shared-token"),
            ("zone.+01:00.changes", "3600"),
        ]
    );
    let wants: Vec<Obligations> = namespace.rules.iter().map(RuleConfig::always_wants).collect();
    let cap = Obligations { ttl_cap_ms: Some(5_000), ..Obligations::default() };
    let nothing = Obligations::default;
    assert_eq!(wants, [nothing(), nothing(), cap, nothing()]);
    // Where it stands in the list of keys.
    let shown = config.settings();
    let shown = |key: &str| shown.iter().find(|setting| setting.key == key).map(|setting| setting.value.clone());
    assert_eq!(shown("rule.hours.deny").as_deref(), Some("\"hour < 8 || hour >= 18\""));
    let policies = "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"rules\"]";
    assert_eq!(shown("policies").as_deref(), Some(policies));
}

#[test]
fn what_holds_only_for_some_locks_is_promised_of_none() {
    for (rule, cap_ms) in [
        ("ttl_cap = \"5s\"", Some(5_000)),
        ("ttl_cap = \"5s\"\nwhen = 'db == 3'", None),
        ("ttl_cap = \"5s\"\non = [\"extend\"]", None),
        // An extension is not its affair, and may be longer.
        ("ttl_cap = \"5s\"\ndeny = 'db == 3'", None),
        ("ttl_cap = \"5s\"\ndeny = 'db == 3'\non = [\"acquire\", \"extend\", \"take-over\"]", Some(5_000)),
    ] {
        let (config, found) = loaded(&with_rules(&format!("[[namespace.rule]]\nname = \"a\"\n{rule}\n")));
        let config = config.unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(config.namespaces[0].rules[0].always_wants().ttl_cap_ms, cap_ms, "{rule}");
    }
}

#[test]
fn what_is_wrong_with_a_rule_is_told_at_its_character_and_all_at_once() {
    let cases: &[(String, &[&str])] = &[
        (
            with_rules(
                r#"[[namespace.rule]]
name = "team"
deny = '!(kay.like("lock:billing:*"))'
[[namespace.rule]]
name = "hours"
deny = "hour < \"8\" || weekday > 5"
[[namespace.rule]]
name = "ttl"
deny = "ttl > 5"
[[namespace.rule]]
name = "x"
deny = """
key == 'a'
  || key.beginsWith('a')"""
[[namespace.rule]]
name = "later"
deny = "held.conection > 1"
[[namespace.rule]]
name = "class"
deny = "token.class == 'uid'"
"#,
            ),
            &[
                r#"c.toml:6:11 error: namespace "orders": rule "team": deny: no fact is called kay; did you mean key?"#,
                r#"c.toml:9:16 error: namespace "orders": rule "hours": deny: this is a text, and it is compared with a number"#,
                r#"c.toml:12:15 error: namespace "orders": rule "ttl": deny: this is a number, and it is compared with a duration; write a unit, such as 5s"#,
                r#"c.toml:17:10 error: namespace "orders": rule "x": deny: there is no method beginsWith; there are startsWith, endsWith, contains, like, size"#,
                r#"c.toml:20:9 error: namespace "orders": rule "later": deny: no fact is called held.conection; did you mean held.connection?"#,
                r#"c.toml:23:24 error: namespace "orders": rule "class": deny: token.class is never "uid"; did you mean uuid?"#,
            ],
        ),
        (
            with_rules(
                r#"[[namespace.rule]]
deny = "true"
[[namespace.rule]]
name = "a b"
deny = 5
[[namespace.rule]]
name = "a"
hint = "x"
[[namespace.rule]]
name = "a"
deny = "true"
den = "true"
on = ["aquire", "extend", "extend"]
code = "never"
zone = "Nowhere/At-All"
ttl_cap = "5"
[[namespace.rule]]
name = "b"
deny = "true"
only = "report"
ttl_cap = "5s"
zone = "UTC"
on = []
hint = "a\nb"
"#,
            ),
            &[
                r#"c.toml:4:1 error: namespace "orders": rule #1: name is missing; write name = "hours""#,
                r#"c.toml:7:8 error: namespace "orders": rule #2: name: "a b" is not a name; use 1 to 64 of A-Z a-z 0-9 _ . -"#,
                r#"c.toml:8:8 error: namespace "orders": rule #2: deny: must be a string, not an integer; write deny = 'ttl > 5s'"#,
                r#"c.toml:9:1 error: namespace "orders": rule "a": it refuses nothing and wants nothing; write deny = 'ttl > 5s', rate = "10/1m", an order, or one of "ttl_default", "ttl_cap", "keep_alive" or "max_hold""#,
                r#"c.toml:11:8 error: namespace "orders": rule "a": hint: it belongs to a refusal, and this rule has no deny, no rate and no order"#,
                r#"c.toml:13:8 error: namespace "orders": rule "a": another rule of this namespace has this name"#,
                r#"c.toml:15:1 error: namespace "orders": rule "a": unknown key "den"; did you mean "deny"?"#,
                r#"c.toml:16:7 error: namespace "orders": rule "a": on: "aquire" must be "acquire", "extend", "release" or "take-over"; did you mean "acquire"?"#,
                r#"c.toml:16:27 error: namespace "orders": rule "a": on: "extend" stands there twice"#,
                r#"c.toml:17:8 error: namespace "orders": rule "a": code: "never" must be "limited", "no-ttl", "ttl-too-long", "shared-token" or "other""#,
                r#"c.toml:18:8 error: namespace "orders": rule "a": zone: this machine knows no zone "Nowhere/At-All"; `timedatectl list-timezones` lists them"#,
                r#"c.toml:19:11 error: namespace "orders": rule "a": ttl_cap: "5" is not a duration; write a whole number and ms, s, m, h or d, as in "52596000m""#,
                r#"c.toml:20:1 error: namespace "orders": rule "b": ttl_cap: with only = "report" a rule wants nothing; write it as a rule of its own"#,
                r#"c.toml:25:8 warning: namespace "orders": rule "b": zone: no condition of this rule asks for hour, minute or weekday"#,
                r#"c.toml:26:6 error: namespace "orders": rule "b": on: the list is empty, so the rule is never asked"#,
                r#"c.toml:27:8 error: namespace "orders": rule "b": hint: an error reply is one line, and this has a control character"#,
            ],
        ),
        (
            with_rules("policies = [\"fencing\"]\n[[namespace.rule]]\nname = \"a\"\ndeny = 'true'\n"),
            &[
                r#"c.toml:5:1 error: namespace "orders": rule: "rules" is not in this namespace's chain; add it to policies"#,
            ],
        ),
        (
            with_rules("policies = [\"rules\"]\nrules = []\n[namespace.settings.rules]\na = 1\n"),
            &[
                r#"c.toml:4:12 warning: namespace "orders": policies: "rules" has no [[namespace.rule]], so it refuses nothing and wants nothing"#,
                r#"c.toml:5:1 error: namespace "orders": unknown key "rules"; write each rule as [[namespace.rule]]"#,
                r#"c.toml:6:21 error: namespace "orders": settings.rules: what this policy is told is written as [[namespace.rule]]"#,
            ],
        ),
    ];
    for (text, expected) in cases {
        expect_findings(&[(text, expected)]);
    }
}

#[test]
fn the_rules_of_a_namespace_have_bounds_together() {
    let many = |number: usize, deny: &str| {
        let rules = (0..number).map(|index| format!("[[namespace.rule]]\nname = \"r{index}\"\ndeny = {deny:?}\n"));
        with_rules(&rules.collect::<String>())
    };
    for (text, words) in [
        (many(65, "true"), "rule: 65 of them are too many; 64 is the most"),
        (many(20, "key.contains('aa')"), "steps a question, and 20000 are the most"),
        (many(9, &format!("key == '{}'", "a".repeat(500))), "have 4500 bytes, and 4096 are the most"),
        (many(11, &format!("true{}", " ".repeat(1_000))), "have 11044 bytes, and 10240 are the most"),
        (many(1, &" ".repeat(1_025)), "an expression has at most 1024 bytes; write two rules"),
    ] {
        let (config, found) = loaded(&text);
        assert!(config.is_none() && found.len() == 1 && found[0].contains(words), "{words}: {found:?}");
    }
    let (config, found) = loaded(&many(64, "key.startsWith('lock:billing:')"));
    assert!(config.is_some(), "{found:?}");
}

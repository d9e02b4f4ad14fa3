use super::*;

fn settings(given: &[(&str, &str)]) -> Settings {
    crate::testing::settings(given)
}

#[test]
fn durations_are_numbers_with_units() {
    for (text, want) in [
        ("500ms", Some(500)),
        ("30s", Some(30_000)),
        (" 5m ", Some(300_000)),
        ("1h", Some(3_600_000)),
        ("24h", Some(86_400_000)),
        ("7d", Some(604_800_000)),
        ("0s", Some(0)),
        ("30", None),
        ("", None),
        ("s", None),
        ("1.5s", None),
        ("-1s", None),
        ("+1s", None),
        ("1 s", None),
        ("1S", None),
        ("36526d", None),
        ("99999999999999999999s", None),
        ("18446744073709551615d", None),
    ] {
        assert_eq!(parse_duration_ms(text).ok(), want, "{text}");
    }
}

#[test]
fn durations_are_shown_in_the_largest_unit_that_is_exact() {
    for (ms, want) in [
        (0, "0ms"),
        (999, "999ms"),
        (1_500, "1500ms"),
        (90_000, "90s"),
        (120_000, "2m"),
        (3_600_000, "1h"),
        (86_400_000, "1d"),
    ] {
        assert_eq!(show_ms(ms), want);
    }
}

#[test]
fn everything_wrong_is_reported_at_once_with_a_suggestion() {
    let mut settings = settings(&[
        ("default", "soon"),
        ("cieling", "1h"),
        ("mode", "maybe"),
        ("weird\nname", "x"),
        ("default", "30s"),
    ]);
    assert_eq!(settings.duration_ms("default", 30_000), 30_000);
    assert_eq!(settings.duration_ms("ceiling", 3_600_000), 3_600_000);
    assert!(settings.choice("mode", &[("yes", true), ("no", false)], true));
    let error = settings.finish().unwrap_err();
    assert_eq!(
        error,
        "default is set twice; \
         default = \"soon\": write a whole number and a unit (ms, s, m, h, d), such as \"30s\"; \
         mode = \"maybe\": must be one of \"yes\", \"no\"; \
         unknown setting \"cieling\", did you mean ceiling? (known are default, ceiling, mode); \
         unknown setting \"weird?name\" (known are default, ceiling, mode)"
    );
}

#[test]
fn off_is_not_a_duration_of_nothing() {
    let mut off = settings(&[("keep_alive", "off")]);
    assert_eq!(off.duration_ms_or_off("keep_alive", Some(1)), None);
    assert_eq!(off.finish(), Ok(()));

    let mut unset = settings(&[]);
    assert_eq!(unset.duration_ms_or_off("keep_alive", Some(1)), Some(1));

    let mut zero = settings(&[("keep_alive", "0s")]);
    zero.duration_ms_or_off("keep_alive", Some(1));
    assert!(zero.finish().unwrap_err().contains("write \"off\""));
}

#[test]
fn lists_are_joined_by_commas() {
    let words = [("token", 1), ("session", 2)];
    for (value, want) in [
        ("", Ok(vec![])),
        ("token", Ok(vec![1])),
        (" session , token", Ok(vec![2, 1])),
        ("token,token", Err("names \"token\" twice")),
        ("token,", Err("must be one of \"token\", \"session\"")),
        ("tokens", Err("must be one of")),
    ] {
        let mut settings = settings(&[("proofs", value)]);
        let chosen = settings.choices("proofs", &words);
        match (want, settings.finish()) {
            (Ok(want), Ok(())) => assert_eq!(chosen, Some(want), "{value}"),
            (Err(want), Err(error)) => assert!(error.contains(want), "{value}: {error}"),
            (want, got) => panic!("{value}: wanted {want:?}, got {got:?}"),
        }
    }
    let mut texts = settings(&[("teams", "a, b ,c")]);
    assert_eq!(texts.list("teams"), Some(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    assert_eq!(texts.list("others"), None);
}

#[test]
fn numbers_are_whole() {
    let mut settings = settings(&[("limit", "7"), ("rate", "often")]);
    assert_eq!(settings.number("limit", 1), 7);
    assert_eq!(settings.number("rate", 1), 1);
    assert_eq!(settings.number("burst", 3), 3);
    assert_eq!(settings.finish().unwrap_err(), "rate = \"often\": not a whole number");
}

#[test]
fn a_long_value_is_cut_in_the_error() {
    let long = "é".repeat(100_000);
    let mut settings = settings(&[("limit", &long)]);
    settings.number("limit", 1);
    assert!(settings.finish().unwrap_err().len() < 250);
}

#[test]
fn settings_below_a_name_are_tables_in_their_order() {
    let mut given = settings(&[
        ("rule.b.c.ttl", "5s"),
        ("other", "1"),
        ("rule.a.ttl", "soon"),
        ("rule.b.c.hint", "short"),
        ("rule.a.hnt", "x"),
        ("rule.", "no table"),
    ]);
    let tables = given.tables("rule");
    let names: Vec<&str> = tables.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["b.c", "a"]);
    for (name, mut table) in tables {
        table.optional_duration_ms("ttl");
        table.text("hint");
        given.end_table(&name, table);
    }
    given.number("other", 0);
    assert_eq!(
        given.finish().unwrap_err(),
        "a: ttl = \"soon\": write a whole number and a unit (ms, s, m, h, d), such as \"30s\"; \
         a: unknown setting \"hnt\", did you mean hint? (known are ttl, hint); \
         unknown setting \"rule.\" (known are other)"
    );
}

//! What expressions mean, what is wrong with others, and what no bytes can do.

use proptest::prelude::*;

use super::*;
use crate::problem::Type;

fn facts() -> Facts<'static> {
    Facts {
        key: b"lock:billing:7",
        operation: "acquire",
        db: 3,
        ttl_ms: Some(5_000),
        attempts: 4,
        tries: Tries { application: 12, everyone: 20 },
        held: Held { connection: 2, application: 7 },
        remaining_ms: 0,
        token: Some(b"6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        token_is_shared: false,
        client: Client {
            name: b"worker-1",
            user: b"billing",
            address: b"10.0.0.7",
            certificate: b"",
            application: b"shop",
        },
    }
}

/// 2026-11-26, a Thursday, 16:43 UTC.
const NOW_MS: u64 = 1_795_711_380_000;

fn holds(source: &str) -> bool {
    let expression = Expression::parse(source).unwrap_or_else(|problem| panic!("{source}: {problem}"));
    let mut steps = 0_u64;
    let minute = Zone::default().minute(NOW_MS);
    let holds = expression.holds_counted(&facts(), minute, &mut steps);
    assert!(steps <= expression.steps(), "{source}: {steps} of {}", expression.steps());
    assert_eq!(holds, expression.holds(&facts(), minute), "{source}");
    holds
}

#[test]
fn an_expression_says_what_it_means() {
    for (source, want) in [
        ("true", true),
        ("!true", false),
        ("key == \"lock:billing:7\"", true),
        ("key == 'lock:billing:7'", true),
        ("key < 'lock:c'", true),
        ("key.like('lock:*:7')", true),
        ("key.like('lock:billing:*') || key.like('lock:stock:*')", true),
        ("!(key.like('lock:sales:*') || key.like('lock:stock:*'))", true),
        ("key.startsWith('lock:') && key.endsWith(':7') && key.contains('ill')", true),
        ("key.contains('sales')", false),
        ("key.size() == 14", true),
        ("'abc'.size() == 3", true),
        ("ttl > 5s", false),
        ("ttl >= 5s && ttl <= 5000ms && ttl == 5s", true),
        ("has_ttl", true),
        ("has_ttl == true", true),
        ("has_ttl != token.shared", true),
        ("ttl * 2 == 10s && 2 * ttl == 10s && ttl / 5 == 1s && ttl / 1s == 5 && ttl % 2s == 1s", true),
        ("ttl + 1m - 5s == 60s", true),
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 7 - 2 - 1 == 4 && 7 / 2 == 3 && 7 % 4 == 3", true),
        ("-1 < 0 && - 5s < 0s && -(1 + 1) == -2", true),
        ("hour == 16 && minute == 43 && weekday == 4", true),
        ("hour < 8 || hour >= 18 || weekday > 5", false),
        ("weekday in [1, 2, 3, 4, 5]", true),
        ("ttl in [1s, 5s]", true),
        ("operation in ['acquire', 'take-over']", true),
        ("operation == 'release'", false),
        ("token.class == 'uuid' && token.length == 36 && !token.shared", true),
        ("client.name.like('worker-*') && client.user == 'billing' && client.address.startsWith('10.')", true),
        ("client.certificate == ''", true),
        ("client.application == 'shop'", true),
        ("db == 3 && attempts > 3 && remaining == 0s", true),
        ("held.connection == 2 && held.application > 6", true),
        ("tries.application > 10 && tries.everyone >= tries.application", true),
        ("key == '\\x6cock:billing:7'", true),
        ("'\\\\' == '\\x5c' && '\\'' == \"'\"", true),
        ("  has_ttl  &&\n\ttrue ", true),
        ("9223372036854775807 + 1 == 9223372036854775807", true),
    ] {
        assert_eq!(holds(source), want, "{source}");
    }
}

#[test]
fn what_is_wrong_is_said_at_its_place() {
    for (source, at, words) in [
        ("", 0, "is empty; write a condition, such as ttl > 5s"),
        ("  ", 0, "is empty; write a condition, such as ttl > 5s"),
        ("kay == 'a'", 0, "no fact is called kay"),
        ("ttl > 5s && clint.name == 'a'", 12, "no fact is called clint.name"),
        ("client.nam == 'a'", 0, "no fact is called client.nam"),
        ("hour < '8'", 7, "this is a text, and it is compared with a number"),
        ("ttl > 5", 6, "this is a number, and it is compared with a duration; write a unit, such as 5s"),
        (
            "key.beginsWith('a')",
            4,
            "there is no method beginsWith; there are startsWith, endsWith, contains, like, size",
        ),
        ("key.size == 3", 4, "size is a method: write .size(…)"),
        ("key.foo == 3", 4, "there is no method foo; there are startsWith, endsWith, contains, like, size"),
        ("ttl.size() == 3", 4, "this is a duration, and only texts have methods"),
        ("key.like(key)", 9, "write a text in quotes"),
        ("key.like('a'", 12, ") is missing here"),
        ("key", 0, "this is a text, and must be a condition"),
        ("ttl && has_ttl", 0, "this is a duration, and must be a condition"),
        ("!key == 'a'", 1, "this is a text, and must be a condition"),
        ("key = 'a'", 4, "write ==, not ="),
        ("has_ttl & true", 8, "write &&, not &"),
        ("has_ttl | true", 8, "write ||, not |"),
        ("has_ttl and true", 8, "write &&, not and"),
        ("not has_ttl", 0, "write !, not not"),
        ("(has_ttl", 8, ") is missing here"),
        ("has_ttl)", 7, ") cannot stand here"),
        ("has_ttl &&", 10, "something is missing at the end"),
        ("key == 'a", 7, "this text has no closing quote"),
        ("key == 'a\\n'", 9, "a backslash stands before \\, a quote or two hex digits (\\x1f); write \\\\ for itself"),
        ("ttl > 5 s", 6, "this is a number, and it is compared with a duration; write a unit, such as 5s"),
        ("key . size() == 1", 5, "a method is missing here"),
        ("5s 7", 3, "a number cannot stand here"),
        ("ttl > 5sec", 7, "sec is no unit; units are ms, s, m, h, d, as in 5s"),
        ("ttl > 1.5s", 6, "numbers are whole; write a smaller unit, such as 1500ms"),
        ("db == 9223372036854775808", 6, "this number is too large"),
        ("ttl > 36526d", 6, "this number is too large"),
        ("1 < hour < 3", 9, "compare two things at a time: a < b && b < c"),
        ("hour in []", 9, "the list is empty, so this never holds"),
        ("hour in [minute]", 9, "a list holds texts in quotes, numbers or durations"),
        ("hour in ['a']", 9, "this is a text, and it is compared with a number"),
        ("hour in 3", 8, "[ is missing here"),
        ("has_ttl in [1]", 12, "a list holds texts in quotes, numbers or durations"),
        ("has_ttl < true", 10, "conditions are compared with == and != only"),
        ("ttl + 1 > 5s", 6, "one cannot reckon with a duration and a number"),
        ("key + 'a' == 'b'", 6, "one cannot reckon with a text and a text"),
        ("10 / 0 == 1", 5, "divide by a number above zero that is written out"),
        ("10 / db == 1", 5, "divide by a number above zero that is written out"),
        ("-key == 'a'", 1, "this is a text, and a minus stands before numbers and durations"),
        ("token.class == 'uid'", 15, "token.class is never \"uid\""),
        ("'aquire' == operation", 0, "operation is never \"aquire\""),
        ("operation in ['aquire']", 14, "operation is never \"aquire\""),
        ("held.count > 3", 0, "no fact is called held.count"),
        ("key.like('a') ä", 14, "ä cannot stand here"),
    ] {
        let problem = Expression::parse(source).err().unwrap_or_else(|| panic!("{source} is taken"));
        assert_eq!((problem.at, &*problem.to_string()), (at, words), "{source}");
    }
}

#[test]
fn what_may_have_been_meant_is_known() {
    let problem = Expression::parse("kay == 'a'").unwrap_err();
    let (word, known) = problem.candidates().unwrap();
    assert!(word == "kay" && known.contains(&"key") && known.len() == FACTS.len());
    let problem = Expression::parse("key = 'a'").unwrap_err();
    assert_eq!(problem.candidates(), None);
}

#[test]
fn an_expression_has_its_limits() {
    let nested = |depth: u32| {
        let open = "(".repeat(depth as usize);
        format!("{open}true{}", ")".repeat(depth as usize))
    };
    assert!(Expression::parse(&nested(MAX_NESTING)).is_ok());
    assert_eq!(Expression::parse(&nested(MAX_NESTING + 1)).unwrap_err().what, What::TooDeep);
    for sign in ["!", "-"] {
        let many = format!("{}1 == 1", sign.repeat(900));
        assert_eq!(Expression::parse(&many).unwrap_err().what, What::TooDeep);
    }
    let long = |bytes: usize| format!("true{}", " ".repeat(bytes - 4));
    assert!(Expression::parse(&long(MAX_EXPRESSION_BYTES)).is_ok());
    assert_eq!(Expression::parse(&long(MAX_EXPRESSION_BYTES + 1)).unwrap_err().what, What::TooLong);
    let wide = vec!["true"; 128].join("&&");
    assert!(Expression::parse(&wide).is_ok());
}

#[test]
fn what_is_asked_of_others_is_known() {
    let nothing = Asks::default();
    for (source, asks) in [
        ("ttl > 5s", nothing),
        ("key == 'client.name'", nothing),
        ("client.name == 'a'", Asks { client: true, ..nothing }),
        ("client.certificate == 'a'", Asks { certificate: true, ..nothing }),
        ("client.application == 'a'", Asks { application: true, ..nothing }),
        ("weekday > 5", Asks { calendar: true, ..nothing }),
    ] {
        assert_eq!(Expression::parse(source).unwrap().asks(), asks, "{source}");
    }
    assert_eq!(Expression::parse("key == 'abc' && hour in [1, 2]").unwrap().literal_bytes(), 3 + 16);
}

#[test]
fn a_text_is_cut_at_its_limit_and_not_before() {
    let long = vec![b'a'; 4 * MAX_TEXT_BYTES];
    let facts = Facts { client: Client { name: &long, ..Client::default() }, ..facts() };
    let size = Expression::parse("client.name.size() == 1024").unwrap();
    assert!(size.holds(&facts, 0));
}

/// Words of the language, so that random expressions get beyond their first word.
fn words() -> impl Strategy<Value = String> {
    let signs =
        ["||", "&&", "!", "==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%", "(", ")", "[", "]", ","];
    let values = ["true", "1", "0", "5s", "3ms", "'a'", "\"lock:*\"", "'*a*a*'", ".like('a*b*')", ".contains('aab')"];
    let methods = [".size()", ".startsWith('a')", ".endsWith('b')", ".like(", ".", "'"];
    let facts = FACTS.iter().map(|fact| fact.name);
    let all: Vec<&'static str> = signs.into_iter().chain(values).chain(methods).chain(facts).collect();
    let one = prop::sample::select(all);
    prop::collection::vec(one, 0..24).prop_map(|words| words.join(" ").replace(" .", "."))
}

/// Conditions that are right.
fn conditions() -> impl Strategy<Value = String> {
    let texts =
        prop::sample::select(vec!["key", "client.name", "client.certificate", "'ab'", "token.class", "operation"]);
    let needles = "[ab*]{0,12}";
    let leaf = prop_oneof![
        (texts.clone(), needles).prop_map(|(text, needle)| format!("{text}.like('{needle}')")),
        (texts.clone(), needles).prop_map(|(text, needle)| format!("{text}.contains('{needle}')")),
        (texts.clone(), needles).prop_map(|(text, needle)| format!("{text}.startsWith('{needle}')")),
        (texts, 0_i64..2_000).prop_map(|(text, size)| format!("{text}.size() * 3 - -2 > {size}")),
        (0_i64..8, 0_i64..24).prop_map(|(day, hour)| format!("weekday in [{day}, 3] && hour % 5 < {hour}")),
        (0_i64..9_000).prop_map(|ms| format!("ttl / 2 + 1s >= {ms}ms")),
        Just("client.name == key".to_owned()),
        Just("key in ['a', 'ab', 'aab']".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|test| format!("!({test})")),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|tests| format!("({})", tests.join(" || "))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|tests| format!("({})", tests.join(" && "))),
            (inner.clone(), inner).prop_map(|(left, right)| format!("(({left}) == ({right}))")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_panics(source in ".{0,120}") {
        if let Err(problem) = Expression::parse(&source) {
            prop_assert!(problem.at <= source.len());
            prop_assert!(!problem.to_string().is_empty());
        }
    }

    #[test]
    fn no_words_panic_and_a_problem_has_a_place(source in words()) {
        match Expression::parse(&source) {
            Ok(expression) => {
                expression.holds(&facts(), i64::MIN);
                expression.holds(&Facts::default(), i64::MAX);
            }
            Err(problem) => prop_assert!(source.is_char_boundary(problem.at), "{problem:?}"),
        }
    }

    #[test]
    fn no_evaluation_takes_more_steps_than_were_promised(
        source in conditions(),
        key in "[ab]{0,1024}",
        name in "[ab]{0,1200}",
        token in prop::option::of(prop::collection::vec(any::<u8>(), 0..400)),
        ttl_ms in any::<Option<u64>>(),
        remaining_ms: u64,
        minute: i64,
    ) {
        prop_assume!(source.len() <= MAX_EXPRESSION_BYTES);
        let expression = match Expression::parse(&source) {
            Ok(expression) => expression,
            Err(Problem { what: What::NeverSo { .. } | What::TooDeep, .. }) => return Ok(()),
            Err(problem) => return Err(TestCaseError::fail(format!("{source}: {problem}"))),
        };
        let facts = Facts {
            key: key.as_bytes(),
            token: token.as_deref(),
            ttl_ms,
            remaining_ms,
            client: Client { name: name.as_bytes(), certificate: name.as_bytes(), ..Client::default() },
            ..facts()
        };
        let mut steps = 0_u64;
        let counted = expression.holds_counted(&facts, minute, &mut steps);
        prop_assert_eq!(counted, expression.holds(&facts, minute));
        prop_assert!(steps <= expression.steps(), "{} of {}: {}", steps, expression.steps(), source);
    }
}

#[test]
fn types_are_told_with_their_article() {
    let kinds: Vec<&str> = FACTS.iter().map(FactInfo::kind).collect();
    for kind in [Type::Condition, Type::Number, Type::Duration, Type::Text] {
        assert!(kinds.contains(&kind.words()));
    }
}

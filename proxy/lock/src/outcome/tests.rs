use super::*;

fn text(text: &'static str) -> Value {
    Value::Bulk(Bytes::from_static(text.as_bytes()))
}

#[test]
fn a_grant_is_read_back() {
    let value = Value::Array(vec![
        text("G"),
        Value::Null,
        text(""),
        Value::Integer(42),
        Value::Integer(1000),
        Value::Integer(30000),
        text("L"),
        text("0000000000900"),
        Value::Integer(1),
        Value::Null,
    ]);
    let Ok(Answers::One(answer)) = read(&value) else {
        panic!("not read")
    };
    assert_eq!(
        answer.outcome,
        Outcome::Granted(Granted {
            fence: FencingToken(42),
            now_ms: 1000,
            ttl_ms: 30000,
            ended: Ended::RanOut(900),
            kept: true,
            old: None,
        })
    );
}

#[test]
fn a_refusal_has_a_reason() {
    let fields = |reason| {
        Value::Array(vec![
            text("N"),
            Value::Null,
            text(reason),
            text("0000000000900"),
            Value::Integer(1000),
            text("0000000000000007"),
            Value::Integer(1),
            Value::Integer(0),
            Value::Null,
        ])
    };
    let Ok(Answers::One(answer)) = read(&fields("expired")) else {
        panic!("not read")
    };
    let Outcome::Refused(refused) = answer.outcome else {
        panic!("{answer:?}")
    };
    assert_eq!((refused.reason, refused.late), (Reason::Expired, true));
    assert_eq!(read(&fields("bogus")), Err(NotAnAnswer));
}

#[test]
fn what_no_script_says_is_not_guessed() {
    for value in [
        Value::Null,
        Value::Integer(1),
        Value::Array(vec![]),
        Value::Array(vec![text("Z"), Value::Null, text("")]),
        Value::Array(vec![text("G"), Value::Null, text("")]),
        Value::Array(vec![text("M"), Value::Null, text("")]),
    ] {
        assert_eq!(read(&value), Err(NotAnAnswer), "{value:?}");
    }
    let error = Value::Error(Bytes::from_static(b"NOAUTH Authentication required."));
    assert!(matches!(read(&error), Ok(Answers::Error(_))));
}

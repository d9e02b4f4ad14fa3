use super::array::{in_redis_words, read_one};
use super::reply::{Answered, answer};
use super::*;
use crate::decision::Obligations;
use crate::evidence::Facts;
use crate::op::LockOp;
use crate::plan::tests::ENFORCE;
use crate::rules::{OnViolation, Rules};
use crate::settle::Allowed;
use crate::settle::tests::{lock, target};

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
        Value::Null,
        Value::Integer(1),
        Value::Integer(60000),
    ]);
    let Ok(Answers::One(answer)) = read(&value) else { panic!("not read") };
    assert_eq!(
        answer.outcome,
        Outcome::Granted(Granted {
            fence: FencingToken(42),
            now: RedisTime(1000),
            ttl_ms: TtlMs(30000),
            ended: Ended::RanOut(RedisTime(900)),
            kept: true,
            again: None,
            old: None,
            shared_token: true,
            asked_ms: AskedMs(60000),
        })
    );
}

#[test]
fn a_repetition_names_the_lease_that_it_has_again() {
    let mut fields: Vec<Value> = vec![Value::Bulk("G".into()), Value::Null, Value::Bulk("".into())];
    fields.extend([42, 1000, 30000].map(Value::Integer));
    fields.extend(["", "0"].map(|word| Value::Bulk(word.into())));
    fields.extend([Value::Integer(0), Value::Null, Value::Bulk(Bytes::from_static(&[b'g'; 16]))]);
    let Ok(Answers::One(answer)) = read(&Value::Array(fields)) else { panic!("not read") };
    let Outcome::Granted(granted) = answer.outcome else { panic!("not granted") };
    assert_eq!(granted.again, Some(Grant([b'g'; 16])));
}

#[test]
fn only_a_lease_that_may_be_ones_own_is_tried_once_more() {
    for (soon, expected) in [(0, false), (1, true)] {
        let mut fields = vec![Value::Bulk("B".into()), Value::Null, Value::Bulk("".into())];
        fields.extend([1, 0, soon].map(Value::Integer));
        let answers = read(&Value::Array(fields)).expect("an answer");
        assert_eq!(answers.perhaps_own(), expected);
    }
}

#[test]
fn an_answer_about_another_number_of_locks_is_none_to_this_command() {
    let one = read_one(&[text("U")]).expect("an answer");
    let locks = ["a", "b"];
    let counted = |answers: &Answers| answers.of_each(&locks).map(|each| each.len());
    assert_eq!(counted(&Answers::One(one.clone())), Ok(2));
    let both = vec![one.clone(), one.clone()];
    assert_eq!(counted(&Answers::Many(2, both)), Ok(2));
    let script = |each| Answers::Script(ScriptEnd::Returned, each, Beside::default());
    for each in [vec![], vec![one.clone()], vec![one; 3]] {
        assert_eq!(counted(&Answers::Many(1, each.clone())), Err(NotAnAnswer));
        assert_eq!(counted(&script(each)), Err(NotAnAnswer));
    }
    let failed = Answers::Error(Bytes::from_static(b"OOM"));
    assert_eq!(counted(&failed), Ok(0));
}

#[test]
fn a_refusal_has_a_reason() {
    let Ok(Answers::One(answer)) = read(&Value::Array(refusal("expired"))) else { panic!("not read") };
    let Outcome::Refused(refused) = answer.outcome else { panic!("{answer:?}") };
    assert_eq!((refused.reason, refused.late), (Reason::Expired, true));
    assert_eq!(read(&Value::Array(refusal("bogus"))), Err(NotAnAnswer));
}

fn refusal(reason: &'static str) -> Vec<Value> {
    vec![
        text("N"),
        Value::Null,
        text(reason),
        text("0000000000900"),
        Value::Integer(1000),
        text("0000000000000007"),
        Value::Integer(1),
        Value::Integer(0),
        Value::Null,
    ]
}

/// As DEL replies that deleted the others, unless the namespace of any of the locks wants an error.
#[test]
fn a_refusal_among_several_releases_is_an_error_only_where_a_namespace_wants_one() {
    let op = LockOp::ReleaseMany { locks: vec![target(), target()], others: vec![], unlink: false };
    let each = vec![read_one(&[text("U")]).expect("an answer"), read_one(&refusal("expired")).expect("an answer")];
    let answers = Answers::Many(1, each);
    let given = |second| {
        let allowed = [OnViolation::Native, second].map(|on_violation| Allowed {
            lock: lock(target(), Facts::default()),
            obligations: Obligations::default(),
            rules: Rules { on_violation, ..ENFORCE },
            would: None,
            terms: None,
        });
        answer(&op, &answers, &allowed, true)
    };
    assert_eq!(given(OnViolation::Native), Ok(Answered::Reply(Value::Integer(1))));
    let Ok(Answered::Refusal(1, refused)) = given(OnViolation::Error) else { panic!("no refusal") };
    assert_eq!(refused.reason, Reason::Expired);
}

/// A grant and a release say themselves who was late; an extension does by its reason.
#[test]
fn what_would_have_been_refused_says_who_was_late() {
    let would = |letter: &'static str, reason: &'static str, rest: &[(usize, i64)]| {
        let mut fields = vec![Value::Integer(0); 14];
        fields[0] = text(letter);
        fields[2] = text(reason);
        for (at, number) in rest {
            fields[*at] = Value::Integer(*number);
        }
        match read(&Value::Array(fields)) {
            Ok(Answers::One(answer)) => answer.would.map(|w| (w.reason, w.late, w.stands_for)),
            other => panic!("{other:?}"),
        }
    };
    let overwrite = Reason::Overwrite;
    assert_eq!(would("G", "overwrite", &[(13, 1)]), Some((overwrite, true, StandsFor::Nothing)));
    assert_eq!(would("G", "overwrite", &[]), Some((overwrite, false, StandsFor::Nothing)));
    assert_eq!(would("R", "expired", &[(9, 1)]), Some((Reason::Expired, false, StandsFor::Debt)));
    assert_eq!(would("X", "expired", &[]), Some((Reason::Expired, true, StandsFor::Nothing)));
    assert_eq!(would("G", "", &[(13, 1)]), None);
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

#[test]
fn an_error_that_an_old_redis_words_as_the_scripts_own_is_given_in_its_own_words() {
    let own = |text: &'static str| match in_redis_words(Value::Error(text.into())) {
        Value::Error(own) => String::from_utf8_lossy(&own).into_owned(),
        other => panic!("{other:?} is no error"),
    };
    for (text, expected) in [
        (
            "@user_script: 71: -OOM command not allowed when used memory > 'maxmemory'.\r\n",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ),
        (
            "@user_script: 7: -READONLY You can't write against a read only replica.",
            "READONLY You can't write against a read only replica.",
        ),
        (
            "@user_script: 61: Wrong number of args calling Redis command From Lua script",
            "ERR Wrong number of args calling Redis command From Lua script",
        ),
        ("OOM command not allowed", "OOM command not allowed"),
        ("WRONGTYPE Operation", "WRONGTYPE Operation"),
        ("@user_script: 61", "@user_script: 61"),
        ("@user_script: ", "@user_script: "),
    ] {
        assert_eq!(own(text), expected);
    }
    assert_eq!(in_redis_words(Value::Integer(1)), Value::Integer(1));
}

mod mutants;

use lockwarden_resp::OwnedRequest;

use super::*;
use crate::glob::Glob;
use crate::op::{AcquireReply, AskedTtl, ExpireCondition, ExtendSpelling, Reach, ReleaseSpelling, Test};
use crate::token::ValueDigest;

fn classified(line: &str, then: impl FnOnce(Class<'_>)) {
    let namespaces = Namespaces::new(vec![
        vec![Glob::new(Bytes::from_static(b"lock:*"))],
        vec![Glob::new(Bytes::from_static(b"mutex"))],
    ]);
    let classifier = Classifier {
        namespaces: &namespaces,
        companion_prefix: b"lw:",
        computed_names: &ComputedNames::Forward,
        enforces: &|_| true,
        operator_says: &|_| None,
        trusted_function: &|name| name.eq_ignore_ascii_case(b"mine"),
        trusted_script: &|_| Default::default(),
        function: &|_| None,
        foreign: &|| None,
        counts: &|namespace| namespace == NamespaceId(1),
        script: &|_| None,
        saw: &|text| Arc::new(ScriptFacts::of(text)),
    };
    let words: Vec<&str> = line.split(' ').collect();
    let request = OwnedRequest::new(words);
    then(classifier.classify(request.request()));
}

fn op(line: &str) -> LockOp {
    let mut found = None;
    classified(line, |class| match class {
        Class::Judge(command) => found = Some(command.op),
        other => panic!("{line}: {other:?}"),
    });
    found.expect("set above")
}

fn is_opaque(line: &str) -> bool {
    let mut is_opaque = false;
    classified(line, |class| is_opaque = matches!(class, Class::Opaque(_)));
    is_opaque
}

fn error(line: &str) -> String {
    let mut found = None;
    classified(line, |class| match class {
        Class::Error(text) | Class::ErrorOfOthers(ErrorOfOthers { text, .. }) => {
            found = Some(text);
        }
        other => panic!("{line}: {other:?}"),
    });
    found.expect("set above")
}

#[test]
fn what_touches_no_lock_passes_through() {
    for line in ["PING", "SET a b", "GET a", "DEL a b c", "SETNX other 1", "NOSUCH a b", "SETNX lock:a"] {
        classified(line, |class| {
            assert!(matches!(class, Class::PassThrough(_)), "{line}: {class:?}");
        });
    }
}

#[test]
fn reading_a_lock_leaves_evidence_only_where_the_value_is_the_answer() {
    for (line, evidence) in [
        ("GET lock:a", 1),
        ("MGET x lock:a mutex", 2),
        ("GETEX lock:a", 1),
        ("STRLEN lock:a", 0),
        ("TTL lock:a", 0),
        ("COPY lock:a x", 0),
    ] {
        classified(line, |class| match class {
            Class::Read(_, targets) => assert_eq!(targets.len(), evidence, "{line}"),
            Class::PassThrough(_) => assert_eq!(evidence, 0, "{line}"),
            other => panic!("{line}: {other:?}"),
        });
    }
}

#[test]
fn set_is_read_in_every_spelling() {
    let acquire = |line| match op(line) {
        LockOp::Acquire { ttl, reply, .. } => (ttl, reply),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(acquire("SETNX lock:a 1"), (AskedTtl::None, AcquireReply::Integer));
    assert_eq!(acquire("set lock:a 1 nx ex 5"), (AskedTtl::For(5000), AcquireReply::OkOrNil));
    assert_eq!(acquire("SET lock:a 1 PX 5 NX"), (AskedTtl::For(5), AcquireReply::OkOrNil));
    assert_eq!(acquire("SET lock:a 1 GET NX"), (AskedTtl::None, AcquireReply::OldValue));
    assert_eq!(acquire("SET lock:a 1 NX EX 5 EX 6"), (AskedTtl::For(6000), AcquireReply::OkOrNil));
    assert_eq!(acquire("SET lock:a 1 NX PXAT 9").0, AskedTtl::Until(9));
    let store = |line| match op(line) {
        LockOp::Store { ttl, only_if_exists, wants_old, .. } => (ttl, only_if_exists, wants_old),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(store("SET lock:a 1"), (AskedTtl::None, false, false));
    assert_eq!(store("SET lock:a 1 XX KEEPTTL"), (AskedTtl::Keep, true, false));
    assert_eq!(store("SETEX lock:a 3 v"), (AskedTtl::For(3000), false, false));
    assert_eq!(store("GETSET lock:a v"), (AskedTtl::None, false, true));
}

#[test]
fn bad_options_get_the_errors_of_redis() {
    for (line, text) in [
        ("SET lock:a 1 NX XX", "ERR syntax error"),
        ("SET lock:a 1 EX", "ERR syntax error"),
        ("SET lock:a 1 EX 5 PX 5", "ERR syntax error"),
        ("SET lock:a 1 EX 5 KEEPTTL", "ERR syntax error"),
        ("SET lock:a 1 BOGUS", "ERR syntax error"),
        ("SET lock:a 1 EX +5", "ERR value is not an integer or out of range"),
        ("SET lock:a 1 EX 0", "ERR invalid expire time in 'set' command"),
        ("SET lock:a 1 EX 9223372036854775807", "ERR invalid expire time in 'set' command"),
        ("SETEX lock:a -1 v", "ERR invalid expire time in 'setex' command"),
        ("SET lock:a 1 PX nought WHAT", "ERR syntax error"),
        ("EXPIRE lock:a x", "ERR value is not an integer or out of range"),
        ("EXPIRE lock:a 5 NOW", "ERR Unsupported option NOW"),
        ("EXPIRE lock:a 5 NX GT", "ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("EXPIRE lock:a 5 GT LT", "ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE lock:a 9223372036854775807", "ERR invalid expire time in 'expire' command"),
    ] {
        assert_eq!(error(line), text, "{line}");
    }
}

#[test]
fn the_expire_family_is_an_extension() {
    for (line, asked, when) in [
        ("EXPIRE lock:a 5", AskedTtl::For(5000), ExpireCondition::Always),
        ("PEXPIRE lock:a -5", AskedTtl::For(-5), ExpireCondition::Always),
        ("EXPIREAT lock:a 5 XX", AskedTtl::Until(5000), ExpireCondition::Xx),
        ("PEXPIREAT lock:a 5 xx lt", AskedTtl::Until(5), ExpireCondition::XxLt),
        ("EXPIRE lock:a 5 XX GT", AskedTtl::For(5000), ExpireCondition::Gt),
    ] {
        match op(line) {
            LockOp::Extend { ttl, condition, spelling, .. } => {
                assert_eq!((ttl, condition, spelling), (asked, when, ExtendSpelling::Expire), "{line}");
            }
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn a_delete_of_several_keys_names_each_lock_once() {
    match op("DEL lock:a x lock:a mutex y") {
        LockOp::ReleaseMany { locks, others, unlink } => {
            let names: Vec<_> = locks.iter().map(|lock| lock.key.clone()).collect();
            assert_eq!(names, ["lock:a", "mutex"]);
            assert_eq!(others, ["x", "y"]);
            assert!(!unlink);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(op("UNLINK mutex"), LockOp::Release { spelling: ReleaseSpelling::Unlink, .. }));
}

#[test]
fn msetnx_of_locks_only_is_an_acquire() {
    match op("MSETNX lock:a 1 mutex 2 lock:a 3") {
        LockOp::AcquireAll { locks, ttl } => {
            assert_eq!(ttl, AskedTtl::None);
            let pairs: Vec<_> = locks.iter().map(|(lock, value)| (&lock.key[..], &value[..])).collect();
            assert_eq!(pairs, [(&b"mutex"[..], &b"2"[..]), (b"lock:a", b"3")]);
        }
        other => panic!("{other:?}"),
    }
    assert!(is_opaque("MSETNX lock:a 1 x 2"));
}

#[test]
fn other_writes_are_opaque() {
    for line in [
        "MSET x 1 lock:a 2",
        "APPEND lock:a x",
        "INCR lock:a",
        "RENAME x lock:a",
        "RENAME lock:a x",
        "COPY x lock:a",
        "SORT x STORE lock:a",
        "HSET mutex f v",
        "ZUNIONSTORE lock:a 1 x",
        "PFCOUNT lock:a",
        "BITOP NOT lock:a x",
        "XADD lock:a * f v",
        "SET lw:{0}:lock:a x",
        "DEL lw:{abc}:lock:b",
        "DEBUG OBJECT lw:{0}:lock:a",
        "FCALL f 1 lock:a",
    ] {
        assert!(is_opaque(line), "{line}");
    }
    assert!(matches!(op("EVAL x 1 lock:a"), LockOp::Wrapped { .. }));
    classified("EVALSHA 0000000000000000000000000000000000000000 1 lock:a", |class| {
        assert!(matches!(class, Class::UnknownScript(_)), "{class:?}");
    });
}

#[test]
fn before_a_cluster_a_script_is_told_no_keys_of_other_slots() {
    let text = "redis.call('set','x',1)redis.call('set','{a}y',1)redis.call('del','lock:{a}2')";
    let mut op = op(&format!("EVAL {text} 1 lock:{{a}}1"));
    let told = |op: &LockOp| {
        let LockOp::Wrapped { locks, named, reach, .. } = op else {
            panic!("{op:?}");
        };
        let mut all = vec![Bytes::from_static(b"lock:{a}1")];
        all.extend(named.iter().cloned());
        assert!(locks.iter().all(|(lock, place)| all[place.0 - 1] == lock.key), "{op:?}");
        (all.len(), locks.len(), reach.clone())
    };
    assert_eq!(told(&op), (4, 2, Reach::Nothing));
    op.keep_to_one_slot();
    assert_eq!(told(&op), (3, 2, Reach::Others));
    op.keep_to_one_slot();
    assert_eq!(told(&op), (3, 2, Reach::Others));
}

#[test]
fn long_names_and_values_are_not_judged() {
    let key = format!("lock:{}", "k".repeat(MAX_KEY_BYTES));
    classified(&format!("SETNX {key} 1"), |class| {
        assert!(matches!(class, Class::TooLong(_, TooLong::Key)), "{class:?}");
    });
    let value = "v".repeat(MAX_VALUE_BYTES + 1);
    classified(&format!("SET lock:a {value}"), |class| {
        assert!(matches!(class, Class::TooLong(_, TooLong::Value)), "{class:?}");
    });
}

/// The comparison of an operation, as test, claim and the words that it runs.
fn comparison(line: &str) -> (Test, String, String) {
    let op = op(line);
    let comparison = op.comparison().expect(line);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let words: Vec<_> = comparison.then.iter().map(|word| text(word)).collect();
    let claim = text(comparison.claim.expose());
    (comparison.test, claim, words.join(" "))
}

#[test]
fn comparing_commands_say_when_they_act_and_what_every_server_can_run() {
    let digest = ValueDigest::parse(b"9555e8555c62dcfd").expect("16 digits");
    for (line, test, claim, then) in [
        ("DELEX lock:a IFEQ v", Test::Equal, "v", "DEL lock:a"),
        ("delex lock:a ifne v", Test::Differs, "v", "DEL lock:a"),
        ("DELEX lock:a IFDEQ 9555E8555C62DCFD", Test::Digest(digest), "", "DEL lock:a"),
        ("DELEX lock:a IFDNE 9555e8555c62dcfd", Test::OtherDigest, "", "DEL lock:a"),
        ("DELIFEQ lock:a v", Test::Equal, "v", "DEL lock:a"),
        ("CAD lock:a v", Test::Equal, "v", "DEL lock:a"),
        ("CAS lock:a v w", Test::Equal, "v", "SET lock:a w"),
        ("CAS lock:a v w exat 9", Test::Equal, "v", "SET lock:a w EXAT 9"),
        ("CAS lock:a v w KEEPTTL", Test::Equal, "v", "SET lock:a w KEEPTTL"),
        ("SET lock:a w IFEQ v", Test::Equal, "v", "SET lock:a w"),
        ("SET lock:a w EX 5 get IFNE GET EX 6", Test::Differs, "GET", "SET lock:a w GET EX 6"),
    ] {
        let expected = (test, claim.to_owned(), then.to_owned());
        assert_eq!(comparison(line), expected, "{line}");
    }
    assert!(matches!(op("DELEX lock:a"), LockOp::Release { comparison: None, .. }));
    for (line, must_exist) in [
        ("SET lock:a w IFEQ v", true),
        ("SET lock:a w IFDEQ 9555e8555c62dcfd", true),
        ("SET lock:a w IFNE v", false),
        ("SET lock:a w IFDNE 9555e8555c62dcfd", false),
    ] {
        let LockOp::Store { only_if_exists, .. } = op(line) else {
            panic!("{line}");
        };
        assert_eq!(only_if_exists, must_exist, "{line}");
    }
}

#[test]
fn a_comparison_that_cannot_be_read_to_its_end_is_an_error() {
    const SYNTAX: &str = "ERR syntax error";
    for (line, expected) in [
        ("SET lock:a w IFEQ", SYNTAX),
        ("SET lock:a w IFEQ v NX", SYNTAX),
        ("SET lock:a w XX IFEQ v", SYNTAX),
        ("SET lock:a w IFEQ v IFEQ v", SYNTAX),
        ("SET lock:a w IFEQ v IFNE v", SYNTAX),
        ("SET lock:a w IFGT 1", SYNTAX),
        ("SET lock:a w IFDEQ 12", "ERR must be exactly 16 hexadecimal characters"),
        ("DELEX lock:a IFDNE 12", "ERR must be exactly 16 hexadecimal characters"),
        ("DELEX lock:a v", "ERR wrong number of arguments for 'delex' command"),
        ("DELEX lock:a IFGT 1", "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
        ("CAS lock:a v w NX", SYNTAX),
        ("CAS lock:a v w EX", SYNTAX),
        ("CAS lock:a v w EX 5 EX 6", SYNTAX),
        ("CAS lock:a v w EX -1", "ERR invalid expire time in 'cas' command"),
    ] {
        assert_eq!(error(line), expected, "{line}");
    }
}

#[test]
fn a_counter_is_an_acquire_where_the_namespace_says_so() {
    assert!(matches!(op("INCR mutex"), LockOp::Acquire { reply: AcquireReply::Counter, ttl: AskedTtl::None, .. }));
    for line in ["INCR lock:a", "INCRBY mutex 1", "DECR mutex"] {
        assert!(is_opaque(line), "{line}");
    }
}

#[test]
fn a_digest_becomes_a_comparison_with_the_value_that_was_read() {
    let with = |value: Option<&'static str>| {
        let mut op = op("DELEX lock:a IFDEQ 9555e8555c62dcfd");
        let value = value.map(|value| Bytes::from_static(value.as_bytes()));
        op.resolve_digest(value.as_ref());
        let comparison = op.comparison().expect("it compares").clone();
        (comparison.test, comparison.names().is_some())
    };
    assert_eq!(with(Some("hello")), (Test::Equal, true));
    assert_eq!(with(Some("other")), (Test::Failed, false));
    assert_eq!(with(None), (Test::Failed, false));
}

/// What becomes of a line where the server says this of its commands.
fn foreign(line: &str, commands: &ForeignTable, operator: Option<OperatorSays>) -> &'static str {
    let namespaces = Namespaces::new(vec![vec![Glob::new(Bytes::from_static(b"lock:*"))]]);
    let classifier = Classifier {
        namespaces: &namespaces,
        companion_prefix: b"lw:",
        operator_says: &|_| operator,
        computed_names: &ComputedNames::Forward,
        enforces: &|_| true,
        foreign: &|| Some(Arc::new(commands.clone())),
        trusted_function: &|_| false,
        trusted_script: &|_| Default::default(),
        function: &|_| None,
        counts: &|_| false,
        script: &|_| None,
        saw: &|text| Arc::new(ScriptFacts::of(text)),
    };
    let words: Vec<&str> = line.split(' ').collect();
    match classifier.classify(OwnedRequest::new(words).request()) {
        Class::PassThrough(_) => "passes",
        Class::Opaque(command) => command.name,
        Class::UnknownName(_) => "unknown to the server",
        Class::OtherName(_) => "asked for",
        Class::Admin(command) if command.may_erase_locks() => "any key",
        Class::Admin(_) => "the server",
        other => panic!("{line}: {other:?}"),
    }
}

/// A row of `COMMAND` that names no key.
fn spec(categories: &[&str]) -> crate::table::ForeignSpec {
    let words = categories.iter().map(|word| word.as_bytes());
    crate::table::ForeignSpec {
        arity: -1,
        write: categories.contains(&"@write"),
        readonly: categories.contains(&"@read"),
        movable_keys: false,
        first: 0,
        last: 0,
        step: 0,
        categories: Some(crate::table::Categories::of(words)),
    }
}

#[test]
fn msetex_with_nx_and_only_locks_takes_them_all_for_its_ttl() {
    let all = |line: &str| match op(line) {
        LockOp::AcquireAll { locks, ttl } => {
            let pair = |(target, value): (Target, Bytes)| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (text(&target.key), text(&value))
            };
            (locks.into_iter().map(pair).collect::<Vec<_>>(), ttl)
        }
        other => panic!("{line}: {other:?}"),
    };
    let pairs = |of: &[(&str, &str)]| {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        of.iter().map(pair).collect::<Vec<_>>()
    };
    let two = pairs(&[("lock:a", "1"), ("mutex", "2")]);
    for (options, ttl) in [
        ("NX", AskedTtl::None),
        ("NX EX 5", AskedTtl::For(5000)),
        ("px 700 nx", AskedTtl::For(700)),
        ("EXAT 2000000000 NX", AskedTtl::Until(2_000_000_000_000)),
        ("PXAT 2000000000000 NX", AskedTtl::Until(2_000_000_000_000)),
        // A free lock has none to keep.
        ("KEEPTTL NX", AskedTtl::None),
    ] {
        assert_eq!(all(&format!("MSETEX 2 lock:a 1 mutex 2 {options}")), (two.clone(), ttl));
    }
    // Of a key given twice the last counts.
    let last = pairs(&[("lock:a", "3")]);
    assert_eq!(all("MSETEX 2 lock:a 1 lock:a 3 NX"), (last, AskedTtl::None));
    for refused in [
        "MSETEX 2 lock:a 1 mutex 2",
        "MSETEX 2 lock:a 1 mutex 2 XX EX 5",
        "MSETEX 2 lock:a 1 plain 2 NX EX 5",
        "MSETEX 1 lock:a NX EX 5",
    ] {
        assert!(is_opaque(refused), "{refused}");
    }
    for wrong in [
        "MSETEX 1 lock:a 1 NX XX",
        "MSETEX 1 lock:a 1 NX EX",
        "MSETEX 1 lock:a 1 NX EX 5 PX 5",
        "MSETEX 1 lock:a 1 NX SOON",
        "MSETEX 1 lock:a 1 NX GET",
    ] {
        assert_eq!(error(wrong), "ERR syntax error", "{wrong}");
    }
    assert_eq!(error("MSETEX 1 lock:a 1 NX EX 0"), "ERR invalid expire time in 'msetex' command");
    assert_eq!(error("MSETEX 1 lock:a 1 NX EX x"), "ERR value is not an integer or out of range");
    // One that the server does not have is answered by it.
    let mut commands = ForeignTable::default();
    assert!(commands.insert(b"msetnx", spec(&["@write"])));
    let line = "MSETEX 1 lock:a 1 NX";
    assert_eq!(foreign(line, &commands, None), "unknown to the server");
}

#[test]
fn what_a_server_says_of_its_own_commands_permits_nothing() {
    let mut commands = ForeignTable::default();
    for (name, categories) in [
        ("ft.create", &["@write", "@slow"][..]),
        ("new.read", &["@read", "@fast"]),
        ("new.run", &["@slow", "@scripting"]),
        ("new.empty", &["@keyspace", "@write"]),
        ("new.config", &["@admin"]),
    ] {
        assert!(commands.insert(name.as_bytes(), spec(categories)));
    }
    let told = |line| foreign(line, &commands, None);
    assert_eq!(told("FT.CREATE idx SCHEMA a TEXT"), "passes");
    assert_eq!(told("new.read plain"), "passes");
    // Whatever its flags: a lock among its words, or a key of the proxy's own.
    assert_eq!(told("NEW.READ plain lock:a"), "new.read");
    assert_eq!(told("new.read lw:{x}:lock:a"), "new.read");
    assert_eq!(told("new.run script 0"), "any key");
    assert_eq!(told("new.run script 1 lock:a"), "new.run");
    assert_eq!(told("new.empty"), "any key");
    assert_eq!(told("new.config set a b"), "the server");
    assert_eq!(told("nosuch plain"), "passes");
    assert_eq!(told("nosuch lock:a"), "unknown to the server");

    let passing = |line| foreign(line, &commands, Some(OperatorSays::Pass));
    assert_eq!(passing("new.read lock:a"), "passes");
    assert_eq!(passing("new.empty"), "passes");
    assert_eq!(passing("new.read lw:{x}:lock:a"), "new.read");
    let refusing = |line| foreign(line, &commands, Some(OperatorSays::Refuse));
    assert_eq!(refusing("ft.create idx"), "any key");
    assert_eq!(refusing("new.read lock:a"), "new.read");
    // The table comes first.
    assert_eq!(foreign("PING", &commands, Some(OperatorSays::Refuse)), "passes");
}

#[test]
fn a_name_that_is_not_listed_is_asked_for_where_commands_have_other_names() {
    let mut commands = ForeignTable::default();
    let flush = spec(&["@keyspace", "@write", "@slow", "@dangerous"]);
    assert!(commands.insert(b"flushall", flush));
    let told = |line, commands: &ForeignTable| foreign(line, commands, None);
    assert_eq!(told("wipe", &commands), "passes");
    commands.note_other_names();
    assert_eq!(told("wipe", &commands), "asked for");
    assert_eq!(told("nosuch lock:a", &commands), "asked for");
    commands.learn(b"wipe", Some(flush));
    commands.learn(b"nosuch", None);
    assert_eq!(told("WIPE async", &commands), "any key");
    assert_eq!(told("nosuch lock:a", &commands), "unknown to the server");
    assert_eq!(told("nosuch plain", &commands), "passes");
    assert_eq!(commands.names().collect::<Vec<_>>(), [b"flushall"]);
}

#[test]
fn commands_of_keydb_are_known() {
    for line in [
        "KEYDB.NHSET lock:a field 1",
        "keydb.hrename lock:a x y",
        "KEYDB.MVCCRESTORE lock:a 1 0 x",
        "EXPIREMEMBER lock:a m 9",
        "PEXPIREMEMBERAT lock:a m 9",
        "EXPDEL x lock:a",
    ] {
        assert!(is_opaque(line), "{line}");
    }
    for line in ["KEYDB.CRON c SINGLE 200 text", "RREPLAY uuid text"] {
        classified(line, |class| match class {
            Class::Admin(command) => assert!(command.may_erase_locks(), "{line}"),
            other => panic!("{line}: {other:?}"),
        });
    }
    let arity = "ERR wrong number of arguments for 'persist' command";
    assert_eq!(error("PERSIST lock:a member"), arity);
}

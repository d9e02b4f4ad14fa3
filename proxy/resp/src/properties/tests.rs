use super::*;
use proptest::{collection::vec, prelude::*};

/// Pieces of protocol text, so that random bytes are often almost right.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        4 => proptest::sample::select(vec![
            "*1\r\n", "*2\r\n", "*3\r\n", "*0\r\n", "*-1\r\n", "$-1\r\n", "$0\r\n\r\n",
            "$1\r\nx\r\n", "$4\r\nPING\r\n", "$16\r\n0123456789abcdef\r\n", "PING\r\n", "\r\n",
            "+OK\r\n", "-ERR no\r\n", ":1\r\n", ":-9223372036854775808\r\n", "_\r\n", "#t\r\n",
            ",1.5e3\r\n", ",-inf\r\n", "(123\r\n", "!3\r\nERR\r\n", "=5\r\ntxt:a\r\n", "~1\r\n",
            "%1\r\n", ">2\r\n", "|1\r\n", "|0\r\n", "%0\r\n", "~0\r\n",
        ]).prop_map(|token| token.as_bytes().to_vec()),
        1 => proptest::sample::select(vec![
            "*", "$", "-", "+", ":", "0", "1", "9", "\r", "\n", "\0", " ", "\"", "'", "\\x41",
            "\\", "?", "$?\r\n", "POST ", "\x16\x03", "99999999999999999999", "GET / HTTP/1.1",
        ]).prop_map(|token| token.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

fn args() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word =
        prop_oneof![vec(any::<u8>(), 0..12), "[a-z]{1,8}".prop_map(String::into_bytes), vec(any::<u8>(), 0..400),];
    vec(word, 1..12).prop_filter("closed on sight", |args| {
        !args[0].eq_ignore_ascii_case(b"post") && !args[0].eq_ignore_ascii_case(b"host:")
    })
}

/// Every byte of every word escaped, so that any word may stand in a line.
fn inline(args: &[Vec<u8>]) -> Vec<u8> {
    let words: Vec<String> = args
        .iter()
        .map(|arg| {
            let escaped: String = arg.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("\"{escaped}\"")
        })
        .collect();
    format!("{}\r\n", words.join(" ")).into_bytes()
}

fn scalar() -> impl Strategy<Value = Value> {
    let bytes = || vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    let line = || "[ -~]{0,20}".prop_map(Bytes::from);
    prop_oneof![
        line().prop_map(Value::Simple),
        line().prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        Just(Value::Null),
        any::<f64>().prop_map(|number| Value::Double(
            match number {
                nan if nan.is_nan() => "nan".to_owned(),
                number => format!("{number:e}"),
            }
            .into()
        )),
        any::<bool>().prop_map(Value::Boolean),
        "-?[0-9]{1,40}".prop_map(|digits| Value::BigNumber(digits.into())),
        (prop_oneof![Just("txt"), Just("mkd"), Just("xyz")], vec(any::<u8>(), 0..20))
            .prop_map(|(format, data)| Value::Verbatim { format: format.into(), data: data.into() }),
        bytes().prop_map(Value::BlobError),
    ]
}

/// Shallow, around the levels that take no memory, and deeper than any client would.
fn nests() -> impl Strategy<Value = Vec<Nest>> {
    let level = (proptest::sample::select(&b"*~>%|"[..]), 0..3_u8, 0..3_u8);
    let nest = level.prop_map(|(kind, before, behind)| Nest { kind, before, behind });
    prop_oneof![4 => vec(nest.clone(), 0..10), 1 => vec(nest, 30..200)]
}

fn any_value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(6, 40, 5, |inner| {
        let items = vec(inner.clone(), 0..5);
        prop_oneof![
            items.clone().prop_map(Value::Array),
            items.clone().prop_map(Value::Push),
            vec(scalar(), 0..5).prop_map(Value::Set),
            items.prop_map(Value::Set),
            vec((scalar(), inner.clone()), 0..4).prop_map(Value::Map),
            vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_client_bytes_decode_alike_however_they_are_split(data in soup(), seed in any::<u64>()) {
        request_bytes(&data, seed);
    }

    #[test]
    fn any_backend_bytes_scan_alike_however_they_are_split(data in soup(), seed in any::<u64>()) {
        reply_bytes(&data, seed);
    }

    #[test]
    fn a_reply_of_any_depth_ends_where_it_ends(levels in nests(), seed in any::<u64>()) {
        nested_reply(&levels, seed);
    }

    #[test]
    fn a_pipeline_comes_out_as_it_went_in(
        requests in vec((args(), any::<bool>()), 1..6),
        seed in any::<u64>(),
    ) {
        let mut wire = BytesMut::new();
        for (args, as_line) in &requests {
            if *as_line {
                wire.extend_from_slice(&inline(args));
            } else {
                put_request(&mut wire, args);
            }
        }
        request_bytes(&wire, seed);
        let decoded = decode_all(RequestLimits::default(), &wire, pieces(seed));
        prop_assert_eq!(decoded.error, None);
        let came: Vec<_> = decoded.events.into_iter().map(|event| match event {
            Event::Request { args, .. } => args,
            Event::Ignored { .. } => Vec::new(),
        }).collect();
        let sent: Vec<_> = requests.into_iter().map(|(args, _)| args).collect();
        prop_assert_eq!(came, sent);
    }

    #[test]
    fn a_damaged_pipeline_is_read_alike_however_it_is_split(
        requests in vec(args(), 1..4),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        seed in any::<u64>(),
    ) {
        let mut wire = BytesMut::new();
        for args in &requests {
            put_request(&mut wire, args);
        }
        for (place, byte) in damage {
            let place = place.index(wire.len());
            wire[place] = byte;
        }
        request_bytes(&wire, seed);
        reply_bytes(&wire, seed);
    }

    #[test]
    fn any_value_is_one_frame_and_reads_back(sample in any_value(), seed in any::<u64>()) {
        value(&sample, seed);
    }
}

#[test]
fn a_request_split_at_every_byte_is_the_same_request() {
    let mut wire = BytesMut::new();
    put_request(&mut wire, &["SET", "lock:a", "a\r\n1", "NX", "PX", "30000"]);
    wire.extend_from_slice(b"\r\nSET \"\\x6cock:a\" v\n*0\r\n*-1\r\n");
    put_request(&mut wire, &["DEL", "", "lock:a"]);
    let at_once = decode_all(RequestLimits::default(), &wire, std::iter::repeat(wire.len()));
    assert_eq!((at_once.events.len(), at_once.error), (6, None));
    for first in 1..wire.len() {
        let split = [first, wire.len()].into_iter();
        let in_two = decode_all(RequestLimits::default(), &wire, split);
        assert_eq!(at_once, in_two, "split at {first}");
    }
}

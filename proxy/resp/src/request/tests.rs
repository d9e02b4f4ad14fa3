use super::*;
use crate::ErrorKind;
use bytes::BytesMut;
use std::time::{Duration, Instant};

fn decode(input: &[u8]) -> Result<Step, RequestError> {
    RequestDecoder::new(RequestLimits::default()).decode(input)
}

fn error_of(input: &[u8]) -> RequestError {
    decode(input).expect_err(&format!("{:?} is refused", input.escape_ascii().to_string()))
}

/// What Redis would have for arguments.
fn words(input: &[u8]) -> Vec<Vec<u8>> {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    match decoder.decode(input) {
        Ok(Step::Request { consumed }) => assert_eq!(consumed, input.len()),
        other => panic!("{:?} gives {other:?}", input.escape_ascii().to_string()),
    }
    let request = decoder.request(input);
    request.args().map(<[u8]>::to_vec).collect()
}

#[test]
fn whatever_is_no_array_of_bulks_is_a_protocol_error() {
    for first in b"+-:$_#,(=!%~>|;." {
        let error = error_of(&[*first]);
        let line = format!("-ERR Protocol error: expected '*', got '{}'", char::from(*first));
        assert_eq!(error.reply().as_deref(), Some(&*line));
    }
    let table: [(&[u8], &str); 8] = [
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"*2\r\n$4\r\nPING\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n\xff", "expected '$', got '\\xff'"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*2\r\n$4\r\nPING\r\n$-1\r\n", "invalid bulk length"),
    ];
    for (input, text) in table {
        let line = format!("-ERR Protocol error: {text}");
        assert_eq!(error_of(input).reply().as_deref(), Some(&*line), "{input:?}");
    }
}

#[test]
fn what_redis_ignores_is_ignored() {
    for input in [
        "*0\r\n",
        "*-1\r\n",
        "*-2\r\n",
        "*-10\r\n",
        "*-9223372036854775808\r\n",
        "\r\n",
        "\n",
        "   \r\n",
        "\t\x0b\x0c \n",
    ] {
        let consumed = input.len();
        assert_eq!(decode(input.as_bytes()), Ok(Step::Ignored { consumed }), "{input:?}");
        let more = format!("{input}PING\r\n");
        assert_eq!(decode(more.as_bytes()), Ok(Step::Ignored { consumed }), "{input:?} before more");
    }
}

#[test]
fn lengths_that_are_not_canonical_are_protocol_errors() {
    for length in [
        "-0",
        "+1",
        "01",
        " 1",
        "1 ",
        "00",
        "",
        "1\t",
        "0x1",
        "?",
        "1e0",
        "-01",
        "-",
        "- 1",
        "-1 ",
        "-9223372036854775809",
    ] {
        let array = format!("*{length}\r\n$4\r\nPING\r\n");
        assert_eq!(error_of(array.as_bytes()), RequestError::ArrayLength, "{array:?}");
        let bulk = format!("*1\r\n${length}\r\nP\r\n");
        assert_eq!(error_of(bulk.as_bytes()), RequestError::BulkLength, "{bulk:?}");
    }
    assert_eq!(error_of(b"*1\r\n$+4\r\nPING\r\n"), RequestError::BulkLength);
    assert_eq!(error_of(b"*1\r\n$04\r\nPING\r\n"), RequestError::BulkLength);
    let line = error_of(b"*01\r\n").reply();
    assert_eq!(line.as_deref(), Some("-ERR Protocol error: invalid multibulk length"));
}

#[test]
fn only_crlf_ends_a_line_or_a_bulk() {
    let table: [(&[u8], RequestError); 8] = [
        (b"*1\n$4\nPING\n", RequestError::ArrayLength),
        (b"*1\r$4\r\nPING\r\n", RequestError::ArrayLength),
        (b"*1\r\n$4\nPING\r\n", RequestError::BulkLength),
        (b"*1\r\n$4\rPING\r\n", RequestError::BulkLength),
        (b"*1\r\n$4\r\nPINGXY", RequestError::BulkEnd),
        (b"*1\r\n$4\r\nPING\n\r", RequestError::BulkEnd),
        (b"*1\r\n$4\r\nPING\r\r", RequestError::BulkEnd),
        (b"*1\r\n$3\r\nPING\r\n", RequestError::BulkEnd),
    ];
    for (input, error) in table {
        assert_eq!(error_of(input), error, "{input:?}");
    }
}

#[test]
fn inline_lines_are_split_as_redis_splits_them() {
    let table: [(&[u8], &[&[u8]]); 16] = [
        (b"PING\r\n", &[b"PING"]),
        (b"PING\n", &[b"PING"]),
        (b"  SET\ta   b \r\n", &[b"SET", b"a", b"b"]),
        (b"SET \"\\x6cock:a\" v\r\n", &[b"SET", b"lock:a", b"v"]),
        (b"SET \"\\n\\r\\t\\b\\a\\\\\\\"\" v\n", &[b"SET", b"\n\r\t\x08\x07\\\"", b"v"]),
        (b"SET \"\\q\\x4\\xzz\\x4G\" v\n", &[b"SET", b"qx4xzzx4G", b"v"]),
        (b"SET 'it\\'s' '\\n\\x41\"'\n", &[b"SET", b"it's", b"\\n\\x41\""]),
        (b"SET \"\" ''\n", &[b"SET", b"", b""]),
        (b"\"\"\n", &[b""]),
        (b"SET lock\":a\" v'w'\n", &[b"SET", b"lock:a", b"vw"]),
        (b"SET a\\x41 \\\n", &[b"SET", b"a\\x41", b"\\"]),
        (b"SET a\x0bb\x0c v\n", &[b"SET", b"a\x0bb\x0c", b"v"]),
        (b"SET \"a\"\x0bb\n", &[b"SET", b"a", b"b"]),
        (b"SET a\rb v\n", &[b"SET", b"a", b"b", b"v"]),
        (b"SET \"\\x00\\xff\" v\r\r\n", &[b"SET", b"\0\xff", b"v"]),
        (b"GET /path\r\n", &[b"GET", b"/path"]),
    ];
    for (input, expected) in table {
        assert_eq!(words(input), expected, "{:?}", input.escape_ascii().to_string());
    }
}

#[test]
fn an_inline_line_becomes_the_frame_it_stands_for() {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    let input = b"SET \"\\x6cock:a\" v\r\nGET k\r\n";
    assert_eq!(decoder.decode(input), Ok(Step::Request { consumed: 19 }));
    let request = decoder.request(input);
    assert_eq!(request.frame(), b"*3\r\n$3\r\nSET\r\n$6\r\nlock:a\r\n$1\r\nv\r\n");
    assert_eq!((request.name(), request.arg(1)), (&b"SET"[..], &b"lock:a"[..]));
}

#[test]
fn unbalanced_quotes_and_nul_are_protocol_errors() {
    for line in
        ["SET \"a", "SET 'a", "SET \"a\"b v", "SET 'a'b", "SET \"a\"\"b\"", "SET \"a\\\"", "'\\'", "\"", "SET 'a\\"]
    {
        let error = error_of(format!("{line}\r\n").as_bytes());
        assert_eq!(error, RequestError::UnbalancedQuotes, "{line:?}");
    }
    assert_eq!(error_of(b"SET \"a\r\n").reply().as_deref(), Some("-ERR Protocol error: unbalanced quotes in request"));
    assert_eq!(error_of(b"PING\0\r\n"), RequestError::InlineNul);
    assert_eq!(error_of(b"\0"), RequestError::InlineNul);
}

#[test]
fn other_protocols_are_hung_up_on_without_a_word() {
    let inputs: [&[u8]; 13] = [
        b"POST / HTTP/1.1\r\n",
        b"post x\r\n",
        b"POST \"\r\n",
        b"Host: example.com\r\n",
        b"host: x\n",
        b"\"POST\" x\r\n",
        b"*1\r\n$4\r\nPOST\r\n",
        b"*1\r\n$5\r\nhOsT:\r\n",
        b"GET / HTTP/1.1\r\n",
        b"GET /\r\n",
        b"GET /lock HTTP/1.0\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00",
    ];
    for input in inputs {
        let error = error_of(input);
        let expected = match input.first() {
            Some(&TLS_HANDSHAKE) => RequestError::Tls,
            _ => RequestError::CrossProtocol,
        };
        assert_eq!(error, expected, "{input:?}");
        assert_eq!((error.reply(), error.kind()), (None, ErrorKind::Malformed));
    }
    assert_eq!(words(b"POSTS x\n"), [&b"POSTS"[..], b"x"]);
    assert_eq!(words(b"\x16x\n"), [b"\x16x"]);
    assert_eq!(decode(b"\x16"), Ok(Step::Incomplete { wants: 1 }));
}

#[test]
fn before_auth_ten_elements_and_16_kib_are_the_most() {
    let mut decoder = RequestDecoder::new(RequestLimits::before_auth());
    let ten = format!("*10\r\n{}", "$0\r\n\r\n".repeat(10));
    let consumed = ten.len();
    assert_eq!(decoder.decode(ten.as_bytes()), Ok(Step::Request { consumed }));
    assert_eq!(decoder.decode(b"*11\r\n"), Err(RequestError::UnauthenticatedArrayLength));

    let mut decoder = RequestDecoder::new(RequestLimits::before_auth());
    assert_eq!(decoder.decode(b"*1\r\n$16384\r\n"), Ok(Step::Incomplete { wants: 16_386 }));
    let mut decoder = RequestDecoder::new(RequestLimits::before_auth());
    let error = decoder.decode(b"*1\r\n$16385\r\n").unwrap_err();
    assert_eq!(error.reply().as_deref(), Some("-ERR Protocol error: unauthenticated bulk length"));

    let mut decoder = RequestDecoder::new(RequestLimits::before_auth());
    decoder.set_limits(RequestLimits::default());
    assert_eq!(decoder.decode(b"*11\r\n"), Ok(Step::Incomplete { wants: 1 }));
}

#[test]
fn a_line_of_words_has_as_many_as_an_array_may_have() {
    let limits = RequestLimits { max_args: 3, ..RequestLimits::default() };
    let line = b"SET a b\r\n";
    assert_eq!(RequestDecoder::new(limits).decode(line), Ok(Step::Request { consumed: line.len() }));
    for many in [&b"SET a b NX\r\n"[..], b"SET a b NX GET\r\n"] {
        assert_eq!(RequestDecoder::new(limits).decode(many), Err(RequestError::too_many_args(limits)));
    }
}

#[test]
fn sizes_over_the_limits_are_refused_and_at_the_limits_are_not() {
    let table: [(&str, Result<Step, RequestError>); 8] = [
        ("*1048576\r\n", Ok(Step::Incomplete { wants: 1 })),
        ("*1048577\r\n", Err(RequestError::TooManyElements)),
        ("*2147483647\r\n", Err(RequestError::TooManyElements)),
        ("*9999999999999999999999\r\n", Err(RequestError::TooManyElements)),
        ("*1\r\n$536870912\r\n", Ok(Step::Incomplete { wants: 536_870_914 })),
        ("*1\r\n$536870913\r\n", Err(RequestError::TooBigBulk)),
        ("*1\r\n$99999999999999999999\r\n", Err(RequestError::TooBigBulk)),
        ("*1\r\n$18446744073709551615\r\n", Err(RequestError::TooBigBulk)),
    ];
    for (input, expected) in table {
        assert_eq!(decode(input.as_bytes()), expected, "{input:?}");
        if let Err(error) = expected {
            assert_eq!(error.kind(), ErrorKind::Limit, "{input:?}");
        }
    }
    // In Redis's words, which do not tell the two apart.
    for (limit, malformed) in [
        (RequestError::TooManyElements, RequestError::ArrayLength),
        (RequestError::TooBigBulk, RequestError::BulkLength),
    ] {
        assert_eq!(limit.reply(), malformed.reply());
        assert_eq!(malformed.kind(), ErrorKind::Malformed);
    }

    let limits = RequestLimits { max_frame: 30, ..RequestLimits::default() };
    let frame = b"*2\r\n$4\r\nPING\r\n$9\r\n123456789\r\n";
    assert_eq!(frame.len(), 29);
    let consumed = frame.len();
    assert_eq!(RequestDecoder::new(limits).decode(frame), Ok(Step::Request { consumed }));
    let too_big = b"*2\r\n$4\r\nPING\r\n$11\r\n";
    assert_eq!(RequestDecoder::new(limits).decode(too_big), Err(RequestError::FrameSize));
}

#[test]
fn lines_over_64_kib_are_refused_and_of_64_kib_are_not() {
    let longest = 64 * 1024;
    let word = "a".repeat(longest);
    assert_eq!(decode(format!("{word}\n").as_bytes()), Ok(Step::Request { consumed: longest + 1 }));
    assert_eq!(decode(word.as_bytes()), Ok(Step::Incomplete { wants: 1 }));
    assert_eq!(error_of(format!("{word}a").as_bytes()), RequestError::InlineSize);
    assert_eq!(error_of(format!("{word}a\r\n").as_bytes()), RequestError::InlineSize);

    let digits = "1".repeat(longest + 1);
    assert_eq!(error_of(format!("*{digits}").as_bytes()), RequestError::ArrayLine);
    assert_eq!(error_of(format!("*1\r\n${digits}").as_bytes()), RequestError::BulkLine);
    assert_eq!(
        error_of(format!("*{digits}").as_bytes()).reply().as_deref(),
        Some("-ERR Protocol error: too big mbulk count string")
    );
}

#[test]
fn nothing_behind_the_first_error_is_decoded() {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    assert_eq!(decoder.decode(b"+OK\r\nPING\r\n"), decoder.decode(b"PING\r\n"));
    assert!(decoder.decode(b"*1\r\n$4\r\nPING\r\n").is_err());
}

#[test]
fn a_big_request_does_not_leave_its_room_behind() {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    let big = OwnedRequest::new(vec!["x"; 100_000]);
    assert!(matches!(decoder.decode(big.frame()), Ok(Step::Request { .. })));
    assert!(decoder.retained() >= 100_000 * 8);
    assert!(matches!(decoder.decode(b"PING\r\n"), Ok(Step::Request { .. })));
    assert!(decoder.retained() <= 16 * 1024);
}

#[test]
fn an_announced_length_reserves_nothing() {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    let step = decoder.decode(b"*1048576\r\n$1\r\nx\r\n");
    assert_eq!(step, Ok(Step::Incomplete { wants: 1 }));
    assert!(decoder.retained() < 1024);
}

/// Rescanning would take minutes here: 700,000 calls that look at 350,000 bytes each.
#[test]
fn a_long_array_that_comes_byte_by_byte_is_read_once() {
    let args = 100_000;
    let request = OwnedRequest::new(vec!["x"; args]);
    let frame = request.frame();
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    let start = Instant::now();
    for end in 0..frame.len() {
        let step = decoder.decode(&frame[..end]);
        assert!(matches!(step, Ok(Step::Incomplete { .. })), "at {end}");
    }
    assert!(matches!(decoder.decode(frame), Ok(Step::Request { .. })));
    assert_eq!(decoder.request(frame).len(), args);
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn nothing_of_a_request_is_printed() {
    let request = OwnedRequest::new(["AUTH", "secret"]);
    assert_eq!(format!("{request:?}"), "Request(2 arguments, 26 bytes)");
}

#[test]
fn an_announced_argument_may_be_replaced_before_it_is_here() {
    let whole = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\n123456789\r\n";
    let begin = whole.len() - 11;
    for come in 0..=10 {
        let mut decoder = RequestDecoder::new(RequestLimits::default());
        let mut input = BytesMut::from(&whole[..begin + come]);
        assert_eq!(decoder.announced(), None);
        let step = decoder.decode(&input);
        assert_eq!(step, Ok(Step::Incomplete { wants: 11 - come }));
        let announced = Announced { place: 2, length: 9 };
        assert_eq!(decoder.announced(), Some(announced));
        assert_eq!(decoder.arg_so_far(&input, 1), Some(&b"k"[..]));
        assert_eq!(decoder.arg_so_far(&input, 2), None);
        let to_come = decoder.replace_announced(&mut input, 4);
        assert_eq!(to_come, 9_usize.saturating_sub(come));
        input.extend_from_slice(&whole[begin + come + to_come..]);
        let zeros = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\0\0\0\0\r\n";
        assert_eq!(input, zeros[..], "{come}");
        let consumed = zeros.len();
        assert_eq!(decoder.decode(&input), Ok(Step::Request { consumed }));
        assert_eq!(decoder.announced(), None);
    }
}

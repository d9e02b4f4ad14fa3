use super::*;

fn parse(frame: &'static [u8], protocol: Protocol) -> Result<Value, ReplyError> {
    parse_reply(&Bytes::from_static(frame), protocol)
}

fn bulk(text: &'static str) -> Value {
    Value::Bulk(text.into())
}

#[test]
fn both_protocols_read_what_they_share() {
    let table: [(&[u8], Value); 8] = [
        (b"+OK\r\n", Value::Simple("OK".into())),
        (b"-ERR \xff\r\n", Value::Error(Bytes::from_static(b"ERR \xff"))),
        (b":-7\r\n", Value::Integer(-7)),
        (b"$2\r\n\r\n\r\n", bulk("\r\n")),
        (b"$-1\r\n", Value::Null),
        (b"*-1\r\n", Value::Null),
        (b"*0\r\n", Value::Array(vec![])),
        (
            b"*3\r\n:1\r\n*1\r\n$1\r\na\r\n$-1\r\n",
            Value::Array(vec![Value::Integer(1), Value::Array(vec![bulk("a")]), Value::Null]),
        ),
    ];
    for (frame, value) in table {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            assert_eq!(parse(frame, protocol), Ok(value.clone()), "{frame:?} {protocol:?}");
        }
    }
}

#[test]
fn resp3_is_read_byte_for_byte_and_resp2_has_none_of_it() {
    let verbatim = Value::Verbatim { format: "xyz".into(), data: "a:b".into() };
    let table: [(&[u8], Value); 12] = [
        (b"_\r\n", Value::Null),
        (b"#t\r\n", Value::Boolean(true)),
        (b",0.10000000000000001\r\n", Value::Double("0.10000000000000001".into())),
        (b",-nan\r\n", Value::Double("-nan".into())),
        (b"(12345678901234567890\r\n", Value::BigNumber("12345678901234567890".into())),
        (b"!5\r\nERR x\r\n", Value::BlobError("ERR x".into())),
        (b"=7\r\nxyz:a:b\r\n", verbatim),
        (b"~2\r\n:1\r\n:1\r\n", Value::Set(vec![Value::Integer(1), Value::Integer(1)])),
        (
            b"%2\r\n:1\r\n$1\r\nb\r\n:1\r\n$1\r\na\r\n",
            Value::Map(vec![(Value::Integer(1), bulk("b")), (Value::Integer(1), bulk("a"))]),
        ),
        (b"%1\r\n*0\r\n_\r\n", Value::Map(vec![(Value::Array(vec![]), Value::Null)])),
        (b">1\r\n+x\r\n", Value::Push(vec![Value::Simple("x".into())])),
        (b"|1\r\n+k\r\n~1\r\n:1\r\n|0\r\n*1\r\n|1\r\n+k\r\n+v\r\n_\r\n", Value::Array(vec![Value::Null])),
    ];
    for (frame, value) in table {
        assert_eq!(parse(frame, Protocol::Resp3), Ok(value), "{frame:?}");
        assert_eq!(parse(frame, Protocol::Resp2), Err(ReplyError::Protocol), "{frame:?}");
    }
}

#[test]
fn only_exactly_one_complete_frame_is_read() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        assert_eq!(parse(b"", protocol), Err(ReplyError::NotOneFrame));
        assert_eq!(parse(b"+OK\r", protocol), Err(ReplyError::NotOneFrame));
        assert_eq!(parse(b"+OK\r\n+OK\r\n", protocol), Err(ReplyError::NotOneFrame));
        assert_eq!(parse(b"$3\r\nabcXY", protocol), Err(ReplyError::LineEnd));
        let deep = Bytes::from(b"*1\r\n".repeat(100_000));
        assert_eq!(parse_reply(&deep, protocol), Err(ReplyError::TooDeep));
    }
    assert_eq!(parse(b"=5\r\ntxtaa\r\n", Protocol::Resp3), Err(ReplyError::Protocol));
}

#[test]
fn a_value_tells_what_it_is() {
    let error = Value::BlobError("ERR x".into());
    assert!(error.is_error() && error.as_bytes().is_none());
    assert_eq!(error.as_error().map(|text| &text[..]), Some(&b"ERR x"[..]));
    assert_eq!(Value::Integer(3).as_integer(), Some(3));
    assert_eq!(bulk("3").as_integer(), None);
    assert_eq!(bulk("x").as_bytes().map(|text| &text[..]), Some(&b"x"[..]));
    assert_eq!(Value::Push(vec![Value::Null]).as_items().map(<[_]>::len), Some(1));
    assert!(Value::Null.is_null() && !bulk("").is_null());
}

#[test]
fn what_is_read_in_one_go_is_what_would_be_read_otherwise() {
    let frames: [&[u8]; 6] = [
        b"*4\r\n$1\r\nG\r\n:12\r\n$-1\r\n:-7\r\n",
        b"$11\r\nabcdefghijk\r\n",
        b":1795261959031\r\n",
        b":-9223372036854775808\r\n",
        b"*2\r\n*1\r\n:0\r\n$0\r\n\r\n",
        b"*10\r\n:0\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n",
    ];
    let agrees = |frame: &[u8]| {
        let frame = Bytes::copy_from_slice(frame);
        let Some(value) = plain(&frame) else {
            return false;
        };
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            assert_eq!(parse_any(&frame, protocol), Ok(value.clone()), "{frame:?} {protocol:?}");
        }
        true
    };
    for frame in frames {
        assert_eq!(agrees(frame), !frame.starts_with(b"*2") && frame.len() != 23);
        for at in 0..frame.len() {
            agrees(&frame[..at]);
            for byte in *b"$:*+-_,#~0129a\r\n" {
                let mut other = frame.to_vec();
                other[at] = byte;
                agrees(&other);
                other.insert(at, byte);
                agrees(&other);
                other.remove(at);
                other.remove(at);
                agrees(&other);
            }
        }
    }
}

use super::*;

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn requests_are_canonical_arrays_of_bulks() {
    let at_once = written(|out| put_request(out, &["SET", "", "a\r\nb"]));
    assert_eq!(at_once, "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
    let by_argument = written(|out| {
        let mut request = RequestWriter::new(out);
        request.put_header(3);
        request.put_bulk(b"SET");
        request.put_bulk(b"");
        request.put_bulk(b"a\r\nb");
    });
    assert_eq!(at_once, by_argument);
}

#[test]
fn no_text_breaks_out_of_its_line() {
    assert_eq!(written(|out| put_error(out, "ERR a\r\n+OK\r\nb\n")), "-ERR a  +OK  b \r\n");
    assert_eq!(written(|out| put_error(out, "-ERR a")), "-ERR a\r\n");
    assert_eq!(written(|out| put_simple(out, "a\rb")), "+a b\r\n");
    let double = Value::Double("1\r\n:2".into());
    assert_eq!(written(|out| put_value(out, &double, Protocol::Resp3)), ",1  :2\r\n");
    let text = Value::BlobError("ERR a\r\n+OK".into());
    assert_eq!(written(|out| put_value(out, &text, Protocol::Resp2)), "-ERR a  +OK\r\n");
}

#[test]
fn numbers_are_written_to_their_last_digit() {
    for number in [0, 1, -1, 10, -10, 99, 12_345, i64::MAX, i64::MIN] {
        assert_eq!(written(|out| put_integer(out, number)), format!(":{number}\r\n"));
    }
    assert_eq!(written(|out| put_array_header(out, 100)), "*100\r\n");
}

#[test]
fn each_protocol_has_its_own_nulls() {
    let both = |protocol| {
        written(|out| {
            put_null(out, protocol);
            put_null_array(out, protocol);
        })
    };
    assert_eq!(both(Protocol::Resp2), "$-1\r\n*-1\r\n");
    assert_eq!(both(Protocol::Resp3), "_\r\n_\r\n");
}

#[test]
fn what_resp2_lacks_is_written_as_redis_writes_it_there() {
    let pair = || (Value::Simple("k".into()), Value::Boolean(true));
    let table = [
        (Value::Map(vec![pair(), pair()]), "*4\r\n+k\r\n:1\r\n+k\r\n:1\r\n", "%2\r\n+k\r\n#t\r\n+k\r\n#t\r\n"),
        (Value::Set(vec![Value::Null]), "*1\r\n$-1\r\n", "~1\r\n_\r\n"),
        (Value::Push(vec![]), "*0\r\n", ">0\r\n"),
        (Value::Boolean(false), ":0\r\n", "#f\r\n"),
        (Value::Double("1.5".into()), "$3\r\n1.5\r\n", ",1.5\r\n"),
        (Value::BigNumber("15".into()), "$2\r\n15\r\n", "(15\r\n"),
        (Value::Verbatim { format: "mkd".into(), data: "x".into() }, "$1\r\nx\r\n", "=5\r\nmkd:x\r\n"),
        (Value::BlobError("ERR".into()), "-ERR\r\n", "!3\r\nERR\r\n"),
        (Value::Error("-x".into()), "--x\r\n", "--x\r\n"),
        (Value::Array(vec![Value::Integer(1)]), "*1\r\n:1\r\n", "*1\r\n:1\r\n"),
    ];
    for (value, resp2, resp3) in table {
        assert_eq!(written(|out| put_value(out, &value, Protocol::Resp2)), resp2);
        assert_eq!(written(|out| put_value(out, &value, Protocol::Resp3)), resp3);
    }
}

use super::*;
use crate::properties;
use std::time::{Duration, Instant};

fn scan(input: &[u8]) -> Result<Scan, ReplyError> {
    ReplyScanner::new(ReplyLimits::default()).scan(input)
}

#[test]
fn every_type_of_both_protocols_is_one_frame_however_it_is_split() {
    let frames: [&[u8]; 33] = [
        b"+OK\r\n",
        b"+\r\n",
        b"-ERR no such key\r\n",
        b":0\r\n",
        b":-9223372036854775808\r\n",
        b":9223372036854775807\r\n",
        b":+5\r\n",
        b"$5\r\nhello\r\n",
        b"$0\r\n\r\n",
        b"$2\r\n\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n:1\r\n*1\r\n$-1\r\n",
        b"*2\r\n*0\r\n*0\r\n",
        b"_\r\n",
        b"#t\r\n",
        b"#f\r\n",
        b",3.14\r\n",
        b",1e+20\r\n",
        b",-inf\r\n",
        b",nan\r\n",
        b"(3492890328409238509324850943850943825024385\r\n",
        b"(not checked\r\n",
        b"!5\r\nERR x\r\n",
        b"=8\r\ntxt:text\r\n",
        b"=4\r\ntxt:\r\n",
        b"~2\r\n+a\r\n*1\r\n+b\r\n",
        b"%1\r\n+k\r\n%0\r\n",
        b">2\r\n+message\r\n:1\r\n",
        b"|1\r\n+ttl\r\n:3\r\n+OK\r\n",
        b"*2\r\n|1\r\n+a\r\n*1\r\n+b\r\n:1\r\n|0\r\n:2\r\n",
        b"|1\r\n|1\r\n+x\r\n+y\r\n+k\r\n+v\r\n|0\r\n*1\r\n+z\r\n",
    ];
    for frame in frames {
        let consumed = frame.len();
        assert_eq!(scan(frame), Ok(Scan::Complete { consumed }), "{frame:?}");
        assert_eq!(scan(&frame[..consumed - 1]), Ok(Scan::Partial), "{frame:?}");
        properties::reply_bytes(&[frame, frame].concat(), 7);
    }
}

#[test]
fn whatever_is_no_frame_is_refused() {
    let table: [(&[u8], ReplyError); 40] = [
        (b"OK\r\n", ReplyError::Type(b'O')),
        (b"\r\n", ReplyError::Type(b'\r')),
        (b"\n", ReplyError::Type(b'\n')),
        (b"HELLO 3\r\n", ReplyError::Type(b'H')),
        (b"*1\r\nx", ReplyError::Type(b'x')),
        (b"+a\rb\r\n", ReplyError::LineEnd),
        (b"+a\nb\r\n", ReplyError::LineEnd),
        (b"-ERR\n", ReplyError::LineEnd),
        (b"(1\n", ReplyError::LineEnd),
        (b"_x", ReplyError::LineEnd),
        (b"_\n", ReplyError::LineEnd),
        (b"#x\r\n", ReplyError::Boolean),
        (b"#\r\n", ReplyError::Boolean),
        (b"#tt", ReplyError::LineEnd),
        (b":\r\n", ReplyError::Number),
        (b":-\r\n", ReplyError::Number),
        (b":1 \r\n", ReplyError::Number),
        (b":1\n", ReplyError::Number),
        (b":--1\r\n", ReplyError::Number),
        (b":9223372036854775808\r\n", ReplyError::Number),
        (b":-9223372036854775809\r\n", ReplyError::Number),
        (b":99999999999999999999999\r\n", ReplyError::Number),
        (b",\r\n", ReplyError::Number),
        (b",1.\r\n", ReplyError::Number),
        (b",.5\r\n", ReplyError::Number),
        (b",1e\r\n", ReplyError::Number),
        (b",infx\r\n", ReplyError::Number),
        (b",na\r\n", ReplyError::Number),
        (b",1\n", ReplyError::Number),
        (b"$+1\r\n", ReplyError::Length),
        (b"*01\r\n", ReplyError::Length),
        (b"%-1\r\n", ReplyError::Length),
        (b">-1\r\n", ReplyError::Length),
        (b"!-1\r\n", ReplyError::Length),
        (b"=3\r\ntxt\r\n", ReplyError::Length),
        (b"$?\r\n", ReplyError::Length),
        (b";4\r\n", ReplyError::Streamed),
        (b".\r\n", ReplyError::Streamed),
        (b"$3\r\nabcXY", ReplyError::LineEnd),
        (b"$4294967297\r\n", ReplyError::TooBig),
    ];
    for (input, error) in table {
        assert_eq!(scan(input), Err(error), "{:?}", input.escape_ascii().to_string());
        properties::reply_bytes(input, 3);
    }
}

#[test]
fn nesting_ends_at_the_limit() {
    let nested = |levels: usize| [&b"*1\r\n".repeat(levels)[..], b":1\r\n"].concat();
    for levels in [1, 32, 33, 7_995, 16_384] {
        let consumed = nested(levels).len();
        assert_eq!(scan(&nested(levels)), Ok(Scan::Complete { consumed }));
    }
    assert_eq!(scan(&nested(16_385)), Err(ReplyError::TooDeep));
    assert_eq!(scan(&b"|1\r\n".repeat(16_385)), Err(ReplyError::TooDeep));

    let shallow = ReplyLimits { max_depth: 1, ..ReplyLimits::default() };
    assert_eq!(ReplyScanner::new(shallow).scan(&nested(2)), Err(ReplyError::TooDeep));
}

/// What was open is forgotten with its frame, and its memory given back.
#[test]
fn a_deep_frame_leaves_nothing_behind() {
    let deep = [&b"*2\r\n:1\r\n".repeat(500)[..], b":1\r\n"].concat();
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    for _ in 0..3 {
        let consumed = deep.len();
        assert_eq!(scanner.scan(&deep), Ok(Scan::Complete { consumed }));
        assert!(scanner.at_frame_start());
        assert_eq!(scanner.open.memory(), 0);
        assert_eq!(scanner.scan(b":1\r\n"), Ok(Scan::Complete { consumed: 4 }));
    }
}

#[test]
fn a_million_headers_neither_overflow_nor_take_long() {
    let headers = b"*1\r\n".repeat(1_000_000);
    let start = Instant::now();
    assert_eq!(scan(&headers), Err(ReplyError::TooDeep));
    let flat = [&b"*1000000\r\n"[..], &b"*0\r\n".repeat(1_000_000)].concat();
    let consumed = flat.len();
    assert_eq!(scan(&flat), Ok(Scan::Complete { consumed }));
    let attributes = b"|0\r\n".repeat(1_000_000);
    assert_eq!(scan(&attributes), Ok(Scan::Partial));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn elements_are_counted_over_the_whole_frame() {
    let limits = ReplyLimits { max_elements: 4, ..ReplyLimits::default() };
    let scan = |input: &[u8]| ReplyScanner::new(limits).scan(input);
    assert_eq!(scan(b"*3\r\n+a\r\n+b\r\n+c\r\n"), Ok(Scan::Complete { consumed: 16 }));
    assert_eq!(scan(b"*5\r\n"), Err(ReplyError::TooManyElements));
    assert_eq!(scan(b"%3\r\n"), Err(ReplyError::TooManyElements));
    assert_eq!(scan(b"*2\r\n*2\r\n+a\r\n+b\r\n+"), Err(ReplyError::TooManyElements));
    assert_eq!(scan(&b"|0\r\n".repeat(5)), Err(ReplyError::TooManyElements));

    let mut scanner = ReplyScanner::new(limits);
    let many = b"+OK\r\n".repeat(9);
    assert_eq!(scanner.skip_frames(&many, 9), Ok(Skipped { frames: 9, bytes: 45 }));
}

#[test]
fn a_push_is_told_apart_even_behind_an_attribute() {
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    assert_eq!((scanner.at_frame_start(), scanner.frame_type()), (true, None));
    assert_eq!(scanner.scan(b"|1\r\n+a\r\n"), Ok(Scan::Partial));
    assert_eq!((scanner.at_frame_start(), scanner.frame_type()), (false, None));
    assert_eq!(scanner.scan(b"+b\r\n"), Ok(Scan::Partial));
    assert_eq!((scanner.at_frame_start(), scanner.frame_type()), (false, None));
    assert_eq!(scanner.scan(b">1\r\n"), Ok(Scan::Partial));
    assert_eq!(scanner.frame_type(), Some(b'>'));
    assert_eq!(scanner.scan(b"$1\r\nx\r\n:1\r\n"), Ok(Scan::Complete { consumed: 7 }));
    assert_eq!((scanner.at_frame_start(), scanner.frame_type()), (true, Some(b'>')));
    assert_eq!(scanner.scan(b":1\r\n"), Ok(Scan::Complete { consumed: 4 }));
    assert_eq!(scanner.frame_type(), Some(b':'));
}

#[test]
fn frames_before_a_bad_byte_are_still_answers() {
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    let input = b"+OK\r\n:1\r\nbad";
    assert_eq!(scanner.skip_frames(input, 10), Ok(Skipped { frames: 2, bytes: 9 }));
    assert_eq!(scanner.skip_frames(&input[9..], 10), Err(ReplyError::Type(b'b')));
    assert_eq!(scanner.scan(b"+OK\r\n"), Err(ReplyError::Type(b'b')));
}

#[test]
fn no_more_frames_are_taken_than_asked_for() {
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    let input = b"+OK\r\n+OK\r\n+O";
    assert_eq!(scanner.skip_frames(input, 1), Ok(Skipped { frames: 1, bytes: 5 }));
    assert_eq!(scanner.skip_frames(&input[5..], 2), Ok(Skipped { frames: 1, bytes: 7 }));
    assert!(!scanner.at_frame_start());
    assert_eq!(scanner.skip_frames(b"", 2), Ok(Skipped { frames: 0, bytes: 0 }));
    assert_eq!(scanner.skip_frames(b"K\r\n", 0), Ok(Skipped { frames: 0, bytes: 0 }));
    assert_eq!(scanner.skip_frames(b"K\r\n", 2), Ok(Skipped { frames: 1, bytes: 3 }));
}

#[test]
fn redirections_are_noticed_in_passing_and_told_once() {
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    let input = b"+MOVED 1 a:1\r\n-MOVED 1 a:1\r\n$14\r\n\r\n-MOVED 1 a:1\r\n-ASK 2 b:2\r\n-ASKING\r\n";
    let skipped = scanner.skip_frames(input, 9).unwrap();
    assert_eq!((skipped.frames, skipped.bytes), (5, input.len()));
    assert_eq!(scanner.take_redirects(), Redirects { moved: 1, ask: 1 });
    assert_eq!(scanner.take_redirects(), Redirects::default());
}

#[test]
fn errors_of_a_replica_are_noticed_in_passing_and_told_once() {
    for (reply, expected) in [
        ("-READONLY You can't write against a read only replica.\r\n", true),
        ("*2\r\n+OK\r\n-READONLY You can't write against a read only replica.\r\n", true),
        ("-@user_script: 1: -READONLY You can't write\r\n", true),
        ("-MASTERDOWN Link with MASTER is down\r\n", true),
        ("-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't\r\n", true),
        ("-ERR Error running script (call to f_1): @user_script:1: no\r\n+ -READONLY \r\n", false),
        ("-ERR READONLY\r\n", false),
        ("+READONLY yes\r\n", false),
        ("$14\r\n\r\n-READONLY \r\n\r\n", false),
    ] {
        let mut scanner = ReplyScanner::new(ReplyLimits::default());
        scanner.skip_frames(reply.as_bytes(), 9).unwrap();
        assert_eq!(scanner.has_replica_error(), expected, "{reply}");
        assert_eq!(scanner.take_replica_error(), expected, "{reply}");
        assert!(!scanner.has_replica_error(), "{reply}");
    }
}

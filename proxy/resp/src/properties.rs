//! Properties that hold for any bytes, as functions that panic if they do not: the property tests run them on stable,
//! and the fuzz targets run the same functions. They compare input in pieces with input at once, and our framing with
//! that of `redis-protocol`. They generate no input; see `tests` and `fuzz/` for that.

#[cfg(test)]
mod tests;

use crate::{
    OwnedRequest, Protocol, ReplyError, ReplyLimits, ReplyScanner, RequestDecoder, RequestError, RequestLimits, Scan,
    Step, Value, parse_reply, put_request, put_value,
};
use bytes::{Bytes, BytesMut};
use redis_protocol::{resp2, resp3};

/// Client bytes: no panic, nothing consumed that did not arrive, the same requests however the bytes are split, memory
/// in proportion to the input, frames that relay and re-encode to the same bytes and that `redis-protocol` reads alike.
/// `seed` chooses one of many ways to split.
pub fn request_bytes(data: &[u8], seed: u64) {
    let narrow = RequestLimits {
        max_args: 3,
        max_bulk: 16,
        max_inline: 24,
        max_header_line: 32,
        max_frame: 64,
        unauthenticated: false,
    };
    for limits in [RequestLimits::default(), RequestLimits::before_auth(), narrow] {
        let at_once = decode_all(limits, data, std::iter::repeat(data.len().max(1)));
        let bytewise = decode_all(limits, data, std::iter::repeat(1));
        assert_eq!(at_once, bytewise, "byte by byte, {limits:?}");
        let pieces = decode_all(limits, data, pieces(seed));
        assert_eq!(at_once, pieces, "in pieces, {limits:?}");
        for event in &at_once.events {
            check_request(event);
        }
    }
}

/// Backend bytes: no panic, the same frame ends however the bytes are split, the same result from the fast path and the
/// slow one, and every frame found is one that `redis-protocol` ends at the same byte, if it can read it.
pub fn reply_bytes(data: &[u8], seed: u64) {
    let narrow = ReplyLimits { max_depth: 2, max_bulk: 4, max_elements: 5 };
    let shallow = ReplyLimits { max_depth: 6, ..ReplyLimits::default() };
    let at_once = reply_frames(data, seed, ReplyLimits::default());
    reply_frames(data, seed, narrow);
    reply_frames(data, seed, shallow);
    let mut start = 0;
    for &(end, kind) in &at_once.ends {
        check_reply(&data[start..end], kind);
        start = end;
    }
}

/// Within these limits, however the bytes are split: the frames that were found, and the error.
fn reply_frames(data: &[u8], seed: u64, limits: ReplyLimits) -> Scanned {
    let at_once = scan_all(limits, data, std::iter::repeat(data.len().max(1)));
    let bytewise = scan_all(limits, data, std::iter::repeat(1));
    assert_eq!(at_once, bytewise, "byte by byte, {limits:?}");
    let in_pieces = scan_all(limits, data, pieces(seed));
    assert_eq!(at_once, in_pieces, "in pieces, {limits:?}");
    for most in [1, 3, u64::MAX] {
        let skipped = skip_all(limits, data, pieces(seed), most);
        let expected = (at_once.ends.len() as u64, at_once.error);
        assert_eq!(expected, skipped, "{most} at a time, {limits:?}");
    }
    at_once
}

/// One level of a nested reply: its type, and how many elements are before and after the next level.
#[derive(Clone, Copy, Debug)]
pub struct Nest {
    /// `*`, `~`, `>`, `%` or `|`.
    pub kind: u8,
    /// Elements before the next level.
    pub before: u8,
    /// Elements after it.
    pub behind: u8,
}

/// A reply with these nested levels: it ends at the same place however its bytes are split, has exactly this depth, and
/// the bytes after it are a separate frame.
pub fn nested_reply(levels: &[Nest], seed: u64) {
    let mut data = Vec::new();
    for Nest { kind, before, behind } in levels {
        let elements = match kind {
            b'%' | b'|' => 2 * (u64::from(*before) + u64::from(*behind) + 1),
            _ => u64::from(*before) + u64::from(*behind) + 1,
        };
        let announced = match kind {
            b'%' | b'|' => elements / 2,
            _ => elements,
        };
        data.extend_from_slice(&[*kind]);
        data.extend_from_slice(format!("{announced}\r\n").as_bytes());
        let pairs = matches!(kind, b'%' | b'|');
        // The next level is the value of a pair.
        let ahead = usize::from(*before) * if pairs { 2 } else { 1 } + usize::from(pairs);
        data.extend_from_slice(&b"+k\r\n".repeat(ahead));
    }
    data.extend_from_slice(b":1\r\n");
    for Nest { kind, behind, .. } in levels.iter().rev() {
        let pairs = matches!(kind, b'%' | b'|');
        let rest = usize::from(*behind) * if pairs { 2 } else { 1 };
        data.extend_from_slice(&b"$1\r\nx\r\n".repeat(rest));
        if *kind == b'|' {
            // The value that the attribute belongs to.
            data.extend_from_slice(b":2\r\n");
        }
    }
    let end = data.len();
    data.extend_from_slice(b"+OK\r\n");
    let exact = ReplyLimits { max_depth: levels.len(), ..ReplyLimits::default() };
    let found = reply_frames(&data, seed, exact);
    let ends: Vec<_> = found.ends.iter().map(|(end, _)| *end).collect();
    assert_eq!(ends, [end, data.len()], "{levels:?}");
    if let Some(max_depth) = levels.len().checked_sub(1) {
        let less = ReplyLimits { max_depth, ..exact };
        let found = reply_frames(&data, seed, less);
        assert_eq!(found.error, Some(ReplyError::TooDeep), "{levels:?}");
    }
}

/// A value: written, it is one frame, found alike by the scanner and by `redis-protocol`, and in
/// RESP3 it reads back as itself.
pub fn value(value: &Value, seed: u64) {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let frame = encoded(value, protocol);
        reply_bytes(&frame, seed);
        let scanned = scan_all(ReplyLimits::default(), &frame, pieces(seed));
        assert_eq!(scanned.ends.len(), 1, "{value:?} is one frame");
        assert_eq!(scanned.ends[0].0, frame.len(), "{value:?} ends at its end");
        if protocol == Protocol::Resp2 || oracle_reads(value) {
            assert_eq!(oracle_end(&frame, protocol), Some(frame.len()), "{value:?} in {protocol:?}");
        }
        let read = parse_reply(&frame, protocol).expect("what was written can be read");
        match protocol {
            Protocol::Resp2 => assert_eq!(encoded(&read, protocol), frame),
            Protocol::Resp3 => assert_eq!(&read, value),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Ignored { consumed: usize },
    Request { came: Vec<u8>, frame: Vec<u8>, args: Vec<Vec<u8>> },
}

#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    events: Vec<Event>,
    error: Option<RequestError>,
}

fn decode_all(limits: RequestLimits, data: &[u8], mut pieces: impl Iterator<Item = usize>) -> Decoded {
    let mut decoder = RequestDecoder::new(limits);
    let mut events = Vec::new();
    let (mut start, mut arrived, mut least) = (0, 0, 0);
    let error = loop {
        let input = &data[start..arrived];
        let step = decoder.decode(input);
        assert!(
            decoder.retained() <= 16 * 1024 + 16 * input.len(),
            "{} bytes kept for {} bytes",
            decoder.retained(),
            input.len()
        );
        match step {
            Ok(Step::Incomplete { wants }) => {
                assert_ne!(wants, 0, "an incomplete frame wants something");
                least = least.max(arrived + wants);
                if arrived == data.len() {
                    break None;
                }
                arrived = data.len().min(arrived + pieces.next().unwrap_or(1));
                continue;
            }
            Ok(Step::Ignored { consumed }) => {
                assert!(0 < consumed && consumed <= input.len());
                events.push(Event::Ignored { consumed });
                start += consumed;
            }
            Ok(Step::Request { consumed }) => {
                assert!(0 < consumed && consumed <= input.len());
                let request = decoder.request(input);
                assert_eq!(request.len(), request.args().len());
                assert_eq!(request.get(0), Some(request.name()));
                assert_eq!(request.get(request.len()), None);
                events.push(Event::Request {
                    came: input[..consumed].to_vec(),
                    frame: request.frame().to_vec(),
                    args: request.args().map(<[u8]>::to_vec).collect(),
                });
                start += consumed;
            }
            Err(error) => {
                assert_eq!(decoder.decode(b"PING\r\n"), Err(error), "errors are final");
                break Some(error);
            }
        }
        assert!(least <= start, "a step said it lacked more than it then took");
        least = 0;
    };
    Decoded { events, error }
}

fn check_request(event: &Event) {
    let Event::Request { came, frame, args } = event else {
        return;
    };
    if came.first() == Some(&b'*') {
        assert_eq!(came, frame, "an array is relayed as it came");
    }
    let mut encoded = BytesMut::new();
    put_request(&mut encoded, args);
    assert_eq!(&encoded, frame, "relaying equals re-encoding");
    assert_eq!(OwnedRequest::new(args).frame(), frame);

    let again = decode_all(RequestLimits::default(), frame, std::iter::repeat(frame.len()));
    assert!(
        matches!(&again.events[..], [Event::Request { args: same, .. }] if same == args),
        "the frame reads back as the same request"
    );
    let Ok(Some((resp2::types::RangeFrame::Array(items), len))) = resp2::decode::decode_range(frame) else {
        panic!("redis-protocol refuses {frame:?}");
    };
    assert_eq!(len, frame.len(), "redis-protocol ends it elsewhere");
    let theirs = items.iter().map(|item| match item {
        resp2::types::RangeFrame::BulkString((from, to)) => &frame[*from..*to],
        other => panic!("redis-protocol reads {other:?}"),
    });
    assert!(theirs.eq(args.iter()), "redis-protocol reads other arguments");
}

#[derive(Debug, PartialEq, Eq)]
struct Scanned {
    ends: Vec<(usize, Option<u8>)>,
    at_start: bool,
    error: Option<ReplyError>,
}

fn scan_all(limits: ReplyLimits, data: &[u8], mut pieces: impl Iterator<Item = usize>) -> Scanned {
    let mut scanner = ReplyScanner::new(limits);
    let mut scanned = Scanned { ends: Vec::new(), at_start: true, error: None };
    let mut pos = 0;
    while pos < data.len() {
        let end = data.len().min(pos + pieces.next().unwrap_or(1));
        while pos < end {
            match scanner.scan(&data[pos..end]) {
                Ok(Scan::Partial) => pos = end,
                Ok(Scan::Complete { consumed }) => {
                    assert!(0 < consumed && consumed <= end - pos);
                    assert!(scanner.at_frame_start());
                    pos += consumed;
                    scanned.ends.push((pos, scanner.frame_type()));
                }
                Err(error) => {
                    assert_eq!(scanner.scan(b"+OK\r\n"), Err(error), "errors are final");
                    assert!(!scanner.at_frame_start());
                    scanned.error = Some(error);
                    scanned.at_start = false;
                    return scanned;
                }
            }
        }
    }
    scanned.at_start = scanner.at_frame_start();
    scanned
}

fn skip_all(
    limits: ReplyLimits,
    data: &[u8],
    mut pieces: impl Iterator<Item = usize>,
    most: u64,
) -> (u64, Option<ReplyError>) {
    let mut scanner = ReplyScanner::new(limits);
    let (mut pos, mut frames) = (0, 0);
    while pos < data.len() {
        let end = data.len().min(pos + pieces.next().unwrap_or(1));
        while pos < end {
            match scanner.skip_frames(&data[pos..end], most) {
                Ok(skipped) => {
                    assert!(skipped.frames <= most && skipped.bytes <= end - pos);
                    frames += skipped.frames;
                    pos += skipped.bytes;
                }
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn check_reply(frame: &[u8], kind: Option<u8>) {
    if frame[0] != b'|' {
        assert_eq!(kind, Some(frame[0]));
    }
    // A frame that is too deep for our reader is too deep for theirs, which recurses.
    if ReplyScanner::new(ReplyLimits::for_reading()).scan(frame) == Err(ReplyError::TooDeep) {
        let frame = Bytes::copy_from_slice(frame);
        assert_eq!(parse_reply(&frame, Protocol::Resp3), Err(ReplyError::TooDeep));
        return;
    }
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        if let Some(end) = oracle_end(frame, protocol) {
            assert_eq!(end, frame.len(), "redis-protocol ends it elsewhere in {protocol:?}");
        }
    }
    let frame = Bytes::copy_from_slice(frame);
    let resp3 = parse_reply(&frame, Protocol::Resp3);
    if let Ok(value) = parse_reply(&frame, Protocol::Resp2) {
        // Their decoder and our walk are two opinions of the same bytes.
        assert_eq!(resp3.as_ref(), Ok(&value));
    }
    if let Ok(value) = resp3 {
        let again = parse_reply(&encoded(&value, Protocol::Resp3), Protocol::Resp3);
        assert_eq!(again, Ok(value));
    }
}

/// Where `redis-protocol` ends the frame; `None` if it cannot read it. It must not take a frame that we call complete
/// for the beginning of a longer one.
fn oracle_end(frame: &[u8], protocol: Protocol) -> Option<usize> {
    let found = match protocol {
        Protocol::Resp2 => resp2::decode::decode_range(frame).map(|found| found.map(|(_, len)| len)),
        Protocol::Resp3 => resp3::decode::complete::decode_range(frame).map(|found| found.map(|(_, len)| len)),
    };
    found.ok().map(|found| found.expect("redis-protocol wants more of a complete frame"))
}

/// Whether the RESP3 decoder of `redis-protocol` can read this value at all.
fn oracle_reads(value: &Value) -> bool {
    let scalar = |value: &Value| !matches!(value, Value::Array(_) | Value::Set(_) | Value::Push(_) | Value::Map(_));
    match value {
        Value::Array(items) | Value::Push(items) => items.iter().all(oracle_reads),
        Value::Set(items) => items.iter().all(|item| scalar(item) && oracle_reads(item)),
        Value::Map(pairs) => pairs.iter().all(|(key, item)| scalar(key) && oracle_reads(key) && oracle_reads(item)),
        Value::Verbatim { format, .. } => format == "txt" || format == "mkd",
        _ => true,
    }
}

fn encoded(value: &Value, protocol: Protocol) -> Bytes {
    let mut out = BytesMut::new();
    put_value(&mut out, value, protocol);
    out.freeze()
}

/// Sizes of pieces: mostly a few bytes, sometimes many, always the same for one seed.
fn pieces(seed: u64) -> impl Iterator<Item = usize> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        // xorshift64: irregular enough.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let size = if state.is_multiple_of(11) { 300 } else { 9 };
        1 + (state >> 32) as usize % size
    })
}

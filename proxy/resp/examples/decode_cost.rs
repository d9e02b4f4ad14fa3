//! What it costs to find one request: `cargo run --release -p lockwarden-resp --example
//! decode_cost`. Prints nanoseconds per request and judges nothing, for that depends on the
//! machine; `docs/performance.md` has the numbers.

use bytes::BytesMut;
use lockwarden_resp::{
    ReplyLimits, ReplyScanner, RequestDecoder, RequestLimits, Step, put_request,
};
use std::{hint::black_box, time::Instant};

const ROUNDS: u32 = 2_000_000;
const REPLIES: u32 = 16;

fn main() {
    let mut small = BytesMut::new();
    put_request(
        &mut small,
        &["SET", "lock:order:4711", "0123456789abcdef0123456789abcdef"],
    );
    let mut options = BytesMut::new();
    put_request(
        &mut options,
        &[
            "SET",
            "lock:order:4711",
            "0123456789abcdef0123456789abcdef",
            "NX",
            "PX",
            "30000",
        ],
    );
    requests("SET k v", &small);
    requests("SET k v NX PX 30000", &options);

    let replies = b"$5\r\nhello\r\n".repeat(REPLIES as usize);
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    let start = Instant::now();
    for _ in 0..ROUNDS / REPLIES {
        let skipped = scanner.skip_frames(black_box(&replies), u64::MAX);
        assert_eq!(
            skipped.map(|skipped| skipped.frames),
            Ok(u64::from(REPLIES))
        );
    }
    report("a five-byte bulk reply", 11, start);
}

fn requests(what: &str, frame: &[u8]) {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let input = black_box(frame);
        let step = decoder.decode(input);
        assert_eq!(
            step,
            Ok(Step::Request {
                consumed: frame.len()
            })
        );
        black_box(decoder.request(input).name());
    }
    report(what, frame.len(), start);
}

fn report(what: &str, bytes: usize, start: Instant) {
    let each = start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS);
    println!("{what}, {bytes} bytes: {each:.1} ns");
}

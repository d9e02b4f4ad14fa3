//! What it costs to find one request in what a client sent, and to pass over one reply of the
//! backend: `cargo bench -p lockwarden-resp --bench framer`.

use bytes::BytesMut;
use divan::{Bencher, black_box, counter::ItemsCount};
use lockwarden_resp::{ReplyLimits, ReplyScanner, RequestDecoder, RequestLimits, Step, put_request};

/// So many times in one sample: the clock counts in steps of some nanoseconds.
const TIMES: u32 = 256;

fn main() {
    divan::Divan::default().sample_size(TIMES).sample_count(400).config_with_args().main();
}

/// A name for the table, and what is sent.
type Shape = (&'static str, fn() -> Vec<u8>);

fn frame(words: &[&[u8]]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    put_request(&mut frame, words);
    frame.to_vec()
}

const REQUESTS: &[Shape] = &[
    ("GET", || frame(&[b"GET", b"user:4711"])),
    ("SET 64 B", || frame(&[b"SET", b"user:4711", &[b'x'; 64]])),
    ("SET NX PX", || {
        let value = b"0123456789abcdef0123456789abcdef";
        frame(&[b"SET", b"lock:order:4711", value, b"NX", b"PX", b"30000"])
    }),
    ("MGET of 50", || {
        let mut words: Vec<&[u8]> = vec![b"MGET"];
        words.resize(51, b"user:4711");
        frame(&words)
    }),
    ("SET 16 KiB", || frame(&[b"SET", b"user:4711", &[b'x'; 16_384]])),
    ("inline GET", || b"GET user:4711\r\n".to_vec()),
];

/// The whole request is there.
#[divan::bench(args = REQUESTS.iter().map(|shape| shape.0))]
fn request(bencher: Bencher<'_, '_>, shape: &str) {
    let input = made(REQUESTS, shape);
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    bencher.bench_local(|| {
        let step = decoder.decode(black_box(&input));
        assert!(matches!(step, Ok(Step::Request { .. })));
        decoder.request(&input).name().len()
    });
}

/// The request comes in four pieces.
#[divan::bench(args = ["SET 64 B", "SET 16 KiB"])]
fn request_in_pieces(bencher: Bencher<'_, '_>, shape: &str) {
    let input = made(REQUESTS, shape);
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    let part = input.len() / 4;
    bencher.bench_local(|| {
        for end in [part, 2 * part, 3 * part] {
            let step = decoder.decode(black_box(&input[..end]));
            assert!(matches!(step, Ok(Step::Incomplete { .. })));
        }
        decoder.decode(black_box(&input))
    });
}

const REPLIES: &[Shape] = &[
    ("+OK", || b"+OK\r\n".to_vec()),
    ("+PONG", || b"+PONG\r\n".to_vec()),
    ("nil", || b"$-1\r\n".to_vec()),
    ("integer", || b":1234\r\n".to_vec()),
    ("bulk 64 B", || bulk(64)),
    ("bulk 16 KiB", || bulk(16_384)),
    ("array of 50", || [b"*50\r\n".to_vec(), bulk(9).repeat(50)].concat()),
    ("error", || b"-ERR no such key\r\n".to_vec()),
    ("map of 2", || b"%2\r\n+first\r\n:1\r\n+second\r\n#t\r\n".to_vec()),
];

fn bulk(length: usize) -> Vec<u8> {
    let body = vec![b'x'; length];
    [format!("${length}\r\n").as_bytes(), &body, b"\r\n"].concat()
}

/// One reply that is there, as it is looked for by whoever takes it apart.
#[divan::bench(args = REPLIES.iter().map(|shape| shape.0))]
fn reply(bencher: Bencher<'_, '_>, shape: &str) {
    let input = made(REPLIES, shape);
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    bencher.bench_local(|| scanner.scan(black_box(&input)));
}

const TOGETHER: usize = 16;

/// Sixteen replies in one piece, as they are relayed; the time is for all.
#[divan::bench(args = REPLIES.iter().map(|shape| shape.0))]
fn sixteen_replies(bencher: Bencher<'_, '_>, shape: &str) {
    let input = made(REPLIES, shape).repeat(TOGETHER);
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    bencher.counter(ItemsCount::new(TOGETHER)).bench_local(|| scanner.skip_frames(black_box(&input), u64::MAX));
}

fn made(shapes: &[Shape], name: &str) -> Vec<u8> {
    let shape = shapes.iter().find(|shape| shape.0 == name);
    shape.expect("each name is taken from the table").1()
}

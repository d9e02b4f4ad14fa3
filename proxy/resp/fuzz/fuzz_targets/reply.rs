//! Backend bytes of the fuzzer's choice, checked by what the property tests check. The fuzzer
//! also chooses how they are split. Run with `cargo +nightly fuzz run reply`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockwarden_resp::properties::{self, Nest};

/// Each takes several looks at all bytes, one by one.
const MAX_LEVELS: usize = 200;

fuzz_target!(|input: (u64, &[u8])| {
    let (seed, data) = input;
    properties::reply_bytes(data, seed);
    // The same bytes as a description of a nested reply.
    let levels: Vec<_> = data
        .chunks_exact(2)
        .take(MAX_LEVELS)
        .map(|level| Nest { kind: b"*~>%|"[usize::from(level[0]) % 5], before: level[1] % 3, behind: level[1] / 3 % 3 })
        .collect();
    properties::nested_reply(&levels, seed);
});

//! Client bytes of the fuzzer's choice, checked by what the property tests check. The fuzzer
//! also chooses how they are split. Run with `cargo +nightly fuzz run request`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockwarden_resp::properties;

fuzz_target!(|input: (u64, &[u8])| {
    let (seed, data) = input;
    properties::request_bytes(data, seed);
});

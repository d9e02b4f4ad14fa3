use bytes::Bytes;
use proptest::prelude::*;

use super::{SLOTS, companion_key, crc16, names_companion, slot, tag};
use crate::glob::Glob;
use crate::namespace::Namespaces;

fn locks() -> Namespaces {
    Namespaces::new(vec![vec![Glob::new(Bytes::from_static(b"lock:*"))]])
}

#[test]
fn slots_are_those_of_cluster_keyslot() {
    // From `CLUSTER KEYSLOT` of Redis 7.0 (the check value of CRC-16/XMODEM first).
    assert_eq!(crc16(0, b"123456789"), 0x31c3);
    for (key, expected) in [
        ("foo", 12182),
        ("lock:a", 6035),
        ("{user1000}.following", 3443),
        ("user1000", 3443),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", 4015),
        ("{bar", 4015),
        ("foo{bar}{zap}", 5061),
        ("bar", 5061),
        ("", 0),
        ("{}", 15257),
        ("}{a}", 15495),
    ] {
        assert_eq!(slot(key.as_bytes()), expected, "{key}");
    }
}

#[test]
fn every_tag_hashes_to_its_slot_and_needs_no_braces() {
    for number in 0..SLOTS {
        let tag = tag(number);
        assert_eq!(slot(tag.as_bytes()), number, "{tag}");
        assert!((1..=4).contains(&tag.len()) && tag.bytes().all(|b| b.is_ascii_alphanumeric()));
    }
}

#[test]
fn tags_never_change() {
    // FNV-1a over all tags with a newline after each. Another number here means that every record
    // in every Redis would be lost.
    let sum = (0..SLOTS)
        .flat_map(|number| tag(number).bytes().chain([b'\n']))
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(sum, 0x2fdb_2fc9_7e02_d461);
}

#[test]
fn only_prefixed_names_of_locks_are_companions() {
    let namespaces = locks();
    for (name, expected) in [
        ("lw:{ab}:lock:a", true),
        ("lw:{}:lock:a", true),
        ("lw:{any{thing}:lock:a", true),
        ("lw:{ab}:lock:{x}:y", true),
        ("lw:{}:lockwarden-kept", true),
        ("lw:{ab}:data:a", false),
        ("lw:{ab}lock:a", false),
        ("lw:lock:a", false),
        ("lw:{ab", false),
        ("lw:{ab}", false),
        ("lw:", false),
        ("lw:foo", false),
        ("lock:a", false),
        ("LW:{ab}:lock:a", false),
    ] {
        assert_eq!(names_companion(b"lw:", name.as_bytes(), &namespaces), expected, "{name}");
    }
}

proptest! {
    #[test]
    fn a_companion_shares_the_slot_of_its_key(
        key in proptest::collection::vec(
            prop_oneof![Just(b'{'), Just(b'}'), Just(b':'), any::<u8>()], 0..24),
    ) {
        let companion = companion_key(b"lw:", &key);
        prop_assert_eq!(slot(&companion), slot(&key));
        let lock = [b"lock:".as_slice(), &key].concat();
        prop_assert!(names_companion(b"lw:", &companion_key(b"lw:", &lock), &locks()));
    }
}

//! Requests about held locks with damaged bytes: lengths, type marks, line ends. Proxy and server must read them in the same way,
//! so that no lease changes; and the connection is served or closed, never left waiting. `LOCKWARDEN_SEED` repeats a run.

use lockwarden_tests::cases::Case;
use lockwarden_tests::encode;
use lockwarden_tests::random::Random;
use lockwarden_tests::soak::for_each_seed;

use super::{Arena, Others, difference};

/// Connections of one run.
const CONNECTIONS: usize = 300;

/// Bytes that mean something to the protocol.
const BYTES: &[u8] = b"*$:+-\r\n0123456789 \0\"'%~>#_=!,(";

/// Some requests in one write, spoilt here and there.
fn spoilt(random: &mut Random, cases: &[Case]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.between(1, 5) {
        let case = random.among(cases);
        let waits = case.args[0].to_ascii_uppercase().starts_with(b"B");
        if !waits && !case.args.iter().any(|arg| arg.eq_ignore_ascii_case(b"BLOCK")) {
            bytes.extend(encode(&case.args));
        }
    }
    for _ in 0..random.between(1, 3) {
        if bytes.is_empty() {
            break;
        }
        // Most of what matters stands at the beginning of a line.
        let lines: Vec<usize> = (1..bytes.len()).filter(|at| bytes[at - 1] == b'\n').chain([0]).collect();
        let at = match random.below(3) {
            0 => random.below(bytes.len()),
            _ => (*random.among(&lines) + random.below(4)).min(bytes.len() - 1),
        };
        match random.below(6) {
            0 => bytes[at] = *random.among(BYTES),
            1 => bytes.insert(at, *random.among(BYTES)),
            2 => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => {
                let end = (at + random.between(1, 20)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
    bytes
}

#[test]
fn no_spoilt_frame_changes_a_lease() {
    let arena = Arena::open(|proxy| proxy.setting("owner-token", "proofs", "[\"token\", \"session\"]"));
    let cases: Vec<Case> = arena.cases(&arena.alone).into_iter().filter(|case| case.args[0] != b"MIGRATE").collect();
    let direct = arena.redis.client();
    for_each_seed(&[1], |seed| {
        let mut random = Random::from_seed(seed);
        let others = Others::arrive(&arena);
        for _ in 0..CONNECTIONS {
            let bytes = spoilt(&mut random, &cases);
            let stranger = arena.proxy.client();
            stranger.write(&bytes);
            stranger.half_closes();
            stranger.reads_to_end();
            let after = direct.sends_bytes(&others.look).reply();
            let held = |look: &lockwarden_tests::Reply| {
                let mut held = look.elements().to_vec();
                held.remove(lockwarden_tests::cases::Kind::ALL.len());
                held
            };
            assert!(
                held(&after) == held(&others.before),
                "LOCKWARDEN_SEED={seed}: {}{}",
                bytes.escape_ascii(),
                difference(&others.before, &after)
            );
        }
    });
}

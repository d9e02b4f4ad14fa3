//! Texts made to hurt: deep, long, or a recipe damaged at random. Nothing may panic or take long,
//! and a damaged recipe may only mean what the one beside it means.

use std::time::{Duration, Instant};

use super::*;

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Far more than any text needs, in an unoptimised build on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(5);

fn is_refused_in_time(text: &str) {
    let start = Instant::now();
    assert_eq!(recognise(text.as_bytes()), None);
    assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
}

#[test]
fn deep_and_long_texts_are_refused_in_time() {
    for unit in [
        "(",
        "{",
        "[",
        "[[",
        "[=",
        "--[",
        "--[=",
        "--[[",
        "]",
        "]=",
        "'",
        "\\",
        "not ",
        "-",
        "- ",
        "do ",
        "if true then ",
        "if ",
        "a.",
        "a(",
        "a[",
        "a,",
        "local ",
        "return ",
        "a and ",
        ";",
        "a == ",
        "\"\\",
        "1",
        ".",
        "=",
        "x ",
        "{a=",
        "('a')",
        "for i = 1, 9 do ",
        "for a, b in ipairs(KEYS) do ",
        "1 + ",
        "a .. ",
        "#",
        "redis.call(",
        "KEYS[",
        "\n",
        "\r",
    ] {
        is_refused_in_time(&unit.repeat(MAX_TEXT_LEN / unit.len()));
        let inside = MAX_TEXT_LEN - RELEASE.len() - 1;
        is_refused_in_time(&format!("{}{RELEASE}x", unit.repeat(inside / unit.len())));
    }
}

#[test]
fn nesting_is_limited_and_some_of_it_is_understood() {
    let nested = |depth: usize| {
        let (open, close) = ("(".repeat(depth), ")".repeat(depth));
        RELEASE.replace("return 0", &format!("return {open}0{close}"))
    };
    let expected = Some(deletes(DONE_OR_ZERO));
    assert_eq!(recognise(nested(10).as_bytes()), expected);
    assert_eq!(recognise(nested(32).as_bytes()), None);

    let blocks = |depth: usize| format!("{}{RELEASE}{}", "do ".repeat(depth), " end".repeat(depth));
    assert_eq!(recognise(blocks(20).as_bytes()), expected);
    assert_eq!(recognise(blocks(40).as_bytes()), None);
}

#[test]
fn long_chains_are_no_deeper_than_short_ones() {
    let ors = "false or ".repeat(400);
    let text = RELEASE.replace("return 0", &format!("return {ors}0"));
    assert_eq!(recognise(text.as_bytes()), Some(deletes(DONE_OR_ZERO)));

    let arms = "elseif false then ".repeat(400);
    let text = RELEASE.replace("else", &format!("{arms} else"));
    assert_eq!(recognise(text.as_bytes()), Some(deletes(DONE_OR_ZERO)));
}

#[test]
fn a_long_licence_above_a_script_does_no_harm_until_the_text_is_too_long() {
    let with_comment = |length: usize| format!("-- {}\n{RELEASE}", "x".repeat(length));
    let fits = MAX_TEXT_LEN - RELEASE.len() - "-- \n".len();
    assert_eq!(recognise(with_comment(fits).as_bytes()), Some(deletes(DONE_OR_ZERO)));
    assert_eq!(recognise(with_comment(fits + 1).as_bytes()), None);
}

/// SplitMix64: every run sees the same damage.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

fn every_text() -> Vec<&'static str> {
    let published = releases::published().into_iter().chain(extends::published());
    let hand_written = releases::hand_written().into_iter().chain(extends::hand_written());
    published
        .map(|(_, _, text, _)| text)
        .chain(hand_written.map(|(text, _)| text))
        .chain(takes::texts().into_iter().map(|(text, _)| text))
        .chain(near_misses::texts().into_iter().map(|(_, text)| text))
        .collect()
}

/// Cuts, doubles, moves and overwrites pieces, with pieces of the other texts among them.
fn damaged(texts: &[&str], random: &mut Seeded) -> Vec<u8> {
    let mut text = texts[random.below(texts.len())].as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let from = random.below(text.len() + 1);
        let to = (from + random.below(12)).min(text.len());
        match random.below(5) {
            0 => drop(text.drain(from..to)),
            1 => text.truncate(from),
            2 => text.insert(from, random.below(256) as u8),
            3 => {
                let other = texts[random.below(texts.len())].as_bytes();
                let start = random.below(other.len() + 1);
                let end = (start + random.below(40)).min(other.len());
                text.splice(from..to, other[start..end].iter().copied());
            }
            _ => {
                let piece = text[from..to].to_vec();
                let at = random.below(text.len() + 1);
                text.splice(at..at, piece);
            }
        }
    }
    text
}

#[test]
fn damaged_texts_never_panic_and_what_is_still_recognised_can_be_explained() {
    let texts = every_text();
    let mut random = Seeded(4);
    let start = Instant::now();
    let mut recognised = 0;
    for _ in 0..40_000 {
        let text = damaged(&texts, &mut random);
        let Some(recipe) = recognise(&text) else {
            continue;
        };
        recognised += 1;
        let shown = String::from_utf8_lossy(&text).to_ascii_lowercase();
        // Letters may be written as escapes, and a key by its name, so this asks only for what
        // cannot be.
        assert!(shown.contains("call"), "{shown}");
        let (Recipe::CompareAndDelete { replies, .. } | Recipe::CompareAndExtend { replies, .. }) = &recipe else {
            continue;
        };
        for constant in [&replies.absent, &replies.different] {
            assert_ne!(*constant, Reply::CommandResult, "{shown}");
        }
        assert_ne!(replies.absent, Reply::Stored, "{shown}");
        assert_ne!(replies.done, Reply::Stored, "{shown}");
    }
    assert!(recognised > 100, "the damage leaves too little: {recognised}");
    assert!(start.elapsed() < 12 * PATIENCE);
}

use bytes::Bytes;
use proptest::prelude::*;

use super::Glob;

fn glob(pattern: impl AsRef<[u8]>) -> Glob {
    Glob::new(Bytes::copy_from_slice(pattern.as_ref()))
}

#[test]
fn verdicts_are_those_of_redis() {
    // (pattern, keys that match, keys that do not), as `KEYS` of Redis 7.0 on x86-64 has it.
    type Row = (&'static [u8], &'static [&'static [u8]], &'static [&'static [u8]]);
    let table: &[Row] = &[
        (b"", &[b""], &[b"a"]),
        (b"*", &[b"", b"a", b"\0\xff"], &[]),
        (b"**", &[b"a", b"ab"], &[b""]),
        (b"lock:*", &[b"lock:", b"lock:a", b"lock:*"], &[b"lock", b"Lock:a", b"xlock:a"]),
        (b"lock:**", &[b"lock:", b"lock:a"], &[b"lock"]),
        (b"lock:a", &[b"lock:a"], &[b"lock:", b"lock:ab"]),
        (b"*:lock", &[b":lock", b"a:lock", b":lock:lock"], &[b"lock", b":lock:"]),
        (b"a*b*c", &[b"abc", b"aXbXc", b"abbcc"], &[b"ab", b"acb", b"abcd"]),
        (b"a?c", &[b"abc", b"a?c", b"a\xffc"], &[b"ac", b"abbc"]),
        (b"*?", &[b"a", b"ab"], &[b""]),
        (b"[abc]x", &[b"ax", b"cx"], &[b"dx", b"x", b"[x"]),
        (b"[^abc]x", &[b"dx", b"^x"], &[b"ax", b"x"]),
        (b"[a-c]", &[b"a", b"b", b"c"], &[b"d", b"-"]),
        (b"[c-a]", &[b"a", b"b", b"c"], &[b"d", b"-"]),
        (b"[a-]", &[b"a", b"^", b"]"], &[b"-", b"b"]),
        (b"[a-", &[b"a", b"-"], &[b"b"]),
        (b"[ab", &[b"a", b"b"], &[b"[", b"ab", b"c"]),
        (b"[", &[], &[b"[", b"a"]),
        (b"[^", &[b"a", b"^"], &[b"", b"ab"]),
        (b"[]", &[], &[b"a", b"]", b"[]"]),
        (b"[]a]", &[], &[b"a", b"]", b"a]"]),
        (b"[^]a", &[b"xa", b"]a"], &[b"a"]),
        (b"[\\]a]", &[b"]", b"a"], &[b"\\"]),
        (b"[\\", &[b"\\"], &[b"a"]),
        (b"[a\\-z]", &[b"a", b"-", b"z"], &[b"b"]),
        (b"[a*]", &[b"a", b"*"], &[b"ab"]),
        (b"\\*", &[b"*"], &[b"a", b"\\*"]),
        (b"\\a", &[b"a"], &[b"\\a"]),
        (b"a\\", &[b"a\\"], &[b"a"]),
        (b"a\\*b*", &[b"a*b", b"a*bc"], &[b"aXb"]),
        (b"\\\\x", &[b"\\x"], &[b"x"]),
        (b"[a-\x80]", &[b"\x80", b"\xff", b"\0", b"a"], &[b"b", b"\x7f"]),
        (b"[\x80-\xff]", &[b"\x80", b"\xff"], &[b"\x7f", b"a"]),
    ];
    for (pattern, yes, no) in table {
        let glob = glob(pattern);
        for key in *yes {
            assert!(glob.matches(key), "{glob:?} should match {:?}", key.escape_ascii());
        }
        for key in *no {
            assert!(!glob.matches(key), "{glob:?} should not match {:?}", key.escape_ascii());
        }
    }
}

#[test]
fn the_literal_prefix_ends_at_the_first_wildcard_and_has_no_escapes() {
    for (pattern, prefix) in [
        ("lock:*", "lock:"),
        ("lock:a", "lock:a"),
        ("a\\*b?c", "a*b"),
        ("a\\", "a\\"),
        ("*x", ""),
        ("[a]x", ""),
        ("lock:[0-9]", "lock:"),
    ] {
        assert_eq!(glob(pattern).literal_prefix(), prefix.as_bytes(), "{pattern}");
        assert_eq!(glob(pattern).pattern(), pattern.as_bytes());
    }
}

#[test]
fn an_example_matches_and_only_patterns_that_match_nothing_or_are_hard_have_none() {
    for pattern in ["lock:*", "*", "a", "*:lock", "lock:*:x", "lock:\\*"] {
        let key = glob(pattern).example().expect(pattern);
        assert!(glob(pattern).matches(&key), "{pattern}");
    }
    assert_eq!(glob("lock:[]").example(), None);
}

#[test]
fn a_name_of_which_only_the_ends_are_known_may_be_any_that_has_them() {
    for (pattern, beginning, ending, may) in [
        ("lock:a", "loc", "k:a", true),
        ("lock:a", "", "", true),
        ("lock:a", "lock", "k:a", false),
        ("lock:a", "lock:", "b", false),
        ("lock:*", "lo", "x", true),
        ("lock:*", "lock:a", "", true),
        ("lock:*", "data", "x", false),
        ("*:lock", "a", "ck", true),
        ("*:lock", "a", "x", false),
    ] {
        let found = glob(pattern).may_match_between(beginning.as_bytes(), ending.as_bytes());
        assert_eq!(found, may, "{pattern}: {beginning}…{ending}");
    }
}

#[test]
fn a_first_byte_rules_patterns_out() {
    for (pattern, begins, not) in
        [("lock:*", b'l', b'k'), ("[ab]c", b'b', b'c'), ("\\*x", b'*', b'x'), ("[^a]", b'b', b'a')]
    {
        assert!(glob(pattern).may_begin_with(begins), "{pattern}");
        assert!(!glob(pattern).may_begin_with(not), "{pattern}");
    }
    assert!(glob("*x").may_begin_with(b'y') && glob("?x").may_begin_with(b'y'));
    assert!(!glob("").may_begin_with(b'y'));
}

#[test]
fn a_pattern_of_many_stars_is_answered_at_once() {
    let pattern = "a*".repeat(2_000) + "b";
    let key = "a".repeat(20_000);
    let started = std::time::Instant::now();
    assert!(!glob(pattern).matches(key.as_bytes()));
    assert!(started.elapsed().as_secs() < 20, "backtracking is not bounded");
}

/// Redis 7.0's `stringmatchlen`, kept as close to its own control flow as Rust allows, recursion
/// included. Reading past the end gives the NUL that ends every Redis string.
fn as_redis_does(mut p: &[u8], mut s: &[u8], give_up: &mut bool) -> bool {
    let at = |p: &[u8], i: usize| p.get(i).copied().unwrap_or(0);
    while !p.is_empty() && !s.is_empty() {
        match p[0] {
            b'*' => {
                while !p.is_empty() && at(p, 1) == b'*' {
                    p = &p[1..];
                }
                if p.len() == 1 {
                    return true;
                }
                while !s.is_empty() {
                    if as_redis_does(&p[1..], s, give_up) {
                        return true;
                    }
                    if *give_up {
                        return false;
                    }
                    s = &s[1..];
                }
                *give_up = true;
                return false;
            }
            b'?' => s = &s[1..],
            b'[' => {
                p = &p[1..];
                let not = at(p, 0) == b'^';
                if not {
                    p = &p[1..];
                }
                let mut matched = false;
                let mut open = false;
                loop {
                    if p.len() >= 2 && p[0] == b'\\' {
                        p = &p[1..];
                        matched |= p[0] == s[0];
                    } else if at(p, 0) == b']' {
                        break;
                    } else if p.is_empty() {
                        open = true;
                        break;
                    } else if p.len() >= 3 && p[1] == b'-' {
                        let (mut start, mut end) = (p[0] as i8, p[2] as i8);
                        let c = s[0] as i8;
                        if start > end {
                            std::mem::swap(&mut start, &mut end);
                        }
                        p = &p[2..];
                        matched |= c >= start && c <= end;
                    } else {
                        matched |= p[0] == s[0];
                    }
                    p = &p[1..];
                }
                if matched == not {
                    return false;
                }
                s = &s[1..];
                if open {
                    // Redis steps one back here and forward again below.
                    return s.is_empty();
                }
            }
            other => {
                let mut literal = other;
                if other == b'\\' && p.len() >= 2 {
                    p = &p[1..];
                    literal = p[0];
                }
                if literal != s[0] {
                    return false;
                }
                s = &s[1..];
            }
        }
        p = &p[1..];
        if s.is_empty() {
            while at(p, 0) == b'*' {
                p = &p[1..];
            }
            break;
        }
    }
    p.is_empty() && s.is_empty()
}

fn alphabet(bytes: &'static [u8], len: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(bytes), 0..len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_pattern_means_what_redis_makes_of_it(
        pattern in alphabet(b"ab**?[]^-\\\x80", 10),
        key in alphabet(b"ab*]-\\^\x80\xff", 7),
    ) {
        let expected = pattern == b"*" || as_redis_does(&pattern, &key, &mut false);
        let glob = glob(&pattern);
        prop_assert_eq!(glob.matches(&key), expected);
        if expected {
            prop_assert!(key.starts_with(glob.literal_prefix()));
            prop_assert!(key.first().is_none_or(|&byte| glob.may_begin_with(byte)));
        }
    }
}

#[test]
fn a_narrower_pattern_misses_an_example_of_the_wider_one() {
    for (wide, narrow) in [
        ("lock:*", "lock:a*"),
        ("lock:*", "lock:?*"),
        ("lock:*", "lock:[a-z]*"),
        ("lock:*", "lock:[^a-z]*"),
        ("lock:?", "lock:[0-9]"),
        ("lock:[ab]*", "lock:a*"),
        ("lock:[^a]", "lock:[b-z]"),
        ("*:lock", "a*:lock"),
        ("*", "lock:*"),
    ] {
        let examples = glob(wide).examples();
        assert!(!examples.is_empty(), "{wide}");
        assert!(examples.iter().any(|key| !glob(narrow).matches(key)), "{wide} and {narrow}: {examples:?}");
    }
}

proptest! {
    #[test]
    fn every_example_matches_its_pattern(pattern in "[ab*?\\[\\]^\\\\-]{0,12}") {
        let glob = glob(pattern);
        let examples = glob.examples();
        prop_assert!(examples.len() <= super::MAX_EXAMPLES);
        for example in examples {
            prop_assert!(glob.matches(&example), "{:?}", example);
        }
    }
}

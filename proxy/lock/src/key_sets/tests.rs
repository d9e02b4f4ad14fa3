use super::*;
use crate::glob::Glob;

fn taken(globs: &[&str]) -> Taken {
    Taken::new(globs.iter().map(|glob| glob.as_bytes())).unwrap()
}

fn left(taken: &Taken, globs: &[&str]) -> Vec<String> {
    let left = taken.from(globs.iter().map(|glob| glob.as_bytes()));
    let patterns = left.unwrap().patterns.into_iter();
    patterns.map(|glob| String::from_utf8(glob).unwrap()).collect()
}

/// All keys of up to so many letters.
fn keys(letters: &[u8], longest: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..longest {
        let end = all.len();
        for at in begin..end {
            for letter in letters {
                let longer = [&all[at][..], &[*letter]].concat();
                all.push(longer);
            }
        }
        begin = end;
    }
    all
}

#[test]
fn what_does_not_begin_with_a_text_is_said_by_classes() {
    let taken = taken(&["ab:*"]);
    assert_eq!(left(&taken, &["*"]), ["", "[^a]*", "a", "a[^b]*", "ab", "ab[^:]*"]);
    assert_eq!(left(&taken, &["cache:*", "ab:x"]), ["cache:*"]);
    assert_eq!(left(&taken, &["a*"]), ["a", "a[^b]*", "ab", "ab[^:]*"]);
}

/// Whether what is left of globs is exactly what they match and those that are taken do not.
fn is_exact(globs: &[&str], from: &[&str], keys: &[Vec<u8>]) {
    let taken = taken(globs);
    assert!(taken.widened.is_empty());
    let globs: Vec<Glob> = globs.iter().map(|&glob| Glob::new(glob.to_owned().into())).collect();
    let before: Vec<Glob> = from.iter().map(|&glob| Glob::new(glob.to_owned().into())).collect();
    let texts = left(&taken, from);
    let after: Vec<Glob> = texts.iter().map(|glob| Glob::new(glob.clone().into())).collect();
    for key in keys {
        let matches = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(key));
        assert_eq!(
            matches(&after),
            matches(&before) && !matches(&globs),
            "{globs:?} from {from:?}: {} by {texts:?}",
            key.escape_ascii()
        );
    }
    // Taking the same once more changes nothing.
    let again: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(left(&taken, &again), texts, "{globs:?} from {from:?}");
}

#[test]
fn what_is_left_is_exact_for_globs_with_one_star() {
    let keys = keys(b"abx", 7);
    let globs: &[&[&str]] = &[
        &["ab*"],
        &["*ab"],
        &["ab*", "ba*", "x*"],
        &["aba*", "*bab"],
        &["a*b", "ba*"],
        &["ab", "aba*"],
        &["a?b*", "*[ab]x"],
        &["[^a]b*"],
        &["*abab", "aba*", "b*b"],
        &["ab*aba", "*ba"],
        &["?b"],
        &["a*", "b*", "x*"],
        &["*"],
    ];
    for globs in globs {
        for from in [&["*"] as &[&str], &["a*", "*b"], &["ab", "x?a*b"], &["*ab*", "aab"]] {
            let has_several = from.contains(&"*ab*");
            if has_several && taken(globs).touches(b"*ab*") {
                continue;
            }
            is_exact(globs, from, &keys);
        }
    }
}

#[test]
fn bytes_that_mean_something_in_a_glob_are_escaped() {
    let keys = keys(b"]-^\\*)[", 4);
    for globs in [&["]-*"] as &[&str], &["\\*^*", "\\\\*"], &["[\\]\\-]^*", "*)"], &["[+-_]*"]] {
        is_exact(globs, &["*"], &keys);
    }
}

#[test]
fn no_pattern_has_what_an_acl_refuses() {
    let taken = taken(&["lock job:*", "a\tb*"]);
    let left = taken.from([b"*" as &[u8]].into_iter()).unwrap();
    assert!(left.patterns.iter().all(|glob| fits_acl(glob)), "{left:?}");
    let matches = |key: &str| {
        let globs = left.patterns.iter().cloned();
        globs.map(|glob| Glob::new(glob.into())).any(|glob| glob.matches(key.as_bytes()))
    };
    for key in ["lock", "lockx", "lockajob:", "zebra", "ax"] {
        assert!(matches(key), "{key} in {left:?}");
    }
    for key in ["lock job:", "lock job:a", "a\tb", "a\tbc"] {
        assert!(!matches(key), "{key} in {left:?}");
    }
    assert_eq!(fitting_acl(b"lock job:*"), b"lock?job:*");
}

#[test]
fn a_glob_with_several_stars_takes_all_between_its_ends_and_goes_as_a_whole() {
    let taken = taken(&["lock:*:held:*"]);
    assert_eq!(taken.widened, [b"lock:*:held:*".to_vec()]);
    assert!(taken.touches(b"lock:a"));
    let left = taken.from([b"*:a:*" as &[u8], b"x*y*z"].into_iter()).unwrap();
    assert_eq!(left.dropped, [b"*:a:*".to_vec()]);
    assert_eq!(left.patterns, [b"x*y*z".to_vec()]);
}

#[test]
fn what_takes_too_many_patterns_is_an_error() {
    let texts: Vec<String> = (0..400).map(|at| format!("namespace{at:04}:*")).collect();
    let taken = Taken::new(texts.iter().map(|text| text.as_bytes())).unwrap();
    let everything = [b"*" as &[u8]].into_iter();
    assert_eq!(taken.from(everything), Err(KeySetError::TooMany));
    let ends: Vec<String> = (0..40).map(|at| format!("begin{at}*of-the-end{at}")).collect();
    assert!(Taken::new(ends.iter().map(|text| text.as_bytes())).is_err());
}

#[test]
fn words_are_quoted_as_redis_cli_reads_them() {
    assert_eq!(quoted(b"~lock[^:]*"), "~lock[^:]*");
    assert_eq!(quoted(b""), "\"\"");
    assert_eq!(quoted(b"~a\"\\\x01\xff"), "\"~a\\\"\\\\\\x01\\xff\"");
}

#[test]
fn ranges_share_a_key_where_a_key_matches_both_globs() {
    for (one, two, shared) in [
        ("lock:*", "lock:*", true),
        ("lock:a:*", "lock:*", true),
        ("lock:*", "*:running", true),
        ("lock:*", "mutex:*", false),
        ("lock:*", "lock", false),
        ("lock:?", "lock:[a-c]", true),
        ("lock:[a-c]", "lock:d", false),
        ("*_lock", "*_mutex", false),
        ("a*b*c", "a*d*c", true),
        ("ab*", "*bc", true),
    ] {
        let [first, second] = [one, two].map(|glob| KeyRange::of(glob.as_bytes()));
        assert_eq!(first.may_share_a_key_with(&second), shared, "{one} {two}");
        assert_eq!(second.may_share_a_key_with(&first), shared, "{two} {one}");
    }
}

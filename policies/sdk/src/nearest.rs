//! Finds the name that was probably meant. Used for suggestions only, never to decide anything.

use alloc::vec::Vec;

/// The candidate with the fewest changes from `word`, if it is near enough to be a typing error.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    // Names are short; anything longer was not mistyped, and the cost of the distance is quadratic.
    const MAX_SLIP: usize = 64;
    if word.len() > MAX_SLIP {
        return None;
    }
    candidates
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(changes, candidate)| *changes <= word.len().max(candidate.len()) / 3)
        .min_by_key(|(changes, _)| *changes)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements of bytes from one word to the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_a_different_word_is_not() {
        let known = ["default", "ceiling", "on_excess", "keep_alive", "max_hold"];
        for (word, want) in [
            ("cieling", Some("ceiling")),
            ("keepalive", Some("keep_alive")),
            ("on-excess", Some("on_excess")),
            ("maxhold", Some("max_hold")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), want, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000), &known), None);
    }
}

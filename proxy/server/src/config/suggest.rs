//! "Did you mean": the nearest known word to one that is not known, and values fit to be shown in
//! a message. Pure text; it knows no key and no policy.

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

/// Words longer than this have no near neighbour among ours, and are not compared.
const MAX_COMPARED: usize = 64;

/// A value as a message shows it: in quotes, on one line, not too long.
pub(super) fn quoted(value: &str) -> String {
    let mut shown: String = value
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    if value.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

/// The known word that was most likely meant, if one is near enough.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_COMPARED {
        return None;
    }
    let plain = normal(word);
    // One slip in a short word, up to three in a long one.
    let tolerance = (plain.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .filter_map(|candidate| Some((rank(&plain, &normal(candidate), tolerance)?, candidate)))
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean "listen"?`, or nothing.
pub(super) fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(word, known).map(|candidate| format!("did you mean \"{candidate}\"?"))
}

/// `"a", "b" or "c"`.
pub(super) fn listed<'a>(words: impl IntoIterator<Item = &'a str>, last: &str) -> String {
    let words: Vec<String> = words
        .into_iter()
        .map(|word| format!("\"{word}\""))
        .collect();
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((end, front)) => format!("{} {last} {end}", front.join(", ")),
    }
}

fn normal(word: &str) -> Vec<char> {
    word.to_lowercase()
        .chars()
        .map(|c| if c == '_' { '-' } else { c })
        .collect()
}

/// How near two words are, smaller is nearer; `None` if not near. A part of a known word (`ttl` for
/// `ttl-ceiling`) or one with something added (`drain_ms` for `drain`) comes after slips of the
/// finger.
fn rank(word: &[char], candidate: &[char], tolerance: usize) -> Option<usize> {
    let distance = distance(word, candidate);
    if distance <= tolerance {
        return Some(distance);
    }
    let is_part = word.len() >= 3 && candidate.windows(word.len()).any(|part| part == word);
    let is_longer = candidate.len() >= 3 && word.starts_with(candidate);
    (is_part || is_longer).then_some(MAX_COMPARED + distance)
}

/// Edit distance where two neighbours swapped count as one slip (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant_is_found() {
        const KNOWN: [&str; 6] = [
            "listen",
            "backend",
            "drain",
            "owner-token",
            "ttl-ceiling",
            "metrics",
        ];
        for (word, meant) in [
            ("lisetn", Some("listen")),
            ("Listen", Some("listen")),
            ("backned", Some("backend")),
            ("owner_token", Some("owner-token")),
            ("ttl", Some("ttl-ceiling")),
            ("drain_ms", Some("drain")),
            ("metric", Some("metrics")),
            ("colour", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, KNOWN), meant, "{word}");
        }
    }

    #[test]
    fn a_long_or_odd_value_is_shown_on_one_short_line() {
        assert_eq!(quoted("a\nb\"c"), r#""a\nb\"c""#);
        assert_eq!(quoted(&"x".repeat(100)), format!("\"{}…\"", "x".repeat(60)));
        assert_eq!(listed(["a", "b", "c"], "or"), r#""a", "b" or "c""#);
    }
}

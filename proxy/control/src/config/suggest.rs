//! "Did you mean": the nearest known word to an unknown one, and values prepared for messages. Pure text functions;
//! they know no key and no policy.

/// Characters of a value that a message shows at most.
const SHOWN: usize = 60;

/// Longer words than this have no near neighbour among ours, and are not compared.
const MAX_COMPARED: usize = 64;

/// A value as a message shows it: in quotes, on one line, not too long.
pub(super) fn quoted(value: &str) -> String {
    let mut shown: String = value.chars().take(SHOWN).flat_map(char::escape_debug).collect();
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
    // One typing error in a short word, up to three in a long one.
    let tolerance = (plain.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .filter_map(|candidate| Some((rank(&plain, &normal(candidate), tolerance)?, candidate)))
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean "listen"?`, or nothing.
pub(super) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|candidate| format!("did you mean \"{candidate}\"?"))
}

/// `"a", "b" or "c"`.
pub(super) fn listed<'a>(words: impl IntoIterator<Item = &'a str>, last: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("\"{word}\"")).collect();
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((end, front)) => format!("{} {last} {end}", front.join(", ")),
    }
}

fn normal(word: &str) -> String {
    word.to_lowercase().replace('_', "-")
}

/// The distance of two words, smaller is nearer; `None` if not near. A part of a known word (`ttl` for `ttl-ceiling`),
/// or a known word with an addition (`drain_ms` for `drain`), ranks after typing errors.
fn rank(word: &str, candidate: &str, tolerance: usize) -> Option<usize> {
    // Two swapped neighbours count as one error.
    let distance = strsim::osa_distance(word, candidate);
    if distance <= tolerance {
        return Some(distance);
    }
    let is_part = word.chars().count() >= 3 && candidate.contains(word);
    let is_longer = candidate.chars().count() >= 3 && word.starts_with(candidate);
    (is_part || is_longer).then_some(MAX_COMPARED + distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant_is_found() {
        const KNOWN: [&str; 6] = ["listen", "backend", "drain", "owner-token", "ttl-ceiling", "metrics"];
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

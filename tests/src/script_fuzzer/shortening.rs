//! Makes a script shorter as long as it changes a key that its reader does not name: it removes words of Lua, many at once
//! at first, brackets in pairs, and keys and arguments from the end.

use super::{Arena, BATCH, LIBRARY, Reader, Script, unforeseen};

/// The shortest such script that is found.
pub(super) fn shortened(arena: &mut Arena, reader: Reader<'_>, script: &Script) -> Script {
    let mut best = script.clone();
    loop {
        let words = words(best.text.strip_prefix(LIBRARY).unwrap_or(&best.text));
        let mut at_once = words.len() / 2;
        let mut shorter = None;
        while at_once > 0 && shorter.is_none() {
            let starts = 0..=words.len().saturating_sub(at_once);
            let step = at_once.div_ceil(4);
            let candidates = starts.step_by(step).map(|start| {
                let kept = [&words[..start], &words[start + at_once..]].concat();
                with_text(&best, &kept)
            });
            shorter = first_hole(arena, reader, candidates.collect());
            at_once = if at_once > 8 { at_once / 2 } else { at_once - 1 };
        }
        let shorter = shorter
            .or_else(|| first_hole(arena, reader, without_brackets(&best, &words)))
            .or_else(|| first_hole(arena, reader, with_fewer_words(&best)));
        match shorter {
            Some(shorter) => best = shorter,
            None => return best,
        }
    }
}

fn with_text(script: &Script, words: &[&str]) -> Script {
    let shebang = if script.text.starts_with(LIBRARY) { LIBRARY } else { "" };
    Script { text: format!("{shebang}{}", words.join(" ")), ..script.clone() }
}

fn without_brackets(script: &Script, words: &[&str]) -> Vec<Script> {
    let mut open = Vec::new();
    let mut candidates = Vec::new();
    for (at, word) in words.iter().enumerate() {
        match *word {
            "(" | "[" | "{" | "do" | "then" | "function" => open.push(at),
            ")" | "]" | "}" | "end" => {
                let Some(first) = open.pop() else { continue };
                let inside = [&words[..first], &words[first + 1..at], &words[at + 1..]];
                candidates.push(with_text(script, &inside.concat()));
            }
            _ => {}
        }
    }
    candidates
}

fn with_fewer_words(script: &Script) -> Vec<Script> {
    let mut candidates = Vec::new();
    let (mut fewer_keys, mut fewer_arguments) = (script.clone(), script.clone());
    let mut fewer_before = script.clone();
    if let Some((keys, arguments)) = &mut fewer_before.before
        && (arguments.pop().is_some() || keys.pop().is_some())
    {
        candidates.push(fewer_before);
    }
    if fewer_keys.keys.pop().is_some() {
        candidates.push(fewer_keys);
    }
    if fewer_arguments.arguments.pop().is_some() {
        candidates.push(fewer_arguments);
    }
    candidates
}

fn first_hole(arena: &mut Arena, reader: Reader<'_>, candidates: Vec<Script>) -> Option<Script> {
    for batch in candidates.chunks(BATCH) {
        let found = unforeseen(arena, reader, batch);
        if let Some(at) = found.iter().position(|keys| !keys.is_empty()) {
            return Some(batch[at].clone());
        }
    }
    None
}

/// The words of a text, as Lua has them; what is not Lua is a word each.
pub(super) fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => quoted(rest, first),
            '[' if long_bracket(rest).is_some() => long_bracket(rest).unwrap_or(1),
            '0'..='9' => rest.find(|c| !is_word(c) && c != '.').unwrap_or(rest.len()),
            first if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => ["...", "..", "==", "~=", "<=", ">="]
                .iter()
                .find(|mark| rest.starts_with(**mark))
                .map_or(first.len_utf8(), |mark| mark.len()),
        };
        let (word, behind) = rest.split_at(length);
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn long_bracket(text: &str) -> Option<usize> {
    let level = text[1..].find(|c| c != '=')?;
    if !text[1 + level..].starts_with('[') {
        return None;
    }
    let end = format!("]{}]", "=".repeat(level));
    text.find(&end).map(|at| at + end.len())
}

//! Names of keys that a script writes without declaring them: string literals where a writing
//! command has its keys. It reads any text to its end, understands nothing of it but strings,
//! comments and calls, and rather sees a key too many than one too few. Which of the names are locks is
//! the caller's to say.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::table::{Access, Effect, KeySpec, Lookup, for_each_key, lookup};

/// Literals of one text that are kept; a script with more writes names of its own making.
const MOST_LITERALS: usize = 64;
/// Arguments of one call that are looked at.
const MOST_ARGUMENTS: usize = 64;

/// A key that a script names itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// The literal.
    pub text: Bytes,
    /// Whether something is appended to it.
    pub is_beginning: bool,
}

/// The keys that a text names where it may write them. Linear in its length.
pub(super) fn written_keys(text: &[u8]) -> Vec<NamedKey> {
    let mut found = Vec::new();
    let mut searched = Vec::new();
    let mut writes = false;
    let pieces = pieces(text);
    for (at, piece) in pieces.iter().enumerate() {
        // `f('set', …)`, whatever f is called: many scripts give redis.call another name.
        let (Piece::Sign(b'('), Some(Piece::Text(command))) = (piece, pieces.get(at + 1)) else {
            continue;
        };
        let arguments = arguments(&pieces[at + 1..]);
        let words: SmallVec<[&[u8]; 8]> = arguments
            .iter()
            .map(|argument| argument.as_ref().map_or(UNKNOWN, |key| &key.text[..]))
            .collect();
        let spec = match lookup(&words[..]) {
            Lookup::Known(spec) => spec,
            // Which subcommand it is only the run tells, so any argument may be a key.
            Lookup::UnknownSubcommand if words[1] == UNKNOWN => {
                writes = true;
                found.extend(arguments.iter().skip(2).flatten().cloned());
                continue;
            }
            Lookup::UnknownSubcommand | Lookup::Unknown => continue,
        };
        if matches!(&command.to_ascii_lowercase()[..], b"keys" | b"scan") {
            searched.extend(arguments.iter().skip(1).flatten().cloned());
            continue;
        }
        // MIGRATE and PFDEBUG have keys, other commands about the server have none.
        let has_keys = spec.effect != Effect::Admin || spec.keys != KeySpec::None;
        if spec.effect.access() == Access::Read || !has_keys {
            continue;
        }
        writes = true;
        let mut keys: SmallVec<[usize; 8]> = SmallVec::new();
        let scan = for_each_key(spec, &words[..], &mut |position, _, access| {
            if access == Access::Write {
                keys.push(position);
            }
        });
        // A number of keys that only the run tells: any argument may be one.
        if scan.is_err() {
            keys = (1..words.len()).collect();
        }
        for (position, argument) in arguments.iter().enumerate() {
            if let Some(key) = argument.as_ref().filter(|_| keys.contains(&position)) {
                found.push(key.clone());
            }
        }
    }
    // What a script looks for by a pattern and writes then has no literal of its own.
    if writes {
        found.append(&mut searched);
    }
    found.truncate(MOST_LITERALS);
    found
}

/// Stands for an argument that is no literal; no command and no option is called so.
const UNKNOWN: &[u8] = b"\0";

#[derive(Debug)]
enum Piece {
    Text(Bytes),
    Concat,
    Sign(u8),
    Other,
}

/// The arguments of a call, from behind its `(`: those that begin with a literal, and `None` for
/// the others.
fn arguments(pieces: &[Piece]) -> Vec<Option<NamedKey>> {
    let mut arguments = Vec::new();
    let mut depth = 0_usize;
    let mut fresh = true;
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Sign(b')' | b'}' | b']') if depth == 0 => break,
            Piece::Sign(b')' | b'}' | b']') => depth -= 1,
            Piece::Sign(b',') if depth == 0 => {
                fresh = true;
                continue;
            }
            Piece::Text(text) if fresh => {
                let is_beginning = matches!(pieces.get(at + 1), Some(Piece::Concat));
                arguments.push(Some(NamedKey {
                    text: text.clone(),
                    is_beginning,
                }));
                fresh = false;
                continue;
            }
            _ => {}
        }
        if fresh {
            arguments.push(None);
            fresh = false;
        }
        if let Piece::Sign(b'(' | b'{' | b'[') = piece {
            depth += 1;
        }
        if arguments.len() == MOST_ARGUMENTS {
            break;
        }
    }
    arguments
}

fn pieces(text: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'-', [b'-', comment @ ..]) => match long_text(comment) {
                Some((_, after)) => after,
                None => {
                    let end = comment.iter().position(|byte| *byte == b'\n');
                    &comment[end.unwrap_or(comment.len())..]
                }
            },
            (b'"' | b'\'', _) => {
                let (text, after) = quoted(*first, tail);
                pieces.push(Piece::Text(text));
                after
            }
            (b'[', _) => match long_text(rest) {
                Some((text, after)) => {
                    pieces.push(Piece::Text(Bytes::copy_from_slice(text)));
                    after
                }
                None => {
                    pieces.push(Piece::Sign(b'['));
                    tail
                }
            },
            (b'.', [b'.', after @ ..]) => {
                pieces.push(Piece::Concat);
                after
            }
            (b'(' | b')' | b'{' | b'}' | b']' | b',', _) => {
                pieces.push(Piece::Sign(*first));
                tail
            }
            (byte, _) if byte.is_ascii_whitespace() => tail,
            _ => {
                pieces.push(Piece::Other);
                tail
            }
        };
    }
    pieces
}

/// `[[…]]`, `[=[…]=]`: the text and what comes behind it.
fn long_text(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"[")?;
    let level = inside.iter().take_while(|byte| **byte == b'=').count();
    let inside = inside[level..].strip_prefix(b"[")?;
    let close = [b"]", &vec![b'='; level][..], b"]"].concat();
    let end = memchr::memmem::find(inside, &close)?;
    // A line end right behind the opening brackets is not part of the text.
    let content = inside[..end].strip_prefix(b"\n").unwrap_or(&inside[..end]);
    Some((content, &inside[end + close.len()..]))
}

/// A quoted text, its escapes resolved, and what comes behind it.
fn quoted(quote: u8, text: &[u8]) -> (Bytes, &[u8]) {
    let mut content = Vec::new();
    let mut at = 0;
    while at < text.len() && text[at] != quote {
        if text[at] != b'\\' {
            content.push(text[at]);
            at += 1;
            continue;
        }
        at += 1;
        let digits = text[at..]
            .iter()
            .take(3)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits > 0 {
            let number = text[at..at + digits]
                .iter()
                .fold(0_u32, |sum, digit| sum * 10 + u32::from(digit - b'0'));
            content.push((number % 256) as u8);
            at += digits;
        } else if let Some(byte) = text.get(at) {
            content.push(match byte {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                other => *other,
            });
            at += 1;
        }
    }
    (content.into(), &text[(at + 1).min(text.len())..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        written_keys(text.as_bytes())
            .into_iter()
            .map(|key| {
                let text = String::from_utf8_lossy(&key.text).into_owned();
                if key.is_beginning { text + ".." } else { text }
            })
            .collect()
    }

    #[test]
    fn keys_that_a_script_writes_by_name_are_found() {
        for (text, expected) in [
            ("return redis.call('del', 'lock:a')", &["lock:a"][..]),
            (
                "redis.call(\"SET\", \"lock:\" .. ARGV[1], 'lock:v', 'NX')",
                &["lock:.."],
            ),
            (
                "local r = redis.pcall r([[DEL]], KEYS[1], [=[lock:b]=])",
                &["lock:b"],
            ),
            (
                "redis.call('mset', 'a', 'lock:1', f(1, {2}), 3, 'lock:2', 4)",
                &["a", "lock:2"],
            ),
            ("redis.call('\\100el', 'lo\\99k:c')", &["lock:c"]),
            ("redis.call('sort', 'src', 'store', 'lock:d')", &["lock:d"]),
            (
                "redis.call('zunionstore', 'lock:e', n, 'lock:f')",
                &["lock:e", "lock:f"],
            ),
            (
                "for _, k in ipairs(redis.call('keys', 'lock:*')) do redis.call('del', k) end",
                &["lock:*"],
            ),
            (
                "redis.call('migrate', ARGV[1], 1, 'lock:a', 0, 9)",
                &["lock:a"],
            ),
            ("redis.call('pfdebug', 'todense', 'lock:a')", &["lock:a"]),
            (
                "redis.call('xgroup', ARGV[1], 'lock:a', 'g', '$')",
                &["lock:a", "g", "$"],
            ),
            ("redis.call('xgroup', 'help', 'lock:a')", &[]),
            ("redis.call('config', 'get', 'lock:a')", &[]),
            ("-- redis.call('del', 'lock:a')\nreturn 1", &[]),
            ("--[[ redis.call('del', 'lock:a') ]] return 1", &[]),
            ("return redis.call('get', 'lock:a')", &[]),
            ("return redis.call('keys', 'lock:*')", &[]),
            ("return redis.call('set', KEYS[1], 'lock:a')", &[]),
            ("return 'lock:a'", &[]),
            ("redis.call('del", &[]),
            ("redis.call('del', 'lock:a", &["lock:a"]),
            ("redis.call('del', 'x\\", &["x"]),
        ] {
            assert_eq!(keys(text), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(text in proptest::collection::vec(
            proptest::prelude::prop_oneof![
                proptest::sample::select(&b"('\"[]=-\\,.){}\n0"[..]),
                proptest::prelude::any::<u8>(),
            ],
            0..200,
        )) {
            proptest::prop_assert!(written_keys(&text).len() <= MOST_LITERALS);
        }
    }
}

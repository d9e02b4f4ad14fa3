//! Globs that match too little or too much: those that no key ever reaches, because an earlier glob matches all of
//! their keys, and those that match every key. Reports only certain cases (the same glob, or an earlier `prefix*`), and
//! decides nothing.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use super::reader::{Found, Reader, Section};
use super::suggest::quoted;

/// Special bytes in a Redis glob.
const SPECIAL: [u8; 5] = *b"*?[]\\";

/// The globs of the namespaces so far, in the order of the file.
#[derive(Default)]
pub(super) struct Reach {
    exact: HashMap<Bytes, Earlier>,
    /// The literal text before a final `*`.
    prefixes: HashMap<Bytes, Earlier>,
    /// Lengths of those, so that a look-up tries only these.
    prefix_lengths: BTreeSet<usize>,
}

/// An earlier glob.
#[derive(Clone)]
struct Earlier {
    glob: Bytes,
    line: usize,
}

impl Reach {
    /// Warns about globs of the next namespace that are never reached or that match every key, and remembers the
    /// others.
    pub(super) fn check(&mut self, reader: &mut Reader<'_>, namespace: &Section<'_, '_>, globs: &[Found<Bytes>]) {
        for glob in globs.iter().filter(|glob| takes_everything(&glob.value)) {
            let message = format!(
                "{}keys: {} makes every key a lock, and in enforce mode no other data can be written; \
                 name the keys of locks, such as \"lock:*\"",
                namespace.scope,
                shown(&glob.value)
            );
            reader.warning(glob.span.clone(), message);
        }
        let before: Vec<_> = globs.iter().map(|glob| self.covering(&glob.value)).collect();
        if let Some(Some(first)) = before.first()
            && before.iter().all(Option::is_some)
        {
            let scope = namespace.scope.trim_end_matches(": ");
            let glob = shown(&first.glob);
            reader.warning(
                namespace.span.clone(),
                match globs {
                    [_] => {
                        format!("{scope} is never reached: {glob} on line {} matches first", first.line)
                    }
                    _ => format!(
                        "{scope} is never reached: earlier globs match first, such as {glob} on line {}",
                        first.line
                    ),
                },
            );
            return;
        }
        // Here the earlier globs of this namespace count too.
        for glob in globs {
            if let Some(first) = self.covering(&glob.value) {
                let message = format!(
                    "{}keys: {} is never reached: {} on line {} matches first",
                    namespace.scope,
                    shown(&glob.value),
                    shown(&first.glob),
                    first.line
                );
                reader.warning(glob.span.clone(), message);
            } else {
                self.note(&glob.value, reader.position(&glob.span).line);
            }
        }
    }

    fn covering(&self, glob: &Bytes) -> Option<Earlier> {
        let literal = glob.iter().position(|byte| SPECIAL.contains(byte)).unwrap_or(glob.len());
        let by_prefix = self.prefix_lengths.range(..=literal).find_map(|&length| self.prefixes.get(&glob[..length]));
        self.exact.get(glob).or(by_prefix).cloned()
    }

    fn note(&mut self, glob: &Bytes, line: usize) {
        let earlier = Earlier { glob: glob.clone(), line };
        if let [prefix @ .., b'*'] = &glob[..]
            && !prefix.iter().any(|byte| SPECIAL.contains(byte))
        {
            self.prefix_lengths.insert(prefix.len());
            self.prefixes.insert(glob.slice(..prefix.len()), earlier.clone());
        }
        self.exact.insert(glob.clone(), earlier);
    }
}

/// Whether a glob matches any key.
fn takes_everything(glob: &[u8]) -> bool {
    glob.contains(&b'*') && glob.iter().all(|byte| b"*?".contains(byte))
}

fn shown(glob: &Bytes) -> String {
    quoted(&String::from_utf8_lossy(glob))
}

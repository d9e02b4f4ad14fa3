//! One name of a key, as far as the text of a script shows it, and which keys it may mean in a call.

use bytes::Bytes;
use smallvec::SmallVec;

/// Most parts of a name; a longer name ends in an unknown part.
const MAX_PARTS: usize = 8;
/// Longest part that stands in the text itself, in bytes; a longer one counts as unknown.
const MAX_PART_LEN: usize = 256;
/// Most keys that one name may be in a call, if a part stands for several keys or arguments.
const MAX_EXPANDED: usize = 256;

/// One name, as the row of its parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub(super) SmallVec<[Part; 4]>);

/// A part of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// It stands in the text.
    Text(Bytes),
    /// The key with this place, from 0, or any.
    Key(Option<u8>),
    /// The argument with this place, from 0, or any.
    Argument(Option<u8>),
    /// Not known.
    Rest,
}

impl Name {
    fn of(part: Part) -> Name {
        Name(SmallVec::from_iter([part]))
    }

    pub(super) fn text(text: impl Into<Bytes>) -> Name {
        let text = text.into();
        match text.len() <= MAX_PART_LEN {
            true => Name::of(Part::Text(text)),
            false => Name::rest(),
        }
    }

    pub(super) fn rest() -> Name {
        Name::of(Part::Rest)
    }

    pub(super) fn key(place: Option<u8>) -> Name {
        Name::of(Part::Key(place))
    }

    pub(super) fn argument(place: Option<u8>) -> Name {
        Name::of(Part::Argument(place))
    }

    /// The whole name, if it stands in the text.
    pub(super) fn as_text(&self) -> Option<&Bytes> {
        match &self.0[..] {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it is one of the keys.
    pub(super) fn is_key(&self) -> bool {
        matches!(self.0[..], [Part::Key(_)])
    }

    /// This name with another one behind it.
    pub(super) fn then(&self, other: &Name) -> Name {
        let mut parts = self.0.clone();
        for part in &other.0 {
            let joined = match (parts.last_mut(), part) {
                (_, Part::Text(text)) if text.is_empty() => continue,
                (Some(Part::Text(before)), _) if before.is_empty() => {
                    parts.pop();
                    None
                }
                (Some(Part::Rest), Part::Rest) => continue,
                (Some(Part::Text(before)), Part::Text(text)) => Some(Bytes::from([&before[..], &text[..]].concat())),
                _ => None,
            };
            match joined {
                Some(text) if text.len() <= MAX_PART_LEN => {
                    parts.pop();
                    parts.push(Part::Text(text));
                }
                None if parts.len() < MAX_PARTS => parts.push(part.clone()),
                Some(_) | None => {
                    if parts.last() != Some(&Part::Rest) {
                        parts.pop();
                        parts.push(Part::Rest);
                    }
                    return Name(parts);
                }
            }
        }
        Name(parts)
    }

    /// The same name in a script that changes the list `KEYS`, or `ARGV`.
    pub(super) fn in_changed_lists(&self, keys: bool, arguments: bool) -> Name {
        let mut parts = self.0.clone();
        for part in &mut parts {
            match part {
                Part::Key(place) if keys => *place = None,
                Part::Argument(_) if arguments => *part = Part::Rest,
                _ => {}
            }
        }
        Name(parts)
    }

    /// Calls `each` with every key that the name may mean in a call with these keys and arguments. A name with a part
    /// that the call does not have means no key, because Lua raises an error.
    pub fn in_call(&self, keys: &[&[u8]], arguments: &[&[u8]], each: &mut impl FnMut(&Pattern)) {
        let mut patterns = vec![Pattern::default()];
        for part in &self.0 {
            let (list, place) = match part {
                Part::Text(text) => {
                    patterns.iter_mut().for_each(|pattern| pattern.push(text));
                    continue;
                }
                Part::Key(place) => (keys, place),
                Part::Argument(place) => (arguments, place),
                Part::Rest => {
                    patterns.iter_mut().for_each(Pattern::push_rest);
                    continue;
                }
            };
            match place {
                Some(place) => match list.get(usize::from(*place)) {
                    Some(text) => patterns.iter_mut().for_each(|pattern| pattern.push(text)),
                    None => return,
                },
                None if list.len() * patterns.len() > MAX_EXPANDED => {
                    patterns.iter_mut().for_each(Pattern::push_rest);
                }
                None => {
                    let with = |pattern: &Pattern| {
                        let pattern = pattern.clone();
                        list.iter().map(move |text| {
                            let mut pattern = pattern.clone();
                            pattern.push(text);
                            pattern
                        })
                    };
                    patterns = patterns.iter().flat_map(with).collect();
                }
            }
        }
        patterns.iter().for_each(each);
    }
}

/// A key as far as the call decides it: its beginning and its ending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    beginning: Vec<u8>,
    /// What follows the last unknown part; `None` if all is known.
    ending: Option<Vec<u8>>,
}

impl Pattern {
    /// The whole key, if all of it is known.
    pub fn exact(&self) -> Option<&[u8]> {
        match self.ending {
            None => Some(&self.beginning),
            Some(_) => None,
        }
    }

    /// What the key certainly begins with.
    pub fn beginning(&self) -> &[u8] {
        &self.beginning
    }

    /// What the key certainly ends with.
    pub fn ending(&self) -> &[u8] {
        self.ending.as_deref().unwrap_or(&self.beginning)
    }

    fn push(&mut self, text: &[u8]) {
        self.ending.as_mut().unwrap_or(&mut self.beginning).extend_from_slice(text);
    }

    fn push_rest(&mut self) {
        self.ending = Some(Vec::new());
    }
}

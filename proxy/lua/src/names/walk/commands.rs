//! Commands of Redis that a script calls, and the names of the keys that they write.

use super::{Computed, Followed, MAX_NAMES, Walk};
use crate::names::name::Name;
use crate::names::value::{List, Value};
use crate::places::{InScript, Places, is_option};

impl Walk<'_> {
    /// `redis.call(name, …)`: the keys that it writes.
    pub(super) fn command(&mut self, words: &List) -> Followed<()> {
        let name = words.at(0);
        if words.values.is_empty() && words.rest.is_some() {
            return Err(Computed);
        }
        let Some(literals) = name.literals() else {
            // Which command it is, the call decides.
            self.asked.extend(name.arguments().ok_or(Computed)?);
            return Ok(());
        };
        for name in literals {
            self.spend(1 + words.len())?;
            let Some(InScript::Keys { written, far, .. }) = (self.commands)(name) else {
                return Err(Computed);
            };
            if far && may_reach_far(name, words) {
                return Err(Computed);
            }
            self.written_at(written, words)?;
        }
        Ok(())
    }

    fn written_at(&mut self, places: Places, words: &List) -> Followed<()> {
        let known = words.values.len();
        match places {
            Places::None => Ok(()),
            Places::Every => self.written(&words.from(1)),
            Places::Range { first, last, step } => {
                let end = match words.rest {
                    // How many words there are is not known.
                    Some(_) if last < 0 => usize::MAX,
                    _ if last < 0 => (known + 1).saturating_sub(usize::from(last.unsigned_abs())),
                    _ => usize::from(last.unsigned_abs()) + 1,
                };
                let mut place = usize::from(first);
                while place < end.min(known) {
                    self.written(&words.at(place))?;
                    place += usize::from(step);
                }
                match &words.rest {
                    Some(rest) if end > known => self.written(rest),
                    _ => Ok(()),
                }
            }
            Places::Counted { at, step } => {
                let (at, step) = (usize::from(at), usize::from(step));
                let counts = words.values.get(at).and_then(Value::numbers);
                let Some(most) = counts.and_then(|counts| counts.into_iter().max()) else {
                    return self.written(&words.from(at + 1));
                };
                let end = usize::try_from(most)
                    .ok()
                    .and_then(|most| most.checked_mul(step)?.checked_add(at + 1))
                    .ok_or(Computed)?;
                for place in (at + 1..end.min(known)).step_by(step) {
                    self.written(&words.at(place))?;
                }
                match &words.rest {
                    Some(rest) if end > known => self.written(rest),
                    _ => Ok(()),
                }
            }
            Places::Stored { from } => {
                for place in usize::from(from)..known {
                    match words.values[place].literals() {
                        // If this may be the option, the next word may be a key.
                        None => return self.written(&words.from(place + 1)),
                        Some(options) if options.iter().any(|word| stores(word)) => {
                            self.written(&words.at(place + 1))?;
                        }
                        Some(_) => {}
                    }
                }
                match &words.rest {
                    Some(rest) => self.written(rest),
                    None => Ok(()),
                }
            }
        }
    }

    /// The value is the name of a key that is written.
    fn written(&mut self, value: &Value) -> Followed<()> {
        self.spend(value.len())?;
        for name in value.names() {
            if name.is_key() {
                continue;
            }
            if name == Name::rest() || self.found.len() == MAX_NAMES {
                return Err(Computed);
            }
            self.found.insert(name);
        }
        Ok(())
    }
}

fn stores(word: &[u8]) -> bool {
    is_option(word, "store") || is_option(word, "storedist")
}

/// Whether the command may write a key of another database.
fn may_reach_far(name: &[u8], words: &List) -> bool {
    let is_near = |option: &Value| {
        let literals = option.literals();
        literals.is_some_and(|all| all.iter().all(|word| !is_option(word, "db")))
    };
    let options = || words.values.iter().skip(3);
    name.eq_ignore_ascii_case(b"move") || words.rest.is_some() || !options().all(is_near)
}

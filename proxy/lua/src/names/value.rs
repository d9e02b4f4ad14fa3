//! What a variable of a script may hold at any time, as far as names of keys matter: a set of possibilities, which only
//! grows during the analysis of a text.

use smallvec::SmallVec;

use super::name::{Name, Part};
use super::walk::{Computed, Followed};

/// Most possibilities that are kept apart.
const MAX_ATOMS: usize = 16;

/// One possibility. Nil and booleans are left out, because they are never part of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Atom {
    /// A text put together like this.
    Name(Name),
    /// A whole number that stands in the script.
    Number(i64),
    /// Any text or number, or a table of such, or a function of Lua's own that does nothing with keys.
    Data,
    /// `KEYS`
    Keys,
    /// `ARGV`
    Arguments,
    /// `redis`
    Redis,
    /// One of Lua's libraries.
    Library(Library),
    Function(Builtin),
    /// A function of the script, by its place in the text.
    Closure(usize),
    /// A table that the script makes, by its place in the text.
    Table(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Library {
    String,
    Table,
    /// One whose functions compute.
    Other,
}

/// A function that Lua or Redis provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Builtin {
    /// `redis.call`, `redis.pcall`
    Call,
    /// `redis.register_function`
    Register,
    Assert,
    Error,
    Ipairs,
    Pairs,
    Next,
    ProtectedCall,
    ProtectedCallWithHandler,
    RawGet,
    Select,
    Unpack,
    /// `string.format`
    Format,
    /// One of `string` that may call a function that it is given.
    Text,
    /// `table.insert`
    Insert,
    /// `table.remove`
    Remove,
    /// `table.sort`
    Sort,
    /// One that computes.
    Pure,
}

/// A set of possibilities, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Value(SmallVec<[Atom; 2]>);

impl Value {
    pub(super) fn of(atom: Atom) -> Value {
        Value(SmallVec::from_iter([atom]))
    }

    pub(super) fn data() -> Value {
        Value::of(Atom::Data)
    }

    pub(super) fn name(name: Name) -> Value {
        // A name of which nothing is known is data like any other.
        match name.0[..] {
            [Part::Rest] => Value::data(),
            _ => Value::of(Atom::Name(name)),
        }
    }

    pub(super) fn atoms(&self) -> &[Atom] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many possibilities it has.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the possibilities of another value; returns whether there are new ones.
    pub(super) fn join(&mut self, other: &Value) -> bool {
        #[cfg(test)]
        tests::touched(self.0.len() + other.0.len());
        let has_data = self.0.contains(&Atom::Data);
        let is_covered = |atom: &Atom| has_data && matches!(atom, Atom::Name(_) | Atom::Number(_));
        let before = self.0.len();
        for atom in other.0.iter().filter(|atom| !is_covered(atom)) {
            if self.0[..before].binary_search(atom).is_err() {
                self.0.push(atom.clone());
            }
        }
        let grown = self.0.len() > before;
        if grown {
            self.0.sort();
        }
        if self.0.contains(&Atom::Data) || self.0.len() > MAX_ATOMS {
            self.0.retain(|atom| !matches!(atom, Atom::Name(_) | Atom::Number(_) | Atom::Data));
            self.0.push(Atom::Data);
            self.0.sort_unstable();
        }
        grown
    }

    pub(super) fn with(mut self, other: &Value) -> Value {
        self.join(other);
        self
    }

    /// The texts that it may be, each with each of another value behind it.
    pub(super) fn then(&self, other: &Value) -> Value {
        let mut text = Value::default();
        for left in self.names() {
            for right in other.names() {
                text.join(&Value::name(left.then(&right)));
            }
        }
        text
    }

    /// Whether there are too many possibilities to follow.
    pub(super) fn is_too_wide(&self) -> bool {
        self.0.len() > MAX_ATOMS
    }

    /// The texts that it may be, as names or as parts of names.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        self.0.iter().flat_map(|atom| {
            let name = match atom {
                Atom::Name(name) => Some(name.clone()),
                Atom::Number(number) => Some(Name::text(number.to_string())),
                Atom::Data => Some(Name::rest()),
                _ => None,
            };
            // Lua keeps one constant for 0 and -0, the first that it meets, and writes "-0" for that one.
            let other_zero = (*atom == Atom::Number(0)).then(|| Name::text("-0"));
            name.into_iter().chain(other_zero)
        })
    }

    /// The texts that it may be, if all of them stand in the script and it can be nothing else.
    pub(super) fn literals(&self) -> Option<SmallVec<[&[u8]; 2]>> {
        fn literal(atom: &Atom) -> Option<&[u8]> {
            match atom {
                Atom::Name(name) => name.as_text().map(|text| &text[..]),
                _ => None,
            }
        }
        self.0.iter().map(literal).collect()
    }

    /// The places of the arguments that it may be, if it can be nothing else.
    pub(super) fn arguments(&self) -> Option<SmallVec<[u8; 2]>> {
        let argument = |atom: &Atom| match atom {
            Atom::Name(name) => match name.0[..] {
                [Part::Argument(place)] => place,
                _ => None,
            },
            _ => None,
        };
        self.0.iter().map(argument).collect()
    }

    /// The whole numbers that it may be, if it can be nothing else.
    pub(super) fn numbers(&self) -> Option<SmallVec<[i64; 2]>> {
        let number = |atom: &Atom| match atom {
            Atom::Number(number) => Some(*number),
            _ => None,
        };
        self.0.iter().map(number).collect()
    }

    /// The tables of the script that it may be.
    pub(super) fn tables(&self) -> impl Iterator<Item = usize> {
        self.0.iter().filter_map(|atom| match atom {
            Atom::Table(table) => Some(*table),
            _ => None,
        })
    }

    /// Whether it may be, or contain, a key or an argument of a call.
    pub(super) fn is_of_a_call(&self) -> bool {
        self.0.iter().any(|atom| match atom {
            Atom::Name(name) => {
                let given = |part: &Part| !matches!(part, Part::Text(_) | Part::Rest);
                name.0.iter().any(given)
            }
            Atom::Keys | Atom::Arguments | Atom::Closure(_) | Atom::Table(_) => true,
            Atom::Number(_) | Atom::Data | Atom::Redis | Atom::Library(_) | Atom::Function(_) => false,
        })
    }

    /// Functions are known by the names that the script gives them, and are called by these names. A function that is
    /// passed on may be called where the walk does not see it.
    pub(super) fn stays_a_value(&self) -> Followed<()> {
        let is_value = |atom: &Atom| match atom {
            Atom::Redis | Atom::Library(_) | Atom::Function(_) | Atom::Closure(_) => false,
            Atom::Name(_) | Atom::Number(_) | Atom::Data => true,
            Atom::Keys | Atom::Arguments | Atom::Table(_) => true,
        };
        match self.0.iter().all(is_value) {
            true => Ok(()),
            false => Err(Computed),
        }
    }

    /// Whether it is only data: no list that names come from, and nothing that can be called.
    pub(super) fn is_inert(&self) -> bool {
        let inert = |atom: &Atom| matches!(atom, Atom::Name(_) | Atom::Number(_) | Atom::Data);
        self.0.iter().all(inert)
    }
}

/// A list of values, as a call or an assignment has it.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) values: Vec<Value>,
    /// Any number of further values, each of which may be this.
    pub(super) rest: Option<Value>,
}

impl List {
    /// The value at this place; beyond the last one nil, which is the empty set.
    pub(super) fn at(&self, place: usize) -> Value {
        let rest = || self.rest.clone().unwrap_or_default();
        self.values.get(place).cloned().unwrap_or_else(rest)
    }

    /// All of them from a place on.
    pub(super) fn from(&self, place: usize) -> Value {
        let mut all = self.rest.clone().unwrap_or_default();
        for value in self.values.iter().skip(place) {
            all.join(value);
        }
        all
    }

    pub(super) fn all(&self) -> Value {
        self.from(0)
    }

    /// How much there is to look at.
    pub(super) fn len(&self) -> usize {
        let values = self.values.iter().chain(&self.rest);
        values.map(|value| 1 + value.len()).sum()
    }

    /// Without the first.
    pub(super) fn without_first(&self) -> List {
        List { values: self.values.iter().skip(1).cloned().collect(), rest: self.rest.clone() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    thread_local! {
        static TOUCHED: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn touched(atoms: usize) {
        TOUCHED.set(TOUCHED.get() + atoms);
    }

    /// How many possibilities were compared on this thread since the last time it was asked.
    pub(in crate::names) fn take_touched() -> usize {
        TOUCHED.take()
    }
}

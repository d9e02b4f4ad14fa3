//! Tables that a script makes: what is put into them, and what they may hold.

use super::{Computed, Followed, Key, Table, Walk};
use crate::names::name::Name;
use crate::names::value::{Atom, Builtin, Value};
use crate::syntax::Expression;

impl Key {
    /// Some number.
    fn place() -> Key {
        Key { value: Value::data(), field: None }
    }
}

impl<'t> Walk<'t> {
    pub(super) fn table(&mut self, fields: &'t [(Option<Expression>, Expression)]) -> Followed<Value> {
        let table = self.tables.meet(Table { made_in: self.within.last().copied(), ..Table::default() })?;
        for (key, value) in fields {
            let key = match key {
                Some(key) => self.key(key)?,
                None => Key::place(),
            };
            let value = self.value(value)?;
            self.store(table, &key, &value)?;
        }
        Ok(Value::of(Atom::Table(table)))
    }

    /// The key of an element: texts and numbers. Any other key may come back at a place where it is not followed.
    pub(super) fn key(&mut self, key: &'t Expression) -> Followed<Key> {
        let value = self.value(key)?;
        if !value.is_inert() {
            return Err(Computed);
        }
        let field = match key {
            Expression::Text(text) => Some(text.clone()),
            _ => None,
        };
        Ok(Key { value, field })
    }

    /// `table[key] = value` of a table of the script.
    pub(super) fn store(&mut self, table: usize, key: &Key, value: &Value) -> Followed<()> {
        // Functions of its own may be called as `table.name(…)`.
        if !matches!(value.atoms(), [Atom::Closure(_)]) {
            value.stays_a_value()?;
        }
        let made_in = self.tables.all[table].made_in;
        self.kept(made_in, &key.value);
        self.kept(made_in, value);
        let one = &mut self.tables.all[table];
        let mut steps = 2 + key.value.len() + value.len();
        match &key.field {
            Some(field) => {
                let field = one.fields.entry(field.clone()).or_default();
                steps += field.len();
                self.grown |= field.join(value);
            }
            None => {
                steps += one.elements.len() + one.keys.len();
                self.grown |= one.elements.join(value) | one.keys.join(&key.value);
            }
        }
        self.spend(steps)?;
        if self.tables.all[table].is_data {
            self.absorb(value)?;
        }
        Ok(())
    }

    /// Records that a function stores a value that outlives the call, unless `owner` is this function.
    pub(super) fn kept(&mut self, owner: Option<usize>, value: &Value) {
        let stays = !self.within.is_empty() && self.within.last().copied() != owner;
        self.remembers |= stays && value.is_of_a_call();
    }

    /// The keys and the values that `pairs` finds in a table.
    pub(super) fn walked(&self, table: &Value) -> Followed<(Value, Value)> {
        let is_followed = |atom: &Atom| !matches!(atom, Atom::Redis | Atom::Library(_));
        match table.atoms().iter().all(is_followed) {
            true => Ok((self.keys_of(table)?, self.elements(table)?)),
            false => Err(Computed),
        }
    }

    /// Puts a value into a table of the script under a number.
    pub(super) fn insert(&mut self, table: usize, value: &Value) -> Followed<()> {
        self.store(table, &Key::place(), value)
    }

    /// The value goes where it is not followed; what is read from there is data.
    pub(super) fn absorb(&mut self, value: &Value) -> Followed<()> {
        // Tables may hold tables as deep as the text is long.
        let mut tables = Vec::new();
        self.absorb_one(value, &mut tables)?;
        while let Some(table) = tables.pop() {
            let one = &mut self.tables.all[table];
            if std::mem::replace(&mut one.is_data, true) {
                continue;
            }
            self.grown |= one.elements.join(&Value::data());
            let held = self.elements(&Value::of(Atom::Table(table)))?;
            self.absorb_one(&held, &mut tables)?;
        }
        Ok(())
    }

    fn absorb_one(&self, value: &Value, tables: &mut Vec<usize>) -> Followed<()> {
        self.spend(value.len())?;
        for atom in value.atoms() {
            match atom {
                Atom::Name(_) | Atom::Number(_) | Atom::Data => {}
                Atom::Function(Builtin::Pure) => {}
                Atom::Table(table) => tables.push(*table),
                Atom::Keys | Atom::Arguments | Atom::Redis | Atom::Library(_) => {
                    return Err(Computed);
                }
                Atom::Function(_) | Atom::Closure(_) => return Err(Computed),
            }
        }
        Ok(())
    }

    /// Everything that a table may hold.
    pub(super) fn elements(&self, table: &Value) -> Followed<Value> {
        let mut held = Value::default();
        for atom in table.atoms() {
            match atom {
                Atom::Keys => self.join(&mut held, &Value::name(Name::key(None)))?,
                Atom::Arguments => self.join(&mut held, &Value::name(Name::argument(None)))?,
                Atom::Data => self.join(&mut held, &Value::data())?,
                Atom::Table(table) => {
                    let table = &self.tables.all[*table];
                    for field in table.fields.values() {
                        self.join(&mut held, field)?;
                    }
                    self.join(&mut held, &table.elements)?
                }
                _ => false,
            };
        }
        Ok(held)
    }

    /// The keys under which a table may hold something.
    pub(super) fn keys_of(&self, table: &Value) -> Followed<Value> {
        let mut keys = Value::data();
        for table in table.tables() {
            self.join(&mut keys, &self.tables.all[table].keys)?;
        }
        Ok(keys)
    }

    /// What a table of the script holds under a key.
    pub(super) fn held(&self, table: usize, key: &Value) -> Followed<Value> {
        let one = &self.tables.all[table];
        let field = match key.literals().as_deref() {
            Some([field]) => one.fields.get(*field).cloned().unwrap_or_default(),
            _ if key.numbers().is_some() => Value::default(),
            _ => return self.elements(&Value::of(Atom::Table(table))),
        };
        let mut held = field;
        self.join(&mut held, &one.elements)?;
        Ok(held)
    }
}

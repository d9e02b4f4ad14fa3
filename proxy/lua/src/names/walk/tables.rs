//! Tables that a script makes: what is put into them, and what they may hold.

use bytes::Bytes;

use super::{Computed, Followed, Table, Walk};
use crate::names::name::Name;
use crate::names::value::{Atom, Builtin, Value};
use crate::syntax::Expression;

impl<'t> Walk<'t> {
    pub(super) fn table(
        &mut self,
        fields: &'t [(Option<Expression>, Expression)],
    ) -> Followed<Value> {
        let table = self.tables.meet(Table {
            made_in: self.within.last().copied(),
            ..Table::default()
        })?;
        for (key, value) in fields {
            let key = match key {
                Some(key) => self.value(key)?,
                None => Value::data(),
            };
            let value = self.value(value)?;
            self.store(table, &key, &value)?;
        }
        Ok(Value::of(Atom::Table(table)))
    }

    /// `table[key] = value` of a table of the script.
    pub(super) fn store(&mut self, table: usize, key: &Value, value: &Value) -> Followed<()> {
        let made_in = self.tables.all[table].made_in;
        self.kept(made_in, key);
        self.kept(made_in, value);
        let one = &mut self.tables.all[table];
        match key.literals().as_deref() {
            Some([field]) => {
                let field = one.fields.entry(Bytes::copy_from_slice(field));
                self.grown |= field.or_default().join(value);
            }
            _ => {
                self.grown |= one.elements.join(value) | one.keys.join(key);
            }
        }
        if self.tables.all[table].is_data {
            self.absorb(value)?;
        }
        Ok(())
    }

    /// Notes that a function keeps a value where it stays after the call, unless `owner` is this function.
    pub(super) fn kept(&mut self, owner: Option<usize>, value: &Value) {
        let stays = !self.within.is_empty() && self.within.last().copied() != owner;
        self.remembers |= stays && value.is_of_a_call();
    }

    /// The keys and the values that `pairs` finds in a table.
    pub(super) fn walked(&self, table: &Value) -> Followed<(Value, Value)> {
        let is_followed = |atom: &Atom| !matches!(atom, Atom::Redis | Atom::Library(_));
        match table.atoms().iter().all(is_followed) {
            true => Ok((self.keys_of(table), self.elements(table))),
            false => Err(Computed),
        }
    }

    /// Puts a value into a table of the script under a number.
    pub(super) fn insert(&mut self, table: usize, value: &Value) -> Followed<()> {
        self.store(table, &Value::data(), value)
    }

    /// The value goes where it is not followed; what is read from there is data.
    pub(super) fn absorb(&mut self, value: &Value) -> Followed<()> {
        for atom in value.atoms() {
            match atom {
                Atom::Name(_) | Atom::Number(_) | Atom::Data => {}
                Atom::Function(Builtin::Pure) => {}
                Atom::Table(table) => {
                    let one = &mut self.tables.all[*table];
                    if std::mem::replace(&mut one.is_data, true) {
                        continue;
                    }
                    self.grown |= one.elements.join(&Value::data());
                    let held = self.elements(&Value::of(Atom::Table(*table)));
                    self.absorb(&held)?;
                }
                Atom::Keys | Atom::Arguments | Atom::Redis | Atom::Library(_) => {
                    return Err(Computed);
                }
                Atom::Function(_) | Atom::Closure(_) => return Err(Computed),
            }
        }
        Ok(())
    }

    /// Everything that a table may hold.
    pub(super) fn elements(&self, table: &Value) -> Value {
        let mut held = Value::default();
        for atom in table.atoms() {
            match atom {
                Atom::Keys => held.join(&Value::name(Name::key(None))),
                Atom::Arguments => held.join(&Value::name(Name::argument(None))),
                Atom::Data => held.join(&Value::data()),
                Atom::Table(table) => {
                    let table = &self.tables.all[*table];
                    for field in table.fields.values() {
                        held.join(field);
                    }
                    held.join(&table.elements)
                }
                _ => false,
            };
        }
        held
    }

    /// The keys under which a table may hold something.
    pub(super) fn keys_of(&self, table: &Value) -> Value {
        let mut keys = Value::data();
        for table in table.tables() {
            keys.join(&self.tables.all[table].keys);
        }
        keys
    }

    /// What a table of the script holds under a key.
    pub(super) fn held(&self, table: usize, key: &Value) -> Value {
        let one = &self.tables.all[table];
        let field = match key.literals().as_deref() {
            Some([field]) => one.fields.get(*field).cloned().unwrap_or_default(),
            _ if key.numbers().is_some() => Value::default(),
            _ => return self.elements(&Value::of(Atom::Table(table))),
        };
        field.with(&one.elements)
    }
}

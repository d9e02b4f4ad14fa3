//! What the value of an expression may be.

use super::{Computed, Followed, Walk};
use crate::names::name::Name;
use crate::names::value::{Atom, Builtin, Library, List, Value};
use crate::syntax::Expression;

/// The least number that Lua does not write with all its digits: it writes 14 of them.
const LEAST_ROUNDED: i64 = 100_000_000_000_000;

impl<'t> Walk<'t> {
    pub(super) fn value(&mut self, expression: &'t Expression) -> Followed<Value> {
        let value = self.found_value(expression)?;
        self.spend(1 + value.len())?;
        Ok(value)
    }

    fn found_value(&mut self, expression: &'t Expression) -> Followed<Value> {
        match expression {
            Expression::Nil | Expression::Bool(_) => Ok(Value::default()),
            Expression::Number(number) if *number < LEAST_ROUNDED => Ok(Value::of(Atom::Number(*number))),
            Expression::Number(_) | Expression::OtherNumber => Ok(Value::data()),
            Expression::Text(text) => Ok(Value::name(Name::text(text.clone()))),
            Expression::Name(name) => self.name(name),
            Expression::Varargs => {
                Ok(self.within.last().map(|function| self.closures.all[*function].varargs.clone()).unwrap_or_default())
            }
            Expression::Function(function) => self.function(function),
            Expression::Index(table, index) => {
                let table = self.value(table)?;
                let index = self.value(index)?;
                self.element(&table, &index)
            }
            Expression::Call(function, arguments) => {
                let function = self.value(function)?;
                let arguments = self.list(arguments)?;
                self.call(&function, &arguments)
            }
            Expression::Method(object, method, arguments) => {
                let object = self.value(object)?;
                let arguments = self.list(arguments)?;
                self.method(&object, method, arguments)
            }
            Expression::Table(fields) => self.table(fields),
            Expression::Not(operand) => {
                self.value(operand)?;
                Ok(Value::default())
            }
            Expression::Compare(_, left, right) => {
                self.value(left)?;
                self.value(right)?;
                Ok(Value::default())
            }
            Expression::Negative(operand) | Expression::Length(operand) => {
                self.value(operand)?;
                Ok(Value::data())
            }
            Expression::Arithmetic(first, rest) => {
                self.value(first)?;
                for (_, operand) in rest {
                    self.value(operand)?;
                }
                Ok(Value::data())
            }
            Expression::Concat(parts) => {
                let mut parts = parts.iter();
                let mut text = match parts.next() {
                    Some(first) => self.value(first)?,
                    None => Value::default(),
                };
                for part in parts {
                    let part = self.value(part)?;
                    text = self.then(&text, &part)?;
                }
                Ok(text)
            }
            Expression::All(parts) | Expression::Any(parts) => {
                let mut value = Value::default();
                for part in parts {
                    let part = self.value(part)?;
                    self.join(&mut value, &part)?;
                }
                Ok(value)
            }
        }
    }

    /// Several values, of which the last may be any number of them.
    pub(super) fn list(&mut self, expressions: &'t [Expression]) -> Followed<List> {
        let mut list = List::default();
        for (at, expression) in expressions.iter().enumerate() {
            let value = self.value(expression)?;
            let is_last = at + 1 == expressions.len();
            match expression {
                Expression::Call(..) | Expression::Method(..) | Expression::Varargs if is_last => {
                    list.rest = Some(value);
                }
                _ => list.values.push(value),
            }
        }
        Ok(list)
    }

    /// The texts that a value may be, each with each of another value behind it.
    pub(super) fn then(&self, left: &Value, right: &Value) -> Followed<Value> {
        self.spend(left.len() * right.len())?;
        Ok(left.then(right))
    }

    fn name(&mut self, name: &[u8]) -> Followed<Value> {
        if let Some(variable) = self.local(name)? {
            return Ok(self.variables.all[variable].value.clone());
        }
        let function = |builtin| Atom::Function(builtin);
        Ok(Value::of(match name {
            b"KEYS" => Atom::Keys,
            b"ARGV" => Atom::Arguments,
            // Valkey has both.
            b"redis" | b"server" => Atom::Redis,
            b"string" => Atom::Library(Library::String),
            b"table" => Atom::Library(Library::Table),
            b"math" | b"bit" | b"cjson" | b"cmsgpack" | b"struct" | b"os" => Atom::Library(Library::Other),
            b"assert" => function(Builtin::Assert),
            b"error" => function(Builtin::Error),
            b"ipairs" => function(Builtin::Ipairs),
            b"next" => function(Builtin::Next),
            b"pairs" => function(Builtin::Pairs),
            b"pcall" => function(Builtin::ProtectedCall),
            b"rawget" => function(Builtin::RawGet),
            b"select" => function(Builtin::Select),
            b"unpack" => function(Builtin::Unpack),
            b"xpcall" => function(Builtin::ProtectedCallWithHandler),
            // What is nil here and there makes a text, too.
            b"rawequal" | b"tonumber" | b"tostring" | b"type" => function(Builtin::Pure),
            // Some other names give access to everything without being followed: _G, getfenv, loadstring.
            _ => return Err(Computed),
        }))
    }
}

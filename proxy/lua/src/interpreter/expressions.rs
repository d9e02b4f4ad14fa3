//! The value of an expression in one run.

use bytes::Bytes;

use super::{Followed, MAX_INDEX, Run, Stop};
use crate::syntax::Expression;
use crate::value::{Function, Value, concatenated, line};

impl<'s> Run<'s> {
    pub(super) fn value(&mut self, expression: &'s Expression) -> Followed<Value> {
        self.step()?;
        match expression {
            Expression::Nil => Ok(Value::Nil),
            Expression::Bool(value) => Ok(Value::Bool(*value)),
            Expression::Number(value) => Ok(Value::Number(*value)),
            Expression::Text(text) => Ok(Value::Text(text.clone())),
            Expression::Name(name) => self.name(name),
            Expression::Index(table, index) => {
                let table = self.value(table)?;
                let index = self.value(index)?;
                self.element(&table, &index).ok_or(Stop::NotUnderstood)
            }
            Expression::Call(function, arguments) => {
                let function = self.value(function)?;
                let arguments = self.values(arguments)?;
                self.called(&function, &arguments)
            }
            Expression::Table(fields) => self.reply_table(fields),
            Expression::Not(operand) => {
                let truth = self.value(operand)?.truth();
                Ok(truth.map_or(Value::Unknown, |truth| Value::Bool(!truth)))
            }
            Expression::Negative(operand) => {
                let operand = self.value(operand)?;
                operand.negated().ok_or(Stop::NotUnderstood)
            }
            Expression::Length(operand) => {
                let operand = self.value(operand)?;
                self.length(&operand).ok_or(Stop::NotUnderstood)
            }
            Expression::Concat(parts) => {
                let parts = self.values(parts)?;
                joined(&parts)
            }
            Expression::Arithmetic(first, rest) => {
                let mut result = self.value(first)?;
                for (operator, operand) in rest {
                    let operand = self.value(operand)?;
                    if operand.is_nothing() || result.is_nothing() {
                        return Err(Stop::Raised);
                    }
                    result = self.computed(*operator, &result, &operand).ok_or(Stop::NotUnderstood)?;
                }
                Ok(result)
            }
            Expression::All(parts) => self.first_that_is(false, parts),
            Expression::Any(parts) => self.first_that_is(true, parts),
            Expression::Compare(comparison, left, right) => {
                let left = self.value(left)?;
                let right = self.value(right)?;
                self.compared(*comparison, &left, &right).ok_or(Stop::NotUnderstood)
            }
            Expression::OtherNumber | Expression::Varargs | Expression::Function(_) | Expression::Method(..) => {
                Err(Stop::NotUnderstood)
            }
        }
    }

    pub(super) fn values(&mut self, expressions: &'s [Expression]) -> Followed<Vec<Value>> {
        expressions.iter().map(|expression| self.value(expression)).collect()
    }

    fn name(&mut self, name: &[u8]) -> Followed<Value> {
        if let Some(value) = self.local(name) {
            return Ok(value.clone());
        }
        match name {
            b"KEYS" => Ok(Value::Keys),
            b"ARGV" => Ok(Value::Arguments),
            b"redis" => Ok(Value::Redis),
            b"string" => Ok(Value::String),
            b"tostring" => Ok(Value::Function(Function::ToString)),
            b"tonumber" => Ok(Value::Function(Function::ToNumber)),
            _ => Err(Stop::NotUnderstood),
        }
    }

    /// A table that Redis turns into a reply: `{ok = …}` or `{err = …}`.
    fn reply_table(&mut self, fields: &'s [(Option<Expression>, Expression)]) -> Followed<Value> {
        let [(Some(Expression::Text(field)), value)] = fields else {
            return Err(Stop::NotUnderstood);
        };
        let reply = match (&field[..], self.value(value)?) {
            (b"ok", Value::Text(text)) => line(text).map(Value::Status),
            (b"err", Value::Text(text)) => line(text).map(Value::Error),
            _ => None,
        };
        reply.ok_or(Stop::NotUnderstood)
    }

    /// `or` and `and`: the first part that counts as `wanted`, else the last part.
    fn first_that_is(&mut self, wanted: bool, parts: &'s [Expression]) -> Followed<Value> {
        let Some((last, earlier)) = parts.split_last() else {
            return Err(Stop::NotUnderstood);
        };
        for part in earlier {
            let value = self.value(part)?;
            if self.decided(&value)? == wanted {
                return Ok(value);
            }
        }
        self.value(last)
    }

    /// `table[index]`.
    fn element(&self, table: &Value, index: &Value) -> Option<Value> {
        match (table, index) {
            (Value::Keys, Value::Number(1)) if self.call.any => Some(Value::Lock),
            (Value::Keys, Value::Number(_)) if self.call.any => None,
            (Value::Arguments, Value::Number(number)) if self.call.any => {
                let index = usize::try_from(*number).ok()?.checked_sub(1)?;
                (index < self.call.arguments.len()).then_some(Value::Argument(index))
            }
            (Value::Keys, Value::Number(number)) => item(self.call.keys, *number),
            (Value::Arguments, Value::Number(number)) => item(self.call.arguments, *number),
            (Value::Redis, Value::Text(field)) => match &field[..] {
                b"call" => Some(Value::Function(Function::Command { catches: false })),
                b"pcall" => Some(Value::Function(Function::Command { catches: true })),
                b"status_reply" => Some(Value::Function(Function::StatusReply)),
                b"error_reply" => Some(Value::Function(Function::ErrorReply)),
                _ => None,
            },
            (Value::String, Value::Text(field)) => match &field[..] {
                b"sub" => Some(Value::Function(Function::Sub)),
                b"len" => Some(Value::Function(Function::Length)),
                _ => None,
            },
            (Value::Status(text), Value::Text(field)) => match &field[..] {
                b"ok" => Some(Value::Text(text.clone())),
                b"err" => Some(Value::Nil),
                _ => None,
            },
            (Value::Unknown, Value::Number(_) | Value::Text(_)) => Some(Value::Unknown),
            _ => None,
        }
    }

    /// `#value`
    fn length(&self, value: &Value) -> Option<Value> {
        let length = match value {
            Value::Text(text) => text.len(),
            Value::Keys => self.call.keys.len(),
            Value::Arguments => self.call.arguments.len(),
            Value::Stored | Value::StoredPrefix(_) | Value::Unknown => return Some(Value::Unknown),
            _ => return None,
        };
        Some(Value::Number(length as i64))
    }
}

/// `list[number]`, counted from 1; nil beyond the end.
fn item(list: &[Bytes], number: i64) -> Option<Value> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    if index >= MAX_INDEX {
        return None;
    }
    Some(list.get(index).cloned().map_or(Value::Nil, Value::Text))
}

/// `a .. b .. c`
fn joined(parts: &[Value]) -> Followed<Value> {
    if parts.iter().any(Value::is_nothing) {
        return Err(Stop::Raised);
    }
    let open = |part: &Value| matches!(part, Value::Unknown | Value::Stored);
    if parts.iter().any(open) {
        return Ok(Value::Unknown);
    }
    let words: Option<Vec<Bytes>> = parts.iter().map(Value::word).collect();
    words.and_then(|words| concatenated(&words)).ok_or(Stop::NotUnderstood)
}

//! Follows a script's tree for one state of the lock, with KEYS and ARGV as symbols that only the
//! known operations understand. It never assumes: whatever is not decided by the state of the lock
//! alone ends the following, and with it the recognition. `value` owns what a value is known to be; the
//! states are put together in `recognise`.

use bytes::Bytes;

use super::syntax::{Block, Comparison, Expression, Statement};
use super::value::{Function, Value, error_reply, line};
use super::{ABSENT_AS_TEXT, Compared, DeleteCommand, Reply, TtlSource, TtlUnit};

/// One state of the lock when the script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// The key holds the text of the compared argument.
    Equal,
    /// The key holds another text.
    Different,
    /// There is no key, and the compared argument is not [`ABSENT_AS_TEXT`]: a call with that one
    /// does not fit a recipe that compares with `tostring`.
    Absent,
}

impl Scenario {
    fn present(self) -> bool {
        match self {
            Scenario::Equal | Scenario::Different => true,
            Scenario::Absent => false,
        }
    }
}

/// The one change a script makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Delete(DeleteCommand),
    Expire(TtlUnit, TtlSource),
}

/// What a script did in one state of the lock. Indexes count from 0.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) key: Option<usize>,
    pub(super) token: Option<usize>,
    pub(super) effect: Option<Effect>,
    /// What the owner token was compared with. Only an absent key tells the two apart.
    pub(super) compared: Compared,
    pub(super) reply: Reply,
}

/// Follows the script to its answer, or to the first thing the state does not decide (`None`).
pub(super) fn follow(script: &Block<'_>, scenario: Scenario) -> Option<Trace> {
    let mut run = Run {
        scenario,
        locals: Vec::new(),
        key: None,
        token: None,
        effect: None,
        compared: Compared::Answer,
    };
    let value = match run.block(script)? {
        Flow::Returned(value) => value,
        Flow::Ended => Value::Nil,
    };
    Some(Trace {
        key: run.key,
        token: run.token,
        effect: run.effect,
        compared: run.compared,
        reply: run.reply(value)?,
    })
}

enum Flow {
    Ended,
    Returned(Value),
}

struct Run<'t> {
    scenario: Scenario,
    /// In order of declaration; a later one of the same name hides an earlier one.
    locals: Vec<(&'t [u8], Value)>,
    key: Option<usize>,
    token: Option<usize>,
    effect: Option<Effect>,
    compared: Compared,
}

impl<'t> Run<'t> {
    fn block(&mut self, block: &Block<'t>) -> Option<Flow> {
        let outer = self.locals.len();
        for statement in block {
            if let Flow::Returned(value) = self.statement(statement)? {
                return Some(Flow::Returned(value));
            }
        }
        self.locals.truncate(outer);
        Some(Flow::Ended)
    }

    fn statement(&mut self, statement: &Statement<'t>) -> Option<Flow> {
        match statement {
            Statement::Local(names, values) => {
                let values = self.assigned(names.len(), values)?;
                self.locals.extend(names.iter().copied().zip(values));
            }
            Statement::Assign(names, values) => {
                let values = self.assigned(names.len(), values)?;
                // From the right, as Lua does it: in `a, a = 1, 2` the first value stays. A name
                // that is no local is a global, which Redis refuses to set.
                for (name, value) in names.iter().zip(values).rev() {
                    *self.local(name)? = value;
                }
            }
            Statement::Call(call) => {
                self.value(call)?;
            }
            Statement::If(arms, otherwise) => {
                for (condition, block) in arms {
                    if self.truth(condition)? {
                        return self.block(block);
                    }
                }
                return self.block(otherwise);
            }
            Statement::Do(block) => return self.block(block),
            Statement::Return(value) => {
                let value = match value {
                    Some(expression) => self.value(expression)?,
                    None => Value::Nil,
                };
                return Some(Flow::Returned(value));
            }
        }
        Some(Flow::Ended)
    }

    /// The values for so many names: all are computed, missing ones are nil.
    fn assigned(&mut self, names: usize, values: &[Expression<'t>]) -> Option<Vec<Value>> {
        let mut assigned = values
            .iter()
            .map(|expression| self.value(expression))
            .collect::<Option<Vec<_>>>()?;
        assigned.resize(names, Value::Nil);
        Some(assigned)
    }

    fn local(&mut self, name: &[u8]) -> Option<&mut Value> {
        self.locals
            .iter_mut()
            .rev()
            .find(|(local, _)| *local == name)
            .map(|(_, value)| value)
    }

    fn name(&mut self, name: &[u8]) -> Option<Value> {
        if let Some(value) = self.local(name) {
            return Some(value.clone());
        }
        match name {
            b"KEYS" => Some(Value::Keys),
            b"ARGV" => Some(Value::Arguments),
            b"redis" => Some(Value::Redis),
            b"tostring" => Some(Value::Function(Function::ToString)),
            b"tonumber" => Some(Value::Function(Function::ToNumber)),
            _ => None,
        }
    }

    fn value(&mut self, expression: &Expression<'t>) -> Option<Value> {
        match expression {
            Expression::Nil => Some(Value::Nil),
            Expression::Bool(value) => Some(Value::Bool(*value)),
            Expression::Number(value) => Some(Value::Number(*value)),
            Expression::Text(text) => Some(Value::Text(text.clone())),
            Expression::Name(name) => self.name(name),
            Expression::Index(table, index) => {
                let table = self.value(table)?;
                let index = self.value(index)?;
                table.at(&index)
            }
            Expression::Call(function, arguments) => {
                let function = self.value(function)?;
                let arguments = arguments
                    .iter()
                    .map(|argument| self.value(argument))
                    .collect::<Option<Vec<_>>>()?;
                self.call(&function, &arguments)
            }
            Expression::Table(field, value) => match (&field[..], self.value(value)?) {
                (b"ok", Value::Text(text)) => line(text).map(Value::Status),
                (b"err", Value::Text(text)) => line(text).map(Value::Error),
                _ => None,
            },
            Expression::Not(operand) => Some(Value::Bool(!self.truth(operand)?)),
            Expression::Negative(operand) => match self.value(operand)? {
                // Lua's -0 is written "-0", which Redis takes for no integer.
                Value::Number(value) if value != 0 => Some(Value::Number(-value)),
                _ => None,
            },
            Expression::All(parts) => self.first_that_is(false, parts),
            Expression::Any(parts) => self.first_that_is(true, parts),
            Expression::Compare(comparison, left, right) => {
                let left = self.value(left)?;
                let right = self.value(right)?;
                self.compare(*comparison, &left, &right).map(Value::Bool)
            }
        }
    }

    /// `and` and `or`: the first part of this truth, or the last part, whatever it is.
    fn first_that_is(&mut self, wanted: bool, parts: &[Expression<'t>]) -> Option<Value> {
        let (last, earlier) = parts.split_last()?;
        for part in earlier {
            let value = self.value(part)?;
            if value.truth()? == wanted {
                return Some(value);
            }
        }
        self.value(last)
    }

    fn truth(&mut self, expression: &Expression<'t>) -> Option<bool> {
        self.value(expression)?.truth()
    }

    fn call(&mut self, function: &Value, arguments: &[Value]) -> Option<Value> {
        let Value::Function(function) = function else {
            return None;
        };
        match (function, arguments) {
            (Function::Command, [Value::Text(command), rest @ ..]) => self.command(command, rest),
            (Function::StatusReply, [Value::Text(text)]) => line(text.clone()).map(Value::Status),
            (Function::ErrorReply, [Value::Text(text)]) => error_reply(text).map(Value::Error),
            (Function::ToString, [value]) => match value {
                Value::Text(_) | Value::Stored | Value::FalseText => Some(value.clone()),
                Value::Key(_) | Value::Argument(_) => Some(value.clone()),
                Value::Bool(false) => Some(Value::FalseText),
                _ => None,
            },
            (Function::ToNumber, [value]) => match value {
                Value::Argument(index) => Some(Value::ArgumentNumber(*index)),
                Value::ArgumentNumber(_) | Value::Number(_) | Value::Done => Some(value.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// One Redis command. Nothing is read after the change, when the state is no longer that of
    /// the scenario.
    fn command(&mut self, command: &[u8], arguments: &[Value]) -> Option<Value> {
        let (Value::Key(key), rest) = arguments.split_first()? else {
            return None;
        };
        if self.effect.is_some() || self.key.is_some_and(|known| known != *key) {
            return None;
        }
        self.key = Some(*key);
        let present = self.scenario.present();
        let effect = match (command.to_ascii_lowercase().as_slice(), rest) {
            (b"get", []) if present => return Some(Value::Stored),
            (b"get", []) => return Some(Value::Bool(false)),
            (b"exists", []) => return Some(Value::Number(i64::from(present))),
            (b"del", []) => Effect::Delete(DeleteCommand::Del),
            (b"unlink", []) => Effect::Delete(DeleteCommand::Unlink),
            (b"expire", [ttl]) => Effect::Expire(TtlUnit::Seconds, ttl.as_ttl()?),
            (b"pexpire", [ttl]) => Effect::Expire(TtlUnit::Milliseconds, ttl.as_ttl()?),
            _ => return None,
        };
        self.effect = Some(effect);
        // All four answer 1 for a key that is there and 0 for one that is not.
        Some(if present {
            Value::Done
        } else {
            Value::Number(0)
        })
    }

    fn compare(&mut self, comparison: Comparison, left: &Value, right: &Value) -> Option<bool> {
        let ordered = |holds: fn(&i64, &i64) -> bool| {
            let (left, right) = (left.number()?, right.number()?);
            Some(holds(&left, &right))
        };
        match comparison {
            Comparison::Equal => self.equal(left, right),
            Comparison::Unequal => self.equal(left, right).map(|equal| !equal),
            Comparison::Less => ordered(i64::lt),
            Comparison::LessEqual => ordered(i64::le),
            Comparison::Greater => ordered(i64::gt),
            Comparison::GreaterEqual => ordered(i64::ge),
        }
    }

    fn equal(&mut self, left: &Value, right: &Value) -> Option<bool> {
        match (left, right) {
            (Value::Stored, Value::Argument(index)) | (Value::Argument(index), Value::Stored) => {
                self.compared_with(*index)?;
                Some(self.scenario == Scenario::Equal)
            }
            (Value::FalseText, Value::Argument(index))
            | (Value::Argument(index), Value::FalseText) => {
                self.compared_with(*index)?;
                self.compared = Compared::AnswerAsText;
                Some(false)
            }
            // A text is never equal to a boolean in Lua, and neither is a missing argument.
            (Value::Argument(_), Value::Bool(_)) | (Value::Bool(_), Value::Argument(_)) => {
                Some(false)
            }
            (Value::Stored | Value::FalseText, Value::Nil | Value::Bool(_))
            | (Value::Nil | Value::Bool(_), Value::Stored | Value::FalseText) => Some(false),
            (Value::Nil | Value::Bool(_), Value::Nil | Value::Bool(_)) => Some(left == right),
            (Value::Number(_) | Value::Done, Value::Nil | Value::Bool(_))
            | (Value::Nil | Value::Bool(_), Value::Number(_) | Value::Done) => Some(false),
            (Value::Text(left), Value::Text(right)) => Some(left == right),
            _ => Some(left.number()? == right.number()?),
        }
    }

    /// Notes which argument is the owner token. There is only one.
    fn compared_with(&mut self, index: usize) -> Option<()> {
        match self.token.replace(index) {
            Some(other) if other != index => None,
            _ => Some(()),
        }
    }

    fn reply(&self, value: Value) -> Option<Reply> {
        match value {
            Value::Nil | Value::Bool(false) => Some(Reply::Nil),
            Value::Bool(true) => Some(Reply::Integer(1)),
            Value::Number(value) => Some(Reply::Integer(value)),
            Value::Text(text) => Some(Reply::Bulk(text)),
            Value::FalseText => Some(Reply::Bulk(Bytes::from_static(ABSENT_AS_TEXT))),
            Value::Stored => Some(Reply::Stored),
            // The owner token itself is what is stored, if it was found to be equal.
            Value::Argument(index)
                if self.scenario == Scenario::Equal && self.token == Some(index) =>
            {
                Some(Reply::Stored)
            }
            Value::Done => Some(Reply::CommandResult),
            Value::Status(text) => Some(Reply::Status(text)),
            Value::Error(text) => Some(Reply::Error(text)),
            Value::Key(_) | Value::Argument(_) | Value::ArgumentNumber(_) => None,
            Value::Keys | Value::Arguments | Value::Redis | Value::Function(_) => None,
        }
    }
}

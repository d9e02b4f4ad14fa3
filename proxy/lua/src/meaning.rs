//! Follows a script's tree for one call in one state of the lock. KEYS and ARGV are what the call
//! says; the lock is what the state says. It never assumes: what the state does not decide is
//! unknown, a branch on it is followed both ways, and what is not understood ends the following.
//! `value` owns what a value is known to be, `commands` what Redis answers; the states are put
//! together in `recognise`.

use bytes::Bytes;

use super::syntax::{Arithmetic, Block, Comparison, Expression, Statement, list_of_ipairs};
use super::trace::{Call, Claim, Effect, End, State, Trace};
use super::value::{Function, Value, concatenated, error_reply, exact, line, marker};
use super::{Reply, TtlUnit, canonical_integer};

/// Most steps of one run. A lock script with a loop over ten keys takes some 300.
const MAX_STEPS: usize = 5_000;

/// Most branches on something unknown in one run, each of which doubles the runs.
const MAX_FORKS: usize = 5;

/// Highest KEYS or ARGV index of a lock script, and most turns of one loop.
const MAX_INDEX: usize = 64;

/// Why a run ends before the script does.
#[derive(Debug)]
pub(super) enum Stop {
    NotUnderstood,
    /// `redis.call` raised Redis's complaint that the key is of the wrong type.
    WrongType,
    /// Lua raised a complaint of its own.
    Raised,
}

/// Every path of the script in this state, or `None` if one of them is not understood.
pub(super) fn follow(script: &Block, call: Call<'_>, state: State) -> Option<Vec<Trace>> {
    let mut traces = Vec::new();
    let mut branches = Vec::new();
    loop {
        let mut run = Run {
            call,
            state,
            locals: Vec::new(),
            claim: None,
            effect: None,
            asked_ttl: false,
            uncertain: false,
            steps: 0,
            branches,
            taken: 0,
        };
        let end = match run.block(script) {
            Ok(Flow::Returned(value)) => run.end(value),
            Ok(Flow::Ended) => run.end(Value::Nil),
            Err(Stop::WrongType) => End::WrongType,
            Err(Stop::Raised) => End::Unknown,
            Err(Stop::NotUnderstood) => return None,
        };
        branches = run.branches;
        traces.push(Trace {
            claim: run.claim,
            effect: run.effect,
            asked_ttl: run.asked_ttl,
            uncertain: run.uncertain,
            end,
        });
        // The next path: the last branch that was taken as true is taken as false.
        while branches.last() == Some(&false) {
            branches.pop();
        }
        match branches.last_mut() {
            Some(branch) => *branch = false,
            None => return Some(traces),
        }
    }
}

pub(super) enum Flow {
    Ended,
    Returned(Value),
}

pub(super) struct Run<'s> {
    pub(super) call: Call<'s>,
    pub(super) state: State,
    /// In order of declaration; a later one of the same name hides an earlier one.
    locals: Vec<(&'s [u8], Value)>,
    claim: Option<Claim>,
    pub(super) effect: Option<Effect>,
    pub(super) asked_ttl: bool,
    pub(super) uncertain: bool,
    steps: usize,
    /// How branches on something unknown are taken, in their order.
    branches: Vec<bool>,
    taken: usize,
}

type Followed<T> = Result<T, Stop>;

impl<'s> Run<'s> {
    fn block(&mut self, block: &'s Block) -> Followed<Flow> {
        let outer = self.locals.len();
        for statement in block {
            if let Flow::Returned(value) = self.statement(statement)? {
                return Ok(Flow::Returned(value));
            }
        }
        self.locals.truncate(outer);
        Ok(Flow::Ended)
    }

    fn statement(&mut self, statement: &'s Statement) -> Followed<Flow> {
        match statement {
            Statement::Local(names, values) => {
                let values = self.assigned(names.len(), values)?;
                self.locals
                    .extend(names.iter().map(|name| &name[..]).zip(values));
            }
            Statement::Assign(names, values) => {
                let values = self.assigned(names.len(), values)?;
                // From the right, as Lua does it: in `a, a = 1, 2` the first value stays. A name
                // that is no local is a global, which Redis refuses to set.
                for (target, value) in names.iter().zip(values).rev() {
                    let Expression::Name(name) = target else {
                        return Err(Stop::NotUnderstood);
                    };
                    *self.local(name).ok_or(Stop::NotUnderstood)? = value;
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
            Statement::Iterate(names, lists, body) => {
                let (index, value) = match &names[..] {
                    [index] => (index, None),
                    [index, value] => (index, Some(value)),
                    _ => return Err(Stop::NotUnderstood),
                };
                let list = list_of_ipairs(lists).ok_or(Stop::NotUnderstood)?;
                let list = self.value(list)?;
                let items = self.items(&list)?;
                for (at, item) in items.iter().enumerate() {
                    let number = Value::Number(at as i64 + 1);
                    let text = Value::Text(item.clone());
                    let named = value.as_ref().map(|value| (&value[..], text));
                    if let Flow::Returned(value) = self.turn((index, number), named, body)? {
                        return Ok(Flow::Returned(value));
                    }
                }
            }
            Statement::Count(index, first, last, None, body) => {
                let first = self.value(first)?.number().ok_or(Stop::NotUnderstood)?;
                let last = self.value(last)?.number().ok_or(Stop::NotUnderstood)?;
                if last.saturating_sub(first) >= MAX_INDEX as i64 {
                    return Err(Stop::NotUnderstood);
                }
                for number in first..=last {
                    let number = Value::Number(number);
                    if let Flow::Returned(value) = self.turn((index, number), None, body)? {
                        return Ok(Flow::Returned(value));
                    }
                }
            }
            Statement::Return(values) => {
                let value = match &values[..] {
                    [] => Value::Nil,
                    [expression] => self.value(expression)?,
                    _ => return Err(Stop::NotUnderstood),
                };
                return Ok(Flow::Returned(value));
            }
            Statement::Count(..)
            | Statement::LocalFunction(..)
            | Statement::While(..)
            | Statement::Repeat(..)
            | Statement::Break => return Err(Stop::NotUnderstood),
        }
        Ok(Flow::Ended)
    }

    /// One turn of a loop, with its variables.
    fn turn(
        &mut self,
        index: (&'s [u8], Value),
        value: Option<(&'s [u8], Value)>,
        body: &'s Block,
    ) -> Followed<Flow> {
        self.step()?;
        let outer = self.locals.len();
        self.locals.push(index);
        self.locals.extend(value);
        let flow = self.block(body)?;
        self.locals.truncate(outer);
        Ok(flow)
    }

    fn step(&mut self) -> Followed<()> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(Stop::NotUnderstood);
        }
        Ok(())
    }

    /// KEYS or ARGV.
    fn items(&self, list: &Value) -> Followed<&'s [Bytes]> {
        let items = match list {
            _ if self.call.any => return Err(Stop::NotUnderstood),
            Value::Keys => self.call.keys,
            Value::Arguments => self.call.arguments,
            _ => return Err(Stop::NotUnderstood),
        };
        if items.len() > MAX_INDEX {
            return Err(Stop::NotUnderstood);
        }
        Ok(items)
    }

    /// The values for so many names: all are computed, missing ones are nil.
    fn assigned(&mut self, names: usize, values: &'s [Expression]) -> Followed<Vec<Value>> {
        let mut assigned = self.values(values)?;
        assigned.resize(names, Value::Nil);
        Ok(assigned)
    }

    fn values(&mut self, expressions: &'s [Expression]) -> Followed<Vec<Value>> {
        expressions
            .iter()
            .map(|expression| self.value(expression))
            .collect()
    }

    fn local(&mut self, name: &[u8]) -> Option<&mut Value> {
        self.locals
            .iter_mut()
            .rev()
            .find(|(local, _)| *local == name)
            .map(|(_, value)| value)
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

    fn value(&mut self, expression: &'s Expression) -> Followed<Value> {
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
            Expression::Table(fields) => {
                let [(Some(Expression::Text(field)), value)] = &fields[..] else {
                    return Err(Stop::NotUnderstood);
                };
                let reply = match (&field[..], self.value(value)?) {
                    (b"ok", Value::Text(text)) => line(text).map(Value::Status),
                    (b"err", Value::Text(text)) => line(text).map(Value::Error),
                    _ => None,
                };
                reply.ok_or(Stop::NotUnderstood)
            }
            Expression::Not(operand) => {
                let value = self.value(operand)?;
                Ok(value
                    .truth()
                    .map_or(Value::Unknown, |truth| Value::Bool(!truth)))
            }
            Expression::Negative(operand) => match self.value(operand)? {
                // Lua's -0 is written "-0", which Redis takes for no integer.
                Value::Number(value) if value != 0 => Ok(Value::Number(-value)),
                Value::Unknown => Ok(Value::Unknown),
                _ => Err(Stop::NotUnderstood),
            },
            Expression::Length(operand) => match self.value(operand)? {
                Value::Text(text) => Ok(Value::Number(text.len() as i64)),
                Value::Keys => Ok(Value::Number(self.call.keys.len() as i64)),
                Value::Arguments => Ok(Value::Number(self.call.arguments.len() as i64)),
                Value::Stored | Value::StoredPrefix(_) | Value::Unknown => Ok(Value::Unknown),
                _ => Err(Stop::NotUnderstood),
            },
            Expression::Concat(parts) => {
                let parts = self.values(parts)?;
                if parts.iter().any(Value::is_nothing) {
                    return Err(Stop::Raised);
                }
                let open = |part: &Value| matches!(part, Value::Unknown | Value::Stored);
                if parts.iter().any(open) {
                    return Ok(Value::Unknown);
                }
                let words: Option<Vec<Bytes>> = parts.iter().map(Value::word).collect();
                words
                    .and_then(|words| concatenated(&words))
                    .ok_or(Stop::NotUnderstood)
            }
            Expression::Arithmetic(first, rest) => {
                let mut result = self.value(first)?;
                for (operator, operand) in rest {
                    let operand = self.value(operand)?;
                    if operand.is_nothing() || result.is_nothing() {
                        return Err(Stop::Raised);
                    }
                    result = self
                        .computed(*operator, &result, &operand)
                        .ok_or(Stop::NotUnderstood)?;
                }
                Ok(result)
            }
            Expression::OtherNumber
            | Expression::Varargs
            | Expression::Function(_)
            | Expression::Method(..) => Err(Stop::NotUnderstood),
            Expression::All(parts) => self.first_that_is(false, parts),
            Expression::Any(parts) => self.first_that_is(true, parts),
            Expression::Compare(comparison, left, right) => {
                let left = self.value(left)?;
                let right = self.value(right)?;
                self.compared(*comparison, &left, &right)
                    .ok_or(Stop::NotUnderstood)
            }
        }
    }

    /// `and` and `or`: the first part of this truth, or the last part, whatever it is.
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

    fn truth(&mut self, expression: &'s Expression) -> Followed<bool> {
        let value = self.value(expression)?;
        self.decided(&value)
    }

    /// The truth of a value. An unknown one is taken both ways, one run after the other.
    fn decided(&mut self, value: &Value) -> Followed<bool> {
        if let Some(truth) = value.truth() {
            return Ok(truth);
        }
        if let Some(branch) = self.branches.get(self.taken) {
            self.taken += 1;
            return Ok(*branch);
        }
        if self.state == State::Foreign || self.branches.len() == MAX_FORKS {
            return Err(Stop::NotUnderstood);
        }
        self.branches.push(true);
        self.taken += 1;
        Ok(true)
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

    fn called(&mut self, function: &Value, arguments: &[Value]) -> Followed<Value> {
        let Value::Function(function) = function else {
            return Err(Stop::NotUnderstood);
        };
        let result = match (function, arguments) {
            (Function::Command { catches }, [Value::Text(name), rest @ ..]) => {
                return match self.command(name, rest) {
                    Err(Stop::WrongType) if *catches => Ok(Value::Caught),
                    // What Redis may refuse (out of memory) would go unheard.
                    Ok(_) if *catches && matches!(self.effect, Some(Effect::Put(..))) => {
                        Err(Stop::NotUnderstood)
                    }
                    answer => answer,
                };
            }
            (Function::StatusReply, [Value::Text(text)]) => line(text.clone()).map(Value::Status),
            (Function::ErrorReply, [Value::Text(text)]) => error_reply(text).map(Value::Error),
            (Function::ToString, [value]) => match value {
                Value::Text(_) | Value::Stored | Value::StoredPrefix(_) => Some(value.clone()),
                Value::Bool(true) => Some(Value::Text(Bytes::from_static(b"true"))),
                Value::Bool(false) => Some(Value::Text(Bytes::from_static(b"false"))),
                Value::Nil => Some(Value::Text(Bytes::from_static(b"nil"))),
                Value::Number(_) | Value::Done => value.word().map(Value::Text),
                Value::Unknown | Value::Left(_) | Value::LeftAnd(_) => Some(Value::Unknown),
                _ => None,
            },
            (Function::ToNumber, [value]) => match value {
                Value::Text(text) => canonical_integer(text).map(Value::Number),
                Value::Number(_) | Value::Done | Value::Left(_) | Value::LeftAnd(_) => {
                    Some(value.clone())
                }
                Value::Nil | Value::Bool(_) => Some(Value::Nil),
                Value::Stored | Value::StoredPrefix(_) | Value::Unknown => Some(Value::Unknown),
                _ => None,
            },
            (Function::Sub, [Value::Text(text), from, to]) => from
                .number()
                .zip(to.number())
                .and_then(|(from, to)| part(text, from, to))
                .map(Value::Text),
            (Function::Sub, [Value::Stored, Value::Number(1), Value::Number(to @ 1..)]) => {
                usize::try_from(*to).ok().map(Value::StoredPrefix)
            }
            (Function::Sub, [Value::Stored | Value::Unknown, ..]) => Some(Value::Unknown),
            (Function::Length, [Value::Text(text)]) => Some(Value::Number(text.len() as i64)),
            (Function::Length, [Value::Stored | Value::Unknown]) => Some(Value::Unknown),
            _ => None,
        };
        result.ok_or(Stop::NotUnderstood)
    }

    fn computed(&mut self, operator: Arithmetic, left: &Value, right: &Value) -> Option<Value> {
        if let (Some(left), Some(right)) = (self.whole(left), self.whole(right)) {
            return match operator {
                Arithmetic::Add => exact(left.checked_add(right)),
                Arithmetic::Subtract => exact(left.checked_sub(right)),
                // A product of zero may be Lua's -0.
                Arithmetic::Multiply if left == 0 || right == 0 => None,
                Arithmetic::Multiply => exact(left.checked_mul(right)),
                Arithmetic::Other => None,
            };
        }
        match (operator, left, right) {
            (Arithmetic::Add, Value::Left(TtlUnit::Milliseconds), more)
            | (Arithmetic::Add, more, Value::Left(TtlUnit::Milliseconds))
                if more.to_number().is_some() && self.has_ttl() == Some(true) =>
            {
                more.to_number().map(Value::LeftAnd)
            }
            (_, a, b) => {
                let open = |value: &Value| {
                    matches!(
                        value,
                        Value::Unknown | Value::Stored | Value::Left(_) | Value::LeftAnd(_)
                    )
                };
                let fine = |value: &Value| open(value) || value.to_number().is_some();
                (fine(a) && fine(b)).then_some(Value::Unknown)
            }
        }
    }

    /// The number that arithmetic makes of a value; a missing TTL is -1.
    fn whole(&mut self, value: &Value) -> Option<i64> {
        match value {
            Value::Left(_) if self.has_ttl() == Some(false) => Some(-1),
            other => other.to_number(),
        }
    }

    /// Whether the lock has a TTL, where the state says so.
    pub(super) fn has_ttl(&mut self) -> Option<bool> {
        self.asked_ttl = true;
        match self.state {
            State::Held { has_ttl, .. } => Some(has_ttl),
            State::Foreign => Some(true),
            State::Absent | State::OtherType => None,
        }
    }

    fn compared(&mut self, comparison: Comparison, left: &Value, right: &Value) -> Option<Value> {
        match comparison {
            Comparison::Equal => self.equal(left, right),
            Comparison::Unequal => self.equal(left, right).map(|equal| match equal {
                Value::Bool(equal) => Value::Bool(!equal),
                unknown => unknown,
            }),
            Comparison::Less => self.ordered(left, right, |a, b| a < b),
            Comparison::LessEqual => self.ordered(left, right, |a, b| a <= b),
            Comparison::Greater => self.ordered(right, left, |a, b| a < b),
            Comparison::GreaterEqual => self.ordered(right, left, |a, b| a <= b),
        }
    }

    /// `left < right` or `left <= right`. A TTL that is there is zero or more.
    fn ordered(
        &mut self,
        left: &Value,
        right: &Value,
        holds: fn(i64, i64) -> bool,
    ) -> Option<Value> {
        let number = |run: &mut Self, value: &Value| match value {
            Value::Left(_) => run.has_ttl().map(|has_ttl| if has_ttl { 0 } else { -1 }),
            Value::LeftAnd(_) => None,
            other => other.number(),
        };
        let open =
            |value: &Value| matches!(value, Value::Unknown | Value::Left(_) | Value::LeftAnd(_));
        let (a, b) = (number(self, left), number(self, right));
        match (a, b) {
            (Some(a), Some(b)) => {
                let holds_now = holds(a, b);
                let grows = |value: &Value| matches!(value, Value::Left(_)) && self.state_has_ttl();
                // At its least the TTL decides only what every longer one decides too.
                let sure = match (grows(left), grows(right)) {
                    (false, false) => true,
                    (true, false) => !holds_now,
                    (false, true) => holds_now,
                    (true, true) => false,
                };
                Some(if sure {
                    Value::Bool(holds_now)
                } else {
                    Value::Unknown
                })
            }
            _ if (open(left) || a.is_some()) && (open(right) || b.is_some()) => {
                Some(Value::Unknown)
            }
            _ => None,
        }
    }

    fn state_has_ttl(&self) -> bool {
        match self.state {
            State::Held { has_ttl, .. } => has_ttl,
            State::Foreign => true,
            State::Absent | State::OtherType => false,
        }
    }

    fn equal(&mut self, left: &Value, right: &Value) -> Option<Value> {
        if left.differs_in_type(right) {
            return Some(Value::Bool(false));
        }
        match (left, right) {
            (Value::Unknown, _) | (_, Value::Unknown) => Some(Value::Unknown),
            (Value::Stored, Value::Argument(index)) | (Value::Argument(index), Value::Stored) => {
                let claim = Claim::Whole(marker(*index));
                // Whether two arguments are equal is for each call to say.
                let other = self.claim.as_ref().is_some_and(|known| *known != claim);
                (!other).then(|| self.claimed(claim))
            }
            (left, _) if self.call.any && left.is_text() => None,
            (Value::Stored, Value::Text(text)) | (Value::Text(text), Value::Stored) => {
                Some(self.claimed(Claim::Whole(text.clone())))
            }
            (Value::StoredPrefix(length), Value::Text(text))
            | (Value::Text(text), Value::StoredPrefix(length)) => {
                Some(match text.len().cmp(length) {
                    std::cmp::Ordering::Greater => Value::Bool(false),
                    std::cmp::Ordering::Equal => self.claimed(Claim::Prefix(text.clone())),
                    std::cmp::Ordering::Less => self.claimed(Claim::Whole(text.clone())),
                })
            }
            (Value::Left(_), number) | (number, Value::Left(_)) => {
                let number = number.number()?;
                Some(match (self.has_ttl(), number) {
                    (None, _) | (Some(true), 0..) => Value::Unknown,
                    (Some(true), _) => Value::Bool(false),
                    (Some(false), number) => Value::Bool(number == -1),
                })
            }
            (Value::Text(left), Value::Text(right)) => Some(Value::Bool(left == right)),
            (Value::Nil, Value::Nil) => Some(Value::Bool(true)),
            (Value::Bool(left), Value::Bool(right)) => Some(Value::Bool(left == right)),
            _ => Some(Value::Bool(left.number()? == right.number()?)),
        }
    }

    /// Whether the lock holds this. A script that compares with one thing only is followed; what a
    /// second comparison says is unknown, unless the first one decided it.
    fn claimed(&mut self, claim: Claim) -> Value {
        let own = match self.state {
            State::Held { own, .. } => own,
            State::Foreign => return Value::Bool(false),
            State::Absent | State::OtherType => return Value::Unknown,
        };
        match &self.claim {
            None => {
                self.claim = Some(claim);
                Value::Bool(own)
            }
            Some(known) if *known == claim => Value::Bool(own),
            Some(Claim::Whole(known)) if own => Value::Bool(match &claim {
                Claim::Whole(other) => known == other,
                Claim::Prefix(prefix) => known.starts_with(prefix),
            }),
            Some(_) => Value::Unknown,
        }
    }

    fn end(&self, value: Value) -> End {
        let reply = match value {
            Value::Nil | Value::Bool(false) => Reply::Nil,
            Value::Bool(true) => Reply::Integer(1),
            Value::Number(value) => Reply::Integer(value),
            Value::Text(text) => Reply::Bulk(text),
            Value::Stored => match (self.state, &self.claim) {
                (State::Held { own: true, .. }, Some(Claim::Whole(text))) => {
                    Reply::Bulk(text.clone())
                }
                (State::Held { own: false, .. }, _) | (State::Held { .. }, None) => Reply::Stored,
                _ => return End::Unknown,
            },
            Value::Left(unit) => Reply::Left(unit),
            Value::Done => Reply::CommandResult,
            Value::Status(text) => Reply::Status(text),
            Value::Error(text) => Reply::Error(text),
            Value::Caught => return End::WrongType,
            Value::StoredPrefix(_) | Value::LeftAnd(_) | Value::Unknown => return End::Unknown,
            Value::Lock | Value::Argument(_) => return End::Unknown,
            Value::Keys | Value::Arguments | Value::Redis | Value::String => return End::Unknown,
            Value::Function(_) => return End::Unknown,
        };
        End::Replied(reply)
    }
}

/// `list[number]`, from 1; nil beyond its end.
fn item(list: &[Bytes], number: i64) -> Option<Value> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    if index >= MAX_INDEX {
        return None;
    }
    Some(list.get(index).cloned().map_or(Value::Nil, Value::Text))
}

/// `string.sub(text, from, to)` for places counted from the left.
fn part(text: &Bytes, from: i64, to: i64) -> Option<Bytes> {
    let from = usize::try_from(from).ok()?.checked_sub(1)?;
    let to = usize::try_from(to).ok()?.min(text.len());
    Some(if from < to {
        text.slice(from..to)
    } else {
        Bytes::new()
    })
}

//! Follows a script's tree for one call in one state of the lock, along every path. KEYS and ARGV hold what the call
//! says, the lock what the state says. Nothing is assumed: a value that the state does not decide is unknown, a branch
//! on an unknown value is followed both ways, and what is not understood ends the run. This file has the statements;
//! `expressions`, `operators` and `functions` compute values, and `redis` has the replies of Redis.

mod expressions;
mod functions;
mod operators;
mod redis;

use bytes::Bytes;

use super::syntax::{Block, Expression, Name, Statement, list_of_ipairs};
use super::trace::{Call, Claim, Effect, End, State, Trace};
use super::value::Value;

/// Most steps of one run: statements in loops, and expressions. A lock script with a loop over ten keys takes 300.
const MAX_STEPS: usize = 5_000;

/// Most branches on an unknown value in one run. Each doubles the number of paths.
const MAX_FORKS: usize = 5;

/// Highest index of KEYS and ARGV, and most turns of one loop.
const MAX_INDEX: usize = 64;

/// Why a run ends before the script does.
enum Stop {
    NotUnderstood,
    /// `redis.call` raised the WRONGTYPE error of Redis.
    WrongType,
    /// Lua raised an error of its own.
    Raised,
}

/// Returns the traces of all paths of the script in this state, or `None` if one of them is not understood.
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

enum Flow {
    Ended,
    Returned(Value),
}

struct Run<'s> {
    call: Call<'s>,
    state: State,
    /// In order of declaration; a later one of the same name hides an earlier one.
    locals: Vec<(&'s [u8], Value)>,
    claim: Option<Claim>,
    effect: Option<Effect>,
    asked_ttl: bool,
    uncertain: bool,
    steps: usize,
    /// How this run takes each branch on an unknown value, in their order.
    branches: Vec<bool>,
    /// How many of them it has taken.
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
                self.locals.extend(names.iter().map(|name| &name[..]).zip(values));
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
            Statement::Iterate(names, lists, body) => return self.iterate(names, lists, body),
            Statement::Count(index, first, last, None, body) => {
                return self.count(index, first, last, body);
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

    /// `for index, value in ipairs(list) do … end`
    fn iterate(&mut self, names: &'s [Name], lists: &'s [Expression], body: &'s Block) -> Followed<Flow> {
        let (index, value) = match names {
            [index] => (index, None),
            [index, value] => (index, Some(value)),
            _ => return Err(Stop::NotUnderstood),
        };
        let list = list_of_ipairs(lists).ok_or(Stop::NotUnderstood)?;
        let list = self.value(list)?;
        for (number, item) in (1..).zip(self.items(&list)?) {
            let text = Value::Text(item.clone());
            let named = value.map(|value| (&value[..], text));
            let flow = self.turn((index, Value::Number(number)), named, body)?;
            if let Flow::Returned(_) = flow {
                return Ok(flow);
            }
        }
        Ok(Flow::Ended)
    }

    /// `for index = first, last do … end`
    fn count(
        &mut self,
        index: &'s [u8],
        first: &'s Expression,
        last: &'s Expression,
        body: &'s Block,
    ) -> Followed<Flow> {
        let first = self.value(first)?.number().ok_or(Stop::NotUnderstood)?;
        let last = self.value(last)?.number().ok_or(Stop::NotUnderstood)?;
        if last.saturating_sub(first) >= MAX_INDEX as i64 {
            return Err(Stop::NotUnderstood);
        }
        for number in first..=last {
            let flow = self.turn((index, Value::Number(number)), None, body)?;
            if let Flow::Returned(_) = flow {
                return Ok(flow);
            }
        }
        Ok(Flow::Ended)
    }

    /// One turn of a loop, with its variables.
    fn turn(&mut self, index: (&'s [u8], Value), value: Option<(&'s [u8], Value)>, body: &'s Block) -> Followed<Flow> {
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

    /// The texts of KEYS or ARGV, for a loop over them.
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

    /// The values for this many names. All expressions are evaluated; missing values are nil.
    fn assigned(&mut self, names: usize, values: &'s [Expression]) -> Followed<Vec<Value>> {
        let mut assigned = self.values(values)?;
        assigned.resize(names, Value::Nil);
        Ok(assigned)
    }

    fn local(&mut self, name: &[u8]) -> Option<&mut Value> {
        self.locals.iter_mut().rev().find(|(local, _)| *local == name).map(|(_, value)| value)
    }

    fn truth(&mut self, expression: &'s Expression) -> Followed<bool> {
        let value = self.value(expression)?;
        self.decided(&value)
    }

    /// Whether a value counts as true. An unknown one is taken both ways, in one run after the other.
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
}

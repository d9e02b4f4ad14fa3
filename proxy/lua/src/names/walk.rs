//! Goes through a whole text, again and again until nothing new is found: what each variable may hold at any time,
//! which functions are called with which arguments, and which names are written. Every branch counts, whether it can be
//! taken or not. If something cannot be followed, the walk ends, and the names are computed. This file has the rounds
//! and the statements, `expressions` what a value may be, `tables` the tables of the script, `calls` its functions and
//! those of Lua, `commands` which keys are written.

mod calls;
mod commands;
mod expressions;
mod tables;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Names;
use super::name::Name;
use super::value::{Atom, Builtin, Value};
use crate::places::Commands;
use crate::syntax::{Block, Expression, Name as Word, Statement};

/// How often a text is analysed. Names that go through few variables are known after three rounds.
const MAX_ROUNDS: usize = 8;

/// The most variables of one text; likewise functions, and tables.
const MAX_THINGS: usize = 4096;

/// Names of one text that are kept; a script with more counts as computing them.
const MAX_NAMES: usize = 64;

/// The most steps of one walk, in all rounds together: some milliseconds. A step is a statement, an expression, or a
/// possibility that is examined. A text that needs more counts as computing its names.
pub(super) const MAX_STEPS: usize = 200_000;

/// How deep calls of `pcall` may be nested.
const MAX_PROTECTED: usize = 16;

/// Variables in scope that are looked through in one step.
const SCOPE_IN_ONE_STEP: usize = 32;

/// In place of a variable: a text that uses it is not followed.
const NOT_FOLLOWED: usize = usize::MAX;

/// Why the walk ends early: the names cannot be determined.
pub(super) struct Computed;

pub(super) type Followed<T> = Result<T, Computed>;

/// The names besides `KEYS` of the keys that a text writes; `None` if they are computed.
pub(super) fn names(text: &Block, commands: Commands<'_>, calls: Calls) -> Option<Names> {
    let mut walk = Walk::new(commands);
    for _ in 0..MAX_ROUNDS {
        walk.begin();
        match walk.block(text) {
            Err(Computed) => return None,
            Ok(()) if walk.grown => {}
            Ok(()) if walk.remembers && calls == Calls::Many => return None,
            Ok(()) => return walk.found(),
        }
    }
    None
}

/// How often a text is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// Once, as a script.
    One,
    /// Many times, as the functions of a library, whose variables stay.
    Many,
}

struct Walk<'t> {
    commands: Commands<'t>,
    /// What is left of the steps.
    steps: Cell<usize>,
    /// How many calls of `pcall` are around the current place.
    protected: usize,
    variables: Things<Variable>,
    closures: Things<Closure>,
    tables: Things<Table>,
    /// The variables in scope with their names.
    scope: Vec<(&'t [u8], usize)>,
    /// The functions around the current place, the outermost first.
    within: Vec<usize>,
    found: BTreeSet<Name>,
    /// Places of arguments that name commands.
    asked: BTreeSet<u8>,
    /// Whether this round has found anything new.
    grown: bool,
    /// Whether a key or an argument of one call may be kept for the next one.
    remembers: bool,
    keys_changed: bool,
    arguments_changed: bool,
}

/// Variables, functions or tables, in the order of the text. Each round meets the same ones in the same order.
struct Things<T> {
    all: Vec<T>,
    /// How many of them this round has met.
    met: usize,
}

struct Variable {
    value: Value,
    /// The function that declares it.
    declared_in: Option<usize>,
}

/// A function of the script.
#[derive(Default)]
struct Closure {
    /// Its first parameter among the variables, and how many it has.
    parameters: (usize, usize),
    /// The arguments beyond its parameters.
    varargs: Value,
    returns: Value,
}

/// The key of an element in a table.
struct Key {
    value: Value,
    /// Its text, if it is in the script: otherwise it may be nil or a boolean as well.
    field: Option<Bytes>,
}

/// A table that the script makes.
#[derive(Default)]
struct Table {
    fields: BTreeMap<Bytes, Value>,
    /// What it may hold under any other key.
    elements: Value,
    /// The other keys.
    keys: Value,
    /// Whether the table is also held by something that is not followed.
    is_data: bool,
    /// The function that makes it.
    made_in: Option<usize>,
}

impl<T> Things<T> {
    fn new() -> Things<T> {
        Things { all: Vec::new(), met: 0 }
    }

    /// The place of the next one, which is `new` in the first round.
    fn meet(&mut self, new: T) -> Followed<usize> {
        let place = self.met;
        if place == MAX_THINGS {
            return Err(Computed);
        }
        self.met += 1;
        if place == self.all.len() {
            self.all.push(new);
        }
        Ok(place)
    }
}

impl<'t> Walk<'t> {
    fn new(commands: Commands<'t>) -> Walk<'t> {
        Walk {
            commands,
            steps: Cell::new(MAX_STEPS),
            protected: 0,
            variables: Things::new(),
            closures: Things::new(),
            tables: Things::new(),
            scope: Vec::new(),
            within: Vec::new(),
            found: BTreeSet::new(),
            asked: BTreeSet::new(),
            grown: false,
            remembers: false,
            keys_changed: false,
            arguments_changed: false,
        }
    }

    fn begin(&mut self) {
        self.variables.met = 0;
        self.closures.met = 0;
        self.tables.met = 0;
        self.scope.clear();
        self.within.clear();
        self.grown = false;
    }

    /// Counts steps, before they are taken.
    fn spend(&self, steps: usize) -> Followed<()> {
        self.steps.set(self.steps.get().checked_sub(steps).ok_or(Computed)?);
        Ok(())
    }

    /// Adds the possibilities of another value; returns whether there are new ones.
    fn join(&self, value: &mut Value, other: &Value) -> Followed<bool> {
        self.spend(1 + value.len() + other.len())?;
        Ok(value.join(other))
    }

    /// `None` where a command's name is an argument that the script may change.
    fn found(self) -> Option<Names> {
        let (keys, arguments) = (self.keys_changed, self.arguments_changed);
        if arguments && !self.asked.is_empty() {
            return None;
        }
        let in_lists = |name: &Name| name.in_changed_lists(keys, arguments);
        let all: BTreeSet<Name> = self.found.iter().map(in_lists).collect();
        Some(Names::Known { names: all.into_iter().collect(), commands: self.asked.into_iter().collect() })
    }

    fn block(&mut self, block: &'t Block) -> Followed<()> {
        let outer = self.scope.len();
        self.open_block(block)?;
        self.scope.truncate(outer);
        Ok(())
    }

    /// The statements of a block whose variables stay in scope.
    fn open_block(&mut self, block: &'t Block) -> Followed<()> {
        block.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &'t Statement) -> Followed<()> {
        self.spend(1)?;
        match statement {
            Statement::Local(names, values) => {
                let values = self.list(values)?;
                for (at, name) in names.iter().enumerate() {
                    let variable = self.declare(name)?;
                    self.grow(variable, &values.at(at))?;
                }
                Ok(())
            }
            Statement::LocalFunction(name, function) => {
                let variable = self.declare(name)?;
                let closure = self.function(function)?;
                self.grow(variable, &closure)
            }
            Statement::Assign(targets, values) => {
                let values = self.list(values)?;
                for (at, target) in targets.iter().enumerate() {
                    self.assign(target, &values.at(at))?;
                }
                Ok(())
            }
            Statement::Call(call) => self.value(call).map(drop),
            Statement::If(arms, otherwise) => {
                for (condition, block) in arms {
                    self.value(condition)?;
                    self.block(block)?;
                }
                self.block(otherwise)
            }
            Statement::Do(block) => self.block(block),
            Statement::While(condition, block) => {
                self.value(condition)?;
                self.block(block)
            }
            Statement::Repeat(block, condition) => {
                let outer = self.scope.len();
                self.open_block(block)?;
                self.value(condition)?;
                self.scope.truncate(outer);
                Ok(())
            }
            Statement::Iterate(names, lists, body) => {
                let (keys, values) = self.iterated(lists)?;
                let outer = self.scope.len();
                for (at, name) in names.iter().enumerate() {
                    let variable = self.declare(name)?;
                    self.grow(variable, if at == 0 { &keys } else { &values })?;
                }
                self.open_block(body)?;
                self.scope.truncate(outer);
                Ok(())
            }
            Statement::Count(index, first, last, step, body) => {
                for bound in [Some(first), Some(last), step.as_ref()].into_iter().flatten() {
                    self.value(bound)?;
                }
                let outer = self.scope.len();
                let variable = self.declare(index)?;
                self.grow(variable, &Value::data())?;
                self.open_block(body)?;
                self.scope.truncate(outer);
                Ok(())
            }
            Statement::Break => Ok(()),
            Statement::Return(values) => {
                let values = self.list(values)?.all();
                let Some(&function) = self.within.last() else {
                    return Ok(());
                };
                values.stays_a_value()?;
                let returns = &mut self.closures.all[function].returns;
                let steps = 1 + returns.len() + values.len();
                self.grown |= returns.join(&values);
                self.spend(steps)
            }
        }
    }

    /// What the variables of a `for … in` may hold: first the first variable, then the others.
    fn iterated(&mut self, lists: &'t [Expression]) -> Followed<(Value, Value)> {
        if let Some(Expression::Call(function, arguments)) = lists.first() {
            let function = self.value(function)?;
            let arguments = self.list(arguments)?;
            let others = self.list(&lists[1..])?;
            let walks_a_table = |atom: &Atom| matches!(atom, Atom::Function(Builtin::Ipairs | Builtin::Pairs));
            if !function.is_empty() && function.atoms().iter().all(walks_a_table) {
                // With a state of its own, the loop goes through that.
                return self.walked(&arguments.at(0).with(&others.at(0)));
            }
            let iterator = self.call(&function, &arguments)?;
            return iterated_by_lua(&iterator.with(&others.all()));
        }
        let lists = self.list(lists)?;
        match lists.at(0).atoms() {
            [Atom::Function(Builtin::Next)] => self.walked(&lists.at(1)),
            _ => iterated_by_lua(&lists.all()),
        }
    }

    fn assign(&mut self, target: &'t Expression, value: &Value) -> Followed<()> {
        let (table, key) = match target {
            Expression::Name(name) => {
                // Redis lets no script set a global variable.
                let variable = self.local(name)?.ok_or(Computed)?;
                self.kept(self.variables.all[variable].declared_in, value);
                return self.grow(variable, value);
            }
            Expression::Index(table, key) => (self.value(table)?, self.key(key)?),
            _ => return Err(Computed),
        };
        for atom in table.atoms() {
            match atom {
                Atom::Table(table) => self.store(*table, &key, value)?,
                Atom::Arguments if value.is_inert() => self.arguments_changed = true,
                Atom::Data => self.absorb(value)?,
                // Redis lets no script set these either.
                Atom::Keys | Atom::Arguments | Atom::Redis | Atom::Library(_) => {
                    return Err(Computed);
                }
                Atom::Name(_) | Atom::Number(_) | Atom::Function(_) | Atom::Closure(_) => {}
            }
        }
        Ok(())
    }
    fn declare(&mut self, name: &'t Word) -> Followed<usize> {
        let variable =
            self.variables.meet(Variable { value: Value::default(), declared_in: self.within.last().copied() })?;
        self.scope.push((name, variable));
        Ok(variable)
    }

    /// The place of the variable of this name, if there is one in scope.
    fn local(&self, name: &[u8]) -> Followed<Option<usize>> {
        let place = self.scope.iter().rposition(|(local, _)| *local == name);
        self.spend((self.scope.len() - place.unwrap_or(0)) / SCOPE_IN_ONE_STEP)?;
        let variable = place.map(|place| self.scope[place].1);
        match variable {
            Some(NOT_FOLLOWED) => Err(Computed),
            _ => Ok(variable),
        }
    }

    /// Adds to what a variable may hold.
    fn grow(&mut self, variable: usize, value: &Value) -> Followed<()> {
        self.spend(1 + self.variables.all[variable].value.len() + value.len())?;
        let variable = &mut self.variables.all[variable].value;
        self.grown |= variable.join(value);
        match variable.is_too_wide() {
            true => Err(Computed),
            false => Ok(()),
        }
    }
}

/// With an iterator of Lua's own, such as that of `gmatch`. Iterators of the script are not followed.
fn iterated_by_lua(iterator: &Value) -> Followed<(Value, Value)> {
    match iterator.is_inert() {
        true => Ok((Value::data(), Value::data())),
        false => Err(Computed),
    }
}

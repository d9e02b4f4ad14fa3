//! Looks through a whole text, again and again until nothing new is found: what each variable may hold at
//! any time, which functions are called with what, and which names are written. Every branch counts, whether
//! it can be taken or not. What cannot be followed ends the looking: then the names are computed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::value::{Atom, Builtin, Library, Value};
use super::{Commands, MAX_NAMES, Name, Names};
use crate::syntax::{Block, Expression, Function, Name as Word, Statement};

/// How often a text is looked through. Names that go through few variables are known after three times.
const MAX_ROUNDS: usize = 8;

/// Variables, functions and tables of one text.
const MAX_THINGS: usize = 4096;

/// Lua writes numbers of more than 14 digits otherwise than they are.
const LEAST_ROUNDED: i64 = 100_000_000_000_000;

/// Why a text is looked through no further: its names cannot be told.
#[derive(Debug)]
pub(super) struct Computed;

pub(super) type Followed<T> = Result<T, Computed>;

pub(super) fn names(text: &Block, commands: Commands<'_>, calls: Calls) -> Names {
    let mut walk = Walk::new(commands);
    for _ in 0..MAX_ROUNDS {
        walk.begin();
        match walk.block(text) {
            Err(Computed) => return Names::Computed,
            Ok(()) if walk.grown => {}
            Ok(()) if walk.remembers && calls == Calls::Many => return Names::Computed,
            Ok(()) => return walk.found(),
        }
    }
    Names::Computed
}

/// How often what a text makes is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// Once, as a script.
    One,
    /// Many times, as the functions of a library, whose variables stay.
    Many,
}

/// A function of the script.
#[derive(Default)]
struct Closure {
    /// Its first parameter among the variables, and how many it has.
    parameters: (usize, usize),
    /// What it may be given beyond them.
    varargs: Value,
    returns: Value,
}

/// A table that the script makes.
#[derive(Default)]
struct Table {
    fields: BTreeMap<Bytes, Value>,
    /// What it may hold under any other key.
    elements: Value,
    /// Those keys.
    keys: Value,
    /// It is also held where nobody follows it.
    is_data: bool,
    /// The function that makes it.
    made_in: Option<usize>,
}

pub(super) struct Walk<'t> {
    pub(super) commands: Commands<'t>,
    /// In the order in which the text declares them, which is the same every time.
    variables: Vec<Value>,
    /// The functions that declare them.
    declared_in: Vec<Option<usize>>,
    closures: Vec<Closure>,
    tables: Vec<Table>,
    /// How many of them were met this time.
    met: [usize; 3],
    /// The variables in scope, and what they are called.
    scope: Vec<(&'t [u8], usize)>,
    /// The functions around the place at hand.
    within: Vec<usize>,
    found: BTreeSet<Name>,
    grown: bool,
    /// A key or an argument of one call may be kept for the next one.
    remembers: bool,
    pub(super) keys_changed: bool,
    pub(super) arguments_changed: bool,
}

impl<'t> Walk<'t> {
    fn new(commands: Commands<'t>) -> Walk<'t> {
        Walk {
            commands,
            variables: Vec::new(),
            declared_in: Vec::new(),
            closures: Vec::new(),
            tables: Vec::new(),
            met: [0; 3],
            scope: Vec::new(),
            within: Vec::new(),
            found: BTreeSet::new(),
            grown: false,
            remembers: false,
            keys_changed: false,
            arguments_changed: false,
        }
    }

    fn begin(&mut self) {
        self.met = [0; 3];
        self.scope.clear();
        self.within.clear();
        self.grown = false;
    }

    fn found(self) -> Names {
        let (keys, arguments) = (self.keys_changed, self.arguments_changed);
        let all: BTreeSet<Name> = self
            .found
            .iter()
            .map(|name| name.in_changed_lists(keys, arguments))
            .collect();
        Names::Known(all.into_iter().collect())
    }

    /// A key that is written has this name.
    pub(super) fn written(&mut self, value: &Value) -> Followed<()> {
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

    fn block(&mut self, block: &'t Block) -> Followed<()> {
        let outer = self.scope.len();
        self.open_block(block)?;
        self.scope.truncate(outer);
        Ok(())
    }

    /// The statements of a block whose variables stay in scope.
    fn open_block(&mut self, block: &'t Block) -> Followed<()> {
        block
            .iter()
            .try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &'t Statement) -> Followed<()> {
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
                for bound in [Some(first), Some(last), step.as_ref()]
                    .into_iter()
                    .flatten()
                {
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
                self.grown |= self.closures[function].returns.join(&values);
                Ok(())
            }
        }
    }

    /// What the variables of a `for … in` may hold: the first, and the others.
    fn iterated(&mut self, lists: &'t [Expression]) -> Followed<(Value, Value)> {
        if let Some(Expression::Call(function, arguments)) = lists.first() {
            let function = self.value(function)?;
            let arguments = self.list(arguments)?;
            self.list(&lists[1..])?;
            let walks_a_table =
                |atom: &Atom| matches!(atom, Atom::Function(Builtin::Ipairs | Builtin::Pairs));
            if !function.is_empty() && function.atoms().iter().all(walks_a_table) {
                return self.walked(&arguments.at(0));
            }
            let iterator = self.call(&function, &arguments)?;
            return self.called_in_turn(&iterator, Value::data());
        }
        let lists = self.list(lists)?;
        let (function, table) = (lists.at(0), lists.at(1));
        if function.atoms() == [Atom::Function(Builtin::Next)] {
            return self.walked(&table);
        }
        self.called_in_turn(&function, table)
    }

    /// What a walk through a table meets: its keys, and what it holds.
    pub(super) fn walked(&self, table: &Value) -> Followed<(Value, Value)> {
        let is_followed = |atom: &Atom| !matches!(atom, Atom::Redis | Atom::Library(_));
        match table.atoms().iter().all(is_followed) {
            true => Ok((self.keys_of(table), self.elements(table))),
            false => Err(Computed),
        }
    }

    fn called_in_turn(&mut self, iterator: &Value, state: Value) -> Followed<(Value, Value)> {
        let arguments = List {
            values: vec![state],
            rest: Some(Value::data()),
        };
        let results = self.call(iterator, &arguments)?.with(&Value::data());
        Ok((results.clone(), results))
    }

    pub(super) fn value(&mut self, expression: &'t Expression) -> Followed<Value> {
        match expression {
            Expression::Nil | Expression::Bool(_) => Ok(Value::default()),
            Expression::Number(number) if *number < LEAST_ROUNDED => {
                Ok(Value::of(Atom::Number(*number)))
            }
            Expression::Number(_) | Expression::OtherNumber => Ok(Value::data()),
            Expression::Text(text) => Ok(Value::name(Name::text(text.clone()))),
            Expression::Name(name) => self.name(name),
            Expression::Varargs => Ok(self
                .within
                .last()
                .map(|function| self.closures[*function].varargs.clone())
                .unwrap_or_default()),
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
                    text = concatenated(&text, &part);
                }
                Ok(text)
            }
            Expression::All(parts) | Expression::Any(parts) => {
                let mut value = Value::default();
                for part in parts {
                    value.join(&self.value(part)?);
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

    fn name(&mut self, name: &[u8]) -> Followed<Value> {
        let local = self.scope.iter().rev().find(|(local, _)| *local == name);
        if let Some((_, variable)) = local {
            return Ok(self.variables[*variable].clone());
        }
        let function = |builtin| Atom::Function(builtin);
        Ok(Value::of(match name {
            b"KEYS" => Atom::Keys,
            b"ARGV" => Atom::Arguments,
            // Valkey has both.
            b"redis" | b"server" => Atom::Redis,
            b"string" => Atom::Library(Library::String),
            b"table" => Atom::Library(Library::Table),
            b"math" | b"bit" | b"cjson" | b"cmsgpack" | b"struct" | b"os" => {
                Atom::Library(Library::Other)
            }
            b"assert" => function(Builtin::Assert),
            b"error" => function(Builtin::Error),
            b"ipairs" => function(Builtin::Ipairs),
            b"next" => function(Builtin::Next),
            b"pairs" => function(Builtin::Pairs),
            b"pcall" => function(Builtin::ProtectedCall),
            b"rawget" => function(Builtin::RawGet),
            b"select" => function(Builtin::Select),
            b"tostring" => function(Builtin::ToString),
            b"unpack" => function(Builtin::Unpack),
            b"xpcall" => function(Builtin::ProtectedCallWithHandler),
            b"rawequal" | b"tonumber" | b"type" => function(Builtin::Pure),
            // Some of the others lead around all that is followed here: _G, getfenv, loadstring.
            _ => return Err(Computed),
        }))
    }

    fn function(&mut self, function: &'t Function) -> Followed<Value> {
        let closure = self.meet(1)?;
        let outer = self.scope.len();
        let first = self.met[0];
        self.within.push(closure);
        for parameter in &function.parameters {
            self.declare(parameter)?;
        }
        self.closures[closure].parameters = (first, function.parameters.len());
        self.open_block(&function.body)?;
        self.within.pop();
        self.scope.truncate(outer);
        Ok(Value::of(Atom::Closure(closure)))
    }

    /// A call of a function of the script.
    pub(super) fn call_closure(&mut self, closure: usize, arguments: &List) -> Followed<Value> {
        let (first, count) = self.closures[closure].parameters;
        for at in 0..count {
            self.grow(first + at, &arguments.at(at))?;
        }
        let beyond = arguments.from(count);
        let closure = &mut self.closures[closure];
        self.grown |= closure.varargs.join(&beyond);
        Ok(closure.returns.clone())
    }

    fn table(&mut self, fields: &'t [(Option<Expression>, Expression)]) -> Followed<Value> {
        let table = self.meet(2)?;
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
    fn store(&mut self, table: usize, key: &Value, value: &Value) -> Followed<()> {
        let made_in = self.tables[table].made_in;
        self.kept(made_in, key);
        self.kept(made_in, value);
        let one = &mut self.tables[table];
        match key.literals().as_deref() {
            Some([field]) => {
                let field = one.fields.entry(Bytes::copy_from_slice(field));
                self.grown |= field.or_default().join(value);
            }
            _ => {
                self.grown |= one.elements.join(value) | one.keys.join(key);
            }
        }
        if self.tables[table].is_data {
            self.absorb(value)?;
        }
        Ok(())
    }

    /// A function puts a value where it stays after a call, unless that is its own.
    fn kept(&mut self, owner: Option<usize>, value: &Value) {
        let stays = !self.within.is_empty() && self.within.last().copied() != owner;
        self.remembers |= stays && value.is_of_a_call();
    }

    fn assign(&mut self, target: &'t Expression, value: &Value) -> Followed<()> {
        let (table, key) = match target {
            Expression::Name(name) => {
                let local = self.scope.iter().rev().find(|(local, _)| **local == **name);
                // Redis lets no script set a global variable.
                let (_, variable) = *local.ok_or(Computed)?;
                self.kept(self.declared_in[variable], value);
                return self.grow(variable, value);
            }
            Expression::Index(table, key) => (self.value(table)?, self.value(key)?),
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

    /// Puts a value into a table of the script under a number.
    pub(super) fn insert(&mut self, table: usize, value: &Value) -> Followed<()> {
        self.store(table, &Value::data(), value)
    }

    /// The value goes where nobody follows it: what comes back from there is data.
    pub(super) fn absorb(&mut self, value: &Value) -> Followed<()> {
        for atom in value.atoms() {
            match atom {
                Atom::Name(_) | Atom::Number(_) | Atom::Data => {}
                Atom::Function(Builtin::Pure) => {}
                Atom::Table(table) => {
                    let one = &mut self.tables[*table];
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
                    let table = &self.tables[*table];
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
            keys.join(&self.tables[table].keys);
        }
        keys
    }

    /// What a table of the script holds under a key.
    pub(super) fn held(&self, table: usize, key: &Value) -> Value {
        let one = &self.tables[table];
        let field = match key.literals().as_deref() {
            Some([field]) => one.fields.get(*field).cloned().unwrap_or_default(),
            _ if key.numbers().is_some() => Value::default(),
            _ => return self.elements(&Value::of(Atom::Table(table))),
        };
        field.with(&one.elements)
    }

    fn declare(&mut self, name: &'t Word) -> Followed<usize> {
        let variable = self.meet(0)?;
        self.scope.push((name, variable));
        Ok(variable)
    }

    fn grow(&mut self, variable: usize, value: &Value) -> Followed<()> {
        let variable = &mut self.variables[variable];
        self.grown |= variable.join(value);
        match variable.is_too_wide() {
            true => Err(Computed),
            false => Ok(()),
        }
    }

    /// The place of the next variable, function or table of the text.
    fn meet(&mut self, what: usize) -> Followed<usize> {
        let place = self.met[what];
        if place == MAX_THINGS {
            return Err(Computed);
        }
        self.met[what] += 1;
        let within = self.within.last().copied();
        match what {
            0 if place == self.variables.len() => {
                self.variables.push(Value::default());
                self.declared_in.push(within);
            }
            1 if place == self.closures.len() => self.closures.push(Closure::default()),
            2 if place == self.tables.len() => self.tables.push(Table {
                made_in: within,
                ..Table::default()
            }),
            _ => {}
        }
        Ok(place)
    }
}

/// The texts of one value with those of another behind them.
pub(super) fn concatenated(left: &Value, right: &Value) -> Value {
    let mut text = Value::default();
    for left in left.names() {
        for right in right.names() {
            text.join(&Value::name(left.then(&right)));
        }
    }
    text
}

/// Values in a row, as a call or an assignment has them.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) values: Vec<Value>,
    /// Any number of these follow.
    pub(super) rest: Option<Value>,
}

impl List {
    /// The value at this place; nil, which is nothing, beyond the last.
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

    /// Without the first.
    pub(super) fn without_first(&self) -> List {
        List {
            values: self.values.iter().skip(1).cloned().collect(),
            rest: self.rest.clone(),
        }
    }
}

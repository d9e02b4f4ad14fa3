//! What functions do with their arguments: those of the script, of Lua, and of `redis`.

use bytes::Bytes;

use super::{Closure, Computed, Followed, MAX_PROTECTED, NOT_FOLLOWED, Walk};
use crate::names::name::Name;
use crate::names::value::{Atom, Builtin, Library, List, Value};
use crate::syntax::Function;

impl<'t> Walk<'t> {
    /// A function that the script makes.
    pub(super) fn function(&mut self, function: &'t Function) -> Followed<Value> {
        let closure = self.closures.meet(Closure::default())?;
        let outer = self.scope.len();
        let first = self.variables.met;
        self.within.push(closure);
        for parameter in &function.parameters {
            self.declare(parameter)?;
        }
        if function.takes_more {
            // Lua declares it, and fills it with the further arguments unless the function says `...`.
            self.scope.push((b"arg", NOT_FOLLOWED));
        }
        self.closures.all[closure].parameters = (first, function.parameters.len());
        self.open_block(&function.body)?;
        self.within.pop();
        self.scope.truncate(outer);
        Ok(Value::of(Atom::Closure(closure)))
    }

    /// A call of a function of the script.
    fn call_closure(&mut self, closure: usize, arguments: &List) -> Followed<Value> {
        arguments.all().stays_a_value()?;
        let (first, count) = self.closures.all[closure].parameters;
        for at in 0..count {
            self.grow(first + at, &arguments.at(at))?;
        }
        let beyond = arguments.from(count);
        let closure = &mut self.closures.all[closure];
        let steps = 1 + closure.varargs.len() + beyond.len() + closure.returns.len();
        self.grown |= closure.varargs.join(&beyond);
        let returns = closure.returns.clone();
        self.spend(steps)?;
        Ok(returns)
    }

    /// `table[index]`
    pub(super) fn element(&mut self, table: &Value, index: &Value) -> Followed<Value> {
        let mut element = Value::default();
        for atom in table.atoms() {
            self.spend(1 + index.len())?;
            let one = match atom {
                Atom::Keys => place_in(index, Name::key),
                Atom::Arguments => place_in(index, Name::argument),
                Atom::Table(table) => self.held(*table, index)?,
                Atom::Redis => {
                    let [field] = index.literals().ok_or(Computed)?[..] else {
                        return Err(Computed);
                    };
                    let function = |builtin| Value::of(Atom::Function(builtin));
                    match field {
                        b"call" | b"pcall" => function(Builtin::Call),
                        b"register_function" => function(Builtin::Register),
                        b"acl_check_cmd"
                        | b"breakpoint"
                        | b"debug"
                        | b"error_reply"
                        | b"log"
                        | b"replicate_commands"
                        | b"set_repl"
                        | b"setresp"
                        | b"sha1hex"
                        | b"status_reply" => function(Builtin::Pure),
                        // A number or a text, such as the server's version.
                        _ => Value::data(),
                    }
                }
                Atom::Library(library) => {
                    let [field] = index.literals().ok_or(Computed)?[..] else {
                        return Err(Computed);
                    };
                    let function = Value::of(Atom::Function(of_library(*library, field)?));
                    match library {
                        // It may also be a number or a text, such as `math.pi`.
                        Library::Other => function.with(&Value::data()),
                        Library::String | Library::Table => function,
                    }
                }
                // Texts have the functions of their library.
                Atom::Name(_) | Atom::Number(_) => match index.literals().as_deref() {
                    Some([b"format"]) => Value::of(Atom::Function(Builtin::Format)),
                    _ => Value::data(),
                },
                Atom::Data => Value::data(),
                Atom::Function(_) | Atom::Closure(_) => Value::default(),
            };
            self.join(&mut element, &one)?;
        }
        Ok(element)
    }

    /// `object:method(…)`
    pub(super) fn method(&mut self, object: &Value, method: &Bytes, mut arguments: List) -> Followed<Value> {
        let function = self.element(object, &Value::name(Name::text(method.clone())))?;
        arguments.values.insert(0, object.clone());
        self.call(&function, &arguments)
    }

    pub(super) fn call(&mut self, function: &Value, arguments: &List) -> Followed<Value> {
        let mut results = Value::default();
        for atom in function.atoms() {
            self.spend(1 + arguments.len())?;
            let result = match atom {
                Atom::Closure(closure) => self.call_closure(*closure, arguments)?,
                Atom::Function(builtin) => self.call_builtin(*builtin, arguments)?,
                // If it can be called at all, it is a function of Lua, such as one of a text.
                Atom::Data => {
                    self.call_back(&arguments.all(), &Value::data())?;
                    Value::data()
                }
                _ => Value::default(),
            };
            self.join(&mut results, &result)?;
        }
        Ok(results)
    }

    fn call_builtin(&mut self, builtin: Builtin, arguments: &List) -> Followed<Value> {
        let first = arguments.at(0);
        match builtin {
            Builtin::Pure => Ok(Value::data()),
            Builtin::Call => {
                self.command(arguments)?;
                Ok(Value::data())
            }
            Builtin::Register => self.register(arguments),
            Builtin::Assert => Ok(arguments.all()),
            Builtin::Error => {
                self.absorb(&arguments.all())?;
                Ok(Value::default())
            }
            Builtin::Ipairs | Builtin::Pairs => {
                let (_, held) = self.walked(&first)?;
                if held.is_inert() { Ok(first.with(&Value::data())) } else { Err(Computed) }
            }
            Builtin::Next => {
                let (keys, held) = self.walked(&first)?;
                Ok(keys.with(&held))
            }
            Builtin::ProtectedCall => {
                if self.protected == MAX_PROTECTED {
                    return Err(Computed);
                }
                self.protected += 1;
                let results = self.call(&first, &arguments.without_first())?;
                self.protected -= 1;
                Ok(results.with(&Value::data()))
            }
            Builtin::ProtectedCallWithHandler => {
                let results = self.call(&first, &List::default())?;
                let error = List { values: vec![Value::data()], rest: None };
                let handled = self.call(&arguments.at(1), &error)?;
                Ok(results.with(&handled).with(&Value::data()))
            }
            Builtin::RawGet => self.element(&first, &arguments.at(1)),
            Builtin::Select => Ok(arguments.from(1).with(&Value::data())),
            Builtin::Unpack => Ok(self.walked(&first)?.1),
            Builtin::Format => Ok(formatted(&first)),
            Builtin::Text => {
                self.call_back(&arguments.from(1), &Value::data())?;
                Ok(Value::data())
            }
            Builtin::Insert => {
                let value = arguments.from(1);
                self.change(&first, &value)?;
                Ok(Value::default())
            }
            Builtin::Remove => {
                self.change(&first, &Value::default())?;
                self.elements(&first)
            }
            Builtin::Sort => {
                self.change(&first, &Value::default())?;
                let held = self.elements(&first)?;
                self.call_back(&arguments.from(1), &held)?;
                Ok(Value::default())
            }
        }
    }

    /// A function of Lua calls these functions with such values.
    fn call_back(&mut self, functions: &Value, value: &Value) -> Followed<()> {
        let given = List { values: Vec::new(), rest: Some(value.clone()) };
        self.spend(functions.len())?;
        for atom in functions.atoms() {
            match atom {
                Atom::Closure(closure) => drop(self.call_closure(*closure, &given)?),
                Atom::Function(Builtin::Pure | Builtin::Text) => {}
                Atom::Function(_) => return Err(Computed),
                _ => {}
            }
        }
        Ok(())
    }

    /// The places in a list change, and a value may be put into it.
    fn change(&mut self, list: &Value, value: &Value) -> Followed<()> {
        for atom in list.atoms() {
            match atom {
                Atom::Table(table) => self.insert(*table, value)?,
                Atom::Keys if value.is_empty() => self.keys_changed = true,
                Atom::Arguments if value.is_inert() => self.arguments_changed = true,
                Atom::Keys | Atom::Arguments => return Err(Computed),
                Atom::Data => self.absorb(value)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// `redis.register_function(name, callback)`, or with one table. It is called with its keys and arguments.
    fn register(&mut self, arguments: &List) -> Followed<Value> {
        let mut callbacks = arguments.from(1);
        for table in arguments.at(0).tables() {
            let callback = self.held(table, &Value::name(Name::text(&b"callback"[..])))?;
            self.join(&mut callbacks, &callback)?;
        }
        let given = List { values: vec![Value::of(Atom::Keys), Value::of(Atom::Arguments)], rest: None };
        self.call(&callbacks, &given)?;
        Ok(Value::default())
    }
}

/// `string.format(…)`: what stands before the first `%`. A text that is put in ends at its first NUL, and the others are spelled
/// as Lua likes.
fn formatted(format: &Value) -> Value {
    let formats = format.literals();
    let Some([format]) = formats.as_deref() else {
        return Value::data();
    };
    let plain = format.split(|byte| *byte == b'%').next().unwrap_or_default();
    let text = Value::name(Name::text(plain.to_vec()));
    match plain.len() == format.len() {
        true => text,
        false => text.then(&Value::data()),
    }
}

/// An element of `KEYS` or `ARGV`.
fn place_in(index: &Value, name: fn(Option<u8>) -> Name) -> Value {
    let mut element = Value::default();
    match index.numbers() {
        Some(numbers) => {
            for number in numbers {
                let place = number.checked_sub(1).map(u8::try_from);
                element.join(&Value::name(name(place.and_then(Result::ok))));
            }
        }
        None => drop(element.join(&Value::name(name(None)))),
    }
    element
}

fn of_library(library: Library, field: &[u8]) -> Followed<Builtin> {
    Ok(match library {
        Library::Other => Builtin::Pure,
        Library::String => match field {
            b"format" => Builtin::Format,
            _ => Builtin::Text,
        },
        Library::Table => match field {
            b"insert" => Builtin::Insert,
            b"remove" => Builtin::Remove,
            b"sort" => Builtin::Sort,
            b"concat" | b"getn" | b"maxn" => Builtin::Pure,
            _ => return Err(Computed),
        },
    })
}

//! What functions do with what they are given, and which keys a command of Redis writes.

use bytes::Bytes;

use super::Name;
use super::value::{Atom, Builtin, Library, Value};
use super::walk::{Computed, Followed, List, Walk, concatenated};
use crate::{InScript, Places};

impl Walk<'_> {
    /// `table[index]`
    pub(super) fn element(&mut self, table: &Value, index: &Value) -> Followed<Value> {
        let mut element = Value::default();
        for atom in table.atoms() {
            element.join(&match atom {
                Atom::Keys => place_in(index, Name::key),
                Atom::Arguments => place_in(index, Name::argument),
                Atom::Table(table) => self.held(*table, index),
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
            });
        }
        Ok(element)
    }

    /// `object:method(…)`
    pub(super) fn method(
        &mut self,
        object: &Value,
        method: &Bytes,
        mut arguments: List,
    ) -> Followed<Value> {
        let function = self.element(object, &Value::name(Name::text(method.clone())))?;
        arguments.values.insert(0, object.clone());
        self.call(&function, &arguments)
    }

    pub(super) fn call(&mut self, function: &Value, arguments: &List) -> Followed<Value> {
        let mut results = Value::default();
        for atom in function.atoms() {
            results.join(&match atom {
                Atom::Closure(closure) => self.call_closure(*closure, arguments)?,
                Atom::Function(builtin) => self.call_builtin(*builtin, arguments)?,
                // Where it can be called at all, it is a function of Lua's own, perhaps of a text.
                Atom::Data => {
                    self.call_back(&arguments.all(), &Value::data())?;
                    Value::data()
                }
                _ => Value::default(),
            });
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
                if held.is_inert() {
                    Ok(first.with(&Value::data()))
                } else {
                    Err(Computed)
                }
            }
            Builtin::Next => {
                let (keys, held) = self.walked(&first)?;
                Ok(keys.with(&held))
            }
            Builtin::ProtectedCall => {
                let results = self.call(&first, &arguments.without_first())?;
                Ok(results.with(&Value::data()))
            }
            Builtin::ProtectedCallWithHandler => {
                let results = self.call(&first, &List::default())?;
                let error = List {
                    values: vec![Value::data()],
                    rest: None,
                };
                let handled = self.call(&arguments.at(1), &error)?;
                Ok(results.with(&handled).with(&Value::data()))
            }
            Builtin::RawGet => self.element(&first, &arguments.at(1)),
            Builtin::Select => Ok(arguments.from(1).with(&Value::data())),
            Builtin::ToString => {
                let mut text = Value::default();
                for name in first.names() {
                    text.join(&Value::name(name));
                }
                Ok(if text.is_empty() { Value::data() } else { text })
            }
            Builtin::Unpack => Ok(self.walked(&first)?.1),
            Builtin::Format => Ok(formatted(arguments)),
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
                Ok(self.elements(&first))
            }
            Builtin::Sort => {
                self.change(&first, &Value::default())?;
                let held = self.elements(&first);
                self.call_back(&arguments.from(1), &held)?;
                Ok(Value::default())
            }
        }
    }

    /// A library calls these functions with such values.
    fn call_back(&mut self, functions: &Value, value: &Value) -> Followed<()> {
        let given = List {
            values: Vec::new(),
            rest: Some(value.clone()),
        };
        for atom in functions.atoms() {
            match atom {
                Atom::Closure(closure) => drop(self.call_closure(*closure, &given)?),
                Atom::Function(Builtin::Pure | Builtin::Text | Builtin::ToString) => {}
                Atom::Function(_) => return Err(Computed),
                _ => {}
            }
        }
        Ok(())
    }

    /// A list whose places change, and into which a value may come.
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
            let callback = self.held(table, &Value::name(Name::text(&b"callback"[..])));
            callbacks.join(&callback);
        }
        let given = List {
            values: vec![Value::of(Atom::Keys), Value::of(Atom::Arguments)],
            rest: None,
        };
        self.call(&callbacks, &given)?;
        Ok(Value::default())
    }

    /// `redis.call(name, …)`: the keys that it writes.
    fn command(&mut self, words: &List) -> Followed<()> {
        let name = words.at(0);
        if words.values.is_empty() && words.rest.is_some() {
            return Err(Computed);
        }
        for name in name.literals().ok_or(Computed)? {
            let Some(InScript::Keys { written, far, .. }) = (self.commands)(name) else {
                return Err(Computed);
            };
            if far && may_reach_far(name, words) {
                return Err(Computed);
            }
            self.written_at(written, words)?;
        }
        Ok(())
    }

    fn written_at(&mut self, places: Places, words: &List) -> Followed<()> {
        let known = words.values.len();
        match places {
            Places::None => Ok(()),
            Places::Every => self.written(&words.from(1)),
            Places::Range { first, last, step } => {
                let end = match words.rest {
                    // How many words there are is not known.
                    Some(_) if last < 0 => usize::MAX,
                    _ if last < 0 => (known + 1).saturating_sub(usize::from(last.unsigned_abs())),
                    _ => usize::from(last.unsigned_abs()) + 1,
                };
                let mut place = usize::from(first);
                while place < end.min(known) {
                    self.written(&words.at(place))?;
                    place += usize::from(step);
                }
                match &words.rest {
                    Some(rest) if end > known => self.written(rest),
                    _ => Ok(()),
                }
            }
            Places::Counted { at, step } => {
                let (at, step) = (usize::from(at), usize::from(step));
                let counts = words.values.get(at).and_then(Value::numbers);
                let Some(most) = counts.and_then(|counts| counts.into_iter().max()) else {
                    return self.written(&words.from(at + 1));
                };
                let end = usize::try_from(most)
                    .ok()
                    .and_then(|most| most.checked_mul(step)?.checked_add(at + 1))
                    .ok_or(Computed)?;
                for place in (at + 1..end.min(known)).step_by(step) {
                    self.written(&words.at(place))?;
                }
                match &words.rest {
                    Some(rest) if end > known => self.written(rest),
                    _ => Ok(()),
                }
            }
            Places::Stored { from } => {
                for place in usize::from(from)..known {
                    match words.values[place].literals() {
                        // What may be the word may be followed by a key.
                        None => return self.written(&words.from(place + 1)),
                        Some(options) if options.iter().any(|word| stores(word)) => {
                            self.written(&words.at(place + 1))?;
                        }
                        Some(_) => {}
                    }
                }
                match &words.rest {
                    Some(rest) => self.written(rest),
                    None => Ok(()),
                }
            }
        }
    }
}

fn stores(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"store") || word.eq_ignore_ascii_case(b"storedist")
}

/// Whether the command may write a key of another database.
fn may_reach_far(name: &[u8], words: &List) -> bool {
    let is_near = |option: &Value| {
        let literals = option.literals();
        literals.is_some_and(|all| all.iter().all(|word| !word.eq_ignore_ascii_case(b"db")))
    };
    let options = || words.values.iter().skip(3);
    name.eq_ignore_ascii_case(b"move") || words.rest.is_some() || !options().all(is_near)
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

/// `string.format(…)`: with `%s` and `%%`, and up to anything else.
fn formatted(arguments: &List) -> Value {
    let format = arguments.at(0);
    let formats = format.literals();
    let Some([format]) = formats.as_deref() else {
        return Value::data();
    };
    let mut text = Value::name(Name::text(Bytes::new()));
    let mut bytes = format.iter();
    let mut place = 0;
    while let Some(&byte) = bytes.next() {
        let piece = match byte {
            b'%' => match bytes.next() {
                Some(b'%') => Value::name(Name::text(&b"%"[..])),
                Some(b's') => {
                    place += 1;
                    arguments.at(place)
                }
                // What it comes to, and what follows it, is not known.
                _ => return concatenated(&text, &Value::data()),
            },
            byte => Value::name(Name::text(vec![byte])),
        };
        text = concatenated(&text, &piece);
    }
    text
}

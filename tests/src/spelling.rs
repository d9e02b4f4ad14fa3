//! Scripts put together at random: the same commands on the same keys, with every name and every call spelled
//! in one of the many ways that Lua has for them.

use crate::numbers::Numbers;

/// A script that is being written, with its keys and arguments.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Its text.
    pub text: String,
    /// Its keys.
    pub keys: Vec<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
    locals: usize,
}

/// A word of a command.
#[derive(Clone, Copy, Debug)]
pub enum Word<'a> {
    /// The name of a key.
    Key(&'a str),
    /// Anything else.
    Plain(&'a str),
}

/// How names may be spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As keys, handed over.
    Declared,
    /// So that the text and the arguments show them.
    Told,
    /// So that only the run of the script shows them.
    Computed,
}

impl Script {
    /// The words of the `EVAL` that runs it.
    pub fn eval(&self) -> Vec<String> {
        let mut words = vec!["EVAL".to_owned(), self.text.clone(), self.keys.len().to_string()];
        words.extend(self.keys.iter().cloned());
        words.extend(self.arguments.iter().cloned());
        words
    }

    /// Adds a statement.
    pub fn then(&mut self, statement: &str) {
        self.text.push_str(statement);
        self.text.push('\n');
    }

    /// A call of a command, as an expression.
    pub fn call(&mut self, words: &[Word<'_>], naming: Naming, numbers: &mut Numbers) -> String {
        let expressions: Vec<String> = words
            .iter()
            .enumerate()
            .map(|(at, word)| match word {
                Word::Key(key) => self.name(key, naming, numbers),
                Word::Plain(word) if at == 0 => cased(word, numbers),
                Word::Plain(word) => quoted(word),
            })
            .collect();
        let list = expressions.join(", ");
        match numbers.below(if naming == Naming::Computed { 12 } else { 8 }) {
            0 => {
                let call = self.local("redis.call");
                format!("{call}({list})")
            }
            1 => format!("redis['call']({list})"),
            2 => format!("(redis.call)({list})"),
            3 => format!("select(2, pcall(redis.call, {list}))"),
            4 => format!("redis.call(unpack({{{list}}}))"),
            5 => format!("redis.call({list}, unpack({{}}))"),
            6 => {
                let call = self.local("function(...) return redis.call(...) end");
                format!("{call}({list})")
            }
            8 => format!("_G.redis.call({list})"),
            9 => {
                let call = "function(...) return redis.call(...) end";
                format!("coroutine.wrap({call})({list})")
            }
            10 => format!("loadstring('return redis.call(...)')({list})"),
            11 => format!("rawget(_G, 'redis')['pcall']({list})"),
            _ => format!("redis.call({list})"),
        }
    }

    /// The name of a key, as an expression.
    pub fn name(&mut self, key: &str, naming: Naming, numbers: &mut Numbers) -> String {
        let (front, back) = key.split_at(numbers.below(key.len().max(1)));
        match naming {
            Naming::Declared => match numbers.below(4) {
                0 => {
                    let declared = self.declared(key);
                    self.local(&declared)
                }
                1 => format!("tostring({})", self.declared(key)),
                _ => self.declared(key),
            },
            Naming::Told => match numbers.below(12) {
                0 => quoted(key),
                1 => format!("[==[{key}]==]"),
                2 => escaped(key),
                3 => format!("{} .. {}", quoted(front), quoted(back)),
                4 => {
                    let front = self.local(&quoted(front));
                    format!("{front} .. {}", quoted(back))
                }
                5 => format!("string.format('%s%s', {}, {})", quoted(front), quoted(back)),
                6 => format!("({}):format({})", quoted("%s"), quoted(key)),
                7 => self.argument(key),
                8 => format!("{} .. {}", quoted(front), self.argument(back)),
                9 => format!("{} .. {}", self.argument(front), quoted(back)),
                10 => {
                    let table = self.local(&format!("{{name = {}}}", quoted(key)));
                    format!("{table}.name")
                }
                _ => {
                    let function = self.local(&format!("function() return {} end", quoted(key)));
                    format!("{function}()")
                }
            },
            Naming::Computed => match numbers.below(10) {
                0 => {
                    let reversed: String = key.chars().rev().collect();
                    format!("string.reverse({})", quoted(&reversed))
                }
                1 => format!("table.concat({{{}, {}}})", quoted(front), quoted(back)),
                2 => format!("(({}):gsub('_', ''))", quoted(&format!("{front}_{back}"))),
                3 => {
                    let bytes: Vec<String> = key.bytes().map(|byte| byte.to_string()).collect();
                    format!("string.char({})", bytes.join(", "))
                }
                4 => format!("loadstring({})()", quoted(&format!("return {}", quoted(key)))),
                5 => format!("redis.call('echo', {})", quoted(key)),
                6 => format!("cjson.decode({})[1]", quoted(&format!("[\"{key}\"]"))),
                7 => format!("redis.call('keys', {})[1]", quoted(key)),
                8 => format!("string.sub({}, 2)", quoted(&format!("x{key}"))),
                _ => {
                    let iterator = format!("string.gmatch({}, '%S+')", quoted(key));
                    format!("{iterator}()")
                }
            },
        }
    }

    fn declared(&mut self, key: &str) -> String {
        format!("KEYS[{}]", place(&mut self.keys, key))
    }

    fn argument(&mut self, text: &str) -> String {
        format!("ARGV[{}]", place(&mut self.arguments, text))
    }

    fn local(&mut self, expression: &str) -> String {
        self.locals += 1;
        let name = format!("v{}", self.locals);
        self.then(&format!("local {name} = {expression}"));
        name
    }
}

fn place(list: &mut Vec<String>, text: &str) -> usize {
    match list.iter().position(|known| known == text) {
        Some(place) => place + 1,
        None => {
            list.push(text.to_owned());
            list.len()
        }
    }
}

/// A text as Lua spells it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The same with every other letter as a number.
fn escaped(text: &str) -> String {
    let letters: String = text
        .bytes()
        .enumerate()
        .map(|(at, byte)| match at % 2 {
            0 => format!("\\{byte:03}"),
            _ => char::from(byte).to_string(),
        })
        .collect();
    format!("\"{letters}\"")
}

/// The name of a command in some case.
fn cased(name: &str, numbers: &mut Numbers) -> String {
    quoted(&match numbers.below(3) {
        0 => name.to_ascii_uppercase(),
        1 => name
            .chars()
            .enumerate()
            .map(|(at, letter)| match at % 2 {
                0 => letter.to_ascii_uppercase(),
                _ => letter.to_ascii_lowercase(),
            })
            .collect(),
        _ => name.to_ascii_lowercase(),
    })
}

//! What a script does to the keys of its call by commands that its text spells out, if it is no recipe because it does
//! more than that. For code that searches for locks: a hint from the text alone, whichever path a run takes, and no
//! proof.

use bytes::Bytes;

use super::syntax::{Block, Comparison, Expression, Statement, list_of_ipairs};

/// Most deeds of one text.
const MAX_DEEDS: usize = 8;
/// The most commands and comparisons of each kind that are examined; a longer script counts as taking no lock.
const MAX_NOTED: usize = 64;
/// Most words of a command that is kept.
const MAX_WORDS: usize = 12;

/// A word of a command, or a value in a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    /// `KEYS[n]`, from 0.
    Key(usize),
    /// Each of `KEYS`, in a loop.
    EachKey,
    /// `ARGV[n]`, from 0.
    Argument(usize),
    Text(Bytes),
    /// Something that the text does not show.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Deed {
    /// This command, with the key after its name.
    Takes(Vec<Word>),
    GivesBack {
        key: Word,
        claim: Word,
    },
}

/// What a call of a script does to one of its keys, if the run gets there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Stores a value if there is none: the words of a `SET … NX`, including the key. `None` for a word that the text
    /// does not show.
    Takes(Vec<Option<Bytes>>),
    /// Deletes it if this is its value; `None` for a value that the text does not show.
    GivesBack(Option<Bytes>),
}

/// The deeds in a text, see the module.
#[derive(Debug, Default)]
pub(super) struct Deeds(Vec<Deed>);

impl Deeds {
    /// Linear in the size of the tree.
    pub(super) fn of(script: &Block) -> Deeds {
        let mut walk = Walk::default();
        walk.block(script);
        Deeds(walk.deeds())
    }

    /// What a call does, with the key of each deed.
    pub(super) fn in_call(&self, keys: &[Bytes], arguments: &[Bytes]) -> Vec<(Bytes, Act)> {
        let mut acts = Vec::new();
        for deed in &self.0 {
            let key = match deed {
                Deed::Takes(words) => words.get(1),
                Deed::GivesBack { key, .. } => Some(key),
            };
            let of_this: &[Bytes] = match key {
                Some(Word::Key(at)) => keys.get(*at).map(std::slice::from_ref).unwrap_or_default(),
                Some(Word::EachKey) => keys,
                _ => &[],
            };
            for key in of_this {
                let said = |word: &Word| match word {
                    Word::Key(at) => keys.get(*at).cloned(),
                    Word::EachKey => Some(key.clone()),
                    Word::Argument(at) => arguments.get(*at).cloned(),
                    Word::Text(text) => Some(text.clone()),
                    Word::Other => None,
                };
                let act = match deed {
                    Deed::Takes(words) => Act::Takes(words.iter().map(said).collect()),
                    Deed::GivesBack { claim, .. } => Act::GivesBack(said(claim)),
                };
                acts.push((key.clone(), act));
            }
        }
        acts
    }
}

/// The value of an expression, as far as that matters here.
#[derive(Clone, Debug)]
enum Value {
    Word(Word),
    /// The value of this key.
    Stored(Word),
    Keys,
    Arguments,
    Redis,
    /// `redis.call` or `redis.pcall`.
    Command,
    /// `nil` or `false`.
    Nothing,
}

/// Adds to a list of limited length.
fn note<T>(all: &mut Vec<T>, one: T) {
    if all.len() < MAX_NOTED {
        all.push(one);
    }
}

const OTHER: Value = Value::Word(Word::Other);

#[derive(Default)]
struct Walk<'s> {
    locals: Vec<(&'s [u8], Value)>,
    /// Values that are compared, each with its counterpart.
    compared: Vec<(Word, Word)>,
    /// Keys whose existence is checked.
    asked: Vec<Word>,
    deleted: Vec<Word>,
    /// `SET`, and whether it has `NX`.
    stored: Vec<(Vec<Word>, bool)>,
}

impl<'s> Walk<'s> {
    fn deeds(self) -> Vec<Deed> {
        let mut deeds = Vec::new();
        let is_asked = |words: &[Word]| words.get(1).is_some_and(|key| self.asked.contains(key));
        for (mut words, nx) in self.stored {
            if !nx && !is_asked(&words) {
                continue;
            }
            if !nx {
                words.insert(3.min(words.len()), Word::Text(Bytes::from_static(b"NX")));
            }
            if !deeds.contains(&Deed::Takes(words.clone())) {
                deeds.push(Deed::Takes(words));
            }
        }
        for key in self.deleted {
            if let Some((_, claim)) = self.compared.iter().find(|(one, _)| *one == key) {
                let claim = claim.clone();
                let deed = Deed::GivesBack { key, claim };
                if !deeds.contains(&deed) {
                    deeds.push(deed);
                }
            }
        }
        deeds.truncate(MAX_DEEDS);
        deeds
    }

    fn block(&mut self, block: &'s Block) {
        let outer = self.locals.len();
        for statement in block {
            self.statement(statement);
        }
        self.locals.truncate(outer);
    }

    fn statement(&mut self, statement: &'s Statement) {
        match statement {
            Statement::Local(names, values) => {
                let values: Vec<Value> = values.iter().map(|one| self.value(one)).collect();
                let mut values = values.into_iter();
                for name in names {
                    self.locals.push((name, values.next().unwrap_or(OTHER)));
                }
            }
            Statement::Assign(names, values) => {
                let values: Vec<Value> = values.iter().map(|one| self.value(one)).collect();
                for (target, value) in names.iter().zip(values) {
                    let Expression::Name(name) = target else {
                        continue;
                    };
                    let mut locals = self.locals.iter_mut().rev();
                    if let Some((_, local)) = locals.find(|(local, _)| *local == &name[..]) {
                        *local = value;
                    }
                }
            }
            Statement::Call(call) => drop(self.value(call)),
            Statement::If(arms, otherwise) => {
                for (condition, block) in arms {
                    self.value(condition);
                    self.block(block);
                }
                self.block(otherwise);
            }
            Statement::Do(block) => self.block(block),
            Statement::While(condition, block) | Statement::Repeat(block, condition) => {
                self.value(condition);
                self.block(block);
            }
            Statement::Iterate(names, lists, body) => {
                let list = list_of_ipairs(lists).map(|list| self.value(list));
                let outer = self.locals.len();
                for (at, name) in names.iter().enumerate() {
                    let value = match (at, &list) {
                        (1, Some(Value::Keys)) => Value::Word(Word::EachKey),
                        _ => OTHER,
                    };
                    self.locals.push((name, value));
                }
                self.block(body);
                self.locals.truncate(outer);
            }
            Statement::Count(name, first, last, step, body) => {
                for one in [Some(first), Some(last), step.as_ref()].into_iter().flatten() {
                    self.value(one);
                }
                let outer = self.locals.len();
                self.locals.push((name, OTHER));
                self.block(body);
                self.locals.truncate(outer);
            }
            Statement::LocalFunction(_, function) => self.block(&function.body),
            Statement::Return(values) => values.iter().for_each(|one| drop(self.value(one))),
            Statement::Break => {}
        }
    }

    fn value(&mut self, expression: &'s Expression) -> Value {
        match expression {
            Expression::Text(text) => Value::Word(Word::Text(text.clone())),
            Expression::Number(number) => Value::Word(Word::Text(Bytes::from(number.to_string()))),
            Expression::Name(name) => self.name(name),
            Expression::Index(list, place) => {
                let (list, place) = (self.value(list), self.value(place));
                index(&list, &place)
            }
            Expression::Call(function, arguments) => self.call(function, arguments),
            Expression::Compare(how, left, right) => {
                let (left, right) = (self.value(left), self.value(right));
                if matches!(how, Comparison::Equal | Comparison::Unequal) {
                    self.compare(left, right);
                }
                OTHER
            }
            Expression::Not(one) | Expression::Negative(one) | Expression::Length(one) => {
                self.asks(one);
                OTHER
            }
            Expression::Method(one, _, arguments) => {
                self.value(one);
                arguments.iter().for_each(|one| drop(self.value(one)));
                OTHER
            }
            Expression::Table(fields) => {
                for (key, value) in fields {
                    if let Some(key) = key {
                        self.value(key);
                    }
                    self.value(value);
                }
                OTHER
            }
            Expression::Concat(all) | Expression::All(all) | Expression::Any(all) => {
                all.iter().for_each(|one| drop(self.value(one)));
                OTHER
            }
            Expression::Arithmetic(first, others) => {
                self.value(first);
                others.iter().for_each(|(_, one)| drop(self.value(one)));
                OTHER
            }
            Expression::Function(function) => {
                self.block(&function.body);
                OTHER
            }
            Expression::Nil | Expression::Bool(false) => Value::Nothing,
            Expression::Bool(true) | Expression::OtherNumber | Expression::Varargs => OTHER,
        }
    }

    fn name(&self, name: &[u8]) -> Value {
        let mut locals = self.locals.iter().rev();
        if let Some((_, value)) = locals.find(|(local, _)| *local == name) {
            return value.clone();
        }
        match name {
            b"KEYS" => Value::Keys,
            b"ARGV" => Value::Arguments,
            b"redis" => Value::Redis,
            _ => OTHER,
        }
    }

    /// `not redis.call('get', key)`
    fn asks(&mut self, of: &'s Expression) {
        if let Value::Stored(key) = self.value(of) {
            note(&mut self.asked, key);
        }
    }

    fn compare(&mut self, left: Value, right: Value) {
        match (left, right) {
            (Value::Stored(key), Value::Nothing) | (Value::Nothing, Value::Stored(key)) => {
                note(&mut self.asked, key);
            }
            (Value::Stored(key), Value::Word(claim)) | (Value::Word(claim), Value::Stored(key)) => {
                note(&mut self.compared, (key, claim));
            }
            _ => {}
        }
    }

    fn call(&mut self, function: &'s Expression, arguments: &'s [Expression]) -> Value {
        let function = match function {
            Expression::Name(name) if matches!(&name[..], b"tonumber" | b"tostring") => None,
            other => Some(self.value(other)),
        };
        let mut values: Vec<Value> = arguments.iter().map(|one| self.value(one)).collect();
        match function {
            // The same value, in another type.
            None => values.drain(..).next().unwrap_or(OTHER),
            Some(Value::Command) => self.command(&values),
            Some(_) => OTHER,
        }
    }

    fn command(&mut self, values: &[Value]) -> Value {
        let words: Vec<Word> = values.iter().map(word).collect();
        let [Word::Text(name), key, ..] = &words[..] else {
            return OTHER;
        };
        if !matches!(key, Word::Key(_) | Word::EachKey) || words.len() > MAX_WORDS {
            return OTHER;
        }
        let text = |text: &'static [u8]| Word::Text(Bytes::from_static(text));
        let is_nx = |word: &Word| matches!(word, Word::Text(text) if text.eq_ignore_ascii_case(b"nx"));
        let set = |value: usize, more: &[Word]| {
            let front = [text(b"SET"), key.clone()];
            let value = words.get(value).cloned();
            let all = front.into_iter().chain(value);
            all.chain(more.iter().cloned()).collect::<Vec<Word>>()
        };
        match &name.to_ascii_lowercase()[..] {
            b"get" => return Value::Stored(key.clone()),
            b"exists" => note(&mut self.asked, key.clone()),
            b"del" | b"unlink" => note(&mut self.deleted, key.clone()),
            b"setnx" => note(&mut self.stored, (set(2, &[text(b"NX")]), true)),
            b"setex" if words.len() == 4 => {
                let ttl = [text(b"EX"), words[2].clone()];
                note(&mut self.stored, (set(3, &ttl), false));
            }
            b"psetex" if words.len() == 4 => {
                let ttl = [text(b"PX"), words[2].clone()];
                note(&mut self.stored, (set(3, &ttl), false));
            }
            b"set" if words.len() >= 3 => {
                let nx = words[3..].iter().any(is_nx);
                note(&mut self.stored, (set(2, &words[3..]), nx));
            }
            _ => {}
        }
        OTHER
    }
}

fn index(list: &Value, place: &Value) -> Value {
    let at = |text: &Bytes| -> Option<usize> {
        let number: usize = std::str::from_utf8(text).ok()?.parse().ok()?;
        number.checked_sub(1)
    };
    match (list, place) {
        (Value::Keys, Value::Word(Word::Text(text))) => Value::Word(at(text).map_or(Word::Other, Word::Key)),
        // A counting loop, normally from the first to the last.
        (Value::Keys, _) => Value::Word(Word::EachKey),
        (Value::Arguments, Value::Word(Word::Text(text))) => Value::Word(at(text).map_or(Word::Other, Word::Argument)),
        (Value::Redis, Value::Word(Word::Text(text))) if matches!(&text[..], b"call" | b"pcall") => Value::Command,
        _ => OTHER,
    }
}

fn word(value: &Value) -> Word {
    match value {
        Value::Word(word) => word.clone(),
        _ => Word::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::analysed;

    /// What a call with two keys and three arguments does, in words.
    fn said(text: &str) -> String {
        let keys = ["k1", "k2"].map(Bytes::from);
        let arguments = ["a1", "a2", "a3"].map(Bytes::from);
        let acts = analysed(text.as_bytes()).deeds(&keys, &arguments);
        let text = |word: &Option<Bytes>| match word {
            Some(word) => String::from_utf8_lossy(word).into_owned(),
            None => "?".to_owned(),
        };
        let one = |(key, act): &(Bytes, Act)| match act {
            Act::Takes(words) => words.iter().map(text).collect::<Vec<_>>().join(" "),
            Act::GivesBack(claim) => {
                format!("DEL {} IF {}", String::from_utf8_lossy(key), text(claim))
            }
        };
        acts.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn what_takes_and_gives_back_among_other_things_is_found() {
        for (text, deeds) in [
            (
                "local r = redis.call('SET',KEYS[1],ARGV[1],'NX','PXAT',ARGV[2]);redis.call('GET',KEYS[1]);return r",
                "SET k1 a1 NX PXAT a2",
            ),
            (
                "local ok = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) if not ok then return -1 end \
                 redis.call('HSET', KEYS[2], 'msg', ARGV[3]) return 1",
                "SET k1 a1 NX EX a2",
            ),
            (
                "redis.call('DEL', KEYS[1]) if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end",
                "DEL k2 IF a1",
            ),
            (
                "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 else redis.call('del', KEYS[2]) \
                 redis.call('lpush', KEYS[2], 1) redis.call('del', KEYS[1]) return 0 end",
                "DEL k1 IF a1",
            ),
            (
                "for i, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end \
                 for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS",
                "SET k1 a1 NX PX a2; SET k2 a1 NX PX a2",
            ),
            (
                "local c, k, v = redis.call, KEYS[1], redis.call('get', KEYS[1]) c('lpush', KEYS[2], 1) \
                 if v == ARGV[2] then c('unlink', k) end",
                "DEL k1 IF a2",
            ),
            ("redis.call('hset', KEYS[2], 'a', 1) return redis.call('setnx', KEYS[1], ARGV[1])", "SET k1 a1 NX"),
            ("redis.call('set', KEYS[1], ARGV[1]) redis.call('del', KEYS[2])", ""),
            ("redis.call('set', ARGV[1], ARGV[1], 'NX')", ""),
            ("redis.call('set', KEYS[3], ARGV[1], 'NX')", ""),
            ("return redis.call('set', KEYS[1], ARGV[1] .. 'x', 'NX')", "SET k1 ? NX"),
        ] {
            assert_eq!(said(text), deeds, "{text}");
        }
    }
}

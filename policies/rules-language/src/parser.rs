//! From text to a typed tree, or to the first error in it. Deep nesting and long texts are refused here, so that every
//! result is quick to evaluate.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::facts::{FACTS, Fact, Quantity, Words, named};
use crate::lexer::{Lexer, Sign, Token};
use crate::problem::{Problem, Type, What};
use crate::search::{Needle, Pattern};
use crate::syntax::{Number, Order, Reckoning, Test, Text};
use crate::{Asks, MAX_EXPRESSION_BYTES, MAX_NESTING};

#[derive(Clone, Copy)]
pub(crate) enum Method {
    StartsWith,
    EndsWith,
    Contains,
    Like,
    Size,
}

pub(crate) const METHODS: [(&str, Method); 5] = [
    ("startsWith", Method::StartsWith),
    ("endsWith", Method::EndsWith),
    ("contains", Method::Contains),
    ("like", Method::Like),
    ("size", Method::Size),
];

pub(crate) const METHOD_NAMES: &str = "startsWith, endsWith, contains, like, size";

const ORDERS: [(Sign, Order); 6] = [
    (Sign::Equal, Order::Equal),
    (Sign::Unequal, Order::Unequal),
    (Sign::Less, Order::Less),
    (Sign::AtMost, Order::AtMost),
    (Sign::More, Order::More),
    (Sign::AtLeast, Order::AtLeast),
];

/// Operators of other languages.
const ELSEWHERE: [(&str, &str); 3] = [("and", "&&"), ("or", "||"), ("not", "!")];

pub(crate) fn parse(source: &str) -> Result<(Test, Asks), Problem> {
    if source.len() > MAX_EXPRESSION_BYTES {
        return Err(Problem::new(0, What::TooLong));
    }
    let mut lexer = Lexer::new(source);
    let (at, token) = lexer.next()?;
    if token == Token::End {
        return Err(Problem::new(0, What::Empty));
    }
    let mut parser = Parser { lexer, at, token, depth: 0, asks: Asks::default() };
    let whole = parser.any()?;
    match parser.token {
        Token::End => Ok((whole.test()?, parser.asks)),
        _ => Err(parser.unexpected()),
    }
}

/// A value of any type, and its position.
struct Value {
    at: usize,
    of: Typed,
}

enum Typed {
    Test(Test),
    Number(Number),
    Duration(Number),
    Text(Text),
}

impl Value {
    fn kind(&self) -> Type {
        match self.of {
            Typed::Test(_) => Type::Condition,
            Typed::Number(_) => Type::Number,
            Typed::Duration(_) => Type::Duration,
            Typed::Text(_) => Type::Text,
        }
    }

    fn test(self) -> Result<Test, Problem> {
        let is = self.kind();
        match self.of {
            Typed::Test(test) => Ok(test),
            _ => Err(Problem::new(self.at, What::Wanted { is, wanted: Type::Condition })),
        }
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    at: usize,
    token: Token<'a>,
    depth: u32,
    asks: Asks,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Result<Token<'a>, Problem> {
        let (at, token) = self.lexer.next()?;
        self.at = at;
        Ok(core::mem::replace(&mut self.token, token))
    }

    fn is(&self, sign: Sign) -> bool {
        matches!(self.token, Token::Sign(found) if found == sign)
    }

    fn eat(&mut self, sign: Sign) -> Result<bool, Problem> {
        let is = self.is(sign);
        if is {
            self.next()?;
        }
        Ok(is)
    }

    fn want(&mut self, sign: Sign) -> Result<(), Problem> {
        match self.eat(sign)? {
            true => Ok(()),
            false => Err(self.wrong(What::Missing(sign.text()))),
        }
    }

    fn wrong(&self, what: What) -> Problem {
        Problem::new(self.at, what)
    }

    fn unexpected(&self) -> Problem {
        self.wrong(match &self.token {
            Token::End => What::Ends,
            Token::Word(word) => match ELSEWHERE.into_iter().find(|(is, _)| is.eq_ignore_ascii_case(word)) {
                Some((is, write)) => What::Sign(is, write),
                None => What::Unexpected(word.to_string()),
            },
            Token::Number(_) | Token::Duration(_) => What::Unexpected("a number".to_string()),
            Token::Text(_) => What::Unexpected("a text".to_string()),
            Token::Sign(sign) => What::Unexpected(sign.text().to_string()),
        })
    }

    /// Parses one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Problem>) -> Result<T, Problem> {
        if self.depth >= MAX_NESTING {
            return Err(self.wrong(What::TooDeep));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn any(&mut self) -> Result<Value, Problem> {
        self.joined(Sign::Or, Parser::all, Test::Any)
    }

    fn all(&mut self) -> Result<Value, Problem> {
        self.joined(Sign::And, Parser::compared, Test::All)
    }

    fn joined(
        &mut self,
        sign: Sign,
        part: impl Fn(&mut Self) -> Result<Value, Problem>,
        join: impl Fn(Vec<Test>) -> Test,
    ) -> Result<Value, Problem> {
        let first = part(self)?;
        if !self.is(sign) {
            return Ok(first);
        }
        let at = first.at;
        let mut tests = vec![first.test()?];
        while self.eat(sign)? {
            tests.push(part(self)?.test()?);
        }
        Ok(Value { at, of: Typed::Test(join(tests)) })
    }

    fn compared(&mut self) -> Result<Value, Problem> {
        let left = self.sum()?;
        if self.token == Token::Word("in") {
            self.next()?;
            return self.in_list(left);
        }
        let Some(order) = self.order() else {
            return Ok(left);
        };
        self.next()?;
        let right = self.sum()?;
        if self.order().is_some() || self.token == Token::Word("in") {
            return Err(self.wrong(What::TwoComparisons));
        }
        let (at, right_at) = (left.at, right.at);
        let unlike = What::Compared { is: right.kind(), with: left.kind() };
        let test = match (left.of, right.of) {
            (Typed::Number(left), Typed::Number(right)) | (Typed::Duration(left), Typed::Duration(right)) => {
                Test::Numbers(order, left, right)
            }
            (Typed::Text(left), Typed::Text(right)) => {
                can_be(&left, &right, right_at)?;
                can_be(&right, &left, at)?;
                Test::Texts(order, left, right)
            }
            (Typed::Test(left), Typed::Test(right)) => match order {
                Order::Equal | Order::Unequal => Test::Alike(order == Order::Equal, Box::new(left), Box::new(right)),
                Order::Less | Order::AtMost | Order::More | Order::AtLeast => {
                    return Err(Problem::new(right_at, What::NoOrder));
                }
            },
            _ => return Err(Problem::new(right_at, unlike)),
        };
        Ok(Value { at, of: Typed::Test(test) })
    }

    fn order(&self) -> Option<Order> {
        ORDERS.into_iter().find(|(sign, _)| self.is(*sign)).map(|(_, order)| order)
    }

    fn in_list(&mut self, left: Value) -> Result<Value, Problem> {
        self.want(Sign::OpenList)?;
        if self.is(Sign::CloseList) {
            return Err(self.wrong(What::EmptyList));
        }
        let (at, with) = (left.at, left.kind());
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        loop {
            let one = self.sum()?;
            let unlike = What::Compared { is: one.kind(), with };
            match (&left.of, one.of) {
                (Typed::Number(_), Typed::Number(Number::Literal(number)))
                | (Typed::Duration(_), Typed::Duration(Number::Literal(number))) => numbers.push(number),
                (Typed::Text(text), Typed::Text(found @ Text::Literal(_))) => {
                    can_be(text, &found, one.at)?;
                    if let Text::Literal(bytes) = found {
                        texts.push(bytes);
                    }
                }
                (Typed::Number(_), Typed::Number(_))
                | (Typed::Duration(_), Typed::Duration(_))
                | (Typed::Text(_), Typed::Text(_))
                | (Typed::Test(_), _) => return Err(Problem::new(one.at, What::NotLiteral)),
                _ => return Err(Problem::new(one.at, unlike)),
            }
            if !self.eat(Sign::Comma)? {
                break;
            }
        }
        self.want(Sign::CloseList)?;
        let test = match left.of {
            Typed::Number(number) | Typed::Duration(number) => Test::NumberIn(number, numbers),
            Typed::Text(text) => Test::TextIn(text, texts),
            Typed::Test(_) => return Err(Problem::new(at, What::NotLiteral)),
        };
        Ok(Value { at, of: Typed::Test(test) })
    }

    fn sum(&mut self) -> Result<Value, Problem> {
        self.reckoned(&[(Sign::Plus, Reckoning::Plus), (Sign::Minus, Reckoning::Minus)], Parser::product)
    }

    fn product(&mut self) -> Result<Value, Problem> {
        let signs = [(Sign::Times, Reckoning::Times), (Sign::Over, Reckoning::Over), (Sign::Rest, Reckoning::Rest)];
        self.reckoned(&signs, Parser::signed)
    }

    fn reckoned(
        &mut self,
        signs: &[(Sign, Reckoning)],
        part: impl Fn(&mut Self) -> Result<Value, Problem>,
    ) -> Result<Value, Problem> {
        let first = part(self)?;
        let (at, mut kind) = (first.at, first.kind());
        let sign = |parser: &Self| signs.iter().find(|(sign, _)| parser.is(*sign)).map(|(_, of)| *of);
        if sign(self).is_none() {
            return Ok(first);
        }
        let (mut first, mut rest) = (Some(first.of), Vec::new());
        while let Some(reckoning) = sign(self) {
            self.next()?;
            let right = part(self)?;
            kind = result(kind, reckoning, right.kind())
                .ok_or_else(|| Problem::new(right.at, What::Reckoned { left: kind, right: right.kind() }))?;
            match right.of {
                Typed::Number(number) | Typed::Duration(number) => {
                    let divides = matches!(reckoning, Reckoning::Over | Reckoning::Rest);
                    if divides && !matches!(number, Number::Literal(1..)) {
                        return Err(Problem::new(right.at, What::Divisor));
                    }
                    rest.push((reckoning, number));
                }
                // These have no result.
                Typed::Test(_) | Typed::Text(_) => {}
            }
        }
        let of = match first.take() {
            Some(Typed::Number(number) | Typed::Duration(number)) => Number::Reckoned(Box::new(number), rest),
            Some(Typed::Test(_) | Typed::Text(_)) | None => {
                return Err(Problem::new(at, What::Reckoned { left: kind, right: kind }));
            }
        };
        let of = match kind {
            Type::Duration => Typed::Duration(of),
            Type::Number | Type::Condition | Type::Text => Typed::Number(of),
        };
        Ok(Value { at, of })
    }

    fn signed(&mut self) -> Result<Value, Problem> {
        let at = self.at;
        if self.eat(Sign::Not)? {
            let test = self.deeper(Parser::signed)?.test()?;
            return Ok(Value { at, of: Typed::Test(Test::Not(Box::new(test))) });
        }
        if self.eat(Sign::Minus)? {
            let value = self.deeper(Parser::signed)?;
            let is = value.kind();
            let minus = |number| match number {
                Number::Literal(number) => Number::Literal(number.saturating_neg()),
                number => Number::Minus(Box::new(number)),
            };
            let of = match value.of {
                Typed::Number(number) => Typed::Number(minus(number)),
                Typed::Duration(number) => Typed::Duration(minus(number)),
                Typed::Test(_) | Typed::Text(_) => return Err(Problem::new(value.at, What::NotNumber(is))),
            };
            return Ok(Value { at, of });
        }
        self.called()
    }

    /// A value, and the method called on it: `key.like("a*")`, `key.size()`.
    fn called(&mut self) -> Result<Value, Problem> {
        let mut value = self.primary()?;
        while self.is(Sign::Point) {
            let method_at = self.at + 1;
            let Some(name) = self.lexer.part() else {
                return Err(Problem::new(method_at, What::Missing("a method")));
            };
            let calls = self.lexer.calls();
            self.next()?;
            value = self.method(value, (method_at, name), calls)?;
        }
        Ok(value)
    }

    fn method(&mut self, value: Value, (at, name): (usize, &str), calls: bool) -> Result<Value, Problem> {
        let known = METHODS.into_iter().find(|(known, _)| *known == name);
        let Some((_, method)) = known else {
            return Err(Problem::new(at, What::Method(name.to_string())));
        };
        if !calls {
            return Err(Problem::new(at, What::Call(name.to_string())));
        }
        let (from, is) = (value.at, value.kind());
        let Typed::Text(text) = value.of else {
            return Err(Problem::new(at, What::NotText(is)));
        };
        self.want(Sign::Open)?;
        let of = match method {
            Method::Size => Typed::Number(Number::Size(text)),
            Method::StartsWith | Method::EndsWith | Method::Contains | Method::Like => {
                if !matches!(self.token, Token::Text(_)) {
                    return Err(self.wrong(What::NotQuoted));
                }
                let Token::Text(argument) = self.next()? else {
                    return Err(self.wrong(What::NotQuoted));
                };
                Typed::Test(match method {
                    Method::StartsWith => Test::StartsWith(text, (*argument).into()),
                    Method::EndsWith => Test::EndsWith(text, (*argument).into()),
                    Method::Contains => Test::Contains(text, Needle::new(&argument)),
                    Method::Like | Method::Size => Test::Like(text, Pattern::new(&argument)),
                })
            }
        };
        self.want(Sign::Close)?;
        Ok(Value { at: from, of })
    }

    fn primary(&mut self) -> Result<Value, Problem> {
        let at = self.at;
        let of = match self.token {
            Token::Word("true") => Typed::Test(Test::Always(true)),
            Token::Word("false") => Typed::Test(Test::Always(false)),
            Token::Word(word) => self.fact(word)?,
            Token::Number(number) => Typed::Number(Number::Literal(number)),
            Token::Duration(ms) => Typed::Duration(Number::Literal(ms)),
            Token::Text(ref text) => Typed::Text(Text::Literal((**text).into())),
            Token::Sign(Sign::Open) => {
                self.next()?;
                let inner = self.deeper(Parser::any)?;
                self.want(Sign::Close)?;
                return Ok(Value { at, ..inner });
            }
            Token::Sign(_) | Token::End => return Err(self.unexpected()),
        };
        self.next()?;
        Ok(Value { at, of })
    }

    fn fact(&mut self, name: &str) -> Result<Typed, Problem> {
        let Some(fact) = named(name) else {
            return Err(self.no_fact(name));
        };
        match fact {
            Fact::Text(Words::ClientName | Words::ClientUser | Words::ClientAddress) => self.asks.client = true,
            Fact::Text(Words::ClientCertificate) => self.asks.certificate = true,
            Fact::Text(Words::ClientApplication) => self.asks.application = true,
            Fact::Number(Quantity::Hour | Quantity::Minute | Quantity::Weekday) => self.asks.calendar = true,
            Fact::Number(Quantity::TriesApplication | Quantity::TriesEveryone) => self.asks.tries = true,
            Fact::Number(Quantity::HeldConnection | Quantity::HeldApplication) => self.asks.held = true,
            Fact::Flag(_) | Fact::Number(_) | Fact::Duration(_) | Fact::Text(_) => {}
        }
        Ok(match fact {
            Fact::Flag(flag) => Typed::Test(Test::Fact(flag)),
            Fact::Number(quantity) => Typed::Number(Number::Fact(quantity)),
            Fact::Duration(quantity) => Typed::Duration(Number::Fact(quantity)),
            Fact::Text(words) => Typed::Text(Text::Fact(words)),
        })
    }

    fn no_fact(&self, name: &str) -> Problem {
        // `key.size` is the method of a fact, without its parentheses.
        if let Some((before, last)) = name.rsplit_once('.')
            && named(before).is_some()
        {
            let at = self.at + before.len() + 1;
            let is_method = METHODS.into_iter().any(|(known, _)| known == last);
            let last = last.to_string();
            return Problem::new(at, if is_method { What::Call(last) } else { What::Method(last) });
        }
        match self.unexpected() {
            Problem { at, what: What::Sign(is, write) } => Problem::new(at, What::Sign(is, write)),
            Problem { at, .. } => Problem::new(at, What::Fact(name.to_string())),
        }
    }
}

/// The type of a calculation's result, if these types can be combined.
fn result(left: Type, reckoning: Reckoning, right: Type) -> Option<Type> {
    match (left, reckoning, right) {
        (Type::Number, _, Type::Number) => Some(Type::Number),
        (Type::Duration, Reckoning::Plus | Reckoning::Minus | Reckoning::Rest, Type::Duration) => Some(Type::Duration),
        (Type::Duration, Reckoning::Times | Reckoning::Over, Type::Number) => Some(Type::Duration),
        (Type::Number, Reckoning::Times, Type::Duration) => Some(Type::Duration),
        (Type::Duration, Reckoning::Over, Type::Duration) => Some(Type::Number),
        _ => None,
    }
}

/// A comparison with a text that a fact can never have is a mistake.
fn can_be(fact: &Text, text: &Text, at: usize) -> Result<(), Problem> {
    let (Text::Fact(words), Text::Literal(bytes)) = (fact, text) else {
        return Ok(());
    };
    let Some(values) = words.values() else {
        return Ok(());
    };
    if values.iter().any(|value| value.as_bytes() == &**bytes) {
        return Ok(());
    }
    let known = FACTS.iter().find(|known| known.fact == Fact::Text(*words));
    let text = String::from_utf8_lossy(bytes).into_owned();
    Err(Problem::new(at, What::NeverSo { fact: known.map_or("", |known| known.name), text, values }))
}

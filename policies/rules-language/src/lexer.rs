//! Splits an expression into names, numbers, texts and operators, each with its start position in bytes.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::problem::{Problem, What};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A name, with the names of its parts: `client.name`.
    Word(&'a str),
    Number(i64),
    /// In milliseconds.
    Duration(i64),
    /// Borrowed if nothing in it is escaped: a guest that frees much memory spends its fuel on that.
    Text(Cow<'a, [u8]>),
    Sign(Sign),
    End,
}

/// A token that is neither a name nor a value. An enum, because comparing texts would be most of a guest's cost of
/// reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Or,
    And,
    Equal,
    Unequal,
    AtMost,
    AtLeast,
    Less,
    More,
    Not,
    Plus,
    Minus,
    Times,
    Over,
    Rest,
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
    Point,
}

impl Sign {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Sign::Or => "||",
            Sign::And => "&&",
            Sign::Equal => "==",
            Sign::Unequal => "!=",
            Sign::AtMost => "<=",
            Sign::AtLeast => ">=",
            Sign::Less => "<",
            Sign::More => ">",
            Sign::Not => "!",
            Sign::Plus => "+",
            Sign::Minus => "-",
            Sign::Times => "*",
            Sign::Over => "/",
            Sign::Rest => "%",
            Sign::Open => "(",
            Sign::Close => ")",
            Sign::OpenList => "[",
            Sign::CloseList => "]",
            Sign::Comma => ",",
            Sign::Point => ".",
        }
    }
}

/// A hundred years.
const MAX_DURATION_MS: i64 = 36_525 * 24 * 60 * 60 * 1_000;

pub(crate) struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(source: &'a str) -> Lexer<'a> {
        Lexer { source, at: 0 }
    }

    /// The next token, and its position.
    pub(crate) fn next(&mut self) -> Result<(usize, Token<'a>), Problem> {
        let blanks = self.rest().len() - self.rest().trim_start_matches(|c: char| c.is_ascii_whitespace()).len();
        self.at += blanks;
        let at = self.at;
        let token = match self.peek() {
            None => Token::End,
            Some(b'"' | b'\'') => Token::Text(self.text()?),
            Some(b'0'..=b'9') => self.number()?,
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => Token::Word(self.word()),
            Some(_) => self.sign()?,
        };
        Ok((at, token))
    }

    /// A part of a name that follows directly, as in a method call.
    pub(crate) fn part(&mut self) -> Option<&'a str> {
        let begins = self.peek().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        begins.then(|| self.letters())
    }

    /// Whether the next byte is an opening parenthesis, after blanks.
    pub(crate) fn calls(&self) -> bool {
        self.rest().trim_ascii_start().starts_with('(')
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.at).copied()
    }

    fn letters(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'_'));
        let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        self.at += word.len();
        word
    }

    /// A name: `key`, `client.name`. If its last part is called, that part is left: `key.like(…)` calls the method of a
    /// name.
    fn word(&mut self) -> &'a str {
        let from = self.at;
        self.letters();
        loop {
            let end = self.at;
            if self.peek() != Some(b'.') {
                break;
            }
            self.at += 1;
            if self.part().is_none() || self.calls() {
                self.at = end;
                break;
            }
        }
        self.source.get(from..self.at).unwrap_or_default()
    }

    fn number(&mut self) -> Result<Token<'a>, Problem> {
        let at = self.at;
        let mut number = Some(0_i64);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            number = number.and_then(|number| number.checked_mul(10)?.checked_add(i64::from(digit - b'0')));
            self.at += 1;
        }
        let wrong = |at, what| Err(Problem::new(at, what));
        let Some(number) = number else {
            return wrong(at, What::TooLarge);
        };
        if self.peek() == Some(b'.') {
            return wrong(at, What::Fraction);
        }
        let unit_at = self.at;
        let unit = match self.letters() {
            "" => return Ok(Token::Number(number)),
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            other => return wrong(unit_at, What::Unit(other.to_string())),
        };
        match number.checked_mul(unit).filter(|ms| *ms <= MAX_DURATION_MS) {
            Some(ms) => Ok(Token::Duration(ms)),
            None => wrong(at, What::TooLarge),
        }
    }

    fn text(&mut self) -> Result<Cow<'a, [u8]>, Problem> {
        let from = self.at;
        let quote = self.peek();
        let begin = from + 1;
        self.at = begin;
        let mut unescaped: Option<Vec<u8>> = None;
        loop {
            let at = self.at;
            let Some(byte) = self.peek() else {
                return Err(Problem::new(from, What::OpenText));
            };
            self.at += 1;
            if Some(byte) == quote {
                let plain = self.source.as_bytes().get(begin..at).unwrap_or_default();
                return Ok(unescaped.map_or(Cow::Borrowed(plain), Cow::Owned));
            }
            if byte == b'\\' {
                let before = self.source.as_bytes().get(begin..at).unwrap_or_default();
                let text = unescaped.get_or_insert_with(|| before.to_vec());
                match self.escaped() {
                    Some(byte) => text.push(byte),
                    None => return Err(Problem::new(at, What::Escape)),
                }
            } else if let Some(text) = &mut unescaped {
                text.push(byte);
            }
        }
    }

    fn escaped(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b'\\' | b'"' | b'\'' => Some(byte),
            b'x' => {
                let digits = self.rest().get(..2)?;
                self.at += 2;
                let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
            }
            _ => None,
        }
    }

    fn sign(&mut self) -> Result<Token<'a>, Problem> {
        let (at, rest) = (self.at, self.rest());
        let sign = match rest.as_bytes() {
            [b'|', b'|', ..] => Sign::Or,
            [b'&', b'&', ..] => Sign::And,
            [b'=', b'=', ..] => Sign::Equal,
            [b'!', b'=', ..] => Sign::Unequal,
            [b'<', b'=', ..] => Sign::AtMost,
            [b'>', b'=', ..] => Sign::AtLeast,
            [b'<', ..] => Sign::Less,
            [b'>', ..] => Sign::More,
            [b'!', ..] => Sign::Not,
            [b'+', ..] => Sign::Plus,
            [b'-', ..] => Sign::Minus,
            [b'*', ..] => Sign::Times,
            [b'/', ..] => Sign::Over,
            [b'%', ..] => Sign::Rest,
            [b'(', ..] => Sign::Open,
            [b')', ..] => Sign::Close,
            [b'[', ..] => Sign::OpenList,
            [b']', ..] => Sign::CloseList,
            [b',', ..] => Sign::Comma,
            [b'.', ..] => Sign::Point,
            [b'&', ..] => return Err(Problem::new(at, What::Sign("&", "&&"))),
            [b'|', ..] => return Err(Problem::new(at, What::Sign("|", "||"))),
            [b'=', ..] => return Err(Problem::new(at, What::Sign("=", "=="))),
            _ => {
                let found: String = rest.chars().take(1).collect();
                return Err(Problem::new(at, What::Unexpected(found)));
            }
        };
        self.at += sign.text().len();
        Ok(Token::Sign(sign))
    }
}

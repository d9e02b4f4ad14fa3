//! A parsed expression: each type of value has its own tree, so that nothing of a wrong type can be evaluated. Also the
//! maximum cost of a tree. `parser.rs` makes these, `evaluate.rs` evaluates them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::facts::{Flag, Quantity, Words};
use crate::search::{Needle, Pattern};
use crate::token_class::CLASS_STEPS;

/// A condition.
#[derive(Debug)]
pub(crate) enum Test {
    Always(bool),
    Fact(Flag),
    Not(Box<Test>),
    All(Vec<Test>),
    Any(Vec<Test>),
    /// Two conditions that are equal (true), or are not (false).
    Alike(bool, Box<Test>, Box<Test>),
    Numbers(Order, Number, Number),
    Texts(Order, Text, Text),
    NumberIn(Number, Vec<i64>),
    TextIn(Text, Vec<Box<[u8]>>),
    StartsWith(Text, Box<[u8]>),
    EndsWith(Text, Box<[u8]>),
    Contains(Text, Needle),
    Like(Text, Pattern),
}

/// A number, or a duration in milliseconds.
#[derive(Debug)]
pub(crate) enum Number {
    Literal(i64),
    Fact(Quantity),
    Size(Text),
    Minus(Box<Number>),
    /// From left to right; a divisor is a literal above zero.
    Reckoned(Box<Number>, Vec<(Reckoning, Number)>),
}

#[derive(Debug)]
pub(crate) enum Text {
    Literal(Box<[u8]>),
    Fact(Words),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reckoning {
    Plus,
    Minus,
    Times,
    Over,
    Rest,
}

impl Test {
    /// The most steps of one evaluation.
    pub(crate) fn steps(&self) -> u64 {
        1 + match self {
            Test::Always(_) | Test::Fact(_) => 0,
            Test::Not(test) => test.steps(),
            Test::All(tests) | Test::Any(tests) => tests.iter().map(Test::steps).sum(),
            Test::Alike(_, left, right) => left.steps() + right.steps(),
            Test::Numbers(_, left, right) => left.steps() + right.steps(),
            Test::Texts(_, left, right) => left.steps() + right.steps() + left.longest().min(right.longest()) as u64,
            Test::NumberIn(number, list) => number.steps() + list.len() as u64,
            Test::TextIn(text, list) => text.steps() + list.iter().map(|one| 1 + one.len() as u64).sum::<u64>(),
            Test::StartsWith(text, part) | Test::EndsWith(text, part) => text.steps() + part.len() as u64,
            Test::Contains(text, _) => text.steps() + 2 * text.longest() as u64,
            Test::Like(text, pattern) => text.steps() + pattern.steps(text.longest()),
        }
    }

    pub(crate) fn literal_bytes(&self) -> usize {
        match self {
            Test::Always(_) | Test::Fact(_) => 0,
            Test::Not(test) => test.literal_bytes(),
            Test::All(tests) | Test::Any(tests) => tests.iter().map(Test::literal_bytes).sum(),
            Test::Alike(_, left, right) => left.literal_bytes() + right.literal_bytes(),
            Test::Numbers(_, left, right) => left.literal_bytes() + right.literal_bytes(),
            Test::Texts(_, left, right) => left.literal_bytes() + right.literal_bytes(),
            Test::NumberIn(number, list) => number.literal_bytes() + list.len() * size_of::<i64>(),
            Test::TextIn(text, list) => text.literal_bytes() + list.iter().map(|one| one.len()).sum::<usize>(),
            Test::StartsWith(text, part) | Test::EndsWith(text, part) => text.literal_bytes() + part.len(),
            Test::Contains(text, needle) => text.literal_bytes() + needle.bytes.len(),
            Test::Like(text, pattern) => text.literal_bytes() + pattern.literal_bytes(),
        }
    }
}

impl Number {
    fn steps(&self) -> u64 {
        1 + match self {
            Number::Literal(_) | Number::Fact(_) => 0,
            Number::Size(text) => text.steps(),
            Number::Minus(number) => number.steps(),
            Number::Reckoned(first, rest) => first.steps() + rest.iter().map(|(_, next)| next.steps()).sum::<u64>(),
        }
    }

    fn literal_bytes(&self) -> usize {
        match self {
            Number::Literal(_) | Number::Fact(_) => 0,
            Number::Size(text) => text.literal_bytes(),
            Number::Minus(number) => number.literal_bytes(),
            Number::Reckoned(first, rest) => {
                first.literal_bytes() + rest.iter().map(|(_, next)| next.literal_bytes()).sum::<usize>()
            }
        }
    }
}

impl Text {
    fn steps(&self) -> u64 {
        match self {
            Text::Fact(Words::TokenClass) => 1 + CLASS_STEPS,
            Text::Literal(_) | Text::Fact(_) => 1,
        }
    }

    pub(crate) fn longest(&self) -> usize {
        match self {
            Text::Literal(bytes) => bytes.len(),
            Text::Fact(words) => words.longest(),
        }
    }

    fn literal_bytes(&self) -> usize {
        match self {
            Text::Literal(bytes) => bytes.len(),
            Text::Fact(_) => 0,
        }
    }
}

//! An error in an expression, its position in bytes, and how to fix it. The proxy adds a suggestion, see
//! [`Problem::candidates`].

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::facts::FACTS;
use crate::parser::{METHOD_NAMES, METHODS};
use crate::{MAX_EXPRESSION_BYTES, MAX_NESTING};

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its position, in bytes.
    pub at: usize,
    /// What it is.
    pub what: What,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// True or false.
    Condition,
    /// A whole number.
    Number,
    /// A time span.
    Duration,
    /// A text.
    Text,
}

impl Type {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Type::Condition => "a condition",
            Type::Number => "a number",
            Type::Duration => "a duration",
            Type::Text => "a text",
        }
    }
}

/// See [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The expression is empty.
    Empty,
    /// More than [`MAX_EXPRESSION_BYTES`].
    TooLong,
    /// More than [`MAX_NESTING`].
    TooDeep,
    /// A text without its closing quote.
    OpenText,
    /// A backslash before a character that needs none.
    Escape,
    /// A number that does not fit in 64 bits, or a duration above a hundred years.
    TooLarge,
    /// A number with a point.
    Fraction,
    /// Letters after a number that are no unit.
    Unit(String),
    /// Something that cannot stand here.
    Unexpected(String),
    /// The expression ends where something should follow.
    Ends,
    /// This is missing here.
    Missing(&'static str),
    /// A wrong operator: the one that was written, and the right one.
    Sign(&'static str, &'static str),
    /// No fact has this name.
    Fact(String),
    /// No method has this name.
    Method(String),
    /// A method without parentheses.
    Call(String),
    /// A method of texts on something else.
    NotText(Type),
    /// A value of one type where another type is required.
    Wanted {
        /// The actual type.
        is: Type,
        /// The required type.
        wanted: Type,
    },
    /// Two types that cannot be compared.
    Compared {
        /// The type on the right.
        is: Type,
        /// The type on the left.
        with: Type,
    },
    /// Conditions can be equal or not, but not larger.
    NoOrder,
    /// Types that cannot be combined in a calculation.
    Reckoned {
        /// The type on the left.
        left: Type,
        /// The type on the right.
        right: Type,
    },
    /// A divisor that is not a number above zero.
    Divisor,
    /// A minus before a value that is no number.
    NotNumber(Type),
    /// `a < b < c`.
    TwoComparisons,
    /// An empty list.
    EmptyList,
    /// A list element that is not a literal.
    NotLiteral,
    /// The argument of a method is not a text in quotes.
    NotQuoted,
    /// A text that this fact never has.
    NeverSo {
        /// The fact.
        fact: &'static str,
        /// The text that it is compared with.
        text: String,
        /// Its possible values.
        values: &'static [&'static str],
    },
}

impl Problem {
    pub(crate) fn new(at: usize, what: What) -> Problem {
        Problem { at, what }
    }

    /// An unknown name, and the known ones: one of them may have been meant.
    #[must_use]
    pub fn candidates(&self) -> Option<(&str, Vec<&'static str>)> {
        match &self.what {
            What::Fact(word) => Some((word, FACTS.iter().map(|fact| fact.name).collect())),
            What::Method(word) => Some((word, METHODS.iter().map(|(name, _)| *name).collect())),
            What::NeverSo { text, values, .. } => Some((text, values.to_vec())),
            _ => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Empty => f.write_str("is empty; write a condition, such as ttl > 5s"),
            What::TooLong => write!(f, "an expression has at most {MAX_EXPRESSION_BYTES} bytes; write two rules"),
            What::TooDeep => write!(f, "this stands more than {MAX_NESTING} deep; write two rules"),
            What::OpenText => f.write_str("this text has no closing quote"),
            What::Escape => {
                f.write_str("a backslash stands before \\, a quote or two hex digits (\\x1f); write \\\\ for itself")
            }
            What::TooLarge => f.write_str("this number is too large"),
            What::Fraction => f.write_str("numbers are whole; write a smaller unit, such as 1500ms"),
            What::Unit(unit) => write!(f, "{unit} is no unit; units are ms, s, m, h, d, as in 5s"),
            What::Unexpected(found) => write!(f, "{found} cannot stand here"),
            What::Ends => f.write_str("something is missing at the end"),
            What::Missing(what) => write!(f, "{what} is missing here"),
            What::Sign(is, write) => write!(f, "write {write}, not {is}"),
            What::Fact(name) => write!(f, "no fact is called {name}"),
            What::Method(name) => write!(f, "there is no method {name}; there are {METHOD_NAMES}"),
            What::Call(name) => write!(f, "{name} is a method: write .{name}(…)"),
            What::NotText(is) => write!(f, "this is {}, and only texts have methods", is.words()),
            What::Wanted { is, wanted } => write!(f, "this is {}, and must be {}", is.words(), wanted.words()),
            What::Compared { is: Type::Number, with: Type::Duration } => {
                f.write_str("this is a number, and it is compared with a duration; write a unit, such as 5s")
            }
            What::Compared { is, with } => {
                write!(f, "this is {}, and it is compared with {}", is.words(), with.words())
            }
            What::NoOrder => f.write_str("conditions are compared with == and != only"),
            What::Reckoned { left, right } => {
                write!(f, "one cannot reckon with {} and {}", left.words(), right.words())
            }
            What::Divisor => f.write_str("divide by a number above zero that is written out"),
            What::NotNumber(is) => write!(f, "this is {}, and a minus stands before numbers and durations", is.words()),
            What::TwoComparisons => f.write_str("compare two things at a time: a < b && b < c"),
            What::EmptyList => f.write_str("the list is empty, so this never holds"),
            What::NotLiteral => f.write_str("a list holds texts in quotes, numbers or durations"),
            What::NotQuoted => f.write_str("write a text in quotes"),
            What::NeverSo { fact, text, .. } => write!(f, "{fact} is never {text:?}"),
        }
    }
}

//! The language of `[[namespace.rule]]`: conditions on one lock command, a small typed subset of CEL. Parses an
//! expression and finds all errors in it before it is used; evaluates it without allocation, within a time limit that
//! is known after parsing. It does no I/O, reads no clock and knows no rule: the guest `rules` and the proxy's
//! configuration both use it. Next: [`Expression`], then `parser.rs`; `docs/rules.md` describes the same for operators.

#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

// Not compiled into a guest.
#[cfg(not(target_family = "wasm"))]
pub mod analysis;
mod evaluate;
mod facts;
mod lexer;
mod lock_order;
mod parser;
mod problem;
mod search;
mod syntax;
mod token_class;
mod zone;

pub use evaluate::Steps;
pub use facts::{Client, FACTS, FactInfo, Facts, Held, MAX_TEXT_BYTES, OPERATIONS, Tries};
pub use lock_order::LockOrder;
pub use problem::{Problem, What};
pub use token_class::{class as token_class, stand_ins};
pub use zone::{BadZone, Zone};

use syntax::Test;

/// The longest expression, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 1 << 10;

/// How deep parentheses, `!` and signs may be nested.
pub const MAX_NESTING: u32 = 32;

/// The most bytes of all expressions in one namespace: reading a byte takes a guest up to 700 fuel, and it has
/// 10,000,000 for all.
pub const MAX_SOURCE_BYTES: usize = 10 << 10;

/// The most locks of a connection that a rule gets.
pub const MAX_HOLDINGS: usize = 32;

/// The most rules of one namespace.
pub const MAX_RULES: usize = 64;

/// The most bytes of all literal texts in the expressions of one namespace.
pub const MAX_LITERAL_BYTES: usize = 4 << 10;

/// The most steps of all rules of one namespace for one question. A step is a byte that is compared, or a part of an
/// expression that is evaluated; the policy `rules` uses less than 40 fuel for one, and has 1,000,000.
pub const MAX_STEPS: u64 = 20_000;

/// A parsed and valid condition.
#[derive(Debug)]
pub struct Expression {
    test: Test,
    steps: u64,
    literal_bytes: usize,
    source_bytes: usize,
    asks: Asks,
}

/// The information that an expression needs besides the question itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// The client's name, user or address.
    pub client: bool,
    /// The name in its certificate.
    pub certificate: bool,
    /// The name of its application.
    pub application: bool,
    /// The time of day or the day of the week.
    pub calendar: bool,
    /// How often other clients tried to take the lock.
    pub tries: bool,
    /// The locks that the client holds.
    pub held: bool,
}

impl Expression {
    /// Parses a condition.
    ///
    /// # Errors
    /// The first error, with its position in bytes.
    pub fn parse(source: &str) -> Result<Expression, Problem> {
        let (test, asks) = parser::parse(source)?;
        let (steps, literal_bytes) = (test.steps(), test.literal_bytes());
        Ok(Expression { test, steps, literal_bytes, source_bytes: source.len(), asks })
    }

    /// Whether it holds. `minute` counts the local minutes since the start of 1970, see [`Zone::minute`].
    pub fn holds(&self, facts: &Facts<'_>, minute: i64) -> bool {
        self.test.holds(&evaluate::Asked { facts, minute }, &mut ())
    }

    /// The same, counting the steps.
    pub fn holds_counted(&self, facts: &Facts<'_>, minute: i64, steps: &mut impl Steps) -> bool {
        self.test.holds(&evaluate::Asked { facts, minute }, steps)
    }

    /// The most steps that it takes for any question.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The length of its literal texts, in bytes.
    #[must_use]
    pub fn literal_bytes(&self) -> usize {
        self.literal_bytes
    }

    /// Its length, in bytes.
    #[must_use]
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// The information that it needs.
    #[must_use]
    pub fn asks(&self) -> Asks {
        self.asks
    }
}

#[cfg(test)]
mod tests;

//! The language of `[[namespace.rule]]`: conditions on one lock command, a small typed subset of CEL. Reads an expression
//! and finds everything wrong with it before it is used; evaluates it without an allocation, in a time whose bound is known
//! when it is read. It does no I/O, reads no clock and knows no rule: the guest `rules` and the proxy's configuration use it
//! alike. Next: [`Expression`], then `parser.rs`; `docs/rules.md` is the same for operators.

#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

// Not for a guest.
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

/// How deep parentheses, `!` and signs may stand inside one another.
pub const MAX_NESTING: u32 = 32;

/// All expressions of one namespace, in bytes: reading a byte takes a guest up to 700 fuel, and it has 10,000,000 for all.
pub const MAX_SOURCE_BYTES: usize = 10 << 10;

/// The locks of a connection that a rule is told of.
pub const MAX_HOLDINGS: usize = 32;

/// Rules of one namespace.
pub const MAX_RULES: usize = 64;

/// All texts that the expressions of one namespace spell out, in bytes.
pub const MAX_LITERAL_BYTES: usize = 4 << 10;

/// The most steps that all rules of one namespace may take for one question. A step is a byte that is compared, or a part
/// of an expression that is looked at; the policy `rules` burns less than 40 fuel on one, and has 1,000,000.
pub const MAX_STEPS: u64 = 20_000;

/// A condition that was read and found right.
#[derive(Debug)]
pub struct Expression {
    test: Test,
    steps: u64,
    literal_bytes: usize,
    source_bytes: usize,
    asks: Asks,
}

/// What an expression has to be told that is not in the question itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// The client's name, user or address.
    pub client: bool,
    /// The name in its certificate.
    pub certificate: bool,
    /// What its application is called.
    pub application: bool,
    /// The time of day or the day of the week.
    pub calendar: bool,
    /// How often other clients tried.
    pub tries: bool,
    /// What the client holds.
    pub held: bool,
}

impl Expression {
    /// Reads a condition.
    ///
    /// # Errors
    /// What is wrong first, and at which byte.
    pub fn parse(source: &str) -> Result<Expression, Problem> {
        let (test, asks) = parser::parse(source)?;
        let (steps, literal_bytes) = (test.steps(), test.literal_bytes());
        Ok(Expression { test, steps, literal_bytes, source_bytes: source.len(), asks })
    }

    /// Whether it holds. `minute` counts the local minutes since 1970 began, see [`Zone::minute`].
    pub fn holds(&self, facts: &Facts<'_>, minute: i64) -> bool {
        self.test.holds(&evaluate::Asked { facts, minute }, &mut ())
    }

    /// The same, and counts the steps that it takes.
    pub fn holds_counted(&self, facts: &Facts<'_>, minute: i64, steps: &mut impl Steps) -> bool {
        self.test.holds(&evaluate::Asked { facts, minute }, steps)
    }

    /// The most steps that it takes, whatever it is asked.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The texts that it spells out, in bytes.
    #[must_use]
    pub fn literal_bytes(&self) -> usize {
        self.literal_bytes
    }

    /// Its length, in bytes.
    #[must_use]
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// What it has to be told.
    #[must_use]
    pub fn asks(&self) -> Asks {
        self.asks
    }
}

#[cfg(test)]
mod tests;

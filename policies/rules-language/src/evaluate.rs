//! Evaluates a tree: no allocation, no recursion deeper than the nesting that the parser accepts, and no failure.
//! Numbers saturate at the limits of 64 bits.

use core::cmp::Ordering;

use crate::facts::{Facts, Flag, MAX_TEXT_BYTES, Quantity, Words};
use crate::syntax::{Number, Order, Reckoning, Test, Text};
use crate::token_class::{CLASS_STEPS, class};

/// Counts the steps of an evaluation: bytes that are compared, and parts of the expression that are evaluated.
pub trait Steps {
    /// Counts this many more steps.
    fn add(&mut self, steps: usize);
}

/// Counts nothing, and costs nothing.
impl Steps for () {
    fn add(&mut self, _steps: usize) {}
}

impl Steps for u64 {
    fn add(&mut self, steps: usize) {
        *self += steps as u64;
    }
}

/// The question, and its time in the rule's zone.
pub(crate) struct Asked<'a> {
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) minute: i64,
}

impl Test {
    pub(crate) fn holds(&self, asked: &Asked<'_>, steps: &mut impl Steps) -> bool {
        steps.add(1);
        match self {
            Test::Always(always) => *always,
            Test::Fact(Flag::HasTtl) => asked.facts.ttl_ms.is_some(),
            Test::Fact(Flag::TokenShared) => asked.facts.token_is_shared,
            Test::Not(test) => !test.holds(asked, steps),
            Test::All(tests) => tests.iter().all(|test| test.holds(asked, steps)),
            Test::Any(tests) => tests.iter().any(|test| test.holds(asked, steps)),
            Test::Alike(alike, left, right) => (left.holds(asked, steps) == right.holds(asked, steps)) == *alike,
            Test::Numbers(order, left, right) => order.is(left.value(asked, steps).cmp(&right.value(asked, steps))),
            Test::Texts(order, left, right) => {
                let (left, right) = (left.bytes(asked, steps), right.bytes(asked, steps));
                steps.add(left.len().min(right.len()));
                order.is(left.cmp(right))
            }
            Test::NumberIn(number, list) => {
                let number = number.value(asked, steps);
                steps.add(list.len());
                list.contains(&number)
            }
            Test::TextIn(text, list) => {
                let text = text.bytes(asked, steps);
                list.iter().any(|one| {
                    steps.add(1 + one.len());
                    text == &**one
                })
            }
            Test::StartsWith(text, part) => {
                steps.add(part.len());
                text.bytes(asked, steps).starts_with(part)
            }
            Test::EndsWith(text, part) => {
                steps.add(part.len());
                text.bytes(asked, steps).ends_with(part)
            }
            Test::Contains(text, needle) => needle.end_in(text.bytes(asked, steps), steps).is_some(),
            Test::Like(text, pattern) => pattern.matches(text.bytes(asked, steps), steps),
        }
    }
}

impl Number {
    fn value(&self, asked: &Asked<'_>, steps: &mut impl Steps) -> i64 {
        steps.add(1);
        match self {
            Number::Literal(number) => *number,
            Number::Fact(quantity) => quantity.value(asked),
            Number::Size(text) => whole(text.bytes(asked, steps).len() as u64),
            Number::Minus(number) => number.value(asked, steps).saturating_neg(),
            Number::Reckoned(first, rest) => {
                rest.iter().fold(first.value(asked, steps), |so_far, (reckoning, next)| {
                    reckoning.of(so_far, next.value(asked, steps))
                })
            }
        }
    }
}

impl Quantity {
    fn value(self, asked: &Asked<'_>) -> i64 {
        let facts = asked.facts;
        match self {
            Quantity::Db => facts.db.into(),
            Quantity::Ttl => whole(facts.ttl_ms.unwrap_or(0)),
            Quantity::Attempts => facts.attempts.into(),
            Quantity::TriesApplication => facts.tries.application.into(),
            Quantity::TriesEveryone => facts.tries.everyone.into(),
            Quantity::HeldConnection => facts.held.connection.into(),
            Quantity::HeldApplication => facts.held.application.into(),
            Quantity::Remaining => whole(facts.remaining_ms),
            Quantity::TokenLength => whole(facts.token.map_or(0, |token| token.len() as u64)),
            Quantity::Hour => asked.minute.div_euclid(60).rem_euclid(24),
            Quantity::Minute => asked.minute.rem_euclid(60),
            // 1970 began on a Thursday.
            Quantity::Weekday => asked.minute.div_euclid(24 * 60).saturating_add(3).rem_euclid(7) + 1,
        }
    }
}

impl Text {
    fn bytes<'a>(&'a self, asked: &Asked<'a>, steps: &mut impl Steps) -> &'a [u8] {
        steps.add(1);
        let (facts, client) = (asked.facts, &asked.facts.client);
        let all = match self {
            Text::Literal(bytes) => return bytes,
            Text::Fact(Words::Key) => facts.key,
            Text::Fact(Words::Operation) => facts.operation.as_bytes(),
            Text::Fact(Words::TokenClass) => {
                steps.add(facts.token.map_or(0, |token| (4 * token.len()).min(CLASS_STEPS as usize)));
                class(facts.token).as_bytes()
            }
            Text::Fact(Words::ClientName) => client.name,
            Text::Fact(Words::ClientUser) => client.user,
            Text::Fact(Words::ClientAddress) => client.address,
            Text::Fact(Words::ClientCertificate) => client.certificate,
            Text::Fact(Words::ClientApplication) => client.application,
        };
        all.get(..MAX_TEXT_BYTES).unwrap_or(all)
    }
}

impl Order {
    fn is(self, found: Ordering) -> bool {
        match self {
            Order::Equal => found.is_eq(),
            Order::Unequal => found.is_ne(),
            Order::Less => found.is_lt(),
            Order::AtMost => found.is_le(),
            Order::More => found.is_gt(),
            Order::AtLeast => found.is_ge(),
        }
    }
}

impl Reckoning {
    fn of(self, left: i64, right: i64) -> i64 {
        match self {
            Reckoning::Plus => left.saturating_add(right),
            Reckoning::Minus => left.saturating_sub(right),
            Reckoning::Times => left.saturating_mul(right),
            // The parser accepts no other divisor than one above zero.
            Reckoning::Over => left.checked_div(right).unwrap_or(0),
            Reckoning::Rest => left.checked_rem(right).unwrap_or(0),
        }
    }
}

/// The nearest integer that fits.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

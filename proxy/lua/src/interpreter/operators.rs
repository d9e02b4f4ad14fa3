//! Arithmetic and comparisons. A comparison with the lock's value is what tells the holder from others.

use super::Run;
use crate::recipe::TtlUnit;
use crate::syntax::{Arithmetic, Comparison};
use crate::trace::{Claim, State};
use crate::value::{Value, exact, marker};

impl Run<'_> {
    pub(super) fn computed(&mut self, operator: Arithmetic, left: &Value, right: &Value) -> Option<Value> {
        if let (Some(left), Some(right)) = (self.whole(left), self.whole(right)) {
            return match operator {
                Arithmetic::Add => exact(left.checked_add(right)),
                Arithmetic::Subtract => exact(left.checked_sub(right)),
                // A product of zero may be Lua's -0.
                Arithmetic::Multiply if left == 0 || right == 0 => None,
                Arithmetic::Multiply => exact(left.checked_mul(right)),
                Arithmetic::Other => None,
            };
        }
        match (operator, left, right) {
            (Arithmetic::Add, Value::Left(TtlUnit::Milliseconds), more)
            | (Arithmetic::Add, more, Value::Left(TtlUnit::Milliseconds))
                if more.to_number().is_some() && self.has_ttl() == Some(true) =>
            {
                more.to_number().map(Value::LeftAnd)
            }
            (_, a, b) => {
                let open = |value: &Value| {
                    matches!(value, Value::Unknown | Value::Stored | Value::Left(_) | Value::LeftAnd(_))
                };
                let fine = |value: &Value| open(value) || value.to_number().is_some();
                (fine(a) && fine(b)).then_some(Value::Unknown)
            }
        }
    }

    /// The number that arithmetic turns a value into; a missing TTL is -1.
    fn whole(&mut self, value: &Value) -> Option<i64> {
        match value {
            Value::Left(_) if self.has_ttl() == Some(false) => Some(-1),
            other => other.to_number(),
        }
    }

    /// Whether the lock has a TTL, if the state decides that; notes that the run has asked.
    pub(super) fn has_ttl(&mut self) -> Option<bool> {
        self.asked_ttl = true;
        self.state.has_ttl()
    }

    pub(super) fn compared(&mut self, comparison: Comparison, left: &Value, right: &Value) -> Option<Value> {
        match comparison {
            Comparison::Equal => self.equal(left, right),
            Comparison::Unequal => self.equal(left, right).map(|equal| match equal {
                Value::Bool(equal) => Value::Bool(!equal),
                unknown => unknown,
            }),
            Comparison::Less => self.ordered(left, right, |a, b| a < b),
            Comparison::LessEqual => self.ordered(left, right, |a, b| a <= b),
            Comparison::Greater => self.ordered(right, left, |a, b| a < b),
            Comparison::GreaterEqual => self.ordered(right, left, |a, b| a <= b),
        }
    }

    /// `left < right` or `left <= right`. A TTL that exists is zero or more.
    fn ordered(&mut self, left: &Value, right: &Value, holds: fn(i64, i64) -> bool) -> Option<Value> {
        let (Some(a), Some(b)) = (self.least(left), self.least(right)) else {
            let open = |value: &Value| matches!(value, Value::Unknown | Value::Left(_) | Value::LeftAnd(_));
            let fine = |value: &Value| open(value) || value.number().is_some();
            return (fine(left) && fine(right)).then_some(Value::Unknown);
        };
        let holds_now = holds(a, b);
        let has_ttl = self.state.has_ttl() == Some(true);
        let grows = |value: &Value| matches!(value, Value::Left(_)) && has_ttl;
        // The result for the least TTL counts only if it is the same for every longer one.
        let sure = match (grows(left), grows(right)) {
            (false, false) => true,
            (true, false) => !holds_now,
            (false, true) => holds_now,
            (true, true) => false,
        };
        Some(match sure {
            true => Value::Bool(holds_now),
            false => Value::Unknown,
        })
    }

    /// The least number that a value can be, if that is known.
    fn least(&mut self, value: &Value) -> Option<i64> {
        match value {
            Value::Left(_) => self.has_ttl().map(|has_ttl| if has_ttl { 0 } else { -1 }),
            other => other.number(),
        }
    }

    fn equal(&mut self, left: &Value, right: &Value) -> Option<Value> {
        if left.differs_in_type(right) {
            return Some(Value::Bool(false));
        }
        match (left, right) {
            (Value::Unknown, _) | (_, Value::Unknown) => Some(Value::Unknown),
            (Value::Stored, Value::Argument(index)) | (Value::Argument(index), Value::Stored) => {
                let claim = Claim::Whole(marker(*index));
                // Two arguments may be equal in one call and differ in another.
                let other = self.claim.as_ref().is_some_and(|known| *known != claim);
                (!other).then(|| self.claimed(claim))
            }
            (left, _) if self.call.any && left.is_text() => None,
            (Value::Stored, Value::Text(text)) | (Value::Text(text), Value::Stored) => {
                Some(self.claimed(Claim::Whole(text.clone())))
            }
            (Value::StoredPrefix(length), Value::Text(text)) | (Value::Text(text), Value::StoredPrefix(length)) => {
                Some(match text.len().cmp(length) {
                    std::cmp::Ordering::Greater => Value::Bool(false),
                    std::cmp::Ordering::Equal => self.claimed(Claim::Prefix(text.clone())),
                    std::cmp::Ordering::Less => self.claimed(Claim::Whole(text.clone())),
                })
            }
            (Value::Left(_), number) | (number, Value::Left(_)) => {
                let number = number.number()?;
                Some(match (self.has_ttl(), number) {
                    (None, _) | (Some(true), 0..) => Value::Unknown,
                    (Some(true), _) => Value::Bool(false),
                    (Some(false), number) => Value::Bool(number == -1),
                })
            }
            (Value::Text(left), Value::Text(right)) => Some(Value::Bool(left == right)),
            (Value::Nil, Value::Nil) => Some(Value::Bool(true)),
            (Value::Bool(left), Value::Bool(right)) => Some(Value::Bool(left == right)),
            _ => Some(Value::Bool(left.number()? == right.number()?)),
        }
    }

    /// Whether the lock holds this. The first comparison is decided by the state; the result of a comparison with
    /// something else is unknown, unless it follows from the first.
    fn claimed(&mut self, claim: Claim) -> Value {
        let own = match self.state {
            State::Held { own, .. } => own,
            State::Foreign => return Value::Bool(false),
            State::Absent | State::OtherType => return Value::Unknown,
        };
        match &self.claim {
            None => {
                self.claim = Some(claim);
                Value::Bool(own)
            }
            Some(known) if *known == claim => Value::Bool(own),
            Some(Claim::Whole(known)) if own => Value::Bool(match &claim {
                Claim::Whole(other) => known == other,
                Claim::Prefix(prefix) => known.starts_with(prefix),
            }),
            Some(_) => Value::Unknown,
        }
    }
}

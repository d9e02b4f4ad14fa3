//! Answers that are reused without asking: those of policies that only get the kind of a question, so that an answer
//! cannot depend on anything else. Each thread has its own, by chain and policy, until the next generation.

use lockwarden_lock::decision::{Operation, Question, Traits};
use lockwarden_lock::time::AskedMs;

use crate::bindings::v1::Answer;

/// The most stored answers. A client can use as many TTLs as it likes; the oldest answer is replaced.
const MAX_KEPT: usize = 32;

/// All that such a policy gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuestionKind {
    operation: Operation,
    traits: Traits,
    ttl_ms: Option<AskedMs>,
    has_owner_token: bool,
}

impl QuestionKind {
    pub(crate) fn of(question: &Question<'_>) -> QuestionKind {
        QuestionKind {
            operation: question.operation,
            traits: question.traits,
            ttl_ms: question.ttl_ms,
            has_owner_token: question.owner_token.is_some(),
        }
    }

    /// A question that represents all of this kind.
    pub(crate) fn question(self) -> Question<'static> {
        Question {
            owner_token: self.has_owner_token.then_some(b""),
            ttl_ms: self.ttl_ms,
            traits: self.traits,
            ..Question::plain(self.operation, b"")
        }
    }
}

/// An answer, and the fuel that it used.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) kind: QuestionKind,
    pub(crate) answer: Answer,
    pub(crate) fuel: u64,
}

/// The answers of one policy of one chain.
#[derive(Default)]
pub(crate) struct KeptAnswers {
    kept: Vec<Kept>,
    /// The place of the oldest, once it is full.
    oldest: usize,
}

impl KeptAnswers {
    pub(crate) fn of(&self, kind: QuestionKind) -> Option<&Kept> {
        self.kept.iter().find(|kept| kept.kind == kind)
    }

    pub(crate) fn keep(&mut self, kept: Kept) {
        if self.kept.len() < MAX_KEPT {
            self.kept.push(kept);
            return;
        }
        self.kept[self.oldest] = kept;
        self.oldest = (self.oldest + 1) % MAX_KEPT;
    }
}

#[cfg(test)]
mod tests {
    use lockwarden_lock::decision::Obligations;

    use super::*;

    fn acquire(ttl_ms: u64) -> QuestionKind {
        QuestionKind {
            operation: Operation::Acquire,
            traits: Traits::NONE,
            ttl_ms: Some(AskedMs(ttl_ms)),
            has_owner_token: true,
        }
    }

    #[test]
    fn the_oldest_answers_make_room() {
        let mut answers = KeptAnswers::default();
        let cap = |ttl_ms| Obligations { ttl_cap_ms: Some(ttl_ms), ..Obligations::default() };
        for ttl_ms in 0..50 {
            assert!(answers.of(acquire(ttl_ms)).is_none());
            answers.keep(Kept { kind: acquire(ttl_ms), answer: Answer::Permit(cap(ttl_ms)), fuel: 0 });
        }
        for ttl_ms in 0..50 {
            let answer = answers.of(acquire(ttl_ms)).map(|kept| &kept.answer);
            let is_kept = matches!(answer, Some(Answer::Permit(wants)) if *wants == cap(ttl_ms));
            assert_eq!(is_kept, ttl_ms >= 18, "{ttl_ms}");
        }
    }

    #[test]
    fn a_question_has_the_kind_that_it_stands_for() {
        for has_owner_token in [false, true] {
            let kind = QuestionKind { has_owner_token, traits: Traits::SHARED_TOKEN, ..acquire(7) };
            assert_eq!(QuestionKind::of(&kind.question()), kind);
        }
    }
}

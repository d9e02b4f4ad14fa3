//! The rest of an answer that too few replicas have confirmed: which parts of it wait for them, and what the client is
//! told instead. Where possible it gets the native reply that it would have got if another client held the lock. If no
//! such reply is true, it gets an error like the one that Redis gives for missing replicas.

use lockwarden_lua::Reply;
use lockwarden_resp::Value;

use crate::op::{AcquireReply, Comparison, LockOp};
use crate::plan::GaveBack;
use crate::rules::{Durability, OnRepeat};
use crate::settle::Allowed;
use crate::time::RedisTime;
use crate::token::Grant;

use super::reply::{native_nothing, plain};
use super::{Answers, Outcome, Unconfirmed};

impl Answers {
    /// Whether replicas must confirm it before its client gets the reply.
    pub fn needs_replicas(&self) -> bool {
        let outcomes = self.each().iter().map(|answer| &answer.outcome);
        outcomes.into_iter().any(|outcome| matches!(outcome, Outcome::Granted(_) | Outcome::Extended { .. }))
    }

    /// When the server made the grants in it.
    pub fn granted_at(&self) -> impl Iterator<Item = RedisTime> {
        self.each().iter().filter_map(|answer| {
            let Outcome::Granted(granted) = &answer.outcome else {
                return None;
            };
            Some(granted.now)
        })
    }

    /// The leases that it began and that no client was told of before, with their places among the locks.
    pub fn new_grants(&self, locks: &[Allowed]) -> Vec<(usize, Grant)> {
        let each = self.each().iter().zip(locks).enumerate();
        each.filter_map(|(at, (answer, allowed))| {
            let Outcome::Granted(granted) = &answer.outcome else {
                return None;
            };
            let grant = match granted.again {
                // Its client may already know of that lease.
                Some(_) if allowed.rules.on_repeat == OnRepeat::Grant => return None,
                Some(again) => again,
                None => allowed.lock.grant()?,
            };
            Some((at, grant))
        })
        .collect()
    }

    /// The same answer without its grants, which too few replicas confirmed: `gave_back` contains the result for each
    /// of them, by its place.
    #[must_use]
    pub fn without_grants(mut self, gave_back: &[(usize, GaveBack)]) -> Answers {
        for (at, answer) in self.each_mut().iter_mut().enumerate() {
            if let Outcome::Granted(granted) = &answer.outcome {
                let fence = granted.fence;
                let is_over = gave_back.contains(&(at, GaveBack::Over));
                answer.outcome = Outcome::Unconfirmed(match is_over {
                    true => Unconfirmed::Grant(fence),
                    false => Unconfirmed::Left(fence),
                });
            }
        }
        self
    }

    /// The same without its extensions, for the reply: they are in force, but must not be relied on.
    #[must_use]
    pub fn without_extensions(mut self) -> Answers {
        for answer in self.each_mut() {
            if let Outcome::Extended { .. } = answer.outcome {
                answer.outcome = Outcome::Unconfirmed(Unconfirmed::Extension);
            }
        }
        self
    }

    fn each(&self) -> &[super::Answer] {
        match self {
            Answers::One(one) => std::slice::from_ref(one),
            Answers::Many(_, each) | Answers::Script(_, each, _) => each,
            Answers::Error(_) | Answers::Lacking(_) => &[],
        }
    }

    fn each_mut(&mut self) -> &mut [super::Answer] {
        match self {
            Answers::One(one) => std::slice::from_mut(one),
            Answers::Many(_, each) | Answers::Script(_, each, _) => each,
            Answers::Error(_) | Answers::Lacking(_) => &mut [],
        }
    }

    /// What too few replicas confirmed, if anything.
    pub fn unconfirmed(&self) -> Option<Unconfirmed> {
        self.each().iter().find_map(|answer| match answer.outcome {
            Outcome::Unconfirmed(what) => Some(what),
            _ => None,
        })
    }
}

/// The client's reply if another client held the lock, or its lease were over. `None` if that reply could be taken for
/// a success, or would name a holder that does not exist.
pub(super) fn native(op: &LockOp) -> Option<Value> {
    match op {
        LockOp::Acquire { reply, .. } => match reply {
            AcquireReply::Integer => Some(Value::Integer(0)),
            AcquireReply::OkOrNil => Some(Value::Null),
            // 1 means "mine".
            AcquireReply::Counter => Some(Value::Integer(2)),
            // The reply would be the holder's value, and nil means "mine".
            AcquireReply::OldValue => None,
            AcquireReply::Scripted(script) => no(&script.replies.held, &[&script.replies.granted]),
        },
        LockOp::Take { script, .. } => {
            let replies = &script.replies;
            no(&replies.different, &[&replies.granted, &replies.extended])
        }
        LockOp::AcquireAll { .. } => Some(Value::Integer(0)),
        LockOp::Store { wants_old: true, .. } => None,
        LockOp::Store { only_if_exists, comparison, .. } => match comparison {
            Some(comparison) => no_of(comparison),
            None => only_if_exists.then_some(Value::Null),
        },
        LockOp::Extend { spelling, comparison, .. } => match comparison {
            _ if spelling.answers_value() => None,
            Some(comparison) => no_of(comparison),
            None => Some(native_nothing(op)),
        },
        LockOp::Release { .. } | LockOp::ReleaseMany { .. } | LockOp::Wrapped { .. } => None,
    }
}

fn no_of(comparison: &Comparison) -> Option<Value> {
    let replies = &comparison.replies;
    no(&replies.different, &[&replies.done])
}

/// A script's reply for a lock that another client holds, if it contains nothing about the holder and differs from its
/// replies for success. If it contains how long the lock is held, a short time is given: the lock is free again.
fn no(said: &Reply, successes: &[&Reply]) -> Option<Value> {
    let is_success = |no: &Value| {
        let told = |yes: &&&Reply| match yes {
            Reply::CommandResult => *no == Value::Integer(1),
            yes => plain(yes).as_ref() == Some(no),
        };
        successes.iter().any(|yes| told(&yes))
    };
    let mut candidates = match said {
        Reply::Left(_) => vec![Value::Integer(1), Value::Integer(2)],
        said => Vec::from_iter(plain(said)),
    };
    candidates.retain(|no| !is_success(no));
    candidates.into_iter().next()
}

/// The error line if no native reply is true.
pub fn unconfirmed_line(what: Unconfirmed, wanted: Durability, is_script: bool) -> String {
    let rest = match is_script {
        true => "; what the script did to other keys stands",
        false => "",
    };
    format!("NOREPLICAS {}{rest}", unconfirmed_words(what, wanted))
}

/// Why the client was told that something was not done although it was.
pub fn unconfirmed_words(what: Unconfirmed, wanted: Durability) -> String {
    let Durability { replicas, within_ms, is_strict: _ } = wanted;
    let noun = if replicas == 1 { "replica" } else { "replicas" };
    let what = match what {
        Unconfirmed::Grant(_) => "the lock was given back",
        Unconfirmed::Left(_) => "the lock is nobody's and goes by its TTL",
        Unconfirmed::Extension => "the lock counts as not extended",
    };
    format!("{what}: fewer than {replicas} {noun} confirmed it within {within_ms} ms")
}

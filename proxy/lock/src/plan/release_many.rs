//! Releasing several locks, and removing the other keys of the command.

use bytes::Bytes;

use super::proofs::{Claim, ProofArguments};
use super::step::Step;
use super::{Plan, Planning};
use crate::rules::{Mode, OnViolation};
use crate::scripts;
use crate::settle::Allowed;

pub(super) fn plan(planning: &Planning<'_>, locks: &[Allowed], others: &[Bytes], unlink: bool) -> Plan {
    let others: Vec<&[u8]> = others.iter().map(|key| &key[..]).collect();
    let mut step = Step::new(&planning.keys, planning.companion_prefix, &others);
    step.bytes(if unlink { b"UNLINK" } else { b"DEL" });
    step.number(planning.keys.len() as u64);
    let is_strict = |allowed: &Allowed| allowed.rules.on_violation == OnViolation::Error;
    let strict = locks.iter().any(is_strict);
    step.letters(&[(strict, b'1')]);
    for lock in locks {
        // A command may name locks of several namespaces: each lock is judged by its own mode.
        let monitor = lock.rules.mode == Mode::Monitor;
        let proofs = ProofArguments::of(lock, planning.who, &Claim::None, monitor);
        step.flags(&proofs.flags, &[]);
        step.bytes(&proofs.own);
        step.bytes(&proofs.seen_grant);
        step.bytes(&proofs.seen);
        step.who(planning.who, &lock.rules);
    }
    step.done(&scripts::RELEASE_MANY)
}

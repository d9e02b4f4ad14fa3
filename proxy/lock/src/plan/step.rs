//! A step's keys and arguments as bulk strings, written once: the same bytes serve EVALSHA and EVAL.

use bytes::{Bytes, BytesMut};
use lockwarden_resp::put_bulk;
use smallvec::SmallVec;

use super::proofs::ProofArguments;
use super::{Plan, Who, keeps_alive, outlive_ms};
use crate::companion::companion_key;
use crate::decision::Fence;
use crate::op::AskedTtl;
use crate::scripts::Script;
use crate::settle::Allowed;
use crate::token::Grant;

/// The keys and arguments of a step, written as they will be sent.
pub(super) struct Step {
    out: BytesMut,
    words: usize,
}

impl Step {
    /// Begins with the keys: each lock and its companion, then the others.
    pub(super) fn new(locks: &[impl AsRef<[u8]>], prefix: &[u8], others: &[&[u8]]) -> Step {
        let mut step = Step {
            out: BytesMut::with_capacity(512),
            words: 0,
        };
        step.number((locks.len() * 2 + others.len()) as u64);
        for lock in locks {
            step.bytes(lock.as_ref());
            step.bytes(&companion_key(prefix, lock.as_ref()));
        }
        for key in others {
            step.bytes(key);
        }
        step
    }

    pub(super) fn bytes(&mut self, word: &[u8]) {
        put_bulk(&mut self.out, word);
        self.words += 1;
    }

    pub(super) fn number(&mut self, number: u64) {
        let mut digits = Digits::new();
        self.bytes(digits.of(number));
    }

    pub(super) fn signed(&mut self, sign: &[u8], number: i64) {
        let mut word: SmallVec<[u8; 24]> = SmallVec::from_slice(sign);
        if number < 0 {
            word.push(b'-');
        }
        word.extend_from_slice(Digits::new().of(number.unsigned_abs()));
        self.bytes(&word);
    }

    pub(super) fn letters(&mut self, letters: &[(bool, u8)]) {
        self.flags(&[], letters);
    }

    pub(super) fn flags(&mut self, flags: &[u8], more: &[(bool, u8)]) {
        let mut word: SmallVec<[u8; 24]> = SmallVec::from_slice(flags);
        word.extend(
            more.iter()
                .filter(|(set, _)| *set)
                .map(|(_, letter)| *letter),
        );
        self.bytes(&word);
    }

    pub(super) fn words(&mut self, words: &[Bytes]) {
        for word in words {
            self.bytes(word);
        }
    }

    pub(super) fn who(&mut self, who: &Who) {
        let mut word = [0; 32];
        word[..16].copy_from_slice(&who.session.0);
        word[16..].copy_from_slice(&who.identity.0);
        self.bytes(&word);
    }

    pub(super) fn proofs(&mut self, proofs: &ProofArguments, who: &Who) {
        self.bytes(&proofs.own);
        self.bytes(&proofs.claim);
        self.bytes(&proofs.seen_grant);
        self.bytes(&proofs.seen);
        self.who(who);
    }

    /// The ten arguments of a lease that may be granted.
    pub(super) fn lease(
        &mut self,
        value: &Bytes,
        ttl: AskedTtl,
        grant: Grant,
        who: &Who,
        allowed: &Allowed,
    ) {
        let obligations = &allowed.obligations;
        self.bytes(value);
        let mut head = [0; 48];
        head[..16].copy_from_slice(&grant.0);
        head[16..32].copy_from_slice(&who.session.0);
        head[32..].copy_from_slice(&who.identity.0);
        self.bytes(&head);
        self.number(if who.distinctive { 8 } else { 0 });
        self.bytes(match obligations.fence {
            Fence::None => b"n",
            Fence::Hybrid => b"h",
            Fence::Sequential => b"s",
        });
        match ttl {
            AskedTtl::None | AskedTtl::Keep => self.bytes(b""),
            AskedTtl::For(ms) => self.signed(b"", ms),
            AskedTtl::Until(at) => self.signed(b"@", at),
        }
        self.number(obligations.ttl_default_ms.unwrap_or(0));
        self.number(obligations.ttl_cap_ms.unwrap_or(0));
        self.bytes(if keeps_alive(allowed) { b"1" } else { b"0" });
        self.number(outlive_ms(obligations));
        let stored = crate::token::stored_form(value);
        self.bytes(if stored == *value { b"" } else { &stored });
    }

    pub(super) fn done(self, script: &'static Script, grants: SmallVec<[Grant; 1]>) -> Plan {
        Plan {
            script,
            tail: self.out.freeze(),
            words: self.words,
            grants,
        }
    }
}

/// Decimal digits without an allocation.
struct Digits([u8; 20]);

impl Digits {
    pub(super) fn new() -> Digits {
        Digits([0; 20])
    }

    pub(super) fn of(&mut self, mut number: u64) -> &[u8] {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.0[at..];
            }
        }
    }
}

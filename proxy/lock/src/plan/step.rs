//! A step's keys and arguments as bulk strings, written once: EVALSHA and EVAL use the same bytes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockwarden_resp::put_bulk;
use smallvec::SmallVec;

use super::extend::is_lenient;
use super::lease::{LeaseTtl, debt_ms, keep_and_grace, outlive_ms};
use super::proofs::ProofArguments;
use super::{Plan, Text, Who};
use crate::companion::{companion_in, companion_key, slot};
use crate::data_guard::{ScriptData, Unlocked};
use crate::decision::Fence;
use crate::op::{AskedTtl, ExpireCondition, KeyPlace, Target};
use crate::record::{DISTINCTIVE, KEPT, MS, NO_FLAGS};
use crate::rules::{Released, Rules};
use crate::script_facts::{Envelope, ScriptFacts};
use crate::scripts::{self, Script};
use crate::settle::{Allowed, Terms};
use crate::token::Grant;

/// The keys and arguments of a step, in their wire form.
pub(super) struct Step {
    out: BytesMut,
    words: usize,
    one_lock: Option<[usize; 3]>,
}

impl Step {
    /// Begins with the keys: each lock and its companion, then the others.
    pub(super) fn new(locks: &[impl AsRef<[u8]>], prefix: &[u8], others: &[&[u8]]) -> Step {
        let mut step = Step { out: BytesMut::with_capacity(512), words: 0, one_lock: None };
        step.number((locks.len() * 2 + others.len()) as u64);
        let mut ends = [step.out.len(); 3];
        for lock in locks {
            step.bytes(lock.as_ref());
            ends[1] = step.out.len();
            step.bytes(&companion_key(prefix, lock.as_ref()));
            ends[2] = step.out.len();
        }
        if locks.len() == 1 && others.is_empty() {
            step.one_lock = Some(ends);
        }
        for key in others {
            step.bytes(key);
        }
        step
    }

    /// An empty step.
    pub(super) fn empty() -> Step {
        Step { out: BytesMut::with_capacity(256), words: 0, one_lock: None }
    }

    /// Begins with the keys that an application's script names, and the companions of the locks among them. A
    /// placeholder for locks that are only known when the script runs has no slot of its own: all keys of a script must
    /// be in one slot.
    pub(super) fn wrapping(keys: &[&[u8]], locks: &[&[u8]], places: &[(Target, KeyPlace)], prefix: &[u8]) -> Step {
        let mut step = Step { out: BytesMut::with_capacity(1024), words: 0, one_lock: None };
        step.number((keys.len() + locks.len()) as u64);
        for key in keys {
            step.bytes(key);
        }
        for (lock, (_, place)) in locks.iter().zip(places) {
            let home = keys.first().filter(|_| *place == KeyPlace::ANY).unwrap_or(lock);
            step.bytes(&companion_in(slot(home), prefix, lock));
        }
        step
    }

    /// The number of words.
    pub(super) fn count(&self) -> usize {
        self.words
    }

    pub(super) fn bytes(&mut self, word: &[u8]) {
        put_bulk(&mut self.out, word);
        self.words += 1;
    }

    pub(super) fn number(&mut self, number: u64) {
        let mut digits = Digits::new();
        self.bytes(digits.of(number));
    }

    pub(super) fn letters(&mut self, letters: &[(bool, u8)]) {
        self.flags(&[], letters);
    }

    pub(super) fn flags(&mut self, flags: &[u8], more: &[(bool, u8)]) {
        let mut word: SmallVec<[u8; 24]> = SmallVec::from_slice(flags);
        word.extend(more.iter().filter(|(set, _)| *set).map(|(_, letter)| *letter));
        self.bytes(&word);
    }

    pub(super) fn words(&mut self, words: &[Bytes]) {
        for word in words {
            self.bytes(word);
        }
    }

    /// Session, identity and the rules.
    pub(super) fn who(&mut self, who: &Who, rules: &Rules) {
        let mut word = [0; 40];
        word[..16].copy_from_slice(&who.session.0);
        word[16..32].copy_from_slice(&who.identity(rules).0);
        word[32..].copy_from_slice(&rules.tag.0);
        self.bytes(&word);
    }

    pub(super) fn proofs(&mut self, proofs: &ProofArguments, who: &Who, allowed: &Allowed) {
        self.bytes(&proofs.own);
        self.bytes(&proofs.claim);
        let identity = who.identity(&allowed.rules);
        let mut word: SmallVec<[u8; 128]> = SmallVec::from_slice(&who.session.0);
        word.extend_from_slice(&identity.0);
        word.extend_from_slice(&allowed.rules.tag.0);
        word.extend_from_slice(&proofs.seen_grant);
        word.extend_from_slice(&proofs.seen);
        self.bytes(&word);
    }

    /// A command with one key, without the key.
    pub(super) fn words_around_the_key(&mut self, words: &[Bytes]) {
        for (at, word) in words.iter().enumerate() {
            if at != 1 {
                self.bytes(word);
            }
        }
    }

    /// The first six arguments of acquire.lua. `lease` is `None` if Redis's clock is needed.
    pub(super) fn new_lease(
        &mut self,
        value: &Bytes,
        lease: Option<LeaseTtl>,
        grant: Grant,
        who: &Who,
        allowed: &Allowed,
    ) {
        self.bytes(value);
        let kept = match lease {
            Some(LeaseTtl { kept: true, .. }) => KEPT,
            Some(_) | None => 0,
        };
        let mut front: SmallVec<[u8; 64]> = SmallVec::from_slice(b"1L");
        front.push(NO_FLAGS + distinctive(who, allowed) + kept);
        front.extend_from_slice(&grant.0);
        front.extend_from_slice(&who.session.0);
        front.extend_from_slice(&who.identity(&allowed.rules).0);
        self.bytes(&front);
        match lease {
            Some(lease) => self.lease_ttl(lease),
            None => {
                self.bytes(b"@");
                self.bytes(b"");
                self.bytes(b"");
            }
        }
        self.fence(allowed);
    }

    /// How a new lease is numbered.
    fn fence(&mut self, allowed: &Allowed) {
        let mut word: SmallVec<[u8; 24]> = SmallVec::new();
        word.push(match allowed.obligations.fence {
            Fence::None => b'n',
            Fence::Sequential => b's',
            Fence::Hybrid => b'h',
        });
        if allowed.obligations.fence == Fence::Hybrid {
            if allowed.rules.tokens_ahead_ms > 0 {
                word.extend_from_slice(Digits::new().of(allowed.rules.tokens_ahead_ms.saturating_mul(1_000)));
            }
            if allowed.rules.released == Released::Forget {
                word.push(b'f');
            }
        }
        self.bytes(&word);
    }

    /// The eighth argument of acquire.lua.
    pub(super) fn seldom_needed(&mut self, lease: Option<LeaseTtl>, ttl: AskedTtl, adopted_ms: u64, allowed: &Allowed) {
        let mut word: SmallVec<[u8; 96]> = SmallVec::new();
        // Arguments that are seldom needed share one word: each word costs Redis time, even if the script never reads
        // it.
        word.extend_from_slice(&allowed.rules.tag.0);
        put_number(&mut word, debt_ms(allowed));
        word.push(b' ');
        put_number(&mut word, adopted_ms);
        if lease.is_none() {
            let obligations = &allowed.obligations;
            word.push(b' ');
            put_asked(&mut word, ttl);
            for number in [obligations.ttl_default_ms, obligations.ttl_cap_ms] {
                word.push(b' ');
                put_number(&mut word, number.unwrap_or(0));
            }
            put_keep_and_outlive(&mut word, allowed);
        }
        self.bytes(&word);
    }

    /// Arguments 5 to 7 of extend.lua. `usual` is `None` if more than a TTL is needed.
    pub(super) fn extended_lease(
        &mut self,
        usual: Option<LeaseTtl>,
        ttl: AskedTtl,
        condition: ExpireCondition,
        max_hold_ms: u64,
        allowed: &Allowed,
    ) {
        if let Some(lease) = usual {
            self.lease_ttl(lease);
            return;
        }
        let mut word: SmallVec<[u8; 96]> = SmallVec::new();
        put_asked(&mut word, ttl);
        word.push(b' ');
        put_number(&mut word, allowed.obligations.ttl_cap_ms.unwrap_or(0));
        put_keep_and_outlive(&mut word, allowed);
        word.push(b' ');
        word.extend_from_slice(condition.word().as_bytes());
        word.push(b' ');
        put_number(&mut word, max_hold_ms);
        self.bytes(&word);
        self.bytes(b"");
        self.bytes(b"");
    }

    /// A lease's TTL, the requested TTL in the record's form, and its record's TTL.
    fn lease_ttl(&mut self, lease: LeaseTtl) {
        self.number(lease.ttl_ms.0);
        // As many digits as in the record, so that the script only copies them.
        let mut asked = [b'0'; MS];
        let mut digits = Digits::new();
        let digits = digits.of(lease.asked_ms.0);
        asked[MS - digits.len()..].copy_from_slice(digits);
        self.bytes(&asked);
        self.number(lease.companion_ms);
    }

    /// The ten arguments of a lease that may be granted.
    pub(super) fn lease(&mut self, value: &Bytes, ttl: AskedTtl, grant: Grant, who: &Who, allowed: &Allowed) {
        self.bytes(value);
        self.grant(grant, who, allowed);
        match ttl {
            AskedTtl::None | AskedTtl::Keep | AskedTtl::Further(_) => self.bytes(b""),
            AskedTtl::For(_) | AskedTtl::Until(_) => {
                let mut word: SmallVec<[u8; 96]> = SmallVec::new();
                put_asked(&mut word, ttl);
                self.bytes(&word);
            }
        }
        self.terms(allowed);
        let stored = crate::token::stored_form(value);
        self.bytes(if *stored == value[..] { b"" } else { &stored });
    }

    /// The arguments of wrap.lua for one lock: 17.
    pub(super) fn script_lock(&mut self, place: KeyPlace, grant: Grant, allowed: &Allowed, who: &Who, monitor: bool) {
        let nothing;
        let terms = match &allowed.terms {
            Some(terms) => &**terms,
            None => {
                nothing = Terms::nothing();
                &nothing
            }
        };
        let release = ProofArguments::of_script(&terms.release.0, allowed, who, monitor);
        let extend = ProofArguments::of_script(&terms.extend.0, allowed, who, monitor);
        let lenient = is_lenient(&terms.extend.0, &allowed.lock.facts);
        match place {
            // The number of the namespace, by which the guard recognises its locks.
            KeyPlace::ANY => self.bytes(format!("n{}", allowed.lock.target.namespace.0).as_bytes()),
            KeyPlace(place) => self.number(place as u64),
        }
        self.flags(&release.flags, &[]);
        self.flags(&extend.flags, &[(lenient, b'e')]);
        self.bytes(&release.own);
        self.bytes(&release.seen_grant);
        self.bytes(&release.seen);
        self.grant(grant, who, allowed);
        self.terms(allowed);
        self.number(allowed.obligations.max_hold_ms.unwrap_or(0));
        for denial in [&terms.acquire, &terms.extend.1, &terms.release.1] {
            let reason = denial.as_ref().map_or("", |denial| denial.reason.word());
            self.bytes(reason.as_bytes());
        }
    }

    /// The arguments of wrap.lua for guarded data: three words, and four for each of its locks.
    pub(super) fn script_data(&mut self, data: &ScriptData, who: &Who, prefix: &[u8]) {
        self.bytes(&data.guarded.key);
        self.letters(&[(data.enforced, b'e'), (data.unlocked == Unlocked::Allow, b'u'), (data.by_identity, b'i')]);
        self.number(data.guarded.locks.len() as u64);
        for (lock, (own, rules)) in data.guarded.locks.iter().zip(&data.writers) {
            self.bytes(&companion_key(prefix, lock));
            self.bytes(own.as_ref().map_or(&[], |grant| &grant.0[..]));
            let identity = rules.map_or(who.client, |rules| who.identity(&rules));
            self.bytes(&[who.session.0, identity.0].concat());
            let is_distinctive = rules.is_some_and(|rules| who.is_distinctive(&rules));
            self.letters(&[(is_distinctive, b'D')]);
        }
    }

    /// The contents of a new lease's record: its beginning, the rules and the lifetime of a debt; flag bits; fence.
    fn grant(&mut self, grant: Grant, who: &Who, allowed: &Allowed) {
        let identity = who.identity(&allowed.rules);
        let mut head: SmallVec<[u8; 128]> = SmallVec::from_slice(&grant.0);
        head.extend_from_slice(&who.session.0);
        head.extend_from_slice(&identity.0);
        head.extend_from_slice(&allowed.rules.tag.0);
        head.extend_from_slice(Digits::new().of(debt_ms(allowed)));
        self.bytes(&head);
        self.number(distinctive(who, allowed).into());
        self.fence(allowed);
    }

    /// The default TTL, the longest TTL, which of them have keep-alive together with the grace, and how much longer the
    /// companion lives.
    fn terms(&mut self, allowed: &Allowed) {
        let obligations = &allowed.obligations;
        self.number(obligations.ttl_default_ms.unwrap_or(0));
        self.number(obligations.ttl_cap_ms.unwrap_or(0));
        self.bytes(&keep_and_grace(allowed));
        self.number(outlive_ms(allowed).0);
    }

    pub(super) fn done_enveloped(self, script: Arc<ScriptFacts>, envelope: Envelope) -> Plan {
        Plan {
            text: Text::Enveloped(script, envelope),
            tail: self.out.freeze(),
            words: self.words,
            one_lock: None,
            checked: None,
            only_reads: false,
        }
    }

    pub(super) fn done_question(self, question: &'static scripts::Text) -> Plan {
        Plan { text: Text::Question(question), ..self.done(&scripts::RENEW) }
    }

    pub(super) fn done(self, script: &'static Script) -> Plan {
        Plan {
            text: Text::Own(script),
            tail: self.out.freeze(),
            words: self.words,
            one_lock: self.one_lock,
            checked: None,
            only_reads: false,
        }
    }
}

/// The bit of a record for an identity that is distinctive.
fn distinctive(who: &Who, allowed: &Allowed) -> u8 {
    match who.is_distinctive(&allowed.rules) {
        true => DISTINCTIVE,
        false => 0,
    }
}

/// The requested TTL: `-` no TTL, `@` a point in time, `+` an addition.
fn put_asked(word: &mut SmallVec<[u8; 96]>, ttl: AskedTtl) {
    let (mark, number): (&[u8], _) = match ttl {
        AskedTtl::None | AskedTtl::Keep => {
            word.push(b'-');
            return;
        }
        AskedTtl::For(ms) => (b"", ms),
        AskedTtl::Until(at) => (b"@", at),
        AskedTtl::Further(ms) => (b"+", ms),
    };
    word.extend_from_slice(mark);
    if number < 0 {
        word.push(b'-');
    }
    put_number(word, number.unsigned_abs());
}

/// Which TTLs have keep-alive, the grace, and how much longer than its lease a companion lives.
fn put_keep_and_outlive(word: &mut SmallVec<[u8; 96]>, allowed: &Allowed) {
    word.push(b' ');
    word.extend_from_slice(&keep_and_grace(allowed));
    word.push(b' ');
    put_number(word, outlive_ms(allowed).0);
}

fn put_number(word: &mut SmallVec<[u8; 96]>, number: u64) {
    word.extend_from_slice(Digits::new().of(number));
}

/// Decimal digits without an allocation.
pub(super) struct Digits([u8; 20]);

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

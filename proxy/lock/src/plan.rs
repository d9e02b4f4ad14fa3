//! From a permitted command to the one atomic step that carries it out: which script, with which
//! keys and arguments. The order of arguments is the contract on top of each `.lua` file.

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::companion::companion_key;
use crate::decision::{Fence, Obligations, Proofs, TakeOverRule};
use crate::evidence::Facts;
use crate::op::{AskedTtl, LockOp, ReleaseSpelling};
use crate::scripts::{self, Script};
use crate::settle::{Adopt, Allowed, Mode, OnViolation, Permitted};
use crate::token::{Grant, Identity, OwnerToken, SessionId};

/// A companion outlives its lease by so many ceilings, but at least ten minutes.
const OUTLIVE_CEILINGS: u64 = 10;
const OUTLIVE_AT_LEAST_MS: u64 = 600_000;
/// A sequential counter has no clock to fall back on, so its companion lives a day longer.
const OUTLIVE_SEQUENTIAL_MS: u64 = 86_400_000;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The connection.
    pub session: SessionId,
    /// The client.
    pub identity: Identity,
    /// Whether the identity can be told from other clients'.
    pub distinctive: bool,
}

/// How a script is named on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `EVALSHA`: short; the server may not know it yet.
    Sha,
    /// `EVAL`: the text itself, as inside MULTI, where an unknown name would surface too late.
    Text,
}

/// One atomic step, ready to be sent.
#[derive(Clone, Debug)]
pub struct Plan {
    script: &'static Script,
    /// The number of keys, the keys and the arguments as bulk strings.
    tail: Bytes,
    words: usize,
    grants: SmallVec<[Grant; 1]>,
}

impl Plan {
    /// The script.
    pub fn script(&self) -> &'static Script {
        self.script
    }

    /// The names drawn for the leases that the step may grant, one a lock.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Writes the request.
    pub fn put(&self, out: &mut BytesMut, form: Form) {
        let (command, script) = match form {
            Form::Sha => ("EVALSHA", self.script.sha()),
            Form::Text => ("EVAL", self.script.text()),
        };
        out.reserve(script.len() + self.tail.len() + 64);
        put_line(out, b'*', self.words + 2);
        put_bulk(out, command.as_bytes());
        put_bulk(out, script.as_bytes());
        out.put_slice(&self.tail);
    }
}

/// What keep-alive needs to renew a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The lock key.
    pub lock: Bytes,
    /// The lease.
    pub grant: Grant,
    /// The TTL that each renewal gives, ms.
    pub ttl_ms: u64,
    /// The age up to which an invented TTL is renewed, ms.
    pub keep_alive_ms: u64,
    /// How much longer the companion lives, ms.
    pub outlive_ms: u64,
}

impl Renewal {
    /// The step that renews it.
    pub fn plan(&self, companion_prefix: &[u8]) -> Plan {
        let mut step = Step::new(&[&self.lock], companion_prefix, &[]);
        step.bytes(&self.grant.0);
        step.number(self.ttl_ms);
        step.number(self.keep_alive_ms);
        step.number(self.outlive_ms);
        step.done(&scripts::RENEW, SmallVec::new())
    }
}

/// The step that notices that a lease ran out unreleased.
pub fn notice(lock: &[u8], grant: Grant, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&grant.0);
    step.done(&scripts::NOTICE, SmallVec::new())
}

/// How much longer than its lease a companion lives, ms.
pub fn outlive_ms(obligations: &Obligations) -> u64 {
    let ceiling = obligations
        .ttl_cap_ms
        .or(obligations.ttl_default_ms)
        .unwrap_or(0);
    let outlive = ceiling
        .saturating_mul(OUTLIVE_CEILINGS)
        .max(OUTLIVE_AT_LEAST_MS);
    match obligations.fence {
        Fence::Sequential => outlive.max(OUTLIVE_SEQUENTIAL_MS),
        Fence::None | Fence::Hybrid => outlive,
    }
}

/// Plans a permitted command. `facts` has one entry a lock; `draw` gives random names for leases.
pub fn plan(
    permitted: &Permitted,
    facts: &[Facts],
    who: &Who,
    companion_prefix: &[u8],
    draw: &mut dyn FnMut() -> Grant,
) -> Plan {
    let command = permitted.command();
    let targets = command.op.targets();
    let locks: SmallVec<[&[u8]; 2]> = targets.iter().map(|target| &target.key[..]).collect();
    let (allowed, known) = (&permitted.allowed()[0], &facts[0]);
    let monitor = !permitted.enforces();
    match &command.op {
        LockOp::Acquire {
            value, ttl, reply, ..
        } => {
            let mut step = Step::new(&locks, companion_prefix, &[]);
            let grant = draw();
            step.lease(value, *ttl, grant, who, allowed);
            step.number(adopted_ttl(allowed));
            let wants_old = *reply == crate::op::AcquireReply::OldValue;
            step.letters(&[(monitor, b'm'), (wants_old, b'g')]);
            step.words(&command.argv);
            step.done(&scripts::ACQUIRE, SmallVec::from_slice(&[grant]))
        }
        LockOp::AcquireAll { locks: pairs } => {
            let mut step = Step::new(&locks, companion_prefix, &[]);
            step.letters(&[(monitor, b'm')]);
            step.number(10 * pairs.len() as u64);
            let mut grants = SmallVec::with_capacity(pairs.len());
            for ((_, value), allowed) in pairs.iter().zip(permitted.allowed()) {
                let grant = draw();
                step.lease(value, AskedTtl::None, grant, who, allowed);
                grants.push(grant);
            }
            step.words(&command.argv);
            step.done(&scripts::ACQUIRE_ALL, grants)
        }
        LockOp::Store {
            value,
            ttl,
            only_if_exists,
            wants_old,
            ..
        } => {
            let mut step = Step::new(&locks, companion_prefix, &[]);
            let grant = draw();
            let keeps = *ttl == AskedTtl::Keep;
            let asked = if keeps { AskedTtl::None } else { *ttl };
            step.lease(value, asked, grant, who, allowed);
            step.number(adopted_ttl(allowed));
            let claim = Claim::Stored(OwnerToken::new(value.clone()));
            let proofs = ProofArguments::of(allowed, known, who, &claim, monitor);
            let may_take_over = allowed.obligations.take_over == Some(TakeOverRule::AfterDeadline);
            step.flags(
                &proofs.flags,
                &[
                    (*only_if_exists, b'X'),
                    (keeps, b'K'),
                    (*wants_old, b'g'),
                    (may_take_over, b'd'),
                ],
            );
            step.bytes(&proofs.own);
            step.bytes(&proofs.claim);
            step.bytes(&proofs.seen_grant);
            // A value read before counts here even where it proves nothing: see the loser's row of
            // the take-over table.
            step.bytes(known.seen.as_ref().map_or(&[][..], |seen| &seen.stored));
            step.who(who);
            step.number(allowed.obligations.max_hold_ms.unwrap_or(0));
            step.words(&command.argv);
            step.done(&scripts::STORE, SmallVec::from_slice(&[grant]))
        }
        LockOp::Extend {
            ttl,
            condition,
            spelling,
            comparison,
            ..
        } => {
            let mut step = Step::new(&locks, companion_prefix, &[]);
            let claim = comparison
                .as_ref()
                .map_or(Claim::None, |c| Claim::Compared(c.claim.clone()));
            let proofs = ProofArguments::of(allowed, known, who, &claim, monitor);
            let lenient = comparison.is_none() && is_lenient(allowed, known);
            let wants_value = spelling.answers_value();
            step.flags(&proofs.flags, &[(wants_value, b'g'), (lenient, b'e')]);
            step.proofs(&proofs, who);
            match ttl {
                AskedTtl::None | AskedTtl::Keep => step.bytes(b""),
                AskedTtl::For(ms) => step.signed(b"", *ms),
                AskedTtl::Until(at) => step.signed(b"@", *at),
            }
            step.number(allowed.obligations.ttl_cap_ms.unwrap_or(0));
            step.letters(&[(true, if keeps_alive(allowed) { b'1' } else { b'0' })]);
            step.number(outlive_ms(&allowed.obligations));
            step.bytes(condition.word().as_bytes());
            step.number(allowed.obligations.max_hold_ms.unwrap_or(0));
            step.words(comparison.as_ref().map_or(&command.argv, |c| &c.then));
            step.done(&scripts::EXTEND, SmallVec::new())
        }
        LockOp::Release {
            spelling,
            comparison,
            ..
        } => {
            let mut step = Step::new(&locks, companion_prefix, &[]);
            let claim = comparison
                .as_ref()
                .map_or(Claim::None, |c| Claim::Compared(c.claim.clone()));
            let proofs = ProofArguments::of(allowed, known, who, &claim, monitor);
            step.flags(
                &proofs.flags,
                &[(*spelling == ReleaseSpelling::GetDel, b'g')],
            );
            step.proofs(&proofs, who);
            step.words(comparison.as_ref().map_or(&command.argv, |c| &c.then));
            step.done(&scripts::RELEASE, SmallVec::new())
        }
        LockOp::ReleaseMany { others, unlink, .. } => {
            let others: Vec<&[u8]> = others.iter().map(|key| &key[..]).collect();
            let mut step = Step::new(&locks, companion_prefix, &others);
            step.bytes(if *unlink { b"UNLINK" } else { b"DEL" });
            step.number(locks.len() as u64);
            step.who(who);
            let strict = permitted
                .allowed()
                .iter()
                .any(|allowed| allowed.rules.on_violation == OnViolation::Error);
            step.letters(&[(strict, b'1')]);
            for (allowed, known) in permitted.allowed().iter().zip(facts) {
                let monitor = allowed.rules.mode == Mode::Monitor;
                let proofs = ProofArguments::of(allowed, known, who, &Claim::None, monitor);
                step.flags(&proofs.flags, &[]);
                step.bytes(&proofs.own);
                step.bytes(&proofs.seen_grant);
                step.bytes(&proofs.seen);
            }
            step.done(&scripts::RELEASE_MANY, SmallVec::new())
        }
        // `settle` never permits one; planned as a step that reads and changes nothing.
        LockOp::Opaque { .. } => {
            let mut step = Step::new(&locks, companion_prefix, &[]);
            for _ in 0..4 {
                step.bytes(b"");
            }
            step.done(&scripts::RENEW, SmallVec::new())
        }
    }
}

/// Whether an equal identity that is not distinctive may extend: where identity counts at all, and
/// nothing tells that the connection is not the holder's.
fn is_lenient(allowed: &Allowed, facts: &Facts) -> bool {
    let counts = allowed
        .obligations
        .require
        .is_some_and(|required| required.contains(Proofs::IDENTITY));
    let lapsed = facts.own.as_ref().is_some_and(|own| own.lapsed.is_some());
    counts && !facts.refused_since && !lapsed
}

fn keeps_alive(allowed: &Allowed) -> bool {
    allowed.obligations.keep_alive_ms.is_some_and(|age| age > 0)
}

fn adopted_ttl(allowed: &Allowed) -> u64 {
    match (allowed.rules.adopt, allowed.rules.mode) {
        (Adopt::Cap, Mode::Enforce) => allowed.obligations.ttl_cap_ms.unwrap_or(0),
        (Adopt::Cap, Mode::Monitor) | (Adopt::Report, _) => 0,
    }
}

/// A value that a command carries.
enum Claim {
    None,
    /// It is to be stored; the same distinctive value proves the holder.
    Stored(OwnerToken),
    /// The command compares it itself.
    Compared(OwnerToken),
}

/// The arguments about proofs, as far as they can be told from this side.
struct ProofArguments {
    flags: SmallVec<[u8; 16]>,
    own: SmallVec<[u8; 16]>,
    claim: Bytes,
    seen_grant: SmallVec<[u8; 16]>,
    seen: Bytes,
}

impl ProofArguments {
    fn of(
        allowed: &Allowed,
        facts: &Facts,
        who: &Who,
        claim: &Claim,
        monitor: bool,
    ) -> ProofArguments {
        let mut flags: SmallVec<[u8; 16]> = SmallVec::new();
        let obligations = &allowed.obligations;
        let required = obligations.require;
        let counts = |proof| required.is_some_and(|required| required.contains(proof));
        let own = facts.own.as_ref();
        let mut set = |condition: bool, letter: u8| {
            if condition {
                flags.push(letter);
            }
        };
        set(monitor, b'm');
        set(required.is_some(), b'r');
        set(counts(Proofs::SESSION), b's');
        set(counts(Proofs::IDENTITY) && who.distinctive, b'i');
        set(obligations.current_fence_only, b'f');
        set(own.is_some_and(|own| own.lapsed.is_some()), b'l');
        set(own.is_none() && !facts.queued.is_empty(), b'n');

        let (token, compared) = match claim {
            Claim::None => (None, false),
            Claim::Stored(token) => (Some(token), false),
            Claim::Compared(token) => (Some(token), true),
        };
        set(compared, b'c');
        set(!compared && !facts.refused_since, b'k');
        let stored = token.map(OwnerToken::stored_form).unwrap_or_default();
        if let Some(token) = token.filter(|_| counts(Proofs::TOKEN)) {
            let distinctive = token.is_distinctive();
            set(distinctive || (compared && !facts.refused_since), b't');
            set(
                !distinctive && own.is_some_and(|own| own.stored == stored),
                b'v',
            );
        }

        let mut seen_grant = SmallVec::new();
        let mut seen_value = Bytes::new();
        if let Some(seen) = facts.seen.as_ref().filter(|_| counts(Proofs::OBSERVED)) {
            let sure = seen.distinctive || seen.watched;
            let may_take_over = obligations.take_over != Some(TakeOverRule::Never);
            let by_deadline = !sure && seen.deadline && may_take_over;
            if let Some(grant) = seen.grant.filter(|_| sure || by_deadline) {
                set(true, b'o');
                set(by_deadline, b'x');
                seen_grant.extend_from_slice(&grant.0);
                seen_value = seen.stored.clone();
            }
        }
        let mut grants = SmallVec::new();
        for grant in own.map(|own| &own.grant).into_iter().chain(&facts.queued) {
            grants.extend_from_slice(&grant.0);
        }
        ProofArguments {
            flags,
            own: grants,
            claim: stored,
            seen_grant,
            seen: seen_value,
        }
    }
}

/// The keys and arguments of a step, written as they will be sent.
struct Step {
    out: BytesMut,
    words: usize,
}

impl Step {
    /// Begins with the keys: each lock and its companion, then the others.
    fn new(locks: &[impl AsRef<[u8]>], prefix: &[u8], others: &[&[u8]]) -> Step {
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

    fn bytes(&mut self, word: &[u8]) {
        put_bulk(&mut self.out, word);
        self.words += 1;
    }

    fn number(&mut self, number: u64) {
        let mut digits = Digits::new();
        self.bytes(digits.of(number));
    }

    fn signed(&mut self, sign: &[u8], number: i64) {
        let mut word: SmallVec<[u8; 24]> = SmallVec::from_slice(sign);
        if number < 0 {
            word.push(b'-');
        }
        word.extend_from_slice(Digits::new().of(number.unsigned_abs()));
        self.bytes(&word);
    }

    fn letters(&mut self, letters: &[(bool, u8)]) {
        self.flags(&[], letters);
    }

    fn flags(&mut self, flags: &[u8], more: &[(bool, u8)]) {
        let mut word: SmallVec<[u8; 24]> = SmallVec::from_slice(flags);
        word.extend(
            more.iter()
                .filter(|(set, _)| *set)
                .map(|(_, letter)| *letter),
        );
        self.bytes(&word);
    }

    fn words(&mut self, words: &[Bytes]) {
        for word in words {
            self.bytes(word);
        }
    }

    fn who(&mut self, who: &Who) {
        let mut word = [0; 32];
        word[..16].copy_from_slice(&who.session.0);
        word[16..].copy_from_slice(&who.identity.0);
        self.bytes(&word);
    }

    fn proofs(&mut self, proofs: &ProofArguments, who: &Who) {
        self.bytes(&proofs.own);
        self.bytes(&proofs.claim);
        self.bytes(&proofs.seen_grant);
        self.bytes(&proofs.seen);
        self.who(who);
    }

    /// The ten arguments of a lease that may be granted.
    fn lease(&mut self, value: &Bytes, ttl: AskedTtl, grant: Grant, who: &Who, allowed: &Allowed) {
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

    fn done(self, script: &'static Script, grants: SmallVec<[Grant; 1]>) -> Plan {
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
    fn new() -> Digits {
        Digits([0; 20])
    }

    fn of(&mut self, mut number: u64) -> &[u8] {
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

fn put_line(out: &mut BytesMut, kind: u8, number: usize) {
    out.put_u8(kind);
    out.put_slice(Digits::new().of(number as u64));
    out.put_slice(b"\r\n");
}

fn put_bulk(out: &mut BytesMut, bytes: &[u8]) {
    out.reserve(bytes.len() + 32);
    put_line(out, b'$', bytes.len());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

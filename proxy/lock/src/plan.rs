//! From a permitted command to the one atomic step that carries it out: which script, with which
//! keys and arguments. The order of arguments is the contract on top of each `.lua` file; how they
//! are written is in `step`, what is said of proofs in `proofs`.

mod breaking;
mod index;
mod lease;
mod needs;
mod proofs;
mod renewal;
mod step;
mod sweep;

pub use breaking::{Broke, break_lease, broke};
pub use index::{IndexEntry, Indexed, Orphan, index, indexed, orphans, read_orphans};
pub use needs::{Guard, Needs, all_rights, own_rights};
pub use renewal::{Renewal, Renewed, renew, renewed};
pub use sweep::{Swept, SweptLease, sweep, swept, swept_ttl};

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use lockwarden_resp::{put_array_header, put_bulk};
use smallvec::SmallVec;

use crate::administration::{Flush, MOST_COUNTED, MOST_KEYS};
use crate::decision::{Fence, Obligations, Proofs, TakeOverRule};
use crate::evidence::Facts;
use crate::namespace::{NamespaceId, Namespaces};
use crate::op::{AcquireReply, AskedTtl, ExpireCondition, LockOp, Reach, ReleaseSpelling};
use crate::recipe::{Envelope, Owner, Reply, ScriptFacts, TtlUnit};
use crate::scripts::guard;
use crate::scripts::{self, Script};
use crate::settle::{Adopt, Allowed, Mode, OnRepeat, OnViolation, Permitted, Rules, TrustAddress};
use crate::token::{Grant, Identity, OwnerToken, Process, SessionId};

use lease::LeaseTtl;
use proofs::{Claim, ProofArguments};
use step::Step;

/// A companion outlives its lease by so many ceilings, but at least ten minutes.
const OUTLIVE_CEILINGS: u64 = 10;
const OUTLIVE_AT_LEAST_MS: u64 = 600_000;
/// A sequential counter has no clock to fall back on, so its companion lives a day longer.
const OUTLIVE_SEQUENTIAL_MS: u64 = 86_400_000;

/// Identities that owe a release of one lock, above which the oldest is forgotten. The scripts know
/// it, too.
pub const MOST_DEBTS: usize = 16;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The connection.
    pub session: SessionId,
    /// The client, without its process.
    pub client: Identity,
    /// Its application, where it says of itself which: by its ACL user, or else by its name.
    pub application: Option<Identity>,
    /// Which process it is.
    pub process: Process,
    /// It comes from a loopback address.
    pub local: bool,
    /// The logical database.
    pub db: u32,
    /// Whether a step may ask back for a process that was not looked up yet.
    pub may_ask_back: bool,
}

impl Who {
    /// The identity under these rules.
    pub fn identity(&self, rules: &Rules) -> Identity {
        if let (Some(application), true) = (self.application, rules.hand_over) {
            return application;
        }
        match (rules.trust_address, self.local) {
            // The address is the process.
            (TrustAddress::Process, _) | (_, false) => self.client,
            (TrustAddress::Auto | TrustAddress::No, true) => self.client.with_process(self.process),
        }
    }

    /// Whether the connection alone tells the client from others, whatever its process.
    pub fn is_distinctive(&self, rules: &Rules) -> bool {
        self.application.is_some()
            || match rules.trust_address {
                TrustAddress::Auto => !self.local,
                TrustAddress::Process => true,
                TrustAddress::No => false,
            }
    }

    /// Whether its identity can be told from others', or may turn out to be.
    fn may_be_distinctive(&self, rules: &Rules) -> bool {
        let pending = Process::Pending;
        self.is_distinctive(rules)
            || self.identity(rules) != self.client && (self.process != pending || self.may_ask_back)
    }
}

/// How a script is named on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `EVALSHA`: short; the server may not know it yet.
    Sha,
    /// `EVAL`: the text itself, as inside MULTI, where an unknown name would surface too late.
    Text,
}

/// The script of a step.
#[derive(Clone, Debug)]
enum Text {
    Own(&'static Script),
    /// The check of the rights that a step takes, without the step.
    Question(&'static scripts::Text),
    /// An application's, in an envelope.
    Enveloped(Arc<ScriptFacts>, Envelope),
}

/// One atomic step, ready to be sent.
#[derive(Clone, Debug)]
pub struct Plan {
    text: Text,
    /// The number of keys, the keys and the arguments as bulk strings.
    tail: Bytes,
    words: usize,
    grants: SmallVec<[Grant; 1]>,
    /// Where the rights that it takes are looked at first: the application's own command.
    checked: Option<&'static str>,
    /// It says in its text that it only reads.
    only_reads: bool,
}

impl Plan {
    /// The script's name, for people.
    pub fn script_name(&self) -> &'static str {
        match &self.text {
            Text::Own(script) => script.name(),
            Text::Question(_) => "rights",
            Text::Enveloped(_, Envelope { judged: true, .. }) => scripts::WRAP.name(),
            Text::Enveloped(..) => scripts::GUARDED.name(),
        }
    }

    /// The same question, which says in its text that it only reads, for a server that reads flags of scripts: then it is not
    /// kept waiting while writes are paused. A step writes and stays as it is.
    #[must_use]
    pub fn flagged(self, reads_flags: bool) -> Plan {
        let only_reads = reads_flags && matches!(self.text, Text::Question(_));
        Plan { only_reads, ..self }
    }

    /// The same, which looks first at the rights that it takes, and at that to the application's own command. A wrapped
    /// script does so always.
    #[must_use]
    pub fn checked(self, needs: Needs) -> Plan {
        match self.text {
            Text::Own(_) | Text::Enveloped(_, Envelope { judged: true, .. }) => Plan {
                checked: Some(needs.own),
                ..self
            },
            Text::Question(_) | Text::Enveloped(..) => self,
        }
    }

    /// The application's own command, where a check takes it as an argument.
    fn own(&self) -> Option<&'static str> {
        self.checked.filter(|_| matches!(self.text, Text::Own(_)))
    }

    /// Whether it looks at rights first that are not known to suffice.
    pub fn is_checked(&self) -> bool {
        self.checked.is_some()
    }

    /// The names drawn for the leases that the step may grant, one a lock.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Writes the request.
    pub fn put(&self, out: &mut BytesMut, form: Form) {
        let flags: &[u8] = match (form, self.only_reads) {
            (Form::Text, true) => scripts::ONLY_READS.as_bytes(),
            (Form::Text | Form::Sha, _) => b"",
        };
        let own = |script: &'static Script| match self.checked {
            Some(_) => script.checked(),
            None => script.plain(),
        };
        let name;
        let (command, script): (&[u8], Cow<'_, [u8]>) = match (form, &self.text) {
            (Form::Sha, Text::Own(script)) => (b"EVALSHA", own(script).sha().as_bytes().into()),
            (Form::Text, Text::Own(script)) => (b"EVAL", own(script).text().as_bytes().into()),
            (Form::Sha, Text::Question(script)) => (b"EVALSHA", script.sha().as_bytes().into()),
            (Form::Text, Text::Question(script)) => (b"EVAL", script.text().as_bytes().into()),
            (Form::Sha, Text::Enveloped(script, envelope)) => {
                name = script.sha_in(envelope);
                (b"EVALSHA", name.as_bytes().into())
            }
            (Form::Text, Text::Enveloped(script, envelope)) => {
                (b"EVAL", envelope.around(&script.text).into())
            }
        };
        let script: Cow<'_, [u8]> = match flags.is_empty() {
            true => script,
            false => [flags, &script].concat().into(),
        };
        out.reserve(script.len() + self.tail.len() + 64);
        put_array_header(out, self.words + 2 + usize::from(self.own().is_some()));
        put_bulk(out, command);
        put_bulk(out, &script);
        out.put_slice(&self.tail);
        if let Some(own) = self.own() {
            put_bulk(out, own.as_bytes());
        }
    }
}

/// The step that notices that a lease ran out unreleased.
pub fn notice(lock: &[u8], grant: Grant, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&grant.0);
    step.done(&scripts::NOTICE, SmallVec::new())
}

/// The step that marks a lease of `session` as granted in a reply that was never read. `None`
/// means whichever it was granted last: a repetition takes a lease on whose name it does not know.
pub fn undelivered(
    lock: &[u8],
    session: SessionId,
    grant: Option<Grant>,
    companion_prefix: &[u8],
) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&session.0);
    step.bytes(grant.as_ref().map_or(&[][..], |grant| &grant.0));
    step.done(&scripts::UNDELIVERED, SmallVec::new())
}

/// The step that ends keep-alive of a lease that may be this client's, who wanted to be rid of it.
pub fn let_go(lock: &[u8], who: &Who, rules: &Rules, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.who(who, rules);
    step.done(&scripts::LET_GO, SmallVec::new())
}

/// The step that runs a script of the application which computes names of keys, and declares no lock, with these
/// keys and arguments: `[number of keys, key …, argument …]`.
pub fn guarded(script: Arc<ScriptFacts>, guard: Arc<guard::Guard>, words: &[Bytes]) -> Plan {
    let mut step = Step::empty();
    step.words(words);
    let envelope = Envelope {
        judged: false,
        guard: Some(guard),
    };
    step.done_enveloped(script, envelope, SmallVec::new())
}

/// The step that looks for live leases among all keys and empties the database, or all of them,
/// only where that erases none that is enforced.
pub fn flush(
    flush: &Flush,
    namespaces: &Namespaces,
    mode: &dyn Fn(NamespaceId) -> Mode,
    companion_prefix: &[u8],
) -> Plan {
    let no_locks: [&[u8]; 0] = [];
    let mut step = Step::new(&no_locks, companion_prefix, &[]);
    step.letters(&[(flush.all, b'a'), (flush.lenient, b'm')]);
    step.bytes(companion_prefix);
    step.bytes(&companion_glob(companion_prefix));
    step.number(MOST_KEYS);
    step.number(MOST_COUNTED);
    let globs = namespaces.globs();
    step.number(globs.len() as u64);
    for (namespace, glob) in globs {
        let (shape, text) = glob.for_script();
        step.number(u64::from(namespace.0));
        step.letters(&[(mode(namespace) == Mode::Enforce, b'e'), (true, shape)]);
        step.bytes(text);
    }
    step.words(flush.argv());
    step.done(&scripts::FLUSH, SmallVec::new())
}

/// The pattern of every companion's name.
fn companion_glob(prefix: &[u8]) -> Vec<u8> {
    let mut glob = Vec::with_capacity(prefix.len() + 8);
    for &byte in prefix {
        if b"*?[]\\".contains(&byte) {
            glob.push(b'\\');
        }
        glob.push(byte);
    }
    glob.extend_from_slice(b"{*}:*");
    glob
}

/// The step that adds the process to the identity of whoever was granted this lease.
pub fn identify(lock: &[u8], grant: Grant, process: Process, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&grant.0);
    step.bytes(&process.bytes());
    step.done(&scripts::IDENTIFY, SmallVec::new())
}

/// How long an identity owes a release of a lease that ended unreleased, ms.
fn debt_ms(allowed: &Allowed) -> u64 {
    // Where locks are handed over, one that ran out says nothing of who still comes to give it back.
    let usual = match allowed.rules.hand_over {
        true => 0,
        false => ten_ceilings_ms(&allowed.obligations).max(1),
    };
    allowed.rules.debt_max_age_ms.unwrap_or(usual)
}

fn ten_ceilings_ms(obligations: &Obligations) -> u64 {
    let ceiling = obligations
        .ttl_cap_ms
        .or(obligations.ttl_default_ms)
        .unwrap_or(OUTLIVE_AT_LEAST_MS / OUTLIVE_CEILINGS);
    ceiling.saturating_mul(OUTLIVE_CEILINGS)
}

/// How much longer than its lease a companion lives, ms: at least as long as anybody owes a release.
pub fn outlive_ms(allowed: &Allowed) -> u64 {
    let obligations = &allowed.obligations;
    let outlive = ten_ceilings_ms(obligations)
        .max(OUTLIVE_AT_LEAST_MS)
        .max(allowed.rules.debt_max_age_ms.unwrap_or(0));
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
            let lease = LeaseTtl::granted(*ttl, allowed, monitor);
            step.new_lease(value, lease, grant, who, allowed);
            let adopted = adopted_ttl(allowed);
            let counter = *reply == AcquireReply::Counter;
            let wants_old = counter || *reply == AcquireReply::OldValue;
            let own = is_own(value, known);
            let again = own && allowed.rules.on_repeat == OnRepeat::Grant;
            let distinctive = who.is_distinctive(&allowed.rules);
            let (words, shown, reads_value) = match reply {
                AcquireReply::Scripted(script) => (
                    &script.then,
                    shown(&script.replies.held),
                    script.replies.reads_value,
                ),
                AcquireReply::Integer
                | AcquireReply::OkOrNil
                | AcquireReply::OldValue
                | AcquireReply::Counter => (&command.argv, None, false),
            };
            step.letters(&[
                (monitor, b'm'),
                (adopted > 0, b'A'),
                (wants_old, b'g'),
                (own, b'u'),
                (again, b'a'),
                (again && distinctive, b'D'),
                (again && who.may_ask_back, b'p'),
                (counter, b'i'),
                (shown.is_some(), shown.unwrap_or_default()),
                (reads_value, b'W'),
            ]);
            step.seldom_needed(lease, *ttl, adopted, allowed);
            if monitor {
                step.words(words);
            }
            step.done(&scripts::ACQUIRE, SmallVec::from_slice(&[grant]))
        }
        LockOp::Take {
            value, ttl, script, ..
        } => {
            let mut step = Step::new(&locks, companion_prefix, &[]);
            let grant = draw();
            step.lease(value, *ttl, grant, who, allowed);
            step.number(adopted_ttl(allowed));
            let (named, begins_like) = match script.owner {
                Owner::Whole => (value.clone(), None),
                Owner::Prefix(bytes) => (value.slice(..bytes.min(value.len())), Some(bytes)),
            };
            let claim = Claim::Compared(OwnerToken::new(named));
            let proofs = ProofArguments::of(allowed, known, who, &claim, monitor);
            let shown = shown(&script.replies.different);
            step.flags(
                &proofs.flags,
                &[
                    (script.by_expire, b'E'),
                    (shown.is_some(), shown.unwrap_or_default()),
                ],
            );
            step.bytes(&proofs.own);
            step.bytes(&proofs.seen_grant);
            step.bytes(&proofs.seen);
            step.who(who, &allowed.rules);
            step.number(allowed.obligations.max_hold_ms.unwrap_or(0));
            match begins_like {
                Some(bytes) => step.number(bytes as u64),
                None => step.bytes(b""),
            }
            step.done(&scripts::TAKE, SmallVec::from_slice(&[grant]))
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
            comparison,
            ..
        } => {
            let mut step = Step::new(&locks, companion_prefix, &[]);
            let grant = draw();
            let keeps = *ttl == AskedTtl::Keep;
            let asked = if keeps { AskedTtl::None } else { *ttl };
            step.lease(value, asked, grant, who, allowed);
            step.number(adopted_ttl(allowed));
            let claim = comparison.as_ref().map_or_else(
                || {
                    let token = OwnerToken::new(value.clone());
                    if *only_if_exists || keeps {
                        Claim::Updated(token)
                    } else {
                        Claim::Stored(token)
                    }
                },
                |comparison| Claim::of(comparison, Some(value)),
            );
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
            step.who(who, &allowed.rules);
            step.number(allowed.obligations.max_hold_ms.unwrap_or(0));
            step.words(comparison.as_ref().map_or(&command.argv, |c| &c.then));
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
                .map_or(Claim::None, |comparison| Claim::of(comparison, None));
            let proofs = ProofArguments::of(allowed, known, who, &claim, monitor);
            let lenient = comparison.is_none() && is_lenient(&allowed.obligations, known);
            let wants_value = spelling.answers_value();
            let shown = comparison
                .as_ref()
                .and_then(|c| shown(&c.replies.different));
            let max_hold_ms = allowed.obligations.max_hold_ms.unwrap_or(0);
            let conditional = *condition != ExpireCondition::Always;
            let usual = LeaseTtl::extended(*ttl, allowed)
                .filter(|_| !monitor && !conditional && max_hold_ms == 0);
            step.flags(
                &proofs.flags,
                &[
                    (wants_value, b'g'),
                    (lenient, b'e'),
                    (shown.is_some(), shown.unwrap_or_default()),
                    (usual.is_some_and(|lease| lease.kept), b'A'),
                ],
            );
            step.proofs(&proofs, who, allowed);
            step.extended_lease(usual, *ttl, *condition, max_hold_ms, allowed);
            step.words_around_the_key(comparison.as_ref().map_or(&command.argv, |c| &c.then));
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
                .map_or(Claim::None, |comparison| Claim::of(comparison, None));
            let proofs = ProofArguments::of(allowed, known, who, &claim, monitor);
            let shown = comparison
                .as_ref()
                .and_then(|c| shown(&c.replies.different));
            step.flags(
                &proofs.flags,
                &[
                    (*spelling == ReleaseSpelling::GetDel, b'g'),
                    (shown.is_some(), shown.unwrap_or_default()),
                ],
            );
            step.proofs(&proofs, who, allowed);
            step.words_around_the_key(comparison.as_ref().map_or(&command.argv, |c| &c.then));
            step.done(&scripts::RELEASE, SmallVec::new())
        }
        LockOp::ReleaseMany { others, unlink, .. } => {
            let others: Vec<&[u8]> = others.iter().map(|key| &key[..]).collect();
            let mut step = Step::new(&locks, companion_prefix, &others);
            step.bytes(if *unlink { b"UNLINK" } else { b"DEL" });
            step.number(locks.len() as u64);
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
                step.who(who, &allowed.rules);
            }
            step.done(&scripts::RELEASE_MANY, SmallVec::new())
        }
        LockOp::Wrapped {
            locks,
            script,
            keys,
            named,
            reach,
        } => {
            let argv = &command.argv;
            let names: SmallVec<[&[u8]; 8]> = argv[3..3 + keys]
                .iter()
                .chain(named)
                .map(|key| &key[..])
                .collect();
            let targets: SmallVec<[&[u8]; 2]> = locks.iter().map(|(t, _)| &t.key[..]).collect();
            let mut step = Step::wrapping(&names, &targets, companion_prefix);
            step.words(&argv[3 + keys..]);
            let ours = step.count();
            step.letters(&[
                (monitor, b'm'),
                (speaks_of_resp(&script.text), b'x'),
                (*reach == Reach::Nothing, b'c'),
            ]);
            step.who(who, &permitted.allowed()[0].rules);
            step.number(u64::from(who.db));
            step.number(*keys as u64);
            step.number(locks.len() as u64);
            let mut grants = SmallVec::with_capacity(locks.len());
            let each = locks.iter().zip(permitted.allowed()).zip(facts);
            for (((_, place), allowed), known) in each {
                let grant = draw();
                step.script_lock(*place, grant, allowed, known, who, monitor);
                grants.push(grant);
            }
            step.number((step.count() - ours + 1) as u64);
            step.done_enveloped(script.clone(), Envelope::judged(reach), grants)
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

/// Whether an acquire that meets its client's own lease is a repetition, and granted as such.
pub fn grants_repetition(permitted: &Permitted, facts: &[Facts]) -> bool {
    let (allowed, known) = (&permitted.allowed()[0], &facts[0]);
    let LockOp::Acquire { value, .. } = &permitted.command().op else {
        return false;
    };
    permitted.enforces() && allowed.rules.on_repeat == OnRepeat::Grant && is_own(value, known)
}

/// Whether a value tells one client from the others.
fn is_own(value: &Bytes, facts: &Facts) -> bool {
    OwnerToken::new(value.clone()).is_distinctive() && !facts.shared_token
}

/// Whether the text may change how replies are read.
fn speaks_of_resp(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"setresp").is_some()
}

/// Whether an equal identity that is not distinctive may extend: where identity counts at all, and
/// nothing tells that the connection is not the holder's.
fn is_lenient(obligations: &Obligations, facts: &Facts) -> bool {
    let counts = obligations
        .require
        .is_some_and(|required| required.contains(Proofs::IDENTITY));
    let lapsed = facts.own.as_ref().is_some_and(|own| own.lapsed.is_some());
    counts && !facts.refused_since && !lapsed
}

/// What a script's answer takes from a lock that is somebody else's, as a flag.
fn shown(reply: &Reply) -> Option<u8> {
    match reply {
        Reply::Stored => Some(b'w'),
        Reply::Left(TtlUnit::Milliseconds) => Some(b'P'),
        Reply::Left(TtlUnit::Seconds) => Some(b'S'),
        Reply::Integer(_) | Reply::Nil | Reply::Bulk(_) => None,
        Reply::Status(_) | Reply::Error(_) | Reply::CommandResult => None,
    }
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

#[cfg(test)]
mod tests;

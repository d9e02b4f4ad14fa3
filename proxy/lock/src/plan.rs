//! From a permitted command to the one atomic step that executes it: which script, with which keys and arguments. The
//! order of arguments is the contract at the top of each `.lua` file; `step` writes them, `proofs` handles proofs.

mod who;

mod acquire;
mod acquire_all;
mod extend;
mod release;
mod release_many;
mod script;
mod store;
mod take;

mod flush;
mod group;

mod asked;
mod breaking;
mod era;
mod index;
mod mark;
mod record;
mod renewal;
mod shorten;
mod sweep;

mod lease;
mod needs;
mod proofs;
mod step;

pub use acquire::grants_repetition;
pub use asked::{KnownLease, ask_for_lease, known_lease};
pub use breaking::{Broke, break_lease, broke};
pub use era::{Surveyed, enter_era, survey, surveyed};
pub use flush::flush;
pub use group::{SENT_ALONE, Sent, put_together};
pub use index::{IndexEntry, Indexed, Orphan, RecordedLease, index, indexed, orphans, read_orphans};
pub use lease::{EnforcedTerms, keep_alive_ms, outlive_ms};
pub(crate) use lease::{lengthened_to, may_repeat};
pub use mark::{Marked, ProxyNote, enter_mark, marked};
pub use needs::{Guard, Needs, all_rights, own_rights};
pub use record::{
    GaveBack, Noticed, gave_back, give_back, identify, let_go, notice, noticed, undelivered, unwitnessed,
};
pub use renewal::{Renewal, Renewed, renew, renewed};
pub use script::guarded;
pub use shorten::{Shorten, Shortened, shorten, shortened};
pub use sweep::{SweepTerms, Swept, sweep, swept};
pub use who::Who;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use lockwarden_lua::{Reply, TtlUnit};
use lockwarden_resp::{bulk_text, put_array_header, put_bulk};
use smallvec::SmallVec;

use crate::op::{Arguments, LockOp};
use crate::script_facts::{Envelope, ScriptFacts};
use crate::scripts::{self, Script};
use crate::settle::{Allowed, Permitted};
use crate::token::Grant;

use proofs::{Claim, ProofArguments};
use step::Step;

/// How a script is called on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `EVALSHA`: short, but the server may not know the script yet.
    Sha,
    /// `EVAL`: the text itself, as inside MULTI, where an unknown digest would be noticed too late.
    Text,
    /// The same for a node to which the slot is moving: the node refuses a command with two keys that it does not have,
    /// such as those of a free lock, but accepts one with a single key. So only the lock is declared, and its record
    /// follows the arguments. Only a step with [`Plan::one_lock`] has this form.
    Moving,
}

/// The script of a step.
#[derive(Clone, Debug)]
enum Text {
    Own(&'static Script),
    /// The check of the rights that a step needs, without the step.
    Question(&'static scripts::Text),
    /// An application's script, in an envelope.
    Enveloped(Arc<ScriptFacts>, Envelope),
}

/// One atomic step, ready to be sent.
#[derive(Clone, Debug)]
pub struct Plan {
    text: Text,
    /// The number of keys, the keys and the arguments as bulk strings.
    tail: Bytes,
    words: usize,
    /// The ends in `tail` of the number of keys, of the lock and of its record, if there are no other keys.
    one_lock: Option<[usize; 3]>,
    /// If the needed rights are checked first: the application's own command.
    checked: Option<&'static str>,
    /// The script's text says that it only reads.
    only_reads: bool,
}

impl Plan {
    /// The script's name, for people to read.
    pub fn script_name(&self) -> &'static str {
        match &self.text {
            Text::Own(script) => script.name(),
            Text::Question(_) => "rights",
            Text::Enveloped(_, Envelope { judged: true, .. }) => scripts::WRAP.name(),
            Text::Enveloped(..) => scripts::GUARDED.name(),
        }
    }

    /// The same check, with a text that says that it only reads, for a server that supports script flags: then it is
    /// not blocked while writes are paused. A step writes, so it is unchanged.
    #[must_use]
    pub fn flagged(self, reads_flags: bool) -> Plan {
        let only_reads = reads_flags && matches!(self.text, Text::Question(_));
        Plan { only_reads, ..self }
    }

    /// The same step with a check of the needed rights before it, including that to the application's own command. A
    /// wrapped script always has this check.
    #[must_use]
    pub fn checked(self, needs: Needs) -> Plan {
        match self.text {
            Text::Own(_) | Text::Enveloped(_, Envelope { judged: true, .. }) => {
                Plan { checked: Some(needs.own), ..self }
            }
            Text::Question(_) | Text::Enveloped(..) => self,
        }
    }

    /// The application's own command, if a check takes it as an argument.
    fn own(&self) -> Option<&'static str> {
        self.checked.filter(|_| matches!(self.text, Text::Own(_)))
    }

    /// Whether it first checks rights that are not known to suffice.
    pub fn is_checked(&self) -> bool {
        self.checked.is_some()
    }

    /// The lock and its record, for a step that uses no other key and works the same in [`Form::Moving`].
    pub fn one_lock(&self) -> Option<(&[u8], &[u8])> {
        let Text::Own(_) = self.text else {
            return None;
        };
        let [number, lock, record] = self.one_lock?;
        bulk_text(&self.tail[number..lock]).zip(bulk_text(&self.tail[lock..record]))
    }

    /// Writes the request.
    pub fn put(&self, out: &mut BytesMut, form: Form) {
        let moving = self.one_lock.filter(|_| form == Form::Moving);
        let form = if moving.is_none() && form == Form::Moving { Form::Text } else { form };
        let flags: &[u8] = match (form, self.only_reads) {
            (Form::Text | Form::Moving, true) => scripts::ONLY_READS.as_bytes(),
            (Form::Text | Form::Sha | Form::Moving, _) => b"",
        };
        let own = |script: &'static Script| match self.checked {
            Some(_) => script.checked(),
            None => script.plain(),
        };
        let name;
        let (command, script): (&[u8], Cow<'_, [u8]>) = match (form, &self.text) {
            (Form::Sha, Text::Own(script)) => (b"EVALSHA", own(script).sha().as_bytes().into()),
            (Form::Moving, Text::Own(script)) => {
                (b"EVAL", [RECORD_LAST, own(script).text()].concat().into_bytes().into())
            }
            (Form::Text, Text::Own(script)) => (b"EVAL", own(script).text().as_bytes().into()),
            (Form::Sha, Text::Question(script)) => (b"EVALSHA", script.sha().as_bytes().into()),
            (Form::Text | Form::Moving, Text::Question(script)) => (b"EVAL", script.text().as_bytes().into()),
            (Form::Sha, Text::Enveloped(script, envelope)) => {
                name = script.sha_in(envelope);
                (b"EVALSHA", name.as_bytes().into())
            }
            (Form::Text | Form::Moving, Text::Enveloped(script, envelope)) => {
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
        match moving {
            Some([number, lock, record]) => {
                put_bulk(out, b"1");
                out.put_slice(&self.tail[number..lock]);
                out.put_slice(&self.tail[record..]);
            }
            None => out.put_slice(&self.tail),
        }
        if let Some(own) = self.own() {
            put_bulk(out, own.as_bytes());
        }
        if let Some([_, lock, record]) = moving {
            out.put_slice(&self.tail[lock..record]);
        }
    }
}

/// The beginning of a script in [`Form::Moving`].
const RECORD_LAST: &str = "KEYS[2]=table.remove(ARGV) ";

/// The input for planning any operation's step.
struct Planning<'a> {
    /// The application's own arguments.
    argv: &'a Arguments,
    /// The names of the locks.
    keys: SmallVec<[&'a [u8]; 2]>,
    who: &'a Who,
    companion_prefix: &'a [u8],
    /// Refusals are not carried out.
    monitor: bool,
}

impl Planning<'_> {
    /// A step about the locks, without arguments so far.
    fn step(&self) -> Step {
        Step::new(&self.keys, self.companion_prefix, &[])
    }

    /// Whether this lock must not be granted if it is free.
    fn quarantined(&self, lock: &Allowed) -> bool {
        lock.rules.quarantined && !self.monitor
    }

    /// The arguments about proofs of a lock.
    fn proofs(&self, lock: &Allowed, claim: &Claim) -> ProofArguments {
        ProofArguments::of(lock, self.who, claim, self.monitor)
    }
}

impl Allowed {
    /// Draws the name of the lease that the step may grant.
    fn drawn(&mut self, draw: &mut dyn FnMut() -> Grant) -> Grant {
        *self.lock.grant.insert(draw())
    }
}

/// Plans a permitted command. `draw` gives random names for the leases that its step may grant.
pub fn plan(permitted: &mut Permitted, who: &Who, companion_prefix: &[u8], draw: &mut dyn FnMut() -> Grant) -> Plan {
    let monitor = !permitted.enforces();
    let (command, locks) = permitted.parts();
    let targets = command.op.targets();
    let planning = Planning {
        argv: &command.argv,
        keys: targets.iter().map(|target| &target.key[..]).collect(),
        who,
        companion_prefix,
        monitor,
    };
    let lock = &mut locks[0];
    match &command.op {
        LockOp::Acquire { value, ttl, reply, .. } => {
            let grant = lock.drawn(draw);
            acquire::plan(&planning, lock, value, *ttl, reply, grant)
        }
        LockOp::Take { value, ttl, script, .. } => {
            let grant = lock.drawn(draw);
            take::plan(&planning, lock, value, *ttl, script, grant)
        }
        LockOp::AcquireAll { locks: pairs, ttl } => acquire_all::plan(&planning, locks, (pairs, *ttl), draw),
        LockOp::Store { value, ttl, only_if_exists, wants_old, comparison, .. } => {
            let how = (*only_if_exists, *wants_old);
            let grant = lock.drawn(draw);
            let comparison = comparison.as_deref();
            store::plan(&planning, lock, value, *ttl, how, comparison, grant)
        }
        LockOp::Extend { ttl, condition, spelling, comparison, .. } => {
            extend::plan(&planning, lock, *ttl, *condition, *spelling, comparison.as_deref())
        }
        LockOp::Release { spelling, comparison, .. } => {
            release::plan(&planning, lock, *spelling, comparison.as_deref())
        }
        LockOp::ReleaseMany { others, unlink, .. } => release_many::plan(&planning, locks, others, *unlink),
        LockOp::Wrapped { locks: places, script, keys, named, reach, data } => {
            let about = script::About { keys: *keys, named, reach, data };
            script::plan(&planning, locks, places, script, &about, draw)
        }
    }
}

/// What a script's reply shows of a lock that another client holds, as a flag.
fn shown(reply: &Reply) -> Option<u8> {
    match reply {
        Reply::Stored => Some(b'w'),
        Reply::Left(TtlUnit::Milliseconds) => Some(b'P'),
        Reply::Left(TtlUnit::Seconds) => Some(b'S'),
        Reply::Integer(_) | Reply::Nil | Reply::Bulk(_) => None,
        Reply::Status(_) | Reply::Error(_) | Reply::CommandResult => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! What a command's step needs of others before it can be sent: which rights of the client's user, and inside
//! MULTI a command that Redis refuses where it would refuse the application's own.

use bytes::BytesMut;
use lockwarden_resp::put_request;

use super::Plan;
use super::step::Step;
use crate::companion::{companion_key, key_beside};
use crate::op::{Command, ComparedBy, LockCommand, LockOp};
use crate::scripts::{self, Script};
use crate::table;

/// The rights that a step takes: those that its script needs, and that to the application's own command.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    script: &'static Script,
    /// The application's own command; of a script what it comes to, where its step runs that.
    pub(super) own: &'static str,
}

impl PartialEq for Needs {
    fn eq(&self, other: &Needs) -> bool {
        std::ptr::eq(self.script, other.script) && self.own == other.own
    }
}

impl Eq for Needs {}

impl Needs {
    /// Those of this command's step.
    pub fn of(command: &LockCommand) -> Needs {
        let script: &'static Script = match &command.op {
            LockOp::Acquire { .. } => &scripts::ACQUIRE,
            LockOp::Take { .. } => &scripts::TAKE,
            LockOp::AcquireAll { .. } => &scripts::ACQUIRE_ALL,
            LockOp::Store { .. } => &scripts::STORE,
            LockOp::Extend { .. } => &scripts::EXTEND,
            LockOp::Release { .. } => &scripts::RELEASE,
            LockOp::ReleaseMany { .. } => &scripts::RELEASE_MANY,
            LockOp::Wrapped { .. } => &scripts::WRAP,
        };
        let own = match is_scripted(&command.op) {
            true => scripted(command),
            false => command.name,
        };
        Needs { script, own }
    }

    /// Those of a command that may have no lock meaning.
    pub fn of_any(command: &Command) -> Needs {
        match command {
            Command::Lock(command) => Needs::of(command),
            Command::Opaque(command) => Needs::of_opaque(command.name),
        }
    }

    /// Those of a command without a lock meaning, which has no step: one that only reads records.
    pub fn of_opaque(own: &'static str) -> Needs {
        let script = &scripts::RENEW;
        Needs { script, own }
    }

    /// Those of a FLUSH, `flushall` or `flushdb`.
    pub fn of_flush(own: &'static str) -> Needs {
        let script = &scripts::FLUSH;
        Needs { script, own }
    }

    /// Those of a question about a lease, which runs no command of the application.
    pub fn of_lease_question() -> Needs {
        let script = &scripts::LEASE;
        Needs { script, own: "" }
    }

    /// The name of the script.
    pub fn step(&self) -> &'static str {
        self.script.name()
    }

    /// The commands that the script cannot do without.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.script.needs()
    }

    /// The step that tries these rights on a lock and does nothing else.
    pub fn question(&self, lock: &[u8], companion_prefix: &[u8]) -> Plan {
        let mut step = Step::new(&[lock], companion_prefix, &[]);
        step.bytes(self.own.as_bytes());
        step.done_question(self.script.question())
    }
}

/// The step that tries every right that a command of a client may take, on keys that do not exist, and does nothing else.
pub fn all_rights(companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[NOBODYS], companion_prefix, &[]);
    let own: Vec<_> = table::verbs().collect();
    step.bytes(own.join(" ").as_bytes());
    step.done_question(&scripts::ALL_RIGHTS)
}

/// The same for the rights that the proxy's own connection takes, with this lock.
pub fn own_rights(lock: &[u8], companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(b"");
    step.done_question(&scripts::OWN_RIGHTS)
}

/// A lock that does not exist: who may use it may use any.
const NOBODYS: &[u8] = b"lockwarden:rights";

/// The command that a script of the application comes to, where its step runs that.
fn scripted(command: &LockCommand) -> &'static str {
    let then = command.op.comparison().and_then(|comparison| comparison.then.first());
    let is = |word: &str| then.is_some_and(|then| then.eq_ignore_ascii_case(word.as_bytes()));
    let known = COMES_TO.iter().find(|verb| is(verb));
    known.unwrap_or(&"")
}

/// The commands that scripts come to that give a lock back, or extend it by a command that no step uses by itself.
const COMES_TO: [&str; 3] = ["del", "unlink", "expire"];

/// Whether the application sent a script, which Redis itself does not look into when it is queued.
fn is_scripted(op: &LockOp) -> bool {
    match op {
        LockOp::Take { .. } | LockOp::Wrapped { .. } => true,
        LockOp::Acquire { reply, .. } => matches!(reply, crate::op::AcquireReply::Scripted(_)),
        LockOp::AcquireAll { .. }
        | LockOp::Store { .. }
        | LockOp::Extend { .. }
        | LockOp::Release { .. }
        | LockOp::ReleaseMany { .. } => {
            let by = op.comparison().map(|comparison| comparison.by);
            by == Some(ComparedBy::Script)
        }
    }
}

/// A write that changes nothing, queued in a MULTI block ahead of a step. To Redis a script is neither a write nor in
/// need of memory until it runs, and then the rest of the block has been carried out. So Redis is shown what the
/// application's own command is, and refuses both when that is queued, or the block when it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Refused when memory is out, as SET is.
    Grows,
    /// Only refused where nothing may be written at all, as DEL is.
    Writes,
}

impl Guard {
    /// The guard that a command's step needs; `script` is the text of the application's script, where it sent one. None for a
    /// text without flags, which Redis takes in any case.
    pub fn of(command: &LockCommand, script: Option<&[u8]>) -> Option<Guard> {
        if is_scripted(&command.op) {
            return by_flags(script?);
        }
        match &command.op {
            LockOp::Acquire { .. } | LockOp::AcquireAll { .. } | LockOp::Store { .. } => Some(Guard::Grows),
            LockOp::Extend { .. } | LockOp::Release { .. } | LockOp::ReleaseMany { .. } => Some(Guard::Writes),
            LockOp::Take { .. } | LockOp::Wrapped { .. } => None,
        }
    }

    /// The command of this guard.
    pub fn command(self) -> &'static str {
        match self {
            Guard::Grows => "setrange",
            Guard::Writes => "pexpire",
        }
    }

    /// Writes it.
    pub fn put(self, out: &mut BytesMut, lock: &[u8], companion_prefix: &[u8]) {
        let companion = companion_key(companion_prefix, lock);
        match self {
            // Of an empty string there is nothing to write, whatever stands in the key.
            Guard::Grows => put_request(out, &[&b"SETRANGE"[..], &companion, b"0", b""]),
            // This key does not exist; and if it did, it would live for 150 years.
            Guard::Writes => {
                let beside = key_beside(&companion);
                put_request(out, &[&b"PEXPIRE"[..], &beside, b"4733510400000"]);
            }
        }
    }
}

/// What Redis does with a script whose text says what it does: `#!lua flags=…`.
fn by_flags(text: &[u8]) -> Option<Guard> {
    let line = text.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let says = |flag: &[u8]| memchr::memmem::find(line, flag).is_some();
    Some(match says(b"allow-oom") {
        true => Guard::Writes,
        false => Guard::Grows,
    })
}

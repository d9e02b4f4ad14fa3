//! What must be known or done before a command's step is sent: which rights the client's user needs, and inside MULTI a
//! command that Redis refuses if it would refuse the application's own.

use bytes::BytesMut;
use lockwarden_resp::put_request;

use super::Plan;
use super::step::Step;
use crate::companion::{companion_key, key_beside};
use crate::op::{Command, LockCommand, LockOp};
use crate::scripts::{self, Script};
use crate::table;

/// The rights that a step needs: those of its script, and that to the application's own command.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    script: &'static Script,
    /// The application's own command; for a script the command that it amounts to, if its step runs that.
    pub(super) own: &'static str,
}

impl PartialEq for Needs {
    fn eq(&self, other: &Needs) -> bool {
        std::ptr::eq(self.script, other.script) && self.own == other.own
    }
}

impl Eq for Needs {}

impl Needs {
    /// The rights for this command's step.
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
        let own = match command.op.is_scripted() {
            true => scripted(command),
            false => command.name,
        };
        Needs { script, own }
    }

    /// The rights for a command that may have no lock meaning.
    pub fn of_any(command: &Command) -> Needs {
        match command {
            Command::Lock(command) => Needs::of(command),
            Command::Opaque(command) => Needs::of_opaque(command.name),
        }
    }

    /// The rights for a command without a lock meaning, which has no step: one that only reads records.
    pub fn of_opaque(own: &'static str) -> Needs {
        let script = &scripts::RENEW;
        Needs { script, own }
    }

    /// The rights for a FLUSH, `flushall` or `flushdb`.
    pub fn of_flush(own: &'static str) -> Needs {
        let script = &scripts::FLUSH;
        Needs { script, own }
    }

    /// The rights for a question about a lease, which runs no command of the application.
    pub fn of_lease_question() -> Needs {
        let script = &scripts::LEASE;
        Needs { script, own: "" }
    }

    /// The name of the script.
    pub fn step(&self) -> &'static str {
        self.script.name()
    }

    /// The commands that the script requires.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.script.needs()
    }

    /// The step that only tests these rights on a lock.
    pub fn question(&self, lock: &[u8], companion_prefix: &[u8]) -> Plan {
        let mut step = Step::new(&[lock], companion_prefix, &[]);
        step.bytes(self.own.as_bytes());
        step.done_question(self.script.question())
    }
}

/// The step that only tests every right that a client's commands may need, on keys that do not exist.
pub fn all_rights(companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[NOBODYS], companion_prefix, &[]);
    let own: Vec<_> = table::verbs().collect();
    step.bytes(own.join(" ").as_bytes());
    step.done_question(&scripts::ALL_RIGHTS)
}

/// The same for the rights that the proxy's own connection needs, with this lock.
pub fn own_rights(lock: &[u8], companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(b"");
    step.done_question(&scripts::OWN_RIGHTS)
}

/// A lock that does not exist: a user that may use it may use any lock.
const NOBODYS: &[u8] = b"lockwarden:rights";

/// The command that an application's script amounts to, if its step runs that.
fn scripted(command: &LockCommand) -> &'static str {
    let then = command.op.comparison().and_then(|comparison| comparison.then.first());
    let is = |word: &str| then.is_some_and(|then| then.eq_ignore_ascii_case(word.as_bytes()));
    let known = COMES_TO.iter().find(|verb| is(verb));
    known.unwrap_or(&"")
}

/// The commands of scripts that release a lock, or extend it by a command that no step uses by itself.
const COMES_TO: [&str; 3] = ["del", "unlink", "expire"];

/// A write that changes nothing, queued in a MULTI block before a step. For Redis, a script is neither a write nor
/// needs memory until it runs, and by then the rest of the block has been executed. So this write shows Redis the kind
/// of the application's own command, and Redis refuses it when it is queued, or the block when it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Refused when Redis is out of memory, like SET.
    Grows,
    /// Refused only if nothing may be written at all, like DEL.
    Writes,
}

impl Guard {
    /// The guard that a command's step needs; `script` is the text of the application's script, if it sent one. `None`
    /// for a text without flags, which Redis accepts in any case.
    pub fn of(command: &LockCommand, script: Option<&[u8]>) -> Option<Guard> {
        if command.op.is_scripted() {
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

    /// Writes the guard.
    pub fn put(self, out: &mut BytesMut, lock: &[u8], companion_prefix: &[u8]) {
        let companion = companion_key(companion_prefix, lock);
        match self {
            // An empty string has nothing to write, whatever the key holds.
            Guard::Grows => put_request(out, &[&b"SETRANGE"[..], &companion, b"0", b""]),
            // This key does not exist; and if it did, it would live for 150 years.
            Guard::Writes => {
                let beside = key_beside(&companion);
                put_request(out, &[&b"PEXPIRE"[..], &beside, b"4733510400000"]);
            }
        }
    }
}

/// How Redis treats a script whose text has flags: `#!lua flags=…`.
fn by_flags(text: &[u8]) -> Option<Guard> {
    let line = text.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let says = |flag: &[u8]| memchr::memmem::find(line, flag).is_some();
    Some(match says(b"allow-oom") {
        true => Guard::Writes,
        false => Guard::Grows,
    })
}

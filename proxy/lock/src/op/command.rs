//! A command that changes lock keys, with the client's own arguments and bytes, before it is judged.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Arguments, LockOp, OpaqueKind, Target};
use crate::decision::Operation;
use crate::table::{ForeignTable, SET_CONDITIONS, row_named};
use crate::time::ProxyTime;
use crate::token::OwnerToken;

/// One command on lock keys that has a lock meaning, with everything that later stages need. Other code cannot make one
/// from bytes of its choice, to have it forwarded as one that could not be judged:
///
/// ```compile_fail,E0451
/// use lockwarden_lock::op::{LockCommand, LockOp};
/// fn command(op: LockOp) -> LockCommand {
///     LockCommand { name: "get", op, argv: Default::default(), frame: "DEL lock:a\r\n".into() }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct LockCommand {
    /// The command's name in the table (lower case).
    pub name: &'static str,
    /// What it means.
    pub op: LockOp,
    /// The client's own arguments; if a server may not have the command, those of an older one that does the same.
    pub argv: Arguments,
    /// The client's own bytes.
    pub(crate) frame: Bytes,
}

/// Any other change of a lock key: it has no lock meaning, so it is refused, or forwarded unchanged where nothing is
/// Any other change of a lock key: it has no lock meaning, so it is refused, or forwarded unchanged where nothing is
/// refused. It has no [`LockOp`], so there is no step for it:
/// ```compile_fail,E0609
/// use lockwarden_lock::op::{LockOp, OpaqueCommand};
/// fn op(command: &OpaqueCommand) -> &LockOp {
///     &command.op
/// }
/// ```
#[derive(Clone, Debug)]
pub struct OpaqueCommand {
    /// The command's name in the table (lower case).
    pub name: &'static str,
    /// The first lock key that it would change.
    pub target: Target,
    /// Which kind of change.
    pub kind: OpaqueKind,
    /// The client's own bytes.
    pub(crate) frame: Bytes,
}

/// A command that changes lock keys, before it is judged.
#[derive(Clone, Debug)]
pub enum Command {
    /// It has a lock meaning.
    Lock(Box<LockCommand>),
    /// It has none.
    Opaque(Box<OpaqueCommand>),
}

impl From<Box<LockCommand>> for Command {
    fn from(command: Box<LockCommand>) -> Command {
        Command::Lock(command)
    }
}

impl From<Box<OpaqueCommand>> for Command {
    fn from(command: Box<OpaqueCommand>) -> Command {
        Command::Opaque(command)
    }
}

impl Command {
    /// Its lock meaning, if it has one.
    pub fn op(&self) -> Option<&LockOp> {
        match self {
            Command::Lock(command) => Some(&command.op),
            Command::Opaque(_) => None,
        }
    }

    /// The command's name in the table (lower case).
    pub fn name(&self) -> &'static str {
        match self {
            Command::Lock(command) => command.name,
            Command::Opaque(command) => command.name,
        }
    }

    /// The lock, or the first of several.
    pub fn target(&self) -> &Target {
        match self {
            Command::Lock(command) => command.op.target(),
            Command::Opaque(command) => &command.target,
        }
    }

    /// Every lock that the command names; for a command without a lock meaning, the first.
    pub fn targets(&self) -> SmallVec<[&Target; 1]> {
        match self {
            Command::Lock(command) => command.op.targets(),
            Command::Opaque(command) => SmallVec::from_slice(&[&command.target]),
        }
    }

    /// What to ask the policies about; see [`LockOp::operation`].
    pub fn operation(&self, now: ProxyTime) -> Operation {
        let op = self.op();
        op.map_or(Operation::Write, |op| op.operation(now))
    }

    /// See [`LockOp::owner_token`].
    pub fn owner_token(&self, index: usize) -> Option<&Bytes> {
        self.op()?.owner_token(index)
    }

    /// The client's own bytes.
    pub(crate) fn frame(&self) -> &Bytes {
        match self {
            Command::Lock(command) => &command.frame,
            Command::Opaque(command) => &command.frame,
        }
    }

    /// Whether a server with these commands may lack this one, or its conditions: only rare ones are looked up. `server`
    /// returns `None` if the server does not list its commands.
    pub fn may_be_unknown_to<S: Deref<Target = Option<Arc<ForeignTable>>>>(&self, server: impl FnOnce() -> S) -> bool {
        let is_rare = row_named(self.name().as_bytes()).is_some_and(|row| row.rare);
        match self {
            _ if is_rare => !server().as_ref().is_some_and(|server| server.lists(self.name())),
            Command::Lock(command) if command.name == "set" && command.op.comparison().is_some() => {
                let words = command.argv.iter().skip(3);
                let mut conditions = words.filter_map(|word| {
                    let is = |condition: &&str| word.eq_ignore_ascii_case(condition.as_bytes());
                    SET_CONDITIONS.into_iter().find(is)
                });
                let server = server();
                !conditions.all(|word| server.as_ref().is_some_and(|server| server.takes_in_set(word)))
            }
            Command::Lock(_) | Command::Opaque(_) => false,
        }
    }
}

impl LockCommand {
    /// The arguments of a script with unknown effect that may be owner tokens: those that differ from others' values.
    pub fn script_tokens(&self) -> impl Iterator<Item = &Bytes> {
        let script = self.op.script();
        let arguments = script.and_then(|(_, keys)| self.argv.get(3 + keys..)).unwrap_or_default().iter();
        arguments.filter(|value| OwnerToken::new((*value).clone()).is_distinctive())
    }
}

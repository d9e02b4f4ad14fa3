//! Commands that concern the server as a whole: who may send them, and what is done about those
//! that could erase locks. Owns that ruling and the leave to forward that follows from it. A FLUSH
//! is not ruled on from here: whether a lock lives is known to Redis alone, so it becomes a step
//! that looks and empties at once (`flush.lua`).

use bytes::Bytes;

use crate::namespace::{NamespaceId, Namespaces};
use crate::op::{Arguments, OpaqueCommand, OpaqueKind};
use crate::pass_through::PassThrough;
use crate::rules::Mode;
use crate::table::Reach;

/// Most keys among which a FLUSH looks for live leases; above that it is refused unseen. Looking at
/// so many takes Redis 70 ms where few are leases, and some 250 ms where half of them are.
pub const MAX_FLUSH_KEYS: u64 = 200_000;
/// Most leases that a FLUSH counts once more of them could change nothing.
pub const MAX_FLUSH_LEASES: u64 = 10_000;

/// What `CONFIG GET` may be asked by everybody: client libraries do at connect.
const HARMLESS_PARAMETERS: [&[u8]; 5] = [b"appendonly", b"databases", b"maxmemory", b"notify-keyspace-events", b"save"];

/// Who may administer the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerCommands {
    /// Every client that Redis lets.
    #[default]
    Forward,
    /// Only those on the list.
    Refuse,
}

/// A command about the server.
#[derive(Clone, Debug)]
pub struct AdminCommand {
    name: &'static str,
    kind: Kind,
    argv: Arguments,
    frame: Bytes,
}

#[derive(Clone, Debug)]
enum Kind {
    /// No lock is erased by it at once.
    Server,
    /// The same, and everybody may ask.
    Harmless,
    /// `FLUSHDB`, or `FLUSHALL`.
    Flush { all: bool },
    /// `SWAPDB`.
    Swap,
    /// `SCRIPT DEBUG YES`, or KeyDB's `KEYDB.CRON` and `RREPLAY`: the server is given any command by it, past the proxy.
    Debug,
    /// The table does not have it, and it may reach any key, as the server's words or the operator's say.
    Foreign,
    /// Moves or remakes a lock key as a whole: `MIGRATE`, or `RESTORE`, which is not for
    /// administrators alone.
    Lock { command: Box<OpaqueCommand>, server: bool },
}

impl AdminCommand {
    pub(crate) fn new(name: &'static str, argv: Arguments, frame: Bytes) -> AdminCommand {
        let kind = match name {
            "flushdb" => Kind::Flush { all: false },
            "flushall" => Kind::Flush { all: true },
            "swapdb" => Kind::Swap,
            "script|debug" if !is_off(&argv) => Kind::Debug,
            "keydb.cron" | "rreplay" => Kind::Debug,
            "config|get" if is_harmless(&argv) => Kind::Harmless,
            _ => Kind::Server,
        };
        AdminCommand { name, kind, argv, frame }
    }

    /// One that would change a lock key; a client that is not on the list is judged as any other.
    pub(crate) fn on_lock(command: Box<OpaqueCommand>, server: bool) -> AdminCommand {
        AdminCommand {
            name: command.name,
            argv: Arguments::new(),
            frame: command.frame.clone(),
            kind: Kind::Lock { command, server },
        }
    }

    /// A command that the table does not have, if it reaches more than the keys that it names.
    pub(crate) fn foreign(name: &'static str, reach: Reach, frame: &[u8]) -> Option<AdminCommand> {
        let kind = match reach {
            Reach::Nothing => return None,
            Reach::Server => Kind::Server,
            Reach::AnyKey => Kind::Foreign,
        };
        Some(AdminCommand { name, kind, argv: Arguments::new(), frame: Bytes::copy_from_slice(frame) })
    }

    /// The command's name as the table has it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the ruling depends on who asks or on what is enforced: what is not ruled on may go
    /// at once.
    pub fn is_ruled_on(&self, server_commands: ServerCommands) -> bool {
        match self.kind {
            Kind::Harmless => false,
            Kind::Server => server_commands == ServerCommands::Refuse,
            Kind::Flush { .. } | Kind::Swap | Kind::Debug | Kind::Foreign | Kind::Lock { .. } => true,
        }
    }

    /// Whether it could erase locks, so that what becomes of it is worth a line in the log.
    pub fn may_erase_locks(&self) -> bool {
        match self.kind {
            Kind::Server | Kind::Harmless => false,
            Kind::Flush { .. } | Kind::Swap | Kind::Debug | Kind::Foreign | Kind::Lock { .. } => true,
        }
    }
}

/// Whether it is `SCRIPT DEBUG NO`.
fn is_off(argv: &Arguments) -> bool {
    argv.get(2).is_some_and(|mode| mode.eq_ignore_ascii_case(b"no"))
}

fn is_harmless(argv: &Arguments) -> bool {
    argv.iter()
        .skip(2)
        .all(|parameter| HARMLESS_PARAMETERS.iter().any(|harmless| harmless.eq_ignore_ascii_case(parameter)))
}

/// What a ruling depends on.
pub struct Setting<'a> {
    /// Who may administer.
    pub server_commands: ServerCommands,
    /// Whether the client is on the list of those who may do so in spite of leases.
    pub listed: bool,
    /// Whether the client is another node of the cluster, which hands keys of a slot over.
    pub is_node: bool,
    /// Which keys are locks.
    pub namespaces: &'a Namespaces,
    /// What holds for them.
    pub mode: &'a dyn Fn(NamespaceId) -> Mode,
}

impl Setting<'_> {
    fn has_locks(&self) -> bool {
        self.namespaces.globs().len() > 0
    }

    fn enforces(&self) -> bool {
        self.namespaces.globs().any(|(namespace, _)| (self.mode)(namespace) == Mode::Enforce)
    }
}

/// What is to be done with an administration command.
#[derive(Debug)]
pub enum Ruling {
    /// It goes as it came.
    Forward(Forward),
    /// A step looks for live leases first.
    Flush(Box<Flush>),
    /// Only those on the list may.
    NotPermitted,
    /// `SWAPDB` while anything is enforced.
    SwapRefused,
    /// `SCRIPT DEBUG` and its like while anything is enforced.
    DebugRefused,
    /// A command that the table does not have, while anything is enforced.
    ForeignRefused,
    /// It is an operation on a lock like any other.
    Judge(Box<OpaqueCommand>),
}

/// Leave to forward an administration command.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Why it may go.
    pub why: ForwardWhy,
    frame: Bytes,
}

/// Why an administration command may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardWhy {
    /// It erases no lock, or there are none.
    Harmless,
    /// The client is on the list.
    Listed,
    /// Nothing is enforced; enforced, it would be refused.
    Watched,
}

impl Forward {
    /// The client's own bytes.
    pub fn pass(&self) -> PassThrough<'_> {
        PassThrough::of(&self.frame, false)
    }
}

/// A FLUSH that looks for live leases first.
#[derive(Clone, Debug)]
pub struct Flush {
    /// The command's name as the table has it.
    pub name: &'static str,
    /// All databases, or the selected one.
    pub all: bool,
    /// Whether the client is on the list.
    pub listed: bool,
    /// Whether it goes on whatever is found: the client is on the list, or nothing is enforced.
    pub lenient: bool,
    /// Whether nothing is emptied: it is only found out what would be refused.
    pub only_looks: bool,
    argv: Arguments,
    frame: Bytes,
}

impl Flush {
    /// The client's own words.
    pub(crate) fn argv(&self) -> &Arguments {
        &self.argv
    }

    /// Leave to forward it where Redis does not let the client look; `None` where what would be
    /// found decides.
    pub fn unseen(&self) -> Option<PassThrough<'_>> {
        self.lenient.then(|| PassThrough::of(&self.frame, false))
    }
}

/// Rules on an administration command.
pub fn rule(command: AdminCommand, setting: &Setting<'_>) -> Ruling {
    let AdminCommand { name, kind, argv, frame } = command;
    let forward = |why| {
        let frame = frame.clone();
        Ruling::Forward(Forward { why, frame })
    };
    let refuses = setting.server_commands == ServerCommands::Refuse && !setting.listed;
    match kind {
        Kind::Harmless => forward(ForwardWhy::Harmless),
        // As `MIGRATE` sends it: the key goes on to be what it was on the other node.
        Kind::Lock { .. } if setting.is_node && name == "restore-asking" => forward(ForwardWhy::Harmless),
        // No administrator remakes what is the proxy's own.
        Kind::Lock { command, .. } if command.kind != OpaqueKind::Command => Ruling::Judge(command),
        Kind::Lock { command, server: false } if !setting.listed => Ruling::Judge(command),
        Kind::Server | Kind::Flush { .. } | Kind::Swap | Kind::Debug | Kind::Foreign | Kind::Lock { .. } if refuses => {
            Ruling::NotPermitted
        }
        Kind::Server => forward(ForwardWhy::Harmless),
        Kind::Lock { .. } if setting.listed => forward(ForwardWhy::Listed),
        Kind::Lock { command, .. } => Ruling::Judge(command),
        Kind::Flush { .. } | Kind::Swap | Kind::Debug | Kind::Foreign if !setting.has_locks() => {
            forward(ForwardWhy::Harmless)
        }
        Kind::Swap | Kind::Debug | Kind::Foreign if setting.listed => forward(ForwardWhy::Listed),
        Kind::Swap if setting.enforces() => Ruling::SwapRefused,
        Kind::Debug if setting.enforces() => Ruling::DebugRefused,
        Kind::Foreign if setting.enforces() => Ruling::ForeignRefused,
        Kind::Swap | Kind::Debug | Kind::Foreign => forward(ForwardWhy::Watched),
        Kind::Flush { all } => Ruling::Flush(Box::new(Flush {
            name,
            all,
            listed: setting.listed,
            lenient: setting.listed || !setting.enforces(),
            only_looks: false,
            argv,
            frame,
        })),
    }
}

#[cfg(test)]
mod tests;

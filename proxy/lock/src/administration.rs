//! Commands that concern the server as a whole: who may send them, and how those are treated that could erase locks.
//! Owns that ruling and the permission to forward that follows from it. A FLUSH is not ruled on here: only Redis knows
//! whether a lock is alive, so a FLUSH becomes a step that checks and empties at once (`flush.lua`).

use bytes::Bytes;

use crate::namespace::{NamespaceId, Namespaces};
use crate::op::{Arguments, OpaqueCommand, OpaqueKind};
use crate::pass_through::PassThrough;
use crate::rules::Mode;
use crate::table::Reach;

/// The most keys among which a FLUSH looks for live leases; with more it is refused without looking. Looking at this
/// many keys takes Redis 70 ms if few are leases, and about 250 ms if half of them are.
pub const MAX_FLUSH_KEYS: u64 = 200_000;
/// The most leases that a FLUSH counts, once further ones could change nothing.
pub const MAX_FLUSH_LEASES: u64 = 10_000;

/// The parameters that every client may read with `CONFIG GET`: client libraries do so when they connect.
const HARMLESS_PARAMETERS: [&[u8]; 5] = [b"appendonly", b"databases", b"maxmemory", b"notify-keyspace-events", b"save"];

/// Who may administer the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerCommands {
    /// Every client that Redis permits.
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
    /// It erases no lock directly.
    Server,
    /// The same, and every client may send it.
    Harmless,
    /// `FLUSHDB`, or `FLUSHALL`.
    Flush { all: bool },
    /// `SWAPDB`.
    Swap,
    /// `SCRIPT DEBUG YES`, or KeyDB's `KEYDB.CRON` and `RREPLAY`: through it the server gets any command, past the
    /// proxy.
    Debug,
    /// A command that is not in the table, and that may reach any key, according to the server or the operator.
    Foreign,
    /// Moves or replaces a lock key as a whole: `MIGRATE`, or `RESTORE`, which is not only for administrators.
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

    /// One that would change a lock key. For a client that is not on the list it is judged like any other command.
    pub(crate) fn on_lock(command: Box<OpaqueCommand>, server: bool) -> AdminCommand {
        AdminCommand {
            name: command.name,
            argv: Arguments::new(),
            frame: command.frame.clone(),
            kind: Kind::Lock { command, server },
        }
    }

    /// A command that is not in the table, if it reaches more than the keys that it names.
    pub(crate) fn foreign(name: &'static str, reach: Reach, frame: &[u8]) -> Option<AdminCommand> {
        let kind = match reach {
            Reach::Nothing => return None,
            Reach::Server => Kind::Server,
            Reach::AnyKey => Kind::Foreign,
        };
        Some(AdminCommand { name, kind, argv: Arguments::new(), frame: Bytes::copy_from_slice(frame) })
    }

    /// The command's name in the table.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the ruling depends on the client or on what is enforced; otherwise the command may be forwarded at once.
    pub fn is_ruled_on(&self, server_commands: ServerCommands) -> bool {
        match self.kind {
            Kind::Harmless => false,
            Kind::Server => server_commands == ServerCommands::Refuse,
            Kind::Flush { .. } | Kind::Swap | Kind::Debug | Kind::Foreign | Kind::Lock { .. } => true,
        }
    }

    /// Whether it could erase locks, so that its result deserves a line in the log.
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
    /// Whether the client is on the list of those that may administer in spite of leases.
    pub listed: bool,
    /// Whether the client is another node of the cluster, which hands over the keys of a slot.
    pub is_node: bool,
    /// Which keys are locks.
    pub namespaces: &'a Namespaces,
    /// The mode of each namespace.
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

/// What to do with an administration command.
#[derive(Debug)]
pub enum Ruling {
    /// Forward it unchanged.
    Forward(Forward),
    /// A step looks for live leases first.
    Flush(Box<Flush>),
    /// Only clients on the list may send it.
    NotPermitted,
    /// `SWAPDB` while anything is enforced.
    SwapRefused,
    /// `SCRIPT DEBUG` and its like while anything is enforced.
    DebugRefused,
    /// A command that is not in the table, while anything is enforced.
    ForeignRefused,
    /// It is judged like any other operation on a lock.
    Judge(Box<OpaqueCommand>),
}

/// Permission to forward an administration command.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Why it may be forwarded.
    pub why: ForwardWhy,
    frame: Bytes,
}

/// Why an administration command may be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardWhy {
    /// It erases no lock, or there are none.
    Harmless,
    /// The client is on the list.
    Listed,
    /// Nothing is enforced; in enforce mode it would be refused.
    Watched,
}

impl Forward {
    /// The client's own bytes.
    pub fn pass(&self) -> PassThrough<'_> {
        PassThrough::of(&self.frame, false)
    }
}

/// A FLUSH that first looks for live leases.
#[derive(Clone, Debug)]
pub struct Flush {
    /// The command's name in the table.
    pub name: &'static str,
    /// All databases, or the selected one.
    pub all: bool,
    /// Whether the client is on the list.
    pub listed: bool,
    /// Whether it is executed whatever is found: the client is on the list, or nothing is enforced.
    pub lenient: bool,
    /// Whether nothing is emptied, and the step only finds out what would be refused.
    pub only_looks: bool,
    argv: Arguments,
    frame: Bytes,
}

impl Flush {
    /// The client's own arguments.
    pub(crate) fn argv(&self) -> &Arguments {
        &self.argv
    }

    /// Permission to forward it if Redis does not let the client look; `None` if the ruling depends on what would be
    /// found.
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
        // As `MIGRATE` sends it: the key continues as it was on the other node.
        Kind::Lock { .. } if setting.is_node && name == "restore-asking" => forward(ForwardWhy::Harmless),
        // Not even an administrator may replace the proxy's own keys.
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

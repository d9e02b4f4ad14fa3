//! The command table: every command that a Redis may know, where its keys are, and what it means for a lock. This
//! module owns the terms of the table and the look-up by name; it never looks at a namespace and never asks a server.
//! The rows are in `rows`, key positions are computed in `keys`, and [`crate::classify`] reads the arguments of a
//! command with a lock meaning.

mod foreign;
mod grammar;
mod integer;
mod keys;
mod lookup;
#[cfg(test)]
pub(crate) mod replaced;
mod rows;
mod scripted;

pub use foreign::{
    Categories, ForeignSpec, ForeignTable, Reach, SET_CONDITIONS, Said, for_each_foreign_key, lasting_name,
};
pub use integer::{NotAnInteger, parse_integer};
pub use keys::{KeyError, for_each_key};
pub use lookup::{Lookup, lookup, row_named};
pub use scripted::in_script;

/// Commands for which Redis does not check a user's rights on every key: of several `STORE` options only the last, and
/// of `PFMERGE` none if it has a single key.
pub const KEYS_UNCHECKED: [&str; 3] = ["georadius", "georadiusbymember", "pfmerge"];
/// The same before 7.0: `SORT … BY … GET` reads any key.
pub const KEYS_UNCHECKED_BEFORE_7: [&str; 1] = ["sort"];

/// Every command.
pub fn rows() -> impl Iterator<Item = &'static CommandSpec> {
    rows::ROWS.iter()
}

/// The options of a command that may be followed by keys, in lower case.
pub fn option_words(command: &str) -> impl Iterator<Item = &'static str> {
    let of_command = move |grammar: &&grammar::Grammar| grammar.command == command;
    let all = grammar::GRAMMARS.iter().filter(of_command);
    all.flat_map(|grammar| grammar.words.iter().map(|word| word.name))
}

/// The arguments of a command, its name included as argument 0.
pub trait Arguments {
    /// The number of arguments.
    fn len(&self) -> usize;

    /// Argument `index`, which is less than [`Arguments::len`].
    fn arg(&self, index: usize) -> &[u8];

    /// Whether there is not even a name.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Arguments for lockwarden_resp::request::Request<'_> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn arg(&self, index: usize) -> &[u8] {
        Self::arg(self, index)
    }
}

impl Arguments for [&[u8]] {
    fn len(&self) -> usize {
        <[&[u8]]>::len(self)
    }

    fn arg(&self, index: usize) -> &[u8] {
        self[index]
    }
}

/// One command, or one subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    /// In lower case; subcommands as Redis names them: `client|reply`.
    pub name: &'static str,
    /// The number of arguments with the name; a negative one is a minimum.
    pub arity: i16,
    /// The positions of its keys.
    pub keys: KeySpec,
    /// Its effect.
    pub effect: Effect,
    /// Whether it may block the client.
    pub blocking: bool,
    /// Whether most servers lack it.
    pub rare: bool,
    /// The position of the value that it stores, if that is always the same.
    pub value_at: Option<u8>,
}

impl CommandSpec {
    /// Whether Redis may delay it while it holds writes back (`CLIENT PAUSE`, a failover): commands that write, and
    /// those that it would pass on to replicas.
    pub fn is_held_back(&self) -> bool {
        match self.effect {
            Effect::Neutral => matches!(self.name, "publish" | "spublish"),
            effect => effect.access() == Access::Write,
        }
    }
}

/// The effect of a command on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Has no keys, or does nothing to them that matters here: passes through.
    Neutral,
    /// Only reads its keys.
    Read,
    /// Changes at least one of its keys in a way that has no lock meaning.
    Write,
    /// Has a lock meaning.
    Verb(Verb),
    /// Changes the state of the connection.
    Session(SessionVerb),
    /// Runs, loads or asks for scripts.
    Script(ScriptVerb),
    /// Names keys that the request did not name.
    Listing(Listing),
    /// About the server as a whole.
    Admin,
}

impl Effect {
    /// What a command with this effect may do to its keys, unless the key's position says otherwise. Anything that is
    /// neither a read nor known to be harmless counts as a write.
    pub const fn access(self) -> Access {
        match self {
            Effect::Neutral | Effect::Read | Effect::Session(_) | Effect::Listing(_) => Access::Read,
            Effect::Verb(Verb::Get | Verb::MGet) => Access::Read,
            Effect::Script(ScriptVerb::EvalRo | ScriptVerb::EvalShaRo | ScriptVerb::FcallRo) => Access::Read,
            Effect::Write | Effect::Verb(_) | Effect::Script(_) | Effect::Admin => Access::Write,
        }
    }
}

/// The commands used in lock idioms.
#[expect(missing_docs, reason = "each is named after its command")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    SetNx,
    Set,
    SetEx,
    PSetEx,
    GetSet,
    GetDel,
    GetEx,
    Del,
    Unlink,
    Expire,
    PExpire,
    ExpireAt,
    PExpireAt,
    Persist,
    MSetNx,
    MSetEx,
    Get,
    MGet,
    Incr,
    DelEx,
    DelIfEq,
    Cad,
    Cas,
}

/// The commands that change the state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionVerb {
    /// `ASKING`.
    Asking,
    /// `AUTH`.
    Auth,
    /// `HELLO`.
    Hello,
    /// `SELECT`.
    Select,
    /// `MULTI`.
    Multi,
    /// `EXEC`.
    Exec,
    /// `DISCARD`.
    Discard,
    /// `WATCH`.
    Watch,
    /// `UNWATCH`.
    Unwatch,
    /// `RESET`.
    Reset,
    /// `QUIT`.
    Quit,
    /// `CLIENT REPLY`.
    ClientReply,
    /// `CLIENT TRACKING`.
    ClientTracking,
    /// `CLIENT SETNAME`.
    ClientSetName,
    /// `CLIENT SETINFO`.
    ClientSetInfo,
    /// `CLIENT MAINT_NOTIFICATIONS`.
    ClientMaintNotifications,
    /// `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`.
    Subscribe(Channel),
    /// `UNSUBSCRIBE`, `PUNSUBSCRIBE`, `SUNSUBSCRIBE`.
    Unsubscribe(Channel),
    /// `MONITOR`.
    Monitor,
    /// `SYNC`, `PSYNC`, `REPLCONF`: the connection becomes a replica's.
    Replication,
}

/// What a subscription names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A channel by its name.
    Channel,
    /// Channels by a glob.
    Pattern,
    /// A shard channel by its name.
    Shard,
}

/// The commands whose replies name keys: the proxy's own are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// `KEYS`: an array of names.
    Keys,
    /// `SCAN`: a cursor and an array of names.
    Scan,
    /// `RANDOMKEY`: one name.
    RandomKey,
}

/// The commands about scripts and functions.
#[expect(missing_docs, reason = "each is named after its command")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptVerb {
    Eval,
    EvalSha,
    EvalRo,
    EvalShaRo,
    Fcall,
    FcallRo,
    ScriptLoad,
    ScriptExists,
    ScriptFlush,
}

/// What a command may do to one of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The key is unchanged.
    Read,
    /// The key may be changed, removed or created.
    Write,
}

/// The positions of a command's keys. Positions count arguments from the name, which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySpec {
    /// No keys.
    None,
    /// The name of a family of subcommands, each with a row of its own.
    Subcommands,
    /// Every `step`-th argument from `first` to `last`; a negative `last` counts from the end, with
    /// -1 the last argument. All with the access of the command's effect.
    Range {
        /// The first key.
        first: u8,
        /// The last key, or where it would be if `step` fits.
        last: i8,
        /// The distance between keys.
        step: u8,
    },
    /// Pairs of key and value up to the end, which may not be cut in half.
    Pairs,
    /// A source that is read at 1, a destination that is written at 2.
    SourceDest,
    /// A destination that is written, and sources that are read after it up to the end.
    DestSources {
        /// Where the destination stands.
        dest: u8,
    },
    /// A destination that is written at 1, one source that is read at 2.
    DestSource,
    /// A number at `at`, that many keys after it, each followed by `step - 1` other arguments.
    Numkeys {
        /// The position of the number.
        at: u8,
        /// The distance between keys.
        step: u8,
        /// Redis's reaction to an invalid number.
        count: CountRule,
    },
    /// A destination that is written at `dest`, a number at `at`, that many sources that are read.
    DestNumkeys {
        /// The position of the destination.
        dest: u8,
        /// The position of the number.
        at: u8,
    },
    /// `BITFIELD`: a key at 1, written unless every operation is a `GET`.
    Bitfield,
    /// `SORT`: a key at 1 that is read, and one after each `STORE`.
    Sort,
    /// `GEORADIUS` and its sister: a key at 1 that is read, and one after each `STORE` and
    /// `STOREDIST` in the options.
    GeoRadius {
        /// Where the options begin.
        options: u8,
    },
    /// The first half of what follows `STREAMS`, which stands among options.
    Streams {
        /// Whether `GROUP`, `NOACK` and `CLAIM` are among the options: `XREADGROUP`.
        group: bool,
    },
    /// `MIGRATE`: a key at 3 or, where that is empty, those after `KEYS`.
    Migrate,
}

/// How Redis reads a number of keys, and its error for a bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountRule {
    /// `EVAL` and its family.
    Script,
    /// `FCALL` and its family.
    Function,
    /// `LMPOP` and its family: at least one key, and one more argument after them.
    Pop,
    /// `SINTERCARD`.
    Cardinality,
    /// `ZUNION` and its family.
    Sets,
    /// `MSETEX`: that many pairs.
    Pairs,
}

/// The commands with a lock meaning.
pub(crate) fn verbs() -> impl Iterator<Item = &'static str> {
    let has_meaning = |row: &&CommandSpec| matches!(row.effect, Effect::Verb(_));
    rows::ROWS.iter().filter(has_meaning).map(|row| row.name)
}

/// Whether Redis accepts this number of arguments, the name included. If not, it replies with the error itself and
/// touches nothing.
pub fn arity_ok(spec: &CommandSpec, argc: usize) -> bool {
    let wanted = usize::from(spec.arity.unsigned_abs());
    if spec.arity < 0 { argc >= wanted } else { argc == wanted }
}

#[cfg(test)]
mod tests;

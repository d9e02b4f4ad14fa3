//! What a request means, before policies or Redis are asked: nothing to us, a change of connection state, a look at a
//! lock, or an operation on one. Owns the decision which requests are judged at all. The arguments of the lock verbs
//! are read in `verbs`, scripts in `scripts` and `recipes`, questions about leases in `lease_question`. It never asks
//! Redis and never guesses: a request that it cannot read to the end gets Redis's own error.

mod computed;
mod lease_question;
mod recipes;
mod scripts;
mod verbs;

pub use computed::{ComputedNames, ComputedScript, FunctionCall, UnseenScript};
pub use lease_question::{About, LeaseQuestion, Mistake};

use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lua::Names;
use lockwarden_resp::Request;
use smallvec::SmallVec;

use crate::administration::AdminCommand;
use crate::companion::{OwnKey, is_prefix_mark, lock_behind};
use crate::namespace::{NamespaceId, Namespaces};
use crate::op::{Arguments, Command, LockCommand, LockOp, OpaqueCommand, OpaqueKind, Target};
use crate::operator_command::OperatorCommand;
use crate::pass_through::PassThrough;
use crate::rules::Mode;
use crate::script_facts::{ScriptFacts, ScriptSha};
use crate::table::{
    Access, CommandSpec, Effect, ForeignTable, KeyError, KeySpec, Listing, Lookup, Reach, Said, SessionVerb, Verb,
    arity_ok, for_each_foreign_key, for_each_key, lasting_name, lookup, row_named,
};

/// The longest lock key that is judged, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;
/// The longest value of a lock that is judged, in bytes.
pub const MAX_VALUE_BYTES: usize = 16 * 1024;
/// The most locks among the keys of a script with unknown effect. Redisson renews a hundred at once.
pub const MAX_WRAPPED_LOCKS: usize = 256;
/// The longest text of such a script, in bytes.
pub const MAX_WRAPPED_BYTES: usize = 1024 * 1024;

/// Whether this command stores or compares a lock's value at this position: a value above [`MAX_VALUE_BYTES`] is
/// refused there, whatever else the command says. For requests that have not arrived completely.
pub fn has_value_at(name: &[u8], place: usize) -> bool {
    row_named(name).is_some_and(|row| row.value_at.is_some_and(|at| usize::from(at) == place))
}

/// What a request means.
#[derive(Debug)]
pub enum Class<'a> {
    /// No lock is changed, and nothing is learned.
    PassThrough(PassThrough<'a>),
    /// Reads the value of these locks, which may prove something later.
    Read(PassThrough<'a>, SmallVec<[Target; 1]>),
    /// A change of connection state.
    Session(SessionVerb, PassThrough<'a>),
    /// About the server as a whole, or a lock key as a whole.
    Admin(Box<AdminCommand>),
    /// `FCALL` with a lock key, of a function that the operator trusts.
    Trusted(PassThrough<'a>, Target),
    /// `SCRIPT LOAD`: the text should be remembered.
    ScriptLoad(PassThrough<'a>),
    /// `SCRIPT EXISTS`: its reply must also be true for this proxy.
    ScriptExists(PassThrough<'a>),
    /// Its reply names keys; the proxy's own are left out.
    Listing(Listing, PassThrough<'a>),
    /// An operation on locks.
    Judge(Box<LockCommand>),
    /// A change of a lock key without a lock meaning.
    Opaque(Box<OpaqueCommand>),
    /// `EVALSHA` of a text that this proxy has not seen, on a lock key.
    UnknownScript(Box<OpaqueCommand>),
    /// The same without a lock key: the script may compute the names of locks.
    UnseenScript(UnseenScript),
    /// A script that declares no lock, but may compute the name of one.
    Computed(Box<ComputedScript>),
    /// `FCALL` of a function that may compute the name of a lock.
    ComputedFunction(FunctionCall),
    /// `FCALL` of an unknown function, which may do the same.
    UnknownFunction(FunctionCall),
    /// A lock key or a value that is too long to be judged.
    TooLong(Command, TooLong),
    /// `LOCKWARDEN FENCE key`, the proxy's own command: the fencing token of this connection's lease.
    Fence(PassThrough<'a>, Bytes),
    /// `LOCKWARDEN CHECK` or `LEASE`: a question to Redis about a lease. Without a namespace the key is no lock.
    Lease(Result<(LeaseQuestion, Option<NamespaceId>), Mistake>),
    /// An operator's question to the proxy itself.
    Operator(OperatorCommand),
    /// The server may have a command by this name that it does not list, so it must be asked first.
    OtherName(PassThrough<'a>),
    /// This can be no command's name, or the server lists none and a lock is among its arguments.
    UnknownName(UnknownName<'a>),
    /// An error that Redis would give, given by the proxy: nothing is forwarded on a guess.
    Error(String),
    /// The same for a command on a lock that this server does not list: where nothing is enforced, the server gives the
    /// error.
    ErrorOfOthers(ErrorOfOthers<'a>),
}

/// A command that the server would report as unknown.
#[derive(Debug)]
pub struct UnknownName<'a> {
    pass: PassThrough<'a>,
    /// A lock among its arguments, or one of the proxy's own keys. `None` if the word can be no command's name: Redis
    /// compares some names as C strings, up to the first NUL, so it may find `DEL` in a longer word.
    target: Option<Target>,
}

impl<'a> UnknownName<'a> {
    /// Permission to forward the command where nothing is refused; `mode` is that of a namespace.
    pub fn forward(&self, mode: impl Fn(NamespaceId) -> Mode) -> Option<PassThrough<'a>> {
        let target = self.target.as_ref()?;
        (mode(target.namespace) == Mode::Monitor).then_some(self.pass)
    }
}

/// How the operator wants a command treated that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorSays {
    /// It passes, even with a lock's name among its arguments.
    Pass,
    /// It is refused, even without one.
    Refuse,
}

/// Whether a word can be the name of a command or subcommand: these are all printable ASCII.
fn may_be_a_name(word: &[u8]) -> bool {
    word.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// The error for a command that this server does not list, and may not have.
#[derive(Debug)]
pub struct ErrorOfOthers<'a> {
    pass: PassThrough<'a>,
    /// The lock.
    pub target: Target,
    /// The error.
    pub text: String,
}

impl<'a> ErrorOfOthers<'a> {
    /// Permission to forward the command where nothing is refused; `mode` is that of the lock's namespace.
    pub fn forward(&self, mode: Mode) -> Option<PassThrough<'a>> {
        (mode == Mode::Monitor).then_some(self.pass)
    }
}

/// Whether it is one of the commands that compare before they act, which most servers lack.
fn compares(verb: Verb) -> bool {
    matches!(verb, Verb::Cad | Verb::Cas | Verb::DelEx | Verb::DelIfEq)
}

/// The key of `LOCKWARDEN FENCE key`. No server has a command of that name.
fn asks_for_fence(request: &Request<'_>) -> Option<Bytes> {
    let mut words = request.args();
    let own = words.next()?.eq_ignore_ascii_case(b"lockwarden") && words.next()?.eq_ignore_ascii_case(b"fence");
    let key = words.next().filter(|_| own && request.len() == 3)?;
    Some(Bytes::copy_from_slice(key))
}

/// Whether one of the keys of a request is a lock. Not called for every command.
pub fn names_lock(namespaces: &Namespaces, request: &Request<'_>) -> bool {
    let Lookup::Known(spec) = lookup(request) else {
        return false;
    };
    let mut found = false;
    let scan = for_each_key(spec, request, &mut |_, key, _| {
        found = found || namespaces.find(key).is_some();
    });
    scan.is_ok() && found
}

/// The locks among the keys of a request, each as often as it occurs.
pub fn named_locks(namespaces: &Namespaces, request: &Request<'_>) -> SmallVec<[Target; 1]> {
    let mut locks = SmallVec::new();
    let Lookup::Known(spec) = lookup(request) else {
        return locks;
    };
    // If the request cannot be read to the end, Redis refuses it.
    let _ = for_each_key(spec, request, &mut |_, key, _| {
        if let Some(namespace) = namespaces.find(key) {
            let key = Bytes::copy_from_slice(key);
            locks.push(Target { namespace, key });
        }
    });
    locks
}

/// The part that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLong {
    /// The key, above [`MAX_KEY_BYTES`].
    Key,
    /// The value, above [`MAX_VALUE_BYTES`].
    Value,
}

/// Everything that a classification depends on. Cheap to make for every request.
pub struct Classifier<'a> {
    /// Which keys are locks.
    pub namespaces: &'a Namespaces,
    /// The prefix of the proxy's own keys.
    pub companion_prefix: &'a [u8],
    /// The functions that may name lock keys.
    pub trusted_function: &'a dyn Fn(&[u8]) -> bool,
    /// The namespaces whose locks a script may touch without declaring them.
    pub trusted_script: &'a dyn Fn(&ScriptSha) -> SmallVec<[NamespaceId; 1]>,
    /// The names that a function's library writes, if known.
    pub function: &'a dyn Fn(&[u8]) -> Option<Arc<Names>>,
    /// The server's own `COMMAND`, once it is known. Used for commands that are not in the table.
    pub foreign: &'a dyn Fn() -> Option<Arc<ForeignTable>>,
    /// How the operator wants such a command treated, by its name.
    pub operator_says: &'a dyn Fn(&[u8]) -> Option<OperatorSays>,
    /// How scripts are treated that compute key names.
    pub computed_names: &'a ComputedNames,
    /// Whether refusals are carried out in this namespace.
    pub enforces: &'a dyn Fn(NamespaceId) -> bool,
    /// Whether `INCR` takes a lock of this namespace.
    pub counts: &'a dyn Fn(NamespaceId) -> bool,
    /// Script texts that were seen.
    pub script: &'a dyn Fn(&ScriptSha) -> Option<Arc<ScriptFacts>>,
    /// Remembers a script's text and returns its facts.
    pub saw: &'a dyn Fn(&[u8]) -> Arc<ScriptFacts>,
}

impl Classifier<'_> {
    /// Classifies a request.
    pub fn classify<'r>(&self, request: Request<'r>) -> Class<'r> {
        let spec = match lookup(&request) {
            Lookup::Known(spec) => spec,
            Lookup::UnknownSubcommand if !may_be_a_name(request.arg(1)) => {
                return unknown_name(request, None);
            }
            Lookup::UnknownSubcommand | Lookup::Unknown => return self.foreign_command(request),
        };
        let pass = PassThrough::of(request.frame(), spec.blocking);
        let pass = pass.with_effect(spec.effect, !spec.is_held_back());
        let pass = pass.with_keys(spec.keys);
        // Redis answers a wrong number of arguments itself and touches nothing. But after any invalid EXEC, the block
        // is over.
        let ends_block = spec.effect == Effect::Session(SessionVerb::Exec);
        if !ends_block && !arity_ok(spec, request.len()) {
            return Class::PassThrough(pass);
        }
        let about_keys = matches!(spec.effect, Effect::Read | Effect::Write | Effect::Verb(_));
        if about_keys && self.names_nothing_of_ours(spec, &request) {
            return Class::PassThrough(pass);
        }
        match spec.effect {
            Effect::Neutral => Class::PassThrough(pass),
            Effect::Session(verb) => Class::Session(verb, pass),
            Effect::Listing(listing) => Class::Listing(listing, pass),
            Effect::Read | Effect::Write => match self.first_written_lock(spec, &request) {
                Ok(None) => Class::PassThrough(pass),
                Ok(Some((target, kind))) => match self.opaque(spec.name, request, target, kind) {
                    Class::Opaque(command) if is_restore(&command) => {
                        Class::Admin(Box::new(AdminCommand::on_lock(command, false)))
                    }
                    other => other,
                },
                Err(error) => self.uncountable(request, pass, error),
            },
            Effect::Admin => self.admin(spec, request),
            Effect::Verb(verb) => self.verb(verb, spec, request, pass),
            Effect::Script(verb) => self.script_command(verb, spec, request, pass),
        }
    }

    /// Whether its keys can be determined, and none is a lock or one of the proxy's own: the path of nearly every
    /// command. What is found here is examined again where it is needed.
    #[inline]
    fn names_nothing_of_ours(&self, spec: &CommandSpec, request: &Request<'_>) -> bool {
        let ours = |key: &[u8]| self.namespaces.find(key).is_some() || self.may_be_companion(key);
        if let KeySpec::Range { first: 1, last: 1, .. } = spec.keys {
            return request.get(1).is_some_and(|key| !ours(key));
        }
        let mut found = false;
        let scan = for_each_key(spec, request, &mut |_, key, _| found = found || ours(key));
        scan.is_ok() && !found
    }

    fn verb<'r>(
        &self,
        verb: Verb,
        spec: &'static CommandSpec,
        request: Request<'r>,
        pass: PassThrough<'r>,
    ) -> Class<'r> {
        let mut locks: SmallVec<[(usize, Target); 2]> = SmallVec::new();
        let mut companion = None;
        let scan = for_each_key(spec, &request, &mut |position, key, access| {
            if let Some(namespace) = self.namespaces.find(key) {
                locks.push((position, Target { namespace, key: Bytes::copy_from_slice(key) }));
            } else {
                self.note_forbidden(&mut companion, key, access);
            }
        });
        if let Err(error) = scan {
            return self.uncountable(request, pass, error);
        }
        // Before the locks: no lock meaning makes it right to change a record.
        if let Some((target, kind)) = companion {
            return self.opaque(spec.name, request, target, kind);
        }
        let Some((_, first)) = locks.first() else {
            return Class::PassThrough(pass);
        };
        let too_long = locks.iter().find(|(_, target)| target.key.len() > MAX_KEY_BYTES);
        if let Some((_, target)) = too_long {
            let target = target.clone();
            return self.too_long(spec.name, request, target, TooLong::Key);
        }
        if matches!(verb, Verb::Get | Verb::MGet) || (verb == Verb::GetEx && request.len() == 2) {
            return Class::Read(pass, locks.into_iter().map(|(_, target)| target).collect());
        }
        if verb == Verb::Incr && !(self.counts)(first.namespace) {
            return self.opaque(spec.name, request, first.clone(), OpaqueKind::Command);
        }
        let first = first.clone();
        // These commands take all their keys or none, so if only some are locks, there is no lock meaning.
        let words = request.len();
        let has_none = match verb {
            Verb::MSetNx => !words.is_multiple_of(2) && locks.len() != words / 2,
            // Most servers do not have it, and report that themselves.
            Verb::MSetEx => !verbs::takes_all(&request, locks.len()) || self.is_lacking(&request),
            _ => false,
        };
        if has_none {
            return self.opaque(spec.name, request, first, OpaqueKind::Command);
        }
        let (frame, argv) = copied(&request);
        match verbs::read(verb, spec.name, &argv, locks) {
            Ok(op) => understood(verb, spec.name, op, argv, frame),
            // Redis looks for the key first: the reply is nil or this error, and nothing changes either way.
            Err(error) if verb == Verb::GetEx && error.is_about_a_number() => Class::PassThrough(pass),
            Err(error) if compares(verb) && !self.is_listed(spec.name) => {
                Class::ErrorOfOthers(ErrorOfOthers { pass, target: first, text: error.to_string() })
            }
            Err(error) => Class::Error(error.to_string()),
        }
    }

    /// Whether the server lists a command with this name.
    fn is_listed(&self, name: &str) -> bool {
        (self.foreign)().as_ref().is_some_and(|table| table.lists(name))
    }

    /// Whether the server would report the command as unknown.
    fn is_lacking(&self, request: &Request<'_>) -> bool {
        (self.foreign)().is_some_and(|table| table.says(request) == Said::HasNot)
    }

    fn admin<'r>(&self, spec: &'static CommandSpec, request: Request<'r>) -> Class<'r> {
        let found = match self.first_written_lock(spec, &request) {
            // Its keys are where the subcommand has them.
            Ok(None) if spec.name == "debug" => Ok(self.first_companion(&request)),
            found => found,
        };
        match found {
            Ok(None) => {
                let (frame, argv) = copied(&request);
                Class::Admin(Box::new(AdminCommand::new(spec.name, argv, frame)))
            }
            Ok(Some((target, kind))) => match self.opaque(spec.name, request, target, kind) {
                Class::Opaque(command) if kind == OpaqueKind::Command => {
                    Class::Admin(Box::new(AdminCommand::on_lock(command, true)))
                }
                other => other,
            },
            Err(error) => Class::Error(error.to_string()),
        }
    }

    /// A command that is not in the table. What the server says about it may lead to a refusal, but never to
    /// forwarding: KeyDB calls a write of its own a read, and a server still lists a `FLUSHALL` that was renamed. So
    /// any argument may be a key.
    fn foreign_command<'r>(&self, request: Request<'r>) -> Class<'r> {
        if !may_be_a_name(request.name()) {
            return unknown_name(request, None);
        }
        let pass = PassThrough::of(request.frame(), true);
        if let Some(key) = asks_for_fence(&request) {
            return Class::Fence(pass, key);
        }
        if let Some(question) = LeaseQuestion::read(&request) {
            return Class::Lease(question.map(|question| {
                let namespace = self.namespaces.find(&question.key);
                (question, namespace)
            }));
        }
        if let Some(command) = OperatorCommand::read(&request) {
            return Class::Operator(command);
        }
        let said = (self.foreign)().map_or(Said::Untold, |table| table.says(&request));
        if said == Said::NotAsked {
            return Class::OtherName(pass);
        }
        let name = match said {
            Said::Has(_) => lasting_name(request.name()),
            Said::HasNot | Said::NotAsked | Said::TooMany | Said::Untold => "unknown",
        };
        let mut found = None;
        for_each_foreign_key(None, &request, &mut |_, key, access| {
            self.note_forbidden(&mut found, key, access);
        });
        let operator = (self.operator_says)(request.name());
        if let Some((target, kind)) = found {
            return match (kind, operator) {
                (OpaqueKind::Command, Some(OperatorSays::Pass)) => Class::PassThrough(pass),
                (kind, _) => self.opaque(name, request, target, kind),
            };
        }
        let reach = match (operator, said) {
            (Some(OperatorSays::Refuse), _) | (None, Said::TooMany) => Reach::AnyKey,
            (None, Said::Has(spec)) => spec.reach(),
            (Some(OperatorSays::Pass), _) | (None, Said::HasNot | Said::NotAsked | Said::Untold) => Reach::Nothing,
        };
        match AdminCommand::foreign(name, reach, request.frame()) {
            Some(command) => Class::Admin(Box::new(command)),
            None => Class::PassThrough(pass),
        }
    }

    /// A request with an invalid number of keys. Redis refuses it. If no argument could be a lock, Redis does so
    /// itself, in its own words and at its own time: inside MULTI not before EXEC.
    fn uncountable<'r>(&self, request: Request<'r>, pass: PassThrough<'r>, error: KeyError) -> Class<'r> {
        let could_be_a_lock = |word: &[u8]| self.namespaces.find(word).is_some() || self.companion(word).is_some();
        if request.args().skip(1).any(could_be_a_lock) {
            Class::Error(error.to_string())
        } else {
            Class::PassThrough(pass)
        }
    }

    fn first_written_lock(
        &self,
        spec: &'static CommandSpec,
        request: &Request<'_>,
    ) -> Result<Option<(Target, OpaqueKind)>, KeyError> {
        let mut found = None;
        for_each_key(spec, request, &mut |_, key, access| {
            self.note_forbidden(&mut found, key, access);
        })?;
        Ok(found)
    }

    /// One of the proxy's own keys, at any position.
    fn first_companion(&self, request: &Request<'_>) -> Option<(Target, OpaqueKind)> {
        let target = request.args().skip(1).find_map(|word| self.companion(word))?;
        Some((target, OpaqueKind::Companion))
    }

    /// Remembers the first key that must not be written. One of the proxy's own takes precedence over a lock, since no
    /// meaning of the command makes that right; among these, one that is about no lock comes first.
    #[inline]
    fn note_forbidden(&self, found: &mut Option<(Target, OpaqueKind)>, key: &[u8], access: Access) {
        match found {
            None => *found = self.forbidden(key, access),
            Some((_, OpaqueKind::Own)) => {}
            Some((_, before)) => {
                let before = *before;
                let own = self.own_key(key, access);
                if let Some((target, kind)) = own.filter(|(_, kind)| *kind != before) {
                    *found = Some((target, kind));
                }
            }
        }
    }

    /// A lock that would be written, or one of the proxy's own keys, which no client may name.
    #[inline]
    fn forbidden(&self, key: &[u8], access: Access) -> Option<(Target, OpaqueKind)> {
        if let Some(namespace) = self.namespaces.find(key) {
            let target = Target { namespace, key: Bytes::copy_from_slice(key) };
            return (access == Access::Write).then_some((target, OpaqueKind::Command));
        }
        self.own_key(key, access)
    }

    /// One of the proxy's own keys, which no client may name.
    fn own_key(&self, key: &[u8], access: Access) -> Option<(Target, OpaqueKind)> {
        let target = self.companion(key)?;
        let kind = match access == Access::Write && self.is_about_all(key) {
            true => OpaqueKind::Own,
            false => OpaqueKind::Companion,
        };
        Some((target, kind))
    }

    /// Whether a key is one of the proxy's own that is about no particular lock, and so affects all.
    fn is_about_all(&self, key: &[u8]) -> bool {
        OwnKey::of(self.companion_prefix, key, self.namespaces) == Some(OwnKey::Other)
    }

    #[inline]
    fn may_be_companion(&self, key: &[u8]) -> bool {
        // For nearly every key the first byte alone decides, without a call.
        let first = self.companion_prefix.first();
        (first.is_none() || key.first() == first) && key.starts_with(self.companion_prefix) || is_prefix_mark(key)
    }

    /// The lock behind one of the proxy's own keys, as a target that carries the name as sent.
    #[inline]
    fn companion(&self, key: &[u8]) -> Option<Target> {
        if !self.may_be_companion(key) {
            return None;
        }
        let namespace = match OwnKey::of(self.companion_prefix, key, self.namespaces)? {
            OwnKey::Record | OwnKey::Debts => self.namespaces.claims(lock_behind(key)?),
            OwnKey::Other => None,
        };
        // A key about no particular lock affects all: if any lock is enforced, so is this key.
        let enforced = || {
            let mut all = self.namespaces.globs().map(|(namespace, _)| namespace);
            all.find(|namespace| (self.enforces)(*namespace))
        };
        let namespace = namespace.or_else(enforced).unwrap_or(NamespaceId(0));
        Some(Target { namespace, key: Bytes::copy_from_slice(key) })
    }

    fn opaque<'r>(&self, name: &'static str, request: Request<'r>, target: Target, kind: OpaqueKind) -> Class<'r> {
        // If the server does not know a command, the client gets exactly that error: some clients wait for it before
        // they use a command that the server knows.
        if kind == OpaqueKind::Command && self.is_lacking(&request) {
            return unknown_name(request, Some(target));
        }
        Class::Opaque(opaque(name, &request, target, kind))
    }

    fn too_long<'r>(&self, name: &'static str, request: Request<'r>, target: Target, what: TooLong) -> Class<'r> {
        match self.opaque(name, request, target, OpaqueKind::Command) {
            Class::Opaque(command) => Class::TooLong(command.into(), what),
            other => other,
        }
    }
}

fn unknown_name<'r>(request: Request<'r>, target: Option<Target>) -> Class<'r> {
    let pass = PassThrough::of(request.frame(), false);
    Class::UnknownName(UnknownName { pass, target })
}

fn understood<'r>(verb: Verb, name: &'static str, op: LockOp, mut argv: Arguments, frame: Bytes) -> Class<'r> {
    let value_too_long = carries_too_long_a_value(&op);
    // Without a condition DELEX is DEL, which every server has.
    if verb == Verb::DelEx && op.comparison().is_none() {
        argv[0] = Bytes::from_static(b"DEL");
    }
    let command = Box::new(LockCommand { name, op, argv, frame });
    match value_too_long {
        true => Class::TooLong(command.into(), TooLong::Value),
        false => Class::Judge(command),
    }
}

/// Whether a value that the operation stores or compares is too long to be judged.
fn carries_too_long_a_value(op: &LockOp) -> bool {
    let stored = match op {
        LockOp::Acquire { value, .. } | LockOp::Take { value, .. } | LockOp::Store { value, .. } => value.len(),
        LockOp::AcquireAll { locks, .. } => {
            let lengths = locks.iter().map(|(_, value)| value.len());
            lengths.max().unwrap_or(0)
        }
        LockOp::Extend { .. } | LockOp::Release { .. } | LockOp::ReleaseMany { .. } | LockOp::Wrapped { .. } => 0,
    };
    let compared = op.comparison().map_or(0, |with| with.claim.expose().len());
    stored.max(compared) > MAX_VALUE_BYTES
}

/// Whether it replaces a lock key as a whole, which an administrator may; or any key of ours that a cluster node hands
/// over.
fn is_restore(command: &OpaqueCommand) -> bool {
    match command.name {
        "restore" => command.kind == OpaqueKind::Command,
        "restore-asking" => true,
        _ => false,
    }
}

fn opaque(name: &'static str, request: &Request<'_>, target: Target, kind: OpaqueKind) -> Box<OpaqueCommand> {
    Box::new(OpaqueCommand { name, target, kind, frame: Bytes::copy_from_slice(request.frame()) })
}

/// One copy of the request, and its arguments as slices of that.
fn copied(request: &Request<'_>) -> (Bytes, Arguments) {
    let frame = Bytes::copy_from_slice(request.frame());
    let start = request.frame().as_ptr() as usize;
    let argv = request
        .args()
        .map(|arg| {
            let at = arg.as_ptr() as usize - start;
            frame.slice(at..at + arg.len())
        })
        .collect();
    (frame, argv)
}

#[cfg(test)]
mod tests;

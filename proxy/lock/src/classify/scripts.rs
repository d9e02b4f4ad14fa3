//! Calls of scripts and functions: which locks they name, as keys or in the names in their text, and what they are
//! known to do to them. Recipes are read in `recipes`.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lua::{Names, Pattern};
use lockwarden_resp::Request;
use smallvec::SmallVec;

use super::recipes::{self, Script};
use super::{
    Class, Classifier, ComputedNames, ComputedScript, FunctionCall, MAX_KEY_BYTES, MAX_WRAPPED_BYTES,
    MAX_WRAPPED_LOCKS, TooLong, UnseenScript, copied, opaque,
};
use crate::companion::may_be_about_no_lock;
use crate::namespace::NamespaceId;
use crate::op::{KeyPlace, LockCommand, LockOp, OpaqueKind, Reach, Target};
use crate::pass_through::PassThrough;
use crate::script_facts;
use crate::script_facts::{ScriptFacts, ScriptSha};
use crate::table::{CommandSpec, Effect, ScriptVerb, for_each_key};

/// The most keys that a call may name besides those that it declares; with more, they count as unknown.
const MAX_NAMED: usize = 256;

/// What a call of a script may write.
#[derive(Debug, Default)]
struct Named {
    /// The locks among its keys and the other keys that it names. Each occurs once, with its place among the keys, from
    /// 1.
    locks: Vec<(Target, KeyPlace)>,
    /// How many keys it has.
    keys: usize,
    /// The keys that it names besides its declared ones.
    others: Vec<Bytes>,
    /// One of the proxy's own keys, named in its text.
    own: Option<Target>,
    /// Whether it computes further key names.
    computes: bool,
    /// The locks that such a name may belong to.
    possible: Option<Target>,
    /// Whether every such name belongs to one of these locks.
    is_certain: bool,
}

impl Classifier<'_> {
    pub(super) fn script_command<'r>(
        &self,
        verb: ScriptVerb,
        spec: &'static CommandSpec,
        request: Request<'r>,
        pass: PassThrough<'r>,
    ) -> Class<'r> {
        match verb {
            ScriptVerb::ScriptLoad => return Class::ScriptLoad(pass),
            ScriptVerb::ScriptExists => return Class::ScriptExists(pass),
            ScriptVerb::ScriptFlush | ScriptVerb::EvalRo | ScriptVerb::EvalShaRo | ScriptVerb::FcallRo => {
                return Class::PassThrough(pass);
            }
            ScriptVerb::Eval | ScriptVerb::EvalSha | ScriptVerb::Fcall => {}
        }
        let declared = match self.first_written_lock(spec, &request) {
            Ok(declared) => declared,
            Err(error) => return self.uncountable(request, pass, error),
        };
        if let Some((target, kind @ (OpaqueKind::Companion | OpaqueKind::Own))) = declared {
            return self.opaque(spec.name, request, target, kind);
        }
        let declared = declared.map(|(target, _)| target);
        let facts = match verb {
            ScriptVerb::Fcall => return self.function_call(spec, request, pass, declared),
            ScriptVerb::Eval => Some((self.saw)(request.arg(1))),
            // Anything else is no script's digest.
            ScriptVerb::EvalSha
            | ScriptVerb::EvalRo
            | ScriptVerb::EvalShaRo
            | ScriptVerb::FcallRo
            | ScriptVerb::ScriptLoad
            | ScriptVerb::ScriptExists
            | ScriptVerb::ScriptFlush => match ScriptSha::from_hex(request.arg(1)) {
                Some(sha) => (self.script)(&sha),
                None if declared.is_none() => return Class::PassThrough(pass),
                None => None,
            },
        };
        match (facts, declared) {
            (Some(facts), _) => self.script(spec, request, pass, facts),
            (None, Some(target)) => {
                let kind = OpaqueKind::Script;
                Class::UnknownScript(opaque(spec.name, &request, target, kind))
            }
            (None, None) if !self.computed_names.refuses() => Class::PassThrough(pass),
            (None, None) => Class::UnseenScript(UnseenScript::of(&request)),
        }
    }

    fn function_call<'r>(
        &self,
        spec: &'static CommandSpec,
        request: Request<'r>,
        pass: PassThrough<'r>,
        declared: Option<Target>,
    ) -> Class<'r> {
        let function = request.arg(1);
        match declared {
            None if (self.trusted_function)(function) => Class::PassThrough(pass),
            None => self.undeclared_function_call(spec, request, pass),
            Some(target) if (self.trusted_function)(function) => Class::Trusted(pass, target),
            Some(target) => self.opaque(spec.name, request, target, OpaqueKind::Script),
        }
    }

    /// A call of a function that declares no lock.
    fn undeclared_function_call<'r>(
        &self,
        spec: &'static CommandSpec,
        request: Request<'r>,
        pass: PassThrough<'r>,
    ) -> Class<'r> {
        let names = (self.function)(request.arg(1));
        let named = self.named(spec, &request, names.as_deref().unwrap_or(&Names::Computed));
        if let Some(target) = named.own {
            return self.opaque(spec.name, request, target, OpaqueKind::Script);
        }
        if let Some((target, _)) = named.locks.into_iter().next() {
            return self.opaque(spec.name, request, target, OpaqueKind::Script);
        }
        let Some(target) = named.possible else {
            return Class::PassThrough(pass);
        };
        let command = opaque(spec.name, &request, target, OpaqueKind::Script);
        match names {
            Some(_) => Class::ComputedFunction(FunctionCall { command }),
            None => Class::UnknownFunction(FunctionCall { command }),
        }
    }

    /// A call of a script with known text.
    fn script<'r>(
        &self,
        spec: &'static CommandSpec,
        request: Request<'r>,
        pass: PassThrough<'r>,
        facts: Arc<ScriptFacts>,
    ) -> Class<'r> {
        let mut named = self.named(spec, &request, &facts.analysis.names);
        // Whatever keys it declares, it writes none of them.
        let pass = match facts.analysis.no_writes {
            true => pass.with_effect(Effect::Script(ScriptVerb::EvalRo), pass.only_reads()),
            false => pass,
        };
        if facts.analysis.no_writes {
            (named.own, named.possible) = (None, None);
        }
        if let Some(own) = named.own {
            let kind = match self.is_about_all(&own.key) {
                true => OpaqueKind::Own,
                false => OpaqueKind::Script,
            };
            return self.opaque(spec.name, request, own, kind);
        }
        let is_trusted = self.adopt_locks(&mut named, &facts);
        let Some((target, _)) = named.locks.first().cloned() else {
            return match named.possible {
                Some(target) => computed(spec, &request, facts, (target, named.is_certain)),
                None => Class::PassThrough(pass),
            };
        };
        let is_too_long = |(target, _): &(Target, KeyPlace)| target.key.len() > MAX_KEY_BYTES;
        if named.locks.iter().any(is_too_long) {
            return self.too_long(spec.name, request, target, TooLong::Key);
        }
        let (frame, argv) = copied(&request);
        let meaning = match named.locks.len() {
            1 if !is_trusted => recipes::read(&facts.analysis, &argv, &target),
            _ => Script::Unknown,
        };
        let op = match meaning {
            Script::Operation(op) => op,
            Script::Reads => return Class::PassThrough(pass),
            Script::Unknown if facts.analysis.no_writes => return Class::PassThrough(pass),
            Script::Unknown => match self.wrapped(named, facts, is_trusted) {
                Some(op) => op,
                None => {
                    let kind = OpaqueKind::Script;
                    return Class::Opaque(opaque(spec.name, &request, target, kind));
                }
            },
        };
        Class::Judge(Box::new(LockCommand { name: spec.name, op, argv, frame }))
    }

    /// What a call of this script may write.
    fn named(&self, spec: &'static CommandSpec, request: &Request<'_>, names: &Names) -> Named {
        let mut named = Named::default();
        let mut seen = HashSet::new();
        // The number of keys was checked before.
        let _ = for_each_key(spec, request, &mut |_, key, _| {
            named.keys += 1;
            if let Some(namespace) = self.namespaces.find(key)
                && seen.insert(key)
            {
                let key = Bytes::copy_from_slice(key);
                named.locks.push((Target { namespace, key }, KeyPlace(named.keys)));
            }
        });
        if names.come_from_keys() {
            return named;
        }
        if *names == Names::Computed {
            self.may_be_named(&mut named, b"", b"");
            return named;
        }
        let words: Vec<&[u8]> = request.args().skip(3).collect();
        let (keys, arguments) = words.split_at(named.keys.min(words.len()));
        if names.commands_in_call(arguments).any(script_facts::may_write) {
            self.may_be_named(&mut named, b"", b"");
            return named;
        }
        let mut others = HashSet::new();
        names.in_call(keys, arguments, &mut |pattern: &Pattern| match pattern.exact() {
            Some(name) if keys.contains(&name) || others.contains(name) => {}
            Some(name) if others.len() < MAX_NAMED => {
                others.insert(name.to_vec());
                self.also_named(&mut named, name);
            }
            Some(_) | None => {
                self.may_be_named(&mut named, pattern.beginning(), pattern.ending());
            }
        });
        named
    }

    fn also_named(&self, named: &mut Named, name: &[u8]) {
        let key = Bytes::copy_from_slice(name);
        named.others.push(key.clone());
        if let Some(namespace) = self.namespaces.find(name) {
            let place = named.keys + named.others.len();
            named.locks.push((Target { namespace, key }, KeyPlace(place)));
        } else if named.own.is_none() || self.is_about_all(name) {
            named.own = self.companion(name).or(named.own.take());
        }
    }

    /// Handles a name that begins and ends like this: it may be that of a lock, or of a record.
    fn may_be_named(&self, named: &mut Named, beginning: &[u8], ending: &[u8]) {
        named.computes = true;
        let prefix = self.companion_prefix;
        let may_be_record = beginning.starts_with(prefix) || prefix.starts_with(beginning);
        let any: &[u8] = if may_be_record { b"" } else { beginning };
        let is_anything = may_be_about_no_lock(prefix, beginning, ending);
        let (any, end): (&[u8], &[u8]) = if is_anything { (b"", b"") } else { (any, ending) };
        let possible = || {
            let all = self.namespaces.globs().map(|(namespace, _)| namespace);
            let fitting = self.namespaces.find_between(any, end);
            all.filter(move |_| is_anything).chain(fitting)
        };
        let enforced = possible().find(|namespace| (self.enforces)(*namespace));
        let is_better = |target: &Target| (self.enforces)(target.namespace);
        let namespace = enforced.or(possible().next());
        let is_certain =
            namespace.is_some_and(|namespace| self.is_certainly_of((self.enforces)(namespace), beginning, ending));
        let has_better = named.possible.as_ref().is_some_and(is_better);
        if has_better && (named.is_certain || !(is_certain && enforced.is_some())) {
            return;
        }
        if let Some(namespace) = namespace {
            named.possible = Some(possible_target(namespace, beginning, ending));
            named.is_certain = is_certain;
        }
    }

    /// Whether every name that begins and ends like this is a lock, and enforced or not as given. If a glob matches
    /// every such name, it only has stars, and these match anything, so three sample names represent all.
    fn is_certainly_of(&self, enforced: bool, beginning: &[u8], ending: &[u8]) -> bool {
        let any: [&[u8]; 3] = [b"", b"\x01", b"\x01\x02\x01\x02\x01"];
        any.iter().all(|middle| {
            let found = self.namespaces.find(&[beginning, middle, ending].concat());
            found.is_some_and(|namespace| (self.enforces)(namespace) == enforced)
        })
    }

    /// Adds placeholders for the locks that an operator lets this script touch without declaring them; returns whether
    /// there are any.
    fn adopt_locks(&self, named: &mut Named, facts: &ScriptFacts) -> bool {
        let (Some(possible), ComputedNames::Watch(_)) = (&named.possible, self.computed_names) else {
            return false;
        };
        let key = possible.key.clone();
        let trusting = match facts.calls_others {
            true => SmallVec::new(),
            false => (self.trusted_script)(&facts.sha),
        };
        for namespace in &trusting {
            let target = Target { namespace: *namespace, key: key.clone() };
            named.locks.push((target, KeyPlace::ANY));
        }
        !trusting.is_empty()
    }

    /// A script with unknown effect. `None` if it names too many locks, if its text is too long to be sent along, or if
    /// it may name a forbidden key.
    fn wrapped(&self, named: Named, facts: Arc<ScriptFacts>, is_trusted: bool) -> Option<LockOp> {
        let bounded = named.locks.len() <= MAX_WRAPPED_LOCKS && facts.text.len() <= MAX_WRAPPED_BYTES;
        let enforced = |target: &Target| (self.enforces)(target.namespace);
        let reach = match (&named.possible, self.computed_names) {
            (None, _) if !named.computes => Reach::Nothing,
            (None, _) => Reach::Others,
            (Some(_), ComputedNames::Forward) => Reach::Anything,
            (Some(_), ComputedNames::Watch(guard)) if is_trusted => Reach::Trusted(guard.clone()),
            (Some(target), ComputedNames::Watch(guard))
                if !facts.calls_others && (enforced(target) || (facts.has_room && !facts.minds_guard)) =>
            {
                Reach::Guarded(guard.clone())
            }
            (Some(target), _) if !enforced(target) => Reach::Anything,
            (Some(_), ComputedNames::Watch(_) | ComputedNames::Deny { .. }) => return None,
        };
        bounded.then_some(LockOp::Wrapped {
            locks: named.locks,
            script: facts,
            keys: named.keys,
            named: named.others,
            reach,
            data: Vec::new(),
        })
    }
}

fn computed<'r>(
    spec: &'static CommandSpec,
    request: &Request<'_>,
    script: Arc<ScriptFacts>,
    (target, is_certain): (Target, bool),
) -> Class<'r> {
    let (frame, argv) = copied(request);
    Class::Computed(Box::new(ComputedScript { name: spec.name, script, target, is_certain, argv, frame }))
}

/// A placeholder for the locks whose names begin and end like this.
fn possible_target(namespace: NamespaceId, beginning: &[u8], ending: &[u8]) -> Target {
    let beginning = &beginning[..beginning.len().min(MAX_KEY_BYTES / 2)];
    let ending = &ending[ending.len().saturating_sub(MAX_KEY_BYTES / 2)..];
    Target { namespace, key: Bytes::from([beginning, b"*", ending].concat()) }
}

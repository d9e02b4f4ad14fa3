//! Calls of scripts and functions: which locks they name, as keys or in the names that their text
//! gives, and what is known of what they do to them. Recipes are read in `recipes`.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use lockwarden_resp::Request;

use super::recipes::{self, Script};
use super::{
    Class, Classifier, LONGEST_KEY, LONGEST_WRAPPED, MOST_WRAPPED_LOCKS, PassThrough, TooLong,
    copied,
};
use crate::op::{LockCommand, LockOp, OpaqueKind, Target};
use crate::recipe::{Names, ScriptFacts, ScriptSha};
use crate::table::{CommandSpec, ScriptVerb, for_each_key};

/// Keys that a call of a script names beside those that it declares, above which they count as not known.
const MAX_NAMED: usize = 256;

/// What a call of a script may write.
#[derive(Debug, Default)]
struct Named {
    /// The locks among its keys and the other keys that it names, each once, with its place among them,
    /// from 1.
    locks: Vec<(Target, usize)>,
    /// How many keys it has.
    keys: usize,
    /// What it names beside them.
    others: Vec<Bytes>,
    /// One of the proxy's own keys, named in its text.
    own: Option<Target>,
    /// Whether there is no further key that it may write.
    all: bool,
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
            ScriptVerb::ScriptFlush
            | ScriptVerb::EvalRo
            | ScriptVerb::EvalShaRo
            | ScriptVerb::FcallRo => return Class::PassThrough(pass),
            ScriptVerb::Eval | ScriptVerb::EvalSha | ScriptVerb::Fcall => {}
        }
        let declared = match self.first_written_lock(spec, &request) {
            Ok(declared) => declared,
            Err(error) => return self.uncountable(request, pass, error),
        };
        if let Some((target, OpaqueKind::Companion)) = declared {
            return self.opaque(spec.name, request, target, OpaqueKind::Companion);
        }
        let declared = declared.map(|(target, _)| target);
        let facts = match verb {
            ScriptVerb::Fcall => return self.function_call(spec, request, pass, declared),
            ScriptVerb::Eval => Some((self.saw)(request.arg(1))),
            _ => ScriptSha::from_hex(request.arg(1)).and_then(|sha| (self.script)(&sha)),
        };
        match (facts, declared) {
            (Some(facts), _) => self.script(spec, request, pass, facts),
            (None, Some(target)) => {
                let (frame, argv) = copied(&request);
                let kind = OpaqueKind::Script;
                Class::UnknownScript(Box::new(LockCommand {
                    name: spec.name,
                    op: LockOp::Opaque { target, kind },
                    argv,
                    frame,
                }))
            }
            (None, None) => Class::PassThrough(pass),
        }
    }

    fn function_call<'r>(
        &self,
        spec: &'static CommandSpec,
        request: Request<'r>,
        pass: PassThrough<'r>,
        declared: Option<Target>,
    ) -> Class<'r> {
        match declared {
            None => Class::PassThrough(pass),
            Some(target) if (self.trusted_function)(request.arg(1)) => Class::Trusted(pass, target),
            Some(target) => self.opaque(spec.name, request, target, OpaqueKind::Script),
        }
    }

    /// A call of a script whose text is known.
    fn script<'r>(
        &self,
        spec: &'static CommandSpec,
        request: Request<'r>,
        pass: PassThrough<'r>,
        facts: Arc<ScriptFacts>,
    ) -> Class<'r> {
        let named = self.named(spec, &request, &facts);
        let hidden = || match named.all {
            true => None,
            false => self.undeclared(&facts, &request),
        };
        if !facts.no_writes
            && let Some(target) = named.own.clone().or_else(hidden)
        {
            return self.opaque(spec.name, request, target, OpaqueKind::Script);
        }
        let Some((target, _)) = named.locks.first().cloned() else {
            return Class::PassThrough(pass);
        };
        if named
            .locks
            .iter()
            .any(|(target, _)| target.key.len() > LONGEST_KEY)
        {
            return self.too_long(spec.name, request, target, TooLong::Key);
        }
        let (frame, argv) = copied(&request);
        let meaning = match named.locks.len() {
            1 => recipes::read(&facts, &argv, &target),
            _ => Script::Unknown,
        };
        let op = match meaning {
            Script::Operation(op) => op,
            Script::Reads => return Class::PassThrough(pass),
            Script::Unknown if facts.no_writes => return Class::PassThrough(pass),
            Script::Unknown => wrapped(named, facts).unwrap_or(LockOp::Opaque {
                target,
                kind: OpaqueKind::Script,
            }),
        };
        Class::Judge(Box::new(LockCommand {
            name: spec.name,
            op,
            argv,
            frame,
        }))
    }

    /// What a call of this script may write.
    fn named(
        &self,
        spec: &'static CommandSpec,
        request: &Request<'_>,
        facts: &ScriptFacts,
    ) -> Named {
        let mut named = Named {
            all: true,
            ..Named::default()
        };
        let mut seen = HashSet::new();
        // What the number of keys is was looked at before.
        let _ = for_each_key(spec, request, &mut |_, key, _| {
            named.keys += 1;
            if let Some(namespace) = self.namespaces.find(key)
                && seen.insert(key)
            {
                let key = Bytes::copy_from_slice(key);
                named.locks.push((Target { namespace, key }, named.keys));
            }
        });
        match &facts.names {
            Names::Known(names) if names.is_empty() => return named,
            Names::Known(_) => {}
            Names::Computed => {
                named.all = false;
                return named;
            }
        }
        let words: Vec<&[u8]> = request.args().skip(3).collect();
        let (keys, arguments) = words.split_at(named.keys.min(words.len()));
        let mut others = HashSet::new();
        facts
            .names
            .in_call(keys, arguments, &mut |pattern| match pattern.exact() {
                Some(name) if others.len() < MAX_NAMED => {
                    if !keys.contains(&name) && others.insert(Bytes::copy_from_slice(name)) {
                        self.also_named(&mut named, name);
                    }
                }
                Some(_) | None => named.all = false,
            });
        named
    }

    /// A lock that the text of a script names where it writes, and that is not among its keys; or
    /// one of the proxy's own keys.
    fn undeclared(&self, facts: &ScriptFacts, request: &Request<'_>) -> Option<Target> {
        facts.written.iter().find_map(|named| {
            if let Some(record) = self.companion(&named.text) {
                return Some(record);
            }
            let namespace = self.namespaces.find(&named.text).or_else(|| {
                self.namespaces
                    .find_beginning(&named.text)
                    .filter(|_| named.is_beginning)
            })?;
            let declared = request.args().skip(3).any(|word| *word == named.text[..]);
            (named.is_beginning || !declared).then(|| Target {
                namespace,
                key: named.text.clone(),
            })
        })
    }

    fn also_named(&self, named: &mut Named, name: &[u8]) {
        let key = Bytes::copy_from_slice(name);
        named.others.push(key.clone());
        if let Some(namespace) = self.namespaces.find(name) {
            let place = named.keys + named.others.len();
            named.locks.push((Target { namespace, key }, place));
        } else if named.own.is_none() {
            named.own = self.companion(name);
        }
    }
}

/// A script whose meaning is not known; `None` if it names too many locks, or its text is too long to be
/// sent along.
fn wrapped(named: Named, facts: Arc<ScriptFacts>) -> Option<LockOp> {
    let bounded = named.locks.len() <= MOST_WRAPPED_LOCKS && facts.text.len() <= LONGEST_WRAPPED;
    bounded.then_some(LockOp::Wrapped {
        locks: named.locks,
        script: facts,
        keys: named.keys,
        named: named.others,
        names_all: named.all,
    })
}

//! Which requests may be about a lock although no namespace covers their key. A quick look at the command comes first,
//! because nearly every request passes here. The full reading is that of [`lockwarden_lock::classify`], as if every key
//! were a lock.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use lockwarden_lock::classify::{Class, Classifier, ComputedNames};
use lockwarden_lock::glob::Glob;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::op::LockCommand;
use lockwarden_lock::script_facts::{ScriptFacts, ScriptSha};
use lockwarden_lock::table::{Effect, ScriptVerb, Verb};
use lockwarden_resp::Request;

use crate::shape::Shape;
use crate::verdict::is_lock_word;

/// Whether a request may be about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// It is not.
    No,
    /// It takes a lock, if its key is one.
    Takes,
    /// It increments, and may take a lock by that.
    Counts,
    /// It changes a lock, if its keys are tracked.
    Changes,
    /// It reads a lock, if its key is tracked.
    Reads,
    /// It calls a script, which may be anything.
    Script,
}

impl Interest {
    /// Decides by the command's effect on a lock.
    #[inline]
    pub fn of(effect: Effect, request: &Request<'_>) -> Interest {
        match effect {
            Effect::Verb(verb) => Interest::of_verb(verb, request),
            Effect::Script(ScriptVerb::Eval | ScriptVerb::EvalSha) => Interest::Script,
            Effect::Write if is_hsetnx(request) => Interest::Takes,
            Effect::Neutral
            | Effect::Read
            | Effect::Write
            | Effect::Session(_)
            | Effect::Script(_)
            | Effect::Listing(_)
            | Effect::Admin => Interest::No,
        }
    }

    #[inline]
    fn of_verb(verb: Verb, request: &Request<'_>) -> Interest {
        match verb {
            Verb::Get => Interest::Reads,
            Verb::MGet => Interest::No,
            Verb::SetNx | Verb::MSetNx => Interest::Takes,
            Verb::Incr => Interest::Counts,
            Verb::Set | Verb::MSetEx if has_nx(request) => Interest::Takes,
            Verb::Set
            | Verb::MSetEx
            | Verb::SetEx
            | Verb::PSetEx
            | Verb::GetSet
            | Verb::GetDel
            | Verb::GetEx
            | Verb::Del
            | Verb::Unlink
            | Verb::Expire
            | Verb::PExpire
            | Verb::ExpireAt
            | Verb::PExpireAt
            | Verb::Persist
            | Verb::DelEx
            | Verb::DelIfEq
            | Verb::Cad
            | Verb::Cas => Interest::Changes,
        }
    }
}

/// Whether a command writes data that a lock may protect. A command that would take a lock is not one of these.
#[inline]
pub fn writes_data(effect: Effect, interest: Interest) -> bool {
    match interest {
        Interest::Counts | Interest::Changes => true,
        Interest::No => effect == Effect::Write,
        Interest::Takes | Interest::Reads | Interest::Script => false,
    }
}

/// Whether it takes a field of a hash, which some clients use as a lock.
pub fn is_hsetnx(request: &Request<'_>) -> bool {
    request.len() == 4 && request.name().eq_ignore_ascii_case(b"hsetnx")
}

/// Whether it stores a value unconditionally. Inside `MULTI` after a `WATCH`, some clients take a lock in this way.
pub fn stores(effect: Effect) -> bool {
    matches!(effect, Effect::Verb(Verb::Set | Verb::SetEx | Verb::PSetEx))
}

fn has_nx(request: &Request<'_>) -> bool {
    request.len() > 3 && request.args().skip(3).any(|word| word.eq_ignore_ascii_case(b"NX"))
}

/// Whether the name of this key looks like that of a lock.
pub fn is_named_like_lock(key: &[u8]) -> bool {
    Shape::of(key).names().any(|word| is_lock_word(&word))
}

/// One namespace that covers every key.
pub static EVERY_KEY: LazyLock<Namespaces> =
    LazyLock::new(|| Namespaces::new(vec![vec![Glob::new(Bytes::from_static(b"*"))]]));

/// Access to what is known of scripts.
pub struct Scripts<'a> {
    /// The facts of a script, by its digest.
    pub by_name: &'a dyn Fn(&ScriptSha) -> Option<Arc<ScriptFacts>>,
    /// The facts of a script, by its text.
    pub of_text: &'a dyn Fn(&[u8]) -> Arc<ScriptFacts>,
}

/// What a request would be if its keys were locks; `None` where it has no lock meaning.
pub fn recognise(request: Request<'_>, scripts: &Scripts<'_>) -> Option<Box<LockCommand>> {
    let classifier = Classifier {
        namespaces: &EVERY_KEY,
        // No key of the proxy's own gets here: those requests were refused before.
        companion_prefix: b"\0",
        operator_says: &|_| None,
        trusted_function: &|_| false,
        trusted_script: &|_| Default::default(),
        function: &|_| None,
        foreign: &|| None,
        computed_names: &ComputedNames::Forward,
        enforces: &|_| false,
        counts: &|_| true,
        script: scripts.by_name,
        saw: scripts.of_text,
    };
    match classifier.classify(request) {
        Class::Judge(command) => Some(command),
        _ => None,
    }
}

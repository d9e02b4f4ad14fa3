//! Scripts of the application that run unchanged: one with unknown effect, whose locks are examined in the same step,
//! and one that declares no lock, behind a guard.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::step::Step;
use super::{Plan, Planning};
use crate::data_guard::ScriptData;
use crate::op::{KeyPlace, Reach, Target};
use crate::script_facts::{Envelope, ScriptFacts};
use crate::scripts::guard;
use crate::settle::Allowed;
use crate::token::Grant;

/// What such a script may write besides its locks.
pub(super) struct About<'a> {
    /// How many keys it declares.
    pub(super) keys: usize,
    /// The keys that its text names.
    pub(super) named: &'a [Bytes],
    pub(super) reach: &'a Reach,
    pub(super) data: &'a [ScriptData],
}

pub(super) fn plan(
    planning: &Planning<'_>,
    locks: &mut [Allowed],
    places: &[(Target, KeyPlace)],
    script: &Arc<ScriptFacts>,
    about: &About<'_>,
    draw: &mut dyn FnMut() -> Grant,
) -> Plan {
    let (argv, who, keys, reach) = (planning.argv, planning.who, about.keys, about.reach);
    let names: SmallVec<[&[u8]; 8]> = argv[3..3 + keys].iter().chain(about.named).map(|key| &key[..]).collect();
    let mut step = Step::wrapping(&names, &planning.keys, places, planning.companion_prefix);
    step.words(&argv[3 + keys..]);
    let ours = step.count();
    step.letters(&[(planning.monitor, b'm'), (speaks_of_resp(&script.text), b'x'), (*reach == Reach::Nothing, b'c')]);
    step.who(who, &locks[0].rules);
    step.number(u64::from(who.db));
    step.number(keys as u64);
    step.number(locks.len() as u64);
    for ((_, place), lock) in places.iter().zip(locks) {
        let grant = lock.drawn(draw);
        step.script_lock(*place, grant, lock, who, planning.monitor);
    }
    step.number(about.data.len() as u64);
    for one in about.data {
        step.script_data(one, who, planning.companion_prefix);
    }
    step.number((step.count() - ours + 1) as u64);
    step.done_enveloped(script.clone(), Envelope::judged(reach))
}

/// The step that runs a script of the application which computes key names and declares no lock, with these keys and
/// arguments: `[number of keys, key …, argument …]`.
pub fn guarded(script: Arc<ScriptFacts>, guard: Arc<guard::Guard>, words: &[Bytes]) -> Plan {
    let mut step = Step::empty();
    step.words(words);
    let envelope = Envelope { judged: false, guard: Some(guard), adopts: false };
    step.done_enveloped(script, envelope)
}

/// Whether the text may change how replies are parsed.
fn speaks_of_resp(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"setresp").is_some()
}

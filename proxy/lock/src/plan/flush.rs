//! `FLUSHDB` and `FLUSHALL`: one step that looks for live leases, and then empties.

use super::Plan;
use super::step::Step;
use crate::administration::{Flush, MAX_FLUSH_KEYS, MAX_FLUSH_LEASES};
use crate::namespace::{NamespaceId, Namespaces};
use crate::rules::Mode;
use crate::scripts;

/// The step that looks for live leases among all keys, and empties the database, or all of them, only if that erases no
/// enforced lease.
pub fn flush(
    flush: &Flush,
    namespaces: &Namespaces,
    mode: &dyn Fn(NamespaceId) -> Mode,
    companion_prefix: &[u8],
) -> Plan {
    let no_locks: [&[u8]; 0] = [];
    let mut step = Step::new(&no_locks, companion_prefix, &[]);
    step.letters(&[(flush.all, b'a'), (flush.lenient, b'm'), (flush.only_looks, b'l')]);
    step.bytes(companion_prefix);
    step.bytes(&companion_glob(companion_prefix));
    step.number(MAX_FLUSH_KEYS);
    step.number(MAX_FLUSH_LEASES);
    let globs = namespaces.globs();
    step.number(globs.len() as u64);
    for (namespace, glob) in globs {
        let (shape, text) = glob.for_script();
        step.number(u64::from(namespace.0));
        step.letters(&[(mode(namespace) == Mode::Enforce, b'e'), (true, shape)]);
        step.bytes(text);
    }
    step.words(flush.argv());
    step.done(&scripts::FLUSH)
}

/// The pattern of every companion's name.
fn companion_glob(prefix: &[u8]) -> Vec<u8> {
    let mut glob = Vec::with_capacity(prefix.len() + 8);
    for &byte in prefix {
        if b"*?[]\\".contains(&byte) {
            glob.push(b'\\');
        }
        glob.push(byte);
    }
    glob.extend_from_slice(b"{*}:*");
    glob
}

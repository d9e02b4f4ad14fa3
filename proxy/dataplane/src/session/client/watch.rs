//! What a connection watches with `WATCH`.

use lockwarden_lock::db_key::DbKey;

use crate::session::guarded_writes::kept::Heads;

/// Everything that one connection watches, until `EXEC`, `DISCARD` or `UNWATCH`.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    is_any: bool,
    locks: Vec<DbKey>,
    heads: Heads,
}

impl Watch {
    /// Whether any key is watched, lock or not.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any
    }

    /// A `WATCH` was sent.
    pub(crate) fn begin(&mut self) {
        self.is_any = true;
    }

    /// A lock is watched as well. Returns whether it was not watched before.
    pub(crate) fn add_lock(&mut self, lock: &DbKey) -> bool {
        let is_new = !self.has_lock(lock);
        if is_new {
            self.locks.push(lock.clone());
        }
        is_new
    }

    pub(crate) fn has_lock(&self, lock: &DbKey) -> bool {
        self.locks.contains(lock)
    }

    /// The records that the proxy has had watched together with the client's keys, as they were then.
    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    /// Whether the record of this lock is among them.
    pub(crate) fn covers(&self, lock: &[u8]) -> bool {
        self.heads.iter().any(|(known, _)| known == lock)
    }

    /// These records are watched as well.
    pub(crate) fn add_heads(&mut self, heads: Heads) {
        self.heads.extend(heads);
    }

    /// What is known of the records is of another database than the next command's.
    pub(crate) fn forget_heads(&mut self) {
        self.heads.clear();
    }

    /// Nothing is watched any more. Returns the locks that were.
    pub(crate) fn end(&mut self) -> Vec<DbKey> {
        std::mem::take(self).locks
    }
}

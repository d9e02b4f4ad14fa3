//! Which lock keys sessions of this proxy WATCH: keep-alive delays the renewal of those, since a renewal would make
//! an honest WATCH/MULTI/EXEC fail.

use dashmap::DashMap;
use lockwarden_lock::db_key::DbKey;

/// The register. A key that is not watched has no entry.
#[derive(Default)]
pub(crate) struct WatchedKeys {
    watched: DashMap<DbKey, u64>,
}

impl WatchedKeys {
    pub(crate) fn add(&self, key: &DbKey) {
        *self.watched.entry(key.clone()).or_insert(0) += 1;
    }

    pub(crate) fn remove(&self, key: &DbKey) {
        if let Some(mut count) = self.watched.get_mut(key) {
            *count = count.saturating_sub(1);
        }
        self.watched.remove_if(key, |_, count| *count == 0);
    }

    pub(crate) fn is_watched(&self, key: &DbKey) -> bool {
        self.watched.contains_key(key)
    }
}

//! Locks that the last walk over the server's keys has found without a record: those that no client has shown to this
//! proxy. The walk (`maintenance::sweep`) writes it, the view reads it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Locks without a record and without a TTL that the last walk has found, some of them.
#[derive(Default)]
pub struct Ungoverned {
    endless: Mutex<Vec<Bytes>>,
    /// By the name of their namespace.
    equal: Mutex<Vec<(Arc<str>, Equal)>>,
}

/// Locks that hold the same value.
#[derive(Clone, Debug, Default)]
pub struct Equal {
    /// How many they are.
    pub count: u64,
    /// Some of them.
    pub keys: Vec<Bytes>,
}

impl Ungoverned {
    /// Those without a TTL.
    pub fn endless(&self) -> Vec<Bytes> {
        let endless = self.endless.lock();
        endless.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those that hold the same value as another.
    pub fn equal(&self) -> Vec<(Arc<str>, Equal)> {
        let equal = self.equal.lock();
        equal.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces what the previous walk had found.
    pub fn found(&self, endless: Vec<Bytes>, equal: Vec<(Arc<str>, Equal)>) {
        *self.equal.lock().unwrap_or_else(PoisonError::into_inner) = equal;
        *self.endless.lock().unwrap_or_else(PoisonError::into_inner) = endless;
    }
}

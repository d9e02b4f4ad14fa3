//! Namespaces: which keys are locks, and what their operators chose for them. A namespace is found
//! by Redis globs, the first that matches wins; a key that no namespace matches is not a lock.

/// The place of a namespace in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub u16);

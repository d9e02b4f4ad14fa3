//! One module for each major version of `lockwarden:policy` that this proxy speaks. WIT types are
//! structural, so a new major version gets a module of its own here and old policies keep theirs.

pub(crate) mod v1;

//! The `lockwarden` binary.
fn main() {}

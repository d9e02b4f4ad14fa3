//! What can go wrong before a policy is asked: the host cannot start, or a policy cannot be loaded. Each error prints
//! as one line that names the policy and says what to do. A failure while a policy is asked is a fault, see
//! `lockwarden_lock::decision::FaultKind`.

use crate::bindings::v1::ABI;
use std::io;
use std::path::PathBuf;

use lockwarden_lock::decision::{Contradiction, FaultKind, Operation};

/// The host itself cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// This machine cannot run the engine.
    #[error("cannot start the WebAssembly engine: {0}")]
    Engine(String),
    /// No thread for the ticker.
    #[error("cannot start the thread that watches policy deadlines")]
    Ticker(#[source] io::Error),
}

impl HostError {
    pub(crate) fn engine(error: wasmtime::Error) -> HostError {
        HostError::Engine(one_line(&format!("{error:#}")))
    }
}

/// The built-in policies cannot be compiled ahead.
#[derive(Debug, thiserror::Error)]
pub enum AheadError {
    /// No engine.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No policy.
    #[error(transparent)]
    Policy(#[from] LoadError),
}

/// A policy or a chain that cannot be used. `place` is the module's file, or says that it is built
/// in; `namespace` names the chain. Loading collects all of them.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("policy {policy}: cannot read {}: {source}", file.display())]
    Read {
        /// The policy.
        policy: String,
        /// Its module's file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// More than any policy needs.
    #[error("policy {policy}: {place} has more than {limit_bytes} bytes; is it the right file?")]
    TooLarge {
        /// The policy.
        policy: String,
        /// Where its module is.
        place: String,
        /// The largest module that is read.
        limit_bytes: u64,
    },
    /// The file is not the one that was pinned.
    #[error(
        "policy {policy}: {place} has sha256 {found}, the configuration wants {wanted}; \
         review the file, then change the pin"
    )]
    Pin {
        /// The policy.
        policy: String,
        /// Where its module is.
        place: String,
        /// The pin, in hex.
        wanted: String,
        /// The module's digest, in hex.
        found: String,
    },
    /// Not a module of WebAssembly.
    #[error("policy {policy}: {place} is no WebAssembly component or module; lockwarden policy build makes one")]
    NotWasm {
        /// The policy.
        policy: String,
        /// Where its module is.
        place: String,
    },
    /// It wants something that policies do not get.
    #[error(
        "policy {policy}: {place} imports {}; a policy may import nothing but \
         lockwarden:policy (no WASI: lockwarden policy build leaves it out)",
        imports.join(", ")
    )]
    ForeignImports {
        /// The policy.
        policy: String,
        /// Where its module is.
        place: String,
        /// The names of what it wants.
        imports: Vec<String>,
    },
    /// It was built for its author, with what a proxy does not have.
    #[error("policy {policy}: {place} was built for debugging; build it without --debug")]
    ForDebugging {
        /// The policy.
        policy: String,
        /// Where its module is.
        place: String,
    },
    /// It was built for another version of the contract.
    #[error("policy {policy}: {place} was built for {found}; this proxy speaks lockwarden:policy {ABI}")]
    Version {
        /// The policy.
        policy: String,
        /// Where its module is.
        place: String,
        /// The interface that it names, or the function that it asks.
        found: String,
    },
    /// WebAssembly, but no policy.
    #[error("policy {policy}: {place} does not fit the world lockwarden:policy/policy: {detail}")]
    NotAPolicy {
        /// The policy.
        policy: String,
        /// Where its module is.
        place: String,
        /// What does not fit.
        detail: String,
    },
    /// Limits that make no sense.
    #[error("policy {policy}: {detail}")]
    Limits {
        /// The policy.
        policy: String,
        /// What is wrong.
        detail: String,
    },
    /// Two policies of one name.
    #[error("policy {policy} is defined twice; a name stands for one module")]
    DefinedTwice {
        /// The name.
        policy: String,
    },
    /// A chain names a policy that does not exist.
    #[error("namespace {namespace}: there is no policy {policy}; there are {}", known.join(", "))]
    Unknown {
        /// The chain.
        namespace: String,
        /// The name.
        policy: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// A chain names a policy twice.
    #[error("namespace {namespace}: policy {policy} stands twice in its chain")]
    TwiceInChain {
        /// The chain.
        namespace: String,
        /// The policy.
        policy: String,
    },
    /// The policy does not like its settings.
    #[error("namespace {namespace}: policy {policy} rejected its settings: {message}")]
    Rejected {
        /// The chain.
        namespace: String,
        /// The policy.
        policy: String,
        /// Its own words.
        message: String,
    },
    /// It failed before it was used.
    #[error("namespace {namespace}: policy {policy} failed ({}) while it was {doing}: {detail}", kind.word())]
    Faulty {
        /// The chain.
        namespace: String,
        /// The policy.
        policy: String,
        /// How it failed.
        kind: FaultKind,
        /// What it was doing.
        doing: String,
        /// The engine's words.
        detail: String,
    },
    /// Two policies of a chain cannot be satisfied together.
    #[error(
        "namespace {namespace}: policies {first} and {second} contradict each other on {}: {what}",
        operation.word()
    )]
    Contradiction {
        /// The chain.
        namespace: String,
        /// One policy.
        first: String,
        /// The other.
        second: String,
        /// What they were asked about.
        operation: Operation,
        /// What they want.
        what: Contradiction,
    },
    /// A policy asks for a proof that no client can give.
    #[error(
        "namespace {namespace}: policy {policy} asks for a proof of ownership on {} and lets none count",
        operation.word()
    )]
    NoProofCounts {
        /// The chain.
        namespace: String,
        /// The policy.
        policy: String,
        /// What it was asked about.
        operation: Operation,
    },
    /// More instances than the pool has.
    #[error(
        "{instances} policy instances would be needed ({members} policies in all chains, \
         {threads} threads, twice while they are exchanged), and there is room for {room}; \
         use fewer namespaces"
    )]
    TooMany {
        /// What would be needed.
        instances: usize,
        /// The policies of all chains together.
        members: usize,
        /// The threads of this machine.
        threads: usize,
        /// What there is.
        room: usize,
    },
}

/// The most characters of a guest's or the engine's text that an error repeats.
const SHOWN_CHARS: usize = 500;

/// A text as a part of one line: control characters become spaces, and it is cut.
pub(crate) fn one_line(text: &str) -> String {
    let mut line: String = text.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        line.push('…');
    }
    line
}

//! What is known of the server's functions: the names that their libraries write. They are learnt from `FUNCTION LIST
//! WITHCODE` when an unknown function is called, and again while any are called: a library that is loaded past this
//! proxy is noticed a little later. One that is loaded through it is noticed at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::script_facts::names_of_library;
use lockwarden_lua::Names;
use lockwarden_resp::Value;

use super::Backend;
use super::conversation::BackendError;

/// Functions that are remembered. If a server has more, none is.
const MAX_FUNCTIONS: usize = 10_000;
/// The functions are asked for again after this time, if any are called.
const REFRESH: Duration = Duration::from_secs(5);
/// If they could not be asked for again, they count as unknown after this time.
const EXPIRY: Duration = Duration::from_secs(30);
/// The server is not asked more often than this unless a client waits for it.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a list is asked for that a change overtakes.
const ATTEMPTS: usize = 3;

/// What is known of the functions.
#[derive(Default)]
pub(crate) struct Functions {
    known: ArcSwap<Known>,
    /// Only one task asks at a time.
    turn: tokio::sync::Mutex<()>,
    used: AtomicBool,
}

/// By their names in lower case: to Redis the case does not matter.
type Listing = HashMap<Vec<u8>, Arc<Names>>;

#[derive(Clone, Default)]
struct Known {
    functions: Arc<Listing>,
    /// When the server was asked.
    asked: Option<Instant>,
    /// How often functions were changed through this proxy.
    changes: u64,
}

/// Why the server's functions are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FunctionsError {
    /// The server could not be asked.
    #[error(transparent)]
    Unasked(#[from] BackendError),
    /// It refused to list them; its error.
    #[error("{0}")]
    Refused(String),
    /// Its reply is not a list, or too long.
    #[error("its list of functions cannot be read")]
    Unreadable,
    /// They changed while each list was under way.
    #[error("its functions are being changed")]
    Changing,
}

/// Whether a list of functions still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// It counts from now on.
    Current,
    /// Functions were changed after it was asked for.
    Outdated,
}

impl Functions {
    /// The names that the library of a function writes.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Arc<Names>> {
        let known = self.known.load();
        let is_fresh = known.asked.is_some_and(|asked| asked.elapsed() < EXPIRY);
        let names = known.functions.get(&name.to_ascii_lowercase());
        let names = names.filter(|_| is_fresh).cloned();
        // A read first: a store at every call would take the cache line from all other threads.
        if names.is_some() && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        names
    }

    /// Functions are changed.
    pub(crate) fn forget(&self) {
        self.known.rcu(|known| Known { changes: known.changes + 1, ..Known::default() });
    }

    /// Asks the server which functions it has, over a connection of the proxy's own. An error says why that cannot be
    /// known.
    pub(crate) async fn learn(&self, backend: &Backend) -> Result<(), FunctionsError> {
        let wanted = Instant::now();
        let _turn = self.turn.lock().await;
        for _ in 0..ATTEMPTS {
            let known = self.known.load_full();
            // The previous holder of the turn has asked since this one was wanted.
            if known.asked.is_some_and(|asked| asked >= wanted) {
                return Ok(());
            }
            let asked = async {
                let mut aside = backend.address.converse().await?;
                aside.ask(&OwnRequest::Functions.words()).await
            };
            let began = Instant::now();
            let answer = asked.await?;
            if self.take_in(&answer, known.changes, began, backend)? == Listed::Current {
                return Ok(());
            }
        }
        Err(FunctionsError::Changing)
    }

    /// The same, with no client waiting.
    pub(crate) fn learn_some_time(self: &Arc<Self>, backend: &Arc<Backend>) {
        let known = self.known.load();
        let is_early = known.asked.is_some_and(|asked| asked.elapsed() < PAUSE);
        if is_early || self.turn.try_lock().is_err() {
            return;
        }
        let (functions, backend) = (self.clone(), backend.clone());
        tokio::spawn(async move {
            if let Err(error) = functions.learn(&backend).await {
                let error = error.to_string();
                tracing::debug!(error, "the server's functions are not known");
            }
        });
    }

    /// Asks again, if functions are called and it is time.
    pub(crate) fn refresh(self: &Arc<Self>, backend: &Arc<Backend>) {
        let asked = self.known.load().asked;
        let is_due = asked.is_some_and(|asked| asked.elapsed() >= REFRESH);
        if is_due && self.used.swap(false, Ordering::Relaxed) {
            self.learn_some_time(backend);
        }
    }

    /// How often functions were changed through this proxy.
    pub(crate) fn changes(&self) -> u64 {
        self.known.load().changes
    }

    /// Takes in the reply to [`OwnRequest::Functions`] that was asked for when `changes` changes were known.
    pub(crate) fn take_in(
        &self,
        answer: &Value,
        changes: u64,
        asked: Instant,
        backend: &Backend,
    ) -> Result<Listed, FunctionsError> {
        let functions = match answer {
            Value::Error(text) => {
                let text = String::from_utf8_lossy(text);
                let commands = backend.server.commands();
                let has_none = commands.as_ref().is_some_and(|all| !all.lists("fcall"));
                if !(has_none && text.starts_with("ERR unknown command")) {
                    return Err(FunctionsError::Refused(text.into_owned()));
                }
                Listing::new()
            }
            answer => listing(answer).ok_or(FunctionsError::Unreadable)?,
        };
        let new = Known { functions: Arc::new(functions), asked: Some(asked), changes };
        // A list that was asked for before a change must not hide it.
        let before = self.known.rcu(|known| match known.changes == changes {
            true => Arc::new(new.clone()),
            false => known.clone(),
        });
        Ok(match before.changes == changes {
            true => Listed::Current,
            false => Listed::Outdated,
        })
    }
}

/// `None` if the reply is no list, or too long.
fn listing(answer: &Value) -> Option<Listing> {
    let mut functions = Listing::new();
    for library in items(answer)? {
        let is_lua = field(library, b"engine")?.as_bytes()?.eq_ignore_ascii_case(b"LUA");
        let text = field(library, b"library_code")?.as_bytes()?;
        let names = match is_lua {
            true => names_of_library(text),
            // What the code of another engine writes is not known, so it may be any key.
            false => Names::Computed,
        };
        let names = Arc::new(names);
        for function in items(field(library, b"functions")?)? {
            let name = field(function, b"name")?.as_bytes()?.to_ascii_lowercase();
            let mut flags = items(field(function, b"flags")?)?.iter();
            let only_reads = flags.any(|flag| flag.as_bytes().is_some_and(|flag| &flag[..] == b"no-writes"));
            let names = match only_reads {
                true => Arc::new(Names::none()),
                false => names.clone(),
            };
            functions.insert(name, names);
            if functions.len() > MAX_FUNCTIONS {
                return None;
            }
        }
    }
    Some(functions)
}

fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) | Value::Set(items) => Some(items),
        _ => None,
    }
}

/// A field of a map, which is a flat list under RESP2.
fn field<'v>(map: &'v Value, name: &[u8]) -> Option<&'v Value> {
    let is_it = |key: &Value| key.as_bytes().is_some_and(|key| &key[..] == name);
    match map {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value),
        Value::Array(items) => {
            let mut pairs = items.chunks_exact(2);
            pairs.find(|pair| is_it(&pair[0])).map(|pair| &pair[1])
        }
        _ => None,
    }
}

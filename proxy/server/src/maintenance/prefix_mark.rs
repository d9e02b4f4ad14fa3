//! The mark that says under which `companion_prefix` the proxies in front of one Redis keep their records.
//! Proxies with different prefixes see nothing of each other's leases, so all but those with the marked
//! one serve nobody. It stands under a fixed name in database 0, and Redis decides who was first.

use std::time::Duration;

use bytes::Bytes;
use lockwarden_lock::companion::PREFIX_MARK;
use lockwarden_resp::Value;

use crate::backend::{Address, BackendError, Conversation, server_info};

/// How long writing the mark may take.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);

/// What this proxy knows of the mark.
#[derive(Debug, Default)]
pub(crate) struct PrefixMark {
    /// The prefix that this proxy has seen there or written, which was its own.
    own: Option<Bytes>,
    /// Another one that is there, or was when somebody looked last.
    other: Option<Bytes>,
    /// The proxy's user may not write it.
    is_forbidden: bool,
    /// Somebody was told that it cannot be read or written.
    is_reported: bool,
}

impl PrefixMark {
    /// Another server is looked at from now on.
    pub(crate) fn another_server(&mut self) {
        self.is_forbidden = false;
    }

    /// Looks at the mark, and writes it where there is none and something to mark: a database without locks,
    /// or one that was emptied, has no key of ours.
    pub(crate) async fn look(
        &mut self,
        own: &mut Conversation,
        backend: &Address,
        prefix: &Bytes,
        has_leases: bool,
    ) -> Result<(), BackendError> {
        let when = match &read(own, backend).await? {
            Value::Bulk(marked) if marked == prefix => {
                self.is_own(prefix);
                return Ok(());
            }
            // A reload has given this proxy another prefix, by an order that said so.
            Value::Bulk(marked) if self.own.as_ref() == Some(marked) => "XX",
            Value::Bulk(marked) => {
                self.other = Some(marked.clone());
                return Ok(());
            }
            // A proxy that was refused never takes it over by itself: after a flush those that serve come first.
            Value::Null if has_leases && self.other.is_none() && !self.is_forbidden => "NX",
            Value::Null => return Ok(()),
            unknown => {
                self.report(unknown);
                return Ok(());
            }
        };
        // While writes are paused nobody takes a lock either, and the next look tries again.
        let writing = tokio::time::timeout(WRITE_PATIENCE, write(backend, prefix, when));
        let Ok(Ok(written)) = writing.await else {
            return Ok(());
        };
        if let Some(error) = written.as_error() {
            self.is_forbidden = error.starts_with(b"NOPERM");
            self.report(&written);
        }
        // Two proxies may have written at once: what is there now counts.
        match read(own, backend).await? {
            Value::Bulk(marked) if marked == prefix => self.is_own(prefix),
            Value::Bulk(marked) => self.other = Some(marked),
            _ => {}
        }
        Ok(())
    }

    /// Why nobody is served, if that is so.
    pub(crate) fn refusal(&self, prefix: &[u8]) -> Option<String> {
        let other = self.other.as_ref()?;
        Some(refusal(prefix, other))
    }

    fn is_own(&mut self, prefix: &Bytes) {
        self.own = Some(prefix.clone());
        (self.other, self.is_reported) = (None, false);
    }

    /// It is not known which prefix is in use: that stops nobody, and is said once.
    fn report(&mut self, answer: &Value) {
        if answer.as_error().is_some_and(|text| server_info::is_for_now(text)) {
            return;
        }
        if !std::mem::replace(&mut self.is_reported, true) {
            let error = answer.as_error().map(|text| String::from_utf8_lossy(text));
            tracing::warn!(
                key = %String::from_utf8_lossy(PREFIX_MARK),
                error = error.as_deref().unwrap_or("it holds no string"),
                "the key that says which companion_prefix is in use cannot be read or written: \
                 nothing stops another proxy with another prefix"
            );
        }
    }
}

/// Why a proxy with this prefix is of no use beside those with the other one, and what to do.
fn refusal(prefix: &[u8], other: &[u8]) -> String {
    let [prefix, other, mark] = [prefix, other, PREFIX_MARK].map(String::from_utf8_lossy);
    format!(
        "companion_prefix is {prefix:?}, but the records of locks on this Redis begin with {other:?}, and proxies \
         with different prefixes exclude nobody from each other's locks: set companion_prefix = {other:?}; or, once no \
         proxy with that is left, DEL {mark} and start this one again"
    )
}

/// The mark, or an error of Redis. Reading is no write, so a heartbeat does not wait while writes are paused.
async fn read(own: &mut Conversation, backend: &Address) -> Result<Value, BackendError> {
    match select(own, backend).await? {
        Some(refused) => Ok(refused),
        None => own.ask(&[b"GET", PREFIX_MARK]).await,
    }
}

/// Over a connection of its own: where writes are paused, nothing else waits behind it.
async fn write(backend: &Address, prefix: &[u8], when: &str) -> Result<Value, BackendError> {
    let mut own = backend.converse().await?;
    match select(&mut own, backend).await? {
        Some(refused) => Ok(refused),
        None => own.ask(&[b"SET", PREFIX_MARK, prefix, when.as_bytes()]).await,
    }
}

/// Selects database 0, where that is not what the URL says anyway. Returns Redis's error, if any.
async fn select(own: &mut Conversation, backend: &Address) -> Result<Option<Value>, BackendError> {
    if backend.url.db == 0 {
        return Ok(None);
    }
    let selected = own.ask(&["SELECT", "0"]).await?;
    Ok(selected.is_error().then_some(selected))
}

/// What `lockwarden check` says of the mark: it writes nothing.
pub(crate) async fn doubt(
    own: &mut Conversation,
    backend: &Address,
    prefix: &[u8],
) -> Result<Option<String>, BackendError> {
    Ok(match &read(own, backend).await? {
        Value::Null => None,
        Value::Bulk(marked) if marked == prefix => None,
        Value::Bulk(marked) => Some(refusal(prefix, marked)),
        answer => {
            let error = answer.as_error().map(|text| String::from_utf8_lossy(text));
            Some(format!(
                "the key {}, which says which companion_prefix is in use, cannot be read: {}",
                String::from_utf8_lossy(PREFIX_MARK),
                error.as_deref().unwrap_or("it holds no string")
            ))
        }
    })
}

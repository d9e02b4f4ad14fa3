//! A lease as a good client holds it: `SET NX PX` with a random owner token, compare-and-expire, compare-and-delete. This
//! module decides when to retry and when a lease is no longer reliable. A request without a reply may have been carried out;
//! each of these can be sent again, and the comments beside the calls say what the second reply means.

use std::time::Duration;

use lockwarden_control::random;
use lockwarden_dataplane::backend::{Address, BackendError, Conversation};
use lockwarden_dataplane::session::commands::lease_questions::IN_NO_NAMESPACE;
use lockwarden_resp::Value;
use tokio::time::Instant;

use crate::terminal::complain;

/// Extends the lease if it is still ours.
const EXTEND: &[u8] =
    b"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
/// Releases the lock if it is still ours.
const RELEASE: &[u8] =
    b"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// The pause between the first two tries; doubled from one try to the next, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The least time for a single try, however little of the wait is left.
const ONE_TRY: Duration = Duration::from_secs(3);
/// The time limit of a release.
const GIVING_BACK: Duration = Duration::from_secs(5);
/// A lease is extended after this part of it (a third),
const EXTEND_AFTER: u32 = 3;
/// retried after this part if that failed,
const TRY_AFTER: u32 = 20;
/// and given up when less than this part is left, so that the command can end while it still holds the lock.
const RESERVE: u32 = 6;

/// A lock that is, was or will be held.
pub(super) struct Lease {
    address: Address,
    key: Vec<u8>,
    token: String,
    name: String,
    /// The requested TTL.
    ttl: Duration,
    /// The granted time: a proxy may have cut it.
    span: Duration,
    /// The lease is reliable until then, counted from when the request was sent.
    ends: Instant,
    /// `None` while a request is under way, so that a late reply is never taken for the next one.
    connection: Option<Conversation>,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server cannot be reached.
    #[error(transparent)]
    Unreachable(BackendError),
    /// The reply was an error.
    #[error("{0}")]
    Refused(String),
}

/// Why a lease is no longer reliable.
#[derive(Debug)]
pub(super) enum Lost {
    /// Redis says that the lock is free or held by another client.
    Gone,
    /// Its end is near and no extension succeeded.
    Unrenewed(String),
}

/// The result of a release.
#[derive(Debug)]
pub(super) enum Returned {
    /// The lock is free.
    Done,
    /// The lease had been lost.
    Lost,
    /// There was no reply.
    Unknown(String),
}

impl Lease {
    /// Takes nothing yet.
    pub(super) fn new(address: Address, key: &[u8], ttl: Duration, name: &str) -> Lease {
        let mut bytes = [0; 16];
        random::fill(&mut bytes);
        Lease {
            address,
            key: key.to_vec(),
            token: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            name: name.to_owned(),
            ttl,
            span: ttl,
            ends: Instant::now(),
            connection: None,
        }
    }

    /// Takes the lock; returns false if another client held it for the whole wait.
    pub(super) async fn take(&mut self, wait: Duration) -> Result<bool, Failure> {
        let deadline = Instant::now() + wait;
        let mut pause = FIRST_PAUSE;
        let mut in_doubt = false;
        loop {
            let tried = Instant::now();
            let patience = ONE_TRY.max(deadline - tried);
            let answer = tokio::time::timeout(patience, self.try_once()).await;
            let failed = match answer.unwrap_or_else(|_| Err(timed_out())) {
                Ok(Value::Null) if in_doubt && self.was_ours(tried).await => return Ok(true),
                Ok(Value::Null) => None,
                Ok(Value::Error(text)) => {
                    return Err(Failure::Refused(String::from_utf8_lossy(&text).into_owned()));
                }
                // SET returns OK and nothing else.
                Ok(_) => {
                    self.is_granted(tried).await;
                    return Ok(true);
                }
                Err(BackendError::Login(text)) => return Err(Failure::Refused(text)),
                Err(error) => {
                    // A request without a connection was not sent.
                    in_doubt |= !matches!(error, BackendError::Connect { .. } | BackendError::Handshake { .. });
                    Some(error)
                }
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return failed.map_or(Ok(false), |error| Err(Failure::Unreachable(error)));
            }
            tokio::time::sleep(jittered(pause).min(left)).await;
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    async fn try_once(&mut self) -> Result<Value, BackendError> {
        let (key, token, ttl) = self.words();
        self.ask(&[b"SET", &key, token.as_bytes(), b"NX", b"PX", ttl.as_bytes()]).await
    }

    /// Whether an earlier try without a reply took the lock: then the next try finds it held.
    async fn was_ours(&mut self, tried: Instant) -> bool {
        let ours = matches!(self.extend().await, Ok(Value::Integer(1)));
        if ours {
            self.is_granted(tried).await;
        }
        ours
    }

    /// Notes the granted TTL: a proxy may have cut it, and reports that on request.
    async fn is_granted(&mut self, tried: Instant) {
        // Counted from when the request was sent: Redis began to count later, so the lease surely lives until then.
        self.ends = tried + self.ttl;
        let asked = Instant::now();
        let key = self.key.clone();
        let answer = self.ask_within(ONE_TRY, &[b"PTTL", &key]).await;
        let left = match answer {
            Ok(Value::Integer(left)) => u64::try_from(left).ok().filter(|&left| left > 0),
            Ok(_) | Err(_) => None,
        };
        if let Some(left) = left.map(Duration::from_millis) {
            self.span = self.ttl.min(left);
            self.ends = self.ends.min(asked + left);
        }
    }

    /// The fencing token of this lease, if a proxy has numbered it and remembers it: a lease that was granted over a broken
    /// connection has none. Redis itself does not know this command.
    pub(super) async fn fence(&mut self) -> Option<u64> {
        let key = self.key.clone();
        match self.ask_within(ONE_TRY, &[b"LOCKWARDEN", b"FENCE", &key]).await {
            Ok(Value::Integer(fence)) => u64::try_from(fence).ok(),
            Ok(_) | Err(_) => None,
        }
    }

    /// Whether a proxy says that this key belongs to no namespace. Redis itself does not know this command.
    pub(super) async fn is_in_no_namespace(&mut self) -> bool {
        let key = self.key.clone();
        let question: [&[u8]; 4] = [b"LOCKWARDEN", b"CHECK", &key, b"1"];
        match self.ask_within(ONE_TRY, &question).await {
            Ok(Value::Error(text)) => String::from_utf8_lossy(&text).contains(IN_NO_NAMESPACE),
            Ok(_) | Err(_) => false,
        }
    }

    /// Extends the lease again and again; returns when it is no longer reliable. May be dropped at any moment.
    pub(super) async fn keep(&mut self, key: &str) -> Lost {
        let mut worry = None;
        loop {
            let granted = self.ends - self.span;
            tokio::time::sleep_until(granted + self.span / EXTEND_AFTER).await;
            let last_call = self.ends - self.span / RESERVE;
            worry = loop {
                let sent = Instant::now();
                let problem = match tokio::time::timeout_at(last_call, self.extend()).await {
                    Ok(Ok(Value::Integer(1))) => {
                        self.ends = sent + self.span;
                        break None;
                    }
                    Ok(Ok(Value::Error(text))) => String::from_utf8_lossy(&text).into_owned(),
                    Ok(Ok(_)) => return Lost::Gone,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer".to_owned(),
                };
                // The first error is the cause; running out of time says nothing.
                if worry.is_none() {
                    complain!("lockwarden: {key} could not be extended ({problem}); trying on");
                }
                let problem = worry.take().unwrap_or(problem);
                if Instant::now() + self.span / TRY_AFTER >= last_call {
                    return Lost::Unrenewed(problem);
                }
                worry = Some(problem);
                tokio::time::sleep(self.span / TRY_AFTER).await;
            };
        }
    }

    async fn extend(&mut self) -> Result<Value, BackendError> {
        let (key, token, ttl) = self.words();
        let words = [EXTEND, b"1", &key, token.as_bytes(), ttl.as_bytes()];
        self.evaluate(&words).await
    }

    /// Releases the lock, if it is still ours.
    pub(super) async fn give_back(&mut self) -> Returned {
        let (key, token, _) = self.words();
        let words = [RELEASE, b"1", &key, token.as_bytes()];
        let mut failed: Option<String> = None;
        // Twice is enough: the first try detects a connection that had broken before.
        for _ in 0..2 {
            let answer = tokio::time::timeout(GIVING_BACK, self.evaluate(&words)).await;
            match answer.unwrap_or_else(|_| Err(timed_out())) {
                Ok(Value::Integer(1)) => return Returned::Done,
                Ok(Value::Error(text)) => {
                    return Returned::Unknown(String::from_utf8_lossy(&text).into_owned());
                }
                // The first try may have released it.
                Ok(_) if failed.is_some() => return Returned::Done,
                Ok(_) => return Returned::Lost,
                Err(error) => failed = Some(error.to_string()),
            }
        }
        Returned::Unknown(failed.unwrap_or_default())
    }

    async fn evaluate(&mut self, rest: &[&[u8]]) -> Result<Value, BackendError> {
        let mut words: Vec<&[u8]> = vec![b"EVAL"];
        words.extend(rest);
        self.ask(&words).await
    }

    async fn ask_within(&mut self, time: Duration, words: &[&[u8]]) -> Result<Value, BackendError> {
        let answer = tokio::time::timeout(time, self.ask(words)).await;
        answer.unwrap_or_else(|_| Err(timed_out()))
    }

    async fn ask(&mut self, words: &[&[u8]]) -> Result<Value, BackendError> {
        // Put back only after its reply: a dropped future never leaves a connection with a pending reply.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answer = connection.ask(words).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    async fn connect(&self) -> Result<Conversation, BackendError> {
        let mut connection = self.address.converse().await?;
        // The name is for people; a user without the right to set it can still take locks.
        connection.ask(&["CLIENT", "SETNAME", &self.name]).await?;
        if self.address.url.db != 0 {
            let db = self.address.url.db.to_string();
            if let Value::Error(text) = connection.ask(&["SELECT", &db]).await? {
                return Err(BackendError::Login(String::from_utf8_lossy(&text).into_owned()));
            }
        }
        Ok(connection)
    }

    fn words(&self) -> (Vec<u8>, String, String) {
        (self.key.clone(), self.token.clone(), self.ttl.as_millis().to_string())
    }
}

fn timed_out() -> BackendError {
    BackendError::Broken(std::io::ErrorKind::TimedOut.into())
}

/// Between half of the pause and all of it, so that waiters do not synchronize.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    random::fill(&mut byte);
    pause / 2 + pause / 2 * u32::from(byte[0]) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_never_shorter_than_half_nor_longer_than_whole() {
        for _ in 0..1000 {
            let pause = jittered(MAX_PAUSE);
            assert!(pause >= MAX_PAUSE / 2 && pause <= MAX_PAUSE, "{pause:?}");
        }
    }
}

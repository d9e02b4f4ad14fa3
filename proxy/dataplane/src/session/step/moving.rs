//! A step about a lock whose slot is being moved from one node to another, key by key: the lock may have moved and
//! its record not, or the other way round. On the source node, what is left of the lock is sent after it, and the
//! client is redirected. On the target node, the client sends `ASKING`, and a free lock is granted there although
//! neither of its keys has come.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use lockwarden_control::telemetry::vocabulary::SentAfter;
use lockwarden_lock::companion::{debts_beside, key_beside};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::plan::{Form, Plan};
use lockwarden_lock::rules::Durability;
use lockwarden_resp::{Redirect, Value};

use crate::backend::BackendError;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::step::awaited::Look;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

/// The pause between two tries while it is not known which node has which key; it is doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// Most tries; after these, some 250 ms in all, the client is told to try again itself.
const TRIES: u32 = 7;
/// How long the source may take to hand three keys over, in ms. It serves no client meanwhile.
const HANDED_OVER_WITHIN_MS: &str = "1000";

impl Session {
    /// Goes on with a step after the node's reply that its slot is being moved. Nothing of the step was run.
    pub(super) async fn follow_slot(
        &mut self,
        inbox: &mut RequestBuffer,
        step: &Plan,
        wanted: Option<Durability>,
        mut answer: Bytes,
    ) -> Result<Bytes, End> {
        let in_cluster = self.client.shared.backend.server.in_cluster();
        let Some((lock, record)) = step.one_lock().filter(|_| in_cluster) else {
            return Ok(answer);
        };
        let mut is_unclear = false;
        for tries in 0..TRIES {
            match Redirect::of(&answer) {
                None | Some(Redirect::Moved(..) | Redirect::Down) => return Ok(answer),
                // This node is the target of the move.
                Some(Redirect::TryAgain) if self.transport.asks() => {
                    return self.send_again(inbox, step, Form::Moving, wanted).await;
                }
                // Lock and record have moved, or never existed.
                Some(Redirect::Ask(host, port)) => {
                    let debts = debts_beside(record);
                    if !self.is_here(inbox, &debts).await?
                        || self.client.sends_after((host, port), &[&debts], &mut is_unclear).await
                    {
                        return Ok(answer);
                    }
                }
                Some(Redirect::TryAgain) => {
                    let gone = self.look_beside(inbox, record).await?;
                    if let Some(Redirect::Ask(host, port)) = Redirect::of(&gone)
                        && self
                            .client
                            .sends_after((host, port), &[lock, record, &debts_beside(record)], &mut is_unclear)
                            .await
                    {
                        return Ok(gone);
                    }
                }
            }
            tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(tries)).await;
            answer = self.send_again(inbox, step, Form::Text, wanted).await?;
        }
        Ok(answer)
    }

    async fn send_again(
        &mut self,
        inbox: &mut RequestBuffer,
        step: &Plan,
        form: Form,
        wanted: Option<Durability>,
    ) -> Result<Bytes, End> {
        self.transport.execute(step, form, Look::Answer, Muted::Yes);
        self.ask_replicas(wanted);
        self.answer(inbox).await
    }

    /// The node's reply for a key of this slot that does not exist: where the slot is being moved, while it is.
    async fn look_beside(&mut self, inbox: &mut RequestBuffer, record: &[u8]) -> Result<Bytes, End> {
        self.transport.inquire(&OwnRequest::Beginning(&key_beside(record)), Look::Answer);
        self.answer(inbox).await
    }

    /// Whether the node has this key.
    async fn is_here(&mut self, inbox: &mut RequestBuffer, key: &[u8]) -> Result<bool, End> {
        self.transport.inquire(&OwnRequest::Beginning(key), Look::Answer);
        let answer = self.answer(inbox).await?;
        Ok(answer.starts_with(b"$") && !answer.starts_with(b"$0"))
    }
}

impl Client {
    /// Has the node send these keys after the others of their slot. Returns whether none of them is here any more. If
    /// an earlier try has ended unclear, they may be on the target already: then this node's keys count for as long
    /// as it has them.
    async fn sends_after(&self, to: (&[u8], u16), keys: &[&[u8]], is_unclear: &mut bool) -> bool {
        let sent = &self.shared.metrics.cluster_locks_sent_after;
        let migrated = self.migrate(to, keys, *is_unclear).await;
        let is_done = matches!(&migrated, Ok(answer) if !answer.is_error());
        sent.at(if is_done { SentAfter::Done } else { SentAfter::Failed }).inc();
        let is_reported = &self.shared.backend.server.cannot_migrate;
        let error = match migrated {
            Ok(_) if is_done => {
                is_reported.store(false, Ordering::Relaxed);
                return true;
            }
            Ok(answer) => String::from_utf8_lossy(answer.as_error().map_or(b"", |text| &text[..])).into_owned(),
            Err(error) => error.to_string(),
        };
        *is_unclear |= error.starts_with("IOERR");
        if !is_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                error,
                "a lock whose slot moves to another node could not be sent after it: clients that want it are told to try again"
            );
        }
        false
    }

    async fn migrate(&self, (host, port): (&[u8], u16), keys: &[&[u8]], replaces: bool) -> Result<Value, BackendError> {
        let address = &self.shared.backend.address;
        let mut own = address.converse().await?;
        let db = self.connection.selected;
        if db != 0 {
            own.select(db).await?;
        }
        let (port, db) = (port.to_string(), db.to_string());
        let mut words: Vec<&[u8]> = vec![b"MIGRATE", host, port.as_bytes(), b"", db.as_bytes()];
        words.push(HANDED_OVER_WITHIN_MS.as_bytes());
        if replaces {
            words.push(b"REPLACE");
        }
        let login = address.own_login().await?;
        if let Some((user, password)) = &login {
            words.extend([b"AUTH2".as_slice(), user.as_bytes(), password.expose().as_bytes()]);
        }
        words.push(b"KEYS");
        words.extend(keys);
        own.ask(&words).await
    }
}

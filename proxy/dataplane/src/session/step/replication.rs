//! Locks that replicas must confirm before their client hears of them (`durability`): `WAIT` is sent after the step
//! in the same write. A grant that too few replicas have is given back at once, and the client is told that it has
//! not got the lock. How the replies are read, and what an answer without its grants says, is in
//! `lockwarden_lock::outcome`.

use std::time::Instant;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::DurabilityResult;
use lockwarden_lock::op::{LockCommand, Target};
use lockwarden_lock::outcome::Answers;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::plan::{self, Form, GaveBack};
use lockwarden_lock::rules::Durability;
use lockwarden_lock::settle::Allowed;
use lockwarden_resp::{Elements, parse_reply};

use crate::backend::rights::MayWait;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::client::block::{Block, Place};
use crate::session::step::awaited::{Confirmation, InFlight, Look};
use crate::session::step::transaction::was_carried_out;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

/// What was said about a step.
struct Said {
    wanted: Durability,
    /// How many replicas have it; `None` if the server does not say.
    confirmed: Option<u64>,
    /// The server's clock had not jumped.
    in_time: bool,
}

impl Session {
    /// Makes sure, before anything is written, that this client can wait for replicas: its user may, and no other
    /// client has to wait with it. Returns whether that is so; if not, its client was told why.
    pub(crate) async fn prepare_to_wait(
        &mut self,
        inbox: &mut RequestBuffer,
        command: &LockCommand,
        active: &Active,
        muted: Muted,
    ) -> Result<bool, End> {
        let in_block = self.client.connection.block.is_some();
        if !self.takes_own_connection(inbox, muted).await? {
            return Ok(false);
        }
        let mut known = self.client.may_wait();
        // In a block nothing can be asked; and the request that ends a CLIENT CACHING must be the step itself.
        if known.is_none() && !in_block && !self.client.connection.reads_are_noted() {
            // With 0 replicas it is answered at once.
            let question = OwnRequest::Wait { replicas: 0, within_ms: 1 };
            self.transport.inquire(&question, Look::Answer);
            let answer = self.answer(inbox).await?;
            let target = command.op.target();
            known = self.client.learn_to_wait(&answer, target, active);
        }
        match known {
            Some(MayWait::Yes) | None => Ok(true),
            Some(no) => {
                self.policy_error(&no_wait_line(no, command.name), muted);
                Ok(false)
            }
        }
    }

    /// Asks, after a step and in the same write, how many replicas have it.
    pub(crate) fn ask_replicas(&mut self, wanted: Option<Durability>) {
        if let Some(Durability { replicas, within_ms, is_strict: _ }) = wanted {
            let question = OwnRequest::Wait { replicas, within_ms };
            self.transport.inquire(&question, Look::Confirmed);
        }
    }

    /// Waits for the replicas' confirmation of a step that was answered just now, if it did something that they must
    /// have.
    pub(crate) async fn confirm(
        &mut self,
        inbox: &mut RequestBuffer,
        flight: &mut InFlight,
        answers: &Answers,
        active: &Active,
    ) -> Result<(), End> {
        let heard = Instant::now();
        let wanted = flight.permitted.durability();
        let Some(wanted) = wanted.filter(|_| answers.needs_replicas()) else {
            return Ok(());
        };
        let in_time = self.is_in_time(wanted, answers, heard);
        let target = flight.permitted.command().op.target();
        let confirmed = self.confirmed(inbox, target, active).await?;
        let said = Said { wanted, confirmed, in_time };
        let db = self.client.connection.selected;
        flight.confirmation = Some(self.concluded_wait(inbox, said, flight, answers, (db, active)).await?);
        Ok(())
    }

    /// Reads the reply to a block's EXEC, after which a `WAIT` was sent, and does the same for each of the block's
    /// steps.
    pub(crate) async fn confirmed_block(&mut self, inbox: &mut RequestBuffer, block: &mut Block) -> Result<Bytes, End> {
        let answered = match self.answer(inbox).await {
            Ok(answer) if was_carried_out(&answer) => self.confirm_block(inbox, block, &answer).await.map(|()| answer),
            answered => answered,
        };
        if answered.is_err() {
            for (_, place) in &block.places {
                if let Place::Step(flight, active) = place {
                    self.never_confirmed(flight, active);
                }
            }
        }
        answered
    }

    async fn confirm_block(&mut self, inbox: &mut RequestBuffer, block: &mut Block, answer: &Bytes) -> Result<(), End> {
        let heard = Instant::now();
        let db = block.db.unwrap_or(self.client.connection.selected);
        let elements: Vec<_> = Elements::of(answer).into_iter().flatten().collect();
        let mut confirmed = None;
        for (place, held) in &mut block.places {
            let (Place::Step(flight, active), Some(range)) = (held, elements.get(*place)) else {
                continue;
            };
            let Some(wanted) = flight.permitted.durability() else {
                continue;
            };
            let answers = self.client.read_answers(&answer.slice(range.clone()))?;
            if !answers.needs_replicas() {
                continue;
            }
            let in_time = self.is_in_time(wanted, &answers, heard);
            let by = match confirmed {
                Some(by) => by,
                None => {
                    let target = flight.permitted.command().op.target();
                    self.confirmed(inbox, target, active).await?
                }
            };
            confirmed = Some(by);
            let said = Said { wanted, confirmed: by, in_time };
            flight.confirmation = Some(self.concluded_wait(inbox, said, flight, &answers, (db, active)).await?);
        }
        Ok(())
    }

    /// How many replicas have what was written; `None` where the server does not say.
    async fn confirmed(
        &mut self,
        inbox: &mut RequestBuffer,
        target: &Target,
        active: &Active,
    ) -> Result<Option<u64>, End> {
        let begun = Instant::now();
        let answer = loop {
            let reply = self.transport.next_reply(inbox).await?;
            match reply.look {
                Look::Confirmed => break reply.frame,
                _ => self.learn(reply, inbox)?,
            }
        };
        let waited = begun.elapsed().as_secs_f64();
        self.client.shared.metrics.wait_seconds.observe(waited);
        if answer.starts_with(b"-") {
            self.client.learn_to_wait(&answer, target, active);
        }
        let value = parse_reply(&answer, self.client.connection.protocol).ok();
        Ok(value.and_then(|value| u64::try_from(value.as_integer()?).ok()))
    }

    /// Whether the server's clock had not jumped forward when it granted this, if that matters: a jump would have
    /// ended leases earlier than their holders reckon.
    fn is_in_time(&self, wanted: Durability, answers: &Answers, heard: Instant) -> bool {
        let strict = &self.client.shared.backend.strict;
        !wanted.is_strict || !answers.granted_at().any(|now| strict.has_jumped(now, heard))
    }

    /// Gives back the grants that too few replicas have.
    async fn concluded_wait(
        &mut self,
        inbox: &mut RequestBuffer,
        said: Said,
        flight: &InFlight,
        answers: &Answers,
        (db, active): (u32, &Active),
    ) -> Result<Confirmation, End> {
        let namespace = flight.permitted.command().op.target().namespace;
        let metrics = &active.namespace(namespace).metrics;
        let Said { wanted, confirmed, in_time } = said;
        if in_time && confirmed >= Some(u64::from(wanted.replicas)) {
            metrics.durability(DurabilityResult::Enough);
            return Ok(Confirmation::Enough);
        }
        let locks = flight.permitted.locks();
        let mut gave_back = Vec::new();
        for (at, grant) in answers.new_grants(locks) {
            let Allowed { lock, .. } = &locks[at];
            // The proxy sends no SELECT over a client's connection.
            if lock.key.db() != db {
                continue;
            }
            let prefix = &active.companion_prefix;
            let step = plan::give_back(lock.key.bytes(), grant, prefix);
            self.transport.execute(&step, Form::Text, Look::Answer, Muted::Yes);
            let answer = self.answer(inbox).await?;
            let Some(became) = self.client.read_gave_back(&answer) else {
                tracing::warn!(
                    namespace = %active.namespace(namespace).name,
                    key = %String::from_utf8_lossy(lock.key.bytes()),
                    client = %self.client.peer,
                    error = %String::from_utf8_lossy(&answer).trim_end(),
                    "a lock that too few replicas confirmed could not be given back: it goes by its TTL, and its client is closed"
                );
                return Err(End::Backend);
            };
            gave_back.push((at, became));
        }
        if !in_time {
            tracing::warn!(
                namespace = %active.namespace(namespace).name,
                client = %self.client.peer,
                "a lock was granted after the server's clock had jumped forward: it was given back, and its client is closed"
            );
            return Err(End::Backend);
        }
        match confirmed {
            Some(_) => metrics.durability(DurabilityResult::TooFew),
            None => metrics.durability(DurabilityResult::Unknown),
        }
        Ok(Confirmation::TooFew { wanted, gave_back })
    }

    /// A step whose connection ended while replicas were waited for.
    pub(crate) fn never_confirmed(&self, flight: &InFlight, active: &Active) {
        if flight.permitted.durability().is_some() {
            let namespace = flight.permitted.command().op.target().namespace;
            let metrics = &active.namespace(namespace).metrics;
            metrics.durability(DurabilityResult::Unknown);
        }
    }
}

impl Client {
    /// What is known of whether this client's user may wait for replicas.
    fn may_wait(&self) -> Option<MayWait> {
        let rights = &self.shared.rights;
        rights.may_wait(self.connection.user(), Instant::now())
    }

    /// What a reply to `WAIT` says about that. If the user may not, that is logged.
    fn learn_to_wait(&self, answer: &[u8], target: &Target, active: &Active) -> Option<MayWait> {
        let may = MayWait::of(answer)?;
        let user = self.connection.user();
        let rights = &self.shared.rights;
        if rights.learn_to_wait(user, may, Instant::now()) && may != MayWait::Yes {
            tracing::warn!(
                user = %String::from_utf8_lossy(user),
                namespace = %active.namespace(target.namespace).name,
                answer = %String::from_utf8_lossy(answer).trim_end(),
                "a user cannot wait for replicas: its lock commands are refused"
            );
        }
        Some(may)
    }

    fn read_gave_back(&self, answer: &Bytes) -> Option<GaveBack> {
        let value = parse_reply(answer, self.connection.protocol).ok()?;
        plan::gave_back(&value)
    }
}

impl Block {
    /// The durability that the steps of the block need together.
    pub(crate) fn durability(&self) -> Option<Durability> {
        let steps = self.places.iter().filter_map(|(_, place)| match place {
            Place::Step(flight, _) => flight.permitted.durability(),
            _ => None,
        });
        steps.reduce(Durability::and)
    }
}

/// The line for a client that cannot wait for replicas where it must.
fn no_wait_line(why: MayWait, command: &str) -> String {
    let command = command.to_ascii_uppercase();
    match why {
        MayWait::NoRight => format!(
            "NOPERM lockwarden waits for replicas behind {command} on a lock (durability): this user lacks +wait"
        ),
        MayWait::Yes | MayWait::Unknown => format!(
            "ERR lockwarden waits for replicas behind {command} on a lock (durability), and the server has no WAIT"
        ),
    }
}

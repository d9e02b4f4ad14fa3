//! Sends the steps that were planned and reads their answers. It also handles a step whose script Redis does not
//! have, one that asks back which process is which, and one that is worth a second try.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::random;
use lockwarden_control::ruleset::Active;
use lockwarden_lock::outcome::{Answers, AskedBack};
use lockwarden_lock::plan::{Form, Plan, Who, identify, plan};
use lockwarden_lock::rules::Durability;
use lockwarden_lock::settle::Allowed;
use lockwarden_lock::token::Process;
use lockwarden_resp::Redirect;

use crate::session::Session;
use crate::session::client::Client;
use crate::session::client::block::Place;
use crate::session::step::awaited::{InFlight, Look, Queued, QueuedStep};
use crate::session::step::together::UnderWay;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

/// An acquire that met a lease that may be its client's own is tried once more after this time: the reset of the
/// connection that was granted it can arrive a little later than the repetition.
const ONCE_MORE_AFTER: Duration = Duration::from_millis(20);
/// How often one command is sent again because a process is not known yet, before it goes on without.
const MAX_ASKED_BACK: u32 = 6;
/// How long another proxy gets to look its client up, the first time; it is doubled each time.
const FOR_ANOTHER_PROXY: Duration = Duration::from_millis(40);
/// The answer of a step that checked its rights and is to be sent again without the check.
const SEND_IT_UNCHECKED: &[u8] = b"*2\r\n$1\r\nQ\r\n$0\r\n\r\n";

impl Session {
    /// Sends a step and reads its answer. Returns the answer with its bytes, and when the step was sent. If replicas
    /// must have what it did, it also waits until that is known.
    pub(crate) async fn carry_out(
        &mut self,
        inbox: &mut RequestBuffer,
        flight: &mut InFlight,
        planned: (Plan, Instant),
        active: &Active,
    ) -> Result<(Bytes, Answers, Instant), End> {
        let (answer, answers, sent) = self.take_step(inbox, flight, planned, active).await?;
        if flight.permitted.durability().is_some() {
            Box::pin(self.confirm(inbox, flight, &answers, active)).await?;
        }
        Ok((answer, answers, sent))
    }

    async fn take_step(
        &mut self,
        inbox: &mut RequestBuffer,
        flight: &mut InFlight,
        (mut step, mut sent): (Plan, Instant),
        active: &Active,
    ) -> Result<(Bytes, Answers, Instant), End> {
        let wanted = flight.permitted.durability();
        let mut answer = self.execute_waiting(inbox, &step, wanted).await?;
        if flight.unchecked.is_some() && &answer[..] == SEND_IT_UNCHECKED {
            flight.unchecked = None;
            self.client.pending_grants.answered();
            step = self.client.plan(flight, true, active);
            self.client.step_is_under_way(flight);
            answer = self.execute_waiting(inbox, &step, wanted).await?;
        }
        for asked in 1..=MAX_ASKED_BACK {
            let Some(back) = self.client.asked_back(&answer) else {
                break;
            };
            (answer, sent) = Box::pin(self.tell_who_is_who(inbox, back, asked, flight, active)).await?;
        }
        let answers = self.client.read_answers(&answer)?;
        if !answers.perhaps_own() {
            return Ok((answer, answers, sent));
        }
        Box::pin(self.once_more(inbox, flight, wanted, active)).await
    }

    /// Sends a step that asked back once more, when the processes in question are known.
    async fn tell_who_is_who(
        &mut self,
        inbox: &mut RequestBuffer,
        back: AskedBack,
        asked: u32,
        flight: &mut InFlight,
        active: &Active,
    ) -> Result<(Bytes, Instant), End> {
        self.client.pending_grants.answered();
        self.look_up(inbox, back, asked, flight, active).await?;
        let step = self.client.plan(flight, asked < MAX_ASKED_BACK, active);
        self.client.step_is_under_way(flight);
        let sent = Instant::now();
        let answer = self.execute_waiting(inbox, &step, flight.permitted.durability()).await?;
        Ok((answer, sent))
    }

    /// Tries a step again whose first try has changed nothing. This client's own commands wait behind it in any case.
    async fn once_more(
        &mut self,
        inbox: &mut RequestBuffer,
        flight: &mut InFlight,
        wanted: Option<Durability>,
        active: &Active,
    ) -> Result<(Bytes, Answers, Instant), End> {
        tokio::time::sleep(ONCE_MORE_AFTER).await;
        // The lock may be held by another lease by now, and no further question is read.
        let step = self.client.plan(flight, false, active);
        self.client.pending_grants.answered();
        self.client.step_is_under_way(flight);
        let sent = Instant::now();
        let answer = self.execute_waiting(inbox, &step, wanted).await?;
        let answers = self.client.read_answers(&answer)?;
        Ok((answer, answers, sent))
    }

    /// A tokenless command came over another connection than the one that its lease was granted on, and it was not
    /// known yet whether both are of the same process. Finds out the process of this client and that of the holder,
    /// and adds the holder's to the record. A holder that came by another proxy is looked up by that proxy.
    async fn look_up(
        &mut self,
        inbox: &mut RequestBuffer,
        back: AskedBack,
        asked: u32,
        flight: &InFlight,
        active: &Active,
    ) -> Result<(), End> {
        let was_known = self.client.connection.peer().process() != Process::Pending;
        let own = self.client.shared.processes.of(self.client.connection.peer()).await;
        let holder = self.client.shared.clients.of_session(back.holder);
        let asked_about = flight.permitted.locks().get(back.at);
        let (Some((_, holder)), Some(asked_about)) = (holder, asked_about) else {
            if was_known {
                tokio::time::sleep(FOR_ANOTHER_PROXY * asked).await;
            }
            return Ok(());
        };
        let process = self.client.shared.processes.of(&holder).await;
        tracing::debug!(client = %self.client.peer, ?own, ?process, "looked up who is who");
        if process != Process::Pending {
            let step = identify(asked_about.lock.key.bytes(), back.grant, process, &active.companion_prefix);
            self.execute(inbox, &step).await?;
        }
        Ok(())
    }

    /// Sends a step and waits for its answer. A server that does not know the script is sent its text: it has not run
    /// anything then, so this is no repetition.
    pub(crate) async fn execute(&mut self, inbox: &mut RequestBuffer, step: &Plan) -> Result<Bytes, End> {
        self.execute_waiting(inbox, step, None).await
    }

    /// The same. In the same write, after the step, replicas are asked to confirm it.
    async fn execute_waiting(
        &mut self,
        inbox: &mut RequestBuffer,
        step: &Plan,
        wanted: Option<Durability>,
    ) -> Result<Bytes, End> {
        let _under_way = UnderWay::one();
        // A step that checks rights may use EVAL, too, as in a block; and the request that ends a CLIENT CACHING must
        // be the step itself.
        if !step.is_checked() && !self.client.connection.reads_are_noted() {
            let mut is_together = wanted.is_none() && self.send_together(step);
            let answer = loop {
                if !is_together {
                    self.transport.execute(step, Form::Sha, Look::Answer, Muted::Yes);
                    self.ask_replicas(wanted);
                }
                let answer = self.answer(inbox).await?;
                if !is_together || self.is_answered_together(&answer) {
                    break answer;
                }
                is_together = false;
            };
            if Redirect::of(&answer).is_some() {
                return Box::pin(self.follow_slot(inbox, step, wanted, answer)).await;
            }
            if !answer.starts_with(b"-NOSCRIPT") {
                return Ok(answer);
            }
        }
        self.transport.execute(step, Form::Text, Look::Answer, Muted::Yes);
        self.ask_replicas(wanted);
        let answer = self.answer(inbox).await?;
        match Redirect::of(&answer) {
            Some(_) => Box::pin(self.follow_slot(inbox, step, wanted, answer)).await,
            None => Ok(answer),
        }
    }

    pub(crate) fn queue(&mut self, step: &Plan, flight: Box<InFlight>, active: &Arc<Active>, muted: Muted) {
        let command = flight.permitted.command();
        self.queue_guard(command, active, muted);
        let look = QueuedStep::look(Queued::Step, command, active);
        let Some(block) = &mut self.client.connection.block else {
            return;
        };
        for Allowed { lock, .. } in flight.permitted.locks() {
            if let Some(grant) = lock.grant() {
                block.grants.entry(lock.key.clone()).or_default().push(grant);
            }
        }
        block.hold(Place::Step(flight, active.clone()));
        self.transport.execute_queued(step, look, muted);
    }
}

impl Client {
    /// Plans a step. If a process must be known first, the step may ask back.
    pub(crate) fn plan(&mut self, flight: &mut InFlight, may_ask_back: bool, active: &Active) -> Plan {
        let who = self.connection.who();
        let looks_first = self.shared.later_records.are_about();
        let who = Who { may_ask_back, looks_first, process: flight.speaks_for.unwrap_or(who.process), ..who };
        flight.told = who.process;
        let prefix = &active.companion_prefix;
        let mut draw = random::grant;
        let step = plan(&mut flight.permitted, &who, prefix, &mut draw);
        match flight.unchecked {
            Some(needs) => step.checked(needs),
            None => step,
        }
    }
}

//! The way of a command, from the client's bytes to the reply, in the order in which it happens:
//! understood, judged, settled, planned, executed, answered. Everything that decides is in the lock
//! and policy crates; this file only carries it from one to the next.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockwarden_lock::classify::{Class, Classifier, TooLong};
use lockwarden_lock::decision::{Decide, Decision};
use lockwarden_lock::evidence::{DbKey, Facts};
use lockwarden_lock::op::{LockCommand, LockOp, Reach};
use lockwarden_lock::outcome::{self, Answers, AskedBack, NothingRun, Why, limit_line};
use lockwarden_lock::plan::{Form, Needs, Plan, Who, identify, plan};
use lockwarden_lock::settle::{self, Mode, Settled, judge, settle};
use lockwarden_lock::token::Process;
use lockwarden_policy::Chains;
use lockwarden_resp::{Elements, ReplyError, Request, Value, parse_reply, put_value};
use smallvec::SmallVec;

use super::acl::{Queued, QueuedStep, rights_line};
use super::client::Client;
use super::compare_digest::Compared;
use super::connection_state::{Place, StateChange};
use super::gather_facts::may_need_process;
use super::multiplexing::Way;
use super::opaque_scripts::{Examined, own_no, under_its_own_name};
use super::transport::request_buffer::RequestBuffer;
use super::transport::{End, Muted};
use super::{InFlight, Look, Session, error_frame, replicas};
use crate::backend::rights::Known;
use crate::backend::server_info::is_of_replica;
use crate::clock::Moment;
use crate::net::buffer_pool::WORTH_A_SWAP;
use crate::random;
use crate::random::refusal_id;
use crate::ruleset::Active;
use crate::state::ProxyState;
use crate::telemetry::events::{EventKind, Recorder, Took};
use crate::telemetry::vocabulary::{CommandClass, CommandResult, LatencyPath, UnjudgedWhy};

/// An acquire that met a lease which may be its client's own is tried once more after this time: the
/// reset of the connection that was granted it can arrive a little later than the repetition.
const ONCE_MORE_AFTER: Duration = Duration::from_millis(20);
/// How often one command is asked for a process that is not known yet, before it goes on without.
const MAX_ASKED_BACK: u32 = 6;
/// How long another proxy gets to look its client up, the first time; then twice as long, and so on.
const FOR_ANOTHER_PROXY: Duration = Duration::from_millis(40);

/// For a command that was on its way when something else came into force.
const SWITCHED: &str = "ERR the mode of this lock's namespace was switched meanwhile; try again";

thread_local! {
    /// This thread's policy instances.
    static CHAINS: RefCell<Chains> = RefCell::new(Chains::new());
}

impl Session {
    /// Takes the request that is in the inbox all its way. A lock command is an order barrier:
    /// nothing behind it is read before it was answered.
    pub(crate) async fn intercept(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let muted = self.client.next_muted();
        let sampled = self.sample();
        let mut request = inbox.request();
        let mut class = self.client.classify(request);
        if self.multiplexed {
            let way = self.way(&class, &request, !inbox.is_empty());
            if way == Way::Nowhere {
                let what = String::from_utf8_lossy(request.arg(1)).into_owned();
                let text = format!("ERR unknown subcommand '{what}'. Try CLIENT HELP.");
                self.client.count(CommandClass::Admin, CommandResult::Error);
                self.error(&text, muted);
                return Ok(());
            }
            if way != Way::InUse {
                drop(class);
                if let Some(error) = Box::pin(self.change_way(way, inbox)).await? {
                    self.reply(&BytesMut::from(&error[..]), muted);
                    return Ok(());
                }
                request = inbox.request();
                class = self.client.classify(request);
            }
        }
        let is_unknown = matches!(
            class,
            Class::UnknownScript(_) | Class::UnseenScript(_) | Class::UnknownFunction(_)
        );
        if is_unknown && self.client.connection.unsettled > 0 {
            // What loads it may be on its way right before it.
            drop(class);
            Box::pin(self.settled(inbox)).await?;
            request = inbox.request();
            class = self.client.classify(request);
        }
        let mut unread = None;
        if matches!(class, Class::UnknownFunction(_)) {
            drop(class);
            unread = Box::pin(self.learn_functions(inbox)).await?;
            request = inbox.request();
            class = self.client.classify(request);
        }
        self.client.is_first = self.client.is_new;
        self.client.is_new &= matches!(class, Class::Session(..));
        if inbox.is_cut() && !matches!(class, Class::TooLong(..) | Class::Error(_)) {
            self.client
                .count(CommandClass::Policy, CommandResult::ProxyError);
            self.error(SWITCHED, muted);
            return Ok(());
        }
        if let Class::PassThrough(pass) = class {
            let is_long = pass.frame().len() >= WORTH_A_SWAP && !pass.is_blocking();
            if is_long && inbox.is_empty() {
                self.transport.forward_whole(inbox.take_all(), muted);
            } else if self.client.connection.block.is_none() && replicas::asks_for_them(&request) {
                self.transport.forward_and_look(pass, Look::Replicas, muted);
            } else {
                self.transport.forward(pass, muted);
            }
            self.client.queued();
            self.client
                .count(CommandClass::PassThrough, CommandResult::Ok);
            if let Some(begun) = sampled {
                let latency = &self.client.shared.metrics.added_latency;
                let latency = latency.at(LatencyPath::PassThrough);
                latency.observe(begun.elapsed().as_secs_f64());
            }
            return Ok(());
        }
        // What passes through does without: every thread counts how many hold it. What is rare has memory
        // of its own while it runs, so that an idle session needs little.
        let active = self.client.active();
        match class {
            Class::PassThrough(_) => Ok(()),
            Class::Read(pass, targets) => {
                self.read(request.name(), pass, targets, &active, muted);
                Ok(())
            }
            Class::Admin(command) => {
                Box::pin(self.administer(inbox, *command, &active, muted)).await
            }
            Class::Trusted(pass, target) => {
                let metrics = &active.namespace(target.namespace).metrics;
                let why = UnjudgedWhy::TrustedFunction;
                metrics.unjudged.at(why).inc();
                let entry =
                    self.client
                        .entry(EventKind::Unjudged(why), &target, "fcall", None, &active);
                self.client.shared.events.leave(entry);
                self.client.count(CommandClass::Policy, CommandResult::Ok);
                self.transport.forward(pass, muted);
                self.client.queued();
                Ok(())
            }
            Class::ScriptLoad(pass) => {
                let text = Bytes::copy_from_slice(request.get(2).unwrap_or_default());
                self.change_state(StateChange::Loaded(text), pass, muted);
                Ok(())
            }
            Class::ScriptExists(pass) => {
                let names = request.args().skip(2).map(Bytes::copy_from_slice).collect();
                self.script_exists(names, pass, muted);
                Ok(())
            }
            Class::Listing(kind, pass) => {
                let frame = Bytes::copy_from_slice(pass.frame());
                Box::pin(self.listing(inbox, kind, &frame, muted)).await
            }
            Class::Session(verb, pass) => {
                let words = request.args().skip(1).map(Bytes::copy_from_slice).collect();
                let frame = Bytes::copy_from_slice(pass.frame());
                Box::pin(self.session_verb(inbox, verb, words, frame, muted)).await
            }
            Class::Judge(command) => self.govern(inbox, command, &active, muted).await,
            Class::UnknownScript(command) => {
                Box::pin(self.unknown_script(inbox, command, &active, muted)).await
            }
            Class::UnseenScript(_) => Box::pin(self.unseen_script(inbox, &active, muted)).await,
            Class::Computed(script) => {
                Box::pin(self.computed_script(inbox, script, &active, muted)).await
            }
            Class::ComputedFunction(command) => {
                Box::pin(self.computed_function(inbox, command, &active, muted)).await
            }
            Class::UnknownFunction(command) => {
                Box::pin(self.unknown_function(inbox, command, unread, &active, muted)).await
            }
            Class::TooLong(command, what) => {
                Box::pin(self.too_long(inbox, command, what, &active, muted)).await
            }
            // In a block it is Redis that says that it knows no such command, and the block is spoilt.
            Class::Fence(pass, _) if self.client.connection.block.is_some() => {
                self.client
                    .count(CommandClass::PassThrough, CommandResult::Ok);
                self.transport.forward(pass, muted);
                self.client.queued();
                Ok(())
            }
            Class::Fence(_, key) => Box::pin(self.tell_fence(inbox, key, muted)).await,
            Class::ErrorOfOthers(pass, target, _)
                if active.rules(target.namespace).mode == Mode::Monitor =>
            {
                self.client
                    .count(CommandClass::PassThrough, CommandResult::Ok);
                self.transport.forward(pass, muted);
                self.client.queued();
                Ok(())
            }
            Class::Error(text) | Class::ErrorOfOthers(_, _, text) => {
                self.client.count(CommandClass::Admin, CommandResult::Error);
                let name = request.name().to_owned();
                match Box::pin(self.barred(inbox, &name)).await? {
                    Some(error) => self.reply(&error, muted),
                    None => self.redis_error(text, muted),
                }
                Ok(())
            }
        }
    }

    /// Judges a lock command and does what was decided.
    pub(crate) async fn govern(
        &mut self,
        inbox: &mut RequestBuffer,
        mut command: Box<LockCommand>,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        if let Some(error) = self.barred(inbox, command.name.as_bytes()).await? {
            self.reply(&error, muted);
            return Ok(());
        }
        let active = &self.client.seen(active.clone());
        if let Some(refused) = self.client.unrecordable(&command, active) {
            self.refuse(&refused, None, active, muted);
            return Ok(());
        }
        let rules = |namespace| active.rules(namespace);
        if let Some(why) = self.client.is_servers_affair(&command, active) {
            return self.forward_unjudged(command, why, active, muted);
        }
        if let LockOp::Wrapped { script, .. } = &command.op
            && !script.compiles()
        {
            let script = script.clone();
            match self.examine(inbox, &script).await? {
                Examined::Sound => {}
                Examined::TurnedAway(proof) => {
                    return self.turned_away(command, &proof, active, muted);
                }
                Examined::Unsound(text) => {
                    self.client
                        .count(CommandClass::Policy, CommandResult::Error);
                    self.error(&text, muted);
                    return Ok(());
                }
            }
        }
        match self.compare_digest(inbox, &mut command).await? {
            Compared::Judged => {}
            Compared::Never => return self.digest_unjudged(command, active, muted),
            Compared::Unreadable(error) => {
                return self.digest_unreadable(command, &error, active, muted);
            }
        }
        if let LockOp::Wrapped {
            reach: Reach::Anything,
            ..
        } = &command.op
        {
            self.client
                .computes_unjudged(command.op.target(), command.name, active);
        }
        let begun = Moment::now();
        let needs = Needs::of(&command);
        let known = self
            .client
            .rights(command.op.target().namespace, needs, begun.at);
        if known != Known::Good
            && let Some(done) = self.lacks_already(&command, &known, active, muted)
        {
            return match done {
                Lacks::Told => Ok(()),
                Lacks::Forward(why) => self.forward_unjudged(command, why, active, muted),
            };
        }
        let keys = self.client.keys(&command.op);
        let speaks_for = match self.client.is_first || !self.client.shared.jobs.is_empty() {
            true => Box::pin(self.client.job_of(&command, &keys, active)).await,
            false => None,
        };
        let facts = self.client.facts(&command, &keys, active, begun.at);

        let decisions = self.client.decide(&command, &facts, active, begun);
        let permitted = match settle(command, decisions, &rules) {
            Settled::Permitted(permitted) => permitted,
            Settled::Refused(refused) => {
                let took = judged(begun, Instant::now());
                self.refuse(&refused, Some(took), active, muted);
                let_others_run(&took).await;
                return Ok(());
            }
            Settled::Unjudged(command) => {
                let why = UnjudgedWhy::ForwardedScript;
                for target in command.op.targets() {
                    let metrics = &active.namespace(target.namespace).metrics;
                    metrics.unjudged.at(why).inc();
                }
                self.client
                    .tell_unjudged(&command.op, command.name, why, active);
                self.client.count(CommandClass::Policy, CommandResult::Ok);
                if let Some(pass) = settle::forward_script(&command, &rules) {
                    self.transport.forward(pass, muted);
                    self.client.queued();
                }
                return Ok(());
            }
            Settled::Forward(command, would) => {
                let target = command.op.target().clone();
                let operation = command.op.operation(begun.unix_ms);
                let id = self
                    .client
                    .would_refuse(&target, command.name, operation, &would, active);
                let took = judged(begun, Instant::now());
                self.client.tell_forwarded(
                    &target,
                    command.name,
                    operation,
                    (id, &would),
                    took,
                    active,
                );
                self.client.count(CommandClass::Policy, CommandResult::Ok);
                let pass = settle::forward_watched(&command, &would);
                self.transport.forward(pass, muted);
                self.client.queued();
                let_others_run(&took).await;
                return Ok(());
            }
        };
        let mut flight = InFlight {
            permitted,
            grants: SmallVec::new(),
            keys,
            asked: std::mem::take(&mut self.client.asked),
            took: Took::default(),
            // What is forwarded where it is only watched is queued in a block only where rights are known.
            unchecked: (known == Known::Nothing
                || (known != Known::Good && self.client.connection.block.is_none()))
            .then_some(needs),
            speaks_for,
        };
        let is_script = matches!(flight.permitted.command().op, LockOp::Wrapped { .. });
        // A step in a block cannot ask back, nor one that has run a script.
        if (is_script || self.client.connection.block.is_some())
            && may_need_process(&flight.permitted, &facts)
        {
            self.client
                .shared
                .processes
                .of(self.client.connection.peer())
                .await;
        }
        if self.client.connection.block.is_some() {
            let step = self.client.plan(&mut flight, &facts, false, active);
            flight.took = judged(begun, Instant::now());
            self.queue(&step, flight, active, muted);
            return Ok(());
        }
        let step = self.client.plan(&mut flight, &facts, true, active);
        let planned = Instant::now();
        flight.took = judged(begun, planned);
        self.client.step_is_under_way(&flight);
        let carried = self.carry_out(inbox, &mut flight, &facts, (step, planned), active);
        let (answer, answers, sent) = match carried.await {
            Ok(answered) => answered,
            Err(end) => {
                self.orphan = Some(Box::new(flight));
                return Err(end);
            }
        };
        let answered = Instant::now();
        let judged = flight.took.judging;
        flight.took.redis = Some(answered.duration_since(planned));
        self.client.pending_grants.answered();
        let reply =
            match self.conclude(&mut flight, &answer, &answers, active, begun.then(answered))? {
                Concluded::Reply(reply) => reply,
                Concluded::NothingRun(proof) => {
                    let command = flight.permitted.unrun(&proof);
                    return self.forward_unjudged(command, unjudged_for(&proof), active, muted);
                }
            };
        self.reply(&reply, muted);
        self.grants_are_told(muted, answered);
        let own = judged + answered.elapsed();
        self.client
            .shared
            .metrics
            .added_latency
            .at(LatencyPath::Policy)
            .observe(own.as_secs_f64());
        let waited = answered.duration_since(sent);
        self.client
            .shared
            .metrics
            .backend_latency
            .observe(waited.as_secs_f64());
        Ok(())
    }

    /// Where Redis takes hardly any command: before a login, while subscribed under RESP2, while
    /// monitoring. There it is asked with a short command that is allowed nowhere of these, and what
    /// it says to that is the answer; so nothing is judged that Redis would not look at.
    pub(crate) async fn barred(
        &mut self,
        inbox: &mut RequestBuffer,
        name: &[u8],
    ) -> Result<Option<BytesMut>, End> {
        self.settled(inbox).await?;
        let stranger = !self.client.connection.logged_in
            && self.client.shared.backend.server.may_want_password();
        if self.client.connection.block.is_some()
            || !(stranger || self.transport.pushes.takes_no_commands())
        {
            return Ok(None);
        }
        self.transport.inquire(&[b"EXISTS", b""], Look::Answer);
        let answer = self.answer(inbox).await?;
        if answer.starts_with(b"-NOAUTH") || answer.starts_with(b"-ERR Replica can't") {
            return Ok(Some(BytesMut::from(&answer[..])));
        }
        if let Some(rest) = answer.strip_prefix(b"-ERR Can't execute 'exists'") {
            let name = name.to_ascii_lowercase();
            let text = [b"-ERR Can't execute '", &name[..], b"'", rest].concat();
            return Ok(Some(BytesMut::from(&text[..])));
        }
        self.client.connection.logged_in = true;
        Ok(None)
    }

    /// Sends a step and reads its answer, whose bytes come too; and says when it was sent.
    async fn carry_out(
        &mut self,
        inbox: &mut RequestBuffer,
        flight: &mut InFlight,
        facts: &[Facts],
        (mut step, mut sent): (Plan, Instant),
        active: &Active,
    ) -> Result<(Bytes, Answers, Instant), End> {
        let mut answer = self.execute(inbox, &step).await?;
        if flight.unchecked.is_some() && &answer[..] == SEND_IT_UNCHECKED {
            flight.unchecked = None;
            self.client.pending_grants.answered();
            step = self.client.plan(flight, facts, true, active);
            self.client.step_is_under_way(flight);
            answer = self.execute(inbox, &step).await?;
        }
        for asked in 1..=MAX_ASKED_BACK {
            let Some(back) = self.client.asked_back(&answer) else {
                break;
            };
            self.client.pending_grants.answered();
            self.look_up(inbox, back, asked, &flight.keys, active)
                .await?;
            step = self
                .client
                .plan(flight, facts, asked < MAX_ASKED_BACK, active);
            self.client.step_is_under_way(flight);
            sent = Instant::now();
            answer = self.execute(inbox, &step).await?;
        }
        let answers = self.client.read_answers(&answer)?;
        if !answers.perhaps_own() {
            return Ok((answer, answers, sent));
        }
        // The first try has changed nothing. This client's own commands wait behind it anyway.
        tokio::time::sleep(ONCE_MORE_AFTER).await;
        // What holds the lock by now may be another lease, and nobody reads a question any more.
        let step = self.client.plan(flight, facts, false, active);
        self.client.pending_grants.answered();
        self.client.step_is_under_way(flight);
        let sent = Instant::now();
        let answer = self.execute(inbox, &step).await?;
        let answers = self.client.read_answers(&answer)?;
        Ok((answer, answers, sent))
    }

    /// A tokenless command over another connection than its lease's: whether it is the same process
    /// was not known yet. Finds out which process this client is and which the holder, and adds the
    /// holder's to the record. A holder that came by another proxy is looked up by that one.
    async fn look_up(
        &mut self,
        inbox: &mut RequestBuffer,
        back: AskedBack,
        asked: u32,
        keys: &[DbKey],
        active: &Active,
    ) -> Result<(), End> {
        let was_known = self.client.connection.peer().process() != Process::Pending;
        let own = self
            .client
            .shared
            .processes
            .of(self.client.connection.peer())
            .await;
        let holder = self.client.shared.clients.of_session(back.holder);
        let (Some((_, holder)), Some(key)) = (holder, keys.get(back.at)) else {
            if was_known {
                tokio::time::sleep(FOR_ANOTHER_PROXY * asked).await;
            }
            return Ok(());
        };
        let process = self.client.shared.processes.of(&holder).await;
        tracing::debug!(client = %self.client.peer, ?own, ?process, "looked up who is who");
        if process != Process::Pending {
            let step = identify(&key.key, back.grant, process, &active.companion_prefix);
            self.execute(inbox, &step).await?;
        }
        Ok(())
    }

    /// Sends a step and waits for its answer. A server that does not know the script gets its text:
    /// it has not run anything then, so this is no repetition.
    pub(crate) async fn execute(
        &mut self,
        inbox: &mut RequestBuffer,
        step: &Plan,
    ) -> Result<Bytes, End> {
        // Who may look at rights may use EVAL, too, as in a block; and what ends a CLIENT CACHING must be the step itself.
        if !step.is_checked() && !self.client.connection.tracking {
            self.transport
                .execute(step, Form::Sha, Look::Answer, Muted::Yes);
            let answer = self.answer(inbox).await?;
            if !answer.starts_with(b"-NOSCRIPT") {
                return Ok(answer);
            }
        }
        self.transport
            .execute(step, Form::Text, Look::Answer, Muted::Yes);
        self.answer(inbox).await
    }

    /// Remembers what follows from a step's answer, and words the reply.
    pub(crate) fn conclude(
        &mut self,
        flight: &mut InFlight,
        answer: &Bytes,
        answers: &Answers,
        active: &Active,
        now: Moment,
    ) -> Result<Concluded, End> {
        self.client.learn_of_check(flight, answers, now.at);
        let permitted = &flight.permitted;
        let op = &permitted.command().op;
        // Before Redis 7 the error of a script begins with other words than the error in it.
        if let Answers::Error(text) = answers
            && is_of_replica(text)
        {
            self.client.suspect_replica();
        }
        if let Some(proof) = answers.nothing_run() {
            self.client
                .learn_of_lack(permitted.command(), &proof, active);
            if !permitted.enforces() {
                return Ok(Concluded::NothingRun(proof));
            }
            self.client
                .count(CommandClass::Policy, CommandResult::Error);
            return Ok(Concluded::turned_away(permitted.command(), &proof, active));
        }
        let at = (self.transport.spoken_after(), now);
        self.client.account(flight, answers, active, at);
        let answered = outcome::answer(op, answers, permitted.allowed(), permitted.enforces())
            .map_err(|_| End::OutOfStep("a script's answer does not fit its command".into()))?;
        let mut reply = BytesMut::new();
        match answered {
            outcome::Answered::AsReturned => {
                self.client.count(CommandClass::Policy, CommandResult::Ok);
                let place = Elements::of(answer).and_then(|mut all| all.nth(SCRIPT_REPLY));
                match place {
                    Some(place) => reply.extend_from_slice(&answer[place]),
                    None => put_value(&mut reply, &Value::Null, self.client.connection.protocol),
                }
            }
            outcome::Answered::Raised(text, at) => {
                self.client
                    .count(CommandClass::Policy, CommandResult::Error);
                if let LockOp::Wrapped { script, .. } = op {
                    reply = self.client.raised(script, &text, &at);
                }
            }
            outcome::Answered::Barred(barred) => {
                let command = Box::new(permitted.command().clone());
                let line = self.barred_line(command, &barred, op.target(), active);
                return Ok(Concluded::error(&line));
            }
            outcome::Answered::Reply(value) => {
                let value = under_its_own_name(value, op);
                let failed = matches!(value, Value::Error(_));
                let result = if failed {
                    CommandResult::Error
                } else {
                    CommandResult::Ok
                };
                self.client.count(CommandClass::Policy, result);
                put_value(&mut reply, &value, self.client.connection.protocol);
            }
            outcome::Answered::Refusal(at, refused) => {
                self.client
                    .count(CommandClass::Policy, CommandResult::Denied);
                // A no of its own would hide that what it did to other keys stands.
                let others_stand = answers.others_stand();
                if !others_stand
                    && let Some(value) = own_no(flight.permitted.command(), flight, &refused)
                {
                    put_value(&mut reply, &value, self.client.connection.protocol);
                    return Ok(Concluded::Reply(reply));
                }
                let line =
                    self.client
                        .refusal_of_step(flight, (at, &refused), others_stand, active);
                return Ok(Concluded::error(&line));
            }
        }
        Ok(Concluded::Reply(reply))
    }

    /// `EVALSHA` of a text that this proxy has not seen. Outside a block every client answers
    /// NOSCRIPT with the text; inside one there is no such answer.
    async fn unknown_script(
        &mut self,
        inbox: &mut RequestBuffer,
        command: Box<LockCommand>,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        if let Some(error) = self.barred(inbox, command.name.as_bytes()).await? {
            self.reply(&error, muted);
            return Ok(());
        }
        let active = &self.client.seen(active.clone());
        if is_only_watched(&command, active) {
            return self.forward_unjudged(command, UnjudgedWhy::UnknownScript, active, muted);
        }
        if self.client.connection.block.is_some() {
            return self.govern(inbox, command, active, muted).await;
        }
        self.client
            .count(CommandClass::Policy, CommandResult::Error);
        self.error("NOSCRIPT No matching script. Please use EVAL.", muted);
        Ok(())
    }

    async fn too_long(
        &mut self,
        inbox: &mut RequestBuffer,
        command: Box<LockCommand>,
        what: TooLong,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        if let Some(error) = self.barred(inbox, command.name.as_bytes()).await? {
            self.reply(&error, muted);
            return Ok(());
        }
        let active = &self.client.seen(active.clone());
        if is_only_watched(&command, active) {
            if inbox.is_cut() {
                self.client
                    .count(CommandClass::Policy, CommandResult::ProxyError);
                self.error(SWITCHED, muted);
                return Ok(());
            }
            return self.forward_unjudged(command, UnjudgedWhy::TooLong, active, muted);
        }
        let limit = match what {
            TooLong::Key => "a lock key has at most 1024 bytes",
            TooLong::Value => "the value of a lock has at most 16384 bytes",
        };
        self.limit(limit, &command, muted);
        Ok(())
    }

    /// Answers that the proxy cannot do this.
    pub(crate) fn limit(&mut self, limit: &str, command: &LockCommand, muted: Muted) {
        let line = limit_line(limit, &command.op.target().key, command.name, &refusal_id());
        self.client
            .count(CommandClass::Policy, CommandResult::ProxyError);
        self.error(&line, muted);
    }

    /// In a namespace that is only watched, what cannot be judged is Redis's alone.
    pub(crate) fn forward_unjudged(
        &mut self,
        command: Box<LockCommand>,
        why: UnjudgedWhy,
        active: &Active,
        muted: Muted,
    ) -> Result<(), End> {
        let namespace = command.op.target().namespace;
        active.namespace(namespace).metrics.unjudged.at(why).inc();
        self.client
            .tell_unjudged(&command.op, command.name, why, active);
        self.client.count(CommandClass::Policy, CommandResult::Ok);
        let Some(pass) = settle::forward_unjudged(&command, active.rules(namespace)) else {
            self.error(SWITCHED, muted);
            return Ok(());
        };
        self.transport.forward(pass, muted);
        self.client.queued();
        Ok(())
    }

    fn queue(&mut self, step: &Plan, flight: InFlight, active: &Active, muted: Muted) {
        let command = flight.permitted.command();
        self.queue_guard(command, active, muted);
        let look = Look::Queued(Box::new(QueuedStep {
            what: Queued::Step,
            command: command.name,
            namespace: command.op.target().namespace,
            needs: Needs::of(command),
        }));
        let Some(block) = &mut self.client.connection.block else {
            return;
        };
        for (key, grant) in flight.keys.iter().zip(&flight.grants) {
            block.grants.entry(key.clone()).or_default().push(*grant);
        }
        block
            .places
            .push((block.queued, Place::Step(Box::new(flight))));
        block.queued += 1;
        self.transport.execute_queued(step, look, muted);
    }

    /// A step was not sent, or has run nothing, because Redis turns the proxy's scripts of this user away.
    fn turned_away(
        &mut self,
        command: Box<LockCommand>,
        proof: &NothingRun,
        active: &Active,
        muted: Muted,
    ) -> Result<(), End> {
        self.client.learn_of_lack(&command, proof, active);
        if is_only_watched(&command, active) {
            return self.forward_unjudged(command, unjudged_for(proof), active, muted);
        }
        self.client
            .count(CommandClass::Policy, CommandResult::Error);
        let prefix = &active.companion_prefix;
        let line = rights_line(proof.why(), command.name, Needs::of(&command), prefix);
        self.error(&line, muted);
        Ok(())
    }

    /// What is done with a command before its step is sent, where rights are not known to suffice for that; `None` where
    /// it is sent all the same.
    fn lacks_already(
        &mut self,
        command: &LockCommand,
        known: &Known,
        active: &Active,
        muted: Muted,
    ) -> Option<Lacks> {
        let watched = is_only_watched(command, active);
        match known {
            Known::Lacking(_) if watched => Some(Lacks::Forward(UnjudgedWhy::NoRights)),
            // The rest of the block would be carried out without it.
            Known::Lacking(missing) if self.client.connection.block.is_some() => {
                let why = Why::NoRights(missing.as_ref().clone());
                let (needs, prefix) = (Needs::of(command), &active.companion_prefix);
                self.client
                    .count(CommandClass::Policy, CommandResult::Error);
                self.error(&rights_line(&why, command.name, needs, prefix), muted);
                Some(Lacks::Told)
            }
            known if watched && self.client.wonders_in_block(command, known) => {
                Some(Lacks::Forward(UnjudgedWhy::NoRights))
            }
            Known::Good | Known::Stale | Known::Nothing | Known::Lacking(_) => None,
        }
    }
}

impl Client {
    /// What a request means under the configuration in force.
    fn classify<'a>(&mut self, request: Request<'a>) -> Class<'a> {
        let functions_stand = || self.connection.functions_stand();
        let active = self.active.load();
        if active.rollouts.is_none() {
            return classify(&self.shared, active, &functions_stand, request);
        }
        let active = self.active();
        let functions_stand = || self.connection.functions_stand();
        classify(&self.shared, &active, &functions_stand, request)
    }

    /// Asks the policies, on this thread's instances.
    fn decide(
        &mut self,
        command: &LockCommand,
        facts: &[Facts],
        active: &Arc<Active>,
        now: Moment,
    ) -> SmallVec<[Decision; 1]> {
        let circumstances = self.circumstances(now);
        let rules = |namespace| active.rules(namespace);
        let describe = |_| Some(self.description());
        let recorded = self.shared.events.wants_questions();
        let (decisions, asked) = CHAINS.with_borrow_mut(|chains| {
            chains.follow(&active.generation);
            if !recorded {
                let decisions = judge(chains, command, facts, &rules, &circumstances, &describe);
                return (decisions, Vec::new());
            }
            let mut recorder = Recorder::new(chains, &self.shared.events);
            let asking: &mut dyn Decide = &mut recorder;
            let decisions = judge(asking, command, facts, &rules, &circumstances, &describe);
            (decisions, recorder.into_asked())
        });
        self.asked = asked;
        decisions
    }

    /// Plans a step. One that may ask back does so where a process must be known first.
    fn plan(
        &mut self,
        flight: &mut InFlight,
        facts: &[Facts],
        may_ask_back: bool,
        active: &Active,
    ) -> Plan {
        let who = self.connection.who();
        let who = Who {
            may_ask_back,
            process: flight.speaks_for.unwrap_or(who.process),
            ..who
        };
        let prefix = &active.companion_prefix;
        let mut draw = random::grant;
        let step = plan(&flight.permitted, facts, &who, prefix, &mut draw);
        flight.grants = step.grants().into();
        match flight.unchecked {
            Some(needs) => step.checked(needs),
            None => step,
        }
    }

    /// What a step asks back, if it did so instead of answering.
    fn asked_back(&self, answer: &Bytes) -> Option<AskedBack> {
        if !answer.starts_with(b"*4\r\n$1\r\nI\r\n") {
            return None;
        }
        let value = parse_reply(answer, self.connection.protocol).ok()?;
        outcome::asked_back(&value)
    }

    /// Reads a step's answer.
    pub(crate) fn read_answers(&self, answer: &Bytes) -> Result<Answers, End> {
        let value = match parse_reply(answer, self.connection.protocol) {
            // What an application's script returned is relayed as it is, however deep it is nested.
            Err(ReplyError::TooDeep) => {
                parse_reply(&self.without_script_reply(answer), self.connection.protocol)
            }
            read => read,
        };
        let value = value.map_err(|_| End::OutOfStep("a script's answer is no reply".into()))?;
        outcome::read(&value).map_err(|_| End::OutOfStep("a script's answer is not its own".into()))
    }

    /// The same answer with null in place of what the application's script returned.
    fn without_script_reply(&self, answer: &Bytes) -> Bytes {
        let Some(place) = Elements::of(answer).and_then(|mut all| all.nth(SCRIPT_REPLY)) else {
            return answer.clone();
        };
        let mut shorter = BytesMut::from(&answer[..place.start]);
        put_value(&mut shorter, &Value::Null, self.connection.protocol);
        shorter.extend_from_slice(&answer[place.end..]);
        shorter.freeze()
    }

    /// Where nothing is enforced: why only the server can say what it makes of a command.
    fn is_servers_affair(&self, command: &LockCommand, active: &Active) -> Option<UnjudgedWhy> {
        let server = &self.shared.backend.server;
        let why = if server.lacks_scripts() {
            UnjudgedWhy::NoScripts
        } else if command.is_rare() && !command.is_known_to(server.commands().as_deref()) {
            UnjudgedWhy::UnknownCommand
        } else {
            return None;
        };
        is_only_watched(command, active).then_some(why)
    }
}

/// What became of a command whose rights are not known to suffice.
enum Lacks {
    /// Its client was told.
    Told,
    /// It is to be forwarded as it came.
    Forward(UnjudgedWhy),
}

/// The answer of a step that looked at its rights and wants to be sent without looking.
const SEND_IT_UNCHECKED: &[u8] = b"*2\r\n$1\r\nQ\r\n$0\r\n\r\n";

/// The label of a command that is forwarded because its step has run nothing.
fn unjudged_for(proof: &NothingRun) -> UnjudgedWhy {
    match proof.why() {
        Why::NoRights(_) => UnjudgedWhy::NoRights,
        Why::NoScripts => UnjudgedWhy::NoScripts,
    }
}

fn classify<'a>(
    shared: &ProxyState,
    active: &Active,
    functions_stand: &dyn Fn() -> bool,
    request: Request<'a>,
) -> Class<'a> {
    let classifier = Classifier {
        namespaces: &active.namespaces,
        companion_prefix: &active.companion_prefix,
        trusted_function: &|name| active.administration.trusts(name),
        function: &|name| {
            let names = shared.functions.get(name);
            names.filter(|_| !active.enforces_any() || functions_stand())
        },
        computed_names: &active.computed_names,
        enforces: &|namespace| active.rules(namespace).mode == Mode::Enforce,
        foreign: &|| shared.backend.server.commands().clone(),
        counts: &|namespace| active.rules(namespace).counter_locks,
        script: &|sha| shared.script_cache.get(sha),
        saw: &|text| shared.script_cache.saw(text),
    };
    classifier.classify(request)
}

/// How long a decision took that has not been to Redis.
fn judged(begun: Moment, until: Instant) -> Took {
    Took {
        judging: until.saturating_duration_since(begun.at),
        redis: None,
    }
}

/// A judgement that takes longer has kept the other clients of its thread waiting.
const LONG_JUDGEMENT: Duration = Duration::from_millis(1);

/// After a slow policy the other clients have their turn before the next command of a pipeline, where no wait for
/// Redis gives them one.
async fn let_others_run(took: &Took) {
    if took.judging > LONG_JUDGEMENT {
        tokio::task::yield_now().await;
    }
}

/// Which element of a wrapped script's answer is what the application's script returned.
const SCRIPT_REPLY: usize = 3;

/// Whether nothing is refused in the namespace of a command.
pub(crate) fn is_only_watched(command: &LockCommand, active: &Active) -> bool {
    settle::forward_unjudged(command, active.rules(command.op.target().namespace)).is_some()
}

/// What came of a step.
pub(crate) enum Concluded {
    /// The reply, encoded.
    Reply(BytesMut),
    /// The step has run nothing, and refusals are not carried out: the client's own command may go.
    NothingRun(NothingRun),
}

impl Concluded {
    fn error(line: &str) -> Concluded {
        Concluded::Reply(error_frame(line))
    }

    /// The line for a client whose step has run nothing.
    pub(crate) fn turned_away(
        command: &LockCommand,
        proof: &NothingRun,
        active: &Active,
    ) -> Concluded {
        let prefix = &active.companion_prefix;
        Concluded::error(&rights_line(
            proof.why(),
            command.name,
            Needs::of(command),
            prefix,
        ))
    }
}

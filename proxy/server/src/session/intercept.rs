//! The way of a command, from the client's bytes to the reply, in the order in which it happens:
//! understood, judged, settled, planned, executed, answered. Everything that decides is in the lock
//! and policy crates; this file only carries it from one to the next.

use std::sync::Arc;
use std::time::Instant;

use lockwarden_lock::classify::Class;
use lockwarden_lock::op::{Command, LockOp};
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_lock::plan::Needs;
use lockwarden_lock::settle::{Refused, Settled, settle};
use lockwarden_lock::token::Process;
use lockwarden_resp::Request;

use super::awaited::{InFlight, Look};
use super::client::FirstCommand;
use super::conclude::Concluded;
use super::connection_state::Acting;
use super::gather_facts::{may_be_granted, may_need_process};
use super::judge::{Looked, judged, let_others_run};
use super::multiplexing::Way;
use super::transport::request_buffer::RequestBuffer;
use super::transport::{End, Muted};
use super::unjudged::{Lacks, SWITCHED, unjudged_for};
use super::{Session, quarantine, replicas};
use crate::backend::rights::Known;
use crate::clock::Moment;
use crate::registry::script_cache::LONG_TEXT;
use crate::ruleset::Active;
use crate::telemetry::events::Took;
use crate::telemetry::vocabulary::{CommandClass, CommandResult, LatencyPath, UnjudgedWhy};

impl Session {
    /// Takes the request that is in the inbox all its way. A lock command is an order barrier:
    /// nothing behind it is read before it was answered.
    pub(crate) async fn intercept(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        if !self.client.shared.standstill.goes_on() {
            self.client.shared.standstill.is_over().await;
        }
        if self.client.connection.acting == Acting::Own {
            self.carry(inbox).await?;
        } else {
            Box::pin(self.own_again(inbox)).await?;
            self.carry(inbox).await?;
        }
        if self.client.connection.acting == Acting::Twin {
            Box::pin(self.rest(inbox)).await?;
        }
        Ok(())
    }

    async fn carry(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let muted = self.client.next_muted();
        if self.client.connection.must_log_in && !self.lets_in(inbox, muted) {
            return Ok(());
        }
        let sampled = self.sample();
        let mut request = inbox.request();
        if request.frame().len() > LONG_TEXT {
            Box::pin(self.client.read_long_text(request)).await;
            request = inbox.request();
        }
        let mut class = self.client.classify(request);
        let as_twin = self.client.wants_twin(&class, &request) && !self.transport.pushes.takes_no_commands();
        let mut guarded = self.client.guarded_by(&class, &request);
        let as_twin = as_twin || (guarded.is_some() && self.client.may_become_twin());
        let way = match as_twin {
            // A connection that is logged in as another user is not shared.
            true => Way::InUse,
            false => self.way(&class, &request, !inbox.is_empty()),
        };
        if way != Way::InUse {
            drop(class);
            if !Box::pin(self.go_by(way, inbox, muted)).await? {
                return Ok(());
            }
            request = inbox.request();
            class = self.client.classify(request);
        }
        if as_twin {
            drop(class);
            if !Box::pin(self.become_twin(inbox, muted)).await? {
                return Ok(());
            }
            request = inbox.request();
            class = self.client.classify(request);
        }
        let mut unread = None;
        if self.may_learn_more(&class) {
            drop(class);
            unread = Box::pin(self.learn_what_is_unknown(inbox)).await?;
            request = inbox.request();
            class = self.client.classify(request);
            guarded = self.client.guarded_by(&class, &request);
        }
        let is_about_connection = matches!(class, Class::Session(..));
        self.client.first_command = self.client.first_command.next(is_about_connection);
        // Zeros stand for a value that was to be refused when its length was announced; another mode is in force now.
        if inbox.is_cut() && !matches!(class, Class::TooLong(..) | Class::Error(_)) {
            self.proxy_error(SWITCHED, muted);
            return Ok(());
        }
        self.client.count_computed_data(&class, &request);
        if let Some(write) = guarded {
            if let (Class::Judge(command), None) = (&mut class, write.unchecked) {
                self.client.judge_in_step(command, *write);
            } else if let Some(refused) = self.client.theft(&class, &write) {
                drop(class);
                let active = self.client.active();
                self.refuse(&refused, None, &active, muted);
                return Ok(());
            } else {
                let kept = self.client.kept_for(&write, &class);
                drop(class);
                if Box::pin(self.guarded_write(inbox, write, kept, muted)).await? {
                    return Ok(());
                }
                request = inbox.request();
                class = self.client.classify(request);
            }
        }
        if let Class::PassThrough(pass) = class {
            if self.pass_in_twins_block(&request, pass, muted) {
                self.client.count(CommandClass::PassThrough, CommandResult::Ok);
                return Ok(());
            } else if let Some(leave) = inbox.whole(pass) {
                self.client.sight_long(pass, &request);
                let buffer = inbox.take_all();
                self.transport.forward_whole(leave, buffer, muted)?;
            } else {
                self.pass_through(&request, pass, muted);
            }
            self.client.passed_through(sampled);
            return Ok(());
        }
        // What passes through does without: every thread counts how many hold it. What is rare has memory
        // of its own while it runs, so that an idle session needs little.
        let active = self.client.active();
        match class {
            Class::PassThrough(_) => {}
            Class::Judge(command) => self.govern(inbox, command.into(), &active, muted).await?,
            Class::Opaque(command) => {
                Box::pin(self.govern(inbox, command.into(), &active, muted)).await?;
            }
            Class::Read(pass, targets) => {
                self.read(request.name(), pass, targets, &active, muted);
            }
            Class::Session(verb, pass) => {
                let kept = pass.keep();
                Box::pin(self.session_verb(inbox, verb, kept, muted)).await?;
            }
            Class::Listing(kind, pass) => {
                let kept = pass.keep();
                Box::pin(self.listing(inbox, kind, &kept, muted)).await?;
            }
            Class::Admin(command) => {
                Box::pin(self.administer(inbox, *command, &active, muted)).await?;
            }
            Class::Trusted(pass, target) => {
                let why = UnjudgedWhy::TrustedFunction;
                self.forward_call(pass, (&target, "fcall"), why, &active, muted);
            }
            Class::ScriptLoad(pass) => self.script_load(&request, pass, muted),
            Class::ScriptExists(pass) => self.script_exists(&request, pass, muted),
            Class::UnknownScript(command) => {
                Box::pin(self.unknown_script(inbox, command, &active, muted)).await?;
            }
            Class::UnseenScript(script) => {
                Box::pin(self.unseen_script(inbox, script, &active, muted)).await?;
            }
            Class::Computed(script) => {
                Box::pin(self.computed_script(inbox, script, &active, muted)).await?;
            }
            Class::ComputedFunction(call) => {
                Box::pin(self.computed_function(inbox, call, &active, muted)).await?;
            }
            Class::UnknownFunction(call) => {
                Box::pin(self.unknown_function(inbox, call, unread, &active, muted)).await?;
            }
            Class::TooLong(command, what) => {
                Box::pin(self.too_long(inbox, command, what, &active, muted)).await?;
            }
            // In a block it is Redis that says that it knows no such command, and the block is spoilt.
            Class::Fence(pass, _) if self.client.connection.block.is_some() => {
                self.forward(CommandClass::PassThrough, pass, muted);
            }
            Class::Fence(_, key) => Box::pin(self.tell_fence(inbox, key, muted)).await?,
            Class::Lease(question) => {
                Box::pin(self.tell_lease(inbox, question, &active, muted)).await?;
            }
            Class::Operator(command) => {
                Box::pin(self.ask_proxy(inbox, command, muted)).await?;
            }
            Class::ErrorOfOthers(error) => {
                let mode = active.rules(error.target.namespace).mode;
                match error.forward(mode) {
                    Some(pass) => self.forward(CommandClass::PassThrough, pass, muted),
                    None => Box::pin(self.tell_error(inbox, error.text, muted)).await?,
                }
            }
            Class::UnknownName(unknown) => match unknown.forward(|namespace| active.rules(namespace).mode) {
                Some(pass) => self.forward(CommandClass::PassThrough, pass, muted),
                None => Box::pin(self.tell_unknown(inbox, muted)).await?,
            },
            Class::OtherName(pass) if !active.enforces_any() => {
                self.forward(CommandClass::PassThrough, pass, muted);
            }
            Class::OtherName(_) => {
                let text = "ERR lockwarden could not ask the server what this command is; try again";
                Box::pin(self.tell_error(inbox, text.to_owned(), muted)).await?;
            }
            Class::Error(text) => Box::pin(self.tell_error(inbox, text, muted)).await?,
        }
        Ok(())
    }

    /// No lock is concerned, and the client gets what Redis answers. Where that may name replicas,
    /// or say what became of an unknown lock, it is looked at.
    fn pass_through(&mut self, request: &Request<'_>, pass: PassThrough<'_>, muted: Muted) {
        if self.client.connection.block.is_none() && replicas::asks_for_them(request) {
            self.transport.forward_and_look(pass, Look::Replicas, muted);
        } else if let Some(sighted) = self.client.sight(pass, request) {
            let look = Look::Sighted(sighted);
            self.transport.forward_and_look(pass, look, muted);
        } else {
            self.transport.forward(pass, muted);
        }
    }

    /// Judges a lock command and does what was decided.
    pub(crate) async fn govern(
        &mut self,
        inbox: &mut RequestBuffer,
        mut command: Command,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let Some(active) = &self.admit(inbox, command.name().as_bytes(), active, muted).await? else {
            return Ok(());
        };
        if let Some(refused) = Refused::of_own_key(&command) {
            self.refuse(&refused, None, active, muted);
            return Ok(());
        }
        match self.look_first(inbox, &mut command, active).await? {
            Looked::Judge => {}
            other => return self.instead_of_judging(other, command, active, muted),
        }
        let namespace = command.target().namespace;
        if active.namespace(namespace).quarantine.is_some()
            && !Box::pin(self.verify_server(inbox, namespace, active, muted)).await?
        {
            return Ok(());
        }
        if !self.client.shared.prefix_mark.is_settled()
            && may_be_granted(&command)
            && !Box::pin(self.client.shared.prefix_mark.settle(&self.client.shared)).await
        {
            return Err(End::Backend);
        }
        let begun = Moment::now();
        let needs = Needs::of_any(&command);
        let name = &active.namespace(namespace).name;
        let known = self.client.rights(name, needs, begun.at);
        if known != Known::Good
            && let Some(done) = self.lacks_already(&command, &known, active, muted)
        {
            return match done {
                Lacks::Told => Ok(()),
                Lacks::Forward(why) => self.forward_unjudged(command, why, active, muted),
            };
        }
        let speaks_for = match self.client.first_command == FirstCommand::AtHand || !self.client.shared.jobs.is_empty()
        {
            true => Box::pin(self.client.job_of(&command, active)).await,
            false => None,
        };
        let locks = self.client.locks(&command, active, begun.at);

        let decided = self.client.decide(&command, locks, active, begun);
        let is_verified = self.transport.backend_link().is_verified();
        let shared = &self.client.shared;
        let rules = |namespace| quarantine::rules_now(namespace, active, shared, is_verified);
        match settle(command, decided, &rules) {
            Settled::Permitted(permitted) => {
                let flight = InFlight {
                    permitted,
                    asked: std::mem::take(&mut self.client.asked),
                    took: Took::default(),
                    // What is forwarded where it is only watched is queued in a block only where rights are known.
                    unchecked: (known == Known::Nothing
                        || (known != Known::Good && self.client.connection.block.is_none()))
                    .then_some(needs),
                    speaks_for,
                    told: Process::Pending,
                    confirmation: None,
                };
                self.run(inbox, flight, begun, active, muted).await
            }
            Settled::Refused(refused) => {
                let took = judged(begun, Instant::now());
                self.refuse(&refused, Some(took), active, muted);
                let_others_run(&took).await;
                Ok(())
            }
            Settled::Unjudged(forwarded) => {
                self.forward_script_unjudged(&forwarded, active, muted);
                Ok(())
            }
            Settled::Forward(forwarded, would) => {
                let took = judged(begun, Instant::now());
                self.forward_watched(&forwarded, &would, (begun, took), active, muted);
                let_others_run(&took).await;
                Ok(())
            }
        }
    }

    /// Plans a permitted step, sends it, and does what follows from its answer.
    async fn run(
        &mut self,
        inbox: &mut RequestBuffer,
        mut flight: InFlight,
        begun: Moment,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let is_script = matches!(flight.permitted.command().op, LockOp::Wrapped { .. });
        let is_queued = self.client.connection.block.is_some();
        // A step in a block cannot ask back, nor one that has run a script.
        let judges_data = !flight.permitted.command().op.data().is_empty();
        if (is_script || is_queued) && (judges_data || may_need_process(&flight.permitted)) {
            let peer = self.client.connection.peer();
            self.client.shared.processes.of(peer).await;
        }
        if flight.permitted.durability().is_some() {
            let command = flight.permitted.command();
            if !Box::pin(self.prepare_to_wait(inbox, command, active, muted)).await? {
                return Ok(());
            }
        }
        if is_queued {
            let step = self.client.plan(&mut flight, false, active);
            flight.took = judged(begun, Instant::now());
            self.queue(&step, flight, active, muted);
            return Ok(());
        }
        let step = self.client.plan(&mut flight, true, active);
        let planned = Instant::now();
        // A gap may lie between the two. What a client is promised it reckons from its request, so that stays true.
        if !self.still_counts(planned).await {
            return Err(End::Backend);
        }
        flight.took = judged(begun, planned);
        self.client.step_is_under_way(&flight);
        let carried = self.carry_out(inbox, &mut flight, (step, planned), active);
        let (answer, answers, sent) = match carried.await {
            Ok(answered) => answered,
            Err(end) => {
                self.never_confirmed(&flight, active);
                // Its answer may still come while the session ends, and says whether the lock was granted.
                self.orphan = Some(Box::new(flight));
                return Err(end);
            }
        };
        let answered = Instant::now();
        if !self.still_counts(answered).await {
            return Err(End::Backend);
        }
        let judging = flight.took.judging;
        flight.took.redis = Some(answered.duration_since(planned));
        self.client.pending_grants.answered();
        let now = begun.then(answered);
        let reply = match self.conclude(&mut flight, &answer, &answers, active, now)? {
            Concluded::Reply(reply) => reply,
            Concluded::NothingRun(proof) => {
                let command = flight.permitted.unrun(&proof);
                let why = unjudged_for(&proof);
                return self.forward_unjudged(command.into(), why, active, muted);
            }
        };
        self.reply(&reply, muted);
        self.grants_are_told(muted, answered);
        let own = judging + answered.elapsed();
        let metrics = &self.client.shared.metrics;
        let latency = metrics.added_latency.at(LatencyPath::Policy);
        latency.observe(own.as_secs_f64());
        let waited = answered.duration_since(sent);
        metrics.backend_latency.observe(waited.as_secs_f64());
        Ok(())
    }
}

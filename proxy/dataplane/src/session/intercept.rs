//! The way of a command, from the client's bytes to the reply, in the order in which it happens: understood, judged,
//! settled, planned, executed, answered. All decisions are made in the lock and policy crates; this file only passes
//! the command from one to the next.

use std::sync::Arc;
use std::time::Instant;

use lockwarden_control::clock::Moment;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::events::Took;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult, LatencyPath, UnjudgedWhy};
use lockwarden_lock::classify::Class;
use lockwarden_lock::op::{Command, LockOp};
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_lock::plan::Needs;
use lockwarden_lock::settle::{Settled, settle};
use lockwarden_lock::token::Process;
use lockwarden_resp::Request;

use crate::backend::rights::Known;
use crate::registry::script_cache::LONG_TEXT;
use crate::session::Session;
use crate::session::client::login::Acting;
use crate::session::judge::gather_facts::may_need_process;
use crate::session::judge::looked::Looked;
use crate::session::judge::quarantine;
use crate::session::judge::unjudged::unjudged_for;
use crate::session::judge::{judged, let_others_run};
use crate::session::servers::replicas;
use crate::session::step::awaited::{InFlight, Look};
use crate::session::step::conclude::Concluded;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};
use crate::session::understand::gates::{Gate, Opened};

/// What follows from a decision.
enum Decided {
    /// A step is to be sent.
    Step(Box<InFlight>),
    /// No step: the client has its reply, or Redis has the command. How long that took.
    Told(Took),
}

impl Session {
    /// Takes the request in the inbox through all of this. A lock command is an order barrier: nothing behind it is
    /// read before it was answered.
    pub(crate) async fn intercept(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        if !self.client.shared.standstill.goes_on() {
            self.client.shared.standstill.is_over().await;
        }
        if self.client.connection.login.acting() == Acting::Own {
            self.carry(inbox).await?;
        } else {
            Box::pin(self.own_again(inbox)).await?;
            self.carry(inbox).await?;
        }
        if self.client.connection.login.acting() == Acting::Twin {
            Box::pin(self.rest(inbox)).await?;
        }
        Ok(())
    }

    async fn carry(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let muted = self.client.next_muted();
        if self.client.connection.login.is_demanded() && !self.lets_in(inbox, muted) {
            return Ok(());
        }
        self.transport.ask(std::mem::take(&mut self.client.connection.is_asking));
        let sampled = self.sample();
        if inbox.request().frame().len() > LONG_TEXT {
            Box::pin(self.client.read_long_text(inbox.request())).await;
        }
        let mut gates = Gate::ORDER.into_iter();
        let mut still_unknown = None;
        let (request, class) = loop {
            let request = inbox.request();
            let mut class = self.client.classify(request);
            self.client.note_first_command(&class);
            let Some(closed) = self.next_closed(&mut gates, &mut class, &request, inbox) else {
                break (request, class);
            };
            drop(class);
            match Box::pin(self.open(closed, inbox, muted)).await? {
                Opened::Through => {}
                Opened::StillUnknown(why) => still_unknown = Some(why),
                Opened::Answered => return Ok(()),
            }
        };
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
        // Commands that pass through do without this `Arc`: all threads update its reference count. All else is boxed
        // while it runs, so that an idle session needs little memory.
        let active = self.client.active();
        match class {
            Class::PassThrough(_) => {}
            Class::Judge(command) => {
                Box::pin(self.govern(inbox, command.into(), &active, muted)).await?;
            }
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
                Box::pin(self.unknown_function(inbox, call, still_unknown, &active, muted)).await?;
            }
            Class::TooLong(command, what) => {
                Box::pin(self.too_long(inbox, command, what, &active, muted)).await?;
            }
            // In a block, Redis itself replies that it knows no such command, and the block is spoilt.
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

    /// The command concerns no lock, and the client gets Redis's reply. If that may name replicas, or show what
    /// became of an unknown lock, it is looked at.
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
        let (begun, rights) = match self.look_first(inbox, &mut command, active, muted).await? {
            Looked::Judge { begun, rights } => (begun, rights),
            other => return self.instead_of_judging(other, command, active, muted),
        };
        let speaks_for = match self.client.is_first_command() || !self.client.shared.jobs.is_empty() {
            true => Box::pin(self.client.job_of(&command, active)).await,
            false => None,
        };
        match self.decide(command, (begun, rights, speaks_for), active, muted) {
            Decided::Step(flight) => self.run(inbox, flight, begun, active, muted).await,
            Decided::Told(took) => {
                let_others_run(&took).await;
                Ok(())
            }
        }
    }

    /// Asks the policies and settles what they decided. A command that needs no step is answered here, so that none
    /// of its data stays in memory while another command's step is awaited.
    fn decide(
        &mut self,
        command: Command,
        (begun, rights, speaks_for): (Moment, Known, Option<Process>),
        active: &Arc<Active>,
        muted: Muted,
    ) -> Decided {
        let locks = self.client.locks(&command, active, begun.at);
        let decided = self.client.decide(&command, locks, active, begun);
        let is_verified = self.transport.backend_link().is_verified();
        let shared = &self.client.shared;
        let rules = |namespace| quarantine::rules_now(namespace, active, shared, is_verified);
        let took = match settle(command, decided, &rules) {
            Settled::Permitted(permitted) => {
                // A command that is forwarded in monitor mode is queued in a block only if the rights are known.
                let is_queued = self.client.connection.block.is_some();
                let is_unchecked = rights == Known::Nothing || (rights != Known::Good && !is_queued);
                return Decided::Step(Box::new(InFlight {
                    unchecked: is_unchecked.then(|| Needs::of(permitted.command())),
                    permitted,
                    asked: std::mem::take(&mut self.client.asked),
                    took: Took::default(),
                    speaks_for,
                    told: Process::Pending,
                    confirmation: None,
                }));
            }
            Settled::Refused(refused) => {
                let took = judged(begun, Instant::now());
                self.refuse(&refused, Some(took), active, muted);
                took
            }
            Settled::Unjudged(forwarded) => {
                self.forward_script_unjudged(&forwarded, active, muted);
                judged(begun, Instant::now())
            }
            Settled::Forward(forwarded, would) => {
                let took = judged(begun, Instant::now());
                self.forward_watched(&forwarded, &would, (begun, took), active, muted);
                took
            }
        };
        Decided::Told(took)
    }

    /// Plans a permitted step, sends it, and does what follows from its answer.
    async fn run(
        &mut self,
        inbox: &mut RequestBuffer,
        mut flight: Box<InFlight>,
        begun: Moment,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let is_script = matches!(flight.permitted.command().op, LockOp::Wrapped { .. });
        let is_queued = self.client.connection.block.is_some();
        // A step in a block cannot ask back, and neither can one that has run a script.
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
        self.transport.backend_link().follow_era();
        // The process may have stood still in between. A client reckons what it is promised from its request, so that
        // stays true.
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
                // Its reply may still come while the session ends, and shows whether the lock was granted.
                self.orphan = Some(flight);
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

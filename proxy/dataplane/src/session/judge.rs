//! The judgement of a lock command, and what comes before: whether it can be judged at all, and what the policies
//! decide.

pub(super) mod admission;
pub(super) mod audit_gate;
pub(super) mod compare_digest;
pub(super) mod gather_facts;
pub(super) mod looked;
pub(super) mod quarantine;
pub(super) mod refusals;
pub(super) mod rights;
pub(super) mod unjudged;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::clock::Moment;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::events::{Recorder, Took};
use lockwarden_control::telemetry::vocabulary::UnjudgedWhy;
use lockwarden_lock::decision::{
    ClientDescription, Decide, Decision, Holdings, MAX_HOLDINGS, Question, Verdict, WhoAsks,
};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::op::{Command, LockOp, Reach};
use lockwarden_lock::plan::Needs;
use lockwarden_lock::settle::{Judged, Lock, Refused, judge};
use lockwarden_policy::Chains;
use smallvec::SmallVec;

use crate::backend::rights::Known;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::commands::opaque_scripts::Examined;
use crate::session::judge::compare_digest::{Compared, compares_digest};
use crate::session::judge::gather_facts::{is_try, may_be_granted};
use crate::session::judge::looked::Looked;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

thread_local! {
    /// This thread's policy instances.
    static CHAINS: RefCell<Chains> = RefCell::new(Chains::new());
}

impl Session {
    /// Finds out what must be known of a command before it is judged, in this order: whether it touches a key of the
    /// proxy's own, whether it can be recorded, whether the server knows it, what its script's text shows, what a
    /// digest stands for, whether this is the server that the quarantine is reckoned for, whether the prefix mark
    /// stands, and what the user may do.
    pub(super) async fn look_first(
        &mut self,
        inbox: &mut RequestBuffer,
        command: &mut Command,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<Looked, End> {
        if let Some(refused) = Refused::of_own_key(command) {
            return Ok(Looked::Refuse(Box::new(refused)));
        }
        // Before anything is asked of Redis: with `audit_required` no command has an effect that is not recorded.
        if let Some(refused) = self.client.unrecordable(command, active) {
            return Ok(Looked::Refuse(Box::new(refused)));
        }
        if let Some(why) = self.client.is_servers_affair(command, active) {
            return Ok(Looked::Forward(why));
        }
        if let Command::Lock(command) = &mut *command {
            if let LockOp::Wrapped { script, .. } = &command.op
                && !script.compiles()
            {
                let script = script.clone();
                match Box::pin(self.examine(inbox, &script)).await? {
                    Examined::Sound => {}
                    Examined::TurnedAway(proof) => return Ok(Looked::TurnedAway(proof)),
                    Examined::Unsound(text) | Examined::Unknown(text) => return Ok(Looked::Wrong(text)),
                }
            }
            if compares_digest(command) {
                match Box::pin(self.compare_digest(inbox, command)).await? {
                    Compared::Judged => {}
                    Compared::Never => return Ok(Looked::NoDigest),
                    Compared::Unreadable(error) => return Ok(Looked::UnreadableDigest(error)),
                }
            }
            if let LockOp::Wrapped { reach: Reach::Anything, .. } = &command.op {
                let (target, why) = (command.op.target(), UnjudgedWhy::ComputedNames);
                self.client.count_unjudged(target, command.name, None, why, active);
            }
        }
        let namespace = command.target().namespace;
        if active.namespace(namespace).quarantine.is_some()
            && !Box::pin(self.verify_server(inbox, namespace, active, muted)).await?
        {
            return Ok(Looked::Told);
        }
        let shared = &self.client.shared;
        if !shared.prefix_mark.is_settled()
            && may_be_granted(command)
            && !Box::pin(shared.prefix_mark.settle(shared)).await
        {
            return Err(End::Backend);
        }
        let begun = Moment::now();
        let rights = self.client.rights(&active.namespace(namespace).name, Needs::of_any(command), begun.at);
        if rights != Known::Good
            && let Some(lacks) = self.lacks_already(command, &rights, active, muted)
        {
            return Ok(lacks);
        }
        Ok(Looked::Judge { begun, rights })
    }

    /// Handles a command according to what that look has shown.
    pub(super) fn instead_of_judging(
        &mut self,
        looked: Looked,
        command: Command,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        match looked {
            Looked::Judge { .. } | Looked::Told => {}
            Looked::Forward(why @ UnjudgedWhy::UnknownCommand) => {
                return self.forward_unknown(command, why, active, muted);
            }
            Looked::Forward(why) => return self.forward_unjudged(command, why, active, muted),
            Looked::Refuse(refused) => self.refuse(&refused, None, active, muted),
            Looked::TurnedAway(proof) => return self.turned_away(command, &proof, active, muted),
            Looked::Wrong(text) => {
                self.policy_error(&text, muted);
            }
            Looked::NoDigest => return self.digest_unjudged(command, active, muted),
            Looked::UnreadableDigest(error) => {
                return self.digest_unreadable(command, &error, active, muted);
            }
        }
        Ok(())
    }
}

impl Client {
    /// Asks the policies, using this thread's instances.
    pub(super) fn decide(
        &mut self,
        command: &Command,
        locks: SmallVec<[Lock; 1]>,
        active: &Arc<Active>,
        now: Moment,
    ) -> SmallVec<[Judged; 1]> {
        let circumstances = self.circumstances(now);
        let rules = |namespace| active.rules(namespace);
        let who = Asker { client: self, now: now.at };
        let recorded = self.shared.events.wants_questions_of(self.number);
        let (judged, asked) = CHAINS.with_borrow_mut(|chains| {
            // After a reload each thread changes to the new policies at its next decision.
            chains.follow(&active.generation);
            let mut chains = Beside { chains, active, command: command.name() };
            // The recorder copies each question, so it is used only if questions are kept.
            if !recorded {
                let judged = judge(&mut chains, command, locks, &rules, &circumstances, &who);
                return (judged, Vec::new());
            }
            let mut recorder = Recorder::new(&mut chains, self.shared.events.fingerprints());
            let asking: &mut dyn Decide = &mut recorder;
            let judged = judge(asking, command, locks, &rules, &circumstances, &who);
            (judged, recorder.into_asked())
        });
        self.asked = asked;
        if is_try(command) {
            let is_refused = |one: &&Judged| matches!(one.said.first().verdict, Verdict::Deny(_));
            for one in judged.iter().filter(is_refused) {
                self.evidence.turned_away(&one.lock.key);
            }
        }
        judged
    }
}

/// A client as policies see it.
struct Asker<'a> {
    client: &'a Client,
    now: Instant,
}

impl WhoAsks for Asker<'_> {
    fn describe(&self, _: u64) -> Option<ClientDescription> {
        Some(self.client.description())
    }

    fn holdings(&self, question: &Question<'_>) -> Holdings {
        let evidence = &self.client.evidence;
        Holdings {
            connection: evidence.held_beside(question.db, question.key, self.now, MAX_HOLDINGS),
            application: self.client.shared.holdings.of(&self.client.caller().steady_application()),
        }
    }
}

/// Asks the chain of a namespace, and the next chain beside it if there is one: either may decide for this client.
struct Beside<'a> {
    chains: &'a mut Chains,
    active: &'a Active,
    command: &'a str,
}

impl Decide for Beside<'_> {
    fn decide(&mut self, namespace: NamespaceId, question: &Question<'_>, who: &dyn WhoAsks) -> Decision {
        let decision = self.chains.decide(namespace, question, who);
        let details = self.active.namespace(namespace);
        let Some(next) = &details.next else {
            return decision;
        };
        let said = self.chains.decide(next.chain, question, who);
        let compared = next.beside.compare((&decision, &said), question, (&details.name, self.command), who);
        details.metrics.answered_beside(compared);
        match next.answers {
            true => Decision { by_next: true, ..said },
            false => decision,
        }
    }
}

/// How long a decision took that did not go to Redis.
pub(super) fn judged(begun: Moment, until: Instant) -> Took {
    Took { judging: until.saturating_duration_since(begun.at), redis: None }
}

/// A judgement that takes longer than this has kept the other clients of its thread waiting.
const LONG_JUDGEMENT: Duration = Duration::from_millis(1);

/// After a slow policy the other clients get their turn before the next command of a pipeline, if no wait for Redis
/// gives them one.
pub(super) async fn let_others_run(took: &Took) {
    if took.judging > LONG_JUDGEMENT {
        tokio::task::yield_now().await;
    }
}

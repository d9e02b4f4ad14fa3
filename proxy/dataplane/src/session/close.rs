//! How a session ends, as far as its leases are concerned: which of its last grants the client did not hear of, and
//! how those are marked.

use std::time::{Duration, Instant};

use lockwarden_control::clock::Moment;
use lockwarden_control::telemetry::vocabulary::UndeliveredOutcome;
use lockwarden_lock::plan::Form;
use lockwarden_lock::settle::Allowed;
use lockwarden_resp::parse_reply;

use crate::holders::lost;
use crate::registry::undelivered::Undelivered;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::step::awaited::{InFlight, Look};
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};
use crate::state::effects;

/// How long a session that lost its client waits for its own connection to take the marks.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a session whose connection Redis has closed checks whether it still holds a lock.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Session {
    /// The replies to what was granted were just handed over.
    pub(crate) fn grants_are_told(&mut self, muted: Muted, at: Instant) {
        let end = match muted {
            Muted::No => Some(self.transport.position()),
            Muted::Yes => None,
        };
        self.client.pending_grants.replied(end, at);
    }

    /// Redis closed the connection of a client. The client is told, as it would be by Redis. Until it closes its own
    /// end it counts as present, and its locks are kept alive: without the proxy they would stay.
    pub(super) async fn wait_for_holder(&mut self) {
        let mut drain = self.client.shared.drain.subscribe();
        self.transport.say_goodbye();
        while self.client.shared.keeps_leases_of(self.client.number) && !*drain.borrow() {
            tokio::select! {
                () = self.transport.client_stirs() => return,
                _ = drain.changed() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// Whether a client whose end was noticed may not have read a reply to a grant.
    fn leaves_unread(&mut self) -> bool {
        let delivery = self.transport.delivery(Instant::now());
        self.client.pending_grants.ends(delivery)
    }

    /// The client sends no more. While its leases can still be marked over its own connection, this finds out whether
    /// it still reads.
    pub(super) async fn client_done(&mut self) -> Result<(), End> {
        let idle = self.transport.is_idle() && !self.transport.pushes.takes_no_commands();
        if idle && self.leaves_unread() {
            if self.transport.was_turned_down().await {
                return Err(End::Client);
            }
            self.client.pending_grants.heard();
        }
        self.transport.half_close();
        Ok(())
    }

    /// Marks the grants that the client did not hear of. Its connection is over.
    pub(super) async fn mark_undelivered(&mut self, end: &End, inbox: &mut RequestBuffer) {
        let unread = self.leaves_unread()
            && match end {
                End::Client | End::Evicted => true,
                End::Backend | End::Done | End::OutOfStep(_) | End::Framing(_) => {
                    inbox.done && self.transport.was_turned_down().await
                }
            };
        let mut lost = self.client.pending_grants.end(unread);
        if lost.is_empty() {
            return;
        }
        let now = Instant::now();
        for lease in &mut lost {
            // If this session had no earlier lease, the mark is for whatever lease it holds by now.
            if self.client.evidence.own(&lease.key, now).is_none() {
                lease.grant = None;
            }
        }
        if matches!(end, End::Client) {
            lost = self.mark_over_own_connection(lost, inbox).await;
        }
        for lease in lost {
            if let Some(given_up) = self.client.shared.undelivered.add(lease) {
                effects::count_undelivered(&self.client.shared, &given_up, UndeliveredOutcome::Failed);
            }
        }
    }

    /// Over the session's own connection a mark cannot overtake the step that it is about. Returns the grants that
    /// could not be marked this way.
    async fn mark_over_own_connection(
        &mut self,
        lost: Vec<Undelivered>,
        inbox: &mut RequestBuffer,
    ) -> Vec<Undelivered> {
        let usable = self.transport.may_still_ask()
            && self.client.connection.block.is_none()
            && self.client.connection.is_settled()
            && !self.transport.pushes.takes_no_commands();
        if !usable || !self.become_twin_at_last() {
            return lost;
        }
        self.transport.client_is_gone();
        self.turn_to_writes();
        let active = self.client.active();
        let prefix = &active.companion_prefix;
        let mut orphans_answer = None;
        let mut waiting: Vec<Option<Undelivered>> = lost.into_iter().map(Some).collect();
        for (at, lease) in waiting.iter().enumerate() {
            // The proxy sends no SELECT over a client's connection; marks in other databases go over the proxy's own.
            if let Some(lease) = lease
                && lease.key.db() == self.client.connection.selected
            {
                let step = lease.plan(prefix);
                self.transport.execute(&step, Form::Text, Look::Marked(at), Muted::Yes);
            }
        }
        let protocol = self.client.connection.protocol;
        let (transport, shared) = (&mut self.transport, &self.client.shared);
        let marking = async {
            while let Ok(Some(reply)) = transport.next_reply_due(inbox).await {
                match reply.look {
                    Look::Marked(at) => {
                        let answer = parse_reply(&reply.frame, protocol).ok();
                        if let Some(lease) = waiting[at].take() {
                            waiting[at] = effects::mark_answered(shared, lease, answer.as_ref());
                        }
                    }
                    Look::Answer => orphans_answer = Some(reply.frame),
                    _ => {}
                }
            }
        };
        // What is not answered in time is tried again over the proxy's own connection: marking twice has the same
        // effect as marking once.
        let _ = tokio::time::timeout(PATIENCE, marking).await;
        if let (Some(flight), Some(answer)) = (self.orphan.take(), orphans_answer)
            && !answer.starts_with(b"-NOSCRIPT")
            && let Ok(answers) = self.client.read_answers(&answer)
        {
            let accounted =
                self.client.account(&flight, &answers, &active, (self.transport.spoken_after(), Moment::now()));
            if let Err(error) = accounted {
                tracing::debug!(%error, "the last answer of a session does not fit its command");
            }
        }
        waiting.into_iter().flatten().collect()
    }
}

impl Client {
    /// Its connection has ended: tells the watch for lost holders which leases it still holds.
    pub(super) fn leaves_leases(&mut self) {
        let active = self.active();
        let (peer, ended) = (self.connection.peer().clone(), self.ended);
        lost::connection_ended(&self.shared, &peer, ended);
        let who = self.connection.who();
        for (key, own) in self.evidence.held() {
            if let Some(details) = active.of_lock(key.bytes()) {
                let rules = &details.rules;
                let lease = (key, own.grant);
                lost::left(&self.shared, &peer, &who, lease, rules, ended);
            }
        }
    }

    /// A step that may grant is about to be sent: if the client goes before the reply comes, it cannot have heard of
    /// the grant.
    pub(crate) fn step_is_under_way(&mut self, flight: &InFlight) {
        for Allowed { lock, .. } in flight.permitted.locks() {
            if let Some(grant) = lock.grant() {
                self.pending_grants.sent(Undelivered {
                    key: lock.key.clone(),
                    session: self.connection.who().session,
                    grant: Some(grant),
                });
            }
        }
    }
}

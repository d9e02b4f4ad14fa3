//! For namespaces with a quarantine: for a while after another server has become the primary, no free lock is
//! granted. Nor is one granted over a connection that is not known to lead to the server that the quarantine is
//! reckoned for. A connection does not change its server, so each is asked once.

use std::time::Instant;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::rules::{Mode, Released, Rules};
use lockwarden_lock::settle::{self, Code, Refused};
use lockwarden_resp::{Protocol, parse_reply};

use crate::backend::server_info;
use crate::session::Session;
use crate::session::client::block::Place;
use crate::session::step::awaited::Look;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};
use crate::state::{ProxyState, quarantine};

impl Session {
    /// Finds out which server the connection leads to, before a command is judged that could be granted a free lock
    /// in a namespace with a quarantine. Returns false if its client was told why that is impossible.
    pub(crate) async fn verify_server(
        &mut self,
        inbox: &mut RequestBuffer,
        namespace: NamespaceId,
        active: &Active,
        muted: Muted,
    ) -> Result<bool, End> {
        let is_watched = active.rules(namespace).mode == Mode::Monitor;
        // In a block nothing can be asked, and no free lock is granted there.
        if is_watched || self.client.connection.block.is_some() {
            return Ok(true);
        }
        self.client.shared.backend.server.era_settles().await;
        // A shared connection may be replaced by another one before the step is sent.
        if !self.takes_own_connection(inbox, muted).await? {
            return Ok(false);
        }
        self.ask_which_server(inbox).await?;
        Ok(true)
    }

    /// The same before a block begins, in which nothing can be asked.
    pub(crate) async fn verify_before_block(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        if self.client.active().quarantines && !self.transport.is_shared() {
            self.ask_which_server(inbox).await?;
        }
        Ok(())
    }

    /// Whether the session's connection leads to the server that is the primary, as far as this proxy knows: both for
    /// what is sent now and for a reply that has just come. If the process stood still, it first waits until that is
    /// known again. A reply of a former primary is not trusted.
    pub(crate) async fn still_counts(&mut self, now: Instant) -> bool {
        let shared = &self.client.shared;
        if !shared.standstill.look(now) {
            shared.standstill.is_over().await;
        }
        let era = self.transport.backend_link().era();
        era.is_none_or(|era| !shared.backend.server.is_left(era))
    }

    /// Less may be promised now than when the block was queued. If so, the block is spoilt by the present rules, and
    /// nothing of it is carried out.
    pub(crate) fn promise_block(&mut self) {
        let is_verified = self.transport.backend_link().is_verified();
        let Some(block) = self.client.connection.block.as_ref().filter(|block| block.spoiled.is_none()) else {
            return;
        };
        let shared = &self.client.shared;
        let withheld = block.places.iter().find_map(|(_, place)| {
            let Place::Step(flight, active) = place else {
                return None;
            };
            let rules = |namespace| rules_now(namespace, active, shared, is_verified);
            let target = flight.permitted.promised_no_more(&rules)?.clone();
            let command = Box::new(flight.permitted.command().clone()).into();
            let refused = Refused { command, target, code: Code::Denied, denial: settle::quarantine(), native: false };
            Some((refused, active.clone()))
        });
        let Some((refused, active)) = withheld else {
            return;
        };
        let line = self.refused(&refused, None, &active);
        if let Some(block) = &mut self.client.connection.block {
            block.spoil(&line);
        }
    }

    async fn ask_which_server(&mut self, inbox: &mut RequestBuffer) -> Result<(), End> {
        let server = &self.client.shared.backend.server;
        let Some(known) = server.reckoned() else {
            return Ok(());
        };
        if self.transport.backend_link().is_verified() {
            return Ok(());
        }
        self.transport.inquire(&OwnRequest::Server, Look::Answer);
        let answer = self.answer(inbox).await?;
        let run = run_of(&answer, self.client.connection.protocol);
        match run {
            Some(run) if *run == *known.era.run => self.transport.backend_link().is_known_to_lead(),
            Some(_) => {
                self.client.shared.backend.server.another_answered();
                return Err(End::Backend);
            }
            None => tracing::debug!(
                client = %self.client.peer,
                "a user may not ask which server it is connected to (INFO): it is granted no lock with a quarantine"
            ),
        }
        Ok(())
    }
}

/// The present rules of a namespace, over a connection whose server is known (`is_verified`) or not.
pub(crate) fn rules_now(namespace: NamespaceId, active: &Active, shared: &ProxyState, is_verified: bool) -> Rules {
    let details = active.namespace(namespace);
    let mut rules = details.rules;
    // The key that remembers fencing tokens in place of records is in one slot.
    if rules.released == Released::Forget && shared.backend.server.in_cluster() {
        rules.released = Released::Record;
    }
    // Nearly all namespaces have none: then the clock is not read.
    if details.quarantine.is_none() {
        return rules;
    }
    let now = Instant::now();
    let Some(promise) = quarantine::promise(details, shared, now) else {
        return rules;
    };
    let longest = promise.longest.map(|longest| longest.as_millis());
    Rules {
        quarantined: !is_verified || quarantine::withheld(&promise, details, shared, now).is_some(),
        longest_ms: longest.map(|longest| longest.try_into().unwrap_or(u64::MAX)),
        tokens_ahead_ms: shared.backend.server.reckoned().map_or(0, |known| known.era.ahead_ms),
        ..rules
    }
}

/// The server's run id that an answer to `INFO server` names.
fn run_of(answer: &Bytes, protocol: Protocol) -> Option<String> {
    let value = parse_reply(answer, protocol).ok()?;
    let info = String::from_utf8_lossy(value.as_bytes()?);
    server_info::info_field(&info, "run_id:").map(str::to_owned)
}

//! Where a namespace has a quarantine: no free lock is granted for a while after another server has become the primary,
//! and none over a connection of which it is not known that it leads to the server of which that is reckoned. A connection
//! does not change its server, so each is asked once.

use std::time::Instant;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::rules::{Mode, Rules};
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
    /// Finds out which server the connection leads to, before a command is judged that could be granted a free lock in a namespace with a quarantine.
    /// Returns false where its client was told why not.
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
        // A shared connection may be another one by the time that the step is sent.
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

    /// Whether what is sent at this moment reaches the server that is the primary, as far as this proxy knows, or what came was said by
    /// it; after a gap in its own time it waits until it does. What a server before has said is not believed.
    pub(crate) async fn still_counts(&mut self, now: Instant) -> bool {
        let shared = &self.client.shared;
        if !shared.standstill.look(now) {
            shared.standstill.is_over().await;
        }
        let era = self.transport.backend_link().era();
        era.is_none_or(|era| !shared.backend.server.is_left(era))
    }

    /// Less may be promised than when the block was queued: by the rules of now it is spoilt, and nothing of it is carried out.
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

/// The rules of a namespace as they are now, over a connection of which it is known or not which server it leads to.
pub(crate) fn rules_now(namespace: NamespaceId, active: &Active, shared: &ProxyState, is_verified: bool) -> Rules {
    let details = active.namespace(namespace);
    // Nearly all: the clock is not asked.
    if details.quarantine.is_none() {
        return details.rules;
    }
    let now = Instant::now();
    let Some(promise) = quarantine::promise(details, shared, now) else {
        return details.rules;
    };
    let longest = promise.longest.map(|longest| longest.as_millis());
    Rules {
        quarantined: !is_verified || quarantine::withheld(&promise, details, shared, now).is_some(),
        longest_ms: longest.map(|longest| longest.try_into().unwrap_or(u64::MAX)),
        tokens_ahead_ms: shared.backend.server.reckoned().map_or(0, |known| known.era.ahead_ms),
        ..details.rules
    }
}

/// Which run of a server an answer to `INFO server` names.
fn run_of(answer: &Bytes, protocol: Protocol) -> Option<String> {
    let value = parse_reply(answer, protocol).ok()?;
    let info = String::from_utf8_lossy(value.as_bytes()?);
    server_info::info_field(&info, "run_id:").map(str::to_owned)
}

//! One refusal, or one lost lease, in words, as `lockwarden why`, the API and the board tell it.

use std::net::SocketAddr;

use super::api::{self, Moment, Why, WhyLine};
use super::service::ViewService;
use super::store::Decided;
use super::wording::{client, moment};
use crate::telemetry::audit::{Client, Record, told};
use crate::text::numbers::utc;

/// `GET /api/v1/why/{id}`: the remembered refusals and lost leases with this id, the oldest first. Two with one id are rare.
pub(super) fn why(service: &ViewService, id: &str) -> Vec<Why> {
    let has_it = |decided: &&Decided| {
        let known = decided.entry.id.as_deref();
        known.is_some_and(|known| known.eq_ignore_ascii_case(id))
    };
    let seen = service.view.seen();
    let all = seen.decisions.iter().chain(&seen.lost);
    let found: Vec<Decided> = all.filter(has_it).cloned().collect();
    // Wording them needs no lock.
    drop(seen);
    found.iter().map(in_words).collect()
}

fn in_words(decided: &Decided) -> Why {
    let decision = moment(&decided.entry);
    let holder = decided.holder.as_deref().map(client);
    let id = decision.id.clone().unwrap_or_default();
    let told = told(&record_of(decision.clone()), holder.clone().map(as_client).as_ref(), &id);
    let line = |(about, words): (&str, String)| WhyLine { about: about.to_owned(), words };
    Why { id, headline: told.headline, lines: told.lines.into_iter().map(line).collect(), decision, holder }
}

/// A client as the audit trail has it: without what its name, user or address says already.
pub(crate) fn as_client(client: api::Client) -> Client {
    let own = [client.name.as_ref(), client.user.as_ref()];
    let address: Option<SocketAddr> = client.address.parse().ok();
    // Behind a unix socket there is a process, as in unix:4242.
    let host = match address {
        Some(address) => address.ip().to_canonical().to_string(),
        None => client.address.split(':').next().unwrap_or_default().to_owned(),
    };
    let is_own = own.contains(&Some(&client.application)) || host == client.application;
    Client {
        session: None,
        application: (!is_own).then_some(client.application),
        address: client.address,
        name: client.name,
        user: client.user,
        library: client.library,
        certificate: client.certificate,
    }
}

/// A decision as the audit trail has it, as far as the view remembers it.
pub(crate) fn record_of(moment: Moment) -> Record {
    Record {
        time: utc(moment.at),
        at: moment.at,
        event: moment.event,
        kind: moment.kind,
        id: moment.id,
        namespace: moment.namespace,
        mode: moment.mode,
        db: moment.db,
        key: moment.key,
        command: moment.command,
        operation: moment.operation,
        client: moment.client.map(as_client),
        decision: moment.decision,
        reason: moment.reason,
        policy: moment.policy,
        detail: moment.detail,
        token: moment.token,
        fence: moment.fence,
        ttl_ms: moment.ttl_ms,
        asked_ms: moment.asked_ms,
        would_ttl_ms: moment.would_ttl_ms,
        held_ms: moment.held_ms,
        wrote: moment.wrote,
        guard: moment.guard,
        own_fence: moment.own_fence,
        overlap: moment.overlap,
        ..Record::default()
    }
}

//! The connected clients, each with the locks that it holds and those that it polls: the client registry knows the connections,
//! the mirror the holders, the view the waiters. Mutexes are taken one after the other, never two at a time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use lockwarden_control::clock::ms;
use lockwarden_control::clock::now_ms;
use lockwarden_control::telemetry::events::{Caller, SessionNumber};
use lockwarden_control::text::escape::spell;
use lockwarden_dataplane::registry::clients::ClientConnection;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::token::SessionId;

use super::api;
use super::api::ConnectionsQuery;
use super::service::ViewService;

/// The most connections in a reply.
const MAX_CONNECTIONS: usize = 10_000;
/// Locks named per connection: of those that it holds, and of those that it polls.
const MAX_NAMED: usize = 20;

/// Locks of one connection.
#[derive(Default)]
struct Locks {
    count: u64,
    named: Vec<DbKey>,
}

impl Locks {
    fn add(&mut self, key: &DbKey) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(key.clone());
        }
    }

    fn join(&mut self, other: Locks) {
        self.count += other.count;
        let room = MAX_NAMED - self.named.len();
        self.named.extend(other.named.into_iter().take(room));
    }

    fn told(mut self) -> (u64, Vec<api::NamedLock>) {
        self.named.sort_unstable();
        let named = self.named.iter().map(|key| api::NamedLock { key: spell(key.bytes()), db: key.db() });
        (self.count, named.collect())
    }
}

/// A connection that may be in the reply.
struct Connected {
    peer: Arc<ClientConnection>,
    caller: Arc<Caller>,
    holds: Locks,
    waits: Locks,
}

/// `GET /api/v1/connections`.
pub(super) fn connections(service: &ViewService, query: &ConnectionsQuery) -> api::Connections {
    let (now, now_ms) = (Instant::now(), now_ms());
    let limit = query.limit.unwrap_or(api::USUAL_LIMIT).min(MAX_CONNECTIONS);
    let asked_for = |caller: &Caller| {
        let application = query.application.as_deref();
        application.is_none_or(|application| application == caller.application())
    };
    let mut sessions = service.shared.clients.connected();
    sessions.retain(|(_, caller)| asked_for(caller));
    let mut held = held(service, &sessions, now);
    let mut polled = polled(service, now);
    let mut connected: Vec<Connected> = Vec::new();
    for (peer, caller) in sessions {
        let waits = polled.remove(&caller.session).unwrap_or_default();
        match connected.last_mut().filter(|last| last.peer.session == peer.session) {
            // In front of a cluster it has a session with each shard.
            Some(client) => client.waits.join(waits),
            None => {
                let holds = held.remove(&peer.session).unwrap_or_default();
                connected.push(Connected { peer, caller, holds, waits });
            }
        }
    }
    connected.retain(|one| !query.holding || one.holds.count > 0);
    let matching = connected.len() as u64;
    connected.sort_unstable_by_key(|one| {
        let (holds, waits) = (Reverse(one.holds.count), Reverse(one.waits.count));
        (holds, waits, one.peer.opened, one.caller.session.0)
    });
    connected.truncate(limit);
    let told = |one: Connected| {
        let age = now.saturating_duration_since(one.peer.opened);
        let (holding, holds) = one.holds.told();
        let (waiting, waits_for) = one.waits.told();
        api::Connection {
            session: one.caller.session.0,
            client: api::Client::of(&one.caller),
            since: now_ms.saturating_sub(ms(age)),
            age_ms: ms(age),
            process: process(&one.peer),
            holding,
            holds,
            waiting,
            waits_for,
        }
    };
    api::Connections {
        now: now_ms,
        matching,
        hidden_processes: service.shared.processes.sight.notice(),
        connections: connected.into_iter().map(told).collect(),
    }
}

fn held(
    service: &ViewService,
    connected: &[(Arc<ClientConnection>, Arc<Caller>)],
    now: Instant,
) -> HashMap<SessionId, Locks> {
    let sessions = connected.iter().map(|(peer, _)| peer.session);
    let mut held: HashMap<SessionId, Locks> = sessions.map(|session| (session, Locks::default())).collect();
    service.shared.shards.visit(|key, lease| {
        let lives = lease.ends.is_none_or(|ends| ends > now);
        let holder = lease.session.filter(|_| lives);
        if let Some(locks) = holder.and_then(|session| held.get_mut(&session)) {
            locks.add(key);
        }
    });
    held
}

fn polled(service: &ViewService, now: Instant) -> HashMap<SessionNumber, Locks> {
    let mut polled: HashMap<SessionNumber, Locks> = HashMap::new();
    let seen = service.view.seen();
    for (key, lock) in seen.locks.iter() {
        for wait in lock.waiting(now) {
            polled.entry(wait.caller.session).or_default().add(key);
        }
    }
    polled
}

fn process(peer: &ClientConnection) -> Option<api::ClientProcess> {
    let running = peer.running()?;
    Some(api::ClientProcess { id: running.number(), program: running.program().map(|name| spell(&name)) })
}

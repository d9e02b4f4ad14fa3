//! The clients that are connected now, by session and by what their connections show of them. Code that must know
//! which process a client is finds it here. When a holder's connection ends, keep-alive finds here which other
//! connections of the same process are alive. It decides nothing about a lock.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use lockwarden_control::net::arrival::Arrival;
use lockwarden_control::net::peer::{PeerAddress, UnixPeer};
use lockwarden_control::net::proxy_protocol::Origin;
use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_control::telemetry::applications::{KnownBy, Naming, Program};
use lockwarden_control::telemetry::events::{Caller, SessionNumber};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::rules::TrustAddress;
use lockwarden_lock::token::{Grant, Identity, Process, SessionId};

use super::processes::lineage::{Lineage, Running};

/// Where a client comes from: its address, and the private endpoint through which it came.
pub(crate) type Host = (IpAddr, Option<Arc<str>>);

/// The session that holds a lease.
#[derive(Clone, Debug)]
pub struct Holder {
    pub session: SessionNumber,
    pub wakeup: Arc<Wakeup>,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Holder {
    /// A holder of locks: a session, or the job of a session that is gone.
    pub(crate) fn new() -> Holder {
        Holder { session: SessionNumber(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)), wakeup: Arc::default() }
    }
}

/// One connection of a client.
#[derive(Debug)]
pub struct ClientConnection {
    pub session: SessionId,
    pub holder: Holder,
    pub(crate) client: PeerAddress,
    /// The address that the client connected to, if it is an IP address.
    pub(crate) local: Option<SocketAddr>,
    /// How the client's address is known.
    pub(crate) origin: Origin,
    /// The private endpoint through which it reached its load balancer.
    pub(crate) endpoint: Option<Arc<str>>,
    /// When it was accepted.
    pub opened: Instant,
    /// How its application is known, besides what it says of itself.
    pub(crate) known_by: Arc<KnownBy>,
    running: OnceLock<Running>,
    lineage: OnceLock<Lineage>,
    /// How often its socket was not found.
    missed: AtomicU32,
    /// Leases that were granted before its process was known.
    unidentified: Mutex<Unidentified>,
}

#[derive(Debug, Default)]
struct Unidentified {
    leases: Vec<(DbKey, Grant)>,
    /// A task will look the process up.
    is_awaited: bool,
}

/// After this many tries its process is not looked for any more.
const MAX_MISSED: u32 = 3;
/// Leases of one client that wait for its process; when there are more, the oldest is dropped.
const MAX_UNIDENTIFIED: usize = 16;
impl ClientConnection {
    pub fn new(
        session: SessionId,
        holder: Holder,
        arrival: Arrival,
        local: Option<SocketAddr>,
        naming: Arc<Naming>,
    ) -> ClientConnection {
        let Arrival { peer: client, origin, endpoint, certificate, needs_certificate: _, at: opened } = arrival;
        let (running, lineage) = (OnceLock::new(), OnceLock::new());
        let known_by = KnownBy::new(naming, certificate);
        let of_socket = match client {
            // The kernel says which process connected, so nothing has to be searched.
            PeerAddress::Unix(UnixPeer { process: number }) => Some(number.and_then(Running::of)),
            // A client on another machine has no process here. Without both addresses no process can be found, and
            // what a load balancer calls loopback is the balancer's own.
            PeerAddress::Tcp(_) if !client.is_local() || local.is_none() || origin != Origin::Direct => Some(None),
            PeerAddress::Tcp(_) => None,
        };
        match of_socket {
            Some(Some(known)) => {
                known_by.is_process(known.process());
                running.get_or_init(|| known);
            }
            Some(None) => {
                known_by.is_process(Process::None);
                known_by.settle(None);
            }
            None => {}
        }
        ClientConnection {
            session,
            holder,
            client,
            local,
            origin,
            endpoint,
            opened,
            known_by: Arc::new(known_by),
            running,
            lineage,
            missed: AtomicU32::new(0),
            unidentified: Mutex::default(),
        }
    }

    /// Where it comes from, if that is known.
    pub fn host(&self) -> Option<Host> {
        let is_told = self.origin != Origin::Untold;
        let ip = self.client.ip().filter(|_| is_told)?;
        Some((ip, self.endpoint.clone()))
    }

    /// Whether it is on this machine, or its place is unknown.
    pub fn is_local(&self) -> bool {
        self.client.is_local() || self.origin == Origin::Untold
    }

    /// How far its address identifies it, whatever the rules: behind a unix socket there are many processes, and each
    /// is known.
    pub(crate) fn trust(&self) -> Option<TrustAddress> {
        match self.client {
            PeerAddress::Unix(_) => Some(TrustAddress::Auto),
            PeerAddress::Tcp(_) => None,
        }
    }

    /// Which process it is, as far as that was looked up.
    pub fn process(&self) -> Process {
        self.known_by.process()
    }

    /// That process, if it was found.
    pub fn running(&self) -> Option<&Running> {
        self.running.get()
    }

    /// This lease was granted before its process was known. Returns whether a look-up has to be started for that.
    pub(crate) fn awaits_process(&self, key: DbKey, grant: Grant) -> bool {
        let mut waiting = self.unidentified();
        if waiting.leases.len() >= MAX_UNIDENTIFIED {
            waiting.leases.remove(0);
        }
        waiting.leases.push((key, grant));
        !std::mem::replace(&mut waiting.is_awaited, true)
    }

    /// Drops those of the waiting leases that are over. Returns whether any is left.
    pub(crate) fn retain_unidentified(&self, is_held: impl Fn(&(DbKey, Grant)) -> bool) -> bool {
        let mut waiting = self.unidentified();
        waiting.leases.retain(is_held);
        waiting.is_awaited = !waiting.leases.is_empty();
        waiting.is_awaited
    }

    /// The look-up is over; the next lease that waits starts another.
    pub(crate) fn was_looked_up(&self) {
        self.unidentified().is_awaited = false;
    }

    /// The leases that wait for its process.
    pub(crate) fn take_unidentified(&self) -> Vec<(DbKey, Grant)> {
        std::mem::take(&mut self.unidentified().leases)
    }

    fn unidentified(&self) -> MutexGuard<'_, Unidentified> {
        self.unidentified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its socket was not found: it is being closed, or this system does not show it.
    pub fn missed(&self) {
        if self.missed.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_MISSED {
            self.found(Process::None, None, None);
        } else {
            self.known_by.missed();
        }
    }

    /// It has a process that this user may not look into.
    pub(crate) fn hidden(&self) {
        self.known_by.hide();
        self.found(Process::None, None, None);
    }

    /// The process and its ancestors, as they were when it was found, and whether the list is complete.
    pub fn lineage(&self) -> Option<&Lineage> {
        self.lineage.get()
    }

    /// Whether its lineage may still be found.
    pub(crate) fn may_have_lineage(&self) -> bool {
        let is_alone = self.running.get().is_some() && self.lineage.get().is_none();
        is_alone || self.process() == Process::Pending
    }

    /// It was looked up. The first result stays: a connection does not change its process.
    pub fn found(&self, process: Process, running: Option<(Running, Lineage)>, program: Option<Program>) {
        if let Some((running, lineage)) = running {
            self.lineage.get_or_init(|| lineage);
            self.running.get_or_init(|| running);
        }
        self.known_by.is_process(process);
        self.known_by.settle(program);
    }
}

/// The process of a holder, to be added to the record of its lease.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    pub(crate) key: DbKey,
    pub(crate) grant: Grant,
    pub(crate) process: Process,
}

struct Known {
    client: Identity,
    application: Option<Identity>,
    peer: Arc<ClientConnection>,
    /// The client, as it presents itself.
    caller: Arc<Caller>,
}

/// A session that has ended.
struct Departed {
    session: SessionId,
    caller: Arc<Caller>,
    /// When its client closed the connection, if the client did.
    left: Option<Instant>,
}

/// Sessions that have ended and are still known by name.
const MAX_DEPARTED: usize = 10_000;

#[derive(Default)]
struct Register {
    /// The sessions that have ended lately: a failover ends connections before it is known which leases it has lost.
    departed: VecDeque<Departed>,
    /// In front of a cluster, a client has a session with each shard.
    by_session: BTreeMap<(SessionId, SessionNumber), Known>,
    by_client: HashMap<Identity, HashMap<SessionNumber, Arc<ClientConnection>>>,
}

/// The register. Bounded by the connections.
#[derive(Default)]
pub struct ClientRegistry {
    register: Mutex<Register>,
}

impl ClientRegistry {
    /// A client is registered under this from now on: its identity without a process, and its application.
    pub fn put(
        &self,
        (client, application): (Identity, Option<Identity>),
        peer: &Arc<ClientConnection>,
        caller: &Arc<Caller>,
    ) {
        let mut register = self.lock();
        let key = (peer.session, peer.holder.session);
        register.remove(key);
        let known = Known { client, application, peer: peer.clone(), caller: caller.clone() };
        register.by_session.insert(key, known);
        for identity in application.into_iter().chain([client]) {
            let namesakes = register.by_client.entry(identity).or_default();
            namesakes.insert(peer.holder.session, peer.clone());
        }
    }

    /// A session has ended; `left` is when its client closed the connection, if the client did.
    pub(crate) fn remove(&self, (session, number): (SessionId, SessionNumber), left: Option<Instant>) {
        let mut register = self.lock();
        let Some(caller) = register.remove((session, number)) else {
            return;
        };
        if register.of(session).is_some() {
            return;
        }
        if register.departed.len() >= MAX_DEPARTED {
            register.departed.pop_front();
        }
        register.departed.push_back(Departed { session, caller, left });
    }

    /// How this client presents itself, or did before it went.
    pub(crate) fn caller_of_late(&self, session: SessionId) -> Option<Arc<Caller>> {
        let known = self.caller(session);
        if known.is_some() {
            return known;
        }
        let register = self.lock();
        Some(register.departed(session)?.caller.clone())
    }

    /// When this client closed its connection, if it did so lately.
    pub fn left(&self, session: SessionId) -> Option<Instant> {
        self.lock().departed(session)?.left
    }

    /// The client of this session, if it is connected to this proxy now.
    pub(crate) fn of_session(&self, session: SessionId) -> Option<(Identity, Arc<ClientConnection>)> {
        let register = self.lock();
        let known = register.of(session)?;
        Some((known.client, known.peer.clone()))
    }

    /// How this client presents itself, if it is connected to this proxy now.
    pub fn caller(&self, session: SessionId) -> Option<Arc<Caller>> {
        let register = self.lock();
        Some(register.of(session)?.caller.clone())
    }

    /// Tells every client's session that the proxy is about to stop.
    pub fn drain(&self) {
        for known in self.lock().by_session.values() {
            known.peer.holder.wakeup.drain();
        }
    }

    /// All connections of clients.
    pub fn connections(&self) -> Vec<Arc<ClientConnection>> {
        let register = self.lock();
        let known = register.by_session.values();
        known.map(|known| known.peer.clone()).collect()
    }

    /// How all clients present themselves, each once.
    pub fn callers(&self) -> Vec<Arc<Caller>> {
        let register = self.lock();
        let mut last = None;
        let known = register.by_session.iter();
        let firsts = known.filter(|((session, _), _)| last.replace(*session) != Some(*session));
        firsts.map(|(_, known)| known.caller.clone()).collect()
    }

    /// All sessions and how their clients present themselves; those of one client are next to each other.
    pub fn connected(&self) -> Vec<(Arc<ClientConnection>, Arc<Caller>)> {
        let register = self.lock();
        let known = register.by_session.values();
        known.map(|known| (known.peer.clone(), known.caller.clone())).collect()
    }

    /// Where the connected clients come from.
    pub(crate) fn hosts(&self) -> HashSet<Host> {
        let register = self.lock();
        let known = register.by_session.values();
        known.filter_map(|known| known.peer.host()).collect()
    }

    /// At most `most` clients with this identity, which may also be that of an application.
    pub(crate) fn namesakes(&self, client: Identity, most: usize) -> Vec<Arc<ClientConnection>> {
        let register = self.lock();
        let namesakes = register.by_client.get(&client).into_iter().flatten();
        namesakes.map(|(_, peer)| peer.clone()).take(most).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Register {
    fn departed(&self, session: SessionId) -> Option<&Departed> {
        let mut departed = self.departed.iter().rev();
        departed.find(|gone| gone.session == session)
    }

    /// A client that is still connected.
    fn of(&self, session: SessionId) -> Option<&Known> {
        let all = (session, SessionNumber(0))..=(session, SessionNumber(u64::MAX));
        self.by_session.range(all).next().map(|(_, known)| known)
    }

    fn remove(&mut self, key: (SessionId, SessionNumber)) -> Option<Arc<Caller>> {
        let known = self.by_session.remove(&key)?;
        for identity in known.application.into_iter().chain([known.client]) {
            if let Some(namesakes) = self.by_client.get_mut(&identity) {
                namesakes.remove(&known.peer.holder.session);
                if namesakes.is_empty() {
                    self.by_client.remove(&identity);
                }
            }
        }
        Some(known.caller)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn peer(number: u8, client: &str) -> Arc<ClientConnection> {
        Arc::new(peer_of(number, client))
    }

    fn peer_of(number: u8, client: &str) -> ClientConnection {
        let holder = Holder { session: SessionNumber(u64::from(number)), wakeup: Arc::default() };
        let address: SocketAddr = client.parse().unwrap();
        ClientConnection::new(
            SessionId([number; 16]),
            holder,
            Arrival::direct(address.into()),
            Some(address),
            Arc::default(),
        )
    }

    fn caller(peer: &ClientConnection) -> Arc<Caller> {
        Arc::new(Caller {
            session: peer.holder.session,
            address: peer.client,
            name: Bytes::new(),
            user: Bytes::new(),
            library: None,
            known_by: peer.known_by.clone(),
        })
    }

    #[test]
    fn a_client_with_several_sessions_is_gone_with_the_last_of_them() {
        let (clients, one) = (ClientRegistry::default(), peer(1, "127.0.0.1:1"));
        let other = Arc::new(ClientConnection { session: one.session, ..peer_of(2, "127.0.0.1:1") });
        let identity = Identity::of(&[b""]);
        clients.put((identity, None), &one, &caller(&one));
        clients.put((identity, None), &other, &caller(&other));
        clients.remove((one.session, one.holder.session), Some(Instant::now()));
        assert!(clients.of_session(one.session).is_some_and(|(_, peer)| peer.holder.session == other.holder.session));
        assert_eq!(clients.left(one.session), None, "it is still here");
        clients.remove((one.session, other.holder.session), Some(Instant::now()));
        assert!(clients.of_session(one.session).is_none() && clients.left(one.session).is_some());
    }

    #[test]
    fn a_client_that_takes_a_name_leaves_its_old_namesakes() {
        let (clients, one, two) = (ClientRegistry::default(), peer(1, "127.0.0.1:1"), peer(2, "127.0.0.1:2"));
        let (nameless, named) = (Identity::of(&[b""]), Identity::of(&[b"worker"]));
        clients.put((nameless, None), &one, &caller(&one));
        clients.put((nameless, None), &two, &caller(&two));
        assert_eq!(clients.namesakes(nameless, 9).len(), 2);
        assert_eq!(clients.namesakes(nameless, 1).len(), 1);
        clients.put((named, None), &one, &caller(&one));
        assert_eq!(clients.namesakes(nameless, 9).len(), 1);
        assert!(clients.of_session(one.session).is_some_and(|(client, _)| client == named));
        clients.remove((one.session, one.holder.session), None);
        clients.remove((two.session, two.holder.session), None);
        let register = clients.lock();
        assert!(register.by_session.is_empty() && register.by_client.is_empty());
    }

    #[test]
    fn only_a_client_of_this_machine_has_a_process_to_be_looked_up() {
        assert_eq!(peer(1, "127.8.0.1:1").process(), Process::Pending);
        assert_eq!(peer(1, "10.0.0.1:1").process(), Process::None);
        let found = peer(1, "[::1]:1");
        found.found(Process::Known([1; 8]), None, None);
        found.found(Process::None, None, None);
        assert_eq!(found.process(), Process::Known([1; 8]));
    }
}

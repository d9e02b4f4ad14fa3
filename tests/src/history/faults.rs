//! The faults of a run, from a seed: which fault, which process it hits, when it begins and when it is over.

use std::time::Duration;

use crate::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A client is killed and started again.
    KillClient,
    /// A client stands still (SIGSTOP), wherever it is.
    FreezeClient,
    /// A proxy is killed and started again.
    KillProxy,
    /// A proxy stands still.
    FreezeProxy,
    /// Redis is killed and started again; it has written everything down before it answered.
    KillRedis,
    /// Redis stands still.
    FreezeRedis,
    /// Redis holds all commands back.
    PauseAll,
    /// Redis holds writes back.
    PauseWrites,
    /// Connections between clients and a proxy are closed.
    CutClients,
    /// Nothing comes through between clients and a proxy, and later all of it.
    FreezeClients,
    /// Connections between a proxy and Redis are closed.
    CutBackend,
    /// Nothing comes through between a proxy and Redis, and later all of it.
    FreezeBackend,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 12] = [
        Fault::KillClient,
        Fault::FreezeClient,
        Fault::KillProxy,
        Fault::FreezeProxy,
        Fault::KillRedis,
        Fault::FreezeRedis,
        Fault::PauseAll,
        Fault::PauseWrites,
        Fault::CutClients,
        Fault::FreezeClients,
        Fault::CutBackend,
        Fault::FreezeBackend,
    ];

    /// As a transcript calls it.
    pub(super) fn words(self, victim: usize) -> String {
        match self {
            Fault::KillClient => format!("the client in seat {victim} was killed"),
            Fault::FreezeClient => format!("the client in seat {victim} stood still"),
            Fault::KillProxy => format!("proxy {victim} was killed"),
            Fault::FreezeProxy => format!("proxy {victim} stood still"),
            Fault::KillRedis => "Redis was killed".to_owned(),
            Fault::FreezeRedis => "Redis stood still".to_owned(),
            Fault::PauseAll => "CLIENT PAUSE ALL".to_owned(),
            Fault::PauseWrites => "CLIENT PAUSE WRITE".to_owned(),
            Fault::CutClients => {
                format!("the connections of clients to proxy {victim} were closed")
            }
            Fault::FreezeClients => {
                format!("the connections of clients to proxy {victim} stood still")
            }
            Fault::CutBackend => format!("the connections of proxy {victim} to Redis were closed"),
            Fault::FreezeBackend => {
                format!("the connections of proxy {victim} to Redis stood still")
            }
        }
    }

    /// How many processes it may hit.
    fn victims(self, clients: usize, proxies: usize) -> usize {
        match self {
            Fault::KillClient | Fault::FreezeClient => clients,
            Fault::KillRedis | Fault::FreezeRedis | Fault::PauseAll | Fault::PauseWrites => 1,
            Fault::KillProxy
            | Fault::FreezeProxy
            | Fault::CutClients
            | Fault::FreezeClients
            | Fault::CutBackend
            | Fault::FreezeBackend => proxies,
        }
    }

    /// What is hit by one fault at a time.
    pub(super) fn target(self, victim: usize) -> (&'static str, usize) {
        let kind = match self {
            Fault::KillClient | Fault::FreezeClient => "client",
            Fault::KillProxy | Fault::FreezeProxy => "proxy",
            Fault::KillRedis | Fault::FreezeRedis | Fault::PauseAll | Fault::PauseWrites => "redis",
            Fault::CutClients | Fault::FreezeClients => "clients' connections",
            Fault::CutBackend | Fault::FreezeBackend => "backend's connections",
        };
        (kind, victim)
    }
}

/// The next fault: the pause before it, the process that it hits, how long it lasts.
pub(super) struct Next {
    pub fault: Fault,
    pub victim: usize,
    pub pause: Duration,
    pub lasts: Duration,
}

/// Draws the next one of these kinds.
pub(super) fn next(random: &mut Random, kinds: &[Fault], clients: usize, proxies: usize) -> Next {
    let fault = *random.among(kinds);
    let longest = match fault {
        Fault::KillClient | Fault::KillProxy | Fault::KillRedis => 300,
        // Nothing lasts: a connection is closed at once.
        Fault::CutClients | Fault::CutBackend => 1,
        Fault::PauseAll | Fault::PauseWrites => 700,
        Fault::FreezeClient | Fault::FreezeProxy | Fault::FreezeRedis => 1_400,
        Fault::FreezeClients | Fault::FreezeBackend => 1_800,
    };
    Next {
        fault,
        victim: random.below(fault.victims(clients, proxies)),
        pause: Duration::from_millis(random.between(100, 900) as u64),
        lasts: Duration::from_millis(random.between(1, longest) as u64),
    }
}

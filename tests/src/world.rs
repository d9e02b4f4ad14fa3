//! One scenario, three worlds: straight to Redis, through an enforcing proxy, through a monitoring one. A
//! misuse has the same effect in monitor mode as without the proxy; only enforce mode is
//! [`safe`](World::either).

use crate::builder::{Mode, ProxyBuilder};
use crate::client::Client;
use crate::proxy::Proxy;
use crate::redis::Redis;

/// How the clients of a world reach Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldKind {
    /// Without the proxy.
    Direct,
    /// Through a proxy that refuses.
    Enforce,
    /// Through a proxy that counts.
    Monitor,
}

/// A Redis and what stands in front of it.
pub struct World {
    /// What stands in front of Redis.
    pub kind: WorldKind,
    proxy: Option<Proxy>,
    redis: Redis,
}

impl World {
    /// A world whose proxy, if it has one, is configured so.
    #[track_caller]
    pub fn new(kind: WorldKind, configure: impl FnOnce(ProxyBuilder) -> ProxyBuilder) -> World {
        let redis = Redis::start();
        let mode = match kind {
            WorldKind::Direct => None,
            WorldKind::Enforce => Some(Mode::Enforce),
            WorldKind::Monitor => Some(Mode::Monitor),
        };
        let proxy = mode.map(|mode| configure(Proxy::builder(&redis)).mode(mode).start());
        World { kind, proxy, redis }
    }

    /// A client of the application.
    #[track_caller]
    pub fn client(&self) -> Client {
        match &self.proxy {
            Some(proxy) => proxy.client(),
            None => self.redis.client(),
        }
    }

    /// A client of the application on this machine; Redis itself does not distinguish machines.
    #[track_caller]
    pub fn client_from(&self, source: &str) -> Client {
        match &self.proxy {
            Some(proxy) => proxy.client_from(source),
            None => self.redis.client(),
        }
    }

    /// Redis itself, for looking at what really happened.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// The proxy of this world, if it has one.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// Whether misuse does its damage here.
    pub fn is_harmed(&self) -> bool {
        match self.kind {
            WorldKind::Direct | WorldKind::Monitor => true,
            WorldKind::Enforce => false,
        }
    }

    /// The first value where misuse does its damage, the second where it cannot.
    pub fn either<T>(&self, harmed: T, safe: T) -> T {
        if self.is_harmed() { harmed } else { safe }
    }

    /// Asserts that the proxy counted so many refusals for this reason: as `deny` where it enforces, as
    /// `would-deny` where it only looks. Without a proxy, nothing is checked.
    #[track_caller]
    pub fn counted(&self, operation: &str, reason: &str, times: u32) {
        let Some(proxy) = &self.proxy else { return };
        let decision = self.either("would-deny", "deny");
        proxy.counts(
            &format!(
                "lockwarden_decisions_total{{namespace=\"locks\",operation=\"{operation}\",reason=\"{reason}\",decision=\"{decision}\"}}"
            ),
            f64::from(times),
        );
    }

    /// Asserts that so many refusals were counted for this reason, whatever the operation.
    #[track_caller]
    pub fn counted_for(&self, reason: &str, times: u32) {
        let decision = self.either("would-deny", "deny");
        self.counts(
            &format!("lockwarden_decisions_total{{namespace=\"locks\",reason=\"{reason}\",decision=\"{decision}\"}}"),
            f64::from(times),
        );
    }

    /// Asserts that so many acquires had this outcome.
    #[track_caller]
    pub fn acquires(&self, outcome: &str, times: u32) {
        self.counts(
            &format!("lockwarden_lock_acquires_total{{namespace=\"locks\",outcome=\"{outcome}\"}}"),
            f64::from(times),
        );
    }

    /// Asserts that so many releases had this outcome.
    #[track_caller]
    pub fn releases(&self, outcome: &str, times: u32) {
        self.counts(
            &format!("lockwarden_lock_releases_total{{namespace=\"locks\",outcome=\"{outcome}\"}}"),
            f64::from(times),
        );
    }

    /// Waits for any metric of the proxy, where there is one.
    #[track_caller]
    pub fn counts(&self, selector: &str, expected: f64) {
        if let Some(proxy) = &self.proxy {
            proxy.counts(selector, expected);
        }
    }
}

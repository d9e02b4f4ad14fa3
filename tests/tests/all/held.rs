//! One lock that is held, and another client that has a script run.

use lockwarden_tests::{Client, Proxy, Redis};

pub(crate) const ALICES: &str = "3f1c9a1e-alice-5a77";

/// Alice holds `lock:job`; Bob is another client.
pub(crate) struct Held {
    pub(crate) redis: Redis,
    pub(crate) proxy: Proxy,
    pub(crate) alice: Client,
    pub(crate) bob: Client,
}

impl Held {
    pub(crate) fn new() -> Held {
        let redis = Redis::start();
        let proxy = Proxy::enforcing(&redis);
        Held::behind(redis, proxy)
    }

    pub(crate) fn behind(redis: Redis, proxy: Proxy) -> Held {
        let (alice, bob) = (proxy.client(), proxy.client());
        alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
        Held { redis, proxy, alice, bob }
    }

    /// Bob's script is refused in words that begin so, and the lock is as it was; returns the error.
    #[track_caller]
    pub(crate) fn refuses(&self, beginning: &str, text: &str, keys: &[&str], arguments: &[&str]) -> String {
        let before = self.redis.lease("lock:job");
        let said = self.bob.eval(text, keys, arguments);
        assert!(said.starts_with(beginning), "{text}: {said}");
        assert_eq!(self.redis.lease("lock:job"), before, "{text}");
        said
    }
}

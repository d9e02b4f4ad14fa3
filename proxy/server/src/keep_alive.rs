//! Keep-alive: a lease whose TTL the proxy chose is renewed while its holder lives. `kept` knows which
//! leases these are and when each is due, `renewals` renews them, `handover` finds who keeps a lease
//! alive when the connection that took it ends, `orphans` finds the leases that other proxies leave.
//! Redis decides what is renewed; this only asks.

mod failures;
pub(crate) mod kept;
mod orphans;
pub(crate) mod renewals;

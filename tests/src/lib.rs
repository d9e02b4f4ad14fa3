//! The harness that drives the real `lockwarden` binary and a real `redis-server`. Tests read as
//! transcripts: a client says a line and names the answer it expects. Everything here blocks, has a
//! deadline, and is killed when it goes out of scope; nothing here knows how the proxy works inside.
//! Start at [`World`], which plays one scenario without the proxy and with it.

mod browser;
mod builder;
pub mod cases;
mod client;
mod cores;
mod deadline;
mod forwarder;
mod http;
mod metrics;
mod numbers;
mod process;
mod prometheus;
mod proxy;
pub mod random;
mod record;
mod redis;
mod reply;
mod server;
pub mod soak;
pub mod spelling;
mod terminal;
mod words;
mod world;

pub use browser::Browser;
pub use builder::{ADMIN_TOKEN, Mode, ProxyBuilder};
pub use client::{Client, Exchange, Writer, encode};
pub use cores::Cores;
pub use deadline::{PATIENCE, comes_true, holds_for, wait_for, wait_for_value};
pub use forwarder::Forwarder;
pub use metrics::Metrics;
pub use numbers::Numbers;
pub use process::{Finished, Process, binary, lockwarden, lockwarden_at, run_to_end};
pub use prometheus::{Alertmanager, Prometheus, installed};
pub use proxy::Proxy;
pub use record::{Record, State};
pub use redis::Redis;
pub use reply::Reply;
pub use server::Server;
pub use terminal::Terminal;
pub use words::split as split_words;
pub use world::{World, WorldKind};

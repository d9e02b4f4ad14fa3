//! The harness that drives the real `lockwarden` binary and a real `redis-server`. Tests read as transcripts:
//! a client sends a line and names the reply that it expects. Everything here blocks, has a deadline, and is
//! killed when it goes out of scope; nothing here knows how the proxy works inside. Start at [`World`], which
//! plays one scenario without the proxy and with it.

pub mod balancer;
mod browser;
pub mod budget;
mod builder;
pub mod cases;
mod certificates;
mod client;
mod cluster;
mod cores;
mod deadline;
mod forwarder;
pub mod history;
mod http;
mod jumping_clock;
mod machines;
mod metrics;
mod numbers;
mod ports;
mod postgres;
mod process;
mod prometheus;
mod proxy;
pub mod random;
mod record;
mod redis;
mod reply;
pub mod script_fuzzer;
mod secure;
mod sentinels;
mod server;
pub mod soak;
pub mod spelling;
mod terminal;
mod watchers;
mod words;
mod world;

pub use browser::Browser;
pub use builder::{ADMIN_TOKEN, Mode, ProxyBuilder};
pub use certificates::{Authority, Issued, Subject};
pub use client::{Client, Exchange, Writer, encode};
pub use cluster::Cluster;
pub use cores::Cores;
pub use deadline::{PATIENCE, Stops, comes_true, holds_for, wait_for, wait_for_value};
pub use forwarder::Forwarder;
pub use http::get_at;
pub use machines::{Machine, Machines};
pub use metrics::Metrics;
pub use numbers::Numbers;
pub use ports::free_port;
pub use postgres::Postgres;
pub use process::{Finished, Process, binary, lockwarden, lockwarden_at, may_be_another_user, run_to_end};
pub use prometheus::{Alertmanager, Prometheus, installed};
pub use proxy::Proxy;
pub use record::{Record, State};
pub use redis::{Redis, is_whole_run_with_cluster};
pub use reply::Reply;
pub use secure::Trust;
pub use sentinels::{Failover, Sentinels, Switched};
pub use server::Server;
pub use terminal::Terminal;
pub use watchers::Watchers;
pub use words::split as split_words;
pub use world::{World, WorldKind};

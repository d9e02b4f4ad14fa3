//! Bytes and sockets; nothing here knows about locks: buffers, listeners, the PROXY header, wake-ups.

pub mod arrival;
pub mod buffer_pool;
pub mod certificate_name;
pub mod descriptors;
pub mod entrance;
pub mod listener;
pub mod peer;
pub mod pipe;
pub mod proxy_protocol;
pub mod sleeper;
mod socket_queues;
pub mod stream;
pub mod tls;
pub mod unix_listener;
pub mod wakeup;

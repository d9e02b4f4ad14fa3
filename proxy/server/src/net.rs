//! Bytes and sockets, without a word about locks: buffers, listeners, the PROXY header, wake-ups.

pub(crate) mod arrival;
pub(crate) mod buffer_pool;
pub(crate) mod certificate_name;
pub(crate) mod descriptors;
pub(crate) mod entrance;
pub(crate) mod listener;
pub(crate) mod peer;
pub(crate) mod proxy_protocol;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod unix_listener;
pub(crate) mod wakeup;

//! Bytes and sockets, without a word about locks: buffers, listeners, the PROXY header, wake-ups.

pub(crate) mod buffer_pool;
pub(crate) mod descriptors;
pub(crate) mod listener;
pub(crate) mod peer;
pub(crate) mod proxy_protocol;
pub(crate) mod stream;
pub(crate) mod unix_listener;
pub(crate) mod wakeup;

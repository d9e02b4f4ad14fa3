//! A connection for clients.

use std::io;

use prometheus::IntGauge;

use crate::net::stream::Stream;

/// A connection for clients. Counted while it is open.
pub(crate) struct Link {
    pub(crate) stream: Stream,
    /// In which the backend's name was looked up for it.
    pub(crate) era: u64,
    open: IntGauge,
}

impl Link {
    pub(super) fn new(stream: Stream, era: u64, open: &IntGauge) -> Link {
        open.inc();
        Link {
            stream,
            era,
            open: open.clone(),
        }
    }

    /// Whether it is still there, and nothing was said on it.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let read = self.stream.try_read(&mut [0; 1]);
        matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// One that nobody counts.
    #[cfg(test)]
    pub(crate) fn uncounted(stream: Stream) -> Link {
        let open = IntGauge::new("uncounted", "uncounted").expect("a name");
        Link::new(stream, 0, &open)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.open.dec();
    }
}

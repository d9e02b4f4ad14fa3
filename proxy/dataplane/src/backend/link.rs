//! A connection for clients.

use std::io;

use lockwarden_control::net::stream::Stream;
use prometheus::IntGauge;

use super::open_connections::{Connected, OpenConnection};

/// A connection for clients. Counted while it is open.
pub struct Link {
    // Dropped before the stream.
    _place: Option<OpenConnection>,
    pub(crate) stream: Stream,
    /// The era in which the backend's name was looked up for it.
    pub(crate) era: u64,
    /// It was asked which server it leads to.
    pub(crate) verified: bool,
    open: IntGauge,
}

impl Link {
    pub(super) fn new(connected: Connected, era: u64, open: &IntGauge) -> Link {
        let Connected { place, stream } = connected;
        Link::counted(Some(place), stream, era, open)
    }

    fn counted(place: Option<OpenConnection>, stream: Stream, era: u64, open: &IntGauge) -> Link {
        open.inc();
        Link { _place: place, stream, era, verified: false, open: open.clone() }
    }

    /// Whether it is still open, and nothing has come on it.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let read = self.stream.try_read(&mut [0; 1]);
        matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// One that is not counted.
    #[cfg(test)]
    pub(crate) fn uncounted(stream: Stream) -> Link {
        let open = IntGauge::new("uncounted", "uncounted").expect("a name");
        Link::counted(None, stream, 0, &open)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.open.dec();
    }
}

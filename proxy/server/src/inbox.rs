//! What a client has sent and nobody has dealt with yet: bytes, and the request at their front.

use bytes::{Buf, BytesMut};
use lockwarden_resp::{Request, RequestDecoder, RequestError, RequestLimits, Step};

use crate::buffers::{READ_CHUNK, give_back};

/// What the client has sent.
pub(crate) struct Inbox {
    pub(crate) bytes: BytesMut,
    decoder: RequestDecoder,
    consumed: usize,
    /// The client sends no more.
    pub(crate) done: bool,
    /// The session was told so.
    pub(crate) reported: bool,
}

impl Inbox {
    /// With the bytes that have come already.
    pub(crate) fn with(bytes: BytesMut) -> Inbox {
        Inbox {
            bytes,
            decoder: RequestDecoder::new(RequestLimits::default()),
            consumed: 0,
            done: false,
            reported: false,
        }
    }

    /// The request at the front, after [`Inbox::decode`] said that there is one.
    pub(crate) fn request(&self) -> Request<'_> {
        self.decoder.request(&self.bytes)
    }

    /// Hands over the request at the front, and what may be behind it, with the memory that it came in.
    pub(crate) fn take_all(&mut self) -> &mut BytesMut {
        self.consumed = 0;
        &mut self.bytes
    }

    /// Other limits from the next request on.
    pub(crate) fn set_limits(&mut self, limits: RequestLimits) {
        self.decoder.set_limits(limits);
    }

    /// How many bytes wait to be read.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len() - self.consumed
    }

    /// Whether nothing is waiting to be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() == self.consumed
    }

    /// Whether a request is complete; see [`Inbox::request`].
    pub(crate) fn decode(&mut self) -> Result<bool, RequestError> {
        loop {
            if self.consumed > 0 {
                self.bytes.advance(self.consumed);
                self.consumed = 0;
            }
            if self.bytes.is_empty() {
                give_back(&mut self.bytes);
                return Ok(false);
            }
            match self.decoder.decode(&self.bytes)? {
                Step::Request { consumed } => {
                    self.consumed = consumed;
                    return Ok(true);
                }
                Step::Ignored { consumed } => self.consumed = consumed,
                Step::Incomplete { wants } => {
                    self.bytes.reserve(wants.clamp(1, READ_CHUNK));
                    return Ok(false);
                }
            }
        }
    }
}

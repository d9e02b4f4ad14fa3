//! What a client has sent and is not yet handled: bytes, and the request at their front.

use bytes::{Buf, BytesMut};
use lockwarden_control::net::buffer_pool::{READ_CHUNK, WORTH_A_SWAP, give_back};
use lockwarden_lock::pass_through::{PassThrough, WholeBuffer};
use lockwarden_resp::{Announced, Request, RequestDecoder, RequestError, RequestLimits, Step};

/// What the client has sent.
pub struct RequestBuffer {
    pub bytes: BytesMut,
    decoder: RequestDecoder,
    consumed: usize,
    cut: Cut,
    /// The client sends no more.
    pub(crate) done: bool,
    /// The session was told so.
    pub(crate) reported: bool,
}

/// What became of a long argument of the request that is coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// It has none, or it was not looked for.
    No,
    /// It comes as it is.
    Kept,
    /// Zeros stand in its place. `to_come` of its own bytes are still to come, behind `stay` bytes that stay.
    Replaced { to_come: usize, stay: usize },
}

/// An argument of this many bytes is looked at before it has come whole.
const LONG_ARGUMENT: usize = 64 * 1024;

impl RequestBuffer {
    /// With the bytes that have come already.
    pub(crate) fn with(bytes: BytesMut) -> RequestBuffer {
        RequestBuffer {
            bytes,
            decoder: RequestDecoder::new(RequestLimits::default()),
            consumed: 0,
            cut: Cut::No,
            done: false,
            reported: false,
        }
    }

    /// The request at the front, after [`RequestBuffer::decode`] said that there is one.
    pub(crate) fn request(&self) -> Request<'_> {
        self.decoder.request(&self.bytes)
    }

    /// Permission to send the buffer as it is, if the request at the front passes through, is long enough to be worth
    /// it, and is all that the buffer holds.
    pub(crate) fn whole(&self, pass: PassThrough<'_>) -> Option<WholeBuffer> {
        let is_long = pass.frame().len() >= WORTH_A_SWAP && !pass.is_blocking();
        is_long.then(|| pass.whole(&self.bytes)).flatten()
    }

    /// Hands over the request at the front, and what may follow it, with the memory that it came in.
    pub(crate) fn take_all(&mut self) -> &mut BytesMut {
        self.consumed = 0;
        self.cut = Cut::No;
        &mut self.bytes
    }

    /// The long argument that the incomplete request announces, until it was decided what happens to it.
    pub(crate) fn long_argument(&self) -> Option<Announced> {
        let announced = self.decoder.announced();
        announced.filter(|awaited| self.cut == Cut::No && awaited.length >= LONG_ARGUMENT)
    }

    /// An argument before that one.
    pub(crate) fn arg_so_far(&self, place: usize) -> Option<&[u8]> {
        self.decoder.arg_so_far(&self.bytes, place)
    }

    /// The long argument is to be kept as it is.
    pub(crate) fn keep_long_argument(&mut self) {
        self.cut = Cut::Kept;
    }

    /// This many zeros replace the long argument: the request must not be carried out.
    pub(crate) fn replace_long_argument(&mut self, zeros: usize) {
        let to_come = self.decoder.replace_announced(&mut self.bytes, zeros);
        let stay = self.bytes.len();
        self.cut = Cut::Replaced { to_come, stay };
    }

    /// Whether the request is not what the client sent.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.cut, Cut::Replaced { .. })
    }

    /// Drops what has come of a replaced argument; returns whether more of it is to come.
    fn drop_replaced(&mut self) -> bool {
        let Cut::Replaced { to_come, stay } = &mut self.cut else {
            return false;
        };
        if *to_come == 0 {
            return false;
        }
        let come = self.bytes.len() - *stay;
        if come < *to_come {
            self.bytes.truncate(*stay);
            *to_come -= come;
            return true;
        }
        let behind = self.bytes.split_off(*stay + *to_come);
        self.bytes.truncate(*stay);
        self.bytes.extend_from_slice(&behind);
        *to_come = 0;
        false
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
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.consumed
    }

    /// Whether a request is complete; see [`RequestBuffer::request`].
    pub(crate) fn decode(&mut self) -> Result<bool, RequestError> {
        if self.drop_replaced() {
            return Ok(false);
        }
        loop {
            if self.consumed > 0 {
                // Not earlier: until now the request was borrowed from these bytes.
                self.bytes.advance(self.consumed);
                self.consumed = 0;
                self.cut = Cut::No;
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
                    // An announced length is only a claim; memory is reserved as bytes come.
                    self.bytes.reserve(wants.clamp(1, READ_CHUNK));
                    return Ok(false);
                }
            }
        }
    }
}

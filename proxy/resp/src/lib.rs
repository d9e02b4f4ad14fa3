//! Bytes to Redis frames and back. This crate finds where a frame ends, refuses what is not exactly a frame, and writes
//! frames; it does no I/O, knows no locks, and keeps the types of `redis-protocol` private. Read [`request`] for what
//! clients send, then [`reply`] and [`value`] for the backend's replies, [`elements`] for reading a part of one, then
//! [`encode`] for what the proxy itself writes.

pub mod request;

pub mod redirect;

pub mod reply;

pub mod value;

pub mod elements;

pub mod encode;

mod error_kind;
mod length;

#[cfg(any(test, feature = "properties"))]
pub mod properties;

pub use elements::{Elements, bulk_text};
pub use encode::{
    RequestWriter, put_array_header, put_bulk, put_error, put_integer, put_null, put_null_array, put_request,
    put_simple, put_value,
};
pub use error_kind::ErrorKind;
pub use redirect::Redirect;
pub use reply::{Redirects, ReplyError, ReplyLimits, ReplyScanner, Scan, Skipped};
pub use request::{
    Announced, OwnedRequest, Request, RequestDecoder, RequestError, RequestLimits, Step, UnexpectedByte,
};
pub use value::{Protocol, Value, parse_reply};

//! TLS on both sides: what a connection is made of after the handshake ([`stream`]), what certificates say, and the files
//! that both are made from, which may change while the proxy runs. Of both sides `acceptor` is the server's, and
//! `connector` the client's.

mod acceptor;
mod certificate;
mod connector;
mod files;
mod handshake;
pub(crate) mod stream;

pub(crate) use acceptor::{Acceptor, ClientCertificates, ListenerFiles, MinVersion};
pub(crate) use certificate::NamedBy;
pub(crate) use connector::{Authority, BackendFiles, Connector, Verify};
pub(crate) use files::TlsError;
pub(crate) use handshake::{HandshakeError, Observe, Outcome, Unobserved};

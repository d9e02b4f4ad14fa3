//! TLS on both sides: what a connection is made of after the handshake ([`stream`]), what certificates say, and the files
//! that both are made from, which may change while the proxy runs. Of both sides `acceptor` is the server's, and
//! `connector` the client's.

use std::time::Duration;

mod acceptor;
mod certificate;
mod connector;
mod files;
mod handshake;
pub mod stream;

pub use acceptor::{Acceptor, ClientCertificates, ListenerFiles, MinVersion, Shown};
pub use certificate::NamedBy;
pub use connector::{Authority, BackendFiles, Connector, Verify};
pub use files::TlsError;
pub use handshake::{HandshakeError, Observe, Outcome, Unobserved};

/// A certificate that ends within this is warned of, as the alert LockwardenCertificateExpiring does.
pub const ENDS_SOON: Duration = Duration::from_secs(14 * 86_400);

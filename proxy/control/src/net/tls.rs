//! TLS on both sides: connections after the handshake ([`stream`]), the contents of certificates, and the files of both
//! sides, which may change while the proxy runs. `acceptor` is the server's side, `connector` the client's.

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

/// Certificates that end within this time are warned about, as by the alert LockwardenCertificateExpiring.
pub const ENDS_SOON: Duration = Duration::from_secs(14 * 86_400);

//! What is known of a client before its first command.

use std::sync::Arc;
use std::time::Instant;

use super::certificate_name::CertificateName;
use super::peer::PeerAddress;
use super::proxy_protocol::Origin;

/// See the module.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Where the client comes from.
    pub peer: PeerAddress,
    /// How that is known.
    pub origin: Origin,
    /// The private endpoint by which it reached its balancer; see [`super::proxy_protocol::Extensions`].
    pub endpoint: Option<Arc<str>>,
    /// The name in its certificate, which was verified.
    pub certificate: Option<CertificateName>,
    /// It came in where clients need a certificate.
    pub needs_certificate: bool,
    /// When it was accepted.
    pub at: Instant,
}

impl Arrival {
    /// One whose connection comes from there, of whom nothing else is known.
    pub fn direct(peer: PeerAddress) -> Arrival {
        Arrival {
            peer,
            origin: Origin::Direct,
            endpoint: None,
            certificate: None,
            needs_certificate: false,
            at: Instant::now(),
        }
    }
}

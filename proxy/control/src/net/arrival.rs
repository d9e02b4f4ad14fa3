//! What is known of a client before its first command.

use std::sync::Arc;
use std::time::Instant;

use super::certificate_name::CertificateName;
use super::peer::PeerAddress;
use super::proxy_protocol::Origin;

/// See the module.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The client's address.
    pub peer: PeerAddress,
    /// How the address is known.
    pub origin: Origin,
    /// The private endpoint by which it reached its load balancer; see [`super::proxy_protocol::Extensions`].
    pub endpoint: Option<Arc<str>>,
    /// The verified name in its certificate.
    pub certificate: Option<CertificateName>,
    /// Whether it came in where clients need a certificate.
    pub needs_certificate: bool,
    /// When its connection was accepted.
    pub at: Instant,
}

impl Arrival {
    /// A client that connected directly from this address, with nothing else known.
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

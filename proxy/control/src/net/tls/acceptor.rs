//! The server's side: what TLS listeners show their clients, and what they require of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ProducesTickets, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use tokio::net::TcpStream;

use super::certificate::{self, NamedBy};
use super::files::{Sources, TlsError, provider};
use super::handshake::{HANDSHAKE_WITHIN, HandshakeError, Observe, Outcome};
use super::stream::TlsStream;
use crate::net::certificate_name::CertificateName;

/// The first byte of a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// The configuration of TLS listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerFiles {
    /// The file with the proxy's certificate, followed by those that lead to an authority that clients know.
    pub(crate) cert: PathBuf,
    /// The file with its key.
    pub(crate) key: PathBuf,
    pub(crate) min_version: MinVersion,
    /// The file with the authorities of client certificates, and whether clients need one.
    pub(crate) clients: Option<(PathBuf, ClientCertificates)>,
    pub(crate) client_name: NamedBy,
}

/// The oldest version that is accepted. Versions before 1.2 are broken (RFC 8996).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinVersion {
    Tls12,
    Tls13,
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients may show one.
    Ask,
    Require,
}

/// The name in a client's certificate.
pub enum Shown {
    /// The client showed no certificate.
    Nothing,
    /// The certificate has no name of the configured kind, or one that cannot be shown.
    Nameless(NamedBy),
    Name(CertificateName),
}

/// Performs handshakes with clients. The files may change meanwhile: later clients get the new contents.
pub struct Acceptor {
    files: ListenerFiles,
    current: ArcSwap<Material>,
    observer: Arc<dyn Observe>,
}

/// The contents of the files.
struct Material {
    config: Arc<ServerConfig>,
    digest: [u8; 32],
    /// Digest of `client_ca` alone.
    authorities: Option<[u8; 32]>,
    own_ends: Option<SystemTime>,
    authorities_end: Option<SystemTime>,
}

impl Acceptor {
    pub fn new(files: ListenerFiles, observer: Arc<dyn Observe>) -> Result<Acceptor, TlsError> {
        let material = read(&files, None)?;
        Ok(Acceptor { files, current: ArcSwap::from_pointee(material), observer })
    }

    /// Reads the files again; returns whether they have changed. Unusable files change nothing.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let now = self.current.load();
        let material = read(&self.files, Some(&now))?;
        let has_changed = material.digest != now.digest;
        if has_changed {
            self.current.store(Arc::new(material));
        }
        Ok(has_changed)
    }

    /// When the proxy's certificate ends, and the first of the authorities for clients.
    pub fn ends(&self) -> (Option<SystemTime>, Option<SystemTime>) {
        let now = self.current.load();
        (now.own_ends, now.authorities_end)
    }

    /// Performs the handshake; `said` are the bytes received so far. Returns the name in the client's certificate.
    pub async fn accept(&self, socket: TcpStream, said: &[u8]) -> Result<(TlsStream, Shown), HandshakeError> {
        let (began, within) = (Instant::now(), HANDSHAKE_WITHIN);
        let accepted = match tokio::time::timeout(within, self.shake_hands(socket, said)).await {
            Ok(accepted) => accepted,
            Err(_) => Err(HandshakeError::Late(within)),
        };
        let outcome = match &accepted {
            Ok((stream, _)) => Some(Outcome::Ok { resumed: stream.was_resumed() }),
            Err(error) => error.outcome(),
        };
        if let Some(outcome) = outcome {
            self.observer.handshake(outcome, began.elapsed());
        }
        accepted
    }

    async fn shake_hands(&self, socket: TcpStream, said: &[u8]) -> Result<(TlsStream, Shown), HandshakeError> {
        let first = match said.first() {
            Some(first) => *first,
            None => {
                let mut first = [0];
                match socket.peek(&mut first).await {
                    Ok(0) | Err(_) => return Err(HandshakeError::Unused),
                    Ok(_) => first[0],
                }
            }
        };
        if first != HANDSHAKE {
            return Err(HandshakeError::Plain);
        }
        let config = self.current.load().config.clone();
        let session = UnbufferedServerConnection::new(config).map_err(HandshakeError::Tls)?;
        let stream = TlsStream::accept(socket, session, said).await?;
        let Some(shown) = stream.peer_certificate() else {
            return Ok((stream, Shown::Nothing));
        };
        // It was verified at the start of the session, which this connection may resume.
        let shown = CertificateDer::from(shown);
        if certificate::end(&shown).is_some_and(|end| end <= SystemTime::now()) {
            return Err(HandshakeError::EndedSince);
        }
        let by = self.files.client_name;
        let name = certificate::name(&shown, by).map_or(Shown::Nameless(by), Shown::Name);
        Ok((stream, name))
    }
}

fn versions(oldest: MinVersion) -> &'static [&'static SupportedProtocolVersion] {
    const NEWEST_FIRST: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
    match oldest {
        MinVersion::Tls12 => NEWEST_FIRST,
        MinVersion::Tls13 => &NEWEST_FIRST[..1],
    }
}

/// Reads the files into new material, and reuses what is unchanged from `before`.
fn read(files: &ListenerFiles, before: Option<&Material>) -> Result<Material, TlsError> {
    let mut sources = Sources::default();
    let own = sources.certified(&files.cert, &files.key)?;
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(versions(files.min_version))?;
    let (mut authorities, mut authorities_end) = (None, None);
    let builder = match &files.clients {
        None => builder.with_no_client_auth(),
        Some((path, want)) => {
            let mut only = Sources::default();
            let found = only.authorities("client_ca", path)?;
            let digest = only.digest();
            sources.has_read(&digest);
            (authorities, authorities_end) = (Some(digest), found.ends);
            let verifier = WebPkiClientVerifier::builder_with_provider(found.roots, provider());
            let verifier = match want {
                ClientCertificates::Ask => verifier.allow_unauthenticated(),
                ClientCertificates::Require => verifier,
            };
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let resolver = SingleCertAndKey::from(own.key);
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    // Session tickets are kept only by the clients. A client that was admitted by an authority that is gone now must
    // not resume.
    let same = before.filter(|before| before.authorities == authorities);
    config.ticketer = match same {
        Some(before) => before.config.ticketer.clone(),
        None => tickets()?,
    };
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // A replayed acquire would be a second one.
    config.max_early_data_size = 0;
    Ok(Material {
        config: Arc::new(config),
        digest: sources.digest(),
        authorities,
        own_ends: own.ends,
        authorities_end,
    })
}

fn tickets() -> Result<Arc<dyn ProducesTickets>, TlsError> {
    Ok(Ticketer::new()?)
}

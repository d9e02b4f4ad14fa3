//! The client's side: how the proxy verifies the backend, and identifies itself to it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;

use super::files::{Authorities, Sources, TlsError, provider};
use super::handshake::{HandshakeError, Observe, Outcome};
use super::stream::TlsStream;

/// The configuration of TLS to the backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFiles {
    pub(crate) ca: Authority,
    /// The name that the backend's certificate must have; `None`: the host of its URL.
    pub(crate) server_name: Option<String>,
    pub(crate) verify: Verify,
    /// The files with the proxy's own certificate and key, if the backend requires one.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

impl Default for BackendFiles {
    /// The defaults of a URL alone.
    fn default() -> BackendFiles {
        BackendFiles { ca: Authority::System, server_name: None, verify: Verify::Full, own: None }
    }
}

/// The authorities of the backend's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// The system's authorities.
    System,
    File(PathBuf),
}

/// What is verified in the backend's certificate, in PostgreSQL's terms (`sslmode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The issuer and the host name.
    Full,
    /// Only the issuer. redis-cli verifies no more, and many certificates of Redis contain no host name.
    Ca,
}

/// Performs handshakes with the backend.
pub struct Connector {
    files: BackendFiles,
    /// The name that every certificate must have; `None`: that of the host.
    name: Option<ServerName<'static>>,
    current: ArcSwap<Material>,
    observer: Arc<dyn Observe>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.name).finish()
    }
}

struct Material {
    config: Arc<ClientConfig>,
    digest: [u8; 32],
    own_ends: Option<SystemTime>,
    authorities_end: Option<SystemTime>,
}

impl Connector {
    /// For a backend at this host; `None`: for hosts that are not known yet.
    pub fn new(files: BackendFiles, host: Option<&str>, observer: Arc<dyn Observe>) -> Result<Connector, TlsError> {
        let name = files.server_name.as_deref().or(host);
        let name =
            name.map(|name| ServerName::try_from(name.to_owned()).map_err(|_| TlsError::ServerName(name.to_owned())));
        let name = name.transpose()?;
        let material = read(&files)?;
        Ok(Connector { files, name, current: ArcSwap::from_pointee(material), observer })
    }

    /// Reads the files again; returns whether they have changed. Unusable files change nothing.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let material = read(&self.files)?;
        let has_changed = material.digest != self.current.load().digest;
        if has_changed {
            self.current.store(Arc::new(material));
        }
        Ok(has_changed)
    }

    /// When the proxy's certificate ends, and the first of the authorities.
    pub fn ends(&self) -> (Option<SystemTime>, Option<SystemTime>) {
        let now = self.current.load();
        (now.own_ends, now.authorities_end)
    }

    /// Performs the handshake with this host. The caller limits its duration.
    pub async fn connect(&self, socket: TcpStream, host: &str) -> Result<TlsStream, HandshakeError> {
        let mut watch = Watch { observer: &*self.observer, began: Instant::now(), outcome: Some(Outcome::Timeout) };
        let connected = self.shake_hands(socket, host).await;
        watch.outcome = match &connected {
            Ok(stream) => Some(Outcome::Ok { resumed: stream.was_resumed() }),
            Err(error) => error.outcome(),
        };
        connected
    }

    async fn shake_hands(&self, socket: TcpStream, host: &str) -> Result<TlsStream, HandshakeError> {
        let config = self.current.load().config.clone();
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| HandshakeError::Name(host.to_owned()))?,
        };
        let session = UnbufferedClientConnection::new(config, name);
        let session = session.map_err(HandshakeError::Tls)?;
        let connected = TlsStream::connect(socket, session).await;
        connected.map_err(|error| match error {
            HandshakeError::Tls(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => HandshakeError::Plain,
            other => other,
        })
    }
}

/// Reports the result of a handshake, even if it is abandoned.
struct Watch<'a> {
    observer: &'a dyn Observe,
    began: Instant,
    outcome: Option<Outcome>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            self.observer.handshake(outcome, self.began.elapsed());
        }
    }
}

/// Reads the files.
fn read(files: &BackendFiles) -> Result<Material, TlsError> {
    let mut sources = Sources::default();
    let authorities = match &files.ca {
        Authority::File(path) => sources.authorities("ca", path)?,
        Authority::System => of_system(&mut sources)?,
    };
    let own = match &files.own {
        Some((cert, key)) => Some(sources.certified(cert, key)?),
        None => None,
    };
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions()?;
    let verifier = WebPkiServerVerifier::builder_with_provider(authorities.roots, provider());
    let verifier = verifier.build()?;
    let builder = match files.verify {
        Verify::Full => builder.dangerous().with_custom_certificate_verifier(verifier),
        Verify::Ca => {
            let any = Arc::new(AnyHost(verifier));
            builder.dangerous().with_custom_certificate_verifier(any)
        }
    };
    let own_ends = own.as_ref().and_then(|own| own.ends);
    let mut config = match own {
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key))),
        None => builder.with_no_client_auth(),
    };
    config.enable_early_data = false;
    Ok(Material { config: Arc::new(config), digest: sources.digest(), own_ends, authorities_end: authorities.ends })
}

/// The system's authorities. Unusable ones are skipped, as other programs do.
fn of_system(sources: &mut Sources) -> Result<Authorities, TlsError> {
    let mut roots = RootCertStore::empty();
    for one in rustls_native_certs::load_native_certs().certs {
        sources.has_read(&one);
        // Errors of single authorities do not matter.
        let _ = roots.add(one);
    }
    match roots.is_empty() {
        true => Err(TlsError::NoSystemAuthorities),
        false => Ok(Authorities { roots: Arc::new(roots), ends: None }),
    }
}

/// Accepts a certificate for any host if an authority has issued it.
#[derive(Debug)]
struct AnyHost(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is checked last, when all else is valid.
        match self.0.verify_server_cert(shown, between, name, stapled, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

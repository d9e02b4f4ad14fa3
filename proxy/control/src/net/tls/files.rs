//! The files with certificates, keys and authorities. They are read whole and within limits; errors are reported with
//! the configuration key that names the file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::VerifierBuilderError;
use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore};
use sha2::{Digest, Sha256};

use super::certificate;

/// The most bytes of one file. A system's authorities have about 250 KB.
const MAX_FILE: u64 = 4 << 20;

/// Why these files cannot be used for TLS. Prints like a finding, after the table's name.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{key}: cannot read {}: {source}", path.display())]
    Unreadable { key: &'static str, path: PathBuf, source: io::Error },
    #[error("{key}: {} is longer than {MAX_FILE} bytes", path.display())]
    TooLong { key: &'static str, path: PathBuf },
    #[error("{key}: there is no certificate in {}; it has to be PEM text, with BEGIN CERTIFICATE", path.display())]
    NoCertificate { key: &'static str, path: PathBuf },
    #[error("{key}: {} has a certificate that cannot be used: {source}", path.display())]
    BadCertificate { key: &'static str, path: PathBuf, source: Error },
    #[error("key: there is no private key in {}; it has to be PEM text, with BEGIN PRIVATE KEY, and without a password", .0.display())]
    NoKey(PathBuf),
    #[error("key: {} cannot be used: {source}", path.display())]
    BadKey { path: PathBuf, source: Error },
    #[error("key does not belong to cert ({})", .0.display())]
    KeyMismatch(PathBuf),
    #[error("{key} ended {} ({})", humantime::format_rfc3339_seconds(*at), path.display())]
    CertificateEnded { key: &'static str, path: PathBuf, at: SystemTime },
    #[error("ca = \"system\" found no certificates; name a file")]
    NoSystemAuthorities,
    #[error("client_ca: {0}")]
    Verifier(#[from] VerifierBuilderError),
    #[error("server_name: \"{0}\" is neither a host name nor an IP address")]
    ServerName(String),
    #[error("{0}")]
    Other(#[from] Error),
}

/// The cryptographic library.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The files of one configuration, and a hash of their contents.
#[derive(Default)]
pub(super) struct Sources {
    digest: Sha256,
}

impl Sources {
    /// Reads a file that this configuration key names.
    fn read(&mut self, key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
        if let Err(source) = read {
            let path = path.to_owned();
            return Err(TlsError::Unreadable { key, path, source });
        }
        if bytes.len() as u64 > MAX_FILE {
            let path = path.to_owned();
            return Err(TlsError::TooLong { key, path });
        }
        self.has_read(&bytes);
        Ok(bytes)
    }

    /// Adds these bytes to the hash.
    pub(super) fn has_read(&mut self, bytes: &[u8]) {
        self.digest.update((bytes.len() as u64).to_le_bytes());
        self.digest.update(bytes);
    }

    fn certificates(&mut self, key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let bytes = self.read(key, path)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            Ok(_) | Err(_) => Err(TlsError::NoCertificate { key, path: path.to_owned() }),
        }
    }

    /// Our own certificate with its issuers, and its key.
    pub(super) fn certified(&mut self, cert: &Path, key: &Path) -> Result<OwnCertificate, TlsError> {
        let chain = self.certificates("cert", cert)?;
        let text = self.read("key", key)?;
        let private = PrivateKeyDer::from_pem_slice(&text);
        let private = private.map_err(|_| TlsError::NoKey(key.to_owned()))?;
        let ends = chain.first().and_then(certificate::end);
        if let Some(at) = ends.filter(|at| *at <= SystemTime::now()) {
            return Err(TlsError::CertificateEnded { key: "cert", path: cert.to_owned(), at });
        }
        let certified = CertifiedKey::from_der(chain, private, &provider());
        let certified = certified.map_err(|source| match source {
            Error::InconsistentKeys(_) => TlsError::KeyMismatch(cert.to_owned()),
            Error::InvalidCertificate(_) => TlsError::BadCertificate { key: "cert", path: cert.to_owned(), source },
            source => TlsError::BadKey { path: key.to_owned(), source },
        })?;
        Ok(OwnCertificate { key: Arc::new(certified), ends })
    }

    /// The authorities of the peers' certificates.
    pub(super) fn authorities(&mut self, key: &'static str, path: &Path) -> Result<Authorities, TlsError> {
        let found = self.certificates(key, path)?;
        let ends = found.iter().filter_map(certificate::end).min();
        let mut roots = RootCertStore::empty();
        for one in found {
            roots.add(one).map_err(|source| TlsError::BadCertificate { key, path: path.to_owned(), source })?;
        }
        Ok(Authorities { roots: Arc::new(roots), ends })
    }

    /// The digest of all files together.
    pub(super) fn digest(self) -> [u8; 32] {
        self.digest.finalize().into()
    }
}

/// A certificate of the proxy's own.
pub(super) struct OwnCertificate {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) ends: Option<SystemTime>,
}

/// Authorities that the proxy trusts.
pub(super) struct Authorities {
    pub(super) roots: Arc<RootCertStore>,
    /// When the first of them ends.
    pub(super) ends: Option<SystemTime>,
}

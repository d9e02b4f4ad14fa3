//! The client's end of TLS, for a test that speaks it. Two threads may read and write at the same time: the one that
//! waits for the socket holds no lock that the other one needs.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, SupportedProtocolVersion};

use crate::certificates::{Authority, Issued};

/// The authority that a client trusts, and the certificate that it shows.
#[derive(Clone)]
pub struct Trust {
    config: Arc<ClientConfig>,
    /// The number of tickets with which a server offers to resume a session, after the handshake.
    tickets: u32,
    roots: RootCertStore,
    own: Option<Issued>,
}

/// As many as the proxy sends.
const TICKETS: u32 = 2;

impl Trust {
    /// Trusts this authority, and shows this certificate where it is asked for one.
    pub fn new(authority: &Authority, own: Option<&Issued>) -> Trust {
        let mut roots = RootCertStore::empty();
        let pem = authority.pem();
        let root = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        roots.add(root).expect("an authority");
        Trust::with_versions(rustls::DEFAULT_VERSIONS, roots, own.cloned())
    }

    fn with_versions(
        versions: &[&'static SupportedProtocolVersion],
        roots: RootCertStore,
        own: Option<Issued>,
    ) -> Trust {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("the provider has them")
            .with_root_certificates(roots.clone());
        let config = match &own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(own.cert.as_bytes()).collect();
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain.expect("certificates"), key).expect("they belong together")
            }
        };
        Trust { config: Arc::new(config), tickets: TICKETS, roots, own }
    }

    /// Speaks TLS 1.2 and nothing newer.
    #[must_use]
    pub fn of_tls_1_2(&self) -> Trust {
        Trust::with_versions(&[&rustls::version::TLS12], self.roots.clone(), self.own.clone())
    }

    /// Begins every session anew.
    #[must_use]
    pub fn without_resumption(&self) -> Trust {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::disabled();
        Trust { config: Arc::new(config), tickets: 0, ..self.clone() }
    }
}

/// A connection to a server of this machine.
#[derive(Clone)]
pub(crate) struct Secure {
    session: Arc<Mutex<ClientConnection>>,
    tickets: u32,
    /// Held by the thread that sends, so that records leave in the order in which they were made.
    sending: Arc<Mutex<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Secure {
    /// Does the handshake.
    pub(crate) fn connect(socket: &TcpStream, trust: &Trust) -> io::Result<Secure> {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(trust.config.clone(), name).map_err(io::Error::other)?;
        let secure = Secure { session: Arc::new(Mutex::new(session)), tickets: trust.tickets, sending: Arc::default() };
        let mut early = Vec::new();
        while secure.is_waiting() {
            secure.send(socket)?;
            if secure.is_waiting() {
                secure.read(socket, &mut early)?;
            }
        }
        secure.send(socket)?;
        Ok(secure)
    }

    /// Whether the handshake goes on, or tickets have yet to come, which are no reply to anything.
    fn is_waiting(&self) -> bool {
        let session = lock(&self.session);
        let has_tickets = session.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        session.is_handshaking() || has_tickets && session.tls13_tickets_received() < self.tickets
    }

    /// Whether an earlier session went on.
    pub(crate) fn was_resumed(&self) -> bool {
        lock(&self.session).handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    fn send(&self, mut socket: &TcpStream) -> io::Result<()> {
        let _sending = lock(&self.sending);
        let mut records = Vec::new();
        {
            let mut session = lock(&self.session);
            while session.wants_write() {
                session.write_tls(&mut records)?;
            }
        }
        socket.write_all(&records)
    }

    /// Writes bytes.
    pub(crate) fn write(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.chunks(16 * 1024) {
            lock(&self.session).writer().write_all(chunk)?;
            self.send(socket)?;
        }
        Ok(())
    }

    /// Reads once; returns 0 at the end. It may return that there is nothing yet, as a socket does.
    pub(crate) fn read(&self, mut socket: &TcpStream, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut records = vec![0; 1 << 16];
        let was_waiting = self.is_waiting();
        loop {
            let came = socket.read(&mut records)?;
            if came == 0 {
                return match was_waiting {
                    true => Err(io::ErrorKind::UnexpectedEof.into()),
                    false => Ok(0),
                };
            }
            let (mut rest, before) = (&records[..came], into.len());
            let mut session = lock(&self.session);
            let mut has_ended = false;
            while !rest.is_empty() {
                session.read_tls(&mut rest)?;
                let state = session.process_new_packets();
                let state = match state {
                    Ok(state) => state,
                    Err(error) => {
                        drop(session);
                        // This sends the reason to the other end.
                        self.send(socket)?;
                        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                    }
                };
                let start = into.len();
                into.resize(start + state.plaintext_bytes_to_read(), 0);
                session.reader().read_exact(&mut into[start..])?;
                has_ended |= state.peer_has_closed();
            }
            drop(session);
            let read = into.len() - before;
            if read > 0 || has_ended || was_waiting {
                return Ok(read);
            }
        }
    }

    /// Says that no more comes.
    pub(crate) fn half_close(&self, socket: &TcpStream) -> io::Result<()> {
        lock(&self.session).send_close_notify();
        self.send(socket)?;
        socket.shutdown(Shutdown::Write)
    }
}

//! TLS handshakes, and why they fail.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError, Error};

/// A client that has not completed the handshake within this time is closed. A slow client on a bad line needs about
/// three seconds.
pub(super) const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The other end did not even begin.
    #[error("the connection ended before a handshake")]
    Unused,
    #[error("the other end hung up during the handshake")]
    Ended,
    #[error("the other end does not speak TLS")]
    Plain,
    #[error("no handshake within {0:?}; the other end may speak no TLS at this port")]
    Late(Duration),
    /// The certificate has ended since the session began that was to be resumed.
    #[error("the certificate has ended since the session began")]
    EndedSince,
    #[error("no certificate can be for {0}: that is no name of a host; set backend_tls: server_name")]
    Name(String),
    #[error("{}", words(.0))]
    Tls(Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The result of a handshake, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok { resumed: bool },
    NoCertificate,
    UnknownAuthority,
    Expired,
    Protocol,
    Timeout,
    Other,
}

/// Is called for every handshake of one side.
pub trait Observe: Send + Sync {
    /// A handshake ended with this result after this time.
    fn handshake(&self, outcome: Outcome, took: Duration);
}

/// An observer that does nothing, as in a shell command.
pub struct Unobserved;

impl Observe for Unobserved {
    fn handshake(&self, _: Outcome, _: Duration) {}
}

impl HandshakeError {
    /// The result for counting; `None` if no handshake began, as in a health check.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        Some(match self {
            HandshakeError::Unused => return None,
            HandshakeError::Plain => Outcome::Protocol,
            HandshakeError::Late(_) => Outcome::Timeout,
            HandshakeError::EndedSince => Outcome::Expired,
            HandshakeError::Ended | HandshakeError::Io(_) | HandshakeError::Name(_) => Outcome::Other,
            HandshakeError::Tls(error) => match error {
                Error::NoCertificatesPresented | Error::AlertReceived(AlertDescription::CertificateRequired) => {
                    Outcome::NoCertificate
                }
                Error::InvalidCertificate(CertificateError::UnknownIssuer)
                | Error::AlertReceived(AlertDescription::UnknownCA) => Outcome::UnknownAuthority,
                Error::InvalidCertificate(
                    CertificateError::Expired
                    | CertificateError::ExpiredContext { .. }
                    | CertificateError::NotValidYet
                    | CertificateError::NotValidYetContext { .. },
                )
                | Error::AlertReceived(AlertDescription::CertificateExpired) => Outcome::Expired,
                Error::InvalidMessage(_)
                | Error::PeerMisbehaved(_)
                | Error::PeerIncompatible(_)
                | Error::InappropriateMessage { .. }
                | Error::InappropriateHandshakeMessage { .. } => Outcome::Protocol,
                _ => Outcome::Other,
            },
        })
    }
}

/// The library's text if it is meant for people, otherwise ours.
fn words(error: &Error) -> String {
    match error {
        Error::NoCertificatesPresented => "the client showed no certificate".to_owned(),
        Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => "its certificate was issued by nobody who is believed here".to_owned(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has ended".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate does not hold yet".to_owned()
            }
            other => format!("its certificate is refused: {other}"),
        },
        Error::AlertReceived(alert) => {
            let what = match alert {
                AlertDescription::UnknownCA => "it does not know who issued our certificate",
                AlertDescription::CertificateRequired => "it wants a certificate of ours",
                AlertDescription::CertificateExpired => "our certificate has ended",
                AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
                    "it does not accept our certificate"
                }
                AlertDescription::ProtocolVersion => "it speaks another version of TLS",
                AlertDescription::HandshakeFailure => "we have no cipher or version in common",
                other => return format!("the other end says: {other:?}"),
            };
            what.to_owned()
        }
        other => other.to_string(),
    }
}

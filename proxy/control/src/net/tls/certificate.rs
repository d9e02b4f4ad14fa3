//! Reads a certificate: its name, and when it ends. Whether it is trusted is not checked here.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::attr::AttributeValue;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::net::certificate_name::CertificateName;

/// `id-at-commonName` (RFC 5280, appendix A.1).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The part of a client's certificate that is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// The first URI among the alternative names, as SPIFFE has it.
    Uri,
    /// The first DNS name among the alternative names.
    Dns,
    /// The subject's common name.
    CommonName,
    /// The whole subject (RFC 4514).
    Subject,
}

impl NamedBy {
    /// The configuration's spelling.
    pub fn word(self) -> &'static str {
        match self {
            NamedBy::Uri => "uri",
            NamedBy::Dns => "dns",
            NamedBy::CommonName => "cn",
            NamedBy::Subject => "subject",
        }
    }
}

/// When a certificate ends; `None` if that cannot be read.
pub(super) fn end(der: &CertificateDer<'_>) -> Option<SystemTime> {
    let certificate = Certificate::from_der(der).ok()?;
    let after = certificate.tbs_certificate.validity.not_after;
    UNIX_EPOCH.checked_add(after.to_unix_duration())
}

/// The name of the requested kind in a certificate; `None` if there is none, or if it cannot be shown.
pub(super) fn name(der: &[u8], by: NamedBy) -> Option<CertificateName> {
    let certificate = Certificate::from_der(der).ok()?.tbs_certificate;
    let alternative = |wanted: fn(&GeneralName) -> Option<&str>| {
        let (_, names) = certificate.get::<SubjectAltName>().ok()??;
        names.0.iter().find_map(wanted).map(str::to_owned)
    };
    let name = match by {
        NamedBy::Uri => alternative(|name| match name {
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str()),
            _ => None,
        }),
        NamedBy::Dns => alternative(|name| match name {
            GeneralName::DnsName(host) => Some(host.as_str()),
            _ => None,
        }),
        NamedBy::CommonName => {
            // The last one is the most specific.
            let relative = certificate.subject.0.iter().rev();
            let mut parts = relative.flat_map(|relative| relative.0.iter());
            let common = parts.find(|part| part.oid == COMMON_NAME);
            common.and_then(|common| text(&common.value))
        }
        NamedBy::Subject => Some(certificate.subject.to_string()),
    };
    CertificateName::new(name?.as_bytes()).ok()
}

/// The text of an attribute, in one of the string types that certificates use.
fn text(value: &AttributeValue) -> Option<String> {
    let utf8 = value.decode_as::<Utf8StringRef<'_>>();
    let utf8 = utf8.map(|text| text.as_str().to_owned());
    let printable = || value.decode_as::<PrintableStringRef<'_>>();
    let ia5 = || value.decode_as::<Ia5StringRef<'_>>();
    let teletex = || value.decode_as::<TeletexStringRef<'_>>();
    utf8.or_else(|_| printable().map(|text| text.as_str().to_owned()))
        .or_else(|_| ia5().map(|text| text.as_str().to_owned()))
        .or_else(|_| teletex().map(|text| text.as_str().to_owned()))
        .ok()
}

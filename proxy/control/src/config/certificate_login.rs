//! `[[certificate_login]]`: which clients need no password because of the name in their certificate, and which ACL user
//! they become. Reads and checks those tables; the password is read when such a client connects.

use std::path::PathBuf;

use bytes::Bytes;

use super::backend_login::user;
use super::finding::{Findings, Place};
use super::keys::belongs_on_top;
use super::network::Network;
use super::reader::{Reader, Section, key_table};
use super::secret::password_in;
use super::value;
use crate::net::tls::{ClientCertificates, ListenerFiles, NamedBy};

/// The most tables in one file. Each connecting client's name is compared with all of them.
const MAX_LOGINS: usize = 1_000;

key_table! { pub(super) KEYS =
    name: "\"spiffe://corp/ns/shop/*\"",
    user: "\"shop\"",
    password_file: "\"/run/secrets/shop\"",
}

/// One checked `[[certificate_login]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateLogin {
    /// A glob of the name in a certificate.
    pub(crate) name: Bytes,
    /// The ACL user of such a client.
    pub user: String,
    /// The file with that user's password; it is read for each such client.
    pub password_file: PathBuf,
}

/// Reads every `[[certificate_login]]` of the file, with its place; those with errors are left out.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Vec<(CertificateLogin, Place)> {
    reader.each_table(top, ("certificate_login", KEYS), MAX_LOGINS, one)
}

fn one(reader: &mut Reader<'_>, section: Section<'_, '_>) -> Option<(CertificateLogin, Place)> {
    let section = &section;
    let name = reader.parsed(section, "name", value::glob);
    let name = reader.required(section, "name", name);
    let user = reader.parsed(section, "user", user);
    let user = reader.required(section, "user", user);
    let file = reader.file(section, "password_file");
    let file = reader.required(section, "password_file", file);
    reader.unknown_keys(section, belongs_on_top);
    if let Some(file) = &file
        && let Err(error) = password_in(&file.value)
    {
        let message = format!(
            "{}password_file: {error}; until it can be read these clients have to log in themselves",
            section.scope
        );
        reader.warning(file.span.clone(), message);
    }
    let login = CertificateLogin { name: name?.value, user: user?.value, password_file: file?.value };
    Some((login, reader.document.place(section.span.clone())))
}

/// Whether the common name that a load balancer sends may be used as the name in a certificate. If the proxy also reads
/// certificates itself, only if it uses their common name too.
pub fn takes_common_names(tls: Option<&ListenerFiles>) -> bool {
    tls.is_none_or(|tls| tls.client_name == NamedBy::CommonName)
}

/// Whether clients that connect over TLS need a certificate.
pub fn needs_certificates(tls: Option<&ListenerFiles>) -> bool {
    let clients = tls.and_then(|tls| tls.clients.as_ref());
    clients.is_some_and(|(_, wanted)| *wanted == ClientCertificates::Require)
}

/// Reports if no client can have a name.
pub(super) fn check(
    logins: &[(CertificateLogin, Place)],
    tls: Option<&ListenerFiles>,
    balancers: &[Network],
    findings: &mut Findings,
) {
    let by_tls = tls.is_some_and(|tls| tls.clients.is_some());
    if by_tls || (!balancers.is_empty() && takes_common_names(tls)) {
        return;
    }
    let why = match (tls, balancers) {
        (Some(_), []) => "client_cert = \"off\"",
        (Some(_), _) => "client_cert = \"off\", and client_name is not \"cn\", the only name that balancers tell",
        (None, _) => "there is no [tls] client_ca, and no balancer in proxy_protocol_from",
    };
    for (number, (_, place)) in logins.iter().enumerate() {
        let message = format!("certificate_login {}: {why}, so nobody has a name", number + 1);
        findings.error(place.clone(), message);
    }
}

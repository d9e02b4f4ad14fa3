//! `[tls]` for listeners and `[backend_tls]` for connections to the backend: the files with the proxy's own
//! certificate, and with the authorities that it trusts. The files themselves are checked when everything else is right
//! ([`check`]).

use std::sync::Arc;
use std::time::SystemTime;

use super::backend::{Backend, BackendUrl, Target};
use super::finding::{Findings, Place};
use super::keys::belongs_on_top;
use super::listener::Listener;
use super::reader::{Reader, Section, key_table};
use crate::net::tls::{
    Acceptor, Authority, BackendFiles, ClientCertificates, Connector, ENDS_SOON, ListenerFiles, MinVersion, NamedBy,
    TlsError, Unobserved, Verify,
};

key_table! { pub(super) KEYS =
    cert: "\"/etc/lockwarden/tls.crt\"",
    key: "\"/etc/lockwarden/tls.key\"",
    min_version: "\"1.2\"",
    client_ca: "\"/etc/lockwarden/clients.pem\"",
    client_cert: "\"require\"",
    client_name: "\"uri\"",
}

key_table! { pub(super) BACKEND_KEYS =
    ca: "\"system\"",
    server_name: "\"cache.corp\"",
    verify: "\"full\"",
    cert: "\"/etc/lockwarden/backend.crt\"",
    key: "\"/etc/lockwarden/backend.key\"",
}

const VERSIONS: [(&str, MinVersion); 2] = [("1.2", MinVersion::Tls12), ("1.3", MinVersion::Tls13)];

const CLIENT_CERTIFICATES: [(&str, Option<ClientCertificates>); 3] =
    [("off", None), ("ask", Some(ClientCertificates::Ask)), ("require", Some(ClientCertificates::Require))];

const NAMES: [(&str, NamedBy); 4] =
    [("uri", NamedBy::Uri), ("dns", NamedBy::Dns), ("cn", NamedBy::CommonName), ("subject", NamedBy::Subject)];

const VERIFY: [(&str, Verify); 2] = [("full", Verify::Full), ("ca", Verify::Ca)];

/// Reads `[tls]` with its place, if the file has one.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<(ListenerFiles, Place)> {
    let section = reader.section(top, "tls", KEYS)?;
    let cert = reader.file(&section, "cert");
    let cert = reader.required(&section, "cert", cert);
    let key = reader.file(&section, "key");
    let key = reader.required(&section, "key", key);
    let min_version = reader.choice(&section, "min_version", &VERSIONS);
    let client_ca = reader.file(&section, "client_ca");
    let wanted = reader.choice(&section, "client_cert", &CLIENT_CERTIFICATES);
    let client_name = reader.choice(&section, "client_name", &NAMES);
    reader.unknown_keys(&section, belongs_on_top);
    // If an authority is named, client certificates are required by default.
    let built_in = client_ca.as_ref().map(|_| ClientCertificates::Require);
    let clients = match (client_ca, wanted.unwrap_or(built_in)) {
        (Some(ca), Some(want)) => Some((ca.value, want)),
        (None, Some(_)) if !section.table.contains_key("client_ca") => {
            let scope = &section.scope;
            reader.error(section.span.clone(), || {
                format!("{scope}client_cert: nothing says whose certificates are good; write client_ca")
            });
            None
        }
        (None, Some(_)) | (_, None) => None,
    };
    let files = ListenerFiles {
        cert: cert?.value,
        key: key?.value,
        min_version: min_version.unwrap_or(MinVersion::Tls12),
        clients,
        client_name: client_name.unwrap_or(NamedBy::CommonName),
    };
    Some((files, reader.document.place(section.span)))
}

/// Reads `[backend_tls]` with its place, if the file has one.
pub(super) fn read_backend(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<(BackendFiles, Place)> {
    let section = reader.section(top, "backend_tls", BACKEND_KEYS)?;
    let document = reader.document;
    let ca = reader.parsed(&section, "ca", |text| {
        Ok::<_, std::convert::Infallible>(match text {
            "system" => Authority::System,
            file => Authority::File(document.beside(file.as_ref())),
        })
    });
    let name = reader.parsed(&section, "server_name", |text| {
        Ok::<_, std::convert::Infallible>((!text.is_empty()).then(|| text.to_owned()))
    });
    let verify = reader.choice(&section, "verify", &VERIFY);
    let cert = reader.file(&section, "cert");
    let key = reader.file(&section, "key");
    reader.unknown_keys(&section, belongs_on_top);
    let scope = &section.scope;
    let own = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert.value, key.value)),
        (Some(one), None) | (None, Some(one)) => {
            reader.error(one.span, || format!("{scope}cert and key belong together; write both"));
            None
        }
        (None, None) => None,
    };
    let files = BackendFiles {
        ca: ca.map_or(Authority::System, |ca| ca.value),
        server_name: name.and_then(|name| name.value),
        verify: verify.unwrap_or(Verify::Full),
        own,
    };
    Some((files, reader.document.place(section.span)))
}

/// Reports conflicts, and errors in the files.
pub(super) fn check(
    tls: Option<&(ListenerFiles, Place)>,
    backend_tls: Option<&(BackendFiles, Place)>,
    listeners: &[(Listener, Place)],
    backend: (&Backend, Option<&Place>),
    findings: &mut Findings,
) {
    match (tls, listeners.iter().any(|(listener, _)| listener.tls)) {
        (Some((files, place)), true) => match Acceptor::new(files.clone(), Arc::new(Unobserved)) {
            Ok(acceptor) => warn_of_ends("tls", ["cert", "client_ca"], acceptor.ends(), place, findings),
            Err(error) => findings.error(place.clone(), format!("tls: {error}")),
        },
        (Some((_, place)), false) => {
            let message = "tls: no [[listener]] has tls = true, so this is not used";
            findings.warning(place.clone(), message.to_owned());
        }
        (None, true) => {
            for (number, (listener, place)) in listeners.iter().enumerate() {
                if listener.tls {
                    let number = number + 1;
                    let message = format!("listener {number}: tls = true wants [tls] cert and key");
                    findings.error(place.clone(), message);
                }
            }
        }
        (None, false) => {}
    }
    match (backend, backend_tls) {
        ((Backend::Redis(url), place), tls) if url.tls => {
            let files = tls.map(|(files, _)| files.clone()).unwrap_or_default();
            let Some(place) = tls.map(|(_, place)| place).or(place) else {
                return;
            };
            match connector(url, files) {
                Ok(ends) => warn_of_ends("backend_tls", ["cert", "ca"], ends, place, findings),
                Err(error @ TlsError::NoSystemAuthorities) => {
                    let message = format!("backend: rediss:// is not trusted by itself: {error}");
                    findings.error(place.clone(), message);
                }
                Err(error) => findings.error(place.clone(), format!("backend_tls: {error}")),
            }
        }
        (_, Some((_, place))) => {
            let message = "backend_tls: the backend's URL does not begin with rediss, so this is not used";
            findings.warning(place.clone(), message.to_owned());
        }
        _ => {}
    }
}

/// When the proxy's own certificate ends, and the first of the trusted authorities'.
type Ends = (Option<SystemTime>, Option<SystemTime>);

fn connector(url: &BackendUrl, files: BackendFiles) -> Result<Ends, TlsError> {
    let host = match &url.target {
        Target::Tcp { host, .. } => Some(&**host),
        Target::Sentinel(_) | Target::Cluster(_) => None,
        Target::Unix(_) => return Ok((None, None)),
    };
    Connector::new(files, host, Arc::new(Unobserved)).map(|connector| connector.ends())
}

/// Warns about certificates that end soon. Those that have ended are errors.
fn warn_of_ends(table: &str, keys: [&str; 2], (own, authorities): Ends, place: &Place, findings: &mut Findings) {
    let now = SystemTime::now();
    for (key, end) in keys.into_iter().zip([own, authorities]) {
        let Some(end) = end.filter(|end| *end <= now + ENDS_SOON) else {
            continue;
        };
        let message = format!("{table}: {key} ends {}; renew it before", humantime::format_rfc3339_seconds(end));
        findings.warning(place.clone(), message);
    }
}

//! What a load balancer appends to the addresses in a PROXY header of version 2, as types, lengths and values. Two
//! things are read: the name in the client's certificate, if the balancer terminates TLS and verified it, and the
//! private endpoint by which the client came in. Everything else is skipped.

use std::sync::Arc;

use crate::net::certificate_name::CertificateName;

/// The longest name of an endpoint, bytes. AWS's have 22.
const MAX_ENDPOINT: usize = 64;

const SSL: u8 = 0x20;
const AWS: u8 = 0xea;
const GCP: u8 = 0xe0;

/// Inside `SSL`: the common name of the client's certificate.
const SSL_COMMON_NAME: u8 = 0x22;
/// Inside `AWS`, the first byte: the ID of a PrivateLink endpoint.
const AWS_ENDPOINT: u8 = 0x01;

/// The client speaks TLS, and gave a certificate on this connection, or on an earlier one of the same TLS session.
const OVER_SSL: u8 = 0x01;
const GAVE_CERTIFICATE: u8 = 0x02 | 0x04;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// The common name of a certificate that the balancer verified.
    pub common_name: Option<CertificateName>,
    /// The private endpoint: `aws:vpce-08d2bf15fac5001c9`, `gcp:1234567890`. Clients of different networks may have the
    /// same address, and use different endpoints.
    pub endpoint: Option<Arc<str>>,
}

impl Extensions {
    /// Reads the bytes after the addresses. If they are malformed, or contain the same item twice, nothing is used.
    pub(super) fn read(bytes: &[u8]) -> Extensions {
        extensions(bytes).unwrap_or_default()
    }
}

fn extensions(bytes: &[u8]) -> Option<Extensions> {
    let mut found = Extensions::default();
    for entry in Entries(bytes) {
        let (kind, value) = entry?;
        match kind {
            SSL => put_once(&mut found.common_name, common_name(value)?)?,
            AWS => put_once(&mut found.endpoint, aws_endpoint(value))?,
            GCP => put_once(&mut found.endpoint, gcp_endpoint(value))?,
            _ => {}
        }
    }
    Some(found)
}

/// Sets a value; `None` if there is one already.
fn put_once<T>(place: &mut Option<T>, value: Option<T>) -> Option<()> {
    match (&place, value) {
        (_, None) => Some(()),
        (None, Some(value)) => {
            *place = Some(value);
            Some(())
        }
        (Some(_), Some(_)) => None,
    }
}

/// The outer `None` means a malformed extension. A client without a certificate, with one that was not verified, or
/// with a name that cannot be shown, has no name.
fn common_name(ssl: &[u8]) -> Option<Option<CertificateName>> {
    let (&client, rest) = ssl.split_first()?;
    let (verify, parts) = rest.split_first_chunk::<4>()?;
    let is_verified = client & OVER_SSL != 0 && client & GAVE_CERTIFICATE != 0 && u32::from_be_bytes(*verify) == 0;
    let mut name = None;
    for part in Entries(parts) {
        let (kind, value) = part?;
        if kind == SSL_COMMON_NAME {
            put_once(&mut name, Some(value))?;
        }
    }
    let name = name.filter(|_| is_verified);
    Some(name.and_then(|name| CertificateName::new(name).ok()))
}

fn aws_endpoint(value: &[u8]) -> Option<Arc<str>> {
    let (&kind, id) = value.split_first()?;
    let is_id = !id.is_empty() && id.len() <= MAX_ENDPOINT && id.iter().all(u8::is_ascii_graphic);
    let id = std::str::from_utf8(id).ok()?;
    (kind == AWS_ENDPOINT && is_id).then(|| format!("aws:{id}").into())
}

/// The connection id of Private Service Connect: eight bytes.
fn gcp_endpoint(value: &[u8]) -> Option<Arc<str>> {
    let id = u64::from_be_bytes(value.try_into().ok()?);
    Some(format!("gcp:{id}").into())
}

/// One byte for the type, two for the length, and the value. A truncated entry yields `None` and is the last.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Option<(u8, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.take();
        if entry.is_none() {
            self.0 = &[];
        }
        Some(entry)
    }
}

impl<'a> Entries<'a> {
    fn take(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[kind, high, low], rest) = self.0.split_first_chunk::<3>()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
        self.0 = rest;
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests;

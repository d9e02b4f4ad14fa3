//! What a balancer sends before a client's first command: headers of the PROXY protocol, version 2.

use crate::{Client, Proxy};

/// From 10.1.2.3:40000.
pub const OVER_IPV4: [u8; 12] = [10, 1, 2, 3, 10, 9, 9, 9, 0x9c, 0x40, 0x18, 0xeb];

/// A header with this command, family, and body.
///
/// # Panics
/// If the body is longer than a header can say.
#[must_use]
pub fn version_2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("a short body").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, body].concat()
}

/// An extension: its type, its length and its value.
///
/// # Panics
/// If the value is longer than an extension can say.
#[must_use]
pub fn extension(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("a short value");
    [&[kind][..], &length.to_be_bytes(), value].concat()
}

/// What a balancer that ends TLS sends for a client whose certificate has this common name; `verify` is 0 where it was
/// verified.
#[must_use]
pub fn certified(verify: u8, name: &str) -> Vec<u8> {
    let name = extension(0x22, name.as_bytes());
    extension(0x20, &[&[0x07, 0, 0, 0, verify][..], &name].concat())
}

/// A connection of a balancer for the client at 10.1.2.3, with extensions.
#[must_use]
pub fn introduced(proxy: &Proxy, extensions: &[u8]) -> Client {
    let client = Client::connect_plain(proxy.address());
    client.write(&version_2(0x21, 0x11, &[&OVER_IPV4, extensions].concat()));
    client
}

//! The name in a client's certificate, as its issuer wrote it: `spiffe://corp/ns/shop/worker`, `shop.corp`. Taken only
//! from a certificate that was verified, by the TLS listener or by a trusted load balancer. It is shown to people and
//! compared with an operator's text, so a name that could look like another one is refused.

use std::fmt;
use std::sync::Arc;

/// The longest name, bytes. SPIFFE allows 2,048, but names in use have about fifty.
pub(crate) const MAX_CERTIFICATE_NAME: usize = 256;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateName(Arc<str>);

/// Why a name in a certificate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateNameError {
    /// It is empty.
    #[error("the name is empty")]
    Empty,
    /// It is too long.
    #[error("the name is longer than {MAX_CERTIFICATE_NAME} bytes")]
    TooLong,
    /// It contains a control character, a mark that changes the direction of writing, a space other than the plain one,
    /// or broken UTF-8.
    #[error("the name has characters that cannot be printed")]
    Unprintable,
}

impl CertificateName {
    /// Checks the bytes of a name in a verified certificate.
    pub fn new(bytes: &[u8]) -> Result<CertificateName, CertificateNameError> {
        if bytes.is_empty() {
            return Err(CertificateNameError::Empty);
        }
        if bytes.len() > MAX_CERTIFICATE_NAME {
            return Err(CertificateNameError::TooLong);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) if text.chars().all(is_printable) => Ok(CertificateName(text.into())),
            Ok(_) | Err(_) => Err(CertificateNameError::Unprintable),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `char::escape_debug` knows what cannot be printed; in ASCII it also escapes quotes and the backslash.
fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        _ => !character.is_whitespace() && character.escape_debug().len() == 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_a_name() {
        for name in [
            "shop",
            "spiffe://corp/ns/shop/worker-1",
            "CN=shop, O=Größe \"&\" Söhne\\2",
            &"x".repeat(MAX_CERTIFICATE_NAME),
        ] {
            let found = CertificateName::new(name.as_bytes()).expect("it is a name");
            assert_eq!((found.as_str(), found.to_string().as_str()), (name, name));
        }
    }

    #[test]
    fn what_could_look_like_another_name_is_none() {
        use CertificateNameError::{Empty, TooLong, Unprintable};
        let long = "x".repeat(MAX_CERTIFICATE_NAME + 1);
        for (bytes, why) in [
            (&b""[..], Empty),
            (long.as_bytes(), TooLong),
            (b"shop\0", Unprintable),
            (b"shop\r\nuser=admin", Unprintable),
            (b"\x1b[31mshop", Unprintable),
            (b"shop\xff", Unprintable),
            ("shop\u{202e}nimda".as_bytes(), Unprintable),
            ("shop\u{200b}".as_bytes(), Unprintable),
            ("sh\u{a0}op".as_bytes(), Unprintable),
            ("shop\u{85}".as_bytes(), Unprintable),
        ] {
            assert_eq!(CertificateName::new(bytes), Err(why), "{bytes:?}");
        }
    }
}

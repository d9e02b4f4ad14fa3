//! The admin token: created, hidden from output, and compared.

use std::fmt;

/// The secret that authorizes orders. Debug output never contains it.
#[derive(Clone)]
pub struct AdminToken {
    secret: String,
    pub(super) origin: Origin,
}

/// The origin of an admin token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The operator chose it.
    Configured,
    /// The proxy generated it.
    Generated,
}

impl AdminToken {
    /// A token that the operator chose. It works from every host that reaches the admin address.
    pub fn configured(secret: String) -> AdminToken {
        AdminToken { secret, origin: Origin::Configured }
    }

    /// A new token of 128 random bits. It works from this machine only, where a file holds it (`token_file.rs`).
    pub fn generate() -> Result<AdminToken, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(AdminToken { secret: bytes.iter().map(|byte| format!("{byte:02x}")).collect(), origin: Origin::Generated })
    }

    /// The secret itself, for its file.
    pub(crate) fn reveal(&self) -> &str {
        &self.secret
    }

    /// Compares in a time that depends on the length only.
    pub(super) fn matches(&self, given: &[u8]) -> bool {
        let secret = self.secret.as_bytes();
        let difference = secret.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        !secret.is_empty() && secret.len() == given.len() && std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminToken({} bytes)", self.secret.len())
    }
}

//! The admin token: made, kept out of print, and compared.

use std::fmt;

/// The secret that orders are signed with. It is never printed by accident.
#[derive(Clone)]
pub struct AdminToken {
    secret: String,
    pub(super) origin: Origin,
}

/// Where an admin token comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The operator chose it.
    Configured,
    /// The proxy made it up.
    Generated,
}

impl AdminToken {
    /// One that the operator chose. It works from wherever the admin address can be reached.
    pub fn configured(secret: String) -> AdminToken {
        AdminToken { secret, origin: Origin::Configured }
    }

    /// A new one of 128 random bits. It works from this machine only, where it stands in a file
    /// (`token_file.rs`).
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

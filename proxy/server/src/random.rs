//! Random bytes from the system, fetched some at a time: every lease has a random name.

use lockwarden_lock::token::Grant;

const FETCHED: usize = 512;

/// A stock of random bytes.
pub(crate) struct Random {
    stock: [u8; FETCHED],
    used: usize,
}

impl Random {
    pub(crate) fn new() -> Random {
        Random {
            stock: [0; FETCHED],
            used: FETCHED,
        }
    }

    /// Sixteen random bytes.
    pub(crate) fn sixteen(&mut self) -> [u8; 16] {
        if self.used + 16 > FETCHED {
            fill(&mut self.stock);
            self.used = 0;
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.stock[self.used..self.used + 16]);
        self.used += 16;
        bytes
    }

    /// A name for a lease.
    pub(crate) fn grant(&mut self) -> Grant {
        Grant(self.sixteen())
    }
}

/// Fills a buffer with random bytes.
pub(crate) fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("Linux gives random bytes once it has started");
}

/// Six letters and digits that name one refusal: enough to find it in a day's log.
pub(crate) fn refusal_id() -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut bytes = [0; 6];
    fill(&mut bytes);
    bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect()
}

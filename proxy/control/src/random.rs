//! Random bytes from the system, fetched in blocks: every lease has a random name.

use std::cell::RefCell;

use lockwarden_lock::token::Grant;

const FETCHED: usize = 512;

thread_local! {
    /// Random bytes of this thread, and how many of them were used.
    static STOCK: RefCell<([u8; FETCHED], usize)> = const { RefCell::new(([0; FETCHED], FETCHED)) };
}

/// Sixteen random bytes.
pub fn sixteen() -> [u8; 16] {
    STOCK.with_borrow_mut(|(stock, used)| {
        if *used + 16 > FETCHED {
            fill(stock);
            *used = 0;
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&stock[*used..*used + 16]);
        // Bytes that were handed out are erased here.
        stock[*used..*used + 16].fill(0);
        *used += 16;
        bytes
    })
}

/// A name for a lease.
pub fn grant() -> Grant {
    Grant(sixteen())
}

/// Fills a buffer with random bytes.
pub fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("Linux gives random bytes once it has started");
}

/// Six letters and digits that name one refusal: enough to find it in a day's log.
pub fn refusal_id() -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut bytes = [0; 6];
    fill(&mut bytes);
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

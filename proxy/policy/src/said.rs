//! What policies that were built for debugging say to their author. A proxy hears none of it: it does not load them.

use std::mem;
use std::sync::{Mutex, PoisonError};

use wasmtime::component::Linker;

use crate::store::State;

/// The function that such a policy calls, and the interface it is in; `packaging.rs` has them as WIT.
pub(crate) const INTERFACE: &str = "lockwarden:debug/output@1.0.0";
const SAY: &str = "say";

/// What is kept of it, in bytes.
const MAX_BYTES: usize = 16 << 10;

/// What was said since it was last taken, piece behind piece.
#[derive(Debug, Default)]
pub struct Said(Mutex<Vec<u8>>);

impl Said {
    /// Takes what was said.
    pub fn take(&self) -> String {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&mem::take(&mut *said)).into_owned()
    }

    /// More of it; what does not fit is left out.
    fn push(&self, piece: &[u8]) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_BYTES.saturating_sub(said.len());
        said.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// Lets policies say something.
pub(crate) fn add_to_linker(linker: &mut Linker<State>, said: &std::sync::Arc<Said>) -> wasmtime::Result<()> {
    let said = said.clone();
    linker.instance(INTERFACE)?.func_wrap(SAY, move |_, (piece,): (Vec<u8>,)| {
        said.push(&piece);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_kept_up_to_a_bound_until_it_is_taken() {
        let said = Said::default();
        said.push(b"panic: ");
        said.push(b"\xff\n");
        assert_eq!(said.take(), "panic: \u{fffd}\n");
        assert_eq!(said.take(), "");
        for _ in 0..100 {
            said.push(&[b'x'; 1_000]);
        }
        assert_eq!(said.take().len(), MAX_BYTES);
    }
}

//! The output of policies built for debugging, for their author. A proxy never gets any: it does not load them.

use std::mem;
use std::sync::{Mutex, PoisonError};

use wasmtime::component::Linker;

use crate::store::State;

/// The function that such a policy calls, and its interface; `packaging.rs` has them as WIT.
pub(crate) const INTERFACE: &str = "lockwarden:debug/output@1.0.0";
const SAY: &str = "say";

/// The most bytes that are kept.
const MAX_BYTES: usize = 16 << 10;

/// The output since it was last taken, concatenated.
#[derive(Debug, Default)]
pub struct Said(Mutex<Vec<u8>>);

impl Said {
    /// Takes the output.
    pub fn take(&self) -> String {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&mem::take(&mut *said)).into_owned()
    }

    /// Appends output; what does not fit is dropped.
    fn push(&self, piece: &[u8]) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_BYTES.saturating_sub(said.len());
        said.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// Lets policies output text.
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

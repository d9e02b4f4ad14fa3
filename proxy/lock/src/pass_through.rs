//! Permission to send a client's own bytes to Redis. Only this crate makes one: `classify` for requests that touch no
//! lock or only read one, `settle` where refusals are not carried out, `administration` for the commands that it
//! allows. So forwarding an unjudged lock command does not compile:
//!
//! ```compile_fail,E0451
//! use lockwarden_lock::pass_through::PassThrough;
//! let frame = b"*2\r\n$3\r\nDEL\r\n$6\r\nlock:a\r\n";
//! let effect = lockwarden_lock::table::Effect::Neutral;
//! let keys = lockwarden_lock::table::KeySpec::None;
//! let leave = PassThrough { frame, blocking: false, only_reads: false, effect, keys };
//! ```
//!
//! ```compile_fail,E0624
//! use lockwarden_lock::pass_through::PassThrough;
//! let leave = PassThrough::of(b"*2\r\n$3\r\nDEL\r\n$6\r\nlock:a\r\n", false);
//! ```
//!
//! A permission that is kept, or is for a whole buffer, cannot be made without a given one either:
//!
//! ```compile_fail,E0451
//! use lockwarden_lock::pass_through::Kept;
//! let kept = Kept { frame: Default::default(), blocking: false, only_reads: false };
//! ```
//!
//! ```compile_fail,E0451
//! use lockwarden_lock::pass_through::WholeBuffer;
//! let leave = WholeBuffer { at: 0, length: 4 };
//! ```

use bytes::{Bytes, BytesMut};

use crate::table::{Effect, KeySpec};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct PassThrough<'a> {
    frame: &'a [u8],
    blocking: bool,
    only_reads: bool,
    effect: Effect,
    keys: KeySpec,
}

impl<'a> PassThrough<'a> {
    pub(crate) fn of(frame: &'a [u8], blocking: bool) -> PassThrough<'a> {
        PassThrough { frame, blocking, only_reads: false, effect: Effect::Neutral, keys: KeySpec::Subcommands }
    }

    /// For a command with keys at these positions.
    pub(crate) fn with_keys(self, keys: KeySpec) -> PassThrough<'a> {
        PassThrough { keys, ..self }
    }

    /// The positions of its keys; [`KeySpec::Subcommands`] if the table does not know them.
    pub fn keys(&self) -> KeySpec {
        self.keys
    }

    /// For a command with this effect on a lock, if its keys are any.
    pub(crate) fn with_effect(self, effect: Effect, only_reads: bool) -> PassThrough<'a> {
        PassThrough { only_reads, effect, ..self }
    }

    /// The effect that the command would have on a lock, if its keys were any.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// The client's bytes.
    pub fn frame(&self) -> &'a [u8] {
        self.frame
    }

    /// Whether Redis runs this command even while it holds writes back.
    pub fn only_reads(&self) -> bool {
        self.only_reads
    }

    /// Whether this command may block the client.
    pub fn is_blocking(&self) -> bool {
        self.blocking
    }

    /// Whether only the server knows this command, so that it may block the client.
    pub fn is_unknown(&self) -> bool {
        self.blocking && self.keys == KeySpec::Subcommands
    }

    /// A copy that outlives the request's buffer.
    pub fn keep(&self) -> Kept {
        Kept { frame: Bytes::copy_from_slice(self.frame), blocking: self.blocking, only_reads: self.only_reads }
    }

    /// Permission to send this buffer unchanged, if it contains only this request.
    pub fn whole(&self, buffer: &[u8]) -> Option<WholeBuffer> {
        std::ptr::eq(self.frame, buffer).then(|| WholeBuffer::of(buffer))
    }
}

/// A [`PassThrough`] with bytes of its own, for a request that has to wait.
#[derive(Clone, Debug)]
pub struct Kept {
    frame: Bytes,
    blocking: bool,
    only_reads: bool,
}

impl Kept {
    pub(crate) fn of(frame: Bytes) -> Kept {
        Kept { frame, blocking: false, only_reads: false }
    }

    /// The permission.
    pub fn pass(&self) -> PassThrough<'_> {
        PassThrough {
            frame: &self.frame,
            blocking: self.blocking,
            only_reads: self.only_reads,
            effect: Effect::Neutral,
            keys: KeySpec::Subcommands,
        }
    }
}

/// Permission to send a buffer with its memory, without a copy: it contains only a request that passes through.
#[derive(Debug, PartialEq, Eq)]
pub struct WholeBuffer {
    at: usize,
    length: usize,
}

impl WholeBuffer {
    fn of(buffer: &[u8]) -> WholeBuffer {
        WholeBuffer { at: buffer.as_ptr() as usize, length: buffer.len() }
    }

    /// The buffer; `None` if it is not the buffer that was examined.
    pub fn redeem(self, buffer: &mut BytesMut) -> Option<&mut BytesMut> {
        (self == WholeBuffer::of(buffer)).then_some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_buffer_that_the_request_fills_may_go_as_a_whole() {
        let mut buffer = BytesMut::from(&b"PING\r\nPING\r\n"[..]);
        let first = PassThrough::of(&buffer[..6], false);
        assert_eq!(first.whole(&buffer), None);
        let all = PassThrough::of(&buffer, false);
        let leave = all.whole(&buffer).expect("it is all that there is");
        assert_eq!(leave.redeem(&mut buffer.clone()), None);
        let leave = PassThrough::of(&buffer, false).whole(&buffer);
        let leave = leave.expect("it is all that there is");
        assert!(leave.redeem(&mut buffer).is_some());
    }
}

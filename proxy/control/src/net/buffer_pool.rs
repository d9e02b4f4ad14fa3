//! The memory that sockets are read into. A connection has a buffer only while it holds bytes: a reader borrows a
//! buffer from its thread, and returns it when it is empty again. So an idle connection uses no memory, and busy ones
//! read into memory that is still in the processor's cache.

use std::cell::RefCell;

use bytes::{Buf, BytesMut};

/// The most bytes of one read. A reply of 16 KiB comes in one read, and so does a batch of many short ones.
pub const READ_CHUNK: usize = 64 * 1024;
/// From this size on, bytes are passed on by moving their memory instead of copying them.
pub const WORTH_A_SWAP: usize = 4 * 1024;
/// Buffers that a thread keeps for the next reader. Where connections are shared, every client with a reply in one turn
/// has a buffer for a moment; memory that was never written to costs nothing.
const MAX_SPARE: usize = 128;
/// Larger buffers are not kept.
const MAX_SPARE_BYTES: usize = 4 * READ_CHUNK;

thread_local! {
    static SPARE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// Makes room for a read.
pub(super) fn make_room(buffer: &mut BytesMut) {
    open(buffer);
    if buffer.capacity() - buffer.len() < READ_CHUNK / 2 {
        buffer.reserve(READ_CHUNK);
    }
}

/// Gives a buffer without memory one of this thread's.
pub fn open(buffer: &mut BytesMut) {
    if buffer.capacity() == 0 {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        *buffer = spare.unwrap_or_else(|| BytesMut::with_capacity(READ_CHUNK));
    }
}

/// Appends bytes.
pub fn put(buffer: &mut BytesMut, bytes: &[u8]) {
    open(buffer);
    buffer.extend_from_slice(bytes);
}

/// Moves bytes from the front of one buffer to the end of another. If they are all of the first buffer's bytes and the
/// other is empty, their memory is moved with them, provided that they are many or the other buffer has no memory.
pub fn move_front(from: &mut BytesMut, bytes: usize, to: &mut BytesMut) {
    if bytes == from.len() && to.is_empty() && (bytes >= WORTH_A_SWAP || to.capacity() == 0) {
        std::mem::swap(from, to);
    } else {
        put(to, &from[..bytes]);
        from.advance(bytes);
    }
}

/// Returns a buffer's memory to the thread, if the buffer is empty.
pub fn give_back(buffer: &mut BytesMut) {
    if !buffer.is_empty() || buffer.capacity() == 0 {
        return;
    }
    let mut buffer = std::mem::take(buffer);
    // Slices of the buffer may still be in use; then the memory is shared.
    if !buffer.try_reclaim(READ_CHUNK) || buffer.capacity() > MAX_SPARE_BYTES {
        return;
    }
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < MAX_SPARE {
            spare.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_moved_is_copied_unless_it_is_alone_and_long_or_nothing_else_has_memory() {
        let long = vec![b'x'; WORTH_A_SWAP];
        let (none, some) = (BytesMut::new(), BytesMut::with_capacity(16));
        for (bytes, mut to, swapped) in
            [(WORTH_A_SWAP, some.clone(), true), (9, none, true), (9, some, false), (9, "y".into(), false)]
        {
            let mut from = BytesMut::from(&long[..bytes]);
            let there = String::from_utf8_lossy(&to).into_owned();
            let memory = from.as_ptr();
            move_front(&mut from, bytes, &mut to);
            assert!(from.is_empty());
            assert_eq!(to, [there.as_bytes(), &long[..bytes]].concat());
            assert_eq!(to.as_ptr() == memory, swapped);
        }
        let mut from = BytesMut::from(&[&long[..], b"z"].concat()[..]);
        let mut to = BytesMut::new();
        move_front(&mut from, long.len(), &mut to);
        assert_eq!((&from[..], &to[..]), (&b"z"[..], &long[..]));
    }

    #[test]
    fn a_buffer_that_was_given_back_is_the_next_one_and_is_empty() {
        let mut first = BytesMut::new();
        make_room(&mut first);
        first.extend_from_slice(b"secret");
        let memory = first.as_ptr();
        first.clear();
        give_back(&mut first);
        assert_eq!(first.capacity(), 0);
        let mut second = BytesMut::new();
        open(&mut second);
        assert!(second.is_empty());
        assert_eq!(second.as_ptr(), memory);
    }

    #[test]
    fn what_was_cut_from_a_buffer_keeps_its_bytes() {
        let mut buffer = BytesMut::new();
        open(&mut buffer);
        buffer.extend_from_slice(b"frame");
        let frame = buffer.split_to(5).freeze();
        give_back(&mut buffer);
        let mut next = BytesMut::new();
        open(&mut next);
        next.extend_from_slice(b"other");
        assert_eq!(frame, b"frame"[..]);
    }

    #[test]
    fn a_buffer_that_holds_something_or_is_very_large_is_not_kept() {
        let mut full = BytesMut::new();
        open(&mut full);
        full.extend_from_slice(b"x");
        give_back(&mut full);
        assert_eq!(full, b"x"[..]);
        let mut large = BytesMut::zeroed(2 * MAX_SPARE_BYTES);
        large.advance(2 * MAX_SPARE_BYTES - 1);
        large.advance(1);
        give_back(&mut large);
        assert_eq!(large.capacity(), 0);
        let mut next = BytesMut::new();
        open(&mut next);
        assert!(next.capacity() < MAX_SPARE_BYTES);
    }
}

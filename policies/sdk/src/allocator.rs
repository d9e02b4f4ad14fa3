//! The allocator of a guest: free lists of blocks whose sizes are powers of two. It takes memory from
//! the instance and never gives any back, and it knows no threads, since a guest has one. Policies
//! allocate a few short buffers a decision, for which the general allocator of the standard library
//! is slow and, being a quarter of a small policy's code, costs the proxy a quarter of its compiling.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr;

/// Where an allocator gets its memory from.
trait Pages {
    /// A new piece of memory of `bytes`, a multiple of [`PAGE_BYTES`], aligned to [`SLAB_BYTES`] and
    /// not used by anybody else; null if there is none.
    fn take(bytes: usize) -> *mut u8;
}

/// The page of WebAssembly.
const PAGE_BYTES: usize = 64 << 10;

/// Small blocks are cut from slabs of this size; it is also the largest alignment.
const SLAB_BYTES: usize = 4 << 10;

/// The smallest block: `1 << SMALLEST` bytes, enough for the link of a free block.
const SMALLEST: u32 = 4;

/// One class for each power of two that a 32-bit size can have.
const CLASSES: usize = (usize::BITS - SMALLEST) as usize;

/// An allocator. Invariants: a block of class `c` has `1 << (c + SMALLEST)` bytes and is aligned to
/// as much, up to [`SLAB_BYTES`]; it is in one free list or in use; it never changes its class.
struct Allocator<P> {
    state: UnsafeCell<State>,
    pages: PhantomData<P>,
}

struct State {
    /// The first free block of each class; its first word links to the next.
    free: [*mut Free; CLASSES],
    /// What was taken and not cut yet: from here …
    next: *mut u8,
    /// … this many bytes.
    rest: usize,
}

struct Free {
    next: *mut Free,
}

// SAFETY: a guest has one thread; natively, only tests make allocators, each for itself.
unsafe impl<P> Sync for Allocator<P> {}

#[cfg(target_family = "wasm")]
mod guest {
    use super::{Allocator, PAGE_BYTES, Pages};

    struct LinearMemory;

    impl Pages for LinearMemory {
        fn take(bytes: usize) -> *mut u8 {
            match core::arch::wasm32::memory_grow(0, bytes / PAGE_BYTES) {
                usize::MAX => core::ptr::null_mut(),
                pages_before => core::ptr::without_provenance_mut(pages_before * PAGE_BYTES),
            }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Allocator<LinearMemory> = Allocator::new();
}

/// The class of the blocks that hold this layout; none if no block can.
fn class_of(layout: Layout) -> Option<usize> {
    if layout.align() > SLAB_BYTES {
        return None;
    }
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST);
    // Rounded up to a power of two, which does not overflow: a layout has at most isize::MAX bytes.
    Some((usize::BITS - (bytes - 1).leading_zeros() - SMALLEST) as usize)
}

impl<P: Pages> Allocator<P> {
    #[cfg_attr(
        not(any(test, target_family = "wasm")),
        expect(
            dead_code,
            reason = "natively, the standard library's allocator is good enough"
        )
    )]
    const fn new() -> Allocator<P> {
        Allocator {
            state: UnsafeCell::new(State {
                free: [ptr::null_mut(); CLASSES],
                next: ptr::null_mut(),
                rest: 0,
            }),
            pages: PhantomData,
        }
    }
}

impl State {
    /// Cuts `bytes`, a multiple of [`SLAB_BYTES`], from what is there or from new pages; null if
    /// there are none.
    fn cut<P: Pages>(&mut self, bytes: usize) -> *mut u8 {
        if self.rest < bytes {
            // The rest is given up: it is less than the block that did not fit into it, so at most
            // half of all memory is lost this way.
            let taken = bytes.next_multiple_of(PAGE_BYTES);
            let pages = P::take(taken);
            if pages.is_null() {
                return pages;
            }
            (self.next, self.rest) = (pages, taken);
        }
        let block = self.next;
        self.next = block.wrapping_add(bytes);
        self.rest -= bytes;
        block
    }

    /// A new block of a class of which none is free; null if there is no memory. Small blocks come
    /// by the slab, and the others of the slab become free.
    #[cold]
    fn refill<P: Pages>(&mut self, class: usize) -> *mut u8 {
        let bytes = 1_usize << (class as u32 + SMALLEST);
        let slab = self.cut::<P>(bytes.max(SLAB_BYTES));
        if slab.is_null() {
            return slab;
        }
        for offset in (bytes..SLAB_BYTES).step_by(bytes).rev() {
            // SAFETY: the block lies in the slab that was just cut, is in use by nobody, and is
            // large enough and aligned for a link, as its size is a power of two of at least 16.
            unsafe { self.release(slab.wrapping_add(offset), class) };
        }
        slab
    }

    /// Puts a block into its free list.
    ///
    /// # Safety
    /// The block is of this class and nobody uses it any more.
    unsafe fn release(&mut self, block: *mut u8, class: usize) {
        let block: *mut Free = block.cast();
        let next = self.free[class];
        // SAFETY: the caller gives the block up, and every block has room for a link.
        unsafe { block.write(Free { next }) };
        self.free[class] = block;
    }
}

// SAFETY: blocks are disjoint, large enough and aligned for their layouts by the invariants of
// `Allocator`, and nothing in here panics or allocates.
unsafe impl<P: Pages> GlobalAlloc for Allocator<P> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class_of(layout) else {
            return ptr::null_mut();
        };
        // SAFETY: there is one thread, and no other reference outlives a call.
        let state = unsafe { &mut *self.state.get() };
        let block = state.free[class];
        if block.is_null() {
            return state.refill::<P>(class);
        }
        // SAFETY: a block in a free list begins with a link that `release` wrote.
        state.free[class] = unsafe { (*block).next };
        block.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(class) = class_of(layout) else {
            return;
        };
        // SAFETY: there is one thread, and no other reference outlives a call.
        let state = unsafe { &mut *self.state.get() };
        // SAFETY: the block came from `alloc` with this layout, so it is of this class, and the
        // caller is done with it.
        unsafe { state.release(block, class) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size makes a layout with the old alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if class_of(layout) == class_of(new_layout) {
            return block;
        }
        // SAFETY: `new_layout` is not of size zero, as the caller promises.
        let new_block = unsafe { self.alloc(new_layout) };
        if !new_block.is_null() {
            // SAFETY: both blocks have at least the smaller size, they are disjoint, and the old one
            // is of `layout` and not used after this.
            unsafe {
                ptr::copy_nonoverlapping(block, new_block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
        }
        new_block
    }
}

#[cfg(test)]
mod tests;

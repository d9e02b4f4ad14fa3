use std::alloc::System;
use std::cell::Cell;

use super::*;

thread_local! {
    /// Bytes that the allocator under test may still take.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Memory of the machine, which is never given back: a few megabytes in all.
struct Borrowed;

impl Pages for Borrowed {
    fn take(bytes: usize) -> *mut u8 {
        assert!(bytes.is_multiple_of(PAGE_BYTES));
        if bytes > LEFT.get() {
            return ptr::null_mut();
        }
        LEFT.set(LEFT.get() - bytes);
        let layout = Layout::from_size_align(bytes, SLAB_BYTES).unwrap();
        // SAFETY: the size is not zero.
        unsafe { System.alloc(layout) }
    }
}

fn allocator(bytes: usize) -> Allocator<Borrowed> {
    LEFT.set(bytes);
    Allocator::new()
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// A block that is filled with a byte of its own, so that an overlap shows.
struct Filled {
    block: *mut u8,
    layout: Layout,
    with: u8,
}

impl Filled {
    fn new(from: &Allocator<Borrowed>, layout: Layout, with: u8) -> Filled {
        // SAFETY: the tests ask for no empty layouts, and the block holds its layout's size.
        let block = unsafe {
            let block = from.alloc(layout);
            assert!(!block.is_null(), "{layout:?}");
            block.write_bytes(with, layout.size());
            block
        };
        assert!(block.addr().is_multiple_of(layout.align()), "{layout:?}");
        Filled {
            block,
            layout,
            with,
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `new` wrote all of them, and nobody else has the block.
        unsafe { std::slice::from_raw_parts(self.block, self.layout.size()) }
    }

    fn resize(&mut self, from: &Allocator<Borrowed>, size: usize) {
        let kept = size.min(self.layout.size());
        // SAFETY: the block came from this allocator with this layout; `kept` bytes were written,
        // and the rest is written here.
        unsafe {
            let block = from.realloc(self.block, self.layout, size);
            assert!(!block.is_null(), "{size}");
            let was = std::slice::from_raw_parts(block, kept);
            assert!(was.iter().all(|byte| *byte == self.with));
            block.write_bytes(self.with, size);
            self.block = block;
        }
        self.layout = layout(size, self.layout.align());
    }

    fn give_back(self, to: &Allocator<Borrowed>) {
        assert!(self.bytes().iter().all(|byte| *byte == self.with));
        // SAFETY: the block came from this allocator with this layout and is not used again.
        unsafe { to.dealloc(self.block, self.layout) };
    }
}

#[test]
fn blocks_never_overlap_whatever_the_order() {
    let allocator = allocator(64 << 20);
    let mut live: Vec<Filled> = Vec::new();
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut draw = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for round in 0..20_000 {
        let most = 1 << draw(15);
        let size = 1 + draw(most);
        match draw(5) {
            0 | 1 => {
                let align = 1 << draw(13);
                live.push(Filled::new(&allocator, layout(size, align), round as u8));
            }
            2 if !live.is_empty() => {
                let place = draw(live.len());
                live[place].resize(&allocator, size);
            }
            _ if !live.is_empty() => {
                let place = draw(live.len());
                live.swap_remove(place).give_back(&allocator);
            }
            _ => {}
        }
    }
    for block in live {
        block.give_back(&allocator);
    }
}

#[test]
fn what_was_given_back_is_used_again() {
    let allocator = allocator(4 * PAGE_BYTES);
    for round in 0..10_000_usize {
        let key = Filled::new(&allocator, layout(13 + round % 50, 1), 1);
        let token = Filled::new(&allocator, layout(36, 1), 2);
        let text = Filled::new(&allocator, layout(5_000, 1), 3);
        key.give_back(&allocator);
        text.give_back(&allocator);
        token.give_back(&allocator);
    }
}

#[test]
fn without_memory_there_is_null_and_what_was_given_stays() {
    let allocator = allocator(2 * PAGE_BYTES);
    let small = Filled::new(&allocator, layout(100, 8), 7);
    for too_much in [layout(PAGE_BYTES * 2, 1), layout(isize::MAX as usize, 1)] {
        // SAFETY: the layout is not empty.
        assert!(unsafe { allocator.alloc(too_much) }.is_null());
    }
    // SAFETY: the block came from this allocator with this layout.
    let grown = unsafe { allocator.realloc(small.block, small.layout, 1 << 20) };
    assert!(grown.is_null());
    // Nobody aligns that much in a policy.
    // SAFETY: the layout is not empty.
    assert!(unsafe { allocator.alloc(layout(1, SLAB_BYTES * 2)) }.is_null());
    small.give_back(&allocator);
    Filled::new(&allocator, layout(100, 8), 8).give_back(&allocator);
}

#[test]
fn classes_are_powers_of_two() {
    for (size, align, want) in [
        (1, 1, 0),
        (16, 1, 0),
        (17, 1, 1),
        (32, 8, 1),
        (1, 64, 2),
        (4_096, 1, 8),
        (4_097, 1, 9),
    ] {
        assert_eq!(class_of(layout(size, align)), Some(want), "{size} {align}");
    }
    let largest = class_of(layout(isize::MAX as usize, 1)).unwrap();
    assert_eq!(largest, CLASSES - 1);
}

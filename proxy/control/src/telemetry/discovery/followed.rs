//! Which keys are tracked, as a sketch that answers in a few nanoseconds. It never misses a tracked key. It may report
//! another key as tracked, which costs one examination (a Bloom filter with one function: Bloom, 1970).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lockwarden_discovery::KeyHash;

/// Bits of the sketch: with the most keys that a collector tracks, about half of them are set.
const BITS: usize = 1 << 16;

/// Two sketches that are rebuilt in turn; a key is added to both.
#[derive(Default)]
pub(super) struct Followed {
    sketches: [Sketch; 2],
    /// Which of them is rebuilt next: the second if true.
    second: AtomicBool,
    /// Whether any key is tracked.
    any: AtomicBool,
}

struct Sketch(Box<[AtomicU64]>);

impl Default for Sketch {
    fn default() -> Sketch {
        Sketch((0..BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Sketch {
    fn add(&self, hash: KeyHash) {
        let (word, bit) = place(hash);
        self.0[word].fetch_or(bit, Ordering::Relaxed);
    }

    fn has(&self, hash: KeyHash) -> bool {
        let (word, bit) = place(hash);
        self.0[word].load(Ordering::Relaxed) & bit != 0
    }
}

fn place(hash: KeyHash) -> (usize, u64) {
    let bit = hash.get() as usize % BITS;
    (bit / 64, 1 << (bit % 64))
}

impl Followed {
    /// Whether no key is tracked.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, hash: KeyHash) {
        for sketch in &self.sketches {
            sketch.add(hash);
        }
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether a key is in one of the sketches: the other one may be being rebuilt.
    pub(super) fn has(&self, hash: KeyHash) -> bool {
        self.sketches.iter().any(|sketch| sketch.has(hash))
    }

    /// Rebuilds one of the sketches from these keys, and from those added meanwhile. A key that is no longer tracked
    /// has left both sketches after the second rebuild.
    pub(super) fn renew(&self, followed: impl Iterator<Item = KeyHash>) {
        let second = self.second.fetch_xor(true, Ordering::Relaxed);
        let sketch = &self.sketches[usize::from(second)];
        for word in &sketch.0 {
            word.store(0, Ordering::Relaxed);
        }
        followed.for_each(|hash| sketch.add(hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_followed_stays_and_what_is_not_leaves() {
        let followed = Followed::default();
        let (stays, leaves) = (KeyHash::of(0, b"stays"), KeyHash::of(0, b"leaves"));
        assert!(followed.is_empty());
        for hash in [stays, leaves] {
            followed.add(hash);
            assert!(followed.has(hash));
        }
        followed.renew([stays].into_iter());
        assert!(followed.has(leaves), "it is in the other sketch");
        followed.renew([stays].into_iter());
        assert!(followed.has(stays));
        assert!(!followed.has(leaves));
        assert_ne!(KeyHash::of(0, b"a"), KeyHash::of(1, b"a"));
    }
}

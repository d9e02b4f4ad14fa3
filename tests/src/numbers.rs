//! Numbers that look random and are the same every time: a case that failed once can be repeated.

/// See the module. Made of a seed.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one, below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        // Knuth's MMIX; the high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// One of these.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// The first of them mostly.
    pub fn mostly<T: Clone>(&mut self, choices: &[T]) -> T {
        match self.below(3) {
            0 => self.one_of(choices),
            _ => choices[0].clone(),
        }
    }

    /// So many letters of an alphabet, or fewer.
    pub fn word(&mut self, alphabet: &[u8], longest: usize) -> Vec<u8> {
        let length = self.below(longest + 1);
        (0..length).map(|_| self.one_of(alphabet)).collect()
    }
}

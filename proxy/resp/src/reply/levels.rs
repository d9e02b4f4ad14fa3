//! The open aggregates, one inside the other. The first few are stored in the scanner itself, since hardly any reply
//! has more; deeper ones use memory for as long as they are open.

/// One open aggregate.
#[derive(Clone, Copy, Default)]
pub(super) struct Level {
    /// Elements still to come.
    pub(super) missing: u64,
    /// An attribute, which itself is no element.
    pub(super) is_attribute: bool,
}

/// Levels that take no memory of their own.
const NEAR: usize = 4;

/// See the module.
#[derive(Default)]
pub(super) struct Levels {
    near: [Level; NEAR],
    /// How many of those are open.
    open: usize,
    deep: Vec<Level>,
}

impl Levels {
    pub(super) fn is_empty(&self) -> bool {
        self.open == 0
    }

    pub(super) fn depth(&self) -> usize {
        self.open + self.deep.len()
    }

    /// How many levels it has memory for, besides its own.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.deep.capacity()
    }

    pub(super) fn push(&mut self, level: Level) {
        match self.near.get_mut(self.open) {
            Some(place) => {
                *place = level;
                self.open += 1;
            }
            None => self.deep.push(level),
        }
    }

    /// The innermost.
    pub(super) fn top(&mut self) -> Option<&mut Level> {
        if self.deep.is_empty() {
            return self.near.get_mut(self.open.checked_sub(1)?);
        }
        self.deep.last_mut()
    }

    pub(super) fn pop(&mut self) {
        match self.deep.pop() {
            Some(_) if self.deep.is_empty() => self.deep = Vec::new(),
            Some(_) => {}
            None => self.open = self.open.saturating_sub(1),
        }
    }
}

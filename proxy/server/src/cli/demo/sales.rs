//! What went on in a shop: the writes of its stock, and what they come to.

use std::time::Duration;

/// Items that are there to be sold.
pub(super) const ITEMS: u32 = 100;

/// A write of the stock.
#[derive(Clone, Copy)]
pub(super) struct StockWrite {
    /// How long the shop was open then.
    pub(super) at: Duration,
    /// The stock that was written, or was to be.
    pub(super) stock: u32,
    /// It was refused, and the stock is what it was.
    pub(super) is_refused: bool,
}

/// What went on in a shop until it was empty.
pub(super) struct Sales {
    /// In the order in which they were answered.
    pub(super) writes: Vec<StockWrite>,
    /// What the first worker that was refused was told.
    pub(super) refusal: Option<String>,
    /// How long it was open.
    pub(super) took: Duration,
    /// What the stock is in the end.
    pub(super) left: String,
}

impl Sales {
    /// How many writes sold an item.
    pub(super) fn sold(&self) -> usize {
        self.writes.len() - self.refused()
    }

    /// How many did not.
    pub(super) fn refused(&self) -> usize {
        self.writes.iter().filter(|write| write.is_refused).count()
    }

    /// How many items were sold that were not there.
    pub(super) fn oversold(&self) -> usize {
        self.sold().saturating_sub(ITEMS as usize)
    }

    /// The same in one line.
    pub(super) fn in_words(&self) -> String {
        let (sold, oversold) = (self.sold(), self.oversold());
        match self.refused() {
            0 => format!("{sold} sold of {ITEMS}: {oversold} oversold"),
            refused => {
                format!("{sold} sold of {ITEMS}: {oversold} oversold, {refused} late writes refused")
            }
        }
    }

    /// Whether all was sold.
    pub(super) fn are_complete(&self) -> bool {
        self.sold() >= ITEMS as usize && self.left == "0"
    }
}

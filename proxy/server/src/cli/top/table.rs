//! A list for the screen: rows and columns, sorted by one column, filtered, with as many columns as fit. It draws nothing.

use std::cmp::Ordering;

use ratatui_core::text::Span;

use crate::cli::output::{Paint, plain};

/// The space between two columns.
const GAP: u16 = 2;
/// The least width to which a column is cut.
const NARROWEST: u16 = 12;
/// The space that a heading needs beside its word: a blank and the sort arrow.
const ARROW: u16 = 2;

/// The fixed properties of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) side: Side,
    /// Columns with the largest number are left out first on a narrow screen; 0 is always shown.
    pub(super) spare: u8,
}

/// The alignment of a column, and whether it may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    /// Texts of any length.
    Cut,
    /// Numbers.
    Right,
}

/// A text with its sort value.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) paint: Paint,
    /// `None`: sorted by its text.
    number: Option<u64>,
    width: u16,
}

impl Cell {
    pub(super) fn text(text: impl AsRef<str>) -> Cell {
        Cell::new(text.as_ref(), None, Paint::Plain)
    }

    /// A number, with its text for people.
    pub(super) fn number(number: u64, text: impl AsRef<str>) -> Cell {
        Cell::new(text.as_ref(), Some(number), Paint::Plain)
    }

    pub(super) fn painted(self, paint: Paint) -> Cell {
        Cell { paint, ..self }
    }

    fn new(text: &str, number: Option<u64>, paint: Paint) -> Cell {
        let text = plain(text).into_owned();
        let width = Span::raw(&text).width();
        Cell { width: u16::try_from(width).unwrap_or(u16::MAX), text, paint, number }
    }
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The row's identity from one query to the next.
    pub(super) name: String,
    /// One for each column.
    pub(super) cells: Vec<Cell>,
}

/// Rows in the given order.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
}

/// How a list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) column: usize,
    pub(super) descending: bool,
}

impl Table {
    /// The rows that contain the text, ignoring case, in this order. Equal rows keep their order.
    pub(super) fn arranged(&self, sort: Sort, filter: &str) -> Vec<usize> {
        let filter = filter.to_lowercase();
        let contains = |row: &Row| {
            let mut cells = row.cells.iter();
            filter.is_empty() || cells.any(|cell| cell.text.to_lowercase().contains(&filter))
        };
        let mut order: Vec<usize> = (0..self.rows.len()).filter(|at| contains(&self.rows[*at])).collect();
        let cell = |at: usize| self.rows[at].cells.get(sort.column);
        order.sort_by(|one, other| {
            let ordering = match (cell(*one), cell(*other)) {
                (Some(one), Some(other)) => compared(one, other),
                (Some(_), None) | (None, Some(_)) | (None, None) => Ordering::Equal,
            };
            match sort.descending {
                true => ordering.reverse(),
                false => ordering,
            }
        });
        order
    }

    /// The columns that fit into a line, with their widths.
    pub(super) fn fit(&self, shown: &[usize], width: u16) -> Vec<(usize, u16)> {
        let natural: Vec<u16> = (0..self.columns.len()).map(|column| self.natural(column, shown)).collect();
        let least = |column: usize| match self.columns[column].side {
            Side::Cut => natural[column].min(NARROWEST),
            Side::Left | Side::Right => natural[column],
        };
        let mut chosen: Vec<usize> = (0..self.columns.len()).collect();
        while total(chosen.iter().map(|column| least(*column))) > u32::from(width) {
            let spare = chosen.iter().copied();
            let spare = spare.filter(|column| self.columns[*column].spare > 0);
            match spare.max_by_key(|column| self.columns[*column].spare) {
                Some(column) => chosen.retain(|other| *other != column),
                None => break,
            }
        }
        let mut fitted: Vec<(usize, u16)> = chosen.into_iter().map(|column| (column, natural[column])).collect();
        // If it is still too wide: first the widest column that may be cut, then the widest of all.
        for narrowest in [NARROWEST, 1] {
            loop {
                let over = total(fitted.iter().map(|(_, width)| *width));
                let Some(over) = over.checked_sub(u32::from(width)).filter(|over| *over > 0) else {
                    return fitted;
                };
                let may_shrink = |(column, width): &(usize, u16)| {
                    let cuts = self.columns[*column].side == Side::Cut || narrowest == 1;
                    cuts && *width > narrowest
                };
                let mut widths = fitted.iter_mut().filter(|one| may_shrink(one));
                let Some(first) = widths.next() else { break };
                let widest = widths.fold(first, |a, b| if b.1 > a.1 { b } else { a });
                let most = u32::from(widest.1 - narrowest);
                // In large steps while one column is far too wide.
                let step = over.min(most).div_ceil(2).max(1);
                widest.1 -= u16::try_from(step).unwrap_or(1);
            }
        }
        fitted
    }

    fn natural(&self, column: usize, shown: &[usize]) -> u16 {
        let head = self.columns[column].head.len();
        let head = u16::try_from(head).unwrap_or(u16::MAX).saturating_add(ARROW);
        let cells = shown.iter().filter_map(|at| self.rows.get(*at)?.cells.get(column));
        cells.map(|cell| cell.width).max().unwrap_or(0).max(head)
    }
}

fn total(widths: impl Iterator<Item = u16>) -> u32 {
    let with_gaps = widths.map(|width| u32::from(width) + u32::from(GAP));
    with_gaps.sum::<u32>().saturating_sub(u32::from(GAP))
}

/// The blanks between two columns, for the drawing code.
pub(super) const fn gap() -> u16 {
    GAP
}

fn compared(one: &Cell, other: &Cell) -> Ordering {
    match (one.number, other.number) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) | (None, Some(_)) | (None, None) => {
            let folded = |cell: &Cell| cell.text.to_lowercase();
            folded(one).cmp(&folded(other))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |head, side, spare| Column { head, side, spare };
        let row = |key: &str, age: u64, state: &str| Row {
            name: key.to_owned(),
            cells: vec![Cell::text(key), Cell::number(age, format!("{age} s")), Cell::text(state)],
        };
        Table {
            columns: vec![column("KEY", Side::Cut, 0), column("AGE", Side::Right, 1), column("STATE", Side::Left, 2)],
            rows: vec![
                row("lock:b", 9, "held"),
                row("lock:a-much-longer-name-of-a-key", 10, "HELD"),
                row("other", 10, "no TTL"),
            ],
        }
    }

    fn sorted(column: usize, descending: bool, filter: &str) -> Vec<usize> {
        table().arranged(Sort { column, descending }, filter)
    }

    #[test]
    fn numbers_are_sorted_as_numbers_and_what_is_alike_stays() {
        assert_eq!(sorted(1, false, ""), [0, 1, 2]);
        assert_eq!(sorted(1, true, ""), [1, 2, 0]);
        assert_eq!(sorted(0, false, ""), [1, 0, 2]);
        assert_eq!(sorted(2, true, ""), [2, 0, 1]);
        assert_eq!(sorted(7, true, ""), [0, 1, 2], "there is no such column");
    }

    #[test]
    fn a_filter_looks_into_every_cell_whatever_the_case() {
        assert_eq!(sorted(0, false, "held"), [1, 0]);
        assert_eq!(sorted(0, false, "LOCK:B"), [0]);
        assert_eq!(sorted(0, false, "10 s"), [1, 2]);
        assert_eq!(sorted(0, false, "nothing"), Vec::<usize>::new());
    }

    #[test]
    fn a_narrow_screen_cuts_long_texts_and_then_leaves_columns_out() {
        let all = [0, 1, 2];
        let fit = |width| table().fit(&all, width);
        assert_eq!(fit(80), [(0, 32), (1, 5), (2, 7)]);
        assert_eq!(fit(40), [(0, 24), (1, 5), (2, 7)]);
        assert_eq!(fit(28), [(0, 12), (1, 5), (2, 7)]);
        assert_eq!(fit(27), [(0, 20), (1, 5)]);
        assert_eq!(fit(15), [(0, 15)]);
        assert_eq!(fit(3), [(0, 3)]);
        assert_eq!(fit(0), [(0, 1)]);
    }

    #[test]
    fn a_text_has_nothing_that_a_terminal_would_obey_and_the_width_that_it_takes() {
        let cell = Cell::text("a\u{1b}[2J\u{202e}日本");
        assert_eq!(cell.text, r"a\x1b[2J\xe2\x80\xae日本");
        assert_eq!(cell.width, 24);
    }
}

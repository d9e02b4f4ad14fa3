//! The output of the commands that show something: tables for people, JSON on request. This module defines columns, colours and
//! the spelling of times; all foreign text goes through [`plain`], and all output through `checked`, because clients choose
//! keys and names and a terminal obeys control sequences.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
use serde::Serialize;

pub(super) use lockwarden_control::text::durations::duration;
pub(super) use lockwarden_control::text::escape::readable as plain;
use lockwarden_control::text::escape::{is_plain, put_json};
use lockwarden_control::text::numbers::number;

/// The space between two columns.
const GAP: &str = "  ";
/// The least width to which a column is cut, characters.
const NARROWEST: usize = 12;

/// In which form.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Output {
    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub(super) output: Format,
}

impl Output {
    /// Prints an answer: for programs as it is, for people as `text` says it.
    pub(super) fn print(self, answer: &impl Serialize, text: impl FnOnce(Screen) -> String) -> io::Result<()> {
        print(&match self.output {
            Format::Json => json(answer),
            Format::Text => text(Screen::there_is()),
        })?;
        Ok(())
    }
}

/// What a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// For programs: what the admin address answers
    Json,
}

/// The capabilities of standard output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// Characters per line; `None`: no limit.
    width: Option<usize>,
    colours: bool,
}

impl Screen {
    /// The current one: a terminal has its width and, unless `NO_COLOR` is set, colours; anything else has neither.
    pub(super) fn there_is() -> Screen {
        let terminal = io::stdout().is_terminal();
        let says_no = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Screen { width: terminal.then(columns).flatten(), colours: terminal && !dumb && !says_no("NO_COLOR") }
    }

    /// Whether colours are used.
    pub(super) fn has_colours(self) -> bool {
        self.colours
    }

    /// The text in a colour, if colours are used.
    pub(super) fn paint<'a>(self, text: &'a str, paint: Paint) -> Cow<'a, str> {
        match (self.colours, paint.code()) {
            (true, Some(code)) => Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m")),
            (true, None) | (false, _) => Cow::Borrowed(text),
        }
    }
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    /// Nothing special.
    Plain,
    /// A heading.
    Head,
    /// All is well.
    Good,
    /// Should be checked.
    Doubtful,
    /// Should be checked now.
    Bad,
}

impl Paint {
    fn code(self) -> Option<&'static str> {
        match self {
            Paint::Plain => None,
            Paint::Head => Some("1"),
            Paint::Good => Some("32"),
            Paint::Doubtful => Some("33"),
            Paint::Bad => Some("31"),
        }
    }
}

/// The alignment of a column, and whether it may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Words.
    Left,
    /// Words of any length.
    Cut,
    /// Numbers.
    Right,
}

/// The content of a cell: words, or a number, and its meaning.
pub(super) struct Cell {
    text: String,
    paint: Paint,
}

impl From<(String, Paint)> for Cell {
    fn from((text, paint): (String, Paint)) -> Cell {
        Cell { text: plain(&text).into_owned(), paint }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::from((text, Paint::Plain))
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_owned())
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Cell {
        Cell::from(number(count))
    }
}

/// An unknown value.
impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(known: Option<T>) -> Cell {
        known.map_or_else(|| Cell::from("-"), T::into)
    }
}

/// Rows under headings, each column as wide as its widest text.
pub(super) struct Table<'a, R> {
    rows: &'a [R],
    columns: Vec<TableColumn>,
}

struct TableColumn {
    head: Cell,
    kind: Column,
    /// One per row.
    cells: Vec<Cell>,
}

impl<'a, R> Table<'a, R> {
    /// A table with a row for each element.
    pub(super) fn of(rows: &'a [R]) -> Table<'a, R> {
        Table { rows, columns: Vec::new() }
    }

    /// Adds a column of words.
    pub(super) fn left<C: Into<Cell>>(self, head: &str, cell: impl Fn(&'a R) -> C) -> Self {
        self.column(head, Column::Left, cell)
    }

    /// Adds a column of words of any length: the widest of these is cut first on a narrow screen.
    pub(super) fn cut<C: Into<Cell>>(self, head: &str, cell: impl Fn(&'a R) -> C) -> Self {
        self.column(head, Column::Cut, cell)
    }

    /// Adds a column of numbers.
    pub(super) fn right<C: Into<Cell>>(self, head: &str, cell: impl Fn(&'a R) -> C) -> Self {
        self.column(head, Column::Right, cell)
    }

    /// Adds a column that is shown only if it has content.
    pub(super) fn column_if<C: Into<Cell>>(
        self,
        is_there: bool,
        head: &str,
        kind: Column,
        cell: impl Fn(&'a R) -> C,
    ) -> Self {
        match is_there {
            true => self.column(head, kind, cell),
            false => self,
        }
    }

    fn column<C: Into<Cell>>(mut self, head: &str, kind: Column, cell: impl Fn(&'a R) -> C) -> Self {
        let head = Cell::from((head.to_owned(), Paint::Head));
        self.columns.push(TableColumn { head, kind, cells: self.rows.iter().map(|row| cell(row).into()).collect() });
        self
    }

    /// The whole table, each line with its line end.
    pub(super) fn show(&self, screen: Screen) -> String {
        let widths = self.widths(screen.width);
        let mut text = String::new();
        self.line(&mut text, |column| &column.head, &widths, screen);
        for row in 0..self.rows.len() {
            self.line(&mut text, |column| &column.cells[row], &widths, screen);
        }
        text
    }

    /// The same; empty if there are no rows.
    pub(super) fn show_if_any(&self, screen: Screen) -> String {
        match self.rows.is_empty() {
            true => String::new(),
            false => self.show(screen),
        }
    }

    fn line(&self, text: &mut String, cell: impl Fn(&TableColumn) -> &Cell, widths: &[usize], screen: Screen) {
        // Blanks are held back until a text follows, so that no line ends in blanks.
        let mut blanks = 0;
        for (at, (column, &width)) in self.columns.iter().zip(widths).enumerate() {
            if at > 0 {
                blanks += GAP.len();
            }
            let Cell { text: words, paint } = cell(column);
            let words = cut(words, width);
            let room = width - words.chars().count();
            if column.kind == Column::Right {
                blanks += room;
            }
            if !words.is_empty() {
                text.extend(std::iter::repeat_n(' ', blanks));
                text.push_str(&screen.paint(&words, *paint));
                blanks = 0;
            }
            if column.kind != Column::Right {
                blanks += room;
            }
        }
        text.push('\n');
    }

    fn widths(&self, most: Option<usize>) -> Vec<usize> {
        let widest = |column: &TableColumn| {
            let cells = std::iter::once(&column.head).chain(&column.cells);
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = self.columns.iter().map(widest).collect();
        let Some(most) = most else {
            return widths;
        };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > most {
            let widest = self
                .columns
                .iter()
                .zip(&mut widths)
                .filter(|(column, width)| column.kind == Column::Cut && **width > NARROWEST)
                .max_by_key(|(_, width)| **width);
            match widest {
                Some((_, width)) => *width -= 1,
                None => break,
            }
        }
        widths
    }
}

/// The first characters, with a mark if some are missing.
fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    Cow::Owned(short)
}

/// A first line that should be read before all others, if there is one.
pub(super) fn warning(text: Option<&str>, screen: Screen) -> String {
    text.map_or_else(String::new, |text| format!("{}\n", screen.paint(&plain(text), Paint::Bad)))
}

/// The escape sequences before and after a coloured text.
const PAINTS: [&str; 5] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"];

/// The checked output, from any source: without control characters except our own colours.
fn checked(text: &str) -> Cow<'_, str> {
    let is_odd = |c: char| !is_plain(c) && !matches!(c, '\n' | '\t');
    let Some(first) = text.find(is_odd) else {
        return Cow::Borrowed(text);
    };
    let (mut shown, mut rest) = (text[..first].to_owned(), &text[first..]);
    while let Some(odd) = rest.chars().next() {
        let paint = PAINTS.iter().find(|paint| rest.starts_with(**paint));
        let behind = match paint {
            Some(paint) => {
                shown.push_str(paint);
                paint.len()
            }
            None => {
                put_json(&mut shown, odd);
                odd.len_utf8()
            }
        };
        rest = &rest[behind..];
        let next = rest.find(is_odd).unwrap_or(rest.len());
        shown.push_str(&rest[..next]);
        rest = &rest[next..];
    }
    Cow::Owned(shown)
}

/// Prints an answer; returns false if the reader has closed the pipe, which is no error.
pub(super) fn print(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    let text = checked(text);
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// An answer as JSON, also readable for people.
pub(super) fn json(answer: &impl Serialize) -> String {
    // Types of the API have only text keys, so they can always be written.
    let mut text = serde_json::to_string_pretty(answer).unwrap_or_default();
    text.push('\n');
    text
}

/// How long ago an event was, on the proxy's clock.
pub(super) fn ago(at: u64, now: u64) -> String {
    format!("{} ago", duration(now.saturating_sub(at)))
}

/// The width of the terminal: `COLUMNS`, otherwise the terminal's own value.
fn columns() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    said.or_else(|| {
        // SAFETY: an all-zero `winsize` is valid, and the pointer is to one that outlives the call.
        let size = unsafe {
            let mut size: libc::winsize = std::mem::zeroed();
            match libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) {
                0 => Some(usize::from(size.ws_col)),
                _ => None,
            }
        };
        size.filter(|&width| width > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DARK: Screen = Screen { width: None, colours: false };

    const ROWS: [(&str, &str, &str); 2] = [("lock:a", "1 s", "acquire"), ("lock:a-much-longer-one", "12.5 s", "")];

    fn table() -> Table<'static, (&'static str, &'static str, &'static str)> {
        Table::of(&ROWS)
            .cut("KEY", |(key, _, _)| *key)
            .right("AGE", |(_, age, _)| *age)
            .left("SEEN", |(_, _, seen)| *seen)
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_text() {
        assert_eq!(
            table().show(DARK),
            "KEY                        AGE  SEEN\n\
             lock:a                     1 s  acquire\n\
             lock:a-much-longer-one  12.5 s\n"
        );
    }

    #[test]
    fn a_narrow_screen_cuts_only_what_may_be_cut() {
        let narrow = Screen { width: Some(32), ..DARK };
        assert_eq!(
            table().show(narrow),
            "KEY                 AGE  SEEN\n\
             lock:a              1 s  acquire\n\
             lock:a-much-lo…  12.5 s\n"
        );
        let hopeless = Screen { width: Some(5), ..DARK };
        assert!(table().show(hopeless).contains("lock:a-much…  12.5 s\n"));
    }

    #[test]
    fn a_colour_takes_no_room() {
        let table = Table::of(&["x"]).left("A", |_| ("bad".to_owned(), Paint::Bad)).left("B", |word| *word);
        let bright = Screen { width: None, colours: true };
        assert_eq!(table.show(bright), "\x1b[1mA\x1b[0m    \x1b[1mB\x1b[0m\n\x1b[31mbad\x1b[0m  x\n");
    }

    #[test]
    fn a_terminal_is_sent_nothing_that_it_would_obey() {
        let odd = "a\x1b[2Jb\u{202e}c\u{9b}d\u{7f}";
        let rows = [format!("{odd}\ne")];
        let table = Table::of(&rows).cut("KEY", |key| key.as_str());
        assert_eq!(table.show(DARK), "KEY\na\\x1b[2Jb\\xe2\\x80\\xaec\\xc2\\x9bd\\x7f\\x0ae\n");
        // Also where the code forgot to escape a text.
        assert_eq!(checked(&format!("\x1b[31m{odd}\x1b[0m\n")), "\x1b[31ma\\u001b[2Jb\\u202ec\\u009bd\\u007f\x1b[0m\n");
        assert_eq!(checked("größe:日本\n"), "größe:日本\n");
    }
}

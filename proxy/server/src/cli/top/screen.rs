//! The content of the screen, and the keys: tabs, one list, the selected row in full, errors, help for the keys. Works with 80
//! columns and 24 lines and with less, down to nothing.

use std::time::Instant;

use lockwarden_control::clock;
use lockwarden_control::text::numbers::number;
use ratatui_core::layout::{Constraint, Rect};
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span, Text};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_widgets::paragraph::{Paragraph, Wrap};
use ratatui_widgets::table;

use super::lists::{Done, FIRST_SORT, LISTS, Look, Shown};
use super::table::{Cell, Side, Sort, Table, gap};
use crate::cli::api_client::ApiError;
use crate::cli::fleet::Answers;
use crate::cli::output::{Paint, duration, plain};

/// The longest filter, characters.
const MAX_FILTER: usize = 100;
/// Lines for the selected row, if the screen is high enough.
const CHOSEN_LINES: u16 = 2;
/// The least number of lines of such a screen.
const HIGH: u16 = 14;
/// Lines for proxies without a reply.
const MAX_TROUBLES: usize = 3;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Changed,
    /// Everything has to be drawn again.
    Cleared,
    /// The user quits.
    Ended,
}

/// The position in one list.
#[derive(Clone, Debug)]
struct Place {
    sort: Sort,
    /// The selected row, by its place on the screen and by its name.
    chosen: usize,
    name: Option<String>,
    /// The first visible row.
    top: usize,
}

/// See the module.
pub(super) struct Board {
    colours: bool,
    shown: Shown,
    done: Done,
    /// The time of the query that is shown, or of a later failed one.
    looked: Instant,
    troubles: Vec<String>,
    /// The last query had no reply, so the shown data is old.
    is_old: bool,
    is_paused: bool,
    tab: usize,
    places: [Place; 3],
    filter: String,
    is_typing: bool,
    /// The rows of the current list, filtered and sorted.
    order: Vec<usize>,
    /// Rows that fitted at the last drawing.
    page: usize,
}

impl Board {
    pub(super) fn new(colours: bool) -> Board {
        let place = Place { sort: Sort { column: 0, descending: false }, chosen: 0, name: None, top: 0 };
        Board {
            colours,
            shown: Shown::default(),
            done: Done::new(),
            looked: Instant::now(),
            troubles: Vec::new(),
            is_old: false,
            is_paused: false,
            tab: 0,
            places: [place.clone(), place.clone(), place],
            filter: String::new(),
            is_typing: false,
            order: Vec::new(),
            page: 1,
        }
    }

    /// Shows the replies, unless the screen is paused.
    pub(super) fn show(&mut self, answers: &Answers<Look>) {
        let silent = answers.silent();
        self.troubles = silent.map(|(proxy, error)| format!("{proxy}: {error}")).collect();
        self.is_old = answers.answers.is_empty();
        if self.is_paused || self.is_old {
            return;
        }
        let is_first = self.shown.tables[0].columns.is_empty();
        self.shown = Shown::of(answers, &mut self.done);
        self.looked = Instant::now();
        if is_first {
            self.sort_as_at_first();
        }
        self.arrange();
    }

    /// The only proxy did not reply: its last reply stays visible.
    pub(super) fn fail(&mut self, error: &ApiError) {
        self.troubles = vec![error.to_string()];
        self.is_old = true;
    }

    fn sort_as_at_first(&mut self) {
        for ((place, table), (head, descending)) in self.places.iter_mut().zip(&self.shown.tables).zip(FIRST_SORT) {
            let mut heads = table.columns.iter();
            let column = heads.position(|column| column.head == head).unwrap_or(0);
            place.sort = Sort { column, descending };
        }
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> After {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'C') if with_control => return After::Ended,
            KeyCode::Char('l' | 'L') if with_control => return After::Cleared,
            _ if self.is_typing => self.type_filter(key.code, with_control),
            KeyCode::Char('q' | 'Q') => return After::Ended,
            KeyCode::Tab => self.turn_to((self.tab + 1) % LISTS.len()),
            KeyCode::BackTab => self.turn_to((self.tab + LISTS.len() - 1) % LISTS.len()),
            KeyCode::Char('1') => self.turn_to(0),
            KeyCode::Char('2') => self.turn_to(1),
            KeyCode::Char('3') => self.turn_to(2),
            KeyCode::Right | KeyCode::Char('>' | 'l') => self.sort_by_next(true),
            KeyCode::Left | KeyCode::Char('<' | 'h') => self.sort_by_next(false),
            KeyCode::Char('r') => {
                let sort = &mut self.places[self.tab].sort;
                sort.descending = !sort.descending;
                self.arrange();
            }
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Down | KeyCode::Char('j') => self.choose(1, true),
            KeyCode::Up | KeyCode::Char('k') => self.choose(1, false),
            KeyCode::PageDown => self.choose(self.page, true),
            KeyCode::PageUp => self.choose(self.page, false),
            KeyCode::Home | KeyCode::Char('g') => self.choose(usize::MAX, false),
            KeyCode::End | KeyCode::Char('G') => self.choose(usize::MAX, true),
            _ => {}
        }
        After::Changed
    }

    fn type_filter(&mut self, code: KeyCode, with_control: bool) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char('u') if with_control => self.filter.clear(),
            KeyCode::Char(typed) if !with_control && self.filter.chars().count() < MAX_FILTER => {
                self.filter.push(typed);
            }
            _ => {}
        }
        self.arrange();
    }

    fn turn_to(&mut self, tab: usize) {
        self.tab = tab;
        self.arrange();
    }

    fn sort_by_next(&mut self, forwards: bool) {
        let columns = self.table().columns.len().max(1);
        let step = if forwards { 1 } else { columns - 1 };
        let column = (self.places[self.tab].sort.column + step) % columns;
        // A column of numbers begins with the largest.
        let descending = self.table().columns.get(column);
        let descending = descending.is_some_and(|column| column.side == Side::Right);
        self.places[self.tab].sort = Sort { column, descending };
        self.arrange();
    }

    fn choose(&mut self, rows: usize, down: bool) {
        let last = self.order.len().saturating_sub(1);
        let place = &mut self.places[self.tab];
        place.chosen = match down {
            true => place.chosen.saturating_add(rows).min(last),
            false => place.chosen.saturating_sub(rows),
        };
        self.remember();
    }

    fn remember(&mut self) {
        let row = self.order.get(self.places[self.tab].chosen);
        let row = row.and_then(|at| self.table().rows.get(*at));
        let name = row.map(|row| row.name.clone());
        self.places[self.tab].name = name;
    }

    fn table(&self) -> &Table {
        &self.shown.tables[self.tab]
    }

    /// Sorts the rows. A selected row stays selected wherever it is now; a selection at the top stays at the top.
    fn arrange(&mut self) {
        let place = &self.places[self.tab];
        self.order = self.table().arranged(place.sort, &self.filter);
        let is_it = |at: &usize| {
            let row = self.table().rows.get(*at);
            row.map(|row| &row.name) == place.name.as_ref()
        };
        let found = self.order.iter().position(is_it);
        let chosen = match place.chosen {
            0 => 0,
            at => found.unwrap_or(at),
        };
        self.places[self.tab].chosen = chosen.min(self.order.len().saturating_sub(1));
        self.remember();
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let mut rows = Rows { left: area, high: area.height >= HIGH };
        // The list gets the space that the other parts leave; on a low screen they leave more.
        let head = rows.take_top(1);
        let tabs = rows.take_top(1);
        let help = rows.take_bottom(1);
        let troubles = self.trouble_lines();
        let trouble = rows.take_bottom(u16::try_from(troubles.len()).unwrap_or(0));
        let chosen = rows.take_bottom(if rows.high { CHOSEN_LINES } else { 0 });
        self.draw_list(frame, rows.left);
        frame.render_widget(Paragraph::new(self.head(head.width)), head);
        frame.render_widget(Paragraph::new(self.tabs(tabs.width)), tabs);
        frame.render_widget(self.chosen(), chosen);
        frame.render_widget(Paragraph::new(Text::from(troubles)), trouble);
        frame.render_widget(Paragraph::new(self.help(help.width)), help);
    }

    fn head(&self, width: u16) -> Line<'static> {
        let mut parts = vec![("lockwarden top".to_owned(), self.style(Paint::Head))];
        if self.is_paused {
            parts.push(("paused".to_owned(), self.style(Paint::Doubtful)));
        }
        let figures = self.shown.figures.iter();
        parts.extend(figures.map(|(text, paint)| (plain(text).into_owned(), self.style(*paint))));
        joined(parts, " · ", width)
    }

    fn tabs(&self, width: u16) -> Line<'static> {
        let tabs = LISTS.iter().zip(self.shown.counts).enumerate();
        let mut parts: Vec<_> = tabs
            .map(|(at, (name, count))| {
                let style = match at == self.tab {
                    true => Style::new().add_modifier(Modifier::REVERSED),
                    false => Style::new(),
                };
                (format!(" {} {name} {} ", at + 1, number(count)), style)
            })
            .collect();
        // The current tab is visible on any width.
        if joined(parts.clone(), " ", width).spans.len() < parts.len() * 2 - 1 {
            parts.rotate_left(self.tab);
        }
        if !self.filter.is_empty() && !self.is_typing {
            let text = format!("filter: {}", plain(&self.filter));
            parts.push((text, self.style(Paint::Doubtful)));
        }
        joined(parts, " ", width)
    }

    fn trouble_lines(&self) -> Vec<Line<'static>> {
        let shown = self.troubles.iter().take(MAX_TROUBLES);
        let mut lines: Vec<String> = shown.map(|trouble| plain(trouble).into_owned()).collect();
        if let Some(more) = self.troubles.len().checked_sub(MAX_TROUBLES + 1) {
            lines.push(format!("and {} proxies more do not answer", more + 1));
        }
        if self.is_old {
            let ms = clock::ms(self.looked.elapsed());
            let text = format!("this is what was so {} ago; trying on", duration(ms));
            lines.insert(0, text);
        }
        let style = self.style(Paint::Bad);
        lines.into_iter().map(|line| Line::styled(line, style)).collect()
    }

    fn help(&self, width: u16) -> Line<'static> {
        if self.is_typing {
            let text = format!("filter: {}_   Enter keeps it, Esc takes it away", plain(&self.filter));
            return Line::styled(text, self.style(Paint::Head));
        }
        let keys =
            ["q quit", "Tab list", "←→ sort by", "r reverse", "/ filter", "↑↓ choose", "p pause", "Esc no filter"];
        let dim = Style::new().add_modifier(Modifier::DIM);
        let parts = keys.into_iter().map(|key| (key.to_owned(), dim));
        joined(parts.collect(), "  ", width)
    }

    /// The selected row with all its columns, also those without room in the list.
    fn chosen(&self) -> Paragraph<'static> {
        let place = &self.places[self.tab];
        let row = self.order.get(place.chosen);
        let row = row.and_then(|at| self.table().rows.get(*at));
        let cells = row.map_or(&[][..], |row| &row.cells);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let spans = self.table().columns.iter().zip(cells).flat_map(|(column, cell)| {
            [Span::styled(format!("{} ", column.head), dim), Span::raw(format!("{}  ", cell.text))]
        });
        Paragraph::new(Line::from_iter(spans)).wrap(Wrap { trim: true })
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let room = usize::from(area.height.saturating_sub(1));
        self.page = room.max(1);
        let place = &mut self.places[self.tab];
        if place.chosen < place.top {
            place.top = place.chosen;
        }
        if place.chosen >= place.top + self.page {
            place.top = place.chosen + 1 - self.page;
        }
        let (place, table) = (&self.places[self.tab], &self.shown.tables[self.tab]);
        let on_screen = self.order.iter().skip(place.top).take(room);
        let on_screen: Vec<usize> = on_screen.copied().collect();
        if self.order.is_empty() {
            let text = match (self.filter.is_empty(), self.tab) {
                (false, _) => "nothing matches the filter",
                (true, 0) => "no lock is held",
                (true, 1) => "no application has used a lock",
                (true, _) => "nothing was refused",
            };
            frame.render_widget(Paragraph::new(text), area);
            return;
        }
        let fitted = table.fit(&self.order, area.width);
        let widths = fitted.iter().map(|(_, width)| Constraint::Length(*width));
        let head = fitted.iter().map(|(column, width)| {
            let sorted = (place.sort.column == *column).then_some(place.sort.descending);
            heading(table, *column, sorted, *width)
        });
        let bold = self.style(Paint::Head);
        let rows = on_screen.iter().enumerate().map(|(at, row)| {
            let cells = &table.rows[*row].cells;
            let cells =
                fitted.iter().map(|(column, width)| self.cell(&cells[*column], table.columns[*column].side, *width));
            let row = table::Row::new(cells.collect::<Vec<_>>());
            match place.top + at == place.chosen {
                true => row.style(Style::new().add_modifier(Modifier::REVERSED)),
                false => row,
            }
        });
        let list = table::Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
            .header(table::Row::new(head.collect::<Vec<_>>()).style(bold))
            .column_spacing(gap());
        frame.render_widget(list, area);
    }

    fn cell(&self, cell: &Cell, side: Side, width: u16) -> table::Cell<'static> {
        let line = Line::raw(cut(&cell.text, width));
        let line = match side {
            Side::Right => line.right_aligned(),
            Side::Left | Side::Cut => line,
        };
        table::Cell::new(line).style(self.style(cell.paint))
    }

    fn style(&self, paint: Paint) -> Style {
        let plain = Style::new();
        match (paint, self.colours) {
            (Paint::Plain, _) => plain,
            (Paint::Head, _) => plain.add_modifier(Modifier::BOLD),
            (Paint::Good, true) => plain.fg(Color::Green),
            (Paint::Doubtful, true) => plain.fg(Color::Yellow),
            (Paint::Bad, true) => plain.fg(Color::Red),
            (Paint::Good, false) => plain,
            (Paint::Doubtful | Paint::Bad, false) => plain.add_modifier(Modifier::BOLD),
        }
    }
}

/// The lines that are still free.
struct Rows {
    left: Rect,
    high: bool,
}

impl Rows {
    fn take_top(&mut self, lines: u16) -> Rect {
        let lines = lines.min(self.left.height);
        let taken = Rect { height: lines, ..self.left };
        self.left.y += lines;
        self.left.height -= lines;
        taken
    }

    fn take_bottom(&mut self, lines: u16) -> Rect {
        let lines = lines.min(self.left.height);
        self.left.height -= lines;
        Rect { y: self.left.y + self.left.height, height: lines, ..self.left }
    }
}

fn heading(table: &Table, column: usize, sorted: Option<bool>, width: u16) -> table::Cell<'static> {
    let column = table.columns[column];
    let arrow = match sorted {
        Some(true) => " ▼",
        Some(false) => " ▲",
        None => "",
    };
    let line = Line::raw(cut(&format!("{}{arrow}", column.head), width));
    table::Cell::new(match column.side {
        Side::Right => line.right_aligned(),
        Side::Left | Side::Cut => line,
    })
}

/// As many parts as fit, from the first on.
fn joined(parts: Vec<(String, Style)>, between: &'static str, width: u16) -> Line<'static> {
    let mut line = Line::default();
    for (text, style) in parts {
        let span = Span::styled(text, style);
        if line.spans.is_empty() {
            line.push_span(span);
            continue;
        }
        let gap = Span::raw(between);
        if line.width() + gap.width() + span.width() > usize::from(width) {
            break;
        }
        line.push_span(gap);
        line.push_span(span);
    }
    line
}

/// The text as far as it fits, with a mark if some is missing.
fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut taken = 1;
    for letter in text.chars() {
        let mut buffer = [0; 4];
        taken += Span::raw(&*letter.encode_utf8(&mut buffer)).width();
        if taken > width {
            break;
        }
        short.push(letter);
    }
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use std::io;

    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;
    use serde_json::json;

    use super::*;

    fn look(operations: u64, now: u64) -> Answers<Look> {
        let totals = json!({
            "held": 2, "waiting": 0, "refused_last_hour": 1, "would_refuse_last_hour": 0,
            "overlaps_last_day": 0, "without_ttl": 0,
        });
        let overview = json!({
            "version": "0", "started_at": 0, "now": now, "namespaces": [], "policies": [], "unseen": 0,
            "backend": { "address": "redis://r", "version": null, "up": false, "problem": "gone" },
            "totals": totals,
        });
        let lock = |key: &str, age: u64| {
            json!({
                "key": key, "db": 0, "namespace": "orders", "state": "held", "holder": null,
                "token": null, "fence": 7, "since": 1000 - age, "age_ms": age, "ttl_left_ms": 5000,
                "ttl_ms": 6000, "kept_alive": false, "waiters": 0, "seen": "acquire",
            })
        };
        let locks = json!({
            "now": now, "matching": 2, "locks": [lock("lock:a", 900), lock("lock:b", 500)],
        });
        let usage = json!({
            "namespace": "orders", "mode": "enforce", "operations": operations, "acquired": 3,
            "contended": 1, "overlaps": 0, "refusals": [], "findings": [],
        });
        let application = json!({
            "application": "billing", "libraries": [], "connections": 1, "ready": true,
            "verdict": "", "namespaces": [usage],
        });
        Answers::of_one(Look {
            overview: serde_json::from_value(overview).unwrap(),
            locks: serde_json::from_value(locks).unwrap(),
            applications: vec![serde_json::from_value(application).unwrap()],
            refusals: Vec::new(),
        })
    }

    fn drawn(board: &mut Board, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| board.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width.max(1)));
        let line =
            |cells: &[ratatui_core::buffer::Cell]| -> String { cells.iter().map(|cell| cell.symbol()).collect() };
        lines.map(line).collect()
    }

    fn press(board: &mut Board, code: KeyCode) -> After {
        board.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn every_size_is_drawn_before_and_after_the_first_look() {
        for colours in [false, true] {
            let mut board = Board::new(colours);
            for width in [0, 1, 2, 5, 11, 12, 13, 40, 80, 300] {
                for height in [0, 1, 2, 3, 4, 13, 14, 24, 90] {
                    drawn(&mut board, width, height);
                }
            }
            board.show(&look(10, 5000));
            for tab in ['1', '2', '3'] {
                press(&mut board, KeyCode::Char(tab));
                for width in [0, 1, 2, 5, 11, 12, 13, 40, 80, 300] {
                    for height in [0, 1, 2, 3, 4, 13, 14, 24, 90] {
                        drawn(&mut board, width, height);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_stands_first_and_above_the_keys() {
        let mut board = Board::new(true);
        board.show(&look(10, 5000));
        let lines = drawn(&mut board, 80, 24);
        assert!(lines[0].starts_with("lockwarden top · redis://r down: gone · held 2"), "{lines:#?}");
        board.fail(&ApiError::Unreachable {
            address: "here\u{1b}[2J".to_owned(),
            source: io::ErrorKind::TimedOut.into(),
        });
        let lines = drawn(&mut board, 80, 24);
        assert!(lines[21].contains("this is what was so"), "{lines:#?}");
        assert!(lines[22].contains(r"here\x1b[2J cannot be reached"), "{lines:#?}");
        assert!(lines[3].contains("lock:a"), "what was known stays");
    }

    #[test]
    fn what_a_failover_has_brought_about_stands_before_what_is_held() {
        let mut answers = look(10, 5000);
        let overview = &mut answers.answers[0].answer.overview;
        overview.backend.problem = None;
        overview.totals.lost_last_day = 2;
        overview.totals.unknown = 1;
        overview.backend.sentinels = serde_json::from_value(json!({
            "name": "mymaster", "primary": "10.0.0.2:6379", "epoch": 4, "heard": 2, "known": 3, "each": [],
        }))
        .unwrap();
        overview.namespaces = serde_json::from_value(json!([{
            "name": "orders", "keys": [], "mode": "enforce", "enforced_for_some": false, "policies": [],
            "ceiling_ms": null, "held": 2, "without_ttl": 0, "ungoverned": 0, "advice": null,
            "holds": { "count": 0, "p50_ms": 0, "p99_ms": 0, "max_ms": 0, "ran_out": 0 },
            "quarantine": { "until": 1_795_260_990_627_u64, "why": "" },
        }]))
        .unwrap();
        let mut board = Board::new(true);
        board.show(&answers);
        let head = drawn(&mut board, 300, 24).swap_remove(0);
        let words = "lockwarden top · lost in failovers 24 h 2 · unknown since the failover 1 · orders: quarantine \
                     until 11:36:31 UTC · held 2 · waiting 0 · primary 10.0.0.2:6379, heard 2 of 3 sentinels · refused";
        assert!(head.starts_with(words), "{head}");
    }

    #[test]
    fn the_rate_of_an_application_is_what_it_did_since_the_look_before() {
        let mut board = Board::new(true);
        board.show(&look(10, 5000));
        press(&mut board, KeyCode::Tab);
        assert!(drawn(&mut board, 100, 24)[3].contains(" - "));
        board.show(&look(35, 7000));
        assert!(drawn(&mut board, 100, 24)[3].contains(" 12.5 "));
        // A restarted proxy has begun to count anew.
        board.show(&look(5, 9000));
        assert!(drawn(&mut board, 100, 24)[3].contains(" - "));
    }

    #[test]
    fn a_row_that_was_chosen_is_followed_and_the_top_stays_the_top() {
        let mut board = Board::new(true);
        board.show(&look(10, 5000));
        press(&mut board, KeyCode::Char('r'));
        assert!(drawn(&mut board, 80, 24)[21].starts_with("KEY lock:a"));
        press(&mut board, KeyCode::Down);
        assert!(drawn(&mut board, 80, 24)[21].starts_with("KEY lock:b"));
        for _ in 0..2 {
            press(&mut board, KeyCode::Right);
        }
        // By age, in reverse order.
        press(&mut board, KeyCode::Char('r'));
        let lines = drawn(&mut board, 80, 24);
        assert!(lines[2].contains("AGE ▲"), "{lines:#?}");
        assert!(lines[3].starts_with("lock:b"), "{lines:#?}");
        assert!(lines[21].starts_with("KEY lock:b"), "{lines:#?}");
    }

    #[test]
    fn letters_that_are_typed_into_the_filter_are_no_orders() {
        let mut board = Board::new(true);
        board.show(&look(10, 5000));
        assert_eq!(press(&mut board, KeyCode::Char('/')), After::Changed);
        assert_eq!(press(&mut board, KeyCode::Char('q')), After::Changed);
        let lines = drawn(&mut board, 80, 24);
        assert!(lines[2].starts_with("nothing matches"), "{lines:#?}");
        press(&mut board, KeyCode::Esc);
        assert!(drawn(&mut board, 80, 24)[3].starts_with("lock:a"));
        assert_eq!(press(&mut board, KeyCode::Char('q')), After::Ended);
    }
}

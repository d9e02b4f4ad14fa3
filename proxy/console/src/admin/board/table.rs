//! The one form of the board's tables. Each column is one line: its heading, its kind and the content of its cells. The
//! roles are written out because on a narrow screen each row becomes a card, and browsers then forget that it is a table.

use maud::{Markup, Render, html};

/// A table of `R`s.
pub(super) struct Table<'a, R> {
    label: &'static str,
    class: &'static str,
    rows: Vec<&'a R>,
    columns: Vec<Column<'a, R>>,
    tone: Box<dyn Fn(&R) -> &'static str + 'a>,
    current: Box<dyn Fn(&R) -> bool + 'a>,
}

struct Column<'a, R> {
    heading: &'static str,
    /// Shown with the heading on request.
    meaning: Option<&'static str>,
    kind: Kind,
    cell: Box<dyn Fn(&'a R) -> Markup + 'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The name of the row.
    Name,
    /// The same, where it is a key.
    KeyName,
    Text,
    /// Keys of locks.
    Keys,
    /// Patterns of keys.
    Globs,
    Number,
}

impl Kind {
    fn class(self) -> Option<&'static str> {
        match self {
            Kind::Name | Kind::Text => None,
            Kind::KeyName | Kind::Keys => Some("key"),
            Kind::Globs => Some("globs"),
            Kind::Number => Some("right"),
        }
    }
}

impl<'a, R> Table<'a, R> {
    /// The rows in this order; screen readers announce the table by `label`.
    pub(super) fn of(label: &'static str, rows: impl IntoIterator<Item = &'a R>) -> Table<'a, R> {
        Table {
            label,
            class: "stack",
            rows: rows.into_iter().collect(),
            columns: Vec::new(),
            tone: Box::new(|_| ""),
            current: Box::new(|_| false),
        }
    }

    /// The column that names the row.
    pub(super) fn name<C: Render>(self, heading: &'static str, cell: impl Fn(&'a R) -> C + 'a) -> Self {
        self.column(Kind::Name, heading, cell)
    }

    /// The same, where it is a key.
    pub(super) fn key_name<C: Render>(self, heading: &'static str, cell: impl Fn(&'a R) -> C + 'a) -> Self {
        self.column(Kind::KeyName, heading, cell)
    }

    pub(super) fn text<C: Render>(self, heading: &'static str, cell: impl Fn(&'a R) -> C + 'a) -> Self {
        self.column(Kind::Text, heading, cell)
    }

    /// Keys of locks.
    pub(super) fn keys<C: Render>(self, heading: &'static str, cell: impl Fn(&'a R) -> C + 'a) -> Self {
        self.column(Kind::Keys, heading, cell)
    }

    /// Patterns of keys.
    pub(super) fn globs(self, heading: &'static str, globs: impl Fn(&'a R) -> &'a [String] + 'a) -> Self {
        self.column(
            Kind::Globs,
            heading,
            move |row| html! { @for glob in globs(row) { code dir="ltr" { (glob) } " " } },
        )
    }

    pub(super) fn number<C: Render>(self, heading: &'static str, cell: impl Fn(&'a R) -> C + 'a) -> Self {
        self.column(Kind::Number, heading, cell)
    }

    /// Explains the heading of the column added last.
    pub(super) fn meaning(mut self, meaning: &'static str) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.meaning = Some(meaning);
        }
        self
    }

    /// The class of a row, empty for none: "bad" or "warn".
    pub(super) fn tone(mut self, tone: impl Fn(&R) -> &'static str + 'a) -> Self {
        self.tone = Box::new(tone);
        self
    }

    /// Marks the row whose details the page shows.
    pub(super) fn current(mut self, current: impl Fn(&R) -> bool + 'a) -> Self {
        self.current = Box::new(current);
        self
    }

    /// In place of the usual class.
    pub(super) fn class(mut self, class: &'static str) -> Self {
        self.class = class;
        self
    }

    fn column<C: Render>(mut self, kind: Kind, heading: &'static str, cell: impl Fn(&'a R) -> C + 'a) -> Self {
        let cell = Box::new(move |row| cell(row).render());
        self.columns.push(Column { heading, meaning: None, kind, cell });
        self
    }
}

impl<R> Render for Table<'_, R> {
    fn render(&self) -> Markup {
        html! {
            div.scroll role="region" aria-label=(self.label) tabindex="0" {
                table class=(self.class) role="table" {
                    thead role="rowgroup" {
                        tr role="row" {
                            @for column in &self.columns {
                                th class=[(column.kind == Kind::Number).then_some("right")] role="columnheader" scope="col" {
                                    @match column.meaning {
                                        Some(meaning) => abbr title=(meaning) { (column.heading) },
                                        None => (column.heading),
                                    }
                                }
                            }
                        }
                    }
                    tbody role="rowgroup" {
                        @for &row in &self.rows {
                            @let tone = (self.tone)(row);
                            tr class=[(!tone.is_empty()).then_some(tone)] role="row" aria-current=[(self.current)(row).then_some("true")] {
                                @for column in &self.columns { (column.cell_of(row)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl<'a, R> Column<'a, R> {
    fn cell_of(&self, row: &'a R) -> Markup {
        let (class, cell) = (self.kind.class(), (self.cell)(row));
        html! {
            @match self.kind {
                Kind::Name | Kind::KeyName => th class=[class] role="rowheader" scope="row" { (cell) },
                Kind::Text | Kind::Keys | Kind::Globs | Kind::Number => {
                    td class=[class] role="cell" data-label=(self.heading) { (cell) }
                }
            }
        }
    }
}

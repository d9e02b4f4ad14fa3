//! Replaces one row or one grammar of the table by another, during a test and only in its thread: the tests find out
//! what would go unnoticed if the table were wrong. Not part of release builds.

use std::cell::Cell;

use super::CommandSpec;
pub(crate) use super::grammar::{GRAMMARS, Grammar, Role, Word};
use super::rows::ROWS;

thread_local! {
    static ROW: Cell<Option<(&'static str, Option<&'static CommandSpec>)>> = const { Cell::new(None) };
    static WORDS: Cell<Option<(&'static str, &'static [Word])>> = const { Cell::new(None) };
}

/// Every row.
pub(crate) fn rows() -> &'static [CommandSpec] {
    &ROWS
}

/// Runs with another row for this command, or without one.
pub(crate) fn with_row<T>(name: &'static str, row: Option<CommandSpec>, run: impl FnOnce() -> T) -> T {
    // Leaked: a few thousand rows in the life of a test process.
    let row = row.map(|row| &*Box::leak(Box::new(row)));
    ROW.set(Some((name, row)));
    let result = run();
    ROW.set(None);
    result
}

/// Runs with other words for this command's grammar.
pub(crate) fn with_words<T>(command: &'static str, words: Vec<Word>, run: impl FnOnce() -> T) -> T {
    WORDS.set(Some((command, words.leak())));
    let result = run();
    WORDS.set(None);
    result
}

pub(super) fn row_of(row: &'static CommandSpec) -> Option<&'static CommandSpec> {
    match ROW.get() {
        Some((name, replaced)) if name == row.name => replaced,
        Some(_) | None => Some(row),
    }
}

pub(super) fn words_of(grammar: Grammar) -> &'static [Word] {
    match WORDS.get() {
        Some((command, words)) if command == grammar.command => words,
        Some(_) | None => grammar.words,
    }
}

//! Reads one table of the file: typed values by key, with a finding for each invalid value and each unknown key. Knows
//! no keys itself; `draft`, `namespace` and `policy` provide theirs.

use std::convert::Infallible;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::document::Document;
use super::finding::{Findings, Place, Position};
use super::suggest::{did_you_mean, listed, quoted};

/// A key that a table may have.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// A valid value in TOML, for messages.
    pub(super) example: &'static str,
    /// The default, in TOML or in words in parentheses. `None` for keys that are required, and for tables.
    pub(super) default: Option<&'static str>,
}

impl Key {
    /// Whether it is a table, or a list of tables.
    pub(super) fn is_table(&self) -> bool {
        self.example.contains("{ ")
    }
}

/// The keys of a table, one a line: `name: example = default`.
macro_rules! key_table {
    ($vis:vis $table:ident = $($name:ident: $example:literal $(= $default:literal)?,)*) => {
        $vis const $table: &[$crate::config::reader::Key] = &[$($crate::config::reader::Key {
            name: stringify!($name),
            example: $example,
            default: key_table!(@ $($default)?),
        }),*];
    };
    (@ $default:literal) => { Some($default) };
    (@) => { None };
}
pub(super) use key_table;

/// A value with its place, so that later checks can point at it.
#[derive(Clone)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

/// One table of the file with the keys it may have.
pub(super) struct Section<'a, 'i> {
    pub(super) table: &'a DeTable<'i>,
    pub(super) span: Range<usize>,
    pub(super) known: &'static [Key],
    /// The prefix of messages about this table, for example `namespace "orders": `.
    pub(super) scope: String,
}

impl Section<'_, '_> {
    fn example(&self, name: &str) -> &'static str {
        self.known.iter().find(|key| key.name == name).map_or("", |key| key.example)
    }
}

/// Reads tables of one file into checked values, and collects findings.
pub(super) struct Reader<'a> {
    pub(super) document: &'a Document<'a>,
    pub(super) findings: &'a mut Findings,
}

impl Reader<'_> {
    pub(super) fn error(&mut self, span: Range<usize>, message: impl FnOnce() -> String) {
        // Beyond the limit an error is only counted; finding its column would be wasted time.
        if self.findings.full() {
            let path = self.document.path.to_owned();
            self.findings.error(Place::File { path, position: None }, String::new());
        } else {
            self.findings.error(self.document.place(span), message());
        }
    }

    pub(super) fn warning(&mut self, span: Range<usize>, message: String) {
        self.findings.warning(self.document.place(span), message);
    }

    pub(super) fn position(&self, span: &Range<usize>) -> Position {
        self.document.position(span.start)
    }

    /// A required key.
    pub(super) fn required<T>(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        found: Option<Found<T>>,
    ) -> Option<Found<T>> {
        if !section.table.contains_key(key) {
            let (scope, example) = (&section.scope, section.example(key));
            self.error(section.span.clone(), || format!("{scope}{key} is missing; write {key} = {example}"));
        }
        found
    }

    /// A string that `parse` accepts.
    pub(super) fn parsed<T, E: Display>(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<Found<T>> {
        let value = section.table.get(key)?;
        let span = value.span();
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_type(section, key, value, "a string");
            return None;
        };
        match parse(text) {
            Ok(value) => Some(Found { value, span }),
            Err(wrong) => {
                self.error(span, || format!("{}{key}: {wrong}", section.scope));
                None
            }
        }
    }

    /// Parses a string and stores the result in place of the former value.
    pub(super) fn put<T, E: Display>(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        place: &mut T,
    ) {
        if let Some(found) = self.parsed(section, key, parse) {
            *place = found.value;
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        self.parsed(section, key, |text| one_of(text, choices)).map(|found| found.value)
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, section: &Section<'_, '_>, key: &str) -> Option<Found<bool>> {
        let value = section.table.get(key)?;
        match value.get_ref() {
            DeValue::Boolean(boolean) => Some(Found { value: *boolean, span: value.span() }),
            _ => {
                self.wrong_type(section, key, value, "true or false");
                None
            }
        }
    }

    /// A whole number.
    pub(super) fn integer(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Option<Found<u64>> {
        let value = section.table.get(key)?;
        let DeValue::Integer(integer) = value.get_ref() else {
            self.wrong_type(section, key, value, "an integer");
            return None;
        };
        let found = number(integer).and_then(|number| u64::try_from(number).ok());
        match found.filter(|number| range.contains(number)) {
            Some(number) => Some(Found { value: number, span: value.span() }),
            None => {
                let (least, most) = (range.start(), range.end());
                self.error(value.span(), || format!("{}{key}: {integer} is outside {least} to {most}", section.scope));
                None
            }
        }
    }

    /// A list of strings that `parse` accepts, without the others.
    pub(super) fn strings<T, E: Display>(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        limit: usize,
        mut parse: impl FnMut(&str) -> Result<T, E>,
    ) -> Option<Found<Vec<Found<T>>>> {
        let value = section.table.get(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(section, key, value, "a list of strings");
            return None;
        };
        if items.len() > limit {
            let (scope, many) = (&section.scope, items.len());
            self.error(value.span(), || format!("{scope}{key}: {many} entries are too many; {limit} is the most"));
            return None;
        }
        let mut strings = Vec::new();
        for item in items.iter() {
            let (scope, span) = (&section.scope, item.span());
            match item.get_ref() {
                DeValue::String(text) => match parse(text) {
                    Ok(value) => strings.push(Found { value, span }),
                    Err(wrong) => self.error(span, || format!("{scope}{key}: {wrong}")),
                },
                other => self.error(span, || {
                    let is = described(other);
                    format!("{scope}{key}: must hold only strings, not {is}")
                }),
            }
        }
        Some(Found { value: strings, span: value.span() })
    }

    /// The table `[key]`.
    pub(super) fn table<'t, 'i>(&mut self, section: &Section<'t, 'i>, key: &str) -> Option<Found<&'t DeTable<'i>>> {
        let value = section.table.get(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(Found { value: table, span: value.span() }),
            _ => {
                self.error(value.span(), || {
                    format!("{key}: must be a table; write [{key}] with one bracket, and its keys behind it")
                });
                None
            }
        }
    }

    /// The table `[name]`, with the keys that it may have.
    pub(super) fn section<'t, 'i>(
        &mut self,
        top: &Section<'t, 'i>,
        name: &str,
        known: &'static [Key],
    ) -> Option<Section<'t, 'i>> {
        let table = self.table(top, name)?;
        Some(Section { table: table.value, span: table.span, known, scope: format!("{name}: ") })
    }

    /// A file; a relative path starts at the configuration file's directory.
    pub(super) fn file(&mut self, section: &Section<'_, '_>, key: &str) -> Option<Found<PathBuf>> {
        let document = self.document;
        self.parsed(section, key, |named| Ok::<_, Infallible>(document.beside(named.as_ref())))
    }

    /// The tables of `[[key]]`, at most `limit`.
    pub(super) fn tables<'t, 'i>(
        &mut self,
        section: &Section<'t, 'i>,
        key: &str,
        limit: usize,
    ) -> Option<Vec<Found<&'t DeTable<'i>>>> {
        let value = section.table.get(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            self.error(value.span(), || {
                format!(
                    "{key}: must be a list of tables; write [[{key}]] with two brackets, and \
                         its sub-tables behind it"
                )
            });
            return None;
        };
        if items.len() > limit {
            let many = items.len();
            self.error(value.span(), || format!("{key}: {many} of them are too many; {limit} is the most"));
            return None;
        }
        let mut tables = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(table) => tables.push(Found { value: table, span: item.span() }),
                other => self.error(item.span(), || {
                    format!("{key}: must hold only tables, not {}; write [[{key}]]", described(other))
                }),
            }
        }
        Some(tables)
    }

    /// Reads each table of `[[key]]`; those with errors are left out.
    pub(super) fn each_table<'t, 'i, T>(
        &mut self,
        top: &Section<'t, 'i>,
        (key, known): (&str, &'static [Key]),
        limit: usize,
        mut read: impl FnMut(&mut Self, Section<'t, 'i>) -> Option<T>,
    ) -> Vec<T> {
        let tables = self.tables(top, key, limit).unwrap_or_default();
        let mut all = Vec::new();
        for (index, table) in tables.into_iter().enumerate() {
            let section =
                Section { table: table.value, span: table.span, known, scope: format!("{key} #{}: ", index + 1) };
            all.extend(read(self, section));
        }
        all
    }

    /// Reports unknown keys of this table. `elsewhere` may give a better suggestion than edit distance.
    pub(super) fn unknown_keys(&mut self, section: &Section<'_, '_>, elsewhere: impl Fn(&str) -> Option<String>) {
        let known = || section.known.iter().map(|key| key.name);
        for key in section.table.keys() {
            let name: &str = key.get_ref();
            if known().any(|known| known == name) {
                continue;
            }
            self.error(key.span(), || {
                let advice = elsewhere(name)
                    .or_else(|| did_you_mean(name, known()))
                    .unwrap_or_else(|| format!("known here are {}", listed(known(), "and")));
                format!("{}unknown key {}; {advice}", section.scope, quoted(name))
            });
        }
    }

    fn wrong_type(&mut self, section: &Section<'_, '_>, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let example = section.example(key);
        self.error(value.span(), || {
            let is = described(value.get_ref());
            format!("{}{key}: must be {wanted}, not {is}; write {key} = {example}", section.scope)
        });
    }
}

/// A word that is none of those that a key takes.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} must be {}{}",
    quoted(text),
    listed(words.iter().copied(), "or"),
    did_you_mean(text, words.iter().copied()).map_or(String::new(), |meant| format!("; {meant}"))
)]
pub(super) struct ChoiceError {
    text: String,
    words: Vec<&'static str>,
}

/// The choice that `text` names.
pub(super) fn one_of<T: Copy>(text: &str, choices: &[(&'static str, T)]) -> Result<T, ChoiceError> {
    choices
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, choice)| *choice)
        .ok_or_else(|| ChoiceError { text: text.to_owned(), words: choices.iter().map(|(word, _)| *word).collect() })
}

/// The number that an integer of TOML spells, in any radix.
pub(super) fn number(integer: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A value's type, with its article.
pub(super) fn described(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

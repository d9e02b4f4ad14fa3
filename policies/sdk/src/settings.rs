//! Reads a policy's settings. Reading a name declares it; [`Settings::finish`] then reports every invalid value and
//! every name that was never read, all at once. Texts are assembled without `format!`: its code would be a third of a
//! small policy, and the proxy compiles that before it serves any client.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use crate::Setting;
use crate::nearest::nearest;

/// The longest duration of a setting: a hundred years. A larger number of milliseconds would be a mistake, and near
/// 2^53 it would no longer be exact in Redis's scripts.
const MAX_MS: u64 = 36_525 * 24 * 60 * 60 * 1_000;

/// How many characters of an invalid value an error repeats.
const SHOWN_CHARS: usize = 60;

/// The settings of one namespace for one policy. Readers return the default if a name is not set or its value is
/// invalid, and remember the errors for [`Settings::finish`].
#[derive(Debug, Default)]
pub struct Settings {
    given: Vec<Setting>,
    known: Vec<&'static str>,
    problems: Vec<String>,
}

impl Settings {
    /// The settings in the form in which the proxy passes them.
    #[must_use]
    pub fn new(given: Vec<Setting>) -> Settings {
        Settings { given, ..Settings::default() }
    }

    /// The text of a setting, if it is set.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let mut values = self.given.iter().filter(|setting| setting.name == name);
        let value = values.next()?.value.clone();
        if values.next().is_some() {
            self.problem([name, " is set twice"].concat());
        }
        Some(value)
    }

    /// A duration in milliseconds, written with its unit: `500ms`, `30s`, `5m`, `1h`, `7d`.
    pub fn duration_ms(&mut self, name: &'static str, default: u64) -> u64 {
        self.optional_duration_ms(name).unwrap_or(default)
    }

    /// A duration in milliseconds, if the setting is set.
    pub fn optional_duration_ms(&mut self, name: &'static str) -> Option<u64> {
        let value = self.text(name)?;
        match parse_duration_ms(&value) {
            Ok(ms) => Some(ms),
            Err(problem) => {
                self.wrong(name, &value, &[problem]);
                None
            }
        }
    }

    /// A duration in milliseconds, or `None` if it is switched off by the word `off`.
    pub fn duration_ms_or_off(&mut self, name: &'static str, default: Option<u64>) -> Option<u64> {
        match self.text(name) {
            None => default,
            Some(value) if value.trim_ascii() == "off" => None,
            Some(value) => match parse_duration_ms(&value) {
                Ok(0) => {
                    self.wrong(name, &value, &["write \"off\" for none"]);
                    default
                }
                Ok(ms) => Some(ms),
                Err(problem) => {
                    self.wrong(name, &value, &[problem, ", or \"off\""]);
                    default
                }
            },
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)], default: T) -> T {
        match self.place(name, &mut choices.iter().map(|(word, _)| *word)) {
            Some(place) => choices[place].1,
            None => default,
        }
    }

    /// A list of words, each at most once; an empty list is written as an empty array.
    pub fn choices<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)]) -> Option<Vec<T>> {
        let value = self.text(name)?;
        let words: Vec<&str> = split_list(&value);
        let mut chosen = Vec::with_capacity(words.len().min(choices.len()));
        for (place, word) in words.iter().enumerate() {
            if words[..place].contains(word) {
                self.problem([name, " names ", &quoted(word), " twice"].concat());
                return None;
            }
            let place = self.place_of(name, word, &mut choices.iter().map(|(word, _)| *word))?;
            chosen.push(choices[place].1);
        }
        Some(chosen)
    }

    /// A list of texts: the elements of an array, trimmed. Elements cannot contain commas.
    pub fn list(&mut self, name: &'static str) -> Option<Vec<String>> {
        let value = self.text(name)?;
        Some(split_list(&value).into_iter().map(str::to_owned).collect())
    }

    /// A whole number.
    pub fn number(&mut self, name: &'static str, default: u64) -> u64 {
        let Some(value) = self.text(name) else {
            return default;
        };
        match value.trim_ascii().parse() {
            Ok(number) => number,
            Err(_) => {
                self.wrong(name, &value, &["not a whole number"]);
                default
            }
        }
    }

    /// The tables below a name, in the order in which they first appear: `rule.team.deny` is the setting `deny` of the
    /// table `team` below `rule`. Errors in one of them count only after [`Settings::end_table`] has taken it back.
    pub fn tables(&mut self, name: &'static str) -> Vec<(String, Settings)> {
        let mut tables: Vec<(String, Settings)> = Vec::new();
        let mut others = Vec::with_capacity(self.given.len());
        for setting in mem::take(&mut self.given) {
            let below = setting.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
            let Some((table, key)) = below.and_then(|below| below.rsplit_once('.')) else {
                others.push(setting);
                continue;
            };
            let place = tables.iter().position(|(known, _)| known == table).unwrap_or_else(|| {
                tables.push((table.to_owned(), Settings::default()));
                tables.len() - 1
            });
            tables[place].1.given.push(Setting { name: key.to_owned(), value: setting.value });
        }
        self.given = others;
        tables
    }

    /// Ends the reading of a table from [`Settings::tables`], like [`Settings::finish`]: all its errors are added here,
    /// prefixed by `words`.
    pub fn end_table(&mut self, words: &str, mut table: Settings) {
        // Its errors are also in its list of problems.
        let _ = table.finish();
        for problem in table.problems {
            self.problem([words, ": ", &problem].concat());
        }
    }

    /// Adds an error that the policy itself found, for example two settings that exclude each other.
    pub fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Ends the reading; returns all errors in one text.
    ///
    /// # Errors
    /// All problems that were found, and all settings whose names were never read.
    pub fn finish(&mut self) -> Result<(), String> {
        for setting in &self.given {
            if !self.known.contains(&setting.name.as_str()) {
                self.problems.push(unknown(&setting.name, &self.known));
            }
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems.join("; ")) }
    }

    // The chosen word is looked up by code that does not know its meaning, so that this code exists once and not for
    // each type of choice.

    fn place(&mut self, name: &'static str, words: &mut dyn Iterator<Item = &str>) -> Option<usize> {
        let value = self.text(name)?;
        self.place_of(name, value.trim_ascii(), words)
    }

    fn place_of(&mut self, name: &str, value: &str, words: &mut dyn Iterator<Item = &str>) -> Option<usize> {
        let mut one_of = String::from("must be one of ");
        for (place, word) in words.enumerate() {
            if word == value {
                return Some(place);
            }
            for part in [if place == 0 { "\"" } else { ", \"" }, word, "\""] {
                one_of.push_str(part);
            }
        }
        self.wrong(name, value, &[&one_of]);
        None
    }

    #[cold]
    fn wrong(&mut self, name: &str, value: &str, problem: &[&str]) {
        let problem = problem.concat();
        self.problem([name, " = ", &quoted(value), ": ", &problem].concat());
    }
}

fn split_list(value: &str) -> Vec<&str> {
    if value.trim_ascii().is_empty() {
        return Vec::new();
    }
    value.split(',').map(str::trim_ascii).collect()
}

fn unknown(name: &str, known: &[&str]) -> String {
    let mut text = ["unknown setting ", &quoted(name)].concat();
    if let Some(meant) = nearest(name, known) {
        text.push_str(&[", did you mean ", meant, "?"].concat());
    }
    text.push_str(&match known {
        [] => " (this policy has no settings)".to_owned(),
        known => [" (known are ", &known.join(", "), ")"].concat(),
    });
    text
}

/// A value as shown in an error: cut, and without control characters.
fn quoted(value: &str) -> String {
    let mut shown = String::from("\"");
    for (place, c) in value.chars().enumerate() {
        if place == SHOWN_CHARS {
            shown.push('…');
            break;
        }
        shown.push(if c.is_control() { '?' } else { c });
    }
    shown.push('"');
    shown
}

fn parse_duration_ms(value: &str) -> Result<u64, &'static str> {
    const FORM: &str = "write a whole number and a unit (ms, s, m, h, d), such as \"30s\"";
    let value = value.trim_ascii();
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    // The checked form: the other one adds its panic message to every guest.
    let (number, unit) = value.split_at_checked(digits).ok_or(FORM)?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(FORM),
    };
    if number.is_empty() {
        return Err(FORM);
    }
    // All are digits, so the only possible error is a number that is too large.
    let ms = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_ms));
    ms.filter(|ms| *ms <= MAX_MS).ok_or("longer than a hundred years")
}

/// A duration in an operator's spelling: `90000` is `90s`, `3600000` is `1h`.
#[must_use]
pub fn show_ms(ms: u64) -> String {
    for (unit_ms, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms >= unit_ms && ms.is_multiple_of(unit_ms) {
            return in_units(ms / unit_ms, unit);
        }
    }
    in_units(ms, "ms")
}

fn in_units(number: u64, unit: &str) -> String {
    let mut text = String::new();
    // The number of digits of u64::MAX.
    let mut power = 10_u64.pow(19);
    while power > 0 {
        let digit = (number / power % 10) as u8;
        if digit > 0 || !text.is_empty() || power == 1 {
            text.push(char::from(b'0' + digit));
        }
        power /= 10;
    }
    text.push_str(unit);
    text
}

#[cfg(test)]
mod tests;

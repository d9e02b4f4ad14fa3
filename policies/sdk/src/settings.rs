//! Reading a policy's settings. Reading a name declares it; [`Settings::finish`] then reports every
//! value that was wrong and every name that nobody asked for, all at once.

use crate::Setting;
use crate::nearest::nearest;

/// The longest duration a setting may have: a hundred years. Beyond it a number of milliseconds
/// would be a slip, and near 2^53 it would no longer be exact in Redis's scripts.
const LONGEST_MS: u64 = 36_525 * 24 * 60 * 60 * 1_000;

/// How much of a bad value an error repeats.
const SHOWN_CHARS: usize = 60;

/// The settings of one namespace for one policy. Readers return the default where a name is not
/// set or its value is wrong, and remember what was wrong for [`Settings::finish`].
#[derive(Debug, Default)]
pub struct Settings {
    given: Vec<Setting>,
    known: Vec<&'static str>,
    problems: Vec<String>,
}

impl Settings {
    /// The settings as they come from the proxy.
    #[must_use]
    pub fn new(given: Vec<Setting>) -> Settings {
        Settings {
            given,
            ..Settings::default()
        }
    }

    /// The text of a setting, if it is there.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let mut values = self.given.iter().filter(|setting| setting.name == name);
        let value = values.next()?.value.clone();
        if values.next().is_some() {
            self.problem(format!("{name} is set twice"));
        }
        Some(value)
    }

    /// A duration in milliseconds, written with its unit: `500ms`, `30s`, `5m`, `1h`, `7d`.
    pub fn duration_ms(&mut self, name: &'static str, default: u64) -> u64 {
        self.optional_duration_ms(name).unwrap_or(default)
    }

    /// A duration in milliseconds, if the setting is there.
    pub fn optional_duration_ms(&mut self, name: &'static str) -> Option<u64> {
        let value = self.text(name)?;
        match parse_duration_ms(&value) {
            Ok(ms) => Some(ms),
            Err(problem) => {
                self.problem(format!("{name} = {}: {problem}", quoted(&value)));
                None
            }
        }
    }

    /// A duration in milliseconds, or `None` where it is switched off by the word `off`.
    pub fn duration_ms_or_off(&mut self, name: &'static str, default: Option<u64>) -> Option<u64> {
        match self.text(name) {
            None => default,
            Some(value) if value.trim() == "off" => None,
            Some(value) => match parse_duration_ms(&value) {
                Ok(0) => {
                    self.problem(format!(
                        "{name} = {}: write \"off\" for none",
                        quoted(&value)
                    ));
                    default
                }
                Ok(ms) => Some(ms),
                Err(problem) => {
                    self.problem(format!(
                        "{name} = {}: {problem}, or \"off\"",
                        quoted(&value)
                    ));
                    default
                }
            },
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)], default: T) -> T {
        match self.text(name) {
            None => default,
            Some(value) => self.word(name, &value, choices).unwrap_or(default),
        }
    }

    /// A list of words, each at most once; an empty list is written as an empty array.
    pub fn choices<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Option<Vec<T>> {
        let value = self.text(name)?;
        let words: Vec<&str> = split_list(&value);
        let mut chosen = Vec::with_capacity(words.len().min(choices.len()));
        for (place, word) in words.iter().enumerate() {
            if words[..place].contains(word) {
                self.problem(format!("{name} names {} twice", quoted(word)));
                return None;
            }
            chosen.push(self.word(name, word, choices)?);
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
        match value.trim().parse() {
            Ok(number) => number,
            Err(_) => {
                self.problem(format!("{name} = {}: not a whole number", quoted(&value)));
                default
            }
        }
    }

    /// Remembers something wrong that the policy found itself, for example two settings that do not
    /// go together.
    pub fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Ends the reading: everything wrong, in one text.
    ///
    /// # Errors
    /// All problems that were found, and all settings whose names were never read.
    pub fn finish(&mut self) -> Result<(), String> {
        for setting in &self.given {
            if !self.known.contains(&setting.name.as_str()) {
                self.problems.push(unknown(&setting.name, &self.known));
            }
        }
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(self.problems.join("; "))
        }
    }

    fn word<T: Copy>(&mut self, name: &str, value: &str, choices: &[(&str, T)]) -> Option<T> {
        let word = value.trim();
        let found = choices.iter().find(|(choice, _)| *choice == word);
        if found.is_none() {
            let words: Vec<String> = choices
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            let one_of = words.join(", ");
            self.problem(format!(
                "{name} = {}: must be one of {one_of}",
                quoted(value)
            ));
        }
        found.map(|(_, value)| *value)
    }
}

fn split_list(value: &str) -> Vec<&str> {
    if value.trim().is_empty() {
        return Vec::new();
    }
    value.split(',').map(str::trim).collect()
}

fn unknown(name: &str, known: &[&str]) -> String {
    let meant = match nearest(name, known) {
        Some(meant) => format!(", did you mean {meant}?"),
        None => String::new(),
    };
    let list = if known.is_empty() {
        "this policy has no settings".to_owned()
    } else {
        format!("known are {}", known.join(", "))
    };
    format!("unknown setting {}{meant} ({list})", quoted(name))
}

/// A value as an error shows it: cut, and without control characters.
fn quoted(value: &str) -> String {
    let mut shown: String = value
        .chars()
        .take(SHOWN_CHARS)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if value.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

fn parse_duration_ms(value: &str) -> Result<u64, &'static str> {
    const FORM: &str = "write a whole number and a unit (ms, s, m, h, d), such as \"30s\"";
    let value = value.trim();
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    // The checked form: the other one brings the text of its panic into every guest.
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
    // All digits, so the only way to fail is to be too large.
    let ms = number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(unit_ms));
    ms.filter(|ms| *ms <= LONGEST_MS)
        .ok_or("longer than a hundred years")
}

/// A duration as an operator would write it: `90000` is `90s`, `3600000` is `1h`.
#[must_use]
pub fn show_ms(ms: u64) -> String {
    for (unit_ms, unit) in [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ] {
        if ms >= unit_ms && ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests;

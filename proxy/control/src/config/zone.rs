//! The time zones of rules: by name from the system's files (TZif, RFC 9636), or as an offset from UTC. A policy cannot
//! read files, so it gets the zone's changes for fifty years; `lockwarden-rules` does the clock arithmetic.

use std::fs::File;
use std::io;
use std::io::Read;
use std::path::Path;

use lockwarden_rules::Zone;

use super::suggest::quoted;

/// The system's folder of time zones.
const ZONES: &str = "/usr/share/zoneinfo";

/// The largest file that is read; a system's largest has 4 KiB.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The years whose changes a policy gets, the last one excluded. They are the same on each machine, so that proxies
/// with the same zone files pass on the same changes.
const YEARS: std::ops::Range<i64> = 2025..2076;

/// Why a text names no zone.
#[derive(Debug, thiserror::Error)]
pub(super) enum ZoneError {
    #[error("{} is no zone; write a name such as \"Europe/Berlin\", \"UTC\", or a distance such as \"+01:00\"", quoted(.0))]
    Spelling(String),
    #[error(
        "this machine has no time zones ({ZONES} is missing): install tzdata, or write a distance from UTC such as \"+01:00\""
    )]
    NoZones,
    #[error("this machine knows no zone {}; `timedatectl list-timezones` lists them", quoted(.0))]
    Unknown(String),
    #[error("the file of {} cannot be read: {source}", quoted(name))]
    Read { name: String, source: io::Error },
    #[error("the file of {} is no time zone", quoted(.0))]
    BadFile(String),
}

/// The zone of this name.
pub(super) fn named(name: &str) -> Result<Zone, ZoneError> {
    named_in(Path::new(ZONES), name)
}

fn named_in(zones: &Path, name: &str) -> Result<Zone, ZoneError> {
    if name == "UTC" {
        return Ok(Zone::default());
    }
    let spelling = || ZoneError::Spelling(name.to_owned());
    if name.starts_with(['+', '-']) {
        return distance(name).and_then(|offset_s| Zone::fixed(offset_s).ok()).ok_or_else(spelling);
    }
    let plain = |part: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-".contains(&byte);
        !part.is_empty() && part.bytes().all(good)
    };
    if name.len() > 64 || !name.split('/').all(plain) {
        return Err(spelling());
    }
    let read = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound if !zones.is_dir() => ZoneError::NoZones,
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory => ZoneError::Unknown(name.to_owned()),
        _ => ZoneError::Read { name: name.to_owned(), source },
    };
    let mut bytes = Vec::new();
    let file = File::open(zones.join(name)).map_err(read)?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(read)?;
    from_file(&bytes).ok_or_else(|| ZoneError::BadFile(name.to_owned()))
}

/// `+01:00`, `-05:30`: the offset in seconds east of UTC.
fn distance(text: &str) -> Option<i32> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let two = |digits: &str| (digits.len() == 2).then(|| digits.parse::<u8>().ok()).flatten();
    let (hours, minutes) = (two(hours).filter(|hours| *hours <= 14)?, two(minutes).filter(|minutes| *minutes < 60)?);
    Some(sign * (i32::from(hours) * 3_600 + i32::from(minutes) * 60))
}

/// The changes within [`YEARS`] in a zone file.
fn from_file(bytes: &[u8]) -> Option<Zone> {
    let mut file = Bytes(bytes);
    // The first block has 32-bit times, for old readers.
    let old = Header::read(&mut file)?;
    if old.version < b'2' {
        return None;
    }
    file.take(old.bytes(4)?)?;
    let header = Header::read(&mut file)?;
    let mut times = Bytes(file.take(header.times.checked_mul(8)?)?);
    let kinds = file.take(header.times)?;
    let mut types = Bytes(file.take(header.types.checked_mul(6)?)?);
    let mut offsets = Vec::new();
    for _ in 0..header.types {
        offsets.push(i32::from_be_bytes(types.array()?));
        types.take(2)?;
    }
    file.take(header.rest(8)?)?;
    let footer = std::str::from_utf8(file.0).ok()?.strip_prefix('\n')?.split('\n').next()?;
    let rule = match footer {
        "" => None,
        text => Some(Yearly::read(text)?),
    };

    let (begin, end) = (day(YEARS.start, 1, 1) * 86_400, day(YEARS.end, 1, 1) * 86_400);
    let (mut first_s, mut changes, mut last) = (*offsets.first()?, Vec::new(), None);
    for kind in kinds {
        let (from, offset_s) = (i64::from_be_bytes(times.array()?), *offsets.get(usize::from(*kind))?);
        last = Some(from);
        if from <= begin {
            first_s = offset_s;
        } else if from < end {
            changes.push((from, offset_s));
        }
    }
    if let Some(rule) = rule {
        let by_rule = YEARS.start - 1..YEARS.end;
        let mut by_rule: Vec<(i64, i32)> = by_rule.flat_map(|year| rule.changes(year)).collect();
        by_rule.sort_unstable();
        for (from, offset_s) in by_rule {
            if last.is_some_and(|last| from <= last) {
                continue;
            }
            if from <= begin {
                first_s = offset_s;
            } else if from < end {
                changes.push((from, offset_s));
            }
        }
        if last.is_none() && rule.summer.is_none() {
            first_s = rule.standard_s;
        }
    }
    // Some files repeat the offset that is already in force.
    let mut before = first_s;
    changes.retain(|(_, offset_s)| std::mem::replace(&mut before, *offset_s) != *offset_s);
    Zone::new(first_s, changes).ok()
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

/// The contents of a block of a file.
struct Header {
    version: u8,
    utc_marks: usize,
    standard_marks: usize,
    leaps: usize,
    times: usize,
    types: usize,
    letters: usize,
}

impl Header {
    fn read(file: &mut Bytes<'_>) -> Option<Header> {
        if file.take(4)? != b"TZif" {
            return None;
        }
        let [version] = file.array()?;
        file.take(15)?;
        let mut count = || usize::try_from(u32::from_be_bytes(file.array()?)).ok();
        Some(Header {
            version,
            utc_marks: count()?,
            standard_marks: count()?,
            leaps: count()?,
            times: count()?,
            types: count()?,
            letters: count()?,
        })
    }

    /// The bytes of a block whose times have this many bytes.
    fn bytes(&self, time: usize) -> Option<usize> {
        let times = self.times.checked_mul(time + 1)?;
        times.checked_add(self.types.checked_mul(6)?)?.checked_add(self.rest(time)?)
    }

    /// The bytes after the types.
    fn rest(&self, time: usize) -> Option<usize> {
        let leaps = self.leaps.checked_mul(time + 4)?;
        self.letters.checked_add(leaps)?.checked_add(self.standard_marks)?.checked_add(self.utc_marks)
    }
}

/// The rule for all years after the last change in a file: `CET-1CEST,M3.5.0,M10.5.0/3`.
struct Yearly {
    standard_s: i32,
    summer: Option<Summer>,
}

struct Summer {
    offset_s: i32,
    begins: (Date, i32),
    ends: (Date, i32),
}

/// A day of each year.
enum Date {
    /// The nth such weekday of a month; the fifth means the last one.
    Weekday { month: i64, week: i64, weekday: i64 },
    /// From 1, without the 29th of February.
    Julian(i64),
    /// From 0, with it.
    DayOfYear(i64),
}

impl Yearly {
    fn read(text: &str) -> Option<Yearly> {
        let rest = after_name(text)?;
        let (west, rest) = clock(rest, 24)?;
        let standard_s = -west;
        if rest.is_empty() {
            return Some(Yearly { standard_s, summer: None });
        }
        let rest = after_name(rest)?;
        let (offset_s, rest) = match rest.strip_prefix(',') {
            Some(rest) => (standard_s + 3_600, rest),
            None => {
                let (west, rest) = clock(rest, 24)?;
                (-west, rest.strip_prefix(',')?)
            }
        };
        let (begins, ends) = rest.split_once(',')?;
        Some(Yearly { standard_s, summer: Some(Summer { offset_s, begins: date(begins)?, ends: date(ends)? }) })
    }

    /// When the clock changes in this year, and the new offset from UTC.
    fn changes(&self, year: i64) -> Vec<(i64, i32)> {
        let Some(Summer { offset_s, begins, ends }) = &self.summer else {
            return Vec::new();
        };
        let at = |(date, time_s): &(Date, i32), before_s: i32| {
            date.day(year) * 86_400 + i64::from(*time_s) - i64::from(before_s)
        };
        vec![(at(begins, self.standard_s), *offset_s), (at(ends, *offset_s), self.standard_s)]
    }
}

/// The text after the name of a zone: the name has letters, or anything within `<` and `>`.
fn after_name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('<') {
        return Some(quoted.split_once('>')?.1);
    }
    let rest = text.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    (text.len() - rest.len() >= 3).then_some(rest)
}

/// `[+-]hh[:mm[:ss]]` in seconds, and the text after it.
fn clock(text: &str, max_hours: i32) -> Option<(i32, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || ":+-".contains(c))).unwrap_or(text.len());
    let (clock, rest) = text.split_at_checked(end)?;
    let (sign, clock) = match clock.strip_prefix('-') {
        Some(clock) => (-1, clock),
        None => (1, clock.strip_prefix('+').unwrap_or(clock)),
    };
    let mut parts = clock.split(':').map(|part| part.parse::<u16>().ok().map(i32::from));
    let hours = parts.next()??;
    let minutes = parts.next().unwrap_or(Some(0))?;
    let seconds = parts.next().unwrap_or(Some(0))?;
    let fits = hours <= max_hours && minutes < 60 && seconds < 60 && parts.next().is_none();
    fits.then_some((sign * (hours * 3_600 + minutes * 60 + seconds), rest))
}

/// A day, and a time on it, which may be days away.
fn date(text: &str) -> Option<(Date, i32)> {
    let (day, time_s) = match text.split_once('/') {
        None => (text, 2 * 3_600),
        Some((day, time)) => {
            let (time_s, "") = clock(time, 167)? else {
                return None;
            };
            (day, time_s)
        }
    };
    let number = |text: &str, range: std::ops::RangeInclusive<i64>| {
        text.parse::<u16>().ok().map(i64::from).filter(|number| range.contains(number))
    };
    let date = if let Some(rest) = day.strip_prefix('M') {
        let mut parts = rest.split('.');
        let (month, week, weekday) =
            (number(parts.next()?, 1..=12)?, number(parts.next()?, 1..=5)?, number(parts.next()?, 0..=6)?);
        if parts.next().is_some() {
            return None;
        }
        Date::Weekday { month, week, weekday }
    } else if let Some(rest) = day.strip_prefix('J') {
        Date::Julian(number(rest, 1..=365)?)
    } else {
        Date::DayOfYear(number(day, 0..=365)?)
    };
    Some((date, time_s))
}

impl Date {
    /// Days since the start of 1970.
    fn day(&self, year: i64) -> i64 {
        match *self {
            Date::Weekday { month, week, weekday } => {
                let first = day(year, month, 1);
                // 1970 began on a Thursday, and a week begins on Sunday.
                let until = (weekday - (first + 4)).rem_euclid(7);
                let next_month = if month == 12 { day(year + 1, 1, 1) } else { day(year, month + 1, 1) };
                let mut found = first + until + 7 * (week - 1);
                while found >= next_month {
                    found -= 7;
                }
                found
            }
            Date::Julian(of_year) => {
                let is_leap = day(year, 3, 1) - day(year, 2, 1) == 29;
                day(year, 1, 1) + of_year - 1 + i64::from(is_leap && of_year >= 60)
            }
            Date::DayOfYear(of_year) => day(year, 1, 1) + of_year,
        }
    }
}

/// Days since the start of 1970, in the Gregorian calendar.
fn day(year: i64, month: i64, day_of_month: i64) -> i64 {
    // A year that begins in March has its leap day at its end.
    let year = if month <= 2 { year - 1 } else { year };
    let century = year.div_euclid(400);
    let of_century = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day_of_month - 1;
    century * 146_097 + of_century * 365 + of_century / 4 - of_century / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests;

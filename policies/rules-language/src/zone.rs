//! The local time of a place: its offset from UTC over time, as a list of changes. The proxy takes them from the
//! system's time zones when it reads the configuration: a policy cannot read files.

use alloc::string::String;
use alloc::vec::Vec;

/// The most changes of one zone: two a year for two hundred years.
const MAX_CHANGES: usize = 400;

/// No place has a larger offset from UTC than this, s.
const MAX_OFFSET_S: i32 = 26 * 3_600;

/// A zone's offset from UTC over time. Invariant: the changes are in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The offset before the first change, in seconds to the east.
    first_s: i32,
    /// Each change: its Unix time, in seconds, and the new offset, in seconds.
    changes: Vec<(i64, i32)>,
}

/// The list of changes is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadZone;

impl Zone {
    /// A zone with a constant offset, in seconds to the east.
    ///
    /// # Errors
    /// If no place has such an offset.
    pub fn fixed(offset_s: i32) -> Result<Zone, BadZone> {
        Zone::new(offset_s, Vec::new())
    }

    /// A zone with these changes.
    ///
    /// # Errors
    /// If they are out of order or too many, or if no place has such an offset.
    pub fn new(first_s: i32, changes: Vec<(i64, i32)>) -> Result<Zone, BadZone> {
        let fits = |offset_s: i32| offset_s.unsigned_abs() <= MAX_OFFSET_S.unsigned_abs();
        let grows = changes.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let all_fit = fits(first_s) && changes.iter().all(|(_, offset_s)| fits(*offset_s));
        match changes.len() <= MAX_CHANGES && grows && all_fit {
            true => Ok(Zone { first_s, changes }),
            false => Err(BadZone),
        }
    }

    /// Parses the text of a setting: `3600 1774746000=7200 1792890000=3600`.
    ///
    /// # Errors
    /// If the text has another form, or [`Zone::new`] refuses it.
    pub fn read(text: &str) -> Result<Zone, BadZone> {
        let mut words = text.split(' ');
        let first_s = words.next().and_then(|word| word.parse().ok()).ok_or(BadZone)?;
        let mut changes = Vec::new();
        for word in words.take(MAX_CHANGES + 1) {
            let (from, offset) = word.split_once('=').ok_or(BadZone)?;
            changes.push((from.parse().map_err(|_| BadZone)?, offset.parse().map_err(|_| BadZone)?));
        }
        Zone::new(first_s, changes)
    }

    /// As the text of a setting.
    #[must_use]
    pub fn text(&self) -> String {
        use core::fmt::Write;
        let mut text = String::new();
        let _ = write!(text, "{}", self.first_s);
        for (from, offset) in &self.changes {
            let _ = write!(text, " {from}={offset}");
        }
        text
    }

    /// Local minutes since the start of 1970, at a Unix time in milliseconds.
    #[must_use]
    pub fn minute(&self, now_ms: u64) -> i64 {
        let now_s = i64::try_from(now_ms / 1_000).unwrap_or(i64::MAX);
        let passed = self.changes.partition_point(|(from, _)| *from <= now_s);
        let offset_s = passed.checked_sub(1).map_or(self.first_s, |last| self.changes[last].1);
        now_s.saturating_add(offset_s.into()).div_euclid(60)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_clock_follows_the_changes() {
        // Europe/Berlin around 2026.
        let berlin = Zone::read("3600 1774746000=7200 1792890000=3600").unwrap();
        let local = |now_s: u64| (berlin.minute(now_s * 1_000) / 60 % 24, berlin.minute(now_s * 1_000) % 60);
        assert_eq!(local(1_774_745_999), (1, 59));
        assert_eq!(local(1_774_746_000), (3, 0));
        assert_eq!(local(1_792_889_999), (2, 59));
        assert_eq!(local(1_792_890_000), (2, 0));
        assert_eq!(Zone::read(&berlin.text()), Ok(berlin));
    }

    #[test]
    fn what_is_no_zone_is_refused() {
        for text in ["", "x", "3600 ", "3600 1=1 1=2", "3600 2=1 1=2", "93601", "0 1=93601", "0 1", "0  1=2"] {
            assert_eq!(Zone::read(text), Err(BadZone), "{text}");
        }
        let mut endless = String::from("0");
        for second in 0..=MAX_CHANGES {
            endless.push_str(&std::format!(" {second}=0"));
        }
        assert_eq!(Zone::read(&endless), Err(BadZone));
    }

    proptest! {
        #[test]
        fn no_text_and_no_time_panics(text in ".{0,80}", now_ms: u64) {
            if let Ok(zone) = Zone::read(&text) {
                let _ = zone.minute(now_ms);
            }
            let _ = Zone::default().minute(now_ms);
        }
    }
}

//! Since when most of the sources that say which server is the primary have been heard: sentinels, or the primaries
//! of a cluster. It is asked with each lock command, and kept in atomics, so that neither lock commands nor the tasks
//! that listen to these sources wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A source that was last heard longer ago than this does not count.
pub(crate) const HEARD_WITHIN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub struct HeardMoments {
    begun: Instant,
    /// Since when most have been heard naming the primary that is followed.
    naming: Moment,
    /// Until when most count as heard, whatever they name.
    until: Moment,
    /// Since when most have been heard naming the previous primary, until `take_before` takes it.
    before: Moment,
}

/// Nanoseconds since the beginning, and one more; 0 for never.
#[derive(Debug, Default)]
struct Moment(AtomicU64);

/// No source was heard yet.
impl Default for HeardMoments {
    fn default() -> HeardMoments {
        HeardMoments {
            begun: Instant::now(),
            naming: Moment::default(),
            until: Moment::default(),
            before: Moment::default(),
        }
    }
}

impl HeardMoments {
    /// Sets what follows from what was heard last.
    pub(in crate::backend) fn set(&self, naming: Option<Instant>, until: Option<Instant>) {
        self.naming.set(naming, self.begun);
        self.until.set(until, self.begun);
    }

    /// Another primary is followed from now on, which no source was heard naming yet.
    pub(in crate::backend) fn turn(&self) {
        self.before.set(self.naming(), self.begun);
        self.naming.set(None, self.begun);
    }

    pub(in crate::backend) fn take_before(&self) -> Option<Instant> {
        let before = self.before.get(self.begun);
        self.before.set(None, self.begun);
        before
    }

    pub(in crate::backend) fn naming(&self) -> Option<Instant> {
        self.naming.get(self.begun)
    }

    /// Whether most have named the primary lately.
    pub(in crate::backend) fn are_naming(&self, now: Instant) -> bool {
        self.naming().is_some_and(|at| now.saturating_duration_since(at) < HEARD_WITHIN)
    }

    pub(in crate::backend) fn are_few(&self, now: Instant) -> bool {
        self.until.get(self.begun).is_none_or(|until| now >= until)
    }
}

impl Moment {
    fn set(&self, at: Option<Instant>, begun: Instant) {
        let nanos = at.map(|at| at.saturating_duration_since(begun).as_nanos());
        let value = nanos.map_or(0, |nanos| u64::try_from(nanos).unwrap_or(u64::MAX).saturating_add(1));
        self.0.store(value, Ordering::Release);
    }

    fn get(&self, begun: Instant) -> Option<Instant> {
        let nanos = self.0.load(Ordering::Acquire).checked_sub(1)?;
        begun.checked_add(Duration::from_nanos(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_told_and_nothing_before_that() {
        let moments = HeardMoments::default();
        let now = Instant::now();
        assert_eq!(moments.naming(), None);
        assert!(moments.are_few(now));
        moments.set(Some(now), Some(now + Duration::from_secs(5)));
        assert_eq!(moments.naming(), Some(now));
        assert!(!moments.are_few(now + Duration::from_secs(4)));
        assert!(moments.are_few(now + Duration::from_secs(5)));
        moments.turn();
        assert_eq!((moments.take_before(), moments.take_before()), (Some(now), None));
        assert_eq!(moments.naming(), None);
        moments.set(None, None);
        assert!(moments.are_few(now));
    }
}

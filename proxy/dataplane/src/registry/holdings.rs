//! How many locks the clients of each application hold through this proxy, for policies that ask. Beyond the limit,
//! further applications are not counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lockwarden_lock::lease::Counted;

/// Most applications that hold locks.
const MAX_APPLICATIONS: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ApplicationHoldings {
    counts: Mutex<HashMap<String, Arc<AtomicU32>>>,
}

impl ApplicationHoldings {
    /// Counts one more lease of an application, until the returned value is dropped.
    pub(crate) fn count(&self, application: String) -> Option<Counted> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MAX_APPLICATIONS && !counts.contains_key(&application) {
            counts.retain(|_, count| count.load(Ordering::Relaxed) > 0);
            if counts.len() >= MAX_APPLICATIONS {
                return None;
            }
        }
        Some(Counted::new(counts.entry(application).or_default().clone()))
    }

    /// How many locks an application holds.
    pub(crate) fn of(&self, application: &str) -> u32 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(application).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_counted_until_it_is_over() {
        let holdings = ApplicationHoldings::default();
        let first = holdings.count("shop".to_owned());
        let second = holdings.count("shop".to_owned());
        assert_eq!((holdings.of("shop"), holdings.of("billing")), (2, 0));
        drop(first);
        assert_eq!(holdings.of("shop"), 1);
        drop(second);
        assert_eq!(holdings.of("shop"), 0);
    }

    #[test]
    fn applications_that_hold_nothing_make_room() {
        let holdings = ApplicationHoldings::default();
        let held: Vec<_> = (0..MAX_APPLICATIONS).map(|number| holdings.count(number.to_string())).collect();
        assert!(holdings.count("one more".to_owned()).is_none());
        drop(held);
        assert!(holdings.count("one more".to_owned()).is_some());
        assert_eq!(holdings.counts.lock().unwrap().len(), 1);
    }
}

//! A value that depends on the client's identity, stored per connection, because to compute it takes longer than to
//! look it up. It is computed again when the client identifies itself differently, and when its application's name may
//! have changed.

use std::sync::Arc;

use super::event::Caller;

/// Connections that are remembered. Two whose numbers are so far apart take turns.
const MAX_CALLERS: usize = 256;

/// See the module.
pub struct ByCaller<T>(Vec<Option<Known<T>>>);

struct Known<T> {
    caller: Arc<Caller>,
    /// See [`KnownBy::stamp`](crate::telemetry::applications::KnownBy::stamp).
    stamp: u64,
    found: T,
}

impl<T> Default for ByCaller<T> {
    fn default() -> ByCaller<T> {
        ByCaller(Vec::new())
    }
}

impl<T: Clone> ByCaller<T> {
    /// The result of `find` for this client.
    pub fn of(&mut self, caller: &Arc<Caller>, find: impl FnOnce(&Caller) -> T) -> T {
        // Read first, so that a change during the computation is noticed the next time.
        let stamp = caller.known_by.stamp();
        if self.0.is_empty() {
            self.0.resize_with(MAX_CALLERS, || None);
        }
        let place = &mut self.0[(caller.session.0 % MAX_CALLERS as u64) as usize];
        if let Some(known) = place
            && Arc::ptr_eq(&known.caller, caller)
            && known.stamp == stamp
        {
            return known.found.clone();
        }
        let found = find(caller);
        *place = Some(Known { caller: caller.clone(), stamp, found: found.clone() });
        found
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::telemetry::applications::{KnownBy, Program};
    use crate::telemetry::events::event::SessionNumber;

    fn caller(session: u64, name: &'static str) -> Arc<Caller> {
        Arc::new(Caller {
            session: SessionNumber(session),
            address: ([10, 0, 0, 1], 4711).into(),
            name: Bytes::from_static(name.as_bytes()),
            user: Bytes::new(),
            library: None,
            known_by: Arc::new(KnownBy::default()),
        })
    }

    #[test]
    fn a_label_is_kept_until_it_may_be_another_one() {
        let mut labels: ByCaller<String> = ByCaller::default();
        let nameless = caller(1, "");
        assert_eq!(labels.of(&nameless, Caller::application), "10.0.0.1");
        let again = labels.of(&nameless, |_| panic!("it is known"));
        assert_eq!(again, "10.0.0.1");
        nameless.known_by.settle(Some(Program::new("orders", None)));
        assert_eq!(labels.of(&nameless, Caller::application), "orders");
        let named = caller(1, "billing");
        assert_eq!(labels.of(&named, Caller::application), "billing");
        for session in 0..5 * MAX_CALLERS as u64 {
            let name = if session % 2 == 0 { "even" } else { "odd" };
            assert_eq!(labels.of(&caller(session, name), Caller::application), name);
        }
        assert!(labels.0.len() <= MAX_CALLERS);
    }
}

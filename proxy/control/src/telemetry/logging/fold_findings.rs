//! Folds observations about how clients use their locks: one line per kind, namespace and minute, with an example and
//! the number of observations. Counters are never folded, only lines. It reads no clock; the caller passes the time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::net::peer::PeerAddress;
use crate::telemetry::fold::{Folder, Turn};
use crate::telemetry::vocabulary::{Label, Observation};

/// Lines about the same thing are at least this far apart.
const WINDOW: Duration = Duration::from_secs(60);

/// Decides which observations get a line. Bounded by the number of namespaces: quiet ones are forgotten after a minute.
pub struct ObservationFolder(Mutex<Folder<(String, Observation), Untold>>);

/// The observations that are in no line yet.
struct Untold {
    count: u64,
    last: Example,
}

/// Where something was observed, as an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    pub key: Bytes,
    /// The application's own name.
    pub name: Bytes,
    pub client: PeerAddress,
}

/// The contents of one line.
#[derive(Debug, PartialEq, Eq)]
pub struct ObservationLine {
    pub namespace: String,
    pub(crate) kind: Observation,
    pub(crate) example: Example,
    /// How many further observations there were since the last line.
    pub(crate) repeated: u64,
}

impl Default for ObservationFolder {
    fn default() -> ObservationFolder {
        ObservationFolder(Mutex::new(Folder::new(WINDOW)))
    }
}

impl ObservationFolder {
    /// Adds an observation. Returns its line, if it gets one at once.
    pub fn observed(
        &self,
        namespace: &str,
        kind: Observation,
        example: Example,
        now: Instant,
    ) -> Option<ObservationLine> {
        let mut folder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match folder.turn((namespace.to_owned(), kind), now) {
            Turn::Line(untold) => Some(ObservationLine {
                namespace: namespace.to_owned(),
                kind,
                example,
                repeated: untold.map_or(0, |untold| untold.count),
            }),
            Turn::Fold(untold) => {
                let before = untold.as_ref().map_or(0, |untold| untold.count);
                *untold = Some(Untold { count: before + 1, last: example });
                None
            }
        }
    }

    /// The lines of folded observations, once a minute has passed since the last line. Call this about once a second.
    pub fn drain(&self, now: Instant) -> Vec<ObservationLine> {
        let mut folder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        folder.drain(now, |(namespace, kind), untold| {
            lines.push(ObservationLine {
                namespace: namespace.clone(),
                kind: *kind,
                example: untold.last,
                // The example is one of the counted ones.
                repeated: untold.count - 1,
            });
        });
        lines
    }
}

impl ObservationLine {
    /// Writes the line.
    pub fn log(&self) {
        tracing::info!(
            namespace = %self.namespace,
            kind = self.kind.word(),
            key = %String::from_utf8_lossy(&self.example.key),
            client = %self.example.client,
            name = %String::from_utf8_lossy(&self.example.name),
            repeated = self.repeated,
            "observed"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(key: &'static str) -> Example {
        Example { key: Bytes::from_static(key.as_bytes()), name: Bytes::new(), client: ([127, 0, 0, 1], 4711).into() }
    }

    #[test]
    fn a_kind_gets_one_line_a_minute_with_the_last_example_and_the_count() {
        let (folder, start) = (ObservationFolder::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let found = |key, now| folder.observed("orders", Observation::Debt, example(key), now);
        let first = found("first", at(0)).expect("nothing was told yet");
        assert_eq!((first.example, first.repeated), (example("first"), 0));
        for key in ["second", "third", "fourth"] {
            assert_eq!(found(key, at(30)), None);
        }
        assert_eq!(folder.drain(at(59)), []);
        let [rest] = &folder.drain(at(60))[..] else {
            panic!("one line");
        };
        assert_eq!((&rest.example, rest.repeated), (&example("fourth"), 2));
        assert_eq!(found("fifth", at(61)), None);
        assert_eq!(folder.drain(at(120)).len(), 1);
        assert_eq!(folder.drain(at(180)), []);
    }

    #[test]
    fn what_nobody_drained_is_told_with_the_next() {
        let (folder, start) = (ObservationFolder::default(), Instant::now());
        let later = start + WINDOW;
        let found = |now| folder.observed("orders", Observation::Outlived, example("a"), now);
        assert!(found(start).is_some());
        assert_eq!(found(start), None);
        assert_eq!(found(later).map(|line| line.repeated), Some(1));
        assert_eq!(found(later), None);
    }

    #[test]
    fn another_kind_or_namespace_is_another_line() {
        let (folder, now) = (ObservationFolder::default(), Instant::now());
        for (namespace, kind) in
            [("orders", Observation::Debt), ("orders", Observation::Outlived), ("stock", Observation::Debt)]
        {
            assert!(folder.observed(namespace, kind, example("a"), now).is_some());
            assert!(folder.observed(namespace, kind, example("a"), now).is_none());
        }
    }
}

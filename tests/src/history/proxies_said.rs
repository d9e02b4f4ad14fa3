//! What the proxies of a run report themselves: in their logs and audit trails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::deadline::wait_for;
use crate::proxy::Proxy;

/// How a lease that a failover has lost is told in the log.
const LOST: &str = "a lease was lost in the failover";
/// Its metric.
const LOST_COUNTED: &str = "lockwarden_leases_lost_total";

/// Leases of which they say that they were lost, and how many they have counted.
pub(super) fn lost<'a>(
    proxies: impl Iterator<Item = &'a Proxy>,
    counted_by: impl Fn(&Proxy, &str) -> f64,
) -> (BTreeSet<(String, u64)>, f64) {
    let (mut logged, mut counted) = (BTreeSet::new(), 0.0);
    for proxy in proxies {
        for line in proxy.log().lines().filter(|line| line.contains(LOST)) {
            logged.extend(grant_of(line));
        }
        counted += counted_by(proxy, LOST_COUNTED);
    }
    (logged, counted)
}

/// Stops them, so that they have written everything, and reads the grants of each lock.
#[track_caller]
pub(super) fn trail<'a>(places: impl Iterator<Item = (Option<Proxy>, &'a Path)>) -> BTreeMap<String, Vec<u64>> {
    let mut trail: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (proxy, file) in places {
        if let Some(mut proxy) = proxy {
            proxy.asks_to_stop();
            wait_for("a proxy to end", || !proxy.runs());
            let log = proxy.log();
            assert_eq!(proxy.ends(), Some(0), "a proxy ended badly:\n{log}");
        }
        let text = fs::read_to_string(file).unwrap_or_default();
        for (key, fence) in text.lines().filter_map(grant_of) {
            trail.entry(key).or_default().push(fence);
        }
    }
    trail
}

fn grant_of(line: &str) -> Option<(String, u64)> {
    let line: Value = serde_json::from_str(line).ok()?;
    Some((line["key"].as_str()?.to_owned(), line["fence"].as_u64()?))
}

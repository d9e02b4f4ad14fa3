//! The page `docs/metrics.md`, made of the declarations of all metrics.

use std::fmt::Write as _;

use super::super::ProcessMetrics;
use super::super::declaration::MetricDoc;
use super::super::guards::GuardMetrics;
use super::super::namespaces::NamespaceMetrics;
use super::super::policies::PolicyMetrics;
use super::super::runtime::RuntimeMetrics;
use super::super::tls::TlsMetrics;

/// Every metric of the proxy, in reading order.
pub(super) fn catalogue() -> Vec<MetricDoc> {
    let all = [
        NamespaceMetrics::documented(),
        GuardMetrics::documented(),
        ProcessMetrics::documented(),
        PolicyMetrics::documented(),
        TlsMetrics::documented(),
        RuntimeMetrics::documented(),
    ];
    all.into_iter().flatten().collect()
}

pub(super) fn markdown() -> String {
    let mut page = String::from(HEAD);
    for metric in catalogue() {
        let _ = writeln!(page, "\n### `{}`\n\n{}. {}", metric.name, metric.kind, metric.help);
        if !metric.labels.is_empty() {
            page.push('\n');
        }
        for (label, values) in metric.labels {
            let _ = writeln!(page, "- `{label}`: {values}");
        }
    }
    page.push_str(TAIL);
    page
}

const HEAD: &str = "\
<!-- Made from the declarations in proxy/control/src/telemetry/metrics.rs and metrics/*.rs. To write it anew:
     UPDATE_DOCS=1 cargo test -p lockwarden-control metrics -->
# Metrics

`GET /metrics` on the admin address, and on the `metrics` address if one is configured, returns
the Prometheus text format 0.0.4.

- Labels come from small closed sets. A lock key, an owner token, a fencing token, a user or an
  address is never a label; those are fields of log lines.
- Series that an alert could need are there at 0 from the start. Refusals that the built-in policies
  cannot make appear with their first one.
- At most `metrics_max_namespaces` (30) namespaces and 10 policies have series of their own, the
  others share `__other__`. With the defaults a proxy has fewer than 6,000 series.
- For several proxies take the sum: each counts what went through itself.

What to look at first:

| question | expression |
|---|---|
| What was refused? | `sum by (namespace, reason) (increase(lockwarden_decisions_total{decision=\"deny\"}[1h]))` |
| What would enforce mode refuse? | `sum by (namespace, reason) (increase(lockwarden_decisions_total{decision=\"would-deny\"}[1d]))` |
| Did two holders overlap? | `increase(lockwarden_lock_overlaps_total[10m]) > 0` |
| Which locks never end? | `lockwarden_locks_held{ttl=\"none\"} > 0` |
| Did a kept lock run out under its holder? | `increase(lockwarden_keep_alive_lapsed_total[10m]) > 0` |
| How old is the oldest lock? | `max(time() - lockwarden_oldest_lock_acquired_timestamp_seconds)` |
| What does the proxy cost? | `histogram_quantile(0.99, sum by (le, path) (rate(lockwarden_added_latency_seconds_bucket[5m])))` |

## The metrics
";

const TAIL: &str = "
### `process_*`

What the Prometheus client libraries say about every process: CPU, memory, open files, start time.

## Buckets

| histogram | first | last | why |
|---|---|---|---|
| `lockwarden_lock_hold_duration_seconds` | 10 ms | 30 min | shorter holds are a few round trips; longer ones deserve a look each |
| `lockwarden_lock_wait_duration_seconds` | 10 ms | 60 s | shorter waits are one refusal; longer ones people notice |
| `lockwarden_lock_remaining_ttl_ratio` | 0.05 | 0.5 | below the first, a slow day leads to an overlap; above the last there is room |
| `lockwarden_keep_alive_lateness_seconds` | 5 ms | 60 s | below the first a renewal is on time; two thirds of a default TTL are 20 s |
| `lockwarden_added_latency_seconds` | 10 µs | 1 s | a passed-through command costs less than the first; a second is a fault |
| `lockwarden_backend_latency_seconds` | 50 µs | 5 s | a loopback round trip; longer than that clients give up |
| `lockwarden_guard_seconds` | 50 µs | 250 ms | two round trips on a loopback; longer than that Redis is slow |
| `lockwarden_policy_evaluation_duration_seconds` | 250 ns | 10 ms | a warm built-in policy; above the largest sensible deadline |
";

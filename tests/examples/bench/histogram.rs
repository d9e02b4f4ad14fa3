//! Latencies, counted in buckets whose width grows with the value: a run records millions of latencies, and
//! its quantiles are within 1 % of the exact ones.

use std::time::Duration;

/// Buckets a doubling: a value differs from its bucket's middle by 0.4 % at most.
const WITHIN_DOUBLING: u64 = 128;
/// Values below this, in nanoseconds, have a bucket each.
const EXACT: u64 = 2 * WITHIN_DOUBLING;
/// The longest that is told apart, some 68 seconds.
const MAX_NANOS: u64 = (1 << 36) - 1;

/// How often each latency came.
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { buckets: vec![0; bucket(MAX_NANOS) + 1], total: 0 }
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(MAX_NANOS);
        self.buckets[bucket(nanos.min(MAX_NANOS))] += 1;
        self.total += 1;
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The latency, in µs, that this share of all did not exceed; NaN of nothing.
    pub(crate) fn quantile_us(&self, share: f64) -> f64 {
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(at as u64) / 1e3;
            }
        }
        f64::NAN
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < EXACT {
        return nanos as usize;
    }
    let halvings = u64::from((nanos / WITHIN_DOUBLING).ilog2());
    (halvings * WITHIN_DOUBLING + (nanos >> halvings)) as usize
}

fn middle(bucket: u64) -> f64 {
    if bucket < EXACT {
        return bucket as f64;
    }
    let halvings = bucket / WITHIN_DOUBLING - 1;
    let lowest = (bucket % WITHIN_DOUBLING + WITHIN_DOUBLING) << halvings;
    lowest as f64 + ((1_u64 << halvings) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_near_the_middle_of_its_bucket() {
        let mut last = 0;
        for power in 0..36 {
            for part in 0..1000 {
                let value = (1_u64 << power) + (1_u64 << power) * part / 1000;
                let at = bucket(value);
                assert!(at >= last, "{value} lies before a smaller value");
                last = at;
                let off = (middle(at as u64) - value as f64).abs() / value as f64;
                assert!(off <= 0.004, "{value} is off by {off}");
            }
        }
        assert_eq!(bucket(MAX_NANOS) + 1, Histogram::new().buckets.len());
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut histogram = Histogram::new();
        assert!(histogram.quantile_us(0.5).is_nan());
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        histogram.record(Duration::from_secs(1000));
        assert_eq!(histogram.total(), 1001);
        for (share, expected) in [(0.0, 1.0), (0.5, 501.0), (0.99, 991.0), (0.999, 1000.0)] {
            let found = histogram.quantile_us(share);
            assert!((found - expected).abs() / expected < 0.005, "{share}: {found} where {expected} was expected");
        }
        assert!(histogram.quantile_us(1.0) > 60e6, "what is longer counts as the longest");
    }
}

//! What is printed: a line a way, medians over the rounds, and what they are beside the first way
//! (straight to Redis) and the second (the forwarder).

use std::time::Duration;

use crate::load::Workload;

/// One way in one round.
pub(crate) struct Sample {
    commands_a_second: f64,
    p50_us: f64,
    p99_us: f64,
    between_us: Option<f64>,
    redis_us: f64,
}

impl Sample {
    /// Of the round trips within `elapsed`, and the CPU time of the process in between and of Redis.
    pub(crate) fn new(
        round_trips: &mut [Duration],
        commands_a_round_trip: usize,
        elapsed: Duration,
        between: Option<Duration>,
        redis: Duration,
    ) -> Sample {
        round_trips.sort_unstable();
        let commands = (round_trips.len() * commands_a_round_trip) as f64;
        let quantile = |share: f64| {
            let at = (round_trips.len() as f64 * share) as usize;
            round_trips.get(at).map_or(f64::NAN, |&time| micros(time))
        };
        Sample {
            commands_a_second: commands / elapsed.as_secs_f64(),
            p50_us: quantile(0.50),
            p99_us: quantile(0.99),
            between_us: between.map(|time| micros(time) / commands),
            redis_us: micros(redis) / commands,
        }
    }
}

/// One workload over all rounds.
pub(crate) struct Table {
    title: &'static str,
    rows: Vec<(&'static str, Vec<Sample>)>,
}

impl Table {
    /// With a row for each way; the first is what the others are compared with.
    pub(crate) fn new(workload: &Workload, ways: &[&'static str]) -> Table {
        Table {
            title: workload.name,
            rows: ways.iter().map(|&way| (way, Vec::new())).collect(),
        }
    }

    /// What one more round gave on the way at this place.
    pub(crate) fn add(&mut self, way: usize, sample: Sample) {
        self.rows[way].1.push(sample);
    }

    pub(crate) fn print(&self) {
        println!("\n{}", self.title);
        println!(
            "{:<12}{:>10}{:>6}{:>9}{:>12}{:>9}{:>9}{:>8}{:>14}{:>6}{:>13}{:>9}",
            "",
            "commands/s",
            "±%",
            "/direct",
            "/forwarder",
            "p50 µs",
            "p99 µs",
            "added",
            "CPU/command",
            "±%",
            "Redis's CPU",
            "/direct"
        );
        let rate = |sample: &Sample| sample.commands_a_second;
        let between = |sample: &Sample| sample.between_us.unwrap_or(f64::NAN);
        for (at, (way, samples)) in self.rows.iter().enumerate() {
            let p50 = of(samples, |sample| sample.p50_us);
            let redis = of(samples, |sample| sample.redis_us);
            println!(
                "{way:<12}{:>10.0}{:>6.1}{:>9.2}{:>12.2}{:>9.1}{:>9.1}{:>8}{:>14}{:>6}{:>13.2}{:>9.2}",
                of(samples, rate),
                spread(samples, rate),
                self.beside(at, 0, rate),
                self.beside(at, 1, rate),
                p50,
                of(samples, |sample| sample.p99_us),
                or_dash(p50 - of(&self.rows[0].1, |sample| sample.p50_us), 1),
                or_dash(of(samples, between), 2),
                or_dash(spread(samples, between), 1),
                redis,
                self.beside(at, 0, |sample| sample.redis_us),
            );
        }
    }

    /// The median of one way's values beside those of another in the same round: what slows a round
    /// down slows both.
    fn beside(&self, row: usize, other: usize, value: impl Fn(&Sample) -> f64) -> f64 {
        let pairs = self.rows[row].1.iter().zip(&self.rows[other].1);
        median(sorted(pairs.map(|(one, other)| value(one) / value(other))))
    }
}

fn of(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    median(sorted(samples.iter().map(value)))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn median(sorted: Vec<f64>) -> f64 {
    let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    (lower + upper) / 2.0
}

/// Half the range over the rounds, in percent of the median.
fn spread(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    let values = sorted(samples.iter().map(value));
    let range = values[values.len() - 1] - values[0];
    range / 2.0 / median(values) * 100.0
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn or_dash(value: f64, digits: usize) -> String {
    if value.is_nan() {
        "–".to_owned()
    } else {
        format!("{value:.digits$}")
    }
}

//! Arithmetic over rounds: medians, spreads, and ratios within a round, so that a slow moment affects both
//! sides of a ratio. A round without a number is left out.

/// What a run of one load over one way gave. Times are µs a command, by the processes' own accounts.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) commands: u64,
    /// Commands a second; connections a second where a load opens and closes them.
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// Of the process in between; NaN where there is none.
    pub(crate) proxy: f64,
    pub(crate) proxy_user: f64,
    pub(crate) redis: f64,
    pub(crate) generator: f64,
    /// Resident memory of the process in between, MiB; NaN where there is none.
    pub(crate) memory: f64,
}

impl Sample {
    /// CPU time of all three processes, µs a command.
    pub(crate) fn all(&self) -> f64 {
        let proxy = if self.proxy.is_nan() { 0.0 } else { self.proxy };
        proxy + self.redis + self.generator
    }
}

/// One number of a sample.
pub(crate) type Metric = fn(&Sample) -> f64;

/// One way's samples of one load, by round; `None` where the round gave none.
pub(crate) type Rounds = [Option<Sample>];

/// A median over rounds, and half their range in percent of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) spread: f64,
}

impl Figure {
    /// `None` if there are no values, or one is not a number.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Figure> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        let median = f64::midpoint(lower, upper);
        Some(Figure { median, spread: (most - least) / 2.0 / median.abs() * 100.0 })
    }
}

/// The figure of one metric.
pub(crate) fn of(rounds: &Rounds, metric: Metric) -> Option<Figure> {
    Figure::of(rounds.iter().flatten().map(metric))
}

/// One way's metric beside another's, or one load's beside another's, of the same round.
pub(crate) fn ratio(one: &Rounds, other: &Rounds, metric: Metric) -> Option<Figure> {
    Figure::of(pairs(one, other).map(|(one, other)| metric(one) / metric(other)))
}

fn pairs<'a>(one: &'a Rounds, other: &'a Rounds) -> impl Iterator<Item = (&'a Sample, &'a Sample)> {
    let rounds = one.iter().zip(other);
    rounds.filter_map(|(one, other)| Some((one.as_ref()?, other.as_ref()?)))
}

/// What one way adds to a metric of the base, beside what another adds, within a round.
pub(crate) fn ratio_of_added(one: &Rounds, other: &Rounds, base: &Rounds, metric: Metric) -> Option<Figure> {
    let rounds = one.iter().zip(other).zip(base);
    Figure::of(rounds.filter_map(|((one, other), base)| {
        let base = metric(base.as_ref()?);
        Some((metric(one.as_ref()?) - base) / (metric(other.as_ref()?) - base))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(rates: &[Option<f64>]) -> Vec<Option<Sample>> {
        let sample = |rate| Sample {
            commands: 1,
            rate,
            p50: 0.0,
            p99: 0.0,
            p999: 0.0,
            proxy: f64::NAN,
            proxy_user: f64::NAN,
            redis: 0.0,
            generator: 0.0,
            memory: f64::NAN,
        };
        rates.iter().map(|rate| rate.map(sample)).collect()
    }

    const RATE: Metric = |sample| sample.rate;

    #[test]
    fn a_figure_is_the_median_and_half_the_range() {
        let of = |values: &[f64]| Figure::of(values.iter().copied());
        let figure = |median, spread| Some(Figure { median, spread });
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f64::NAN]), None);
        assert_eq!(of(&[7.0]), figure(7.0, 0.0));
        assert_eq!(of(&[3.0, 1.0, 2.0]), figure(2.0, 50.0));
        assert_eq!(of(&[1.0, 3.0, 2.0, 2.0, f64::NAN]), figure(2.0, 50.0));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // Twice as slow in every round, though the rounds themselves differ by four.
        let one = rounds(&[Some(1.0), Some(2.0), Some(4.0), None]);
        let other = rounds(&[Some(2.0), Some(4.0), Some(8.0), Some(1.0)]);
        let half = Figure { median: 0.5, spread: 0.0 };
        assert_eq!(ratio(&one, &other, RATE), Some(half));
        assert_eq!(ratio(&one, &rounds(&[None, None]), RATE), None);
        assert!(of(&one, |sample| sample.proxy).is_none());
    }

    #[test]
    fn what_is_added_is_beside_what_another_adds() {
        let base = rounds(&[Some(10.0), Some(20.0)]);
        let one = rounds(&[Some(13.0), Some(23.0)]);
        let other = rounds(&[Some(12.0), Some(22.0)]);
        let figure = ratio_of_added(&one, &other, &base, RATE).unwrap();
        assert_eq!(figure.median, 1.5);
    }
}

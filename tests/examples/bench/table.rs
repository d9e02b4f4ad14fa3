//! The printed tables of the loads: one line for each way, medians over the rounds, ratios within a round.

use serde_json::{Value, json};

use crate::figures::{Figure, Metric, Rounds, Sample, of, ratio};
use crate::load::Load;

pub(crate) const RATE: Metric = |sample| sample.rate;
pub(crate) const PROXY: Metric = |sample| sample.proxy;
pub(crate) const REDIS: Metric = |sample| sample.redis;
/// What one core could carry if it did nothing else: throughput without what else the machine did.
pub(crate) const CARRIED: Metric = |sample| 1e6 / sample.all();
pub(crate) const P50: Metric = |sample| sample.p50;

/// One load over all ways and rounds.
pub(crate) struct Table {
    pub(crate) load: Load,
    pub(crate) rows: Vec<Row>,
}

/// One way.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) rounds: Vec<Option<Sample>>,
    /// Why there are no more rounds.
    pub(crate) failure: Option<String>,
}

impl Table {
    pub(crate) fn rounds(&self, way: &str) -> Option<&Rounds> {
        let row = self.rows.iter().find(|row| row.name == way)?;
        row.failure.is_none().then_some(&row.rounds)
    }

    pub(crate) fn print(&self) {
        println!("\n{}: {}", self.load.name, self.load.title);
        println!(
            "{:<12}{:>10}{:>6}{:>9}{:>11}{:>10}{:>10}{:>10}{:>10}{:>9}{:>6}{:>7}{:>8}{:>8}{:>7}{:>7}{:>9}",
            "",
            "a second",
            "±%",
            "/direct",
            "/forwarder",
            "/haproxy",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "CPU µs",
            "±%",
            "user",
            "system",
            "Redis",
            "load",
            "all",
            "RSS MiB"
        );
        for row in &self.rows {
            if let Some(failure) = &row.failure {
                println!("{:<12}left out: {failure}", row.name);
                continue;
            }
            let median = |metric| of(&row.rounds, metric).map(|figure| figure.median);
            let spread = |metric| of(&row.rounds, metric).map(|figure| figure.spread);
            let beside = |way| {
                let other = self.rounds(way)?;
                ratio(&row.rounds, other, RATE).map(|figure| figure.median)
            };
            println!(
                "{:<12}{:>10}{:>6}{:>9}{:>11}{:>10}{:>10}{:>10}{:>10}{:>9}{:>6}{:>7}{:>8}{:>8}{:>7}{:>7}{:>9}",
                row.name,
                number(median(RATE), 0),
                number(spread(RATE), 1),
                number(beside("direct"), 2),
                number(beside("forwarder"), 2),
                number(beside("haproxy"), 2),
                number(median(P50), 1),
                number(median(|sample| sample.p99), 1),
                number(median(|sample| sample.p999), 1),
                number(median(PROXY), 2),
                number(spread(PROXY), 1),
                number(median(|sample| sample.proxy_user), 2),
                number(median(|sample| sample.proxy - sample.proxy_user), 2),
                number(median(REDIS), 2),
                number(median(|sample| sample.generator), 2),
                number(median(Sample::all), 2),
                number(median(|sample| sample.memory), 1),
            );
        }
    }

    /// Every figure of every round, and the ratios.
    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let beside = |way: &str, metric| {
                let other = self.rounds(way)?;
                ratio(&row.rounds, other, metric).map(figure)
            };
            let rounds = row.rounds.iter().map(|round| round.as_ref().map(sample));
            json!({
                "way": row.name,
                "failure": row.failure,
                "rounds": rounds.collect::<Vec<_>>(),
                "rate_to_direct": beside("direct", RATE),
                "rate_to_forwarder": beside("forwarder", RATE),
                "rate_to_haproxy": beside("haproxy", RATE),
                "carried_to_direct": beside("direct", CARRIED),
                "carried_to_forwarder": beside("forwarder", CARRIED),
                "carried_to_haproxy": beside("haproxy", CARRIED),
                "cpu_to_forwarder": beside("forwarder", PROXY),
                "cpu_to_haproxy": beside("haproxy", PROXY),
                "redis_cpu_to_direct": beside("direct", REDIS),
            })
        });
        json!({
            "load": self.load.name,
            "title": self.load.title,
            "ways": rows.collect::<Vec<_>>(),
        })
    }
}

fn figure(figure: Figure) -> Value {
    json!({ "median": figure.median, "spread_percent": figure.spread })
}

fn sample(sample: &Sample) -> Value {
    json!({
        "commands": sample.commands,
        "a_second": sample.rate,
        "p50_us": sample.p50,
        "p99_us": sample.p99,
        "p999_us": sample.p999,
        "proxy_us": sample.proxy,
        "proxy_user_us": sample.proxy_user,
        "redis_us": sample.redis,
        "generator_us": sample.generator,
        "rss_mib": sample.memory,
    })
}

/// With so many digits, or a dash for what is not there.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{value:.digits$}"),
        _ => "–".to_owned(),
    }
}

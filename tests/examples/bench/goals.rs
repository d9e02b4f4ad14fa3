//! What the proxy is meant to reach, and whether it did in this run. A goal that rests on a load whose
//! direct runs differ too much is void: the machine was busy with something else.

use serde_json::{Value, json};

use crate::figures::{Figure, Metric, of, ratio, ratio_of_added};
use crate::footprint::Footprint;
use crate::table::{CARRIED, P50, PROXY, RATE, REDIS, Table, number};

/// Beyond this spread of the direct runs, percent, a figure says nothing.
const MAX_SPREAD: f64 = 5.0;

/// The limit for a value.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        }
    }

    /// By how much a value misses it, percent.
    fn missed_by(self, value: f64) -> f64 {
        let (Bound::AtMost(bound) | Bound::AtLeast(bound)) = self;
        ((value / bound - 1.0) * 100.0).abs()
    }

    fn words(self) -> String {
        match self {
            Bound::AtMost(most) => format!("≤ {most}"),
            Bound::AtLeast(least) => format!("≥ {least}"),
        }
    }
}

/// One line.
struct Goal {
    words: String,
    must: Bound,
    aim: Bound,
    value: Option<Figure>,
    /// The spread of the direct runs of the load, percent; `None` where no load is involved.
    direct: Option<f64>,
    remarks: Vec<String>,
}

/// Everything that goals are computed from.
pub(crate) struct Measured<'a> {
    pub(crate) tables: &'a [Table],
    pub(crate) footprints: &'a [Footprint],
    /// A decision that three policies judge, µs.
    pub(crate) decision: Option<f64>,
}

impl Measured<'_> {
    fn table(&self, load: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.load.name == load)
    }

    /// One way beside another, in one load.
    fn beside(&self, load: &str, way: &str, other: &str, metric: Metric) -> Option<Figure> {
        let table = self.table(load)?;
        ratio(table.rounds(way)?, table.rounds(other)?, metric)
    }

    /// What a way adds to the direct latency, beside what another adds.
    fn added(&self, load: &str, way: &str, other: &str) -> Option<Figure> {
        let table = self.table(load)?;
        let base = table.rounds("direct")?;
        ratio_of_added(table.rounds(way)?, table.rounds(other)?, base, P50)
    }

    /// A metric of one way in one load beside that in another.
    fn between_loads(&self, load: &str, other: &str, way: &str, metric: Metric) -> Option<Figure> {
        let (one, other) = (self.table(load)?, self.table(other)?);
        ratio(one.rounds(way)?, other.rounds(way)?, metric)
    }

    fn direct_spread(&self, load: &str) -> Option<f64> {
        let spread = of(self.table(load)?.rounds("direct")?, RATE)?.spread;
        Some(spread)
    }

    fn footprint(&self, way: &str) -> Option<&Footprint> {
        self.footprints.iter().find(|print| print.name == way)
    }

    fn goals(&self) -> Vec<Goal> {
        use Bound::{AtLeast, AtMost};
        let on = |load: &str, words: &str, must, aim, value| Goal {
            words: words.to_owned(),
            must,
            aim,
            value,
            direct: self.direct_spread(load),
            remarks: Vec::new(),
        };
        let throughput = |load: &str, words: &str, way, other, must, aim| {
            let value = self.beside(load, way, other, RATE);
            let mut goal = on(load, words, AtLeast(must), AtLeast(aim), value);
            let carried = self.beside(load, way, other, CARRIED);
            let words = |found: Figure| format!("by CPU {:.2} ±{:.1} %", found.median, found.spread);
            goal.remarks.extend(carried.map(words));
            goal
        };
        let mut goals = vec![
            on(
                "plain",
                "dedicated, passed through: CPU a command / haproxy",
                AtMost(1.0),
                AtMost(0.97),
                self.beside("plain", "dedicated", "haproxy", PROXY),
            ),
            throughput(
                "pipeline",
                "dedicated, pipeline of 16: throughput / haproxy",
                "dedicated",
                "haproxy",
                0.90,
                1.00,
            ),
            throughput("big", "dedicated, 16 KiB: throughput / haproxy", "dedicated", "haproxy", 1.1, 1.4),
            on(
                "single",
                "dedicated, 1 client: p50 added / added by haproxy",
                AtMost(1.05),
                AtMost(0.95),
                self.added("single", "dedicated", "haproxy"),
            ),
            throughput("plain", "multiplexed, 50 clients: throughput / haproxy", "multiplexed", "haproxy", 1.7, 2.1),
            on(
                "plain",
                "multiplexed: Redis's CPU a command / direct",
                AtMost(0.3),
                AtMost(0.16),
                self.beside("plain", "multiplexed", "direct", REDIS),
            ),
            throughput(
                "pipeline",
                "multiplexed, pipeline of 16: throughput / haproxy",
                "multiplexed",
                "haproxy",
                1.0,
                1.15,
            ),
        ];
        if let Some(ahead) = self.beside("plain", "multiplexed", "predixy", RATE) {
            goals[4].remarks.push(format!("{:.2} of predixy", ahead.median));
        }
        for (way, must, aim) in [("dedicated", 0.65, 0.80), ("multiplexed", 0.75, 0.95), ("forgets", 0.75, 0.95)] {
            for (load, free, cycle, most, least) in [
                ("good", "good-free", "SET NX PX, EVALSHA", 2.0, 1.6),
                ("legacy", "legacy-free", "SETNX, EXPIRE, DEL", 4.0, 3.0),
            ] {
                goals.push(on(
                    load,
                    &format!("{way}, {cycle}: CPU a command / passed through"),
                    AtMost(1.15),
                    AtMost(1.05),
                    self.between_loads(load, "plain", way, PROXY),
                ));
                goals.push(on(
                    load,
                    &format!("{way}, {cycle}: Redis's CPU a command / the same of no lock"),
                    AtMost(most),
                    AtMost(least),
                    self.between_loads(load, free, way, REDIS),
                ));
                let words = format!("{way}, {cycle}: throughput / forwarder");
                goals.push(throughput(load, &words, way, "forwarder", must, aim));
            }
        }
        for (way, must) in [("dedicated", 0.55), ("multiplexed", 0.90)] {
            goals.push(throughput(
                "churn",
                &format!("{way}, connect, lock, release, close: throughput / haproxy"),
                way,
                "haproxy",
                must,
                1.0,
            ));
        }
        let without_load = |words: String, must, aim, value: Option<Figure>| Goal {
            words,
            must: AtMost(must),
            aim: AtMost(aim),
            value,
            direct: None,
            remarks: Vec::new(),
        };
        let alone = |value: f64| Figure::of([value].into_iter());
        for way in ["dedicated", "multiplexed"] {
            let found = self.footprint(way);
            goals.push(without_load(
                format!("{way}: memory of an idle connection, KiB"),
                6.0,
                5.0,
                found.and_then(|found| alone(found.connection)),
            ));
        }
        goals.push(without_load(
            "a decision that three policies judge, warm, µs".to_owned(),
            0.7,
            0.5,
            self.decision.and_then(alone),
        ));
        goals.push(without_load(
            "start to serving with built-in policies, ms".to_owned(),
            35.0,
            18.0,
            self.footprint("dedicated").and_then(|found| found.start),
        ));
        goals
    }

    /// Prints them as one table, and returns them for the file; after a complete run also the goals that were
    /// not measured.
    pub(crate) fn print_goals(&self, complete: bool) -> Value {
        println!("\ngoals (void: the direct runs of the load differ by more than ±{MAX_SPREAD} %)");
        println!("{:<76}{:>8}{:>8}{:>9}{:>6}", "", "must", "aim", "value", "±%");
        let mut lines = Vec::new();
        for goal in self.goals() {
            if goal.value.is_none() && !complete {
                continue;
            }
            let verdict = goal.verdict();
            let said: Vec<_> = [&verdict].into_iter().chain(&goal.remarks).cloned().collect();
            let said = said.join("; ");
            println!(
                "{:<76}{:>8}{:>8}{:>9}{:>6}  {said}",
                goal.words,
                goal.must.words(),
                goal.aim.words(),
                number(goal.value.map(|value| value.median), 2),
                number(goal.value.map(|value| value.spread), 1),
            );
            lines.push(json!({
                "goal": goal.words,
                "must": goal.must.words(),
                "aim": goal.aim.words(),
                "value": goal.value.map(|value| value.median),
                "spread_percent": goal.value.map(|value| value.spread),
                "verdict": verdict,
                "remarks": goal.remarks,
            }));
        }
        Value::Array(lines)
    }
}

impl Goal {
    fn verdict(&self) -> String {
        let Some(value) = self.value.map(|value| value.median) else {
            return "not measured".to_owned();
        };
        let reached = if self.aim.holds(value) {
            "aim reached".to_owned()
        } else if self.must.holds(value) {
            format!("reached; the aim missed by {:.0} %", self.aim.missed_by(value))
        } else {
            format!("MISSED by {:.0} %", self.must.missed_by(value))
        };
        match self.direct {
            Some(spread) if spread > MAX_SPREAD => {
                format!("void, direct ±{spread:.1} %; else {reached}")
            }
            _ => reached,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(value: Option<f64>, direct: Option<f64>) -> String {
        let goal = Goal {
            words: String::new(),
            must: Bound::AtMost(1.0),
            aim: Bound::AtMost(0.5),
            value: value.and_then(|value| Figure::of([value].into_iter())),
            direct,
            remarks: Vec::new(),
        };
        goal.verdict()
    }

    #[test]
    fn a_verdict_says_how_far_the_value_is_from_the_bound() {
        for (value, direct, expected) in [
            (None, None, "not measured"),
            (Some(0.5), Some(5.0), "aim reached"),
            (Some(0.6), Some(1.0), "reached; the aim missed by 20 %"),
            (Some(1.2), None, "MISSED by 20 %"),
            (Some(1.2), Some(5.1), "void, direct ±5.1 %; else MISSED by 20 %"),
        ] {
            assert_eq!(verdict(value, direct), expected);
        }
        let least = Bound::AtLeast(0.8);
        assert!(least.holds(0.8) && !least.holds(0.79));
        assert_eq!(least.missed_by(0.4).round(), 50.0);
    }
}

//! What the proxy may cost, according to the table of `docs/performance.md`. This module reads the table, compares it with
//! measured numbers, and writes new numbers into it. It measures nothing itself; the example `budget` does.

use std::fmt;

/// The first line of the table.
pub const HEAD: &str = "| of the test build | is | unit | may grow by | what the last growth bought |";

/// How much further below its line a measure may be than above it.
const BELOW: f64 = 2.0;

/// A number that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// As its line of the table calls it.
    pub name: &'static str,
    /// In the unit of its line.
    pub is: u64,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    name: String,
    noted: u64,
    unit: String,
    /// In hundredths.
    may_grow_by: f64,
}

/// The verdict about a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is near its line.
    Holds,
    /// It costs more than its line says.
    Dearer,
    /// It costs so much less that its line would hide the next growth.
    Cheaper,
}

/// A measure beside its line. As text, a line for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    line: Line,
    is: u64,
}

impl Compared {
    /// The verdict about it.
    pub fn verdict(&self) -> Verdict {
        let away = self.away();
        if away > self.line.may_grow_by {
            Verdict::Dearer
        } else if away < -BELOW * self.line.may_grow_by {
            Verdict::Cheaper
        } else {
            Verdict::Holds
        }
    }

    /// From its line, in hundredths of what that says.
    fn away(&self) -> f64 {
        (self.is as f64 / self.line.noted as f64 - 1.0) * 100.0
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { name, noted, unit, may_grow_by } = &self.line;
        let (is, noted) = (grouped(self.is), grouped(*noted));
        write!(f, "{name:<58}{is:>14}{noted:>14} {unit:<22}{:>+7.2} %", self.away())?;
        match self.verdict() {
            Verdict::Holds => Ok(()),
            Verdict::Dearer => write!(f, "  MORE than the {may_grow_by} % that it may grow by"),
            Verdict::Cheaper => write!(f, "  cheaper: write the new number down, so that the gain is kept"),
        }
    }
}

/// Every measure beside its line of the page.
///
/// # Errors
///
/// Words about a table that cannot be read, a measure without a line, and a line without a measure.
pub fn compare(page: &str, measured: &[Measure]) -> Result<Vec<Compared>, String> {
    let lines = lines(page)?;
    if let Some(line) = lines.iter().find(|line| measured.iter().all(|measure| measure.name != line.name)) {
        return Err(format!("docs/performance.md has a line {:?}, which nothing measures: remove it", line.name));
    }
    let compared = measured.iter().map(|measure| {
        let line = lines.iter().find(|line| line.name == measure.name);
        let line = line.ok_or_else(|| {
            let (name, is) = (measure.name, grouped(measure.is));
            format!("docs/performance.md has no line {name:?} below {HEAD:?}: add one, and say {is} there")
        })?;
        Ok(Compared { line: line.clone(), is: measure.is })
    });
    compared.collect()
}

/// The page with what was measured in place of the numbers of its table.
pub fn rewritten(page: &str, measured: &[Measure]) -> String {
    let Some((before, table)) = page.split_once(HEAD) else {
        return page.to_owned();
    };
    let mut text = format!("{before}{HEAD}");
    for row in table.split_inclusive('\n') {
        let mut cells: Vec<&str> = row.split('|').collect();
        let of_row = measured.iter().find(|measure| cells.get(1).is_some_and(|name| name.trim() == measure.name));
        let number = of_row.map(|measure| format!(" {} ", grouped(measure.is)));
        if let (Some(number), Some(cell)) = (&number, cells.get_mut(2)) {
            *cell = number;
        }
        text.push_str(&cells.join("|"));
    }
    text
}

fn lines(page: &str) -> Result<Vec<Line>, String> {
    let (_, table) = page.split_once(HEAD).ok_or_else(|| format!("docs/performance.md has no table {HEAD:?}"))?;
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    rows.map(|row| line(row).map_err(|wrong| format!("docs/performance.md: {wrong} in the line {row:?}"))).collect()
}

fn line(row: &str) -> Result<Line, &'static str> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let &[_, name, noted, unit, may_grow_by, bought, _] = &cells[..] else {
        return Err("not five cells");
    };
    let noted = noted.replace(',', "").parse().ok().filter(|&noted| noted > 0);
    let percent = may_grow_by.strip_suffix(" %").and_then(|percent| percent.parse().ok());
    if bought.is_empty() {
        return Err("nothing in the last cell, which says what the growth bought,");
    }
    Ok(Line {
        name: name.to_owned(),
        noted: noted.ok_or("no whole number above 0 in the second cell")?,
        unit: unit.to_owned(),
        may_grow_by: percent.filter(|percent| *percent > 0.0).ok_or("nothing like `3 %` in the fourth cell")?,
    })
}

/// With a comma before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rows: &str) -> String {
        format!("# Costs\n\n{HEAD}\n|---|---|---|---|---|\n{rows}\nThe end.\n")
    }

    fn verdicts(is: &[u64]) -> Vec<Verdict> {
        let page = page("| a command | 20,000 | instructions | 3 % | the first count |\n");
        let compared = is.iter().map(|&is| compare(&page, &[Measure { name: "a command", is }]).unwrap());
        compared.map(|compared| compared[0].verdict()).collect()
    }

    #[test]
    fn the_table_of_the_page_can_be_read() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance.md");
        let lines = lines(&std::fs::read_to_string(page).unwrap()).unwrap();
        assert!(!lines.is_empty());
    }

    #[test]
    fn a_measure_may_be_three_hundredths_above_its_line_and_six_below() {
        use Verdict::{Cheaper, Dearer, Holds};
        let is = [18_799, 18_801, 20_000, 20_599, 20_601];
        assert_eq!(verdicts(&is), [Cheaper, Holds, Holds, Holds, Dearer]);
    }

    #[test]
    fn what_is_wrong_with_a_table_is_said() {
        let measured = [Measure { name: "a command", is: 1_234_567 }];
        for (page, words) in [
            ("# Costs".to_owned(), "no table"),
            (page(""), "no line \"a command\""),
            (page("| a cycle | 1 | bytes | 3 % | x |\n"), "which nothing measures"),
            (page("| a command | 1 | bytes | 3 % |\n"), "not five cells"),
            (page("| a command | many | bytes | 3 % | x |\n"), "no whole number"),
            (page("| a command | 0 | bytes | 3 % | x |\n"), "no whole number"),
            (page("| a command | 1 | bytes | 3 | x |\n"), "nothing like"),
            (page("| a command | 1 | bytes | 3 % | |\n"), "what the growth bought"),
        ] {
            let said = compare(&page, &measured).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn new_numbers_change_nothing_else() {
        let rows = |number: &str| {
            page(&format!(
                "| a command | {number} | bytes | 3 % | the first count |\n| a cycle | 7 | bytes | 3 % | x |\n"
            ))
        };
        let measured = [Measure { name: "a command", is: 1_234_567 }];
        assert_eq!(rewritten(&rows("20,000"), &measured), rows("1,234,567"));
        assert_eq!(rewritten("# Costs\n", &measured), "# Costs\n");
    }
}

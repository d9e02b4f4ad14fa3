//! What a language's program said in one world, read from its JSON lines, and what is wrong when two
//! worlds are laid side by side. Knows nothing about processes and pages.

use std::fmt::Write as _;

use serde::Deserialize;

/// The checks of one world, in the order in which they ran.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) checks: Vec<Check>,
    /// What is wrong with the program itself: lines that are no checks, a bad end.
    pub(crate) faults: Vec<String>,
    /// How many leases the proxy granted; none where there is no proxy.
    pub(crate) grants: Option<f64>,
}

/// One line of a program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    pub(crate) client: String,
    pub(crate) version: String,
    #[serde(rename = "check")]
    pub(crate) name: String,
    pub(crate) result: Outcome,
    #[serde(default)]
    pub(crate) detail: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum Outcome {
    #[serde(rename = "ok")]
    Ok,
    /// The client has no such thing; the detail says why.
    #[serde(rename = "n/a")]
    NotThere,
    #[serde(rename = "failed")]
    Failed,
}

/// The checks of one client, in one world.
pub(crate) struct Client<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    pub(crate) checks: Vec<&'a Check>,
}

impl Report {
    /// One line of the program's standard output.
    pub(crate) fn read(&mut self, line: &str) {
        match serde_json::from_str::<Check>(line) {
            Ok(check) if self.find(&check).is_some() => {
                let Check { client, name, .. } = check;
                self.faults.push(format!("{client} ran {name} twice"));
            }
            Ok(check) => {
                eprintln!("{line}");
                self.checks.push(check);
            }
            Err(error) => self.faults.push(format!("no check: {line:?}: {error}")),
        }
    }

    fn find(&self, wanted: &Check) -> Option<&Check> {
        let same = |check: &&Check| (&check.client, &check.name) == (&wanted.client, &wanted.name);
        self.checks.iter().find(same)
    }

    /// The clients in the order of their first checks.
    pub(crate) fn clients(&self) -> Vec<Client<'_>> {
        let mut clients: Vec<Client<'_>> = Vec::new();
        for check in &self.checks {
            match clients.iter_mut().find(|known| known.name == check.client) {
                Some(known) => known.checks.push(check),
                None => clients.push(Client {
                    name: &check.client,
                    version: &check.version,
                    checks: vec![check],
                }),
            }
        }
        clients
    }
}

impl Client<'_> {
    /// The names of the checks that ended so.
    pub(crate) fn names(&self, result: Outcome) -> Vec<&str> {
        let ended = self.checks.iter().filter(|check| check.result == result);
        ended.map(|check| check.name.as_str()).collect()
    }
}

/// Everything that is not as it must be.
pub(crate) fn problems(direct: &Report, enforced: &Report) -> Vec<String> {
    let mut problems = Vec::new();
    for (world, report, other) in [("direct", direct, enforced), ("enforced", enforced, direct)] {
        problems.extend(
            report
                .faults
                .iter()
                .map(|fault| format!("{world}: {fault}")),
        );
        if report.checks.is_empty() {
            problems.push(format!("{world}: there was no check"));
        }
        for check in &report.checks {
            let of = format!("{world}: {}, {}", check.client, check.name);
            let elsewhere = other.find(check).map(|twin| twin.result);
            match (check.result, elsewhere) {
                (Outcome::Failed, _) => problems.push(format!("{of}: failed: {}", check.detail)),
                (Outcome::Ok | Outcome::NotThere, None) => {
                    problems.push(format!("{of}: was not run in the other world"));
                }
                (Outcome::NotThere, Some(Outcome::Ok)) => {
                    problems.push(format!("{of}: n/a here only: {}", check.detail));
                }
                (Outcome::Ok | Outcome::NotThere, Some(_)) => {}
            }
        }
    }
    if enforced.grants == Some(0.0) {
        problems.push("enforced: the proxy granted nothing: were these keys locks?".to_owned());
    }
    problems
}

/// A line a client and world, for the terminal.
pub(crate) fn table(language: &str, direct: &Report, enforced: &Report) -> String {
    let mut text = format!("{language}\n");
    for (world, report) in [("direct", direct), ("enforced", enforced)] {
        for client in report.clients() {
            let _ = write!(
                text,
                "  {world:8}  {:40}  {:16}  {:2} ok",
                client.name,
                client.version,
                client.names(Outcome::Ok).len(),
            );
            for (word, result) in [("n/a", Outcome::NotThere), ("FAILED", Outcome::Failed)] {
                let names = client.names(result);
                if !names.is_empty() {
                    let _ = write!(text, "; {word}: {}", names.join(", "));
                }
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[(&str, &str)]) -> Report {
        let mut report = Report::default();
        for (check, result) in lines {
            report.read(&format!(
                r#"{{"client":"c","version":"1","check":"{check}","result":"{result}","detail":"d"}}"#
            ));
        }
        report
    }

    #[test]
    fn two_worlds_with_the_same_checks_have_no_problem() {
        let lines = [("acquire", "ok"), ("extend", "n/a")];
        assert_eq!(
            problems(&report(&lines), &report(&lines)),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_failure_in_either_world_is_a_problem() {
        let (good, bad) = (report(&[("thief", "ok")]), report(&[("thief", "failed")]));
        assert_eq!(problems(&good, &bad), ["enforced: c, thief: failed: d"]);
        assert_eq!(problems(&bad, &good), ["direct: c, thief: failed: d"]);
    }

    #[test]
    fn checks_that_only_one_world_has_are_a_problem() {
        let (both, one) = (report(&[("a", "ok"), ("b", "ok")]), report(&[("a", "ok")]));
        let other = "direct: c, b: was not run in the other world";
        assert_eq!(problems(&both, &one), [other]);
        let (able, unable) = (report(&[("a", "ok")]), report(&[("a", "n/a")]));
        assert_eq!(
            problems(&able, &unable),
            ["enforced: c, a: n/a here only: d"]
        );
        let none = problems(&Report::default(), &Report::default());
        assert_eq!(none.len(), 2, "{none:?}");
    }

    #[test]
    fn what_is_no_check_is_a_fault_and_so_is_a_check_that_comes_twice() {
        let mut report = report(&[("a", "ok"), ("a", "ok")]);
        report.read("hello");
        report.read(r#"{"client":"c","version":"1","check":"b","result":"perhaps"}"#);
        assert_eq!(report.checks.len(), 1);
        assert_eq!(report.faults.len(), 3, "{:?}", report.faults);
    }

    #[test]
    fn a_proxy_that_granted_nothing_was_not_in_the_way() {
        let direct = report(&[("a", "ok")]);
        let mut enforced = report(&[("a", "ok")]);
        enforced.grants = Some(0.0);
        assert_eq!(problems(&direct, &enforced).len(), 1);
    }
}

//! The results of a language's program in one world, read from its JSON lines, and the errors that a
//! comparison of the worlds finds. Knows nothing about processes and pages.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

/// The checks of one world, in the order in which they ran.
pub(crate) struct Report {
    /// What people call it.
    pub(crate) world: String,
    pub(crate) checks: Vec<Check>,
    /// What is wrong with the program itself: lines that are no checks, a bad end.
    pub(crate) faults: Vec<String>,
    /// How many locks the proxy gave; none where there is no proxy.
    pub(crate) acquires: Option<f64>,
    /// What the proxy's own report says of it; null where there is no proxy.
    pub(crate) told: Value,
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
    /// Of a world where nothing was said yet.
    pub(crate) fn of(world: &str) -> Report {
        Report { world: world.to_owned(), checks: Vec::new(), faults: Vec::new(), acquires: None, told: Value::Null }
    }

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

    /// The same check of the same client.
    pub(crate) fn find(&self, wanted: &Check) -> Option<&Check> {
        let same = |check: &&Check| (&check.client, &check.name) == (&wanted.client, &wanted.name);
        self.checks.iter().find(same)
    }

    /// A namespace that was used, and that the proxy does not call ready to be enforced, is a fault.
    pub(crate) fn is_ready(&mut self) {
        let namespaces = self.told["namespaces"].as_array();
        let used = namespaces.into_iter().flatten().filter(|one| one["operations"] != 0);
        for one in used {
            let told = format!("{}: {}", one["namespace"], one["verdict"]);
            eprintln!("{told}");
            if one["ready"] != true {
                self.faults.push(format!("not ready: {told}"));
            }
        }
    }

    /// A client of another world that ran no check here is a fault.
    pub(crate) fn has_clients_of(&mut self, worlds: &[Report]) {
        let names = |worlds: &[Report]| -> BTreeSet<String> {
            let clients = worlds.iter().flat_map(Report::clients);
            clients.map(|client| client.name.to_owned()).collect()
        };
        let here = names(std::slice::from_ref(self));
        let missing = names(worlds).into_iter().filter(|one| !here.contains(one));
        self.faults.extend(missing.map(|client| format!("{client} ran no check")));
    }

    /// The clients in the order of their first checks.
    pub(crate) fn clients(&self) -> Vec<Client<'_>> {
        let mut clients: Vec<Client<'_>> = Vec::new();
        for check in &self.checks {
            match clients.iter_mut().find(|known| known.name == check.client) {
                Some(known) => known.checks.push(check),
                None => clients.push(Client { name: &check.client, version: &check.version, checks: vec![check] }),
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

/// A check that fails in this world already is beyond the library: it is left out of both.
pub(crate) fn leave_out_failures_of(direct: &mut Report, other: &mut Report) {
    let has_failed = |check: &Check| check.result == Outcome::Failed;
    for check in &mut other.checks {
        if direct.find(check).is_some_and(has_failed) {
            check.result = Outcome::NotThere;
        }
    }
    direct.checks.iter_mut().filter(|check| has_failed(check)).for_each(|check| check.result = Outcome::NotThere);
}

/// Everything that is not as it must be, in worlds that must not differ.
pub(crate) fn problems(worlds: &[Report]) -> Vec<String> {
    let mut problems = Vec::new();
    for report in worlds {
        let world = &report.world;
        let faults = report.faults.iter();
        problems.extend(faults.map(|fault| format!("{world}: {fault}")));
        if report.checks.is_empty() {
            problems.push(format!("{world}: there was no check"));
        }
        if report.acquires == Some(0.0) {
            problems.push(format!("{world}: the proxy granted nothing; were these keys locks?"));
        }
        for check in &report.checks {
            let of = format!("{world}: {}, {}", check.client, check.name);
            if check.result == Outcome::Failed {
                problems.push(format!("{of}: failed: {}", check.detail));
            }
            for other in worlds {
                match (check.result, other.find(check).map(|twin| twin.result)) {
                    (_, None) => problems.push(format!("{of}: was not run in {}", other.world)),
                    (Outcome::NotThere, Some(Outcome::Ok)) => {
                        problems.push(format!("{of}: n/a, but not in {}", other.world));
                    }
                    (Outcome::Ok | Outcome::NotThere | Outcome::Failed, Some(_)) => {}
                }
            }
        }
    }
    problems
}

/// A line a world and client, for the terminal.
pub(crate) fn table(worlds: &[Report]) -> String {
    let mut text = String::new();
    for report in worlds {
        for client in report.clients() {
            let _ = write!(
                text,
                "  {:23}  {:36}  {:10}  {:2} ok",
                report.world,
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

    fn report(world: &str, lines: &[(&str, &str)]) -> Report {
        let mut report = Report::of(world);
        for (check, result) in lines {
            report
                .read(&format!(r#"{{"client":"c","version":"1","check":"{check}","result":"{result}","detail":"d"}}"#));
        }
        report
    }

    fn between(here: &[(&str, &str)], there: &[(&str, &str)]) -> Vec<String> {
        problems(&[report("here", here), report("there", there)])
    }

    #[test]
    fn worlds_with_the_same_checks_have_no_problem() {
        let lines = [("acquire", "ok"), ("extend", "n/a")];
        assert_eq!(between(&lines, &lines), Vec::<String>::new());
    }

    #[test]
    fn a_failure_in_any_world_is_a_problem() {
        let (good, bad) = ([("thief", "ok")], [("thief", "failed")]);
        assert_eq!(between(&good, &bad), ["there: c, thief: failed: d"]);
        assert_eq!(between(&bad, &good), ["here: c, thief: failed: d"]);
    }

    #[test]
    fn checks_that_only_one_world_has_are_a_problem() {
        let few = between(&[("a", "ok"), ("b", "ok")], &[("a", "ok")]);
        assert_eq!(few, ["here: c, b: was not run in there"]);
        let unable = between(&[("a", "ok")], &[("a", "n/a")]);
        assert_eq!(unable, ["there: c, a: n/a, but not in here"]);
        assert_eq!(between(&[], &[]).len(), 2);
    }

    #[test]
    fn what_is_no_check_is_a_fault_and_so_is_a_check_that_comes_twice() {
        let mut report = report("here", &[("a", "ok"), ("a", "ok")]);
        report.read("hello");
        report.read(r#"{"client":"c","version":"1","check":"b","result":"perhaps"}"#);
        assert_eq!(report.checks.len(), 1);
        assert_eq!(report.faults.len(), 3, "{:?}", report.faults);
    }

    #[test]
    fn a_namespace_that_was_used_and_is_not_ready_is_told() {
        let of = |namespace: &str, operations: u64, ready: bool| serde_json::json!({"namespace": namespace, "operations": operations, "ready": ready, "verdict": "v"});
        let mut report = Report::of("here");
        report.told = serde_json::json!({"namespaces": [of("a", 9, true), of("b", 0, false), of("c", 9, false)]});
        report.is_ready();
        assert_eq!(report.faults, [r#"not ready: "c": "v""#]);
    }

    #[test]
    fn a_client_that_ran_no_check_is_a_fault() {
        let mut few = Report::of("here");
        few.has_clients_of(&[report("there", &[("a", "ok")])]);
        assert_eq!(few.faults, ["c ran no check"]);
        let mut same = report("here", &[("b", "ok")]);
        same.has_clients_of(&[report("there", &[("a", "ok")])]);
        assert_eq!(same.faults, Vec::<String>::new());
    }

    #[test]
    fn a_proxy_that_granted_nothing_was_not_in_the_way() {
        let mut report = report("here", &[("a", "ok")]);
        report.acquires = Some(0.0);
        assert_eq!(problems(&[report]).len(), 1);
    }
}

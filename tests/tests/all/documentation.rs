//! The pages are true: the tests that they name exist, and the commands that they show do what they show. `pages.rs` tests
//! the links between them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockwarden_tests::{Client, Finished, Process, Redis, binary, lockwarden, run_to_end, wait_for_value};
use tempfile::TempDir;

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn page(name: &str) -> String {
    let path = repository().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The file that `docs/guarantees.md` means by the part before the last `::`.
fn source_of(file: &str) -> PathBuf {
    let path = match file.ends_with(".rs") {
        true => file.to_owned(),
        false => format!("tests/tests/all/{}.rs", file.replace("::", "/")),
    };
    repository().join(path)
}

/// Whether this file has a test of that name.
fn has_test(source: &str, name: &str) -> bool {
    let scenario = format!("in_every_world!({name}");
    source.contains(&format!("{scenario})"))
        || source.contains(&format!("{scenario},"))
        || source.contains(&format!("in_every_world!(\n    {name},"))
        || source.split("#[test]").skip(1).any(|rest| {
            let function = rest.split("fn ").nth(1);
            function.is_some_and(|rest| rest.split(['(', '<']).next() == Some(name))
        })
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let page = page("docs/guarantees.md");
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let promises: Vec<&str> = rows.filter(|row| row.split('|').count() == 5 && !row.starts_with("| promise")).collect();
    assert!(promises.len() > 20, "{} promises", promises.len());
    name_tests_that_exist(&promises);
}

#[test]
fn every_threat_names_tests_that_exist() {
    let page = page("docs/security.md");
    let rows = section(&page, "## Threats").lines();
    let threats: Vec<&str> = rows.filter(|row| row.starts_with("| ") && !row.starts_with("| threat")).collect();
    assert!(threats.len() > 10, "{} threats", threats.len());
    name_tests_that_exist(&threats);
}

/// The third cell of each row names one test at least, and each of them exists.
#[track_caller]
fn name_tests_that_exist(rows: &[&str]) {
    let mut wrong = Vec::new();
    for row in rows {
        let tests = row.split('|').nth(3).unwrap_or_default();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            wrong.push(format!("no test holds it: {row}"));
        }
        for name in names {
            let (file, test) = name.rsplit_once("::").unwrap_or(("", name));
            let source = std::fs::read_to_string(source_of(file)).unwrap_or_default();
            if !has_test(&source, test) {
                wrong.push(format!("there is no test {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// CI checks deny.toml, with the same command that people type.
#[test]
fn ci_looks_at_the_dependencies_as_people_do() {
    let (make, ci) = (page("Makefile"), page(".ci/run"));
    assert!(ci.contains("\nstep 'dependencies' make check-dependencies\n"));
    let (_, recipe) = make.split_once("\ncheck-dependencies: ").expect("the target");
    assert!(recipe.split("\n\n").next().unwrap_or_default().contains(".ci/check-dependencies.sh"), "{recipe}");
    let check = page(".ci/check-dependencies.sh");
    assert!(check.contains("cargo-deny\" --locked check -D warnings licenses bans sources\n"), "{check}");
    let rules = page("deny.toml");
    for (number, line) in rules.lines().enumerate() {
        let argued = !line.contains("{ crate = ") || line.contains("reason = \"");
        assert!(argued, "deny.toml:{}: no reason", number + 1);
    }
}

/// The part of a page below this heading, up to the next of its kind.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let kind = heading.split(' ').next().unwrap_or_default();
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no {heading}"));
    rest.split(&format!("\n{kind} ")).next().unwrap_or(rest)
}

/// A command of a page, and the lines that the page shows behind it.
struct Typed {
    command: String,
    shown: Vec<String>,
}

/// The blocks of code of a section: the first configuration, and everything that is typed at a prompt.
fn blocks(section: &str) -> (String, Vec<Typed>) {
    let (mut configuration, mut typed) = (String::new(), Vec::<Typed>::new());
    for (number, block) in section.split("```").enumerate() {
        let (language, text) = block.split_once('\n').unwrap_or_default();
        match (number % 2 == 1, language) {
            (true, "toml") if configuration.is_empty() => configuration = text.to_owned(),
            (true, "") => {
                for line in text.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
                    match (line.strip_prefix("$ "), typed.last_mut()) {
                        (Some(command), _) => typed.push(Typed { command: command.to_owned(), shown: Vec::new() }),
                        (None, Some(last)) => last.shown.push(line.to_owned()),
                        (None, None) => {}
                    }
                }
            }
            (_, _) => {}
        }
    }
    (configuration, typed)
}

/// What an operator's machine has: a Redis, and nothing but the default addresses, for which free ones stand in.
struct Desk {
    redis: Redis,
    directory: TempDir,
    admin: String,
    listen: String,
    running: Option<Process>,
}

impl Desk {
    fn new(configuration: &str) -> Desk {
        let redis = Redis::start();
        let directory = tempfile::tempdir().expect("a directory");
        let text = configuration.replace("127.0.0.1:6379", &redis.address().to_string());
        std::fs::write(directory.path().join("lockwarden.toml"), text).expect("it is ours");
        std::fs::create_dir(directory.path().join("runtime")).expect("it is ours");
        Desk { redis, directory, admin: "127.0.0.1:0".to_owned(), listen: "127.0.0.1:0".to_owned(), running: None }
    }

    /// The same as it would be typed here, by a shell.
    fn shell(&self, command: &str) -> Command {
        let command = command.replace("localhost:9180", &self.admin);
        let program = binary();
        let beside = program.parent().expect("the binary is in a directory");
        let path = format!("{}:{}", beside.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &command])
            .current_dir(self.directory.path())
            .env("PATH", path)
            .env("XDG_RUNTIME_DIR", self.directory.path().join("runtime"))
            .env("LOCKWARDEN_LISTEN", &self.listen)
            .env("LOCKWARDEN_ADMIN", &self.admin)
            .env_remove("RUNTIME_DIRECTORY");
        shell
    }

    /// Starts a command that keeps running in its own terminal; waits until it serves.
    fn leaves_running(&mut self, command: &str) {
        let log = self.directory.path().join("log");
        let file = std::fs::File::create(&log).expect("the directory is ours");
        let mut shell = self.shell(&format!("exec {command}"));
        let shell = shell.stderr(file).stdout(Stdio::null());
        self.running = Some(Process::spawn(shell).expect("there is a shell"));
        let [listen, admin] = wait_for_value("the proxy to serve", || {
            let log = std::fs::read_to_string(&log).expect("the log is there");
            let line = log.lines().find(|line| line.contains("\"orders need"))?;
            assert!(line.contains("runtime/lockwarden/admin-token-"), "{line}");
            let serving = log.lines().find(|line| line.contains("\"serving\""))?;
            let address = |name: &str| {
                let (_, rest) = serving.split_once(&format!("\"{name}\":\""))?;
                Some(rest.split('"').next()?.to_owned())
            };
            // Clients are let in when the backend has answered.
            log.contains("the backend is up").then_some([address("listen")?, address("admin")?])
        });
        (self.listen, self.admin) = (listen, admin);
    }

    /// Types everything in one shell after another, and compares what comes back with what the page shows.
    fn types(&mut self, typed: &[Typed], mut before: impl FnMut(&Desk, &str)) {
        let mut variables = String::new();
        for Typed { command, shown } in typed {
            before(self, command);
            if command.starts_with("lockwarden run") {
                self.leaves_running(command);
                continue;
            }
            if command.starts_with("TOKEN=") {
                variables = format!("{command}; ");
                continue;
            }
            let end = run_to_end(&mut self.shell(&format!("{variables}{command}")));
            is_as_shown(command, shown, &end);
        }
    }
}

/// Numbers differ from day to day; words do not.
fn is_as_shown(command: &str, shown: &[String], end: &Finished) {
    let words = |lines: &[&str]| {
        let lines = lines.iter().map(|line| line.trim());
        let lines: Vec<String> = lines
            .map(|line| {
                // The digests of policies are in it, which differ from build to build.
                let line = match line.split_once("config hash: ") {
                    Some(("", hash)) => &line[..line.len() - hash.len()],
                    Some(_) | None => line,
                };
                // So is that of a refusal.
                let (before, id) = line.split_once(" id=").unwrap_or((line, ""));
                let line = format!("{before}{}", id.trim_start_matches(|c: char| c != ' '));
                let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
                let mut line: String = line.chars().map(digits).collect();
                while line.contains("00") {
                    line = line.replace("00", "0");
                }
                line
            })
            .collect();
        lines.join("\n")
    };
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let came = end.stdout.replace("valkey", "redis");
    // redis-cli leaves one behind an error.
    let came: Vec<&str> = came.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(words(&came), words(&shown), "$ {command}\n{end:?}");
    assert_eq!(end.code, Some(0), "$ {command}\n{end:?}");
}

#[test]
fn the_readme_leads_from_redis_alone_to_enforce_mode_and_back_as_it_is_typed() {
    let readme = page("README.md");
    let (configuration, typed) = blocks(section(&readme, "## In front of the Redis that you have"));
    assert!(typed.len() >= 5, "check, run, look, enforce, back");
    let mut desk = Desk::new(&configuration);
    desk.types(&typed, |desk, command| {
        if command.starts_with("curl") {
            // The application has been given the proxy's address, and misuses a lock.
            let address = desk.listen.parse().expect("an address");
            let [one, two] =
                ["127.0.0.2", "127.0.0.3"].map(|source| Client::connect_from(source.parse().expect("one"), address));
            one.sends("SETNX lock:a 1").gets(":1");
            two.sends("DEL lock:a").gets(":1");
        }
    });
    desk.redis.client().sends("PING").gets("+PONG");
}

#[test]
fn rules_of_a_team_are_as_their_page_types_them() {
    let rules = page("docs/rules.md");
    let (configuration, mut typed) = blocks(section(&rules, "## The rules of a team"));
    assert!(typed.len() >= 7, "check, run, three locks, look");
    // The id is another one each time; `rules.rs` asks for one.
    typed.retain(|typed| !typed.command.starts_with("lockwarden why"));
    types_at_two_terminals(&configuration, &typed);
}

#[test]
fn the_ways_to_a_rule_and_to_a_policy_in_force_are_as_they_are_typed() {
    let policies = page("docs/policies.md");
    for heading in ["## A rule, in five minutes", "## A policy in Go, in fifteen minutes"] {
        let (configuration, typed) = blocks(section(&policies, heading));
        assert!(typed.len() >= 7, "check, run, two locks, look, order, one more");
        types_at_two_terminals(&configuration, &typed);
    }
}

/// Types the commands up to the start of the proxy, and then those with redis-cli at its port.
fn types_at_two_terminals(configuration: &str, typed: &[Typed]) {
    let mut desk = Desk::new(configuration);
    let run = typed.iter().position(|typed| typed.command.starts_with("lockwarden run")).expect("it is started");
    let (first, rest) = typed.split_at(run + 1);
    desk.types(first, |_, _| {});
    let (_, port) = desk.listen.rsplit_once(':').expect("an address");
    let port = format!("-p {port}");
    let at_this_port =
        |typed: &Typed| Typed { command: typed.command.replace("-p 6380", &port), shown: typed.shown.clone() };
    let rest: Vec<Typed> = rest.iter().map(at_this_port).collect();
    desk.types(&rest, |_, _| {});
}

#[test]
fn the_first_step_of_the_way_to_enforce_mode_is_as_it_is_typed() {
    let first_hour = page("docs/first-hour.md");
    let (configuration, typed) = blocks(section(&first_hour, "## 1. Watch"));
    assert!(typed.len() >= 2, "check, run");
    let mut desk = Desk::new(&configuration);
    desk.types(&typed, |_, _| {});
    let (_, last) = blocks(section(&first_hour, "## 6. Back"));
    let end = run_to_end(&mut desk.shell(&last[0].command));
    assert_eq!((end.code, end.stdout.contains("shop")), (Some(0), true), "{end:?}");
}

#[test]
fn the_orders_of_an_operator_are_as_they_are_typed() {
    let readme = page("README.md");
    let (configuration, run) = blocks(section(&readme, "## In front of the Redis that you have"));
    let mut desk = Desk::new(&configuration);
    let run = run.iter().find(|typed| typed.command.starts_with("lockwarden run"));
    desk.leaves_running(&run.expect("it is started").command);
    let operations = page("docs/operations.md");
    let (_, typed) = blocks(section(&operations, "## Orders"));
    assert!(typed.len() >= 3, "two modes, drain");
    desk.types(&typed, |_, _| {});
}

#[test]
fn the_flags_and_bounds_of_the_configuration_are_as_its_page_says() {
    let configuration = page("docs/configuration.md");
    let help = run_to_end(&mut lockwarden(&["run", "--help"])).stdout;
    let rows = section(&configuration, "## Who has the last word").lines();
    let flags: Vec<&str> = rows
        .filter(|row| row.starts_with("| `LOCKWARDEN_"))
        .filter_map(|row| row.split('|').nth(2)?.split('`').nth(1))
        .collect();
    assert!(flags.len() > 4, "{flags:?}");
    for flag in flags {
        assert!(help.contains(&format!("{flag} <")), "{flag} is no flag:\n{help}");
    }

    // Both ends of the memory of a policy are taken, and not refused when the module is loaded.
    let row = configuration.lines().find(|row| row.starts_with("| `memory` |"));
    let (_, meaning) = row.and_then(|row| row.split_once("Most memory,")).expect("its row");
    let ends: Vec<&str> = meaning.split('"').skip(1).step_by(2).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("lockwarden.toml");
    for end in ends {
        let text = format!("[[policy]]\nname = \"a\"\nmodule = \"a.wasm\"\nmemory = \"{end}\"\n");
        std::fs::write(&file, text).expect("the directory is ours");
        let end = run_to_end(lockwarden(&["check", "--config"]).arg(&file));
        assert!(end.stdout.contains("a.wasm") && !end.stdout.contains("memory"), "{end:?}");
    }
}

/// The output of `lockwarden WORDS --help`, if there is such a command.
fn help(words: &[&str]) -> Option<String> {
    let end = run_to_end(lockwarden(words).arg("--help"));
    (end.code == Some(0)).then_some(end.stdout)
}

/// The flags in a line, without what stands behind ` -- `: those are another program's.
fn flags(line: &str) -> impl Iterator<Item = &str> {
    let own = line.split(" -- ").next().unwrap_or_default();
    own.split([' ', '`', '|', '(', ')', '=', ',', '[', ']', '"'])
        .filter(|word| word.starts_with("--") && word.len() > 2)
}

#[test]
fn every_command_that_a_page_shows_knows_its_flags() {
    let mut pages = vec![repository().join("README.md")];
    for entry in std::fs::read_dir(repository().join("docs")).expect("there are pages") {
        pages.push(entry.expect("there are pages").path());
    }
    for entry in std::fs::read_dir(repository().join("docs/runbooks")).expect("there are runbooks") {
        pages.push(entry.expect("there are runbooks").path());
    }
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for path in pages.iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(path).expect("a page is text");
        // The commands of a runbook are there to be copied, so they have no prompt.
        let prompt = match path.parent().is_some_and(|folder| folder.ends_with("runbooks")) {
            true => "lockwarden ",
            false => "$ lockwarden ",
        };
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix(prompt)) {
            let line = line.split(['|', ';', '&', '#', '>']).next().unwrap_or_default();
            let mut words: Vec<&str> = line
                .split(' ')
                .take_while(|word| {
                    !word.starts_with('-') && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
                })
                .take(2)
                .collect();
            let help = loop {
                match help(&words) {
                    Some(help) => break help,
                    None if words.is_empty() => panic!("the program has no help"),
                    None => words.pop(),
                };
            };
            for flag in flags(line) {
                looked_at += 1;
                if !help.lines().flat_map(flags).any(|known| known == flag) {
                    wrong.push(format!("{}: {flag} in: lockwarden {line}", path.display()));
                }
            }
        }
    }
    assert!(looked_at > 10, "{looked_at} flags");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One line states the cost of records, and every page that shows it shows the same.
#[test]
fn what_records_cost_is_said_in_the_same_words_everywhere() {
    let end = run_to_end(&mut lockwarden(&["check"]));
    let said = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim_start);
        lines.filter(|line| line.starts_with("memory: about")).map(str::to_owned).collect()
    };
    let [line] = &said(&end.stdout)[..] else {
        panic!("one line, not {end:?}");
    };
    for name in ["README.md", "docs/first-hour.md", "docs/troubleshooting.md"] {
        let shown = said(&page(name));
        assert!(!shown.is_empty() && shown.iter().all(|shown| shown == line), "{name}: {shown:?}");
    }
    let bytes = line.split(' ').nth(2).unwrap_or_default();
    let sizing = page("docs/operations.md");
    assert!(section(&sizing, "### Records on Redis").contains(&format!("about {bytes} bytes")));
}

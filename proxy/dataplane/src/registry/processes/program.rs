//! The names that people know a process by: its service unit or container, and its program; for an interpreter, the
//! script. All of it is text that the process chose itself, so it is cut and escaped. Reads three small files of a
//! process that was found.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::time::Instant;

use lockwarden_control::telemetry::applications::Program;
use lockwarden_control::text::escape::spell;

use super::lineage::{KEPT, Running};

/// Bytes of a file that are read. A command line may have megabytes.
const MAX_FILE: usize = 4_096;
/// Bytes of a name that are shown.
const MAX_NAME: usize = 64;
/// The kernel cuts the name of a command after this many bytes.
const MAX_COMM: usize = 15;
/// Most bytes of a script's first argument that names its role.
const MAX_ROLE: usize = 24;
/// Digits of a container's id that are shown, as its own tools show it.
const SHOWN_ID: usize = 12;
/// Digits of a complete id.
const ID: usize = 64;

/// Programs whose names are kept; beyond this limit all are forgotten and read again.
const MAX_PROGRAMS: usize = 1024;

/// Programs that were read lately.
#[derive(Default)]
pub(super) struct Programs(HashMap<Running, (Instant, Option<Program>)>);

impl Programs {
    /// The program that runs as this process.
    pub(super) fn of(&mut self, running: &Running) -> Option<Program> {
        let known = self.0.get(running);
        if let Some((_, program)) = known.filter(|(at, _)| at.elapsed() < KEPT) {
            return program.clone();
        }
        if self.0.len() >= MAX_PROGRAMS {
            self.0.clear();
        }
        let program = read(running);
        let kept = (Instant::now(), program.clone());
        self.0.insert(running.clone(), kept);
        program
    }
}

fn read(running: &Running) -> Option<Program> {
    let number = running.number();
    let file = |name: &str| {
        let mut bytes = vec![0; MAX_FILE];
        let mut file = File::open(format!("/proc/{number}/{name}")).ok()?;
        // In one read the kernel gives as much as there is room for.
        let length = file.read(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    };
    let name = name_of(&file("comm")?, &file("cmdline")?)?;
    let place = file("cgroup").and_then(|cgroup| place_of(&cgroup));
    // Checked after the files were read: the number may have been given to another process meanwhile.
    running.is_alive().then(|| Program::new(&name, place.as_deref()))
}

/// The program's name; `None` if there is not even the kernel's name.
fn name_of(comm: &[u8], command_line: &[u8]) -> Option<String> {
    let comm = comm.trim_ascii_end();
    let words: Vec<&[u8]> = command_line.split(|byte| *byte == 0).collect();
    let first = words.first().copied().unwrap_or_default();
    if first.starts_with(b"php-fpm: pool ") {
        return Some(cut(first.trim_ascii_end()));
    }
    let called = base(first);
    if let Some(interpreter) = Interpreter::of(called)
        && let Some(script) = interpreter.script(&words[1..])
    {
        return Some(script);
    }
    let is_cut = comm.len() == MAX_COMM && called.starts_with(comm);
    let name = if is_cut || comm.is_empty() { called } else { comm };
    (!name.is_empty()).then(|| cut(name))
}

/// A program that runs another one, which its command line names.
struct Interpreter {
    /// Its names, without a version at the end.
    names: &'static [&'static str],
    /// Options whose argument is what it runs.
    run: &'static [&'static str],
    /// Options whose argument is code: there is no name.
    code: &'static [&'static str],
    /// Other options that have an argument of their own.
    valued: &'static [&'static str],
    /// Words before the name of what it runs.
    verbs: &'static [&'static str],
}

const INTERPRETERS: &[Interpreter] = &[
    Interpreter { names: &["python", "pypy"], run: &["-m"], code: &["-c"], valued: &["-W", "-X"], verbs: &[] },
    Interpreter { names: &["php"], run: &["-f"], code: &["-r", "-a"], valued: &["-d", "-c", "-z"], verbs: &[] },
    Interpreter {
        names: &["node", "nodejs", "bun", "deno"],
        run: &[],
        code: &["-e", "--eval", "-p", "--print"],
        valued: &["-r", "--require", "--import", "--loader", "-C"],
        verbs: &["run"],
    },
    Interpreter { names: &["ruby", "jruby"], run: &[], code: &["-e"], valued: &["-I", "-r", "-C"], verbs: &[] },
    Interpreter { names: &["perl"], run: &[], code: &["-e", "-E"], valued: &["-I"], verbs: &[] },
    Interpreter {
        names: &["java"],
        run: &["-jar", "-m", "--module"],
        code: &[],
        valued: &["-cp", "-classpath", "--class-path", "-p", "--module-path"],
        verbs: &[],
    },
    Interpreter { names: &["dotnet"], run: &[], code: &[], valued: &[], verbs: &["exec"] },
    Interpreter {
        names: &["sh", "bash", "dash", "zsh", "ksh"],
        run: &[],
        code: &["-c"],
        valued: &["-o", "-O"],
        verbs: &[],
    },
];

impl Interpreter {
    /// `python3.11` and `-bash` are interpreters, `pythonic` is none.
    fn of(called: &[u8]) -> Option<&'static Interpreter> {
        let called = called.strip_prefix(b"-").unwrap_or(called);
        let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let end = called.iter().rposition(|byte| !is_version(byte))? + 1;
        let name = &called[..end];
        INTERPRETERS.iter().find(|one| one.names.iter().any(|known| known.as_bytes() == name))
    }

    /// The script that it runs, and the role that the script was given: `estate.py orders`.
    fn script(&self, words: &[&[u8]]) -> Option<String> {
        let is = |list: &[&str], word: &[u8]| list.iter().any(|one| one.as_bytes() == word);
        let mut words = words.iter().copied();
        let script = loop {
            let word = words.next()?;
            if is(self.run, word) {
                break words.next()?;
            } else if is(self.code, word) {
                return None;
            } else if is(self.valued, word) {
                words.next()?;
            } else if !word.starts_with(b"-") && !is(self.verbs, word) {
                break word;
            }
        };
        let script = base(script);
        if script.is_empty() {
            return None;
        }
        let script = cut(script);
        match words.next().filter(|word| is_role(word)) {
            Some(role) => Some(format!("{script} {}", String::from_utf8_lossy(role))),
            None => Some(script),
        }
    }
}

/// A plain word: no path, no address, no number, nothing that differs from one run to the next. Only the word
/// directly after the script is looked at: a word after an option may be a password.
fn is_role(word: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || b"_:-".contains(byte);
    word.len() <= MAX_ROLE && word.first().is_some_and(u8::is_ascii_lowercase) && word.iter().all(is_plain)
}

/// The innermost service unit or container of a process, by the names of its control groups.
fn place_of(cgroup: &[u8]) -> Option<String> {
    let lines = cgroup.split(|byte| *byte == b'\n');
    // `0::/system.slice/orders.service`, or one such line for each controller.
    let paths = lines.filter_map(|line| line.splitn(3, |byte| *byte == b':').nth(2));
    paths.filter_map(|path| path.rsplit(|byte| *byte == b'/').find_map(place_named)).next()
}

fn place_named(group: &[u8]) -> Option<String> {
    // `user@1000.service` runs everything that a user does.
    if group.ends_with(b".service") {
        return (!group.starts_with(b"user@")).then(|| cut(group));
    }
    // `docker-ID.scope`, `cri-containerd-ID.scope`, or the id alone.
    let inner = group.strip_suffix(b".scope").unwrap_or(group);
    let (made_by, id) = inner.split_at(inner.len().checked_sub(ID)?);
    // `libpod-conmon-ID.scope` contains the program that watches over a container.
    let is_container = made_by.is_empty() || made_by.ends_with(b"-");
    let is_watcher = made_by.ends_with(b"conmon-");
    let is_id = id.iter().all(u8::is_ascii_hexdigit);
    (is_id && is_container && !is_watcher).then(|| spell(&id[..SHOWN_ID]))
}

/// The last part of a path.
fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// At most `MAX_NAME` bytes of a name, escaped.
fn cut(name: &[u8]) -> String {
    spell(&name[..name.len().min(MAX_NAME)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(comm: &str, words: &[&str]) -> Option<String> {
        let mut line = words.join("\0").into_bytes();
        line.push(0);
        name_of(format!("{comm}\n").as_bytes(), &line)
    }

    #[test]
    fn an_interpreter_is_known_by_what_it_runs_and_by_the_role_that_follows() {
        for (comm, words, expected) in [
            ("python3", &["python3", "-B", "/srv/estate.py", "orders", "127.0.0.1:6380"][..], "estate.py orders"),
            ("python3", &["/usr/bin/python3.11", "-W", "ignore", "-m", "celery", "-A", "shop"], "celery"),
            ("python3", &["python3", "worker.py", "10.0.0.1"], "worker.py"),
            ("python3", &["python3", "worker.py", "--password", "hunter"], "worker.py"),
            ("python3", &["python3", "import.py", "2026-11-22"], "import.py"),
            ("orders.py", &["python3", "./orders.py"], "orders.py"),
            ("python3", &["python3", "-c", "import redis", "secret"], "python3"),
            ("python3", &["python3"], "python3"),
            ("python3", &["python3", "-"], "python3"),
            ("php", &["php", "-d", "memory_limit=1G", "artisan", "queue:work"], "artisan queue:work"),
            ("php-fpm8.2", &["php-fpm: pool shop                 "], "php-fpm: pool shop"),
            ("node", &["node", "-r", "dotenv/config", "/app/server.js"], "server.js"),
            ("java", &["java", "-Xmx1g", "-cp", "a.jar:b.jar", "com.shop.Main"], "com.shop.Main"),
            ("java", &["java", "-jar", "/opt/app.jar", "--server.port=1"], "app.jar"),
            ("dotnet", &["dotnet", "exec", "Shop.dll"], "Shop.dll"),
            ("bash", &["-bash"], "bash"),
            ("redis-cli", &["redis-cli", "get", "a"], "redis-cli"),
            ("a-long-name-is-", &["/opt/a-long-name-is-cut"], "a-long-name-is-cut"),
            ("renamed", &["/opt/program", "x"], "renamed"),
            ("pythonic", &["pythonic", "a.py"], "pythonic"),
        ] {
            assert_eq!(name(comm, words).as_deref(), Some(expected), "{words:?}");
        }
    }

    #[test]
    fn what_a_process_writes_over_its_command_line_is_cut_and_escaped() {
        let endless = "x".repeat(4_000);
        let shown = name("python3", &["python3", &endless]).expect("a name");
        assert_eq!(shown.len(), MAX_NAME);
        assert_eq!(name("a\u{1b}[2Jb", &[""]).as_deref(), Some(r"a\x1b[2Jb"));
        assert_eq!(name("python3", &["python3", "\u{1b}]0;x\u{7}.py", "r\u{1b}"]).as_deref(), Some(r"\x1b]0;x\x07.py"));
        assert_eq!(name_of(b"", b""), None);
        assert_eq!(name_of(b"\xff\n", b"\0\0\0").as_deref(), Some(r"\xff"));
    }

    #[test]
    fn a_service_or_container_is_found_in_the_names_of_control_groups() {
        let id = "3f2a1b4c5d6e".to_owned() + &"0".repeat(52);
        for (cgroup, expected) in [
            ("0::/system.slice/orders.service\n".to_owned(), Some("orders.service")),
            ("0::/system.slice/system-worker.slice/worker@3.service/inner\n".to_owned(), Some("worker@3.service")),
            ("0::/user.slice/user-1000.slice/session-3.scope\n".to_owned(), None),
            ("0::/user.slice/user-1000.slice/user@1000.service/init.scope\n".to_owned(), None),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/sync.service\n".to_owned(),
                Some("sync.service"),
            ),
            (format!("0::/system.slice/docker-{id}.scope\n"), Some("3f2a1b4c5d6e")),
            (format!("0::/machine.slice/libpod-{id}.scope/container\n"), Some("3f2a1b4c5d6e")),
            (format!("0::/machine.slice/libpod-conmon-{id}.scope\n"), None),
            (format!("0::/kubepods.slice/pod1.slice/cri-containerd-{id}.scope\n"), Some("3f2a1b4c5d6e")),
            (format!("12:pids:/docker/{id}\n1:name=systemd:/docker/{id}\n"), Some("3f2a1b4c5d6e")),
            (format!("0::/x{id}\n"), None),
            ("0::/\n".to_owned(), None),
            (String::new(), None),
            ("0::/a\u{1b}.service".to_owned(), Some(r"a\x1b.service")),
        ] {
            assert_eq!(place_of(cgroup.as_bytes()).as_deref(), expected, "{cgroup}");
        }
    }

    #[test]
    fn this_process_is_known_by_its_program() {
        let running = Running::of(std::process::id()).expect("it runs");
        let program = Programs::default().of(&running).expect("it may see itself");
        assert!(program.label().contains("lockwarden"), "{program:?}");
    }
}

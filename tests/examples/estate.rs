//! `make test-estate`: the programs of `tests/estate` run straight on a Redis, then through lockwarden, which
//! finds their locks, watches them, and enforces while the programs go on. Each family of locks must be
//! found, each honest program must get as many locks as before, no misuser may share one, and the report's
//! predictions must come true.

use std::collections::BTreeMap;
use std::error::Error;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use lockwarden_tests::{Process, Redis, binary, free_port, get_at, wait_for};

/// How long each phase lasts; `--seconds` asks for another time.
const PHASE: Duration = Duration::from_secs(40);
/// How long the programs run before anything stands in front: then the server knows their scripts.
const WARMING_UP: Duration = Duration::from_secs(3);
/// So long discovery may go on looking.
const MOST_SEEN: Duration = Duration::from_secs(60);
/// So much of its grants an honest program keeps.
const KEPT: f64 = 0.95;
/// A share of lock time that makes no difference.
const SMALL: f64 = 0.05;

struct Program {
    name: &'static str,
    /// The locks that it takes, as `lockwarden discover` has to find them.
    locks: &'static str,
    /// The program that runs it: a folder and a program in it, below `target/clients`, or a program of the
    /// machine.
    runner: &'static [&'static str],
    words: &'static [&'static str],
    processes: usize,
    is_honest: bool,
}

const PYTHON: &[&str] = &["python/usual/bin/python"];
const CELERY: &[&str] = &["python/celery/bin/python"];

const PROGRAMS: [Program; 8] = [
    program("pool", "order:*:lock", PYTHON, &["pool.py"], 2, true),
    program("finally", "stock:*:lock", PYTHON, &["pool.py", "finally"], 2, false),
    program("endless", "import:*", PYTHON, &["endless.py"], 1, false),
    program("library", "report:*", PYTHON, &["library.py"], 2, true),
    program("queue", "qo_*", CELERY, &["queued.py"], 1, true),
    program("redlock", "cart:*:lock", &["node"], &["redlock.js"], 1, true),
    program("compare", "invoice:*", &["php"], &["compare.php"], 2, true),
    program("nightly", "nightly:export", &["sh"], &["nightly.sh"], 2, true),
];

const fn program(
    name: &'static str,
    locks: &'static str,
    runner: &'static [&'static str],
    words: &'static [&'static str],
    processes: usize,
    is_honest: bool,
) -> Program {
    Program { name, locks, runner, words, processes, is_honest }
}

/// A process with all that it has started. Dropping it kills them.
struct Group(Process);

impl Drop for Group {
    fn drop(&mut self) {
        let id = i32::try_from(self.0.id()).expect("process ids fit");
        // SAFETY: `kill` takes no pointers; the child has not been waited for, so the group is its.
        unsafe { libc::kill(-id, libc::SIGKILL) };
    }
}

struct Estate {
    root: PathBuf,
    witness: u16,
    running: Vec<Group>,
}

impl Estate {
    /// Starts all programs with this address of their Redis.
    fn starts(&mut self, port: u16) -> Result<(), Box<dyn Error>> {
        for program in wanted() {
            for _ in 0..program.processes {
                let group = self.start(program, port)?;
                self.running.push(group);
            }
        }
        Ok(())
    }

    fn start(&self, program: &Program, port: u16) -> Result<Group, Box<dyn Error>> {
        let clients = self.root.join("target/clients");
        let runner = program.runner[0];
        let runner = match runner.contains('/') {
            true => clients.join(runner),
            false => PathBuf::from(runner),
        };
        let mut command = Command::new(&runner);
        command
            .args(program.words)
            .current_dir(self.root.join("tests/estate"))
            .env("LOCK_PORT", port.to_string())
            .env("WITNESS_PORT", self.witness.to_string())
            .env("NAME", program.name)
            .env("NODE_PATH", clients.join("node/node_modules"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .process_group(0)
            .stdout(Stdio::null());
        let started = Process::spawn(&mut command);
        Ok(Group(started.map_err(|error| format!("{}: {error}", runner.display()))?))
    }
}

/// Grants and overlaps of each program so far.
fn told(redis: &Redis, what: &str) -> BTreeMap<String, f64> {
    let client = redis.client();
    let all = client.sends(format!("HGETALL {what}")).reply();
    let texts: Vec<String> = all.elements().iter().map(text).collect();
    let pairs = texts.chunks_exact(2);
    pairs.map(|pair| (pair[0].clone(), pair[1].parse().unwrap_or(f64::NAN))).collect()
}

fn text(reply: &lockwarden_tests::Reply) -> String {
    String::from_utf8_lossy(reply.bytes()).into_owned()
}

/// What each program did in a phase: grants a second, and overlaps.
struct Phase {
    grants: BTreeMap<String, f64>,
    overlaps: BTreeMap<String, f64>,
}

fn phase(redis: &Redis, time: Duration) -> Phase {
    let before = (told(redis, "grants"), told(redis, "overlaps"));
    let began = Instant::now();
    std::thread::sleep(time);
    let seconds = began.elapsed().as_secs_f64();
    let after = (told(redis, "grants"), told(redis, "overlaps"));
    let since = |after: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>, name: &str| {
        let of = |all: &BTreeMap<String, f64>| all.get(name).copied().unwrap_or(0.0);
        of(after) - of(before)
    };
    let each = PROGRAMS.iter().map(|program| program.name);
    let grants = each.clone().map(|name| (name.to_owned(), since(&after.0, &before.0, name) / seconds));
    let overlaps = each.map(|name| (name.to_owned(), since(&after.1, &before.1, name)));
    Phase { grants: grants.collect(), overlaps: overlaps.collect() }
}

/// The proxy as its package installs it: a user of its own, and the right to see whose process a client is.
struct Installed {
    _process: Process,
    folder: tempfile::TempDir,
    port: u16,
    admin: u16,
}

impl Installed {
    fn starts(redis: &Redis) -> Result<Installed, Box<dyn Error>> {
        let folder = tempfile::Builder::new().prefix("estate-").tempdir()?;
        let (port, admin) = (free_port(), free_port());
        let config = folder.path().join("lockwarden.toml");
        let text = format!(
            "backend = \"redis://{}\"\nlisten = \"127.0.0.1:{port}\"\nadmin = \"127.0.0.1:{admin}\"\nadmin_token = \"the-estates\"\n",
            redis.address()
        );
        fs::write(&config, text)?;
        // Where it is built another user may not come.
        let program = folder.path().join("lockwarden");
        fs::copy(binary(), &program)?;
        let open = |path: &Path, mode| fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode));
        open(folder.path(), 0o777)?;
        open(&program, 0o755)?;
        open(&config, 0o644)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["--inh-caps", "+sys_ptrace,+dac_read_search", "--ambient-caps", "+sys_ptrace,+dac_read_search"])
            .arg(&program)
            .args(["run", "--config"])
            .arg(&config)
            .env("LOCKWARDEN_LOG", said("--log").unwrap_or_else(|| "info".to_owned()))
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path().join("log"))?);
        let process = Process::spawn(&mut command)?;
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], admin));
        wait_for("the proxy to be ready", || get_at(address, "/ready").is_some_and(|(status, _)| status == 200));
        Ok(Installed { _process: process, folder, port, admin })
    }

    /// Has discovery find every family of locks, and puts what it proposes into the configuration.
    fn adopts(&self, redis: &Redis) -> Result<Proposed, Box<dyn Error>> {
        self.types(&["discover"])?;
        // As the program advises where scripts are called whose text was never seen.
        println!("\n$ redis-cli SCRIPT FLUSH");
        redis.client().sends("SCRIPT FLUSH").gets("+OK");
        std::thread::sleep(WARMING_UP);
        let deadline = Instant::now() + MOST_SEEN;
        let proposed = loop {
            let proposed = Proposed::read(self.answer(&["discover", "-o", "toml"])?.1)?;
            let is_found = wanted().all(|one| proposed.namespace_of(one.locks).is_some());
            if is_found || Instant::now() > deadline {
                break proposed;
            }
            std::thread::sleep(WARMING_UP);
        };
        println!("\n$ lockwarden discover -o toml | tee -a lockwarden.toml\n{}", proposed.text);
        for one in wanted() {
            let found = proposed.namespace_of(one.locks);
            found.ok_or_else(|| format!("{} are not proposed", one.locks))?;
        }
        if let Some(other) = proposed.others() {
            return Err(format!("{other} are no locks, and proposed").into());
        }
        let mut config = fs::OpenOptions::new().append(true).open(self.folder.path().join("lockwarden.toml"))?;
        std::io::Write::write_all(&mut config, proposed.text.as_bytes())?;
        let (code, said) = self.types(&["check"])?;
        if code != 0 || said.contains("warning") {
            return Err("check finds something in the proposal".into());
        }
        self.types(&["reload"])?;
        Ok(proposed)
    }

    /// Of the time in which a namespace's locks were locked, the share in which no client held them: `foretold`,
    /// or `seen`.
    fn unheld(&self, namespace: &str, when: &str) -> Result<f64, Box<dyn Error>> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], self.admin));
        let (_, report) = get_at(address, "/api/v1/report").ok_or("nobody answers")?;
        let report: serde_json::Value = serde_json::from_str(&report)?;
        let all = report["namespaces"].as_array().ok_or("no namespaces")?;
        let is_it = |one: &&serde_json::Value| one["namespace"] == namespace;
        let time = &all.iter().find(is_it).ok_or("no such namespace")?[when];
        let ms = |what: &str| time[what].as_f64().unwrap_or(f64::NAN);
        Ok(ms("unheld_ms") / (ms("unheld_ms") + ms("held_ms")))
    }

    /// What an operator types, and what comes back.
    fn types(&self, words: &[&str]) -> Result<(i32, String), Box<dyn Error>> {
        println!("\n$ lockwarden {}", words.join(" "));
        let answer = self.answer(words)?;
        print!("{}", answer.1);
        Ok(answer)
    }

    fn answer(&self, words: &[&str]) -> Result<(i32, String), Box<dyn Error>> {
        let output = Command::new(self.folder.path().join("lockwarden"))
            .args(words)
            .env("LOCKWARDEN_CONFIG", self.folder.path().join("lockwarden.toml"))
            .env("LOCKWARDEN_ADMIN", format!("127.0.0.1:{}", self.admin))
            .output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((output.status.code().unwrap_or(-1), said))
    }
}

/// What `lockwarden discover -o toml` said.
struct Proposed {
    text: String,
    /// Names, with their keys.
    namespaces: Vec<(String, Vec<String>)>,
}

impl Proposed {
    fn read(text: String) -> Result<Proposed, Box<dyn Error>> {
        let table: toml::Table = text.parse()?;
        let namespaces = table.get("namespace").and_then(toml::Value::as_array);
        let namespaces = namespaces.into_iter().flatten().map(|one| {
            let word = |value: &toml::Value| value.as_str().unwrap_or_default().to_owned();
            let keys = one.get("keys").and_then(toml::Value::as_array);
            let name = one.get("name").map(word).unwrap_or_default();
            (name, keys.into_iter().flatten().map(word).collect())
        });
        let namespaces = namespaces.collect();
        Ok(Proposed { text, namespaces })
    }

    fn namespace_of(&self, keys: &str) -> Option<&str> {
        let has = |one: &&(String, Vec<String>)| one.1.iter().any(|glob| glob == keys);
        self.namespaces.iter().find(has).map(|one| one.0.as_str())
    }

    /// Keys that no program takes as locks.
    fn others(&self) -> Option<&str> {
        let mut all = self.namespaces.iter().flat_map(|one| &one.1);
        let is_other = |glob: &&String| PROGRAMS.iter().all(|one| one.locks != **glob);
        all.find(is_other).map(String::as_str)
    }
}

/// The value after a word of the command line: `--seconds`, `--only` one program, `--log` the proxy's log
/// level, `--kept` the share of its grants that an honest program must keep.
fn said(word: &str) -> Option<String> {
    env::args().skip_while(|one| one != word).nth(1)
}

/// All programs, or the one that `--only` names.
fn wanted() -> impl Iterator<Item = &'static Program> {
    let only = said("--only");
    PROGRAMS.iter().filter(move |one| only.as_ref().is_none_or(|only| only == one.name))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the package lies in the repository")?;
    let time = said("--seconds").map(|seconds| seconds.parse()).transpose()?.map_or(PHASE, Duration::from_secs);
    let kept = said("--kept").map(|share| share.parse()).transpose()?;
    let kept = kept.unwrap_or(KEPT);

    let redis = Redis::start();
    let mut estate = Estate { root: root.to_owned(), witness: redis.address().port(), running: Vec::new() };
    estate.starts(redis.address().port())?;
    let direct = phase(&redis, WARMING_UP.max(time / 2));
    estate.running.clear();
    // Locks are there already, and scripts; what was counted is not.
    redis.client().sends("DEL grants overlaps").reply();
    // Jobs that were killed in their queue would keep their locks for an hour.
    redis.client().sends("DEL qo_0 qo_1 qo_2 qo_3").reply();

    let mut busy = Command::new("sh");
    let _busy = Process::spawn(busy.args(["-c", "while :; do :; done"]))?;
    let proxy = Installed::starts(&redis)?;
    estate.starts(proxy.port)?;
    // Everything has begun, and is known.
    std::thread::sleep(WARMING_UP);
    phase(&redis, time / 2);
    let proposed = proxy.adopts(&redis)?;
    let stock = proposed.namespace_of("stock:*:lock");
    // What each program does is known after a while, and the report begins anew.
    phase(&redis, time);
    proxy.types(&["audit"])?;
    proxy.types(&["audit", "reset"])?;
    let watched = phase(&redis, time);
    let foretold = stock.map(|stock| proxy.unheld(stock, "foretold")).transpose()?;
    proxy.types(&["audit"])?;
    let (code, _) = proxy.types(&["mode", "enforce"])?;
    if code != 0 {
        proxy.types(&["mode", "enforce", "--anyway"])?;
    }
    // The programs that were at work under a stolen lock when the order came have finished.
    std::thread::sleep(WARMING_UP);
    let enforced = phase(&redis, time);
    let seen = stock.map(|stock| proxy.unheld(stock, "seen")).transpose()?;
    proxy.types(&["audit"])?;

    let mut problems = Vec::new();
    println!(
        "\n{:10} {:>10} {:>10} {:>10}   overlaps: direct, watched, enforced",
        "PROGRAM", "DIRECT", "WATCHED", "ENFORCED"
    );
    for Program { name, is_honest, .. } in wanted() {
        let of = |phase: &Phase| (phase.grants[*name], phase.overlaps[*name]);
        let (before, during, after) = (of(&direct), of(&watched), of(&enforced));
        println!(
            "{name:10} {:8.1}/s {:8.1}/s {:8.1}/s   {}, {}, {}",
            before.0, during.0, after.0, before.1, during.1, after.1
        );
        if *is_honest && after.0 < kept * during.0 {
            problems.push(format!("{name}: {:.1} grants a second were {:.1}", after.0, during.0));
        }
        if after.1 > 0.0 {
            problems.push(format!("{name}: {} overlaps", after.1));
        }
        if during.0 == 0.0 {
            problems.push(format!("{name}: it took no lock"));
        }
    }
    // Of a misuser, of whose releases the last that is due counts.
    if let (Some(foretold), Some(seen)) = (foretold, seen) {
        println!("stock: locks left unheld {foretold:.3} foretold, {seen:.3} seen");
        if !(foretold <= 2.0 * seen + SMALL && seen <= 2.0 * foretold + SMALL) {
            problems.push("stock: what was foretold in lock time did not come".to_owned());
        }
    }
    for problem in &problems {
        println!("PROBLEM {problem}");
    }
    if !problems.is_empty() {
        let log = fs::read_to_string(proxy.folder.path().join("log"))?;
        println!("--- the end of the proxy's log");
        log.lines().rev().take(60).collect::<Vec<_>>().iter().rev().for_each(|line| println!("{line}"));
        return Ok(ExitCode::FAILURE);
    }
    println!("every honest program goes on, and nobody shares a lock");
    Ok(ExitCode::SUCCESS)
}

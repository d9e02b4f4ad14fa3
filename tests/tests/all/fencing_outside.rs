//! The recipes of `docs/fencing.md`, with the files of `docs/examples/fencing` and real resources: a holder is paused beyond its
//! lease, the next holder writes, and then the first one writes. Without the recipe this late write succeeds; with it, the
//! resource refuses the write.

mod http;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockwarden_tests::{Finished, Postgres, Process, Proxy, Redis, lockwarden, run_to_end, wait_for, wait_for_value};
use tempfile::TempDir;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/fencing").join(name)
}

/// Two holders of one lock, in a folder of their own.
struct Holders {
    redis: Redis,
    proxy: Proxy,
    folder: TempDir,
}

impl Holders {
    fn new() -> Holders {
        let redis = Redis::start();
        let proxy = Proxy::enforcing(&redis);
        let folder = tempfile::tempdir().expect("a folder");
        Holders { redis, proxy, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `lockwarden lock` around a script.
    fn under_lock(&self, script: &str) -> Command {
        self.for_as_long_as("9s", script)
    }

    fn for_as_long_as(&self, ttl: &str, script: &str) -> Command {
        let to = self.proxy.address().to_string();
        let mut command = lockwarden(&["lock", "lock:stock:lamp", "--ttl", ttl, "--connect", &to]);
        command.args(["--", "sh", "-c", script]);
        command.current_dir(self.folder.path()).env("EXAMPLES", example(""));
        command
    }

    /// One holder is paused beyond its lease, while another one writes 12 in its turn. Then the first one's script goes on and
    /// writes 34. Returns its exit code and its output.
    fn late_write(&self, write: &str, prepare: &dyn Fn(&mut Command)) -> (i32, String) {
        for name in ["holds", "go", "ended"] {
            let _ = fs::remove_file(self.file(name));
        }
        let mut paused = self.for_as_long_as(
            "1s",
            &format!(
                "touch holds; while [ ! -e go ]; do sleep 0.02; done; value=34; ({write}) >said 2>&1; echo $? >ended"
            ),
        );
        prepare(&mut paused);
        paused.stderr(Stdio::null());
        let paused = Process::spawn(&mut paused).expect("the binary is there");
        wait_for("the first holder", || self.file("holds").exists());
        paused.freeze();
        self.redis.becomes_free("lock:stock:lamp");
        let mut second = self.under_lock(&format!("value=12; {write}"));
        prepare(&mut second);
        let second = run_to_end(&mut second);
        assert_eq!(second.code, Some(0), "{second:?}");
        fs::write(self.file("go"), "").expect("the folder is there");
        let code =
            wait_for_value("the late write", || fs::read_to_string(self.file("ended")).ok()?.trim().parse().ok());
        paused.thaw();
        let said = fs::read_to_string(self.file("said")).expect("it has written");
        (code, said)
    }
}

/// Runs a command that needs no lock.
fn run(command: &mut Command) -> Finished {
    run_to_end(command)
}

#[test]
fn a_row_of_postgresql_refuses_the_late_write_of_a_paused_holder() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let holders = Holders::new();
    let reach = |command: &mut Command| {
        postgres.reached(command);
    };
    let made =
        run(postgres.reached(&mut Command::new("psql")).args(["-X", "-q", "-f"]).arg(example("postgresql-table.sql")));
    assert_eq!(made.code, Some(0), "{made:?}");

    let plain = "psql -X -q -c \"UPDATE stock SET pieces = $value WHERE item = 'lamp'\"";
    let (code, said) = holders.late_write(plain, &reach);
    assert_eq!(code, 0, "{said}");
    assert_eq!(postgres.asks("SELECT pieces FROM stock"), "34", "the damage");

    let fenced = "psql -X -q -v pieces=$value -v fence=$LOCKWARDEN_FENCE -f $EXAMPLES/postgresql-write.sql";
    let (code, said) = holders.late_write(fenced, &reach);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("no rows returned for \\gset"), "{said}");
    assert_eq!(postgres.asks("SELECT pieces FROM stock"), "12");
    // The holder itself writes as often as it likes.
    let twice = run(postgres.reached(&mut holders.under_lock(&format!("value=11; {fenced}; {fenced}"))));
    assert_eq!(twice.code, Some(0), "{twice:?}");
    assert_eq!(twice.stdout, "11 are left\n11 are left\n");
    // Without a number nothing is written.
    let without = fenced.replace("$LOCKWARDEN_FENCE", "");
    let without = run(postgres.reached(&mut holders.under_lock(&format!("value=10; {without}"))));
    assert_eq!(without.code, Some(3), "{without:?}");
    assert_eq!(postgres.asks("SELECT pieces FROM stock"), "11");
}

/// While a newer holder's write is not committed yet, an older one waits for it and is refused then.
#[test]
fn a_late_write_that_comes_while_a_newer_one_is_under_way_is_refused_as_well() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    for file in ["postgresql-table.sql", "postgresql-fences.sql"] {
        let made = run(postgres.reached(&mut Command::new("psql")).args(["-X", "-q", "-f"]).arg(example(file)));
        assert_eq!(made.code, Some(0), "{made:?}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let commits = folder.path().join("commits");
    for (begun, late, expected) in [
        (
            "UPDATE stock SET pieces = 12, fence = 2 WHERE item = 'lamp' AND fence <= 2",
            "postgresql-write.sql",
            ("SELECT pieces, fence FROM stock", "12|2"),
        ),
        (
            "INSERT INTO fences VALUES ('lock:stock:lamp', 2)",
            "postgresql-transaction.sql",
            ("SELECT count(*) FROM sales", "0"),
        ),
    ] {
        let _ = fs::remove_file(&commits);
        let mut newer = Command::new("psql");
        let newer = postgres
            .reached(&mut newer)
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c"])
            .arg(format!("BEGIN; {begun}"))
            .args(["-c"])
            .arg(format!("\\! while [ ! -e {} ]; do sleep 0.02; done", commits.display()))
            .args(["-c", "COMMIT"])
            .stdout(Stdio::null());
        let mut newer = Process::spawn(newer).expect("psql is there");
        wait_for("the newer write", || {
            postgres.asks("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'") == "1"
        });
        let mut older = Command::new("psql");
        let older = postgres
            .reached(&mut older)
            .args(["-X", "-q", "-v", "pieces=34", "-v", "fence=1", "-f"])
            .arg(example(late))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut older = Process::spawn(older).expect("psql is there");
        wait_for("the older write to wait", || {
            postgres.asks("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "1"
        });
        fs::write(&commits, "").expect("the folder is there");
        let ended = |process: &mut Process| wait_for_value("psql to end", || process.has_ended()).code();
        assert_eq!(ended(&mut newer), Some(0));
        assert_eq!(ended(&mut older), Some(3), "{late}");
        assert_eq!(postgres.asks(expected.0), expected.1, "{late}");
    }
}

#[test]
fn a_transaction_of_a_paused_holder_changes_no_table() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let holders = Holders::new();
    for file in ["postgresql-table.sql", "postgresql-fences.sql"] {
        let made = run(postgres.reached(&mut Command::new("psql")).args(["-X", "-q", "-f"]).arg(example(file)));
        assert_eq!(made.code, Some(0), "{made:?}");
    }
    let reach = |command: &mut Command| {
        postgres.reached(command);
    };
    let state = || postgres.asks("SELECT (SELECT count(*) FROM sales), pieces FROM stock");
    let plain = "psql -X -q -c \"INSERT INTO sales VALUES ('lamp', 0); UPDATE stock SET pieces = pieces - 1\"";
    let (code, said) = holders.late_write(plain, &reach);
    assert_eq!((code, state().as_str()), (0, "2|98"), "the damage: {said}");

    let fenced = "psql -X -q -v fence=$LOCKWARDEN_FENCE -f $EXAMPLES/postgresql-transaction.sql";
    let (code, said) = holders.late_write(fenced, &reach);
    assert_eq!((code, state().as_str()), (3, "3|97"), "{said}");
}

#[test]
fn a_file_refuses_the_late_write_of_a_paused_holder() {
    let holders = Holders::new();
    let stock = || fs::read_to_string(holders.file("stock")).expect("it was written");
    let (code, said) = holders.late_write("echo $value >stock", &|_| {});
    assert_eq!((code, stock().as_str()), (0, "34\n"), "the damage: {said}");

    let fenced = "echo $value | $EXAMPLES/fenced-write stock";
    let (code, said) = holders.late_write(fenced, &|_| {});
    assert_eq!((code, stock().as_str()), (1, "12\n"), "{said}");
    assert!(said.contains(" is older than ") && said.ends_with("nothing is written\n"), "{said}");
    // Straight to Redis there is no number.
    let mut straight = lockwarden(&["lock", "lock:stock:lamp", "--connect"]);
    straight
        .arg(holders.redis.address().to_string())
        .args(["--", "sh", "-c", "echo 56 | $EXAMPLES/fenced-write stock"])
        .current_dir(holders.folder.path())
        .env("EXAMPLES", example(""));
    let straight = run(&mut straight);
    assert_ne!(straight.code, Some(0), "{straight:?}");
    assert!(straight.stderr.contains("there is no fencing token"), "{straight:?}");
    assert_eq!(stock(), "12\n");
}

/// However many write at once, and in whatever order they come: the newest holder's words stay.
#[test]
fn of_many_writes_to_a_file_at_once_the_newest_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("stock");
    let writers: Vec<Process> = (0..40)
        .map(|number| {
            let fence = number * 7 % 40 + 1;
            let mut command = Command::new("sh");
            command
                .args(["-c", "echo \"of $LOCKWARDEN_FENCE\" | \"$0\" \"$1\" 2>/dev/null"])
                .arg(example("fenced-write"))
                .arg(&file)
                .env("LOCKWARDEN_FENCE", fence.to_string());
            Process::spawn(&mut command).expect("there is a shell")
        })
        .collect();
    for mut writer in writers {
        wait_for("a writer to end", || writer.has_ended().is_some());
    }
    assert_eq!(fs::read_to_string(&file).expect("it was written"), "of 40\n");
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["stock", "stock.fence", "stock.lock"]);
    for wrong in ["", "x", "-1", "1.5"] {
        let mut command = Command::new(example("fenced-write"));
        let done = run(command.arg(&file).env("LOCKWARDEN_FENCE", wrong));
        assert_ne!(done.code, Some(0), "{wrong:?}: {done:?}");
    }
    assert_eq!(fs::read_to_string(&file).expect("it was written"), "of 40\n");
}

/// Whether a process waits for a lock on this file, as the kernel reports it.
fn is_waited_for(file: &Path) -> bool {
    let inode = fs::metadata(file).map(|file| file.ino()).unwrap_or_default();
    let locks = fs::read_to_string("/proc/locks").expect("the kernel has it");
    let mut lines = locks.lines();
    lines.any(|line| line.contains("-> FLOCK") && line.contains(&format!(":{inode} ")))
}

#[test]
fn a_write_to_a_file_waits_for_one_under_way_and_compares_behind_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let mut newer = Command::new("sh");
    newer.current_dir(folder.path()).args([
        "-c",
        "exec 9>>stock.lock; flock 9; touch begun; while [ ! -e go ]; do sleep 0.02; done; echo 2 >stock.fence",
    ]);
    let mut newer = Process::spawn(&mut newer).expect("there is a shell");
    wait_for("the newer write", || file("begun").exists());
    let mut older = Command::new("sh");
    older
        .args(["-c", "echo of 1 | \"$0\" stock 2>/dev/null"])
        .arg(example("fenced-write"))
        .current_dir(folder.path())
        .env("LOCKWARDEN_FENCE", "1");
    let mut older = Process::spawn(&mut older).expect("there is a shell");
    wait_for("the older write to wait", || older.has_ended().is_some() || is_waited_for(&file("stock.lock")));
    fs::write(file("go"), "").expect("the folder is there");
    let code = |process: &mut Process| wait_for_value("the end", || process.has_ended()).code();
    assert_eq!((code(&mut newer), code(&mut older)), (Some(0), Some(1)));
    assert!(!file("stock").exists());
}

/// What the page shows is what is tested here and in `fencing_clients.rs`.
#[test]
fn the_page_shows_the_files_as_they_are() {
    let page = crate::documentation::page("docs/fencing.md");
    for name in [
        "postgresql-table.sql",
        "postgresql-write.sql",
        "postgresql-fences.sql",
        "postgresql-transaction.sql",
        "fenced-write",
        "fencing.py",
    ] {
        let text = fs::read_to_string(example(name)).expect("it is there");
        assert!(page.contains(&format!("\n{text}```\n")), "{name}");
    }
    let mut libraries: Vec<String> = Vec::new();
    for row in page.lines().filter(|line| line.contains("](examples/fencing/clients/")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (_, path) = cells[2].split_once("](examples/fencing/").expect("a link");
        let path = path.trim_end_matches(") |");
        let text = fs::read_to_string(example(path)).expect("it is there");
        let calls = cells[1].split('`').skip(1).step_by(2);
        for call in calls {
            assert!(text.contains(call), "{path}: {call}");
        }
        libraries.push(path.trim_start_matches("clients/").to_owned());
    }
    let files = fs::read_dir(example("clients")).expect("it is there");
    let names = files.map(|file| file.expect("an entry").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("text")).collect();
    names.sort();
    libraries.sort();
    assert_eq!(libraries, names);
}

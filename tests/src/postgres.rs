//! A private PostgreSQL: a directory of its own, reached by a unix socket in there, removed when the value is dropped. It
//! refuses to run as root, so root runs it as a user without rights.

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::deadline::wait_for;
use crate::process::{Process, run_to_end};
use crate::prometheus::tell_missing;

/// A running server. Dropping it ends it.
pub struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    user: Option<(u32, u32)>,
    process: Process,
}

impl Postgres {
    /// Starts an empty server; `None` where PostgreSQL is not installed, which is a failure in CI only.
    #[track_caller]
    pub fn start() -> Option<Postgres> {
        let Some(programs) = programs() else {
            tell_missing("PostgreSQL");
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory for PostgreSQL");
        let user = nobody(directory.path());
        if let Some((user, group)) = user {
            chown(directory.path(), Some(user), Some(group)).expect("root may give it away");
        }
        let program = |name: &str| program(&programs, name, directory.path(), user);
        let made = run_to_end(
            program("initdb")
                .args(["-D", "data", "-U", "shop", "-A", "trust", "-E", "UTF8"])
                .args(["--locale=C", "--no-sync"]),
        );
        assert_eq!(made.code, Some(0), "{made:?}");
        let log = fs::File::create(directory.path().join("log")).expect("a file for its log");
        let process = Process::spawn(
            program("postgres")
                .args(["-D", "data", "-c", "listen_addresses="])
                .args(["-c", "fsync=off", "-c"])
                .arg(format!("unix_socket_directories={}", directory.path().display()))
                .stdout(Stdio::null())
                .stderr(log),
        )
        .expect("PostgreSQL is installed");
        let server = Postgres { programs, directory, user, process };
        wait_for("PostgreSQL to answer", || {
            run_to_end(server.reached(&mut Command::new("psql")).args(["-c", "SELECT 1"])).code == Some(0)
        });
        Some(server)
    }

    /// The same command, which finds this server by its environment, as every program of PostgreSQL does.
    pub fn reached<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("PGHOST", self.directory.path()).env("PGUSER", "shop").env("PGDATABASE", "postgres")
    }

    /// What a query returns, without decoration.
    #[track_caller]
    pub fn asks(&self, query: &str) -> String {
        let mut psql = Command::new("psql");
        let done = run_to_end(self.reached(&mut psql).args(["-X", "-q", "-t", "-A", "-c", query]));
        assert_eq!(done.code, Some(0), "{query}: {done:?}");
        done.stdout.trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killed, it would leave shared memory behind.
        let mut stop = program(&self.programs, "pg_ctl", self.directory.path(), self.user);
        let _ = stop.args(["stop", "-D", "data", "-m", "immediate"]).output();
        let _ = self.process.has_ended();
    }
}

/// The folder of the server's programs: Debian has it beside `PATH`.
fn programs() -> Option<PathBuf> {
    let on_path = env::var_os("PATH").unwrap_or_default();
    let of_debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let of_debian = of_debian.flatten().map(|version| version.path().join("bin"));
    let psql = env::split_paths(&on_path).any(|folder| folder.join("psql").exists());
    let mut folders = env::split_paths(&on_path).chain(of_debian);
    psql.then(|| folders.find(|folder| folder.join("initdb").exists() && folder.join("pg_ctl").exists()))?
}

fn program(folder: &Path, name: &str, directory: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(folder.join(name));
    command.current_dir(directory);
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command
}

/// Where we are root: the user and group as which the programs run, and to which this directory then belongs.
fn nobody(ours: &Path) -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    if fs::metadata(ours).expect("it was made just now").uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let user = users.lines().find(|line| line.starts_with("nobody:"));
    let mut numbers = user.expect("Unix has a nobody").split(':').skip(2);
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

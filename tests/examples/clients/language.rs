//! One language's folder in `tests/clients`: its contents, the installation of what its program needs, and a
//! run of the program against a server. A run has a time limit, and every process that the program started
//! ends with it. `report.rs` reads the program's output.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::report::Report;

/// Installing on a slow network, with a compiler to run.
const SET_UP_WITHIN: Duration = Duration::from_secs(20 * 60);
/// All clients of a language in one world.
const RUN_WITHIN: Duration = Duration::from_secs(10 * 60);

/// The program that every language has, and those that few have.
pub(crate) const CLIENTS: &str = "run.sh";
pub(crate) const POOLS: &str = "pools.sh";
pub(crate) const SHOP: &str = "shop.sh";

/// A folder with `setup.sh` and `run.sh`.
pub(crate) struct Language {
    name: String,
    folder: PathBuf,
    home: PathBuf,
}

impl Language {
    /// Those that were named, or all that there are, by name.
    pub(crate) fn chosen(root: &Path, named: &[String]) -> Result<Vec<Language>, Box<dyn Error>> {
        let mut known = Vec::new();
        for entry in fs::read_dir(root.join("tests/clients"))? {
            let folder = entry?.path();
            let name = folder.file_name().and_then(|name| name.to_str());
            if let (Some(name), true) = (name, folder.join(CLIENTS).exists()) {
                known.push(name.to_owned());
            }
        }
        known.sort();
        if let Some(stranger) = named.iter().find(|name| !known.contains(name)) {
            return Err(format!("no clients in {stranger}; there are {}", known.join(", ")).into());
        }
        known.retain(|name| named.is_empty() || named.contains(name));
        Ok(known
            .into_iter()
            .map(|name| Language {
                folder: root.join("tests/clients").join(&name),
                home: root.join("target/clients").join(&name),
                name,
            })
            .collect())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where its set-up puts what it installs; nothing of it is in the repository.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Which keys are locks: `lock:*`, and what its libraries put before a name by themselves.
    pub(crate) fn keys(&self) -> Result<Vec<String>, Box<dyn Error>> {
        let mut keys = vec!["lock:*".to_owned()];
        keys.extend(self.patterns("keys.txt")?);
        Ok(keys)
    }

    /// Scripts that take locks which they do not declare.
    pub(crate) fn trusted_scripts(&self) -> Result<Vec<String>, Box<dyn Error>> {
        self.patterns("trusted_scripts.txt")
    }

    /// Locks that one process takes and another gives back.
    pub(crate) fn handed_over(&self) -> Result<Vec<String>, Box<dyn Error>> {
        self.patterns("handed_over.txt")
    }

    fn patterns(&self, file: &str) -> Result<Vec<String>, Box<dyn Error>> {
        let file = self.folder.join(file);
        if !file.exists() {
            return Ok(Vec::new());
        }
        let lines = fs::read_to_string(file)?;
        Ok(lines.lines().map(str::to_owned).collect())
    }

    /// What users of the language must know, in Markdown; the first line is the title.
    pub(crate) fn notes(&self) -> Result<String, Box<dyn Error>> {
        let path = self.folder.join("notes.md");
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// Installs what is missing.
    pub(crate) fn set_up(&self) -> Result<(), Box<dyn Error>> {
        fs::create_dir_all(&self.home)?;
        let mut command = Command::new(self.folder.join("setup.sh"));
        let status = run(&mut command, SET_UP_WITHIN, |line| eprintln!("{line}"))?;
        if !status.success() {
            return Err(format!("{}: setup.sh ended with {status}", self.name).into());
        }
        Ok(())
    }

    /// Whether it brings one of the programs that few have.
    pub(crate) fn has(&self, program: &str) -> bool {
        self.folder.join(program).exists()
    }

    /// Runs one of its programs against the server at this address.
    pub(crate) fn run(
        &self,
        program: &str,
        server: SocketAddr,
        world: &str,
        more: &[(&str, &str)],
    ) -> Result<Report, Box<dyn Error>> {
        eprintln!("--- {}: {program}, {world}", self.name);
        let mut command = Command::new(self.folder.join(program));
        command
            .env("LOCK_HOST", server.ip().to_string())
            .env("LOCK_PORT", server.port().to_string())
            .env("LOCK_PREFIX", format!("lock:{}:", self.name))
            .env("LOCK_WORLD", world)
            .envs(more.iter().copied());
        let mut report = Report::of(world);
        let status = run(&mut command, RUN_WITHIN, |line| report.read(line))
            .map_err(|error| format!("{}, {program}, {world}: {error}", self.name))?;
        if !status.success() {
            report.faults.push(format!("{program} ended with {status}"));
        }
        Ok(report)
    }
}

/// A command and all that it starts; dropped early, they are killed.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(id) = libc::pid_t::try_from(self.0.id())
            && matches!(self.0.try_wait(), Ok(None))
        {
            // SAFETY: `kill` takes no pointers; the leader has not been waited for, so the group's
            // number is ours.
            unsafe { libc::kill(-id, libc::SIGKILL) };
            // It was killed just now; a failure of the wait changes nothing.
            let _ = self.0.wait();
        }
    }
}

/// Runs a command to its end, or to its time limit, and hands on each line of its output.
fn run(command: &mut Command, within: Duration, mut each_line: impl FnMut(&str)) -> Result<ExitStatus, Box<dyn Error>> {
    let deadline = Instant::now() + within;
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    let mut group = Group(child);
    let stdout = group.0.stdout.take().ok_or("stdout is piped")?;
    let (sender, lines) = mpsc::sync_channel::<String>(64);
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => each_line(&line),
            Err(RecvTimeoutError::Disconnected) => return Ok(group.0.wait()?),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("did not end within {within:?}").into());
            }
        }
    }
}

//! The measured proxy: a copy of the test build in its own folder. The proxy keeps its compiled policies beside the program, so
//! files that other tests left change no number. On every machine it has one core, and so one thread for clients.

use std::error::Error;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockwarden_tests::{Cores, Process, Proxy, Redis, binary, free_port, lockwarden_at};
use tempfile::TempDir;

/// How long a command may take: under callgrind a start takes 15 seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// What the proxy logs when it lets clients in.
const SERVES: &str = "the backend is up";

/// Where proxies are started, one at a time.
pub(crate) struct Place {
    redis: Redis,
    directory: TempDir,
    program: PathBuf,
    port: u16,
}

/// A running proxy; dropping it ends it.
pub(crate) struct Program {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl Place {
    pub(crate) fn new() -> Result<Place, Box<dyn Error>> {
        let original = fs::canonicalize(binary())?;
        let beside = original.parent().ok_or("a program in no folder")?;
        let directory = tempfile::tempdir_in(beside)?;
        let program = directory.path().join("lockwarden");
        // A second name costs nothing; a system that has none makes a copy.
        fs::hard_link(&original, &program).or_else(|_| fs::copy(&original, &program).map(|_| ()))?;
        Ok(Place { redis: Redis::start(), directory, program, port: free_port() })
    }

    pub(crate) fn redis(&self) -> SocketAddr {
        self.redis.address()
    }

    /// A file in the folder of the program.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command of lockwarden with this configuration, run by `runner`, if there is one.
    fn command(&self, word: &str, runner: &[String]) -> Result<Command, Box<dyn Error>> {
        let config = self.file("lockwarden.toml");
        fs::write(&config, self.configuration())?;
        let mut command = match runner {
            [] => lockwarden_at(&self.program, &[]),
            [first, more @ ..] => {
                let mut command = lockwarden_at(Path::new(first), &[]);
                command.args(more).arg(&self.program);
                command
            }
        };
        command.args([word, "--config"]).arg(config);
        let core = Cores::allowed()?.numbers().pop().ok_or("no core to run on")?;
        // SAFETY: between fork and exec only `sched_setaffinity` and `prctl` are called, which allocate nothing.
        unsafe { command.pre_exec(move || prepare(core)) };
        Ok(command)
    }

    /// What `make bench` configures.
    fn configuration(&self) -> String {
        let builder = Proxy::builder(&self.redis).default_ttl("30s").ceiling("60s");
        builder.top("listen", &format!("\"127.0.0.1:{}\"", self.port)).text()
    }

    /// Starts the proxy and waits until it lets clients in. No request is sent before, since that would
    /// count.
    pub(crate) fn start(&self, runner: &[String]) -> Result<Program, Box<dyn Error>> {
        let (process, ()) = self.run("run", runner, |_, said| said.contains(SERVES).then_some(()))?;
        Ok(Program { process, address: (Ipv4Addr::LOCALHOST, self.port).into() })
    }

    /// Has it compile its policies and look at its configuration, which ends by itself.
    pub(crate) fn check(&self, runner: &[String]) -> Result<(), Box<dyn Error>> {
        let (_, status) = self.run("check", runner, |status, _| status)?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("`lockwarden check` ended with {status}:\n{}", self.said()?).into()),
        }
    }

    /// Runs a command until `reached` finds the awaited result in its exit or in its output.
    fn run<T>(
        &self,
        word: &str,
        runner: &[String],
        reached: impl Fn(Option<ExitStatus>, &str) -> Option<T>,
    ) -> Result<(Process, T), Box<dyn Error>> {
        let mut command = self.command(word, runner)?;
        let output = File::create(self.log())?;
        command.stdout(output.try_clone()?).stderr(output);
        let mut process = Process::spawn(&mut command).map_err(|error| format!("cannot run {command:?}: {error}"))?;
        let begun = Instant::now();
        loop {
            let status = process.has_ended();
            let said = self.said()?;
            if let Some(found) = reached(status, &said) {
                return Ok((process, found));
            }
            if let Some(status) = status {
                return Err(format!("`lockwarden {word}` ended with {status}:\n{said}").into());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("`lockwarden {word}` took more than {PATIENCE:?}; it said:\n{said}").into());
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> PathBuf {
        self.file("lockwarden.log")
    }

    fn said(&self) -> std::io::Result<String> {
        fs::read_to_string(self.log())
    }
}

impl Program {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

/// One core. And no huge pages, of which a single one would be more than a thousand connections hold.
fn prepare(core: usize) -> std::io::Result<()> {
    Cores::only(core).take()?;
    // SAFETY: this call takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

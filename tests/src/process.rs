//! Child processes that cannot outlive a test: killed on drop, killed by the kernel when the test's
//! thread dies. Knows where the binary under test is, and runs commands that end by themselves.

use std::env;
use std::io::{Error, ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;

use crate::certificates::Authority;
use crate::cores::Cores;
use crate::deadline::wait_for_value;
use crate::redis::is_whole_run_with_tls;

/// A running child. Dropping it kills it.
pub struct Process(Child);

/// The result of a command that ended by itself.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Process {
    /// Starts one that reads nothing.
    pub fn spawn(command: &mut Command) -> std::io::Result<Process> {
        Process::start(command.stdin(Stdio::null()))
    }

    /// One that is spoken to on its standard input.
    pub(crate) fn spawn_listening(command: &mut Command) -> std::io::Result<Process> {
        Process::start(command.stdin(Stdio::piped()))
    }

    fn start(command: &mut Command) -> std::io::Result<Process> {
        // SAFETY: between fork and exec only `prctl` is called, which is async-signal-safe and
        // takes no pointers.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let is_busy = |error: &Error| error.kind() == ErrorKind::ExecutableFileBusy;
        // A program that a test has copied is open for writing in a child that another test has forked and that runs nothing yet.
        let spawned = wait_for_value("the program to be closed", || match command.spawn() {
            Err(error) if is_busy(&error) => None,
            spawned => Some(spawned),
        });
        spawned.map(Process)
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: libc::c_int) {
        let id = libc::pid_t::try_from(self.0.id()).expect("process ids fit pid_t");
        // SAFETY: `kill` takes no pointers; the child has not been waited for, so the id is its.
        unsafe { libc::kill(id, signal) };
    }

    /// Its standard output, once, where that was piped.
    pub fn takes_output(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// Stops it (SIGSTOP), which it cannot notice.
    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(libc::SIGCONT);
    }

    /// How it ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("the child is ours to wait for")
    }

    /// Waits for the end that the caller has caused.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for_value("the end of a process", || self.has_ended())
    }

    pub(crate) fn kill(&mut self) {
        if self.has_ended().is_none() {
            self.0.kill().expect("the child runs");
            self.0.wait().expect("the child is ours to wait for");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether tests may run processes as other users; if not, prints that.
pub fn may_be_another_user() -> bool {
    // SAFETY: the call takes nothing and changes nothing.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("SKIPPED: only root may run processes as other users");
    }
    is_root
}

/// Makes the command run on this thread's core only: a program that counts cores finds one.
pub(crate) fn stays_on_one_core(command: &mut Command) {
    let core = Cores::of_this_thread();
    // SAFETY: between fork and exec only `sched_setaffinity` is called, with a set that the closure owns.
    unsafe { command.pre_exec(move || core.take()) };
}

/// The program gets so many file descriptors and cannot raise that.
pub(crate) fn has_descriptors(command: &mut Command, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    let set = move || {
        // SAFETY: the call reads one `rlimit`, which the closure owns.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only `setrlimit` is called, which allocates nothing.
    unsafe { command.pre_exec(set) };
}

/// The binary under test: `LOCKWARDEN_BIN`, else the one beside the running test.
pub fn binary() -> PathBuf {
    if let Some(path) = env::var_os("LOCKWARDEN_BIN") {
        return path.into();
    }
    let test = env::current_exe().expect("the system knows this program's path");
    let profile = test.parent().and_then(Path::parent);
    let candidates = profile.into_iter().flat_map(|profile| {
        [profile.join("lockwarden"), profile.join("../debug/lockwarden"), profile.join("../release/lockwarden")]
    });
    candidates.into_iter().find(|path| path.exists()).unwrap_or_else(|| {
        panic!(
            "no lockwarden binary beside {}; type `cargo build -p lockwarden` first, or set LOCKWARDEN_BIN",
            test.display()
        )
    })
}

/// The command `lockwarden` with these arguments, without the caller's own settings.
pub fn lockwarden(arguments: &[&str]) -> Command {
    lockwarden_at(&binary(), arguments)
}

/// The same of another binary.
pub fn lockwarden_at(binary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments);
    for (name, _) in env::vars_os() {
        let ours = name.to_string_lossy();
        if ours.starts_with("LOCKWARDEN_") {
            command.env_remove(&name);
        }
    }
    if is_whole_run_with_tls() {
        // The authority that this system trusts, for configurations that name none.
        let file = Authority::folder_of_harness().join("harness.pem");
        command.env("SSL_CERT_FILE", file);
    }
    command
}

/// Runs a command that must end by itself within the deadline.
#[track_caller]
pub fn run_to_end(command: &mut Command) -> Finished {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(command).unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let stdout = drain(process.child().stdout.take());
    let stderr = drain(process.child().stderr.take());
    let status = process.wait();
    assert_ne!(status.signal(), Some(libc::SIGABRT), "{command:?} aborted");
    Finished {
        code: status.code(),
        stdout: stdout.join().expect("reading does not panic"),
        stderr: stderr.join().expect("reading does not panic"),
    }
}

fn drain(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut from) = from {
            // What came before an error is still worth showing.
            let _ = from.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

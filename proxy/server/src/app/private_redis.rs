//! A Redis (or Valkey) of the proxy's own, for `backend = "private"`, `make run` and the demo: it keeps nothing on disk,
//! listens on loopback only and ends with the proxy, however the proxy ends. It is started before the runtime, so its code
//! blocks; the proxy uses it like any other backend.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::child_processes;

/// Looked for on PATH in this order.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// Another process may take a free port before the server has it.
const ATTEMPTS: u32 = 5;

/// An empty server answers after some 10 ms; a loaded machine may need seconds.
const START: Duration = Duration::from_secs(10);

/// Without persistence there is nothing to finish, so an orderly stop takes milliseconds.
const STOP: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(5);

/// Why there is no private server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrivateRedisError {
    /// Neither program is installed.
    #[error(
        "backend = \"private\" needs redis-server or valkey-server on PATH; install one \
         (Debian, Ubuntu: apt-get install redis-server), or name a running one: \
         backend = \"redis://HOST:PORT\""
    )]
    NotInstalled,
    /// The directory or the process could not be created.
    #[error("cannot start {program}")]
    Start {
        /// The program to run.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// It ended, or did not reply in time.
    #[error("{program} {what}; its last words: {last_words}")]
    Silent {
        /// The program that ran.
        program: PathBuf,
        /// What it did instead of replying.
        what: String,
        /// The end of its log.
        last_words: String,
    },
}

/// A running private server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct PrivateRedis {
    child: Child,
    address: SocketAddr,
    /// Holds its log and nothing else; removed with this value.
    _directory: TempDir,
}

impl PrivateRedis {
    /// Starts a server and waits until it replies.
    ///
    /// Must be called from a thread that lives as long as the proxy, best the main one: Linux ties the promise to end with the
    /// parent to the *thread* that started the process (prctl(2)).
    pub(crate) fn start() -> Result<PrivateRedis, PrivateRedisError> {
        let program = find_program().ok_or(PrivateRedisError::NotInstalled)?;
        let mut attempt = 1;
        loop {
            match start_once(&program)? {
                Started::Ready(server) => return Ok(server),
                Started::PortTaken if attempt < ATTEMPTS => attempt += 1,
                Started::PortTaken => {
                    return Err(PrivateRedisError::Silent {
                        program,
                        what: format!("found its port taken {ATTEMPTS} times"),
                        last_words: "address already in use".to_owned(),
                    });
                }
            }
        }
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's process id.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop, waits a moment, then kills it.
    pub(crate) fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        terminate(&self.child);
        if wait(&mut self.child, STOP).is_none() {
            // Both calls fail only if it has ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        self.stop();
    }
}

enum Started {
    Ready(PrivateRedis),
    PortTaken,
}

fn find_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    PROGRAMS
        .iter()
        .find_map(|program| std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| is_executable(file)))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn start_once(program: &Path) -> Result<Started, PrivateRedisError> {
    let failed = |source| PrivateRedisError::Start { program: program.to_owned(), source };
    let directory = private_directory().map_err(failed)?;
    // Redis cannot say which free port it took, so one is found for it, which may be taken before it listens.
    let address = free_address().map_err(failed)?;
    let log = directory.path().join("log");
    let child = spawn(program, directory.path(), address, &log).map_err(failed)?;
    // From here on dropping `server` ends the process.
    let mut server = PrivateRedis { child, address, _directory: directory };
    let deadline = Instant::now() + START;
    let what = loop {
        if let Some(status) = wait(&mut server.child, POLL) {
            if last_words(&log).to_ascii_lowercase().contains("address already in use") {
                return Ok(Started::PortTaken);
            }
            break describe(status);
        }
        if is_ours(address, server._directory.path()) {
            return Ok(Started::Ready(server));
        }
        if Instant::now() > deadline {
            break format!("did not answer within {} s", START.as_secs());
        }
    };
    Err(PrivateRedisError::Silent { program: program.to_owned(), what, last_words: last_words(&log) })
}

fn private_directory() -> io::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let only_mine = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("lockwarden-redis-").permissions(only_mine).tempdir()
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn spawn(program: &Path, dir: &Path, address: SocketAddr, log: &Path) -> io::Result<Child> {
    let output = File::create(log)?;
    let mut command = Command::new(program);
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Ctrl-C in the terminal is for the proxy, which still needs its backend to stop in order.
        .process_group(0);
    child_processes::end_with_us(&mut command);
    command.spawn()
}

/// Whether the server that replies there is the one that was started in `dir`: if the port was taken, it could be another one.
fn is_ours(address: SocketAddr, dir: &Path) -> bool {
    let Ok(dir) = dir.canonicalize() else {
        return false;
    };
    ask_directory(address).is_ok_and(|answer| Path::new(&answer) == dir)
}

fn ask_directory(address: SocketAddr) -> io::Result<String> {
    let limit = Duration::from_millis(500);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(b"PING\r\nCONFIG GET dir\r\n")?;
    // +PONG, then *2 $3 dir $n PATH: the path is the sixth line.
    let mut lines = BufReader::new(io::Read::take(stream, 4096)).lines();
    match lines.next().transpose()?.as_deref() {
        Some("+PONG") => lines.nth(4).unwrap_or_else(|| Err(io::ErrorKind::InvalidData.into())),
        Some(_) | None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Its status if it ends within `limit`.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(POLL);
    }
}

fn terminate(child: &Child) {
    let Ok(pid) = libc::pid_t::try_from(child.id()) else {
        return;
    };
    // SAFETY: kill has no memory preconditions. The child has not been waited for, so the process
    // id is still its own.
    unsafe {
        libc::kill(pid, libc::SIGTERM);
    }
}

fn describe(status: ExitStatus) -> String {
    format!("ended at once ({status})")
}

fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join(" / ");
    last.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_alive(pid: u32) -> bool {
        // A zombie is not alive; it may just not have been waited for.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
    }

    #[test]
    fn it_answers_keeps_nothing_and_stops() {
        let mut server = PrivateRedis::start().unwrap();
        let directory = server._directory.path().to_owned();
        let pid = server.process_id();
        assert!(server.address().ip().is_loopback());
        assert!(is_ours(server.address(), &directory));
        assert!(!is_ours(server.address(), Path::new("/")));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);

        server.stop();
        assert!(!is_alive(pid));
        server.stop();
        assert!(!directory.join("dump.rdb").exists());
        drop(server);
        assert!(!directory.exists());
    }

    #[test]
    fn dropping_it_stops_it() {
        let server = PrivateRedis::start().unwrap();
        let pid = server.process_id();
        assert!(is_alive(pid));
        drop(server);
        assert!(!is_alive(pid));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn it_ends_when_the_thread_that_started_it_ends() {
        // For the kernel the end of the starting thread counts as the end of the proxy.
        let server = std::thread::spawn(|| PrivateRedis::start().unwrap()).join().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_alive(server.process_id()) {
            assert!(Instant::now() < deadline, "still running");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let program = find_program().unwrap();
        let mut child = spawn(&program, dir.path(), taken.local_addr().unwrap(), &log).unwrap();
        let status = wait(&mut child, START).expect("it cannot listen, so it ends");
        assert!(!status.success());
        let words = last_words(&log).to_ascii_lowercase();
        assert!(words.contains("address already in use"), "{words}");
    }

    #[test]
    fn a_program_that_ends_at_once_is_quoted() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("broken-server");
        std::fs::write(&program, "#!/bin/sh\necho 'no memory left'\nexit 3\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let Err(error) = start_once(&program) else {
            panic!("it started");
        };
        let text = error.to_string();
        assert!(text.contains("no memory left") && text.contains("exit status: 3"), "{text}");
    }
}

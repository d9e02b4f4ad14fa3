//! Which server program the tests run, and what it is too old for. `LOCKWARDEN_TEST_SERVER=path` names one;
//! otherwise it is the `redis-server` or `valkey-server` of `PATH`. Its version is asked for once; this
//! module starts no server.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write as _;
use std::process::Command;
use std::sync::OnceLock;

/// The variable that names another program than the one of `PATH`.
const NAMED_BY: &str = "LOCKWARDEN_TEST_SERVER";

/// The program behind every [`Redis`](crate::Redis) of this process.
#[derive(Debug)]
pub struct Server {
    program: OsString,
    /// As it calls itself, `Redis` or `Valkey`.
    name: String,
    version: [u32; 3],
}

impl Server {
    /// The one that the tests run.
    #[track_caller]
    pub fn under_test() -> &'static Server {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Server::of(&program()))
    }

    #[track_caller]
    fn of(program: &OsStr) -> Server {
        let output = Command::new(program)
            .arg("--version")
            .output()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let (name, version) =
            described(&line).unwrap_or_else(|| panic!("{} is no server: {line:?}", program.display()));
        Server { program: program.to_owned(), name, version }
    }

    pub(crate) fn program(&self) -> &OsStr {
        &self.program
    }

    /// As it calls itself, `Redis` or `Valkey`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is at least this version. Valkey counts on from Redis 7.2, so that one number
    /// fits both for what is older than that.
    pub fn since(&self, major: u32, minor: u32) -> bool {
        self.version >= [major, minor, 0]
    }

    /// Whether a test must be skipped because the server is too old for it. If so, it prints that on the
    /// terminal, also where the test runner hides the output of passing tests.
    pub fn lacks(&self, what: &str, major: u32, minor: u32) -> bool {
        let lacks = !self.since(major, minor);
        if lacks {
            self.is_told_to_lack(&format!("{what}, which came with {major}.{minor}"));
        }
        lacks
    }

    /// Whether a test must be skipped because this program was built without TLS; prints that like
    /// [`Server::lacks`].
    pub fn lacks_tls(&self) -> bool {
        // Without a certificate it ends by itself, one way or the other.
        let tried = Command::new(&self.program)
            .args(["--port", "0", "--tls-port", "1"])
            .output()
            .unwrap_or_else(|error| panic!("cannot run {self}: {error}"));
        let words = [tried.stdout, tried.stderr].concat();
        let words = String::from_utf8_lossy(&words);
        // Before 8.0, and since.
        let lacks = words.contains("Bad directive") || words.contains("Failed finding TLS support");
        if lacks {
            self.is_told_to_lack("TLS in it");
        }
        lacks
    }

    fn is_told_to_lack(&self, what: &str) {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let line = format!("skipped: {test}: {self} has no {what}\n");
        // `eprintln` would be captured. With the terminal gone a failure cannot be reported.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.version;
        write!(f, "{} {major}.{minor}.{patch}", self.name)
    }
}

/// `redis-server`, or `valkey-server` where only that is installed.
fn program() -> OsString {
    if let Some(named) = env::var_os(NAMED_BY).filter(|named| !named.is_empty()) {
        return named;
    }
    let installed = |name: &str| {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|directory| directory.join(name).is_file())
    };
    if !installed("redis-server") && installed("valkey-server") {
        "valkey-server".into()
    } else {
        "redis-server".into()
    }
}

/// The name and version in `Redis server v=7.0.15 sha=…`.
fn described(line: &str) -> Option<(String, [u32; 3])> {
    let mut words = line.split(' ');
    let (name, "server") = (words.next()?, words.next()?) else {
        return None;
    };
    let mut numbers = words.next()?.strip_prefix("v=")?.split('.');
    let mut version = [0; 3];
    for number in &mut version {
        *number = numbers.next()?.parse().ok()?;
    }
    Some((name.to_owned(), version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_its_name_and_its_version() {
        assert_eq!(
            described("Redis server v=6.2.5 sha=00000000:0 malloc=libc bits=64 build=1\n"),
            Some(("Redis".to_owned(), [6, 2, 5]))
        );
        assert_eq!(
            described("Valkey server v=9.1.2 sha=00000000:1 malloc=libc"),
            Some(("Valkey".to_owned(), [9, 1, 2]))
        );
        assert_eq!(described("redis-cli 7.0.15"), None);
        assert_eq!(described(""), None);
    }

    #[test]
    fn a_version_is_compared_by_its_numbers() {
        let server = Server { program: OsString::new(), name: "Redis".to_owned(), version: [6, 2, 5] };
        assert!(server.since(6, 2) && server.since(6, 0) && !server.since(7, 0));
        assert!(server.lacks("PEXPIRETIME", 7, 0) && !server.lacks("LMOVE", 6, 2));
        assert_eq!(server.to_string(), "Redis 6.2.5");
    }
}

//! Parts of both demos: a minimal client, and this binary as a proxy.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::app::child_processes;

/// A demo that waits longer than this for one step gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The longest value that a demo reads, bytes.
const MAX_VALUE: usize = 1024;

/// A connection, with the few commands that a demo needs.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends a command. Returns the value of the reply, or its only line unchanged.
    pub(super) fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        let line = self.line()?;
        let length = line.strip_prefix('$').and_then(|text| text.parse().ok());
        match length {
            Some(length) if length <= MAX_VALUE => self.value(length),
            Some(_) | None => Ok(line),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn value(&mut self, length: usize) -> io::Result<String> {
        let mut value = vec![0; length + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(length);
        String::from_utf8(value).map_err(io::Error::other)
    }
}

/// This binary as a proxy, in its own process.
pub(super) struct Proxy {
    process: Child,
    log: BufReader<std::process::ChildStderr>,
    address: SocketAddr,
}

impl Proxy {
    /// Starts it; `with` sets its settings.
    pub(super) fn start(with: impl FnOnce(&mut Command)) -> Result<Proxy, Box<dyn std::error::Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        child_processes::end_with_us(&mut command);
        with(command.arg("run"));
        let mut process = command
            .env_remove("LOCKWARDEN_CONFIG")
            .env("LOCKWARDEN_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = process.stderr.take().ok_or("the proxy has no log")?;
        let mut log = BufReader::new(stderr);
        let address = serving(&mut log)?;
        Ok(Proxy { process, log, address })
    }

    /// The address for its clients.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it; returns its log lines about the demo.
    pub(super) fn stop(mut self) -> io::Result<Vec<String>> {
        let pid = libc::pid_t::try_from(self.process.id()).map_err(io::Error::other)?;
        // SAFETY: a signal to a child of ours that was not waited for, so the number is still its.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let lines: io::Result<Vec<String>> = self.log.by_ref().lines().collect();
        self.process.wait()?;
        Ok(lines?.into_iter().filter(|line| line.contains("\"refused\"")).collect())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads the log up to the line that says that clients are served.
fn serving(log: &mut impl BufRead) -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let mut address = None;
    loop {
        let mut line = String::new();
        if log.read_line(&mut line)? == 0 {
            return Err("the proxy did not start".into());
        }
        let Ok(entry) = serde_json::from_str::<serde_json::Value>(&line) else {
            return Err(line.into());
        };
        match entry["message"].as_str() {
            Some("serving") => {
                address = entry["listen"].as_str().and_then(|text| text.parse().ok());
            }
            Some("the backend is up: clients are served") => {
                return address.ok_or_else(|| "the proxy did not say where it listens".into());
            }
            _ => {}
        }
    }
}

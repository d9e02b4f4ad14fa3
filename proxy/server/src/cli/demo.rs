//! `lockwarden demo`: the classic bug, told twice in a few seconds. A holder's lease ends while it
//! still works, another takes the lock, and the first one's DEL comes late: straight to Redis it
//! deletes a stranger's lock, through the proxy it deletes nothing. Real servers, real sockets.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::app::private_redis::PrivateRedis;
use crate::app::{child_processes, exit_code};

/// The lease of the first holder.
const LEASE_MS: u32 = 400;
/// The whole demo gives up after this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells the story.
pub(crate) fn demo() -> ExitCode {
    match tell() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("lockwarden: the demo did not go as it should; please report it");
            exit_code::findings()
        }
        Err(error) => {
            eprintln!("lockwarden: {error}");
            exit_code::configuration()
        }
    }
}

fn tell() -> Result<bool, Box<dyn std::error::Error>> {
    let mut redis = PrivateRedis::start()?;
    println!("The same two workers, the same late DEL, twice.\n");
    println!("Straight to Redis:");
    let damaged = story(redis.address(), "lock:direct")?;
    let proxy = Proxy::start(redis.address())?;
    println!("\nThrough lockwarden (nothing but the address is different):");
    let safe = story(proxy.address, "lock:governed")?;
    println!("\nWhat lockwarden logged:");
    for line in proxy.stop()? {
        println!("  {line}");
    }
    redis.stop();
    Ok(damaged == Ending::LockLost && safe == Ending::LockKept)
}

#[derive(PartialEq, Eq)]
enum Ending {
    LockLost,
    LockKept,
}

fn story(address: SocketAddr, key: &str) -> io::Result<Ending> {
    let (mut first, mut second) = (Client::connect(address)?, Client::connect(address)?);
    first.say(
        "worker 1",
        &format!("SET {key} 1 NX PX {LEASE_MS}"),
        "takes the lock",
    )?;
    let begun = Instant::now();
    while second.ask(&format!("SET {key} 1 NX PX 30000"))? != "+OK" {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("the first lease did not end"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "  ... worker 1 works longer than its {LEASE_MS} ms; the lease ends, and worker 2 takes the lock ..."
    );
    let deleted = first.say(
        "worker 1",
        &format!("DEL {key}"),
        "is done, and gives \"its\" lock back",
    )?;
    let left = second.ask(&format!("EXISTS {key}"))?;
    if left == ":1" {
        println!("  worker 2 still holds the lock: nothing was deleted.");
        return Ok(if deleted == ":0" {
            Ending::LockKept
        } else {
            Ending::LockLost
        });
    }
    println!("  worker 2 has lost its lock and does not know: a third worker can enter now.");
    Ok(Ending::LockLost)
}

/// The few words of the protocol that the story needs.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream: BufReader::new(stream),
        })
    }

    fn ask(&mut self, command: &str) -> io::Result<String> {
        writeln!(self.stream.get_mut(), "{command}\r")?;
        let mut reply = String::new();
        self.stream.read_line(&mut reply)?;
        Ok(reply.trim_end().to_owned())
    }

    fn say(&mut self, who: &str, command: &str, what: &str) -> io::Result<String> {
        let reply = self.ask(command)?;
        println!("  {who}: {command:<38} -> {reply:<5} {what}");
        Ok(reply)
    }
}

/// This very binary as a proxy, in a process of its own.
struct Proxy {
    process: Child,
    log: BufReader<std::process::ChildStderr>,
    address: SocketAddr,
}

impl Proxy {
    fn start(backend: SocketAddr) -> Result<Proxy, Box<dyn std::error::Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        child_processes::end_with_us(&mut command);
        let mut process = command
            .args([
                "run",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "off",
                "--mode",
                "enforce",
            ])
            .args(["--backend-url", &format!("redis://{backend}")])
            .env_remove("LOCKWARDEN_CONFIG")
            .env("LOCKWARDEN_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = process.stderr.take().ok_or("the proxy has no log")?;
        let mut log = BufReader::new(stderr);
        let address = serving(&mut log)?;
        Ok(Proxy {
            process,
            log,
            address,
        })
    }

    /// Stops it; answers what it logged about the story.
    fn stop(mut self) -> io::Result<Vec<String>> {
        let pid = libc::pid_t::try_from(self.process.id()).map_err(io::Error::other)?;
        // SAFETY: a signal to a child of ours that was not waited for, so the number is still its.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let lines: io::Result<Vec<String>> = self.log.by_ref().lines().collect();
        self.process.wait()?;
        Ok(lines?
            .into_iter()
            .filter(|line| line.contains("\"refused\""))
            .collect())
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

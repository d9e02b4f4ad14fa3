//! `lockwarden demo`: the classic bug, shown twice in a few seconds. A holder's lease ends while it still works, another client
//! takes the lock, and the DEL of the first comes late: directly on Redis it deletes the lock of the other client, through the
//! proxy it deletes nothing. Real servers, real sockets. With `--guard` it shows the [`shop`] instead.

mod servers;
mod shop;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::terminal::{complain, say};
use clap::Args;

use crate::app::exit_code;
use crate::app::private_redis::PrivateRedis;

use servers::{Client, PATIENCE, Proxy};

/// The lease of the first holder.
const LEASE_MS: u32 = 400;

#[derive(Args, Debug)]
pub(super) struct DemoArgs {
    /// Tell another story: a shop whose late workers sell items twice, and do not where a guard keeps the stock
    #[arg(long)]
    guard: bool,
}

/// Runs the demo.
pub(super) fn demo(args: &DemoArgs) -> ExitCode {
    let told = match args.guard {
        true => shop::tell(),
        false => tell(),
    };
    match told {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            complain!("lockwarden: the demo did not go as it should; please report it");
            exit_code::findings()
        }
        Err(error) => {
            complain!("lockwarden: {error}");
            exit_code::configuration()
        }
    }
}

fn tell() -> Result<bool, Box<dyn std::error::Error>> {
    let mut redis = PrivateRedis::start()?;
    say!("The same two workers, the same late DEL, twice.\n");
    say!("Straight to Redis:");
    let damaged = story(redis.address(), "lock:direct")?;
    let proxy = Proxy::start(|command| {
        command
            .args(["--listen", "127.0.0.1:0", "--admin", "off"])
            .args(["--mode", "enforce"])
            .args(["--backend-url", &format!("redis://{}", redis.address())]);
    })?;
    say!("\nThrough lockwarden (nothing but the address is different):");
    let safe = story(proxy.address(), "lock:governed")?;
    say!("\nWhat lockwarden logged:");
    for line in proxy.stop()? {
        say!("  {line}");
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
    say(&mut first, "worker 1", &format!("SET {key} 1 NX PX {LEASE_MS}"), "takes the lock")?;
    let begun = Instant::now();
    while second.ask(&["SET", key, "1", "NX", "PX", "30000"])? != "+OK" {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("the first lease did not end"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    say!("  ... worker 1 works longer than its {LEASE_MS} ms; the lease ends, and worker 2 takes the lock ...");
    let deleted = say(&mut first, "worker 1", &format!("DEL {key}"), "is done, and gives \"its\" lock back")?;
    let left = second.ask(&["EXISTS", key])?;
    if left == ":1" {
        say!("  worker 2 still holds the lock: nothing was deleted.");
        return Ok(if deleted == ":0" { Ending::LockKept } else { Ending::LockLost });
    }
    say!("  worker 2 has lost its lock and does not know: a third worker can enter now.");
    Ok(Ending::LockLost)
}

fn say(client: &mut Client, who: &str, command: &str, what: &str) -> io::Result<String> {
    let words: Vec<&str> = command.split(' ').collect();
    let reply = client.ask(&words)?;
    say!("  {who}: {command:<38} -> {reply:<5} {what}");
    Ok(reply)
}

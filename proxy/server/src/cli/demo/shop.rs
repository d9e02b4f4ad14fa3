//! The shop of `lockwarden demo --guard`. Its program reads the stock under a lock, pauses, and writes the stock back; a
//! quarter of the pauses are longer than the lock's TTL. A worker that wakes too late writes a stock from which others have
//! sold meanwhile, and those items are sold twice. Two shops run the program at the same time: one directly on Redis, one
//! through the proxy with a guard on the stock.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_control::random;

use crate::terminal::say;

use crate::app::private_redis::PrivateRedis;

use super::servers::{Client, Proxy};

/// Items for sale.
const ITEMS: u64 = 100;
/// Workers, each with its own connection.
const WORKERS: u64 = 20;
/// The TTL of the lock, ms.
const TTL_MS: &str = "150";
/// A shop that is not empty after this time gives up.
const CLOSES: Duration = Duration::from_secs(60);

const STOCK: &str = "stock:7";
const LOCK: &str = "lock_sale_7";
const GUARD: &str = r#"[[guard]]
name = "stock"
keys = ["stock:{id}"]
lock = "lock_sale_{id}"
mode = "enforce"
"#;
const NAMESPACE: &str = r#"[[namespace]]
name = "sale"
keys = ["lock_sale_*"]
mode = "enforce"
"#;
/// How lock libraries release a lock: only if the value is still their own.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// Opens both shops. Returns whether the first oversold and the second did not.
pub(super) fn tell() -> Result<bool, Box<dyn Error>> {
    let (bare, governed) = (PrivateRedis::start()?, PrivateRedis::start()?);
    let proxy = guarded(governed.address())?;
    say!(
        "Two shops run the same program at the same time: {ITEMS} items, {WORKERS} workers with a connection each.\n\
         A worker takes the lock (SET NX PX {TTL_MS}), reads the stock, pauses, writes the stock back, and\n\
         releases the lock. Every fourth pause is longer than the {TTL_MS} ms of the lock. This takes seconds ...\n"
    );
    io::stdout().flush()?;
    let (straight, kept) = thread::scope(|scope| {
        let straight = scope.spawn(|| sell_out(bare.address(), bare.address()));
        let kept = sell_out(proxy.address(), governed.address());
        (result(straight.join()), kept)
    });
    let (straight, kept) = (straight?, kept?);
    for (shop, sales) in [
        ("Straight to Redis:", &straight),
        ("Through lockwarden, with a guard on the stock (only the address is different):", &kept),
    ] {
        let seconds = sales.took.as_secs_f64();
        say!("{shop}\n  {} ({seconds:.1} s)", sales.in_words());
    }
    if let Some(refusal) = &kept.refusal {
        say!("\nWhat a worker was told that woke too late:\n  {refusal}");
    }
    say!("\nThe guard, in lockwarden's configuration:");
    for line in GUARD.lines() {
        say!("  {line}");
    }
    proxy.stop()?;
    let is_damaged = straight.are_complete() && straight.oversold() > 0;
    let is_safe = kept.are_complete() && kept.oversold() == 0 && kept.refused > 0;
    Ok(is_damaged && is_safe)
}

/// The proxy with the guard. It has read its file when this returns.
fn guarded(backend: SocketAddr) -> Result<Proxy, Box<dyn Error>> {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile()?;
    write!(file, "backend = \"redis://{backend}\"\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\n\n{NAMESPACE}\n{GUARD}")?;
    Proxy::start(|command| {
        command.arg("--config").arg(file.path());
    })
}

/// Makes the workers sell until the shop is empty. They connect to `address`; its Redis is `redis`.
fn sell_out(address: SocketAddr, redis: SocketAddr) -> io::Result<Sales> {
    let mut shelf = Client::connect(redis)?;
    shelf.ask(&["SET", STOCK, &ITEMS.to_string()])?;
    let opened = Instant::now();
    let workers: Vec<io::Result<Worker>> = thread::scope(|scope| {
        let start = |number| scope.spawn(move || Worker::works(number, address, opened));
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        let ended = workers.into_iter().map(|worker| result(worker.join()));
        ended.collect()
    });
    let took = opened.elapsed();
    let mut sales = Sales { sold: 0, refused: 0, refusal: None, took, left: shelf.ask(&["GET", STOCK])? };
    for worker in workers {
        let worker = worker?;
        sales.sold += worker.sold;
        sales.refused += worker.refused;
        sales.refusal = sales.refusal.or(worker.refusal);
    }
    Ok(sales)
}

fn result<T>(ended: thread::Result<io::Result<T>>) -> io::Result<T> {
    ended.unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))
}

/// The sales of a shop until it was empty.
struct Sales {
    /// Writes of the stock that sold an item.
    sold: u64,
    /// Writes that were refused because they came too late.
    refused: u64,
    /// The error reply of a refused write.
    refusal: Option<String>,
    /// How long it was open.
    took: Duration,
    /// The final stock.
    left: String,
}

impl Sales {
    /// Items that were sold but did not exist.
    fn oversold(&self) -> u64 {
        self.sold.saturating_sub(ITEMS)
    }

    /// The same in one line.
    fn in_words(&self) -> String {
        let (sold, oversold) = (self.sold, self.oversold());
        match self.refused {
            0 => format!("{sold} sold of {ITEMS}: {oversold} oversold"),
            refused => {
                format!("{sold} sold of {ITEMS}: {oversold} oversold, {refused} late writes refused")
            }
        }
    }

    /// Whether all items were sold.
    fn are_complete(&self) -> bool {
        self.sold >= ITEMS && self.left == "0"
    }
}

/// The program, which is the same in both shops.
struct Worker {
    number: u64,
    client: Client,
    /// How often it had the lock.
    turns: u64,
    /// Writes that were carried out, and that were refused.
    sold: u64,
    refused: u64,
    refusal: Option<String>,
}

impl Worker {
    /// Sells until nothing is left.
    fn works(number: u64, address: SocketAddr, opened: Instant) -> io::Result<Worker> {
        let mut worker =
            Worker { number, client: Client::connect(address)?, turns: 0, sold: 0, refused: 0, refusal: None };
        let mut tries = 0;
        loop {
            if opened.elapsed() > CLOSES {
                return Err(io::Error::other("a shop is not empty after a minute"));
            }
            let own: String = random::sixteen().iter().map(|byte| format!("{byte:02x}")).collect();
            let taken = worker.client.ask(&["SET", LOCK, &own, "NX", "PX", TTL_MS])?;
            if taken != "+OK" {
                tries += 1;
                thread::sleep(Duration::from_millis(8 + (number * 3 + tries * 5) % 8));
                continue;
            }
            let is_empty = !worker.sells_one()?;
            worker.client.ask(&["EVAL", COMPARE_AND_DELETE, "1", LOCK, &own])?;
            if is_empty {
                return Ok(worker);
            }
        }
    }

    /// Under the lock, as it believes. Returns whether there was an item to sell.
    fn sells_one(&mut self) -> io::Result<bool> {
        let stock = self.client.ask(&["GET", STOCK])?;
        let stock: u32 = stock.parse().map_err(io::Error::other)?;
        let Some(less) = stock.checked_sub(1) else {
            return Ok(false);
        };
        thread::sleep(self.pause());
        let answer = self.client.ask(&["SET", STOCK, &less.to_string()])?;
        let is_refused = answer.starts_with("-LOCKDENIED stale-fence ");
        if !is_refused && answer != "+OK" {
            return Err(io::Error::other(answer));
        }
        if is_refused {
            self.refused += 1;
            self.refusal.get_or_insert(answer);
        } else {
            self.sold += 1;
        }
        Ok(true)
    }

    /// Every fourth pause is longer than the lock's TTL.
    fn pause(&mut self) -> Duration {
        self.turns += 1;
        let spread = self.turns * 7 + self.number * 3;
        let pause_ms = match (self.turns + self.number) % 4 {
            0 => 160 + spread % 40,
            _ => 4 + spread % 8,
        };
        Duration::from_millis(pause_ms)
    }
}
